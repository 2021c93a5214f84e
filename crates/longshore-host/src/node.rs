//! What was found on a node, live or recorded, before anything is concluded from it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use longshore_sys::probe;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{errno, fabric, gpu, loader, mpi, places, scheduler};

/// Files longer than this are cut: `/proc/cpuinfo` of the largest nodes stays below it.
const LONGEST_FILE_BYTES: u64 = 4 << 20;

/// How long all schedulers' clients together may take to say their versions.
const TOOL_PATIENCE: Duration = Duration::from_millis(150);

/// The file of a recorded node that holds [`Observed`].
pub(crate) const OBSERVED_FILE: &str = "trials.json";

/// The file of a recorded node that holds its environment, one `NAME=value` a line.
pub(crate) const ENV_FILE: &str = "env";

/// What only system calls can tell of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Observed {
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Login name.
    pub user: String,
    /// Home directory.
    pub home: PathBuf,
    /// Current directory.
    pub cwd: PathBuf,
    /// The running `longshore`, as an AppArmor profile must name it.
    pub program: PathBuf,
    /// Machine name as uname(2) gives it.
    pub machine: String,
    /// Version of the C library.
    pub glibc: Option<String>,
    /// Processors that this process may use; empty where the kernel did not say.
    pub affinity: Vec<usize>,
    /// Whether the root directory is that of process 1; `None` where this user may not look.
    pub root_is_init_root: Option<bool>,
    /// Whether the own cgroup's folder can be written.
    pub cgroup_writable: Option<bool>,
    /// Device nodes of interest that exist.
    pub devices: BTreeMap<PathBuf, Device>,
    /// Programs of interest found on PATH, with the real file behind each.
    pub programs: BTreeMap<String, ProgramPath>,
    /// Libraries of interest in the loader's cache: soname and path.
    pub libraries: Vec<(String, PathBuf)>,
    /// What statfs(2) says of the cache, temp and home.
    pub statfs: BTreeMap<PathBuf, Statfs>,
    /// How each step of `longshore_sys::probe` ended: `ok`, or the name of the error number.
    pub trials: BTreeMap<String, String>,
}

/// A device node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Permission bits in octal, `0666`.
    pub mode: String,
    /// Owning user.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
}

/// Where a program was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramPath {
    /// As PATH leads to it.
    pub path: PathBuf,
    /// With every symbolic link followed.
    pub real: PathBuf,
}

/// The part of statfs(2) that is of use here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statfs {
    /// The folder that was asked: the nearest one that exists.
    pub asked: PathBuf,
    /// Magic number of the file system, in hexadecimal as statfs(2) lists them.
    pub magic: String,
    /// Bytes that this user may still fill.
    pub free_bytes: u64,
    /// Size of the file system.
    pub total_bytes: u64,
    /// Inodes that may still be made; `None` where the file system does not count them.
    pub free_inodes: Option<u64>,
    /// Whether this user may write there.
    pub writable: bool,
}

/// A recorded node could not be read.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// A file of the recording is missing.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// `trials.json` is not what a recording holds.
    #[error("{} is not a recorded node", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Where it differs.
        #[source]
        source: serde_json::Error,
    },
}

/// What the derivation asked of a node, kept so that just this can be recorded.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) texts: BTreeMap<PathBuf, String>,
    pub(crate) names: BTreeMap<PathBuf, BTreeSet<String>>,
    pub(crate) env: BTreeMap<String, String>,
}

/// A node: files below a root, an environment, and [`Observed`].
#[derive(Debug)]
pub struct Node {
    root: PathBuf,
    live: bool,
    env: Vec<(String, String)>,
    /// What only system calls can tell.
    pub observed: Observed,
    pub(crate) asked: RefCell<Asked>,
    /// What is left of [`TOOL_PATIENCE`].
    patience: Cell<Duration>,
}

impl Node {
    /// Looks at this machine.
    ///
    /// Forks once to try what the kernel allows, and starts the version command of each scheduler
    /// that it finds.
    pub fn live() -> Node {
        let env = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let mut node = Node::new(PathBuf::from("/"), true, env, Observed::default());
        // The trials come first: afterwards threads may exist, and the child is then a copy of one.
        node.observed.trials = trials();
        node.observe();
        node
    }

    /// Reads a node that was recorded in `folder`.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] where `trials.json` is missing or malformed; any other file may be missing.
    pub fn recorded(folder: &Path) -> Result<Node, ProbeError> {
        let path = folder.join(OBSERVED_FILE);
        let text = fs::read_to_string(&path).map_err(|source| ProbeError::Read {
            path: path.clone(),
            source,
        })?;
        let observed =
            serde_json::from_str(&text).map_err(|source| ProbeError::Format { path, source })?;
        let env = fs::read_to_string(folder.join(ENV_FILE)).unwrap_or_default();
        let env = env
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Ok(Node::new(folder.to_owned(), false, env, observed))
    }

