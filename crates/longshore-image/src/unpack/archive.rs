//! Reads tar archives: ustar, PAX, GNU and old ones, as a stream and without trust.
//!
//! Where the formats leave room, the choice is that of Go's `archive/tar`, because the tools that
//! write and read image layers (Docker, containerd, umoci, skopeo) all use it: an archive must not
//! mean one thing to them and another to us. So types without data (links, folders, devices) have
//! none whatever their size field says; a PAX size counts for the entry itself and not for a
//! header in between; global PAX headers change nothing. Stricter than there: a sparse map must
//! account for every byte of data.
//!
//! No number from a header makes memory or work before it was checked against a bound here or
//! against the caller's limits.

use std::io;

use super::stream::Stream;

/// The unit of the format.
const BLOCK: usize = 512;
/// The most that one extension header (a PAX header, a long name, a sparse map) may hold; Go's
/// bound too.
const EXTENSION_BYTES: u64 = 1024 * 1024;
/// The most data regions of one sparse file: 1 MiB of map holds no more than about this.
const SPARSE_REGIONS: usize = 128 * 1024;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    File,
    HardLink,
    Symlink,
    Device,
    Directory,
    Fifo,
    /// A type that is not known or means nothing in an image (volume label, global header).
    Other,
}

/// A point in time as the file system keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Time {
    pub(super) seconds: i64,
    pub(super) nanoseconds: u32,
}

/// A part of a sparse file that has data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// One entry; names are bytes as they stand in the archive.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) kind: EntryKind,
    pub(super) path: Vec<u8>,
    pub(super) link: Vec<u8>,
    /// Permission bits with setuid, setgid and sticky.
    pub(super) mode: u32,
    pub(super) uid: i64,
    pub(super) gid: i64,
    pub(super) mtime: Time,
    /// Length of the file, holes included.
    pub(super) size: u64,
    /// The parts that have data, in order; `None` for a file without holes.
    pub(super) sparse: Option<Vec<Region>>,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Why an archive cannot be read on.
#[derive(Debug)]
pub(super) enum Fault {
    /// The source of the bytes failed.
    Stream(io::Error),
    /// The bytes are not a tar archive, or a broken one.
    Malformed(String),
    /// More headers than the caller allows.
    TooManyHeaders,
    /// More bytes than the caller allows.
    TooManyBytes,
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::Stream(error)
    }
}

fn malformed<T>(reason: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Malformed(reason.into()))
}

/// What may still be read, over all layers of an image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    pub(super) headers: u64,
    pub(super) bytes: u64,
}

/// An archive that is being read.
pub(super) struct Archive<'r> {
    stream: Stream<'r>,
    allowance: Allowance,
    /// Bytes of the current entry's data, and of the padding after it, not yet taken.
    data_left: u64,
    padding_left: u64,
}

/// The fields that extension headers set for the entry after them.
#[derive(Default)]
struct Extensions {
    pax: Option<Pax>,
    gnu_path: Option<Vec<u8>>,
    gnu_link: Option<Vec<u8>>,
}

/// The records of a PAX header that mean something here.
#[derive(Default)]
struct Pax {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<i64>,
    gid: Option<i64>,
    mtime: Option<Time>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    sparse_major: Option<Vec<u8>>,
    sparse_minor: Option<Vec<u8>>,
    sparse_name: Option<Vec<u8>>,
    sparse_size: Option<u64>,
    sparse_map: Option<Vec<Region>>,
    /// An offset of format 0.0 whose length has not come yet.
    sparse_offset: Option<u64>,
}

