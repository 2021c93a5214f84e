//! `longshore bench start`: runtimes by name and by template, and those that are not there.

use std::fs;

use serde_json::Value;

use crate::support::{World, say, succeed};

#[test]
fn runtimes_given_as_templates_are_measured_side_by_side_with_the_host() {
    let world = World::new();
    let image = world.make_dir("work/image");
    let said = succeed(world.longshore().args([
        "bench",
        "start",
        "image",
        "--runs",
        "4",
        "--json",
        "--out",
        "r",
        "--runtime",
        "env=/usr/bin/env IMAGE={image} {cmd}",
        "--runtime",
        "unshare=/no/such/unshare {cmd}",
    ]));
    let report: Value = serde_json::from_str(&said).expect("is JSON");
    let variants = report["variants"].as_array().expect("is a list");
    let labels: Vec<&Value> = variants.iter().map(|v| &v["variant"]["runtime"]).collect();
    assert_eq!(labels, ["host", "env", "unshare"]);
    let env = &variants[1];
    assert_eq!(env["validity"], "valid", "{env}");
    assert_eq!(env["figures"][0]["count"], 4);
    assert!(env["figures"][0]["ratio"]["low"].is_number(), "{env}");
    assert_eq!(
        variants[2]["reason"],
        "not measured: `/no/such/unshare` is not installed"
    );
    let facts = report["facts"].to_string();
    assert!(
        facts.contains(&format!("IMAGE={}", image.display())),
        "{facts}"
    );
    // The measurement is kept as a study that can be run again.
    let study = fs::read_to_string(world.path("work/r/study.toml")).expect("was written");
    world.write("work/again.toml", study);
    let again = world
        .longshore()
        .args(["study", "plan", "again.toml"])
        .output();
    assert!(again.expect("can be started").status.success());
}

#[test]
fn an_unknown_runtime_is_a_usage_error_that_lists_the_known_ones() {
    let world = World::new();
    let said = say(world
        .longshore()
        .args(["bench", "start", ".", "--runtime", "dockre"]));
    assert_eq!(said.status, Some(2));
    assert!(
        said.err.contains("`dockre=COMMAND {image} {cmd}`"),
        "{}",
        said.err
    );
    assert!(said.err.contains("apptainer"), "{}", said.err);
}

#[test]
fn a_command_that_fails_in_the_container_is_no_measurement() {
    let world = World::new();
    let said = say(world.longshore().args([
        "bench",
        "start",
        ".",
        "--runs",
        "2",
        "--out",
        "r",
        "--runtime",
        "broken=/bin/sh -c 'echo refused >&2; exit 125'",
    ]));
    assert!(
        said.out.contains("125 instead of 0; it said: refused"),
        "{}",
        said.out
    );
}
