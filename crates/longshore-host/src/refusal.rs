//! Why the kernel refuses what a container needs, and what can be done about it.
//!
//! The kernel's error number alone misleads: ENOSPC for a forbidden namespace has nothing to do
//! with disks. The reason is told from the number together with sysctls, the process's security
//! label and filters, and where its root lies. Which number means what: user_namespaces(7) and
//! `kernel/user_namespace.c`; the AppArmor restriction: Ubuntu 23.10 release notes.

use std::path::{Path, PathBuf};

use longshore_sys::probe::Step;
use serde::{Deserialize, Serialize};

use crate::node::{Node, Observed};
use crate::{errno, mounts, nesting};

/// What stands in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The kernel was built without it, or the module is absent.
    NoKernelSupport,
    /// The kernel is older than the feature.
    OldKernel,
    /// `user.max_user_namespaces` is 0.
    NamespaceLimitZero,
    /// As many namespaces exist as are allowed, or they are nested too deeply.
    NamespaceLimitReached,
    /// A sysctl forbids it.
    Sysctl,
    /// AppArmor forbids it.
    AppArmor,
    /// SELinux forbids it.
    SeLinux,
    /// A seccomp filter of an enclosing container forbids it.
    Seccomp,
    /// The process was put into a chroot.
    Chroot,
    /// The caller's user or group id does not exist in this user namespace.
    UnmappedId,
    /// Parts of `/proc` are covered, so a fresh one may not be mounted.
    CoveredProc,
    /// `/proc` is not mounted.
    NoProc,
    /// The device node is missing.
    NoDevice,
    /// The device node does not let this user in.
    DevicePermission,
    /// Device nodes have no effect where this one lies, or a device filter is set.
    DeviceBlocked,
    /// `kernel.yama.ptrace_scope` keeps processes from each other.
    PtraceScope,
    /// Only root may do it.
    NotRoot,
    /// A helper program is missing.
    NoProgram,
    /// No range of subordinate ids is given to the user.
    NoSubordinateIds,
    /// The control group belongs to somebody else.
    NotDelegated,
    /// The folder cannot be written.
    NotWritable,
    /// The folder is mounted `noexec`.
    NoExec,
    /// Too few bytes or inodes are free.
    NoSpace,
    /// The file system does not answer.
    NoAnswer,
    /// None of the known reasons.
    Other,
}

/// Who can do something about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Who {
    /// The user.
    User,
    /// Whoever has root on the machine.
    Administrator,
    /// Nobody needs to: Longshore does without.
    Nobody,
}

/// What to do about a refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remedy {
    /// Who can do it.
    pub who: Who,
    /// What to do, in a sentence that can be sent to an administrator as it is.
    pub text: String,
    /// The commands for it.
    pub commands: Vec<String>,
}

/// A refusal, explained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What stands in the way.
    pub reason: Reason,
    /// The same for a person, with the facts of this node: lower case, no full stop.
    pub detail: String,
    /// What to do about it.
    pub remedy: Remedy,
}

/// A mount that was wished for inside a user namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountWish {
    /// A private copy of the mount table, or a bind mount.
    Bind,
    /// A tmpfs.
    Tmpfs,
    /// An overlay with `userxattr`.
    Overlay,
    /// A FUSE file system.
    Fuse,
    /// A fresh `/proc`.
    Proc,
}

impl Refusal {
    /// The refusal and what to do about it in one line, as the hint of an error message.
    pub fn hint(&self) -> String {
        let who = match self.remedy.who {
            Who::Administrator => "ask the administrator to ",
            Who::User | Who::Nobody => "",
        };
        let command = match self.remedy.commands.first() {
            Some(command) => format!(" (`{command}`)"),
            None => String::new(),
        };
        format!("{}: {who}{}{command}", self.detail, self.remedy.text)
    }
}

/// Explains why `unshare` of a user namespace, together with others, failed with `errno`.
///
/// `others` names those as their limits do, `user.max_<kind>_namespaces`: `mnt`, `pid`, `ipc`, `net`,
/// `uts`. Many sites set `user.max_net_namespaces` to 0, which has no effect on containers that
/// share the host's network.
///
/// Reads some small files of `/proc`; meant to be called only after the failure, by the process
/// that saw it or its parent. It never fails: at worst the reason is [`Reason::Other`].
pub fn explain_userns_refusal(others: &[&str], errno: i32) -> Refusal {
    namespaces(&bare(), others, errno)
}

