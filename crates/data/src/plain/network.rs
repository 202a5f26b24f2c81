//! Values of the stack: events, positions, filters, traces.

use super::{Plain, plain_enum, plain_newtype, plain_struct, static_text, taken};
use gatewright_stack::{
    At, Attachment, AttachmentId, Event, IcmpError, Lease, LinkTag, NeighbourLimits, Place, Reason,
    Reassembling, ReassemblyState, RouterPreference, Side, TraceOutcome, TraceStep, VirtualLink,
    VlanTag,
    builtin::{Among, Match, PortRange, Rule, Selector, Subnet, Verdict},
};
use gatewright_tables::{Family, Prefix};
use gatewright_wire::{EtherType, Framing, IpProtocol};

plain_newtype!(EtherType, IpProtocol, AttachmentId, Reason);
plain_enum!(Framing { 0 => Ethernet, 1 => Ip });
plain_enum!(Side { 0 => Receive, 1 => Transmit });
plain_enum!(Place { 0 => Before, 1 => Instead, 2 => After, 3 => Tap });
plain_struct!(Attachment { at, side, place, link });
plain_struct!(VlanTag { id, priority });
plain_enum!(LinkTag { 0 => Vlan(tag) });
plain_struct!(VirtualLink { link, below, tag });
plain_struct!(NeighbourLimits { neighbours, pending, resolutions_per_second });

plain_enum!(At {
    0 => Frame,
    1 => EtherType(value),
    2 => IpProtocol(value),
    3 => Icmpv4Type(value),
    4 => Icmpv6Type(value),
    5 => UdpPort(value),
    6 => TcpPort(value),
    7 => Dispatch(value),
    8 => Label(value),
    9 => Local(value),
    10 => Unresolved(value),
    11 => Error(layer, cause),
});

impl Plain for IcmpError {
    fn put(&self, to: &mut Vec<u8>) {
        let number = Self::ALL.iter().position(|cause| cause == self);
        number.unwrap_or(usize::MAX).put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Self::ALL.get(usize::take(from)?).copied()
    }
}

impl<A: Family + Plain> Plain for Prefix<A> {
    fn put(&self, to: &mut Vec<u8>) {
        self.address().put(to);
        self.len().put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Self::new(A::take(from)?, u8::take(from)?).ok()
    }
}

plain_enum!(RouterPreference { 0 => Low, 1 => Medium, 2 => High });
plain_struct!(Lease { address, prefix_len, routers, name_servers, routes, duration });

plain_enum!(Event {
    0 => Link { link, up },
    1 => Device { link, link_address, mtu },
    2 => Duplicate { link, address, by },
    3 => Conflict { link, address, by },
    4 => Unique { link, address },
    5 => Router { link, address, lifetime, preference },
    6 => Prefix { link, prefix, on_link, autonomous, valid, preferred },
    7 => LinkMtu { link, mtu },
    8 => Wanted { link, address },
    9 => Redirect { link, destination, gateway },
    10 => PathMtu { destination, mtu },
    11 => LearntFull { link },
    12 => Lease { link, lease },
    13 => Neighbour { link, address },
});

plain_struct!(Match { source, destination, protocol, port });
plain_enum!(Verdict { 0 => Accept, 1 => Drop });
plain_struct!(Subnet { address, bits });
plain_struct!(PortRange { first, last });
plain_struct!(Selector { source, destination, protocol, source_port, destination_port });
plain_struct!(Rule { which, verdict });

impl<T: Plain> Plain for Among<T> {
    fn put(&self, to: &mut Vec<u8>) {
        match self {
            Self::Any => to.push(0),
            Self::In(values) => {
                to.push(1);
                values.put(to);
            }
            Self::NotIn(values) => {
                to.push(2);
                values.put(to);
            }
        }
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Some(match u8::take(from)? {
            0 => Self::Any,
            1 => Self::In(Plain::take(from)?),
            2 => Self::NotIn(Plain::take(from)?),
            _ => return None,
        })
    }
}

plain_struct!(TraceStep {
    at,
    side,
    layer,
    ingress,
    egress,
    octets,
    framing,
    handlers,
    took,
    outcome,
    reassembly,
});
plain_struct!(Reassembling { state, fragments, octets, total });
plain_enum!(ReassemblyState { 0 => Waiting, 1 => Complete, 2 => GivenUp(reason) });

