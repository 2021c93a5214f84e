//! Filters of system calls, as containers and sandboxes install them (seccomp(2)).
//!
//! Longshore filters nothing. Its tests start it under such filters, because that is how many nodes
//! and every build farm run programs.

use std::io;

/// System calls that a filter refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The system call's number (`libc::SYS_*`).
    pub call: i64,
    /// Only calls with this value of the argument of this index (from 0) are meant.
    pub argument: Option<(usize, u32)>,
}

impl Refused {
    /// New namespaces, by the call that Longshore makes them with.
    pub const NAMESPACES: [Refused; 1] = [Refused::every(libc::SYS_unshare)];
    /// Every mount by the calls that Longshore makes them with.
    pub const MOUNTS: [Refused; 3] = [
        Refused::every(libc::SYS_mount),
        Refused::every(libc::SYS_fsopen),
        Refused::every(libc::SYS_move_mount),
    ];
    /// The making of file systems with an option that takes no value: an overlay for users needs
    /// `userxattr`, and nothing else that Longshore makes has one. The kind of a file system is
    /// behind a pointer, where filters cannot look.
    pub const OVERLAYS: [Refused; 1] = [Refused {
        call: libc::SYS_fsconfig,
        argument: Some((1, 0)),
    }];

    const fn every(call: i64) -> Refused {
        Refused {
            call,
            argument: None,
        }
    }
}

/// Makes the kernel refuse these calls to the calling thread, and to all that it starts from now on,
/// with this error number; new privileges are ruled out too, as the kernel demands of users.
///
/// # Errors
///
/// `EINVAL` where the kernel has no such filters.
pub fn refuse(refused: &[Refused], errno: u16) -> io::Result<()> {
    let program = program(refused, errno);
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let filter = libc::sock_fprog {
        len: length,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: numbers, and a filter that outlives the call; the kernel copies and checks it.
    unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const filter,
            ) != 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The filter as the kernel's packet filter takes it (bpf(4), `linux/seccomp.h`).
fn program(refused: &[Refused], errno: u16) -> Vec<libc::sock_filter> {
    const NUMBER: u32 = 0;
    const ARGUMENTS: u32 = 16;
    let load = |at: u32| instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, at);
    let unless_equal = |skip: u8, value: u32| {
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, skip, value)
    };
    let answer = |value: u32| instruction(libc::BPF_RET | libc::BPF_K, 0, value);
    let mut program = Vec::new();
    for Refused { call, argument } in refused {
        program.push(load(NUMBER));
        let number = u32::try_from(*call).expect("numbers of system calls are small");
        program.push(unless_equal(if argument.is_some() { 3 } else { 1 }, number));
        if let Some((index, value)) = argument {
            let index = u32::try_from(*index).expect("there are six arguments");
            // The lower half of 64 bits comes first on every machine that Longshore is built for.
            program.push(load(ARGUMENTS + 8 * index));
            program.push(unless_equal(1, *value));
        }
        program.push(answer(libc::SECCOMP_RET_ERRNO | u32::from(errno)));
    }
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    program
}

fn instruction(code: u32, otherwise: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: u16::try_from(code).expect("codes have 16 bits"),
        jt: 0,
        jf: otherwise,
        k,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_calls_that_are_meant_are_refused_and_only_here() {
        let dup = || rustix::io::dup(rustix::stdio::stdin());
        let duplicate = || rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 5);
        let refused = [
            Refused::every(libc::SYS_dup),
            Refused {
                call: libc::SYS_fcntl,
                argument: Some((1, libc::F_DUPFD_CLOEXEC.cast_unsigned())),
            },
        ];
        std::thread::spawn(move || {
            refuse(&refused, 13).expect("this kernel has filters");
            assert_eq!(dup().map(drop), Err(rustix::io::Errno::ACCESS));
            assert_eq!(duplicate().map(drop), Err(rustix::io::Errno::ACCESS));
            assert!(rustix::io::fcntl_getfd(rustix::stdio::stdin()).is_ok());
        })
        .join()
        .expect("the thread's checks hold");
        assert!(dup().is_ok() && duplicate().is_ok());
    }
}