impl<'r> Archive<'r> {
    pub(super) fn new(stream: Stream<'r>, allowance: Allowance) -> Archive<'r> {
        Archive {
            stream,
            allowance,
            data_left: 0,
            padding_left: 0,
        }
    }

    /// Bytes read so far: where an error is.
    pub(super) fn offset(&self) -> u64 {
        self.stream.taken()
    }

    /// What is left of the allowance, and the buffer, for the next layer.
    pub(super) fn into_parts(self) -> (Allowance, Vec<u8>) {
        let allowance = Allowance {
            headers: self.allowance.headers,
            bytes: self.allowance.bytes.saturating_sub(self.stream.taken()),
        };
        (allowance, self.stream.into_buffer())
    }

    /// Reads to the next entry; `None` at the end of the archive.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Fault> {
        let rest = self.data_left + self.padding_left;
        self.data_left = 0;
        self.padding_left = 0;
        self.skip(rest)?;
        let mut extensions = Extensions::default();
        let mut extended = false;
        loop {
            let Some(header) = self.header()? else {
                if extended {
                    return malformed("the archive ends after an extension header");
                }
                return Ok(None);
            };
            match header.typeflag() {
                b'x' => {
                    let records = self.extension(&header)?;
                    extensions.pax = Some(Pax::parse(&records)?);
                }
                b'L' => extensions.gnu_path = Some(until_nul(&self.extension(&header)?).to_vec()),
                b'K' => extensions.gnu_link = Some(until_nul(&self.extension(&header)?).to_vec()),
                _ => return self.entry(&header, extensions).map(Some),
            }
            extended = true;
        }
    }

    /// Takes the next piece of the current entry's data; empty when there is no more.
    pub(super) fn data(&mut self, most: u64) -> Result<&[u8], Fault> {
        let wanted = self.data_left.min(most);
        if wanted == 0 {
            return Ok(b"");
        }
        if self.allowance.bytes < self.stream.taken().saturating_add(wanted) {
            return Err(Fault::TooManyBytes);
        }
        let piece = self.stream.take(wanted)?;
        if piece.is_empty() {
            return malformed("the archive ends inside a file");
        }
        self.data_left -= piece.len() as u64;
        Ok(piece)
    }

    /// Reads what stands behind the end mark, so that whoever hashes the stream sees all of it.
    pub(super) fn drain(&mut self) -> Result<(), Fault> {
        while !self.stream.take(u64::MAX)?.is_empty() {
            if self.allowance.bytes < self.stream.taken() {
                return Err(Fault::TooManyBytes);
            }
        }
        Ok(())
    }

    fn skip(&mut self, count: u64) -> Result<(), Fault> {
        if self.allowance.bytes < self.stream.taken().saturating_add(count) {
            return Err(Fault::TooManyBytes);
        }
        if self.stream.skip(count)? < count {
            return malformed("the archive ends inside an entry");
        }
        Ok(())
    }

    /// Reads the next header block; `None` at the end mark or the end of the stream.
    fn header(&mut self) -> Result<Option<Header>, Fault> {
        let Some(block) = self.block()? else {
            return Ok(None);
        };
        if block.iter().all(|&byte| byte == 0) {
            return match self.block()? {
                Some(second) if second.iter().any(|&byte| byte != 0) => {
                    malformed("an empty block stands between two entries")
                }
                _ => Ok(None),
            };
        }
        let Some(headers) = self.allowance.headers.checked_sub(1) else {
            return Err(Fault::TooManyHeaders);
        };
        self.allowance.headers = headers;
        let header = Header(block);
        header.check_sum()?;
        Ok(Some(header))
    }

    fn block(&mut self) -> Result<Option<[u8; BLOCK]>, Fault> {
        if self.allowance.bytes <= self.stream.taken() {
            return Err(Fault::TooManyBytes);
        }
        let bytes = self.stream.take(BLOCK as u64)?;
        match <[u8; BLOCK]>::try_from(bytes) {
            Ok(block) => Ok(Some(block)),
            Err(_) if bytes.is_empty() => Ok(None),
            Err(_) => malformed("the archive ends inside a header"),
        }
    }

    /// Reads the content of an extension header.
    fn extension(&mut self, header: &Header) -> Result<Vec<u8>, Fault> {
        let size = header.size()?;
        if size > EXTENSION_BYTES {
            return malformed(format!(
                "an extension header of {size} bytes; the most is {EXTENSION_BYTES}"
            ));
        }
        let mut content = Vec::with_capacity(size as usize);
        self.data_left = size;
        while self.data_left > 0 {
            content.extend_from_slice(self.data(size)?);
        }
        self.skip(padding(size))?;
        Ok(content)
    }

