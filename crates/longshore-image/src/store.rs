//! The local store: layers and unpacked trees by digest, names that point to them.
//!
//! ```text
//! blobs/sha256/<hex>     complete layers, as the registry sent them
//! partial/<hex>          layers on their way; kept when interrupted, resumed by the next pull
//! trees/<hex>/           by manifest digest: rootfs/, manifest.json, config.json
//! refs/<hash>.json       one name for one platform -> manifest digest
//! locks/{blob,tree}-<hex>
//! tmp/                   what is being made or removed
//! ```
//!
//! What holds at every moment, also after SIGKILL: whatever stands in `blobs`, `trees` and `refs`
//! is complete, because it was renamed there. Whatever stands in `tmp/tree-<hex>` belongs to the
//! holder of the lock `tree-<hex>`; when nobody holds it, it is rubbish and is swept.
//!
//! After a power cut a renamed directory may come back with empty files. On a local disk a new tree
//! therefore carries the boot in which it was made, and counts as absent in any other; the mark goes
//! when the kernel must have written the tree long ago, or when `clean` takes the layers that could
//! make it again. So a pull does not wait for the disk, nor (as syncfs(2) would have it) for what all
//! other programs have written. On other file systems a tree is flushed before it gets its name.
//! Blobs are not flushed: they are hashed again whenever they are read. A name that comes back
//! damaged counts as absent.
//!
//! `trees` is closed to other users: an unpacked setuid program belongs to whoever pulled it.

use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use longshore_host::Session;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::digest::{Digest, Hasher};
use crate::error::{ErrorKind, ImageError};
use crate::lock::{Lock, Share};
use crate::manifest::{ImageConfig, Manifest, Platform};
use crate::progress::{Progress, Silent};

/// The store of one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    root: PathBuf,
}

/// What a name meant when it was last asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefRecord {
    /// The full name, as in `docker://docker.io/library/python:3`.
    pub name: String,
    /// The platform that was asked for.
    pub platform: String,
    /// Digest of the manifest; the tree's name.
    pub digest: Digest,
    /// When the name was last resolved, in seconds since 1970.
    pub resolved_s: u64,
}

/// An image of the store, as `images` lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredImage {
    /// Its names; none for a tree that a newer one has replaced.
    pub names: Vec<String>,
    /// Digest of the manifest.
    pub digest: Digest,
    /// `linux/amd64`.
    pub platform: String,
    /// Compressed size of the layers in bytes.
    pub layers_bytes: u64,
    /// How many layers there are.
    pub layers_count: usize,
    /// When its maker made it, RFC 3339.
    pub created: Option<String>,
    /// When it was last pulled or run, in seconds since 1970.
    pub used_s: u64,
}

/// One thing that takes space in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoreItem {
    /// What it is.
    pub kind: ItemKind,
    /// The name for people: image names, or a digest.
    pub name: String,
    /// Its place.
    pub path: PathBuf,
    /// Space on the disk, in bytes.
    pub disk_bytes: u64,
    /// When it was last used, in seconds since 1970.
    pub used_s: u64,
    /// Whether a running program or pull holds it.
    pub in_use: bool,
}

/// The kinds of things in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ItemKind {
    /// A runnable tree with a name.
    Image,
    /// A runnable tree whose names have moved on.
    Unnamed,
    /// A complete layer.
    Layer,
    /// Part of a layer, to be resumed.
    Partial,
    /// What an interrupted command left.
    Leftover,
}

/// What to remove from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanPlan {
    /// Remove named images too, not only what pulls can do without.
    pub images: bool,
    /// Only what was not used for this long.
    pub unused_for: Duration,
}

/// A tree with the lock that protects it.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) folder: PathBuf,
    pub(crate) lock: Option<Lock>,
}

/// What a name in `tmp` is given to.
enum Passing {
    /// A tree in the making; it belongs to the holder of its lock.
    Tree(Digest),
    /// A folder on its way out.
    Trash,
    /// A file that is being written.
    File,
}

