//! What `exec`, `run` and `shell` start, and the statuses that they end with.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use crate::support::{World, say, skip, succeed};

#[test]
fn the_status_of_the_program_is_that_of_longshore() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let status =
        |script: &str| say(world.longshore().args(["exec", "box", "sh", "-c", script])).status;
    assert_eq!(status("exit 0"), Some(0));
    assert_eq!(status("exit 3"), Some(3));
    assert_eq!(status("exit 125"), Some(125));
    // The program takes the place of Longshore, so it is seen to die of the signal itself.
    assert_eq!(status("kill -KILL $$"), None);
}

#[test]
fn a_program_that_is_not_there_is_127_and_says_where_it_was_looked_for() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let said = say(world
        .longshore()
        .args(["exec", "--env", "PATH=/opt:/bin", "box", "nosuch"]));
    assert_eq!(said.status, Some(127), "{}", said.err);
    assert!(
        said.err
            .contains("\"nosuch\": executable file not found in $PATH of the image (/opt:/bin)"),
        "{}",
        said.err
    );
    let said = say(world.longshore().args(["exec", "box", "/opt/nosuch"]));
    assert_eq!(said.status, Some(127), "{}", said.err);
    assert!(
        said.err
            .contains("\"/opt/nosuch\": executable file not found in the image"),
        "{}",
        said.err
    );
}

#[test]
fn a_program_that_cannot_be_executed_is_126_and_says_why() {
    let world = World::new();
    let Some(root) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let script = |name: &str, text: &[u8], mode: u32| {
        let path = root.join("bin").join(name);
        fs::write(&path, text).expect("own folder");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("own file");
    };
    script("plain", b"#!/bin/sh\n", 0o644);
    script("lost", b"#!/opt/perl -w\n", 0o755);
    script(
        "alien",
        b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xf3\0\x01\0\0\0",
        0o755,
    );
    for (name, reason) in [
        ("plain", "permission denied"),
        ("lost", "its interpreter `/opt/perl -w` is not in the image"),
        ("alien", "it was built for another kind of processor"),
        ("/bin", "it is a directory"),
    ] {
        let said = say(world.longshore().args(["exec", "box", name]));
        assert_eq!(said.status, Some(126), "{}", said.err);
        assert!(said.err.contains(reason), "{}", said.err);
    }
}

#[test]
fn a_script_without_an_interpreter_line_runs_as_a_shell_would_run_it() {
    let world = World::new();
    let Some(root) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    fs::write(root.join("bin/say"), "echo said $1\n").expect("own folder");
    fs::set_permissions(root.join("bin/say"), fs::Permissions::from_mode(0o755)).expect("own file");
    assert_eq!(
        succeed(world.longshore().args(["exec", "box", "say", "it"])),
        "said it\n"
    );
}

#[test]
fn what_longshore_cannot_do_is_125_with_the_object_and_the_reason() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    for (words, reason) in [
        (&["exec", "nosuch", "true"][..], "there is no image nosuch"),
        (
            &["exec", "/etc/passwd", "true"],
            "image format not recognized",
        ),
        (
            &["exec", "-B", "/nosuch", "box", "true"],
            "cannot bind /nosuch to /nosuch: No such file or directory",
        ),
        (
            &["exec", "-B", "/tmp:/bin/busybox", "box", "true"],
            "one is a directory and the other is not",
        ),
        (
            &["exec", "-B", "/tmp:/bin/busybox/x", "box", "true"],
            "a file of the image stands where a directory is needed",
        ),
        (
            &["exec", "--pwd", "/nosuch", "box", "true"],
            "there is no directory /nosuch in the container",
        ),
        (&["exec", "box"], "no command was given"),
        (
            &["exec", "--nosuch", "box", "true"],
            "unexpected argument '--nosuch'",
        ),
        (&["run"], "required arguments were not provided"),
        (
            &[
                "exec",
                "--mount",
                "type=volume,src=/a,dst=/b",
                "box",
                "true",
            ],
            "`volume` is no type of mount",
        ),
        (
            &["exec", "--no-mount", "everything", "box", "true"],
            "`everything` is no default mount",
        ),
        (&["exec", "--env", "A", "box", "true"], "is no assignment"),
    ] {
        let said = say(world.longshore().args(words));
        assert_eq!(said.status, Some(125), "{words:?}: {}", said.err);
        assert!(said.err.contains(reason), "{words:?}: {}", said.err);
        assert_eq!(said.out, "", "{words:?}");
    }
}

#[test]
fn words_after_the_image_belong_to_the_program() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let out = succeed(
        world
            .longshore()
            .args(["exec", "box", "--", "echo", "-c", "--help", "-B", "--"]),
    );
    assert_eq!(out, "-c --help -B --\n");
    let said = say(world.longshore().args(["exec", "box", "-c"]));
    assert!(
        said.err.contains("\"-c\": executable file not found in"),
        "{}",
        said.err
    );
}

