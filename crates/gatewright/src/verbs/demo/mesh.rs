//! `gatewright demo mesh`: the Lilith paper's Figure 6 in namespaces, whose cables are cut and healed
//! while a ping and a flow like a video's pass.

mod chart;

use anyhow::{Context, Result};
use gatewright_command::{exit::Exit, face::Face};
use gatewright_lab::failover::{CableCut, CutOutcome, EchoFlow, FailoverBed};
use serde::Serialize;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// A ping each millisecond, as long as ping's own.
const PING: (u16, usize, Duration) = (7_000, 56, Duration::from_millis(1));
/// 4.8 Mbit/s in datagrams of a video.
const VIDEO: (u16, usize, Duration) = (7_001, 1_200, Duration::from_millis(2));
/// Time before the first cut.
const CALM: Duration = Duration::from_secs(2);
/// The longest outage of a demo that passes, on a machine however busy.
const OUTAGE_MAX_MS: f64 = 1_000.0;

#[derive(Serialize)]
struct MeshDemoReport {
    demo: &'static str,
    cuts: Vec<CutOutcome>,
    ping: FlowReport,
    video: FlowReport,
    svg: PathBuf,
    passed: bool,
}

#[derive(Serialize)]
struct FlowReport {
    sent: usize,
    answered: usize,
    rtt_median_ms: f64,
}

impl FlowReport {
    fn of(flow: &EchoFlow) -> Self {
        let datagrams = flow.datagrams();
        let mut rtts: Vec<Duration> = datagrams.iter().filter_map(|one| one.rtt).collect();
        rtts.sort_unstable();
        let median = rtts.get(rtts.len() / 2).copied().unwrap_or_default();
        let rtt_median_ms = median.as_secs_f64() * 1e3;
        Self { sent: datagrams.len(), answered: rtts.len(), rtt_median_ms }
    }

    fn text(&self, name: &str) -> String {
        let Self { sent, answered, rtt_median_ms } = self;
        format!("{name}: {answered} of {sent} answered, median {rtt_median_ms:.3} ms")
    }
}

/// Figure 6 with the path that carries the packets.
fn picture(path: &str) -> String {
    let row = |first: &str, second: &str| {
        let used = path.contains(&format!("─▶ {first} ─▶ {second} ─▶"));
        let dash = if used { '━' } else { '─' };
        format!("{dash}{dash} {first} {dash}{dash} {second} {dash}{dash}")
    };
    let (above, middle, below) = (row("1", "2"), row("3", "4"), row("5", "6"));
    format!("     ┌{above}┐\n  S ─┼{middle}┼─ T\n     └{below}┘")
}

/// Shows the mesh.
pub(super) fn run(svg: Option<PathBuf>, face: Face) -> Result<Exit> {
    face.note("eight nodes in namespaces; S sends to T, a ping each millisecond and 4.8 Mbit/s");
    let bed = FailoverBed::new()?;
    let flow = |(port, len, every)| bed.flow(port, len, every);
    let (ping, video) = (flow(PING)?, flow(VIDEO)?);
    bed.settle()?;
    std::thread::sleep(CALM);
    face.note(&picture(&bed.path()));
    let mut cuts = Vec::new();
    for cut in CableCut::ALL {
        let done = bed.cut(cut, &ping)?;
        face.note(&format!(
            "{:>6.1} s  {} ({}): nothing arrived for {:.0} ms; {} instead of {}",
            Duration::from_millis(done.at_ms).as_secs_f64(),
            cut.name(),
            done.cable,
            done.outage_ms,
            done.after,
            done.before
        ));
        face.note(&picture(&done.after));
        cuts.push(done);
    }
    std::thread::sleep(CALM);
    let svg = svg.unwrap_or_else(|| std::env::temp_dir().join("gatewright-demo-mesh.svg"));
    let drawn = chart::svg(&ping.datagrams(), &cuts);
    fs::write(&svg, drawn).with_context(|| svg.display().to_string())?;
    let healed = |cut: &CutOutcome| cut.outage_ms < OUTAGE_MAX_MS && cut.before != cut.after;
    let passed = cuts.iter().all(healed);
    let (ping, video) = (FlowReport::of(&ping), FlowReport::of(&video));
    let answer = MeshDemoReport { demo: "mesh", cuts, ping, video, svg, passed };
    face.answer(&answer, || {
        let flows = [answer.ping.text("ping"), answer.video.text("video")].join("\n");
        let place = answer.svg.display();
        let good = answer.cuts.iter().filter(|cut| healed(cut)).count();
        let all = answer.cuts.len();
        format!("{flows}\n{good} of {all} cuts healed; the round trips are drawn in {place}")
    })?;
    Ok(if answer.passed { Exit::Success } else { Exit::Negative })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_shows_the_path_in_use() {
        let text = picture("S ─▶ 3 ─▶ 4 ─▶ T");
        assert!(text.contains("┼━━ 3 ━━ 4 ━━┼"), "{text}");
        assert!(text.contains("┌── 1 ── 2 ──┐"), "{text}");
    }
}