    /// Puts header and extensions together.
    fn entry(&mut self, header: &Header, extensions: Extensions) -> Result<Entry, Fault> {
        let mut pax = extensions.pax.unwrap_or_default();
        if pax.sparse_offset.is_some() {
            return malformed("a sparse map ends after an offset");
        }
        let sparse_name = pax.sparse_name.take();
        let path = sparse_name
            .or(pax.path.take())
            .or(extensions.gnu_path)
            .unwrap_or_else(|| header.path());
        let link = pax
            .link
            .take()
            .or(extensions.gnu_link)
            .unwrap_or_else(|| until_nul(header.field(157, 100)).to_vec());
        let has_slash = path.ends_with(b"/");
        let kind = match header.typeflag() {
            // Archives from before the folder type, and GNU tar to this day.
            b'0' | 0 | b'7' if has_slash => EntryKind::Directory,
            b'0' | 0 | b'7' | b'S' => EntryKind::File,
            b'1' => EntryKind::HardLink,
            b'2' => EntryKind::Symlink,
            b'3' | b'4' => EntryKind::Device,
            b'5' => EntryKind::Directory,
            b'6' => EntryKind::Fifo,
            _ => EntryKind::Other,
        };
        let stored = match header.typeflag() {
            b'1'..=b'6' => 0,
            _ => match pax.size {
                Some(size) => size,
                None => header.size()?,
            },
        };
        self.data_left = stored;
        self.padding_left = padding(stored);
        if stored > i64::MAX as u64 {
            return malformed("a file of more than 8 EiB");
        }
        let mut entry = Entry {
            kind,
            path,
            link,
            mode: (header.number(100, 8, "mode")? & 0o7777) as u32,
            uid: match pax.uid {
                Some(uid) => uid,
                None => header.number(108, 8, "uid")?,
            },
            gid: match pax.gid {
                Some(gid) => gid,
                None => header.number(116, 8, "gid")?,
            },
            mtime: match pax.mtime {
                Some(mtime) => mtime,
                None => Time {
                    seconds: header.number(136, 12, "mtime")?,
                    nanoseconds: 0,
                },
            },
            size: stored,
            sparse: None,
            xattrs: std::mem::take(&mut pax.xattrs),
        };
        if header.typeflag() == b'S' {
            self.old_sparse(header, &mut entry)?;
        } else if kind == EntryKind::File {
            self.pax_sparse(pax, &mut entry)?;
        }
        if let Some(regions) = &entry.sparse {
            check_regions(regions, entry.size, self.data_left)?;
        }
        Ok(entry)
    }

    /// The map of the old GNU format: in the header and in blocks right behind it.
    fn old_sparse(&mut self, header: &Header, entry: &mut Entry) -> Result<(), Fault> {
        if !header.is_gnu() {
            return malformed("a sparse entry in an archive that is not GNU's");
        }
        entry.size = unsigned(header.number(483, 12, "real size")?, "real size")?;
        let mut regions = Vec::new();
        old_regions(header.field(386, 96), &mut regions)?;
        let mut more = header.0[482] != 0;
        let mut read = 0;
        while more {
            read += BLOCK as u64;
            if read > EXTENSION_BYTES {
                return malformed("a sparse map of more than 1 MiB");
            }
            let Some(block) = self.block()? else {
                return malformed("the archive ends inside a sparse map");
            };
            old_regions(&block[..504], &mut regions)?;
            more = block[504] != 0;
        }
        entry.sparse = Some(regions);
        Ok(())
    }

