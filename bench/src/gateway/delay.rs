//! Requests with one outstanding: how long each takes (the paper's Fig. 10 and Table 1).

use super::relays::WaitMode;
use super::systems::{MERGED, XDP};
use super::world::{DIRECT, LOCAL, PacedRequests, REMOTE, TestHosts, number};
use super::{Problems, ours};
use bench::{Bench, Chart, Curve, Scales};
use gatewright_planes::Series;
use std::time::Duration;

/// Requests of a round.
const REQUESTS: usize = 10_000;
const REQUESTS_QUICK: usize = 1000;
/// Requests that are apart, as sensors send them, so that whoever carries them has gone to sleep:
/// the beginning of the figures' names, the pause, and how many requests of a round, quick or not.
const APART: [(&str, Duration, [usize; 2]); 2] = [
    ("1ms", Duration::from_millis(1), [200, 2000]),
    ("10ms", Duration::from_millis(10), [30, 300]),
];
/// Carriers of those: the default against blocking sockets.
const APART_CARRIERS: [(&str, Carrier); 2] = [
    ("naive", Carrier::Sockets(WaitMode::Blocked)),
    ("gateway", Carrier::Gateway(Series::Plain, None)),
];
/// Longer than any round: a worker that never sleeps.
const FOR_EVER: Duration = Duration::from_hours(1);

/// Who carries requests and answers, by the beginning of its figures' names.
const CARRIERS: [(&str, Carrier); 6] = [
    ("direct", Carrier::Direct),
    ("naive", Carrier::Sockets(WaitMode::Blocked)),
    ("gateway", Carrier::Gateway(Series::Plain, None)),
    ("merging", Carrier::Gateway(MERGED, None)),
    ("spinning", Carrier::Sockets(WaitMode::Spinning)),
    ("gateway_spinning", Carrier::Gateway(Series::Plain, Some(FOR_EVER))),
];

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Carrier {
    /// Nobody: a cable from the client to the server.
    Direct,
    Sockets(WaitMode),
    /// Our UDP gateway, its worker polling so long before it sleeps, or as it does by itself.
    Gateway(Series, Option<Duration>),
}

impl Carrier {
    fn requests(
        self,
        world: &TestHosts,
        asked: PacedRequests,
    ) -> Result<(Vec<f64>, usize), String> {
        match self {
            Self::Direct => world.requests(DIRECT, asked, |_| Ok(())),
            Self::Sockets(waiting) => world.requests(LOCAL, asked, |stop| {
                waiting.run(LOCAL, REMOTE, stop).map_err(|error| error.to_string())
            }),
            Self::Gateway(series, spin) => {
                world.requests(LOCAL, asked, |stop| ours::gateway(XDP, spin, Some(series), stop))
            }
        }
    }
}

/// Measures all of them.
pub(super) fn measure(bench: &mut Bench, world: &TestHosts, problems: &Problems) {
    let count = bench.options().pick(REQUESTS, REQUESTS_QUICK);
    let mut histograms = CARRIERS.map(|(name, _)| (name, Histogram::default()));
    for _round in 0..bench.options().rounds() {
        for ((name, carrier), (_, histogram)) in CARRIERS.into_iter().zip(&mut histograms) {
            match carrier.requests(world, PacedRequests { count, pause: Duration::ZERO }) {
                Ok((delays, lost)) => {
                    histogram.add(&delays);
                    summarise(bench, name, delays, lost);
                }
                Err(problem) => problems.borrow_mut().push(format!("delay {name}: {problem}")),
            }
        }
    }
    for (key, of, to) in [
        ("delay_mean_vs_native", "gateway_mean_us", "naive_mean_us"),
        ("delay_p50_vs_native", "gateway_p50_us", "naive_p50_us"),
        ("delay_p99_vs_native", "gateway_p99_us", "naive_p99_us"),
        ("delay_spin_vs_spin", "gateway_spinning_mean_us", "spinning_mean_us"),
        ("delay_p50_spin_vs_spin", "gateway_spinning_p50_us", "spinning_p50_us"),
    ] {
        bench.ratio(key, of, to);
    }
    apart(bench, world, problems);
    bench.difference("merge_added_us", "merging_mean_us", "gateway_mean_us");
    let curves = histograms.map(|(name, histogram)| histogram.curve(name));
    let chart = Chart {
        title: "delay of requests".to_owned(),
        x: "milliseconds".to_owned(),
        y: "share of the requests".to_owned(),
        curves: curves.into(),
    };
    bench.chart_on(Scales { log_x: false, log_y: true }, chart);
}

