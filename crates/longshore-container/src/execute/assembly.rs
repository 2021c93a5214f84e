//! Puts the container's file systems together and makes them the root.
//!
//! Everything is done through descriptors: a mount is made detached, restricted while nobody can
//! see it, and moved to a place that was looked up inside of the new root, so that no link of the
//! image can lead a mount out of it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use longshore_host::MountWish;
use longshore_sys::mount::{self, Reach, Restrictions};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};

use crate::facts::{Kind, open_inside};
use crate::mounts::{Limits, Necessity, Source};
use crate::plan::{BindPoint, Mount, Root, RunPlan, Upper};

use super::{StartError, Told, failed, failed_with_hint, known};

/// Makes the file systems of the plan and moves this process into them; it ends at `/`.
pub(super) fn assemble(plan: &RunPlan, tell: &mut dyn FnMut(Told<'_>)) -> Result<(), StartError> {
    // Modes are given as they shall be; the caller's mask comes back before the program starts.
    let umask = rustix::process::umask(Mode::empty());
    let assembled = assemble_unmasked(plan, tell);
    rustix::process::umask(umask);
    assembled
}

fn assemble_unmasked(plan: &RunPlan, tell: &mut dyn FnMut(Told<'_>)) -> Result<(), StartError> {
    let image_path = match &plan.root {
        Root::Directory { path, .. } | Root::Temporary { path, .. } | Root::Layers { path, .. } => {
            path
        }
    };
    let image = rustix::fs::open(
        image_path,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(failed(
        "open",
        format!("open the image directory {}", image_path.display()),
    ))?;
    // All that comes from the host is taken before the first mount could hide it.
    let mut ready = Vec::with_capacity(plan.mounts.len());
    for mount in &plan.mounts {
        match detached(mount) {
            Ok(tree) => ready.push((mount, tree)),
            Err(error) => refused(mount, error, tell)?,
        }
    }
    let stage = Stage::new(&image, plan)?;
    let root = stage.root(plan)?;
    let mut unsealed = Vec::new();
    for (mount, tree) in ready {
        match &mount.source {
            Source::BindPoints { mode } => {
                unsealed.push((mount, stage.room(&root, mount, *mode)?));
                continue;
            }
            Source::Skeleton { points } => {
                unsealed.push((mount, stage.skeleton(plan, &root, mount, points, tell)?));
                continue;
            }
            _ => {}
        }
        if let Err(error) = stage.attach(&root, mount, tree) {
            refused(mount, error, tell)?;
        }
    }
    for (mount, tree) in &unsealed {
        let doing = format!("seal {}", mount.target.display());
        restrict(tree, restrictions(mount.limits), Reach::Mount, &doing)?;
    }
    if let Root::Temporary { .. }
    | Root::Layers {
        upper: Upper::None, ..
    } = &plan.root
    {
        restrict(
            &root,
            READ_ONLY_ROOT,
            Reach::Mount,
            "make the root read-only",
        )?;
    }
    change_root(&root)
}

const READ_ONLY_ROOT: Restrictions = Restrictions {
    read_only: true,
    no_suid: true,
    no_dev: true,
};
const WRITABLE_ROOT: Restrictions = Restrictions {
    read_only: false,
    no_suid: true,
    no_dev: true,
};

/// A mount that could not be made ends the start if it was asked for, else it is told.
fn refused(
    mount: &Mount,
    error: StartError,
    tell: &mut dyn FnMut(Told<'_>),
) -> Result<(), StartError> {
    match mount.necessity {
        Necessity::Asked => Err(error),
        Necessity::Default => {
            tell(Told::Notice(&format!(
                "left out: {error}: {}",
                cause(&error)
            )));
            Ok(())
        }
        Necessity::Nicety => Ok(()),
    }
}

/// What the kernel said.
fn cause(error: &StartError) -> String {
    let source = std::error::Error::source(error);
    source.map(ToString::to_string).unwrap_or_default()
}

fn restrictions(limits: Limits) -> Restrictions {
    Restrictions {
        read_only: limits.read_only,
        no_suid: limits.no_suid,
        no_dev: limits.no_dev,
    }
}

fn restrict(
    tree: &OwnedFd,
    restrictions: Restrictions,
    reach: Reach,
    doing: &str,
) -> Result<(), StartError> {
    mount::restrict(tree.as_fd(), restrictions, reach).map_err(failed_with_hint(
        "mount_setattr",
        doing,
        old_kernel,
    ))
}

/// What a refusal of the calls that every start needs means.
fn old_kernel(error: &io::Error) -> Option<String> {
    mount_hint(MountWish::Bind)(error)
}

/// What a refused mount means on the systems that are known to refuse.
fn mount_hint(wish: MountWish) -> impl Fn(&io::Error) -> Option<String> {
    move |error| {
        let number = error.raw_os_error()?;
        known(&longshore_host::explain_mount_refusal(wish, number)).or_else(|| {
            (number == Errno::NOSYS.raw_os_error())
                .then(|| "Longshore needs Linux 5.12 or later here".to_owned())
        })
    }
}

/// What a mount will show, not yet attached anywhere; `None` for files that Longshore writes and
/// for links.
fn detached(planned: &Mount) -> Result<Option<OwnedFd>, StartError> {
    let target = planned.target.display();
    let (tree, reach) = match &planned.source {
        Source::Bind { path } => (bound(path, &planned.target)?, Reach::Tree),
        Source::HostDir { path, mode } => {
            make_host_directory(path, *mode).map_err(failed(
                "mkdir",
                format!("make the directory {}", path.display()),
            ))?;
            (bound(path, &planned.target)?, Reach::Tree)
        }
        Source::Tmpfs { mode, size_bytes } => {
            let mut options = vec![("mode", format!("{mode:o}"))];
            options.extend(size_bytes.map(|bytes| ("size", bytes.to_string())));
            (
                made(
                    "tmpfs",
                    &options,
                    &format!("a temporary file system for {target}"),
                )?,
                Reach::Mount,
            )
        }
        Source::Proc => (
            made("proc", &[], "the container's own /proc")?,
            Reach::Mount,
        ),
        Source::Devpts => {
            let options = [("ptmxmode", "0666".to_owned()), ("mode", "0620".to_owned())];
            (
                made("devpts", &options, "the container's own /dev/pts")?,
                Reach::Mount,
            )
        }
        Source::Mqueue => (
            made("mqueue", &[], "the container's own /dev/mqueue")?,
            Reach::Mount,
        ),
        Source::Generated { .. }
        | Source::Link { .. }
        | Source::BindPoints { .. }
        | Source::Skeleton { .. } => {
            return Ok(None);
        }
    };
    let wanted = restrictions(planned.limits);
    if !wanted.is_empty() {
        restrict(
            &tree,
            wanted,
            reach,
            &format!("restrict the mount at {target}"),
        )?;
    }
    Ok(Some(tree))
}

/// Makes a directory outside unless there is one. One that is there keeps its permissions: where
/// others can write beside it, its name may be their link to a directory of the caller's.
fn make_host_directory(path: &Path, mode: u32) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)?;
    }
    match rustix::fs::mkdir(path, Mode::from_raw_mode(mode)) {
        Err(Errno::EXIST) if path.is_dir() => Ok(()),
        made => Ok(made?),
    }
}

fn bound(path: &Path, target: &Path) -> Result<OwnedFd, StartError> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    rustix::mount::open_tree(CWD, path, flags).map_err(failed_with_hint(
        "open_tree",
        format!("bind {} to {}", path.display(), target.display()),
        old_kernel,
    ))
}

