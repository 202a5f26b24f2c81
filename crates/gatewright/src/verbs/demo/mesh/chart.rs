//! The round trips of the ping over time as SVG, with the cuts.

use gatewright_lab::failover::{CutOutcome, EchoedDatagram};
use gatewright_lab::report::{ChartSeries, ChartSpan, LabChart, Mark};
use std::time::Duration;

/// Points drawn at the most: one a pixel or two.
const POINTS_MAX: usize = 1_500;

/// The chart. Datagrams without an answer leave a gap.
pub(super) fn svg(datagrams: &[EchoedDatagram], cuts: &[CutOutcome]) -> String {
    let seconds = |ms: u64| Duration::from_millis(ms).as_secs_f64();
    let span = |cut: &CutOutcome| ChartSpan {
        name: format!("{}: {:.0} ms", cut.cut.name(), cut.outage_ms),
        from: seconds(cut.at_ms),
        to: seconds(cut.healed_ms),
    };
    let each = datagrams.len().div_ceil(POINTS_MAX).max(1);
    // The slowest of those that share a point.
    let slowest = |chunk: &[EchoedDatagram]| {
        let answered = chunk.iter().filter_map(|one| Some((one.sent, one.rtt?)));
        let (sent, rtt) = answered.max_by_key(|(_, rtt)| *rtt)?;
        Some((sent.as_secs_f64(), rtt.as_secs_f64() * 1e3))
    };
    let series = ChartSeries {
        name: "round trips".to_owned(),
        mark: Mark::Dots,
        points: datagrams.chunks(each).filter_map(slowest).collect(),
        ..ChartSeries::default()
    };
    let chart = LabChart {
        title: "Round trips S–T in Figure 6; shaded: a cable is cut".to_owned(),
        x: "time [s]".to_owned(),
        y: "round trip [ms]".to_owned(),
        log_y: true,
        series: vec![series],
        spans: cuts.iter().map(span).collect(),
        ..LabChart::default()
    };
    chart.svg() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answered_datagrams_are_points() {
        let datagram = |ms, rtt: bool| EchoedDatagram {
            sent: Duration::from_millis(ms),
            rtt: rtt.then_some(Duration::from_micros(100)),
        };
        let text = svg(&[datagram(0, true), datagram(1, false), datagram(2, true)], &[]);
        assert_eq!(text.matches("<circle").count(), 2);
        assert!(text.starts_with("<svg") && text.ends_with("</svg>\n"));
    }
}
