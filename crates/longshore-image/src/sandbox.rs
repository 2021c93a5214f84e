//! Images as plain directories of the user's own.
//!
//! A sandbox that we write keeps the image's documents inside, in `.longshore/`, so that it can be
//! moved and still run as its maker meant. An image may hold anything under that name, so it is
//! opened without following links.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use longshore_host::Session;
use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, ResolveFlags, mkdirat, openat2, unlinkat,
};
use rustix::io::Errno;

use crate::digest::Digest;
use crate::error::{ErrorKind, ImageError};
use crate::manifest::{ImageConfig, MAX_DOCUMENT_BYTES, Manifest};
use crate::open::{Inspection, OpenImage, PullOptions, Source, by_content, fill, make_folder};
use crate::progress::Progress;
use crate::reference::ImageRef;
use crate::store::{self, Store};
use crate::unpack::TreeSummary;

/// Where a sandbox keeps the image configuration, below its root.
pub const CONFIG_IN_SANDBOX: &str = ".longshore/config.json";
const OWN_FOLDER: &str = ".longshore";
const MANIFEST: &str = ".longshore/manifest.json";

/// What to do with something that stands at the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Refuse; an empty directory is no obstacle.
    Refuse,
    /// Replace it if it is a sandbox that we made.
    Replace,
}

/// What becomes of the layers after they are unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKeeping {
    /// They stay in the store for other images.
    Store,
    /// They are removed; the store is neither read nor written.
    Nowhere,
}

/// A sandbox that was made.
#[derive(Debug)]
pub struct Sandbox {
    /// Its root.
    pub path: PathBuf,
    /// The image's full name.
    pub name: String,
    /// Digest of the manifest.
    pub digest: Digest,
    /// What was unpacked.
    pub summary: TreeSummary,
}

/// Unpacks an image into a directory of the user's own.
///
/// The directory gets its name when it is complete. Until then it is `.NAME.longshore-partial` beside
/// it, which the next pull to the same place replaces.
///
/// # Errors
///
/// [`ErrorKind::Busy`] where something stands at `target` or another pull works there; else as
/// [`crate::open()`].
#[allow(clippy::too_many_arguments)]
pub fn pull_sandbox(
    session: &Session,
    store: &Store,
    options: &PullOptions,
    image: &ImageRef,
    target: &Path,
    existing: Existing,
    layers: LayerKeeping,
    progress: &dyn Progress,
) -> Result<Sandbox, ImageError> {
    let target = session.cwd.join(target);
    check_target(&target, existing)?;
    let image = &by_content(session, image)?;
    let name = target.file_name().ok_or_else(|| {
        ImageError::new(
            ErrorKind::Reference,
            format!("{} is no name for a directory", target.display()),
        )
    })?;
    let mut partial = std::ffi::OsString::from(".");
    partial.push(name);
    partial.push(".longshore-partial");
    let partial = target.with_file_name(partial);
    let hold = make_partial(&partial)?;
    let rootfs = partial.join("rootfs");
    let make = || {
        make_folder(&rootfs)?;
        let own_store = Store::at(partial.join("store"));
        let store = match layers {
            LayerKeeping::Store => store,
            LayerKeeping::Nowhere => &own_store,
        };
        let mut source = Source::open(session, store, options, image)?;
        let resolved = source.resolve(image, &options.platform, progress)?;
        let summary = fill(store, options, &source, &resolved, &rootfs, progress)?;
        write_documents(&rootfs, &resolved.config_text, &resolved.manifest_text)?;
        store::flush(&rootfs)?;
        put_in_place(&rootfs, &target, &partial, existing)?;
        Ok(Sandbox {
            path: target.clone(),
            name: resolved.name,
            digest: resolved.digest,
            summary,
        })
    };
    let made = make();
    // A failure to clean up is no failure of a sandbox that is in its place.
    let removed = store::remove_tree(&partial);
    drop(hold);
    let made = made?;
    removed?;
    Ok(made)
}

fn check_target(target: &Path, existing: Existing) -> Result<(), ImageError> {
    let Ok(metadata) = fs::symlink_metadata(target) else {
        return Ok(());
    };
    let stands = |why: &str| {
        ImageError::new(
            ErrorKind::Busy,
            format!("{} stands in the way: {why}", target.display()),
        )
    };
    if !metadata.is_dir() {
        return Err(stands("it is not a directory").hint("choose another name"));
    }
    let is_empty = fs::read_dir(target).is_ok_and(|mut entries| entries.next().is_none());
    if is_empty {
        return Ok(());
    }
    let is_ours = read_inside(target, CONFIG_IN_SANDBOX).is_ok_and(|text| text.is_some());
    match (existing, is_ours) {
        (Existing::Replace, true) => Ok(()),
        (Existing::Replace, false) => Err(stands(
            "it holds files, and is no sandbox that longshore made",
        )
        .hint("choose another name, or remove it yourself")),
        (Existing::Refuse, true) => {
            Err(stands("it exists already").hint("use --force to replace it"))
        }
        (Existing::Refuse, false) => {
            Err(stands("it exists already and is not empty").hint("choose another name"))
        }
    }
}

