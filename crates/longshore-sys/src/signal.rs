//! Holding signals back, waiting for them, dying of them.

use std::io;
use std::mem::MaybeUninit;

/// A set of blocked signals.
#[derive(Clone, Copy)]
pub struct Mask(libc::sigset_t);

impl Default for Mask {
    /// No signal is blocked.
    fn default() -> Mask {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set that it is given.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            Mask(set.assume_init())
        }
    }
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mask")
    }
}

impl Mask {
    /// Makes this the mask of the calling thread.
    ///
    /// # Errors
    ///
    /// None that the kernel is known to give.
    pub fn restore(&self) -> io::Result<()> {
        // SAFETY: the set is initialised; no old set is asked for.
        let code = unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
        if code == 0 {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(code))
        }
    }
}

/// Blocks every signal that can be blocked and gives the mask that was there before.
///
/// # Errors
///
/// None that the kernel is known to give.
pub fn block_all() -> io::Result<Mask> {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: sigfillset initialises the set; the kernel fills in the old one.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        let code = libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code));
        }
        Ok(Mask(before.assume_init()))
    }
}

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its number.
    pub number: i32,
    /// Whether a process sent it, rather than the kernel (terminal, timer, fault).
    pub sent_by_process: bool,
}

/// Waits for any signal, all of which must be blocked.
///
/// # Errors
///
/// None that the kernel is known to give; an interruption is tried again.
pub fn wait() -> io::Result<Arrived> {
    let mut all = MaybeUninit::uninit();
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::uninit();
        // SAFETY: sigfillset initialises the set; the kernel fills in the information.
        let number = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::sigwaitinfo(all.as_ptr(), info.as_mut_ptr())
        };
        if number > 0 {
            // SAFETY: a positive answer means that the information was filled in.
            let info = unsafe { info.assume_init() };
            return Ok(Arrived {
                number,
                sent_by_process: info.si_code <= 0,
            });
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Sends a signal to a process (kill(2)).
///
/// # Errors
///
/// `ESRCH` where it is gone, `EPERM` where it belongs to somebody else.
pub fn send(process: i32, number: i32) -> io::Result<()> {
    assert!(process > 0, "groups of processes are never meant here");
    // SAFETY: two numbers.
    if unsafe { libc::kill(process, number) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Stops this process until it is continued, as the terminal's stop key would.
pub fn stop_here() {
    // SAFETY: two numbers. SIGSTOP cannot be blocked or handled.
    unsafe {
        libc::kill(libc::getpid(), libc::SIGSTOP);
    }
}

/// Ends this process by the signal that ended its child, so that its parent sees the same.
///
/// Leaves no core file of its own: the child's is the one that matters.
pub fn die_of(number: i32) -> ! {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limit and the set outlive their calls; the default action needs no handler.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::signal(number, libc::SIG_DFL);
        let _ = Mask::default().restore();
        libc::kill(libc::getpid(), number);
        // Signals that do not kill by default end here.
        libc::_exit(128 + number)
    }
}
