//! Routes of the kernel followed by a gateway on a shared link: a table loaded whole, one route, and
//! ten thousand changes a second.

use crate::process::text;
use bench::{Bench, Relation};
use gatewright_link::Backend;
use gatewright_planes::{Planes, Setup};
use gatewright_stack::{Route, View};
use gatewright_testbed::{Namespace, Process, Veth, wait_until};
use std::io::{PipeWriter, Write, pipe};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Routes of a full table; in a hurry fewer.
pub(super) const ROUTES: (u32, u32) = (1_000_000, 100_000);
/// Single changes.
const CHANGES: usize = 200;
/// Changes a second, and for how long.
const FLAPS_PER_S: u32 = 10_000;
const FLAPS_S: u32 = 2;
/// Of a table that is looked at while it loads, one address of so many.
const LOOK_AT_EACH: usize = 101;
const WITHIN: Duration = Duration::from_mins(2);

const LOAD_MS: (&str, f64) = ("routes_load_ms", 1500.0);
const SYNC_MS: (&str, f64) = ("route_sync_ms", 5.0);

/// A next hop on the network of [`TestNetwork`](crate::footprint::TestNetwork).
pub(super) const NEXT_HOP_LOADED: Ipv4Addr = Ipv4Addr::new(10, 72, 2, 3);

const NEXT_HOPS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 99, 0, 2), Ipv4Addr::new(10, 99, 0, 3)];

/// `ip -batch`, which carries out a line as it comes.
pub(super) struct Batch {
    pub(super) lines: PipeWriter,
    program: Process,
}

impl Batch {
    pub(super) fn start(kernel: &Namespace) -> Result<Self, String> {
        let (reader, lines) = pipe().map_err(text)?;
        let command = kernel.command("ip").args(["-force", "-batch", "-"]);
        let command = command.stdin(Stdio::from(OwnedFd::from(reader)));
        Ok(Self { lines, program: command.spawn().map_err(text)? })
    }

    pub(super) fn end(self) -> Result<(), String> {
        drop(self.lines);
        let status = self.program.wait().map_err(text)?;
        if status.success() { Ok(()) } else { Err(format!("ip -batch: {status}")) }
    }
}

/// The prefix of a number, of 24 bits and never that of a link.
const fn prefix(number: u32) -> Ipv4Addr {
    // Seven apart, from 1.0.2.0 on: a million end below 127.0.0.0.
    Ipv4Addr::from_bits((0x01_0002 + 7 * number) << 8)
}

pub(super) fn line(number: u32, next_hop: Ipv4Addr) -> String {
    format!("route replace {}/24 via {next_hop}\n", prefix(number))
}

pub(super) fn leads_to(view: &View, number: u32, next_hop: Ipv4Addr) -> bool {
    let expected = IpAddr::V4(next_hop);
    matches!(view.route4(prefix(number)), Route::Via { gateway, .. } if gateway == expected)
}

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let routes = bench.options().pick(ROUTES.0, ROUTES.1);
    let (kernel, peer) = (Namespace::new().map_err(text)?, Namespace::new().map_err(text)?);
    let veth = Veth::pair(&kernel, "g0", &peer, "p0").map_err(text)?;
    veth.a.add_address("10.99.0.1/24").map_err(text)?;
    veth.up().map_err(text)?;
    let [first, second] = NEXT_HOPS;
    let mut batch = Batch::start(&kernel)?;
    let lines: String =
        (0..routes).fold(String::new(), |lines, number| lines + &line(number, first));
    batch.lines.write_all(lines.as_bytes()).map_err(text)?;
    batch.end()?;
    let mut opened = None;
    for _round in 0..bench.options().rounds() {
        drop(opened.take());
        let began = Instant::now();
        let planes = kernel.run(|| {
            let mut setup = Setup::new(7);
            setup.link("lan", "g0").backend(Backend::PacketSocket).shared();
            Planes::open(&setup)
        });
        let planes = planes.map_err(text)?.map_err(text)?;
        let view = planes.change_host(|host| host.view());
        let loaded = || (0..routes).step_by(LOOK_AT_EACH).all(|it| leads_to(&view, it, first));
        if !wait_until(WITHIN, loaded) {
            return Err("the routes are not followed".to_owned());
        }
        bench.sample(LOAD_MS.0, "ms", began.elapsed().as_secs_f64() * 1e3);
        opened = Some((planes, view));
    }
    let Some((planes, view)) = opened else { return Err("no round".to_owned()) };
    changes(bench, &kernel, &view, [first, second])?;
    flaps(bench, &kernel, &view, [first, second])?;
    let kernel = planes.status().map_err(text)?.kernel;
    let (overruns, renewed) = kernel.map_or((0, 0), |it| (it.overruns, it.renewed));
    bench.note(format!(
        "routes: {routes}; the socket overran {overruns} times, the kernel was asked for everything \
         {renewed} times"
    ));
    Ok(())
}

