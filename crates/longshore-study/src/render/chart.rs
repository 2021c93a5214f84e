//! The chart of a study: every sample, its median and interval, and the ratio to the reference.
//!
//! One chart for each group of variants that do the same work. Left, on a scale with units, a dot
//! for each run in its row, the median as a bar across and its interval as a band; right, the ratio
//! to the reference on a scale of its own, because a small difference drowns in the left one.

use std::fmt::Write as _;

use crate::quantity::{Scale, scale_for, show, significant};
use crate::report::{Report, VariantReport};
use crate::sample::{Metric, Variant};

const WIDTH: f64 = 960.0;
const ROW: f64 = 44.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 44.0;
const LABELS: f64 = 150.0;
const GAP: f64 = 46.0;
const RATIO: f64 = 290.0;
const RIGHT: f64 = 24.0;

/// A chart with its heading.
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) svg: String,
}

/// A scale from values to pixels: linear, or logarithmic where the values span too much.
struct Axis {
    low: f64,
    high: f64,
    left: f64,
    right: f64,
    logarithmic: bool,
}

/// Values that differ by more than this are drawn on a logarithmic scale.
const MAX_LINEAR: f64 = 20.0;

impl Axis {
    fn at(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.left + share.clamp(0.0, 1.0) * (self.right - self.left)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            return self.logarithmic_ticks();
        }
        // Steps of 1, 2 or 5 times a power of ten, five or so of them.
        let rough = (self.high - self.low) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|factor| factor * power)
            .find(|step| *step >= rough)
            .unwrap_or(rough);
        let first = (self.low / step - 1e-9).ceil() as i64;
        (first..first + 20)
            .map(|index| index as f64 * step)
            .take_while(|value| *value <= self.high + step * 1e-9)
            .collect()
    }

    fn logarithmic_ticks(&self) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let factors: &[f64] = if decades > 2.5 {
            &[1.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        let first = self.low.log10().floor() as i32;
        (first..first + 20)
            .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)))
            .filter(|value| (self.low..=self.high).contains(value))
            .collect()
    }
}

/// One chart for each group and metric: the first metric, and those that expectations are about.
pub(super) fn charts(report: &Report) -> Vec<Chart> {
    let mut groups: Vec<(Variant, Vec<&VariantReport>)> = Vec::new();
    for variant in report.variants.iter().filter(|v| !v.figures.is_empty()) {
        let key = group_key(report, &variant.variant);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, members)) => members.push(variant),
            None => groups.push((key, vec![variant])),
        }
    }
    let mut charts = Vec::new();
    for (key, members) in &groups {
        for (index, metric) in report.metrics.iter().enumerate() {
            let judged = report.expectations.iter().any(|expectation| {
                expectation.metric == metric.name && group_key(report, &expectation.variant) == *key
            });
            if index > 0 && !judged {
                continue;
            }
            charts.push(Chart {
                title: if key.0.is_empty() {
                    metric.title.clone()
                } else {
                    format!("{}: {}", key.labels(), metric.title)
                },
                svg: draw(report, metric, key, members),
            });
        }
    }
    charts
}

/// What the variants of one chart have in common.
fn group_key(report: &Report, variant: &Variant) -> Variant {
    match &report.reference {
        Some(reference) => variant.without(reference),
        None => Variant(variant.0[..variant.0.len().saturating_sub(1)].to_vec()),
    }
}

