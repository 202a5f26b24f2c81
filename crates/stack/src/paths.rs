//! Path MTUs of destinations (RFC 1191, RFC 8201), and the sent packets that show that an ICMP
//! error is not forged (RFC 5927 §7, RFC 8899 §4.6).

use gatewright_wire::{
    IpProtocol,
    ipv4::Ipv4,
    ipv6::{Fragment, Ipv6},
};
use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher,
    net::IpAddr,
    time::Duration,
};

/// Maximum paths kept.
pub const PATHS_MAX: usize = 1024;

/// Maximum paths kept to the hosts of one subnet, of 24 bits or of 64.
pub const PATHS_OF_SUBNET_MAX: usize = 128;

/// Lifetime of a path MTU (RFC 8201 §5.3: "The recommended value for this timer is 10 minutes").
pub const PATH_MTU_FOR: Duration = Duration::from_mins(10);

/// Flows whose large packets are remembered: a power of two, each flow at the one place of its
/// hash.
const FLOWS: usize = 1024;

/// How long after a large packet an error about it is accepted: round trips are far shorter.
const SENT_FOR: Duration = Duration::from_secs(10);

/// Path MTUs learnt from ICMP errors, for packets of this host.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    mtus: HashMap<IpAddr, (u32, Duration)>,
    /// Allocated with the first large packet.
    sent: Vec<Option<(Flow, Duration)>>,
    hash: RandomState,
}

/// The result of learning a path MTU.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Learnt {
    /// An equal or lower value is known already.
    Known,
    /// The path MTU is lower than the known one.
    Lower,
    /// The same, and another path was forgotten for it.
    LowerForAnother,
}

impl Paths {
    /// Learns that the path to `destination` carries at most `mtu` octets.
    ///
    /// A value larger than the known one is not accepted: paths grow by the timer only. If there is
    /// no room for a further path, in all or for its subnet, the path learnt first is forgotten:
    /// errors report it again.
    pub fn learn(&mut self, destination: IpAddr, mtu: u32, now: Duration) -> Learnt {
        let learnt = match self.mtus.get(&destination) {
            Some(&(held, until)) if until > now && held <= mtu => return Learnt::Known,
            Some(_) => Learnt::Lower,
            None => self.make_room(destination),
        };
        self.mtus.insert(destination, (mtu, now + PATH_MTU_FOR));
        learnt
    }

    /// Forgets all paths, as when a link went down: it may come up on a different network.
    pub fn clear(&mut self) {
        self.mtus.clear();
    }

    /// Octets of the largest packet to `destination` over a link of `link_mtu`.
    pub fn mtu(&self, destination: IpAddr, link_mtu: u32, now: Duration) -> u32 {
        match self.mtus.get(&destination) {
            Some(&(mtu, until)) if until > now => mtu.min(link_mtu),
            _ => link_mtu,
        }
    }

    /// Remembers a sent large packet, whose IP header is at the front of `octets`.
    pub(crate) fn sent(&mut self, octets: &[u8], now: Duration) {
        let Some((flow, _)) = Flow::of(octets) else { return };
        if self.sent.is_empty() {
            self.sent = vec![None; FLOWS];
        }
        let place = self.place(&flow);
        if let Some(place) = self.sent.get_mut(place) {
            *place = Some((flow, now));
        }
    }

    /// The destination of the packet in an error, if this host has sent it lately and it was larger
    /// than `mtu`; `quoted` begins with its IP header.
    pub(crate) fn too_big(&self, quoted: &[u8], mtu: u32, now: Duration) -> Option<IpAddr> {
        let (flow, len) = Flow::of(quoted)?;
        let &(known, at) = self.sent.get(self.place(&flow))?.as_ref()?;
        let is_larger = u32::try_from(len).is_ok_and(|len| len > mtu);
        let is_ours = known == flow && now.saturating_sub(at) <= SENT_FOR;
        (is_ours && is_larger).then_some(flow.destination)
    }

    fn place(&self, flow: &Flow) -> usize {
        usize::try_from(self.hash.hash_one(flow)).unwrap_or_default() % FLOWS
    }

    /// Forgets the oldest path, of the same subnet or of all, if the maximum is reached.
    fn make_room(&mut self, destination: IpAddr) -> Learnt {
        let subnet = subnet_of(destination);
        let of_subnet = || self.mtus.iter().filter(|(to, _)| subnet_of(**to) == subnet);
        let first = if of_subnet().count() >= PATHS_OF_SUBNET_MAX {
            of_subnet().min_by_key(|(to, (_, until))| (*until, **to))
        } else if self.mtus.len() >= PATHS_MAX {
            self.mtus.iter().min_by_key(|(to, (_, until))| (*until, **to))
        } else {
            None
        };
        let Some(first) = first.map(|(to, _)| *to) else { return Learnt::Lower };
        self.mtus.remove(&first);
        Learnt::LowerForAnother
    }
}

