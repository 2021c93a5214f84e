//! Images in files: OCI layouts as directories or tar files, and what `docker save` writes.
//!
//! A tar file is read where it lies: its headers are listed once, and a blob is a range of it. Only
//! a compressed tar file is inflated first, into a file without a name in the store.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::digest::{Digest, Hasher};
use crate::error::{ErrorKind, ImageError};
use crate::inflate::{Compression, Inflate};
use crate::manifest::{
    Descriptor, Document, Index, MAX_DOCUMENT_BYTES, MAX_LAYERS, Manifest, Platform, corrupt,
};
use crate::store::Store;

/// More files than any image archive has.
const MAX_ENTRIES: usize = 200_000;

/// What the file or directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `index.json` and `blobs/`.
    Layout,
    /// `manifest.json` and layers.
    DockerSave,
    /// Whichever the content shows.
    Either,
}

/// An opened image file.
#[derive(Debug)]
pub(crate) struct Local {
    /// How messages name it.
    name: String,
    files: Files,
    /// Content whose place is not the one of a layout.
    places: BTreeMap<Digest, String>,
    shape: Shape,
}

#[derive(Debug)]
enum Files {
    Folder(PathBuf),
    Tar {
        file: File,
        entries: BTreeMap<String, Entry>,
    },
}

#[derive(Clone, Debug)]
enum Entry {
    Bytes { offset: u64, length: u64 },
    Link(String),
}

/// Part of a file, read from its start.
#[derive(Debug)]
pub(crate) struct Slice {
    file: File,
    offset: u64,
    left_bytes: u64,
}

impl Slice {
    pub(crate) fn whole(file: File) -> io::Result<Slice> {
        let left_bytes = file.metadata()?.len();
        Ok(Slice {
            file,
            offset: 0,
            left_bytes,
        })
    }
}

impl Read for Slice {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer
            .len()
            .min(usize::try_from(self.left_bytes).unwrap_or(usize::MAX));
        let read = self.file.read_at(&mut buffer[..length], self.offset)?;
        self.offset += read as u64;
        self.left_bytes -= read as u64;
        Ok(read)
    }
}

impl Local {
    /// Opens a layout directory or an archive; `store` lends room to inflate.
    pub(crate) fn open(
        name: &str,
        path: &Path,
        wanted: Shape,
        store: &Store,
    ) -> Result<Local, ImageError> {
        let failed = |error| ImageError::io("open the image", path, error);
        let metadata = std::fs::metadata(path).map_err(failed)?;
        let files = if metadata.is_dir() {
            Files::Folder(path.to_owned())
        } else {
            let mut file = File::open(path).map_err(failed)?;
            let mut magic = [0; 4];
            let read = file.read(&mut magic).map_err(failed)?;
            file.seek(SeekFrom::Start(0)).map_err(failed)?;
            if Compression::of_magic(&magic[..read]) != Compression::None {
                store.prepare()?;
                let mut inflated = store.scratch_file()?;
                let mut reader = Inflate::new(file).map_err(failed)?;
                io::copy(&mut reader, &mut inflated)
                    .map_err(|error| ImageError::io("inflate", path, error))?;
                inflated.seek(SeekFrom::Start(0)).map_err(failed)?;
                file = inflated;
            }
            let entries = list_tar(&mut file, name)?;
            Files::Tar { file, entries }
        };
        let mut local = Local {
            name: name.to_owned(),
            files,
            places: BTreeMap::new(),
            shape: wanted,
        };
        let has = |file: &str| local.slice(file).is_ok();
        local.shape = match wanted {
            Shape::DockerSave if has("manifest.json") => Shape::DockerSave,
            // containerd writes both forms into one file; some tools write only the newer one.
            Shape::DockerSave | Shape::Layout | Shape::Either if has("index.json") => Shape::Layout,
            Shape::Either | Shape::Layout if has("manifest.json") => Shape::DockerSave,
            _ => {
                return Err(ImageError::new(
                    ErrorKind::Unsupported,
                    format!("{name} holds no image: it has neither index.json nor manifest.json"),
                )
                .hint("OCI layouts, OCI archives and the output of `docker save` can be read"));
            }
        };
        Ok(local)
    }

    /// The manifest of the image with this tag for this platform.
    pub(crate) fn manifest(
        &mut self,
        tag: Option<&str>,
        platform: &Platform,
    ) -> Result<Vec<u8>, ImageError> {
        match self.shape {
            Shape::DockerSave => self.docker_manifest(tag),
            _ => self.layout_manifest(tag, platform),
        }
    }

