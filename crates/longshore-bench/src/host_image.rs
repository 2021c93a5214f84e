//! An image made from the host's own files: programs, the libraries that they load, and data.
//!
//! A comparison of host and container is one of containers only where both run the same bytes. So
//! the image holds the very interpreter and library of the host at the very same paths, with their
//! modification times (Python trusts its compiled modules by them), and nothing has to be fetched.
//! It is written as an OCI image layout (image-spec 1.1), several gzip layers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::process::hex;

/// An image from the host could not be made.
#[derive(Debug, Error)]
pub(crate) enum HostImageError {
    /// A file of the host could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A file of the image could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A chain of symbolic links does not end.
    #[error("{} has too many symbolic links", path.display())]
    Loop { path: PathBuf },
    /// The loader does not tell what a program needs.
    #[error("cannot list the libraries of {}: {reason}", path.display())]
    Closure { path: PathBuf, reason: String },
}

enum Entry {
    Folder { mode: u32 },
    Link { target: PathBuf },
    Copy { source: PathBuf },
    Made { content: Vec<u8>, mode: u32 },
}

/// Gathers files into layers.
#[derive(Default)]
pub(crate) struct HostImage {
    seen: BTreeSet<PathBuf>,
    layer: BTreeMap<PathBuf, Entry>,
    layers: Vec<BTreeMap<PathBuf, Entry>>,
}

/// What was written.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Folder of the layout.
    pub(crate) path: PathBuf,
    /// Tag in it.
    pub(crate) tag: String,
    /// Digest of the manifest.
    pub(crate) digest: String,
    /// Blobs in the order in which a registry needs them: layers, configuration.
    pub(crate) blobs: Vec<String>,
    /// Number of layers.
    pub(crate) layers: usize,
    /// Compressed size of the layers.
    pub(crate) layer_bytes: u64,
    /// Number of entries in all layers.
    pub(crate) entries: usize,
}

pub(crate) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

impl HostImage {
    /// Adds an empty folder.
    pub(crate) fn folder(&mut self, path: &str, mode: u32) {
        self.put(Path::new(path), Entry::Folder { mode });
    }

    /// Adds a file with content of our own.
    pub(crate) fn made(&mut self, path: &str, content: impl Into<Vec<u8>>, mode: u32) {
        let path = Path::new(path);
        self.parents(path);
        let content = content.into();
        self.put(path, Entry::Made { content, mode });
    }

    fn put(&mut self, path: &Path, entry: Entry) {
        if self.seen.insert(path.to_owned()) {
            self.layer.insert(path.to_owned(), entry);
        }
    }

    fn parents(&mut self, path: &Path) {
        let above: Vec<&Path> = path.ancestors().skip(1).collect();
        for folder in above.into_iter().rev().filter(|f| *f != Path::new("/")) {
            self.put(folder, Entry::Folder { mode: 0o755 });
        }
    }

    /// Adds a file of the host at its own path, with every symbolic link on the way to it.
    ///
    /// Gives the path without links.
    pub(crate) fn add(&mut self, path: &Path) -> Result<PathBuf, HostImageError> {
        let mut rest: Vec<PathBuf> = parts(path);
        let mut at = PathBuf::from("/");
        let mut links = 0;
        while let Some(part) = rest.pop() {
            if part == Path::new("..") {
                at.pop();
                continue;
            }
            let next = at.join(&part);
            let read = |source| HostImageError::Read {
                path: next.clone(),
                source,
            };
            let kind = fs::symlink_metadata(&next).map_err(read)?.file_type();
            if kind.is_symlink() {
                links += 1;
                // The kernel gives up at the same number (path_resolution(7)).
                if links > 40 {
                    return Err(HostImageError::Loop {
                        path: path.to_owned(),
                    });
                }
                let target = fs::read_link(&next).map_err(read)?;
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                rest.extend(parts(&target));
                self.put(&next, Entry::Link { target });
                continue;
            }
            if kind.is_dir() {
                self.put(&next, Entry::Folder { mode: 0o755 });
            } else {
                self.put(
                    &next,
                    Entry::Copy {
                        source: next.clone(),
                    },
                );
            }
            at = next;
        }
        Ok(at)
    }

    /// Adds a program of the host with its loader and every library that the loader would load.
    pub(crate) fn add_program(&mut self, path: &Path) -> Result<(), HostImageError> {
        let real = self.add(path)?;
        let read = |source| HostImageError::Read {
            path: real.clone(),
            source,
        };
        let Some(loader) = interpreter(&real).map_err(read)? else {
            return Ok(());
        };
        self.add(&loader)?;
        self.add_libraries(&loader, &real)
    }

