//! `bench single-plane`: the old system of the paper (Pak and Park, Appl. Sci. 2018, 8(4), 550):
//! throughput and loss by size of message (its Figs. 4 and 5), throughput among control messages
//! (its Fig. 6), and what the paper does not give, the cost of one control message.

mod devices;
mod dual;
mod network;
mod plane;

use crate::gateway::live::{Payload, source_port};
use crate::gateway::relays::Relay;
use crate::gateway::world::{LOCAL, Load, PacedWindow, REMOTE, SENDER_IP, TestHosts, To, number};
use bench::{Bench, Chart, Curve, Options, Relation, Scales, nanoseconds_each};
use devices::{ControlMessages, associate, report};
use gatewright_health::code::SystemId;
use gatewright_health::specialisation::OXIMETER;
use gatewright_testbed::Needs;
use network::{Many, Network, OneByOne, now};
use plane::{Datagrams, SinglePlane};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};

/// Octets of a message, as UDP payload: the paper's sizes.
const SIZES: [u32; 5] = [64, 128, 256, 512, 1024];
/// Octets around a message on Ethernet: preamble and gap 20, headers of Ethernet, IPv4 and UDP 42,
/// frame check sequence 4.
const AROUND: u32 = 66;
/// Bits a second: as the paper counts a gigabit, and as a cable does.
const PAPER_GIGABIT: f64 = 1_073_741_824.0;
const TRUE_GIGABIT: f64 = 1e9;
/// Messages a second of the paper's Fig. 6, control messages included, and their size.
const STORM_TOTAL: u32 = 262_144;
const STORM_OCTETS: u32 = 512;
/// Control messages among them.
const STORMS: [u32; 8] = [1_000, 5_000, 10_000, 15_000, 20_000, 25_000, 30_000, 40_000];
/// Devices whose reports take turns.
const DEVICES: u16 = 256;
/// Messages over which the time of one is taken, in memory.
const MESSAGES: u16 = 20_000;

/// The ways in and out.
const WAYS: [(&str, Way); 2] = [("recvfrom", Way::OneByOne), ("recvmmsg", Way::Many)];

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Way {
    OneByOne,
    Many,
}

impl Way {
    fn open(self) -> std::io::Result<Box<dyn Network>> {
        Ok(match self {
            Self::OneByOne => Box::new(OneByOne::new(LOCAL, REMOTE)?),
            Self::Many => Box::new(Many::new(LOCAL, REMOTE)?),
        })
    }

    /// The plain relay that goes the same way: what it reaches is the floor.
    const fn relay(self) -> Relay {
        match self {
            Self::OneByOne => Relay::Blocking,
            Self::Many => Relay::Many,
        }
    }

    /// Serves the devices of the generator until `stop`.
    fn work(self, stop: &AtomicBool) -> Result<(), String> {
        let mut plane = populated()?;
        let mut network = self.open().map_err(|error| error.to_string())?;
        network::run(network.as_mut(), &mut plane, stop).map_err(|error| error.to_string())?;
        let counters = plane.counters();
        if counters.forwarded == 0 {
            Err(format!("nothing forwarded: {counters:?}"))
        } else {
            Ok(())
        }
    }
}

/// A plane at which every device of the generator is associated.
fn populated() -> Result<SinglePlane, String> {
    let mut plane = SinglePlane::new();
    for nth in 0..DEVICES {
        let from = SocketAddrV4::new(SENDER_IP, source_port(nth));
        let id = SystemId(u64::from(nth).to_be_bytes());
        associate(&mut plane, &OXIMETER, id, from, now())?;
    }
    Ok(plane)
}

const fn load(payload: &[u8]) -> Load<'_> {
    Load { to: To::Devices, payload, read: Payload::Whole }
}

/// Messages a second at a gigabit: the paper's, and on a cable.
fn rates(octets: u32) -> [(&'static str, f64); 2] {
    [
        ("paper", PAPER_GIGABIT / f64::from(8 * octets)),
        ("gigabit", TRUE_GIGABIT / f64::from(8 * (octets + AROUND))),
    ]
}

/// Nanoseconds from one message to the next.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "hundreds to thousands of nanoseconds"
)]
fn gap_ns(per_second: f64) -> u64 {
    (1e9 / per_second) as u64
}

