//! The folders that matter, and what kind of file system each lies on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{Access, StatVfsMountFlags};
use serde::{Deserialize, Serialize};

use crate::mounts;
use crate::node::{Node, Statfs};
use crate::refusal::{Reason, Refusal, Who, remedy};

/// How long a file system may take to answer; that of a server that is away never does.
const PATIENCE: Duration = Duration::from_millis(120);

/// What a folder is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlaceKind {
    /// Where images are kept.
    Cache,
    /// Where work in progress is kept.
    Temp,
    /// The user's home.
    Home,
}

impl PlaceKind {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            PlaceKind::Cache => "cache",
            PlaceKind::Temp => "temp",
            PlaceKind::Home => "home",
        }
    }
}

/// One of the folders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// What it is for.
    pub kind: PlaceKind,
    /// The folder.
    pub path: PathBuf,
    /// The nearest folder that exists; the rest would be made there.
    pub existing: Option<PathBuf>,
    /// Kind of file system, as `ext4`; `None` if it did not answer.
    pub file_system: Option<String>,
    /// Whether other nodes see the same files.
    pub network: Option<bool>,
    /// Bytes that this user may still fill.
    pub free_bytes: Option<u64>,
    /// Inodes that may still be made, where the file system counts them.
    pub free_inodes: Option<u64>,
    /// Whether this user may write there.
    pub writable: Option<bool>,
    /// Mounted `noexec`: programs cannot be started from it.
    pub noexec: bool,
    /// Mounted `nosuid`.
    pub nosuid: bool,
    /// Mounted `nodev`: device nodes have no effect.
    pub nodev: bool,
    /// Mounted read-only.
    pub read_only: bool,
}

/// An unpacked image of some size needs this much.
const ENOUGH_BYTES: u64 = 2 << 30;
const ENOUGH_INODES: u64 = 50_000;

impl Place {
    /// What stands in the way of using this folder for what it is for.
    pub fn trouble(&self) -> Option<Refusal> {
        let variable = match self.kind {
            PlaceKind::Cache => "LONGSHORE_CACHEDIR",
            PlaceKind::Temp => "LONGSHORE_TMPDIR",
            // A home that cannot be written is common on compute nodes, and in nobody's way.
            PlaceKind::Home => return None,
        };
        let elsewhere = format!("export {variable}=/path/to/another/folder");
        let say = |reason, detail: String, text: &str| {
            Some(Refusal {
                reason,
                detail: format!("{} {detail}", self.path.display()),
                remedy: remedy(Who::User, text, &[&elsewhere]),
            })
        };
        let Some(free_bytes) = self.free_bytes else {
            return say(
                Reason::NoAnswer,
                "does not answer".to_owned(),
                "wait for its server, or use a folder elsewhere",
            );
        };
        if self.read_only || self.writable == Some(false) {
            return say(
                Reason::NotWritable,
                "cannot be written".to_owned(),
                "use a folder that is yours",
            );
        }
        if self.noexec && self.kind == PlaceKind::Cache {
            return say(
                Reason::NoExec,
                "is mounted noexec: programs of unpacked images cannot be started from it"
                    .to_owned(),
                "use a folder on a file system without noexec",
            );
        }
        let inodes = self.free_inodes.unwrap_or(u64::MAX);
        if free_bytes < ENOUGH_BYTES || (inodes < ENOUGH_INODES && inodes > 0) {
            let inodes = self
                .free_inodes
                .map_or(String::new(), |inodes| format!(" and {inodes} inodes"));
            return say(
                Reason::NoSpace,
                format!(
                    "has {} MiB{inodes} free, which few images fit in",
                    free_bytes >> 20
                ),
                "remove what is not needed (`longshore cache clean`), or use a folder elsewhere",
            );
        }
        None
    }
}

