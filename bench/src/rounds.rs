//! Rounds of contestants, and what becomes of their samples.

use crate::report::{BenchReport, Figure, Normalised, Promise, Relation, Spread};
use crate::yardstick::{Loops, REFERENCE};
use crate::{Chart, Scales, Yardstick};
use std::collections::BTreeMap;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fmt, fs, io};

/// Rounds, unless asked to be quick.
const ROUNDS: usize = 7;
const ROUNDS_QUICK: usize = 3;
/// How often, at the most, it is told how far a benchmark has come.
const TOLD_EVERY: Duration = Duration::from_secs(5);

/// How a benchmark is to be run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Options {
    /// Fewer rounds, smaller sets: to see that it works, not to quote it.
    pub quick: bool,
    /// How often each contestant runs, if it was asked for.
    pub asked_rounds: Option<NonZeroUsize>,
}

impl Options {
    /// How often each contestant runs.
    pub fn rounds(self) -> usize {
        self.asked_rounds.map_or(self.pick(ROUNDS, ROUNDS_QUICK), NonZeroUsize::get)
    }

    /// `full`, or `quick` when in a hurry.
    pub fn pick<T>(self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// One thing that is measured in every round.
pub struct Contestant<'run, T = f64> {
    key: &'static str,
    unit: &'static str,
    measure: Box<dyn FnMut() -> T + 'run>,
}

impl<'run, T> Contestant<'run, T> {
    /// `measure` gives one sample of the figure `key`, in `unit`.
    pub fn new(key: &'static str, unit: &'static str, measure: impl FnMut() -> T + 'run) -> Self {
        Self { key, unit, measure: Box::new(measure) }
    }
}

impl<T> fmt::Debug for Contestant<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contestant").field("key", &self.key).finish_non_exhaustive()
    }
}

/// The samples of one figure, one a round.
#[derive(Debug)]
struct Samples {
    unit: &'static str,
    rounds: Vec<f64>,
}

/// A promise that is evaluated when everything is measured.
#[derive(Debug)]
struct Promised {
    key: String,
    relation: Relation,
    bound: f64,
    skipped: Option<String>,
    /// What it differs by where nothing differs, and what that would be without noise.
    noise: Option<(String, f64)>,
}

impl Promised {
    fn evaluate(
        &self,
        figures: &BTreeMap<String, Figure>,
        ratios: &BTreeMap<String, Spread>,
    ) -> Promise {
        let Self { key, relation, bound, skipped, noise } = self;
        if let Some(why) = skipped {
            return Promise::skip(key, *relation, *bound, why);
        }
        let spread =
            |key: &str| figures.get(key).map(Figure::judged).or_else(|| ratios.get(key).copied());
        let Some(Spread { median, .. }) = spread(key) else {
            return Promise::skip(key, *relation, *bound, "it was not measured");
        };
        let Some((noise, same)) = noise else {
            return Promise::evaluate(key, *relation, *bound, median);
        };
        let Some(Spread { min, max, .. }) = spread(noise) else {
            return Promise::skip(key, *relation, *bound, &format!("{noise} was not measured"));
        };
        let differ = (same - min).abs().max((max - same).abs());
        if (median - bound).abs() < differ {
            let why = format!(
                "{median:.3} is no verdict, as {noise} is {min:.3} to {max:.3} where nothing differs"
            );
            return Promise::skip(key, *relation, *bound, &why);
        }
        Promise::evaluate(key, *relation, *bound, median)
    }
}

/// A benchmark in progress.
#[derive(Debug)]
pub struct Bench {
    name: &'static str,
    options: Options,
    samples: BTreeMap<String, Samples>,
    ratios: BTreeMap<String, Vec<f64>>,
    promises: Vec<Promised>,
    /// Figures that are not normalised as their unit says.
    yardsticks: BTreeMap<String, Yardstick>,
    loops: Loops,
    charts: Vec<(Chart, Scales)>,
    notes: Vec<String>,
    started: Instant,
    told: Instant,
}

impl Bench {
    /// A benchmark without figures yet; the yardstick's loops are timed now.
    pub fn new(name: &'static str, options: Options) -> Self {
        Self {
            name,
            options,
            samples: BTreeMap::new(),
            ratios: BTreeMap::new(),
            promises: Vec::new(),
            yardsticks: BTreeMap::new(),
            loops: Loops::time(),
            charts: Vec::new(),
            notes: Vec::new(),
            started: Instant::now(),
            told: Instant::now(),
        }
    }