    /// Adds what `object` needs, by the word of the loader that would load it.
    pub(crate) fn add_libraries(
        &mut self,
        loader: &Path,
        object: &Path,
    ) -> Result<(), HostImageError> {
        let closure = |reason: String| HostImageError::Closure {
            path: object.to_owned(),
            reason,
        };
        let listed = Command::new(loader)
            .arg("--list")
            .arg(object)
            .output()
            .map_err(|error| closure(format!("cannot run {}: {error}", loader.display())))?;
        if !listed.status.success() {
            let said = String::from_utf8_lossy(&listed.stderr);
            return Err(closure(said.trim().to_owned()));
        }
        for library in libraries(&String::from_utf8_lossy(&listed.stdout)).map_err(closure)? {
            self.add(&library)?;
        }
        Ok(())
    }

    /// Adds every file below a folder of the host that `wanted` takes, and gives their paths.
    ///
    /// Folders that `wanted` refuses are not entered. What the caller may not read is left out.
    pub(crate) fn add_tree(
        &mut self,
        root: &Path,
        wanted: &dyn Fn(&Path) -> bool,
    ) -> Result<Vec<PathBuf>, HostImageError> {
        let mut files = Vec::new();
        let mut folders = vec![self.add(root)?];
        while let Some(folder) = folders.pop() {
            let read = |source| HostImageError::Read {
                path: folder.clone(),
                source,
            };
            let mut inside = Vec::new();
            for entry in fs::read_dir(&folder).map_err(read)? {
                inside.push(entry.map_err(read)?);
            }
            inside.sort_by_key(fs::DirEntry::file_name);
            for entry in inside {
                let path = entry.path();
                let kind = entry.file_type().map_err(read)?;
                if !wanted(&path) {
                    continue;
                }
                if kind.is_dir() {
                    self.put(&path, Entry::Folder { mode: 0o755 });
                    folders.push(path);
                } else if kind.is_file() && File::open(&path).is_ok() {
                    self.put(
                        &path,
                        Entry::Copy {
                            source: path.clone(),
                        },
                    );
                    files.push(path);
                } else if kind.is_symlink() && path.is_file() && File::open(&path).is_ok() {
                    self.add(&path)?;
                    files.push(path);
                }
            }
        }
        files.sort();
        Ok(files)
    }

    /// Closes the layer; what is added now goes into the next one.
    pub(crate) fn end_layer(&mut self) {
        if !self.layer.is_empty() {
            self.layers.push(std::mem::take(&mut self.layer));
        }
    }

    /// Writes an OCI image layout; `check` is asked between files whether to go on.
    pub(crate) fn write<E: From<HostImageError>>(
        mut self,
        folder: &Path,
        tag: &str,
        check: &dyn Fn() -> Result<(), E>,
    ) -> Result<Layout, E> {
        self.end_layer();
        let blobs = folder.join("blobs/sha256");
        fs::create_dir_all(&blobs).map_err(|source| HostImageError::Write {
            path: blobs.clone(),
            source,
        })?;
        let mut descriptors = Vec::new();
        let mut diff_ids = Vec::new();
        let mut digests = Vec::new();
        let mut layer_bytes = 0;
        let mut entries = 0;
        for layer in &self.layers {
            let (digest, diff_id, bytes) = write_layer(&blobs, layer, check)?;
            descriptors.push(json!({
                "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                "digest": digest, "size": bytes,
            }));
            diff_ids.push(diff_id);
            digests.push(digest);
            layer_bytes += bytes;
            entries += layer.len();
        }
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "powerpc64" => "ppc64le",
            other => other,
        };
        let config = json!({
            "architecture": architecture, "os": "linux",
            "config": {
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                "Cmd": ["/bin/sh"],
            },
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        let (config_digest, config_bytes) = write_json(&blobs, &config)?;
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST_TYPE,
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": config_digest, "size": config_bytes,
            },
            "layers": descriptors,
        });
        let (digest, manifest_bytes) = write_json(&blobs, &manifest)?;
        let index = json!({
            "schemaVersion": 2,
            "manifests": [{
                "mediaType": MANIFEST_TYPE, "digest": digest, "size": manifest_bytes,
                "annotations": {"org.opencontainers.image.ref.name": tag},
            }],
        });
        for (name, value) in [
            ("index.json", index),
            ("oci-layout", json!({"imageLayoutVersion": "1.0.0"})),
        ] {
            let path = folder.join(name);
            fs::write(&path, value.to_string())
                .map_err(|source| HostImageError::Write { path, source })?;
        }
        digests.push(config_digest);
        Ok(Layout {
            path: folder.to_owned(),
            tag: tag.to_owned(),
            digest,
            blobs: digests,
            layers: self.layers.len(),
            layer_bytes,
            entries,
        })
    }
}

