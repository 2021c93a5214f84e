//! Unpacks the layers of an image into one tree, as an ordinary user and without trust.
//!
//! Layers come lowest first, as uncompressed tar streams. What an archive says can change nothing
//! outside the tree's root and read nothing there: names are taken apart here, symbolic links are
//! resolved here (`tree.rs`), and the kernel is only ever given the descriptor of a folder of the
//! tree and one plain name in it.
//!
//! # What a name means
//!
//! - A name is taken from the root of the image, whether it begins with `/`, `./` or neither; `..`
//!   goes up in the name itself and stops at the root, as in umoci and containerd. So
//!   `../../etc/passwd` is the image's own `etc/passwd`.
//! - A symbolic link in the middle of a name is followed inside the image, as a process with that
//!   root would do it: layers do write through `/lib -> usr/lib`. The last part is never followed.
//! - Folders that no entry describes are made with mode 0755, root's, and the time of the entry
//!   that needs them. Where a file of a lower layer stands in their place, it goes.
//! - An entry replaces what has its name, from this layer or a lower one; only a folder over a
//!   folder keeps what is in it. So an entry for a folder also replaces a symbolic link.
//! - `.wh.NAME` removes what lower layers have under NAME, and `.wh..wh..opq` what they have in its
//!   folder; what the same layer puts there stays, whichever comes first in the archive. Other
//!   names that begin with `.wh..wh.` are left over from aufs and mean nothing.
//! - A hard link names a file that is there when its entry comes: of the same layer or a lower one.
//!
//! # What an ordinary user cannot have
//!
//! Owners become the user. Devices become empty files, for root too: a container gets the host's
//! `/dev`. Attributes other than `user.*` (and root's `security.capability`) are left out, and of
//! those `user.overlay.*`, which would steer an overlay mount of the tree. Modes that would lock
//! the user out get what is needed to read, change and remove the tree. All of that is counted:
//! the layer itself stays what it was.

mod archive;
mod error;
mod stream;
mod tree;

use std::io::{self, Read};
use std::ops::AddAssign;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, XattrFlags};
use rustix::io::Errno;

use archive::{Allowance, Archive, Entry, EntryKind, Fault};
pub use error::UnpackError;
use error::shown;
use stream::Stream;
use tree::{Found, Meta, NodeId, ROOT, Tree, TreeError};

/// The longest path that Linux takes (PATH_MAX, without the NUL).
const PATH_BYTES: usize = 4095;
/// The longest name in a folder (NAME_MAX).
const NAME_BYTES: usize = 255;

/// How large an image may be; over all its layers.
///
/// The defaults are far above any image in use, and low enough that an archive made to do harm
/// ends with a clear word instead of a full machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Headers in the archives: entries and the extensions before them.
    pub entries: u64,
    /// Bytes of uncompressed layers.
    pub bytes: u64,
    /// Length of one file, holes included.
    pub file_bytes: u64,
    /// Folders inside each other.
    pub depth: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            entries: 10_000_000,
            bytes: 1 << 40,
            file_bytes: 4 << 40,
            // Whoever removes such a tree holds a descriptor for each, of which most have 1024.
            depth: 512,
        }
    }
}

/// What a layer had, and what was made of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerSummary {
    /// Entries, of any kind.
    pub entries: u64,
    /// Regular files made.
    pub files: u64,
    /// Bytes written to them.
    pub file_bytes: u64,
    /// Folders made or described anew.
    pub folders: u64,
    /// Symbolic links made.
    pub symlinks: u64,
    /// Hard links made.
    pub hard_links: u64,
    /// FIFOs made.
    pub fifos: u64,
    /// Device nodes, for each of which an empty file was made.
    pub devices_emptied: u64,
    /// Whiteouts and opaque marks.
    pub whiteouts: u64,
    /// Entries of unknown types and aufs's left-overs.
    pub skipped: u64,
    /// Entries whose owner is not kept: they belong to the caller.
    pub owners_dropped: u64,
    /// Modes to which the owner's own access was added.
    pub modes_opened: u64,
    /// Files with setuid or setgid.
    pub setid_files: u64,
    /// Extended attributes set.
    pub xattrs: u64,
    /// Extended attributes left out.
    pub xattrs_skipped: u64,
}