    /// The maps of GNU's PAX formats 0.0 and 0.1 (in the records) and 1.0 (before the data).
    fn pax_sparse(&mut self, mut pax: Pax, entry: &mut Entry) -> Result<(), Fault> {
        let version = (pax.sparse_major.as_deref(), pax.sparse_minor.as_deref());
        let regions = match version {
            (None, None) | (Some(b"0"), Some(b"0" | b"1")) => match pax.sparse_map.take() {
                Some(regions) => regions,
                None if version.0.is_none() => return Ok(()),
                None => Vec::new(),
            },
            (Some(b"1"), Some(b"0")) => self.sparse_map_before_data()?,
            _ => return malformed("a sparse file of a format that is not known"),
        };
        if regions.len() > SPARSE_REGIONS {
            return malformed("a sparse file of too many parts");
        }
        let Some(size) = pax.sparse_size else {
            return malformed("a sparse file without its size");
        };
        entry.size = size;
        entry.sparse = Some(regions);
        Ok(())
    }

    /// Decimal numbers, one a line, padded to a block: the count, then offset and length of each.
    fn sparse_map_before_data(&mut self) -> Result<Vec<Region>, Fault> {
        let mut read: u64 = 0;
        let mut line = Vec::new();
        let mut numbers: Vec<u64> = Vec::new();
        let mut wanted = None;
        while wanted != Some(numbers.len()) {
            read += BLOCK as u64;
            if read > EXTENSION_BYTES {
                return malformed("a sparse map of more than 1 MiB");
            }
            let block = self.data(BLOCK as u64)?;
            if block.len() < BLOCK {
                return malformed("the data ends inside its sparse map");
            }
            for &byte in block {
                if wanted == Some(numbers.len()) {
                    break;
                }
                if byte != b'\n' {
                    line.push(byte);
                    continue;
                }
                let number = decimal(&line, "sparse map")?;
                line.clear();
                if wanted.is_some() {
                    numbers.push(number);
                } else if number > SPARSE_REGIONS as u64 {
                    return malformed(format!("a sparse file of {number} parts"));
                } else {
                    wanted = Some(2 * number as usize);
                }
            }
        }
        Ok(numbers
            .chunks_exact(2)
            .map(|pair| Region {
                offset: pair[0],
                bytes: pair[1],
            })
            .collect())
    }
}

/// A header block of 512 bytes.
struct Header([u8; BLOCK]);

impl Header {
    fn field(&self, start: usize, len: usize) -> &[u8] {
        &self.0[start..start + len]
    }

    fn typeflag(&self) -> u8 {
        self.0[156]
    }

    fn is_ustar(&self) -> bool {
        self.field(257, 6) == b"ustar\0"
    }

    fn is_gnu(&self) -> bool {
        self.field(257, 8) == b"ustar  \0"
    }

    fn is_star(&self) -> bool {
        self.is_ustar() && self.field(508, 4) == b"tar\0"
    }

    /// The sum of all bytes, its own field taken as blanks; old tars added signed bytes.
    fn check_sum(&self) -> Result<(), Fault> {
        let Ok(stated) = number(self.field(148, 8)) else {
            return malformed("this is not a tar header (its checksum is no number)");
        };
        let sum = |bytes: &[u8]| bytes.iter().fold(0, |sum, &byte| sum + i64::from(byte));
        let blanks = 8 * i64::from(b' ');
        let unsigned = sum(&self.0) - sum(self.field(148, 8)) + blanks;
        if stated == unsigned {
            return Ok(());
        }
        let high = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte >= 0x80).count() as i64;
        let signed = unsigned - 256 * (high(&self.0) - high(self.field(148, 8)));
        if stated != signed {
            return malformed("this is not a tar header (its checksum is wrong)");
        }
        Ok(())
    }

    /// The name field with its prefix, where the format has one.
    fn path(&self) -> Vec<u8> {
        let name = until_nul(self.field(0, 100));
        let prefix: &[u8] = if self.is_star() {
            until_nul(self.field(345, 131))
        } else if self.is_ustar() {
            until_nul(self.field(345, 155))
        } else {
            b""
        };
        if prefix.is_empty() {
            return name.to_vec();
        }
        let mut path = Vec::with_capacity(prefix.len() + 1 + name.len());
        path.extend_from_slice(prefix);
        path.push(b'/');
        path.extend_from_slice(name);
        path
    }

    fn size(&self) -> Result<u64, Fault> {
        unsigned(self.number(124, 12, "size")?, "size")
    }

    fn number(&self, start: usize, len: usize, what: &str) -> Result<i64, Fault> {
        number(self.field(start, len))
            .or_else(|()| malformed(format!("the {what} of an entry is no number")))
    }
}

