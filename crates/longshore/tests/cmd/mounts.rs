//! What of the host is seen inside, and what can be written.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{World, is_root, program, say, skip, succeed, user};

#[test]
fn home_the_current_directory_and_temporary_files_are_the_hosts() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    world.write("home/file", "at home\n");
    world.write("work/file", "at work\n");
    let out = succeed(world.longshore().args([
        "exec",
        "box",
        "sh",
        "-c",
        "cat ~/file file; pwd; echo new > made",
    ]));
    assert_eq!(
        out,
        format!("at home\nat work\n{}\n", world.path("work").display())
    );
    assert_eq!(
        fs::read_to_string(world.path("work/made")).expect("was written"),
        "new\n"
    );
    assert!(
        fs::read_dir(world.path("work/box/home"))
            .expect("is there")
            .next()
            .is_none(),
        "the image stays as it is"
    );
}

#[test]
fn an_image_without_any_bind_point_gets_them_all() {
    let world = World::new();
    let Some(full) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let bare = world.make_dir("work/bare");
    fs::create_dir(bare.join("bin")).expect("own folder");
    for name in ["busybox", "sh", "cat", "ls", "mount", "id"] {
        fs::copy(full.join("bin/busybox"), bare.join("bin").join(name)).expect("own folder");
    }
    let out = succeed(world.longshore().args([
        "exec", "-B", "/usr:/deep/in/the/image", "-B", "/etc/passwd:/a/file", "bare", "sh", "-c",
        "id -un; ls -d /proc/self /sys/kernel /dev/null /etc/group /tmp /deep/in/the/image/bin; cat /a/file | grep -c root",
    ]));
    assert_eq!(
        out,
        format!(
            "{}\n/deep/in/the/image/bin\n/dev/null\n/etc/group\n/proc/self\n/sys/kernel\n/tmp\n1\n",
            user().name
        )
    );
    let left: Vec<_> = fs::read_dir(&bare).expect("is there").collect();
    assert_eq!(left.len(), 1, "the image stays as it is: {left:?}");
}

#[test]
fn links_of_the_image_never_lead_out_of_it() {
    let world = World::new();
    let Some(root) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let outside = world.make_dir("outside");
    fs::remove_file(root.join("etc/resolv.conf")).expect("own folder");
    // Dangling inside, there outside; absolute, relative, and upwards.
    symlink(
        "../../../../../../../../../../run/nosuch/resolv.conf",
        root.join("etc/resolv.conf"),
    )
    .expect("own folder");
    symlink(&outside, root.join("data")).expect("own folder");
    symlink("../../../../../../../../opt", root.join("up")).expect("own folder");
    world.make_dir("src");
    world.write("src/file", "bound\n");
    let source = world.path("src");
    let source = source.display();
    let out = succeed(world.longshore().args([
        "exec",
        "-c",
        "-B",
        &format!("{source}:/data/x,{source}:/up/y"),
        "box",
        "sh",
        "-c",
        "cat /data/x/file /opt/y/file; test -f /etc/resolv.conf && echo resolv",
    ]));
    assert_eq!(out, "bound\nbound\nresolv\n");
    assert!(fs::read_dir(&outside).expect("is there").next().is_none());
}

#[test]
fn binds_go_where_they_are_told_and_can_be_read_only() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    world.make_dir("data,with:odd name");
    world.write("data,with:odd name/file", "odd\n");
    world.make_dir("data");
    let data = world.path("data");
    let mount = format!(
        "type=bind,\"source={}\",destination=/odd,ro",
        world.path("data,with:odd name").display()
    );
    let said = say(world.longshore().args([
        "exec",
        "--mount",
        &mount,
        "-B",
        &format!("{}:/opt:ro", data.display()),
        "-B",
        &format!("{}:/rw", data.display()),
        "box",
        "sh",
        "-c",
        "cat /odd/file; touch /odd/x /opt/x; touch /rw/y && ls /opt",
    ]));
    assert_eq!(said.out, "odd\ny\n", "{}", said.err);
    assert_eq!(
        said.err.matches("Read-only file system").count(),
        2,
        "{}",
        said.err
    );
}