/// A new file system of the kernel's.
fn made(kind: &'static str, options: &[(&str, String)], what: &str) -> Result<OwnedFd, StartError> {
    let doing = || format!("make {what}");
    let hint = mount_hint(match kind {
        "proc" => MountWish::Proc,
        _ => MountWish::Tmpfs,
    });
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)
        .map_err(failed_with_hint("fsopen", doing(), &hint))?;
    for (name, value) in options {
        rustix::mount::fsconfig_set_string(&context, *name, value.as_str()).map_err(failed(
            "fsconfig",
            format!("{} with {name}={value}", doing()),
        ))?;
    }
    rustix::mount::fsconfig_create(&context).map_err(failed_with_hint(
        "fsconfig",
        doing(),
        &hint,
    ))?;
    rustix::mount::fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::empty(),
    )
    .map_err(failed_with_hint("fsmount", doing(), &hint))
}

fn attach_to(tree: &OwnedFd, place: impl AsFd) -> io::Result<()> {
    rustix::mount::move_mount(
        tree,
        "",
        place,
        "",
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH,
    )?;
    Ok(())
}

/// Where the parts are put together: on top of the image directory, which only this process sees
/// covered.
struct Stage<'i> {
    image: &'i OwnedFd,
    /// The image itself as the root, taken before anything of ours lay on it.
    direct: Option<OwnedFd>,
    /// Holds the files that Longshore writes, the bind points and the writable layer.
    own: Option<OwnedFd>,
}

