//! Instances: started, listed, joined, stopped, and gone when they are gone.

use std::fs;
use std::process::Command;

use crate::image_server::{Image, Packing, Tar};
use crate::support::{World, say, skip, succeed};

/// A world whose records are its own; what still runs when a test fails is stopped.
struct Instances {
    world: World,
}

impl Instances {
    fn new() -> Option<Instances> {
        use std::os::unix::fs::PermissionsExt as _;
        let world = World::new();
        world.busybox_rootfs("box")?;
        let run = world.make_dir("run");
        fs::set_permissions(run, fs::Permissions::from_mode(0o700)).expect("own folder");
        Some(Instances { world })
    }

    fn longshore(&self, words: &[&str]) -> Command {
        let mut command = self.world.longshore();
        command
            .env("XDG_RUNTIME_DIR", self.world.path("run"))
            .args(words);
        command
    }
}

impl Drop for Instances {
    fn drop(&mut self) {
        let _ = self
            .longshore(&["-q", "instance", "stop", "--all", "--force"])
            .output();
    }
}

#[test]
fn an_instance_is_listed_joined_and_stopped() {
    let Some(here) = Instances::new() else {
        skip!("no static busybox")
    };
    // The reader sees the end of the output: the instance holds nothing of its caller's open.
    let said = say(&mut here.longshore(&["instance", "start", "box", "one"]));
    assert_eq!(said.status, Some(0), "{}", said.err);
    let list = succeed(&mut here.longshore(&["instance", "list", "--json"]));
    let image = here.world.path("work/box");
    assert!(
        list.starts_with(r#"{"instances":[{"instance":"one","pid":"#),
        "{list}"
    );
    assert!(
        list.contains(&format!(
            r#""img":"{}","ip":"","logErrPath":"{}"#,
            image.display(),
            here.world.path("run").display()
        )),
        "{list}"
    );
    let table = succeed(&mut here.longshore(&["instance", "list"]));
    assert!(table.starts_with("INSTANCE NAME    PID "), "{table}");
    let script = "cat /proc/1/comm; echo $APPTAINER_INSTANCE $A; read x; echo $x; exit 9";
    let mut join = here.longshore(&["exec", "--env", "A=b", "instance://one", "sh", "-c", script]);
    let input = here.world.write("work/input", "typed\n");
    let said = say(join.stdin(fs::File::open(input).expect("own file")));
    assert_eq!(said.out, "longshore\none b\ntyped\n", "{}", said.err);
    assert_eq!(said.status, Some(9));
    let said = say(&mut here.longshore(&["exec", "instance://one", "nosuch"]));
    assert_eq!(said.status, Some(127), "{}", said.err);
    let said = say(&mut here.longshore(&["instance", "start", "box", "one"]));
    assert!(
        said.err.contains("instance one already exists"),
        "{}",
        said.err
    );
    assert_eq!(said.status, Some(1));
    succeed(&mut here.longshore(&["instance", "stop", "one"]));
    let said = say(&mut here.longshore(&["exec", "instance://one", "true"]));
    assert!(
        said.err.contains("no instance found with name one"),
        "{}",
        said.err
    );
    assert_eq!(said.status, Some(125));
    assert_eq!(
        succeed(&mut here.longshore(&["instance", "list", "--json"])),
        "{\"instances\":[]}\n"
    );
}

#[test]
fn all_who_join_share_the_processes_and_files_of_the_instance() {
    let Some(here) = Instances::new() else {
        skip!("no static busybox")
    };
    succeed(&mut here.longshore(&[
        "instance",
        "start",
        "--writable-tmpfs",
        "--fakeroot",
        "box",
        "shared",
    ]));
    succeed(&mut here.longshore(&["exec", "instance://shared", "sh", "-c", "echo here > /file"]));
    let out = succeed(&mut here.longshore(&[
        "exec",
        "instance://shared",
        "sh",
        "-c",
        "cat /file; id -u",
    ]));
    assert_eq!(out, "here\n0\n");
    assert!(!here.world.path("work/box/file").exists());
}

#[test]
fn a_start_script_runs_with_its_arguments_and_is_asked_to_end() {
    use std::os::unix::fs::PermissionsExt as _;
    let Some(here) = Instances::new() else {
        skip!("no static busybox")
    };
    let folder = here.world.path("work/box/.singularity.d");
    fs::create_dir_all(&folder).expect("own folder");
    let script = folder.join("startscript");
    fs::write(&script, "#!/bin/sh\ntrap 'echo asked; exit' TERM\necho \"script $*\" > started\nwhile :; do sleep 0.1; done\n").expect("own folder");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("own file");
    succeed(&mut here.longshore(&["instance", "start", "box", "served", "a", "b c"]));
    // It may take a moment until the script has run its first line.
    let out = succeed(&mut here.longshore(&[
        "exec",
        "instance://served",
        "sh",
        "-c",
        "while ! [ -s started ]; do sleep 0.1; done; cat started",
    ]));
    assert_eq!(out, "script a b c\n");
    let said = say(&mut here.longshore(&["instance", "stop", "served"]));
    assert!(!said.err.contains("was killed"), "{}", said.err);
    let log = here.world.path("run/longshore/instances/served.out");
    assert_eq!(fs::read_to_string(log).expect("is kept"), "asked\n");
}

#[test]
fn the_program_of_an_instance_holds_no_file_of_its_caller() {
    use std::os::unix::fs::PermissionsExt as _;
    let Some(here) = Instances::new() else {
        skip!("no static busybox")
    };
    let folder = here.world.path("work/box/.singularity.d");
    fs::create_dir_all(&folder).expect("own folder");
    let script = folder.join("startscript");
    let text = "#!/bin/sh\nfor f in /proc/self/fd/*; do readlink $f; done > part\nmv part held\n";
    fs::write(&script, text).expect("own folder");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("own file");
    here.world.write("work/callers", "");
    let start = here.longshore(&["instance", "start", "box", "apart"]);
    let mut through = here.world.host_command("/bin/sh");
    through
        .env("XDG_RUNTIME_DIR", here.world.path("run"))
        .args(["-c", "exec 3< callers; exec \"$@\"", "sh"])
        .arg(start.get_program())
        .args(start.get_args());
    succeed(&mut through);
    let wait = "while ! [ -e held ]; do sleep 0.1; done; cat held";
    let held = succeed(&mut here.longshore(&["exec", "instance://apart", "sh", "-c", wait]));
    assert!(held.contains("apart.err"), "{held}");
    assert!(!held.contains("callers"), "{held}");
}

#[test]
fn a_record_of_another_process_is_not_believed() {
    let Some(here) = Instances::new() else {
        skip!("no static busybox")
    };
    succeed(&mut here.longshore(&["instance", "start", "box", "old"]));
    let record = here.world.path("run/longshore/instances/old.json");
    let text = fs::read_to_string(&record).expect("is there");
    succeed(&mut here.longshore(&["instance", "stop", "old"]));
    // As a crash leaves it, its number given to another process meanwhile.
    let start = text.find("\"start_time_ticks\":").expect("is recorded");
    let text = format!("{}1{}", &text[..start + 19], &text[start + 19..]);
    let own = text.find("\"pid\":").expect("is recorded") + 6;
    let end = own + text[own..].find(',').expect("goes on");
    here.world.write(
        record.strip_prefix(here.world.path("")).expect("is below"),
        format!("{}{}{}", &text[..own], std::process::id(), &text[end..]),
    );
    let said = say(&mut here.longshore(&["exec", "instance://old", "true"]));
    assert_eq!(said.status, Some(125));
    assert!(said.err.contains("no instance found"), "{}", said.err);
    assert!(!record.exists(), "a stale record is removed");
}

#[test]
fn names_and_folders_that_are_not_safe_are_refused() {
    let Some(here) = Instances::new() else {
        skip!("no static busybox")
    };
    let said = say(&mut here.longshore(&["instance", "start", "box", "../x"]));
    assert_eq!(said.status, Some(1));
    assert!(
        said.err.contains("`../x` is no name for an instance"),
        "{}",
        said.err
    );
    let said = say(&mut here.longshore(&["instance", "start", "nosuch", "x"]));
    assert_eq!(said.status, Some(125));
    let said = say(&mut here.longshore(&["instance", "stop", "x"]));
    assert_eq!(said.status, Some(1));
}

#[test]
fn nothing_is_made_through_a_link_in_the_place_of_the_folder_of_instances() {
    let Some(here) = Instances::new() else {
        skip!("no static busybox")
    };
    let elsewhere = here.world.make_dir("work/elsewhere");
    std::os::unix::fs::symlink(&elsewhere, here.world.path("run/longshore")).expect("own folder");
    let said = say(&mut here.longshore(&["instance", "list"]));
    assert_eq!(said.status, Some(1), "{}", said.err);
    assert!(
        said.err.contains("belongs to somebody else"),
        "{}",
        said.err
    );
    assert_eq!(fs::read_dir(elsewhere).expect("own folder").count(), 0);
}

#[test]
fn the_image_of_an_instance_stays_in_the_store() {
    let Some(here) = Instances::new() else {
        skip!("no static busybox")
    };
    let busybox = fs::read(here.world.path("work/box/bin/busybox")).expect("own file");
    let layer = Tar::default()
        .folder("bin")
        .program("bin/busybox", &busybox)
        .symlink("bin/cat", "busybox")
        .end();
    let image = Image::of(&[(layer, Packing::Plain)]);
    image.write_layout(&here.world.path("work/layout"), "v1");
    here.world.make_dir("work/layer");
    succeed(&mut here.longshore(&[
        "instance",
        "start",
        "--overlay",
        "layer",
        "oci:layout:v1",
        "stays",
    ]));
    let cleaned = succeed(&mut here.longshore(&["cache", "clean", "--all"]));
    let tree = here.world.path("cache/trees").join(image.digest().hex());
    assert!(tree.join("rootfs/bin/busybox").exists(), "{cleaned}");
    // Its overlay is its own for as long.
    let said = say(&mut here.longshore(&["exec", "--overlay", "layer", "box", "true"]));
    assert!(
        said.err.contains("another container writes to it"),
        "{}",
        said.err
    );
    succeed(&mut here.longshore(&["instance", "stop", "stays"]));
    succeed(&mut here.longshore(&["exec", "--overlay", "layer", "box", "true"]));
    succeed(&mut here.longshore(&["cache", "clean", "--all"]));
    assert!(!tree.exists());
}

#[test]
fn the_number_of_the_first_process_is_written_or_nothing_is_started() {
    let Some(here) = Instances::new() else {
        skip!("no static busybox")
    };
    let path = here.world.path("work/pid");
    let file = path.to_str().expect("is text");
    succeed(&mut here.longshore(&["instance", "start", "--pid-file", file, "box", "one"]));
    let written = fs::read_to_string(file).expect("was written");
    let list = succeed(&mut here.longshore(&["instance", "list", "--json"]));
    assert!(
        list.contains(&format!(r#""pid":{},"#, written.trim())),
        "{list}"
    );
    let said = say(&mut here.longshore(&[
        "instance",
        "start",
        "--pid-file",
        "/nosuch/pid",
        "box",
        "two",
    ]));
    assert_eq!(said.status, Some(1), "{}", said.err);
    assert!(said.err.contains("/nosuch/pid"), "{}", said.err);
    let list = succeed(&mut here.longshore(&["instance", "list", "--json"]));
    assert!(!list.contains(r#""two""#), "{list}");
}
