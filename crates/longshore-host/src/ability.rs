//! What the kernel lets this user do, with the reason and the remedy for each "no".

use longshore_sys::probe::Step;
use serde::{Deserialize, Serialize};

use crate::node::Node;
use crate::refusal::{self, MountWish, Reason, Refusal, Remedy, Who, administrator, remedy};
use crate::{account, errno, mounts, nesting};

/// An answer to "can this be done here?".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Ability {
    /// It can.
    Yes {
        /// What was seen.
        detail: String,
    },
    /// It cannot.
    No(Refusal),
    /// Nothing was seen that decides it.
    Unknown {
        /// What was missing.
        detail: String,
    },
}

impl Ability {
    /// Whether the answer is a clear yes.
    pub fn is_yes(&self) -> bool {
        matches!(self, Ability::Yes { .. })
    }

    /// The refusal, where the answer is no.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Ability::No(refusal) => Some(refusal),
            _ => None,
        }
    }

    fn yes(detail: impl Into<String>) -> Ability {
        Ability::Yes {
            detail: detail.into(),
        }
    }

    fn unknown(detail: impl Into<String>) -> Ability {
        Ability::Unknown {
            detail: detail.into(),
        }
    }

    fn no(reason: Reason, detail: impl Into<String>, remedy: Remedy) -> Ability {
        Ability::No(Refusal {
            reason,
            detail: detail.into(),
            remedy,
        })
    }
}

/// The abilities that Longshore makes use of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abilities {
    /// Making a user namespace with the own id in it.
    pub user_namespace: Ability,
    /// A mount namespace and bind mounts inside a user namespace.
    pub bind_mount: Ability,
    /// A tmpfs inside a user namespace.
    pub tmpfs: Ability,
    /// An overlay inside a user namespace.
    pub overlay: Ability,
    /// A FUSE file system inside a user namespace.
    pub fuse: Ability,
    /// A PID namespace with a fresh `/proc`.
    pub fresh_proc: Ability,
    /// Mounts by file descriptor.
    pub mount_by_descriptor: Ability,
    /// Loop devices.
    pub loop_devices: Ability,
    /// Reading and writing another process's memory, as MPI's single-copy transport does.
    pub cross_memory: Ability,
    /// Several user ids inside one user namespace.
    pub subordinate_ids: Ability,
    /// Setting limits in the own control group.
    pub cgroup_delegation: Ability,
    /// Asynchronous input and output by io_uring.
    pub io_uring: Ability,
    /// Process handles.
    pub pidfd: Ability,
}

