//! Asks the kernel, in a forked child, what it would let this process do.
//!
//! A sysctl says what should be allowed; only the call itself says what is. Each step is made for
//! real in a child that ends afterwards, so nothing of it is left behind: its namespaces, and every
//! mount in them, go when it goes.

use std::ffi::{CStr, CString};
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr;
use std::time::{Duration, Instant};

/// How long the child may take; a mount that hangs must not hang its asker.
const PATIENCE: Duration = Duration::from_secs(2);

/// One thing that is tried, in the order in which it is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Step {
    /// `pidfd_open` of the own process.
    Pidfd = 1,
    /// `io_uring_setup` with one entry.
    IoUring,
    /// `process_vm_readv` of the parent's memory, as one rank reads from another.
    CrossMemory,
    /// Opening `/dev/fuse` for reading and writing.
    OpenFuse,
    /// Opening `/dev/loop-control` for reading and writing.
    OpenLoopControl,
    /// `unshare(CLONE_NEWUSER)`.
    UserNamespace,
    /// Denying setgroups and writing the map of the own uid and gid.
    IdMaps,
    /// `unshare(CLONE_NEWNS)` inside the user namespace.
    MountNamespace,
    /// Making every mount private.
    MakePrivate,
    /// Mounting a tmpfs.
    Tmpfs,
    /// A recursive bind mount of `/`.
    Bind,
    /// The mount interface by file descriptors (`open_tree`, Linux 5.2).
    OpenTree,
    /// Mounting an overlay with `userxattr`, its upper folder on the tmpfs.
    Overlay,
    /// Removing a lower file and a lower folder in that overlay, and making the folder again.
    OverlayWhiteout,
    /// Mounting a FUSE file system from an own `/dev/fuse` descriptor.
    FuseMount,
    /// `unshare(CLONE_NEWPID)` and mounting a fresh `/proc` in it.
    ProcMount,
}

impl Step {
    /// All steps, in the order in which they are tried.
    pub const ALL: [Step; 16] = [
        Step::Pidfd,
        Step::IoUring,
        Step::CrossMemory,
        Step::OpenFuse,
        Step::OpenLoopControl,
        Step::UserNamespace,
        Step::IdMaps,
        Step::MountNamespace,
        Step::MakePrivate,
        Step::Tmpfs,
        Step::Bind,
        Step::OpenTree,
        Step::Overlay,
        Step::OverlayWhiteout,
        Step::FuseMount,
        Step::ProcMount,
    ];

    /// The name under which a recorded node keeps the outcome.
    pub fn name(self) -> &'static str {
        match self {
            Step::Pidfd => "pidfd",
            Step::IoUring => "io_uring",
            Step::CrossMemory => "cross_memory",
            Step::OpenFuse => "open_fuse",
            Step::OpenLoopControl => "open_loop_control",
            Step::UserNamespace => "user_namespace",
            Step::IdMaps => "id_maps",
            Step::MountNamespace => "mount_namespace",
            Step::MakePrivate => "make_private",
            Step::Tmpfs => "tmpfs",
            Step::Bind => "bind",
            Step::OpenTree => "open_tree",
            Step::Overlay => "overlay",
            Step::OverlayWhiteout => "overlay_whiteout",
            Step::FuseMount => "fuse_mount",
            Step::ProcMount => "proc_mount",
        }
    }

    fn from_code(code: u8) -> Option<Step> {
        Step::ALL.into_iter().find(|&step| step as u8 == code)
    }
}

/// How one step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What was tried.
    pub step: Step,
    /// The error number, where the kernel refused.
    pub result: Result<(), i32>,
}

/// Tries every step in a forked child, and gives the outcomes in order.
///
/// A step that needs an earlier one is left out where that one failed. When the child is killed (a
/// seccomp filter that kills), the list ends early.
///
/// # Errors
///
/// The pipe or the child could not be made.
pub fn try_steps() -> io::Result<Vec<Outcome>> {
    let plan = ChildPlan::new()?;
    let (reader, writer) = pipe()?;
    // SAFETY: the child calls only functions that are safe after fork in a threaded process
    // (system calls on memory made before the fork), and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => plan.run(writer.as_raw_fd()),
        child => {
            drop(writer);
            let said = read_until(reader, Instant::now() + PATIENCE);
            // SAFETY: `child` is our own, not yet waited for, so the number cannot be another's.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                let mut status = 0;
                while libc::waitpid(child, &raw mut status, 0) == -1 && errno() == libc::EINTR {}
            }
            Ok(outcomes(&said))
        }
    }
}

