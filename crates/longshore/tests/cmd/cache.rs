//! `cache list` and `cache clean`.

use std::fs;

use crate::image_server::Image;
use crate::support::{World, succeed};

fn pulled() -> World {
    let world = World::new();
    Image::small().write_layout(&world.path("work/layout"), "v1");
    succeed(world.longshore().args(["pull", "oci:layout"]));
    world
}

fn trees(world: &World) -> usize {
    fs::read_dir(world.path("cache/trees")).map_or(0, Iterator::count)
}

#[test]
fn clean_keeps_images_and_removes_leftovers() {
    let world = pulled();
    let hex = "0".repeat(64);
    for below in ["", "/rootfs", "/rootfs/a"] {
        world.make_dir(format!("cache/tmp/tree-{hex}{below}"));
    }
    world.write(format!("cache/partial/{hex}"), "half");
    let told = succeed(world.longshore().args(["cache", "clean", "--dry-run"]));
    assert!(
        told.contains("would-remove leftover") && told.contains("would-remove partial"),
        "{told}"
    );
    assert!(world.path(format!("cache/partial/{hex}")).exists());
    succeed(world.longshore().args(["cache", "clean"]));
    assert!(!world.path(format!("cache/tmp/tree-{hex}")).exists());
    assert!(!world.path(format!("cache/partial/{hex}")).exists());
    assert_eq!(trees(&world), 1);
}

#[test]
fn clean_all_leaves_what_was_used_lately_when_asked() {
    let world = pulled();
    succeed(
        world
            .longshore()
            .args(["cache", "clean", "--all", "--days", "1"]),
    );
    assert_eq!(trees(&world), 1);
    succeed(world.longshore().args(["cache", "clean", "--all"]));
    assert_eq!(trees(&world), 0);
    let listed = succeed(world.longshore().args(["cache", "list", "--json"]));
    assert_eq!(listed, "");
}

#[test]
fn an_image_in_use_is_not_removed() {
    let world = pulled();
    let locks = world.path("cache/locks");
    let lock = fs::read_dir(&locks)
        .expect("the store has locks")
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().contains("tree-"))
        .expect("the tree has a lock");
    // As a running program does, through a descriptor that it has inherited.
    let file = fs::File::open(&lock).expect("readable");
    file.lock_shared().expect("free");
    let listed = succeed(world.longshore().args(["cache", "list", "--json"]));
    assert!(listed.contains(r#""in_use":true"#), "{listed}");
    succeed(world.longshore().args(["cache", "clean", "--all"]));
    assert_eq!(trees(&world), 1);
    drop(file);
    succeed(world.longshore().args(["cache", "clean", "--all"]));
    assert_eq!(trees(&world), 0);
}

#[test]
fn a_store_that_does_not_exist_is_an_empty_one() {
    let world = World::new();
    let listed = succeed(world.longshore().args(["cache", "list"]));
    assert!(listed.contains("0 B in"), "{listed}");
    succeed(world.longshore().args(["cache", "clean", "--all"]));
    assert_eq!(succeed(world.longshore().args(["images"])), "");
}
