//! This process: its dispositions, its children, its replacement by another program.

use std::convert::Infallible;
use std::ffi::{CStr, CString, c_char};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether SIGPIPE was ignored when this process was started.
static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);

/// Rust's runtime sets SIGPIPE to "ignore" before `main`, and stable Rust has no way to keep it from
/// that (`-Zon-broken-pipe` is not stable). What the caller had set can be seen only earlier: by the
/// C library's call of the functions in this section, as the runtime itself comes to its arguments.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_THE_RUNTIME: extern "C" fn() = {
    extern "C" fn look_at_sigpipe() {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: no new action is given, and the kernel fills the old one in before it is looked at.
        // Nothing here needs the runtime: no allocation, no panic, no output.
        unsafe {
            if libc::sigaction(libc::SIGPIPE, std::ptr::null(), action.as_mut_ptr()) == 0 {
                let ignored = action.assume_init().sa_sigaction == libc::SIG_IGN;
                SIGPIPE_IGNORED.store(ignored, Ordering::Relaxed);
            }
        }
    }
    look_at_sigpipe
};

/// Sets SIGPIPE back to what it was when this process was started: the Rust runtime has changed it
/// to "ignore".
///
/// A command whose reader has gone (`longshore images | head`) then ends quietly, and a program
/// that is started in a container finds what its caller left it: some services ignore the signal on
/// purpose, and shells pass that on (`trap '' PIPE`).
pub fn restore_sigpipe() {
    if !SIGPIPE_IGNORED.load(Ordering::Relaxed) {
        // SAFETY: SIG_DFL installs no handler, so no code of ours can run in signal context.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        }
    }
}

/// Which side of a [`fork`] this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    /// The process that called, with the id of its new child.
    Parent(i32),
    /// The new process.
    Child,
}

/// Duplicates this process (fork(2)).
///
/// # Errors
///
/// `EAGAIN` where the number of processes is limited, `ENOMEM` also where the first process of
/// this pid namespace has ended.
///
/// # Panics
///
/// Where this process has threads: their locks would stay locked in the child for ever.
pub fn fork() -> io::Result<Fork> {
    assert!(
        is_single_threaded(),
        "a process with threads may not fork without exec"
    );
    // SAFETY: there is one thread, so the child's copy of the memory is consistent.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        child => Ok(Fork::Parent(child)),
    }
}

fn is_single_threaded() -> bool {
    // A directory has one link for each subdirectory and two of its own.
    std::fs::metadata("/proc/self/task")
        .map(|tasks| std::os::unix::fs::MetadataExt::nlink(&tasks) <= 3)
        .unwrap_or(true)
}

/// Replaces this process by `program` (execve(2)); returns only on failure.
///
/// # Errors
///
/// Whatever the kernel says: `ENOENT`, `EACCES`, `ENOEXEC`, `E2BIG`.
pub fn replace(
    program: &CStr,
    arguments: &[CString],
    environment: &[CString],
) -> io::Result<Infallible> {
    let pointers = |strings: &[CString]| -> Vec<*const c_char> {
        strings
            .iter()
            .map(|string| string.as_ptr())
            .chain([std::ptr::null()])
            .collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: both lists end with a null pointer and hold pointers to strings that end with NUL
    // and live in the caller's slices.
    unsafe {
        libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr());
    }
    Err(io::Error::last_os_error())
}

/// Ends this process at once, without running anything of the runtime's (_exit(2)).
pub fn exit_now(status: i32) -> ! {
    // SAFETY: takes a number and does not return.
    unsafe { libc::_exit(status) }
}

/// Closes every descriptor but the first three and these (close_range(2), Linux 5.9).
///
/// For processes that stay when their caller has gone, and would otherwise hold its files, pipes
/// and locks open. Whoever still has an owner of another descriptor must never use or drop it: the
/// process ends by [`exit_now`] or [`replace`].
///
/// # Errors
///
/// `ENOSYS` before Linux 5.9.
pub fn close_all_but(kept: &[BorrowedFd<'_>]) -> io::Result<()> {
    for_all_but(kept, 0)
}

/// Makes execve(2) close every descriptor but the first three and these (close_range(2), Linux 5.11).
///
/// These are left as they are.
///
/// # Errors
///
/// `EINVAL` before Linux 5.11.
pub fn close_all_on_exec_but(kept: &[BorrowedFd<'_>]) -> io::Result<()> {
    for_all_but(kept, libc::CLOSE_RANGE_CLOEXEC)
}

fn for_all_but(kept: &[BorrowedFd<'_>], flags: libc::c_uint) -> io::Result<()> {
    let mut kept: Vec<u32> = kept
        .iter()
        .map(|fd| fd.as_raw_fd().cast_unsigned())
        .collect();
    kept.sort_unstable();
    let mut first = 3;
    for fd in kept {
        if first < fd {
            close_range(first, fd - 1, flags)?;
        }
        first = first.max(fd + 1);
    }
    close_range(first, u32::MAX, flags)
}

fn close_range(first: u32, last: u32, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: numbers only; what it means for owners of descriptors is the promise of the caller
    // of close_all_but.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