/// The components of a path, last one first, to be popped.
fn parts(path: &Path) -> Vec<PathBuf> {
    let mut parts: Vec<PathBuf> = path
        .components()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| PathBuf::from(part.as_os_str()))
        .collect();
    parts.reverse();
    parts
}

impl Layout {
    /// The file of a blob.
    pub(crate) fn blob(&self, digest: &str) -> PathBuf {
        let name = digest.trim_start_matches("sha256:");
        self.path.join("blobs/sha256").join(name)
    }
}

/// Passes bytes on and keeps their number and digest.
struct Hashing<W> {
    to: W,
    hash: Sha256,
    bytes: u64,
}

impl<W: Write> Hashing<W> {
    fn new(to: W) -> Hashing<W> {
        Hashing {
            to,
            hash: Sha256::new(),
            bytes: 0,
        }
    }

    fn finish(self) -> (W, String, u64) {
        let digest = format!("sha256:{}", hex(&self.hash.finalize()));
        (self.to, digest, self.bytes)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn write_layer<E: From<HostImageError>>(
    blobs: &Path,
    layer: &BTreeMap<PathBuf, Entry>,
    check: &dyn Fn() -> Result<(), E>,
) -> Result<(String, String, u64), E> {
    let path = blobs.join("layer.new");
    let fail = |source| HostImageError::Write {
        path: path.clone(),
        source,
    };
    let file = File::create(&path).map_err(fail)?;
    let compressed = Hashing::new(io::BufWriter::with_capacity(1 << 18, file));
    // The fastest level: the layer travels over the loopback once and is deleted.
    let encoder = GzEncoder::new(compressed, Compression::fast());
    let mut tar = tar::Builder::new(Hashing::new(encoder));
    for (place, entry) in layer {
        check()?;
        append(&mut tar, place, entry)?;
    }
    let (encoder, diff_id, _) = tar.into_inner().map_err(fail)?.finish();
    let (file, digest, bytes) = encoder.finish().map_err(fail)?.finish();
    file.into_inner()
        .map_err(|error| fail(error.into_error()))?;
    let name = digest.trim_start_matches("sha256:");
    fs::rename(&path, blobs.join(name)).map_err(fail)?;
    Ok((digest, diff_id, bytes))
}

fn append<W: Write>(
    tar: &mut tar::Builder<W>,
    place: &Path,
    entry: &Entry,
) -> Result<(), HostImageError> {
    let inside = place.strip_prefix("/").unwrap_or(place);
    let fail = |source| HostImageError::Read {
        path: place.to_owned(),
        source,
    };
    let mut header = tar::Header::new_gnu();
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    match entry {
        Entry::Folder { mode } => {
            header.set_entry_type(tar::EntryType::Directory);
            header.set_mode(*mode);
            header.set_size(0);
            tar.append_data(&mut header, inside, io::empty())
        }
        Entry::Link { target } => {
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_mode(0o777);
            header.set_size(0);
            tar.append_link(&mut header, inside, target)
        }
        Entry::Made { content, mode } => {
            header.set_mode(*mode);
            header.set_size(content.len() as u64);
            tar.append_data(&mut header, inside, content.as_slice())
        }
        Entry::Copy { source } => {
            let mut file = File::open(source).map_err(fail)?;
            let metadata = file.metadata().map_err(fail)?;
            // Whole into memory: the size in the header is then right whatever happens to the file.
            let mut content = Vec::new();
            file.read_to_end(&mut content).map_err(fail)?;
            // Without set-user-id: the image is to run as its user.
            header.set_mode(metadata.permissions().mode() & 0o755 | 0o444);
            header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or(0));
            header.set_size(content.len() as u64);
            tar.append_data(&mut header, inside, content.as_slice())
        }
    }
    .map_err(fail)
}

fn write_json(blobs: &Path, value: &Value) -> Result<(String, u64), HostImageError> {
    let text = value.to_string();
    let name = hex(&Sha256::digest(text.as_bytes()));
    let path = blobs.join(&name);
    fs::write(&path, &text).map_err(|source| HostImageError::Write { path, source })?;
    Ok((format!("sha256:{name}"), text.len() as u64))
}

/// The loader that an ELF program names (`PT_INTERP`), if it is one that names any.
pub(crate) fn interpreter(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut head = Vec::new();
    File::open(path)?.take(1 << 16).read_to_end(&mut head)?;
    Ok(interpreter_in(&head))
}

/// Finds `PT_INTERP` in the first bytes of a little-endian ELF file (elf(5)).
fn interpreter_in(head: &[u8]) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let number = |at: usize, size: usize| -> Option<usize> {
        let bytes = head.get(at..at.checked_add(size)?)?;
        let value = bytes
            .iter()
            .rev()
            .fold(0u64, |value, b| value << 8 | u64::from(*b));
        usize::try_from(value).ok()
    };
    if head.get(..4)? != b"\x7fELF" || head.get(5) != Some(&1) {
        return None;
    }
    // Offsets of: table, size of an entry, number of entries; then in an entry: offset, size.
    let (table, entry_size, count, offset, size, word) = match head.get(4)? {
        2 => (0x20, 0x36, 0x38, 0x08, 0x20, 8),
        1 => (0x1c, 0x2a, 0x2c, 0x04, 0x10, 4),
        _ => return None,
    };
    let (table, entry_size) = (number(table, word)?, number(entry_size, 2)?);
    for index in 0..number(count, 2)? {
        let entry = table.checked_add(index.checked_mul(entry_size)?)?;
        // PT_INTERP is 3.
        if number(entry, 4)? == 3 {
            let start = number(entry.checked_add(offset)?, word)?;
            let end = start.checked_add(number(entry.checked_add(size)?, word)?)?;
            let name = head.get(start..end)?.split(|byte| *byte == 0).next()?;
            return Some(PathBuf::from(std::ffi::OsStr::from_bytes(name)));
        }
    }
    None
}