#[test]
fn a_later_bind_lies_on_an_earlier_one() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    for name in ["outer/inner", "other"] {
        world.make_dir(name);
    }
    world.write("other/file", "other\n");
    let bind = format!(
        "{}:/m,{}:/m/inner",
        world.path("outer").display(),
        world.path("other").display()
    );
    assert_eq!(
        succeed(
            world
                .longshore()
                .args(["exec", "-B", &bind, "box", "cat", "/m/inner/file"])
        ),
        "other\n"
    );
    let bind = format!(
        "{}:/m,{}:/m/nosuch",
        world.path("outer").display(),
        world.path("other").display()
    );
    let said = say(world.longshore().args(["exec", "-B", &bind, "box", "true"]));
    assert_eq!(said.status, Some(125));
    assert!(
        said.err.contains("there is no /m/nosuch to bind to"),
        "{}",
        said.err
    );
}

#[test]
fn a_contained_container_sees_an_empty_home_and_few_devices() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    world.write("home/file", "");
    let out = succeed(world.longshore().args([
        "exec", "-c", "box", "sh", "-c",
        "ls -A ~ /tmp /var/tmp | grep -v -e : -e '^$' -e longshore-test; ls /dev | grep -v mqueue; echo x > /dev/null; echo y > ~/z; touch /tmp/q; ls ~; pwd",
    ]));
    let home = world.path("home");
    assert_eq!(
        out.split_whitespace().collect::<Vec<_>>(),
        [
            "fd",
            "full",
            "null",
            "ptmx",
            "pts",
            "random",
            "shm",
            "stderr",
            "stdin",
            "stdout",
            "tty",
            "urandom",
            "zero",
            "z",
            home.to_str().expect("is text"),
        ]
    );
    assert!(!world.path("home/z").exists());
}

#[test]
fn a_work_directory_keeps_what_a_contained_container_writes() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    succeed(world.longshore().args([
        "exec",
        "-c",
        "-W",
        "kept",
        "-S",
        "/scr/atch",
        "box",
        "sh",
        "-c",
        "touch ~/a /tmp/b /var/tmp/c /scr/atch/d",
    ]));
    for file in ["home/a", "tmp/b", "var_tmp/c", "scratch/scr/atch/d"] {
        assert!(world.path("work/kept").join(file).exists(), "{file}");
    }
    succeed(
        world
            .longshore()
            .args(["exec", "-S", "/scr", "box", "touch", "/scr/d"]),
    );
}

#[test]
fn home_can_be_another_directory_or_none() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    world.make_dir("other");
    world.write("other/file", "other\n");
    world.write("home/file", "own\n");
    let other = world.path("other");
    let other = other.display().to_string();
    let script = "echo $HOME; cat ~/file; grep -c \":$HOME:\" /etc/passwd";
    let out = succeed(world.longshore().args([
        "exec",
        "-H",
        &format!("{other}:/elsewhere"),
        "box",
        "sh",
        "-c",
        script,
    ]));
    assert_eq!(out, "/elsewhere\nother\n1\n");
    let out = succeed(
        world
            .longshore()
            .args(["exec", "-H", &other, "box", "sh", "-c", script]),
    );
    assert_eq!(out, format!("{other}\nother\n1\n"));
    // The folder is below /var/tmp, which would show it all the same.
    let said = say(world.longshore().args([
        "exec",
        "--no-home",
        "--no-mount",
        "tmp",
        "box",
        "sh",
        "-c",
        "cat ~/file",
    ]));
    assert_ne!(said.status, Some(0), "{}", said.out);
}

#[test]
fn a_home_reached_through_a_link_is_there_under_both_names() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    world.make_dir("real/project");
    world.write("real/file", "at home\n");
    symlink(world.path("real"), world.path("link")).expect("own folder");
    let mut command = world.longshore();
    command
        .env("HOME", world.path("link"))
        .current_dir(world.path("real/project"))
        .args(["exec", "--no-mount", "tmp"])
        .arg(world.path("work/box"))
        .args(["sh", "-c", "cat ~/file; pwd"]);
    assert_eq!(
        succeed(&mut command),
        format!("at home\n{}\n", world.path("real/project").display())
    );
}

#[test]
fn a_current_directory_that_is_not_inside_gives_way_to_home() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let home = world.path("home");
    let pwd = |options: &[&str]| {
        let mut command = world.longshore();
        command.arg("exec").args(options).args(["box", "pwd"]);
        succeed(&mut command)
    };
    let home = format!("{}\n", home.display());
    assert_eq!(pwd(&["-c"]), home);
    assert_eq!(pwd(&["--no-mount", "cwd,tmp"]), home);
    assert_eq!(pwd(&["--no-mount", "cwd,tmp,home"]), "/\n");
}

