//! The store between commands: names, trees, `images`, `inspect`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use crate::image_server::{FakeRegistry, Image, Packing, Reply, Tar, ordinary};
use crate::support::{World, program, say, skip, succeed};

#[test]
fn a_moved_tag_is_followed_and_the_old_tree_stays_until_it_is_cleaned() {
    let world = World::new();
    let (old, new) = (
        Image::small(),
        Image::of(&[(Tar::default().file("new", b"x").end(), Packing::Plain)]),
    );
    let (served_old, served_new) = (old.clone(), new.clone());
    let moved = Arc::new(AtomicBool::new(false));
    let is_moved = Arc::clone(&moved);
    let registry = FakeRegistry::start("127.0.0.1", move |seen| {
        let image = if is_moved.load(Ordering::Relaxed) {
            &served_new
        } else {
            &served_old
        };
        ordinary(image, seen)
    });
    let name = format!("docker://{}/a:1", registry.address);
    succeed(world.longshore().args(["pull", &name]));
    moved.store(true, Ordering::Relaxed);
    succeed(world.longshore().args(["pull", &name]));
    let listed = succeed(world.longshore().arg("images"));
    assert!(listed.contains(new.digest().short()), "{listed}");
    assert!(listed.contains("(replaced)"), "{listed}");
    succeed(world.longshore().args(["cache", "clean"]));
    let listed = succeed(world.longshore().arg("images"));
    assert!(
        listed.contains(&name) && !listed.contains("(replaced)"),
        "{listed}"
    );
    assert!(!listed.contains(old.digest().short()), "{listed}");
}

#[test]
fn a_damaged_layer_of_the_store_is_fetched_again() {
    let world = World::new();
    let image = Image::small();
    let served = image.clone();
    let registry = FakeRegistry::start("127.0.0.1", move |seen| ordinary(&served, seen));
    let name = format!("docker://{}/a:1", registry.address);
    succeed(world.longshore().args(["pull", &name]));
    let blob = world
        .path("cache/blobs/sha256")
        .join(image.layers[0].digest.hex());
    let mut bytes = fs::read(&blob).expect("the layer is kept");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&blob, &bytes).expect("own file");
    let said = say(world.longshore().args(["pull", "box", &name]));
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert!(said.err.contains("it is fetched again"), "{}", said.err);
    assert_eq!(
        fs::read_to_string(world.path("work/box/etc/name")).expect("unpacked"),
        "two\n"
    );
}

#[test]
fn a_damaged_part_of_a_layer_is_fetched_again() {
    let world = World::new();
    let image = Image::small();
    let served = image.clone();
    let registry = FakeRegistry::start("127.0.0.1", move |seen| ordinary(&served, seen));
    world.make_dir("cache/partial");
    let part = vec![0; image.layers[0].bytes.len() / 2];
    world.write(
        format!("cache/partial/{}", image.layers[0].digest.hex()),
        part,
    );
    let said = say(world
        .longshore()
        .args(["pull", &format!("docker://{}/a", registry.address)]));
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert!(said.err.contains("it is fetched again"), "{}", said.err);
}