impl AddAssign for LayerSummary {
    fn add_assign(&mut self, other: LayerSummary) {
        // Named one by one, so that a new field cannot be forgotten.
        let LayerSummary {
            entries,
            files,
            file_bytes,
            folders,
            symlinks,
            hard_links,
            fifos,
            devices_emptied,
            whiteouts,
            skipped,
            owners_dropped,
            modes_opened,
            setid_files,
            xattrs,
            xattrs_skipped,
        } = other;
        self.entries += entries;
        self.files += files;
        self.file_bytes += file_bytes;
        self.folders += folders;
        self.symlinks += symlinks;
        self.hard_links += hard_links;
        self.fifos += fifos;
        self.devices_emptied += devices_emptied;
        self.whiteouts += whiteouts;
        self.skipped += skipped;
        self.owners_dropped += owners_dropped;
        self.modes_opened += modes_opened;
        self.setid_files += setid_files;
        self.xattrs += xattrs;
        self.xattrs_skipped += xattrs_skipped;
    }
}

/// A finished tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeSummary {
    /// Layers unpacked.
    pub layers: u64,
    /// Names in the tree below its root.
    pub names: u64,
    /// The layers' own summaries added up.
    pub total: LayerSummary,
}

/// Makes one tree of an image's layers.
///
/// After an error the tree is half made: the caller removes it.
pub struct Unpacker {
    tree: Tree,
    limits: Limits,
    allowance: Allowance,
    buffer: Vec<u8>,
    keeps_owners: bool,
    layers: u64,
    total: LayerSummary,
}

impl Unpacker {
    /// Begins a tree in `root`, a folder that exists, is empty and belongs to nobody else.
    ///
    /// # Errors
    ///
    /// [`UnpackError::Root`] where it is not so.
    pub fn new(root: &Path, limits: Limits) -> Result<Unpacker, UnpackError> {
        let tree = Tree::new(root, limits.depth).map_err(|source| UnpackError::Root {
            path: root.to_owned(),
            source,
        })?;
        Ok(Unpacker {
            tree,
            limits,
            allowance: Allowance {
                headers: limits.entries,
                bytes: limits.bytes,
            },
            buffer: Vec::new(),
            keeps_owners: rustix::process::geteuid().is_root(),
            layers: 0,
            total: LayerSummary::default(),
        })
    }

    /// Unpacks one layer, an uncompressed tar stream, over those before it.
    ///
    /// The stream is read to its very end, past the end mark of the archive, so that a source that
    /// computes a digest has seen every byte. `name` is used in messages.
    ///
    /// # Errors
    ///
    /// See [`UnpackError`]; an error of `tar` itself comes back as [`UnpackError::Stream`].
    pub fn layer(&mut self, name: &str, mut tar: impl Read) -> Result<LayerSummary, UnpackError> {
        self.unpack(name, &mut tar)
    }

    /// Sets what has to wait for the last layer: owners, modes and times of folders.
    ///
    /// Nothing is forced to the device. A caller that renames the tree to a lasting name calls
    /// [`Unpacker::sync`] before it finishes, or syncs once for all that belongs together.
    ///
    /// # Errors
    ///
    /// [`UnpackError::Write`] where the file system refuses.
    pub fn finish(mut self) -> Result<TreeSummary, UnpackError> {
        self.tree
            .settle()
            .map_err(|error| self.tree_error("(all)", b"(folders)", error))?;
        Ok(TreeSummary {
            layers: self.layers,
            names: self.tree.name_count(),
            total: self.total,
        })
    }

    /// Waits until the file system of the tree has written all it has to the device (syncfs(2)).
    ///
    /// # Errors
    ///
    /// The device's: the tree is then not safe.
    pub fn sync(&self) -> io::Result<()> {
        self.tree.sync()
    }

    fn unpack(&mut self, name: &str, tar: &mut dyn Read) -> Result<LayerSummary, UnpackError> {
        self.tree.begin_layer();
        self.layers += 1;
        let buffer = std::mem::take(&mut self.buffer);
        let mut archive = Archive::new(Stream::new(tar, buffer), self.allowance);
        let mut summary = LayerSummary::default();
        loop {
            let entry = archive.next();
            let entry = match entry {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(fault) => return Err(self.fault(name, archive.offset(), None, fault)),
            };
            summary.entries += 1;
            if let Err(stop) = self.apply(&entry, &mut archive, &mut summary) {
                return Err(match stop {
                    Stop::Fault(fault) => {
                        self.fault(name, archive.offset(), Some(&entry.path), fault)
                    }
                    Stop::Tree(error) => self.tree_error(name, &entry.path, error),
                    Stop::Refused(reason) => UnpackError::Refused {
                        layer: name.to_owned(),
                        entry: shown(&entry.path),
                        reason,
                    },
                    Stop::FileTooLong => UnpackError::Limit {
                        layer: name.to_owned(),
                        at: format!("entry `{}`", shown(&entry.path)),
                        most: self.limits.file_bytes,
                        what: "bytes in one file",
                    },
                });
            }
        }
        if let Err(fault) = archive.drain() {
            return Err(self.fault(name, archive.offset(), None, fault));
        }
        (self.allowance, self.buffer) = archive.into_parts();
        self.total += summary;
        Ok(summary)
    }

