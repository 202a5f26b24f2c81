//! What the control side makes of what layers tell, with time as the test says.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use super::{Control, learnt::LEARNT_MAX};
use gatewright_link::{DriverForwarding, Exclusive, Framing, LinkInfo, Mode};
use gatewright_packet::{LinkAddress, LinkIndex};
use gatewright_part::{EventSink, LogEvent};
use gatewright_stack::{
    Address, AddressState, Event, Host, Interface, Lease, Plan, Route, RouterPreference,
};
use gatewright_tables::Prefix;
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

const LINK: LinkIndex = LinkIndex(0);
const PREFIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, 0);
/// Of the prefix and the interface identifier of [`OWN`] (RFC 2464 §4).
const FORMED: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0xff, 0xfe00, 0x10);
const OWN: LinkAddress = LinkAddress::ethernet([2, 0, 0, 0, 0, 0x10]);
const FAR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xff, 0, 0, 0, 0, 1);
const HOUR: Duration = Duration::from_hours(1);

/// A host that configures itself.
fn host() -> Control {
    let mut host = Host::new(1000).unwrap();
    let (name, mtu) = ("lan".to_owned(), 1500);
    let (up, autoconfigure) = (true, true);
    let interface = Interface {
        link: LINK,
        name,
        link_address: OWN,
        mtu,
        up,
        autoconfigure,
        ..Interface::default()
    };
    host.add_interface(interface).unwrap();
    Control::new(host, Plan::default(), Vec::new())
}

/// A log that keeps what is logged: kind and text.
fn kept(control: &mut Control) -> Arc<Mutex<Vec<LogEvent>>> {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&kept);
    control.log = EventSink::new(move |event| log.lock().unwrap().push(event));
    control.links = vec![("lan".to_owned(), LinkInfo { name: "eth0".to_owned(), ..device() })];
    kept
}

/// The kinds of what was logged since the last call.
fn kinds(kept: &Mutex<Vec<LogEvent>>) -> Vec<&'static str> {
    kept.lock().unwrap().drain(..).map(|event| event.kind).collect()
}

fn router(last: u16) -> IpAddr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last).into()
}

fn advertised(last: u16, lifetime: Duration, preference: RouterPreference) -> Event {
    Event::Router { link: LINK, address: router(last), lifetime, preference }
}

fn prefix(on_link: bool, valid: Duration, preferred: Duration) -> Event {
    let prefix = Prefix::new(PREFIX, 64).unwrap();
    Event::Prefix { link: LINK, prefix, on_link, autonomous: true, valid, preferred }
}

fn address(control: &Control, ip: impl Into<IpAddr>) -> Option<Address> {
    let ip = ip.into();
    control.host.interfaces()[0].addresses.iter().find(|own| own.ip == ip).copied()
}

fn state(control: &Control) -> Option<AddressState> {
    address(control, FORMED).map(|own| own.state)
}

/// Where packets for `to` go, if there is a way.
fn route(control: &Control, to: Ipv6Addr) -> Option<Route> {
    Some(control.host.view().route6(to)).filter(|route| *route != Route::None)
}

fn default_router(control: &Control) -> Option<IpAddr> {
    match control.host.route6_to(Prefix::all()) {
        Some(Route::Via { gateway, .. }) => Some(gateway),
        _ => None,
    }
}

/// RFC 4862 §5.5.4: tentative, preferred, deprecated, gone.
#[test]
fn a_formed_address_lives_as_its_prefix_says() {
    let (mut control, now) = (host(), Instant::now());
    control.learn(prefix(true, 2 * HOUR, HOUR), now);
    assert_eq!(state(&control), Some(AddressState::Tentative));
    control.learn(Event::Unique { link: LINK, address: FORMED.into() }, now);
    assert_eq!(state(&control), Some(AddressState::Preferred));
    control.expire(now + Duration::from_secs(3599));
    assert_eq!(state(&control), Some(AddressState::Preferred));
    control.expire(now + HOUR);
    assert_eq!(state(&control), Some(AddressState::Deprecated));
    control.learn(prefix(true, 2 * HOUR, HOUR), now + HOUR);
    assert_eq!(state(&control), Some(AddressState::Preferred), "advertised again");
    control.expire(now + 3 * HOUR);
    assert_eq!(state(&control), None);
    assert_eq!(route(&control, FORMED), None, "nor is its prefix on the link");
}

