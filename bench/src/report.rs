//! What a benchmark found: as JSON for machines and as a table for people.

use crate::yardstick::{Loops, Yardstick};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// How a value has to stand to its bound.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub enum Relation {
    /// The value must not be above the bound.
    #[serde(rename = "<=")]
    AtMost,
    /// The value must not be below the bound.
    #[serde(rename = ">=")]
    AtLeast,
}

impl Relation {
    fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            Self::AtMost => value <= bound,
            Self::AtLeast => value >= bound,
        }
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AtMost => "<=",
            Self::AtLeast => ">=",
        })
    }
}

/// The least, the middle and the greatest of one figure's rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Nothing for no samples, or if one is no number.
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let upper = *sorted.get(sorted.len() / 2)?;
        let lower = *sorted.get((sorted.len() - 1) / 2)?;
        (min.is_finite() && max.is_finite()).then_some(Self {
            min,
            median: f64::midpoint(lower, upper),
            max,
        })
    }

    /// The spread of what `of` makes of each sample, if it keeps their order.
    pub(crate) fn map(self, of: impl Fn(f64) -> f64) -> Self {
        Self { min: of(self.min), median: of(self.median), max: of(self.max) }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Figure {
    #[serde(flatten)]
    pub(crate) spread: Spread,
    pub(crate) unit: String,
    /// What it would be where the yardstick's loops take their reference values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) normalised: Option<Normalised>,
}

impl Figure {
    /// What a promise is judged by.
    pub(crate) fn judged(&self) -> Spread {
        self.normalised.as_ref().map_or(self.spread, |normalised| normalised.spread)
    }
}

/// A figure as the yardstick has it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Normalised {
    #[serde(flatten)]
    pub(crate) spread: Spread,
    pub(crate) by: Yardstick,
}

/// A promised figure, evaluated. `met` is null when it was skipped, and `skipped` says why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Promise {
    pub(crate) key: String,
    pub(crate) relation: Relation,
    pub(crate) bound: f64,
    pub(crate) value: Option<f64>,
    pub(crate) met: Option<bool>,
    pub(crate) skipped: Option<String>,
}

impl Promise {
    pub(crate) fn evaluate(key: &str, relation: Relation, bound: f64, value: f64) -> Self {
        let met = Some(relation.holds(value, bound));
        Self { key: key.to_owned(), relation, bound, value: Some(value), met, skipped: None }
    }

    pub(crate) fn skip(key: &str, relation: Relation, bound: f64, why: &str) -> Self {
        let skipped = Some(why.to_owned());
        Self { key: key.to_owned(), relation, bound, value: None, met: None, skipped }
    }
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct BenchReport {
    pub(crate) name: String,
    pub(crate) machine: String,
    pub(crate) rounds: usize,
    /// What the loops took in this run.
    pub(crate) yardstick: Loops,
    /// What they take where a normalised figure is as it was measured.
    pub(crate) reference: Loops,
    pub(crate) figures: BTreeMap<String, Figure>,
    pub(crate) ratios: BTreeMap<String, Spread>,
    pub(crate) promises: Vec<Promise>,
}

impl fmt::Display for BenchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "bench {}: {} rounds on {}", self.name, self.rounds, self.machine)?;
        let Loops { core_ns, memory_ns } = self.yardstick;
        let reference = self.reference;
        writeln!(
            f,
            "yardstick: core loop {} ns (reference {}), memory loop {} ns (reference {})",
            Digits(core_ns),
            Digits(reference.core_ns),
            Digits(memory_ns),
            Digits(reference.memory_ns)
        )?;
        let keys = self.figures.keys().chain(self.ratios.keys());
        let width = keys.map(String::len).max().unwrap_or(0).max("figure".len());
        let title = ["figure", "median", "min", "max"];
        writeln!(
            f,
            "\n{:width$} {:>12} {:>12} {:>12}  unit",
            title[0], title[1], title[2], title[3]
        )?;
        for (key, Figure { spread, unit, normalised }) in &self.figures {
            let normalised = normalised.as_ref().map(|it| (it.spread.median, it.by));
            match normalised {
                None => row(f, key, width, *spread, unit)?,
                Some((median, by)) => {
                    let by = match by {
                        Yardstick::Core => "core",
                        Yardstick::Memory => "memory",
                    };
                    let unit = format!("{unit}; normalised by {by} {}", Digits(median));
                    row(f, key, width, *spread, &unit)?;
                }
            }
        }
        for (key, spread) in &self.ratios {
            row(f, key, width, *spread, "ratio")?;
        }
        if !self.promises.is_empty() {
            writeln!(f)?;
        }
        for promise in &self.promises {
            writeln!(f, "{promise}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.met {
            Some(true) => "met    ",
            Some(false) => "MISSED ",
            None => "skipped",
        };
        write!(f, "{verdict} {} {} {}", self.key, self.relation, self.bound)?;
        match (self.value, &self.skipped) {
            (_, Some(why)) => write!(f, ": {why}"),
            (Some(value), None) => write!(f, ": {}", Digits(value)),
            (None, None) => Ok(()),
        }
    }
}