    fn apply(
        &mut self,
        entry: &Entry,
        archive: &mut Archive,
        summary: &mut LayerSummary,
    ) -> Result<(), Stop> {
        if entry.kind == EntryKind::Other {
            summary.skipped += 1;
            return Ok(());
        }
        let path = clean(&entry.path)?;
        let Some((parents, name)) = split(&path) else {
            return self.apply_root(entry, summary);
        };
        if parents.split(|&byte| byte == b'/').any(is_whiteout) || name.starts_with(b".wh..wh.") {
            if name == b".wh..wh..opq" && !parents.split(|&byte| byte == b'/').any(is_whiteout) {
                summary.whiteouts += 1;
                let implied = self.implied(entry);
                if let Some(folder) = self.tree.find_folder(parents)? {
                    self.tree.make_opaque(folder, &implied)?;
                }
                return Ok(());
            }
            summary.skipped += 1;
            return Ok(());
        }
        let implied = self.implied(entry);
        if let Some(hidden) = name.strip_prefix(b".wh.") {
            if matches!(hidden, b"" | b"." | b"..") {
                return refuse("a whiteout that names no file");
            }
            summary.whiteouts += 1;
            if let Some(parent) = self.tree.find_folder(parents)? {
                self.tree.white_out(parent, hidden, &implied)?;
            }
            return Ok(());
        }
        if entry.size > self.limits.file_bytes {
            return Err(Stop::FileTooLong);
        }
        match entry.kind {
            EntryKind::HardLink => return self.hard_link(entry, parents, name, summary),
            EntryKind::Symlink if entry.link.is_empty() => {
                return refuse("a symbolic link to nothing");
            }
            EntryKind::Symlink if entry.link.len() > PATH_BYTES => {
                return refuse("a symbolic link of more than 4095 bytes");
            }
            _ => {}
        }
        let parent = self.tree.make_folders(parents, &implied)?;
        match entry.kind {
            EntryKind::Directory => {
                let meta = self.meta(entry, summary)?;
                let folder = self.tree.put_folder(parent, name, &meta)?;
                self.folder_xattrs(folder, entry, summary)?;
                summary.folders += 1;
            }
            EntryKind::Symlink => {
                let meta = self.meta(entry, summary)?;
                self.tree.put_symlink(parent, name, &entry.link)?;
                self.finish_symlink(parent, name, &meta)?;
                summary.xattrs_skipped += entry.xattrs.len() as u64;
                summary.symlinks += 1;
            }
            EntryKind::Fifo => {
                self.fifo(parent, name, entry, summary)?;
                summary.fifos += 1;
            }
            EntryKind::Device => {
                self.file(parent, name, entry, archive, summary)?;
                summary.devices_emptied += 1;
            }
            EntryKind::File => {
                self.file(parent, name, entry, archive, summary)?;
                summary.files += 1;
            }
            EntryKind::HardLink | EntryKind::Other => unreachable!("dealt with above"),
        }
        Ok(())
    }

    /// An entry for the root of the image itself.
    fn apply_root(&mut self, entry: &Entry, summary: &mut LayerSummary) -> Result<(), Stop> {
        if entry.kind != EntryKind::Directory {
            return refuse(match entry.path.as_slice() {
                b"" => "an entry without a name",
                _ => "the root of the image can only be a folder",
            });
        }
        let meta = self.meta(entry, summary)?;
        self.tree.describe(ROOT, &meta)?;
        self.folder_xattrs(ROOT, entry, summary)?;
        summary.folders += 1;
        Ok(())
    }