/// RFC 4862 §5.5.3 (e): an advertisement, which may be forged, cuts the valid lifetime to two hours at
/// the least, and takes no address away that has less.
#[test]
fn no_advertisement_takes_an_address_away_within_two_hours() {
    let (mut control, now) = (host(), Instant::now());
    control.learn(prefix(false, 10 * HOUR, HOUR), now);
    control.learn(prefix(false, Duration::ZERO, Duration::ZERO), now);
    control.expire(now + Duration::from_secs(7199));
    assert!(state(&control).is_some());
    control.learn(prefix(false, HOUR, HOUR), now + HOUR);
    control.expire(now + 2 * HOUR);
    assert!(state(&control).is_none(), "case 2 leaves the hour that was left");
    control.learn(prefix(false, Duration::ZERO, Duration::ZERO), now);
    assert!(state(&control).is_none(), "nothing is formed of a prefix that ends");
}

/// RFC 5942 §3: an address of a prefix that is not on the link says nothing of which others are.
#[test]
fn a_prefix_that_is_not_on_the_link_makes_no_subnet() {
    let (mut control, now) = (host(), Instant::now());
    control.learn(prefix(false, HOUR, HOUR), now);
    control.learn(Event::Unique { link: LINK, address: FORMED.into() }, now);
    assert_eq!(address(&control, FORMED).map(|own| own.prefix_len), Some(128));
    let other = Ipv6Addr::from_bits(PREFIX.to_bits() | 9);
    assert_eq!(route(&control, FORMED), Some(Route::Local));
    assert_eq!(route(&control, other), None);
    control.learn(prefix(true, HOUR, HOUR), now);
    assert_eq!(route(&control, other), Some(Route::Connected(LINK)));
    let over = Event::Prefix {
        link: LINK,
        prefix: Prefix::new(PREFIX, 64).unwrap(),
        on_link: true,
        autonomous: false,
        valid: Duration::ZERO,
        preferred: Duration::ZERO,
    };
    control.learn(over, now);
    assert_eq!(route(&control, other), None);
    assert_eq!(route(&control, FORMED), Some(Route::Local));
}

/// RFC 4861 §6.3.6 and RFC 4191 §3.2: the most preferred; of equal ones the one in use stays.
#[test]
fn the_last_router_to_speak_does_not_take_over() {
    use RouterPreference::{High, Low, Medium};
    let (mut control, now) = (host(), Instant::now());
    let log = kept(&mut control);
    control.learn(advertised(1, HOUR, Low), now);
    control.learn(advertised(2, HOUR, Medium), now);
    control.learn(advertised(3, HOUR, Medium), now);
    control.learn(advertised(1, HOUR, Low), now);
    assert_eq!(default_router(&control), Some(router(2)));
    control.learn(advertised(3, HOUR, High), now);
    assert_eq!(default_router(&control), Some(router(3)));
    control.learn(advertised(3, Duration::ZERO, Medium), now);
    assert_eq!(default_router(&control), Some(router(2)), "RFC 4861 §6.3.5");
    assert_eq!(kinds(&log), ["router-learnt", "router-learnt", "router-learnt", "router-lost"]);
    control.expire(now + HOUR);
    assert_eq!(default_router(&control), None);
    assert_eq!(kinds(&log), ["router-lost", "router-lost"], "their lifetimes are over");
}

/// RFC 4861 §8.3: a host sends by the better first hop, until that is gone.
#[test]
fn a_redirect_changes_the_way() {
    let (mut control, now) = (host(), Instant::now());
    control.learn(advertised(1, HOUR, RouterPreference::Medium), now);
    let redirect = |gateway| Event::Redirect { link: LINK, destination: FAR.into(), gateway };
    control.learn(redirect(router(9)), now);
    let via = |gateway| Some(Route::Via { link: LINK, gateway });
    assert_eq!(route(&control, FAR), via(router(9)));
    control.learn(redirect(router(8)), now);
    assert_eq!(route(&control, FAR), via(router(8)), "the latest counts");
    control.learn(advertised(8, Duration::ZERO, RouterPreference::Medium), now);
    assert_eq!(route(&control, FAR), via(router(1)));
    control.learn(redirect(FAR.into()), now);
    assert_eq!(route(&control, FAR), Some(Route::Connected(LINK)), "a neighbour itself");
    control.expire(now + Duration::from_mins(10));
    assert_eq!(route(&control, FAR), via(router(1)));
}

