//! Nodes that forbid things: what still works, and what is said where it does not.

use std::process::Command;

use longshore_sys::seccomp::{Refused, refuse};

use crate::image_server::{FakeRegistry, Image, Packing, Tar, ordinary};
use crate::support::{Said, World, program, say, skip, succeed, user};

const EPERM: u16 = 1;
const ENOSYS: u16 = 38;

/// A world with a busybox sandbox `box`; the test is skipped without one.
macro_rules! world_with_box {
    () => {{
        let world = World::new();
        let Some(_) = world.busybox_rootfs("box") else {
            skip!("no static busybox")
        };
        world
    }};
}

/// Runs a command under a filter that refuses these calls.
fn under_filter(refused: &[Refused], errno: u16, command: &mut Command) -> Said {
    std::thread::scope(|scope| {
        // A filter holds for a thread and all that it starts, for ever.
        scope
            .spawn(|| {
                refuse(refused, errno).expect("this kernel has filters");
                say(command)
            })
            .join()
            .expect("the command can be started")
    })
}

/// Runs a script on a node of its own, still as the ordinary user, yet with the right to change the
/// node; `$0` is `longshore`. `None` where this machine has no such nodes.
fn on_own_node(world: &World, script: &str) -> Option<Said> {
    let node = ["-Um", "--map-current-user", "--keep-caps", "sh", "-c"];
    let command = || {
        let mut command = world.host_command(program("unshare")?);
        command.args(node);
        Some(command)
    };
    let may_mount = "mount -t tmpfs none /mnt && id -u";
    if say(command()?.arg(may_mount)).status != Some(0) {
        return None;
    }
    let mut command = command()?;
    Some(say(command.arg(script).arg(world.path("bin/longshore"))))
}

macro_rules! on_own_node {
    ($world:expr, $script:expr) => {
        match on_own_node($world, $script) {
            Some(said) => said,
            None => skip!("unshare (util-linux 2.39) makes no node of one's own here"),
        }
    };
}

#[track_caller]
fn assert_not_started(said: &Said, words: &[&str]) {
    assert_eq!(said.status, Some(125), "{}", said.err);
    assert!(said.err.contains("while starting"), "{}", said.err);
    for word in words {
        assert!(said.err.contains(word), "{word}: {}", said.err);
    }
    assert!(!said.err.contains("os error"), "{}", said.err);
    assert_eq!(said.out, "");
}

#[test]
fn a_limit_of_no_user_namespaces_is_told_by_the_sysctl_and_not_as_a_full_disk() {
    let world = world_with_box!();
    let said = on_own_node!(
        &world,
        "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" exec box echo ran"
    );
    assert_not_started(
        &said,
        &[
            "error: cannot create a user namespace (unshare): No space left on device (ENOSPC)",
            "hint: user.max_user_namespaces is 0 on this node",
            "sysctl -w user.max_user_namespaces=",
        ],
    );
}

#[test]
fn a_limit_of_no_networks_stands_in_the_way_of_own_networks_only() {
    let world = world_with_box!();
    let said = on_own_node!(
        &world,
        "echo 0 > /proc/sys/user/max_net_namespaces && \"$0\" exec box true && exec \"$0\" exec --net box echo ran"
    );
    assert_not_started(
        &said,
        &[
            "(ENOSPC)",
            "hint: user.max_net_namespaces is 0 on this node",
        ],
    );
}

#[test]
fn a_chroot_is_named_where_namespaces_are_forbidden() {
    let world = world_with_box!();
    let said = on_own_node!(
        &world,
        "mount --rbind / /mnt && exec chroot /mnt sh -c 'cd \"$1\" && exec \"$0\" exec box echo ran' \"$0\" \"$PWD\""
    );
    assert_not_started(
        &said,
        &[
            "error: cannot create a user namespace (unshare): Operation not permitted (EPERM)",
            "chroot",
        ],
    );
}