    fn layout_manifest(
        &self,
        tag: Option<&str>,
        platform: &Platform,
    ) -> Result<Vec<u8>, ImageError> {
        let text = self.read_document("index.json")?;
        let Document::Index(mut index) = Document::parse(&text, &self.name)? else {
            return Err(corrupt(&self.name, "index.json", "it is no index"));
        };
        if let Some(tag) = tag {
            let names: Vec<String> = index.manifests.iter().filter_map(tag_of).collect();
            index.manifests.retain(|entry| {
                entry.digest.to_string() == tag
                    || tag_of(entry).is_some_and(|name| {
                        // containerd and docker write the full name there.
                        name == tag || name.ends_with(&format!(":{tag}"))
                    })
            });
            if index.manifests.is_empty() {
                return Err(no_such_tag(&self.name, tag, &names));
            }
        } else if index.manifests.iter().filter_map(tag_of).count() > 1 {
            let names: Vec<String> = index.manifests.iter().filter_map(tag_of).collect();
            return Err(ImageError::new(
                ErrorKind::Reference,
                format!("{} holds several images: {}", self.name, names.join(", ")),
            )
            .hint("name one of them after a colon"));
        }
        // Index within index: two levels are in use, more is no image.
        for _ in 0..4 {
            let entry = match &index.manifests[..] {
                [only] => only.clone(),
                _ => index.choose(platform, &self.name)?.clone(),
            };
            let text = self.blob_bytes(&entry)?;
            match Document::parse(&text, &self.name)? {
                Document::Manifest(_) => return Ok(text),
                Document::Index(inner) => {
                    let chosen = inner.choose(platform, &self.name)?.clone();
                    index = Index {
                        manifests: vec![chosen],
                    };
                }
            }
        }
        Err(corrupt(&self.name, "index", "it is nested too deeply"))
    }

    /// Writes the manifest that `docker save` leaves out.
    fn docker_manifest(&mut self, tag: Option<&str>) -> Result<Vec<u8>, ImageError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Saved {
            config: String,
            #[serde(default)]
            repo_tags: Option<Vec<String>>,
            layers: Vec<String>,
        }
        let text = self.read_document("manifest.json")?;
        let saved: Vec<Saved> = serde_json::from_slice(&text)
            .map_err(|error| corrupt(&self.name, "manifest.json", error))?;
        let tags = |one: &Saved| one.repo_tags.clone().unwrap_or_default();
        let chosen = match tag {
            Some(tag) => {
                let all: Vec<String> = saved.iter().flat_map(tags).collect();
                saved
                    .iter()
                    .find(|one| {
                        tags(one)
                            .iter()
                            .any(|name| name == tag || name.ends_with(&format!(":{tag}")))
                    })
                    .ok_or_else(|| no_such_tag(&self.name, tag, &all))?
            }
            None => match &saved[..] {
                [only] => only,
                [] => return Err(corrupt(&self.name, "manifest.json", "it lists no image")),
                _ => {
                    let all: Vec<String> = saved.iter().flat_map(tags).collect();
                    return Err(ImageError::new(
                        ErrorKind::Reference,
                        format!("{} holds several images: {}", self.name, all.join(", ")),
                    )
                    .hint("name one of them after a colon"));
                }
            },
        };
        if chosen.layers.len() > MAX_LAYERS {
            return Err(corrupt(
                &self.name,
                "manifest.json",
                "it has more than 1024 layers",
            ));
        }
        let mut places = BTreeMap::new();
        let mut describe = |file: &str, media_type: &str| -> Result<Descriptor, ImageError> {
            let mut slice = self.slice(file)?;
            let size = slice.left_bytes;
            // The names in such archives are not digests one can rely on.
            let mut hasher = Hasher::new();
            let mut buffer = vec![0; 256 << 10];
            loop {
                match slice.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(read) => hasher.update(&buffer[..read]),
                    Err(error) => {
                        return Err(ImageError::io("read", Path::new(&self.name), error));
                    }
                }
            }
            let digest = hasher.finish();
            places.insert(digest.clone(), file.to_owned());
            Ok(Descriptor {
                media_type: media_type.to_owned(),
                digest,
                size,
                urls: Vec::new(),
                platform: None,
                annotations: BTreeMap::new(),
            })
        };
        let config = describe(
            &chosen.config,
            "application/vnd.docker.container.image.v1+json",
        )?;
        let layers = chosen
            .layers
            .iter()
            .map(|layer| describe(layer, "application/vnd.docker.image.rootfs.diff.tar"))
            .collect::<Result<_, _>>()?;
        let manifest = Manifest {
            schema_version: 2,
            media_type: "application/vnd.docker.distribution.manifest.v2+json".into(),
            config,
            layers,
            annotations: BTreeMap::new(),
        };
        self.places = places;
        Ok(serde_json::to_vec(&manifest).expect("a manifest of strings and numbers"))
    }

    /// A small blob, checked.
    pub(crate) fn blob_bytes(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
        let text = self.read_document(&self.place(&descriptor.digest))?;
        let digest = Digest::of(&text);
        if digest == descriptor.digest {
            Ok(text)
        } else {
            Err(corrupt(
                &self.name,
                "content",
                format!("the digest of {} is {digest}", descriptor.digest),
            ))
        }
    }

    /// A blob to be read and checked by the caller.
    pub(crate) fn blob(&self, digest: &Digest) -> Result<Slice, ImageError> {
        self.slice(&self.place(digest))
    }

    fn place(&self, digest: &Digest) -> String {
        self.places
            .get(digest)
            .cloned()
            .unwrap_or_else(|| format!("blobs/sha256/{}", digest.hex()))
    }

    fn read_document(&self, file: &str) -> Result<Vec<u8>, ImageError> {
        let mut slice = self.slice(file)?;
        if slice.left_bytes > MAX_DOCUMENT_BYTES {
            return Err(corrupt(&self.name, file, "it is larger than 4 MiB"));
        }
        let mut text = Vec::new();
        slice
            .read_to_end(&mut text)
            .map_err(|error| ImageError::io("read", Path::new(&self.name), error))?;
        Ok(text)
    }

    fn slice(&self, file: &str) -> Result<Slice, ImageError> {
        let missing = || {
            ImageError::new(
                ErrorKind::Corrupt,
                format!("{} is not complete: it has no {file}", self.name),
            )
            .hint("make the archive again")
        };
        match &self.files {
            Files::Folder(folder) => {
                // A name that leaves the folder is read as one below it.
                let path = folder.join(normal(file));
                let open = File::open(&path).map_err(|error| match error.kind() {
                    io::ErrorKind::NotFound => missing(),
                    _ => ImageError::io("read", &path, error),
                })?;
                Slice::whole(open).map_err(|error| ImageError::io("read", &path, error))
            }
            Files::Tar { file: tar, entries } => {
                let mut name = normal(file);
                // `docker save` links equal layers to each other.
                for _ in 0..8 {
                    match entries.get(&name) {
                        None => return Err(missing()),
                        Some(Entry::Link(target)) => name = target.clone(),
                        Some(&Entry::Bytes { offset, length }) => {
                            let file = tar.try_clone().map_err(|error| {
                                ImageError::io("read", Path::new(&self.name), error)
                            })?;
                            return Ok(Slice {
                                file,
                                offset,
                                left_bytes: length,
                            });
                        }
                    }
                }
                Err(corrupt(&self.name, file, "it is a link without end"))
            }
        }
    }
}

