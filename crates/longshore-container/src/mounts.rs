//! Which mounts a container wants, in which order, and why; before the image is looked at.

use std::path::{Path, PathBuf};

use longshore_host::Session;
use serde::Serialize;

use crate::plan::BindPoint;
use crate::spec::{Home, Isolate, MountRequest, Omit, Pids, RunSpec};

/// What is mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Source {
    /// A directory or file of the host, with everything that is mounted below it.
    Bind {
        /// On the host.
        #[serde(serialize_with = "crate::lossy::path")]
        path: PathBuf,
    },
    /// An empty file system in memory.
    Tmpfs {
        /// Permissions of its root.
        mode: u32,
        /// Its limit, else half of the memory.
        size_bytes: Option<u64>,
    },
    /// The processes of the container's own namespace.
    Proc,
    /// Terminals of the container's own.
    Devpts,
    /// POSIX message queues of the container's own.
    Mqueue,
    /// A file that Longshore writes.
    Generated {
        /// What is in it.
        #[serde(skip)]
        content: Vec<u8>,
    },
    /// An empty directory of the container's own file system, in which bind points are made; it is
    /// sealed when they are.
    BindPoints {
        /// Its permissions.
        mode: u32,
    },
    /// A directory of the image, and bind points in it that the image does not have.
    Skeleton {
        /// Inside, below the target.
        points: Vec<BindPoint>,
    },
    /// No mount: a symbolic link in a temporary file system.
    Link {
        /// Where it points.
        #[serde(serialize_with = "crate::lossy::path")]
        to: PathBuf,
    },
    /// An empty directory of the host that is made when it is not there.
    HostDir {
        /// On the host.
        #[serde(serialize_with = "crate::lossy::path")]
        path: PathBuf,
        /// Permissions it is made with.
        mode: u32,
    },
}

/// What happens when a mount is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Necessity {
    /// The user asked for it: the container does not start.
    Asked,
    /// A default: a notice tells, and the container starts without.
    Default,
    /// A default that many hosts and images do without: nothing is said unless asked.
    Nicety,
}

/// What may not be done through a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Nothing can be written.
    pub read_only: bool,
    /// Set-user-ID bits have no effect.
    pub no_suid: bool,
    /// Device nodes cannot be opened.
    pub no_dev: bool,
}

impl Limits {
    const DATA: Limits = Limits {
        read_only: false,
        no_suid: true,
        no_dev: true,
    };
    const DEVICES: Limits = Limits {
        read_only: false,
        no_suid: true,
        no_dev: false,
    };
}

/// A mount that has not yet found its place in the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) source: Source,
    pub(crate) target: PathBuf,
    pub(crate) limits: Limits,
    pub(crate) reason: &'static str,
    pub(crate) necessity: Necessity,
}

impl Wanted {
    /// The place on the host that has to exist.
    pub(crate) fn host_path(&self) -> Option<&Path> {
        match &self.source {
            Source::Bind { path } => Some(path),
            _ => None,
        }
    }
}

/// Files of the host that are bound by default.
const DEFAULT_FILES: [&str; 2] = ["/etc/localtime", "/etc/hosts"];

/// Places that the current directory is never mounted over: they hold the image itself.
const NOT_OVER: [&str; 12] = [
    "/", "/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/mnt", "/opt", "/sbin", "/usr",
    "/var",
];

/// File systems of the kernel; a current directory below them is there already.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];

/// The home directory inside: where `HOME` points.
pub(crate) fn home_inside(spec: &RunSpec, session: &Session) -> PathBuf {
    match &spec.home {
        Home::At { target, .. } => target.clone(),
        Home::Own | Home::None if appears_as_root(spec, session) => PathBuf::from("/root"),
        Home::Own | Home::None => session.home.clone(),
    }
}

/// Whether the program appears as root although its caller is somebody else.
pub(crate) fn appears_as_root(spec: &RunSpec, session: &Session) -> bool {
    spec.identity.fakeroot && session.uid != 0
}

