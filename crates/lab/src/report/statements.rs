//! The statements of the paper, beside what the run shows.

use super::chart::digits;
use crate::analysis::DelaySummary;
use crate::result::{ConditionResult, LabRun};
use gatewright_config::{Centre, RelayKind};
use serde::Serialize;
use std::fmt::Write;

/// How a run stands to a statement.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Agreement {
    /// The run shows the same.
    Same,
    /// The run shows something else.
    Different,
    /// The run does not have what it takes.
    Unknown,
}

/// A statement of the paper, and ours.
#[derive(Clone, Debug, Serialize)]
pub struct PaperStatement {
    /// What the paper says.
    pub paper: &'static str,
    /// What this run shows.
    pub ours: String,
    /// How they stand to each other.
    pub agreement: Agreement,
}

/// All statements that can be held against a run.
pub fn statements(run: &LabRun) -> Vec<PaperStatement> {
    let rows = [
        (
            "Relaying by an application takes at least ten times as long as kernel routing.",
            by_speed(run, ten_times(run)),
        ),
        (
            "Pulling packets up to an application costs more than 100 µs on a Raspberry Pi Zero W.",
            by_speed(run, application(run)),
        ),
        ("The delay of encryption is linear in the payload.", by_speed(run, linear(run))),
        (
            "Delay spikes at 1000 octets, 200/s: 53 by kernel routing, 115 by translation, 9 by encryption.",
            spikes(run),
        ),
        ("Jitter does not differ between kernel routing and translation.", same_jitter(run)),
        ("Jitter grows with the payload only by encryption.", jitter_grows(run)),
        ("Packets are lost only by encryption, at 200/s or more.", loss(run)),
        (
            "Kernel routing and translation take the same whatever the rate and the load.",
            constant(run),
        ),
        (
            "NLR is below 5 % by kernel routing, about 30 % by translation, and grows linearly by encryption.",
            by_speed(run, ratios(run)),
        ),
        (
            "The node takes longer than the link above 1200 octets by encryption.",
            by_speed(run, exceeds(run)),
        ),
        (
            "The higher the rate, the lower the mean delay; the cause is unknown.",
            falls_with_rate(run),
        ),
        ("The delay's variance falls at 1200 octets; the cause is unknown.", steady_at_1200(run)),
    ];
    let missing = || (Agreement::Unknown, "not measured in this run".to_owned());
    let statement = |(paper, ours): (&'static str, Option<(Agreement, String)>)| {
        let (agreement, ours) = ours.unwrap_or_else(missing);
        PaperStatement { paper, ours, agreement }
    };
    rows.into_iter().map(statement).collect()
}

type Finding = Option<(Agreement, String)>;

const fn judged(is_same: bool, ours: String) -> (Agreement, String) {
    (if is_same { Agreement::Same } else { Agreement::Different }, ours)
}

/// Names what made the node slower than this machine, beside a finding on its speed.
fn by_speed(run: &LabRun, finding: Finding) -> Finding {
    let node = run.experiment.node;
    let (agreement, mut ours) = finding?;
    // Writing to a string cannot fail.
    if node.slowdown > 1 {
        let _ = write!(ours, "; the relay's work was done {} times (slowdown)", node.slowdown);
    }
    if node.quota_pct < 100 {
        let _ = write!(ours, "; the relay had a quota of {} % of a processor", node.quota_pct);
    }
    Some((agreement, ours))
}

fn node(run: &LabRun, relay: RelayKind) -> Option<DelaySummary> {
    run.centre(relay)?.node
}

fn encryption(run: &LabRun) -> RelayKind {
    if run.centre(RelayKind::EncryptPortable).is_some() {
        RelayKind::EncryptPortable
    } else {
        RelayKind::EncryptHardware
    }
}

fn sizes(run: &LabRun, relay: RelayKind) -> Vec<&ConditionResult> {
    let centre = run.experiment.centre;
    let is_in = |it: &&ConditionResult| {
        it.relay == relay && it.rate == centre.rate && it.condition().is_like(&centre)
    };
    run.conditions.iter().filter(is_in).collect()
}