/// What came through while everything that could be was sent.
fn throughput(bench: &mut Bench, world: &TestHosts) -> Result<(), String> {
    for octets in SIZES {
        let message = report(usize::try_from(octets).unwrap_or(0))?;
        for (name, way) in WAYS {
            let (rate, ()) = world.flood(load(&message), |stop| way.work(stop))?;
            bench.sample(&format!("{name}_{octets}_kmsg_s"), "k/s", rate.packets * 1e3);
        }
    }
    // The floor: the same ways in and out, and nothing done between.
    let message = report(64)?;
    for (name, way) in WAYS {
        let relay = |stop: &AtomicBool| way.relay().run(LOCAL, REMOTE, stop).map_err(text);
        let (rate, _) = world.flood(load(&message), relay)?;
        bench.sample(&format!("floor_{name}_64_kmsg_s"), "k/s", rate.packets * 1e3);
    }
    Ok(())
}

/// The same through the dual plane's worker.
fn worker_throughput(bench: &mut Bench, world: &TestHosts) -> Result<(), String> {
    for octets in SIZES {
        let message = report(usize::try_from(octets).unwrap_or(0))?;
        let (rate, ()) = world.flood(load(&message), |stop| dual::work(&message, stop))?;
        bench.sample(&format!("worker_{octets}_kmsg_s"), "k/s", rate.packets * 1e3);
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "stands where `map_err` wants it")]
fn text(error: impl ToString) -> String {
    error.to_string()
}

/// Per cent of what was sent that did not arrive.
fn lost(window: &PacedWindow) -> f64 {
    (100.0 * (1.0 - number(window.arrived) / number(window.sent.max(1)))).max(0.0)
}

/// Loss at both gigabits.
fn losses(bench: &mut Bench, world: &TestHosts) -> Result<(), String> {
    for octets in SIZES {
        let message = report(usize::try_from(octets).unwrap_or(0))?;
        for (gigabit, per_second) in rates(octets) {
            for (name, way) in WAYS {
                let gap = gap_ns(per_second);
                let windows = world.paced(load(&message), gap, 1, |stop| way.work(stop))?;
                for window in windows {
                    let key = format!("{name}_{octets}_loss_{gigabit}_pct");
                    bench.sample(&key, "%", lost(&window));
                    let offered = number(window.sent) / window.elapsed.as_secs_f64() / 1e3;
                    bench.sample(&format!("offered_{octets}_{gigabit}_kmsg_s"), "k/s", offered);
                }
            }
        }
    }
    Ok(())
}

/// What came through of a quarter of a million messages a second, some of which are control's.
fn storms(bench: &mut Bench, world: &TestHosts, control: &ControlMessages) -> Result<(), String> {
    let message = report(usize::try_from(STORM_OCTETS).unwrap_or(0))?;
    for per_second in STORMS {
        for (name, way) in WAYS {
            let stop = AtomicBool::new(false);
            let arrived = std::thread::scope(|scope| {
                let sends = scope.spawn(|| {
                    let control = control.clone();
                    world.in_sender(|| control.send(per_second, LOCAL, &stop))
                });
                let gap = gap_ns(f64::from(STORM_TOTAL - per_second));
                let windows = world.paced(load(&message), gap, 1, |stop| way.work(stop));
                stop.store(true, Ordering::Relaxed);
                let sent = sends.join().map_err(|_| "the control messages' thread panicked")??;
                sent.map_err(text)?;
                windows
            })?;
            for window in arrived {
                let rate = number(window.arrived) / window.elapsed.as_secs_f64() / 1e3;
                bench.sample(&format!("{name}_storm_{per_second}_kmsg_s"), "k/s", rate);
            }
        }
    }
    Ok(())
}

