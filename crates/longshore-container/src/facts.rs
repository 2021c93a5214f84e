//! The one look at the host and the image that a plan needs: only what it will ask for.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use longshore_host::Session;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::thread::CapabilitySet;
use serde::Serialize;
use thiserror::Error;

use crate::mounts::{self, Source, Wanted};
use crate::rootfs::Rootfs;
use crate::spec::{Action, RunSpec, Writable};

/// Whether something is a directory; anything else is bound like a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A directory.
    Directory,
    /// A file, a device, a socket.
    File,
}

/// What stands at the place of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Something that can be mounted on.
    There(Kind),
    /// Nothing; the deepest directory above it that is there, with links resolved, and what is
    /// missing below it.
    Missing {
        /// Inside of the image, absolute.
        parent: PathBuf,
        /// Relative to it.
        rest: PathBuf,
        /// Nothing is in that directory; its permissions.
        empty: Option<u32>,
    },
    /// A file stands where a directory is needed.
    Blocked,
}

/// What was found for a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// For each wanted mount that takes something of the host: what that is, or why not.
    pub sources: Vec<Option<Result<Kind, String>>>,
    /// For each wanted mount: what stands at its place in the image or on the mount below it.
    pub places: Vec<Option<Place>>,
    /// The image's passwd(5).
    pub passwd: Vec<u8>,
    /// The image's group(5).
    pub group: Vec<u8>,
    /// The host's group(5), for the names of groups.
    pub host_group: Vec<u8>,
    /// The scripts under `/.singularity.d/env`, in order, with their names.
    pub env_scripts: Vec<(OsString, Vec<u8>)>,
    /// `/.singularity.d/libs`, where Apptainer mounts driver libraries, is there and holds nothing.
    pub empty_driver_folder: bool,
    /// The image has `/.singularity.d/runscript`.
    pub runscript: bool,
    /// The image has `/.singularity.d/startscript`.
    pub startscript: bool,
    /// The image has `/bin/bash`.
    pub bash: bool,
    /// The caller is root and yet may not mount: a user namespace is needed all the same.
    pub powerless_root: bool,
    /// Ranges of ids that the system administrator gave to this user, with what hands them out.
    pub id_ranges: Option<IdRanges>,
}

/// Subordinate ids of a user (subuid(5), subgid(5)).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IdRanges {
    /// First user id and their number.
    pub uids: (u32, u32),
    /// First group id and their number.
    pub gids: (u32, u32),
    /// The program that maps user ids.
    #[serde(serialize_with = "crate::lossy::path")]
    pub newuidmap: PathBuf,
    /// The program that maps group ids.
    #[serde(serialize_with = "crate::lossy::path")]
    pub newgidmap: PathBuf,
}

/// The image could not be looked at.
#[derive(Debug, Error)]
pub enum InspectError {
    /// The root directory cannot be opened.
    #[error("cannot open the root directory {}", path.display())]
    Root {
        /// The directory.
        path: PathBuf,
        /// What the kernel says.
        #[source]
        source: io::Error,
    },
    /// The kernel cannot keep a look-up inside of the image.
    #[error("this kernel has no openat2 (Linux 5.6), which keeps an image's links inside of it")]
    OldKernel,
    /// A file of the image cannot be read.
    #[error("cannot read {} in the image", path.display())]
    Read {
        /// Inside of the image.
        path: PathBuf,
        /// What the kernel says.
        #[source]
        source: io::Error,
    },
}

/// Where Apptainer mounts driver libraries; its images name it in `LD_LIBRARY_PATH`.
pub(crate) const DRIVER_FOLDER: &str = "/.singularity.d/libs";

/// Generated environment scripts are a few hundred bytes; nobody reads a file of gigabytes.
const LARGEST_FILE_BYTES: u64 = 4 << 20;

