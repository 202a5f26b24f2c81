//! Links whose frames are IP packets: no header, no addresses, nothing to resolve.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod common;

use common::{
    A, Gateway, LAN, LAN_IP, LAN_MAC, WAN, address, ether, from_a, interface, ipv4,
    ipv6::{echo_request, frame},
};
use gatewright_packet::LinkAddress;
use gatewright_stack::{
    Address, AddressState, Attachment, AttachmentId, Counter, Handler, Interface, Place, Side,
    SuiteLink, Swap,
    builtin::{Capture, Filter, Match, Mirror},
};
use gatewright_wire::{EtherType, Framing, IpProtocol, MacAddress};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Our end of the raw link, and the other one.
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 0, 9, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 0, 9, 2);
const NEAR6: Ipv6Addr = Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, 1);
const FAR6: Ipv6Addr = Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, 2);

/// The LAN is Ethernet, the WAN raw IP.
fn gateway() -> Gateway {
    let mut gateway = Gateway::of(&[SuiteLink::Ethernet(LAN), SuiteLink::RawIp(WAN)], |_| {});
    let own = |ip: IpAddr| Address { ip, prefix_len: 64, state: AddressState::Preferred };
    let addresses = vec![address(NEAR, 24), own(NEAR6.into())];
    let lan = interface(LAN, LAN_MAC, vec![address(LAN_IP, 24)]);
    gateway.host.add_interface(lan).unwrap();
    let line = interface(WAN, MacAddress::ZERO, addresses);
    let line = Interface { link_address: LinkAddress::NONE, ..line };
    gateway.host.add_interface(line).unwrap();
    let spoken = gateway.tick(10);
    // RFC 5227 and RFC 4862 check addresses against stations on a shared medium: here is none.
    let wan: Vec<_> = spoken.iter().filter(|(link, _)| *link == WAN).collect();
    assert!(wan.is_empty(), "{wan:x?}");
    gateway.introduce(LAN, LAN_MAC, LAN_IP, A);
    gateway
}

/// What leaves by the raw link is the packet itself, to whichever neighbour; what comes is
/// forwarded as from any link.
#[test]
fn packets_pass_without_a_header_and_without_resolution() {
    let mut gateway = gateway();
    let there = |ttl| ipv4(A.1, FAR, IpProtocol::UDP, b"data", |ip| ip.time_to_live = ttl);
    assert_eq!(gateway.receive(LAN, &[from_a(&there(64))]), [(WAN, there(63))]);
    let back = |ttl| ipv4(FAR, A.1, IpProtocol::UDP, b"data", |ip| ip.time_to_live = ttl);
    let sent = ether(A.0, LAN_MAC, EtherType::IPV4, &back(63));
    assert_eq!(gateway.receive(WAN, &[back(64)]), [(LAN, sent)]);
    assert!(gateway.drops().is_empty() && gateway.is_clean(), "{:?}", gateway.drops());
}

/// An echo to our own addresses, of both families, is answered at once.
#[test]
fn the_host_answers_at_both_families() {
    let mut gateway = gateway();
    // RFC 792: an echo is type 8 with code 0, its reply type 0. 0x0800 + 0x0001 = !0xf7fe.
    let echo = ipv4(FAR, NEAR, IpProtocol::ICMPV4, &[8, 0, 0xf7, 0xfe, 0, 0, 0, 1], |_| {});
    let answers = gateway.receive(WAN, &[echo]);
    assert_eq!(answers.len(), 1, "{:?}", gateway.drops());
    assert_eq!((answers[0].0, answers[0].1[0] >> 4, answers[0].1[20]), (WAN, 4, 0));
    let ends = (FAR6, NEAR6);
    let mac = MacAddress::ZERO;
    let message = echo_request(ends, b"");
    let echo = frame(mac, mac, IpProtocol::ICMPV6, ends, 64, &message).split_off(14);
    let answers = gateway.receive(WAN, &[echo]);
    assert_eq!(answers.len(), 1, "{:?}", gateway.drops());
    assert_eq!((answers[0].0, answers[0].1[0] >> 4, answers[0].1[40]), (WAN, 6, 129));
}

#[test]
fn what_is_no_ip_packet_is_dropped_and_counted() {
    let mut gateway = gateway();
    assert!(gateway.receive(WAN, &[from_a(b"x"), Vec::new(), vec![0x50; 40]]).is_empty());
    let drops = gateway.drops();
    for expected in [("raw-ip", "truncated", 1), ("raw-ip", "not-ip", 2)] {
        assert!(drops.contains(&expected), "{drops:?}");
    }
    assert!(gateway.is_clean());
}

/// Attaches `handler` alone at the frames that come by the raw link.
fn at_frames(gateway: &mut Gateway, id: u32, handler: impl Handler + 'static) {
    let (id, at) = (AttachmentId(id), "frame".parse().unwrap());
    let attachment = Attachment { at, side: Side::Receive, place: Place::Before, link: Some(WAN) };
    let wiring = gateway.plan.wire(&[(id, attachment)]).unwrap();
    let handlers: Vec<(_, Box<dyn Handler>, _)> = vec![(id, Box::new(handler), Counter::default())];
    gateway.graph.swap(Swap { wiring, handlers });
}

/// A handler at `frame` finds the IP header where the link's frames have it.
#[test]
fn handlers_at_frames_know_how_these_begin() {
    let port = |port| Match { port: Some(port), ..Match::default() };
    let udp = |to: u8| vec![0, 9, 0, to, 0, 8, 0, 0];
    let mut gateway = gateway();
    at_frames(&mut gateway, 1, Filter::dropping(port(53)));
    for (to, sent) in [(53, 0), (54, 1)] {
        let packet = ipv4(FAR, A.1, IpProtocol::UDP, &udp(to), |_| {});
        assert_eq!(gateway.receive(WAN, &[packet]).len(), sent, "{to}");
    }
    let (capture, captured, _) = Capture::new("frame".parse().unwrap(), Side::Receive, port(54));
    at_frames(&mut gateway, 2, capture);
    let packet = ipv4(FAR, A.1, IpProtocol::UDP, &udp(54), |_| {});
    gateway.receive(WAN, std::slice::from_ref(&packet));
    let captured = captured.try_recv().unwrap();
    assert_eq!(captured.framing, Framing::Ip);
    assert_eq!(captured.octets.read(<[u8]>::to_vec), packet);
}

/// A frame is not copied to a link whose frames begin otherwise: nobody could read it there.
#[test]
fn a_mirror_does_not_mix_framings() {
    let mut gateway = gateway();
    let mirror = Mirror::new(LAN);
    at_frames(&mut gateway, 1, mirror.clone());
    let packet = ipv4(FAR, FAR, IpProtocol::UDP, b"data", |_| {});
    let sent = gateway.receive(WAN, &[packet]);
    assert!(sent.iter().all(|(link, _)| *link == WAN), "{sent:x?}");
    assert_eq!(mirror.missed(), 1);
}
