//! A million routes that come while datagrams pass: how many are lost, how long each takes, when the
//! gateway's tables are the kernel's, and what memory they have.

use super::IN_DRIVER_LEAST;
use super::routes::{Batch, NEXT_HOP_LOADED, ROUTES, leads_to, line};
use crate::footprint::{RECEIVER, TestNetwork};
use crate::process::text;
use bench::{Bench, Relation};
use gatewright_link::Backend;
use gatewright_planes::{Planes, Setup};
use gatewright_testbed::wait_until;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Between two bursts of datagrams, and the datagrams of one.
const EVERY: Duration = Duration::from_millis(1);
const BURST: u32 = 5;
/// How long datagrams are measured without a change of routes.
const BEFORE: Duration = Duration::from_secs(3);
/// Of the table, one address of so many is looked at.
const LOOK_AT_EACH: usize = 101;
const WITHIN: Duration = Duration::from_mins(2);
/// How long after the last datagram another one may come.
const PATIENCE: Duration = Duration::from_millis(200);

const LOST: (&str, f64) = ("routes_under_load_lost", 0.0);

/// Loads the routes, once.
pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let routes = bench.options().pick(ROUTES.0, ROUTES.1);
    let network = TestNetwork::new().map_err(text)?;
    network.suit_drivers().map_err(text)?;
    for (device, address) in [("g0", "10.72.1.1/24"), ("g1", "10.72.2.1/24")] {
        network.gateway.ip(&["address", "add", address, "dev", device]).map_err(text)?;
    }
    let planes = network.gateway.run(|| {
        let mut setup = Setup::new(7);
        for (name, device) in [("lan", "g0"), ("wan", "g1")] {
            setup.link(name, device).backend(Backend::Xdp).shared().forward_in_driver();
        }
        Planes::open(&setup)
    });
    let planes = planes.map_err(text)?.map_err(text)?;
    let view = planes.change_host(|host| host.view());
    let traffic = Traffic::new(&network)?;
    traffic.await_first()?;
    let in_drivers = forwarded_in_drivers(&planes)?;
    let (before, ()) = traffic.during(|| {
        sleep(BEFORE);
        Ok(())
    })?;
    let (during, settled) = traffic.during(|| {
        let mut batch = Batch::start(&network.gateway)?;
        let next_hop = NEXT_HOP_LOADED;
        for number in 0..routes {
            batch.lines.write_all(line(number, next_hop).as_bytes()).map_err(text)?;
        }
        batch.end()?;
        let ended = Instant::now();
        let loaded = || (0..routes).step_by(LOOK_AT_EACH).all(|it| leads_to(&view, it, next_hop));
        if !wait_until(WITHIN, loaded) {
            return Err("the routes are not followed".to_owned());
        }
        Ok(ended.elapsed())
    })?;
    let in_drivers = forwarded_in_drivers(&planes)? - in_drivers;
    let passed = before.passed() + during.passed();
    if f64::from(in_drivers) < IN_DRIVER_LEAST * f64::from(passed) {
        return Err(format!("drivers forwarded {in_drivers} of {passed} datagrams"));
    }
    before.tell(bench, "routes_before_load");
    during.tell(bench, "routes_under_load");
    bench.sample("routes_under_load_settled_ms", "ms", settled.as_secs_f64() * 1e3);
    bench.sample("routes_maps_mib", "MiB", maps_kib()? / 1024.0);
    let status = planes.status().map_err(text)?;
    let links = status.links.iter().map(|link| format!("{} {}", link.name, link.forwarding));
    bench.note(format!(
        "routes_under_load: {routes} routes by `ip -batch` while {} datagrams a second pass; {}",
        1000 * BURST,
        links.collect::<Vec<_>>().join(", ")
    ));
    Ok(())
}

pub(super) fn promise(bench: &mut Bench) {
    bench.promise(LOST.0, Relation::AtMost, LOST.1);
    bench.note(
        "routes_maps_mib: what the kernel has locked for the maps by which drivers forward, each once; \
         routes_under_load_settled_ms: from the end of `ip` until the gateway's table is the kernel's",
    );
}

pub(super) fn skip(bench: &mut Bench, why: &str) {
    bench.skip(LOST.0, Relation::AtMost, LOST.1, why);
}

/// Packets that drivers have forwarded so far.
fn forwarded_in_drivers(planes: &Planes) -> Result<u32, String> {
    let status = planes.status().map_err(text)?;
    let counts = status.links.iter().flat_map(|link| &link.in_driver);
    let forwarded = counts.filter(|count| count.outcome == "forwarded");
    u32::try_from(forwarded.map(|count| count.packets).sum::<u64>()).map_err(text)
}

/// KiB of all maps of this process.
fn maps_kib() -> Result<f64, String> {
    let mut maps = Vec::new();
    for entry in fs::read_dir("/proc/self/fd").map_err(text)? {
        let path = entry.map_err(text)?.path();
        let is_map = fs::read_link(&path).is_ok_and(|to| to.to_string_lossy().contains("bpf-map"));
        let Some(number) = path.file_name().filter(|_| is_map) else { continue };
        let said = fs::read_to_string(format!("/proc/self/fdinfo/{}", number.display()));
        maps.push(said.map_err(text)?);
    }
    let kib = locked_kib(maps.iter().map(String::as_str));
    kib.map(f64::from).ok_or_else(|| "the kernel does not tell what maps have locked".to_owned())
}