/// Makes the working directory and locks it; what a killed pull left there is removed.
fn make_partial(partial: &Path) -> Result<OwnedFd, ImageError> {
    loop {
        match fs::create_dir(partial) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                let folder = partial.parent().unwrap_or(partial);
                return Err(ImageError::io("make a sandbox in", folder, error));
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let hold = match rustix::fs::open(partial, flags, Mode::empty()) {
            Ok(hold) => hold,
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(ImageError::io("open", partial, error)),
        };
        match rustix::fs::flock(&hold, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(ImageError::new(
                    ErrorKind::Busy,
                    format!("another pull is working in {}", partial.display()),
                )
                .hint("wait until it has ended, or choose another name"));
            }
            // Two pulls to one place are the user's own doing; a file system without locks is not.
            Err(Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            Err(error) => return Err(ImageError::io("lock", partial, error)),
        }
        let same = rustix::fs::fstat(&hold)
            .ok()
            .zip(rustix::fs::stat(partial).ok());
        if same.is_none_or(|(held, named)| held.st_ino != named.st_ino) {
            continue;
        }
        for name in ["rootfs", "store", "old"] {
            store::remove_tree(&partial.join(name))?;
        }
        return Ok(hold);
    }
}

fn put_in_place(
    rootfs: &Path,
    target: &Path,
    partial: &Path,
    existing: Existing,
) -> Result<(), ImageError> {
    // Somebody may have made it meanwhile.
    check_target(target, existing)?;
    let old = partial.join("old");
    if existing == Existing::Replace && target.exists() {
        fs::rename(target, &old).map_err(|error| ImageError::io("replace", target, error))?;
    }
    fs::rename(rootfs, target).map_err(|error| {
        // A failure to put the old one back leaves nothing else to be done.
        let _ = fs::rename(&old, target);
        ImageError::io("put in place", target, error)
    })
}

/// Writes the image's documents into its tree.
fn write_documents(rootfs: &Path, config: &[u8], manifest: &[u8]) -> Result<(), ImageError> {
    let failed = |error: Errno| ImageError::io("write the documents of", rootfs, error);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let root = rustix::fs::open(rootfs, flags, Mode::empty()).map_err(failed)?;
    // What an image put under our name gives way.
    match unlinkat(&root, OWN_FOLDER, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT | Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(failed(error)),
    }
    match mkdirat(&root, OWN_FOLDER, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(failed(error)),
    }
    let folder = rustix::fs::openat(&root, OWN_FOLDER, flags, Mode::empty()).map_err(failed)?;
    for (name, text) in [("config.json", config), ("manifest.json", manifest)] {
        match unlinkat(&folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(failed(error)),
        }
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file =
            rustix::fs::openat(&folder, name, flags, Mode::from_raw_mode(0o644)).map_err(failed)?;
        File::from(file)
            .write_all(text)
            .map_err(|error| ImageError::io("write the documents of", rootfs, error))?;
    }
    Ok(())
}

/// Reads a small file inside a tree, following no link; `None` where there is none.
fn read_inside(root: &Path, name: &str) -> Result<Option<Vec<u8>>, ImageError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let failed = |error: Errno| ImageError::io("open the image", root, error);
    let folder = rustix::fs::openat(CWD, root, flags, Mode::empty()).map_err(failed)?;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match openat2(&folder, name, flags, Mode::empty(), inside) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut text = Vec::new();
    file.take(MAX_DOCUMENT_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(|error| ImageError::io("read the documents of", root, error))?;
    Ok(Some(text))
}

/// Opens a directory as an image.
pub(crate) fn open(path: &Path) -> Result<OpenImage, ImageError> {
    let (config, _) = configuration(path)?;
    Ok(OpenImage {
        name: path.display().to_string(),
        digest: None,
        rootfs: path.to_owned(),
        config,
        lock: None,
    })
}

/// The configuration that a pull has left in a directory, read and as it was written.
fn configuration(path: &Path) -> Result<(ImageConfig, Option<Vec<u8>>), ImageError> {
    let text = read_inside(path, CONFIG_IN_SANDBOX)?;
    let config = match &text {
        Some(text) => ImageConfig::parse(text, &path.display().to_string())?,
        None => ImageConfig::default(),
    };
    Ok((config, text))
}

/// Reads the documents of a directory; one that has none is an image all the same.
pub(crate) fn inspect(path: &Path) -> Result<Inspection, ImageError> {
    let (config, config_text) = configuration(path)?;
    let manifest_text = read_inside(path, MANIFEST)?;
    let manifest: Option<Manifest> = manifest_text
        .as_ref()
        .and_then(|text| serde_json::from_slice(text).ok());
    Ok(Inspection {
        digest: manifest
            .as_ref()
            .and(manifest_text.as_ref().map(|text| Digest::of(text))),
        manifest,
        config,
        raw_config: config_text.unwrap_or_default(),
        rootfs: Some(path.to_owned()),
        name: path.display().to_string(),
    })
}