impl Pax {
    /// Parses `LENGTH KEY=VALUE\n` records; an empty value takes the field back.
    fn parse(mut records: &[u8]) -> Result<Pax, Fault> {
        let mut pax = Pax::default();
        while !records.is_empty() {
            let Some(blank) = records.iter().take(20).position(|&byte| byte == b' ') else {
                return malformed("a PAX record without a length");
            };
            let len = decimal(&records[..blank], "PAX record length")?;
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            if len > records.len() || len < blank + 2 || records[len - 1] != b'\n' {
                return malformed("a PAX record whose length is wrong");
            }
            let record = &records[blank + 1..len - 1];
            let Some(equals) = record.iter().position(|&byte| byte == b'=') else {
                return malformed("a PAX record without `=`");
            };
            pax.set(&record[..equals], &record[equals + 1..])?;
            records = &records[len..];
        }
        Ok(pax)
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Fault> {
        let given = !value.is_empty();
        let bytes = || given.then(|| value.to_vec());
        match key {
            b"path" => self.path = name(value)?,
            b"linkpath" => self.link = name(value)?,
            b"GNU.sparse.name" => self.sparse_name = name(value)?,
            b"size" => self.size = given.then(|| decimal(value, "size")).transpose()?,
            b"uid" => self.uid = given.then(|| signed_decimal(value, "uid")).transpose()?,
            b"gid" => self.gid = given.then(|| signed_decimal(value, "gid")).transpose()?,
            b"mtime" => self.mtime = given.then(|| time(value)).transpose()?,
            b"GNU.sparse.major" => self.sparse_major = bytes(),
            b"GNU.sparse.minor" => self.sparse_minor = bytes(),
            b"GNU.sparse.size" | b"GNU.sparse.realsize" => {
                self.sparse_size = Some(decimal(value, "sparse size")?);
            }
            b"GNU.sparse.offset" => {
                if self
                    .sparse_offset
                    .replace(decimal(value, "sparse offset")?)
                    .is_some()
                {
                    return malformed("two offsets of a sparse map in a row");
                }
            }
            b"GNU.sparse.numbytes" => {
                let Some(offset) = self.sparse_offset.take() else {
                    return malformed("a length of a sparse map without its offset");
                };
                let bytes = decimal(value, "sparse length")?;
                let map = self.sparse_map.get_or_insert_default();
                map.push(Region { offset, bytes });
            }
            b"GNU.sparse.map" => self.sparse_map = Some(sparse_list(value)?),
            _ => {
                if let Some(attribute) = key.strip_prefix(b"SCHILY.xattr.") {
                    if attribute.is_empty() || attribute.contains(&0) {
                        return malformed("an extended attribute without a name");
                    }
                    self.xattrs.retain(|(name, _)| name != attribute);
                    self.xattrs.push((attribute.to_vec(), value.to_vec()));
                }
            }
        }
        Ok(())
    }
}

/// A name of a PAX record; an empty one means that the header's own holds.
fn name(value: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
    if value.contains(&0) {
        return malformed("a name with a NUL byte in it");
    }
    Ok((!value.is_empty()).then(|| value.to_vec()))
}

/// `offset,length,offset,length,…` of the sparse format 0.1.
fn sparse_list(value: &[u8]) -> Result<Vec<Region>, Fault> {
    if value.is_empty() {
        return Ok(Vec::new());
    }
    let numbers = value
        .split(|&byte| byte == b',')
        .map(|number| decimal(number, "sparse map"))
        .collect::<Result<Vec<u64>, Fault>>()?;
    if numbers.len() % 2 != 0 {
        return malformed("a sparse map ends after an offset");
    }
    Ok(numbers
        .chunks_exact(2)
        .map(|pair| Region {
            offset: pair[0],
            bytes: pair[1],
        })
        .collect())
}

/// Reads slots of 12 + 12 bytes up to the first that is not in use.
fn old_regions(slots: &[u8], regions: &mut Vec<Region>) -> Result<(), Fault> {
    for slot in slots.chunks_exact(24) {
        if slot[0] == 0 || slot[12] == 0 {
            break;
        }
        let field = |bytes| match number(bytes) {
            Ok(value) => unsigned(value, "sparse map"),
            Err(()) => malformed("a sparse map with something that is no number"),
        };
        regions.push(Region {
            offset: field(&slot[..12])?,
            bytes: field(&slot[12..])?,
        });
    }
    Ok(())
}

/// A sparse map must go forward, stay inside the file and use up the data exactly.
fn check_regions(regions: &[Region], size: u64, data_bytes: u64) -> Result<(), Fault> {
    let mut end = 0;
    let mut sum: u64 = 0;
    for region in regions {
        let Some(region_end) = region.offset.checked_add(region.bytes) else {
            return malformed("a sparse map with a part beyond 2^64");
        };
        if region.offset < end || region_end > size {
            return malformed("a sparse map whose parts overlap or leave the file");
        }
        end = region_end;
        // No overflow: the parts do not overlap and end below 2^64.
        sum += region.bytes;
    }
    if sum != data_bytes {
        return malformed(format!(
            "a sparse file with {data_bytes} bytes of data where its map says {sum}"
        ));
    }
    Ok(())
}

/// Bytes from the end of the data to the next block.
fn padding(bytes: u64) -> u64 {
    bytes.wrapping_neg() % BLOCK as u64
}

fn until_nul(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|&byte| byte == 0);
    &field[..end.unwrap_or(field.len())]
}

