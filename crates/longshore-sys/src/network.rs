//! The loopback device of a new network namespace.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Brings `lo` up in the network namespace of this process.
///
/// # Errors
///
/// `EPERM` without the capability to administer this network namespace.
pub fn bring_loopback_up() -> io::Result<()> {
    // SAFETY: no pointers; the result is checked before it is owned.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened here and belongs to nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: `ifreq` is plain data, for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *place = byte.cast_signed() as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request outlives the call and its name ends with NUL.
    if unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFFLAGS as _,
            &raw const request,
        )
    } == 0
    {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