fn draw(report: &Report, metric: &Metric, key: &Variant, members: &[&VariantReport]) -> String {
    let has_ratio = members.iter().any(|member| {
        member
            .figures
            .iter()
            .any(|f| f.metric == metric.name && f.ratio.is_some())
    });
    let height = TOP + ROW * members.len() as f64 + BOTTOM;
    let values_right = if has_ratio {
        WIDTH - RIGHT - RATIO - GAP
    } else {
        WIDTH - RIGHT
    };
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n",
        escape(&format!("{} {}", key.labels(), metric.title))
    );
    let axis = value_axis(report, metric, members, values_right);
    let fitting = if axis.logarithmic {
        (axis.low * axis.high).sqrt()
    } else {
        axis.high
    };
    let scale = scale_for(&metric.unit, fitting);
    let floor = TOP + ROW * members.len() as f64;
    grid(&mut svg, &axis, floor, &|value| {
        let shown = value / scale.factor;
        if axis.logarithmic {
            trimmed(shown)
        } else {
            significant_tick(shown, axis.high / scale.factor)
        }
    });
    let unit = if scale.name.is_empty() {
        metric.title.clone()
    } else {
        format!("{} [{}]", metric.title, scale.name)
    };
    text(
        &mut svg,
        (axis.left + axis.right) / 2.0,
        floor + 36.0,
        "axis mid",
        &unit,
    );
    for (index, member) in members.iter().enumerate() {
        let middle = TOP + ROW * (index as f64 + 0.5);
        row_of_values(
            &mut svg, report, metric, member, index, middle, &axis, scale,
        );
    }
    if has_ratio {
        ratio_panel(&mut svg, report, metric, members, floor);
    }
    svg.push_str("</svg>\n");
    svg
}

fn value_axis(report: &Report, metric: &Metric, members: &[&VariantReport], right: f64) -> Axis {
    let mut all: Vec<f64> = Vec::new();
    let mut largest_median: f64 = 0.0;
    for member in members {
        for figure in member.figures.iter().filter(|f| f.metric == metric.name) {
            largest_median = largest_median.max(figure.summary.median);
            all.extend([figure.summary.min, figure.summary.max]);
        }
    }
    // A dashed limit that is near enough is shown too.
    for expectation in limits(report, metric, members) {
        if expectation.1 < largest_median * 2.0 {
            all.push(expectation.1);
        }
    }
    let low = all.iter().copied().fold(f64::INFINITY, f64::min);
    // A single run that hung would squeeze all others into one column; it is drawn at the edge.
    let high = all
        .iter()
        .copied()
        .fold(0.0, f64::max)
        .min(largest_median * 2.5);
    let smallest_median = members
        .iter()
        .flat_map(|member| member.figures.iter().filter(|f| f.metric == metric.name))
        .map(|figure| figure.summary.median)
        .fold(f64::INFINITY, f64::min);
    if low > 0.0 && largest_median / smallest_median > MAX_LINEAR {
        return Axis {
            low: low * 0.8,
            high: high * 1.2,
            left: LABELS,
            right,
            logarithmic: true,
        };
    }
    // Zero belongs to the scale unless it is far away from everything.
    let low = if low < 0.6 * high {
        0.0
    } else {
        low - (high - low) * 0.15 - high * 0.01
    };
    Axis {
        low,
        high: high + (high - low).max(f64::MIN_POSITIVE) * 0.06,
        left: LABELS,
        right,
        logarithmic: false,
    }
}

/// Absolute limits that apply to members: index and value.
fn limits(report: &Report, metric: &Metric, members: &[&VariantReport]) -> Vec<(usize, f64)> {
    report
        .expectations
        .iter()
        .filter(|expectation| expectation.metric == metric.name && expectation.reference.is_none())
        .filter_map(|expectation| {
            let index = members
                .iter()
                .position(|member| member.variant == expectation.variant)?;
            Some((index, expectation.limit))
        })
        .collect()
}

