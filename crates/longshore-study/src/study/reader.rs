//! Walks the TOML of a study file and reports each mistake at its place.

use std::ops::Range;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Axis, Expectation, Order, RunSettings, Setting, Study, StudyError};
use super::{WorkloadKind, WorkloadSpec};
use crate::quantity::{Quantity, similar};
use crate::sample::Variant;

const MAX_ROUNDS: u32 = 10_000;
const MAX_VARIANTS: usize = 10_000;

pub(super) fn read(file: &str, text: &str, kinds: &[WorkloadKind]) -> Result<Study, StudyError> {
    let source = Source { file, text };
    let parsed = DeTable::parse(text)
        .map_err(|error| source.error(error.span().unwrap_or(0..0), error.message().to_owned()))?;
    let whole = parsed.span();
    let top = Section::new(&source, "the file", whole, parsed.get_ref());
    top.only(&["study", "workload", "axes", "run", "expect"])?;

    let about = top.need_section("study", "[study]")?;
    about.only(&["name", "question", "about"])?;
    let (name, name_span) = about.need_text("name")?;
    if name.is_empty()
        || !name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    {
        return Err(source.error(
            name_span,
            format!("`{name}` cannot name a folder; use letters, digits, `-`, `_` and `.`"),
        ));
    }

    let axes = match top.section("axes", "[axes]")? {
        Some(section) => read_axes(&source, &section)?,
        None => (Vec::new(), Vec::new()),
    };
    let (axes, exclude) = axes;
    let selector = |section: &Section<'_>, key: &str| read_selector(section, key, &axes);

    let workload = read_workload(&top.need_section("workload", "[workload]")?, kinds)?;
    let run = match top.section("run", "[run]")? {
        Some(section) => read_run(&source, &section, selector)?,
        None => RunSettings::default(),
    };
    let mut expectations = Vec::new();
    for section in top.sections("expect", "[[expect]]")? {
        expectations.push(read_expectation(&source, &section, selector)?);
    }
    Ok(Study {
        name,
        question: about.need_text("question")?.0,
        about: about.text("about")?.map(|text| text.0).unwrap_or_default(),
        workload,
        axes,
        exclude,
        run,
        expectations,
        text: text.to_owned(),
    })
}

impl Default for RunSettings {
    fn default() -> RunSettings {
        RunSettings {
            rounds: 7,
            order: Order::Interleaved,
            reference: None,
            budget: Duration::from_secs(600),
            seed: 1,
        }
    }
}

fn read_workload(
    section: &Section<'_>,
    kinds: &[WorkloadKind],
) -> Result<WorkloadSpec, StudyError> {
    let (kind, span) = section.need_text("kind")?;
    let known = kinds.iter().find(|known| known.name == kind);
    let Some(known) = known else {
        let names = kinds.iter().map(|kind| kind.name);
        return Err(section.source.error(
            span,
            unknown(
                "kind of workload",
                &kind,
                names.collect::<Vec<_>>().as_slice(),
            ),
        ));
    };
    let mut keys = vec!["kind"];
    keys.extend(known.keys);
    section.only(&keys)?;
    let mut settings = Vec::new();
    for (key, value) in section.in_order() {
        if key != "kind" {
            settings.push((key.to_owned(), section.source.setting(value)?));
        }
    }
    Ok(WorkloadSpec { kind, settings })
}

