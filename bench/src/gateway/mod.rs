//! `bench gateway`: datagrams relayed, and packets routed, between two virtual cables.

mod live;
mod ours;
mod relays;
mod world;

use bench::{Bench, Chart, Contestant, Curve, Options, Relation};
use gatewright_link::{Backend, Mode};
use gatewright_testbed::Needs;
use relays::Relay;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use world::{LOCAL, REMOTE, To, World};

/// Octets of a datagram's payload that the promises are about.
const PAYLOAD: usize = 64;
/// Octets for the curve.
const PAYLOADS: [usize; 6] = [50, 128, 256, 512, 1024, 1472];

/// Who is the gateway.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum System {
    /// Relays with the kernel's sockets.
    Sockets(Relay),
    /// The kernel routes.
    Kernel,
    /// Gatewright, with its links opened like this.
    Ours(To, Backend, Mode),
}

const XDP: (Backend, Mode) = (Backend::Xdp, Mode::XdpCopy);
const PACKET_SOCKET: (Backend, Mode) = (Backend::PacketSocket, Mode::PacketSocket);

/// The contestants by the names of their figures.
const SYSTEMS: [(&str, System); 8] = [
    ("naive_mpps", System::Sockets(Relay::Blocking)),
    ("mmsg_mpps", System::Sockets(Relay::Many)),
    ("spinning_mpps", System::Sockets(Relay::Spinning)),
    ("relay_mpps", System::Ours(To::Relay, XDP.0, XDP.1)),
    ("relay_packet_socket_mpps", System::Ours(To::Relay, PACKET_SOCKET.0, PACKET_SOCKET.1)),
    ("kernel_router_mpps", System::Kernel),
    ("router_mpps", System::Ours(To::Receiver, XDP.0, XDP.1)),
    ("router_packet_socket_mpps", System::Ours(To::Receiver, PACKET_SOCKET.0, PACKET_SOCKET.1)),
];

impl System {
    /// Million packets a second that come through.
    fn flood(self, world: &World, payload: usize) -> Result<f64, String> {
        match self {
            Self::Sockets(relay) => {
                let _open = world.open_to_kernel()?;
                world.flood(To::Relay, payload, |stop| {
                    let relayed = relay.run(LOCAL, REMOTE, stop).map_err(|it| it.to_string())?;
                    if relayed == 0 { Err("it relayed nothing".to_owned()) } else { Ok(()) }
                })
            }
            Self::Kernel => {
                let _open = world.open_to_kernel()?;
                world.forwarding(true)?;
                let rate = world.flood(To::Receiver, payload, wait);
                world.forwarding(false)?;
                rate
            }
            Self::Ours(to, backend, mode) => {
                // AF_XDP opens the cable's end by itself.
                let _open = (backend == Backend::PacketSocket)
                    .then(|| world.open_to_kernel())
                    .transpose()?;
                world.flood(to, payload, |stop| ours::run(backend, mode, stop))
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

/// Every promise, evaluated or skipped.
const PROMISES: [(&str, f64); 2] = [("pps64_vs_naive", 2.0), ("pps64_vs_testpmd", 1.0)];

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("gateway", options);
    if let Some(missing) = Needs::new().namespaces().missing() {
        for (key, bound) in PROMISES {
            bench.skip(key, Relation::AtLeast, bound, &missing.to_string());
        }
        return Ok(bench);
    }
    let world = World::new(options.quick)?;
    world.forwarding(false)?;
    let problems = RefCell::new(Vec::new());
    let contestants = SYSTEMS.map(|(key, system)| {
        let (world, problems) = (&world, &problems);
        Contestant::new(key, "Mpps", move || {
            system.flood(world, PAYLOAD).unwrap_or_else(|problem| {
                problems.borrow_mut().push(format!("{key}: {problem}"));
                f64::NAN
            })
        })
    });
    bench.interleave(contestants.into());
    bench.ratio("pps64_vs_naive", "relay_mpps", "naive_mpps");
    bench.ratio("pps64_vs_mmsg", "relay_mpps", "mmsg_mpps");
    bench.ratio("pps64_vs_spinning", "relay_mpps", "spinning_mpps");
    bench.promise("pps64_vs_naive", Relation::AtLeast, 2.0);
    bench.skip("pps64_vs_testpmd", Relation::AtLeast, 1.0, "DPDK is not part of this benchmark");
    if !options.quick {
        curves(&mut bench, &world, &problems);
    }
    bench.note("rates at the receiver while the sender sends as fast as it can, 64 octets each");
    bench.note(
        "a relay or our worker has a core of its own; the sender and what receives for the \
         gateway in the kernel share the other. The kernel's router runs on the sender's core \
         alone, so its rate is not to be set against the others",
    );
    problems.into_inner().into_iter().for_each(|problem| bench.note(problem));
    Ok(bench)
}

/// Rate over payload, one window each.
fn curves(bench: &mut Bench, world: &World, problems: &RefCell<Vec<String>>) {
    let mut curves = Vec::new();
    for (key, system) in SYSTEMS {
        let mut points = Vec::new();
        for (payload, x) in PAYLOADS.into_iter().zip([50.0, 128.0, 256.0, 512.0, 1024.0, 1472.0]) {
            match system.flood(world, payload) {
                Ok(rate) => points.push((x, rate)),
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
