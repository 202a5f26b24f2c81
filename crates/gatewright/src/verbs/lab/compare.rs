//! `gatewright lab compare`.

use anyhow::Result;
use gatewright_command::{
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_lab::analysis::{ConfidenceInterval, Verdict};
use gatewright_lab::report::counted;
use gatewright_lab::{ComparedCondition, LabComparison};
use std::fmt::Write;

/// Compares two runs: two machines, two versions, two kernels; says what is beyond noise.
///
/// Compared are the geometric means of the repetitions' median node delays. A difference is beyond
/// noise if its interval, at a level for all judged conditions together, leaves out zero, and if it
/// is above 2 %. A condition that was unsteady in either run is not judged. What else differs between
/// the experiments is said. Differences above a factor of 2 are shown as factors, and unsteady
/// conditions that differ by 20 % and more at both ends of the interval are counted. Ends with 1 if a condition of B is slower, with 78 if the runs have no
/// condition in common.
#[derive(Debug, clap::Args)]
pub(super) struct Compare {
    /// The results (JSON) of the first run.
    a: String,
    /// The results of the second run.
    b: String,
}

impl Compare {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let (a, b) = (super::result(&self.a, face)?, super::result(&self.b, face)?);
        let comparison = gatewright_lab::compare(&a, &b);
        if comparison.conditions.is_empty() {
            let message = "the runs have no condition in common: nothing can be compared";
            return Err(Failure::new(Exit::Configuration, message.to_owned()).into());
        }
        face.answer(&comparison, || text(&comparison))?;
        let is_slower = comparison.count(Verdict::Slower) > 0;
        Ok(if is_slower { Exit::Negative } else { Exit::Success })
    }
}

fn text(comparison: &LabComparison) -> String {
    let [a, b] = &comparison.machines;
    let mut text = format!("A: {a}\nB: {b}\n");
    for setting in &comparison.settings {
        let [one, other] = &setting.values;
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "the experiments differ: {} is {one} in A, {other} in B", setting.key);
    }
    for it in &comparison.conditions {
        let ComparedCondition { relay, octets, rate, steady, difference, .. } = it;
        let [one, other] = difference.delays;
        let change = change(difference.relative, difference.interval);
        let verdict = match difference.verdict {
            Verdict::Faster => "faster",
            Verdict::Slower => "SLOWER",
            Verdict::Noise => "noise",
            Verdict::Unknown => "too few repetitions",
            Verdict::Unsteady => match steady {
                [false, false] => "unsteady in A and B, not judged",
                [false, true] => "unsteady in A, not judged",
                _ => "unsteady in B, not judged",
            },
        };
        let _ = writeln!(
            text,
            "{:20} {octets:>5} octets {rate:>6}/s {:>9}: {one:>8.1} -> {other:>8.1} µs, {change}: \
             {verdict}",
            relay.name(),
            it.beside(),
        );
    }
    let unsteady = match comparison.unsteady_but_different() {
        0 => String::new(),
        1 => " (1 differs, but is unsteady)".to_owned(),
        count => format!(" ({count} differ, but are unsteady)"),
    };
    let _ = writeln!(
        text,
        "{} faster, {} slower, {} within noise, {} not judged{unsteady}; {} without a counterpart",
        comparison.count(Verdict::Faster),
        comparison.count(Verdict::Slower),
        comparison.count(Verdict::Noise),
        comparison.count(Verdict::Unknown) + comparison.count(Verdict::Unsteady),
        counted(comparison.unmatched, "condition")
    );
    text
}

/// Factor from which a difference is shown as one: percent of it are hard to read.
const FACTOR_SHOWN: f64 = 2.0;

/// A relative difference with its interval: in percent, or as factors, `×3.2` up and `÷3.2` down.
fn change(relative: f64, interval: Option<ConfidenceInterval>) -> String {
    let ratio = 1.0 + relative;
    let ends = interval.map_or([ratio; 2], |it| [1.0 + it.low, 1.0 + it.high]);
    let is_small = |it: &f64| (1.0 / FACTOR_SHOWN..=FACTOR_SHOWN).contains(it);
    if is_small(&ratio) && ends.iter().all(is_small) {
        let interval = interval.map_or_else(String::new, |it| {
            format!(" ({:+.1} to {:+.1} %)", it.low * 100.0, it.high * 100.0)
        });
        return format!("{:+.1} %{interval}", relative * 100.0);
    }
    let [low, high] = ends.map(factor);
    let interval = interval.map_or_else(String::new, |_| format!(" ({low} to {high})"));
    format!("{}{interval}", factor(ratio))
}

fn factor(ratio: f64) -> String {
    let (sign, value) = if ratio < 1.0 { ('÷', 1.0 / ratio) } else { ('×', ratio) };
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 99.95) };
    format!("{sign}{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_difference_is_a_factor() {
        let interval = |low, high| Some(ConfidenceInterval { low, high });
        assert_eq!(change(0.123, interval(-0.01, 0.26)), "+12.3 % (-1.0 to +26.0 %)");
        assert_eq!(change(1.0, None), "+100.0 %");
        assert_eq!(change(1428.962, interval(1200.0, 1700.4)), "×1430 (×1201 to ×1701)");
        assert_eq!(change(-0.75, interval(-0.9, -0.2)), "÷4.00 (÷10.0 to ÷1.25)");
        assert_eq!(change(0.0, interval(-0.98, 42.7)), "×1.00 (÷50.0 to ×43.7)");
        assert_eq!(change(1.5, interval(-0.5, 10.5)), "×2.50 (÷2.00 to ×11.5)");
    }
}
