//! `longshore study`: verdicts and exit statuses, what a killed study leaves, the quickstart.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{World, program, say, skip, succeed, user};

/// A study of two programs with an expectation on their ratio.
fn two(first: &str, second: &str, tolerance: &str) -> String {
    format!(
        "[study]\nname = \"two\"\nquestion = \"as fast?\"\n\
         [workload]\nkind = \"command\"\ncmd = [\"/bin/sh\", \"-c\", \"{{script}}\"]\n\
         [axes]\nscript = {{ first = \"{first}\", second = \"{second}\" }}\n\
         [run]\nrounds = 5\nbudget = \"20 s\"\nreference = {{ script = \"first\" }}\n\
         [[expect]]\nmetric = \"wall\"\nrelative_to = {{ script = \"first\" }}\nvalue = \"1.0\"\n\
         tolerance = \"{tolerance}\"\nwhy = \"a test\"\n"
    )
}

fn run(world: &World, name: &str, study: &str) -> Command {
    world.write(format!("work/{name}.toml"), study);
    let mut command = world.longshore();
    command
        .args(["study", "run", &format!("{name}.toml"), "--out", name])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[test]
fn a_study_that_meets_its_expectations_ends_with_0_and_names_its_report() {
    let world = World::new();
    let said = succeed(&mut run(&world, "r", &two("exit 0", ":", "+9900 %")));
    assert!(said.contains("Yes: the expectation is met."), "{said}");
    let page = world.path("work/r/report.html");
    assert!(
        said.contains(&format!("report: {}", page.display())),
        "{said}"
    );
    let html = fs::read_to_string(page).expect("was written");
    assert!(html.contains("<svg") && html.contains("id=\"samples\""));
    assert!(
        !html.contains("http://") && !html.contains("https://"),
        "needs the network"
    );
    for name in ["samples.jsonl", "study.toml", "host.json", "report.md"] {
        assert!(world.path("work/r").join(name).is_file(), "{name}");
    }
    assert!(!world.path("work/r/work").exists());
    for line in fs::read_to_string(world.path("work/r/samples.jsonl"))
        .expect("was written")
        .lines()
    {
        let record: Value = serde_json::from_str(line).expect("is JSON");
        assert!(record["type"].is_string(), "{line}");
    }
}

#[test]
fn a_variant_that_is_certainly_slower_ends_with_1() {
    let world = World::new();
    let study = two("sleep 0.001", "sleep 0.5", "+5 %");
    let said = say(&mut run(&world, "r", &study));
    assert_eq!(said.status, Some(1), "{}{}", said.out, said.err);
    assert!(said.out.contains("No: 1 of 1 expectation is not met."));
}

#[test]
fn a_variant_that_does_other_work_or_fails_is_no_measurement_whatever_its_speed() {
    let world = World::new();
    for (name, second, reason) in [
        ("other", "echo b", "its output is not that of first"),
        (
            "failing",
            "echo gone >&2; exit 9",
            "9 instead of 0; it said: gone",
        ),
        ("killed", "kill -9 $$", "killed by signal 9"),
    ] {
        let said = say(&mut run(&world, name, &two("echo a", second, "+9900 %")));
        assert_eq!(said.status, Some(3), "{}{}", said.out, said.err);
        assert!(said.out.contains(reason), "{}", said.out);
        assert!(said.out.contains("not judged"), "{}", said.out);
    }
}

#[test]
fn a_mistake_in_a_study_is_shown_at_its_place_and_nothing_is_made() {
    let world = World::new();
    let study = two(":", ":", "+5 %").replace("rounds", "ronds");
    let said = say(&mut run(&world, "r", &study));
    assert_eq!(said.status, Some(2));
    assert!(
        said.err
            .contains("unknown key `ronds`; did you mean `rounds`?"),
        "{}",
        said.err
    );
    assert!(said.err.contains("at r.toml:"), "{}", said.err);
    assert!(!world.path("work/r").exists());
}

#[test]
fn a_place_that_cannot_be_written_is_an_error_that_names_it() {
    let world = World::new();
    let closed = world.make_dir("work/closed");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).expect("own folder");
    world.write("work/r.toml", two(":", ":", "+5 %"));
    let said = say(world
        .longshore()
        .args(["study", "run", "r.toml", "--out", "closed/r"]));
    assert_eq!(said.status, Some(1), "{}", said.err);
    assert!(
        said.err.contains("closed/r: Permission denied"),
        "{}",
        said.err
    );
    assert!(said.err.contains("--out DIR"), "{}", said.err);
}

#[test]
fn a_result_is_not_written_over() {
    let world = World::new();
    let study = two(":", ":", "+9900 %");
    succeed(&mut run(&world, "r", &study));
    let said = say(&mut run(&world, "r", &study));
    assert_eq!(said.status, Some(1));
    assert!(said.err.contains("/r is not empty"), "{}", said.err);
    // What a study makes for itself is removed at its end; what others made is not.
    world.make_dir("work/mine/work");
    let own = world.write("work/mine/work/thesis.tex", "x");
    let said = say(&mut run(&world, "mine", &study));
    assert_eq!(said.status, Some(1));
    assert!(own.exists(), "{}", said.err);
}