fn read_axes(
    source: &Source<'_>,
    section: &Section<'_>,
) -> Result<(Vec<Axis>, Vec<Variant>), StudyError> {
    let mut axes = Vec::new();
    let mut variants: usize = 1;
    for (name, value) in section.in_order().filter(|(name, _)| *name != "exclude") {
        let values = match value.get_ref() {
            DeValue::Array(items) => items
                .iter()
                .map(|item| {
                    let setting = source.setting(item)?;
                    Ok((setting.to_string(), setting))
                })
                .collect::<Result<Vec<_>, StudyError>>()?,
            DeValue::Table(table) => Section::new(source, name, value.span(), table)
                .in_order()
                .map(|(label, value)| Ok((label.to_owned(), source.setting(value)?)))
                .collect::<Result<Vec<_>, StudyError>>()?,
            other => {
                return Err(source.error(
                    value.span(),
                    format!(
                        "axis `{name}` is a {}; write `[\"a\", \"b\"]` or `{{ label = \"value\" }}`",
                        other.type_str()
                    ),
                ));
            }
        };
        if values.is_empty() {
            return Err(source.error(value.span(), format!("axis `{name}` has no values")));
        }
        for (index, (label, _)) in values.iter().enumerate() {
            if values[..index].iter().any(|(other, _)| other == label) {
                return Err(source.error(
                    value.span(),
                    format!("axis `{name}` has the label `{label}` twice"),
                ));
            }
        }
        variants = variants.saturating_mul(values.len());
        if variants > MAX_VARIANTS {
            return Err(source.error(
                value.span(),
                format!("the axes make more than {MAX_VARIANTS} variants"),
            ));
        }
        axes.push(Axis {
            name: name.to_owned(),
            values,
        });
    }
    let mut exclude = Vec::new();
    if let Some(value) = section.value("exclude") {
        let DeValue::Array(items) = value.get_ref() else {
            return Err(source.error(
                value.span(),
                "`exclude` is a list of combinations: `[{ where = \"host\", jobs = 16 }]`",
            ));
        };
        for item in items {
            exclude.push(selector_of(source, item, &axes)?);
        }
    }
    Ok((axes, exclude))
}

fn read_run(
    source: &Source<'_>,
    section: &Section<'_>,
    selector: impl Fn(&Section<'_>, &str) -> Result<Option<Variant>, StudyError>,
) -> Result<RunSettings, StudyError> {
    section.only(&["rounds", "order", "reference", "budget", "seed"])?;
    let mut run = RunSettings::default();
    if let Some((rounds, span)) = section.integer("rounds")? {
        run.rounds = u32::try_from(rounds)
            .ok()
            .filter(|rounds| (1..=MAX_ROUNDS).contains(rounds))
            .ok_or_else(|| {
                source.error(span, format!("`rounds` must be between 1 and {MAX_ROUNDS}"))
            })?;
    }
    if let Some((seed, span)) = section.integer("seed")? {
        run.seed =
            u64::try_from(seed).map_err(|_| source.error(span, "`seed` must not be negative"))?;
    }
    if let Some((order, span)) = section.text("order")? {
        run.order = match order.as_str() {
            "interleaved" => Order::Interleaved,
            "fixed" => Order::Fixed,
            other => {
                return Err(source.error(span, unknown("order", other, &["interleaved", "fixed"])));
            }
        };
    }
    if let Some((text, span)) = section.text("budget")? {
        run.budget = parse_duration(&text).map_err(|message| source.error(span, message))?;
    }
    run.reference = selector(section, "reference")?;
    Ok(run)
}

/// Reads a time such as `90 s`.
///
/// # Errors
///
/// A sentence that says what is wrong with it.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let quantity = Quantity::parse(text).map_err(|error| error.to_string())?;
    if quantity.dimension.to_string() != "s" {
        return Err(format!("`{text}` is not a time; write for instance `90 s`"));
    }
    Duration::try_from_secs_f64(quantity.value).map_err(|_| format!("`{text}` is not a time"))
}