/// Looks at the host and the image for what `spec` needs to know.
///
/// # Errors
///
/// [`InspectError`] where the image cannot be read at all; what is merely absent is a fact.
pub fn inspect(spec: &RunSpec, session: &Session, rootfs: &Rootfs) -> Result<Facts, InspectError> {
    let wanted = mounts::wanted(spec, session);
    let root = rustix::fs::open(
        &rootfs.path,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|error| InspectError::Root {
        path: rootfs.path.clone(),
        source: error.into(),
    })?;
    let image = Tree {
        root,
        plain: RefCell::new(vec![PathBuf::from("/")]),
    };
    let mut facts = Facts::default();
    for (index, mount) in wanted.iter().enumerate() {
        facts.sources.push(mount.host_path().map(kind_on_host));
        facts.places.push(place_of(&image, &wanted, index)?);
    }
    facts.passwd = image.read("/etc/passwd")?.unwrap_or_default();
    facts.group = image.read("/etc/group")?.unwrap_or_default();
    facts.host_group = read_host("/etc/group");
    if image.kind("/.singularity.d")? == Some(Kind::Directory) {
        facts.env_scripts = image.scripts("/.singularity.d/env")?;
        facts.empty_driver_folder = image
            .open(Path::new(DRIVER_FOLDER), OFlags::PATH | OFlags::DIRECTORY)?
            .is_some_and(|folder| is_empty(&folder));
        facts.runscript = image.kind("/.singularity.d/runscript")?.is_some();
        facts.startscript = image.kind("/.singularity.d/startscript")?.is_some();
    }
    if matches!(spec.action, Action::Shell(None, _)) {
        facts.bash = image.kind("/bin/bash")?.is_some();
    }
    if session.uid == 0 {
        facts.powerless_root = rustix::thread::capabilities(None)
            .is_ok_and(|sets| !sets.effective.contains(CapabilitySet::SYS_ADMIN));
    }
    if mounts::appears_as_root(spec, session) {
        facts.id_ranges = id_ranges(session);
    }
    Ok(facts)
}

/// What stands on the host; looking also makes an automounter mount it, before the namespaces
/// are made, so that it is there to be bound.
fn kind_on_host(path: &Path) -> Result<Kind, String> {
    let statx = rustix::fs::statx(
        rustix::fs::CWD,
        path,
        AtFlags::STATX_DONT_SYNC,
        StatxFlags::TYPE,
    )
    .map_err(|error| error_text(&error.into()))?;
    Ok(kind_of(statx.stx_mode))
}

fn kind_of(mode: u16) -> Kind {
    match FileType::from_raw_mode(mode.into()) {
        FileType::Directory => Kind::Directory,
        _ => Kind::File,
    }
}

/// The kernel's words for an error, with its name.
pub(crate) fn error_text(error: &io::Error) -> String {
    longshore_host::name_errors(&error.to_string()).into_owned()
}

fn place_of(image: &Tree, wanted: &[Wanted], index: usize) -> Result<Option<Place>, InspectError> {
    let target = &wanted[index].target;
    let Some(cover) = mounts::cover(wanted, index) else {
        return image.place(target).map(Some);
    };
    let below = target
        .strip_prefix(&wanted[cover].target)
        .expect("the cover is a prefix");
    Ok(match &wanted[cover].source {
        Source::Bind { path } => {
            let at = if below.as_os_str().is_empty() {
                path.clone()
            } else {
                path.join(below)
            };
            kind_on_host(&at).ok().map(Place::There)
        }
        // What is in our own file systems is known without looking.
        _ => None,
    })
}

/// The tree of an image: every look-up stays inside, whatever its links say.
struct Tree {
    root: OwnedFd,
    /// Directories that are known to be no links, so that what is in them is found in one step.
    plain: RefCell<Vec<PathBuf>>,
}