/// RFC 4861 §6.3.4: a router makes the link's packets smaller, never larger than the device carries.
#[test]
fn a_router_says_how_large_packets_may_be() {
    let (mut control, now) = (host(), Instant::now());
    let mtu = |control: &Control| control.host.interfaces()[0].mtu;
    for (said, expected) in [(9000, 1500), (1400, 1400), (1450, 1450), (9000, 1500), (1280, 1280)] {
        control.learn(Event::LinkMtu { link: LINK, mtu: said }, now);
        assert_eq!(mtu(&control), expected, "{said}");
    }
    control.close(LINK, true);
    assert_eq!(mtu(&control), 1500, "the link may come up as another network");
}

/// Packets are as large as the device carries now, the description allows and a router has said;
/// frames come from the device's address unless the description has one.
#[test]
fn a_device_that_is_changed_is_followed() {
    let other = LinkAddress::ethernet([2, 0, 0, 0, 0, 0x11]);
    for (described_mtu, described) in [(1500, OWN), (1400, OWN), (1500, other)] {
        let now = Instant::now();
        let mut control = host();
        control.links = vec![("lan".to_owned(), device())];
        control.mtu_caps = vec![(LINK, described_mtu)];
        control.host.change_interface(LINK, |own| {
            (own.mtu, own.link_address) = (described_mtu, described);
        });
        let own = |control: &Control| {
            let own = &control.host.interfaces()[0];
            (own.mtu, own.link_address)
        };
        let new = LinkAddress::ethernet([2, 0, 0, 0, 0, 0x12]);
        let follows = if described == OWN { new } else { described };
        for device in [1300, 1280, 1500, 1450, 1700, 1500] {
            let event = Event::Device { link: LINK, link_address: new, mtu: device };
            control.learn(event, now);
            assert_eq!(own(&control), (device.min(described_mtu), follows), "{device}");
        }
        control.learn(Event::LinkMtu { link: LINK, mtu: 1350 }, now);
        let unnamed = |mtu| Event::Device { link: LINK, link_address: LinkAddress::NONE, mtu };
        control.learn(unnamed(1500), now);
        assert_eq!(own(&control), (1350, follows));
        control.learn(unnamed(1300), now);
        assert_eq!(own(&control), (1300, follows));
    }
}

/// A device as it was opened.
fn device() -> LinkInfo {
    LinkInfo {
        name: "eth0".to_owned(),
        mode: Mode::PacketSocket,
        why: String::new(),
        framing: Framing::Ethernet,
        link_address: OWN,
        mtu: 1500,
        partial_checksums: false,
        exclusive: Exclusive::Shared,
        driver: String::new(),
        kernel_index: 1,
        queues: Vec::new(),
        receivers: 1,
        driver_forwarding: DriverForwarding::NotAsked,
    }
}

/// A link that goes down may come up as another network: nothing that was learnt there stays.
#[test]
fn a_link_that_goes_down_is_forgotten() {
    let (mut control, now) = (host(), Instant::now());
    control.learn(advertised(1, HOUR, RouterPreference::Medium), now);
    control.learn(prefix(true, HOUR, HOUR), now);
    control.learn(Event::Unique { link: LINK, address: FORMED.into() }, now);
    let log = kept(&mut control);
    control.close(LINK, true);
    let lost = ["link-closed", "router-lost", "prefix-lost", "address-lost"];
    assert_eq!(kinds(&log), lost);
    control.close(LINK, false);
    assert_eq!(kinds(&log), ["link-reopened"]);
    assert_eq!((default_router(&control), state(&control)), (None, None));
    assert_eq!(route(&control, FORMED), None);
}