/// Explains why writing the id maps of a new user namespace failed with `errno`.
///
/// May be called from inside that namespace. As cheap as [`explain_userns_refusal`].
pub fn explain_id_map_refusal(errno: i32) -> Refusal {
    userns(&bare(), Step::IdMaps, errno)
}

/// Explains why a mount inside a new user namespace failed with `errno`.
///
/// As cheap as [`explain_userns_refusal`], and as sure to give an answer.
pub fn explain_mount_refusal(wish: MountWish, errno: i32) -> Refusal {
    mount(&bare(), wish, errno)
}

/// The live node with just those observations that the explanations look at.
fn bare() -> Node {
    Node::unobserved(Observed {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        program: std::env::current_exe().unwrap_or_default(),
        ..Observed::default()
    })
}

/// The AppArmor profile that lets `program` make user namespaces, as Ubuntu 24.04 ships them for
/// browsers; it confines nothing.
pub fn apparmor_profile(program: &Path) -> String {
    let mut path = String::new();
    for letter in program.to_string_lossy().chars() {
        // Letters that AppArmor would take for a pattern (apparmor.d(5), "Globbing").
        if "*?[]{}^\"\\".contains(letter) {
            path.push('\\');
        }
        path.push(letter);
    }
    format!(
        "abi <abi/4.0>,\ninclude <tunables/global>\n\n\
         profile longshore \"{path}\" flags=(unconfined) {{\n  userns,\n\n  \
         include if exists <local/longshore>\n}}\n"
    )
}

pub(crate) fn administrator(text: impl Into<String>, commands: &[&str]) -> Remedy {
    remedy(Who::Administrator, text, commands)
}

pub(crate) fn remedy(who: Who, text: impl Into<String>, commands: &[&str]) -> Remedy {
    Remedy {
        who,
        text: text.into(),
        commands: commands.iter().map(|&command| command.to_owned()).collect(),
    }
}

const EPERM: i32 = rustix::io::Errno::PERM.raw_os_error();
const EACCES: i32 = rustix::io::Errno::ACCESS.raw_os_error();
const ENOSPC: i32 = rustix::io::Errno::NOSPC.raw_os_error();
const EUSERS: i32 = rustix::io::Errno::USERS.raw_os_error();
const ENOENT: i32 = rustix::io::Errno::NOENT.raw_os_error();
const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();
const ENOSYS: i32 = rustix::io::Errno::NOSYS.raw_os_error();
const ENODEV: i32 = rustix::io::Errno::NODEV.raw_os_error();

const LIMIT_FILE: &str = "/proc/sys/user/max_user_namespaces";

/// Explains a refused step on the way to a user and mount namespace.
pub(crate) fn userns(node: &Node, step: Step, number: i32) -> Refusal {
    let limit: Option<i64> = node.number(LIMIT_FILE);
    match number {
        ENOSPC | EUSERS if limit == Some(0) => limit_zero("user.max_user_namespaces"),
        ENOSPC if node.number::<i64>("/proc/sys/user/max_mnt_namespaces") == Some(0) => {
            limit_zero("user.max_mnt_namespaces")
        }
        ENOSPC | EUSERS => Refusal {
            reason: Reason::NamespaceLimitReached,
            detail: format!(
                "no further user namespace may be made: {} are allowed, at most 32 inside each other",
                limit.map_or_else(|| "so many".to_owned(), |limit| limit.to_string()),
            ),
            remedy: administrator(
                "end processes that hold namespaces (`lsns -t user` lists them), or have user.max_user_namespaces raised",
                &["sysctl -w user.max_user_namespaces=65536"],
            ),
        },
        EINVAL if step == Step::UserNamespace && limit.is_none() => Refusal {
            reason: Reason::NoKernelSupport,
            detail: "this kernel has no user namespaces".to_owned(),
            remedy: administrator(
                "boot a kernel with CONFIG_USER_NS=y (RHEL 7: the boot parameter user_namespace.enable=1)",
                &[],
            ),
        },
        ENOENT if step == Step::IdMaps => Refusal {
            reason: Reason::NoProc,
            detail: "/proc is not mounted here, and a user namespace is set up through it"
                .to_owned(),
            remedy: administrator("mount /proc", &["mount -t proc proc /proc"]),
        },
        EPERM | EACCES | ENOSYS => forbidden(node, step, number),
        _ => other(step, number),
    }
}

