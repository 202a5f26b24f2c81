//! `bench gateway`: datagrams relayed, merged and answered, and packets routed, between two
//! virtual cables (Figs. 9 and 10 and Table 1 of the EZgate paper).

pub(crate) mod bpf;
mod delay;
pub(crate) mod dpdk;
pub(crate) mod live;
mod loss;
pub(crate) mod ours;
pub(crate) mod relays;
mod reload;
mod systems;
mod testpmd;
pub(crate) mod world;

use bench::{Bench, Chart, Contestant, Curve, Options, Relation, Scales};
use gatewright_planes::Series;
use gatewright_testbed::Needs;
use relays::Relay;
use std::cell::RefCell;
use std::rc::Rc;
use systems::{MERGED, MERGED_400, PACKET_SOCKET, PREFIXED, System, XDP};
use world::TestHosts;

/// Octets of a datagram's payload that the promises about rate are about.
const PAYLOAD: usize = 64;
/// Octets of those that are merged.
const PAYLOAD_MERGED: usize = 100;
/// Octets for the curves, up to the largest datagram of an Ethernet frame.
const PAYLOADS: [(usize, f64); 8] = [
    (50, 50.0),
    (100, 100.0),
    (200, 200.0),
    (400, 400.0),
    (600, 600.0),
    (800, 800.0),
    (1200, 1200.0),
    (1472, 1472.0),
];

/// The contestants by the names of their figures; testpmd is there only where it is installed.
const SYSTEMS: [(&str, System); 10] = [
    ("direct_mpps", System::Direct),
    ("naive_mpps", System::Sockets(Relay::Blocking)),
    ("mmsg_mpps", System::Sockets(Relay::Many)),
    ("spinning_mpps", System::Sockets(Relay::Spinning)),
    ("gateway_mpps", System::Gateway(Series::Plain, XDP)),
    ("gateway_packet_socket_mpps", System::Gateway(Series::Plain, PACKET_SOCKET)),
    ("kernel_router_mpps", System::Kernel),
    ("router_mpps", System::Router(XDP)),
    ("router_packet_socket_mpps", System::Router(PACKET_SOCKET)),
    ("testpmd_mpps", System::Testpmd),
];

/// The curves of throughput.
const CURVES: [(&str, System); 7] = [
    ("direct", System::Direct),
    ("native blocking", System::Sockets(Relay::Blocking)),
    ("native mmsg", System::Sockets(Relay::Many)),
    ("native spinning", System::Sockets(Relay::Spinning)),
    ("gatewright", System::Gateway(Series::Plain, XDP)),
    ("merging to 400", System::Gateway(MERGED_400, XDP)),
    ("merging to the maximum", System::Gateway(MERGED, XDP)),
];

/// What went wrong, to be told once at the end.
type Problems = RefCell<Vec<String>>;

fn rates(bench: &mut Bench, world: &TestHosts, problems: &Problems) {
    let there =
        |(_, system): &(&str, System)| *system != System::Testpmd || testpmd::missing().is_none();
    let contestants = SYSTEMS.into_iter().filter(there).map(|(key, system)| {
        contestant(key, problems, move || Ok(system.flood(world, PAYLOAD)?.0.packets))
    });
    bench.interleave(contestants.collect());
    bench.ratio("pps64_vs_naive", "gateway_mpps", "naive_mpps");
    bench.ratio("pps64_vs_mmsg", "gateway_mpps", "mmsg_mpps");
    match testpmd::missing() {
        None => {
            bench.ratio(TESTPMD.0, "gateway_mpps", "testpmd_mpps");
            bench.promise(TESTPMD.0, TESTPMD.1, TESTPMD.2);
        }
        Some(missing) => bench.skip(TESTPMD.0, TESTPMD.1, TESTPMD.2, &missing),
    }
}

/// Datagrams of 100 octets that are carried, counted by a receiver that takes them apart; and how
/// long they stay for it.
fn merging(bench: &mut Bench, world: &TestHosts, problems: &Problems) {
    let systems = [
        ("naive100_mpps", System::Sockets(Relay::Blocking)),
        ("gateway100_mpps", System::Gateway(Series::Plain, XDP)),
        ("merged100_mpps", System::Gateway(PREFIXED, XDP)),
    ];
    let stays: Rc<RefCell<Vec<(String, f64)>>> = Rc::default();
    let contestants = systems.map(|(key, system)| {
        let stays = Rc::clone(&stays);
        contestant(key, problems, move || {
            let (rate, seen) = system.flood(world, PAYLOAD_MERGED)?;
            for (sojourn, name) in
                seen.into_iter().flat_map(|seen| seen.sojourn.into_iter().zip(["p50", "p99"]))
            {
                let figure = key.replace("_mpps", &format!("_stay_{name}_us"));
                stays.borrow_mut().push((figure, sojourn.as_secs_f64() * 1e6));
            }
            Ok(rate.datagrams)
        })
    });
    bench.interleave(contestants.into());
    for (figure, sojourn) in stays.take() {
        bench.sample(&figure, "us", sojourn);
    }
    bench.difference("merge_added_stay_us", "merged100_stay_p50_us", "gateway100_stay_p50_us");
    bench.ratio("merge_gain_100", "merged100_mpps", "gateway100_mpps");
    bench.ratio("merge_vs_native_100", "merged100_mpps", "naive100_mpps");
}

