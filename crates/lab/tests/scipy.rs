//! The statistics beside SciPy's, on the same values.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use gatewright_lab::analysis::{
    DelaySummary, fit_tail, least_squares, share_interval, student_t, theil_sen,
};
use gatewright_sim::Random;
use gatewright_testbed::python_program;
use libtest_mimic::{Arguments, Trial};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The peer: reads points and a tail, answers with SciPy's results.
const PEER: &str = "\
import json, sys, numpy, scipy.stats
asked = json.load(sys.stdin)
x, y = numpy.array(asked['x']), numpy.array(asked['y'])
line = scipy.stats.linregress(x, y)
robust = scipy.stats.theilslopes(y, x, method='separate')
tail = asked['tail']
excess = scipy.stats.genpareto.ppf(1 - 0.01 / tail['share'], tail['shape'], scale=tail['scale'])
count, part, lost = len(y), 0.95, 7
# How many values are below the percentile: the binomial distribution leaves 0.025 on each side.
ranks = [int(scipy.stats.binom.ppf(at, count, part)) for at in (0.025, 0.975)]
share = scipy.stats.binomtest(lost, count).proportion_ci(0.95, method='wilson')
print(json.dumps({
    't': [scipy.stats.t.ppf(0.5 + level / 2, freedom) for level, freedom in asked['t']],
    'p95': [sorted(y)[ranks[0] - 1], sorted(y)[ranks[1]]],
    'share': [share.low, share.high],
    'quantiles': list(numpy.quantile(y, [0.05, 0.25, 0.5, 0.75, 0.95, 0.99])),
    'deviation': numpy.std(y, ddof=1),
    'line': [line.intercept, line.slope, line.rvalue ** 2],
    'robust': [robust.intercept, robust.slope],
    'p99': tail['threshold'] + excess,
}))
";

fn main() {
    let python = python();
    let name = match &python {
        Some(_) => "the_statistics_are_scipys",
        None => "the_statistics_are_scipys (needs Python with SciPy)",
    };
    let ignored = python.is_none();
    let run = move || {
        compare(&python.unwrap());
        Ok(())
    };
    let trial = Trial::test(name, run).with_ignored_flag(ignored);
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit();
}

/// A Python that has SciPy.
fn python() -> Option<PathBuf> {
    let has = |python: &Path| {
        let mut command = Command::new(python);
        command.args(["-c", "import scipy.stats"]).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let system = PathBuf::from("python3");
    if has(&system) {
        return Some(system);
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("scipy");
    python_program(&folder, "scipy==1.15.3", "numpy-config")?;
    Some(folder.join("bin/python3")).filter(|python| has(python))
}

fn compare(python: &Path) {
    let mut random = Random::new(7);
    let mut draw = || f64::from(u32::try_from(random.bits() >> 32).unwrap()) / f64::from(u32::MAX);
    let points: Vec<(f64, f64)> = (0..300_u32)
        .map(|at| {
            let octets = f64::from(100 + at % 14 * 100);
            (octets, 120.0 + 0.4 * octets - 60.0 * (1.0 - 0.999_999 * draw()).ln())
        })
        .collect();
    let (x, y): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    let tail = fit_tail(&y).unwrap();
    let levels = [(0.5, 1), (0.95, 2), (0.95, 3), (0.999_24, 4), (0.999_24, 7), (0.999_99, 8)];
    let asked = json!({ "x": x, "y": y, "tail": tail, "t": levels });
    let peer = ask(python, &asked);
    let near = |ours: f64, theirs: &Value, what: &str| {
        let theirs = theirs.as_f64().unwrap();
        assert!((ours - theirs).abs() <= 1e-6 * theirs.abs(), "{what}: {ours}, SciPy {theirs}");
    };
    for (at, (level, freedom)) in levels.into_iter().enumerate() {
        near(student_t(level, freedom), &peer["t"][at], "t");
    }
    let summary = DelaySummary::of(&y).unwrap();
    let DelaySummary { p5, p25, p50, p75, p95, p99, .. } = summary;
    for (at, ours) in [p5, p25, p50, p75, p95, p99].into_iter().enumerate() {
        near(ours, &peer["quantiles"][at], "quantile");
    }
    near(summary.deviation, &peer["deviation"], "deviation");
    let p95 = summary.p95_interval.unwrap();
    let share = share_interval(7, y.len()).unwrap();
    for (ours, of) in [(p95, "p95"), (share, "share")] {
        near(ours.low, &peer[of][0], of);
        near(ours.high, &peer[of][1], of);
    }
    let line = least_squares(&points).unwrap();
    for (at, ours) in [line.intercept, line.slope, line.r_squared].into_iter().enumerate() {
        near(ours, &peer["line"][at], "least squares");
    }
    let robust = theil_sen(&points, &mut random).unwrap();
    near(robust.slope, &peer["robust"][1], "Theil-Sen slope");
    near(tail.quantile(0.99), &peer["p99"], "quantile of the tail");
}

fn ask(python: &Path, asked: &Value) -> Value {
    let mut child = Command::new(python)
        .args(["-c", PEER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(asked.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}