    /// How it is run.
    pub fn options(&self) -> Options {
        self.options
    }

    /// Runs all contestants in every round, one after the other: A-B-A-B.
    pub fn interleave(&mut self, mut contestants: Vec<Contestant<'_>>) {
        for _round in 0..self.options.rounds() {
            for contestant in &mut contestants {
                let sample = (contestant.measure)();
                self.sample(contestant.key, contestant.unit, sample);
            }
        }
    }

    /// As [`Self::interleave`], of measurements that may fail.
    ///
    /// # Errors
    ///
    /// The first problem, with the figure's key: nothing is measured after it.
    pub fn try_interleave(
        &mut self,
        mut contestants: Vec<Contestant<'_, Result<f64, String>>>,
    ) -> Result<(), String> {
        for _round in 0..self.options.rounds() {
            for contestant in &mut contestants {
                let measured = (contestant.measure)();
                let sample =
                    measured.map_err(|problem| format!("{}: {problem}", contestant.key))?;
                self.sample(contestant.key, contestant.unit, sample);
            }
        }
        Ok(())
    }

    /// Adds one sample to a figure; now and then, who waits at the terminal is told of it.
    pub fn sample(&mut self, key: &str, unit: &'static str, sample: f64) {
        let none = Samples { unit, rounds: Vec::new() };
        let samples = self.samples.entry(key.to_owned()).or_insert(none);
        samples.rounds.push(sample);
        if self.told.elapsed() >= TOLD_EVERY {
            self.told = Instant::now();
            let (round, seconds) = (samples.rounds.len(), self.started.elapsed().as_secs());
            // Nobody may be there to read it.
            let _ = writeln!(
                io::stderr(),
                "bench {}: {seconds} s, sample {round} of {key}: {sample:.3} {unit}",
                self.name
            );
        }
    }

    /// Tells who waits at the terminal what is measured next.
    pub fn stage(&mut self, what: &str) {
        self.told = Instant::now();
        let seconds = self.started.elapsed().as_secs();
        // Nobody may be there to read it.
        let _ = writeln!(io::stderr(), "bench {}: {seconds} s, {what}", self.name);
    }

    /// Measures `what`, once more if it fails; then its problem is noted, and the benchmark goes on.
    pub fn attempt(
        &mut self,
        what: &str,
        mut measure: impl FnMut(&mut Self) -> Result<(), String>,
    ) {
        // The first line says what; a whole status may follow.
        let short = |problem: String| problem.lines().next().unwrap_or_default().to_owned();
        let Err(first) = measure(self) else { return };
        self.stage(&format!("{what} once more: {}", short(first)));
        if let Err(problem) = measure(self) {
            self.note(format!("{what} was not measured: {}", short(problem)));
        }
    }

    /// Adds the ratio `of / to`, taken in each round.
    pub fn ratio(&mut self, key: &str, of: &str, to: &str) {
        let ratios = self.each_round(of, to, |of, to| of / to);
        self.ratios.insert(key.to_owned(), ratios);
    }

    /// Adds the figure `of - less`, taken in each round.
    pub fn difference(&mut self, key: &str, of: &str, less: &str) {
        let rounds = self.each_round(of, less, |of, less| of - less);
        let unit = self.samples.get(of).map_or("", |samples| samples.unit);
        self.samples.insert(key.to_owned(), Samples { unit, rounds });
    }

    /// Adds the figure `of * factor`, in another unit.
    pub fn scaled(&mut self, key: &str, unit: &'static str, of: &str, factor: f64) {
        let rounds = self.samples.get(of).map(|samples| &samples.rounds);
        let rounds = rounds.into_iter().flatten().map(|sample| sample * factor).collect();
        self.samples.insert(key.to_owned(), Samples { unit, rounds });
    }

    fn each_round(&self, first: &str, second: &str, value: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        let rounds = |key| self.samples.get(key).map_or(&[][..], |samples| &samples.rounds);
        rounds(first).iter().zip(rounds(second)).map(|(&a, &b)| value(a, b)).collect()
    }

    /// How many samples a figure has.
    pub fn rounds_of(&self, key: &str) -> usize {
        self.samples.get(key).map_or(0, |samples| samples.rounds.len())
    }