#[test]
fn arguments_and_names_of_any_bytes_arrive_as_they_are() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("b\u{fc} x") else {
        skip!("no static busybox")
    };
    let odd = OsStr::from_bytes(b"a\xff\n b");
    world.write(std::path::Path::new("work").join(odd), "found");
    let mut command = world.longshore();
    command.args(["exec", "b\u{fc} x", "cat"]).arg(odd);
    assert_eq!(succeed(&mut command), "found");
}

#[test]
fn run_starts_entry_point_and_command_without_a_shell() {
    let world = World::new();
    let Some(root) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    fs::create_dir(root.join(".longshore")).expect("own folder");
    fs::create_dir(root.join("start here")).expect("own folder");
    fs::write(
        root.join(".longshore/config.json"),
        r#"{"config":{"Entrypoint":["sh","-c","pwd; printf '[%s]' \"$0\" \"$@\"; echo; printf '%s\n' \"$LAB\""],
            "Cmd":["a b","$HOME","'"],"WorkingDir":"/start here","Env":["LAB=a b$c \"d\" `x`"]}}"#,
    )
    .expect("own folder");
    let out = succeed(world.longshore().args(["run", "box"]));
    assert_eq!(out, "/start here\n[a b][$HOME][']\na b$c \"d\" `x`\n");
    let out = succeed(world.longshore().args(["run", "box", "--x", "*"]));
    assert_eq!(out, "/start here\n[--x][*]\na b$c \"d\" `x`\n");
    // The image's directory is where its own program starts, not where others do.
    let out = succeed(world.longshore().args(["exec", "box", "pwd"]));
    assert_eq!(out.trim(), world.path("work").to_str().expect("is text"));
    let out = succeed(world.longshore().args(["run", "--pwd", "/tmp", "box"]));
    assert!(out.starts_with("/tmp\n"), "{out}");
}

#[test]
fn run_prefers_the_images_run_script() {
    let world = World::new();
    let Some(root) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    fs::create_dir_all(root.join(".singularity.d/env")).expect("own folder");
    let script = root.join(".singularity.d/runscript");
    fs::write(&script, "#!/bin/sh\necho script \"$@\"\n").expect("own folder");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("own file");
    assert_eq!(
        succeed(world.longshore().args(["run", "box", "x  y"])),
        "script x  y\n"
    );
}

#[test]
fn a_shell_reads_its_commands_from_a_pipe() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let script = world.write("work/script", "echo in $LONGSHORE_CONTAINER\nexit 7\n");
    let said = say(world
        .longshore()
        .args(["shell", "box"])
        .stdin(fs::File::open(script).expect("own file")));
    assert_eq!(
        said.out,
        format!("in {}\n", world.path("work/box").display())
    );
    assert_eq!(said.status, Some(7));
    let said = say(world
        .longshore()
        .args(["shell", "-s", "/bin/busybox", "box", "echo", "other"]));
    assert_eq!(said.out, "other\n");
}

#[test]
fn commands_of_docker_tutorials_run() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    world.make_dir("data");
    world.write("data/file", "content\n");
    let bind = format!("{}:/data", world.path("data").display());
    let out = succeed(world.longshore().args([
        "run",
        "--rm",
        "-it",
        "-v",
        &bind,
        "-e",
        "X=a,b",
        "-w",
        "/data",
        "box",
        "sh",
        "-c",
        "pwd; cat file; echo $X",
    ]));
    assert_eq!(out, "/data\ncontent\na,b\n");
}

#[test]
fn a_dry_run_prints_the_plan_and_starts_nothing() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let out = succeed(world.longshore().args([
        "exec",
        "--dry-run",
        "--env",
        "A=b",
        "-B",
        "/usr:/opt:ro",
        "box",
        "touch",
        "made",
    ]));
    for line in [
        "namespaces: mount, user",
        "  /opt                     /usr [ro,nosuid,nodev] (bind)",
        "  A=b  (--env)",
        "  LANG=C.UTF-8  (host)",
        "program: \"touch\" \"made\"",
    ] {
        assert!(
            out.lines().any(|found| found == line),
            "{line} is not in:\n{out}"
        );
    }
    assert!(!world.path("work/made").exists());
    let out = succeed(
        world
            .longshore()
            .args(["exec", "--dry-run", "--json", "box", "true"]),
    );
    assert_eq!(out.lines().count(), 1);
    assert!(out.starts_with(r#"{"type":"run-plan","image":""#), "{out}");
}

#[test]
fn help_is_a_result_and_wrong_usage_of_other_commands_is_2() {
    let world = World::new();
    let out = succeed(world.longshore().args(["exec", "--help"]));
    assert!(
        out.contains("Usage: longshore exec [OPTIONS] <IMAGE> [COMMAND]..."),
        "{out}"
    );
    let said = say(world.longshore().args(["instance", "nosuch"]));
    assert_eq!(said.status, Some(2), "{}", said.err);
}

#[test]
fn an_option_may_come_twice_and_the_last_value_counts() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let out = succeed(world.longshore().args([
        "exec",
        "-c",
        "--contain",
        "-e",
        "--cleanenv",
        "--pwd",
        "/opt",
        "--pwd",
        "/etc",
        "box",
        "pwd",
    ]));
    assert_eq!(out, "/etc\n");
}
