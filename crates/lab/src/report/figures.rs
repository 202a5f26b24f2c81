//! The figures of the paper, by their names, from a run.

use super::chart::{BarChart, ChartSeries, LabChart, Mark};
use crate::analysis::DelaySummary;
use crate::result::{ConditionResult, LabRun};
use gatewright_config::{Centre, RelayKind};
use std::collections::BTreeSet;

/// A figure with its explanation.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// `Fig. 6c`.
    pub(crate) name: String,
    /// What it shows and how to read it.
    pub(crate) caption: String,
    pub(crate) svg: String,
    pub(crate) csv: String,
}

impl Figure {
    fn of(name: &str, caption: &str, chart: &LabChart) -> Option<Self> {
        let has_points = chart.series.iter().any(|series| !series.points.is_empty());
        has_points.then(|| Self {
            name: name.to_owned(),
            caption: caption.to_owned(),
            svg: chart.svg(),
            csv: chart.csv(),
        })
    }
}

/// Which value of the conditions is on the x axis.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Over {
    Octets,
    Rate,
    Load,
}

impl Over {
    const fn name(self) -> &'static str {
        match self {
            Self::Octets => "payload [octets]",
            Self::Rate => "rate [packets/s]",
            Self::Load => "other load [% of the processor]",
        }
    }

    fn of(self, it: &ConditionResult) -> f64 {
        match self {
            Self::Octets => it.octets.into(),
            Self::Rate => it.rate.into(),
            Self::Load => it.load_pct.into(),
        }
    }

    /// A relay's conditions that differ from the centre in this value alone.
    fn conditions(self, run: &LabRun, relay: RelayKind) -> Vec<&ConditionResult> {
        self.departing(run, relay, run.experiment.centre)
    }

    /// A relay's conditions that differ from one in this value alone, in the order of it.
    fn departing(self, run: &LabRun, relay: RelayKind, from: Centre) -> Vec<&ConditionResult> {
        let is_in = |it: &&ConditionResult| {
            let condition = it.condition();
            let like = match self {
                Self::Octets => Centre { octets: condition.octets, ..from },
                Self::Rate => Centre { rate: condition.rate, ..from },
                Self::Load => Centre { load_pct: condition.load_pct, ..from },
            };
            it.relay == relay && condition == like
        };
        let mut found: Vec<_> = run.conditions.iter().filter(is_in).collect();
        found.sort_by(|one, other| self.of(one).total_cmp(&self.of(other)));
        found
    }
}

/// All figures that the run has data for.
pub(crate) fn figures(run: &LabRun) -> Vec<Figure> {
    let mut all = Vec::new();
    all.extend(time_series(run));
    all.extend(jitter(run, Over::Octets, "Fig. 5a"));
    all.extend(jitter(run, Over::Rate, "Fig. 5b"));
    all.extend(loss(run));
    all.extend(delay(run, Over::Rate, "Fig. 6a", false));
    all.extend(delay(run, Over::Rate, "Fig. 6b", true));
    all.extend(delay(run, Over::Octets, "Fig. 6c", false));
    all.extend(delay(run, Over::Load, "Fig. 6d", false));
    all.extend(distribution(run));
    all.extend(breakdown(run));
    all.extend(services(run));
    all.extend(parts(run));
    all.extend(looked_into(run, Over::Rate));
    all.extend(looked_into(run, Over::Octets));
    all
}