fn ten_times(run: &LabRun) -> Finding {
    let (kernel, ours) = (node(run, RelayKind::Kernel)?, node(run, RelayKind::TranslateUdp)?);
    let ratio = ours.p50 / kernel.p50;
    Some(judged(
        ratio >= 10.0,
        format!(
            "{} times: {} µs by sockets, {} µs by the kernel (medians of {} and {} probes)",
            digits(ratio),
            digits(ours.p50),
            digits(kernel.p50),
            ours.count,
            kernel.count
        ),
    ))
}

fn application(run: &LabRun) -> Finding {
    let ours = node(run, RelayKind::TranslateUdp)?;
    Some(judged(ours.p50 > 100.0, format!("{} µs on this machine", digits(ours.p50))))
}

fn linear(run: &LabRun) -> Finding {
    let relay = encryption(run);
    let model = run.model(relay)?;
    let fit = model.service?;
    let interval = model.intervals?.slope;
    Some(judged(
        fit.r_squared >= 0.98,
        format!(
            "R² {:.4} over {} medians; {} ns an octet, 95 %: {} to {} ({})",
            fit.r_squared,
            fit.count,
            digits(fit.slope * 1000.0),
            digits(interval.low * 1000.0),
            digits(interval.high * 1000.0),
            relay.name()
        ),
    ))
}

fn spikes(run: &LabRun) -> Finding {
    let at = Centre { octets: 1000, rate: 200, ..run.experiment.centre };
    let count = |relay| {
        let it = run.condition(relay, at)?;
        Some((it.spikes, it.node?.count))
    };
    let kernel = count(RelayKind::Kernel)?;
    let translation = count(RelayKind::TranslateUdp)?;
    let encrypted = count(encryption(run))?;
    let share = |(spikes, of): (usize, usize)| {
        crate::analysis::real(spikes) / crate::analysis::real(of.max(1))
    };
    let is_same = share(translation) > share(kernel) && share(translation) > share(encrypted);
    let told = |(spikes, of)| format!("{spikes} of {of}");
    Some(judged(
        is_same,
        format!(
            "kernel {}, translation {}, encryption {}: most {} by translation",
            told(kernel),
            told(translation),
            told(encrypted),
            if is_same { "often" } else { "often not" }
        ),
    ))
}

fn same_jitter(run: &LabRun) -> Finding {
    let jitter = |relay| run.centre(relay)?.jitter;
    let (kernel, ours) = (jitter(RelayKind::Kernel)?, jitter(RelayKind::TranslateUdp)?);
    let ratio = ours.mean / kernel.mean.max(f64::EPSILON);
    Some(judged(
        (0.5..2.0).contains(&ratio),
        format!(
            "mean {} µs by translation, {} µs by the kernel",
            digits(ours.mean),
            digits(kernel.mean)
        ),
    ))
}

/// The ratio of jitter at the largest and at the smallest payload.
fn growth(run: &LabRun, relay: RelayKind) -> Option<f64> {
    let sizes = sizes(run, relay);
    let least = sizes.iter().min_by_key(|it| it.octets)?;
    let most = sizes.iter().max_by_key(|it| it.octets)?;
    let ratio = most.jitter?.mean / least.jitter?.mean.max(f64::EPSILON);
    (least.octets < most.octets).then_some(ratio)
}

fn jitter_grows(run: &LabRun) -> Finding {
    let [kernel, translation] =
        [RelayKind::Kernel, RelayKind::TranslateUdp].map(|relay| growth(run, relay));
    let (kernel, translation, encrypted) = (kernel?, translation?, growth(run, encryption(run))?);
    Some(judged(
        encrypted > 1.5 && kernel < 1.5 && translation < 1.5,
        format!(
            "largest over smallest payload: kernel {}, translation {}, encryption {}",
            digits(kernel),
            digits(translation),
            digits(encrypted)
        ),
    ))
}

fn loss(run: &LabRun) -> Finding {
    let relay = encryption(run);
    let is_measured = run.conditions.iter().any(|it| it.relay == relay && it.rate >= 200);
    is_measured.then_some(())?;
    let mut lossy: Vec<RelayKind> =
        run.conditions.iter().filter(|it| it.received < it.sent).map(|it| it.relay).collect();
    lossy.sort_unstable();
    lossy.dedup();
    let names: Vec<&str> = lossy.iter().map(|relay| relay.name()).collect();
    let encrypts = |relay: &RelayKind| {
        matches!(relay, RelayKind::EncryptPortable | RelayKind::EncryptHardware)
    };
    let ours = if names.is_empty() {
        "no packet was lost: no relay was near its limit".to_owned()
    } else {
        format!("lost by {}", names.join(", "))
    };
    Some(judged(!lossy.is_empty() && lossy.iter().all(encrypts), ours))
}