fn tag_of(entry: &Descriptor) -> Option<String> {
    entry
        .annotations
        .get("org.opencontainers.image.ref.name")
        .or_else(|| entry.annotations.get("io.containerd.image.name"))
        .cloned()
}

fn no_such_tag(name: &str, tag: &str, there: &[String]) -> ImageError {
    let there = if there.is_empty() {
        "it has no tags".to_owned()
    } else {
        format!("it has {}", there.join(", "))
    };
    ImageError::new(
        ErrorKind::NotFound,
        format!("{name} has no image `{tag}`: {there}"),
    )
    .hint("name one of them after a colon")
}

/// Lists a plain tar file; only names, places and links are taken from it.
fn list_tar(file: &mut File, name: &str) -> Result<BTreeMap<String, Entry>, ImageError> {
    let failed = |error: io::Error| {
        ImageError::new(
            ErrorKind::Corrupt,
            format!("{name} is not a readable tar file"),
        )
        .because(error)
    };
    let mut entries = BTreeMap::new();
    let mut archive = tar::Archive::new(BufReader::new(file));
    for entry in archive.entries_with_seek().map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path().map_err(failed)?.to_string_lossy().into_owned();
        let kind = entry.header().entry_type();
        if kind.is_file() {
            entries.insert(
                normal(&path),
                Entry::Bytes {
                    offset: entry.raw_file_position(),
                    length: entry.size(),
                },
            );
        } else if (kind.is_symlink() || kind.is_hard_link())
            && let Some(target) = entry.link_name().map_err(failed)?
        {
            let target = target.to_string_lossy();
            let folder = match (kind.is_symlink(), path.rsplit_once('/')) {
                (true, Some((folder, _))) => folder,
                _ => "",
            };
            entries.insert(
                normal(&path),
                Entry::Link(normal(&format!("{folder}/{target}"))),
            );
        }
        if entries.len() > MAX_ENTRIES {
            return Err(corrupt(name, "archive", "it has more than 200 000 files"));
        }
    }
    Ok(entries)
}

/// A path as a key: without `.`, with `..` resolved by name.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_image_in_a_folder_names_no_file_outside_of_it() {
        let world = tempfile::tempdir().expect("a folder");
        std::fs::write(world.path().join("config.json"), "{}").expect("own folder");
        let folder = world.path().join("image");
        std::fs::create_dir(&folder).expect("own folder");
        let outside = world.path().join("config.json");
        for config in ["../config.json", &outside.display().to_string()] {
            let text = format!(r#"[{{"Config":"{config}","Layers":[]}}]"#);
            std::fs::write(folder.join("manifest.json"), text).expect("own folder");
            let store = Store::at(world.path().join("store"));
            let mut local = Local::open("img", &folder, Shape::DockerSave, &store).expect("opens");
            let error = local
                .manifest(None, &Platform::here())
                .expect_err("the file is outside");
            assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
        }
    }

    #[test]
    fn names_in_archives_are_told_by_their_meaning() {
        assert_eq!(normal("./a/b"), "a/b");
        assert_eq!(normal("a/../../b/layer.tar"), "b/layer.tar");
    }
}
