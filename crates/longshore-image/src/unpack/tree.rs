//! The tree that is being made: what is in it, kept in memory, and the system calls that make it.
//!
//! The folder was empty at the start and everything in it went through here, so the tree in memory
//! *is* the file system's, and most questions need no system call: whether a name is taken, by
//! what, since which layer, where a symbolic link leads. In particular **the kernel never follows
//! a symbolic link for us**: links inside the image are resolved here, below the root, and each
//! system call gets the descriptor of a folder and one plain name in it. Folders are opened one
//! name at a time by openat2(2) with `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`, so that a mistake
//! here, or somebody else at work in the same folder, would give an error and not a way out.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::archive::Time;

/// Index of a node; slots of removed nodes are used again.
pub(super) type NodeId = u32;

/// The folder that everything is made in.
pub(super) const ROOT: NodeId = 0;

/// Folders kept open. An archive walks a tree depth first, so few are in use at a time, and the
/// default limit of 1024 descriptors is shared with whoever calls.
const OPEN_FOLDERS: usize = 64;

/// The kernel's own bound on the links of one path (path_resolution(7)).
const MOST_LINKS: u32 = 40;

/// Mode, owner and time of a folder; set when everything below is made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meta {
    pub(super) mode: u32,
    /// User and group to give it to; `None` where it stays its maker's.
    pub(super) owner: Option<(u32, u32)>,
    pub(super) mtime: Time,
}

struct Node {
    parent: NodeId,
    name: Box<[u8]>,
    /// The layer that made this name, counted from 1.
    made: u32,
    kind: Kind,
}

enum Kind {
    /// A file, a FIFO: nothing that a path can go through.
    Leaf,
    Symlink(Box<[u8]>),
    Folder(Box<Folder>),
    /// An unused slot.
    Free,
}

struct Folder {
    children: HashMap<Box<[u8]>, NodeId>,
    /// The last layer that put something here or deeper.
    touched: u32,
    meta: Meta,
    /// The permission bits that it was made with, before the umask.
    made_mode: u32,
    /// `false` for the root until an entry names it: its owner's choice holds until then.
    is_described: bool,
    xattrs: Vec<Box<[u8]>>,
}

/// What stands under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Folder,
    Symlink,
    Leaf,
}

/// Why a path leads nowhere.
#[derive(Debug)]
pub(super) enum TreeError {
    /// Symbolic links in a circle, or too many of them.
    Loop,
    /// Something that is not a folder stands in the way.
    NotAFolder(Vec<u8>),
    /// Deeper than allowed.
    TooDeep,
    /// A system call failed.
    Io(&'static str, io::Error),
}

fn failed(action: &'static str) -> impl FnOnce(Errno) -> TreeError {
    move |errno| TreeError::Io(action, errno.into())
}

/// The tree in memory and on disk.
pub(super) struct Tree {
    root: OwnedFd,
    nodes: Vec<Node>,
    free: Vec<NodeId>,
    open: Vec<(NodeId, OwnedFd)>,
    has_openat2: bool,
    /// The layer in work.
    layer: u32,
    depth_max: u32,
    /// Permission bits that the process's umask, or a default ACL of the folder, takes away.
    masked: u32,
    /// Whether new folders inherit setgid.
    inherits_setgid: bool,
    /// Who owns what is made here.
    owner: (u32, u32),
}

impl Tree {
    /// Opens the folder, which must be empty.
    pub(super) fn new(path: &Path, depth_max: u32) -> io::Result<Tree> {
        let root = rustix::fs::open(
            path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        for entry in rustix::fs::Dir::read_from(&root)? {
            if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
                return Err(io::Error::new(
                    io::ErrorKind::DirectoryNotEmpty,
                    "the folder is not empty",
                ));
            }
        }
        // What the umask is can be asked only by changing it, for all threads; a folder made
        // for the purpose shows it, and a default ACL or an inherited group as well.
        let probe = b".longshore-probe".as_slice();
        rustix::fs::mkdirat(&root, probe, Mode::from_raw_mode(0o777))?;
        let stat = rustix::fs::statat(&root, probe, AtFlags::SYMLINK_NOFOLLOW);
        rustix::fs::unlinkat(&root, probe, AtFlags::REMOVEDIR)?;
        let stat = stat?;
        let mode = stat.st_mode;
        Ok(Tree {
            root,
            nodes: vec![Node {
                parent: ROOT,
                name: Box::default(),
                made: 0,
                kind: Kind::Folder(Box::new(Folder {
                    children: HashMap::new(),
                    touched: 0,
                    meta: Meta::default(),
                    made_mode: 0,
                    is_described: false,
                    xattrs: Vec::new(),
                })),
            }],
            free: Vec::new(),
            open: Vec::new(),
            has_openat2: true,
            layer: 0,
            depth_max,
            masked: 0o777 & !mode,
            inherits_setgid: mode & 0o2000 != 0,
            owner: (stat.st_uid, stat.st_gid),
        })
    }

