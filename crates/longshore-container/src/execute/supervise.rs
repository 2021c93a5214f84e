//! Watching over the program: signals are passed on, stops are shared, orphans are reaped.

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;

use longshore_sys::{process, signal};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use super::{Outcome, StartError, failed};

/// Where the watcher is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Outside, where the caller's shell sees it.
    Outside,
    /// The first process of the container: it also reaps what others leave behind.
    FirstProcess,
}

const CHILD: i32 = Signal::CHILD.as_raw();
const STOP_FROM_TERMINAL: i32 = Signal::TSTP.as_raw();
const CONTINUE: i32 = Signal::CONT.as_raw();
const READ_IN_BACKGROUND: i32 = Signal::TTIN.as_raw();
const WRITE_IN_BACKGROUND: i32 = Signal::TTOU.as_raw();

/// Watches `child` until it ends; all signals must be blocked.
///
/// The child shares the process group of the watcher, so what the terminal sends has reached it
/// already; what a process sends to the watcher is passed on.
pub(super) fn supervise(child: i32, role: Role) -> Result<Outcome, StartError> {
    loop {
        if let Some(outcome) = reap(child, role)? {
            return Ok(outcome);
        }
        let arrived = signal::wait().map_err(failed("sigwaitinfo", "wait for a signal"))?;
        match arrived.number {
            CHILD => {}
            // The terminal's own signals go to the whole group; only the stop concerns the
            // watcher, whose shell waits for it to stop.
            STOP_FROM_TERMINAL | READ_IN_BACKGROUND | WRITE_IN_BACKGROUND => {
                if arrived.sent_by_process {
                    pass_on(child, arrived.number);
                }
                if role == Role::Outside {
                    signal::stop_here();
                }
            }
            number if arrived.sent_by_process => pass_on(child, number),
            _ => {}
        }
    }
}

fn pass_on(child: i32, number: i32) {
    // It may have ended in this moment; the next look tells.
    let _ = signal::send(child, number);
}

fn reap(child: i32, role: Role) -> Result<Option<Outcome>, StartError> {
    let whom = match role {
        Role::Outside => Pid::from_raw(child),
        Role::FirstProcess => None,
    };
    loop {
        let waited = match whom {
            Some(pid) => {
                rustix::process::waitpid(Some(pid), WaitOptions::NOHANG | WaitOptions::UNTRACED)
            }
            None => rustix::process::wait(WaitOptions::NOHANG),
        };
        let (pid, status) = match waited {
            Ok(Some(waited)) => waited,
            Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(None),
            Err(error) => return Err(failed("waitpid", "wait for the program")(error)),
        };
        if pid.as_raw_nonzero().get() != child {
            continue;
        }
        if status.stopped() {
            signal::stop_here();
            pass_on(child, CONTINUE);
            continue;
        }
        if let Some(outcome) = outcome(status) {
            return Ok(Some(outcome));
        }
    }
}

fn outcome(status: WaitStatus) -> Option<Outcome> {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Some(Outcome::Exited(
            u8::try_from(code & 0xff).unwrap_or(u8::MAX),
        )),
        (None, Some(number)) => Some(Outcome::Killed(number)),
        (None, None) => None,
    }
}

/// The first process of a namespace cannot die of a signal, so it reports how the program ended.
pub(super) fn report(to: OwnedFd, outcome: Outcome) -> ! {
    let (words, status) = match outcome {
        Outcome::Exited(code) => ([0, code], i32::from(code)),
        Outcome::Killed(number) => ([1, u8::try_from(number).unwrap_or(u8::MAX)], 128 + number),
    };
    // If nobody reads, the exit status has to do.
    let _ = std::fs::File::from(to).write_all(&words);
    process::exit_now(status)
}

pub(super) fn reported(from: OwnedFd) -> Option<Outcome> {
    let mut words = [0; 2];
    std::fs::File::from(from).read_exact(&mut words).ok()?;
    Some(match words {
        [0, code] => Outcome::Exited(code),
        [_, number] => Outcome::Killed(number.into()),
    })
}

/// A container whose watcher was killed has nobody left to answer to.
pub(super) fn die_with_parent() -> Result<(), StartError> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(failed("prctl", "end with the process outside"))
}