    /// Gives a file that exists a further name. The link's own header says nothing about the file,
    /// whose mode and time stay.
    fn hard_link(
        &mut self,
        entry: &Entry,
        parents: &[u8],
        name: &[u8],
        summary: &mut LayerSummary,
    ) -> Result<(), Stop> {
        let target_path = clean(&entry.link)?;
        let Some((target_parents, target_name)) = split(&target_path) else {
            return refuse("a hard link to the root of the image");
        };
        let target = match self.tree.find_folder(target_parents)? {
            Some(folder) => self.tree.child(folder, target_name),
            None => None,
        };
        let Some((target, found)) = target else {
            return refuse(format!(
                "a hard link to `{}`, which neither this layer so far nor a lower one has",
                shown(&entry.link)
            ));
        };
        if found == Found::Folder {
            return refuse(format!(
                "a hard link to the folder `{}`",
                shown(&entry.link)
            ));
        }
        let parent = self.tree.make_folders(parents, &self.implied(entry))?;
        summary.hard_links += 1;
        match self.tree.child(parent, name) {
            Some((id, _)) if id == target => {
                self.tree.claim(id);
                return Ok(());
            }
            Some((id, Found::Folder)) if self.tree.is_within(target, id) => {
                return refuse("a hard link that would replace the folder of its own target");
            }
            _ => {}
        }
        // Making the way to the new name may have replaced the target itself, a file of a lower
        // layer that stood there.
        let still = match self.tree.find_folder(target_parents)? {
            Some(folder) => self.tree.child(folder, target_name),
            None => None,
        };
        if still != Some((target, found)) {
            return refuse("a hard link that would replace its own target");
        }
        self.tree.put_hard_link(parent, name, target)?;
        Ok(())
    }

