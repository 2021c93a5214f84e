use super::*;

const KINDS: &[WorkloadKind] = &[WorkloadKind {
    name: "command",
    keys: &["cmd"],
}];

const GOOD: &str = r#"
[study]
name = "render"
question = "is the container as fast?"
[workload]
kind = "command"
cmd = ["blender", "-t", "{threads}"]
[axes]
where = { host = "", box = ["longshore", "exec", "b.sif"] }
threads = [1, 4]
exclude = [{ where = "box", threads = 4 }]
[run]
rounds = 9
budget = "90 s"
reference = { where = "host" }
[[expect]]
metric = "wall"
relative_to = { where = "host" }
value = "1.0"
tolerance = "+3 %"
why = "same instructions"
"#;

fn complaint(text: &str) -> String {
    Study::parse("s.toml", text, KINDS)
        .expect_err("has a mistake")
        .to_string()
}

#[test]
fn a_study_is_read_with_its_axes_in_the_order_of_the_file() {
    let study = Study::parse("s.toml", GOOD, KINDS).expect("is right");
    let names: Vec<&str> = study.axes.iter().map(|axis| axis.name.as_str()).collect();
    assert_eq!(names, ["where", "threads"]);
    assert_eq!(study.axes[0].values[0].0, "host");
    assert_eq!(study.exclude[0].to_string(), "where=box threads=4");
    assert_eq!(study.run.rounds, 9);
    assert_eq!(study.run.budget, Duration::from_secs(90));
    assert_eq!(study.expectations[0].tolerance, 0.03);
}

#[test]
fn a_misspelt_key_is_shown_at_its_place_with_what_was_meant() {
    let text = GOOD.replace("rounds = 9", "ronds = 9");
    assert_eq!(
        complaint(&text),
        "unknown key `ronds`; did you mean `rounds`? in [run]
  at s.toml:13:1
  13 | ronds = 9
       ^^^^^"
    );
}

#[test]
fn an_unknown_label_names_those_of_the_axis() {
    let text = GOOD.replace(
        "reference = { where = \"host\" }",
        "reference = { where = \"moon\" }",
    );
    assert!(
        complaint(&text)
            .starts_with("unknown label on axis `where` `moon`; there is `host`, `box`"),
        "{}",
        complaint(&text)
    );
}

#[test]
fn a_tolerance_without_a_side_is_refused() {
    let text = GOOD.replace("+3 %", "3 %");
    assert!(complaint(&text).contains("needs a side"));
}

#[test]
fn mistakes_of_type_unit_and_syntax_are_errors_with_a_line() {
    for (from, to) in [
        ("rounds = 9", "rounds = 0"),
        ("rounds = 9", "rounds = 1.5"),
        ("rounds = 9", "rounds = \"many\""),
        ("budget = \"90 s\"", "budget = \"90 MiB\""),
        ("budget = \"90 s\"", "budget = \"-1 s\""),
        ("value = \"1.0\"", "value = \"1.0 lightyears\""),
        ("kind = \"command\"", "kind = \"comand\""),
        ("[run]", "[run"),
        ("name = \"render\"", "name = \"../../etc\""),
        ("threads = [1, 4]", "threads = [1, 1]"),
        ("threads = [1, 4]", "threads = []"),
        ("threads = [1, 4]", "threads = 4"),
        ("[study]", "[studie]"),
    ] {
        assert!(GOOD.contains(from));
        let said = complaint(&GOOD.replace(from, to));
        assert!(said.contains("at s.toml:"), "{to}: {said}");
    }
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in ".{0,200}") {
        let _ = Study::parse("s.toml", &text, KINDS);
        let _ = crate::quantity::Quantity::parse(&text);
        let _ = parse_duration(&text);
    }

    #[test]
    fn no_damage_to_a_study_makes_the_reader_panic(
        at in 0..GOOD.len(),
        length in 0usize..30,
        with in ".{0,8}",
    ) {
        let mut end = (at + length).min(GOOD.len());
        let mut start = at;
        while !GOOD.is_char_boundary(start) { start -= 1; }
        while !GOOD.is_char_boundary(end) { end += 1; }
        let damaged = format!("{}{with}{}", &GOOD[..start], &GOOD[end..]);
        if let Err(error) = Study::parse("s.toml", &damaged, KINDS) {
            proptest::prop_assert!(error.to_string().contains("at s.toml:"));
        }
    }
}
