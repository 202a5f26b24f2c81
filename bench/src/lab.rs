//! `bench lab`: how long relays take, and whether the delay lab tells the truth about it (the figures
//! of the relaying-delay paper).

pub(crate) mod balance;
pub(crate) mod paper;

use bench::{Bench, Chart, Curve, Options, Relation, Scales};
use gatewright_config::{Arrivals, Centre, Experiment, LinkShape, NodeShape, RelayKind, Vary};
use gatewright_diagnostic::SourceId;
use gatewright_lab::analysis::least_squares;
use gatewright_lab::{
    ConditionResult, LabRun, fit, plan, report, round_trips_beside_irtt, round_trips_under_load,
    run,
};
use gatewright_testbed::Needs;
use std::time::Duration;

/// What the relay `spin` computes for, in microseconds.
const SPIN_US: f64 = 100.0;
/// The experiment that `gatewright lab run` has by default.
const DEFAULT: &str = include_str!("../../examples/lab/default.toml");

/// Relays of every round.
const RELAYS: [RelayKind; 9] = [
    RelayKind::Kernel,
    RelayKind::TranslateUdp,
    RelayKind::TranslateTcp,
    RelayKind::SocatTcp,
    RelayKind::EncryptPortable,
    RelayKind::EncryptHardware,
    RelayKind::GraphXdp,
    RelayKind::GatewayXdp,
    RelayKind::Spin,
];

/// Relays whose models are promised, and by what their figures are called.
const MODELS: [(RelayKind, &str); 3] = [
    (RelayKind::Kernel, "kernel"),
    (RelayKind::TranslateUdp, "translate"),
    (RelayKind::EncryptPortable, "encrypt"),
];

const PROMISES: [(&str, Relation, f64); 13] = [
    ("translate_vs_kernel", Relation::AtLeast, 10.0),
    ("encrypt_r2", Relation::AtLeast, 0.98),
    ("graph_vs_kernel_delay_mean", Relation::AtMost, 2.0),
    ("graph_vs_kernel_delay_p99", Relation::AtMost, 2.0),
    ("observer_cost_ns", Relation::AtMost, 300.0),
    ("observer_share_pct", Relation::AtMost, 3.0),
    ("stamp_error_us", Relation::AtMost, 2.0),
    ("model_error_kernel_pct", Relation::AtMost, 10.0),
    ("model_error_translate_pct", Relation::AtMost, 10.0),
    ("model_error_encrypt_pct", Relation::AtMost, 15.0),
    ("p99_error_pct", Relation::AtMost, 25.0),
    ("default_run_min", Relation::AtMost, 5.0),
    ("default_report_mb", Relation::AtMost, 2.0),
];

/// The node delay of our translation of TCP relative to that of socat: no slower.
const SOCAT: (&str, Relation, f64) = ("translate_tcp_vs_socat", Relation::AtMost, 1.0);

/// How far medians of round trips by STAMP may be from irtt's, in percent.
const IRTT: (&str, Relation, f64) = ("irtt_median_off_pct", Relation::AtMost, 5.0);

/// The same against the mean that TCP has smoothed, as iperf3 tells it.
const IPERF3: (&str, Relation, f64) = ("iperf3_mean_off_pct", Relation::AtMost, 5.0);

/// How far medians of round trips by STAMP may be from those by ping, while streams fill the path, in
/// percent.
const LOADED: (&str, Relation, f64) = ("rrul_ping_median_off_pct", Relation::AtMost, 5.0);

/// The same against flent's test `ping`, by ICMP and by UDP.
const FLENT: [(&str, Relation, f64); 2] = [
    ("flent_icmp_median_off_pct", Relation::AtMost, 5.0),
    ("flent_udp_median_off_pct", Relation::AtMost, 5.0),
];