/// What becomes of the paper's two unexplained findings where the processors do something else, or
/// packets come in batches: the mean delay over the rate, and its deviation over the payload.
fn looked_into(run: &LabRun, over: Over) -> Option<Figure> {
    let centre = run.experiment.centre;
    let kind = |it: Centre| Centre { octets: centre.octets, rate: centre.rate, ..it };
    let mut kinds: Vec<Centre> = run.conditions.iter().map(|it| kind(it.condition())).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let value = |it: &ConditionResult| match over {
        Over::Octets => it.node.map(|node| node.deviation),
        _ => it.node_base.map(|(mean, _)| mean),
    };
    let (mut all, mut shown) = (Vec::new(), BTreeSet::new());
    for (colour, relay) in run.relays().into_iter().enumerate() {
        for (at, from) in kinds.iter().enumerate() {
            let conditions = over.departing(run, relay, *from);
            let points = conditions.iter().filter_map(|it| Some((over.of(it), value(it)?)));
            let points: Vec<_> = points.collect();
            if points.len() > 1 {
                shown.insert(at);
                let name = format!("{} {}", short(relay), in_words(*from));
                all.push(ChartSeries {
                    name: name.trim_end().to_owned(),
                    colour: colour * kinds.len() + at,
                    points,
                    ..ChartSeries::default()
                });
            }
        }
    }
    // Kinds with a single point, as a plain experiment has them under load, are nothing to compare with.
    if shown.len() < 2 {
        return None;
    }
    let (name, what, caption) = if over == Over::Octets {
        (
            "Fig. 6c, looked into",
            "deviation of the node delay",
            "The standard deviation of the node delay. The paper's falls at 1200 octets, unexplained.",
        )
    } else {
        (
            "Fig. 6a, looked into",
            "mean node delay",
            "The mean without spikes. The paper's falls as the rate rises, unexplained: where it does \
             not while the processors are kept awake, it is their waking up.",
        )
    };
    let chart = LabChart {
        title: format!("{what} over {}", over.name()),
        x: over.name().to_owned(),
        y: format!("{what} [µs]"),
        log_x: over == Over::Rate,
        log_y: true,
        series: all,
        ..LabChart::default()
    };
    Figure::of(name, caption, &chart)
}

/// What is special of a condition beside size and rate; nothing where the system does what it likes.
pub(crate) fn in_words(it: Centre) -> String {
    let load = (it.load_pct > 0).then(|| format!("load {} %", it.load_pct));
    let batch = (it.batch > 1).then(|| format!("{} at once", it.batch));
    let awake = it.awake.then(|| "awake".to_owned());
    let frequency = (it.frequency_mhz > 0).then(|| format!("{} MHz", it.frequency_mhz));
    let words: Vec<String> = [load, batch, awake, frequency].into_iter().flatten().collect();
    words.join(", ")
}

/// Figs. 4b to 4d: node delay over time, spikes apart.
fn time_series(run: &LabRun) -> Vec<Figure> {
    let one = |(at, relay): (usize, RelayKind)| {
        let centre = run.centre(relay)?;
        let points = |spikes: bool| {
            let kept = centre.series.iter().filter(|it| it.2 == spikes);
            kept.map(|it| (it.0, it.1)).collect()
        };
        let usual = ChartSeries {
            name: "node delay".to_owned(),
            mark: Mark::Dots,
            colour: 0,
            points: points(false),
            ..ChartSeries::default()
        };
        let spikes = ChartSeries {
            name: format!("{} spikes (Hampel, 3 σ)", centre.spikes),
            mark: Mark::Dots,
            colour: 1,
            points: points(true),
            ..ChartSeries::default()
        };
        let chart = LabChart {
            title: format!("{}: node delay over time", relay.name()),
            x: "time [s]".to_owned(),
            y: "node delay [µs]".to_owned(),
            log_y: true,
            series: vec![usual, spikes],
            ..LabChart::default()
        };
        let period = centre.period.map_or_else(
            || "They have no period that chance does not explain.".to_owned(),
            |it| format!("They return every {:.2} s (coffee break).", it.period),
        );
        let caption = format!(
            "{} probes at the centre; {} of them are spikes. {period} {} points are shown, {} of the \
             spikes among them.",
            centre.node?.count,
            centre.spikes,
            centre.series.len(),
            centre.series.iter().filter(|it| it.2).count()
        );
        Figure::of(&format!("Fig. 4, {}", letter(at)), &caption, &chart)
    };
    run.relays().into_iter().enumerate().filter_map(one).collect()
}

fn letter(at: usize) -> char {
    u8::try_from(at).ok().and_then(|at| at.checked_add(b'b')).map_or('z', char::from)
}

/// A value, and an interval around it.
type Banded = (f64, Option<(f64, f64)>);