/// The 24 or 64 bits that an address shares with those nearby, and its family.
pub(crate) const fn subnet_of(address: IpAddr) -> (bool, u64) {
    match address {
        IpAddr::V4(ip) => (true, (ip.to_bits() >> 8) as u64),
        IpAddr::V6(ip) => (false, (ip.to_bits() >> 64) as u64),
    }
}

/// The flow of a packet, as far as an error quotes it: an attacker that does not see our packets
/// has to guess a port.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Flow {
    source: IpAddr,
    destination: IpAddr,
    protocol: IpProtocol,
    /// The first octets of the upper-layer header: the ports, if it has any.
    beginning: [u8; 4],
}

impl Flow {
    /// Parses the packet whose IP header is at the front of `octets`; returns its flow and length.
    /// None for later fragments and truncated packets. Packets of this host have no extension
    /// headers except that of a fragment.
    fn of(octets: &[u8]) -> Option<(Self, usize)> {
        let (source, destination, protocol, payload, len): (IpAddr, IpAddr, _, _, _) =
            match octets.first()? >> 4 {
                4 => {
                    let (ip, _) = Ipv4::split(octets).ok()?;
                    let payload = octets.get(ip.header_len()..)?;
                    if ip.fragment_offset() != 0 {
                        return None;
                    }
                    let (from, to) = (ip.source_address(), ip.destination_address());
                    (from.into(), to.into(), ip.protocol(), payload, ip.total_length().into())
                }
                6 => {
                    let (ip, mut payload) = Ipv6::split(octets).ok()?;
                    let mut protocol = ip.next_header();
                    if protocol == IpProtocol::FRAGMENT {
                        let (fragment, behind) = Fragment::split(payload).ok()?;
                        if fragment.fragment_offset() != 0 {
                            return None;
                        }
                        (protocol, payload) = (fragment.next_header(), behind);
                    }
                    let (from, to) = (ip.source_address(), ip.destination_address());
                    let len = Ipv6::LEN + usize::from(ip.payload_length());
                    (from.into(), to.into(), protocol, payload, len)
                }
                _ => return None,
            };
        let beginning = *payload.first_chunk()?;
        Some((Self { source, destination, protocol, beginning }, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const NOW: Duration = Duration::from_secs(100);

    fn host(subnet: u8, host: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, subnet, host).into()
    }

    /// RFC 8201 §4: estimates grow by the timer only, after ten minutes.
    #[test]
    fn a_path_grows_again_when_its_time_is_over() {
        let mut paths = Paths::default();
        assert_eq!(paths.learn(host(0, 1), 1400, NOW), Learnt::Lower);
        assert_eq!(paths.learn(host(0, 1), 1450, NOW), Learnt::Known);
        assert_eq!(paths.learn(host(0, 1), 1300, NOW), Learnt::Lower);
        assert_eq!(paths.mtu(host(0, 1), 1500, NOW), 1300);
        assert_eq!(paths.mtu(host(0, 1), 1280, NOW), 1280);
        assert_eq!(paths.mtu(host(0, 1), 1500, NOW + PATH_MTU_FOR), 1500);
        assert_eq!(paths.learn(host(0, 1), 1450, NOW + PATH_MTU_FOR), Learnt::Lower);
    }

    #[test]
    fn no_subnet_has_more_than_its_share() {
        let mut paths = Paths::default();
        paths.learn(host(0, 1), 1300, NOW);
        for (second, of) in (1..).zip(0..=250) {
            let learnt = paths.learn(host(1, of), 1300, NOW + Duration::from_secs(second));
            let full = usize::from(of) >= PATHS_OF_SUBNET_MAX;
            assert_eq!(learnt, if full { Learnt::LowerForAnother } else { Learnt::Lower });
        }
        let late = NOW + Duration::from_mins(5);
        assert_eq!(paths.mtu(host(0, 1), 1500, late), 1300, "the other subnet's is there");
        assert_eq!(paths.mtus.len(), 1 + PATHS_OF_SUBNET_MAX);
        let held = (0..=250).filter(|of| paths.mtu(host(1, *of), 1500, late) == 1300);
        assert!(held.eq(123..=250), "the last ones");
        for subnet in 2..=20 {
            for of in 0..100 {
                paths.learn(host(subnet, of), 1300, late);
            }
        }
        assert_eq!(paths.mtus.len(), PATHS_MAX);
        assert_eq!(paths.mtu(host(0, 1), 1500, late), 1500, "the first of all had to go");
    }
}