/// Magic numbers of statfs(2), with the name and whether it is a network file system.
///
/// GPFS, BeeGFS and the like are not in the kernel; their numbers are those that coreutils lists
/// (`src/stat.c`).
const KINDS: [(u64, &str, bool); 27] = [
    (0xef53, "ext4", false),
    (0x5846_5342, "xfs", false),
    (0x9123_683e, "btrfs", false),
    (0x0102_1994, "tmpfs", false),
    (0x8584_58f6, "ramfs", false),
    (0x794c_7630, "overlay", false),
    (0x2fc1_2fc1, "zfs", false),
    (0x7371_7368, "squashfs", false),
    (0xe0f5_e1e2, "erofs", false),
    (0xf2f5_2010, "f2fs", false),
    (0xca45_1a4e, "bcachefs", false),
    (0x6969, "nfs", true),
    (0x0bd0_0bd0, "lustre", true),
    (0x4750_4653, "gpfs", true),
    (0x1983_0326, "beegfs", true),
    (0x00c3_6400, "ceph", true),
    (0x6573_5546, "fuse", false),
    (0xff53_4d42, "cifs", true),
    (0xfe53_4d42, "smb2", true),
    (0x0102_1997, "9p", true),
    (0x5346_414f, "afs", true),
    (0x6b41_4653, "kafs", true),
    (0x0116_1970, "gfs2", true),
    (0x7461_636f, "ocfs2", true),
    (0xaad7_aaea, "panfs", true),
    (0x4743_4453, "vastnfs", true),
    (0x2011_1967, "orangefs", true),
];

/// The folders to ask about.
pub(crate) fn wanted(node: &Node) -> Vec<(PlaceKind, PathBuf)> {
    let home = node.observed.home.clone();
    // Relative paths are those of the current directory, as everywhere.
    let set = |name: &str| node.var(name).map(|path| node.observed.cwd.join(path));
    // The same order as the image store's.
    let cache = set("LONGSHORE_CACHEDIR").unwrap_or_else(|| {
        [
            "APPTAINER_CACHEDIR",
            "SINGULARITY_CACHEDIR",
            "XDG_CACHE_HOME",
        ]
        .into_iter()
        .find_map(set)
        .unwrap_or_else(|| home.join(".cache"))
        .join("longshore")
    });
    let temp = [
        "LONGSHORE_TMPDIR",
        "APPTAINER_TMPDIR",
        "SINGULARITY_TMPDIR",
        "TMPDIR",
    ]
    .into_iter()
    .find_map(set)
    .unwrap_or_else(|| PathBuf::from("/tmp"));
    vec![
        (PlaceKind::Cache, cache),
        (PlaceKind::Temp, temp),
        (PlaceKind::Home, home),
    ]
}

/// Asks the file systems; one that does not answer in time is left out.
pub(crate) fn statfs_of(places: &[(PlaceKind, PathBuf)]) -> BTreeMap<PathBuf, Statfs> {
    let (sender, receiver) = mpsc::channel();
    for (_, path) in places {
        let (sender, path) = (sender.clone(), path.clone());
        // A thread that hangs in a dead file system is left behind; it ends with the process.
        let spawned = std::thread::Builder::new().spawn(move || {
            let answer = ask(&path);
            let _ = sender.send((path, answer));
        });
        drop(spawned);
    }
    drop(sender);
    let mut answers = BTreeMap::new();
    while let Ok((path, answer)) = receiver.recv_timeout(PATIENCE) {
        if let Some(answer) = answer {
            answers.insert(path, answer);
        }
    }
    answers
}

fn ask(path: &Path) -> Option<Statfs> {
    let asked = path.ancestors().find(|folder| folder.is_dir())?;
    let found = rustix::fs::statfs(asked).ok()?;
    let block_bytes = u64::try_from(found.f_bsize).unwrap_or(0);
    let read_only = rustix::fs::statvfs(asked)
        .is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY));
    Some(Statfs {
        asked: asked.to_owned(),
        // The kernel's number has 32 bits; the field's type differs by architecture.
        magic: format!("{:#x}", found.f_type as u64 & 0xffff_ffff),
        free_bytes: found.f_bavail.saturating_mul(block_bytes),
        total_bytes: found.f_blocks.saturating_mul(block_bytes),
        free_inodes: (found.f_files > 0).then_some(found.f_ffree),
        writable: !read_only && rustix::fs::access(asked, Access::WRITE_OK).is_ok(),
    })
}