#[test]
fn nothing_can_be_written_at_the_root_unless_asked_for() {
    let world = World::new();
    let Some(root) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let said = say(world.longshore().args(["exec", "box", "touch", "/x"]));
    assert!(said.err.contains("Read-only file system"), "{}", said.err);
    succeed(world.longshore().args([
        "exec",
        "--writable-tmpfs",
        "box",
        "sh",
        "-c",
        "touch /x && rm /bin/cat && ls /x",
    ]));
    assert!(!root.join("x").exists() && root.join("bin/cat").exists());
    let said = say(world.longshore().args(["exec", "-w", "box", "touch", "/x"]));
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert!(root.join("x").exists());
    // A bind point that is missing is never made in the user's image.
    let said = say(world
        .longshore()
        .args(["exec", "-w", "-B", "/usr:/made", "box", "true"]));
    assert_eq!(said.status, Some(125));
    assert!(
        said.err.contains("there is no /made to bind to"),
        "{}",
        said.err
    );
}

#[test]
fn an_overlay_directory_keeps_changes_beside_the_image() {
    let world = World::new();
    let Some(root) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    world.make_dir("work/layer");
    let run = |option: &str, script: &str| {
        let mut command = world.longshore();
        command.args(["exec", "--overlay", option, "box", "sh", "-c", script]);
        say(&mut command)
    };
    let said = run("layer", "echo kept > /opt/file && rm /bin/cat");
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert!(!root.join("opt/file").exists() && root.join("bin/cat").exists());
    let said = run(
        "layer:ro",
        "ls /bin/cat; read x < /opt/file; echo $x; touch /opt/y",
    );
    assert_eq!(said.out, "kept\n", "{}", said.err);
    assert!(
        said.err.contains("/bin/cat: No such file") && said.err.contains("Read-only file system"),
        "{}",
        said.err
    );
    world.write("work/image.ext3", "");
    let said = run("image.ext3", "true");
    assert!(
        said.err
            .contains("image files as overlays are not supported yet"),
        "{}",
        said.err
    );
}

#[test]
fn an_overlay_directory_is_written_by_one_container_at_a_time() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    world.make_dir("work/layer");
    let exec = |option: &str, script: &str| {
        let mut command = world.longshore();
        command.args(["exec", "--overlay", option, "box", "sh", "-c", script]);
        command
    };
    // What a program leaves in the background still writes.
    let mut first = exec("layer", "exec 3<&0; cat <&3 > /kept & echo ready")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("can be started");
    // Waiting would close what is still there.
    let input = first.stdin.take();
    assert_eq!(first.wait().expect("ends").code(), Some(0));
    let said = say(&mut exec("layer", "true"));
    assert_eq!(said.status, Some(125));
    assert!(
        said.err.contains("cannot write to the overlay directory")
            && said.err.contains("hint: another container writes to it"),
        "{}",
        said.err
    );
    succeed(&mut exec("layer:ro", "true"));
    drop(input);
    // Nothing tells the moment in which the last holder is gone.
    let again = || say(&mut exec("layer", "test -f /kept")).status == Some(0);
    assert!((0..1000).any(|_| again()), "the directory is free again");
}

#[test]
fn no_descriptor_of_a_directory_leads_out_of_a_container() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    world.make_dir("work/layer");
    let script = "for f in /proc/self/fd/*; do test -d $f && readlink $f; done; true";
    let out = succeed(world.longshore().args([
        "exec",
        "-c",
        "--overlay",
        "layer",
        "box",
        "sh",
        "-c",
        script,
    ]));
    assert_eq!(out, "");
}

#[test]
fn a_working_directory_that_is_there_keeps_its_permissions() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let secret = world.make_dir("secret");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o700)).expect("own folder");
    world.make_dir("work/wd");
    symlink(&secret, world.path("work/wd/tmp")).expect("own folder");
    let out = succeed(world.longshore().args([
        "exec", "-c", "-W", "wd", "box", "stat", "-c", "%a", "/var/tmp",
    ]));
    assert_eq!(out, "1777\n", "one that is made is for all");
    let mode = fs::metadata(&secret)
        .expect("is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o700, "one that was there is left as it was");
}

