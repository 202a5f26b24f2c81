//! `bench paper`: the paper's experiment, with kernel routing, translation and encryption over links like
//! those of 802.11n, on a node that does its work so many times as the paper's is slower.

use super::{SLOWER, experiment, line, measure, slow_experiment};
use bench::{Bench, Options, Relation};
use gatewright_config::{
    Arrivals, Centre, Experiment, LinkShape, NodeShape, RelayKind, Vary, parse_experiment,
};
use gatewright_diagnostic::SourceId;
use gatewright_lab::{ConditionResult, LabRun};
use gatewright_testbed::Needs;

/// What the paper's node takes to encrypt so many octets, in microseconds: more than a millisecond.
const ENCRYPTION: (f64, f64) = (1200.0, 1300.0);
/// How many times an experiment can have the work done.
const SLOWDOWNS: (f64, f64) = (1.0, 1000.0);
/// The smallest and the largest payload.
const SIZES: [u16; 2] = [SMALLEST, LARGEST];
const SMALLEST: u16 = 100;
const LARGEST: u16 = 1400;
/// A rate at which encryption cannot keep up.
const FAST: u32 = 800;
/// A rate that fills the links: what arrives then is their throughput.
const FILLING: u32 = 5000;

/// What its relays are called in figures.
const KERNEL: &str = "kernel";
const TRANSLATE: &str = "translate";
const ENCRYPT: &str = "encrypt";

/// What is promised of it.
fn promises() -> [(String, Relation, f64); 4] {
    [
        (ratio_key(ENCRYPT, LARGEST), Relation::AtLeast, 1.0),
        (ratio_key(ENCRYPT, SMALLEST), Relation::AtMost, 1.0),
        (lost_key(ENCRYPT), Relation::AtLeast, 1.0),
        (lost_key(TRANSLATE), Relation::AtMost, 0.5),
    ]
}

/// The figure of a relay's NLR at a size.
fn ratio_key(name: &str, octets: u16) -> String {
    format!("paper_{name}_{octets}_vs_link")
}

/// The figure of its losses at the high rate.
fn lost_key(name: &str) -> String {
    format!("paper_{name}_{FAST}_lost_pct")
}

/// Links like those of 802.11n, as experiments name them.
fn link() -> Result<LinkShape, String> {
    let text = "title = 'link'\nrelays = ['kernel']\n[centre]\noctets = 100\nrate = 1\n\
        [link]\nlike = '802.11n'\n";
    let read = parse_experiment(SourceId::default(), text);
    let read = read.map_err(|findings| format!("{findings:?}"))?;
    read.link.ok_or_else(|| "no link".to_owned())
}

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("paper", options);
    if let Some(missing) = Needs::new().namespaces().linux(6, 6).missing() {
        for (key, relation, bound) in promises() {
            bench.skip(&key, relation, bound, &missing.to_string());
        }
        return Ok(bench);
    }
    for round in 0..options.rounds() {
        let seed = 1 + u64::try_from(round).unwrap_or(0);
        let slow = measure(&Experiment { seed, ..slow_experiment(options) })?;
        let slope = line(&mut bench, &slow).ok_or("the delay of encryption has no slope")?;
        let slowdown = slowdown(slope / f64::from(SLOWER));
        bench.sample("paper_slowdown", "times", f64::from(slowdown));
        self::round(&mut bench, options, (seed, slowdown))?;
    }
    for (key, relation, bound) in promises() {
        bench.promise(&key, relation, bound);
    }
    Ok(bench)
}

/// How many times a node has to do its work to encrypt like the paper's, if an octet takes so many
/// microseconds.
fn slowdown(octet_us: f64) -> u32 {
    let (octets, paper_us) = ENCRYPTION;
    let times = (paper_us / (octets * octet_us)).round().clamp(SLOWDOWNS.0, SLOWDOWNS.1);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number of 1 to 1000, or none, which is 0"
    )]
    let times = times as u32;
    times.max(1)
}

