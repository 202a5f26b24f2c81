//! The DHCP client: any answers of servers, links that go and come, at any times.

use super::{HOST, Links, station_of};
use gatewright_stack::{Address, AddressState, Event};
use gatewright_wire::{
    EtherType, IpProtocol, MacAddress,
    dhcpv4::{DhcpOption, DhcpType, Dhcpv4Fields, Operation, read, write},
    ethernet::EthernetFields,
    ipv4::{Ipv4, Ipv4Fields},
    udp::{Udp, UdpFields},
};
use std::{net::Ipv4Addr, time::Duration};

/// Octets of one event.
const EVENT: usize = 6;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 9, 53);
const SERVER_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 0x53]);
const MASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 0);

/// Octets of the longest message of a server.
const MESSAGE: usize = 600;

/// How much later than its end a lease may be given up: timers are not exact.
const SLACK: Duration = Duration::from_secs(2);

/// The least time between two messages that no server provoked: 4 seconds, less one (RFC 2131
/// §4.1).
const BETWEEN: u64 = 3;

/// What the client is known to do and to hold.
#[derive(Default)]
struct Known {
    xid: u32,
    requested: Option<Ipv4Addr>,
    /// The lease and its end.
    lease: Option<(Ipv4Addr, Duration)>,
    messages: u64,
    /// Messages, and reasons to send one that are not time.
    provoked: u64,
    since: Duration,
}

/// What servers, links and hosts do to a DHCP client. It says only what RFC 2131 lets it say (table
/// 4), not more often than it may, and holds no lease beyond its end.
pub fn leases(octets: &[u8]) {
    let Some(mut links) = Links::new() else { return };
    let mut known = Known { since: links.now, provoked: 8, ..Known::default() };
    let (events, _) = octets.as_chunks::<EVENT>();
    known.follow(&mut links);
    for &[kind, address, time, early, how, pause] in events {
        // Up to three hours, so that leases end.
        known.pass(&mut links, Duration::from_millis(u64::from(pause).pow(4) / 400));
        known.provoked += 4;
        match kind % 8 {
            0..=4 => {
                let kind = [DhcpType::OFFER, DhcpType::ACK, DhcpType::NAK, DhcpType::OFFER];
                let kind = kind.get(usize::from(how & 3)).copied().unwrap_or(DhcpType::ACK);
                let answer = known.answer(kind, [address, time, early, how]);
                links.receive(HOST, &answer);
            }
            5 => links.host.change_interface(HOST, |interface| interface.up = !interface.up),
            6 => links.host.change_interface(HOST, |interface| interface.dhcp = !interface.dhcp),
            _ => {
                if let Some((held, _)) = known.lease {
                    links.set_state(HOST, held.into(), AddressState::Duplicate);
                }
            }
        }
        links.advance(Duration::ZERO);
        known.follow(&mut links);
    }
    known.pass(&mut links, Duration::from_hours(3));
    links.end();
}

impl Known {
    /// Lets time pass in steps, so that the end of a lease is seen.
    fn pass(&mut self, links: &mut Links, time: Duration) {
        let end = links.now + time;
        while links.now < end {
            let lease_end = self.lease.map(|(_, until)| until.saturating_add(SLACK));
            let next = lease_end.filter(|&at| at > links.now).unwrap_or(end).min(end);
            links.advance(next.saturating_sub(links.now));
            self.follow(links);
        }
    }

    /// Reads what the client has said and learnt.
    fn follow(&mut self, links: &mut Links) {
        let up = links.host.interfaces().iter().any(|of| of.link == HOST && of.up && of.dhcp);
        let sent = std::mem::take(&mut links.sent);
        for message in sent.iter().filter(|(link, _)| *link == HOST).filter_map(message) {
            self.hear(message);
        }
        for event in std::mem::take(&mut links.events) {
            let Event::Lease { link, lease } = event else { continue };
            assert_eq!(link, HOST, "nobody else asks");
            self.forget(links);
            let Some(lease) = lease else { continue };
            assert!(!lease.address.is_unspecified() && !lease.duration.is_zero());
            self.lease = Some((lease.address, links.now.saturating_add(lease.duration)));
            let (ip, state) = (lease.address.into(), AddressState::Preferred);
            let _refused =
                links.host.add_address(HOST, Address { ip, prefix_len: lease.prefix_len, state });
        }
        if !up {
            // The control side forgets what it has learnt of a link that is down.
            self.forget(links);
        }
        if let Some((address, until)) = self.lease {
            assert!(links.now <= until.saturating_add(SLACK), "{address} is held beyond {until:?}");
        }
        let seconds = links.now.saturating_sub(self.since).as_secs();
        let most = self.provoked + seconds / BETWEEN;
        assert!(self.messages <= most, "{} messages in {seconds} s", self.messages);
    }

