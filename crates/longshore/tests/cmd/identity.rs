//! Who the program is: ids, groups, capabilities, and root by mapping.

use crate::support::{World, is_root, program, say, skip, succeed, user};

#[test]
fn the_user_is_the_same_inside_and_has_no_capability() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let out = succeed(world.longshore().args([
        "exec",
        "box",
        "sh",
        "-c",
        "id -u; id -g; id -un; grep -E '^(Cap(Inh|Prm|Eff|Amb)|NoNewPrivs)' /proc/self/status",
    ]));
    let user = user();
    let none = "0000000000000000";
    assert_eq!(
        out,
        format!(
            "{}\n{}\n{}\nCapInh:\t{none}\nCapPrm:\t{none}\nCapEff:\t{none}\nCapAmb:\t{none}\nNoNewPrivs:\t1\n",
            user.uid, user.gid, user.name
        )
    );
}

#[test]
fn fakeroot_is_root_inside_and_nobody_special_outside() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let said = say(world.longshore().args([
        "exec",
        "--fakeroot",
        "box",
        "sh",
        "-c",
        "id -u; echo $HOME; touch made; whoami",
    ]));
    assert_eq!(said.out, "0\n/root\nroot\n", "{}", said.err);
    let made = std::fs::metadata(world.path("work/made")).expect("was made");
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&made), user().uid);
}

#[test]
fn fakeroot_with_ranges_of_ids_gives_files_to_others() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let ranges = std::fs::read_to_string("/etc/subuid").unwrap_or_default();
    if program("newuidmap").is_none()
        || !ranges
            .lines()
            .any(|line| line.starts_with(&format!("{}:", user().name)))
    {
        let said = say(world
            .longshore()
            .args(["exec", "--fakeroot", "box", "true"]));
        assert!(
            said.err.contains("has no range of ids in /etc/subuid"),
            "{}",
            said.err
        );
        return;
    }
    let out = succeed(world.longshore().args([
        "exec",
        "--fakeroot",
        "--writable-tmpfs",
        "box",
        "sh",
        "-c",
        "touch /f && chown 33:44 /f && stat -c %u:%g /f",
    ]));
    assert_eq!(out, "33:44\n");
}

#[test]
fn root_keeps_what_capabilities_it_has_and_can_give_them_up() {
    if !is_root() {
        skip!("not root")
    }
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let own = std::fs::read_to_string("/proc/self/status").expect("proc");
    let effective = |status: &str| {
        let line = status
            .lines()
            .find(|line| line.starts_with("CapEff:"))
            .expect("is there");
        u64::from_str_radix(line["CapEff:".len()..].trim(), 16).expect("a number")
    };
    let inside = |options: &[&str]| {
        let mut command = world.longshore_as_caller();
        command
            .arg("exec")
            .args(options)
            .args(["box", "cat", "/proc/self/status"]);
        effective(&succeed(&mut command))
    };
    let chown = 1;
    assert_eq!(inside(&[]), effective(&own));
    assert_eq!(inside(&["--no-privs"]), 0);
    assert_eq!(inside(&["--no-privs", "--add-caps", "CAP_CHOWN"]), chown);
    assert_eq!(inside(&["--drop-caps", "chown"]), effective(&own) & !chown);
    let said =
        say(world
            .longshore_as_caller()
            .args(["exec", "--drop-caps", "CAP_FLY", "box", "true"]));
    assert!(
        said.err.contains("`CAP_FLY` is no capability"),
        "{}",
        said.err
    );
}

#[test]
fn root_can_start_as_somebody_else_and_in_a_user_namespace() {
    if !is_root() {
        skip!("not root")
    }
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let out = succeed(world.longshore_as_caller().args([
        "exec",
        "--security",
        "uid:1234,gid:5:6",
        "--pwd",
        "/",
        "box",
        "sh",
        "-c",
        "id -u; id -g; id -G",
    ]));
    assert_eq!(out, "1234\n5\n5 6\n");
    for ids in ["uid:4294967295", "gid:5:4294967295"] {
        let mut command = world.longshore_as_caller();
        let said = say(command.args(["exec", "--security", ids, "box", "id"]));
        assert_eq!((said.status, said.out.as_str()), (Some(125), ""), "{ids}");
        assert!(said.err.contains("an id is a number"), "{}", said.err);
    }
    let out = succeed(world.longshore_as_caller().args([
        "exec",
        "--userns",
        "box",
        "sh",
        "-c",
        "id -u; cat /proc/self/uid_map",
    ]));
    assert_eq!(
        out.split_whitespace().collect::<Vec<_>>(),
        ["0", "0", "0", "1"]
    );
}

#[test]
fn a_node_that_forbids_user_namespaces_is_told_apart() {
    let (Some(unshare), true) = (program("unshare"), is_root()) else {
        skip!("needs root and unshare(1) to make such a node")
    };
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    // A user namespace whose limit of further ones is zero stands in for the node.
    let binary = world.path("bin/longshore");
    let said = say(world
        .host_command(unshare)
        .args(["--user", "--map-root-user", "sh", "-c"])
        .arg(r#"echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" exec --userns box true"#)
        .arg(binary));
    assert_eq!(said.status, Some(125), "{}", said.err);
    assert!(
        said.err
            .contains("cannot create a user namespace (unshare): No space left on device"),
        "{}",
        said.err
    );
    assert!(
        said.err.contains("user.max_user_namespaces"),
        "{}",
        said.err
    );
    assert!(said.err.contains("longshore doctor"), "{}", said.err);
}

#[test]
fn root_without_the_right_to_mount_gets_a_user_namespace() {
    let (Some(setpriv), true) = (program("setpriv"), is_root()) else {
        skip!("needs root and setpriv(1)")
    };
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let mut command = std::process::Command::new(setpriv);
    let out = succeed(
        command
            .args(["--bounding-set=-all", "--inh-caps=-all"])
            .arg(world.path("bin/longshore"))
            .args(["exec", "--dry-run"])
            .arg(world.path("work/box"))
            .arg("true"),
    );
    assert!(out.contains("namespaces: mount, user\n"), "{out}");
}

#[test]
fn root_by_mapping_can_replace_the_account_files_of_its_image() {
    let world = World::new();
    let Some(root) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    // As useradd and groupadd do it: a new file takes the place of the old one.
    let script = "for file in passwd group; do cp /etc/$file /etc/$file.new && echo app:x:5:5:: >> /etc/$file.new && \
        mv /etc/$file.new /etc/$file || exit 1; done";
    succeed(world.longshore().args([
        "exec",
        "--fakeroot",
        "--writable",
        "box",
        "sh",
        "-c",
        script,
    ]));
    for file in ["passwd", "group"] {
        let text = std::fs::read_to_string(root.join("etc").join(file)).expect("is there");
        assert!(
            text.starts_with("root:") && text.ends_with("app:x:5:5::\n"),
            "{text}"
        );
    }
}
