//! `longshore doctor` as an ordinary user.

use std::fs;
use std::time::{Duration, Instant};

use crate::support::{World, program, say, skip, succeed};

#[test]
fn the_page_answers_first_and_has_a_line_for_each_subject() {
    let world = World::new();
    let said = say(world.longshore().arg("doctor"));
    let first = said.out.lines().next().expect("a page");
    match said.status {
        Some(0) => assert_eq!(first, "yes containers can run here"),
        Some(4) => assert!(
            first.starts_with("no  containers cannot run here: "),
            "{first}"
        ),
        other => panic!("status {other:?}: {}", said.err),
    }
    for subject in [
        "system",
        "user namespace",
        "overlay",
        "FUSE",
        "cache",
        "temp",
        "GPUs",
    ] {
        assert!(
            said.out.contains(&format!("{subject}  ")),
            "{subject}: {}",
            said.out
        );
    }
    assert!(
        said.out.is_ascii() && !said.out.contains('\x1b'),
        "{}",
        said.out
    );
    assert!(
        said.out
            .contains(&world.path("cache").display().to_string()),
        "{}",
        said.out
    );
}

#[test]
fn json_is_one_object_a_line_with_a_type() {
    let world = World::new();
    let said = say(world.longshore().args(["doctor", "--json"]));
    let types: Vec<String> = said
        .out
        .lines()
        .map(|line| {
            let record: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
            record["type"].as_str().expect("a type").to_owned()
        })
        .collect();
    assert_eq!(types, ["host", "check", "check"], "{}", said.err);
}

#[test]
fn the_status_answers_one_question() {
    let world = World::new();
    let said = say(world.longshore().args(["doctor", "--check", "run"]));
    let can = said.status == Some(0);
    assert!(can || said.status == Some(4), "{}", said.err);
    assert!(said.out.contains(if can {
        "containers can run"
    } else {
        "containers cannot run"
    }));
}

#[test]
fn a_cache_that_cannot_be_written_is_no_place_for_images() {
    let world = World::new();
    let said = say(world
        .longshore()
        .env("LONGSHORE_CACHEDIR", "/proc/cache")
        .args(["doctor", "--check", "image"]));
    assert_eq!(said.status, Some(4), "{}", said.out);
    assert!(
        said.out.contains("/proc/cache") && said.out.contains("LONGSHORE_CACHEDIR="),
        "{}",
        said.out
    );
}

#[test]
fn a_limit_of_no_namespaces_is_told_with_the_sysctl() {
    let Some(unshare) = program("unshare") else {
        skip!("unshare (util-linux) is not installed");
    };
    let world = World::new();
    if say(world.host_command(&unshare).args(["-Ur", "true"])).status != Some(0) {
        skip!("this machine forbids user namespaces already");
    }
    let line = format!(
        "echo 0 > /proc/sys/user/max_user_namespaces && exec {} doctor",
        world.path("bin/longshore").display()
    );
    let said = say(world
        .host_command(&unshare)
        .args(["-Ur", "sh", "-c", &line]));
    assert_eq!(said.status, Some(4), "{}", said.err);
    let first = said.out.lines().next().expect("a page");
    assert_eq!(
        first,
        "no  containers cannot run here: user.max_user_namespaces is 0 on this node"
    );
    assert!(
        said.out.contains("sysctl -w user.max_user_namespaces="),
        "{}",
        said.out
    );
}

#[test]
fn the_apparmor_profile_names_the_binary() {
    let world = World::new();
    let profile = succeed(world.longshore().args(["doctor", "--apparmor-profile"]));
    let path = world.path("bin/longshore");
    assert!(
        profile.contains(&format!("profile longshore \"{}\"", path.display())),
        "{profile}"
    );
    assert!(profile.contains("userns,"));
}

#[test]
fn a_recording_holds_no_name_of_the_user() {
    let world = World::new();
    let folder = world.path("work/node");
    succeed(world.longshore().args(["doctor", "--record"]).arg(&folder));
    let trials = fs::read_to_string(folder.join("trials.json")).expect("it was recorded");
    let name = &crate::support::user().name;
    assert!(
        !trials.contains(&format!("\"{name}\"")) && !trials.contains(&format!("/{name}/")),
        "{trials}"
    );
    assert!(folder.join("host.json").is_file() && folder.join("proc/meminfo").is_file());
    let again = say(world.longshore().args(["doctor", "--record"]).arg(&folder));
    assert_eq!(again.status, Some(1));
    assert!(again.err.contains("does not exist yet"), "{}", again.err);
}

#[test]
fn an_empty_environment_and_a_removed_folder_do_not_stop_it() {
    let world = World::new();
    let folder = world.make_dir("work/gone");
    // The shell removes the folder that it stands in, then becomes the doctor.
    let line = format!(
        "rmdir ../gone && exec {} doctor",
        world.path("bin/longshore").display()
    );
    let said = say(world
        .host_command("/bin/sh")
        .env_clear()
        .current_dir(&folder)
        .args(["-c", &line]));
    assert!(matches!(said.status, Some(0 | 4)), "{}", said.err);
}

#[test]
fn it_takes_well_under_a_second() {
    let world = World::new();
    // The best of three: a loaded machine delays any one of them.
    let best = (0..3)
        .map(|_| {
            let start = Instant::now();
            say(world.longshore().args(["doctor", "--check", "run"]));
            start.elapsed()
        })
        .min()
        .expect("three runs");
    assert!(best < Duration::from_secs(1), "{best:?}");
}