impl Tree {
    fn open(&self, path: &Path, flags: OFlags) -> Result<Option<OwnedFd>, InspectError> {
        match open_inside(self.root.as_fd(), path, flags) {
            Ok(file) => Ok(Some(file)),
            Err(error) => match error
                .raw_os_error()
                .map(rustix::io::Errno::from_raw_os_error)
            {
                Some(
                    rustix::io::Errno::NOENT
                    | rustix::io::Errno::NOTDIR
                    | rustix::io::Errno::LOOP
                    | rustix::io::Errno::ACCESS
                    | rustix::io::Errno::NXIO,
                ) => Ok(None),
                Some(rustix::io::Errno::NOSYS) => Err(InspectError::OldKernel),
                _ => Err(InspectError::Read {
                    path: path.to_owned(),
                    source: error,
                }),
            },
        }
    }

    /// What stands at a path without links in it; `None` where it takes more to tell.
    fn plain_kind(&self, path: &Path) -> Option<Kind> {
        let parent = path.parent()?;
        if !self.plain.borrow().iter().any(|known| known == parent)
            && self.plain_kind(parent)? != Kind::Directory
        {
            return None;
        }
        let below = path.strip_prefix("/").ok()?;
        let status = rustix::fs::statat(&self.root, below, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        match FileType::from_raw_mode(status.st_mode) {
            FileType::Directory => {
                self.plain.borrow_mut().push(path.to_owned());
                Some(Kind::Directory)
            }
            FileType::Symlink => None,
            _ => Some(Kind::File),
        }
    }

    fn kind(&self, path: impl AsRef<Path>) -> Result<Option<Kind>, InspectError> {
        let path = path.as_ref();
        if let Some(kind) = self.plain_kind(path) {
            return Ok(Some(kind));
        }
        let Some(file) = self.open(path, OFlags::PATH)? else {
            return Ok(None);
        };
        let status = rustix::fs::fstat(&file).map_err(|error| InspectError::Read {
            path: path.to_owned(),
            source: error.into(),
        })?;
        Ok(Some(match FileType::from_raw_mode(status.st_mode) {
            FileType::Directory => Kind::Directory,
            _ => Kind::File,
        }))
    }

    fn place(&self, target: &Path) -> Result<Place, InspectError> {
        if let Some(kind) = self.kind(target)? {
            return Ok(Place::There(kind));
        }
        for ancestor in target.ancestors().skip(1) {
            let Some(directory) = self.open(ancestor, OFlags::PATH)? else {
                continue;
            };
            let status = rustix::fs::fstat(&directory).map_err(|error| InspectError::Read {
                path: ancestor.to_owned(),
                source: error.into(),
            })?;
            if FileType::from_raw_mode(status.st_mode) != FileType::Directory {
                return Ok(Place::Blocked);
            }
            let is_root = ancestor == Path::new("/");
            let mode = status.st_mode & 0o7777;
            let empty = (!is_root && is_empty(&directory)).then_some(mode);
            let parent = if ancestor == Path::new("/") {
                ancestor.to_owned()
            } else {
                self.path_inside(&directory, ancestor)
            };
            return Ok(Place::Missing {
                empty,
                parent,
                rest: target
                    .strip_prefix(ancestor)
                    .expect("an ancestor is a prefix")
                    .to_owned(),
            });
        }
        Ok(Place::Blocked)
    }

    /// Where an open directory really is, links resolved; as it was asked for if `/proc` is not
    /// there to tell.
    fn path_inside(&self, directory: &OwnedFd, asked: &Path) -> PathBuf {
        let real = |fd: BorrowedFd<'_>| descriptor_path(fd).ok();
        match (real(self.root.as_fd()), real(directory.as_fd())) {
            (Some(root), Some(real)) => match real.strip_prefix(&root) {
                Ok(below) => Path::new("/").join(below),
                Err(_) => asked.to_owned(),
            },
            _ => asked.to_owned(),
        }
    }

    /// The content of a file, or `None` where there is none that can be read.
    fn read(&self, path: impl AsRef<Path>) -> Result<Option<Vec<u8>>, InspectError> {
        let path = path.as_ref();
        // A fifo in the place of a file must not hold the start for ever.
        let Some(file) = self.open(path, OFlags::RDONLY | OFlags::NONBLOCK)? else {
            return Ok(None);
        };
        read_regular(file).map_err(|source| InspectError::Read {
            path: path.to_owned(),
            source,
        })
    }

    fn scripts(&self, folder: &str) -> Result<Vec<(OsString, Vec<u8>)>, InspectError> {
        let wrong = |error: rustix::io::Errno| InspectError::Read {
            path: folder.into(),
            source: error.into(),
        };
        let Some(directory) = self.open(Path::new(folder), OFlags::RDONLY | OFlags::DIRECTORY)?
        else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(directory).map_err(wrong)? {
            let name = entry.map_err(wrong)?.file_name().to_bytes().to_vec();
            if name.ends_with(b".sh") && !name.starts_with(b".") {
                names.push(name);
            }
        }
        names.sort();
        let mut scripts = Vec::with_capacity(names.len());
        for name in names {
            let name = std::ffi::OsStr::from_bytes(&name).to_owned();
            if let Some(text) = self.read(Path::new(folder).join(&name))? {
                scripts.push((name, text));
            }
        }
        Ok(scripts)
    }
}

/// Whether a directory is seen to hold nothing.
fn is_empty(directory: &OwnedFd) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(directory, ".", flags, Mode::empty())
        .and_then(rustix::fs::Dir::new)
        .is_ok_and(|mut entries| {
            entries.all(|entry| {
                entry.is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b".."))
            })
        })
}