impl Stage<'_> {
    fn new<'i>(image: &'i OwnedFd, plan: &RunPlan) -> Result<Stage<'i>, StartError> {
        let direct =
            match &plan.root {
                Root::Directory { path, read_only } => {
                    let doing = format!("bind the image {}", path.display());
                    let flags = OpenTreeFlags::OPEN_TREE_CLONE
                        | OpenTreeFlags::OPEN_TREE_CLOEXEC
                        | OpenTreeFlags::AT_RECURSIVE
                        | OpenTreeFlags::AT_EMPTY_PATH;
                    let tree = rustix::mount::open_tree(image, "", flags)
                        .map_err(failed_with_hint("open_tree", &doing, old_kernel))?;
                    let limits = if *read_only {
                        READ_ONLY_ROOT
                    } else {
                        WRITABLE_ROOT
                    };
                    restrict(&tree, limits, Reach::Tree, &doing)?;
                    Some(tree)
                }
                Root::Temporary { .. } | Root::Layers { .. } => None,
            };
        let writes = plan.mounts.iter().any(|mount| {
            matches!(
                mount.source,
                Source::Generated { .. } | Source::BindPoints { .. } | Source::Skeleton { .. }
            )
        });
        let own = if writes || matches!(plan.root, Root::Layers { .. }) {
            let mut options = vec![("mode", "0755".to_owned())];
            if let Root::Layers {
                upper: Upper::Tmpfs {
                    size_bytes: Some(bytes),
                },
                ..
            } = &plan.root
            {
                options.push(("size", bytes.to_string()));
            }
            let tree = made(
                "tmpfs",
                &options,
                "a temporary file system for the container's files",
            )?;
            // Binding out of a file system, and laying one over another, needs it to be attached.
            attach_to(&tree, image)
                .map_err(failed("move_mount", "attach a temporary file system"))?;
            Some(tree)
        } else {
            None
        };
        Ok(Stage { image, direct, own })
    }

    fn own(&self) -> &OwnedFd {
        self.own
            .as_ref()
            .expect("made whenever the plan writes files or has layers")
    }

    /// Makes the root file system and attaches it.
    fn root(&self, plan: &RunPlan) -> Result<OwnedFd, StartError> {
        match &plan.root {
            Root::Directory { .. } => {
                let tree = self.direct.as_ref().expect("made for such roots");
                attach_to(tree, self.image).map_err(failed("move_mount", "attach the image"))?;
                tree.try_clone().map_err(failed("dup", "keep a descriptor"))
            }
            Root::Temporary { bind_points, .. } => {
                let root = Self::beside(self.image, Path::new("/"))?;
                attach_to(&root, self.image)
                    .map_err(failed("move_mount", "attach a temporary root"))?;
                // Only what is attached can be filled with mounts.
                Self::fill_beside(&root, self.image, Path::new("/"), bind_points)?;
                Ok(root)
            }
            Root::Layers {
                bind_points,
                read_only,
                upper,
                ..
            } => {
                let doing = "lay an overlay over the image";
                let mut layers = Vec::new();
                for layer in read_only {
                    layers.push(open_layer(&layer.path)?);
                }
                layers.reverse();
                if !bind_points.is_empty() {
                    layers.push(self.bind_point_layer(self.image, Path::new("/"), bind_points)?);
                }
                let tree = self.overlay(plan, self.image, layers, upper, doing)?;
                attach_to(&tree, self.image).map_err(failed("move_mount", doing))?;
                Ok(tree)
            }
        }
    }

    /// Gives a directory of the image bind points beside what it holds.
    fn skeleton(
        &self,
        plan: &RunPlan,
        root: &OwnedFd,
        planned: &Mount,
        points: &[BindPoint],
        tell: &mut dyn FnMut(Told<'_>),
    ) -> Result<OwnedFd, StartError> {
        let at = &planned.target;
        let doing = format!("make bind points in {}", at.display());
        let open = |root: &OwnedFd, flags| {
            open_inside(root.as_fd(), at, flags).map_err(failed("openat2", &doing))
        };
        let image = open(self.image, OFlags::PATH | OFlags::DIRECTORY)?;
        let place = open(root, OFlags::PATH)?;
        let layer = self.bind_point_layer(&image, at, points)?;
        match self.overlay(plan, &image, vec![layer], &Upper::None, &doing) {
            Ok(tree) => {
                attach_to(&tree, &place).map_err(failed("move_mount", &doing))?;
                Ok(tree)
            }
            Err(error) => {
                tell(Told::Detail(&format!(
                    "overlay is refused here ({}), so {} is put together from binds",
                    cause(&error),
                    at.display()
                )));
                let tree = Self::beside(&image, at)?;
                attach_to(&tree, &place).map_err(failed("move_mount", &doing))?;
                Self::fill_beside(&tree, &image, at, points)?;
                Ok(tree)
            }
        }
    }

    /// A detached overlay: the layers, highest first, over a directory of the image.
    fn overlay(
        &self,
        plan: &RunPlan,
        image: &OwnedFd,
        layers: Vec<OwnedFd>,
        upper: &Upper,
        doing: &str,
    ) -> Result<OwnedFd, StartError> {
        let lower = layers
            .iter()
            .chain([image])
            .map(descriptor_path)
            .collect::<Vec<_>>()
            .join(":");
        let context = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)
            .map_err(failed_with_hint("fsopen", doing, overlay_hint))?;
        let set = |name: &str, value: &str| {
            rustix::mount::fsconfig_set_string(&context, name, value)
                .map_err(failed("fsconfig", format!("{doing}: {name}={value}")))
        };
        set("source", "longshore")?;
        set("lowerdir", &lower)?;
        // Descriptors must stay open until the file system is made.
        let upper_directories = self.upper_directories(upper)?;
        if let Some((upper, work)) = &upper_directories {
            set("upperdir", &descriptor_path(upper))?;
            set("workdir", &descriptor_path(work))?;
        }
        if plan.namespaces.user {
            rustix::mount::fsconfig_set_flag(&context, "userxattr").map_err(failed_with_hint(
                "fsconfig",
                format!("{doing}: userxattr"),
                overlay_hint,
            ))?;
        }
        rustix::mount::fsconfig_create(&context).map_err(failed_with_hint(
            "fsconfig",
            doing,
            overlay_hint,
        ))?;
        rustix::mount::fsmount(
            &context,
            FsMountFlags::FSMOUNT_CLOEXEC,
            MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
        )
        .map_err(failed_with_hint("fsmount", doing, overlay_hint))
    }

    /// The directories that take writes, made if they are not there.
    fn upper_directories(&self, upper: &Upper) -> Result<Option<(OwnedFd, OwnedFd)>, StartError> {
        let (base, shown) = match upper {
            Upper::None => return Ok(None),
            Upper::Tmpfs { .. } => (
                self.own()
                    .try_clone()
                    .map_err(failed("dup", "keep a descriptor"))?,
                PathBuf::from("memory"),
            ),
            Upper::Directory { path } => {
                let directory = rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                    .map_err(failed_with_hint("open", format!("open the overlay directory {}", path.display()), |_| {
                        Some("make the directory first; image files as overlays are not supported yet".into())
                    }))?;
                (directory, path.clone())
            }
        };
        let open = |name: &str| {
            let doing = format!("make {name} in the overlay directory {}", shown.display());
            make_directory(base.as_fd(), OsStr::new(name), root_mode(self.image))
                .map_err(failed("mkdirat", &doing))?;
            open_directory(base.as_fd(), name).map_err(failed("openat", &doing))
        };
        Ok(Some((open("upper")?, open("work")?)))
    }

    /// A layer that holds nothing but the bind points of one directory of the image, with the
    /// permissions of what is above them there.
    fn bind_point_layer(
        &self,
        image: &OwnedFd,
        at: &Path,
        bind_points: &[BindPoint],
    ) -> Result<OwnedFd, StartError> {
        let doing = "make the bind points that the image does not have";
        let mut name = OsString::from("points");
        name.push(one_component(at));
        make_directory(self.own().as_fd(), &name, root_mode(image))
            .map_err(failed("mkdirat", doing))?;
        let layer = open_directory(self.own().as_fd(), &name).map_err(failed("openat", doing))?;
        for point in bind_points {
            let path = point.path.strip_prefix(at).unwrap_or(&point.path);
            let mut above: Vec<&Path> = path
                .ancestors()
                .skip(1)
                .filter(|above| !above.as_os_str().is_empty())
                .collect();
            above.reverse();
            let doing = || format!("make the bind point {}", point.path.display());
            for directory in above {
                let mode = directory_mode(image, directory).unwrap_or(0o755);
                make_directory(layer.as_fd(), directory.as_os_str(), mode)
                    .map_err(failed("mkdirat", doing()))?;
            }
            make_point(layer.as_fd(), path.as_os_str(), point.kind)
                .map_err(failed("mkdirat", doing()))?;
        }
        Ok(layer)
    }

    /// An empty directory in memory that can stand for a directory of the image.
    fn beside(image: &OwnedFd, at: &Path) -> Result<OwnedFd, StartError> {
        made(
            "tmpfs",
            &[("mode", format!("{:o}", root_mode(image)))],
            &format!("a temporary {}", at.display()),
        )
    }

    /// Fills it with the bind points, and binds everything of the image beside them.
    fn fill_beside(
        place: &OwnedFd,
        image: &OwnedFd,
        at: &Path,
        bind_points: &[BindPoint],
    ) -> Result<(), StartError> {
        let mut tree = PointTree::default();
        for point in bind_points {
            tree.insert(
                point.path.strip_prefix(at).unwrap_or(&point.path),
                point.kind,
            );
        }
        let source = open_directory(image.as_fd(), ".").map_err(failed(
            "openat",
            format!("read {} of the image", at.display()),
        ))?;
        tree.fill(place, Some(&source), at)
    }

    /// Moves a detached mount to its place.
    fn attach(
        &self,
        root: &OwnedFd,
        planned: &Mount,
        tree: Option<OwnedFd>,
    ) -> Result<(), StartError> {
        let target = &planned.target;
        let doing = || format!("mount {} ({})", target.display(), planned.reason);
        if let Source::Link { to } = &planned.source {
            let (parent, name) = parent_inside(root, target).map_err(failed("openat2", doing()))?;
            return rustix::fs::symlinkat(to, &parent, name).map_err(failed("symlinkat", doing()));
        }
        if let Some(kind) = planned.make {
            make_inside(root, target, kind).map_err(failed("mkdirat", doing()))?;
        }
        let tree = match (tree, &planned.source) {
            (Some(tree), _) => tree,
            (None, Source::Generated { content }) => {
                self.written(target, content, planned.limits)?
            }
            (None, _) => unreachable!("only files of our own come without a tree"),
        };
        let place =
            open_inside(root.as_fd(), target, OFlags::PATH).map_err(failed("openat2", doing()))?;
        attach_to(&tree, &place).map_err(failed("move_mount", doing()))
    }

    /// Mounts an empty directory of our own, in which bind points can be made.
    fn room(&self, root: &OwnedFd, planned: &Mount, mode: u32) -> Result<OwnedFd, StartError> {
        let target = &planned.target;
        let doing = || format!("make room for bind points at {}", target.display());
        let name = one_component(target);
        make_directory(self.own().as_fd(), &name, mode).map_err(failed("mkdirat", doing()))?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = rustix::mount::open_tree(self.own(), &*name, flags)
            .map_err(failed("open_tree", doing()))?;
        let place =
            open_inside(root.as_fd(), target, OFlags::PATH).map_err(failed("openat2", doing()))?;
        attach_to(&tree, &place).map_err(failed("move_mount", doing()))?;
        Ok(tree)
    }

    /// A file of our own, ready to be mounted.
    fn written(
        &self,
        target: &Path,
        content: &[u8],
        limits: Limits,
    ) -> Result<OwnedFd, StartError> {
        use std::io::Write as _;
        let doing = || format!("write {} for the container", target.display());
        let name = one_component(target);
        let name = &*name;
        let file = rustix::fs::openat(
            self.own(),
            name,
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC,
            Mode::from_raw_mode(0o644),
        )
        .map_err(failed("openat", doing()))?;
        std::fs::File::from(file)
            .write_all(content)
            .map_err(failed("write", doing()))?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = rustix::mount::open_tree(self.own(), name, flags)
            .map_err(failed("open_tree", doing()))?;
        restrict(&tree, restrictions(limits), Reach::Mount, &doing())?;
        Ok(tree)
    }
}