fn constant(run: &LabRun) -> Finding {
    let centre = run.experiment.centre;
    let widest = |relay: RelayKind| {
        let same_size = run.conditions.iter().filter(|it| {
            let own = it.condition();
            let like = Centre { rate: own.rate, load_pct: own.load_pct, ..centre };
            it.relay == relay && own == like
        });
        let medians: Vec<f64> = same_size.filter_map(|it| Some(it.node?.p50)).collect();
        let least = medians.iter().copied().min_by(f64::total_cmp)?;
        let most = medians.iter().copied().max_by(f64::total_cmp)?;
        (medians.len() > 1).then_some(most / least)
    };
    let (kernel, ours) = (widest(RelayKind::Kernel)?, widest(RelayKind::TranslateUdp)?);
    Some(judged(
        kernel < 1.5 && ours < 1.5,
        format!(
            "largest over smallest median: kernel {}, translation {}",
            digits(kernel),
            digits(ours)
        ),
    ))
}

fn ratios(run: &LabRun) -> Finding {
    let ratio = |relay| Some(100.0 * run.centre(relay)?.node_link_ratio()?);
    let kernel = ratio(RelayKind::Kernel)?;
    let translation = ratio(RelayKind::TranslateUdp)?;
    let encrypted = ratio(encryption(run))?;
    Some(judged(
        kernel < 5.0 && (15.0..60.0).contains(&translation),
        format!(
            "kernel {} %, translation {} %, encryption {} % at the centre",
            digits(kernel),
            digits(translation),
            digits(encrypted)
        ),
    ))
}

/// A relay that can show what the paper left unexplained: translation, else the first one.
fn shown_by(run: &LabRun) -> Option<RelayKind> {
    let all = run.relays();
    all.iter().copied().find(|it| *it == RelayKind::TranslateUdp).or(all.first().copied())
}

/// The mean delay without spikes at the lowest rate over that at the highest, under conditions like
/// one.
fn fall(run: &LabRun, relay: RelayKind, like: Centre) -> Option<f64> {
    let is_in = |it: &&ConditionResult| {
        it.relay == relay && it.octets == like.octets && it.condition().is_like(&like)
    };
    let rates = || run.conditions.iter().filter(is_in);
    let (least, most) = (rates().min_by_key(|it| it.rate)?, rates().max_by_key(|it| it.rate)?);
    let (slow, fast) = (least.node_base?.0, most.node_base?.0);
    (least.rate < most.rate && fast > 0.0).then(|| slow / fast)
}

fn falls_with_rate(run: &LabRun) -> Finding {
    let (relay, centre) = (shown_by(run)?, run.experiment.centre);
    let plain = fall(run, relay, centre)?;
    let name = relay.name();
    let mut ours = format!("lowest over highest rate: {} ({name})", digits(plain));
    let looked_into = [
        ("processors kept awake", Centre { awake: true, ..centre }),
        ("4 packets at once", Centre { batch: 4, ..centre }),
    ];
    for (what, like) in looked_into {
        if let Some(ratio) = fall(run, relay, like).filter(|_| like != centre) {
            // Writing to a string cannot fail.
            let _ = write!(ours, "; {what}: {}", digits(ratio));
        }
    }
    if let Some(setup) = run.model(relay).and_then(|model| model.queue?.setup) {
        let longest = digits(setup.longest * 1e6);
        let _ = write!(ours, "; by the model {longest} µs longer after a long pause");
    }
    Some(judged(plain > 1.1, ours))
}

fn steady_at_1200(run: &LabRun) -> Finding {
    const OCTETS: u16 = 1200;
    let relay = shown_by(run)?;
    let mut sizes = sizes(run, relay);
    sizes.sort_by_key(|it| it.octets);
    let at = sizes.iter().position(|it| it.octets == OCTETS)?;
    let deviation = |at: usize| Some(sizes.get(at)?.node?.deviation);
    let (before, here, after) =
        (deviation(at.checked_sub(1)?)?, deviation(at)?, deviation(at + 1)?);
    Some(judged(
        here < 0.9 * before && here < 0.9 * after,
        format!(
            "deviation {} µs at {OCTETS} octets, {} and {} µs at the sizes beside it ({})",
            digits(here),
            digits(before),
            digits(after),
            relay.name()
        ),
    ))
}

