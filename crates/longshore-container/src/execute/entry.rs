//! Into the namespaces: new ones, the ids of their users, the host name, the loopback device.

use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use longshore_host::Reason;
use longshore_sys::namespace::{self, Namespaces};
use longshore_sys::process::{self, Fork};
use rustix::io::Errno;
use rustix::mount::MountPropagationFlags;

use crate::facts::IdRanges;
use crate::plan::{Mapping, PlannedNamespaces, RunPlan};

use super::{StartError, failed, failed_with_hint, known};

pub(super) fn enter(plan: &RunPlan) -> Result<(), StartError> {
    let planned = &plan.namespaces;
    let namespaces = Namespaces {
        user: planned.user,
        mount: true,
        pid: planned.pid,
        ipc: planned.ipc,
        net: planned.net,
        uts: planned.uts,
    };
    let what = if planned.user {
        "create a user namespace"
    } else {
        "create a mount namespace"
    };
    let unshare = || {
        namespace::unshare(namespaces).map_err(failed_with_hint("unshare", what, |error| {
            namespace_hint(error, planned)
        }))
    };
    match &plan.identity.mapping {
        Mapping::None => {
            unshare()?;
            // Mounts of a namespace that root makes would show up outside.
            rustix::mount::mount_change(
                "/",
                MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC,
            )
            .map_err(failed("mount", "keep mounts inside of the container"))?;
        }
        &Mapping::Single {
            outside_uid,
            outside_gid,
        } => {
            unshare()?;
            let identity = &plan.identity;
            write_map("setgroups", "deny")?;
            write_map("uid_map", &format!("{} {outside_uid} 1\n", identity.uid))?;
            write_map("gid_map", &format!("{} {outside_gid} 1\n", identity.gid))?;
        }
        Mapping::Ranges {
            outside_uid,
            outside_gid,
            ranges,
        } => {
            let mapper = Mapper::fork(*outside_uid, *outside_gid, ranges)?;
            unshare()?;
            mapper.finish()?;
            become_mapped_root()?;
        }
    }
    if let Some(name) = &planned.hostname {
        rustix::system::sethostname(name.as_bytes()).map_err(failed(
            "sethostname",
            format!("name the container `{name}`"),
        ))?;
    }
    if planned.net {
        longshore_sys::network::bring_loopback_up()
            .map_err(failed("ioctl SIOCSIFFLAGS", "bring the loopback device up"))?;
    }
    Ok(())
}

/// With a mapping of the caller's own id nothing changes; with ranges the process is root inside
/// already, because its id is mapped to 0, but it keeps groups that are not mapped.
fn become_mapped_root() -> Result<(), StartError> {
    use rustix::process::{Gid, Uid};
    rustix::thread::set_thread_groups(&[])
        .map_err(failed("setgroups", "leave the groups outside"))?;
    rustix::thread::set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)
        .map_err(failed("setresgid", "become root's group inside"))?;
    rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)
        .map_err(failed("setresuid", "become root inside"))
}

fn write_map(name: &str, text: &str) -> Result<(), StartError> {
    let path = format!("/proc/self/{name}");
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(failed_with_hint(
            "write",
            format!("map ids: write `{}` to {path}", text.trim_end()),
            |error| {
                known(&longshore_host::explain_id_map_refusal(
                    error.raw_os_error()?,
                ))
            },
        ))
}

/// What a refusal of unshare(2) means on the systems that are known to refuse.
fn namespace_hint(error: &io::Error, planned: &PlannedNamespaces) -> Option<String> {
    let number = error.raw_os_error()?;
    // Root may be without the one capability that counts.
    if !planned.user && Errno::from_raw_os_error(number) == Errno::PERM {
        return Some(
            "root without CAP_SYS_ADMIN cannot make mounts; `--userns` may be allowed".to_owned(),
        );
    }
    let kinds: Vec<&str> = [
        ("mnt", true),
        ("pid", planned.pid),
        ("ipc", planned.ipc),
        ("net", planned.net),
        ("uts", planned.uts),
    ]
    .iter()
    .filter_map(|&(kind, made)| made.then_some(kind))
    .collect();
    let refusal = longshore_host::explain_userns_refusal(&kinds, number);
    match refusal.reason {
        // The limit of user namespaces is none of root's concern.
        Reason::NamespaceLimitReached if !planned.user => None,
        _ => known(&refusal),
    }
    .map(|hint| format!("{hint}; `longshore doctor` shows what works here"))
    .or_else(|| Some("`longshore doctor` shows what works here".to_owned()))
}

/// A process outside that maps ranges of ids by the system's own helpers: they need a user
/// namespace to be there, and privileges that nobody has inside of it.
struct Mapper {
    start: OwnedFd,
    answers: OwnedFd,
    process: i32,
}

impl Mapper {
    fn fork(uid: u32, gid: u32, ranges: &IdRanges) -> Result<Mapper, StartError> {
        let pipe = || {
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
                .map_err(failed("pipe2", "make a pipe"))
        };
        let (go, start) = pipe()?;
        let (answers, answer) = pipe()?;
        let target = rustix::process::getpid().as_raw_nonzero().get();
        match process::fork().map_err(failed("fork", "make a process that maps ids"))? {
            Fork::Parent(process) => Ok(Mapper {
                start,
                answers,
                process,
            }),
            Fork::Child => {
                drop((start, answers));
                let mut answer = std::fs::File::from(answer);
                let mut word = [0];
                // An end without the word means that there is nothing to map.
                if std::fs::File::from(go).read_exact(&mut word).is_ok()
                    && let Err(problem) = map_ranges(target, uid, gid, ranges)
                {
                    let _ = answer.write_all(problem.as_bytes());
                }
                process::exit_now(0)
            }
        }
    }

    fn finish(self) -> Result<(), StartError> {
        let doing = "map ids by newuidmap and newgidmap";
        std::fs::File::from(self.start)
            .write_all(b"1")
            .map_err(failed("write", doing))?;
        let mut problem = String::new();
        std::fs::File::from(self.answers)
            .read_to_string(&mut problem)
            .map_err(failed("read", doing))?;
        let child = rustix::process::Pid::from_raw(self.process);
        rustix::process::waitpid(child, rustix::process::WaitOptions::empty())
            .map_err(failed("waitpid", doing))?;
        if problem.is_empty() {
            return Ok(());
        }
        Err(StartError::Call {
            call: "newuidmap",
            doing: "map the ids of /etc/subuid and /etc/subgid".to_owned(),
            hint: Some(
                "the helpers must be set-user-ID root or have file capabilities (package `uidmap`)"
                    .into(),
            ),
            source: io::Error::other(problem),
        })
    }
}

fn map_ranges(target: i32, uid: u32, gid: u32, ranges: &IdRanges) -> Result<(), String> {
    for (helper, own, (first, count)) in [
        (&ranges.newuidmap, uid, ranges.uids),
        (&ranges.newgidmap, gid, ranges.gids),
    ] {
        let words: Vec<String> = [
            i64::from(target),
            0,
            own.into(),
            1,
            1,
            first.into(),
            count.into(),
        ]
        .iter()
        .map(ToString::to_string)
        .collect();
        let output = Command::new(helper)
            .args(&words)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("{}: {error}", helper.display()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{} failed: {}", helper.display(), said.trim()));
        }
    }
    Ok(())
}