/// KiB that the maps of these descriptors have, each map once: a map may have several descriptors.
fn locked_kib<'said>(mut maps: impl Iterator<Item = &'said str>) -> Option<u32> {
    let field = |said: &str, key: &str| {
        let value = said.lines().find_map(|line| line.strip_prefix(key));
        value.and_then(|value| value.trim().parse::<u64>().ok())
    };
    let octets: BTreeMap<u64, u64> = maps.try_fold(BTreeMap::new(), |mut octets, said| {
        octets.insert(field(said, "map_id:")?, field(said, "memlock:")?);
        Some(octets)
    })?;
    u32::try_from(octets.into_values().sum::<u64>() / 1024).ok()
}

/// Datagrams from one side of the gateway to the other, each with its time.
struct Traffic {
    sender: UdpSocket,
    receiver: UdpSocket,
    zero: Instant,
}

/// What became of datagrams.
struct Passed {
    lost: u32,
    /// Microseconds of each from sender to receiver, in order.
    delays: Vec<f64>,
}

impl Passed {
    fn passed(&self) -> u32 {
        u32::try_from(self.delays.len()).unwrap_or(u32::MAX)
    }

    fn tell(&self, bench: &mut Bench, key: &str) {
        bench.sample(&format!("{key}_lost"), "datagrams", f64::from(self.lost));
        for (name, percent) in [("p50", 50), ("p99", 99), ("max", 100)] {
            let place = (self.delays.len() * percent).div_ceil(100).saturating_sub(1);
            if let Some(&delay) = self.delays.get(place) {
                // What the machine does in between is no matter of the processor's speed.
                bench.sample(&format!("{key}_{name}_ms"), "ms", delay / 1e3);
            }
        }
    }
}

impl Traffic {
    fn new(network: &TestNetwork) -> Result<Self, String> {
        let open = |at: &'static str| move || UdpSocket::bind(at);
        let sender = network.sender.run(open("10.72.1.2:0")).map_err(text)?.map_err(text)?;
        let receiver = network.receiver.run(open(RECEIVER)).map_err(text)?.map_err(text)?;
        receiver.set_read_timeout(Some(PATIENCE)).map_err(text)?;
        Ok(Self { sender, receiver, zero: Instant::now() })
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.zero.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn send(&self) -> bool {
        self.sender.send_to(&self.now_ns().to_be_bytes(), RECEIVER).is_ok()
    }

    /// The nanoseconds that the next datagram took; nothing if none comes.
    fn take(&self) -> Option<u64> {
        let mut octets = [0; 8];
        self.receiver.recv(&mut octets).ok()?;
        Some(self.now_ns().saturating_sub(u64::from_be_bytes(octets)))
    }

    fn await_first(&self) -> Result<(), String> {
        if !wait_until(WITHIN, || self.send() && self.take().is_some()) {
            return Err("nothing comes through".to_owned());
        }
        while self.take().is_some() {}
        Ok(())
    }

    /// Sends while `work` is done; what became of all that was sent.
    fn during<T>(&self, work: impl FnOnce() -> Result<T, String>) -> Result<(Passed, T), String> {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sends = scope.spawn(|| {
                let (mut sent, began, mut turn) = (0, Instant::now(), 0);
                while !over.load(Ordering::Acquire) {
                    sent += (0..BURST).map(|_| u32::from(self.send())).sum::<u32>();
                    turn += 1;
                    sleep((EVERY * turn).saturating_sub(began.elapsed()));
                }
                sent
            });
            let receives = scope.spawn(|| {
                let mut delays = Vec::new();
                loop {
                    match self.take() {
                        #[expect(clippy::cast_precision_loss, reason = "less than minutes")]
                        Some(delay) => delays.push(delay as f64 / 1e3),
                        None if over.load(Ordering::Acquire) => return delays,
                        None => {}
                    }
                }
            });
            let done = work();
            over.store(true, Ordering::Release);
            let sent = sends.join().map_err(|_| "the sender panicked")?;
            let mut delays = receives.join().map_err(|_| "the receiver panicked")?;
            delays.sort_by(f64::total_cmp);
            let mut passed = Passed { lost: 0, delays };
            passed.lost = sent.saturating_sub(passed.passed());
            Ok((passed, done?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_with_two_descriptors_counts_once() {
        let said = |id: u32, octets: u32| format!("pos:\t0\nmemlock:\t{octets}\nmap_id:\t{id}\n");
        let maps = [said(7, 8192), said(8, 1024), said(7, 8192)];
        assert_eq!(locked_kib(maps.iter().map(String::as_str)), Some(9));
        assert_eq!(locked_kib(["pos:\t0\n"].into_iter()), None);
    }
}
