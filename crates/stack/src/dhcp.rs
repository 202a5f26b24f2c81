//! The DHCP client for IPv4 (RFC 2131), on all links that ask for an address.

mod client;
mod offer;

use crate::{
    AddressState, At, Event, Layer, Out, Reason, UNCLAIMED, arp::NO_FRAME, random::Random, udp,
};
use client::{DhcpClient, Output};
use gatewright_packet::{Batch, LinkIndex};
use gatewright_wire::{EtherType, Port};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

/// No client runs on the link that received the message.
const NO_CLIENT: Reason = Reason("no-client");

/// A DHCP client on each link whose [`Interface`](crate::Interface) asks for one.
///
/// Receives the payloads of `udp:68`, sends by `local:ipv4`, and reports [`Event::Lease`] when a
/// lease begins, is prolonged, or ends. A lease that is no longer wanted is released. After its link
/// was down, a lease is confirmed if it has not ended (RFC 2131 §4.4.2). If another
/// host has the leased address (its state becomes [`AddressState::Duplicate`]), the lease is
/// declined. Drops `no-client`, and invalid messages by cause.
#[derive(Debug)]
pub struct DhcpLayer {
    clients: Vec<(LinkIndex, DhcpClient)>,
    random: Random,
}

impl DhcpLayer {
    /// Clients for all links that request an address; `random` makes transactions unpredictable.
    pub fn new(random: u64) -> Self {
        Self { clients: Vec::new(), random: Random::new(random) }
    }

    fn settle(&mut self, out: &mut Out<'_>) {
        for (link, client) in &mut self.clients {
            while let Some(output) = client.poll_output() {
                match output {
                    Output::Send { from, to, message } => send(*link, from, to, &message, out),
                    Output::Lease(lease) => out.report(Event::Lease { link: *link, lease }),
                }
            }
        }
    }
}

impl Layer for DhcpLayer {
    fn name(&self) -> &'static str {
        "dhcp"
    }

    fn receive(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        for packet in batch.drain() {
            let link = packet.meta().ingress;
            let client = self.clients.iter_mut().find(|(on, _)| *on == link);
            let heard = client
                .map_or(Err(NO_CLIENT), |(_, client)| client.handle(out.now(), packet.octets()));
            if let Err(reason) = heard {
                out.drop(reason, packet);
            }
        }
        self.settle(out);
    }

    fn transmit(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        for packet in batch.drain() {
            out.drop(UNCLAIMED, packet);
        }
    }

    fn handle_host(&mut self, out: &mut Out<'_>) {
        let now = out.now();
        let asks = |link: LinkIndex, out: &Out<'_>| {
            out.host().interface(link).is_some_and(|interface| interface.dhcp)
        };
        // A server knows its clients by their stations.
        let is_other = |link: LinkIndex, client: &DhcpClient, out: &Out<'_>| {
            let interface = out.host().interface(link);
            interface.is_some_and(|own| own.ethernet_address() != Some(client.mac()))
        };
        self.clients.retain(|(link, client)| !is_other(*link, client, out));
        for (link, client) in self.clients.iter_mut().filter(|(link, _)| !asks(*link, out)) {
            // Where the link is down there is nobody to tell.
            if out.host().interface(*link).is_some_and(|interface| interface.up) {
                client.release(now);
            }
        }
        self.settle(out);
        self.clients.retain(|(link, _)| asks(*link, out));
        for interface in out.host().interfaces().iter().filter(|interface| interface.dhcp) {
            let known = self.clients.iter_mut().find(|(link, _)| *link == interface.link);
            let duplicate = |ip: Ipv4Addr| {
                interface
                    .addresses
                    .iter()
                    .any(|address| address.ip == ip && address.state == AddressState::Duplicate)
            };
            match known {
                Some((_, client)) if !interface.up => client.link_down(),
                Some((_, client)) if client.address().is_some_and(duplicate) => client.decline(now),
                Some((_, client)) => client.link_up(now),
                // Messages of other link layers have no hardware type of RFC 2131 here.
                None => {
                    if let Some(mac) = interface.ethernet_address().filter(|_| interface.up) {
                        let client = DhcpClient::new(mac, now, self.random.draw());
                        self.clients.push((interface.link, client));
                    }
                }
            }
        }
        self.settle(out);
    }

    fn handle_end(&mut self, out: &mut Out<'_>) {
        for (_, client) in &mut self.clients {
            client.release(out.now());
        }
        self.settle(out);
        self.clients.clear();
    }

    fn poll_timeout(&self) -> Option<Duration> {
        self.clients.iter().filter_map(|(_, client)| client.poll_timeout()).min()
    }

    fn handle_timeout(&mut self, out: &mut Out<'_>) {
        for (_, client) in &mut self.clients {
            client.handle_timeout(out.now());
        }
        self.settle(out);
    }
}

fn send(link: LinkIndex, from: Ipv4Addr, to: Ipv4Addr, message: &[u8], out: &mut Out<'_>) {
    let at = |ip: Ipv4Addr, port: Port| SocketAddr::new(IpAddr::V4(ip), port.0);
    let made = out.frames().packet_of(message).and_then(|mut packet| {
        udp::wrap(&mut packet, at(from, Port::DHCP_CLIENT), at(to, Port::DHCP_SERVER))?;
        packet.meta_mut().egress = link;
        Some(packet)
    });
    match made {
        Some(packet) => out.push_or_drop(At::Local(EtherType::IPV4), packet),
        None => out.count(NO_FRAME),
    }
}
