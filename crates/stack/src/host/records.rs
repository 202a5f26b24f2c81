//! Conversion of interfaces, addresses and next hops to and from table records.

use super::{Address, AddressState, Advertise, Interface, Route};
use gatewright_packet::LinkIndex;
use gatewright_tables::{
    Tables, TablesWriter,
    records::{self, HopKind, Name, NextHop},
};
use std::time::Duration;

/// Writes all interfaces with their addresses; unchanged records are left alone.
pub(super) fn write(interfaces: &[Interface], tables: &mut TablesWriter) {
    let places: Vec<u32> = interfaces.iter().map(|own| own.link.0.into()).collect();
    let gone: Vec<u32> = (tables.interfaces.iter().map(|(place, _)| place))
        .filter(|place| !places.contains(place))
        .collect();
    for place in gone {
        tables.interfaces.remove(place);
    }
    for interface in interfaces {
        let (place, record) = (interface.link.0.into(), interface_record(interface));
        if tables.interfaces.get(place) != Some(record) {
            // Links beyond the table were refused.
            let _there = tables.interfaces.set(place, &record);
        }
    }
    let records = interfaces
        .iter()
        .flat_map(|own| own.addresses.iter().map(|address| address_record(own.link, *address)));
    let mut used = 0;
    for (place, record) in (0..).zip(records) {
        used = place + 1;
        if tables.addresses.get(place) != Some(record) {
            // As above.
            let _there = tables.addresses.set(place, &record);
        }
    }
    let gone: Vec<u32> =
        tables.addresses.iter().map(|(place, _)| place).filter(|place| *place >= used).collect();
    for place in gone {
        tables.addresses.remove(place);
    }
}

/// Reads all interfaces with their addresses into `interfaces`; returns whether each could be read.
pub(super) fn read(tables: &Tables, interfaces: &mut Vec<Interface>) -> bool {
    interfaces.clear();
    for (place, record) in tables.interfaces.iter() {
        let (Ok(record), Ok(link)) = (record, u16::try_from(place)) else { return false };
        interfaces.push(interface(LinkIndex(link), &record));
    }
    for (_, record) in tables.addresses.iter() {
        let Ok(record) = record else { return false };
        let own = interfaces.iter_mut().find(|own| own.link.0 == record.link);
        if let Some(own) = own {
            own.addresses.push(address(&record));
        }
    }
    true
}

/// Reads the next hops added since the last call.
pub(super) fn read_hops(tables: &Tables, hops: &mut Vec<Route>) {
    while let Ok(place) = u32::try_from(hops.len())
        && let Ok(Some(hop)) = tables.hops.get(place)
    {
        hops.push(route(Some(hop)));
    }
}

fn interface_record(interface: &Interface) -> records::Interface {
    use records::Interface as Flags;
    let advertise = interface.advertise.as_ref();
    let flags = [
        (interface.up, Flags::UP),
        (interface.forwarding, Flags::FORWARDING),
        (interface.promiscuous, Flags::PROMISCUOUS),
        (interface.autoconfigure, Flags::AUTOCONFIGURE),
        (interface.dhcp, Flags::DHCP),
        (interface.shared, Flags::SHARED),
        (!interface.shared, Flags::EXCLUSIVE),
        (advertise.is_some_and(|advertise| advertise.mtu), Flags::ADVERTISE_MTU),
    ];
    let flags = flags.into_iter().filter(|(on, _)| *on).fold(0, |flags, (_, flag)| flags | flag);
    let number = |number: u128| u32::try_from(number).unwrap_or(u32::MAX);
    records::Interface {
        // A name that is too long is for people only; the link is known by its place.
        name: Name::new(&interface.name).unwrap_or_default(),
        address: interface.link_address,
        mtu: interface.mtu,
        device: 0,
        flags,
        advertise_every_ms: advertise.map_or(0, |told| number(told.interval.as_millis()).max(1)),
        advertise_lifetime_s: advertise.map_or(0, |told| number(told.lifetime.as_secs().into())),
        advertise_hop_limit: advertise.map_or(0, |told| told.hop_limit),
    }
}

fn interface(link: LinkIndex, record: &records::Interface) -> Interface {
    use records::Interface as Flags;
    let is = |flag| record.flags & flag != 0;
    let advertise = || Advertise {
        interval: Duration::from_millis(record.advertise_every_ms.into()),
        lifetime: Duration::from_secs(record.advertise_lifetime_s.into()),
        hop_limit: record.advertise_hop_limit,
        mtu: is(Flags::ADVERTISE_MTU),
    };
    Interface {
        link,
        name: record.name.as_str().to_owned(),
        link_address: record.address,
        mtu: record.mtu,
        addresses: Vec::new(),
        promiscuous: is(Flags::PROMISCUOUS),
        up: is(Flags::UP),
        forwarding: is(Flags::FORWARDING),
        advertise: (record.advertise_every_ms > 0).then(advertise),
        autoconfigure: is(Flags::AUTOCONFIGURE),
        dhcp: is(Flags::DHCP),
        shared: is(Flags::SHARED),
    }
}

fn address_record(link: LinkIndex, address: Address) -> records::Address {
    use records::Address as Flags;
    records::Address {
        link: link.0,
        address: address.ip,
        prefix_len: address.prefix_len,
        flags: match address.state {
            AddressState::Tentative => Flags::TENTATIVE,
            AddressState::Preferred => 0,
            AddressState::Deprecated => Flags::DEPRECATED,
            AddressState::Duplicate => Flags::DUPLICATE,
        },
    }
}