#[test]
fn default_mounts_can_be_left_out() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let out = succeed(world.longshore().args([
        "exec",
        "--no-mount",
        "sys,dev,tmp,home,cwd,bind-paths",
        "box",
        "sh",
        "-c",
        "ls -A /sys /dev /tmp; wc -c < /etc/hosts; ls /proc/self/comm",
    ]));
    assert_eq!(
        out.split_whitespace().collect::<Vec<_>>(),
        ["/dev:", "/sys:", "/tmp:", "0", "/proc/self/comm"]
    );
}

#[test]
fn name_servers_can_be_chosen() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let out = succeed(world.longshore().args([
        "exec",
        "--dns",
        "192.0.2.1,192.0.2.2",
        "box",
        "cat",
        "/etc/resolv.conf",
    ]));
    assert_eq!(out, "nameserver 192.0.2.1\nnameserver 192.0.2.2\n");
}

#[test]
fn host_mounts_are_without_setuid_and_devices() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let out = succeed(
        world
            .longshore()
            .args(["exec", "box", "cat", "/proc/self/mountinfo"]),
    );
    for line in out.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let (place, options) = (fields[4], fields[5]);
        assert!(options.contains("nosuid"), "{line}");
        assert!(
            options.contains("nodev") || place.starts_with("/dev"),
            "{line}"
        );
    }
}

#[test]
fn root_gets_the_same_mounts_without_a_user_namespace() {
    if !is_root() {
        skip!("not root")
    }
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let out = succeed(world.longshore_as_caller().args([
        "exec",
        "box",
        "sh",
        "-c",
        "cat /proc/self/uid_map; touch /x; pwd; echo ok > made",
    ]));
    assert!(out.contains("4294967295"), "{out}");
    assert!(
        out.ends_with(&format!("{}\n", world.path("work").display())),
        "{out}"
    );
    assert!(world.path("work/made").exists());
    let before = fs::read_to_string("/proc/self/mountinfo").expect("proc");
    assert!(
        !before.contains("longshore-test"),
        "mounts of the container are seen outside"
    );
}

#[test]
fn where_overlay_is_refused_binds_put_the_directory_together() {
    let Some(unshare) = program("unshare") else {
        skip!("no unshare(1)")
    };
    let world = World::new();
    let Some(root) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    symlink("bin/busybox", root.join("a link")).expect("own folder");
    fs::create_dir_all(root.join("home/other")).expect("own folder");
    // The kernel lays no third overlay over two.
    let script = "mount -t tmpfs none /mnt && mkdir /mnt/a /mnt/b /mnt/c && \
        mount -t overlay none /mnt/b -o lowerdir=box:/mnt/a,userxattr && \
        mount -t overlay none /mnt/c -o lowerdir=/mnt/b:/mnt/a,userxattr && \
        exec \"$0\" -v exec -B /usr:/made,/usr:/home/made /mnt/c sh -c 'touch /x; cat ~/file; pwd; ls -d /home/made /home/other \"/a link\"; readlink \"/a link\"; touch /home/x'";
    world.write("home/file", "at home\n");
    let said = say(world
        .host_command(unshare)
        .args(["-Urm", "sh", "-c", script])
        .arg(world.path("bin/longshore")));
    assert!(said.err.contains("overlay is refused here"), "{}", said.err);
    assert_eq!(
        said.out,
        format!(
            "at home\n{}\n/a link\n/home/made\n/home/other\nbin/busybox\n",
            world.path("work").display()
        ),
        "{}",
        said.err
    );
    assert_eq!(
        said.err.matches("Read-only file system").count(),
        2,
        "{}",
        said.err
    );
}

#[test]
fn an_image_that_cannot_be_written_is_only_read() {
    let Some(unshare) = program("unshare") else {
        skip!("no unshare(1)")
    };
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let script = "mount --bind box box && mount -o remount,bind,ro,nosuid,nodev box && exec \"$0\" exec box cat /home/../proc/self/comm";
    let out = succeed(
        world
            .host_command(unshare)
            .args(["-Urm", "sh", "-c", script])
            .arg(world.path("bin/longshore")),
    );
    assert_eq!(out, "cat\n");
}
