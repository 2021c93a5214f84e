//! Numbers with units: read from a study file, kept in SI base units, shown at a fitting scale.
//!
//! `125 MB/s/TiB * 16 TiB` is 2.2e9 B/s. Decimal and binary prefixes are never mixed up because
//! every unit says which one it is; a 5 % tolerance is smaller than the gap between MB and MiB.

use std::fmt;

use thiserror::Error;

/// Powers of the base quantities of a [`Quantity`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dimension {
    /// Power of bytes.
    pub byte: i8,
    /// Power of seconds.
    pub second: i8,
    /// Power of floating-point operations.
    pub flop: i8,
    /// Power of counted operations (`ops`, `IOPS`).
    pub op: i8,
}

/// A number in SI base units (bytes, seconds, flop, operations) with its dimension.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantity {
    /// The number, in base units.
    pub value: f64,
    /// What it counts.
    pub dimension: Dimension,
}

/// A quantity could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum QuantityError {
    /// There is no number where one is needed.
    #[error("`{0}` does not start with a number")]
    NoNumber(String),
    /// The unit is not known.
    #[error("unknown unit `{unit}`{}", suggestion.as_ref().map(|s| format!("; did you mean `{s}`?")).unwrap_or_default())]
    UnknownUnit {
        /// What was written.
        unit: String,
        /// A known unit that looks like it.
        suggestion: Option<String>,
    },
    /// The number is not finite.
    #[error("`{0}` is too large")]
    NotFinite(String),
}

const NONE: Dimension = Dimension {
    byte: 0,
    second: 0,
    flop: 0,
    op: 0,
};
const BYTE: Dimension = Dimension { byte: 1, ..NONE };
const SECOND: Dimension = Dimension { second: 1, ..NONE };
const FLOP: Dimension = Dimension { flop: 1, ..NONE };
const OP: Dimension = Dimension { op: 1, ..NONE };

/// Every unit that can be written, with its factor to base units.
const UNITS: &[(&str, f64, Dimension)] = &[
    ("B", 1.0, BYTE),
    ("kB", 1e3, BYTE),
    ("MB", 1e6, BYTE),
    ("GB", 1e9, BYTE),
    ("TB", 1e12, BYTE),
    ("PB", 1e15, BYTE),
    ("KiB", 1024.0, BYTE),
    ("MiB", 1048576.0, BYTE),
    ("GiB", 1073741824.0, BYTE),
    ("TiB", 1099511627776.0, BYTE),
    ("PiB", 1125899906842624.0, BYTE),
    ("bit", 0.125, BYTE),
    ("kbit", 125.0, BYTE),
    ("Mbit", 125e3, BYTE),
    ("Gbit", 125e6, BYTE),
    ("s", 1.0, SECOND),
    ("ms", 1e-3, SECOND),
    ("us", 1e-6, SECOND),
    ("µs", 1e-6, SECOND),
    ("ns", 1e-9, SECOND),
    ("min", 60.0, SECOND),
    ("h", 3600.0, SECOND),
    ("flop", 1.0, FLOP),
    ("Mflop", 1e6, FLOP),
    ("Gflop", 1e9, FLOP),
    ("Tflop", 1e12, FLOP),
    ("op", 1.0, OP),
    ("ops", 1.0, OP),
    ("kops", 1e3, OP),
    ("%", 0.01, NONE),
    ("x", 1.0, NONE),
];

impl Quantity {
    /// Reads a product or quotient of numbers with units, as `0.7 * 16 TiB / 2 h`.
    ///
    /// # Errors
    ///
    /// [`QuantityError`] names the part that was not understood.
    pub fn parse(text: &str) -> Result<Quantity, QuantityError> {
        let mut result = Quantity {
            value: 1.0,
            dimension: NONE,
        };
        // ` * ` and ` / ` join factors; a slash inside a unit (`MB/s`) has no blanks around it.
        let mut inverse = false;
        for word in split_factors(text) {
            match word {
                Factor::Times => inverse = false,
                Factor::Over => inverse = true,
                Factor::Number(text) => {
                    let factor = parse_factor(text)?;
                    result = result.combine(factor, inverse);
                }
            }
        }
        if result.value.is_finite() {
            Ok(result)
        } else {
            Err(QuantityError::NotFinite(text.trim().to_owned()))
        }
    }

