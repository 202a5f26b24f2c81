//! The whole stack: any frames, on any of its links, at any times.

use super::{LAN, Links, VLAN, repair, station_of};
use gatewright_packet::LinkIndex;
use gatewright_stack::{Drops, EdgeTarget, Side};
use gatewright_wire::MacAddress;
use std::{collections::BTreeMap, time::Duration};

/// Octets in front of each frame: how it comes, the pause before it, and its length.
const STEP: usize = 3;

/// Octets of one unit of a frame's length.
pub(super) const UNIT: usize = 6;

/// Bits of the first octet.
pub(super) const LINK: u8 = 0b0000_0011;
pub(super) const TO: u8 = 0b0000_1100;
pub(super) const AS_IT_IS: u8 = 0b0001_0000;

/// Frames to a gateway with four links. Each is an octet on how it comes, one for the pause before
/// it (milliseconds, squared), one for its length (times six), and its octets.
///
/// Lengths and checksums are repaired unless a bit says otherwise, and a frame is addressed to the
/// gateway's station, to all, or to the group of its packet, so that the fuzzer need not guess
/// them. At the end nothing may be lost that was not counted: all chunks are home or wait within
/// their bounds.
pub fn gateway(octets: &[u8]) {
    if let Some(links) = run(octets) {
        links.end();
    }
}

/// What a run reached.
#[derive(Debug, Default)]
pub struct Reached {
    /// Packets that each layer took from below.
    pub taken: BTreeMap<&'static str, u64>,
    /// What each layer dropped, by reason.
    pub dropped: BTreeMap<(&'static str, &'static str), u64>,
}

impl Reached {
    /// Adds another run.
    pub fn add(&mut self, other: Self) {
        for (layer, count) in other.taken {
            *self.taken.entry(layer).or_default() += count;
        }
        for (drop, count) in other.dropped {
            *self.dropped.entry(drop).or_default() += count;
        }
    }

    /// Packets that a layer took and did not drop.
    pub fn accepted(&self, layer: &str) -> u64 {
        let taken = self.taken.get(layer).copied().unwrap_or_default();
        let dropped = self.dropped.iter().filter(|((of, _), _)| *of == layer);
        taken.saturating_sub(dropped.map(|(_, count)| count).sum())
    }
}

/// Runs [`gateway`] and counts what it reached.
pub fn gateway_reaches(octets: &[u8]) -> Reached {
    let mut reached = Reached::default();
    let Some(mut links) = run(octets) else { return reached };
    // What is reassembled or resolved in vain is given up, and told.
    links.advance(Duration::from_mins(2));
    let layers: Vec<_> = links.plan.layers().map(|(node, name, _)| (node, name)).collect();
    for &(node, name) in &layers {
        let taken = links
            .plan
            .ways()
            .filter(|(way, _)| way.to == EdgeTarget::Layer(node) && way.side == Side::Receive);
        *reached.taken.entry(name).or_default() += taken.map(|(_, packets)| packets).sum::<u64>();
        let drops = links.graph.drops_of(node);
        for (reason, count) in drops.iter().flat_map(Drops::iter) {
            *reached.dropped.entry((name, reason)).or_default() += count;
        }
    }
    reached
}

fn run(octets: &[u8]) -> Option<Links> {
    let mut links = Links::new()?;
    let mut xid = [0; 4];
    let mut rest = octets;
    while let Some((&[how, pause, units], behind)) = rest.split_first_chunk::<STEP>() {
        let len = (usize::from(units) * UNIT).min(behind.len());
        let (frame, behind) = behind.split_at(len);
        rest = behind;
        links.advance(Duration::from_millis(u64::from(pause).pow(2)));
        xid = last_xid(&links).unwrap_or(xid);
        let link = match how & LINK {
            3 => LAN,
            number => LinkIndex(number.into()),
        };
        let mut frame = frame.to_vec();
        if how & AS_IT_IS == 0 {
            repair::repair(&mut frame, xid);
        }
        let to = station(how & TO, link, &frame);
        if let (Some(to), Some(station)) = (to, frame.first_chunk_mut()) {
            *station = to.0;
        }
        links.sent.clear();
        links.receive(link, &frame);
        links.events.clear();
        links.delivered.try_iter().for_each(drop);
        assert_ne!(link, VLAN, "its frames come by the link below it");
    }
    Some(links)
}

/// The station to which a frame is addressed; none if its own octets name it.
fn station(to: u8, link: LinkIndex, frame: &[u8]) -> Option<MacAddress> {
    match to >> TO.trailing_zeros() {
        0 => Some(station_of(link)),
        1 => Some(MacAddress::BROADCAST),
        2 => match repair::destination(frame)? {
            &[a, b, c, d] => Some(MacAddress::of_ipv4_multicast([a, b, c, d].into())),
            address => {
                let octets: [u8; 16] = address.try_into().ok()?;
                Some(MacAddress::of_ipv6_multicast(octets.into()))
            }
        },
        _ => None,
    }
}

/// The transaction of the last DHCP message that left.
fn last_xid(links: &Links) -> Option<[u8; 4]> {
    // Ethernet, IPv4 and UDP without options: the client's ports, then the message.
    const PORTS: core::ops::Range<usize> = 34..38;
    const XID: core::ops::Range<usize> = 46..50;
    let from_client = |frame: &&Vec<u8>| frame.get(PORTS) == Some(&[0, 68, 0, 67]);
    let (_, frame) = links.sent.iter().rev().find(|(_, frame)| from_client(&frame))?;
    frame.get(XID)?.try_into().ok()
}