fn address(record: &records::Address) -> Address {
    use records::Address as Flags;
    let is = |flag| record.flags & flag != 0;
    let state = match record.flags {
        _ if is(Flags::DUPLICATE) => AddressState::Duplicate,
        _ if is(Flags::TENTATIVE) => AddressState::Tentative,
        _ if is(Flags::DEPRECATED) => AddressState::Deprecated,
        _ => AddressState::Preferred,
    };
    Address { ip: record.address, prefix_len: record.prefix_len, state }
}

/// The record of a next hop.
pub(super) fn next_hop(route: Route) -> NextHop {
    let kind = |kind| NextHop { kind, ..NextHop::default() };
    match route {
        Route::Local => kind(HopKind::Local),
        Route::Broadcast(link) => NextHop { link: link.0, ..kind(HopKind::Broadcast) },
        Route::Connected(link) => NextHop::connected(link.0),
        Route::Via { link, gateway } => NextHop::via(link.0, gateway),
        Route::Group(group) => kind(HopKind::Group(group)),
        Route::Blackhole => kind(HopKind::Blackhole),
        Route::Kernel => kind(HopKind::Kernel),
        Route::Prohibited => kind(HopKind::Prohibited),
        Route::None => kind(HopKind::Unreachable),
    }
}

/// The route of a record; none if there is no record.
pub(super) fn route(hop: Option<NextHop>) -> Route {
    let Some(NextHop { kind, link, gateway, .. }) = hop else { return Route::None };
    let link = LinkIndex(link);
    match (kind, gateway) {
        (HopKind::Local, _) => Route::Local,
        (HopKind::Broadcast, _) => Route::Broadcast(link),
        (HopKind::Connected, _) => Route::Connected(link),
        (HopKind::Gateway, Some(gateway)) => Route::Via { link, gateway },
        (HopKind::Group(group), _) => Route::Group(group),
        (HopKind::Blackhole, _) => Route::Blackhole,
        (HopKind::Kernel, _) => Route::Kernel,
        (HopKind::Prohibited, _) => Route::Prohibited,
        (HopKind::Unreachable | HopKind::Gateway, _) => Route::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Host;
    use gatewright_packet::LinkAddress;
    use gatewright_tables::Prefix;
    use std::net::Ipv4Addr;

    fn everything() -> Interface {
        Interface {
            link: LinkIndex(3),
            name: "a-name-as-long-as-a-name-may-be-".to_owned(),
            link_address: LinkAddress::extended([2, 0, 0, 0, 0, 0, 0, 9]),
            mtu: 1400,
            addresses: vec![
                Address {
                    ip: "192.0.2.1".parse().unwrap(),
                    prefix_len: 24,
                    state: AddressState::Preferred,
                },
                Address {
                    ip: "fe80::1".parse().unwrap(),
                    prefix_len: 64,
                    state: AddressState::Duplicate,
                },
            ],
            promiscuous: true,
            up: true,
            forwarding: true,
            advertise: Some(Advertise {
                interval: Duration::from_mins(10),
                lifetime: Duration::from_mins(30),
                hop_limit: 64,
                mtu: true,
            }),
            autoconfigure: true,
            dhcp: true,
            shared: true,
        }
    }

    #[test]
    fn a_view_sees_interfaces_as_they_were_given() {
        let mut host = Host::new(100).unwrap();
        let mut view = host.view();
        assert!(!view.refresh(), "nothing was given yet");
        let other = Interface { link: LinkIndex(1), ..Interface::default() };
        host.add_interface(everything()).unwrap();
        host.add_interface(other.clone()).unwrap();
        assert!(view.refresh() && !view.refresh());
        assert_eq!(view.interface(LinkIndex(3)), Some(&everything()));
        assert_eq!(view.interface(LinkIndex(1)), Some(&other));
        host.remove_address(LinkIndex(3), "192.0.2.1".parse().unwrap());
        host.change_interface(LinkIndex(3), |interface| interface.up = false);
        assert!(view.refresh());
        let seen = view.interface(LinkIndex(3)).unwrap();
        assert_eq!((seen.addresses.len(), seen.up), (1, false));
    }

    #[test]
    fn several_changes_are_seen_together_or_not_yet() {
        let mut host = Host::new(100).unwrap();
        host.add_interface(everything()).unwrap();
        let mut view = host.view();
        host.change(|host| {
            host.change_interface(LinkIndex(3), |interface| interface.mtu = 1280);
            assert!(!view.refresh(), "not between two of them");
            host.change_interface(LinkIndex(3), |interface| interface.dhcp = false);
        });
        assert!(view.refresh());
        let seen = view.interface(LinkIndex(3)).unwrap();
        assert_eq!((seen.mtu, seen.dhcp), (1280, false));
    }

    #[test]
    fn a_next_hop_is_known_before_the_next_look() {
        let mut host = Host::new(100).unwrap();
        let view = host.view();
        let to = Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 8).unwrap();
        let gateway = "192.0.2.9".parse().unwrap();
        let routes = [
            Route::Local,
            Route::Broadcast(LinkIndex(1)),
            Route::Connected(LinkIndex(2)),
            Route::Via { link: LinkIndex(3), gateway },
            Route::Blackhole,
            Route::Kernel,
            Route::Prohibited,
            Route::None,
        ];
        for route in routes {
            host.add_route(to, route).unwrap();
            assert_eq!(view.route4(Ipv4Addr::new(10, 1, 1, 1)), route);
        }
    }
}
