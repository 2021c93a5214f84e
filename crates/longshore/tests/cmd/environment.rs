//! The environment inside: what passes, what stays outside, who wins.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use crate::support::{World, say, skip, succeed};

fn inside(command: &mut Command) -> BTreeMap<String, String> {
    succeed(command)
        .split('\0')
        .filter_map(|entry| entry.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

const SHOW: [&str; 3] = ["box", "cat", "/proc/self/environ"];

fn with_env(world: &World, config: &str) -> bool {
    let Some(root) = world.busybox_rootfs("box") else {
        return false;
    };
    fs::create_dir(root.join(".longshore")).expect("own folder");
    fs::write(root.join(".longshore/config.json"), config).expect("own folder");
    true
}

#[test]
fn the_image_beats_the_host_and_the_user_beats_the_image() {
    let world = World::new();
    if !with_env(
        &world,
        r#"{"config":{"Env":["PATH=/bin:/opt","A=image","B=image","C=image","D=image"]}}"#,
    ) {
        skip!("no static busybox")
    }
    world.write(
        "work/file",
        "# comment\nexport C=\"file of $USER\"\nD=file\n",
    );
    let got = inside(
        world
            .longshore()
            .env("A", "host")
            .env("B", "host")
            .env("FREE", "host")
            .env("APPTAINERENV_B", "prefixed")
            .env("APPTAINERENV_C", "prefixed")
            .env("SINGULARITYENV_B", "older prefix")
            .args(["exec", "--env-file", "file", "--env", "D=option"])
            .args(SHOW),
    );
    let user = crate::support::user().name.clone();
    assert_eq!(got["A"], "image");
    assert_eq!(got["B"], "prefixed");
    assert_eq!(got["C"], format!("file of {user}"));
    assert_eq!(got["D"], "option");
    assert_eq!(got["FREE"], "host");
    assert_eq!(got["PATH"], "/bin:/opt");
}

#[test]
fn values_are_not_run_through_a_shell() {
    let world = World::new();
    let value = "a b\t$(id) `id` \"q\" 'r' \\ \n end";
    if !with_env(&world, r#"{"config":{"Env":["LAB=a b$c \"d\""]}}"#) {
        skip!("no static busybox")
    }
    let got = inside(
        world
            .longshore()
            .env("HOSTS", value)
            .env("APPTAINERENV_MINE", value)
            .args(["exec", "--env", &format!("OPTION={value}")])
            .args(SHOW),
    );
    assert_eq!(got["LAB"], "a b$c \"d\"");
    for name in ["HOSTS", "MINE", "OPTION"] {
        assert_eq!(got[name], value, "{name}");
    }
}

#[test]
fn what_describes_the_host_stays_outside() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let got = inside(
        world
            .longshore()
            .env("LD_LIBRARY_PATH", "/opt/lib")
            .env("APPTAINER_QUIET", "1")
            .args(["exec", "-B", "/usr:/opt:ro"])
            .args(SHOW),
    );
    let image = world.path("work/box");
    let image = image.to_str().expect("is text");
    assert_eq!(got.get("LD_LIBRARY_PATH"), None);
    assert_eq!(got.get("APPTAINER_QUIET"), None);
    assert_eq!(
        got["PATH"],
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    );
    assert_eq!(
        got["USER_PATH"],
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    );
    for name in [
        "LONGSHORE_CONTAINER",
        "APPTAINER_CONTAINER",
        "SINGULARITY_CONTAINER",
    ] {
        assert_eq!(got[name], image);
    }
    assert_eq!(got["APPTAINER_NAME"], "box");
    assert_eq!(got["APPTAINER_BIND"], "/usr:/opt:ro");
    assert_eq!(got["PWD"], world.path("work").to_str().expect("is text"));
}

#[test]
fn a_clean_environment_holds_nothing_of_the_host_but_the_terminal() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    for option in ["-e", "--cleanenv", "--containall"] {
        let got = inside(
            world
                .longshore()
                .env("TERM", "dumb")
                .env("FOO", "1")
                .env("SINGULARITYENV_BAR", "2")
                .args(["exec", option])
                .args(SHOW),
        );
        assert_eq!(got.get("FOO"), None);
        assert_eq!(got["TERM"], "dumb");
        assert_eq!(got["BAR"], "2");
        assert_eq!(got["LANG"], "C");
    }
}