#[allow(clippy::too_many_arguments)]
fn row_of_values(
    svg: &mut String,
    report: &Report,
    metric: &Metric,
    member: &VariantReport,
    index: usize,
    middle: f64,
    axis: &Axis,
    scale: Scale,
) {
    let label = match &report.reference {
        Some(reference) => Variant(
            member
                .variant
                .0
                .iter()
                .filter(|(name, _)| reference.get(name).is_some())
                .cloned()
                .collect(),
        )
        .labels(),
        None => member
            .variant
            .0
            .last()
            .map(|(_, label)| label.clone())
            .unwrap_or_default(),
    };
    text(svg, LABELS - 14.0, middle + 4.0, "label end", &label);
    let Some(figure) = member.figures.iter().find(|f| f.metric == metric.name) else {
        return;
    };
    let colour = index % 6;
    let _ = writeln!(svg, "<g class=\"s{colour}\">");
    let band = (axis.at(figure.interval.low), axis.at(figure.interval.high));
    let _ = writeln!(
        svg,
        "<rect class=\"band\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"28\" rx=\"2\"/>",
        band.0,
        middle - 14.0,
        (band.1 - band.0).max(1.0)
    );
    let mut beyond = 0;
    for sample in report.samples.iter().filter(|sample| {
        sample.round > 0 && sample.metric == metric.name && sample.variant == member.variant
    }) {
        let Some(value) = sample.value else { continue };
        if value > axis.high {
            beyond += 1;
            continue;
        }
        // Spread up and down by round, so that equal values do not hide each other.
        let lift = f64::from(sample.round * 7 % 11) - 5.0;
        let _ = writeln!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.2\"><title>{}</title></circle>",
            axis.at(value),
            middle + lift * 2.2,
            escape(&format!(
                "{label}, round {}: {}",
                sample.round,
                show(value, &metric.unit)
            ))
        );
    }
    let median = axis.at(figure.summary.median);
    let tip = format!(
        "{label}: median {} ({} to {} {}), {} runs",
        show(figure.summary.median, &metric.unit),
        significant(figure.interval.low / scale.factor),
        significant(figure.interval.high / scale.factor),
        scale.name,
        figure.summary.count
    );
    let _ = writeln!(
        svg,
        "<line class=\"median\" x1=\"{median:.1}\" x2=\"{median:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"><title>{}</title></line>",
        middle - 16.0,
        middle + 16.0,
        escape(&tip)
    );
    svg.push_str("</g>\n");
    if beyond > 0 {
        let runs = if beyond == 1 { "run" } else { "runs" };
        text(
            svg,
            axis.right,
            middle - 10.0,
            "note end",
            &format!("{beyond} {runs} beyond \u{25b8}"),
        );
    }
    let limit = report.expectations.iter().find(|expectation| {
        expectation.variant == member.variant
            && expectation.metric == metric.name
            && expectation.reference.is_none()
    });
    if let Some(limit) = limit.filter(|limit| limit.limit <= axis.high) {
        let x = axis.at(limit.limit);
        let _ = writeln!(
            svg,
            "<line class=\"limit\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"><title>{}</title></line>",
            middle - 20.0,
            middle + 20.0,
            escape(&format!("expected: {}", limit.expected))
        );
    }
}

fn ratio_panel(
    svg: &mut String,
    report: &Report,
    metric: &Metric,
    members: &[&VariantReport],
    floor: f64,
) {
    let ratios: Vec<_> = members
        .iter()
        .map(|member| {
            member
                .figures
                .iter()
                .find(|figure| figure.metric == metric.name)
                .and_then(|figure| figure.ratio)
        })
        .collect();
    let limits: Vec<Option<f64>> = members
        .iter()
        .map(|member| {
            report
                .expectations
                .iter()
                .find(|expectation| {
                    expectation.variant == member.variant
                        && expectation.metric == metric.name
                        && expectation.reference.is_some()
                })
                .map(|expectation| expectation.limit)
        })
        .collect();
    let mut low: f64 = 1.0;
    let mut high: f64 = 1.0;
    for ratio in ratios.iter().flatten() {
        low = low.min(ratio.low);
        high = high.max(ratio.high);
    }
    for limit in limits.iter().flatten() {
        low = low.min(*limit);
        high = high.max(*limit);
    }
    let pad = ((high - low) * 0.12).max(0.01);
    let logarithmic = low > 0.0 && high / low > MAX_LINEAR;
    let axis = Axis {
        logarithmic,
        // Far from one, zero belongs to the scale; near one, it would flatten the picture.
        low: match high {
            _ if logarithmic => low * 0.8,
            high if high > 2.0 => 0.0,
            _ => low - pad,
        },
        high: if logarithmic { high * 1.25 } else { high + pad },
        left: WIDTH - RIGHT - RATIO,
        right: WIDTH - RIGHT,
    };
    grid(svg, &axis, floor, &|value| format!("{}x", trimmed(value)));
    let one = axis.at(1.0);
    let _ = writeln!(
        svg,
        "<line class=\"one\" x1=\"{one:.1}\" x2=\"{one:.1}\" y1=\"{TOP}\" y2=\"{floor:.1}\"/>"
    );
    let name = report
        .reference
        .as_ref()
        .map(Variant::labels)
        .unwrap_or_default();
    let direction = match metric.better {
        crate::sample::Better::Lower => "lower is better",
        crate::sample::Better::Higher => "higher is better",
    };
    text(
        svg,
        (axis.left + axis.right) / 2.0,
        floor + 36.0,
        "axis mid",
        &format!("ratio to {name} ({direction})"),
    );
    for (index, ratio) in ratios.iter().enumerate() {
        let middle = TOP + ROW * (index as f64 + 0.5);
        let Some(ratio) = ratio else {
            continue;
        };
        let tip = format!(
            "{:.3}x ({:.3}x to {:.3}x)",
            ratio.value, ratio.low, ratio.high
        );
        let _ = writeln!(
            svg,
            "<g class=\"s{}\"><title>{}</title><line class=\"whisker\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\"/>",
            index % 6,
            escape(&tip),
            axis.at(ratio.low),
            axis.at(ratio.high)
        );
        for end in [ratio.low, ratio.high] {
            let x = axis.at(end);
            let _ = writeln!(
                svg,
                "<line class=\"whisker\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
                middle - 6.0,
                middle + 6.0
            );
        }
        let x = axis.at(ratio.value);
        let _ = writeln!(
            svg,
            "<circle class=\"value\" cx=\"{x:.1}\" cy=\"{middle:.1}\" r=\"5\"/></g>"
        );
        text(
            svg,
            x,
            middle - 11.0,
            "value mid",
            &format!("{}x", trimmed(ratio.value)),
        );
        if let Some(limit) = limits[index] {
            let x = axis.at(limit);
            let _ = writeln!(
                svg,
                "<line class=\"limit\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"><title>limit {}x</title></line>",
                middle - 20.0,
                middle + 20.0,
                trimmed(limit)
            );
        }
    }
}

