//! Control groups: which hierarchy there is, and what it allows this process.
//!
//! Limits hold for a group and all below it, so the tightest on the way up to the mount counts
//! (cgroups(7)). Nothing here needs systemd, and a node without any cgroup mount is a good node.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::mounts::{self, Mount};
use crate::node::Node;

/// Which of the two interfaces is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupVersion {
    /// No hierarchy is mounted.
    None,
    /// Only version 1 controllers.
    V1,
    /// Only the unified hierarchy.
    V2,
    /// Version 1 controllers beside a unified hierarchy.
    Hybrid,
}

pub(crate) fn version(mounts: &[Mount]) -> CgroupVersion {
    let has = |kind: &str| mounts.iter().any(|mount| mount.kind == kind);
    match (has("cgroup"), has("cgroup2")) {
        (false, false) => CgroupVersion::None,
        (true, false) => CgroupVersion::V1,
        (false, true) => CgroupVersion::V2,
        (true, true) => CgroupVersion::Hybrid,
    }
}

/// The folders of the own group and its parents for a controller, the own first, and whether they
/// are of version 2.
struct Groups {
    folders: Vec<PathBuf>,
    unified: bool,
}

/// The path of the own group in `/proc/self/cgroup`; the empty name is the unified hierarchy.
fn own_path<'t>(cgroup: &'t str, controller: &str) -> Option<&'t str> {
    cgroup.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let id = fields.next()?;
        let controllers = fields.next()?;
        let path = fields.next()?;
        let matches = if controller.is_empty() {
            id == "0" && controllers.is_empty()
        } else {
            controllers.split(',').any(|known| known == controller)
        };
        matches.then_some(path)
    })
}

fn groups(node: &Node, controller: &str) -> Option<Groups> {
    let cgroup = node.text("/proc/self/cgroup")?;
    let mounts = mounts::parse(&node.text("/proc/self/mountinfo")?);
    let first = mounts
        .iter()
        .find(|mount| mount.kind == "cgroup" && mount.super_has(controller))
        .and_then(|mount| Some((mount, own_path(&cgroup, controller)?)));
    let (mount, path, unified) = match first {
        Some((mount, path)) => (mount, path, false),
        None => {
            let mount = mounts.iter().find(|mount| mount.kind == "cgroup2")?;
            (mount, own_path(&cgroup, "")?, true)
        }
    };
    Some(Groups {
        folders: folders(mount, Path::new(path)),
        unified,
    })
}

fn folders(mount: &Mount, path: &Path) -> Vec<PathBuf> {
    // In a container the mount shows a subtree; a path that leads out of it (`/../x`) is that of a
    // process outside the cgroup namespace, of which only the mount's top can be seen.
    let below = path
        .strip_prefix(&mount.root)
        .or_else(|_| path.strip_prefix("/"))
        .unwrap_or(Path::new(""));
    let climbs = below.components().any(|part| part.as_os_str() == "..");
    let below = if climbs { Path::new("") } else { below };
    below
        .ancestors()
        .map(|below| mount.point.join(below))
        .collect()
}

/// The folder of the own group in the unified hierarchy.
pub(crate) fn own_folder(node: &Node) -> Option<PathBuf> {
    let groups = groups(node, "")?;
    groups.unified.then(|| groups.folders.into_iter().next())?
}

/// The tightest limit of CPU time, in thousandths of a processor.
pub(crate) fn cpu_quota_millis(node: &Node) -> Option<u64> {
    let groups = groups(node, "cpu")?;
    let quota = |folder: &PathBuf| {
        if groups.unified {
            parse_cpu_max(&node.text(folder.join("cpu.max"))?)
        } else {
            let quota_us: i64 = node.number(folder.join("cpu.cfs_quota_us"))?;
            let period_us: u64 = node.number(folder.join("cpu.cfs_period_us"))?;
            millis(u64::try_from(quota_us).ok()?, period_us)
        }
    };
    groups.folders.iter().filter_map(quota).min()
}

fn parse_cpu_max(text: &str) -> Option<u64> {
    let (quota_us, period_us) = text.trim().split_once(' ')?;
    millis(quota_us.parse().ok()?, period_us.trim().parse().ok()?)
}

fn millis(quota_us: u64, period_us: u64) -> Option<u64> {
    quota_us.checked_mul(1000)?.checked_div(period_us)
}

/// The tightest limit of memory.
pub(crate) fn memory_limit(node: &Node) -> Option<u64> {
    let groups = groups(node, "memory")?;
    let file = if groups.unified {
        "memory.max"
    } else {
        "memory.limit_in_bytes"
    };
    groups
        .folders
        .iter()
        .filter_map(|folder| node.number(folder.join(file)))
        .min()
}

/// The processors of the own cpuset, as the kernel writes a list (`0-3,8`).
pub(crate) fn cpuset(node: &Node) -> Option<String> {
    let groups = groups(node, "cpuset")?;
    let files: &[&str] = if groups.unified {
        &["cpuset.cpus.effective"]
    } else {
        &["cpuset.effective_cpus", "cpuset.cpus"]
    };
    groups.folders.iter().find_map(|folder| {
        files
            .iter()
            .find_map(|file| node.text(folder.join(file)).filter(|list| !list.is_empty()))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_quota_is_told_in_thousandths_of_a_processor() {
        assert_eq!(parse_cpu_max("150000 100000\n"), Some(1500));
        assert_eq!(parse_cpu_max("max 100000\n"), None);
        assert_eq!(parse_cpu_max("5 0"), None);
    }

    #[test]
    fn the_own_group_is_found_by_controller() {
        let text = "9:name=systemd:/s\n4:cpu,cpuacct:/c\n0::/u\nnonsense\n";
        assert_eq!(own_path(text, "cpuacct"), Some("/c"));
        assert_eq!(own_path(text, ""), Some("/u"));
        assert_eq!(own_path(text, "memory"), None);
    }

    #[test]
    fn a_container_sees_its_subtree_as_the_top() {
        let mount = &mounts::parse("1 2 0:3 /docker/ab /sys/fs/cgroup ro - cgroup2 cgroup rw")[0];
        let top = vec![PathBuf::from("/sys/fs/cgroup/")];
        assert_eq!(folders(mount, Path::new("/docker/ab")), top);
        assert_eq!(folders(mount, Path::new("/../other")), top);
        assert_eq!(
            folders(mount, Path::new("/docker/ab/x"))[0],
            Path::new("/sys/fs/cgroup/x")
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "[0-9a-z:,/= \n]{0,60}") {
            own_path(&text, "cpu");
            parse_cpu_max(&text);
        }
    }
}