/// The time of each kind of message, in memory.
fn costs(bench: &mut Bench, control: &ControlMessages) -> Result<(), String> {
    let mut plane = populated()?;
    let mut control = control.clone();
    let mut out = Datagrams::default();
    let count = usize::from(MESSAGES);
    let message = report(usize::try_from(STORM_OCTETS).unwrap_or(0))?;
    let from = SocketAddrV4::new(SENDER_IP, source_port(0));
    let data = nanoseconds_each(count, || {
        for _ in 0..MESSAGES {
            plane.handle(now(), from, &message, &mut out);
            out.clear();
        }
    });
    let device = |nth: u16| SocketAddrV4::new(Ipv4Addr::LOCALHOST, nth);
    let mut each = |message: &mut dyn FnMut(u16) -> Vec<u8>| {
        let messages: Vec<_> = (0..MESSAGES).map(message).collect();
        nanoseconds_each(count, || {
            for (nth, message) in (0..MESSAGES).zip(&messages) {
                plane.handle(now(), device(nth), message, &mut out);
                out.clear();
            }
        })
    };
    let first = first_device(bench);
    let associate = each(&mut |nth| control.associate(first + u64::from(nth)).to_vec());
    let configure = each(&mut |_| control.configure().to_vec());
    let release = each(&mut |_| control.release().to_vec());
    let done = plane.counters();
    if done.forwarded < u64::from(MESSAGES) || done.configurations < u64::from(MESSAGES) {
        return Err(format!("not everything was done: {done:?}"));
    }
    for (key, cost) in [
        ("data_ns", data),
        ("associate_ns", associate),
        ("configure_ns", configure),
        ("release_ns", release),
        // The paper's control messages are these two.
        ("control_ns", f64::midpoint(associate, configure)),
    ] {
        bench.sample(key, "ns", cost);
    }
    Ok(())
}

/// The number of the first device of a round: none comes twice.
fn first_device(bench: &Bench) -> u64 {
    let rounds = bench.rounds_of("data_ns");
    u64::try_from(rounds).unwrap_or(0) * u64::from(MESSAGES) + 1
}