/// A duplicate that has gone is used again; an event about an address that has gone brings it not back.
#[test]
fn a_duplicate_that_is_found_unique_is_used_again() {
    let (mut control, now) = (host(), Instant::now());
    let log = kept(&mut control);
    let ip = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    let unique = Event::Unique { link: LINK, address: ip };
    control.learn(unique.clone(), now);
    assert_eq!(address(&control, ip), None);
    let own = Address { ip, prefix_len: 24, state: AddressState::Preferred };
    control.host.add_address(LINK, own).unwrap();
    let duplicate = Event::Duplicate { link: LINK, address: ip, by: OWN };
    control.learn(duplicate.clone(), now);
    let state = |control: &Control| address(control, ip).map(|own| own.state);
    assert_eq!(state(&control), Some(AddressState::Duplicate));
    control.learn(unique.clone(), now);
    assert_eq!(state(&control), Some(AddressState::Preferred));
    let text = log.lock().unwrap()[0].text.clone();
    let said = "192.0.2.1 is not used on link lan: the station 02:00:00:00:00:10 has it, too";
    assert!(text.starts_with(said), "{text}");
    assert_eq!(kinds(&log), ["address-duplicate", "address-ready"]);
}

/// RFC 3442: routes of a lease, by routers and on the link; those of a renewal replace them.
#[test]
fn routes_of_a_lease_come_and_go_with_it() {
    let (mut control, now) = (host(), Instant::now());
    let to = |last| Prefix::new(Ipv4Addr::new(198, 51, 100, last), 32).unwrap();
    let lease = |routes| Event::Lease {
        link: LINK,
        lease: Some(Lease {
            address: Ipv4Addr::new(192, 0, 2, 9),
            prefix_len: 24,
            routers: vec![Ipv4Addr::new(192, 0, 2, 1)],
            name_servers: Vec::new(),
            routes,
            duration: Duration::MAX,
        }),
    };
    let (by, here) = (Ipv4Addr::new(192, 0, 2, 7), Ipv4Addr::UNSPECIFIED);
    let log = kept(&mut control);
    control.learn(lease(vec![(to(1), by), (to(2), here)]), now);
    assert_eq!(kinds(&log), ["lease-learnt"]);
    let via = Route::Via { link: LINK, gateway: by.into() };
    assert_eq!(control.host.route_to(to(1)), Some(via));
    assert_eq!(control.host.route_to(to(2)), Some(Route::Connected(LINK)));
    control.learn(lease(vec![(to(1), by)]), now);
    assert_eq!(control.host.route_to(to(2)), None);
    assert!(control.host.route_to(Prefix::all()).is_some(), "a lease without end, too");
    kinds(&log);
    control.learn(Event::Lease { link: LINK, lease: None }, now);
    assert_eq!(control.host.routes().count(), 0);
    assert_eq!(kinds(&log), ["address-lost", "router-lost", "lease-lost"]);
}

/// What routers make us keep is bounded; that it is too much is told once.
#[test]
fn a_flood_of_prefixes_is_bounded() {
    let (mut control, now) = (host(), Instant::now());
    let log = kept(&mut control);
    for number in 0..2 * u16::try_from(LEARNT_MAX).unwrap() {
        let prefix = Prefix::new(Ipv6Addr::new(0x2001, 0xdb8, number, 0, 0, 0, 0, 0), 64).unwrap();
        let (on_link, autonomous) = (true, true);
        let (link, valid, preferred) = (LINK, HOUR, HOUR);
        control.learn(Event::Prefix { link, prefix, on_link, autonomous, valid, preferred }, now);
    }
    assert!(control.host.interfaces()[0].addresses.len() <= LEARNT_MAX);
    assert!(control.host.routes6().count() <= 2 * LEARNT_MAX);
    let full = kinds(&log).into_iter().filter(|kind| *kind == "learnt-full");
    assert_eq!(full.count(), 1);
}

/// Each worker that has a share reports that the link is down: it is logged once.
#[test]
fn a_link_that_goes_and_comes_back_is_logged_once_each() {
    let (mut control, now) = (host(), Instant::now());
    let log = kept(&mut control);
    control.learn(Event::Link { link: LINK, up: true }, now);
    for worker in 0..2 {
        control.host.tables_mut().downs.set(LINK.0, worker, false);
        control.learn(Event::Link { link: LINK, up: false }, now);
    }
    let text = log.lock().unwrap()[0].text.clone();
    assert!(text.starts_with("link lan is down: its device eth0 has gone"), "{text}");
    for worker in 0..2 {
        control.host.tables_mut().downs.set(LINK.0, worker, true);
        control.learn(Event::Link { link: LINK, up: true }, now);
    }
    assert_eq!(kinds(&log), ["link-down", "link-up"]);
    control.learn(Event::PathMtu { destination: FAR.into(), mtu: 1400 }, now);
    assert_eq!(kinds(&log), ["path-mtu"]);
}