impl Passing {
    fn of_name(name: &str) -> Option<Passing> {
        if let Some(hex) = name.strip_prefix("tree-") {
            let digest = Digest::parse(&format!("sha256:{hex}")).ok()?;
            return Some(Passing::Tree(digest));
        }
        let (passing, numbers) = match name.split_once('-')? {
            ("trash", numbers) => (Passing::Trash, numbers),
            ("write", numbers) => (Passing::File, numbers),
            _ => return None,
        };
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        numbers.split('-').all(is_number).then_some(passing)
    }
}

/// In a tree: the boot in which it was made, as long as it may not be on the disk yet.
const UNFLUSHED: &str = "unflushed";
/// The kernel writes what was changed half a minute ago (dirty_expire_centisecs, 30 s); this is
/// thirty times as long.
const WRITTEN_BY: Duration = Duration::from_secs(900);

const FOLDERS: [&str; 6] = ["blobs/sha256", "partial", "trees", "refs", "locks", "tmp"];
/// Half-written small files of other processes are left alone for this long.
const WRITING: Duration = Duration::from_secs(3600);

impl Store {
    /// The user's store: `LONGSHORE_CACHEDIR`, else `longshore` below `APPTAINER_CACHEDIR`,
    /// `SINGULARITY_CACHEDIR`, `XDG_CACHE_HOME` or `~/.cache`.
    pub fn of(session: &Session) -> Store {
        let set = |name: &str| session.var(name).filter(|value| !value.is_empty());
        let root = match set("LONGSHORE_CACHEDIR") {
            Some(root) => PathBuf::from(root),
            None => [
                "APPTAINER_CACHEDIR",
                "SINGULARITY_CACHEDIR",
                "XDG_CACHE_HOME",
            ]
            .into_iter()
            .find_map(set)
            .map_or_else(|| session.home.join(".cache"), PathBuf::from)
            .join("longshore"),
        };
        Store::at(session.cwd.join(root))
    }

    /// A store at a place of one's own; an absolute path.
    pub fn at(root: PathBuf) -> Store {
        Store { root }
    }