fn read_expectation(
    source: &Source<'_>,
    section: &Section<'_>,
    selector: impl Fn(&Section<'_>, &str) -> Result<Option<Variant>, StudyError>,
) -> Result<Expectation, StudyError> {
    section.only(&[
        "metric",
        "when",
        "relative_to",
        "value",
        "tolerance",
        "ceiling",
        "why",
    ])?;
    let quantity = |text: &str, span: Range<usize>| {
        Quantity::parse(text).map_err(|error| source.error(span, error.to_string()))
    };
    let (value_text, value_span) = section.need_text("value")?;
    let value = quantity(&value_text, value_span)?;
    let tolerance = match section.text("tolerance")? {
        None => 0.0,
        Some((text, span)) => {
            let tolerance = quantity(&text, span.clone())?;
            if tolerance.dimension.to_string() != "1" || !text.trim().starts_with(['+', '-']) {
                return Err(source.error(
                    span,
                    format!(
                        "tolerance `{text}` needs a side and no unit: `-5 %` lets a rate be 5 % \
                         lower, `+5 %` a time 5 % longer"
                    ),
                ));
            }
            tolerance.value
        }
    };
    let (ceiling, ceiling_text) = match section.text("ceiling")? {
        None => (None, None),
        Some((text, span)) => {
            let ceiling = quantity(&text, span.clone())?;
            if ceiling.dimension != value.dimension {
                return Err(source.error(
                    span,
                    format!(
                        "`ceiling` is in {}, `value` in {}",
                        ceiling.dimension, value.dimension
                    ),
                ));
            }
            (Some(ceiling), Some(text))
        }
    };
    Ok(Expectation {
        metric: section.need_text("metric")?.0,
        when: selector(section, "when")?.unwrap_or_default(),
        relative_to: selector(section, "relative_to")?,
        value,
        value_text,
        tolerance,
        ceiling,
        ceiling_text,
        why: section.text("why")?.map(|why| why.0).unwrap_or_default(),
    })
}

fn read_selector(
    section: &Section<'_>,
    key: &str,
    axes: &[Axis],
) -> Result<Option<Variant>, StudyError> {
    section
        .value(key)
        .map(|value| selector_of(section.source, value, axes))
        .transpose()
}

fn selector_of(
    source: &Source<'_>,
    value: &Spanned<DeValue<'_>>,
    axes: &[Axis],
) -> Result<Variant, StudyError> {
    let DeValue::Table(table) = value.get_ref() else {
        return Err(source.error(
            value.span(),
            "write a combination as `{ axis = \"label\" }`",
        ));
    };
    let mut labels = Vec::new();
    for (name, value) in Section::new(source, "selector", value.span(), table).in_order() {
        let Some(axis) = axes.iter().find(|axis| axis.name == name) else {
            let names: Vec<&str> = axes.iter().map(|axis| axis.name.as_str()).collect();
            return Err(source.error(value.span(), unknown("axis", name, &names)));
        };
        let label = source.setting(value)?.to_string();
        if axis.value(&label).is_none() {
            let names: Vec<&str> = axis.values.iter().map(|value| value.0.as_str()).collect();
            return Err(source.error(
                value.span(),
                unknown(&format!("label on axis `{name}`"), &label, &names),
            ));
        }
        labels.push((name.to_owned(), label));
    }
    Ok(Variant(labels))
}

/// `unknown key `x`; did you mean `y`?`, or the list of what there is.
fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    match similar(name, known.iter().copied()) {
        Some(near) => format!("unknown {what} `{name}`; did you mean `{near}`?"),
        None if known.is_empty() => format!("unknown {what} `{name}`; there is none"),
        None => format!("unknown {what} `{name}`; there is `{}`", known.join("`, `")),
    }
}

struct Source<'s> {
    file: &'s str,
    text: &'s str,
}

impl Source<'_> {
    fn error(&self, span: Range<usize>, message: impl Into<String>) -> StudyError {
        StudyError::at(self.file, self.text, span, message)
    }

    fn setting(&self, value: &Spanned<DeValue<'_>>) -> Result<Setting, StudyError> {
        match value.get_ref() {
            DeValue::String(text) => Ok(Setting::Text(text.to_string())),
            DeValue::Boolean(flag) => Ok(Setting::Flag(*flag)),
            DeValue::Integer(_) | DeValue::Float(_) => self.number(value).map(Setting::Number),
            DeValue::Array(items) => items
                .iter()
                .map(|item| match item.get_ref() {
                    DeValue::String(text) => Ok(text.to_string()),
                    DeValue::Integer(_) | DeValue::Float(_) => {
                        self.number(item).map(|number| number.to_string())
                    }
                    other => Err(self.error(
                        item.span(),
                        format!("a {} cannot stand in a list of words", other.type_str()),
                    )),
                })
                .collect::<Result<_, _>>()
                .map(Setting::List),
            other => Err(self.error(
                value.span(),
                format!("a {} cannot stand here", other.type_str()),
            )),
        }
    }

    fn number(&self, value: &Spanned<DeValue<'_>>) -> Result<f64, StudyError> {
        let text = match value.get_ref() {
            DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str(),
            DeValue::Float(float) => float.as_str(),
            _ => "",
        };
        text.replace('_', "")
            .parse::<f64>()
            .ok()
            .filter(|number| number.is_finite())
            .ok_or_else(|| self.error(value.span(), "a finite decimal number is needed here"))
    }
}

