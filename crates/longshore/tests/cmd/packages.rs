//! A real distribution in a sandbox, and its own package manager as root inside.

use std::process::Command;

use crate::support::{World, is_root, program, say, skip, succeed, user};

/// The release and the mirror that this machine's own package manager uses.
fn release_and_mirror() -> Option<(String, String)> {
    let release = std::fs::read_to_string("/etc/os-release").ok()?;
    let codename = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))?
        .to_owned();
    let targets = Command::new("apt-get")
        .args(["indextargets", "--format", "$(REPO_URI) $(CODENAME)"])
        .output()
        .ok()?;
    let mirror = String::from_utf8_lossy(&targets.stdout)
        .lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(_, name)| *name == codename)
        .map(|(mirror, _)| mirror.to_owned())?;
    Some((codename, mirror))
}

#[test]
fn packages_that_give_files_to_others_are_installed_by_root_inside_a_sandbox() {
    if !is_root() {
        skip!("debootstrap makes devices and owners, which takes root");
    }
    let Some(debootstrap) = program("debootstrap") else {
        skip!("no debootstrap")
    };
    if program("newuidmap").is_none() {
        skip!("no newuidmap");
    }
    let ranges = std::fs::read_to_string("/etc/subuid").unwrap_or_default();
    if !ranges
        .lines()
        .any(|line| line.starts_with(&format!("{}:", user().name)))
    {
        skip!("{} has no subordinate ids", user().name);
    }
    let Some((codename, mirror)) = release_and_mirror() else {
        skip!("this machine's package sources are not known")
    };
    let world = World::new();
    let base = world.make_dir("work/base");
    let made = say(Command::new(debootstrap)
        .args(["--variant=minbase", &codename])
        .arg(&base)
        .arg(&mirror));
    if made.status != Some(0) {
        skip!("debootstrap cannot reach {mirror}: {}", made.out);
    }
    let owner = format!("{}:{}", user().uid, user().gid);
    succeed(Command::new("chown").args(["-R", &owner]).arg(&base));
    let inside = |script: &str| {
        let mut command = world.longshore();
        command
            .args(["-q", "exec", "--fakeroot", "--writable", "--no-home"])
            .args([
                "--env",
                "DEBIAN_FRONTEND=noninteractive",
                "base",
                "sh",
                "-c",
                script,
            ]);
        succeed(&mut command)
    };
    // It makes a group and gives a program to it, with setgid.
    inside(
        "apt-get update -qq && apt-get install -y -qq --no-install-recommends openssh-client hello >/dev/null 2>&1",
    );
    assert_eq!(inside("stat -c '%G %a' /usr/bin/ssh-agent"), "_ssh 2755\n");
    // And all of it runs without being root.
    let said = succeed(world.longshore().args(["-q", "exec", "base", "hello"]));
    assert_eq!(said, "Hello, world!\n");
    // What belongs to subordinate ids can be removed by root inside only.
    inside("rm -rf /usr/bin/ssh-agent /var/cache/apt /var/lib/apt /run/* /tmp/apt*");
}
