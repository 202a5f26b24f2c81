//! Reads octets as a frame from outside in, and as each protocol by itself; panics where a law of
//! the readers is broken. Shared by the fuzz target `wire` and the replay of its corpus.

use gatewright_wire::{
    EtherType, IpProtocol, Writer, arp, coap, dhcpv4, ethernet, icmpv4, icmpv6, ieee802154, igmp,
    ipv4, ipv6, lowpan, mld, mpls, ndp, tcp, udp, vlan,
};

/// Headers of one kind behind each other that are followed, such as tags or extension headers.
const DEPTH_MAX: usize = 8;

pub(crate) fn walk(octets: &[u8]) {
    frame(octets);
    network(IpProtocol::IPV4, octets, DEPTH_MAX);
    network(IpProtocol::IPV6, octets, DEPTH_MAX);
    for protocol in 0..=u8::MAX {
        network(IpProtocol(protocol), octets, 1);
    }
    application(octets);
    wireless(octets);
}

fn frame(octets: &[u8]) {
    let Ok((ethernet, mut rest)) = ethernet::Ethernet::split(octets) else { return };
    assert_eq!(ethernet.fields().emit(), *ethernet.as_octets());
    let mut ether_type = ethernet.ether_type();
    for _ in 0..DEPTH_MAX {
        if ether_type != EtherType::VLAN {
            break;
        }
        let Ok((tag, behind)) = vlan::Vlan::split(rest) else { return };
        (ether_type, rest) = (tag.ether_type(), behind);
    }
    match ether_type {
        EtherType::ARP => drop(arp::Arp::split(rest).map(|(arp, _)| arp.fields())),
        EtherType::IPV4 => network(IpProtocol::IPV4, rest, DEPTH_MAX),
        EtherType::IPV6 => network(IpProtocol::IPV6, rest, DEPTH_MAX),
        EtherType::MPLS => {
            let mut stack = mpls::LabelStack::new(rest);
            assert!(stack.by_ref().count() <= mpls::STACK_DEPTH_MAX);
            network(IpProtocol::IPV4, stack.payload(), DEPTH_MAX);
        }
        _ => {}
    }
}

/// An item for each few octets, at most; nothing behind an error.
fn bounded<T, E>(octets: &[u8], items: impl Iterator<Item = Result<T, E>>) {
    let mut failed = false;
    for (count, item) in items.enumerate() {
        assert!(!failed && count <= octets.len());
        failed = item.is_err();
    }
}

fn network(protocol: IpProtocol, octets: &[u8], depth: usize) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match protocol {
        IpProtocol::IPV4 => {
            let Ok((header, rest)) = ipv4::Ipv4::split(octets) else { return };
            let Ok((options, payload)) = header.options(rest) else { return };
            bounded(options, ipv4::Ipv4Options::new(options));
            let emitted = header.fields().emit_with_options(options);
            assert!(ipv4::Ipv4::of(&emitted).is_checksum_valid(options));
            network(header.protocol(), payload, depth);
        }
        IpProtocol::IPV6 => {
            let Ok((header, payload)) = ipv6::Ipv6::split(octets) else { return };
            network(header.next_header(), payload, depth);
        }
        IpProtocol::HOP_BY_HOP | IpProtocol::DESTINATION_OPTIONS => {
            let Ok((header, rest)) = ipv6::ExtensionOptions::split(octets) else { return };
            let Ok((options, payload)) = header.options(rest) else { return };
            bounded(options, ipv6::Ipv6Options::new(options));
            network(header.next_header(), payload, depth);
        }
        IpProtocol::ROUTING => {
            let Ok((header, rest)) = ipv6::Routing::split(octets) else { return };
            let Ok((_, payload)) = header.type_specific_data(rest) else { return };
            network(header.next_header(), payload, depth);
        }
        IpProtocol::FRAGMENT => {
            let Ok((header, payload)) = ipv6::Fragment::split(octets) else { return };
            network(header.next_header(), payload, depth);
        }
        _ => transport(protocol, octets),
    }
}

fn transport(protocol: IpProtocol, octets: &[u8]) {
    match protocol {
        IpProtocol::TCP => {
            let Ok((header, rest)) = tcp::Tcp::split(octets) else { return };
            let Ok((options, _)) = header.options(rest) else { return };
            bounded(options, tcp::TcpOptions::new(options));
            let mut again = [0; tcp::HEADER_LEN_MAX];
            let mut writer = Writer::new(&mut again);
            for option in tcp::TcpOptions::new(options).map_while(Result::ok) {
                option.emit(&mut writer).expect("no longer than it was");
            }
            assert!(options.starts_with(writer.written()));
        }
        IpProtocol::UDP => {
            let Ok((_, payload)) = udp::Udp::split(octets) else { return };
            application(payload);
        }
        IpProtocol::ICMPV4 => {
            let Ok((icmp, _)) = icmpv4::Icmpv4::split(octets) else { return };
            let _ = icmp.kind().is_error();
            let Ok((routers, rest)) = icmpv4::RouterAdvertisement::split(octets) else { return };
            let _ = routers.router_addresses(rest);
        }
        IpProtocol::ICMPV6 => {
            let Ok((icmp, rest)) = icmpv6::Icmpv6::split(octets) else { return };
            let _ = icmp.kind().is_error();
            bounded(rest, ndp::NdpOptions::new(rest));
            let Ok((report, records)) = mld::ReportV2::split(octets) else { return };
            bounded(records, mld::Records::new(report.number_of_records(), records));
        }
        IpProtocol::IGMP => {
            let Ok((report, records)) = igmp::ReportV3::split(octets) else { return };
            bounded(records, igmp::Records::new(report.number_of_records(), records));
        }
        _ => {}
    }
}

fn application(octets: &[u8]) {
    if let Ok((_, options)) = dhcpv4::read(octets) {
        bounded(octets, options);
    }
    let Ok(message) = coap::Message::parse(octets) else { return };
    // What is read can be built, and is read as the same.
    let mut again = vec![0; octets.len() + 8];
    let (kind, code, id) = (message.message_type(), message.code(), message.message_id());
    let mut builder = coap::Builder::new(&mut again, kind, code, id, message.token())
        .expect("no longer than it was");
    for option in message.options() {
        builder.option(option.number, option.value).expect("in the order read");
    }
    let again = builder.payload(message.payload()).expect("no longer than it was");
    assert!(again.len() <= octets.len());
    let again = coap::Message::parse(again).expect("it was built");
    assert!(again.options().eq(message.options()) && again.payload() == message.payload());
}

fn wireless(octets: &[u8]) {
    let payload = match ieee802154::Fcs::split_trailer(octets) {
        Ok((fcs, frame)) if fcs.is_right(frame) => frame,
        _ => octets,
    };
    let Ok((mac, payload)) = ieee802154::Mac::split(payload) else { return };
    assert!(mac.security.is_none_or(|security| security.len() <= 14));
    match payload.first().map(|&octet| lowpan::Dispatch::of(octet)) {
        Some(lowpan::Dispatch::Ipv6) => {
            network(IpProtocol::IPV6, payload.get(1..).unwrap_or_default(), DEPTH_MAX);
        }
        Some(lowpan::Dispatch::Iphc) => {
            if let Ok((iphc, _)) = lowpan::Iphc::split(payload) {
                assert!(iphc.has_constants());
            }
        }
        Some(lowpan::Dispatch::NextFragment) => {
            if let Ok((fragment, _)) = lowpan::NextFragment::split(payload) {
                assert!(fragment.has_constants());
            }
        }
        _ => {}
    }
}
