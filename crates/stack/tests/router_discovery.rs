//! Router discovery of IPv4 (RFC 1256), as router and as host.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod common;

use common::{A, Gateway, LAN, LAN_IP, LAN_MAC, address, ether, hex, interface, ipv4};
use gatewright_stack::{Advertise, Event, Interface, RouterPreference, SuiteLink};
use gatewright_wire::{EtherType, IpProtocol, MacAddress};
use std::{net::Ipv4Addr, time::Duration};

/// Where frames to 224.0.0.1 and 224.0.0.2 go (RFC 1112 §6.4).
const ALL_SYSTEMS: [u8; 6] = [0x01, 0x00, 0x5e, 0, 0, 1];
const ALL_ROUTERS: [u8; 6] = [0x01, 0x00, 0x5e, 0, 0, 2];

fn gateway(change: impl FnOnce(&mut Interface)) -> Gateway {
    let mut gateway = Gateway::of(&[SuiteLink::Ethernet(LAN)], |_| {});
    let mut lan = interface(LAN, LAN_MAC, vec![address(LAN_IP, 24)]);
    change(&mut lan);
    gateway.host.add_interface(lan).unwrap();
    gateway
}

/// The ICMP messages among what leaves in `seconds`, with where their frames go.
fn messages(gateway: &mut Gateway, seconds: u64) -> Vec<([u8; 6], Vec<u8>)> {
    let sent = gateway.tick(seconds).into_iter().map(|(_, frame)| frame);
    let icmp = |frame: &Vec<u8>| frame[12..14] == [0x08, 0x00] && frame[23] == 1;
    sent.filter(icmp)
        .map(|frame| {
            assert_eq!(frame[22], 1, "no router passes it on");
            (*frame.first_chunk().unwrap(), frame[34..].to_vec())
        })
        .collect()
}

/// One address of preference 0 for 1800 seconds, as RFC 1256 §3 lays it out.
fn advertisement() -> Vec<u8> {
    hex("09 00 e4f4 01 02 0708 0a000001 00000000")
}

fn advertise(interface: &mut Interface) {
    interface.advertise = Some(Advertise {
        interval: Duration::from_mins(10),
        lifetime: Duration::from_mins(30),
        hop_limit: 64,
        mtu: true,
    });
}

#[test]
fn a_router_advertises_itself_and_answers_hosts() {
    let mut router = gateway(advertise);
    assert_eq!(messages(&mut router, 1), [(ALL_SYSTEMS, advertisement())]);
    assert_eq!(messages(&mut router, 3), []);
    let question = hex("0a00 f5ff 00000000");
    let group = Ipv4Addr::new(224, 0, 0, 2);
    let packet = ipv4(A.1, group, IpProtocol::ICMPV4, &question, |ip| ip.time_to_live = 1);
    let frame = ether(MacAddress(ALL_ROUTERS), A.0, EtherType::IPV4, &packet);
    router.receive(LAN, &[frame.clone(), frame]);
    assert_eq!(messages(&mut router, 1), [(ALL_SYSTEMS, advertisement())], "one for both");
    // Three in the beginning, 16 seconds apart at the most, then none for 200 seconds or more.
    assert_eq!(messages(&mut router, 16).len(), 1);
    assert_eq!(messages(&mut router, 190), []);
    assert!(!messages(&mut router, 420).is_empty());
}

/// The same advertisement with a lifetime of zero, when the interface ceases to advertise and when the
/// gateway ends.
#[test]
fn a_router_that_ceases_to_advertise_says_so() {
    let last = (ALL_SYSTEMS, hex("09 00 ebfc 01 02 0000 0a000001 00000000"));
    let mut router = gateway(advertise);
    messages(&mut router, 20);
    router.host.change_interface(LAN, |interface| interface.advertise = None);
    assert_eq!(messages(&mut router, 60), std::slice::from_ref(&last));
    assert!(router.end().is_empty(), "it was said");
    let mut router = gateway(advertise);
    messages(&mut router, 20);
    let sent = router.end();
    let [(_, frame)] = &sent[..] else { unreachable!("{sent:?}") };
    assert_eq!((frame[..6].to_vec(), frame[34..].to_vec()), (last.0.to_vec(), last.1));
}

#[test]
fn a_host_asks_three_times_until_it_is_answered() {
    let host = |interface: &mut Interface| {
        (interface.autoconfigure, interface.forwarding) = (true, false);
    };
    let question = (ALL_ROUTERS, hex("0a00 f5ff 00000000"));
    assert_eq!(messages(&mut gateway(host), 60), [(); 3].map(|()| question.clone()));
    let mut asking = gateway(host);
    assert_eq!(messages(&mut asking, 1), [question]);
    let router = Ipv4Addr::new(10, 0, 0, 2);
    let told = hex("09 00 e4f3 01 02 0708 0a000002 00000000");
    let group = Ipv4Addr::new(224, 0, 0, 1);
    let packet = ipv4(router, group, IpProtocol::ICMPV4, &told, |ip| ip.time_to_live = 1);
    asking.events();
    asking.receive(LAN, &[ether(MacAddress(ALL_SYSTEMS), A.0, EtherType::IPV4, &packet)]);
    let lifetime = Duration::from_mins(30);
    let expected = Event::Router {
        link: LAN,
        address: router.into(),
        lifetime,
        preference: RouterPreference::Medium,
    };
    assert!(asking.events().contains(&expected));
    assert_eq!(messages(&mut asking, 60), []);
}

/// A router asks nobody, a host tells nobody, and a link that is shared is the kernel's.
#[test]
fn nobody_speaks_who_is_not_asked_to() {
    let silent: [fn(&mut Interface); 3] = [
        |_| {},
        |interface| interface.autoconfigure = true,
        |interface| {
            advertise(interface);
            interface.shared = true;
        },
    ];
    for change in silent {
        assert_eq!(messages(&mut gateway(change), 60), []);
    }
}