/// Paths in what a loader says to `--list`: `name => path (address)` or `path (address)`.
fn libraries(listing: &str) -> Result<Vec<PathBuf>, String> {
    let mut paths = Vec::new();
    for line in listing.lines().map(str::trim) {
        let (name, found) = line.split_once(" => ").unwrap_or(("", line));
        if found.starts_with("not found") {
            return Err(format!("{name} is not found"));
        }
        let path = found.split(" (").next().unwrap_or_default().trim();
        if path.starts_with('/') {
            paths.push(PathBuf::from(path));
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_listing_of_a_loader_gives_paths_and_tells_what_is_missing() {
        let listing = "\tlinux-vdso.so.1 (0x7f)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x7f)\n\
                       \t/lib64/ld-linux-x86-64.so.2 (0x7f)\n";
        assert_eq!(
            libraries(listing).expect("all found"),
            [
                Path::new("/lib/x/libc.so.6"),
                Path::new("/lib64/ld-linux-x86-64.so.2")
            ]
        );
        assert_eq!(
            libraries("\tlibmpi.so.12 => not found\n").expect_err("one is missing"),
            "libmpi.so.12 is not found"
        );
    }

    #[test]
    fn garbage_names_no_interpreter() {
        for bytes in [&b""[..], b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x01"] {
            assert_eq!(interpreter_in(bytes), None);
        }
        let mut huge = vec![0xff; 64];
        huge[..6].copy_from_slice(b"\x7fELF\x02\x01");
        assert_eq!(interpreter_in(&huge), None);
    }

    #[test]
    fn a_file_behind_links_comes_with_every_link_on_the_way() {
        let folder = tempfile::tempdir().expect("temp folder");
        let root = fs::canonicalize(folder.path()).expect("is there");
        fs::create_dir(root.join("real")).expect("own folder");
        fs::write(root.join("real/file"), "x").expect("own folder");
        symlink("real", root.join("link")).expect("own folder");
        symlink("../link/file", root.join("real/name")).expect("own folder");
        let mut image = HostImage::default();
        let real = image.add(&root.join("link/name")).expect("resolves");
        assert_eq!(real, root.join("real/file"));
        for part in ["link", "real", "real/name", "real/file"] {
            assert!(image.layer.contains_key(&root.join(part)), "{part}");
        }
        symlink("self", root.join("self")).expect("own folder");
        assert!(matches!(
            image.add(&root.join("self")),
            Err(HostImageError::Loop { .. })
        ));
    }

    #[test]
    fn a_layout_names_its_blobs_by_their_digests() {
        let folder = tempfile::tempdir().expect("temp folder");
        let mut image = HostImage::default();
        image.folder("/etc", 0o755);
        image.end_layer();
        image
            .add_program(Path::new("/bin/sh"))
            .expect("there is a shell");
        let layout = image
            .write::<HostImageError>(folder.path(), "t", &|| Ok(()))
            .expect("can be written");
        assert_eq!((layout.layers, layout.blobs.len()), (2, 3));
        for digest in layout.blobs.iter().chain([&layout.digest]) {
            let bytes = fs::read(layout.blob(digest)).expect("is there");
            assert_eq!(*digest, format!("sha256:{}", hex(&Sha256::digest(&bytes))));
        }
    }
}