fn exceeds(run: &LabRun) -> Finding {
    /// Size above which the paper's node takes longer.
    const OCTETS: u16 = 1200;
    let measured: Vec<(u16, bool)> = sizes(run, encryption(run))
        .iter()
        .filter_map(|it| Some((it.octets, it.node?.p50 > it.link?.p50)))
        .collect();
    let is_any = |side: fn(u16) -> bool| measured.iter().any(|(octets, _)| side(*octets));
    (is_any(|it| it <= OCTETS) && is_any(|it| it > OCTETS)).then_some(())?;
    let least = measured.iter().filter(|(_, is_longer)| *is_longer).map(|(octets, _)| octets).min();
    let ours = least.map_or_else(
        || "the link takes longer at every size".to_owned(),
        |least| format!("from {least} octets on"),
    );
    Some(judged(least.is_some_and(|least| (1000..=1400).contains(least)), ours))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A run of relays whose node delay is longer than the link's at every size.
    fn run(octets: &[u16], rate: u32, node: &str) -> LabRun {
        let text = format!(
            "title = 't'\nrelays = ['encrypt-portable']\n[centre]\noctets = {}\nrate = {rate}\n{node}",
            octets[0]
        );
        let source = gatewright_diagnostic::SourceId::default();
        let experiment = gatewright_config::parse_experiment(source, &text).unwrap();
        let summary = |median: f64| {
            json!({
                "count": 100, "mean": median, "deviation": 1.0, "min": 1.0, "p5": 1.0, "p25": 1.0,
                "p50": median, "p75": median, "p95": median, "p99": median, "max": median
            })
        };
        let condition = |relay: &str, octets: u16| {
            json!({
                "relay": relay, "octets": octets, "rate": rate, "load_pct": 0, "sent": 100,
                "received": 100, "repeated": 0, "unstamped": 0, "medians": [], "steady": true,
                "steal_pct": 0.0, "spikes": 0, "series": [], "node": summary(200.0),
                "link": summary(100.0)
            })
        };
        let relays = ["kernel", "translate-udp", "encrypt-portable"];
        let of_relay = |relay| octets.iter().map(move |it| condition(relay, *it));
        let conditions: Vec<Value> = relays.into_iter().flat_map(of_relay).collect();
        let run = json!({
            "form": 1, "experiment": experiment, "machine": "", "version": "", "optimised": true,
            "started": 0, "seconds": 1.0, "namespaces": true, "processors": [0, 1],
            "left_out": [], "warnings": [], "conditions": conditions, "models": []
        });
        serde_json::from_value(run).unwrap()
    }

    fn said(run: &LabRun, beginning: &str) -> PaperStatement {
        statements(run).into_iter().find(|it| it.paper.starts_with(beginning)).unwrap()
    }

    #[test]
    fn what_was_not_measured_is_not_judged() {
        let small = run(&[40, 70, 100], 50, "");
        for beginning in ["The node takes longer", "Delay spikes at 1000", "Packets are lost only"]
        {
            let it = said(&small, beginning);
            assert_eq!(it.agreement, Agreement::Unknown, "{it:?}");
            assert!(it.ours.starts_with("not measured"), "{it:?}");
        }
        let all = run(&[1000, 1200, 1400], 200, "");
        let it = said(&all, "The node takes longer");
        assert_eq!((it.agreement, it.ours.as_str()), (Agreement::Same, "from 1000 octets on"));
        for beginning in ["Delay spikes at 1000", "Packets are lost only"] {
            assert_ne!(said(&all, beginning).agreement, Agreement::Unknown);
        }
    }

    #[test]
    fn a_slower_node_is_named_beside_its_speed() {
        let beginning = "Pulling packets up";
        let plain = run(&[100], 200, "");
        assert_eq!(said(&plain, beginning).ours, "200 µs on this machine");
        let slower = run(&[100], 200, "[node]\nslowdown = 20\nquota_pct = 50\n");
        let ours = said(&slower, beginning).ours;
        assert!(ours.contains("this machine; the relay's work was done 20 times"), "{ours}");
        assert!(ours.contains("a quota of 50 % of a processor"), "{ours}");
    }
}
