//! What reads a node's own files. Shared by the fuzz target and by a test of the crate that runs the
//! same function on random input.

use std::fs;
use std::path::Path;

use longshore_host::Host;

/// Files of a node that some module reads; each may hold anything.
const FILES: [&str; 20] = [
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/self/status",
    "proc/self/cgroup",
    "proc/self/mountinfo",
    "proc/self/uid_map",
    "proc/self/gid_map",
    "proc/self/attr/current",
    "proc/sys/kernel/osrelease",
    "proc/sys/user/max_user_namespaces",
    "etc/os-release",
    "etc/passwd",
    "etc/subuid",
    "etc/subgid",
    "etc/cdi/a.json",
    "proc/driver/nvidia/version",
    "sys/class/infiniband/a/ports/1/rate",
    "sys/devices/system/cpu/online",
    "sys/fs/cgroup/cpu.max",
    "env",
];

/// A byte that no such file holds parts the input into files.
const CUT: u8 = 0x1e;

/// Writes the parts of `input` as a recorded node into `folder` and concludes from them; nothing that
/// a file can hold may keep the other answers from being given.
pub(crate) fn node(folder: &Path, input: &[u8]) {
    let mut parts = input.split(|&byte| byte == CUT);
    for file in FILES {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().expect("is below the folder")).expect("own folder");
        fs::write(path, parts.next().unwrap_or_default()).expect("own folder");
    }
    let observed = r#"{"uid":1000,"gid":1000,"user":"a","home":"/home/a","trials":{"user_namespace":"EPERM"}}"#;
    fs::write(folder.join("trials.json"), observed).expect("own folder");
    let host = Host::from_recorded(folder).expect("the observations are sound");
    let refusal = host.can_run_containers().expect_err("was refused");
    assert!(!refusal.detail.is_empty());
    // Observations of any kind are read or refused.
    fs::write(folder.join("trials.json"), input).expect("own folder");
    let _ = Host::from_recorded(folder);
}