    /// Begins the next layer.
    pub(super) fn begin_layer(&mut self) {
        self.layer += 1;
    }

    /// Permission bits that a create call loses.
    pub(super) fn masked(&self) -> u32 {
        self.masked
    }

    /// User and group of whatever is made here, before it is given to somebody else.
    pub(super) fn owner(&self) -> (u32, u32) {
        self.owner
    }

    /// How many names there are below the root.
    pub(super) fn name_count(&self) -> u64 {
        (self.nodes.len() - self.free.len() - 1) as u64
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    fn folder(&self, id: NodeId) -> &Folder {
        match &self.node(id).kind {
            Kind::Folder(folder) => folder,
            _ => unreachable!("the caller has found a folder"),
        }
    }

    fn folder_mut(&mut self, id: NodeId) -> &mut Folder {
        match &mut self.nodes[id as usize].kind {
            Kind::Folder(folder) => folder,
            _ => unreachable!("the caller has found a folder"),
        }
    }

    /// Looks up a name in a folder.
    pub(super) fn child(&self, folder: NodeId, name: &[u8]) -> Option<(NodeId, Found)> {
        let id = *self.folder(folder).children.get(name)?;
        let found = match self.node(id).kind {
            Kind::Folder(_) => Found::Folder,
            Kind::Symlink(_) => Found::Symlink,
            Kind::Leaf | Kind::Free => Found::Leaf,
        };
        Some((id, found))
    }

    /// Walks to a folder as the kernel would from a root of `/`, symbolic links followed; `None`
    /// where something is missing.
    pub(super) fn find_folder(&mut self, path: &[u8]) -> Result<Option<NodeId>, TreeError> {
        self.walk(ROOT, path, None, &mut 0)
    }

    /// Walks to a folder and makes what is missing with the metadata of a folder that no layer
    /// describes. A file of a lower layer that stands in the way is replaced.
    pub(super) fn make_folders(
        &mut self,
        path: &[u8],
        implied: &Meta,
    ) -> Result<NodeId, TreeError> {
        let found = self.walk(ROOT, path, Some(implied), &mut 0)?;
        Ok(found.unwrap_or(ROOT))
    }

    fn walk(
        &mut self,
        start: NodeId,
        path: &[u8],
        implied: Option<&Meta>,
        links: &mut u32,
    ) -> Result<Option<NodeId>, TreeError> {
        let mut at = start;
        for name in path.split(|&byte| byte == b'/') {
            match name {
                b"" | b"." => continue,
                b".." => {
                    at = self.node(at).parent;
                    continue;
                }
                _ => {}
            }
            at = match (self.child(at, name), implied) {
                (Some((id, Found::Folder)), _) => id,
                (Some((id, Found::Symlink)), _) => {
                    *links += 1;
                    if *links > MOST_LINKS {
                        return Err(TreeError::Loop);
                    }
                    let Kind::Symlink(target) = &self.node(id).kind else {
                        unreachable!("found to be a link above");
                    };
                    let target = target.clone();
                    let from = if target.starts_with(b"/") { ROOT } else { at };
                    match self.walk(from, &target, implied, links)? {
                        Some(id) => id,
                        None => return Ok(None),
                    }
                }
                (Some((id, Found::Leaf)), Some(implied)) => {
                    if self.node(id).made == self.layer {
                        return Err(TreeError::NotAFolder(self.path(id)));
                    }
                    self.add_folder(at, name, implied)?
                }
                (None, Some(implied)) => self.add_folder(at, name, implied)?,
                (Some((_, Found::Leaf)) | None, None) => return Ok(None),
            };
        }
        Ok(Some(at))
    }

    /// The path of a node from the root, for messages.
    fn path(&self, mut id: NodeId) -> Vec<u8> {
        let mut names = Vec::new();
        while id != ROOT {
            names.push(&*self.node(id).name);
            id = self.node(id).parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    fn depth(&self, mut id: NodeId) -> u32 {
        let mut depth = 0;
        while id != ROOT {
            id = self.node(id).parent;
            depth += 1;
        }
        depth
    }

    /// Whether `id` is `folder` or lies below it.
    pub(super) fn is_within(&self, mut id: NodeId, folder: NodeId) -> bool {
        while id != folder {
            if id == ROOT {
                return false;
            }
            id = self.node(id).parent;
        }
        true
    }

    /// Makes a folder, or gives an existing one new metadata: what is in it stays.
    pub(super) fn put_folder(
        &mut self,
        parent: NodeId,
        name: &[u8],
        meta: &Meta,
    ) -> Result<NodeId, TreeError> {
        let layer = self.layer;
        if let Some((id, Found::Folder)) = self.child(parent, name) {
            self.nodes[id as usize].made = layer;
            self.describe(id, meta)?;
            self.touch(parent);
            return Ok(id);
        }
        self.add_folder(parent, name, meta)
    }

    /// Gives a folder its metadata, in memory; attributes of an earlier description go.
    pub(super) fn describe(&mut self, id: NodeId, meta: &Meta) -> Result<(), TreeError> {
        let folder = self.folder_mut(id);
        folder.meta = *meta;
        folder.is_described = true;
        let stale = std::mem::take(&mut folder.xattrs);
        if !stale.is_empty() {
            let fd = self.open_for_metadata(id)?;
            for name in stale {
                match rustix::fs::fremovexattr(&fd, &*name) {
                    Ok(()) | Err(Errno::NODATA) => {}
                    Err(errno) => return Err(failed("remove an extended attribute")(errno)),
                }
            }
        }
        Ok(())
    }

    fn add_folder(
        &mut self,
        parent: NodeId,
        name: &[u8],
        meta: &Meta,
    ) -> Result<NodeId, TreeError> {
        if self.depth(parent) >= self.depth_max {
            return Err(TreeError::TooDeep);
        }
        self.clear(parent, name)?;
        // The owner can enter and write until `finish` sets the mode.
        let made_mode = meta.mode & 0o777 | 0o700;
        let fd = self.fd(parent)?;
        rustix::fs::mkdirat(fd, name, Mode::from_raw_mode(made_mode))
            .map_err(failed("make the folder"))?;
        Ok(self.record(
            parent,
            name,
            Kind::Folder(Box::new(Folder {
                children: HashMap::new(),
                touched: self.layer,
                meta: *meta,
                made_mode,
                is_described: true,
                xattrs: Vec::new(),
            })),
        ))
    }

    /// Notes a file or FIFO that was just made under a name that `clear` has freed.
    pub(super) fn record_leaf(&mut self, parent: NodeId, name: &[u8]) {
        self.record(parent, name, Kind::Leaf);
    }

    /// Makes a symbolic link.
    pub(super) fn put_symlink(
        &mut self,
        parent: NodeId,
        name: &[u8],
        target: &[u8],
    ) -> Result<(), TreeError> {
        self.clear(parent, name)?;
        let fd = self.fd(parent)?;
        rustix::fs::symlinkat(target, fd, name).map_err(failed("make the symbolic link"))?;
        self.record(parent, name, Kind::Symlink(target.into()));
        Ok(())
    }

    /// Gives an existing file, FIFO or symbolic link a further name.
    pub(super) fn put_hard_link(
        &mut self,
        parent: NodeId,
        name: &[u8],
        target: NodeId,
    ) -> Result<(), TreeError> {
        self.clear(parent, name)?;
        let target_parent = self.node(target).parent;
        // Opening the second folder may push the first out of those kept open.
        let old = rustix::io::fcntl_dupfd_cloexec(self.fd(target_parent)?, 0)
            .map_err(failed("open the folder of the hard link's target"))?;
        self.fd(parent)?;
        let new = self.opened(parent);
        let target = self.node(target);
        rustix::fs::linkat(&old, &*target.name, new, name, AtFlags::empty())
            .map_err(failed("make the hard link"))?;
        let kind = match &target.kind {
            Kind::Symlink(target) => Kind::Symlink(target.clone()),
            _ => Kind::Leaf,
        };
        self.record(parent, name, kind);
        Ok(())
    }

    /// Marks a name as present in the layer in work.
    pub(super) fn claim(&mut self, id: NodeId) {
        let node = &mut self.nodes[id as usize];
        node.made = self.layer;
        let parent = node.parent;
        self.touch(parent);
    }

    fn record(&mut self, parent: NodeId, name: &[u8], kind: Kind) -> NodeId {
        let node = Node {
            parent,
            name: name.into(),
            made: self.layer,
            kind,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.nodes[id as usize] = node;
                id
            }
            None => {
                // 2^32 nodes would need half a terabyte; the entry limit is far below.
                let id = NodeId::try_from(self.nodes.len()).expect("fewer than 2^32 entries");
                self.nodes.push(node);
                id
            }
        };
        self.folder_mut(parent).children.insert(name.into(), id);
        self.touch(parent);
        id
    }

    /// Notes that the layer in work has something in `folder`, and so in all above it.
    fn touch(&mut self, mut folder: NodeId) {
        let layer = self.layer;
        while self.folder(folder).touched != layer {
            self.folder_mut(folder).touched = layer;
            folder = self.node(folder).parent;
        }
    }

    /// Frees a name: whatever stands there is removed with everything below it.
    pub(super) fn clear(&mut self, parent: NodeId, name: &[u8]) -> Result<(), TreeError> {
        match self.child(parent, name) {
            Some((id, _)) => self.remove(id),
            None => Ok(()),
        }
    }

    fn remove(&mut self, id: NodeId) -> Result<(), TreeError> {
        let mut flags = AtFlags::empty();
        if let Kind::Folder(folder) = &self.node(id).kind {
            let children: Vec<NodeId> = folder.children.values().copied().collect();
            // The recursion is no deeper than `depth_max`.
            for child in children {
                self.remove(child)?;
            }
            self.open.retain(|(open, _)| *open != id);
            flags = AtFlags::REMOVEDIR;
        }
        let parent = self.node(id).parent;
        let name = std::mem::take(&mut self.nodes[id as usize].name);
        let fd = self.fd(parent)?;
        rustix::fs::unlinkat(fd, &*name, flags).map_err(failed("remove what stood there"))?;
        self.folder_mut(parent).children.remove(&name);
        self.nodes[id as usize].kind = Kind::Free;
        self.free.push(id);
        Ok(())
    }

    /// Removes a name of lower layers; what this layer put under it stays.
    pub(super) fn white_out(
        &mut self,
        parent: NodeId,
        name: &[u8],
        implied: &Meta,
    ) -> Result<(), TreeError> {
        match self.child(parent, name) {
            Some((id, _)) => self.hide(id, implied),
            None => Ok(()),
        }
    }

    /// Removes all that lower layers put into a folder.
    pub(super) fn make_opaque(&mut self, folder: NodeId, implied: &Meta) -> Result<(), TreeError> {
        let children: Vec<NodeId> = self.folder(folder).children.values().copied().collect();
        for child in children {
            self.hide(child, implied)?;
        }
        Ok(())
    }

    fn hide(&mut self, id: NodeId, implied: &Meta) -> Result<(), TreeError> {
        let layer = self.layer;
        let made_here = self.node(id).made == layer;
        match &self.node(id).kind {
            Kind::Folder(folder) if made_here || folder.touched == layer => {
                if !made_here {
                    // Only what is in it is this layer's: the description was a lower one's.
                    self.nodes[id as usize].made = layer;
                    self.describe(id, implied)?;
                }
                self.make_opaque(id, implied)
            }
            _ if made_here => Ok(()),
            _ => self.remove(id),
        }
    }

    /// The descriptor of a folder, for use as the starting point of a system call.
    pub(super) fn fd(&mut self, id: NodeId) -> Result<BorrowedFd<'_>, TreeError> {
        if id == ROOT {
            return Ok(self.root.as_fd());
        }
        match self.open.iter().rposition(|(open, _)| *open == id) {
            // Nearly always the folder of the entry before.
            Some(position) if position + 1 == self.open.len() => {}
            Some(position) => self.open[position..].rotate_left(1),
            None => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let fd = self.open_folder(id, flags)?;
                if self.open.len() == OPEN_FOLDERS {
                    self.open.remove(0);
                }
                self.open.push((id, fd));
            }
        }
        Ok(self.opened(id))
    }