/// The version of the C library that this program runs on; `None` for a static program.
pub fn libc_version() -> Option<String> {
    #[cfg(target_env = "gnu")]
    {
        if cfg!(target_feature = "crt-static") {
            return None;
        }
        // SAFETY: glibc gives a pointer to a constant string with a terminating zero.
        let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
        version.to_str().ok().map(str::to_owned)
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

fn outcomes(said: &[u8]) -> Vec<Outcome> {
    said.chunks_exact(5)
        .filter_map(|record| {
            let step = Step::from_code(record[0])?;
            let number = i32::from_ne_bytes(record[1..].try_into().ok()?);
            let result = if number == 0 { Ok(()) } else { Err(number) };
            Some(Outcome { step, result })
        })
        .collect()
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for the two descriptors, which are ours alone afterwards.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Reads to the end of the pipe, or until the deadline.
fn read_until(reader: OwnedFd, deadline: Instant) -> Vec<u8> {
    let mut file = std::fs::File::from(reader);
    let mut said = Vec::new();
    let mut buffer = [0; 256];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut poll = libc::pollfd {
            fd: file.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let left_ms = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one initialised structure is passed, and its count.
        let ready = unsafe { libc::poll(&raw mut poll, 1, left_ms) };
        if ready == -1 && errno() == libc::EINTR {
            continue;
        }
        if ready <= 0 {
            return said;
        }
        match file.read(&mut buffer) {
            Ok(0) => return said,
            Ok(count) => said.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return said,
        }
    }
}

fn errno() -> i32 {
    // SAFETY: the location belongs to the calling thread.
    unsafe { *libc::__errno_location() }
}

/// Everything that the child needs, allocated before the fork.
struct ChildPlan {
    uid_map: CString,
    gid_map: CString,
    fuse_tail: CString,
    place: &'static CStr,
    parent: libc::pid_t,
}

/// A word in the parent's memory for the child to read.
static PARENT_WORD: u64 = 0x6c6f_6e67_7368_6f72;

impl ChildPlan {
    fn new() -> io::Result<ChildPlan> {
        // SAFETY: these calls have no preconditions.
        let (uid, gid, parent) = unsafe { (libc::geteuid(), libc::getegid(), libc::getpid()) };
        let places = [c"/tmp", c"/var/tmp", c"/mnt", c"/run", c"/dev"];
        let place = places
            .into_iter()
            .find(|place| {
                // SAFETY: the path ends in a zero.
                unsafe { libc::access(place.as_ptr(), libc::F_OK) == 0 }
            })
            .unwrap_or(c"/");
        let text = |text: String| CString::new(text).map_err(io::Error::other);
        Ok(ChildPlan {
            uid_map: text(format!("{uid} {uid} 1\n"))?,
            gid_map: text(format!("{gid} {gid} 1\n"))?,
            fuse_tail: text(format!(
                ",rootmode=40000,user_id={uid},group_id={gid},allow_other"
            ))?,
            place,
            parent,
        })
    }

    /// The child's whole life; makes system calls only, and allocates nothing.
    fn run(&self, out: libc::c_int) -> ! {
        // SAFETY: signal dispositions and the alarm of the child only; an alarm ends a child whose
        // mount hangs interruptibly.
        unsafe {
            libc::signal(libc::SIGALRM, libc::SIG_DFL);
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            libc::alarm(2);
        }
        let say = |step: Step, number: i32| -> bool {
            let mut record = [step as u8, 0, 0, 0, 0];
            record[1..].copy_from_slice(&number.to_ne_bytes());
            // SAFETY: the buffer lives for the call, and the count is its length.
            unsafe { libc::write(out, record.as_ptr().cast(), record.len()) };
            number == 0
        };
        say(Step::Pidfd, self.pidfd());
        say(Step::IoUring, io_uring());
        say(Step::CrossMemory, self.cross_memory());
        let (fuse, refused) = open_device(c"/dev/fuse");
        say(Step::OpenFuse, refused);
        let (_, refused) = open_device(c"/dev/loop-control");
        say(Step::OpenLoopControl, refused);
        self.namespaces(&say, fuse >= 0);
        // SAFETY: `_exit` runs no handlers of the parent's.
        unsafe { libc::_exit(0) }
    }

    fn namespaces(&self, say: &impl Fn(Step, i32) -> bool, has_fuse: bool) {
        // SAFETY: a flag is passed, no memory.
        let user = check(unsafe { libc::unshare(libc::CLONE_NEWUSER) });
        if !say(Step::UserNamespace, user) || !say(Step::IdMaps, self.id_maps()) {
            return;
        }
        // SAFETY: as above.
        let mounts = check(unsafe { libc::unshare(libc::CLONE_NEWNS) });
        if !say(Step::MountNamespace, mounts) {
            return;
        }
        let private = mount(None, c"/", None, libc::MS_REC | libc::MS_PRIVATE, None);
        if !say(Step::MakePrivate, private) {
            return;
        }
        let flags = libc::MS_NOSUID | libc::MS_NODEV;
        let tmpfs = mount(
            Some(c"none"),
            self.place,
            Some(c"tmpfs"),
            flags,
            Some(c"mode=0755,size=1m"),
        );
        // SAFETY: the path ends in a zero. The mount covers the folder, so `.` is the tmpfs.
        let entered = tmpfs == 0 && check(unsafe { libc::chdir(self.place.as_ptr()) }) == 0;
        if !say(Step::Tmpfs, tmpfs) || !entered {
            return;
        }
        make_folders(&[
            c"bind", c"lower", c"upper", c"work", c"merged", c"fuse", c"proc",
        ]);
        let bind = libc::MS_BIND | libc::MS_REC;
        say(Step::Bind, mount(Some(c"/"), c"bind", None, bind, None));
        say(Step::OpenTree, open_tree());
        if say(Step::Overlay, overlay()) {
            say(Step::OverlayWhiteout, whiteouts());
        }
        if has_fuse {
            say(Step::FuseMount, self.fuse_mount());
        }
        say(Step::ProcMount, proc_mount());
    }

    fn pidfd(&self) -> i32 {
        // SAFETY: numbers are passed, no memory.
        let result = unsafe { libc::syscall(libc::SYS_pidfd_open, self.parent, 0) };
        check_long(result)
    }

    fn cross_memory(&self) -> i32 {
        let mut word = 0_u64;
        let local = libc::iovec {
            iov_base: (&raw mut word).cast(),
            iov_len: 8,
        };
        let remote = libc::iovec {
            iov_base: (&raw const PARENT_WORD).cast_mut().cast(),
            iov_len: 8,
        };
        // SAFETY: `word` has room for the eight bytes; the other address is read by the kernel in
        // the parent, whose copy of the static lies at the same address.
        let got = unsafe {
            libc::process_vm_readv(self.parent, &raw const local, 1, &raw const remote, 1, 0)
        };
        match got {
            8 if word == PARENT_WORD => 0,
            -1 => errno(),
            _ => libc::EIO,
        }
    }

    fn id_maps(&self) -> i32 {
        // Kernels before 3.19 have no setgroups file, and then need none written.
        let denied = write_file(c"/proc/self/setgroups", b"deny");
        if denied != 0 && denied != libc::ENOENT {
            return denied;
        }
        match write_file(c"/proc/self/uid_map", self.uid_map.to_bytes()) {
            0 => write_file(c"/proc/self/gid_map", self.gid_map.to_bytes()),
            refused => refused,
        }
    }

    fn fuse_mount(&self) -> i32 {
        // The kernel takes a descriptor only in the user namespace where it was opened
        // (`fuse_fill_super`: EINVAL otherwise).
        let (fuse, refused) = open_device(c"/dev/fuse");
        if refused != 0 {
            return refused;
        }
        let mut options = [0_u8; 160];
        let Some(end) = compose(&mut options, b"fd=", fuse, self.fuse_tail.to_bytes()) else {
            return libc::EOVERFLOW;
        };
        let Ok(options) = CStr::from_bytes_with_nul(&options[..=end]) else {
            return libc::EINVAL;
        };
        let flags = libc::MS_NOSUID | libc::MS_NODEV;
        mount(
            Some(c"longshore"),
            c"fuse",
            Some(c"fuse"),
            flags,
            Some(options),
        )
    }
}

/// Puts `head`, a decimal number and `tail` into a buffer of zeros; gives where the text ends.
fn compose(buffer: &mut [u8], head: &[u8], number: i32, tail: &[u8]) -> Option<usize> {
    let mut digits = [0_u8; 10];
    let mut left = u32::try_from(number).ok()?;
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    let mut end = 0;
    for part in [head, &digits[first..], tail] {
        buffer.get_mut(end..end + part.len())?.copy_from_slice(part);
        end += part.len();
    }
    (end < buffer.len()).then_some(end)
}

fn check(result: libc::c_int) -> i32 {
    if result == -1 { errno() } else { 0 }
}

fn check_long(result: libc::c_long) -> i32 {
    if result == -1 { errno() } else { 0 }
}

fn open_device(path: &CStr) -> (libc::c_int, i32) {
    // SAFETY: the path ends in a zero. The descriptor is closed by the end of the child.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    (fd, check(fd))
}

fn io_uring() -> i32 {
    // struct io_uring_params is 120 bytes, all zero for the defaults.
    let mut params = [0_u64; 16];
    // SAFETY: the buffer is at least as long as the structure that the kernel reads and fills.
    check_long(unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr()) })
}

fn write_file(path: &CStr, text: &[u8]) -> i32 {
    // SAFETY: the path ends in a zero, the buffer lives for the call, the descriptor is ours.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd == -1 {
            return errno();
        }
        let written = libc::write(fd, text.as_ptr().cast(), text.len());
        let result = if written == -1 { errno() } else { 0 };
        libc::close(fd);
        result
    }
}

