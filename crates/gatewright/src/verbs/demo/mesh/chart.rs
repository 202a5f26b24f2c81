//! The round trips of the ping over time as SVG, with the cuts.

use gatewright_lab::failover::{CutOutcome, EchoedDatagram};
use std::fmt::Write;
use std::time::Duration;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 310.0;
/// The scale of round trips: decades of milliseconds, 10 µs to 100 ms.
const LOWEST_MS: f64 = 0.01;
const DECADES: f64 = 4.0;
/// Points drawn at the most: one a pixel and a half.
const POINTS_MAX: usize = 1_500;

/// The chart. Datagrams without an answer leave a gap.
// Writing to a string cannot fail.
pub(super) fn svg(datagrams: &[EchoedDatagram], cuts: &[CutOutcome]) -> String {
    let end = datagrams.last().map_or(1.0, |last| last.sent.as_secs_f64().max(0.001));
    let x = |seconds: f64| LEFT + (WIDTH - LEFT - 20.0) * seconds / end;
    let y = |ms: f64| {
        let decades = (ms / LOWEST_MS).log10().clamp(0.0, DECADES);
        BOTTOM - (BOTTOM - TOP) * decades / DECADES
    };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\">Round trips S–T in Figure 6, in ms, over seconds; shaded: a \
         cable is cut</text>\n"
    );
    for cut in cuts {
        let at = |ms: u64| x(Duration::from_millis(ms).as_secs_f64());
        let (from, to) = (at(cut.at_ms), at(cut.healed_ms));
        let (name, outage) = (cut.cut.name(), cut.outage_ms);
        let _ = writeln!(
            out,
            "<rect x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#fde2e2\"/>\
             <text x=\"{from:.1}\" y=\"{:.1}\" fill=\"#a33\">{name}: {outage:.0} ms</text>",
            to - from,
            BOTTOM - TOP,
            TOP - 4.0
        );
    }
    for decade in 0..5_i32 {
        let ms = LOWEST_MS * 10_f64.powi(decade);
        let at = y(ms);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{ms}</text>",
            LEFT - 6.0,
            at + 4.0
        );
    }
    let each = datagrams.len().div_ceil(POINTS_MAX).max(1);
    for chunk in datagrams.chunks(each) {
        // The slowest of those that share a point.
        let Some(slowest) = chunk.iter().filter(|one| one.rtt.is_some()).max_by_key(|one| one.rtt)
        else {
            continue;
        };
        let rtt = slowest.rtt.unwrap_or_default().as_secs_f64() * 1e3;
        let (x, y) = (x(slowest.sent.as_secs_f64()), y(rtt));
        let _ = write!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"1\" fill=\"#246\"/>");
    }
    let _ = write!(
        out,
        "\n<text x=\"{LEFT}\" y=\"{:.1}\">0</text><text x=\"{:.1}\" y=\"{:.1}\" \
         text-anchor=\"end\">{end:.1} s</text>\n</svg>\n",
        BOTTOM + 18.0,
        WIDTH - 20.0,
        BOTTOM + 18.0
    );
    out
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