fn overlay_hint(error: &io::Error) -> Option<String> {
    match Errno::from_raw_os_error(error.raw_os_error()?) {
        Errno::INVAL | Errno::OPNOTSUPP => Some(
            "the file system of the overlay directory may not be usable for writes (NFS, Lustre and another \
             overlay are not); a directory on a local disk is"
                .into(),
        ),
        _ => mount_hint(MountWish::Overlay)(error),
    }
}

/// Opens what an overlay directory holds: `upper` in it.
fn open_layer(path: &Path) -> Result<OwnedFd, StartError> {
    let doing = format!("open the overlay directory {}", path.display());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path.join("upper"), flags, Mode::empty())
        .or_else(|_| rustix::fs::open(path, flags, Mode::empty()))
        .map_err(failed("open", doing))
}

fn descriptor_path(fd: &OwnedFd) -> String {
    // A path with a comma or a colon in it would need escapes that kernels disagree about.
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// A name that is unique to a path: the whole path as one component.
fn one_component(path: &Path) -> OsString {
    let bytes = path.as_os_str().as_bytes().iter();
    OsString::from_vec(
        bytes
            .map(|&byte| if byte == b'/' { b'%' } else { byte })
            .collect(),
    )
}

fn open_directory(base: BorrowedFd<'_>, name: impl AsRef<OsStr>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(
        base,
        name.as_ref(),
        flags,
        Mode::empty(),
    )?)
}