fn unsigned(value: i64, what: &str) -> Result<u64, Fault> {
    u64::try_from(value).or_else(|_| malformed(format!("the {what} of an entry is negative")))
}

/// A header's number: octal text, or binary where the first bit is set. An empty field is zero.
fn number(field: &[u8]) -> Result<i64, ()> {
    if field[0] & 0x80 != 0 {
        return binary(field);
    }
    let text = until_nul(field).trim_ascii();
    // Some writers put blanks or NULs in front.
    let text = if text.is_empty() {
        until_nul(&field[field.iter().take_while(|&&byte| byte == 0).count()..]).trim_ascii()
    } else {
        text
    };
    let mut value: i64 = 0;
    for &byte in text {
        if !(b'0'..=b'7').contains(&byte) {
            return Err(());
        }
        value = value.checked_mul(8).ok_or(())? + i64::from(byte - b'0');
    }
    Ok(value)
}

/// GNU's base-256 numbers: two's complement, big end first, the top bit being the mark.
fn binary(field: &[u8]) -> Result<i64, ()> {
    let negative = field[0] & 0x40 != 0;
    let mut value: i128 = i128::from(field[0] & 0x3f);
    if negative {
        value -= 0x40;
    }
    for &byte in &field[1..] {
        value = value * 256 + i128::from(byte);
    }
    i64::try_from(value).map_err(|_| ())
}

fn decimal(text: &[u8], what: &str) -> Result<u64, Fault> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text)
        .ok()
        .filter(|_| digits)
        .and_then(|text| text.parse().ok())
        .map_or_else(|| malformed(format!("the {what} is no number")), Ok)
}