/// A table of the file with the name that errors use for it.
struct Section<'s> {
    source: &'s Source<'s>,
    name: &'s str,
    span: Range<usize>,
    table: &'s DeTable<'s>,
}

impl<'s> Section<'s> {
    fn new(
        source: &'s Source<'s>,
        name: &'s str,
        span: Range<usize>,
        table: &'s DeTable<'s>,
    ) -> Section<'s> {
        Section {
            source,
            name,
            span,
            table,
        }
    }

    /// The entries as they stand in the file; the parser sorts them by name.
    fn in_order(&self) -> impl Iterator<Item = (&'s str, &'s Spanned<DeValue<'s>>)> {
        let mut entries: Vec<_> = self.table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        entries
            .into_iter()
            .map(|(key, value)| (key.get_ref().as_ref(), value))
    }

    fn only(&self, known: &[&str]) -> Result<(), StudyError> {
        for (key, _) in self.table {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                return Err(self.source.error(
                    key.span(),
                    format!("{} in {}", unknown("key", name, known), self.name),
                ));
            }
        }
        Ok(())
    }

    fn value(&self, key: &str) -> Option<&'s Spanned<DeValue<'s>>> {
        self.table
            .iter()
            .find(|(name, _)| name.get_ref() == key)
            .map(|(_, value)| value)
    }

    fn text(&self, key: &str) -> Result<Option<(String, Range<usize>)>, StudyError> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => match value.get_ref() {
                DeValue::String(text) => Ok(Some((text.to_string(), value.span()))),
                other => Err(self.source.error(
                    value.span(),
                    format!(
                        "`{key}` is a {}; a text in quotes is needed",
                        other.type_str()
                    ),
                )),
            },
        }
    }

    fn need_text(&self, key: &str) -> Result<(String, Range<usize>), StudyError> {
        self.text(key)?.ok_or_else(|| {
            self.source
                .error(self.span.clone(), format!("{} has no `{key}`", self.name))
        })
    }

    fn integer(&self, key: &str) -> Result<Option<(i64, Range<usize>)>, StudyError> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => {
                let number = self.source.number(value)?;
                if number.fract() != 0.0 || number.abs() > 9e15 {
                    return Err(self
                        .source
                        .error(value.span(), format!("`{key}` must be a whole number")));
                }
                Ok(Some((number as i64, value.span())))
            }
        }
    }

    fn section(&self, key: &str, name: &'s str) -> Result<Option<Section<'s>>, StudyError> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => match value.get_ref() {
                DeValue::Table(table) => {
                    Ok(Some(Section::new(self.source, name, value.span(), table)))
                }
                other => Err(self.source.error(
                    value.span(),
                    format!(
                        "`{key}` is a {}; a table {name} is needed",
                        other.type_str()
                    ),
                )),
            },
        }
    }

    fn need_section(&self, key: &str, name: &'s str) -> Result<Section<'s>, StudyError> {
        self.section(key, name)?.ok_or_else(|| {
            self.source
                .error(0..0, format!("{} has no table {name}", self.name))
        })
    }

    fn sections(&self, key: &str, name: &'s str) -> Result<Vec<Section<'s>>, StudyError> {
        let Some(value) = self.value(key) else {
            return Ok(Vec::new());
        };
        let DeValue::Array(items) = value.get_ref() else {
            return Err(self
                .source
                .error(value.span(), format!("write {name} with two brackets")));
        };
        items
            .iter()
            .map(|item| match item.get_ref() {
                DeValue::Table(table) => Ok(Section::new(self.source, name, item.span(), table)),
                other => Err(self.source.error(
                    item.span(),
                    format!("a {} stands where {name} is needed", other.type_str()),
                )),
            })
            .collect()
    }
}