fn root_mode(image: &OwnedFd) -> u32 {
    rustix::fs::fstat(image).map_or(0o755, |status| status.st_mode & 0o7777)
}

fn directory_mode(image: &OwnedFd, path: &Path) -> Option<u32> {
    let status = rustix::fs::statat(image, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    (FileType::from_raw_mode(status.st_mode) == FileType::Directory)
        .then_some(status.st_mode & 0o7777)
}

/// Makes a directory unless there is one.
fn make_directory(base: BorrowedFd<'_>, path: &OsStr, mode: u32) -> io::Result<()> {
    match rustix::fs::mkdirat(base, path, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn make_point(base: BorrowedFd<'_>, path: &OsStr, kind: Kind) -> io::Result<()> {
    match kind {
        Kind::Directory => make_directory(base, path, 0o755),
        Kind::File => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match rustix::fs::openat(base, path, flags, Mode::from_raw_mode(0o644)) {
                Ok(_) | Err(Errno::EXIST) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }
    }
}

fn parent_inside<'t>(root: &OwnedFd, target: &'t Path) -> io::Result<(OwnedFd, &'t OsStr)> {
    let parent = target.parent().unwrap_or(Path::new("/"));
    let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    Ok((open_inside(root.as_fd(), parent, OFlags::PATH)?, name))
}

/// Makes a mount point, and the directories above it, in a temporary file system of ours.
fn make_inside(root: &OwnedFd, target: &Path, kind: Kind) -> io::Result<()> {
    let parent = target.parent().unwrap_or(Path::new("/"));
    if let Err(error) = open_inside(root.as_fd(), parent, OFlags::PATH) {
        if error.kind() != io::ErrorKind::NotFound || parent == Path::new("/") {
            return Err(error);
        }
        make_inside(root, parent, Kind::Directory)?;
    }
    let (parent, name) = parent_inside(root, target)?;
    make_point(parent.as_fd(), name, kind)
}

/// The bind points of an underlay, as a tree of names.
#[derive(Default)]
struct PointTree {
    below: BTreeMap<OsString, PointTree>,
    kind: Option<Kind>,
}

impl PointTree {
    fn insert(&mut self, path: &Path, kind: Kind) {
        let mut node = self;
        for name in path.components() {
            node = node.below.entry(name.as_os_str().to_owned()).or_default();
        }
        node.kind = Some(kind);
    }

    /// Fills `place` with the entries of `source` and with the bind points.
    fn fill(
        &self,
        place: &OwnedFd,
        source: Option<&OwnedFd>,
        shown: &Path,
    ) -> Result<(), StartError> {
        let doing =
            |name: &OsStr| format!("bind {} into a temporary root", shown.join(name).display());
        if let Some(source) = source {
            let entries = rustix::fs::Dir::read_from(source)
                .map_err(failed("getdents64", doing(OsStr::new(""))))?;
            for entry in entries {
                let entry = entry.map_err(failed("getdents64", doing(OsStr::new(""))))?;
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                if name != "." && name != ".." && !self.below.contains_key(name) {
                    rebind(place, source, name).map_err(failed("open_tree", doing(name)))?;
                }
            }
        }
        for (name, node) in &self.below {
            if node.below.is_empty() {
                let kind = node.kind.unwrap_or(Kind::Directory);
                make_point(place.as_fd(), name, kind).map_err(failed("mkdirat", doing(name)))?;
                continue;
            }
            let inner = source.and_then(|source| {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                rustix::fs::openat(source, name.as_os_str(), flags, Mode::empty()).ok()
            });
            let mode = inner.as_ref().map_or(0o755, root_mode);
            make_directory(place.as_fd(), name, mode).map_err(failed("mkdirat", doing(name)))?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let made = rustix::fs::openat(place, name.as_os_str(), flags, Mode::empty())
                .map_err(failed("openat", doing(name)))?;
            node.fill(&made, inner.as_ref(), &shown.join(name))?;
        }
        Ok(())
    }
}

fn rebind(place: &OwnedFd, source: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let status = rustix::fs::statat(source, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let kind = match FileType::from_raw_mode(status.st_mode) {
        FileType::Symlink => {
            let to = rustix::fs::readlinkat(source, name, Vec::new())?;
            rustix::fs::symlinkat(to, place, name)?;
            return Ok(());
        }
        FileType::Directory => Kind::Directory,
        _ => Kind::File,
    };
    make_point(place.as_fd(), name, kind)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    let tree = rustix::mount::open_tree(source, name, flags)?;
    mount::restrict(tree.as_fd(), READ_ONLY_ROOT, Reach::Tree)?;
    rustix::mount::move_mount(
        &tree,
        "",
        place,
        name,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )?;
    Ok(())
}

/// Makes `root` the root of this process, with nothing of the host's left below it.
fn change_root(root: &OwnedFd) -> Result<(), StartError> {
    rustix::process::fchdir(root).map_err(failed("fchdir", "enter the new root"))?;
    match rustix::process::pivot_root(".", ".") {
        Ok(()) => rustix::mount::unmount(".", UnmountFlags::DETACH)
            .map_err(failed("umount2", "let the old root go"))?,
        // The root of some diskless nodes (rootfs) cannot be exchanged, only covered.
        Err(Errno::INVAL) => {
            rustix::mount::mount_move(".", "/")
                .map_err(failed("mount", "move the new root over the old one"))?;
            rustix::process::chroot(".").map_err(failed("chroot", "change into the new root"))?;
        }
        Err(error) => return Err(failed("pivot_root", "change into the new root")(error)),
    }
    rustix::process::chdir("/").map_err(failed("chdir", "go to the new root"))
}