fn make_folders(names: &[&CStr]) {
    for name in names {
        // SAFETY: the path ends in a zero. A failure shows in the step that needs the folder.
        unsafe { libc::mkdir(name.as_ptr(), 0o755) };
    }
}

fn mount(
    source: Option<&CStr>,
    target: &CStr,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
    options: Option<&CStr>,
) -> i32 {
    let pointer = |text: Option<&CStr>| text.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: each pointer is null or a text that ends in a zero and lives for the call.
    check(unsafe {
        libc::mount(
            pointer(source),
            target.as_ptr(),
            pointer(kind),
            flags,
            pointer(options).cast(),
        )
    })
}

fn open_tree() -> i32 {
    // OPEN_TREE_CLONE of the tmpfs; the copy goes when the descriptor does.
    let flags = 1 | libc::O_CLOEXEC;
    // SAFETY: the path ends in a zero.
    check_long(unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, c".".as_ptr(), flags) })
}

fn overlay() -> i32 {
    make_folders(&[c"lower/folder"]);
    // SAFETY: the paths end in a zero.
    unsafe {
        let fd = libc::open(
            c"lower/file".as_ptr(),
            libc::O_CREAT | libc::O_WRONLY | libc::O_CLOEXEC,
            0o644,
        );
        if fd == -1 {
            return errno();
        }
        libc::close(fd);
    }
    mount(
        Some(c"overlay"),
        c"merged",
        Some(c"overlay"),
        libc::MS_NOSUID | libc::MS_NODEV,
        Some(c"lowerdir=lower,upperdir=upper,workdir=work,userxattr"),
    )
}