/// A series for each relay, of a value over the conditions.
fn series(
    run: &LabRun,
    over: Over,
    value: &dyn Fn(&ConditionResult) -> Option<Banded>,
) -> Vec<ChartSeries> {
    let one = |(colour, relay): (usize, RelayKind)| {
        let conditions = over.conditions(run, relay);
        let valued = conditions.iter().filter_map(|it| Some((over.of(it), value(it)?)));
        let valued: Vec<_> = valued.collect();
        ChartSeries {
            name: relay.name().to_owned(),
            colour,
            points: valued.iter().map(|(x, (y, _))| (*x, *y)).collect(),
            band: valued
                .iter()
                .filter_map(|(x, (_, band))| band.map(|(low, high)| (*x, low, high)))
                .collect(),
            mark: Mark::Line,
        }
    };
    run.relays().into_iter().enumerate().map(one).filter(|it| it.points.len() > 1).collect()
}

fn jitter(run: &LabRun, over: Over, name: &str) -> Option<Figure> {
    let value = |it: &ConditionResult| it.jitter.map(|it| (it.mean, None));
    let chart = LabChart {
        title: format!("jitter over {}", over.name()),
        x: over.name().to_owned(),
        y: "jitter of the end-to-end delay [µs]".to_owned(),
        log_y: true,
        series: series(run, over, &value),
        ..LabChart::default()
    };
    let caption = "Mean difference of the delays of successive packets (RFC 3393). Smallest and \
                   largest are in the JSON.";
    Figure::of(name, caption, &chart)
}

fn loss(run: &LabRun) -> Option<Figure> {
    let value = |it: &ConditionResult| {
        Some((it.loss_pct(), it.loss_interval_pct().map(|it| (it.low, it.high))))
    };
    let chart = LabChart {
        title: "loss over payload".to_owned(),
        x: Over::Octets.name().to_owned(),
        y: "lost probes [%]".to_owned(),
        series: series(run, Over::Octets, &value),
        ..LabChart::default()
    };
    let caption = "Probes that did not arrive within 0.4 s of the last one; the band is the interval of \
                   95 % (Wilson).";
    Figure::of("Fig. 5c", caption, &chart)
}

/// Fig. 6: node delay over a condition; the median with quartiles, or the tail.
fn delay(run: &LabRun, over: Over, name: &str, tail: bool) -> Option<Figure> {
    let value = |it: &ConditionResult| {
        let node = it.node?;
        Some(if tail {
            (node.p95, node.p95_interval.map(|it| (it.low, it.high)))
        } else {
            (node.p50, Some((node.p25, node.p75)))
        })
    };
    let what = if tail { "95th percentile" } else { "median" };
    let chart = LabChart {
        title: format!("node delay ({what}) over {}", over.name()),
        x: over.name().to_owned(),
        y: "node delay [µs]".to_owned(),
        log_x: over == Over::Rate,
        log_y: true,
        series: series(run, over, &value),
        ..LabChart::default()
    };
    let caption = if tail {
        "The 95th percentile of all repetitions; the band is its interval of 95 % (order statistics)."
    } else {
        "The median of all repetitions; the band is from the lower to the upper quartile."
    };
    Figure::of(name, caption, &chart)
}

/// Fig. 7: empirical distributions with their bands.
fn distribution(run: &LabRun) -> Option<Figure> {
    let one = |(colour, relay): (usize, RelayKind)| {
        let cdf = run.centre(relay)?.cdf.as_ref()?;
        let band = |&(x, y): &(f64, f64)| (x, (y - cdf.band).max(0.0), (y + cdf.band).min(1.0));
        Some(ChartSeries {
            name: relay.name().to_owned(),
            mark: Mark::Plain,
            colour,
            points: cdf.points.clone(),
            band: cdf.points.iter().map(band).collect(),
        })
    };
    let chart = LabChart {
        title: "distribution of the node delay".to_owned(),
        x: "node delay [µs]".to_owned(),
        y: "share of the probes".to_owned(),
        log_x: true,
        series: run.relays().into_iter().enumerate().filter_map(one).collect(),
        ..LabChart::default()
    };
    let caption = "At the centre. The bands of 95 % (Dvoretzky, Kiefer, Wolfowitz) contain the whole \
                   true distribution if probes are independent.";
    Figure::of("Fig. 7", caption, &chart)
}

