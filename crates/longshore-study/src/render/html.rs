//! One page that needs nothing else: question, answer, charts, tables, checks, samples.

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment};
use serde::Serialize;
use serde_json::Value;

use super::{Detail, chart, expectations_table, figures_table, remarks};
use crate::report::{Report, Verdict};
use crate::verdict::{Judgement, Validity};

#[derive(Serialize)]
struct Cell {
    text: String,
    class: &'static str,
}

/// What the template shows.
#[derive(Serialize)]
struct Page<'r> {
    report: &'r Report,
    headline: &'r str,
    answer: &'r [String],
    verdict: &'static str,
    tone: &'static str,
    charts: Vec<(String, String)>,
    figures_header: &'r [String],
    figures: Vec<Vec<Cell>>,
    expectations_header: &'r [String],
    expectations: Vec<Vec<Cell>>,
    remarks: Vec<String>,
    host: Vec<(String, String)>,
    host_text: String,
    statistics: &'static str,
    wall: Option<String>,
    samples: String,
    record: String,
}

/// Renders the page.
///
/// # Errors
///
/// None in practice: the template is part of the program.
pub fn html(report: &Report) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_template("report.html", include_str!("report.html"))?;
    let (verdict, tone) = match report.verdict {
        Verdict::Pass => ("pass", "good"),
        Verdict::Below => ("below expectation", "bad"),
        Verdict::Inconclusive => ("inconclusive", "open"),
        Verdict::Invalid => ("invalid", "open"),
        Verdict::NothingExpected => ("measured", "plain"),
    };
    let figures = figures_table(report, Detail::Full);
    let expectations = expectations_table(report, Detail::Full);
    let mut host = Vec::new();
    let conditions = report.host.get("conditions").unwrap_or(&report.host);
    flatten("", conditions, &mut host);
    let page = Page {
        report,
        headline: report.answer.first().map_or("", String::as_str),
        answer: report.answer.get(1..).unwrap_or_default(),
        verdict,
        tone,
        charts: chart::charts(report)
            .into_iter()
            .map(|chart| (chart.title, chart.svg))
            .collect(),
        figures_header: figures.header(),
        figures: figures
            .rows()
            .iter()
            .zip(&report.variants)
            .map(|(row, variant)| {
                cells(row, row.len() - 1, validity_class(&variant.validity), None)
            })
            .collect(),
        expectations_header: expectations.header(),
        expectations: expectations
            .rows()
            .iter()
            .zip(&report.expectations)
            .map(|(row, expectation)| {
                let judged = judgement_class(expectation.judgement);
                cells(
                    row,
                    3,
                    validity_class(&expectation.validity),
                    Some((4, judged)),
                )
            })
            .collect(),
        remarks: remarks(report),
        host,
        host_text: serde_json::to_string_pretty(&report.host).unwrap_or_default(),
        statistics: super::STATISTICS,
        wall: report.wall_s.map(|wall| crate::quantity::show(wall, "s")),
        samples: embedded(&serde_json::to_string(&report.samples).unwrap_or_default()),
        record: embedded(&serde_json::to_string(report).unwrap_or_default()),
    };
    environment
        .get_template("report.html")?
        .render(Serde(&page))
}

/// JSON inside a script element must not end that element: `<` is written as an escape.
fn embedded(json: &str) -> String {
    json.replace('<', "\\u003c")
}

fn cells(
    row: &[String],
    validity: usize,
    validity_class: &'static str,
    judgement: Option<(usize, &'static str)>,
) -> Vec<Cell> {
    row.iter()
        .enumerate()
        .map(|(index, text)| Cell {
            text: text.clone(),
            class: if index == validity {
                validity_class
            } else {
                judgement
                    .filter(|(place, _)| *place == index)
                    .map_or("", |(_, class)| class)
            },
        })
        .collect()
}

fn validity_class(validity: &Validity) -> &'static str {
    match validity {
        Validity::Valid => "good",
        Validity::Invalid { .. } => "bad",
    }
}

fn judgement_class(judgement: Judgement) -> &'static str {
    match judgement {
        Judgement::Pass => "good",
        Judgement::Below => "bad",
        Judgement::AboveCeiling | Judgement::Inconclusive | Judgement::NotJudged => "open",
    }
}

/// Lists the leaves of a JSON value with their path.
fn flatten(path: &str, value: &Value, into: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                flatten(&path, value, into);
            }
        }
        Value::Null => {}
        Value::String(text) => into.push((path.to_owned(), text.clone())),
        other => into.push((path.to_owned(), other.to_string())),
    }
}