pub(crate) fn run_lab(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("lab", options);
    round_trips(&mut bench, options)?;
    loaded_round_trips(&mut bench, options)?;
    if let Some(missing) = Needs::new().namespaces().linux(6, 6).missing() {
        skip_namespaces(&mut bench, &missing.to_string());
        return Ok(bench);
    }
    let experiment = experiment(options);
    let mut last = None;
    for round in 0..options.rounds() {
        let seed = 1 + u64::try_from(round).unwrap_or(0);
        let run = measure(&Experiment { seed, ..experiment.clone() })?;
        for it in &run.left_out {
            bench.note(format!("left out: {}: {}", it.what, it.why));
        }
        sample(&mut bench, &run);
        models(&mut bench, &measure(&Experiment { seed, ..model_experiment(options) })?);
        tails(&mut bench, &measure(&Experiment { seed, ..tail_experiment(options) })?);
        let _slope = line(&mut bench, &measure(&Experiment { seed, ..slow_experiment(options) })?);
        last = Some(run);
    }
    bench.ratio("translate_vs_kernel", "node_translate-udp_us", "node_kernel_us");
    bench.ratio("graph_vs_kernel_delay_mean", "whole_gateway-xdp_mean_us", "whole_kernel_mean_us");
    bench.ratio("graph_vs_kernel_delay_p99", "whole_gateway-xdp_p99_us", "whole_kernel_p99_us");
    bench.ratio(
        "sockets_vs_kernel_delay_mean",
        "whole_translate-udp_mean_us",
        "whole_kernel_mean_us",
    );
    beside_socat(&mut bench);
    default_run(&mut bench)?;
    for (key, relation, bound) in PROMISES {
        bench.promise(key, relation, bound);
    }
    chart(&mut bench, last.as_ref());
    bench.note("node delays are medians of a round at 1000 octets, 200/s; arrivals are Poisson");
    bench.note("whole delays are from the sender's call to the receiver's socket");
    bench.note(
        "sender, receiver and a kernel that routes share a processor; relays have the other one",
    );
    Ok(bench)
}

/// Skips by name all that is promised of relays in namespaces.
fn skip_namespaces(bench: &mut Bench, why: &str) {
    for (key, relation, bound) in PROMISES.into_iter().chain([SOCAT]) {
        bench.skip(key, relation, bound, why);
    }
}

/// Our translation of TCP beside socat's, which is the paper's; skipped by name where there is none.
fn beside_socat(bench: &mut Bench) {
    let (key, relation, bound) = SOCAT;
    if let Some(missing) = Needs::new().program("socat").missing() {
        bench.skip(key, relation, bound, &missing.to_string());
        return;
    }
    bench.ratio(key, "node_translate-tcp_us", "node_socat-tcp_us");
    bench.promise(key, relation, bound);
}

/// Round trips by our STAMP sender beside irtt's, over two links of 3 ms each.
fn round_trips(bench: &mut Bench, options: Options) -> Result<(), String> {
    let (key, relation, bound) = IRTT;
    let needs = Needs::new().namespaces().linux(6, 6).program("irtt");
    if let Some(missing) = needs.missing() {
        bench.skip(key, relation, bound, &missing.to_string());
        let (key, relation, bound) = IPERF3;
        bench.skip(key, relation, bound, &missing.to_string());
        return Ok(());
    }
    let turns = u32::try_from(options.rounds()).unwrap_or(3);
    let medians = round_trips_beside_irtt(&experiment(options), Duration::from_millis(3), turns)?;
    for (ours, peer) in medians.stamp_us.iter().zip(&medians.irtt_us) {
        bench.sample("round_trip_stamp_us", "µs", *ours);
        bench.sample("round_trip_irtt_us", "µs", *peer);
        bench.sample(key, "%", 100.0 * (ours / peer - 1.0).abs());
    }
    bench.promise(key, relation, bound);
    let (key, relation, bound) = IPERF3;
    for (ours, peer) in medians.stamp_us.iter().zip(&medians.iperf3_us) {
        bench.sample("round_trip_iperf3_us", "µs", *peer);
        bench.sample(key, "%", 100.0 * (ours / peer - 1.0).abs());
    }
    if medians.iperf3_us.is_empty() {
        bench.skip(key, relation, bound, "needs the program iperf3");
    } else {
        bench.promise(key, relation, bound);
    }
    Ok(())
}