/// One route after the other: from the line that `ip` reads to the gateway's table.
fn changes(
    bench: &mut Bench,
    kernel: &Namespace,
    view: &View,
    [first, second]: [Ipv4Addr; 2],
) -> Result<(), String> {
    let mut batch = Batch::start(kernel)?;
    for number in 0..CHANGES {
        let next_hop = if number % 2 == 0 { second } else { first };
        let began = Instant::now();
        batch.lines.write_all(line(4242, next_hop).as_bytes()).map_err(text)?;
        while !leads_to(view, 4242, next_hop) {
            if began.elapsed() > WITHIN {
                return Err("a route is not followed".to_owned());
            }
            std::hint::spin_loop();
        }
        bench.sample(SYNC_MS.0, "ms", began.elapsed().as_secs_f64() * 1e3);
        sleep(Duration::from_millis(2));
    }
    batch.end()
}

/// Many changes a second: how long after the last one the table is the kernel's.
fn flaps(
    bench: &mut Bench,
    kernel: &Namespace,
    view: &View,
    [first, second]: [Ipv4Addr; 2],
) -> Result<(), String> {
    const EVERY: Duration = Duration::from_millis(10);
    let each = FLAPS_PER_S / 100;
    let mut batch = Batch::start(kernel)?;
    let began = Instant::now();
    let last = |number: u32| if number.is_multiple_of(3) { second } else { first };
    for turn in 0..FLAPS_S * 100 {
        // All numbers twice; at last each has its own next hop.
        let numbers = (0..each).map(|it| (turn * each + it) % FLAPS_PER_S);
        let is_last = turn >= (FLAPS_S - 1) * 100;
        let flap = |number: u32| line(number, if is_last { last(number) } else { second });
        let lines: String = numbers.map(flap).collect();
        batch.lines.write_all(lines.as_bytes()).map_err(text)?;
        sleep((EVERY * (turn + 1)).saturating_sub(began.elapsed()));
    }
    batch.end()?;
    bench.sample(
        "route_flaps_per_s",
        "/s",
        f64::from(FLAPS_PER_S * FLAPS_S) / began.elapsed().as_secs_f64(),
    );
    let ended = Instant::now();
    let agree = || (0..FLAPS_PER_S).all(|number| leads_to(view, number, last(number)));
    if !wait_until(WITHIN, agree) {
        return Err("the table does not become the kernel's".to_owned());
    }
    bench.sample("route_flaps_settled_ms", "ms", ended.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

pub(super) fn promise(bench: &mut Bench) {
    bench.promise(SYNC_MS.0, Relation::AtMost, SYNC_MS.1);
    let sizes = ("1,000,000 routes", "100,000");
    bench.promise_in_full((LOAD_MS.0, Relation::AtMost, LOAD_MS.1), sizes);
    bench.note(
        "routes_load_ms: from the opening of a gateway on a shared link to the last route in its \
         table; route_sync_ms: with the time that `ip` takes",
    );
}

/// Says why nothing is measured.
pub(super) fn skip(bench: &mut Bench, why: &str) {
    for (key, bound) in [LOAD_MS, SYNC_MS] {
        bench.skip(key, Relation::AtMost, bound, why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_prefix_is_that_of_a_link() {
        let links =
            ["10.72.1.0", "10.72.2.0", "10.99.0.0"].map(|it| it.parse::<Ipv4Addr>().unwrap());
        assert!((0..ROUTES.0).all(|number| !links.contains(&prefix(number))));
        assert!(prefix(ROUTES.0) < Ipv4Addr::LOCALHOST);
    }
}