#[test]
fn a_filter_of_an_enclosing_container_is_named() {
    let world = world_with_box!();
    for errno in [EPERM, ENOSYS] {
        let said = under_filter(
            &Refused::NAMESPACES,
            errno,
            world.longshore().args(["exec", "box", "echo", "ran"]),
        );
        assert_not_started(
            &said,
            &[
                "error: cannot create a user namespace (unshare): ",
                "hint: a seccomp filter forbids user namespaces",
                "seccomp=unconfined",
            ],
        );
    }
    for errno in [EPERM, ENOSYS] {
        let said = under_filter(
            &Refused::MOUNTS,
            errno,
            world.longshore().args(["exec", "box", "echo", "ran"]),
        );
        assert_not_started(&said, &["hint: a seccomp filter forbids mounts"]);
    }
}

#[test]
fn a_covered_proc_stands_in_the_way_of_own_processes_only() {
    let world = world_with_box!();
    // One other /proc that is seen whole is enough for the kernel, such as the one that debootstrap
    // mounts for another test.
    let said = on_own_node!(
        &world,
        "for proc in $(grep ' - proc ' /proc/self/mountinfo | cut -d ' ' -f 5); do mount -t tmpfs none $proc/sys; done; \
         \"$0\" exec box true && exec \"$0\" exec --pid box echo ran"
    );
    assert_not_started(
        &said,
        &[
            "error: cannot make the container's own /proc",
            "(EPERM)",
            "hint: parts of /proc are covered by the enclosing container",
            "do without --pid",
        ],
    );
}

#[test]
fn a_filter_that_refuses_overlays_leaves_binds() {
    let world = world_with_box!();
    let words = [
        "exec",
        "-B",
        "/usr:/etc/made/for/it",
        "box",
        "sh",
        "-c",
        "ls -d /etc/made/for/it/bin; cat /etc/passwd | grep -c root; touch /x || echo closed; cat /proc/self/status | grep Seccomp:",
    ];
    let mut command = world.longshore();
    let said = under_filter(&Refused::OVERLAYS, EPERM, command.arg("-v").args(words));
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert_eq!(said.out, "/etc/made/for/it/bin\n1\nclosed\nSeccomp:\t2\n");
    assert!(
        said.err.contains(
            "detail: overlay is refused here (Operation not permitted (EPERM)), so /etc is put together from binds"
        ),
        "{}",
        said.err
    );
    // Without --verbose nobody is troubled with it.
    let mut command = world.longshore();
    let said = under_filter(&Refused::OVERLAYS, EPERM, command.args(words));
    assert!(!said.err.contains("overlay"), "{}", said.err);
    // What only an overlay can do is refused with the reason.
    let mut command = world.longshore();
    let said = under_filter(
        &Refused::OVERLAYS,
        EPERM,
        command.args(["exec", "--writable-tmpfs", "box", "echo", "ran"]),
    );
    assert_not_started(&said, &["(EPERM)", "hint: a seccomp filter forbids mounts"]);
}

/// An image with a shell, for a registry.
fn busybox_image() -> Option<Image> {
    let busybox = std::fs::read(program("busybox")?).expect("can be read");
    let layer = Tar::default()
        .folder("bin")
        .program("bin/busybox", &busybox)
        .symlink("bin/sh", "busybox")
        .symlink("bin/cat", "busybox")
        .end();
    Some(Image::of(&[(layer, Packing::Plain)]))
}

#[test]
fn a_cache_that_can_only_be_read_gives_the_images_that_it_has() {
    let world = World::new();
    let Some(image) = busybox_image() else {
        skip!("no static busybox")
    };
    let registry = FakeRegistry::start("127.0.0.1", move |seen| ordinary(&image, seen));
    let name = format!("docker://{}/box:1", registry.address);
    succeed(world.longshore().args(["pull", &name]));
    let script = |image: &str| {
        format!(
            "mount --bind \"$LONGSHORE_CACHEDIR\" \"$LONGSHORE_CACHEDIR\" && \
             mount -o remount,bind,ro \"$LONGSHORE_CACHEDIR\" && exec \"$0\" exec {image} sh -c 'echo started'"
        )
    };
    let said = on_own_node!(&world, &script(&name));
    assert_eq!(said.out, "started\n", "{}", said.err);
    assert_eq!(said.status, Some(0));
    let other = FakeRegistry::start("127.0.0.1", |seen| ordinary(&Image::small(), seen));
    let said = on_own_node!(
        &world,
        &script(&format!("docker://{}/other", other.address))
    );
    assert_eq!(said.status, Some(125), "{}", said.err);
    for words in [
        "error: cannot write the image cache at ",
        "Read-only file system (EROFS)",
        "hint: set LONGSHORE_CACHEDIR to a folder that you can write",
    ] {
        assert!(said.err.contains(words), "{}", said.err);
    }
}