fn charts(bench: &mut Bench) {
    let curve = |bench: &Bench, name: String, key: &dyn Fn(u32) -> String, xs: &[u32]| {
        let point = |&x: &u32| Some((f64::from(x), bench.median(&key(x))?));
        Curve { name, points: xs.iter().filter_map(point).collect() }
    };
    let throughput = WAYS.map(|(name, _)| {
        curve(bench, name.to_owned(), &|octets| format!("{name}_{octets}_kmsg_s"), &SIZES)
    });
    let offered = curve(
        bench,
        "1 Gbit/s".to_owned(),
        &|octets| format!("offered_{octets}_gigabit_kmsg_s"),
        &SIZES,
    );
    let losses = WAYS.iter().flat_map(|(name, _)| {
        ["paper", "gigabit"].map(|gigabit| {
            let key = |octets| format!("{name}_{octets}_loss_{gigabit}_pct");
            curve(bench, format!("{name}, {gigabit}"), &key, &SIZES)
        })
    });
    let losses = losses.collect();
    let storms = WAYS.map(|(name, _)| {
        curve(bench, name.to_owned(), &|storm| format!("{name}_storm_{storm}_kmsg_s"), &STORMS)
    });
    let sheet = |title: &str, x: &str, y: &str, curves| Chart {
        title: title.to_owned(),
        x: x.to_owned(),
        y: y.to_owned(),
        curves,
    };
    let octets = "octets of a message";
    let mut all = throughput.to_vec();
    all.push(offered);
    bench.chart(sheet("throughput", octets, "thousand messages a second", all));
    bench.chart(sheet("loss", octets, "% lost", losses));
    let storms = sheet(
        "among control messages",
        "control messages a second",
        "thousand data messages a second",
        storms.to_vec(),
    );
    bench.chart_on(Scales { log_x: false, log_y: false }, storms);
}

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("single-plane", options);
    let control = ControlMessages::new()?;
    for _round in 0..options.rounds() {
        costs(&mut bench, &control)?;
    }
    bench.ratio("control_vs_data", "control_ns", "data_ns");
    if let Some(missing) = Needs::new().namespaces().missing() {
        bench.note(format!("nothing was sent over a network: {missing} is missing"));
        return Ok(bench);
    }
    let world = TestHosts::new(options.quick)?;
    world.forwarding(false)?;
    for _round in 0..options.rounds() {
        worker_throughput(&mut bench, &world)?;
        let _open = world.open_to_kernel()?;
        throughput(&mut bench, &world)?;
    }
    let _open = world.open_to_kernel()?;
    // A round over the network takes about a minute.
    for _round in 0..options.pick(options.rounds(), 1) {
        losses(&mut bench, &world)?;
        storms(&mut bench, &world, &control)?;
    }
    for (name, _) in WAYS {
        let floor = format!("floor_{name}_64_kmsg_s");
        bench.ratio(&format!("{name}_64_vs_floor"), &format!("{name}_64_kmsg_s"), &floor);
        let (storm, calm) =
            (format!("{name}_storm_40000_kmsg_s"), format!("{name}_storm_1000_kmsg_s"));
        bench.ratio(&format!("{name}_storm_kept"), &storm, &calm);
    }
    for octets in SIZES {
        let (worker, single) =
            (format!("worker_{octets}_kmsg_s"), format!("recvfrom_{octets}_kmsg_s"));
        let ratio = format!("worker_vs_single_{octets}");
        bench.ratio(&ratio, &worker, &single);
        bench.promise(&ratio, Relation::AtLeast, 2.5);
    }
    bench.ratio("recvmmsg_64_vs_recvfrom", "recvmmsg_64_kmsg_s", "recvfrom_64_kmsg_s");
    charts(&mut bench);
    bench.note(
        "single plane: one thread, data and control inline, delivery direct, nothing stored; a \
         message's size is its UDP payload, an oximeter's unconfirmed report of one value and \
         octets behind it that are mapped to nothing; each becomes one request primitive to the \
         IN-CSE, one datagram",
    );
    bench.note(
        "worker: the dual plane's worker on AF_XDP, in the place of the single plane, with the same \
         devices; each report becomes a CoAP request in CBOR by a plan, the single plane's a \
         primitive in JSON without one",
    );
    bench.note(
        "loss paper: at 2^30 / (8 * size) messages a second, as the paper counts, which no cable \
         carries; loss gigabit: at 10^9 / (8 * (size + 66)), which one does; offered is what the \
         generator reached, and per cent are of that",
    );
    bench.note(
        "storm: of 262,144 messages of 512 octets a second so many are control's, in turns an \
         association request of a new device, its configuration, its release; 1,000 to 40,000. \
         The paper's two kinds are the first two, and control_ns is their mean",
    );
    bench.note(
        "the gateway has a core of its own; the generators and what receives for it in the kernel \
         share the other",
    );
    Ok(bench)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's figures: 262,144 messages of 512 octets a second; an Ethernet of 1 Gbit/s
    /// carries 1,488,095 frames of 64 octets, which hold 18 octets of UDP payload.
    #[test]
    fn rates_of_a_gigabit() {
        let [(_, paper), _] = rates(512);
        assert!((paper - 262_144.0).abs() < 1.0);
        let [_, (_, gigabit)] = rates(18);
        assert!((gigabit - 1_488_095.0).abs() < 1.0);
    }

    #[test]
    fn each_report_of_an_associated_device_is_one_primitive() {
        let mut plane = populated().unwrap();
        let from = SocketAddrV4::new(SENDER_IP, source_port(7));
        let mut out = Datagrams::default();
        for octets in [64, 512, 1024] {
            let message = report(octets).unwrap();
            assert_eq!(message.len(), octets);
            plane.handle(now(), from, &message, &mut out);
            let sent: Vec<_> = out.iter().map(|(to, octets)| (to, octets.to_vec())).collect();
            let [(to, primitive)] = sent.as_slice() else { panic!("{sent:?}") };
            assert_eq!(*to, plane::To::Above);
            let primitive: serde_json::Value = serde_json::from_slice(primitive).unwrap();
            assert_eq!(primitive.pointer("/pc/m2m:cin/con/value").unwrap(), "96.5");
            out.clear();
        }
        let stranger = SocketAddrV4::new(SENDER_IP, 9);
        plane.handle(now(), stranger, &report(64).unwrap(), &mut out);
        assert_eq!((out.iter().count(), plane.counters().strangers), (0, 1));
    }
}