plain_enum!(TraceOutcome {
    0 => Passed,
    1 => Sent,
    2 => Taken(handler),
    3 => Dropped(reason),
    4 => HandedOver,
    5 => Kept,
});

impl Plain for &'static str {
    fn put(&self, to: &mut Vec<u8>) {
        (*self).to_owned().put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        String::take(from).map(|text| static_text(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_packet::{LinkAddress, LinkIndex};
    use std::{net::IpAddr, time::Duration};

    #[test]
    fn every_event_comes_back_from_its_octets() {
        let link = LinkIndex(3);
        let address: IpAddr = "2001:db8::7".parse().unwrap();
        let by = LinkAddress::ethernet([2, 0, 0, 0, 0, 9]);
        let lease = Lease {
            address: "192.0.2.7".parse().unwrap(),
            prefix_len: 24,
            routers: vec!["192.0.2.1".parse().unwrap()],
            name_servers: Vec::new(),
            routes: vec![(
                Prefix::new("198.51.100.0".parse().unwrap(), 24).unwrap(),
                "0.0.0.0".parse().unwrap(),
            )],
            duration: Duration::from_millis(3_600_500),
        };
        let lifetime = Duration::from_mins(30);
        let preference = RouterPreference::High;
        let prefix = Prefix::new("2001:db8::".parse().unwrap(), 64).unwrap();
        let (valid, preferred) = (Duration::MAX, Duration::ZERO);
        for event in [
            Event::Link { link, up: true },
            Event::Device { link, link_address: LinkAddress::NONE, mtu: 1500 },
            Event::Duplicate { link, address, by },
            Event::Conflict { link, address, by: LinkAddress::short([1, 2]) },
            Event::Unique { link, address: "192.0.2.1".parse().unwrap() },
            Event::Router { link, address, lifetime, preference },
            Event::Prefix { link, prefix, on_link: true, autonomous: false, valid, preferred },
            Event::LinkMtu { link, mtu: u32::MAX },
            Event::Wanted { link, address },
            Event::Redirect { link, destination: address, gateway: address },
            Event::PathMtu { destination: address, mtu: 1280 },
            Event::LearntFull { link },
            Event::Neighbour { link, address: Some(address) },
            Event::Neighbour { link, address: None },
            Event::Lease { link, lease: None },
            Event::Lease { link, lease: Some(lease) },
        ] {
            assert_eq!(Event::of(&event.octets()), Some(event));
        }
    }

    #[test]
    fn a_prefix_longer_than_an_address_is_refused() {
        let mut octets = Vec::new();
        "192.0.2.9".parse::<std::net::Ipv4Addr>().unwrap().put(&mut octets);
        33_u8.put(&mut octets);
        assert_eq!(Prefix::<std::net::Ipv4Addr>::of(&octets), None);
    }

    #[test]
    fn a_step_of_a_trace_comes_back_from_its_octets() {
        for outcome in [
            TraceOutcome::Passed,
            TraceOutcome::Sent,
            TraceOutcome::Taken(AttachmentId(7)),
            TraceOutcome::Dropped("no-route"),
            TraceOutcome::HandedOver,
            TraceOutcome::Kept,
        ] {
            let of = |state| Reassembling { state, fragments: 2, octets: 1528, total: Some(3008) };
            for (cause, reassembly) in IcmpError::ALL.into_iter().zip(
                [
                    None,
                    Some(of(ReassemblyState::Waiting)),
                    Some(of(ReassemblyState::Complete)),
                    Some(of(ReassemblyState::GivenUp(Reason("reassembly-timeout")))),
                ]
                .into_iter()
                .cycle(),
            ) {
                let step = TraceStep {
                    at: At::Error(EtherType::IPV4, cause),
                    side: Side::Transmit,
                    layer: Some("ipv4"),
                    ingress: LinkIndex(1),
                    egress: LinkIndex::NONE,
                    octets: vec![1, 2, 3],
                    framing: Some(Framing::Ip),
                    handlers: vec![AttachmentId(1)],
                    took: Duration::from_nanos(70),
                    outcome,
                    reassembly,
                };
                assert_eq!(TraceStep::of(&step.octets()), Some(step));
            }
        }
    }
}
