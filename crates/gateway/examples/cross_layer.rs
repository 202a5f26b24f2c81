//! A cross-layer gateway (EZgate paper, §6): small datagrams that wait are joined and sent on as one.
//!
//! The application runs on the worker. The count of what waits comes from below its socket, so it
//! reads exactly that many datagrams, never blocks, and holds none back for one that may not come.
//!
//! `cargo run --example cross_layer -- eth0 192.0.2.1 192.0.2.9:7000`, as root: what arrives on
//! port 7000 of 192.0.2.1 goes to the server.

use gatewright_gateway::{Planes, Setup};
use gatewright_stack::{ApplicationSockets, Origin, SocketApplication};
use std::{
    error::Error,
    net::{IpAddr, SocketAddr},
};

/// Joins datagrams end to end.
struct Joiner {
    server: SocketAddr,
}

impl SocketApplication for Joiner {
    fn handle(&mut self, sockets: &mut ApplicationSockets<'_, '_>) {
        while let Some(socket) = sockets.next_ready() {
            let limit = sockets.payload_max(self.server.ip()).unwrap_or_default();
            let (mut joined, mut origin) = (Vec::new(), Origin::default());
            for _ in 0..sockets.waiting(socket) {
                let Some(datagram) = sockets.receive(socket) else { break };
                if joined.len() + datagram.octets().len() > limit {
                    // Counted below if there is no route or no memory: UDP promises nothing.
                    let _not_sent = sockets.send(socket, &joined, self.server, origin);
                    joined.clear();
                }
                if joined.is_empty() {
                    origin = datagram.origin();
                }
                origin = origin.joined_by(datagram.origin());
                joined.extend_from_slice(datagram.octets());
            }
            let _not_sent = sockets.send(socket, &joined, self.server, origin);
        }
    }
}

/// Subnet bits of the address on the command line.
const SUBNET_BITS: u8 = 24;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let device = arguments.next().ok_or("name an interface")?;
    let address: IpAddr = arguments.next().ok_or("name an address of ours")?.parse()?;
    let server: SocketAddr = arguments.next().ok_or("name a server, ADDRESS:PORT")?.parse()?;
    let mut setup = Setup::new(1);
    setup.link("lan", &device).address(address, SUBNET_BITS);
    let gateway = Planes::open(&setup)?;
    let listen = SocketAddr::new(address, server.port());
    let _running = gateway.sockets().run(&[listen], Box::new(Joiner { server }))?;
    loop {
        std::thread::park();
    }
}