    /// Makes a regular file with its data: four system calls for most.
    fn file(
        &mut self,
        parent: NodeId,
        name: &[u8],
        entry: &Entry,
        archive: &mut Archive,
        summary: &mut LayerSummary,
    ) -> Result<(), Stop> {
        let mut meta = self.meta(entry, summary)?;
        if entry.kind == EntryKind::Device {
            meta.mode &= 0o777;
        } else if meta.mode & 0o6000 != 0 {
            summary.setid_files += 1;
        }
        self.tree.clear(parent, name)?;
        let masked = self.tree.masked();
        // Attributes can be set only on a file that its owner may write.
        let owner_writes = if entry.xattrs.is_empty() { 0 } else { 0o600 };
        let made_mode = meta.mode & 0o777 | owner_writes;
        // O_EXCL: a new file and nothing else, so no link is followed and no file shared with
        // another name is written.
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = self.tree.fd(parent)?;
        let fd = rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(made_mode))
            .map_err(failed("make the file"))?;
        self.tree.record_leaf(parent, name);
        if entry.kind == EntryKind::File {
            summary.file_bytes += write_data(&fd, entry, archive)?;
        }
        // In this order: giving a file away takes setuid and capabilities from it.
        let owned = tree::set_owner(&fd, meta.owner).map_err(failed("set the owner"))?;
        for (key, value) in &entry.xattrs {
            self.set_xattr(&fd, key, value, summary)?;
        }
        if made_mode & !masked != meta.mode || owned {
            rustix::fs::fchmod(&fd, Mode::from_raw_mode(meta.mode))
                .map_err(failed("set the mode"))?;
        }
        rustix::fs::futimens(&fd, &tree::times(meta.mtime)).map_err(failed("set the time"))?;
        Ok(())
    }

    fn fifo(
        &mut self,
        parent: NodeId,
        name: &[u8],
        entry: &Entry,
        summary: &mut LayerSummary,
    ) -> Result<(), Stop> {
        let meta = self.meta(entry, summary)?;
        self.tree.clear(parent, name)?;
        let folder = self.tree.fd(parent)?;
        let made_mode = Mode::from_raw_mode(meta.mode & 0o777 | 0o400);
        rustix::fs::mknodat(folder, name, FileType::Fifo, made_mode, 0)
            .map_err(failed("make the FIFO"))?;
        self.tree.record_leaf(parent, name);
        // Without O_NONBLOCK this would wait for a writer (fifo(7)).
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = self.tree.fd(parent)?;
        let fd = rustix::fs::openat(folder, name, flags, Mode::empty())
            .map_err(failed("open the FIFO"))?;
        tree::set_owner(&fd, meta.owner).map_err(failed("set the owner"))?;
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(meta.mode)).map_err(failed("set the mode"))?;
        rustix::fs::futimens(&fd, &tree::times(meta.mtime)).map_err(failed("set the time"))?;
        summary.xattrs_skipped += entry.xattrs.len() as u64;
        Ok(())
    }

    /// Owner and time of a symbolic link, which cannot be opened.
    fn finish_symlink(&mut self, parent: NodeId, name: &[u8], meta: &Meta) -> Result<(), Stop> {
        let folder = self.tree.fd(parent)?;
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        if let Some((uid, gid)) = meta.owner {
            let (uid, gid) = (
                rustix::fs::Uid::from_raw(uid),
                rustix::fs::Gid::from_raw(gid),
            );
            match rustix::fs::chownat(folder, name, Some(uid), Some(gid), flags) {
                Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
                Err(errno) => return Err(failed("set the owner")(errno)),
            }
        }
        rustix::fs::utimensat(folder, name, &tree::times(meta.mtime), flags)
            .map_err(failed("set the time"))?;
        Ok(())
    }

    fn folder_xattrs(
        &mut self,
        folder: NodeId,
        entry: &Entry,
        summary: &mut LayerSummary,
    ) -> Result<(), Stop> {
        if entry.xattrs.is_empty() {
            return Ok(());
        }
        let fd = self.tree.open_for_metadata(folder)?;
        let mut names = Vec::new();
        for (key, value) in &entry.xattrs {
            if self.set_xattr(&fd, key, value, summary)? {
                names.push(key.as_slice().into());
            }
        }
        self.tree.note_xattrs(folder, names);
        Ok(())
    }

    fn set_xattr(
        &self,
        fd: impl std::os::fd::AsFd,
        key: &[u8],
        value: &[u8],
        summary: &mut LayerSummary,
    ) -> Result<bool, Stop> {
        let wanted = match key {
            b"security.capability" => self.keeps_owners,
            _ => key.starts_with(b"user.") && !key.starts_with(b"user.overlay."),
        };
        if wanted {
            match rustix::fs::fsetxattr(fd, key, value, XattrFlags::empty()) {
                Ok(()) => {
                    summary.xattrs += 1;
                    return Ok(true);
                }
                // The file system has no attributes, or no room for one of this size; ext4 says
                // the latter by ENOSPC (xattr(7)), and a full disk shows at the next write.
                Err(
                    Errno::NOTSUP
                    | Errno::PERM
                    | Errno::TOOBIG
                    | Errno::RANGE
                    | Errno::NOSPC
                    | Errno::INVAL,
                ) => {}
                Err(errno) => return Err(failed("set an extended attribute")(errno)),
            }
        }
        summary.xattrs_skipped += 1;
        Ok(false)
    }

    /// Whom a file has to be given to: with root's images mostly nobody, which saves two calls.
    fn other_owner(&self, uid: u32, gid: u32) -> Option<(u32, u32)> {
        (self.keeps_owners && self.tree.owner() != (uid, gid)).then_some((uid, gid))
    }

    /// Metadata of a folder that no entry describes.
    fn implied(&self, entry: &Entry) -> Meta {
        Meta {
            mode: 0o755,
            owner: self.other_owner(0, 0),
            mtime: entry.mtime,
        }
    }

    /// An entry's metadata as far as the caller can have it.
    fn meta(&self, entry: &Entry, summary: &mut LayerSummary) -> Result<Meta, Stop> {
        let mut meta = Meta {
            mode: entry.mode,
            owner: None,
            mtime: entry.mtime,
        };
        if self.keeps_owners {
            // The largest value means "leave as it is" to chown(2).
            let id = |id: i64| u32::try_from(id).ok().filter(|&id| id != u32::MAX);
            let (Some(uid), Some(gid)) = (id(entry.uid), id(entry.gid)) else {
                return refuse(format!(
                    "an owner that Linux cannot have ({}:{})",
                    entry.uid, entry.gid
                ));
            };
            meta.owner = self.other_owner(uid, gid);
            return Ok(meta);
        }
        summary.owners_dropped += 1;
        let needed = match entry.kind {
            EntryKind::Directory => 0o700,
            EntryKind::Symlink => 0,
            // What the owner may not read gets u+rwX as a whole; a file that is only read-only
            // stays so.
            _ if meta.mode & 0o400 != 0 => 0,
            _ if meta.mode & 0o111 != 0 => 0o700,
            _ => 0o600,
        };
        if meta.mode & needed != needed {
            meta.mode |= needed;
            summary.modes_opened += 1;
        }
        Ok(meta)
    }

    fn fault(&self, layer: &str, offset: u64, entry: Option<&[u8]>, fault: Fault) -> UnpackError {
        let layer = layer.to_owned();
        let at = match entry {
            Some(path) => format!("entry `{}`", shown(path)),
            None => format!("byte {offset}"),
        };
        match fault {
            Fault::Stream(source) => UnpackError::Stream { layer, source },
            Fault::Malformed(reason) => UnpackError::Malformed {
                layer,
                offset,
                reason,
            },
            Fault::TooManyHeaders => UnpackError::Limit {
                layer,
                at,
                most: self.limits.entries,
                what: "entries in the image",
            },
            Fault::TooManyBytes => UnpackError::Limit {
                layer,
                at,
                most: self.limits.bytes,
                what: "bytes in the image",
            },
        }
    }

    fn tree_error(&self, layer: &str, entry: &[u8], error: TreeError) -> UnpackError {
        let layer = layer.to_owned();
        let entry = shown(entry);
        match error {
            TreeError::Loop => UnpackError::Refused {
                layer,
                entry,
                reason: "its symbolic links lead in a circle, or through more than 40".to_owned(),
            },
            TreeError::NotAFolder(path) => UnpackError::Refused {
                layer,
                entry,
                reason: format!("`{}` is not a folder", shown(&path)),
            },
            TreeError::TooDeep => UnpackError::Limit {
                layer,
                at: format!("entry `{entry}`"),
                most: self.limits.depth.into(),
                what: "folders inside each other",
            },
            TreeError::Io(action, source) => UnpackError::Write {
                layer,
                entry,
                action,
                source,
            },
        }
    }
}