    fn combine(self, factor: Quantity, inverse: bool) -> Quantity {
        let sign = if inverse { -1 } else { 1 };
        let power = |a: i8, b: i8| a.saturating_add(b.saturating_mul(sign));
        Quantity {
            value: if inverse {
                self.value / factor.value
            } else {
                self.value * factor.value
            },
            dimension: Dimension {
                byte: power(self.dimension.byte, factor.dimension.byte),
                second: power(self.dimension.second, factor.dimension.second),
                flop: power(self.dimension.flop, factor.dimension.flop),
                op: power(self.dimension.op, factor.dimension.op),
            },
        }
    }
}

enum Factor<'t> {
    Times,
    Over,
    Number(&'t str),
}

fn split_factors(text: &str) -> Vec<Factor<'_>> {
    let mut factors = Vec::new();
    let mut start = 0;
    let bytes = text.as_bytes();
    for (at, &byte) in bytes.iter().enumerate() {
        let blank = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_none_or(|&b| b == b' ');
        let joins =
            byte == b'*' || (byte == b'/' && blank(at.checked_sub(1)) && blank(at.checked_add(1)));
        if joins {
            factors.push(Factor::Number(&text[start..at]));
            factors.push(if byte == b'*' {
                Factor::Times
            } else {
                Factor::Over
            });
            start = at + 1;
        }
    }
    factors.push(Factor::Number(&text[start..]));
    factors
}

fn parse_factor(text: &str) -> Result<Quantity, QuantityError> {
    let text = text.trim();
    // The longest prefix that is a number: `5e3 B` has an exponent, `5 ms` and `5ms` have not.
    let (number, unit) = (1..=text.len())
        .rev()
        .filter(|&end| text.is_char_boundary(end))
        .find_map(|end| {
            let starts_right = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
            let number = starts_right.then(|| text[..end].parse::<f64>().ok())??;
            Some((number, text[end..].trim()))
        })
        .ok_or_else(|| QuantityError::NoNumber(text.to_owned()))?;
    let mut quantity = Quantity {
        value: number,
        dimension: NONE,
    };
    if unit.is_empty() {
        return Ok(quantity);
    }
    for (index, name) in unit.split('/').enumerate() {
        let name = name.trim();
        let &(_, factor, dimension) =
            UNITS
                .iter()
                .find(|(known, ..)| *known == name)
                .ok_or_else(|| QuantityError::UnknownUnit {
                    unit: name.to_owned(),
                    suggestion: similar(name, UNITS.iter().map(|unit| unit.0)).map(str::to_owned),
                })?;
        let unit = Quantity {
            value: factor,
            dimension,
        };
        quantity = quantity.combine(unit, index > 0);
    }
    Ok(quantity)
}

/// The unit in which a metric is stored, a base unit or a quotient of base units.
///
/// # Errors
///
/// [`QuantityError::UnknownUnit`] for a name that is not known.
pub(crate) fn dimension_of(unit: &str) -> Result<Dimension, QuantityError> {
    if unit == "1" {
        return Ok(NONE);
    }
    Ok(parse_factor(&format!("1 {unit}"))?.dimension)
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("B", self.byte),
            ("flop", self.flop),
            ("op", self.op),
            ("s", self.second),
        ];
        let mut text = String::new();
        for (name, _) in parts.iter().filter(|(_, power)| *power > 0) {
            text.push_str(name);
        }
        if text.is_empty() {
            text.push('1');
        }
        for (name, power) in parts {
            for _ in 0..(-power).max(0) {
                text.push('/');
                text.push_str(name);
            }
        }
        f.write_str(&text)
    }
}

/// A scale for showing values of one unit: what to divide by, and the name of the result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    /// One shown unit in base units.
    pub(crate) factor: f64,
    /// Name of the shown unit.
    pub(crate) name: &'static str,
}