fn row(
    f: &mut fmt::Formatter<'_>,
    key: &str,
    width: usize,
    Spread { min, median, max }: Spread,
    unit: &str,
) -> fmt::Result {
    let [median, min, max] = [median, min, max].map(|value| Digits(value).to_string());
    writeln!(f, "{key:width$} {median:>12} {min:>12} {max:>12}  {unit}")
}

/// A value with three or four digits that count.
struct Digits(f64);

impl fmt::Display for Digits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = match self.0.abs() {
            0.0..0.1 => 4,
            0.1..10.0 => 2,
            10.0..1000.0 => 1,
            _ => 0,
        };
        write!(f, "{:.decimals$}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_that_of_the_sorted_samples() {
        let spread = |samples: &[f64]| Spread::of(samples).map(|it| (it.min, it.median, it.max));
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[1.0, f64::NAN]), None);
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Some((1.0, 2.0, 3.0)));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]), Some((1.0, 2.5, 4.0)));
    }

    #[test]
    fn the_json_has_the_agreed_shape() {
        let spread = Spread { min: 1.0, median: 2.0, max: 3.0 };
        let normalised =
            Some(Normalised { spread: spread.map(|it| it / 2.0), by: Yardstick::Core });
        let figure = Figure { spread, unit: "ns".to_owned(), normalised };
        let loops = |core_ns| Loops { core_ns, memory_ns: 64.0 };
        let report = BenchReport {
            name: "route".to_owned(),
            machine: "one".to_owned(),
            rounds: 3,
            yardstick: loops(8.0),
            reference: loops(4.0),
            figures: BTreeMap::from([("lookup_ns".to_owned(), figure)]),
            ratios: BTreeMap::from([("lookup_vs_peer".to_owned(), spread)]),
            promises: vec![
                Promise::evaluate("lookup_ns", Relation::AtMost, 1.5, 2.0),
                Promise::skip("other", Relation::AtLeast, 2.0, "no such peer"),
            ],
        };
        assert_eq!(
            serde_json::to_value(report).unwrap(),
            serde_json::json!({
                "name": "route", "machine": "one", "rounds": 3,
                "yardstick": {"core_ns": 8.0, "memory_ns": 64.0},
                "reference": {"core_ns": 4.0, "memory_ns": 64.0},
                "figures": {"lookup_ns": {
                    "min": 1.0, "median": 2.0, "max": 3.0, "unit": "ns",
                    "normalised": {"min": 0.5, "median": 1.0, "max": 1.5, "by": "core"},
                }},
                "ratios": {"lookup_vs_peer": {"min": 1.0, "median": 2.0, "max": 3.0}},
                "promises": [
                    {"key": "lookup_ns", "relation": "<=", "bound": 1.5, "value": 2.0,
                     "met": false, "skipped": null},
                    {"key": "other", "relation": ">=", "bound": 2.0, "value": null,
                     "met": null, "skipped": "no such peer"},
                ],
            })
        );
    }
}
