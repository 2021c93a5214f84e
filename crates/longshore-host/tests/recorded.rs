//! Recorded nodes: each folder of `fixtures/hosts` must give the `Host` that lies beside it.
//!
//! With `LONGSHORE_BLESS=1` the expected files are written anew; look at the difference.

use std::fs;
use std::path::{Path, PathBuf};

use longshore_host::{FabricKind, Host, LauncherKind, MpiFamily, Node, PlaceKind, Reason, Who};
use proptest::prelude::*;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts")
}

fn host(name: &str) -> Host {
    Host::from_recorded(&fixtures().join(name)).expect("the fixture is whole")
}

fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = fs::read_dir(fixtures())
        .expect("the fixtures are there")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders
}

#[test]
fn every_recorded_node_gives_the_host_that_lies_beside_it() {
    let folders = folders();
    assert!(folders.len() >= 9, "{folders:?}");
    for folder in folders {
        let host = Host::from_recorded(&folder).expect("the fixture is whole");
        if std::env::var_os("LONGSHORE_BLESS").is_some() {
            host.bless(&folder).expect("the fixture can be written");
            continue;
        }
        let expected = fs::read_to_string(folder.join("host.json")).expect("host.json is there");
        let expected: Host = serde_json::from_str(&expected).expect("host.json is a Host");
        assert_eq!(host, expected, "{}", folder.display());
    }
}

#[track_caller]
fn check_refused(name: &str, reason: Reason, who: Who, words: &str) {
    let host = host(name);
    let refusal = host
        .can_run_containers()
        .expect_err("it is forbidden there");
    assert_eq!((refusal.reason, refusal.remedy.who), (reason, who));
    let told = format!(
        "{} {} {:?}",
        refusal.detail, refusal.remedy.text, refusal.remedy.commands
    );
    assert!(told.contains(words), "{told}");
    assert!(!host.abilities.overlay.is_yes() && !host.abilities.bind_mount.is_yes());
}

#[test]
fn the_apparmor_restriction_is_told_although_unshare_went_well() {
    check_refused(
        "ubuntu2404-apparmor",
        Reason::AppArmor,
        Who::Administrator,
        "--apparmor-profile",
    );
}

#[test]
fn no_space_left_means_the_sysctl_and_not_the_disk() {
    check_refused(
        "rhel8-no-userns",
        Reason::NamespaceLimitZero,
        Who::Administrator,
        "user.max_user_namespaces=",
    );
}

#[test]
fn a_container_with_a_filter_is_told_how_to_be_started() {
    check_refused(
        "docker-seccomp",
        Reason::Seccomp,
        Who::User,
        "seccomp=unconfined",
    );
    let host = host("docker-seccomp");
    assert_eq!(host.nesting.container.as_deref(), Some("docker"));
    assert_eq!(
        (host.cpus.usable_count(), host.memory.limit_bytes),
        (2, Some(4 << 30))
    );
    let reasons: Vec<Reason> = host
        .image_troubles()
        .iter()
        .map(|trouble| trouble.reason)
        .collect();
    assert_eq!(reasons, [Reason::NoSpace, Reason::NoSpace]);
}

#[test]
fn a_chroot_is_told_from_other_refusals() {
    check_refused(
        "chroot-build-node",
        Reason::Chroot,
        Who::Administrator,
        "pivot_root",
    );
    let fuse = host("chroot-build-node").abilities.fuse;
    assert_eq!(
        fuse.refusal().expect("mode 0660").reason,
        Reason::DevicePermission
    );
}

#[test]
fn the_sysctl_of_debian_is_named() {
    check_refused(
        "aarch64-flux-efa",
        Reason::Sysctl,
        Who::Administrator,
        "kernel.unprivileged_userns_clone=1",
    );
    let host = host("aarch64-flux-efa");
    assert_eq!(host.cpus.core_count, Some(4));
    assert_eq!(host.fabrics[0].kind, FabricKind::Efa);
    assert_eq!(host.launchers[0].kind, LauncherKind::Flux);
    // Cache and home lie on a server that did not answer; the cache is the one that matters.
    let troubles = host.image_troubles();
    assert_eq!(troubles.len(), 1);
    assert_eq!(troubles[0].reason, Reason::NoAnswer);
}

#[test]
fn a_cray_node_has_its_fabric_its_mpi_and_its_rank() {
    let host = host("cray-ex-pals");
    assert_eq!(host.can_run_containers(), Ok(()));
    assert!(host.fabrics.iter().all(|fabric| {
        fabric.kind == FabricKind::Slingshot && fabric.up == Some(true) && fabric.usable
    }));
    assert_eq!(host.fabrics.len(), 4);
    let launcher = &host.launchers[0];
    assert_eq!(launcher.kind, LauncherKind::Pals);
    assert_eq!(
        (launcher.rank, launcher.size, launcher.local_size),
        (9, Some(16), Some(8))
    );
    // Two variables and the launcher of another package lead to the one installation.
    assert_eq!(host.mpis.len(), 1, "{:?}", host.mpis);
    assert_eq!(host.mpis[0].family, MpiFamily::CrayMpich);
    assert_eq!(
        host.mpis[0].launcher.as_deref(),
        Some(Path::new("/opt/cray/pe/pals/1.3.2/bin/mpiexec"))
    );
    assert_eq!(host.gpus.devices.len(), 8);
    assert_eq!(host.gpus.devices[0].model.as_deref(), Some("gfx90a"));
    let cache = &host.places[0];
    assert_eq!(
        (cache.kind, cache.file_system.as_deref(), cache.network),
        (PlaceKind::Cache, Some("lustre"), Some(true))
    );
}