/// All mounts, in the order in which they are made: a later one may lie on an earlier one.
pub(crate) fn wanted(spec: &RunSpec, session: &Session) -> Vec<Wanted> {
    let mut list = List::default();
    kernel_file_systems(spec, &mut list);
    account_files(spec, &mut list);
    host_files(spec, &mut list);
    temporary(spec, &mut list);
    home(spec, session, &mut list);
    for place in &spec.scratch {
        let source = match &spec.workdir {
            Some(workdir) => Source::HostDir {
                path: workdir
                    .join("scratch")
                    .join(place.strip_prefix("/").unwrap_or(place)),
                mode: 0o700,
            },
            None => Source::Tmpfs {
                mode: 0o755,
                size_bytes: spec.memory_bytes,
            },
        };
        list.add(source, place, Limits::DATA, "--scratch", Necessity::Asked);
    }
    for request in &spec.mounts {
        match request {
            MountRequest::Bind {
                source,
                target,
                read_only,
            } => list.add(
                Source::Bind {
                    path: source.clone(),
                },
                target,
                Limits {
                    read_only: *read_only,
                    ..Limits::DATA
                },
                "bind",
                Necessity::Asked,
            ),
            MountRequest::Tmpfs { target, size_bytes } => list.add(
                Source::Tmpfs {
                    mode: 0o755,
                    size_bytes: size_bytes.or(spec.memory_bytes),
                },
                target,
                Limits::DATA,
                "--mount",
                Necessity::Asked,
            ),
        }
    }
    current_directory(spec, session, &mut list);
    list.0
}

#[derive(Default)]
struct List(Vec<Wanted>);

impl List {
    fn add(
        &mut self,
        source: Source,
        target: impl AsRef<Path>,
        limits: Limits,
        reason: &'static str,
        necessity: Necessity,
    ) {
        self.0.push(Wanted {
            source,
            target: target.as_ref().to_owned(),
            limits,
            reason,
            necessity,
        });
    }

    fn bind(&mut self, path: &str, limits: Limits, reason: &'static str, necessity: Necessity) {
        self.add(
            Source::Bind { path: path.into() },
            path,
            limits,
            reason,
            necessity,
        );
    }
}

fn omits(spec: &RunSpec, what: &Omit) -> bool {
    spec.no_mount.contains(what)
}

fn kernel_file_systems(spec: &RunSpec, list: &mut List) {
    let own_pids = spec.isolate.pids != Pids::Shared;
    if !omits(spec, &Omit::Proc) {
        if own_pids {
            list.add(
                Source::Proc,
                "/proc",
                Limits::DATA,
                "processes",
                Necessity::Asked,
            );
        } else {
            list.bind("/proc", Limits::DATA, "processes", Necessity::Default);
        }
    }
    if !omits(spec, &Omit::Sys) {
        list.bind(
            "/sys",
            Limits::DATA,
            "kernel and devices",
            Necessity::Default,
        );
    }
    if omits(spec, &Omit::Dev) {
        return;
    }
    if spec.contain {
        minimal_dev(spec, list);
        return;
    }
    list.bind("/dev", Limits::DEVICES, "devices", Necessity::Default);
    if spec.isolate.ipc {
        list.add(
            Source::Mqueue,
            "/dev/mqueue",
            Limits::DATA,
            "--ipc",
            Necessity::Nicety,
        );
        let shm = Source::Tmpfs {
            mode: 0o1777,
            size_bytes: spec.memory_bytes,
        };
        list.add(shm, "/dev/shm", Limits::DATA, "--ipc", Necessity::Nicety);
    }
}

fn minimal_dev(spec: &RunSpec, list: &mut List) {
    let Isolate { ipc, .. } = spec.isolate;
    let why = "--contain";
    let dev = Source::Tmpfs {
        mode: 0o755,
        size_bytes: spec.memory_bytes,
    };
    list.add(dev, "/dev", Limits::DEVICES, why, Necessity::Asked);
    for node in ["null", "zero", "full", "random", "urandom", "tty"] {
        let path = Path::new("/dev").join(node);
        let source = Source::Bind { path: path.clone() };
        list.add(source, path, Limits::DEVICES, why, Necessity::Default);
    }
    if !omits(spec, &Omit::Devpts) {
        list.add(
            Source::Devpts,
            "/dev/pts",
            Limits::DEVICES,
            why,
            Necessity::Default,
        );
        let link = Source::Link {
            to: "pts/ptmx".into(),
        };
        list.add(
            link,
            "/dev/ptmx",
            Limits::default(),
            why,
            Necessity::Default,
        );
    }
    let shm = Source::Tmpfs {
        mode: 0o1777,
        size_bytes: spec.memory_bytes,
    };
    list.add(shm, "/dev/shm", Limits::DATA, why, Necessity::Default);
    let queues = if ipc {
        Source::Mqueue
    } else {
        Source::Bind {
            path: "/dev/mqueue".into(),
        }
    };
    list.add(queues, "/dev/mqueue", Limits::DATA, why, Necessity::Nicety);
    for (name, to) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        let link = Source::Link { to: to.into() };
        list.add(
            link,
            Path::new("/dev").join(name),
            Limits::default(),
            why,
            Necessity::Default,
        );
    }
}