#[test]
fn a_cache_without_room_is_told_before_the_start() {
    let world = World::new();
    let Some(image) = busybox_image() else {
        skip!("no static busybox")
    };
    let registry = FakeRegistry::start("127.0.0.1", move |seen| ordinary(&image, seen));
    let said = on_own_node!(
        &world,
        &format!(
            "mount -t tmpfs -o size=64k none \"$LONGSHORE_CACHEDIR\" && exec \"$0\" exec docker://{}/box sh -c 'echo started'",
            registry.address
        )
    );
    assert_eq!(said.status, Some(125), "{}", said.err);
    assert!(said.err.contains("LONGSHORE_CACHEDIR"), "{}", said.err);
    assert_eq!(said.out, "");
}

#[test]
fn a_start_needs_no_room_on_any_disk() {
    let world = world_with_box!();
    // Every place that a program might put something in is full.
    let script = "for place in /tmp /dev/shm /run \"$LONGSHORE_CACHEDIR\" \"$HOME\"; do \
        mount -t tmpfs -o size=4k none $place || exit 77; while echo x; do :; done 2>/dev/null > $place/full; done; \
        \"$0\" exec box sh -c 'echo started; echo x 2>/dev/null > /tmp/y || echo still full'; \
        exec \"$0\" exec --contain box sh -c 'echo x > /tmp/y && cat /tmp/y'";
    let said = on_own_node!(&world, script);
    assert_eq!(said.out, "started\nstill full\nx\n", "{}", said.err);
    assert_eq!(said.status, Some(0));
}

/// A control group that allows little memory and that the ordinary user may enter.
struct SmallMemory(std::path::PathBuf);

impl SmallMemory {
    fn make(bytes: u64) -> Option<SmallMemory> {
        let name = format!("longshore-test-{}", std::process::id());
        [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ]
        .iter()
        .find_map(|(top, limit)| {
            let group = std::path::Path::new(top).join(&name);
            std::fs::create_dir(&group).ok()?;
            let made = SmallMemory(group);
            std::fs::write(made.0.join(limit), bytes.to_string()).ok()?;
            std::os::unix::fs::chown(made.0.join("cgroup.procs"), Some(user().uid), None).ok()?;
            Some(made)
        })
    }
}

impl Drop for SmallMemory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_full_tmp_in_memory_is_no_space_left_and_not_the_end_of_the_job() {
    let world = world_with_box!();
    let Some(group) = SmallMemory::make(128 << 20) else {
        skip!("no control group with a limit of memory can be made here")
    };
    let enter = "echo $$ > \"$1\"/cgroup.procs || exit 77; shift; exec \"$@\"";
    for (option, place) in [("--contain", "/tmp"), ("--writable-tmpfs", "/opt")] {
        let script = format!(
            "dd if=/dev/zero of={place}/x bs=1M count=200 2>&1 | grep -o 'No space left on device'; echo alive"
        );
        let said = say(world
            .host_command("/bin/sh")
            .args(["-c", enter, "sh"])
            .arg(&group.0)
            .arg(world.path("bin/longshore"))
            .args(["exec", option, "box", "sh", "-c", &script]));
        if said.status == Some(77) {
            skip!("the control group cannot be entered: {}", said.err);
        }
        assert_eq!(said.out, "No space left on device\nalive\n", "{}", said.err);
        let mut plan = world.host_command("/bin/sh");
        plan.args(["-c", enter, "sh"])
            .arg(&group.0)
            .arg(world.path("bin/longshore"))
            .args([
                "exec",
                "--dry-run",
                option,
                "-c",
                "-B",
                "/usr:/made",
                "box",
                "true",
            ]);
        let plan = succeed(&mut plan);
        assert!(plan.contains("67108864 bytes"), "{plan}");
    }
}
