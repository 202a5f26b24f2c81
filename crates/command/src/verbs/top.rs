//! `gatewright top`: what a running gateway does, live.

mod rates;

use crate::{exit::Exit, face::Face, socket::Which};
use anyhow::Result;
use gatewright_gateway::api::ControlRequest;
use rates::{Look, Rates, rates};
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The shape of its answer.
pub const JSON: &str = "an object for each round: {uptime_seconds, seconds, links: [{name, up, state, mode, received, \
     received_bits, sent, sent_bits}], workers: [{worker, received, taken, given}], layers: [{layer, receive, transmit, ns}], \
     drops: [{by, reason, rate, total}], handlers: [{id, handler, at, packets, messages}], \
     programs: [{program, handler, started, failed, failed_total, p50_ns, p99_ns}], sojourn: {packets, p50_ns, p90_ns, p99_ns, p999_ns}}; rates are packets, messages or \
     bits a second; ns is the mean time of a packet in its layer";

/// Shows the activity of a running gateway, live: rates by link, layer and handler of a program, the
/// time of a packet in each layer, drops by reason, delays of packets and messages.
///
/// On a terminal it refreshes each second until it is interrupted. Elsewhere, with --once and with
/// --json it shows one interval.
#[derive(Debug, clap::Args)]
pub struct Top {
    #[command(flatten)]
    which: Which,
    /// Show one interval and end.
    #[arg(long, conflicts_with = "rounds")]
    once: bool,
    /// Show this number of intervals, one below the other, and end.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
    /// Length of an interval.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
}

/// The shortest round: below, a gateway does more for its observers than for its packets.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// The longest round.
const INTERVAL_MAX: Duration = Duration::from_hours(1);

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    seconds
        .filter(|time| (INTERVAL_MIN..=INTERVAL_MAX).contains(time))
        .ok_or_else(|| "a number of seconds from 0.01 to 3600".to_owned())
}

impl Top {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        let terminal = io::stdout().is_terminal() && !face.is_json();
        let live = terminal && !self.once && self.rounds.is_none();
        let interrupted = interrupts()?;
        let mut before = self.look()?;
        let screen = if live { Some(Screen::open()?) } else { None };
        let mut rounds = if live { u64::MAX } else { self.rounds.unwrap_or(1) };
        let mut next = Instant::now();
        loop {
            next = (next + self.interval).max(Instant::now());
            match interrupted.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(Exit::Success),
            }
            let now = self.look()?;
            let rates = rates(Some(&before), &now);
            before = now;
            match &screen {
                Some(_) => draw(&text(&rates))?,
                None => face.line(&rates, || text(&rates))?,
            }
            rounds -= 1;
            if rounds == 0 {
                return Ok(Exit::Success);
            }
        }
    }

    fn look(&self) -> Result<Look> {
        // Until the next look, which may come a little late.
        let seconds = (self.interval + Duration::from_secs(2)).as_secs_f64();
        let status = self.which.ask(&ControlRequest::MeasuredStatus { seconds })?;
        Ok(Look { status, sojourn: self.which.ask(&ControlRequest::Sojourn)? })
    }
}

/// Interrupts, to leave the terminal as it was.
fn interrupts() -> Result<Receiver<()>> {
    let (tell, told) = channel();
    crate::signals::on_stop(move || {
        // The second finds nobody listening, which is as good.
        let _ended = tell.send(());
    })?;
    Ok(told)
}

/// The terminal's other screen, without a cursor; dropping it gives the first one back.
struct Screen;

impl Screen {
    fn open() -> io::Result<Self> {
        write(&format!("{OTHER_SCREEN}{HIDE_CURSOR}"))?;
        Ok(Self)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nobody is left to be told if the terminal is gone.
        let _gone = write(&format!("{SHOW_CURSOR}{FIRST_SCREEN}"));
    }
}

/// Draws over what was there, so that nothing flickers.
fn draw(text: &str) -> io::Result<()> {
    let size = terminal_size::terminal_size();
    let (columns, rows) = size.map_or(
        (COLUMNS, ROWS),
        |(terminal_size::Width(columns), terminal_size::Height(rows))| {
            (columns.into(), rows.into())
        },
    );
    let mut out = HOME.to_owned();
    for (row, line) in text.lines().take(rows).enumerate() {
        let line: String = line.chars().take(columns).collect();
        let end = if row + 1 < rows { "\n" } else { "" };
        out += &line;
        out += CLEAR_LINE;
        out += end;
    }
    write(&(out + CLEAR_BELOW))
}

/// The assumed size of a terminal.
const COLUMNS: usize = 80;
const ROWS: usize = 24;

