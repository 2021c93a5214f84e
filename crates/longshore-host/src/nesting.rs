//! Whether this process already lives in a container, a sandbox or a virtual machine.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::mounts;
use crate::node::Node;

/// What encloses this process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nesting {
    /// The container runtime, as `docker`; `None` outside of one.
    pub container: Option<String>,
    /// Whether a seccomp filter is installed.
    pub seccomp_filter: Option<bool>,
    /// Whether setuid programs have lost their effect.
    pub no_new_privs: Option<bool>,
    /// Whether the user namespace is not the first: not every user id exists here.
    pub in_user_namespace: Option<bool>,
    /// Whether the root directory is not the root of the mount namespace.
    pub chroot: Option<bool>,
    /// AppArmor's or SELinux's label of the process.
    pub label: Option<String>,
    /// Whether the machine is a virtual one.
    pub virtual_machine: bool,
    /// Whether parts of `/proc` are covered by mounts, which forbids to mount a fresh one.
    pub covered_proc: bool,
}

pub(crate) fn derive(node: &Node) -> Nesting {
    let status = node.text("/proc/self/status");
    let field = |name: &str| status.as_deref().and_then(|text| status_number(text, name));
    let mounts = mounts::parse(&node.text("/proc/self/mountinfo").unwrap_or_default());
    Nesting {
        container: container(node, &mounts),
        seccomp_filter: field("Seccomp").map(|mode| mode == 2),
        no_new_privs: field("NoNewPrivs").map(|flag| flag == 1),
        in_user_namespace: node
            .text("/proc/self/uid_map")
            .map(|map| !is_full_map(&map)),
        chroot: chroot(node, &mounts),
        label: label(node),
        virtual_machine: node.text("/proc/cpuinfo").is_some_and(|text| {
            text.lines()
                .any(|line| line.starts_with("flags") && line.contains(" hypervisor"))
        }),
        covered_proc: covers_proc(&mounts),
    }
}

/// Whether something is mounted over a part of `/proc`, other than what belongs there.
fn covers_proc(mounts: &[mounts::Mount]) -> bool {
    mounts.iter().any(|mount| {
        mount.point != Path::new("/proc")
            && mount.point.starts_with("/proc")
            && !["binfmt_misc", "autofs", "nfsd", "rpc_pipefs"].contains(&mount.kind.as_str())
    })
}

/// A number of `/proc/self/status`.
pub(crate) fn status_number(text: &str, name: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?
        .trim()
        .parse()
        .ok()
}

/// Whether a uid map is that of the first user namespace: `0 0 4294967295`.
pub(crate) fn is_full_map(map: &str) -> bool {
    let words: Vec<&str> = map.split_ascii_whitespace().collect();
    words == ["0", "0", "4294967295"]
}

/// Whether a map gives an inside number to `id`.
pub(crate) fn maps(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut words = line.split_ascii_whitespace();
        let (first, _outside, count) = (words.next(), words.next(), words.next());
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok());
        match (number(first), number(count)) {
            (Some(first), Some(count)) => {
                (first..first.saturating_add(count)).contains(&u64::from(id))
            }
            _ => false,
        }
    })
}

/// The AppArmor or SELinux label of the process.
pub(crate) fn label(node: &Node) -> Option<String> {
    node.text("/proc/self/attr/apparmor/current")
        .or_else(|| node.text("/proc/self/attr/current"))
        .map(|label| label.trim_matches(['\0', '\n']).to_owned())
        .filter(|label| !label.is_empty())
}

/// A process whose root is no mount point was put there by chroot(2).
pub(crate) fn chroot(node: &Node, mounts: &[mounts::Mount]) -> Option<bool> {
    if node.observed.root_is_init_root == Some(true) {
        return Some(false);
    }
    if mounts.is_empty() {
        return None;
    }
    Some(!mounts.iter().any(|mount| mount.point.as_os_str() == "/"))
}

fn container(node: &Node, mounts: &[mounts::Mount]) -> Option<String> {
    if node.exists("/.singularity.d")
        && (node.var("APPTAINER_CONTAINER").is_some()
            || node.var("SINGULARITY_CONTAINER").is_some())
    {
        return Some("apptainer".to_owned());
    }
    if node.exists("/run/.containerenv") {
        return Some("podman".to_owned());
    }
    if node.var("KUBERNETES_SERVICE_HOST").is_some()
        || node.exists("/var/run/secrets/kubernetes.io")
    {
        return Some("kubernetes".to_owned());
    }
    // Virtual machines are made of Docker images too, and keep the file: there the root is no
    // overlay, and nothing of /proc is covered.
    let overlay_root = mounts
        .iter()
        .any(|mount| mount.point.as_os_str() == "/" && mount.kind.contains("overlay"));
    if node.exists("/.dockerenv") && (overlay_root || covers_proc(mounts)) {
        return Some("docker".to_owned());
    }
    // systemd's convention, kept by LXC, nspawn and others (systemd.io/CONTAINER_INTERFACE).
    node.text("/run/systemd/container")
        .or_else(|| node.var("container").map(str::to_owned))
        .filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_tell_which_ids_exist() {
        assert!(is_full_map("         0          0 4294967295\n"));
        assert!(!is_full_map("1000 1000 1"));
        assert!(maps("0 1000 1\n1 100000 65536\n", 65536));
        assert!(!maps("0 1000 1\n", 1));
        assert!(!maps("garbage", 0));
    }

    #[test]
    fn a_field_is_not_mistaken_for_a_longer_one() {
        let status = "NoNewPrivs:\t1\nSeccomp_filters:\t3\nSeccomp:\t2\n";
        assert_eq!(status_number(status, "Seccomp"), Some(2));
        assert_eq!(status_number(status, "Missing"), None);
    }
}