fn contestant<'run>(
    key: &'static str,
    problems: &'run Problems,
    measure: impl Fn() -> Result<f64, String> + 'run,
) -> Contestant<'run> {
    let tell = move |problem: String| problems.borrow_mut().push(format!("{key}: {problem}"));
    Contestant::new(key, "Mpps", move || {
        // A loaded machine may give somebody no turn for a whole window: told, and tried once more.
        let measured = measure().or_else(|problem| {
            tell(problem);
            measure()
        });
        measured.unwrap_or_else(|problem| {
            tell(problem);
            f64::NAN
        })
    })
}

/// Every promise that needs nothing but namespaces.
const PROMISES: [(&str, Relation, f64); 8] = [
    ("pps64_vs_naive", Relation::AtLeast, 2.0),
    ("merge_gain_100", Relation::AtLeast, 1.5),
    ("merge_vs_native_100", Relation::AtLeast, 3.0),
    ("delay_mean_vs_native", Relation::AtMost, 0.8),
    ("delay_p99_vs_native", Relation::AtMost, 0.8),
    ("delay_spin_vs_spin", Relation::AtMost, 1.1),
    ("delay_1ms_mean_vs_native", Relation::AtMost, 1.0),
    ("delay_10ms_mean_vs_native", Relation::AtMost, 1.0),
];

/// A stretch: testpmd exchanges link-layer addresses only.
const TESTPMD: (&str, Relation, f64) = ("pps64_vs_testpmd", Relation::AtLeast, 1.0);

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("gateway", options);
    if let Some(missing) = Needs::new().namespaces().missing() {
        let reloads = reload::PROMISES.map(|(key, bound)| (key, Relation::AtMost, bound));
        for (key, relation, bound) in PROMISES.into_iter().chain([TESTPMD]).chain(reloads) {
            bench.skip(key, relation, bound, &missing.to_string());
        }
        return Ok(bench);
    }
    let world = TestHosts::new(options.quick)?;
    world.forwarding(false)?;
    let problems = Problems::default();
    rates(&mut bench, &world, &problems);
    merging(&mut bench, &world, &problems);
    delay::measure(&mut bench, &world, &problems);
    reload::measure(&mut bench, &problems);
    for (key, relation, bound) in PROMISES {
        bench.promise(key, relation, bound);
    }
    if !options.quick {
        loss::search(&mut bench, &world, &problems);
        curves(&mut bench, &world, &problems);
    }
    bench.note(
        "delay_1ms and delay_10ms: requests so long apart that every relay sleeps between two",
    );
    bench.note("rates at the receiver while the sender sends as fast as it can, 64 octets each");
    bench.note(
        "links of ours are AF_XDP in the driver, with a copy, unless a figure says packet socket",
    );
    bench.note(
        "a gateway has a core of its own; the sender and what receives for the gateway in the \
         kernel share the other, as do client and server. The direct cable and the kernel's router \
         run on the sender's core alone, so their rates are not to be set against the others",
    );
    problems.into_inner().into_iter().for_each(|problem| bench.note(problem));
    Ok(bench)
}

/// Throughput over payload (the paper's Fig. 9), one window each.
fn curves(bench: &mut Bench, world: &TestHosts, problems: &Problems) {
    let mut curves = Vec::new();
    for (name, system) in CURVES {
        let mut points = Vec::new();
        for (payload, x) in PAYLOADS {
            match system.flood(world, payload) {
                Ok((rate, _)) => points.push((x, rate.octets * 8.0)),
                Err(problem) => problems.borrow_mut().push(format!("{name}: {problem}")),
            }
        }
        curves.push(Curve { name: name.to_owned(), points });
    }
    let chart = Chart {
        title: "throughput over payload".to_owned(),
        x: "octets of payload".to_owned(),
        y: "million bits of payload a second".to_owned(),
        curves,
    };
    bench.chart_on(Scales { log_x: true, log_y: true }, chart);
}