// ECMA-48 and xterm: what every terminal since the VT100 knows, and two private modes.
const OTHER_SCREEN: &str = "\u{1b}[?1049h";
const FIRST_SCREEN: &str = "\u{1b}[?1049l";
const HIDE_CURSOR: &str = "\u{1b}[?25l";
const SHOW_CURSOR: &str = "\u{1b}[?25h";
const HOME: &str = "\u{1b}[H";
const CLEAR_LINE: &str = "\u{1b}[K";
const CLEAR_BELOW: &str = "\u{1b}[J";

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// A round in lines.
// Writing to a string cannot fail.
fn text(rates: &Rates) -> String {
    let mut out = String::new();
    let up = Duration::from_secs_f64(rates.uptime_seconds.max(0.0)).as_secs();
    let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
    let _ =
        writeln!(out, "up {hours}:{minutes:02}:{seconds:02}, rates over {:.2} s", rates.seconds);
    let _ = write!(out, "\n{:<12}{:<6}", "LINK", "");
    for head in ["in pkt/s", "in bit/s", "out pkt/s", "out bit/s"] {
        let _ = write!(out, "{head:>11}");
    }
    out.push('\n');
    for link in &rates.links {
        let _ = write!(out, "{:<12}{:<6}", link.name, link.state);
        for rate in [link.received, link.received_bits, link.sent, link.sent_bits] {
            let _ = write!(out, "{:>11}", scaled(rate));
        }
        let _ = writeln!(out, "  {}", link.mode);
    }
    if !rates.workers.is_empty() {
        let (links, others, back) = ("links pkt/s", "others", "to others");
        let _ = writeln!(out, "\n{:<18}{links:>11}{others:>11}{back:>11}", "WORKER");
    }
    for one in &rates.workers {
        let [received, taken, given] = [one.received, one.taken, one.given].map(scaled);
        let _ = writeln!(out, "{:<18}{received:>11}{taken:>11}{given:>11}", one.worker);
    }
    let (up, down, time) = ("up pkt/s", "down pkt/s", "ns/pkt");
    let _ = writeln!(out, "\n{:<18}{up:>11}{down:>11}{time:>11}", "LAYER");
    for layer in rates.layers.iter().filter(|layer| layer.receive + layer.transmit > 0.0) {
        let (up, down) = (scaled(layer.receive), scaled(layer.transmit));
        let time = layer.ns.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.0}"));
        let _ = writeln!(out, "{:<18}{up:>11}{down:>11}{time:>11}", layer.layer);
    }
    if !rates.handlers.is_empty() {
        let _ = writeln!(out, "\n{:<18}{:>11}  where", "HANDLER", "pkt/s");
    }
    for handler in &rates.handlers {
        let name = format!("{} {}", handler.id, handler.handler);
        let unit = if handler.messages { " (messages)" } else { "" };
        let rate = scaled(handler.packets);
        let _ = writeln!(out, "{name:<18}{rate:>11}  {}{unit}", handler.at);
    }
    programs(rates, &mut out);
    sojourn(rates, &mut out);
    if !rates.drops.is_empty() {
        let _ = writeln!(out, "\n{:<18}{:>11}{:>11}  why", "DROPPED BY", "pkt/s", "in all");
    }
    for drop in &rates.drops {
        let (rate, total) = (scaled(drop.rate), drop.total);
        let _ = writeln!(out, "{:<18}{rate:>11}{total:>11}  {}", drop.by, drop.reason);
    }
    out
}

fn programs(rates: &Rates, out: &mut String) {
    if rates.programs.is_empty() {
        return;
    }
    let _ = write!(out, "\n{:<30}", "PROGRAM, HANDLER");
    for head in ["msg/s", "failed/s", "failed", "50 % µs", "99 % µs"] {
        let _ = write!(out, "{head:>11}");
    }
    out.push('\n');
    for one in &rates.programs {
        let name = format!("{} {}", one.program, one.handler);
        let (started, failed) = (scaled(one.started), scaled(one.failed));
        let _ = write!(out, "{name:<30}{started:>11}{failed:>11}{:>11}", one.failed_total);
        for within in [one.p50_ns, one.p99_ns] {
            let micros = |ns| format!("{:.1}", Duration::from_nanos(ns).as_secs_f64() * 1e6);
            let _ = write!(out, "{:>11}", within.map_or_else(|| "-".to_owned(), micros));
        }
        out.push('\n');
    }
}

fn sojourn(rates: &Rates, out: &mut String) {
    let stay = &rates.sojourn;
    let _ = write!(out, "\nDELAY    {} packets", stay.packets);
    let shares = [
        ("50 %", stay.p50_ns),
        ("90 %", stay.p90_ns),
        ("99 %", stay.p99_ns),
        ("99.9 %", stay.p999_ns),
    ];
    for (share, within) in shares {
        if let Some(within) = within {
            let within = Duration::from_nanos(within);
            let _ = write!(out, ", {share} {:.1} µs", within.as_secs_f64() * 1e6);
        }
    }
    out.push('\n');
}

/// A rate with at most four digits and a prefix of its unit.
fn scaled(rate: f64) -> String {
    const PREFIXES: [(f64, &str); 3] = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    match PREFIXES.iter().find(|(least, _)| rate >= *least) {
        Some((least, prefix)) => format!("{:.1} {prefix}", rate / least),
        None if rate >= 10.0 || rate == 0.0 => format!("{rate:.0}"),
        None => format!("{rate:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_a_prefix_and_few_digits() {
        let cases = [(0.0, "0"), (0.26, "0.3"), (9.96, "10.0"), (12.4, "12"), (999.0, "999")];
        let large = [(1000.0, "1.0 k"), (123_456.0, "123.5 k"), (2.5e6, "2.5 M"), (1e10, "10.0 G")];
        for (rate, expected) in cases.into_iter().chain(large) {
            assert_eq!(scaled(rate), expected);
        }
    }

    #[test]
    fn an_interval_is_a_sensible_number_of_seconds() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "x", "1e9", "NaN", "inf"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
