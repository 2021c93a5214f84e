//! Writes tar archives byte by byte, also those that no archiver would write.

/// One header with its data.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) typeflag: u8,
    pub(crate) link: Vec<u8>,
    pub(crate) data: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    pub(crate) mtime: u64,
    /// The size field, where it is not the length of the data.
    pub(crate) size: Option<u64>,
    pub(crate) magic: &'static [u8; 8],
    pub(crate) pax: Vec<(Vec<u8>, Vec<u8>)>,
    /// Bytes put over the header before its checksum is made.
    pub(crate) patches: Vec<(usize, Vec<u8>)>,
}

/// The time of entries that set none.
pub(crate) const MTIME: u64 = 1_700_000_000;

fn entry(typeflag: u8, name: impl AsRef<[u8]>, mode: u32) -> Entry {
    Entry {
        name: name.as_ref().to_vec(),
        typeflag,
        link: Vec::new(),
        data: Vec::new(),
        mode,
        uid: 0,
        gid: 0,
        mtime: MTIME,
        size: None,
        magic: b"ustar\x0000",
        pax: Vec::new(),
        patches: Vec::new(),
    }
}

pub(crate) fn file(name: impl AsRef<[u8]>, data: impl AsRef<[u8]>) -> Entry {
    Entry {
        data: data.as_ref().to_vec(),
        ..entry(b'0', name, 0o644)
    }
}

pub(crate) fn folder(name: impl AsRef<[u8]>) -> Entry {
    entry(b'5', name, 0o755)
}

pub(crate) fn symlink(name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Entry {
    Entry {
        link: target.as_ref().to_vec(),
        ..entry(b'2', name, 0o777)
    }
}

pub(crate) fn hard_link(name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Entry {
    Entry {
        link: target.as_ref().to_vec(),
        ..entry(b'1', name, 0o644)
    }
}

pub(crate) fn other(typeflag: u8, name: impl AsRef<[u8]>) -> Entry {
    entry(typeflag, name, 0o644)
}

impl Entry {
    pub(crate) fn mode(self, mode: u32) -> Entry {
        Entry { mode, ..self }
    }

    pub(crate) fn owner(self, uid: u64, gid: u64) -> Entry {
        Entry { uid, gid, ..self }
    }

    pub(crate) fn size(self, size: u64) -> Entry {
        Entry {
            size: Some(size),
            ..self
        }
    }

    pub(crate) fn gnu(self) -> Entry {
        Entry {
            magic: b"ustar  \0",
            ..self
        }
    }

    pub(crate) fn pax(mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Entry {
        let record = (key.as_ref().to_vec(), value.as_ref().to_vec());
        self.pax.push(record);
        self
    }

    pub(crate) fn patch(mut self, at: usize, bytes: impl AsRef<[u8]>) -> Entry {
        self.patches.push((at, bytes.as_ref().to_vec()));
        self
    }

    /// Appends the entry, with a PAX header where its fields need one.
    pub(crate) fn write(&self, archive: &mut Vec<u8>) {
        let mut pax = self.pax.clone();
        let too_long = |name: &[u8]| name.len() > 100;
        if too_long(&self.name) && !pax.iter().any(|(key, _)| key == b"path") {
            pax.push((b"path".to_vec(), self.name.clone()));
        }
        if too_long(&self.link) {
            pax.push((b"linkpath".to_vec(), self.link.clone()));
        }
        if !pax.is_empty() {
            let mut records = Vec::new();
            for (key, value) in &pax {
                records.extend(pax_record(key, value));
            }
            let header = Entry {
                data: records,
                ..entry(b'x', "pax", 0o644)
            };
            header.write(archive);
        }
        archive.extend(self.header());
        archive.extend(&self.data);
        archive.resize(archive.len().next_multiple_of(512), 0);
    }

    fn header(&self) -> [u8; 512] {
        let mut header = [0; 512];
        let mut put = |at: usize, most: usize, bytes: &[u8]| {
            let count = bytes.len().min(most);
            header[at..at + count].copy_from_slice(&bytes[..count]);
        };
        put(0, 100, &self.name);
        put(100, 8, &octal(self.mode.into(), 8));
        put(108, 8, &octal(self.uid, 8));
        put(116, 8, &octal(self.gid, 8));
        put(
            124,
            12,
            &octal(self.size.unwrap_or(self.data.len() as u64), 12),
        );
        put(136, 12, &octal(self.mtime, 12));
        put(148, 8, b"        ");
        put(156, 1, &[self.typeflag]);
        put(157, 100, &self.link);
        put(257, 8, self.magic);
        for (at, bytes) in &self.patches {
            put(*at, 512, bytes);
        }
        seal(&mut header);
        header
    }
}

/// Sets the checksum.
pub(crate) fn seal(header: &mut [u8; 512]) {
    header[148..156].copy_from_slice(b"        ");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// Octal where it fits, else GNU's binary form.
pub(crate) fn octal(value: u64, len: usize) -> Vec<u8> {
    let text = format!("{value:0width$o}\0", width = len - 1);
    if text.len() <= len {
        return text.into_bytes();
    }
    let mut binary = vec![0; len];
    binary[len - 8..].copy_from_slice(&value.to_be_bytes());
    binary[0] |= 0x80;
    binary
}

/// `LENGTH KEY=VALUE\n`, the length counting its own digits.
pub(crate) fn pax_record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while len.to_string().len() + rest != len {
        len = len.to_string().len() + rest;
    }
    let mut record = format!("{len} ").into_bytes();
    record.extend(key);
    record.push(b'=');
    record.extend(value);
    record.push(b'\n');
    record
}

/// A whole archive with its end mark.
pub(crate) fn tar(entries: impl IntoIterator<Item = Entry>) -> Vec<u8> {
    let mut archive = Vec::new();
    for entry in entries {
        entry.write(&mut archive);
    }
    archive.extend([0; 1024]);
    archive
}