/// Round trips by STAMP and by ping at the same time, while four streams each way fill two links of 20
/// Mbit/s: flent's test RRUL, repeated with the kernel's TCP.
fn loaded_round_trips(bench: &mut Bench, options: Options) -> Result<(), String> {
    let (key, relation, bound) = LOADED;
    if let Some(missing) = Needs::new().namespaces().linux(6, 6).program("ping").missing() {
        for (key, relation, bound) in [LOADED].into_iter().chain(FLENT) {
            bench.skip(key, relation, bound, &missing.to_string());
        }
        return Ok(());
    }
    let off = |ours: f64, peer: f64| 100.0 * (ours / peer - 1.0).abs();
    let [mut icmp, mut udp] = [false; 2];
    let link = LinkShape { capacity_mbps: 20.0, latency_us: 3000, jitter_us: 0, loss_pct: 0.0 };
    for _round in 0..options.rounds() {
        let found = round_trips_under_load(&experiment(options), link)?;
        bench.sample("rrul_stamp_us", "µs", found.stamp_us);
        bench.sample("rrul_ping_us", "µs", found.ping_us);
        bench.sample(key, "%", off(found.stamp_us, found.ping_us));
        let Some(flent) = found.flent else { continue };
        let [(by_icmp, ..), (by_udp, ..)] = FLENT;
        icmp = true;
        bench.sample("flent_stamp_us", "µs", flent.stamp_us);
        bench.sample("flent_icmp_us", "µs", flent.icmp_us);
        bench.sample(by_icmp, "%", off(flent.stamp_us, flent.icmp_us));
        if let Some(udp_us) = flent.udp_us {
            udp = true;
            bench.sample("flent_udp_us", "µs", udp_us);
            bench.sample(by_udp, "%", off(flent.stamp_us, udp_us));
        }
    }
    bench.promise(key, relation, bound);
    for ((key, relation, bound), (is_there, program)) in
        FLENT.into_iter().zip([(icmp, "flent"), (udp, "flent and irtt")])
    {
        if is_there {
            bench.promise(key, relation, bound);
        } else {
            bench.skip(key, relation, bound, &format!("needs the program {program}"));
        }
    }
    bench.note(
        "rrul_…: the method of flent's test RRUL, by our own streams; flent_…: flent's own test `ping` \
         beside these",
    );
    Ok(())
}

fn experiment(options: Options) -> Experiment {
    Experiment {
        title: "bench lab".to_owned(),
        relays: RELAYS.to_vec(),
        centre: Centre::plain(1000, 200),
        vary: Vary {
            octets: vec![100, 400, 700, 1400],
            rate: vec![100, 400, 800],
            ..Vary::default()
        },
        factorial: false,
        seconds: options.pick(0.5, 0.25),
        repeats: 3,
        repeats_max: 3,
        steady_pct: 5.0,
        arrivals: Arrivals::Poisson,
        seed: 1,
        link: None,
        node: NodeShape::default(),
    }
}

/// The relays of which models are promised, at more repetitions: a condition's mean is what the model
/// is held against, and that of three repetitions differs by more than the model may.
fn model_experiment(options: Options) -> Experiment {
    let repeats = options.pick(9, 3);
    let relays = MODELS.map(|(relay, _)| relay).to_vec();
    Experiment { relays, repeats, repeats_max: repeats, ..experiment(options) }
}