/// One round: the kernel at this machine's speed, as it cannot do its work twice, and the others
/// slowed.
fn round(bench: &mut Bench, options: Options, (seed, slowdown): (u64, u32)) -> Result<(), String> {
    let of = |relays: &[RelayKind], slowdown| {
        Ok::<_, String>(Experiment {
            relays: relays.to_vec(),
            vary: Vary { octets: SIZES.to_vec(), rate: vec![FAST], ..Vary::default() },
            seconds: options.pick(1.0, 0.5),
            repeats: options.pick(3, 2),
            repeats_max: options.pick(3, 2),
            arrivals: Arrivals::Periodic,
            link: Some(link()?),
            node: NodeShape { slowdown, ..NodeShape::default() },
            seed,
            ..experiment(options)
        })
    };
    let kernel = measure(&of(&[RelayKind::Kernel], 1)?)?;
    let slowed = [RelayKind::TranslateUdp, RelayKind::EncryptPortable];
    let slowed = measure(&of(&slowed, slowdown)?)?;
    for (run, relay, name) in [
        (&kernel, RelayKind::Kernel, KERNEL),
        (&slowed, RelayKind::TranslateUdp, TRANSLATE),
        (&slowed, RelayKind::EncryptPortable, ENCRYPT),
    ] {
        conditions(bench, run, relay, name);
    }
    throughput(bench, &kernel, of(&[RelayKind::Kernel], 1)?)
}

/// NLR at each size, and losses at the high rate.
fn conditions(bench: &mut Bench, run: &LabRun, relay: RelayKind, name: &str) {
    let centre = run.experiment.centre;
    for octets in SIZES {
        let it = run.condition(relay, Centre { octets, ..centre });
        if let Some(ratio) = it.and_then(ConditionResult::node_link_ratio) {
            bench.sample(&ratio_key(name, octets), "", ratio);
        }
    }
    if let Some(it) = run.condition(relay, Centre { rate: FAST, ..centre }) {
        bench.sample(&lost_key(name), "%", it.loss_pct());
    }
}

/// The delay of both links by their throughput, as the paper has it, beside that by stamps.
fn throughput(bench: &mut Bench, run: &LabRun, of: Experiment) -> Result<(), String> {
    let centre = Centre { rate: FILLING, ..of.centre };
    let filled = Experiment { centre, vary: Vary::default(), repeats: 1, repeats_max: 1, ..of };
    let filled = measure(&filled)?;
    let mbps = filled.centre(RelayKind::Kernel).and_then(|it| it.throughput_mbps);
    let stamped = run.centre(RelayKind::Kernel).and_then(|it: &ConditionResult| it.link);
    if let Some((mbps, stamped)) = mbps.zip(stamped) {
        // Megabits a second are bits a microsecond; there are two links.
        let bits = f64::from(centre.octets) * 8.0;
        bench.sample("paper_link_throughput_mbps", "Mbit/s", mbps);
        bench.sample("paper_link_by_throughput_us", "µs", 2.0 * bits / mbps);
        bench.sample("paper_link_by_stamps_us", "µs", stamped.p50);
    }
    let LinkShape { capacity_mbps, latency_us, jitter_us, .. } = link()?;
    let latency_max_us = latency_us + jitter_us;
    bench.note(format!(
        "paper_…: links like 802.11n ({capacity_mbps} Mbit/s, {latency_us} to {latency_max_us} µs); \
         translation and encryption do their work so often (paper_slowdown) that encryption takes what it \
         takes on the paper's node, the kernel works at this machine's speed; …_vs_link is NLR, by medians; link_by_throughput leaves out the medium access that \
         stamps see"
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_faster_processor_does_its_work_more_often() {
        // 13 µs and 6.5 µs for 1,200 octets.
        assert_eq!([13.0, 6.5].map(|us| slowdown(us / 1200.0)), [100, 200]);
        assert_eq!([0.0, -1.0, f64::NAN, 1e9].map(slowdown), [1000, 1, 1, 1]);
    }
}
