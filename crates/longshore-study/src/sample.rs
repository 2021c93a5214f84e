//! What a study writes down while it measures: one JSON object a line, each with a `type`.
//!
//! Values are in SI base units and name their unit beside them. Nothing here is a statistic: those
//! are made from these records, again and again.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Version of the record format; readers refuse a newer one.
pub const FORMAT: u32 = 1;

/// One combination of axis values, in the order of the axes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Variant(pub Vec<(String, String)>);

impl Variant {
    /// The label on `axis`.
    pub fn get(&self, axis: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(name, _)| name == axis)
            .map(|(_, label)| label.as_str())
    }

    /// Whether every label of `selector` is also one of this variant.
    pub fn matches(&self, selector: &Variant) -> bool {
        selector
            .0
            .iter()
            .all(|(axis, label)| self.get(axis) == Some(label))
    }

    /// This variant with the labels of `selector` in place of its own.
    pub fn with(&self, selector: &Variant) -> Variant {
        Variant(
            self.0
                .iter()
                .map(|(axis, label)| {
                    let label = selector.get(axis).unwrap_or(label);
                    (axis.clone(), label.to_owned())
                })
                .collect(),
        )
    }

    /// This variant without the axes of `selector`.
    pub fn without(&self, selector: &Variant) -> Variant {
        Variant(
            self.0
                .iter()
                .filter(|(axis, _)| selector.get(axis).is_none())
                .cloned()
                .collect(),
        )
    }

    /// The labels alone, joined by blanks.
    pub fn labels(&self) -> String {
        let labels: Vec<&str> = self.0.iter().map(|(_, label)| label.as_str()).collect();
        labels.join(" ")
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (axis, label)) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            write!(f, "{axis}={label}")?;
        }
        Ok(())
    }
}

impl Serialize for Variant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (axis, label) in &self.0 {
            map.serialize_entry(axis, label)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Variant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Variant, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Variant;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from axes to labels")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Variant, A::Error> {
                let mut labels = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    labels.push(entry);
                }
                Ok(Variant(labels))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// Which direction of a metric is the good one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Small values are good, as for times.
    Lower,
    /// Large values are good, as for rates.
    Higher,
}

/// What a workload measures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// Short name, as study files use it.
    pub name: String,
    /// Base unit of its values (`s`, `B`, `B/s`, `1`).
    pub unit: String,
    /// Which direction is good.
    pub better: Better,
    /// What it is, in a few words for a report.
    pub title: String,
}

/// What follows when a probe does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// The value is no measurement of what was asked.
    Invalidates,
    /// The value stands, with a remark.
    Flags,
}

/// A check that a value is a measurement of what it claims to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// What was checked.
    pub probe: String,
    /// Whether it was found to hold.
    pub holds: bool,
    /// What follows if not.
    pub effect: Effect,
    /// What was found, with numbers and units.
    pub detail: String,
}

/// One line of `samples.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Record {
    /// The first line: which study, by which program.
    Study {
        /// Version of this format.
        format: u32,
        /// Name of the study.
        name: String,
        /// Program and version that wrote it.
        tool: String,
        /// Seed of order and intervals.
        seed: u64,
        /// When it began, RFC 3339.
        time: String,
    },
    /// A metric that the samples use.
    Metric(Metric),
    /// Something fixed that a reader needs to know, such as a command line.
    Fact {
        /// Its heading.
        name: String,
        /// Its text.
        text: String,
    },
    /// A variant that this machine cannot measure.
    Unavailable {
        /// Which one.
        variant: Variant,
        /// Why.
        reason: String,
    },
    /// One value.
    Sample(Sample),
    /// What the machine was doing during a round.
    Round {
        /// Number of the round, from 1.
        round: u32,
        /// Seconds it took.
        wall_s: f64,
        /// Probes of the machine over the whole round.
        probes: Vec<Probe>,
    },
    /// The last line of a study that was not killed.
    End {
        /// Why no more was measured.
        reason: String,
        /// Seconds since it began.
        wall_s: f64,
        /// When, RFC 3339.
        time: String,
    },
    /// A record of a later version, kept out of the way.
    #[serde(other)]
    Other,
}

/// One value of one metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Kind of the workload.
    pub workload: String,
    /// Which variant was measured.
    pub variant: Variant,
    /// Number of the round from 1; 0 is the warm-up.
    pub round: u32,
    /// Name of the metric.
    pub metric: String,
    /// Base unit of the value.
    pub unit: String,
    /// The value, or nothing where none was obtained.
    pub value: Option<f64>,
    /// Digest of what the workload put out, to tell whether variants did the same work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Checks of this sample.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<Probe>,
    /// When it was taken, RFC 3339.
    pub time: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_keeps_the_order_of_its_axes_through_json() {
        let variant = Variant(vec![
            ("where".into(), "host".into()),
            ("jobs".into(), "4".into()),
        ]);
        let text = serde_json::to_string(&variant).expect("serialises");
        assert_eq!(text, r#"{"where":"host","jobs":"4"}"#);
        assert_eq!(
            serde_json::from_str::<Variant>(&text).expect("reads back"),
            variant
        );
    }

    #[test]
    fn a_record_of_a_later_version_is_read_as_other() {
        let record: Record =
            serde_json::from_str(r#"{"type":"moon-phase","value":3}"#).expect("is an object");
        assert_eq!(record, Record::Other);
    }
}
