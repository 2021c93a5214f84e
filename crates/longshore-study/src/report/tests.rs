use super::*;
use crate::study::WorkloadKind;

const KINDS: &[WorkloadKind] = &[WorkloadKind {
    name: "fake",
    keys: &[],
}];

fn study(expect: &str) -> Study {
    let text = format!(
        "[study]\nname = \"s\"\nquestion = \"as fast?\"\n[workload]\nkind = \"fake\"\n\
         [axes]\nwhere = [\"host\", \"box\"]\n[run]\nreference = {{ where = \"host\" }}\n{expect}"
    );
    Study::parse("s.toml", &text, KINDS).expect("is right")
}

const RATIO: &str = "[[expect]]\nmetric = \"wall\"\nrelative_to = { where = \"host\" }\n\
                     value = \"1.0\"\ntolerance = \"+5 %\"\nwhy = \"same code\"\n";

fn metric() -> Record {
    Record::Metric(Metric {
        name: "wall".into(),
        unit: "s".into(),
        better: Better::Lower,
        title: "time".into(),
    })
}

fn sample(place: &str, round: u32, value: f64) -> Sample {
    Sample {
        workload: "fake".into(),
        variant: Variant(vec![("where".into(), place.into())]),
        round,
        metric: "wall".into(),
        unit: "s".into(),
        value: Some(value),
        output: Some("same".into()),
        probes: Vec::new(),
        time: String::new(),
    }
}

/// Ten rounds with a little scatter; the second variant takes `factor` times as long.
fn records(factor: f64) -> Vec<Record> {
    let mut records = vec![metric()];
    for round in 0..=10 {
        let base = 1.0 + f64::from(round % 4) / 100.0;
        records.push(Record::Sample(sample("host", round, base)));
        records.push(Record::Sample(sample("box", round, base * factor)));
        if round > 0 {
            records.push(Record::Round {
                round,
                wall_s: 2.0,
                probes: Vec::new(),
            });
        }
    }
    records
}

fn verdict(factor: f64) -> Report {
    Report::new(&study(RATIO), &records(factor), Value::Null)
}

#[test]
fn the_same_speed_passes_and_a_slower_one_does_not() {
    assert_eq!(verdict(1.01).verdict, Verdict::Pass);
    assert_eq!(verdict(1.2).verdict, Verdict::Below);
    assert_eq!(verdict(1.2).answer[0], "No: 1 of 1 expectation is not met.");
}

#[test]
fn the_reference_is_not_judged_against_itself() {
    let report = verdict(1.01);
    assert_eq!(report.expectations.len(), 1);
    assert_eq!(report.expectations[0].variant.labels(), "box");
    assert_eq!(
        report.expectations[0].expected,
        "at most 1.050x of host (1.0 + 5 %)"
    );
}

#[test]
fn the_warm_up_counts_nowhere_but_in_its_own_column() {
    let mut records = records(1.0);
    for record in &mut records {
        if let Record::Sample(sample) = record
            && sample.round == 0
        {
            sample.value = Some(99.0);
        }
    }
    let report = Report::new(&study(RATIO), &records, Value::Null);
    let figure = &report.variants[1].figures[0];
    assert_eq!(figure.first, Some(99.0));
    assert!(figure.summary.max < 2.0);
    assert_eq!(figure.summary.count, 10);
}

#[test]
fn a_different_output_invalidates_the_comparison_whatever_its_speed() {
    let mut records = records(0.1);
    for record in &mut records {
        if let Record::Sample(sample) = record
            && sample.variant.labels() == "box"
        {
            sample.output = Some("other".into());
        }
    }
    let report = Report::new(&study(RATIO), &records, Value::Null);
    assert_eq!(report.verdict, Verdict::Invalid);
    assert_eq!(report.expectations[0].judgement, Judgement::NotJudged);
    assert!(
        report.variants[1]
            .validity
            .to_string()
            .contains("same work")
    );
}

#[test]
fn a_failed_probe_invalidates_and_a_flag_is_only_told() {
    for (effect, wanted) in [
        (Effect::Invalidates, Verdict::Invalid),
        (Effect::Flags, Verdict::Pass),
    ] {
        let mut records = records(1.0);
        if let Some(Record::Sample(sample)) = records.iter_mut().rev().nth(1) {
            sample.probes.push(Probe {
                probe: "exit status".into(),
                holds: false,
                effect,
                detail: "7".into(),
            });
        }
        let report = Report::new(&study(RATIO), &records, Value::Null);
        assert_eq!(report.verdict, wanted);
    }
}

#[test]
fn an_unavailable_variant_is_told_with_its_reason_and_not_judged() {
    let records: Vec<Record> = records(1.0)
        .into_iter()
        .filter(
            |record| !matches!(record, Record::Sample(sample) if sample.variant.labels() == "box"),
        )
        .chain([Record::Unavailable {
            variant: Variant(vec![("where".into(), "box".into())]),
            reason: "no such program".into(),
        }])
        .collect();
    let report = Report::new(&study(RATIO), &records, Value::Null);
    assert_eq!(report.verdict, Verdict::Invalid);
    assert_eq!(
        report.variants[1].validity.to_string(),
        "invalid: not measured: no such program"
    );
}

#[test]
fn the_records_of_a_killed_study_still_make_a_report() {
    let report = Report::new(&study(RATIO), &records(1.0)[..9], Value::Null);
    assert_eq!(report.ended, None);
    assert!(crate::render::text(&report).contains("killed before its end"));
}

#[test]
fn every_rendering_holds_the_figures_and_html_cannot_be_broken_out_of() {
    let mut report = verdict(1.2);
    report.question = "is <script>alert(1)</script> fast?".into();
    report.samples[0].output = Some("</script><b>".into());
    let html = crate::render::html(&report).expect("template is right");
    assert!(!html.contains("<script>alert"));
    assert_eq!(html.matches("</script>").count(), 2);
    assert!(html.contains("<svg"));
    let csv = crate::render::csv(&report);
    assert_eq!(csv.lines().count(), 3);
    assert!(
        csv.lines().all(|line| line.split(',').count() == 16),
        "{csv}"
    );
    assert!(crate::render::markdown(&report).contains("| box | 10 |"));
    let json = crate::render::json(&report).expect("serialises");
    let value: Value = serde_json::from_str(&json).expect("is JSON");
    assert_eq!(value["type"], "report");
    assert_eq!(value["variants"][1]["figures"][0]["count"], 10);
}
