//! The paper's experiment: kernel routing, translation and encryption over links like those of 802.11n,
//! on a node that does its work so many times as the paper's is slower.

use super::{experiment, measure};
use bench::{Bench, Options, Relation};
use gatewright_config::{
    Arrivals, Centre, Experiment, LinkShape, NodeShape, RelayKind, Vary, parse_experiment,
};
use gatewright_diagnostic::SourceId;
use gatewright_lab::{ConditionResult, LabRun};

/// How many times the work is done. The paper's node encrypts 1,200 octets in more than a millisecond,
/// this one in some 13 µs.
const SLOWDOWN: u32 = 100;
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
pub(super) fn promises() -> [(String, Relation, f64); 4] {
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

/// One round: the kernel at this machine's speed, as it cannot do its work twice, and the others
/// slowed.
pub(super) fn round(bench: &mut Bench, options: Options, seed: u64) -> Result<(), String> {
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
    let slowed = measure(&of(&slowed, SLOWDOWN)?)?;
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
         translation and encryption do their work {SLOWDOWN} times, the kernel works at this machine's \
         speed; …_vs_link is NLR, by medians; link_by_throughput leaves out the medium access that \
         stamps see"
    ));
    Ok(())
}
