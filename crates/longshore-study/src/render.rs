//! Renderings of a [`Report`]: text for a terminal, Markdown, CSV, JSON and one HTML page.

mod chart;
mod html;
mod table;

use std::fmt::Write as _;

pub use html::html;

use crate::quantity::{scale_for, show, significant};
use crate::report::{ExpectationReport, Figure, Report, VariantReport};
use crate::sample::Variant;
use crate::verdict::Validity;
use table::Table;

/// The report for a terminal or a job log.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{}: {}", report.name, report.question);
    for sentence in &report.answer {
        let _ = writeln!(out, "  {sentence}");
    }
    out.push('\n');
    out.push_str(&figures_table(report, Detail::Short).text());
    let comparisons = expectations_table(report, Detail::Short);
    if !report.expectations.is_empty() {
        out.push('\n');
        out.push_str(&comparisons.text());
    }
    let remarks = remarks(report);
    if !remarks.is_empty() {
        out.push('\n');
        for remark in remarks {
            let _ = writeln!(out, "note: {remark}");
        }
    }
    out
}

/// The report as Markdown, for an issue or a wiki.
pub fn markdown(report: &Report) -> String {
    let mut out = format!("# {}\n\n**{}**\n\n", report.name, report.question);
    for sentence in &report.answer {
        let _ = writeln!(out, "- {sentence}");
    }
    let _ = write!(
        out,
        "\n## Figures\n\n{}",
        figures_table(report, Detail::Full).markdown()
    );
    if !report.expectations.is_empty() {
        let _ = write!(
            out,
            "\n## Expectations\n\n{}",
            expectations_table(report, Detail::Full).markdown()
        );
    }
    let remarks = remarks(report);
    if !remarks.is_empty() {
        out.push_str("\n## Remarks\n\n");
        for remark in remarks {
            let _ = writeln!(out, "- {remark}");
        }
    }
    out.push_str("\n## What was measured\n\n");
    for (name, text) in &report.facts {
        let _ = writeln!(out, "- {name}: `{}`", text.replace('`', "'"));
    }
    let _ = writeln!(
        out,
        "\n{} on {}, {} rounds, seed {}. {STATISTICS}",
        report.tool, report.time, report.rounds, report.seed
    );
    out
}

/// Where the intervals come from; printed below every set of figures.
pub(crate) const STATISTICS: &str = "Medians; intervals are 95 % percentile bootstrap intervals \
     (Efron 1979) over rounds, paired by round for ratios.";

/// One row for each metric of each variant, in base units.
pub fn csv(report: &Report) -> String {
    let axes: Vec<&str> = report.variants.first().map_or_else(Vec::new, |variant| {
        variant
            .variant
            .0
            .iter()
            .map(|(axis, _)| axis.as_str())
            .collect()
    });
    let mut header = axes.clone();
    header.extend([
        "metric",
        "unit",
        "count",
        "median",
        "low95",
        "high95",
        "mad",
        "cv",
        "min",
        "max",
        "first",
        "ratio",
        "ratio_low95",
        "ratio_high95",
        "validity",
    ]);
    let mut out = csv_line(header.iter().map(|&field| field.to_owned()));
    for variant in &report.variants {
        let labels = || variant.variant.0.iter().map(|(_, label)| label.clone());
        if variant.figures.is_empty() {
            let mut fields: Vec<String> = labels().collect();
            fields.extend((0..14).map(|_| String::new()));
            fields.push(variant.validity.to_string());
            out.push_str(&csv_line(fields));
        }
        for figure in &variant.figures {
            let number = |value: f64| format!("{value}");
            let optional = |value: Option<f64>| value.map(number).unwrap_or_default();
            let mut fields: Vec<String> = labels().collect();
            fields.extend([
                figure.metric.clone(),
                figure.unit.clone(),
                figure.summary.count.to_string(),
                number(figure.summary.median),
                number(figure.interval.low),
                number(figure.interval.high),
                number(figure.summary.mad),
                number(figure.summary.cv),
                number(figure.summary.min),
                number(figure.summary.max),
                optional(figure.first),
                optional(figure.ratio.map(|ratio| ratio.value)),
                optional(figure.ratio.map(|ratio| ratio.low)),
                optional(figure.ratio.map(|ratio| ratio.high)),
                variant.validity.to_string(),
            ]);
            out.push_str(&csv_line(fields));
        }
    }
    out
}

/// Quotes as RFC 4180 asks.
fn csv_line(fields: impl IntoIterator<Item = String>) -> String {
    let fields: Vec<String> = fields
        .into_iter()
        .map(|field| {
            if field.contains(['"', ',', '\n', '\r']) {
                format!("\"{}\"", field.replace('"', "\"\""))
            } else {
                field
            }
        })
        .collect();
    let mut line = fields.join(",");
    line.push('\n');
    line
}

/// The report as one JSON object.
///
/// # Errors
///
/// None in practice: the record has no keys or numbers that JSON lacks.
pub fn json(report: &Report) -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string_pretty(report)?;
    text.push('\n');
    Ok(text)
}

/// How much a table holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// What fits a terminal.
    Short,
    /// Everything.
    Full,
}