/// Why an entry ends the layer.
enum Stop {
    Fault(Fault),
    Tree(TreeError),
    Refused(String),
    FileTooLong,
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Fault(fault)
    }
}

impl From<TreeError> for Stop {
    fn from(error: TreeError) -> Stop {
        Stop::Tree(error)
    }
}

fn refuse<T>(reason: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Refused(reason.into()))
}

fn failed(action: &'static str) -> impl FnOnce(Errno) -> Stop {
    move |errno| Stop::Tree(TreeError::Io(action, errno.into()))
}

/// Writes a file's data, holes left out; returns the bytes written.
fn write_data(
    fd: &std::os::fd::OwnedFd,
    entry: &Entry,
    archive: &mut Archive,
) -> Result<u64, Stop> {
    let mut written = 0;
    let Some(regions) = &entry.sparse else {
        loop {
            let piece = archive.data(u64::MAX)?;
            if piece.is_empty() {
                return Ok(written);
            }
            write_at(fd, piece, written)?;
            written += piece.len() as u64;
        }
    };
    for region in regions {
        let mut at = region.offset;
        let end = region.offset + region.bytes;
        while at < end {
            let piece = archive.data(end - at)?;
            write_at(fd, piece, at)?;
            at += piece.len() as u64;
        }
        written += region.bytes;
    }
    rustix::fs::ftruncate(fd, entry.size).map_err(failed("set the length of the file"))?;
    Ok(written)
}

fn write_at(fd: &std::os::fd::OwnedFd, mut bytes: &[u8], mut at: u64) -> Result<(), Stop> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(fd, bytes, at) {
            Ok(0) => {
                let full = io::Error::from(io::ErrorKind::WriteZero);
                return Err(TreeError::Io("write the file", full).into());
            }
            Ok(count) => {
                bytes = &bytes[count..];
                at += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed("write the file")(errno)),
        }
    }
    Ok(())
}

fn is_whiteout(name: &[u8]) -> bool {
    name.starts_with(b".wh.")
}

/// Brings a name into the form `a/b/c`, taken from the root of the image; empty for the root.
fn clean(path: &[u8]) -> Result<Vec<u8>, Stop> {
    if path.len() > PATH_BYTES {
        return refuse("a path of more than 4095 bytes");
    }
    let mut clean: Vec<u8> = Vec::with_capacity(path.len());
    for name in path.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => {
                let parent = clean.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
                clean.truncate(parent);
            }
            _ if name.len() > NAME_BYTES => {
                return refuse("a name of more than 255 bytes");
            }
            _ => {
                if !clean.is_empty() {
                    clean.push(b'/');
                }
                clean.extend_from_slice(name);
            }
        }
    }
    Ok(clean)
}

/// Folder and last name of a clean path; `None` for the root.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.is_empty() {
        return None;
    }
    Some(match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    })
}