fn grid(svg: &mut String, axis: &Axis, floor: f64, label: &dyn Fn(f64) -> String) {
    for tick in axis.ticks() {
        let x = axis.at(tick);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{floor:.1}\"/>",
            TOP - 6.0
        );
        text(svg, x, floor + 17.0, "tick mid", &label(tick));
    }
    let _ = writeln!(
        svg,
        "<line class=\"base\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{floor:.1}\" y2=\"{floor:.1}\"/>",
        axis.left, axis.right
    );
}

fn text(svg: &mut String, x: f64, y: f64, class: &str, words: &str) {
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
        escape(words)
    );
}

/// A tick with as many decimals as the scale needs, no more.
fn significant_tick(value: f64, high: f64) -> String {
    let decimals = if high >= 20.0 {
        0
    } else if high >= 2.0 {
        1
    } else {
        2
    };
    trim(format!("{value:.decimals$}"))
}

fn trimmed(value: f64) -> String {
    let decimals = if value.abs() < 10.0 { 3 } else { 1 };
    trim(format!("{value:.decimals$}"))
}

fn trim(text: String) -> String {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Text as it may stand in XML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers_inside_the_scale() {
        let axis = Axis {
            low: 0.0,
            high: 0.0123,
            left: 0.0,
            right: 100.0,
            logarithmic: false,
        };
        let ticks = axis.ticks();
        assert_eq!(ticks.len(), 3, "{ticks:?}");
        assert!((ticks[1] - 0.005).abs() < 1e-12);
        assert!(ticks.iter().all(|tick| *tick <= axis.high));
    }

    #[test]
    fn values_that_span_decades_get_a_logarithmic_scale() {
        let axis = Axis {
            low: 0.001,
            high: 0.8,
            left: 0.0,
            right: 100.0,
            logarithmic: true,
        };
        assert_eq!(axis.ticks(), [0.001, 0.01, 0.1]);
        assert!((axis.at(0.01) - axis.at(0.001) - (axis.at(0.1) - axis.at(0.01))).abs() < 1e-6);
        assert_eq!(axis.at(0.0), 0.0);
    }

    #[test]
    fn labels_of_a_study_cannot_break_out_of_the_picture() {
        assert_eq!(escape("<script>\"&"), "&lt;script&gt;&quot;&amp;");
    }
}