#[test]
fn reports_are_made_again_from_the_samples() {
    let world = World::new();
    succeed(&mut run(&world, "r", &two(":", "exit 0", "+9900 %")));
    let kept = |name: &str| fs::read_to_string(world.path("work/r").join(name)).expect("is there");
    let show = |form: &str| succeed(world.longshore().args(["study", "show", "r", form]));
    assert_eq!(show("--csv"), kept("report.csv"));
    assert_eq!(show("--md"), kept("report.md"));
    let (html, json) = (kept("report.html"), show("--json"));
    let record: Value = serde_json::from_str(&json).expect("is JSON");
    assert_eq!(record["verdict"], "pass");
    fs::remove_file(world.path("work/r/report.html")).expect("is there");
    show("--html");
    assert_eq!(kept("report.html"), html);
}

/// Whether any process has `word` as one of its arguments.
fn runs_with(word: &str) -> bool {
    fs::read_dir("/proc")
        .expect("/proc is mounted")
        .filter_map(Result::ok)
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .any(|line| {
            line.split(|byte| *byte == 0)
                .any(|argument| argument == word.as_bytes())
        })
}

fn wait_for(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "no {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts a study whose second variant sleeps for `seconds`, and waits until it does.
fn sleeping(world: &World, seconds: &str) -> Child {
    let study = two(":", &format!("exec sleep {seconds}"), "+5 %");
    let study = run(world, "r", &study).spawn().expect("can be started");
    wait_for("sleep", || runs_with(seconds));
    study
}

fn samples(world: &World) -> usize {
    fs::read_to_string(world.path("work/r/samples.jsonl"))
        .expect("is written as it runs")
        .matches("\"type\":\"sample\"")
        .count()
}

#[test]
fn a_killed_study_leaves_its_samples_and_no_process() {
    let world = World::new();
    // Nobody else sleeps for as long as this.
    let seconds = "7191.25";
    let mut study = sleeping(&world, seconds);
    study.kill().expect("is ours");
    study.wait().expect("is ours");
    wait_for("end of the measured program", || !runs_with(seconds));
    assert_eq!(samples(&world), 3, "one warm-up of three metrics");
    let said = succeed(world.longshore().args(["study", "show", "r"]));
    assert!(said.contains("killed before its end"), "{said}");
}

#[test]
fn a_study_that_is_asked_to_end_ends_what_it_started_and_writes_its_report() {
    let world = World::new();
    let seconds = "7192.25";
    let mut study = sleeping(&world, seconds);
    let pid = rustix::process::Pid::from_child(&study);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("is ours");
    assert_eq!(study.wait().expect("is ours").code(), Some(128 + 15));
    assert!(!runs_with(seconds));
    assert!(world.path("work/r/report.html").is_file());
    assert!(!world.path("work/r/work").exists());
}

#[test]
fn shipped_studies_can_be_listed_and_planned() {
    let world = World::new();
    let list = succeed(world.longshore().args(["study", "list"]));
    for line in list.lines() {
        let name = line.split(' ').next().expect("has a name");
        let plan = succeed(world.longshore().args(["study", "plan", name]));
        assert!(plan.contains("smallest difference"), "{plan}");
    }
    assert!(list.contains("quickstart"));
    let narrowed = succeed(world.longshore().args([
        "study",
        "run",
        "quickstart",
        "--dry-run",
        "--json",
        "--set",
        "task=compute",
        "--rounds",
        "3",
    ]));
    let plan: Value = serde_json::from_str(&narrowed).expect("is JSON");
    assert_eq!(plan["variants"].as_array().map(Vec::len), Some(2));
    assert_eq!(plan["rounds"], 3);
    assert!(!world.path("work/longshore-results").exists());
}

#[test]
fn the_quickstart_makes_its_image_and_measures_it_as_an_ordinary_user() {
    let world = World::new();
    if program("python3").is_none() && program("perl").is_none() {
        skip!("neither python3 nor perl is installed");
    }
    if say(world.longshore().args(["doctor"])).status != Some(0) {
        skip!("containers cannot run here; `longshore doctor` says why");
    }
    let said = say(world.longshore().args([
        "study",
        "run",
        "quickstart",
        "--rounds",
        "1",
        "--budget",
        "1s",
        "--set",
        "task=start-up,small-files",
    ]));
    // One round cannot settle a ratio; the measurement is what is tested.
    assert!(matches!(said.status, Some(0 | 1 | 3)), "{}", said.err);
    assert!(
        said.err.contains("made an image from this host's files"),
        "{}",
        said.err
    );
    let results = world.path("work/longshore-results");
    let result = fs::read_dir(results)
        .expect("the default folder")
        .next()
        .expect("one result")
        .expect("can be read")
        .path();
    let report = fs::read_to_string(result.join("report.json")).expect("was written");
    let report: Value = serde_json::from_str(&report).expect("is JSON");
    let variants = report["variants"].as_array().expect("is a list");
    assert_eq!(variants.len(), 4);
    for variant in variants {
        // The same output on both sides is part of it: the container read the same files.
        assert_eq!(variant["validity"], "valid", "{variant}\n{}", said.err);
    }
    assert!(!result.join("work").exists());
    assert!(!runs_with(&config_of(&result)), "the registry is left");
    if program("docker-registry").is_some() {
        assert!(
            said.err.contains("pulled docker://127.0.0.1:"),
            "{}",
            said.err
        );
    }
    let owner = fs::metadata(result.join("report.html")).expect("was written");
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&owner), user().uid);
}

fn config_of(result: &Path) -> String {
    result
        .join("work/registry/config.yml")
        .display()
        .to_string()
}
