//! Children that are measured, and that do not outlive us.
//!
//! The standard library starts and reaps children but gives no resource usage, lets them live on
//! when the parent is killed, and cannot wait for a child and a signal at once.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

/// What a finished child and its reaped descendants used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Status as wait(2) gives it.
    pub status: i32,
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Largest resident set of any one of them, in bytes.
    pub peak_bytes: u64,
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The child has ended; it is reaped by [`reap`].
    Child,
    /// One of the held signals came.
    Signal(i32),
    /// The time was up.
    Timeout,
}

/// Holds SIGINT, SIGTERM and SIGHUP back for as long as it lives, to be asked for.
pub struct HeldSignals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

fn held() -> libc::sigset_t {
    // SAFETY: sigemptyset initialises the set before it is read; sigaddset gets a valid set and
    // signal numbers that exist, so none of them can fail.
    unsafe {
        let mut set = std::mem::MaybeUninit::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

impl HeldSignals {
    /// Starts holding them back in the calling thread.
    ///
    /// # Errors
    ///
    /// Where the kernel refuses a signal descriptor.
    pub fn hold() -> io::Result<HeldSignals> {
        let set = held();
        let mut before = std::mem::MaybeUninit::uninit();
        // SAFETY: both sets are valid for the call, and `before` is written where it succeeds.
        let before = unsafe {
            if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, before.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            before.assume_init()
        };
        // SAFETY: both sets are valid; the descriptor returned is ours alone.
        let fd = unsafe {
            let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                let error = io::Error::last_os_error();
                libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
                return Err(error);
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(HeldSignals { fd, before })
    }

    /// The signal that came, if one did.
    pub fn pending(&self) -> Option<i32> {
        // SAFETY: an all-zero signalfd_siginfo is a valid value of that plain C structure.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer is as long as said and lives through the call.
        let read = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), size) };
        (read == size as isize).then_some(info.ssi_signo as i32)
    }

    /// Waits for the end of a child, a held signal, or until the time is up.
    ///
    /// # Errors
    ///
    /// Where the kernel cannot watch the child (before Linux 5.3).
    pub fn wait(&self, child: &Child, limit: Option<Duration>) -> io::Result<Ended> {
        let pid = child.id() as libc::pid_t;
        // SAFETY: pidfd_open takes plain integers; the descriptor returned is ours alone.
        let watched = unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd as i32)
        };
        let mut fds = [watched.as_raw_fd(), self.fd.as_raw_fd()].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        let limit_ms = limit.map_or(-1, |limit| {
            i32::try_from(limit.as_millis()).unwrap_or(i32::MAX)
        });
        loop {
            // SAFETY: the array lives through the call and its length is the one given.
            let ready = unsafe { libc::poll(fds.as_mut_ptr(), 2, limit_ms) };
            if ready < 0 {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            } else if ready == 0 {
                return Ok(Ended::Timeout);
            } else if fds[0].revents != 0 {
                return Ok(Ended::Child);
            } else if let Some(signal) = self.pending() {
                return Ok(Ended::Signal(signal));
            }
        }
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        // SAFETY: `before` is the mask that sigprocmask gave when the hold began.
        unsafe {
            libc::sigprocmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            );
        }
    }
}

/// Makes the command's process die with us, whatever ends us, and lets it have its signals.
///
/// The kernel forgets the order when the child executes a set-user-id program (prctl(2),
/// "PR_SET_PDEATHSIG"), and it is about the thread that starts the child.
pub fn die_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let set = held();
    // SAFETY: between fork and exec the closure makes only system calls that are safe there
    // (signal-safety(7)): prctl, getppid, sigprocmask.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have died before the order was given.
            if libc::getppid() as u32 != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
            Ok(())
        });
    }
}

/// Waits for a child to end and gives what it and its descendants used.
///
/// Descendants count where they were reaped by their own parents; one that still runs, such as a
/// file-system server in the background, does not.
///
/// # Errors
///
/// Where the child was reaped already.
pub fn reap(child: Child) -> io::Result<Usage> {
    let pid = child.id() as libc::pid_t;
    let mut status = 0;
    // SAFETY: an all-zero rusage is a valid value of that plain C structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are valid for the call. The handle is consumed by this function, so
        // nothing can wait for a later process of the same number.
        if unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } == pid {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let time = |time: libc::timeval| {
        Duration::new(
            time.tv_sec.max(0) as u64,
            time.tv_usec.clamp(0, 999_999) as u32 * 1000,
        )
    };
    Ok(Usage {
        status,
        user: time(usage.ru_utime),
        system: time(usage.ru_stime),
        peak_bytes: usage.ru_maxrss.max(0) as u64 * 1024,
    })
}

/// The largest resident set that this process has had, in bytes.
///
/// A child starts as a copy of its parent, and the kernel keeps the larger of the two sizes for it
/// through exec: a [`Usage::peak_bytes`] that is not above this tells nothing about the child.
pub fn own_peak_bytes() -> u64 {
    // SAFETY: an all-zero rusage is a valid value of that plain C structure; the call fills it and
    // cannot fail for RUSAGE_SELF and a valid pointer.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    usage.ru_maxrss.max(0) as u64 * 1024
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn the_usage_of_a_child_holds_its_status_time_and_memory() {
        let child = shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 7")
            .spawn()
            .expect("a shell starts");
        let usage = reap(child).expect("is ours");
        assert_eq!(ExitStatus::from_raw(usage.status).code(), Some(7));
        assert!(usage.user + usage.system > Duration::from_micros(100));
        assert!(usage.peak_bytes > 100 * 1024);
    }

    #[test]
    fn a_wait_ends_with_the_time_or_with_the_child() {
        let signals = HeldSignals::hold().expect("can be held");
        let mut command = shell("exec sleep 60");
        die_with_parent(&mut command);
        let mut child = command.spawn().expect("a shell starts");
        let limit = Some(Duration::from_millis(1));
        assert_eq!(
            signals.wait(&child, limit).expect("watched"),
            Ended::Timeout
        );
        child.kill().expect("is ours");
        assert_eq!(signals.wait(&child, None).expect("watched"), Ended::Child);
        reap(child).expect("is ours");
    }

    #[test]
    fn a_child_does_not_inherit_the_held_signals() {
        let _signals = HeldSignals::hold().expect("can be held");
        let mut command = shell("kill -TERM $$; exit 0");
        die_with_parent(&mut command);
        let usage = reap(command.spawn().expect("a shell starts")).expect("is ours");
        assert_eq!(
            ExitStatus::from_raw(usage.status).signal(),
            Some(libc::SIGTERM)
        );
    }
}