    fn forget(&mut self, links: &mut Links) {
        if let Some((address, _)) = self.lease.take() {
            links.host.remove_address(HOST, address.into());
        }
    }

    /// Judges a message by RFC 2131 §4.3.6 and table 5.
    fn hear(&mut self, octets: &[u8]) {
        let message = read(octets).ok();
        assert!(message.is_some(), "a message of ours is cut short");
        let Some((header, options)) = message else { return };
        assert_eq!((header.op(), header.hlen()), (Operation::BOOT_REQUEST, 6));
        let kind = options.message_type();
        let (mut requested, mut server) = (None, None);
        for option in options.flatten() {
            match option {
                DhcpOption::RequestedAddress(ip) => requested = Some(ip),
                DhcpOption::ServerIdentifier(ip) => server = Some(ip),
                _ => {}
            }
        }
        let held = !header.ciaddr().is_unspecified();
        let right = match kind {
            Some(DhcpType::DISCOVER) => !held && server.is_none(),
            // Selecting, rebooting, and renewing or rebinding.
            Some(DhcpType::REQUEST) => {
                matches!((held, requested, server), (false, Some(_), _) | (true, None, None))
            }
            Some(DhcpType::DECLINE) => !held && requested.is_some() && server.is_some(),
            Some(DhcpType::RELEASE) => held && requested.is_none() && server.is_some(),
            _ => false,
        };
        assert!(right, "{kind:?} with ciaddr {held}, {requested:?}, {server:?}");
        self.xid = header.xid();
        self.requested = requested.or(self.requested);
        self.messages += 1;
    }

    /// A server's message: of the client's transaction, unless the highest bit says otherwise.
    fn answer(&self, kind: DhcpType, [address, time, early, how]: [u8; 4]) -> Vec<u8> {
        let mut chaddr = [0; 16];
        for (to, from) in chaddr.iter_mut().zip(station_of(HOST).octets()) {
            *to = from;
        }
        let offered = Ipv4Addr::new(10, 0, 9, address);
        let same = self.requested.filter(|_| address & 1 == 0);
        let fields = Dhcpv4Fields {
            op: Operation::BOOT_REPLY,
            htype: 1,
            hlen: 6,
            hops: 0,
            xid: self.xid ^ u32::from(how >> 7),
            secs: 0,
            flags: 0,
            ciaddr: Ipv4Addr::UNSPECIFIED,
            yiaddr: same.unwrap_or(offered),
            siaddr: SERVER,
            giaddr: Ipv4Addr::UNSPECIFIED,
            chaddr,
            sname: [0; 64],
            file: [0; 128],
        };
        // From none over hours to days, and for ever.
        let seconds = if time == u8::MAX { u32::MAX } else { u32::from(time).pow(3) / 64 };
        let part = |of: u8| u32::try_from(u64::from(seconds) * u64::from(of) / 200).unwrap_or(0);
        let mut options = vec![DhcpOption::MessageType(kind), DhcpOption::SubnetMask(MASK)];
        let optional = [
            DhcpOption::ServerIdentifier(SERVER),
            DhcpOption::LeaseTime(seconds),
            DhcpOption::RenewalTime(part(early)),
            DhcpOption::RebindingTime(part(early.wrapping_mul(3))),
        ];
        for (bit, option) in (2..).zip(optional) {
            if how >> bit & 1 == 0 {
                options.push(option);
            }
        }
        let mut octets = [0; MESSAGE];
        carried(write(&mut octets, fields, &options).unwrap_or_default())
    }
}

/// The DHCP message of a frame of ours.
fn message((_, frame): &(gatewright_packet::LinkIndex, Vec<u8>)) -> Option<&[u8]> {
    let (ip, datagram) = Ipv4::split(frame.get(14..)?).ok()?;
    let (udp, message) = Udp::split(datagram).ok()?;
    let is_ours = frame.get(12..14) == Some(&[8, 0])
        && ip.protocol() == IpProtocol::UDP
        && (udp.source_port(), udp.destination_port()) == (68, 67);
    is_ours.then_some(message)
}

/// A frame with a server's message to all.
fn carried(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len() + Udp::LEN).unwrap_or_default();
    let udp = UdpFields { source_port: 67, destination_port: 68, length, checksum: 0 }.emit();
    let total = length + u16::try_from(Ipv4::LEN).unwrap_or_default();
    let ip = Ipv4Fields::new(IpProtocol::UDP, SERVER, Ipv4Addr::BROADCAST, total);
    let ether_type = EtherType::IPV4;
    let destination = MacAddress::BROADCAST;
    let ethernet = EthernetFields { destination, source: SERVER_MAC, ether_type }.emit();
    [&ethernet[..], &ip.emit_with_checksum(), &udp, message].concat()
}