/// Their content follows in the plan, when the image's own files are known.
fn account_files(spec: &RunSpec, list: &mut List) {
    let generated = || Source::Generated {
        content: Vec::new(),
    };
    list.add(
        generated(),
        "/etc/passwd",
        Limits::DATA,
        "your account",
        Necessity::Default,
    );
    list.add(
        generated(),
        "/etc/group",
        Limits::DATA,
        "your groups",
        Necessity::Default,
    );
    let resolver = "/etc/resolv.conf";
    if spec.dns.is_empty() {
        list.bind(resolver, Limits::DATA, "name servers", Necessity::Nicety);
    } else {
        let content = spec
            .dns
            .iter()
            .map(|server| format!("nameserver {server}\n"))
            .collect::<String>()
            .into_bytes();
        let source = Source::Generated { content };
        list.add(source, resolver, Limits::DATA, "--dns", Necessity::Asked);
    }
}

fn host_files(spec: &RunSpec, list: &mut List) {
    if omits(spec, &Omit::BindPaths) {
        return;
    }
    for file in DEFAULT_FILES {
        if !omits(spec, &Omit::Path(file.into())) {
            list.bind(file, Limits::DATA, "as on the host", Necessity::Nicety);
        }
    }
}

fn temporary(spec: &RunSpec, list: &mut List) {
    if omits(spec, &Omit::Tmp) {
        return;
    }
    for (place, name) in [("/tmp", "tmp"), ("/var/tmp", "var_tmp")] {
        match (spec.contain, &spec.workdir) {
            (false, _) => list.bind(place, Limits::DATA, "temporary files", Necessity::Default),
            (true, Some(workdir)) => {
                let source = Source::HostDir {
                    path: workdir.join(name),
                    mode: 0o1777,
                };
                list.add(source, place, Limits::DATA, "--workdir", Necessity::Asked);
            }
            (true, None) => {
                let source = Source::Tmpfs {
                    mode: 0o1777,
                    size_bytes: spec.memory_bytes,
                };
                list.add(source, place, Limits::DATA, "--contain", Necessity::Default);
            }
        }
    }
}

fn home(spec: &RunSpec, session: &Session, list: &mut List) {
    if omits(spec, &Omit::Home) {
        return;
    }
    let inside = home_inside(spec, session);
    // A home of `/` is what accounts of daemons have; it would hide the image.
    if inside == Path::new("/") {
        return;
    }
    match &spec.home {
        Home::None => {}
        Home::At { source, target } => list.add(
            Source::Bind {
                path: source.clone(),
            },
            target,
            Limits::DATA,
            "--home",
            Necessity::Asked,
        ),
        Home::Own if spec.contain => {
            let source = match &spec.workdir {
                Some(workdir) => Source::HostDir {
                    path: workdir.join("home"),
                    mode: 0o700,
                },
                None => Source::Tmpfs {
                    mode: 0o700,
                    size_bytes: spec.memory_bytes,
                },
            };
            list.add(
                source,
                inside,
                Limits::DATA,
                "--contain",
                Necessity::Default,
            );
        }
        Home::Own => list.add(
            Source::Bind {
                path: session.home.clone(),
            },
            inside,
            Limits::DATA,
            "your home",
            Necessity::Default,
        ),
    }
}

fn current_directory(spec: &RunSpec, session: &Session, list: &mut List) {
    let cwd = &session.cwd;
    if spec.contain
        || omits(spec, &Omit::Cwd)
        || NOT_OVER.iter().any(|place| cwd == Path::new(place))
        || KERNEL.iter().any(|place| cwd.starts_with(place))
    {
        return;
    }
    // Already visible through another bind at the same place.
    let visible = list
        .0
        .iter()
        .rev()
        .find(|mount| cwd.starts_with(&mount.target));
    if let Some(Wanted {
        source: Source::Bind { path },
        target,
        ..
    }) = visible
        && path == target
    {
        return;
    }
    // Hidden on purpose: the user put something else there.
    if visible.is_some_and(|mount| mount.necessity == Necessity::Asked) {
        return;
    }
    let source = Source::Bind { path: cwd.clone() };
    list.add(
        source,
        cwd,
        Limits::DATA,
        "current directory",
        Necessity::Default,
    );
}

/// The mount that `target` of the mount at `index` lies on, if it is not the image.
pub(crate) fn cover(list: &[Wanted], index: usize) -> Option<usize> {
    let target = &list[index].target;
    (0..index)
        .rev()
        .find(|&earlier| target.starts_with(&list[earlier].target))
}
