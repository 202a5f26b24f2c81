//! `gatewright lab compare`.

use anyhow::Result;
use gatewright_command::{
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_lab::analysis::Verdict;
use gatewright_lab::{ComparedCondition, LabComparison};
use std::fmt::Write;

/// Compares two runs: two machines, two versions, two kernels; says what is beyond noise.
///
/// Compared are the geometric means of the repetitions' median node delays. A difference is beyond
/// noise if its interval, at a level for all judged conditions together, leaves out zero, and if it
/// is above 2 %. A condition that was unsteady in either run is not judged. What else differs between
/// the experiments is said. Ends with 1 if a condition of B is slower, with 78 if the runs have no
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
        let interval = difference.interval.map_or_else(String::new, |it| {
            format!(" ({:+.1} to {:+.1} %)", it.low * 100.0, it.high * 100.0)
        });
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
            "{:20} {octets:>5} octets {rate:>6}/s {:>9}: {one:>8.1} -> {other:>8.1} µs, {:+.1} \
             %{interval}: {verdict}",
            relay.name(),
            it.beside(),
            difference.relative * 100.0
        );
    }
    let _ = writeln!(
        text,
        "{} faster, {} slower, {} within noise, {} not judged; {} conditions have no counterpart",
        comparison.count(Verdict::Faster),
        comparison.count(Verdict::Slower),
        comparison.count(Verdict::Noise),
        comparison.count(Verdict::Unknown) + comparison.count(Verdict::Unsteady),
        comparison.unmatched
    );
    text
}