fn read_regular(file: OwnedFd) -> io::Result<Option<Vec<u8>>> {
    use std::io::Read as _;
    let status = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    let mut text = Vec::with_capacity(usize::try_from(status.st_size).unwrap_or(0).min(1 << 20));
    std::fs::File::from(file)
        .take(LARGEST_FILE_BYTES)
        .read_to_end(&mut text)?;
    Ok(Some(text))
}

/// Opens `path` as the container will see it: links of the image never lead out of `root`.
pub(crate) fn open_inside(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    // The kernel asks to try again when a rename elsewhere made it lose its way (openat2(2)).
    for _ in 0..64 {
        let opened = rustix::fs::openat2(
            root,
            path,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::IN_ROOT,
        );
        match opened {
            Err(rustix::io::Errno::AGAIN) => {}
            opened => return Ok(opened?),
        }
    }
    Err(rustix::io::Errno::AGAIN.into())
}

/// The path of an open file, as the kernel knows it.
fn descriptor_path(fd: BorrowedFd<'_>) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

fn read_host(path: &str) -> Vec<u8> {
    // Names of groups are a nicety: their numbers do without.
    std::fs::read(path).unwrap_or_default()
}

/// Ids that this user may map besides its own, if also the two helpers are installed.
fn id_ranges(session: &Session) -> Option<IdRanges> {
    let helper = |name: &str| {
        ["/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin"]
            .iter()
            .map(|folder| Path::new(folder).join(name))
            .find(|path| path.exists())
    };
    let range = |file: &str| first_range(&std::fs::read(file).ok()?, session);
    Some(IdRanges {
        uids: range("/etc/subuid")?,
        gids: range("/etc/subgid")?,
        newuidmap: helper("newuidmap")?,
        newgidmap: helper("newgidmap")?,
    })
}

/// The largest range of the user's in the text of subuid(5).
fn first_range(text: &[u8], session: &Session) -> Option<(u32, u32)> {
    let uid = session.uid.to_string();
    text.split(|&byte| byte == b'\n')
        .filter_map(|line| {
            let mut fields = line.split(|&byte| byte == b':');
            let name = fields.next()?;
            if name != session.user.as_bytes() && name != uid.as_bytes() {
                return None;
            }
            let mut number = || {
                std::str::from_utf8(fields.next()?)
                    .ok()?
                    .trim()
                    .parse()
                    .ok()
            };
            Some((number()?, number()?))
        })
        .max_by_key(|&(_, count): &(u32, u32)| count)
}

/// What `spec` writes in place has to be told apart when bind points are missing.
pub(crate) fn writes_in_place(spec: &RunSpec) -> bool {
    spec.writable == Writable::InPlace
}
