//! `bench gateway`: datagrams relayed, merged and answered, and packets routed, between two
//! virtual cables.

mod live;
mod ours;
mod relays;
mod world;

use bench::{Bench, Chart, Contestant, Curve, Options, Relation};
use gatewright_link::{Backend, Mode};
use gatewright_planes::{MergeLimit, Series};
use gatewright_stack::Form;
use gatewright_testbed::Needs;
use relays::{Relay, Waiting};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use world::{LOCAL, REMOTE, Rate, To, World};

/// Octets of a datagram's payload that the promises about rate are about.
const PAYLOAD: usize = 64;
/// Octets of those that are merged.
const PAYLOAD_MERGED: usize = 100;
/// Octets of the largest datagram of an Ethernet frame.
const PAYLOAD_MAX: usize = 1472;
/// Octets for the curve.
const PAYLOADS: [(usize, f64); 6] =
    [(50, 50.0), (128, 128.0), (256, 256.0), (512, 512.0), (1024, 1024.0), (PAYLOAD_MAX, 1472.0)];
/// Requests of a round.
const REQUESTS: usize = 10_000;
const REQUESTS_QUICK: usize = 1000;
/// Longer than any round: a worker that never sleeps.
const FOR_EVER: Duration = Duration::from_hours(1);

/// How our links exchange frames, and what they then call it.
type Links = (Backend, Mode);
const XDP: Links = (Backend::Xdp, Mode::XdpCopy);
const PACKET_SOCKET: Links = (Backend::PacketSocket, Mode::PacketSocket);

/// Who is the gateway.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum System {
    /// Relays with the kernel's sockets.
    Sockets(Relay),
    /// The kernel routes.
    Kernel,
    /// Gatewright's UDP gateway, or its router.
    Gateway(Option<Series>, Links),
    /// Gatewright with a relay as a layer of its own.
    Layer(Links),
}

const MERGED: Series = Series::Merge(Form::Prefixed, MergeLimit::Octets(PAYLOAD_MAX));

/// The contestants by the names of their figures.
const SYSTEMS: [(&str, System); 9] = [
    ("naive_mpps", System::Sockets(Relay::Blocking)),
    ("mmsg_mpps", System::Sockets(Relay::Many)),
    ("spinning_mpps", System::Sockets(Relay::Spinning)),
    ("gateway_mpps", System::Gateway(Some(Series::Plain), XDP)),
    ("gateway_packet_socket_mpps", System::Gateway(Some(Series::Plain), PACKET_SOCKET)),
    ("relay_layer_mpps", System::Layer(XDP)),
    ("kernel_router_mpps", System::Kernel),
    ("router_mpps", System::Gateway(None, XDP)),
    ("router_packet_socket_mpps", System::Gateway(None, PACKET_SOCKET)),
];

impl System {
    /// What comes through.
    fn flood(self, world: &World, payload: usize) -> Result<Rate, String> {
        // AF_XDP opens the cable's end by itself.
        let opens = matches!(self, Self::Gateway(_, XDP) | Self::Layer(XDP));
        let _open = (!opens).then(|| world.open_to_kernel()).transpose()?;
        match self {
            Self::Sockets(relay) => world.flood(To::Relay, payload, |stop| {
                let relayed = relay.run(LOCAL, REMOTE, stop).map_err(|it| it.to_string())?;
                if relayed == 0 { Err("it relayed nothing".to_owned()) } else { Ok(()) }
            }),
            Self::Kernel => {
                world.forwarding(true)?;
                let rate = world.flood(To::Receiver, payload, wait);
                world.forwarding(false)?;
                rate
            }
            Self::Gateway(series, links) => {
                let to = if series.is_some() { To::Relay } else { To::Receiver };
                world.flood(to, payload, |stop| ours::gateway(links, None, series, stop))
            }
            Self::Layer((backend, mode)) => {
                world.flood(To::Relay, payload, |stop| ours::layer(backend, mode, stop))
            }
        }
    }
}

/// The kernel works by itself.
#[expect(clippy::unnecessary_wraps, reason = "stands where gateways that can fail do")]
fn wait(stop: &AtomicBool) -> Result<(), String> {
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// What went wrong, to be told once at the end.
type Problems = RefCell<Vec<String>>;

fn rates(bench: &mut Bench, world: &World, problems: &Problems) {
    let contestants = SYSTEMS.map(|(key, system)| {
        contestant(key, problems, move || Ok(system.flood(world, PAYLOAD)?.mpps))
    });
    bench.interleave(contestants.into());
    bench.ratio("pps64_vs_naive", "gateway_mpps", "naive_mpps");
    bench.ratio("pps64_vs_mmsg", "gateway_mpps", "mmsg_mpps");
    bench.ratio("relay_layer_vs_naive", "relay_layer_mpps", "naive_mpps");
}

/// Datagrams of 100 octets that are carried: counted by their octets, however they are packed.
fn merging(bench: &mut Bench, world: &World, problems: &Problems) {
    let systems = [
        ("naive100_mpps", System::Sockets(Relay::Blocking), 100.0),
        ("gateway100_mpps", System::Gateway(Some(Series::Plain), XDP), 100.0),
        // Each datagram stands behind its length.
        ("merged100_mpps", System::Gateway(Some(MERGED), XDP), 102.0),
    ];
    let contestants = systems.map(|(key, system, octets)| {
        contestant(key, problems, move || Ok(system.flood(world, PAYLOAD_MERGED)?.payload / octets))
    });
    bench.interleave(contestants.into());
    bench.ratio("merge_gain_100", "merged100_mpps", "gateway100_mpps");
    bench.ratio("merge_vs_native_100", "merged100_mpps", "naive100_mpps");
}

fn contestant<'run>(
    key: &'static str,
    problems: &'run Problems,
    measure: impl Fn() -> Result<f64, String> + 'run,
) -> Contestant<'run> {
    Contestant::new(key, "Mpps", move || {
        measure().unwrap_or_else(|problem| {
            problems.borrow_mut().push(format!("{key}: {problem}"));
            f64::NAN
        })
    })
}

