//! The single plane on our own stack: the same loop as an application on the worker of AF_XDP links.

use super::network::now;
use super::plane::{Datagrams, SinglePlane};
use super::text;
use crate::gateway::ours::LOOK;
use crate::gateway::world::{LOCAL, OWN_IP, REMOTE};
use gatewright_link::Backend;
use gatewright_planes::{Planes, Setup};
use gatewright_stack::{ApplicationSockets, Origin, SocketApplication, SocketIndex};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The gateway's own links and workers.
pub(super) fn links(forward_in_driver: bool) -> Setup {
    let mut setup = Setup::new(42);
    for (name, ip) in ["g0", "g1"].into_iter().zip(OWN_IP) {
        let link = setup.link(name, name).backend(Backend::Xdp).address(IpAddr::V4(ip), 24);
        if forward_in_driver {
            link.forward_in_driver();
        }
    }
    setup
}

/// Refuses to have run without AF_XDP.
pub(super) fn check_links(gateway: &Planes) -> Result<(), String> {
    let status = gateway.status().map_err(text)?;
    match status.links.iter().find(|link| !link.mode.starts_with("AF_XDP")) {
        Some(link) => Err(format!("{} is a link of mode {}", link.name, link.mode)),
        None => Ok(()),
    }
}

/// Serves the devices of the generator with `plane` until `stop`.
pub(super) fn work(plane: SinglePlane, stop: &AtomicBool) -> Result<(), String> {
    let gateway = Planes::open(&links(false)).map_err(text)?;
    let forwarded = Arc::new(AtomicU64::new(0));
    let application = OnWorker { plane, out: Datagrams::default(), forwarded: forwarded.clone() };
    let listen = [SocketAddr::from(LOCAL)];
    let _running = gateway.sockets().run(&listen, Box::new(application)).map_err(text)?;
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
    }
    check_links(&gateway)?;
    match forwarded.load(Ordering::Relaxed) {
        0 => Err("nothing forwarded".to_owned()),
        _ => Ok(()),
    }
}

/// The single plane as an application.
struct OnWorker {
    plane: SinglePlane,
    out: Datagrams,
    forwarded: Arc<AtomicU64>,
}

impl SocketApplication for OnWorker {
    fn handle(&mut self, sockets: &mut ApplicationSockets<'_, '_>) {
        let Self { plane, out, forwarded } = self;
        while let Some(socket) = sockets.next_ready() {
            for _ in 0..sockets.waiting(socket) {
                let Some(datagram) = sockets.receive(socket) else { break };
                let SocketAddr::V4(from) = datagram.from() else { continue };
                plane.handle(now(), from, datagram.octets(), out);
                send(sockets, socket, datagram.origin(), out);
            }
        }
        forwarded.store(plane.counters().forwarded, Ordering::Relaxed);
    }
}

/// Sends what a message led to.
fn send(
    sockets: &mut ApplicationSockets<'_, '_>,
    socket: SocketIndex,
    origin: Origin,
    out: &mut Datagrams,
) {
    for (to, octets) in out.iter() {
        // What finds no free packet is lost, and missing at the receiver.
        let _lost = sockets.send(socket, octets, to.address(REMOTE).into(), origin);
    }
    out.clear();
}