pub(crate) fn derive(node: &Node) -> Vec<Place> {
    let mounts = mounts::parse(&node.text("/proc/self/mountinfo").unwrap_or_default());
    wanted(node)
        .into_iter()
        .map(|(kind, path)| {
            let statfs = node.observed.statfs.get(&path);
            let existing = statfs.map(|statfs| statfs.asked.clone());
            let mount = mounts::of_path(&mounts, existing.as_deref().unwrap_or(&path));
            let has = |option: &str| mount.is_some_and(|mount| mount.has(option));
            let magic = statfs.and_then(|statfs| known_kind(&statfs.magic));
            // The mount table knows what the number does not: ext3, nfs4, which FUSE server.
            let by_mount = mount.map(|mount| mount.kind.as_str());
            Place {
                kind,
                file_system: by_mount.or(magic.map(|(name, _)| name)).map(str::to_owned),
                network: match (by_mount.and_then(network_by_name), magic) {
                    (Some(network), _) | (None, Some((_, network))) => Some(network),
                    (None, None) => None,
                },
                free_bytes: statfs.map(|statfs| statfs.free_bytes),
                free_inodes: statfs.and_then(|statfs| statfs.free_inodes),
                writable: statfs.map(|statfs| statfs.writable),
                noexec: has("noexec"),
                nosuid: has("nosuid"),
                nodev: has("nodev"),
                read_only: has("ro"),
                existing,
                path,
            }
        })
        .collect()
}

fn known_kind(magic: &str) -> Option<(&'static str, bool)> {
    let number = u64::from_str_radix(magic.strip_prefix("0x")?, 16).ok()?;
    KINDS
        .into_iter()
        .find(|(known, _, _)| *known == number)
        .map(|(_, name, network)| (name, network))
}

fn network_by_name(kind: &str) -> Option<bool> {
    let network = [
        "nfs", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "9p", "afs", "gfs2", "ocfs2",
        "panfs", "wekafs", "dvs", "pvfs2", "virtiofs",
    ];
    if let Some(server) = kind.strip_prefix("fuse.") {
        let remote = [
            "sshfs",
            "ceph",
            "glusterfs",
            "s3fs",
            "rclone",
            "juicefs",
            "gcsfuse",
            "dfuse",
            "goofys",
            "blobfuse",
            "cvmfs",
        ];
        return Some(remote.iter().any(|name| server.starts_with(name)));
    }
    if kind == "fuse" {
        return None;
    }
    if network.iter().any(|name| kind.starts_with(name)) {
        return Some(true);
    }
    KINDS
        .into_iter()
        .find(|(_, name, _)| kind.starts_with(*name))
        .map(|(_, _, network)| network)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parallel_and_remote_file_systems_are_told_from_local_ones() {
        assert_eq!(network_by_name("nfs4"), Some(true));
        assert_eq!(network_by_name("lustre"), Some(true));
        assert_eq!(network_by_name("fuse.sshfs"), Some(true));
        assert_eq!(network_by_name("fuse.squashfuse_ll"), Some(false));
        assert_eq!(network_by_name("ext3"), None);
        assert_eq!(network_by_name("xfs"), Some(false));
        assert_eq!(known_kind("0xbd00bd0"), Some(("lustre", true)));
        assert_eq!(known_kind("garbage"), None);
    }

    #[test]
    fn a_folder_that_is_not_there_is_asked_at_its_nearest_parent() {
        let folder = tempfile::tempdir().expect("temp can be written");
        let path = folder.path().join("not/yet");
        let answers = statfs_of(&[(PlaceKind::Cache, path.clone())]);
        assert_eq!(answers[&path].asked, folder.path());
    }
}
