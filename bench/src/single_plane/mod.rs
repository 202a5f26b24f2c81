//! `bench single-plane`: the old system of the paper (Pak and Park, Appl. Sci. 2018, 8(4), 550) beside
//! the dual plane: the overhead ratio by number of messages (its Fig. 3), throughput and loss by size of
//! message (its Figs. 4 and 5), throughput among control messages (its Fig. 6), and what the paper does
//! not give, the cost of one control message.

mod devices;
mod dual;
mod figures;
mod network;
mod overhead;
mod own_stack;
mod plane;
mod systems;

use crate::gateway::live::source_port;
use crate::gateway::world::{SENDER_IP, TestHosts};
use bench::{Bench, Chart, Curve, Options, Relation, Scales, nanoseconds_each};
use devices::ControlMessages;
use figures::{CONTROL_WORK, SIZES, STORM_OCTETS, STORMS, message, storm_key};
use gatewright_testbed::Needs;
use network::now;
use plane::Datagrams;
use std::net::{Ipv4Addr, SocketAddrV4};
use systems::{System, populated};

/// Devices whose reports take turns.
const DEVICES: u16 = 256;
/// Messages over which the time of one is taken, in memory.
const MESSAGES: u16 = 20_000;
/// The most control messages a second.
const STORM_MOST: u32 = 40_000;

#[expect(clippy::needless_pass_by_value, reason = "stands where `map_err` wants it")]
fn text(error: impl ToString) -> String {
    error.to_string()
}

/// The time of each kind of message, in memory.
fn costs(bench: &mut Bench, control: &ControlMessages) -> Result<(), String> {
    let mut plane = populated()?;
    let mut control = control.clone();
    let mut out = Datagrams::default();
    let count = usize::from(MESSAGES);
    let message = message(STORM_OCTETS)?;
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
    let sheet = |title: String, x: &str, y: &str, curves| Chart {
        title,
        x: x.to_owned(),
        y: y.to_owned(),
        curves,
    };
    overhead::chart(bench);
    let octets = "octets of a message";
    let names = System::ALL.map(System::name);
    let by_size = |bench: &Bench, name: &str, key: &dyn Fn(u32) -> String| {
        curve(bench, name.to_owned(), key, &SIZES)
    };
    let mut throughput: Vec<Curve> = Vec::new();
    for name in names {
        throughput.push(by_size(bench, name, &|size| format!("{name}_{size}_kmsg_s")));
    }
    let losses = names.iter().flat_map(|name| {
        ["paper", "gigabit"].map(|gigabit| {
            let key = |size| format!("{name}_{size}_loss_{gigabit}_pct");
            by_size(bench, &format!("{name}, {gigabit}"), &key)
        })
    });
    let losses = losses.collect();
    bench.chart(sheet("throughput".to_owned(), octets, "thousand messages a second", throughput));
    bench.chart(sheet("loss".to_owned(), octets, "% lost", losses));
    for (work, _) in CONTROL_WORK {
        let of = |system: System| {
            let key = |storm| storm_key(system, work, storm);
            curve(bench, system.name().to_owned(), &key, &STORMS)
        };
        let curves = System::ALL.map(of).into_iter().filter(|it| !it.points.is_empty()).collect();
        let title = format!("among control messages, {work}");
        let (x, y) = ("control messages a second", "thousand data messages a second");
        bench.chart_on(Scales { log_x: false, log_y: false }, sheet(title, x, y, curves));
    }
}

