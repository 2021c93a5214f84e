//! This process: its dispositions, its children, its replacement by another program.

use std::convert::Infallible;
use std::ffi::{CStr, CString, c_char};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Defines the program's `main` as the C library calls it, without the Rust runtime's part before it.
///
/// `$start` is a function without arguments that gives the exit status as `u8`.
///
/// The runtime would set SIGPIPE to "ignore", which the program of a container inherits, and what the
/// caller had set could not be told any more: some services ignore the signal on purpose, and
/// shells pass that on (`trap '' PIPE`). It would also read `/proc/self/maps` and install handlers that
/// tell of an overflowing stack, which is 3 % of a container start. What it does for safety is done
/// here: descriptors 0 to 2 are never left free for a file to be opened as.
#[macro_export]
macro_rules! c_main {
    ($start:path) => {
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        extern "C" fn main() -> i32 {
            $crate::process::open_standard_descriptors();
            i32::from($start())
        }
    };
}

/// Opens `/dev/null` in the place of each standard descriptor that the caller has closed.
///
/// A file that came to be descriptor 2 would get our messages written into it.
pub fn open_standard_descriptors() {
    let mut ends = [0, 1, 2].map(|fd| libc::pollfd {
        fd,
        events: 0,
        revents: 0,
    });
    // SAFETY: the array outlives the call; open takes a constant, and abort nothing.
    unsafe {
        if libc::poll(ends.as_mut_ptr(), 3, 0) < 1 {
            return;
        }
        for end in ends {
            // The lowest free number is given, so that they come in order.
            if end.revents & libc::POLLNVAL != 0
                && libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) == -1
            {
                libc::abort();
            }
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