    /// This machine, with nothing observed but what the caller knows.
    pub(crate) fn unobserved(observed: Observed) -> Node {
        Node::new(PathBuf::from("/"), true, Vec::new(), observed)
    }

    fn new(root: PathBuf, live: bool, env: Vec<(String, String)>, observed: Observed) -> Node {
        Node {
            root,
            live,
            env,
            observed,
            asked: RefCell::default(),
            patience: Cell::new(TOOL_PATIENCE),
        }
    }

    /// The path below the root that stands for an absolute one.
    fn place(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The text of a file, without trailing blanks; bytes that are not UTF-8 are replaced.
    pub(crate) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let path = path.as_ref();
        let text = read_text(&self.place(path))?;
        let mut asked = self.asked.borrow_mut();
        asked.texts.insert(path.to_owned(), text.clone());
        Some(text.trim_end().to_owned())
    }

    /// A file that holds one integer.
    pub(crate) fn number<N: std::str::FromStr>(&self, path: impl AsRef<Path>) -> Option<N> {
        self.text(path)?.trim().parse().ok()
    }

    /// Whether a file or folder is there.
    pub(crate) fn exists(&self, path: impl AsRef<Path>) -> bool {
        let path = path.as_ref();
        let there = self.place(path).symlink_metadata().is_ok();
        if there && let (Some(folder), Some(name)) = (path.parent(), path.file_name()) {
            let name = name.to_string_lossy().into_owned();
            let mut asked = self.asked.borrow_mut();
            asked
                .names
                .entry(folder.to_owned())
                .or_default()
                .insert(name);
        }
        there
    }

    /// The names in a folder for which `wanted` says yes, in order.
    pub(crate) fn names(
        &self,
        folder: impl AsRef<Path>,
        wanted: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let folder = folder.as_ref();
        let mut names: Vec<String> = fs::read_dir(self.place(folder))
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| !name.starts_with('.') && wanted(name))
            .collect();
        names.sort();
        if !names.is_empty() {
            let mut asked = self.asked.borrow_mut();
            let known = asked.names.entry(folder.to_owned()).or_default();
            known.extend(names.iter().cloned());
        }
        names
    }

    /// An environment variable, if it is set and not empty.
    pub(crate) fn var(&self, name: &str) -> Option<&str> {
        let (_, value) = self.env.iter().find(|(known, _)| known == name)?;
        self.note_var(name, value);
        Some(value.as_str()).filter(|value| !value.is_empty())
    }

    /// All environment variables that `wanted` names.
    pub(crate) fn vars(&self, wanted: impl Fn(&str) -> bool) -> Vec<(&str, &str)> {
        let mut vars = Vec::new();
        for (name, value) in self.env.iter().filter(|(name, _)| wanted(name)) {
            self.note_var(name, value);
            vars.push((name.as_str(), value.as_str()));
        }
        vars
    }

    fn note_var(&self, name: &str, value: &str) {
        let mut asked = self.asked.borrow_mut();
        asked.env.insert(name.to_owned(), value.to_owned());
    }

    /// What a program says on stdout; recorded under `tools/`, its words joined by `_`.
    pub(crate) fn tool(&self, program: &str, arguments: &[&str]) -> Option<String> {
        let found = self.observed.programs.get(program)?;
        let name = std::iter::once(program)
            .chain(arguments.iter().copied())
            .collect::<Vec<_>>()
            .join("_");
        let place = Path::new("/tools").join(name);
        if !self.live {
            return self.text(place);
        }
        let start = Instant::now();
        let text = run_tool(&found.path, arguments, self.patience.get());
        let left = self.patience.get().saturating_sub(start.elapsed());
        self.patience.set(left);
        let text = text?;
        let mut asked = self.asked.borrow_mut();
        asked.texts.insert(place, text.clone());
        Some(text)
    }

    /// Whether a trial went well; `Err` holds the error number, `None` says that it was not made.
    pub(crate) fn trial(&self, step: probe::Step) -> Option<Result<(), i32>> {
        match self.observed.trials.get(step.name())?.as_str() {
            "ok" => Some(Ok(())),
            name => errno::number(name).map(Err),
        }
    }

    /// Fills `observed` from this machine.
    fn observe(&mut self) {
        let mut observed = std::mem::take(&mut self.observed);
        observed.uid = rustix::process::geteuid().as_raw();
        observed.gid = rustix::process::getegid().as_raw();
        let account = fs::read("/etc/passwd")
            .ok()
            .and_then(|passwd| crate::account::account_of(observed.uid, &passwd));
        observed.user = account
            .as_ref()
            .map(|account| account.name.to_string_lossy().into_owned())
            .or_else(|| {
                self.var("USER")
                    .or_else(|| self.var("LOGNAME"))
                    .map(str::to_owned)
            })
            .unwrap_or_else(|| observed.uid.to_string());
        observed.home = self
            .var("HOME")
            .map(PathBuf::from)
            .filter(|home| home.is_absolute())
            .or_else(|| account.map(|account| account.home))
            .unwrap_or_else(|| PathBuf::from("/"));
        observed.cwd = std::env::current_dir().unwrap_or_default();
        observed.program = std::env::current_exe().unwrap_or_default();
        observed.machine = rustix::system::uname()
            .machine()
            .to_string_lossy()
            .into_owned();
        observed.glibc = probe::libc_version();
        observed.affinity = affinity();
        observed.root_is_init_root = root_is_init_root();
        observed.devices = devices();
        observed.programs = programs(self.var("PATH").unwrap_or_default());
        observed.libraries = fs::read("/etc/ld.so.cache")
            .map(|cache| loader::entries(&cache))
            .unwrap_or_default()
            .into_iter()
            .filter(|(soname, _)| {
                mpi::is_mpi_library(soname)
                    || fabric::is_fabric_library(soname)
                    || gpu::is_driver_library(soname)
            })
            .collect();
        observed.libraries.sort();
        observed.libraries.dedup();
        self.observed = observed;
        self.observed.statfs = places::statfs_of(&places::wanted(self));
        self.observed.cgroup_writable = crate::cgroup::own_folder(self)
            .map(|folder| rustix::fs::access(&folder, rustix::fs::Access::WRITE_OK).is_ok());
        // What was asked to observe is no part of what is derived.
        self.asked.take();
    }
}