#[test]
fn an_infiniband_node_tells_its_step_its_fabric_and_both_mpis() {
    let host = host("slurm-ib-lustre");
    let launcher = &host.launchers[0];
    assert_eq!(
        (launcher.kind, launcher.local_size),
        (LauncherKind::Slurm, Some(4))
    );
    assert_eq!(host.launchers.len(), 1);
    assert_eq!(host.memory.limit_bytes, Some(128 << 30));
    let families: Vec<MpiFamily> = host.mpis.iter().map(|install| install.family).collect();
    assert_eq!(families, [MpiFamily::IntelMpi, MpiFamily::OpenMpi]);
    let ports: Vec<(FabricKind, Option<bool>)> = host
        .fabrics
        .iter()
        .map(|fabric| (fabric.kind, fabric.up))
        .collect();
    assert_eq!(
        ports,
        [
            (FabricKind::Infiniband, Some(true)),
            (FabricKind::Roce, Some(false))
        ]
    );
    assert_eq!(host.schedulers[0].version.as_deref(), Some("slurm 24.05.3"));
    assert_eq!(
        host.abilities.io_uring.refusal().expect("it is off").reason,
        Reason::Sysctl
    );
}

#[test]
fn a_gpu_that_the_job_was_not_given_has_no_device() {
    let host = host("nvidia-cdi");
    let devices: Vec<bool> = host
        .gpus
        .devices
        .iter()
        .map(|gpu| gpu.device.is_some())
        .collect();
    assert_eq!(devices, [true, false]);
    assert_eq!(host.gpus.nvidia_driver.as_deref(), Some("570.86.15"));
    assert_eq!(host.gpus.cdi_kinds, ["nvidia.com/gpu"]);
    assert_eq!(host.launchers[0].kind, LauncherKind::OpenMpi);
    assert_eq!(host.mpis.len(), 1, "{:?}", host.mpis);
    assert_eq!(host.mpis[0].family, MpiFamily::OpenMpi);
    assert_eq!(
        host.abilities
            .cross_memory
            .refusal()
            .expect("yama is 1")
            .reason,
        Reason::PtraceScope
    );
}

#[test]
fn a_recording_of_this_machine_gives_the_same_answers_and_no_names() {
    let folder = tempfile::tempdir().expect("temp can be written");
    let node = Node::live();
    let live = Host::of(&node);
    let recorded = Host::record(&node, folder.path()).expect("temp can be written");
    assert_eq!(
        recorded.abilities.user_namespace,
        live.abilities.user_namespace
    );
    assert_eq!(recorded.cpus, live.cpus);
    assert_eq!(recorded.cgroup, live.cgroup);
    assert_eq!(recorded.net_devices, live.net_devices);
    assert_eq!(recorded.nesting, live.nesting);
    assert_eq!(
        Host::from_recorded(folder.path()).expect("just written"),
        recorded
    );
    let env = fs::read_to_string(folder.path().join("env")).expect("just written");
    assert!(!env.lines().any(|line| line.starts_with("PATH=")), "{env}");
}

#[test]
fn a_folder_without_a_recording_is_an_error_that_names_the_file() {
    let folder = tempfile::tempdir().expect("temp can be written");
    let error = Host::from_recorded(folder.path()).expect_err("it is empty");
    assert!(error.to_string().contains("trials.json"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Any file of a node may be missing or garbage: answers become unknown, nothing panics.
    #[test]
    fn a_node_of_garbage_still_gives_a_host(
        garbage in proptest::collection::vec(any::<u8>(), 0..80),
        text in "[ -~\n:]{0,80}",
        errors in proptest::collection::vec("(ok|EPERM|ENOSPC|errno 7|nonsense)", 16),
    ) {
        let folder = tempfile::tempdir().expect("temp can be written");
        let files = [
            "proc/cpuinfo", "proc/meminfo", "proc/self/status", "proc/self/cgroup", "proc/self/mountinfo",
            "proc/self/uid_map", "proc/sys/user/max_user_namespaces", "etc/os-release", "etc/subuid",
            "proc/driver/nvidia/version", "proc/driver/nvidia/gpus/0/information", "etc/cdi/a.json",
            "sys/class/infiniband/a/ports/1/rate", "sys/class/kfd/kfd/topology/nodes/0/properties",
            "sys/devices/system/cpu/online", "sys/fs/cgroup/cpu.max",
        ];
        for (index, file) in files.iter().enumerate() {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().expect("below the folder")).expect("temp can be written");
            let content = if index % 2 == 0 { &garbage[..] } else { text.as_bytes() };
            fs::write(path, content).expect("temp can be written");
        }
        let steps = ["pidfd", "io_uring", "cross_memory", "open_fuse", "user_namespace", "id_maps", "mount_namespace",
            "make_private", "tmpfs", "bind", "open_tree", "overlay", "overlay_whiteout", "fuse_mount", "proc_mount"];
        let trials: serde_json::Value = steps.iter().zip(&errors)
            .map(|(step, error)| ((*step).to_owned(), serde_json::Value::from(error.as_str())))
            .collect();
        let observed = serde_json::json!({ "uid": 1000, "user": "a", "home": "/home/a", "trials": trials });
        fs::write(folder.path().join("trials.json"), observed.to_string()).expect("temp can be written");
        fs::write(folder.path().join("env"), &text).expect("temp can be written");
        let host = Host::from_recorded(folder.path()).expect("trials.json is well formed");
        let _ = (host.can_run_containers(), host.image_troubles(), host.cpus.usable_count());
    }
}