#[test]
fn paths_are_prepended_and_appended() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let got = inside(
        world
            .longshore()
            .env("SINGULARITYENV_PREPEND_PATH", "/first")
            .env("APPTAINERENV_APPEND_PATH", "/last")
            .env("APPTAINERENV_PATH", "/bin")
            .args(["exec"])
            .args(SHOW),
    );
    assert_eq!(got["PATH"], "/first:/bin:/last");
    assert_eq!(got.get("PREPEND_PATH"), None);
}

#[test]
fn single_variables_can_be_kept_outside() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let got = inside(
        world
            .longshore()
            .env("A", "1")
            .env("B", "2")
            .args(["exec", "--no-env", "A"])
            .args(SHOW),
    );
    assert_eq!((got.get("A"), got["B"].as_str()), (None, "2"));
}

#[test]
fn scripts_of_the_image_set_variables_with_and_without_a_shell() {
    let world = World::new();
    let Some(root) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    fs::create_dir_all(root.join(".singularity.d/env")).expect("own folder");
    let script = |name: &str, text: &str| {
        fs::write(root.join(".singularity.d/env").join(name), text).expect("own folder");
    };
    script(
        "10-docker2singularity.sh",
        "#!/bin/sh\nexport PATH=\"${PATHX:-\"/bin:/usr/bin\"}\"\nexport A=\"${A:-\"x y\"}\"\n",
    );
    script("90-environment.sh", "export B=\"$A z\"\nC=unexported\n");
    let run = || {
        let mut command = world.longshore();
        command
            .env("A", "host")
            .env("ONLY", "ho'st")
            .args(["-v", "exec", "--env", "D=it's", "box", "env"]);
        say(&mut command)
    };
    let expect = |out: &str| {
        for line in [
            "A=x y",
            "B=x y z",
            "D=it's",
            "ONLY=ho'st",
            "PATH=/bin:/usr/bin",
        ] {
            assert!(
                out.lines().any(|found| found == line),
                "{line} is not in:\n{out}"
            );
        }
        assert!(!out.contains("unexported"), "{out}");
    };
    let without = run();
    expect(&without.out);
    assert!(
        !without.err.contains("finishes the environment"),
        "{}",
        without.err
    );
    script("95-apps.sh", "export E=$(echo from a shell)\n");
    let with = run();
    expect(&with.out);
    assert!(with.out.contains("E=from a shell\n"), "{}", with.out);
    assert!(
        with.err.contains("the image's own /bin/sh finishes the environment, because of /.singularity.d/env/95-apps.sh, line 1"),
        "{}",
        with.err
    );
}

#[test]
fn an_environment_file_that_needs_a_shell_is_refused() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    world.write("work/file", "A=1\nB=$(id)\n");
    let said = say(world
        .longshore()
        .args(["exec", "--env-file", "file", "box", "true"]));
    assert_eq!(said.status, Some(125));
    assert!(said.err.contains("file, line 2:"), "{}", said.err);
}

#[test]
fn every_option_can_be_a_variable_and_binds_add_up() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    for name in ["a", "b", "c"] {
        world.make_dir(name);
        world.write(format!("{name}/file"), name);
    }
    let bind = |name: &str, at: &str| format!("{}:{at}", world.path(name).display());
    let out = succeed(
        world
            .longshore()
            .env("APPTAINER_BIND", bind("a", "/m/a"))
            .env("SINGULARITY_BINDPATH", bind("b", "/m/b"))
            .args([
                "exec",
                "-B",
                &bind("c", "/m/c"),
                "box",
                "sh",
                "-c",
                "cat /m/*/file",
            ]),
    );
    assert_eq!(out, "abc");
    let out = succeed(
        world
            .longshore()
            .env("SINGULARITY_CLEANENV", "1")
            .env("LONGSHORE_CLEANENV", "no")
            .env("FOO", "passes")
            .args(["exec", "box", "sh", "-c", "echo $FOO"]),
    );
    assert_eq!(out, "passes\n", "Longshore's own variable comes first");
    let out = succeed(
        world
            .longshore()
            .env("APPTAINER_PWD", "/opt")
            .env("APPTAINER_NO_MOUNT", "home,tmp,cwd")
            .args(["exec", "box", "sh", "-c", "pwd; ls /tmp | wc -l"]),
    );
    assert_eq!(out, "/opt\n0\n");
}