fn trials() -> BTreeMap<String, String> {
    let outcomes = probe::try_steps().unwrap_or_default();
    outcomes
        .into_iter()
        .map(|outcome| {
            let word = match outcome.result {
                Ok(()) => "ok".to_owned(),
                Err(number) => errno::name(number),
            };
            (outcome.step.name().to_owned(), word)
        })
        .collect()
}

fn read_text(path: &Path) -> Option<String> {
    // Opening a FIFO or a device would block or have effects; /proc and /sys have regular files.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(LONGEST_FILE_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn affinity() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else {
        return Vec::new();
    };
    (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect()
}

fn root_is_init_root() -> Option<bool> {
    let own = fs::metadata("/").ok()?;
    let init = fs::metadata("/proc/1/root/").ok()?;
    Some((own.dev(), own.ino()) == (init.dev(), init.ino()))
}

fn devices() -> BTreeMap<PathBuf, Device> {
    let mut devices = BTreeMap::new();
    let single = [
        "fuse",
        "loop-control",
        "kfd",
        "nvidiactl",
        "nvidia-uvm",
        "xpmem",
        "knem",
        "gdrdrv",
        "ss0",
        "kvm",
    ];
    let mut look = |path: PathBuf| {
        let Ok(found) = fs::metadata(&path) else {
            return;
        };
        if found.file_type().is_char_device() || found.file_type().is_block_device() {
            let device = Device {
                mode: format!("{:04o}", found.permissions().mode() & 0o7777),
                uid: found.uid(),
                gid: found.gid(),
            };
            devices.insert(path, device);
        }
    };
    for name in single {
        look(Path::new("/dev").join(name));
    }
    let numbered = |name: &str| {
        ["nvidia", "cxi", "hfi1_"].iter().any(|family| {
            name.strip_prefix(family)
                .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
        })
    };
    let mut look_below = |folder: &str, wanted: &dyn Fn(&str) -> bool| {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(wanted) {
                look(entry.path());
            }
        }
    };
    look_below("/dev", &numbered);
    look_below("/dev/infiniband", &|_| true);
    look_below("/dev/dri", &|name| name.starts_with("renderD"));
    devices
}

fn programs(path: &str) -> BTreeMap<String, ProgramPath> {
    let mut programs = BTreeMap::new();
    let names = ["newuidmap", "newgidmap", "fusermount3", "nvidia-ctk"]
        .into_iter()
        .chain(mpi::PROGRAMS)
        .chain(scheduler::programs());
    for name in names {
        let found = std::env::split_paths(path)
            .filter(|folder| folder.is_absolute())
            .map(|folder| folder.join(name))
            .find(|file| {
                rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file()
            });
        if let Some(path) = found {
            let real = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
            programs.insert(name.to_owned(), ProgramPath { path, real });
        }
    }
    programs
}

/// Runs a program for its version, but not for long: a client may wait for a server that is away.
fn run_tool(program: &Path, arguments: &[&str], patience: Duration) -> Option<String> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let deadline = Instant::now() + patience;
    let ended = loop {
        match child.try_wait() {
            Ok(Some(_)) => break true,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
            _ => break false,
        }
    };
    if !ended {
        let _ = child.kill();
        let _ = child.wait();
        return None;
    }
    let mut said = Vec::new();
    // A version is a line; a pipe that a grandchild keeps open must not be waited for.
    let mut out = child.stdout.take()?;
    let _ = rustix::fs::fcntl_setfl(&out, rustix::fs::OFlags::NONBLOCK);
    let _ = out.by_ref().take(4096).read_to_end(&mut said);
    let text = String::from_utf8_lossy(&said).trim().to_owned();
    (!text.is_empty()).then_some(text)
}