fn whiteouts() -> i32 {
    // SAFETY: the paths end in a zero.
    unsafe {
        for result in [
            libc::unlink(c"merged/file".as_ptr()),
            libc::rmdir(c"merged/folder".as_ptr()),
            libc::mkdir(c"merged/folder".as_ptr(), 0o755),
        ] {
            if result == -1 {
                return errno();
            }
        }
    }
    0
}

/// Mounts a fresh `/proc`, which must be done by a process that lives in the new PID namespace.
fn proc_mount() -> i32 {
    // SAFETY: as in `try_steps`: the grandchild makes system calls only and leaves by `_exit`.
    unsafe {
        if libc::unshare(libc::CLONE_NEWPID) == -1 {
            return errno();
        }
        match libc::fork() {
            -1 => errno(),
            0 => {
                let refused = mount(Some(c"proc"), c"proc", Some(c"proc"), libc::MS_NOSUID, None);
                // Error numbers that matter here fit a status (the highest is 133).
                libc::_exit(refused)
            }
            child => {
                let mut status = 0;
                while libc::waitpid(child, &raw mut status, 0) == -1 {
                    if errno() != libc::EINTR {
                        return errno();
                    }
                }
                if libc::WIFEXITED(status) {
                    libc::WEXITSTATUS(status)
                } else {
                    libc::EINTR
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_come_in_their_order_and_end_at_the_first_that_others_need() {
        let outcomes = try_steps().expect("a process can fork");
        let steps: Vec<Step> = outcomes.iter().map(|outcome| outcome.step).collect();
        assert!(steps.is_sorted(), "{steps:?}");
        assert!(steps.starts_with(&[Step::Pidfd, Step::IoUring, Step::CrossMemory]));
        let refused = outcomes
            .iter()
            .any(|outcome| outcome.step == Step::UserNamespace && outcome.result.is_err());
        assert_eq!(refused, !steps.contains(&Step::IdMaps));
    }

    #[test]
    fn the_asker_keeps_its_own_namespaces() {
        let before = std::fs::read_link("/proc/self/ns/mnt").expect("proc is mounted");
        try_steps().expect("a process can fork");
        let after = std::fs::read_link("/proc/self/ns/mnt").expect("proc is mounted");
        assert_eq!(before, after);
    }

    #[test]
    fn a_number_is_composed_between_its_neighbours() {
        let mut buffer = [0; 16];
        let end = compose(&mut buffer, b"fd=", 1207, b",x").expect("it fits");
        assert_eq!(&buffer[..end], b"fd=1207,x");
        assert_eq!(compose(&mut [0; 4], b"fd=", 12, b""), None);
    }

    #[test]
    fn half_a_record_from_a_killed_child_is_no_outcome() {
        let said = [Step::Pidfd as u8, 0, 0, 0, 0, Step::IoUring as u8, 1];
        assert_eq!(outcomes(&said).len(), 1);
    }
}
