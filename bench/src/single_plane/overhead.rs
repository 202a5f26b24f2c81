//! The paper's Fig. 3: the part of the time of N messages that is not their processing.
//!
//! > O(N) = tT(N) − tP(N), OR(N) = O(N) / tT(N) (§4.1)
//!
//! tT is the time from the first of N messages that are sent as fast as can be until N are forwarded; tP
//! is the time of parsing, analysing and converting as many in memory.

use super::dual::plan_of;
use super::figures::{load, message};
use super::network::now;
use super::plane::Datagrams;
use super::systems::{System, populated};
use super::{DEVICES, text};
use crate::gateway::live::source_port;
use crate::gateway::world::{Burst, SENDER_IP, TestHosts, number};
use bench::{Bench, Chart, Curve, Scales, nanoseconds_each};
use gatewright_interwork::{CoapWriter, ReportArrival};
use gatewright_onem2m::Timestamp;
use std::hint::black_box;
use std::net::SocketAddrV4;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The paper's numbers of messages.
const COUNTS: [u32; 10] =
    [1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 7_000, 8_000, 9_000, COUNT_MOST];
/// The most of them.
const COUNT_MOST: u32 = 10_000;
/// Octets of a message: the paper does not tell; the smallest of its others.
const OCTETS: u32 = 64;
/// Bursts of each number in a round.
const BURSTS: usize = 3;
/// The systems whose processing has a processor of its own. A driver converts where the generator
/// runs, so the time of one of them alone cannot be told.
const SYSTEMS: [System; 4] = [System::RecvFrom, System::RecvMmsg, System::OwnStack, System::Worker];

/// The key of a system's overhead ratio of so many messages.
fn key(system: System, count: u32) -> String {
    format!("{}_overhead_{count}_pct", system.name())
}

/// One round of the figure.
pub(super) fn measure(bench: &mut Bench, world: &TestHosts) -> Result<(), String> {
    let message = message(OCTETS)?;
    let counts: Vec<u64> = COUNTS.iter().flat_map(|&count| [u64::from(count); BURSTS]).collect();
    for system in SYSTEMS {
        let processing = processing_ns(system, &message)?;
        bench.sample(&format!("{}_processing_ns", system.name()), "ns", processing);
        let _open = system.open(world)?;
        let work = |stop: &AtomicBool| system.work(&message, Duration::ZERO, stop);
        let bursts = world.bursts(load(&message), &counts, work)?;
        let each = |burst: &Burst| burst.elapsed.as_secs_f64() * 1e9 / number(burst.arrived);
        for (count, bursts) in COUNTS.into_iter().zip(bursts.chunks(BURSTS)) {
            let mut totals: Vec<f64> = bursts.iter().map(each).collect();
            totals.sort_by(f64::total_cmp);
            let total = *totals.get(BURSTS / 2).ok_or("a burst is missing")?;
            bench.sample(&key(system, count), "%", ratio_pct(total, processing));
            if count == COUNT_MOST {
                let overhead = format!("{}_overhead_ns", system.name());
                bench.sample(&overhead, "ns", total - processing);
            }
        }
    }
    Ok(())
}

/// The overhead ratio, in per cent, of messages that take so long in all and to be processed.
fn ratio_pct(total: f64, processing: f64) -> f64 {
    100.0 * (total - processing) / total
}

/// Nanoseconds to parse, analyse and convert a message in memory, as `system` does.
fn processing_ns(system: System, message: &[u8]) -> Result<f64, String> {
    let count = COUNT_MOST;
    let each = usize::try_from(count).map_err(text)?;
    let mut done = 0_u32;
    let ns = if system == System::Worker {
        let plans = (0..DEVICES).map(|nth| plan_of(nth, message));
        let plans = plans.collect::<Result<Vec<_>, _>>()?;
        let mut writer = CoapWriter::default();
        let received = Timestamp::new(now());
        nanoseconds_each(each, || {
            for (report, plan) in (1..=u64::from(count)).zip(plans.iter().cycle()) {
                let arrival = ReportArrival { report, received };
                let arrived = (arrival, plan.identity(message));
                writer.convert(plan, arrived, message, |request| {
                    black_box(request);
                    done += 1;
                });
            }
        })
    } else {
        let (mut plane, mut out) = (populated()?, Datagrams::default());
        nanoseconds_each(each, || {
            for nth in (0..DEVICES).cycle().take(each) {
                let from = SocketAddrV4::new(SENDER_IP, source_port(nth));
                plane.handle(now(), from, message, &mut out);
                done += u32::from(black_box(&out).iter().count() == 1);
                out.clear();
            }
        })
    };
    if done == count { Ok(ns) } else { Err(format!("{done} of {count} messages were converted")) }
}

/// Draws the figure.
pub(super) fn chart(bench: &mut Bench) {
    let curve = |system: System| {
        let point = |&count: &u32| Some((f64::from(count), bench.median(&key(system, count))?));
        Curve { name: system.name().to_owned(), points: COUNTS.iter().filter_map(point).collect() }
    };
    let curves = SYSTEMS.map(curve).into_iter().filter(|it| !it.points.is_empty()).collect();
    let chart = Chart {
        title: "overhead ratio".to_owned(),
        x: "messages".to_owned(),
        y: "% of the time that is not processing".to_owned(),
        curves,
    };
    bench.chart_on(Scales { log_x: false, log_y: false }, chart);
}

#[cfg(test)]
mod tests {
    use super::super::devices::report;
    use super::*;

    #[test]
    fn the_ratio_is_the_papers() {
        // §4.1: 13.1 % where 1000 ns in all are 869 ns of processing.
        assert!((ratio_pct(1000.0, 869.0) - 13.1).abs() < 1e-9);
    }

    #[test]
    fn both_conversions_take_every_message() {
        let message = report(64).unwrap();
        for system in [System::RecvFrom, System::Worker] {
            assert!(processing_ns(system, &message).unwrap() > 0.0);
        }
    }
}