    /// The median of a figure or ratio, if there is one.
    pub fn median(&self, key: &str) -> Option<f64> {
        let figure = self.samples.get(key).map(|samples| &samples.rounds);
        let rounds = figure.or_else(|| self.ratios.get(key))?;
        Spread::of(rounds).map(|spread| spread.median)
    }

    /// Adds the ratio `key`: that of `of` whose median is the greatest.
    pub fn greatest(&mut self, key: &str, of: &[String]) {
        let greatest = of.iter().filter_map(|key| Some((self.median(key)?, key)));
        let greatest = greatest.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, key)| key);
        if let Some(rounds) = greatest.and_then(|key| self.ratios.get(key)) {
            self.ratios.insert(key.to_owned(), rounds.clone());
        }
    }

    /// Adds the figure `key`: in each round the greatest of the figures `of`.
    pub fn best(&mut self, key: &str, of: &[String]) {
        let all: Vec<_> = of.iter().filter_map(|key| self.samples.get(key)).collect();
        let unit = all.first().map_or("", |samples| samples.unit);
        let greatest = |round| {
            let each = all.iter().filter_map(|samples| samples.rounds.get(round));
            each.copied().max_by(f64::total_cmp)
        };
        let rounds: Vec<f64> = (0..).map_while(greatest).collect();
        if !rounds.is_empty() {
            self.samples.insert(key.to_owned(), Samples { unit, rounds });
        }
    }

    /// Normalises a figure by this loop: a rate, or one in milliseconds, that the processor alone
    /// decides, or one in nanoseconds that is made of loads from memory.
    pub fn normalise(&mut self, key: &str, by: Yardstick) {
        self.yardsticks.insert(key.to_owned(), by);
    }

    /// The loop by which a figure is normalised. Nanoseconds and microseconds are by the first one,
    /// unless something else was said; other figures are not.
    fn yardstick(&self, key: &str, unit: &str) -> Option<Yardstick> {
        let by_unit = matches!(unit, "ns" | "us").then_some(Yardstick::Core);
        self.yardsticks.get(key).copied().or(by_unit)
    }

    /// Promises that the median of a figure, normalised if it is one that is, or of a ratio stands
    /// to `bound` as `relation` says; it is evaluated at the end, and skipped if there is none.
    pub fn promise(&mut self, key: &str, relation: Relation, bound: f64) {
        self.promised(key, relation, bound, None, None);
    }

    /// As [`Self::promise`], where `noise` is the same between measurements that differ in nothing
    /// and would be `same` on a perfect machine: it is skipped if the median is nearer to the bound
    /// than what those differ by.
    pub fn promise_beside_noise(
        &mut self,
        (key, relation, bound): (&str, Relation, f64),
        (noise, same): (&str, f64),
    ) {
        self.promised(key, relation, bound, None, Some((noise.to_owned(), same)));
    }

    fn promised(
        &mut self,
        key: &str,
        relation: Relation,
        bound: f64,
        skipped: Option<String>,
        noise: Option<(String, f64)>,
    ) {
        self.promises.push(Promised { key: key.to_owned(), relation, bound, skipped, noise });
    }

    /// Says why a promise could not be evaluated.
    pub fn skip(&mut self, key: &str, relation: Relation, bound: f64, why: &str) {
        self.promised(key, relation, bound, Some(why.to_owned()), None);
    }

    /// As [`Self::promise`], for a size that is measured in full only: in a hurry there are `fewer`.
    pub fn promise_in_full(
        &mut self,
        (key, relation, bound): (&str, Relation, f64),
        (all, fewer): (&str, &str),
    ) {
        if self.options().quick {
            let why = format!("in a hurry there are {fewer}, not {all}");
            self.skip(key, relation, bound, &why);
        } else {
            self.promise(key, relation, bound);
        }
    }

    fn figures(&self, loops: Loops) -> BTreeMap<String, Figure> {
        let figure = |(key, samples): (&String, &Samples)| {
            let spread = Spread::of(&samples.rounds)?;
            let normalised = self.yardstick(key, samples.unit).map(|by| {
                let value = |sample| match samples.unit {
                    "/s" | "1/s" => loops.normalise_rate(by, sample),
                    _ => loops.normalise(by, sample),
                };
                Normalised { by, spread: spread.map(value) }
            });
            Some((key.clone(), Figure { spread, unit: samples.unit.to_owned(), normalised }))
        };
        self.samples.iter().filter_map(figure).collect()
    }

    /// Adds a curve sheet, written as `target/bench/NAME-TITLE.svg`.
    pub fn chart(&mut self, chart: Chart) {
        self.chart_on(Scales::default(), chart);
    }

    /// As [`Self::chart`], on other scales.
    pub fn chart_on(&mut self, scales: Scales, chart: Chart) {
        self.charts.push((chart, scales));
    }

    /// Says what a reader of the figures must know, such as which of them share a core.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Writes `NAME.json` and the charts into `folder` and returns the table.
    ///
    /// # Errors
    ///
    /// What the system says when they cannot be written.
    pub fn finish(self, folder: &Path) -> io::Result<String> {
        fs::create_dir_all(folder)?;
        let mut files: Vec<PathBuf> = Vec::new();
        for (chart, scales) in &self.charts {
            let file = folder.join(format!("{}-{}.svg", self.name, chart.title.replace(' ', "-")));
            fs::write(&file, chart.draw(*scales).map_err(io::Error::other)?)?;
            files.push(file);
        }
        let loops = self.loops.mean(Loops::time());
        let figures = self.figures(loops);
        let ratios = self.ratios.iter();
        let ratios = ratios.filter_map(|(key, rounds)| Some((key.clone(), Spread::of(rounds)?)));
        let ratios: BTreeMap<_, _> = ratios.collect();
        let promises = self.promises.iter().map(|promise| promise.evaluate(&figures, &ratios));
        let report = BenchReport {
            name: self.name.to_owned(),
            machine: gatewright_lab::machine(),
            rounds: self.options.rounds(),
            yardstick: loops,
            reference: REFERENCE,
            promises: promises.collect(),
            figures,
            ratios,
        };
        let file = folder.join(format!("{}.json", self.name));
        fs::write(&file, serde_json::to_string_pretty(&report)? + "\n")?;
        files.push(file);
        let notes = self.notes.iter().map(|note| format!("\nnote: {note}"));
        let files = files.iter().map(|file| format!("\nwritten: {}", file.display()));
        Ok(report.to_string() + &notes.chain(files).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promise(value: f64, noise: &[f64]) -> Promise {
        let ratio = |rounds: &[f64]| Spread::of(rounds);
        let ratios = [("of", ratio(&[value])), ("noise", ratio(noise))];
        let ratios = ratios.into_iter().filter_map(|(key, of)| Some((key.to_owned(), of?)));
        let promised = Promised {
            key: "of".to_owned(),
            relation: Relation::AtLeast,
            bound: 0.99,
            skipped: None,
            noise: Some(("noise".to_owned(), 1.0)),
        };
        promised.evaluate(&BTreeMap::new(), &ratios.collect())
    }

    #[test]
    fn a_measurement_that_fails_is_told_by_its_figure_and_is_no_sample() {
        let mut bench = Bench::new("test", Options { quick: true, asked_rounds: None });
        let mut left = 1..=1;
        let ended = bench.try_interleave(vec![
            Contestant::new("floor", "Mpps", || Ok(2.0)),
            Contestant::new("kernel", "Mpps", || {
                left.next().map(f64::from).ok_or_else(|| "0 of 8 frames arrived".to_owned())
            }),
        ]);
        assert_eq!(ended.err().as_deref(), Some("kernel: 0 of 8 frames arrived"));
        assert_eq!(["floor", "kernel"].map(|key| bench.rounds_of(key)), [2, 1]);
    }

    #[test]
    fn what_is_smaller_than_the_noise_is_no_verdict() {
        let met = |value, noise: &[f64]| promise(value, noise).met;
        assert_eq!(met(1.0, &[0.998, 1.003]), Some(true));
        assert_eq!(met(0.95, &[0.998, 1.003]), Some(false));
        assert_eq!(met(1.0, &[0.81, 1.0, 1.18]), None);
        assert_eq!(met(0.36, &[0.92, 1.3]), Some(false), "far beyond what noise does");
        let skipped = promise(1.0, &[0.81, 1.18]).skipped.unwrap_or_default();
        assert!(skipped.contains("noise is 0.810 to 1.180"), "{skipped}");
        assert_eq!(promise(1.0, &[]).skipped.as_deref(), Some("noise was not measured"));
    }
}