#[test]
fn inspect_shows_the_same_of_registry_store_and_sandbox() {
    let world = World::new();
    let image = Image::small();
    let served = image.clone();
    let registry = FakeRegistry::start("127.0.0.1", move |seen| ordinary(&served, seen));
    let name = format!("docker://{}/a", registry.address);
    let inspect = |image: &str| succeed(world.longshore().args(["inspect", "--json", image]));
    let remote = inspect(&name);
    assert!(
        remote.contains(r#""labels":{"made.by":"test"}"#),
        "{remote}"
    );
    assert!(remote.contains(r#""type":"container""#), "{remote}");
    succeed(world.longshore().args(["pull", &name]));
    assert_eq!(inspect(&name), remote);
    assert_eq!(inspect(name.trim_start_matches("docker://")), remote);
    succeed(world.longshore().args(["pull", "box", &name]));
    assert!(inspect("box").contains(image.config.digest.hex()));
    let text = succeed(world.longshore().args(["inspect", "box"]));
    assert!(text.contains("env: GREETING=a b$c \"d\""), "{text}");
}

#[test]
fn the_documents_of_a_sandbox_do_not_follow_a_link_of_the_image() {
    let world = World::new();
    world.make_dir("work/victim");
    let target = world.path("work/victim");
    let tar = Tar::default().symlink(".longshore", target.to_str().expect("plain"));
    Image::of(&[(tar.end(), Packing::Plain)]).write_layout(&world.path("work/layout"), "v1");
    succeed(world.longshore().args(["pull", "box", "oci:layout"]));
    assert_eq!(fs::read_dir(&target).expect("own folder").count(), 0);
    assert!(world.path("work/box/.longshore/config.json").is_file());
}

#[test]
fn the_places_of_the_store_come_from_the_environment() {
    let world = World::new();
    Image::small().write_layout(&world.path("work/layout"), "v1");
    let pull = |name: &str| {
        let mut command = world.longshore();
        command
            .env_remove("LONGSHORE_CACHEDIR")
            .args(["pull", "oci:layout"]);
        if !name.is_empty() {
            command.env(name, world.path("work/place"));
        }
        succeed(&mut command);
    };
    pull("");
    assert!(world.path("home/.cache/longshore/trees").is_dir());
    pull("XDG_CACHE_HOME");
    assert!(world.path("work/place/longshore/trees").is_dir());
    pull("LONGSHORE_CACHEDIR");
    assert!(world.path("work/place/trees").is_dir());
}

#[test]
fn a_cache_beside_files_of_the_users_own_leaves_them_alone() {
    let world = World::new();
    Image::small().write_layout(&world.path("work/layout"), "v1");
    let own = ["thesis.tex", "write-up.txt", "tree-house/a", "trash-can/a"];
    for folder in ["", "/tmp", "/tmp/tree-house", "/tmp/trash-can"] {
        world.make_dir(format!("work/place{folder}"));
    }
    let two_days_ago = SystemTime::now() - Duration::from_secs(2 * 86400);
    for name in own.iter().chain(&["write-1-0"]) {
        let path = world.path(format!("work/place/tmp/{name}"));
        world.write(format!("work/place/tmp/{name}"), "x");
        let file = fs::File::options().write(true).open(path);
        file.and_then(|file| file.set_modified(two_days_ago))
            .expect("own file");
    }
    for arguments in [&["pull", "oci:layout"][..], &["cache", "clean", "--all"]] {
        let place = world.path("work/place");
        let mut command = world.longshore();
        command.env("LONGSHORE_CACHEDIR", place).args(arguments);
        succeed(&mut command);
    }
    for name in own {
        let path = world.path(format!("work/place/tmp/{name}"));
        assert!(path.exists(), "{name} is gone");
    }
    let leftover = world.path("work/place/tmp/write-1-0");
    assert!(!leftover.exists(), "what a killed command left is swept");
}

#[test]
fn a_wrong_name_is_a_wrong_usage() {
    let world = World::new();
    let said = say(world.longshore().args(["pull", "docker://Python"]));
    assert_eq!(said.status, Some(2), "{}", said.err);
    assert!(said.err.contains("no capital letters"), "{}", said.err);
}

#[test]
fn a_forbidden_answer_is_told_in_the_registrys_words() {
    let world = World::new();
    let registry = FakeRegistry::start("127.0.0.1", |seen| match seen.path.as_str() {
        "/v2/" => Reply::of(200, b"{}"),
        _ => Reply::of(
            403,
            br#"{"errors":[{"code":"DENIED","message":"not for you"}]}"#,
        ),
    });
    let said = say(world
        .longshore()
        .args(["pull", &format!("docker://{}/a", registry.address)]));
    assert_eq!(said.status, Some(1));
    assert!(said.err.contains("not for you"), "{}", said.err);
}

#[test]
fn an_image_is_pulled_and_run_in_one_command_and_stays_while_it_runs() {
    let Some(busybox) = program("busybox") else {
        skip!("busybox is not installed");
    };
    let busybox = fs::read(busybox).expect("readable");
    let tar = Tar::default()
        .folder("bin/")
        .program("bin/busybox", &busybox)
        .symlink("bin/sh", "busybox");
    let image = Image::of(&[(tar.end(), Packing::Gzip)]);
    let served = image.clone();
    let registry = FakeRegistry::start("127.0.0.1", move |seen| ordinary(&served, seen));
    let world = World::new();
    let name = format!("docker://{}/busybox", registry.address);
    let mut running = world
        .longshore()
        .args(["exec", &name, "/bin/sh", "-c", "echo ready; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("longshore can be started");
    let mut said = String::new();
    BufReader::new(running.stdout.take().expect("a pipe"))
        .read_line(&mut said)
        .expect("a pipe");
    assert_eq!(said, "ready\n");
    let tree = world.path("cache/trees").join(image.digest().hex());
    succeed(world.longshore().args(["cache", "clean", "--all"]));
    assert!(tree.is_dir(), "the tree of a running program was removed");
    drop(running.stdin.take());
    running.wait().expect("a child");
    succeed(world.longshore().args(["cache", "clean", "--all"]));
    assert!(!tree.exists());
    let gone = say(world
        .longshore()
        .args(["exec", "--pull", "never", &name, "/bin/sh"]));
    assert_eq!(gone.status, Some(125), "{}", gone.err);
    assert!(gone.err.contains("pulling was forbidden"), "{}", gone.err);
}

#[test]
fn a_tree_that_a_power_cut_may_have_damaged_is_made_again() {
    let world = World::new();
    Image::small().write_layout(&world.path("work/layout"), "v1");
    succeed(world.longshore().args(["pull", "oci:layout"]));
    let tree = fs::read_dir(world.path("cache/trees"))
        .expect("the store")
        .flatten()
        .next()
        .expect("a tree")
        .path();
    let mark = tree.join("unflushed");
    if !mark.exists() {
        skip!("/var/tmp is no local disk");
    }
    // As it would be after the machine has started again.
    fs::write(&mark, "another boot").expect("root or the owner");
    fs::write(tree.join("rootfs/etc/name"), "").expect("root or the owner");
    succeed(world.longshore().args(["pull", "oci:layout"]));
    let name = fs::read_to_string(tree.join("rootfs/etc/name"));
    assert_eq!(name.expect("unpacked again"), "two\n");
}