/// Explains a refused step that makes further namespaces too.
fn namespaces(node: &Node, kinds: &[&str], number: i32) -> Refusal {
    let forbidden = |kind: &&str| {
        node.number::<i64>(format!("/proc/sys/user/max_{kind}_namespaces")) == Some(0)
    };
    match kinds.iter().copied().find(forbidden) {
        Some(kind) if number == ENOSPC => limit_zero(&format!("user.max_{kind}_namespaces")),
        _ => userns(node, Step::UserNamespace, number),
    }
}

fn limit_zero(sysctl: &str) -> Refusal {
    let kind = match sysctl {
        "user.max_user_namespaces" => "user namespaces",
        "user.max_mnt_namespaces" => "mount namespaces",
        "user.max_net_namespaces" => "network namespaces",
        _ => "such namespaces",
    };
    Refusal {
        reason: Reason::NamespaceLimitZero,
        detail: format!("{sysctl} is 0 on this node"),
        remedy: Remedy {
            who: Who::Administrator,
            text: format!("allow {kind} by setting {sysctl} on every node"),
            commands: vec![
                format!("sysctl -w {sysctl}=65536"),
                format!("echo {sysctl}=65536 > /etc/sysctl.d/90-longshore.conf"),
            ],
        },
    }
}

fn other(step: Step, number: i32) -> Refusal {
    Refusal {
        reason: Reason::Other,
        detail: format!("{} failed: {}", step_words(step), errno::describe(number)),
        remedy: administrator(
            "look into the kernel log for a message of this moment",
            &["dmesg | tail"],
        ),
    }
}

fn step_words(step: Step) -> &'static str {
    match step {
        Step::UserNamespace => "making a user namespace",
        Step::IdMaps => "writing the id maps of a user namespace",
        Step::MountNamespace => "making a mount namespace",
        Step::MakePrivate => "making the mounts private",
        Step::Tmpfs => "mounting a tmpfs",
        Step::Bind => "a bind mount",
        Step::OpenTree => "open_tree",
        Step::Overlay | Step::OverlayWhiteout => "mounting an overlay",
        Step::FuseMount | Step::OpenFuse => "mounting a FUSE file system",
        Step::ProcMount => "mounting a fresh /proc",
        Step::Pidfd => "pidfd_open",
        Step::IoUring => "io_uring_setup",
        Step::CrossMemory => "reading another process's memory",
        Step::OpenLoopControl => "opening /dev/loop-control",
    }
}