    /// Where it lies.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Makes the folders where they are missing and sweeps what killed commands left.
    pub(crate) fn prepare(&self) -> Result<(), ImageError> {
        for name in FOLDERS {
            let path = self.root.join(name);
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&path)
                .map_err(|error| self.cannot_write(&path, error))?;
        }
        // What backup programs should know (bford.info/cachedir).
        let tag = self.root.join("CACHEDIR.TAG");
        if !tag.exists() {
            let text = "Signature: 8a477f597d28d172789f06886806bc55\n# Images of longshore; `longshore cache clean` empties it.\n";
            fs::write(&tag, text).map_err(|error| self.cannot_write(&tag, error))?;
        }
        // The folders of an existing store may lie on a file system that is read-only by now.
        let tmp = self.root.join("tmp");
        rustix::fs::access(&tmp, rustix::fs::Access::WRITE_OK)
            .map_err(|error| self.cannot_write(&tmp, io::Error::from(error)))?;
        self.sweep()
    }

    fn cannot_write(&self, path: &Path, error: io::Error) -> ImageError {
        let full = matches!(
            crate::error::errno_of(&error),
            Some(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT)
        );
        let kind = if full {
            ErrorKind::NoSpace
        } else {
            ErrorKind::ReadOnly
        };
        ImageError::new(
            kind,
            format!("cannot write the image cache at {}", path.display()),
        )
        .hint("set LONGSHORE_CACHEDIR to a folder that you can write, on a disk with room")
        .because(error)
    }

    fn sweep(&self) -> Result<(), ImageError> {
        for (path, passing) in self.passing()? {
            match passing {
                Passing::Tree(digest) => {
                    let path_of_lock = self.lock_path("tree", digest.hex());
                    let lock = Lock::try_take(&path_of_lock, Share::WithNobody)?;
                    if lock.is_some() && path.exists() {
                        remove_tree(&path)?;
                    }
                }
                Passing::Trash => remove_tree(&path)?,
                Passing::File if age(&path) > WRITING => {
                    let _ = fs::remove_file(&path);
                }
                Passing::File => {}
            }
        }
        Ok(())
    }

    /// What is in `tmp`. Names that we do not give are passed over: somebody may have put the cache
    /// into a folder whose `tmp` holds files of their own.
    fn passing(&self) -> Result<Vec<(PathBuf, Passing)>, ImageError> {
        let paths = list(&self.root.join("tmp"))?;
        Ok(paths
            .into_iter()
            .filter_map(|path| {
                let passing = Passing::of_name(path.file_name()?.to_str()?)?;
                Some((path, passing))
            })
            .collect())
    }

    fn lock_path(&self, kind: &str, hex: &str) -> PathBuf {
        self.root.join("locks").join(format!("{kind}-{hex}"))
    }

    pub(crate) fn tree_folder(&self, digest: &Digest) -> PathBuf {
        self.root.join("trees").join(digest.hex())
    }

    pub(crate) fn unfinished_tree(&self, digest: &Digest) -> PathBuf {
        self.root.join("tmp").join(format!("tree-{}", digest.hex()))
    }

    pub(crate) fn blob(&self, digest: &Digest) -> PathBuf {
        self.root.join("blobs/sha256").join(digest.hex())
    }

    pub(crate) fn partial(&self, digest: &Digest) -> PathBuf {
        self.root.join("partial").join(digest.hex())
    }

    /// Waits for and takes the lock of a tree.
    pub(crate) fn lock_tree(
        &self,
        digest: &Digest,
        share: Share,
        progress: &dyn Progress,
    ) -> Result<Lock, ImageError> {
        let what = format!("image {}", digest.short());
        Lock::take(
            &self.lock_path("tree", digest.hex()),
            share,
            &what,
            progress,
        )
    }

    /// Waits for and takes the lock of a layer.
    pub(crate) fn lock_blob(
        &self,
        digest: &Digest,
        progress: &dyn Progress,
    ) -> Result<Lock, ImageError> {
        let what = format!("layer {}", digest.short());
        let path = self.lock_path("blob", digest.hex());
        Lock::take(&path, Share::WithNobody, &what, progress)
    }

    /// The tree of a manifest, protected against removal; `None` where there is none.
    ///
    /// On a read-only store without a lock file nobody can remove it either.
    pub(crate) fn find_tree(&self, digest: &Digest) -> Result<Option<Tree>, ImageError> {
        let folder = self.tree_folder(digest);
        if !folder.join("rootfs").is_dir() || !is_trusted(&folder) {
            return Ok(None);
        }
        let lock = match self.lock_tree(digest, Share::WithUsers, &Silent) {
            Ok(lock) => Some(lock),
            Err(error) if error.kind == ErrorKind::ReadOnly => None,
            Err(error) => return Err(error),
        };
        if let Some(lock) = &lock {
            lock.touch();
        }
        // It may have been removed before the lock was ours.
        Ok(folder
            .join("rootfs")
            .is_dir()
            .then_some(Tree { folder, lock }))
    }

    fn ref_path(&self, name: &str, platform: &Platform) -> PathBuf {
        let mut hasher = Hasher::new();
        hasher.update(name.as_bytes());
        hasher.update(b"\n");
        hasher.update(platform.to_string().as_bytes());
        let digest = hasher.finish();
        self.root
            .join("refs")
            .join(format!("{}.json", &digest.hex()[..32]))
    }

    /// What a name means here, if anything.
    pub fn find_ref(&self, name: &str, platform: &Platform) -> Option<RefRecord> {
        let text = fs::read(self.ref_path(name, platform)).ok()?;
        let record: RefRecord = serde_json::from_slice(&text).ok()?;
        (record.name == name).then_some(record)
    }

    /// Lets a name mean a manifest from now on.
    pub(crate) fn set_ref(
        &self,
        name: &str,
        platform: &Platform,
        digest: &Digest,
    ) -> Result<(), ImageError> {
        let record = RefRecord {
            name: name.to_owned(),
            platform: platform.to_string(),
            digest: digest.clone(),
            resolved_s: seconds(SystemTime::now()),
        };
        let text = serde_json::to_vec(&record).expect("a record of strings and numbers");
        self.write_whole(&self.ref_path(name, platform), &text)
    }

    /// Writes a small file so that it is seen whole or not at all.
    fn write_whole(&self, path: &Path, text: &[u8]) -> Result<(), ImageError> {
        let (file, temporary) = self.new_file()?;
        fs::File::from(file)
            .write_all(text)
            .and_then(|()| fs::rename(&temporary, path))
            .map_err(|error| {
                let _ = fs::remove_file(&temporary);
                ImageError::io("write", path, error)
            })
    }

    /// A file without a name in the store, for what has to be inflated before it can be read.
    pub(crate) fn scratch_file(&self) -> Result<fs::File, ImageError> {
        let folder = self.root.join("tmp");
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        if let Ok(file) = rustix::fs::open(&folder, flags | OFlags::TMPFILE, mode) {
            return Ok(file.into());
        }
        // NFS has no O_TMPFILE.
        let (file, path) = self.new_file()?;
        let _ = fs::remove_file(&path);
        Ok(file.into())
    }

    /// A new file in `tmp`. Other nodes, and containers with process numbers of their own, may use
    /// the same store: a name that is taken is left to whoever took it.
    fn new_file(&self) -> Result<(OwnedFd, PathBuf), ImageError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("write-{}-{count}", std::process::id());
            let path = self.root.join("tmp").join(name);
            match rustix::fs::open(&path, flags, Mode::from_raw_mode(0o666)) {
                Ok(file) => return Ok((file, path)),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(ImageError::io("write", &path, error)),
            }
        }
    }

    /// Whether `wanted_bytes` fit on the disk of `place`; an error with the numbers if not.
    pub(crate) fn check_space(
        place: &Path,
        wanted_bytes: u64,
        what: &str,
    ) -> Result<(), ImageError> {
        let Ok(room) = rustix::fs::statvfs(place) else {
            return Ok(());
        };
        let free_bytes = room.f_bavail.saturating_mul(room.f_frsize);
        if free_bytes >= wanted_bytes {
            return Ok(());
        }
        Err(ImageError::new(
            ErrorKind::NoSpace,
            format!(
                "{what} needs at least {} MiB in {}, and {} MiB are free",
                wanted_bytes.div_ceil(1 << 20),
                place.display(),
                free_bytes >> 20
            ),
        )
        .hint("free some space (`longshore cache clean`), or put the cache elsewhere with LONGSHORE_CACHEDIR"))
    }

    /// The manifest of a stored image.
    pub fn manifest(&self, digest: &Digest) -> Result<Manifest, ImageError> {
        let path = self.tree_folder(digest).join("manifest.json");
        let text = fs::read(&path).map_err(|error| ImageError::io("read", &path, error))?;
        serde_json::from_slice(&text)
            .map_err(|error| crate::manifest::corrupt(&path.display().to_string(), "text", error))
    }

    /// The configuration of a stored image.
    pub fn config(&self, digest: &Digest) -> Result<ImageConfig, ImageError> {
        let path = self.tree_folder(digest).join("config.json");
        let text = fs::read(&path).map_err(|error| ImageError::io("read", &path, error))?;
        ImageConfig::parse(&text, &path.display().to_string())
    }

    fn refs(&self) -> Result<Vec<(PathBuf, RefRecord)>, ImageError> {
        let mut refs = Vec::new();
        for path in list(&self.root.join("refs"))? {
            let record = fs::read(&path)
                .ok()
                .and_then(|text| serde_json::from_slice::<RefRecord>(&text).ok());
            refs.extend(record.map(|record| (path, record)));
        }
        refs.sort_by(|one, other| one.1.name.cmp(&other.1.name));
        Ok(refs)
    }

    fn trees(&self) -> Result<Vec<Digest>, ImageError> {
        Ok(list(&self.root.join("trees"))?
            .iter()
            .filter_map(|path| digest_of_name(path))
            .collect())
    }

    /// The images that can be run without a network.
    ///
    /// # Errors
    ///
    /// The store could not be read. A store that does not exist is an empty one.
    pub fn images(&self) -> Result<Vec<StoredImage>, ImageError> {
        let refs = self.refs()?;
        let mut images = Vec::new();
        for digest in self.trees()? {
            // A tree that is removed meanwhile is none.
            let (Ok(manifest), Ok(config)) = (self.manifest(&digest), self.config(&digest)) else {
                continue;
            };
            let names = refs
                .iter()
                .filter(|(_, record)| record.digest == digest)
                .map(|(_, record)| record.name.clone())
                .collect();
            images.push(StoredImage {
                names,
                platform: format!("{}/{}", config.os, config.architecture),
                layers_bytes: manifest.layers.iter().map(|layer| layer.size).sum(),
                layers_count: manifest.layers.len(),
                created: config.created,
                used_s: self.used(&digest),
                digest,
            });
        }
        images.sort_by(|one, other| one.names.cmp(&other.names));
        Ok(images)
    }

    fn used(&self, digest: &Digest) -> u64 {
        let lock = self.lock_path("tree", digest.hex());
        let folder = self.tree_folder(digest);
        fs::metadata(lock)
            .or_else(|_| fs::metadata(folder))
            .and_then(|metadata| metadata.modified())
            .map_or(0, seconds)
    }

    /// Everything that takes space here.
    ///
    /// # Errors
    ///
    /// The store could not be read. A store that does not exist is an empty one.
    pub fn items(&self) -> Result<Vec<StoreItem>, ImageError> {
        let refs = self.refs()?;
        let mut items = Vec::new();
        for digest in self.trees()? {
            let names: Vec<&str> = refs
                .iter()
                .filter(|(_, record)| record.digest == digest)
                .map(|(_, record)| record.name.as_str())
                .collect();
            let path = self.tree_folder(&digest);
            items.push(StoreItem {
                kind: if names.is_empty() {
                    ItemKind::Unnamed
                } else {
                    ItemKind::Image
                },
                name: if names.is_empty() {
                    digest.to_string()
                } else {
                    names.join(", ")
                },
                disk_bytes: disk_bytes(&path),
                used_s: self.used(&digest),
                in_use: self.is_held("tree", digest.hex()),
                path,
            });
        }
        for (folder, kind) in [
            ("blobs/sha256", ItemKind::Layer),
            ("partial", ItemKind::Partial),
        ] {
            for path in list(&self.root.join(folder))? {
                let Some(digest) = digest_of_name(&path) else {
                    continue;
                };
                items.push(StoreItem {
                    kind,
                    name: digest.to_string(),
                    disk_bytes: disk_bytes(&path),
                    used_s: modified(&path),
                    in_use: self.is_held("blob", digest.hex()),
                    path,
                });
            }
        }
        for (path, passing) in self.passing()? {
            let in_use = match &passing {
                Passing::Tree(digest) => self.is_held("tree", digest.hex()),
                Passing::File => age(&path) < WRITING,
                Passing::Trash => false,
            };
            items.push(StoreItem {
                kind: ItemKind::Leftover,
                name: path
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
                disk_bytes: disk_bytes(&path),
                used_s: modified(&path),
                in_use,
                path,
            });
        }
        Ok(items)
    }

    fn is_held(&self, kind: &str, hex: &str) -> bool {
        let path = self.lock_path(kind, hex);
        if !path.exists() {
            return false;
        }
        !matches!(Lock::try_take(&path, Share::WithNobody), Ok(Some(_)))
    }

    /// What `clean` with this plan would remove now.
    ///
    /// # Errors
    ///
    /// The store could not be read.
    pub fn cleanable(&self, plan: CleanPlan) -> Result<Vec<StoreItem>, ImageError> {
        let oldest = seconds(SystemTime::now()).saturating_sub(plan.unused_for.as_secs());
        let mut items = self.items()?;
        items.retain(|item| {
            !item.in_use
                && (plan.unused_for.is_zero() || item.used_s < oldest)
                && (plan.images || item.kind != ItemKind::Image)
        });
        Ok(items)
    }

    /// Removes one item, unless somebody uses it by now; whether it is gone.
    ///
    /// # Errors
    ///
    /// It could not be removed.
    pub fn remove(&self, item: &StoreItem) -> Result<bool, ImageError> {
        let digest = digest_of_name(&item.path);
        let lock = match (item.kind, &digest) {
            (ItemKind::Image | ItemKind::Unnamed, Some(digest)) => {
                Some(self.lock_path("tree", digest.hex()))
            }
            (ItemKind::Layer | ItemKind::Partial, Some(digest)) => {
                Some(self.lock_path("blob", digest.hex()))
            }
            (ItemKind::Leftover, _) => {
                let name = item.path.file_name().unwrap_or_default().to_string_lossy();
                name.strip_prefix("tree-")
                    .map(|hex| self.lock_path("tree", hex))
            }
            _ => None,
        };
        let lock = match lock {
            None => None,
            Some(path) => match Lock::try_take(&path, Share::WithNobody)? {
                None => return Ok(false),
                held => held,
            },
        };
        if item.kind == ItemKind::Layer {
            self.settle()?;
        }
        if let (ItemKind::Image, Some(digest)) = (item.kind, &digest) {
            for (path, record) in self.refs()? {
                if record.digest == *digest {
                    fs::remove_file(&path)
                        .map_err(|error| ImageError::io("remove", &path, error))?;
                }
            }
        }
        if item.path.is_dir() {
            self.remove_folder(&item.path)?;
        } else if let Err(error) = fs::remove_file(&item.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(ImageError::io("remove", &item.path, error));
        }
        if let Some(lock) = lock {
            lock.remove();
        }
        Ok(true)
    }

    /// Flushes the trees that may not be on the disk yet.
    fn settle(&self) -> Result<(), ImageError> {
        for digest in self.trees()? {
            let folder = self.tree_folder(&digest);
            if folder.join(UNFLUSHED).exists() && is_trusted(&folder) {
                flush(&folder)?;
                let _ = fs::remove_file(folder.join(UNFLUSHED));
            }
        }
        Ok(())
    }

    /// Removes a tree that a power cut may have damaged; its lock is held and shared with nobody.
    pub(crate) fn remove_untrusted(&self, digest: &Digest) -> Result<(), ImageError> {
        let folder = self.tree_folder(digest);
        if folder.exists() && !is_trusted(&folder) {
            self.remove_folder(&folder)?;
        }
        Ok(())
    }

    /// Takes the name away first, so that a tree is never seen half removed.
    fn remove_folder(&self, path: &Path) -> Result<(), ImageError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!(
            "trash-{}-{count}-{}",
            std::process::id(),
            seconds(SystemTime::now())
        );
        let trash = self.root.join("tmp").join(name);
        fs::rename(path, &trash).map_err(|error| ImageError::io("remove", path, error))?;
        remove_tree(&trash)
    }
}