/// Fig. 8: the end-to-end delay in parts, with NLR.
fn breakdown(run: &LabRun) -> Option<Figure> {
    let (mut bars, mut notes) = (Vec::new(), Vec::new());
    let mut parts = ["link", "node"].map(|name| (name.to_owned(), Vec::new()));
    for relay in run.relays() {
        let conditions = Over::Octets.conditions(run, relay);
        let (Some(least), Some(most)) = (conditions.first(), conditions.last()) else { continue };
        let ends = if least.octets == most.octets { vec![least] } else { vec![least, most] };
        for it in ends {
            let (Some(link), Some(node)) = (it.link, it.node) else { continue };
            bars.push(format!("{} {}", short(relay), it.octets));
            for ((_, values), value) in parts.iter_mut().zip([link.p50, node.p50]) {
                values.push(value);
            }
            let ratio = it.node_link_ratio();
            notes.push(ratio.map_or_else(|| "–".to_owned(), |it| format!("{:.0} %", it * 100.0)));
        }
    }
    let chart = BarChart {
        title: "end-to-end delay in parts, and NLR".to_owned(),
        y: "median delay [µs]".to_owned(),
        bars,
        notes,
        parts: parts.into(),
    };
    (!chart.bars.is_empty()).then(|| Figure {
        name: "Fig. 8".to_owned(),
        caption: "Medians of both links together and of the node, at the smallest and the largest \
                  payload. Above each bar: NLR, node delay over link delay."
            .to_owned(),
        svg: chart.svg(),
        csv: chart.csv(),
    })
}

/// The relay's name where room is short.
fn short(relay: RelayKind) -> &'static str {
    match relay {
        RelayKind::Kernel => "kern",
        RelayKind::TranslateUdp => "udp",
        RelayKind::TranslateTcp => "tcp",
        RelayKind::SocatTcp => "soc",
        RelayKind::EncryptPortable => "enc",
        RelayKind::EncryptHardware => "aes",
        RelayKind::GraphPacketSocket => "pkt",
        RelayKind::GraphPacketSocketHandler => "pkth",
        RelayKind::GraphXdp => "xdp",
        RelayKind::GraphXdpHandler => "xdph",
        RelayKind::DriverXdp => "drv",
        RelayKind::MeshLabel => "mpls",
        RelayKind::GatewayXdp => "gw",
        RelayKind::InterworkXdp => "iw",
        RelayKind::InterworkDurable => "iwd",
        RelayKind::ProgramNative => "pn",
        RelayKind::ProgramC => "pc",
        RelayKind::ProgramJava => "pj",
        RelayKind::Spin => "spin",
    }
}

/// The linear model beside the measured medians.
fn services(run: &LabRun) -> Option<Figure> {
    let mut all = Vec::new();
    for (colour, relay) in run.relays().into_iter().enumerate() {
        let conditions = Over::Octets.conditions(run, relay);
        let Some(fit) = run.model(relay).and_then(|model| model.service) else { continue };
        if conditions.len() < 2 {
            continue;
        }
        let sizes: Vec<f64> = conditions.iter().map(|it| f64::from(it.octets)).collect();
        let medians = conditions.iter().filter_map(|it| Some((f64::from(it.octets), it.node?.p50)));
        all.push(ChartSeries {
            name: relay.name().to_owned(),
            mark: Mark::Dots,
            colour,
            points: medians.collect(),
            ..ChartSeries::default()
        });
        all.push(ChartSeries {
            name: format!("S = {:.1} + {:.4}·b", fit.intercept, fit.slope),
            mark: Mark::Plain,
            colour,
            points: sizes.iter().map(|&size| (size, fit.at(size))).collect(),
            ..ChartSeries::default()
        });
    }
    let chart = LabChart {
        title: "the linear model S(b) = a + c·b".to_owned(),
        x: "payload [octets]".to_owned(),
        y: "node delay [µs]".to_owned(),
        log_y: true,
        series: all,
        ..LabChart::default()
    };
    let caption = "Lines of least squares through the medians of repetitions, without other load, at \
                   the centre's rate. Their intervals are in the table of models.";
    Figure::of("Model", caption, &chart)
}