/// Chooses the scale at which `largest` (in base units of `unit`) reads well.
pub(crate) fn scale_for(unit: &str, largest: f64) -> Scale {
    let steps: &[(f64, &'static str)] = match unit {
        "s" => &[(1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s")],
        "B" => &[
            (1.0, "B"),
            (1024.0, "KiB"),
            (1048576.0, "MiB"),
            (1073741824.0, "GiB"),
        ],
        "B/s" => &[(1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s")],
        "flop/s" => &[(1e6, "Mflop/s"), (1e9, "Gflop/s"), (1e12, "Tflop/s")],
        "op/s" => &[(1.0, "op/s"), (1e3, "kop/s"), (1e6, "Mop/s")],
        _ => &[(1.0, "")],
    };
    let fitting = steps
        .iter()
        .rev()
        .find(|(factor, _)| largest.abs() >= *factor)
        .unwrap_or(&steps[0]);
    Scale {
        factor: fitting.0,
        name: fitting.1,
    }
}

/// Shows a value of `unit` with three significant digits and a fitting unit.
pub fn show(value: f64, unit: &str) -> String {
    let scale = scale_for(unit, value);
    let number = significant(value / scale.factor);
    if scale.name.is_empty() {
        number
    } else {
        format!("{number} {}", scale.name)
    }
}

/// Three significant digits, without an exponent for numbers that a table shows.
pub(crate) fn significant(value: f64) -> String {
    let size = value.abs();
    let decimals = if size >= 100.0 || size == 0.0 {
        0
    } else if size >= 10.0 {
        1
    } else if size >= 1.0 {
        2
    } else {
        3
    };
    format!("{value:.decimals$}")
}

/// The known name nearest to `name`, if it is near enough to be a slip of the hand.
pub(crate) fn similar<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let limit = (name.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|candidate| (edits(name, candidate), candidate))
        .filter(|(edits, _)| *edits <= limit)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Edit distance (Levenshtein 1965), ignoring case.
fn edits(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (line, a) in left.to_lowercase().chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, b) in right.iter().enumerate() {
            let substituted = diagonal + usize::from(a != *b);
            diagonal = row[column + 1];
            row[column + 1] = substituted.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provisioned_rate_times_a_size_is_bytes_a_second() {
        let rate = Quantity::parse("125 MB/s/TiB * 16 TiB").expect("known units");
        assert!((rate.value - 2e9).abs() < 1.0);
        assert_eq!(rate.dimension.to_string(), "B/s");
    }

    #[test]
    fn decimal_and_binary_units_differ() {
        let decimal = Quantity::parse("1 MB").expect("known").value;
        let binary = Quantity::parse("1MiB").expect("known").value;
        assert!((binary / decimal - 1.048576).abs() < 1e-9);
    }

    #[test]
    fn exponents_signs_and_division_are_read() {
        assert_eq!(Quantity::parse("5e3 B").expect("known").value, 5000.0);
        assert_eq!(Quantity::parse("-5 %").expect("known").value, -0.05);
        let rate = Quantity::parse("6 GB / 2 s").expect("known");
        assert_eq!((rate.value, rate.dimension.second), (3e9, -1));
    }

    #[test]
    fn an_unknown_unit_gets_a_suggestion() {
        let error = Quantity::parse("4 MIB").expect_err("not a unit");
        assert_eq!(error.to_string(), "unknown unit `MIB`; did you mean `MiB`?");
        assert!(Quantity::parse("fast").is_err());
        assert!(Quantity::parse("").is_err());
        assert!(Quantity::parse("1 / 0").is_err());
    }

    #[test]
    fn values_are_shown_at_a_fitting_scale() {
        assert_eq!(show(0.012345, "s"), "12.3 ms");
        assert_eq!(show(2.0, "s"), "2.00 s");
        assert_eq!(show(3.0 * 1048576.0, "B"), "3.00 MiB");
        assert_eq!(show(1.0, "1"), "1.00");
    }
}