/// Removes a folder with all in it, also through directories that nobody may enter.
pub(crate) fn remove_tree(path: &Path) -> Result<(), ImageError> {
    let failed = |error| ImageError::io("remove", path, error);
    match fs::remove_dir_all(path) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        Err(error) => return Err(failed(error)),
    }
    open_up(path).map_err(failed)?;
    fs::remove_dir_all(path).map_err(failed)
}

fn open_up(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}

/// The paths in a folder; none where there is no such folder.
fn list(folder: &Path) -> Result<Vec<PathBuf>, ImageError> {
    let failed = |error| ImageError::io("read the store folder", folder, error);
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    paths.sort();
    Ok(paths)
}

fn digest_of_name(path: &Path) -> Option<Digest> {
    let name = path.file_name()?.to_str()?;
    Digest::parse(&format!("sha256:{name}")).ok()
}

fn modified(path: &Path) -> u64 {
    fs::symlink_metadata(path)
        .and_then(|metadata| metadata.modified())
        .map_or(0, seconds)
}

fn age(path: &Path) -> Duration {
    fs::symlink_metadata(path)
        .and_then(|metadata| metadata.modified())
        .ok()
        .and_then(|modified| modified.elapsed().ok())
        .unwrap_or_default()
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Space on the disk, hard links counted once each; what cannot be read counts nothing.
fn disk_bytes(path: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return 0;
    };
    let own = metadata.blocks() * 512;
    if !metadata.is_dir() {
        return own / metadata.nlink().max(1);
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    own + entries.map(|entry| disk_bytes(&entry.path())).sum::<u64>()
}

/// Makes a tree that is about to get its name safe against a power cut: by a mark on a local disk,
/// else by flushing it.
pub(crate) fn guard(folder: &Path) -> Result<(), ImageError> {
    match longshore_host::process::boot_id() {
        Ok(boot) if is_local(folder) => {
            let path = folder.join(UNFLUSHED);
            fs::write(&path, boot).map_err(|error| ImageError::io("write", &path, error))
        }
        _ => flush(folder),
    }
}

/// Whether a tree is what was unpacked: it is on the disk, or the machine has run since.
fn is_trusted(folder: &Path) -> bool {
    let path = folder.join(UNFLUSHED);
    let made_in = match fs::read_to_string(&path) {
        Ok(boot) => boot,
        // Also where it cannot be read: whoever made the store readable made it whole.
        Err(_) => return true,
    };
    let same_boot = longshore_host::process::boot_id().is_ok_and(|boot| boot == made_in);
    if same_boot && age(&path) > WRITTEN_BY {
        // In a store that cannot be written the mark stays, and is judged again.
        let _ = fs::remove_file(&path);
    }
    same_boot
}

/// Whether the file system is one of this machine's own disks, or memory.
fn is_local(folder: &Path) -> bool {
    // statfs(2): ext4, xfs, btrfs, tmpfs, overlayfs, f2fs, zfs.
    const LOCAL: [u64; 7] = [
        0xef53,
        0x5846_5342,
        0x9123_683e,
        0x0102_1994,
        0x794c_7630,
        0xf2f5_2010,
        0x2fc1_2fc1,
    ];
    rustix::fs::statfs(folder)
        .is_ok_and(|found| u64::try_from(found.f_type).is_ok_and(|kind| LOCAL.contains(&kind)))
}

/// Flushes a tree with everything else of its file system, so that a power cut cannot leave a tree
/// that looks whole.
pub(crate) fn flush(folder: &Path) -> Result<(), ImageError> {
    let failed = |error| ImageError::io("flush", folder, error);
    let open = rustix::fs::open(
        folder,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(failed)?;
    rustix::fs::syncfs(&open).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_another_node_is_writing_is_left_to_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::at(folder.path().to_owned());
        store.prepare().expect("own folder");
        let theirs: Vec<PathBuf> = (0..200)
            .map(|count| format!("tmp/write-{}-{count}", std::process::id()))
            .map(|name| folder.path().join(name))
            .collect();
        for path in &theirs {
            fs::write(path, "theirs").expect("own folder");
        }
        let (digest, platform) = (Digest::of(b"x"), Platform::here());
        store.set_ref("x", &platform, &digest).expect("room");
        let found = store.find_ref("x", &platform).expect("was set");
        assert_eq!(found.digest, digest);
        for path in &theirs {
            assert_eq!(fs::read_to_string(path).expect("is there"), "theirs");
        }
    }

    #[test]
    fn a_tree_as_deep_as_images_may_be_is_removed_with_few_descriptors() {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = Rlimit {
            current: Some(1024),
            maximum: getrlimit(Resource::Nofile).maximum,
        };
        setrlimit(Resource::Nofile, limit).expect("the usual limit is allowed");
        let folder = tempfile::tempdir().expect("a folder");
        let tree = folder.path().join("tree");
        let depth = crate::unpack::Limits::default().depth as usize;
        fs::create_dir_all(tree.join("d/".repeat(depth))).expect("own folder");
        remove_tree(&tree).expect("can be removed");
        assert!(!tree.exists());
    }

    #[test]
    fn only_names_that_the_store_gives_are_its_own() {
        let hex = "0".repeat(64);
        for name in [
            &*format!("tree-{hex}"),
            "trash-12-0-1700000000",
            "write-7-0",
        ] {
            assert!(Passing::of_name(name).is_some(), "{name}");
        }
        for name in [
            "",
            "tree-",
            "tree-house",
            "trash-can",
            "write-",
            "write-up.txt",
            "x",
        ] {
            assert!(Passing::of_name(name).is_none(), "{name}");
        }
    }
}