/// The node delay in its parts, where a relay stamps in user space.
fn parts(run: &LabRun) -> Option<Figure> {
    let (mut bars, mut notes) = (Vec::new(), Vec::new());
    let mut parts =
        ["in-queue", "processing", "out-queue"].map(|name| (name.to_owned(), Vec::new()));
    for relay in run.relays() {
        let Some(it) = run.centre(relay) else { continue };
        let (Some(a), Some(b), Some(c)) = (it.in_queue, it.processing, it.out_queue) else {
            continue;
        };
        bars.push(short(relay).to_owned());
        let medians = [a, b, c].map(|it: DelaySummary| it.p50);
        for ((_, values), value) in parts.iter_mut().zip(medians) {
            values.push(value);
        }
        notes.push(format!("{:.1}", medians.iter().sum::<f64>()));
    }
    let chart = BarChart {
        title: "node delay in parts".to_owned(),
        y: "median delay [µs]".to_owned(),
        bars,
        notes,
        parts: parts.into(),
    };
    (!chart.bars.is_empty()).then(|| Figure {
        name: "Node delay".to_owned(),
        caption: "At the centre: from the node's ingress to the return of the receive call, from \
                  there to the send call, and from there to the node's egress."
            .to_owned(),
        svg: chart.svg(),
        csv: chart.csv(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn condition(octets: u16, rate: u32, load_pct: u8, batch: u16) -> ConditionResult {
        let delays = json!({
            "count": 100, "mean": 20.0, "deviation": 2.0, "min": 15.0, "p5": 16.0, "p25": 18.0,
            "p50": 20.0, "p75": 22.0, "p95": 24.0, "p99": 25.0, "max": 26.0
        });
        let condition = json!({
            "relay": "kernel", "octets": octets, "rate": rate, "load_pct": load_pct, "batch": batch,
            "sent": 100, "received": 100, "repeated": 0, "unstamped": 0, "medians": [20.0],
            "steady": true, "steal_pct": 0.0, "node": delays, "node_base": [20.0, 0.01],
            "spikes": 0, "series": []
        });
        serde_json::from_value(condition).unwrap()
    }

    fn run(conditions: &[ConditionResult]) -> LabRun {
        let text = "title = 't'\nrelays = ['kernel']\n[centre]\noctets = 1000\nrate = 400\n";
        let source = gatewright_diagnostic::SourceId::default();
        let experiment = gatewright_config::parse_experiment(source, text).unwrap();
        let run = json!({
            "form": 1, "experiment": experiment, "machine": "", "version": "", "optimised": true,
            "started": 0, "seconds": 1.0, "namespaces": true, "processors": [0, 1],
            "left_out": [], "warnings": [], "conditions": conditions, "models": []
        });
        serde_json::from_value(run).unwrap()
    }

    fn looked_into(run: &LabRun) -> Vec<String> {
        let names = figures(run).into_iter().map(|it| it.name);
        names.filter(|name| name.contains("looked into")).collect()
    }

    /// Sizes, rates, a load and a batch, each alone: under load and in batches there is one point each.
    #[test]
    fn findings_are_looked_into_only_where_two_kinds_of_conditions_have_a_line() {
        let plain = [(100, 400), (1000, 400), (1400, 400), (1000, 100), (1000, 800)];
        let mut conditions: Vec<ConditionResult> =
            plain.iter().map(|&(octets, rate)| condition(octets, rate, 0, 1)).collect();
        conditions.extend([condition(1000, 400, 50, 1), condition(1000, 400, 0, 4)]);
        assert_eq!(looked_into(&run(&conditions)), [""; 0]);
        // All combinations with the batch, as in `unexplained`.
        conditions.extend(plain.iter().map(|&(octets, rate)| condition(octets, rate, 0, 4)));
        assert_eq!(
            looked_into(&run(&conditions)),
            ["Fig. 6a, looked into", "Fig. 6c, looked into"]
        );
    }
}