/// Measures requests that are apart.
fn apart(bench: &mut Bench, world: &TestHosts, problems: &Problems) {
    for (name, pause, [quick, whole]) in APART {
        let asked = PacedRequests { count: bench.options().pick(whole, quick), pause };
        for _round in 0..bench.options().rounds() {
            for (carrier_name, carrier) in APART_CARRIERS {
                let name = format!("{carrier_name}_{name}");
                match carrier.requests(world, asked) {
                    Ok((delays, lost)) => summarise(bench, &name, delays, lost),
                    Err(problem) => problems.borrow_mut().push(format!("delay {name}: {problem}")),
                }
            }
        }
        for figure in ["mean", "p50", "p99"] {
            let of = |carrier: &str| format!("{carrier}_{name}_{figure}_us");
            let ratio = format!("delay_{name}_{figure}_vs_native");
            bench.ratio(&ratio, &of("gateway"), &of("naive"));
        }
    }
}

/// The paper's histogram ends here; what takes longer is counted apart.
const LATE_US: f64 = 3000.0;

fn summarise(bench: &mut Bench, name: &str, mut delays: Vec<f64>, lost: usize) {
    delays.sort_by(f64::total_cmp);
    let count = |count: usize| number(count as u64);
    let per_mille = |share: usize| {
        delays.get((delays.len() * share / 1000).min(delays.len().saturating_sub(1))).copied()
    };
    let mean = delays.iter().sum::<f64>() / count(delays.len());
    let late = delays.iter().filter(|&&delay| delay > LATE_US).count();
    for (figure, unit, value) in [
        ("mean_us", "us", Some(mean)),
        ("p50_us", "us", per_mille(500)),
        ("p99_us", "us", per_mille(990)),
        ("p999_us", "us", per_mille(999)),
        ("above_3ms_pct", "%", Some(100.0 * count(late) / count(delays.len()))),
        ("unanswered", "requests", Some(count(lost))),
    ] {
        bench.sample(&format!("{name}_{figure}"), unit, value.unwrap_or(f64::NAN));
    }
}

/// How often each delay was met, of all rounds.
#[derive(Debug)]
struct Histogram {
    counts: [u32; BINS],
    all: u32,
}

/// Bins of 20 µs up to 3 ms.
const BINS: usize = 150;
const BIN_US: f64 = LATE_US / 150.0;

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; BINS], all: 0 }
    }
}

impl Histogram {
    fn add(&mut self, delays: &[f64]) {
        for &delay in delays {
            self.all += 1;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a delay is not negative, and saturates beyond all bins"
            )]
            let bin = (delay / BIN_US) as usize;
            if let Some(count) = self.counts.get_mut(bin) {
                *count += 1;
            }
        }
    }

    /// Its share in each bin that is not empty, at the bin's middle in milliseconds.
    fn curve(&self, name: &str) -> Curve {
        let middles = (0_u32..).map(|bin| (f64::from(bin) + 0.5) * BIN_US / 1000.0);
        let met = middles.zip(self.counts).filter(|&(_, count)| count > 0);
        let points = met.map(|(middle, count)| (middle, f64::from(count) / f64::from(self.all)));
        Curve { name: name.to_owned(), points: points.collect() }
    }
}