fn signed_decimal(text: &[u8], what: &str) -> Result<i64, Fault> {
    let (sign, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let value = decimal(digits, what)?;
    match i64::try_from(value) {
        Ok(value) => Ok(sign * value),
        Err(_) => malformed(format!("the {what} of an entry is too large")),
    }
}

/// Seconds with any number of decimals, cut to nanoseconds; negative before 1970.
fn time(text: &[u8]) -> Result<Time, Fault> {
    let negative = text.first() == Some(&b'-');
    let mut parts = text.splitn(2, |&byte| byte == b'.');
    let whole = signed_decimal(parts.next().unwrap_or(b""), "mtime")?;
    let decimals = parts.next().unwrap_or(b"");
    if !decimals.iter().all(u8::is_ascii_digit) {
        return malformed("the mtime is no number");
    }
    let nanoseconds = decimals
        .iter()
        .copied()
        .chain(std::iter::repeat(b'0'))
        .take(9)
        .fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    if negative && nanoseconds > 0 {
        return Ok(Time {
            seconds: whole - 1,
            nanoseconds: 1_000_000_000 - nanoseconds,
        });
    }
    Ok(Time {
        seconds: whole,
        nanoseconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_numbers_are_octal_or_binary() {
        assert_eq!(number(b"0000644\0"), Ok(0o644));
        assert_eq!(number(b"   644 \0"), Ok(0o644));
        assert_eq!(number(b"\0\0\0\0\0\0\0\0"), Ok(0));
        assert_eq!(number(b"        "), Ok(0));
        assert_eq!(number(b"\0\x00755 \0 "), Ok(0o755));
        assert_eq!(number(b"77777777777\x37"), Ok(0o777_777_777_777));
        assert_eq!(number(b"\x80\0\0\0\0\x21\0\0"), Ok(0x21_0000));
        assert_eq!(number(b"\xff\xff\xff\xff\xff\xff\xff\xfe"), Ok(-2));
        assert_eq!(
            number(b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"),
            Err(())
        );
        assert_eq!(number(b"0000699\0"), Err(()));
        assert_eq!(number(b"-000644\0"), Err(()));
    }

    #[test]
    fn pax_times_keep_nanoseconds_on_both_sides_of_1970() {
        let of = |text: &str| time(text.as_bytes()).map(|time| (time.seconds, time.nanoseconds));
        assert_eq!(
            of("1700000000.123456789").unwrap(),
            (1_700_000_000, 123_456_789)
        );
        assert_eq!(of("1.5").unwrap(), (1, 500_000_000));
        assert_eq!(of("1.1234567899").unwrap(), (1, 123_456_789));
        assert_eq!(of("-1.25").unwrap(), (-2, 750_000_000));
        assert_eq!(of("-0.5").unwrap(), (-1, 500_000_000));
        assert_eq!(of("-3").unwrap(), (-3, 0));
        assert!(of("1.2.3").is_err());
        assert!(of("").is_err());
        assert!(of("9223372036854775808").is_err());
        assert!(of("1e9").is_err());
    }

    #[test]
    fn pax_records_must_have_their_length() {
        let pax = Pax::parse(b"12 path=a\xff=\n11 size=42\n").unwrap();
        assert_eq!(pax.path.as_deref(), Some(&b"a\xff="[..]));
        assert_eq!(pax.size, Some(42));
        for broken in [
            &b"13 path=a\n"[..],
            b"8 path=a\n",
            b"0 path=a\n",
            b"99999999999999999999999 path=a\n",
            b"path=a\n",
            b"10 path=ab",
            b"-1 path=a\n",
            b"3 \n",
            b"12 path=a\0b\n",
        ] {
            assert!(Pax::parse(broken).is_err(), "{}", broken.escape_ascii());
        }
    }

    #[test]
    fn a_sparse_map_must_account_for_the_data() {
        let region = |offset, bytes| Region { offset, bytes };
        assert!(check_regions(&[region(0, 5), region(10, 5)], 20, 10).is_ok());
        assert!(check_regions(&[region(20, 0)], 20, 0).is_ok());
        assert!(check_regions(&[region(0, 5)], 20, 6).is_err());
        assert!(check_regions(&[region(0, 6), region(5, 5)], 20, 11).is_err());
        assert!(check_regions(&[region(16, 5)], 20, 5).is_err());
        assert!(check_regions(&[region(u64::MAX, 5)], 20, 5).is_err());
    }
}