/// Delays at one condition, so many that a 99th percentile can be told.
fn tail_experiment(options: Options) -> Experiment {
    Experiment {
        relays: MODELS.map(|(relay, _)| relay).to_vec(),
        centre: Centre::plain(1000, 800),
        vary: Vary::default(),
        seconds: options.pick(2.5, 0.7),
        repeats: 4,
        repeats_max: 4,
        ..experiment(options)
    }
}

/// How many times slower the processor of [`slow_experiment`] is.
const SLOWER: u32 = 10;

/// Portable AES on a processor that is slower: the paper's encrypts some 10 MB/s, this one some 90.
fn slow_experiment(options: Options) -> Experiment {
    Experiment {
        relays: vec![RelayKind::EncryptPortable],
        vary: Vary { octets: vec![100, 400, 700, 1400], ..Vary::default() },
        node: NodeShape { slowdown: SLOWER, ..NodeShape::default() },
        ..experiment(options)
    }
}

/// The errors of fitted 99th percentiles.
fn tails(bench: &mut Bench, run: &LabRun) {
    for (relay, name) in MODELS {
        if let Some(error) = run.model(relay).and_then(|model| model.p99_error_pct) {
            bench.sample(&format!("p99_error_{name}_pct"), "%", error);
        }
    }
    let errors: Vec<f64> = run.models.iter().filter_map(|model| model.p99_error_pct).collect();
    if !errors.is_empty() {
        let count = f64::from(u32::try_from(errors.len()).unwrap_or(1));
        bench.sample("p99_error_pct", "%", errors.iter().sum::<f64>() / count);
    }
}

/// How well a line through the medians of each payload explains the delay of encryption; its slope, in
/// microseconds an octet.
fn line(bench: &mut Bench, run: &LabRun) -> Option<f64> {
    let point = |it: &ConditionResult| Some((f64::from(it.octets), it.node?.p50));
    let points: Vec<(f64, f64)> = run.conditions.iter().filter_map(point).collect();
    let fit = least_squares(&points)?;
    bench.sample("encrypt_r2", "R²", fit.r_squared);
    bench.sample("c_encrypt_slow_ns", "ns", fit.slope * 1000.0);
    Some(fit.slope)
}

fn measure(experiment: &Experiment) -> Result<LabRun, String> {
    run(experiment, &mut |_| {}).map_err(|error| error.to_string())
}

/// Adds the figures of one round.
fn sample(bench: &mut Bench, run: &LabRun) {
    for relay in run.relays() {
        let Some(it) = run.centre(relay) else { continue };
        let name = relay.name();
        let figures = [
            ("node", "us", it.node.map(|it| it.p50)),
            ("node", "p99_us", it.node.map(|it| it.p99)),
            ("whole", "mean_us", it.end_to_end.map(|it| it.mean)),
            ("whole", "p99_us", it.end_to_end.map(|it| it.p99)),
            ("jitter", "us", it.jitter.map(|it| it.mean)),
        ];
        for (of, figure, value) in figures {
            if let Some(value) = value {
                bench.sample(&format!("{of}_{name}_{figure}"), "us", value);
            }
        }
        bench.sample(&format!("spikes_{name}_pct"), "%", share(it));
        bench.sample(&format!("lost_{name}_pct"), "%", it.loss_pct());
    }
    truth(bench, run);
}

/// Errors of the models at conditions that were left out of the fit, and what the models are.
fn models(bench: &mut Bench, run: &LabRun) {
    for (relay, name) in MODELS {
        let Some(model) = run.model(relay) else { continue };
        if let Some(queue) = model.queue {
            bench.sample(&format!("model_error_{name}_pct"), "%", queue.error_pct);
            bench.sample(&format!("loser_error_{name}_pct"), "%", queue.loser_error_pct);
            let setup = queue.setup.map_or(0.0, |setup| setup.longest * 1e6);
            bench.sample(&format!("setup_{name}_us"), "us", setup);
        }
        for it in &model.held_out {
            let key = format!("model_error_{name}_{}_{}_pct", it.octets, it.rate);
            bench.sample(&key, "%", it.error_pct);
        }
        if let Some(service) = model.service {
            bench.sample(&format!("a_{name}_us"), "us", service.intercept);
            bench.sample(&format!("c_{name}_ns"), "ns", service.slope * 1000.0);
            if relay == RelayKind::EncryptPortable {
                bench.sample("encrypt_fast_r2", "R²", service.r_squared);
            }
        }
    }
}