impl Abilities {
    /// All answers with a few words for each, what matters most first.
    pub fn all(&self) -> [(&'static str, &Ability); 13] {
        [
            ("user namespace", &self.user_namespace),
            ("bind mounts", &self.bind_mount),
            ("tmpfs", &self.tmpfs),
            ("overlay", &self.overlay),
            ("FUSE", &self.fuse),
            ("fresh /proc (--pid)", &self.fresh_proc),
            ("mounts by descriptor", &self.mount_by_descriptor),
            ("loop devices", &self.loop_devices),
            ("cross memory attach", &self.cross_memory),
            ("subordinate ids", &self.subordinate_ids),
            ("cgroup delegation", &self.cgroup_delegation),
            ("io_uring", &self.io_uring),
            ("pidfd", &self.pidfd),
        ]
    }
}

pub(crate) fn derive(node: &Node) -> Abilities {
    Abilities {
        user_namespace: user_namespace(node),
        bind_mount: bind_mount(node),
        tmpfs: mounted(node, Step::Tmpfs, MountWish::Tmpfs, "can be mounted"),
        overlay: overlay(node),
        fuse: fuse(node),
        fresh_proc: mounted(
            node,
            Step::ProcMount,
            MountWish::Proc,
            "can be mounted in a PID namespace",
        ),
        mount_by_descriptor: mount_by_descriptor(node),
        loop_devices: loop_devices(node),
        cross_memory: cross_memory(node),
        subordinate_ids: subordinate_ids(node),
        cgroup_delegation: cgroup_delegation(node),
        io_uring: io_uring(node),
        pidfd: pidfd(node),
    }
}

const NOT_TRIED: &str = "was not tried";

fn user_namespace(node: &Node) -> Ability {
    for step in [Step::UserNamespace, Step::IdMaps] {
        match node.trial(step) {
            Some(Ok(())) => {}
            Some(Err(number)) => return Ability::No(refusal::userns(node, step, number)),
            None => return killed_or_untried(node),
        }
    }
    match node.number::<u64>("/proc/sys/user/max_user_namespaces") {
        Some(limit) => Ability::yes(format!("up to {limit} may be made")),
        None => Ability::yes("can be made"),
    }
}

/// A filter that kills the process leaves no outcome at all.
fn killed_or_untried(node: &Node) -> Ability {
    if node.observed.trials.is_empty() {
        Ability::unknown(NOT_TRIED)
    } else {
        Ability::no(
            Reason::Seccomp,
            "the process that tried was killed, as a seccomp filter does",
            remedy(
                Who::User,
                "start the enclosing container with a filter that allows unshare and mount",
                &["docker run --security-opt seccomp=unconfined …"],
            ),
        )
    }
}

/// The answer for a step that needs the namespaces first.
fn after_namespaces(node: &Node) -> Option<Ability> {
    let first = user_namespace(node);
    (!first.is_yes()).then(|| match first {
        Ability::No(refusal) => Ability::No(Refusal {
            detail: "needs a user namespace".to_owned(),
            ..refusal
        }),
        other => other,
    })
}

fn bind_mount(node: &Node) -> Ability {
    if let Some(answer) = after_namespaces(node) {
        return answer;
    }
    for step in [Step::MountNamespace, Step::MakePrivate, Step::Bind] {
        match node.trial(step) {
            Some(Ok(())) => {}
            Some(Err(number)) => return Ability::No(refusal::userns(node, step, number)),
            // The bind is tried on a tmpfs; that one tells why it was not.
            None if step == Step::Bind => return Ability::unknown(NOT_TRIED),
            None => return killed_or_untried(node),
        }
    }
    Ability::yes("can be made in a user namespace")
}

fn mounted(node: &Node, step: Step, wish: MountWish, yes: &str) -> Ability {
    match node.trial(step) {
        Some(Ok(())) => Ability::yes(yes),
        Some(Err(number)) => Ability::No(refusal::mount(node, wish, number)),
        None => after_namespaces(node)
            .or_else(|| {
                let before = bind_mount(node);
                before.refusal().is_some().then_some(before)
            })
            .unwrap_or_else(|| Ability::unknown(NOT_TRIED)),
    }
}

fn overlay(node: &Node) -> Ability {
    let answer = mounted(
        node,
        Step::Overlay,
        MountWish::Overlay,
        "can be mounted with userxattr, writable layer on a tmpfs",
    );
    match node.trial(Step::OverlayWhiteout) {
        // tmpfs keeps user.* attributes since Linux 6.6; without them a removed folder cannot be
        // made again.
        Some(Err(number)) if answer.is_yes() => Ability::yes(format!(
            "can be mounted; on a tmpfs a removed folder cannot be made again ({})",
            errno::name(number)
        )),
        _ => answer,
    }
}

fn fuse(node: &Node) -> Ability {
    let path = std::path::Path::new("/dev/fuse");
    let Some(device) = node.observed.devices.get(path) else {
        return match node.trial(Step::OpenFuse) {
            None => Ability::unknown(NOT_TRIED),
            Some(_) if nesting::derive(node).container.is_some() => Ability::no(
                Reason::NoDevice,
                "/dev/fuse is not there",
                remedy(
                    Who::User,
                    "give the enclosing container the device; without it images are unpacked instead of mounted",
                    &["docker run --device /dev/fuse …"],
                ),
            ),
            Some(_) => Ability::no(
                Reason::NoDevice,
                "/dev/fuse is not there",
                administrator(
                    "load the fuse module at boot; without it images are unpacked instead of mounted",
                    &["modprobe fuse", "echo fuse > /etc/modules-load.d/fuse.conf"],
                ),
            ),
        };
    };
    match node.trial(Step::OpenFuse) {
        Some(Ok(())) | None => {}
        Some(Err(_)) if !others_may_use(&device.mode) && node.observed.uid != 0 => {
            return Ability::no(
                Reason::DevicePermission,
                format!(
                    "/dev/fuse has mode {}, which keeps this user out",
                    device.mode
                ),
                administrator(
                    "give /dev/fuse mode 0666, as udev does by default",
                    &[
                        "chmod 0666 /dev/fuse",
                        "echo 'KERNEL==\"fuse\", MODE=\"0666\"' > /etc/udev/rules.d/90-fuse.rules",
                    ],
                ),
            );
        }
        Some(Err(number)) => return device_blocked(node, &device.mode, number),
    }
    mounted(
        node,
        Step::FuseMount,
        MountWish::Fuse,
        "can be mounted from an own /dev/fuse descriptor",
    )
}

/// A device that has the right mode and yet does not open.
fn device_blocked(node: &Node, mode: &str, number: i32) -> Ability {
    let table = mounts::parse(&node.text("/proc/self/mountinfo").unwrap_or_default());
    let path = std::path::Path::new("/dev/fuse");
    if mounts::of_path(&table, path).is_some_and(|mount| mount.has("nodev")) {
        return Ability::no(
            Reason::DeviceBlocked,
            "/dev is mounted nodev, so /dev/fuse has no effect",
            administrator("mount /dev without nodev", &["mount -o remount,dev /dev"]),
        );
    }
    Ability::no(
        Reason::DeviceBlocked,
        format!(
            "/dev/fuse cannot be opened although its mode is {mode}: {}, as under a device filter of a container or batch system",
            errno::describe(number)
        ),
        administrator(
            "allow the device c 10:229 in this container or job (Slurm: ConstrainDevices in cgroup.conf)",
            &["docker run --device /dev/fuse …"],
        ),
    )
}

/// Whether a mode in octal lets everybody read and write.
fn others_may_use(mode: &str) -> bool {
    u32::from_str_radix(mode, 8).is_ok_and(|mode| mode & 0o6 == 0o6)
}

fn mount_by_descriptor(node: &Node) -> Ability {
    match node.trial(Step::OpenTree) {
        Some(Ok(())) => Ability::yes("open_tree and move_mount work"),
        Some(Err(number)) => Ability::no(
            if number == rustix::io::Errno::NOSYS.raw_os_error() {
                Reason::OldKernel
            } else {
                Reason::Seccomp
            },
            format!("open_tree is refused: {}", errno::describe(number)),
            remedy(Who::Nobody, "nothing: mounts are made by path instead", &[]),
        ),
        None => after_namespaces(node).unwrap_or_else(|| Ability::unknown(NOT_TRIED)),
    }
}

fn loop_devices(node: &Node) -> Ability {
    // Root of a user namespace is an ordinary user to the devices.
    let root = node.observed.uid == 0 && nesting::derive(node).in_user_namespace != Some(true);
    match node.trial(Step::OpenLoopControl) {
        Some(Ok(())) if root => Ability::yes("/dev/loop-control can be opened"),
        Some(Ok(())) => {
            Ability::yes("/dev/loop-control can be opened, but mounting what is on them is root's")
        }
        Some(Err(_)) if !root => Ability::no(
            Reason::NotRoot,
            "loop devices are root's",
            remedy(
                Who::Nobody,
                "nothing: images are mounted by FUSE or unpacked instead",
                &[],
            ),
        ),
        Some(Err(number)) => Ability::no(
            Reason::NoDevice,
            format!(
                "/dev/loop-control cannot be opened: {}",
                errno::describe(number)
            ),
            administrator(
                "load the loop module, or give the enclosing container the device",
                &["modprobe loop"],
            ),
        ),
        None => Ability::unknown(NOT_TRIED),
    }
}

fn cross_memory(node: &Node) -> Ability {
    let scope: Option<u8> = node.number("/proc/sys/kernel/yama/ptrace_scope");
    match (node.trial(Step::CrossMemory), scope) {
        (Some(Ok(())), _) => {
            Ability::yes("ranks of one user namespace can copy from each other directly")
        }
        (Some(Err(_)), Some(scope)) if scope > 0 => Ability::no(
            Reason::PtraceScope,
            format!(
                "kernel.yama.ptrace_scope is {scope}: ranks of a node copy through shared memory, at about half the rate for large messages"
            ),
            administrator(
                "set kernel.yama.ptrace_scope to 0 on compute nodes (Open MPI and UCX also get by with 1)",
                &["sysctl -w kernel.yama.ptrace_scope=0"],
            ),
        ),
        (Some(Err(number)), _) => Ability::no(
            Reason::Seccomp,
            format!("process_vm_readv is refused: {}", errno::describe(number)),
            remedy(
                Who::User,
                "start the enclosing container with the right to trace",
                &["docker run --cap-add SYS_PTRACE …"],
            ),
        ),
        (None, _) => Ability::unknown(NOT_TRIED),
    }
}

fn subordinate_ids(node: &Node) -> Ability {
    let observed = &node.observed;
    if observed.user.is_empty() {
        return Ability::unknown("the user has no name");
    }
    let count = |file: &str| {
        let text = node.text(file).unwrap_or_default();
        account::subordinate_count(&observed.user, observed.uid, &text)
    };
    let (users, groups) = (count("/etc/subuid"), count("/etc/subgid"));
    if users == 0 || groups == 0 {
        return Ability::no(
            Reason::NoSubordinateIds,
            format!("{} has no range in /etc/{}", observed.user, if users == 0 { "subuid" } else { "subgid" }),
            Remedy {
                who: Who::Nobody,
                text: "nothing: Longshore needs none; other tools (podman, Apptainer's fakeroot) do, and an administrator can add a range".to_owned(),
                commands: vec![format!(
                    "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {}",
                    observed.user
                )],
            },
        );
    }
    let missing: Vec<&str> = ["newuidmap", "newgidmap"]
        .into_iter()
        .filter(|program| !observed.programs.contains_key(*program))
        .collect();
    if !missing.is_empty() {
        return Ability::no(
            Reason::NoProgram,
            format!(
                "{users} ids are given, but {} is not installed",
                missing.join(" and ")
            ),
            administrator(
                "install newuidmap and newgidmap (package uidmap or shadow-utils)",
                &[],
            ),
        );
    }
    if nesting::derive(node).no_new_privs == Some(true) {
        return Ability::no(
            Reason::Seccomp,
            "no_new_privs is set, so newuidmap has no effect",
            remedy(
                Who::Nobody,
                "nothing: Longshore needs no subordinate ids",
                &[],
            ),
        );
    }
    Ability::yes(format!("{users} user ids and {groups} group ids"))
}

fn cgroup_delegation(node: &Node) -> Ability {
    match node.observed.cgroup_writable {
        Some(true) => Ability::yes("the own control group can be written"),
        Some(false) => Ability::no(
            Reason::NotDelegated,
            "the own control group is not this user's",
            remedy(
                Who::Nobody,
                "nothing: Longshore sets no limits and stays in the group that the batch system made; under systemd a scope of your own has them",
                &["systemd-run --user --scope -p Delegate=yes COMMAND"],
            ),
        ),
        None => Ability::unknown("no unified control group is mounted"),
    }
}

fn io_uring(node: &Node) -> Ability {
    let disabled: Option<u8> = node.number("/proc/sys/kernel/io_uring_disabled");
    match (node.trial(Step::IoUring), disabled) {
        (Some(Ok(())), _) => Ability::yes("can be set up"),
        (Some(Err(_)), Some(disabled)) if disabled > 0 => Ability::no(
            Reason::Sysctl,
            format!("kernel.io_uring_disabled is {disabled}"),
            administrator(
                "set kernel.io_uring_disabled to 0 to measure storage with it; nothing else needs it",
                &["sysctl -w kernel.io_uring_disabled=0"],
            ),
        ),
        (Some(Err(number)), _) if number == rustix::io::Errno::NOSYS.raw_os_error() => Ability::no(
            Reason::OldKernel,
            "the kernel has no io_uring (Linux 5.1), or a seccomp filter hides it",
            remedy(Who::Nobody, "nothing: plain reads and writes are used", &[]),
        ),
        (Some(Err(number)), _) => Ability::no(
            Reason::Seccomp,
            format!("io_uring_setup is refused: {}", errno::describe(number)),
            remedy(Who::Nobody, "nothing: plain reads and writes are used", &[]),
        ),
        (None, _) => Ability::unknown(NOT_TRIED),
    }
}

fn pidfd(node: &Node) -> Ability {
    match node.trial(Step::Pidfd) {
        Some(Ok(())) => Ability::yes("can be opened"),
        Some(Err(number)) => Ability::no(
            Reason::OldKernel,
            format!(
                "pidfd_open is refused: {} (it needs Linux 5.3)",
                errno::describe(number)
            ),
            remedy(Who::Nobody, "nothing: ranks join by /proc instead", &[]),
        ),
        None => Ability::unknown(NOT_TRIED),
    }
}