fn figures_table(report: &Report, detail: Detail) -> Table {
    let mut header = vec!["variant".to_owned(), "runs".to_owned()];
    for (index, metric) in report.metrics.iter().enumerate() {
        if index == 0 {
            header.push(format!("{} median (95 %)", metric.name));
            header.push("min".to_owned());
            if detail == Detail::Full {
                header.extend(["first".to_owned(), "cv".to_owned()]);
            }
        } else if shown(index, detail) {
            header.push(metric.name.clone());
        }
    }
    if let Some(reference) = &report.reference {
        header.push(format!("ratio to {} (95 %)", reference.labels()));
    }
    header.push("measurement".to_owned());
    let mut table = Table::new(header);
    for variant in &report.variants {
        let mut row = vec![variant.variant.labels(), String::new()];
        for (index, metric) in report.metrics.iter().enumerate() {
            let figure = figure_of(variant, &metric.name);
            if index == 0 {
                if let Some(figure) = figure {
                    row[1] = figure.summary.count.to_string();
                }
                let cells = main_cells(figure);
                let wanted = if detail == Detail::Full { 4 } else { 2 };
                row.extend(cells.into_iter().take(wanted));
            } else if shown(index, detail) {
                row.push(
                    figure.map_or_else(dash, |figure| show(figure.summary.median, &figure.unit)),
                );
            }
        }
        if let Some(reference) = &report.reference {
            let figure = report
                .metrics
                .first()
                .and_then(|metric| figure_of(variant, &metric.name));
            row.push(ratio_cell(&variant.variant, figure, reference));
        }
        row.push(variant.validity.to_string());
        table.add(row);
    }
    table
}

/// Of further metrics a terminal gets the first.
fn shown(index: usize, detail: Detail) -> bool {
    detail == Detail::Full || index < 2
}

fn main_cells(figure: Option<&Figure>) -> [String; 4] {
    let Some(figure) = figure else {
        return [dash(), dash(), dash(), dash()];
    };
    let scale = scale_for(&figure.unit, figure.summary.median);
    let number = |value: f64| significant(value / scale.factor);
    [
        format!(
            "{} ({} to {})",
            show(figure.summary.median, &figure.unit),
            number(figure.interval.low),
            number(figure.interval.high)
        ),
        show(figure.summary.min, &figure.unit),
        figure
            .first
            .map_or_else(dash, |first| show(first, &figure.unit)),
        format!("{:.0} %", figure.summary.cv * 100.0),
    ]
}

fn ratio_cell(variant: &Variant, figure: Option<&Figure>, reference: &Variant) -> String {
    if variant.matches(reference) {
        return "1 (reference)".to_owned();
    }
    figure
        .and_then(|figure| figure.ratio)
        .map_or_else(dash, |ratio| {
            // Beyond ten, thousandths are below what any interval resolves.
            let decimals = if ratio.value < 10.0 { 3 } else { 1 };
            let number = |value: f64| format!("{value:.decimals$}");
            format!(
                "{}x ({} to {})",
                number(ratio.value),
                number(ratio.low),
                number(ratio.high)
            )
        })
}

fn expectations_table(report: &Report, detail: Detail) -> Table {
    let mut header = vec![
        "expectation",
        "expected",
        "observed",
        "measurement",
        "verdict",
    ];
    if detail == Detail::Full {
        header.push("why");
    }
    let mut table = Table::new(header.into_iter().map(str::to_owned).collect());
    for expectation in &report.expectations {
        let mut row = vec![
            format!("{} {}", expectation.variant.labels(), expectation.metric),
            expectation.expected.clone(),
            expectation.observed_text.clone(),
            short_validity(expectation),
            expectation.judgement.word().to_owned(),
        ];
        if detail == Detail::Full {
            row.push(expectation.why.clone());
        }
        table.add(row);
    }
    table
}

/// The reason is in the figures' table already.
fn short_validity(expectation: &ExpectationReport) -> String {
    match &expectation.validity {
        Validity::Valid => "valid".to_owned(),
        Validity::Invalid { .. } => "invalid".to_owned(),
    }
}

fn figure_of<'r>(variant: &'r VariantReport, metric: &str) -> Option<&'r Figure> {
    variant
        .figures
        .iter()
        .find(|figure| figure.metric == metric)
}

fn dash() -> String {
    "-".to_owned()
}

/// What a reader should know about the quality of the figures.
fn remarks(report: &Report) -> Vec<String> {
    let mut remarks = Vec::new();
    if report.quiet.flagged_rounds > 0 {
        remarks.push(format!(
            "the machine was busy in {} of {} rounds ({})",
            report.quiet.flagged_rounds,
            report.quiet.rounds,
            report.quiet.remarks.join("; ")
        ));
    }
    for variant in &report.variants {
        for remark in &variant.remarks {
            remarks.push(format!("{}: {remark}", variant.variant.labels()));
        }
    }
    match &report.ended {
        None => remarks.push("the study was killed before its end".to_owned()),
        Some(reason) if reason != "all rounds made" => remarks.push(reason.clone()),
        Some(_) => {}
    }
    remarks
}