/// The figures that are promised, from the samples.
fn promises(bench: &mut Bench) {
    for octets in SIZES {
        let single = format!("recvfrom_{octets}_kmsg_s");
        for (system, least) in [("worker", 2.5), ("dual", 8.0)] {
            let ratio = format!("{system}_vs_single_{octets}");
            bench.ratio(&ratio, &format!("{system}_{octets}_kmsg_s"), &single);
            bench.promise(&ratio, Relation::AtLeast, least);
        }
        let ratio = format!("own_stack_vs_single_{octets}");
        bench.ratio(&ratio, &format!("own_stack_{octets}_kmsg_s"), &single);
        bench.promise(&format!("dual_{octets}_loss_gigabit_pct"), Relation::AtMost, 0.1);
    }
    bench.promise("dual_64_loss_paper_pct", Relation::AtMost, 0.1);
    for (work, _) in CONTROL_WORK {
        let loss = format!("storm_loss_{work}_pct");
        let at = |storm: u32| format!("dual_storm_{work}_{storm}_loss_pct");
        bench.difference(&loss, &at(STORM_MOST), &at(0));
        bench.promise(&loss, Relation::AtMost, 1.0);
        let of = |system: System| storm_key(system, work, STORM_MOST);
        let ratio = format!("storm_dual_vs_s2_{work}");
        bench.ratio(&ratio, &of(System::Dual), &of(System::OwnStack));
    }
    bench.promise("storm_dual_vs_s2_200us", Relation::AtLeast, 8.0);
    for system in System::ALL.into_iter().filter(|system| system.relay().is_some()) {
        let name = system.name();
        let floor = format!("floor_{name}_64_kmsg_s");
        bench.ratio(&format!("{name}_64_vs_floor"), &format!("{name}_64_kmsg_s"), &floor);
    }
    bench.ratio("recvmmsg_64_vs_recvfrom", "recvmmsg_64_kmsg_s", "recvfrom_64_kmsg_s");
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
    let rounds = options.rounds();
    for round in 1..=rounds {
        bench.stage(&format!("overhead and throughput, round {round} of {rounds}"));
        bench.attempt("overhead", |bench| overhead::measure(bench, &world));
        figures::throughput(&mut bench, &world)?;
    }
    // One round, whose figures are of several windows.
    bench.stage("loss by size of message");
    figures::losses(&mut bench, &world)?;
    bench.stage("throughput among control messages");
    figures::storms(&mut bench, &world, &control)?;
    promises(&mut bench);
    charts(&mut bench);
    notes(&mut bench);
    Ok(bench)
}

fn notes(bench: &mut Bench) {
    bench.note(
        "recvfrom, recvmmsg, own_stack: the single plane, one thread, data and control inline, delivery \
         direct, nothing stored, on the kernel's sockets and on our stack over AF_XDP (S1 and S2 of the \
         paper); a message's size is its UDP payload, an oximeter's unconfirmed report of one value and \
         octets behind it that are mapped to nothing; each becomes one request primitive to the \
         IN-CSE, one datagram",
    );
    bench.note(
        "worker, dual: two planes with the same devices; each report becomes a CoAP request in CBOR by a \
         plan, the single plane's a primitive in JSON without one; worker converts in the worker, dual \
         in the driver of the link. Datagrams come without a UDP checksum, to all systems",
    );
    bench.note(
        "overhead: of N messages of 64 octets sent at once, the time until N were forwarded, less that \
         of parsing, analysing and converting N in memory, by the first time; dual has no such \
         figure, as its driver converts on the generator's processor",
    );
    bench.note(
        "throughput is of two processors, generator and receiver included: the gateway has one of its \
         own and the generators and what receives for it in the kernel share the other; the driver \
         converts where the generator is, so dual has a generator on each of both, and dual_one_sender \
         one, with the other processor idle",
    );
    bench.note(
        "loss paper: at 2^30 / (8 * size) messages a second, as the paper counts, which no cable \
         carries; loss gigabit: at 10^9 / (8 * (size + 66)), which one does; per cent are of what was due \
         at that rate, whether the generator came to send it (sent) or not",
    );
    bench.note(
        "storm: of 262,144 messages of 512 octets a second so many are control's, in turns an \
         association request of a new device, its configuration, its release; 0 to 40,000. Each \
         control message costs its own work, or 50 or 200 microseconds more. \
         The paper's two kinds are the first two, and control_ns is their mean",
    );
}

#[cfg(test)]
mod tests {
    use super::devices::report;
    use super::*;

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