/// Who carries requests and answers, by the beginning of its figures' names.
const CARRIERS: [(&str, Carrier); 4] = [
    ("naive", Carrier::Sockets(Waiting::Blocked)),
    ("gateway", Carrier::Gateway(None)),
    ("spinning", Carrier::Sockets(Waiting::Spinning)),
    ("gateway_spinning", Carrier::Gateway(Some(FOR_EVER))),
];

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Carrier {
    Sockets(Waiting),
    /// Our UDP gateway, its worker polling so long before it sleeps, or as it does by itself.
    Gateway(Option<Duration>),
}

impl Carrier {
    fn requests(self, world: &World, count: usize) -> Result<(Vec<f64>, usize), String> {
        match self {
            Self::Sockets(waiting) => world.requests(count, |stop| {
                waiting.run(LOCAL, REMOTE, stop).map_err(|error| error.to_string())
            }),
            Self::Gateway(spin) => {
                world.requests(count, |stop| ours::gateway(XDP, spin, Some(Series::Plain), stop))
            }
        }
    }
}

fn delays(bench: &mut Bench, world: &World, problems: &Problems) {
    let count = bench.options().pick(REQUESTS, REQUESTS_QUICK);
    for _round in 0..bench.options().rounds() {
        for (name, carrier) in CARRIERS {
            match carrier.requests(world, count) {
                Ok((delays, lost)) => summarise(bench, name, delays, lost),
                Err(problem) => problems.borrow_mut().push(format!("delay {name}: {problem}")),
            }
        }
    }
    for (key, of, to) in [
        ("delay_mean_vs_native", "gateway_mean_us", "naive_mean_us"),
        ("delay_p99_vs_native", "gateway_p99_us", "naive_p99_us"),
        ("delay_spin_vs_spin", "gateway_spinning_mean_us", "spinning_mean_us"),
    ] {
        bench.ratio(key, of, to);
    }
}

fn summarise(bench: &mut Bench, name: &str, mut delays: Vec<f64>, lost: usize) {
    delays.sort_by(f64::total_cmp);
    let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    let per_mille = |share: usize| {
        delays.get((delays.len() * share / 1000).min(delays.len().saturating_sub(1))).copied()
    };
    let mean = delays.iter().sum::<f64>() / number(delays.len());
    let late = delays.iter().filter(|&&delay| delay > 3000.0).count();
    for (figure, unit, value) in [
        ("mean_us", "us", Some(mean)),
        ("p50_us", "us", per_mille(500)),
        ("p99_us", "us", per_mille(990)),
        ("p999_us", "us", per_mille(999)),
        ("above_3ms", "requests", Some(number(late))),
        ("unanswered", "requests", Some(number(lost))),
    ] {
        bench.sample(&format!("{name}_{figure}"), unit, value.unwrap_or(f64::NAN));
    }
}

/// Every promise.
const PROMISES: [(&str, Relation, f64); 6] = [
    ("pps64_vs_naive", Relation::AtLeast, 2.0),
    ("merge_gain_100", Relation::AtLeast, 1.5),
    ("merge_vs_native_100", Relation::AtLeast, 3.0),
    ("delay_mean_vs_native", Relation::AtMost, 0.8),
    ("delay_p99_vs_native", Relation::AtMost, 0.8),
    ("delay_spin_vs_spin", Relation::AtMost, 1.1),
];

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("gateway", options);
    bench.skip("pps64_vs_testpmd", Relation::AtLeast, 1.0, "DPDK is not part of this benchmark");
    if let Some(missing) = Needs::new().namespaces().missing() {
        for (key, relation, bound) in PROMISES {
            bench.skip(key, relation, bound, &missing.to_string());
        }
        return Ok(bench);
    }
    let world = World::new(options.quick)?;
    world.forwarding(false)?;
    let problems = Problems::default();
    rates(&mut bench, &world, &problems);
    merging(&mut bench, &world, &problems);
    delays(&mut bench, &world, &problems);
    for (key, relation, bound) in PROMISES {
        bench.promise(key, relation, bound);
    }
    if !options.quick {
        curves(&mut bench, &world, &problems);
    }
    bench.note("rates at the receiver while the sender sends as fast as it can, 64 octets each");
    bench.note(
        "a gateway has a core of its own; the sender and what receives for the gateway in the \
         kernel share the other, as do client and server. The kernel's router runs on the sender's \
         core alone, so its rate is not to be set against the others",
    );
    problems.into_inner().into_iter().for_each(|problem| bench.note(problem));
    Ok(bench)
}

/// Rate over payload, one window each.
fn curves(bench: &mut Bench, world: &World, problems: &Problems) {
    let mut curves = Vec::new();
    for (key, system) in SYSTEMS {
        let mut points = Vec::new();
        for (payload, x) in PAYLOADS {
            match system.flood(world, payload) {
                Ok(rate) => points.push((x, rate.mpps)),
                Err(problem) => problems.borrow_mut().push(format!("{key}: {problem}")),
            }
        }
        curves.push(Curve { name: key.trim_end_matches("_mpps").to_owned(), points });
    }
    bench.chart(Chart {
        title: "rate over payload".to_owned(),
        x: "octets of payload".to_owned(),
        y: "million packets a second".to_owned(),
        curves,
    });
}