/// Sorts out which guard said "not permitted".
fn forbidden(node: &Node, step: Step, number: i32) -> Refusal {
    let unprivileged = node.observed.uid != 0;
    let first = step == Step::UserNamespace;
    let sysctl = |path: &str| node.number::<i64>(path);
    let status = node.text("/proc/self/status").unwrap_or_default();
    let filtered = nesting::status_number(&status, "Seccomp") == Some(2);
    let restricted =
        unprivileged && sysctl("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1);
    let label = nesting::label(node).unwrap_or_default();
    let confined = is_apparmor(node) && !label.is_empty() && !label.starts_with("unconfined");
    let table = mounts::parse(&node.text("/proc/self/mountinfo").unwrap_or_default());

    if first && unprivileged && sysctl("/proc/sys/kernel/unprivileged_userns_clone") == Some(0) {
        return Refusal {
            reason: Reason::Sysctl,
            detail: "kernel.unprivileged_userns_clone is 0 on this node".to_owned(),
            remedy: administrator(
                "allow ordinary users to make user namespaces by setting kernel.unprivileged_userns_clone=1",
                &[
                    "sysctl -w kernel.unprivileged_userns_clone=1",
                    "echo kernel.unprivileged_userns_clone=1 > /etc/sysctl.d/90-longshore.conf",
                ],
            ),
        };
    }
    if first && node.number::<i64>(LIMIT_FILE) == Some(0) {
        return limit_zero("user.max_user_namespaces");
    }
    if first && number == EPERM && nesting::chroot(node, &table) == Some(true) {
        return Refusal {
            reason: Reason::Chroot,
            detail: "this process runs in a chroot, where the kernel forbids user namespaces"
                .to_owned(),
            remedy: remedy(
                Who::Administrator,
                "enter the tree with pivot_root in a mount namespace instead of chroot (bubblewrap, systemd-nspawn and schroot's \"union\" types do)",
                &[
                    "unshare --mount sh -c 'mount --bind ROOT ROOT && cd ROOT && pivot_root . mnt && exec chroot . sh'",
                ],
            ),
        };
    }
    // AppArmor refuses the making with EACCES; a filter of a container says EPERM, or ENOSYS.
    if filtered
        && !(restricted && number == EACCES)
        && (first || !restricted)
        && (first || !confined)
    {
        return seccomp(first);
    }
    if restricted {
        return apparmor_restriction(node, step);
    }
    if number != ENOSYS && confined {
        return Refusal {
            reason: Reason::AppArmor,
            detail: format!("AppArmor profile {label} forbids {}", step_words(step)),
            remedy: administrator(
                "start the enclosing container without its AppArmor profile, or allow `userns` and `mount` in that profile",
                &["docker run --security-opt apparmor=unconfined …"],
            ),
        };
    }
    if number != ENOSYS
        && node.number::<u8>("/sys/fs/selinux/enforce") == Some(1)
        && (number == EACCES || !first)
    {
        return Refusal {
            reason: Reason::SeLinux,
            detail: format!(
                "SELinux forbids {} to {}",
                step_words(step),
                if label.is_empty() {
                    "this process"
                } else {
                    &label
                }
            ),
            remedy: administrator(
                "allow the class user_namespace (or the mount) for this domain; the audit log names the rule",
                &["ausearch -m avc -ts recent | audit2allow"],
            ),
        };
    }
    let unmapped =
        |file: &str, id: u32| node.text(file).is_some_and(|map| !nesting::maps(&map, id));
    if first
        && (unmapped("/proc/self/uid_map", node.observed.uid)
            || unmapped("/proc/self/gid_map", node.observed.gid))
    {
        return Refusal {
            reason: Reason::UnmappedId,
            detail: "the caller's user or group id does not exist in the present user namespace"
                .to_owned(),
            remedy: remedy(
                Who::User,
                "start the enclosing container with your own ids mapped (podman: --userns=keep-id)",
                &[],
            ),
        };
    }
    if filtered {
        return seccomp(first);
    }
    if first && number == EPERM {
        return Refusal {
            reason: Reason::Chroot,
            detail: "the kernel forbids a user namespace here, as it does in a chroot or under a security module".to_owned(),
            remedy: administrator(
                "see whether the session was put into a chroot (a build node, a jailed login), and which security modules are active",
                &["cat /sys/kernel/security/lsm"],
            ),
        };
    }
    other(step, number)
}

fn seccomp(first: bool) -> Refusal {
    let what = if first { "user namespaces" } else { "mounts" };
    Refusal {
        reason: Reason::Seccomp,
        detail: format!(
            "a seccomp filter forbids {what}: this process runs in a container or sandbox"
        ),
        remedy: remedy(
            Who::User,
            "start the enclosing container with a filter that allows unshare and mount",
            &[
                "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined …",
                "Kubernetes: securityContext.seccompProfile.type: Unconfined",
            ],
        ),
    }
}

fn apparmor_restriction(node: &Node, step: Step) -> Refusal {
    let program = &node.observed.program;
    let program = if program.as_os_str().is_empty() {
        PathBuf::from("/usr/local/bin/longshore")
    } else {
        program.clone()
    };
    let detail = if step == Step::UserNamespace {
        "AppArmor forbids user namespaces to programs without a profile (kernel.apparmor_restrict_unprivileged_userns is 1)".to_owned()
    } else {
        format!(
            "AppArmor lets user namespaces be made but takes all rights in them from programs without a profile (kernel.apparmor_restrict_unprivileged_userns is 1): {} was refused",
            step_words(step)
        )
    };
    Refusal {
        reason: Reason::AppArmor,
        detail,
        remedy: administrator(
            format!(
                "install an AppArmor profile for {}; `longshore doctor --apparmor-profile` prints it",
                program.display()
            ),
            &[
                "longshore doctor --apparmor-profile > /etc/apparmor.d/longshore",
                "apparmor_parser -r /etc/apparmor.d/longshore",
            ],
        ),
    }
}

fn is_apparmor(node: &Node) -> bool {
    node.text("/sys/module/apparmor/parameters/enabled")
        .as_deref()
        == Some("Y")
}

/// Explains a refused mount inside a user namespace.
pub(crate) fn mount(node: &Node, wish: MountWish, number: i32) -> Refusal {
    let release = node.text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let older = |major: u32, minor: u32| {
        kernel_version(&release).is_some_and(|version| version < (major, minor))
    };
    let old = |since: &str, text: &str| Refusal {
        reason: Reason::OldKernel,
        detail: format!("Linux {release} is older than {since}, the first that allows it to users"),
        remedy: remedy(Who::Nobody, text, &[]),
    };
    let step = match wish {
        MountWish::Bind => Step::Bind,
        MountWish::Tmpfs => Step::Tmpfs,
        MountWish::Overlay => Step::Overlay,
        MountWish::Fuse => Step::FuseMount,
        MountWish::Proc => Step::ProcMount,
    };
    match wish {
        MountWish::Overlay if older(5, 11) && number != ENOSYS => {
            old("5.11", "nothing: missing bind points are made on a tmpfs skeleton instead")
        }
        MountWish::Fuse if older(4, 18) => old("4.18", "nothing: images are unpacked instead of mounted"),
        MountWish::Overlay | MountWish::Fuse if number == ENODEV => Refusal {
            reason: Reason::NoKernelSupport,
            detail: format!("the kernel has no {} and could not load the module", if wish == MountWish::Overlay { "overlay file system" } else { "FUSE" }),
            remedy: administrator(
                "load the module at boot",
                &[if wish == MountWish::Overlay { "modprobe overlay" } else { "modprobe fuse" }],
            ),
        },
        MountWish::Proc if number == EPERM && nesting::derive(node).covered_proc => Refusal {
            reason: Reason::CoveredProc,
            detail: "parts of /proc are covered by the enclosing container, so a fresh one may not be mounted".to_owned(),
            remedy: remedy(
                Who::User,
                "start the enclosing container with an uncovered /proc, or do without --pid",
                &["podman run --security-opt unmask=ALL …", "docker run --security-opt systempaths=unconfined …"],
            ),
        },
        _ => userns(node, step, number),
    }
}

/// Major and minor number of a kernel release such as `4.18.0-553.el8_10.x86_64`.
pub(crate) fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|letter: char| !letter.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_explanation_always_has_words_and_a_remedy() {
        for number in 1..134 {
            let refusal = explain_userns_refusal(&["mnt"], number);
            assert!(!refusal.detail.is_empty() && !refusal.remedy.text.is_empty());
            assert!(!explain_id_map_refusal(number).detail.is_empty());
            for wish in [
                MountWish::Bind,
                MountWish::Tmpfs,
                MountWish::Overlay,
                MountWish::Fuse,
                MountWish::Proc,
            ] {
                assert!(!explain_mount_refusal(wish, number).detail.is_empty());
            }
        }
    }

    #[test]
    fn a_hint_is_one_line_with_cause_and_cure() {
        assert_eq!(
            limit_zero("user.max_user_namespaces").hint(),
            "user.max_user_namespaces is 0 on this node: ask the administrator to allow user namespaces by \
             setting user.max_user_namespaces on every node (`sysctl -w user.max_user_namespaces=65536`)"
        );
    }

    #[test]
    fn a_profile_names_the_path_and_no_pattern() {
        let profile = apparmor_profile(Path::new("/opt/my tools/{a}/longshore"));
        assert!(
            profile.contains(
                "profile longshore \"/opt/my tools/\\{a\\}/longshore\" flags=(unconfined)"
            )
        );
        assert!(profile.contains("  userns,\n"));
    }

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(kernel_version("4.18.0-553.el8_10.x86_64"), Some((4, 18)));
        assert_eq!(kernel_version("6.18"), Some((6, 18)));
        assert_eq!(kernel_version("x"), None);
    }
}