/// What the lab says of a known time, and what observing costs.
fn truth(bench: &mut Bench, run: &LabRun) {
    let processing = |relay| Some(run.centre(relay)?.processing?.p50);
    let found = processing(RelayKind::Spin).zip(processing(RelayKind::TranslateUdp));
    if let Some((spin, plain)) = found {
        bench.sample("stamp_error_us", "µs", (spin - plain - SPIN_US).abs());
    }
    if let Some(observer) = run.observer {
        bench.sample("observer_cost_ns", "ns", observer.program_ns);
        bench.sample("observer_seen_us", "µs", observer.with_us - observer.without_us);
        let node = run.centre(RelayKind::TranslateUdp).and_then(|it| it.node);
        if let Some(node) = node {
            let share = 100.0 * 2.0 * observer.program_ns / 1000.0 / node.p50;
            bench.sample("observer_share_pct", "%", share);
        }
    }
}

/// Spikes among the probes of a condition, in percent.
fn share(it: &ConditionResult) -> f64 {
    let real = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    100.0 * real(it.spikes) / real(it.received.max(1))
}

/// The time of a default run, at the most; and the size of its report, by a short run of the same
/// conditions, whose report has as many figures and points.
fn default_run(bench: &mut Bench) -> Result<(), String> {
    let default = gatewright_config::parse_experiment(SourceId::default(), DEFAULT);
    let mut default = default.map_err(|findings| format!("{findings:?}"))?;
    bench.sample("default_run_min", "min", plan(&default).seconds_max / 60.0);
    fit(&mut default, Duration::from_mins(1));
    let octets = report::html(&measure(&default)?).len();
    let octets = f64::from(u32::try_from(octets).unwrap_or(u32::MAX));
    bench.sample("default_report_mb", "MB", octets / 1e6);
    Ok(())
}

/// Node delay over payload, of the last round.
fn chart(bench: &mut Bench, run: Option<&LabRun>) {
    let Some(run) = run else { return };
    let curve = |relay: RelayKind| {
        let of_relay = run.conditions.iter().filter(|it| {
            let centre = run.experiment.centre;
            it.relay == relay && it.rate == centre.rate && it.condition().is_like(&centre)
        });
        let points = of_relay.filter_map(|it| Some((f64::from(it.octets), it.node?.p50)));
        Curve { name: relay.name().to_owned(), points: points.collect() }
    };
    let chart = Chart {
        title: "node delay over payload".to_owned(),
        x: "octets of payload".to_owned(),
        y: "µs".to_owned(),
        curves: run.relays().into_iter().map(curve).collect(),
    };
    bench.chart_on(Scales { log_x: false, log_y: true }, chart);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_namespaces_each_promise_about_relays_is_skipped_by_name() {
        let mut bench = Bench::new("lab", Options { quick: true, ..Options::default() });
        skip_namespaces(&mut bench, "no root");
        let folder = std::env::temp_dir().join(format!("bench-lab-{}", std::process::id()));
        bench.finish(&folder).unwrap();
        let text = std::fs::read_to_string(folder.join("lab.json")).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        let skipped = |key: &str| {
            let promises = report["promises"].as_array().unwrap();
            promises.iter().any(|it| it["key"] == key && it["skipped"] == "no root")
        };
        for key in ["translate_vs_kernel", "translate_tcp_vs_socat"] {
            assert!(skipped(key), "{key}: {report}");
        }
    }
}