    /// The descriptor that `fd` has just given, without the borrow of the whole tree.
    fn opened(&self, id: NodeId) -> BorrowedFd<'_> {
        match self.open.last() {
            Some((last, fd)) if *last == id => fd.as_fd(),
            _ => {
                assert_eq!(id, ROOT, "`fd` leaves the folder last in the list");
                self.root.as_fd()
            }
        }
    }

    /// Opens a folder itself, not only its place, so that mode, time and attributes can be set.
    pub(super) fn open_for_metadata(&mut self, id: NodeId) -> Result<OwnedFd, TreeError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if id == ROOT {
            return rustix::io::fcntl_dupfd_cloexec(&self.root, 0)
                .map_err(failed("open the root folder"));
        }
        self.open_folder(id, flags)
    }

    fn open_folder(&mut self, id: NodeId, flags: OFlags) -> Result<OwnedFd, TreeError> {
        let parent = self.node(id).parent;
        // The recursion ends at the next folder above that is open, at the latest at the root.
        self.fd(parent)?;
        let fd = self.opened(parent);
        let name = &*self.node(id).name;
        if self.has_openat2 {
            let resolve = ResolveFlags::BENEATH
                | ResolveFlags::NO_SYMLINKS
                | ResolveFlags::NO_MAGICLINKS
                | ResolveFlags::NO_XDEV;
            match rustix::fs::openat2(fd, name, flags, Mode::empty(), resolve) {
                Ok(fd) => return Ok(fd),
                // Kernels before 5.6, and sandboxes that do not know the call. One plain name
                // with O_NOFOLLOW leaves as little room.
                Err(Errno::NOSYS | Errno::PERM) => {}
                Err(errno) => return Err(failed("open the folder")(errno)),
            }
        }
        let opened = rustix::fs::openat(fd, name, flags, Mode::empty());
        self.has_openat2 = false;
        opened.map_err(failed("open the folder"))
    }

    /// Notes attributes that were set on a folder, so that a later description can remove them.
    pub(super) fn note_xattrs(&mut self, id: NodeId, names: Vec<Box<[u8]>>) {
        self.folder_mut(id).xattrs = names;
    }

    /// Sets the owners, modes and times of all folders, deepest first.
    pub(super) fn settle(&mut self) -> Result<(), TreeError> {
        // A folder stands behind its parent in this list.
        let mut folders = vec![ROOT];
        let mut next = 0;
        while let Some(&id) = folders.get(next) {
            let below = self.folder(id).children.values();
            folders
                .extend(below.filter(|&&child| matches!(self.node(child).kind, Kind::Folder(_))));
            next += 1;
        }
        for id in folders.into_iter().rev() {
            self.settle_one(id)?;
        }
        Ok(())
    }

    fn settle_one(&mut self, id: NodeId) -> Result<(), TreeError> {
        if !self.folder(id).is_described {
            return Ok(());
        }
        let fd = self.open_for_metadata(id)?;
        let folder = self.folder(id);
        let meta = &folder.meta;
        let owned = set_owner(&fd, meta.owner).map_err(failed("set the owner"))?;
        // Often what mkdir made of the mode is right already.
        let made = folder.made_mode & !self.masked;
        if made != meta.mode || owned || self.inherits_setgid {
            rustix::fs::fchmod(&fd, Mode::from_raw_mode(meta.mode))
                .map_err(failed("set the mode"))?;
        }
        rustix::fs::futimens(&fd, &times(meta.mtime)).map_err(failed("set the time"))
    }

    /// Waits until the file system that holds the tree has written all it has to the device.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.root)?)
    }
}

/// Modification time of the entry, for both times: the access time of an archive's maker says
/// nothing, and a fixed value keeps the tree the same from one unpacking to the next.
pub(super) fn times(mtime: Time) -> Timestamps {
    let time = Timespec {
        tv_sec: mtime.seconds,
        tv_nsec: mtime.nanoseconds.into(),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

/// Gives a file to somebody else where that is asked for; says whether it was done.
///
/// A root of a user namespace can give files only to ids that are mapped there; the kernel's
/// answer is then EINVAL or EPERM, and the file stays the caller's.
pub(super) fn set_owner(fd: impl AsFd, owner: Option<(u32, u32)>) -> rustix::io::Result<bool> {
    let Some((uid, gid)) = owner else {
        return Ok(false);
    };
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    match rustix::fs::fchown(fd, Some(uid), Some(gid)) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::PERM) => Ok(false),
        Err(errno) => Err(errno),
    }
}
