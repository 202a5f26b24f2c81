//! Octets from RFCs and of other programs, read and written.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_wire::{
    Checksum, EtherType, IpProtocol, MacAddress, Truncated, Writer,
    checksum::update,
    dhcpv4::{self, DhcpOption, DhcpType, Dhcpv4Fields, Operation},
    ethernet::Ethernet,
    ieee802154::{Fcs, FcsFields, FrameType, Mac, StationAddress, crc},
    igmp::{code_value, response_time},
    ipv4::{Ipv4, Ipv4Fields, Ipv4Mut, Ipv4Option, Ipv4Options},
    lowpan::{Dispatch, Iphc, NextFragment},
    mld::response_delay,
    mpls::{Label, LabelEntryFields, LabelStack, STACK_DEPTH_MAX},
    ndp::{NdpOption, NdpOptions},
    tcp::{Tcp, TcpOption, TcpOptions},
    udp::Udp,
};
use std::{net::Ipv4Addr, time::Duration};

/// RFC 1071 §3.
#[test]
fn rfc1071_section_3() {
    let mut checksum = Checksum::new();
    checksum.add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
    assert_eq!(checksum.sum(), 0xddf2);
}

/// RFC 1624 §4: the example on which the older equation fails.
#[test]
fn rfc1624_section_4() {
    assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
}

/// A DNS query over Ethernet, IPv4 and UDP; its two checksums were computed by another program.
const QUERY: [u8; 71] = *b"\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x08\x00\
    \x45\x00\x00\x39\x1c\x46\x40\x00\x40\x11\x9a\x6a\xc0\x00\x02\x01\xc0\x00\x02\x02\
    \x80\x0d\x00\x35\x00\x25\x80\x22\
    \xab\xcd\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01";

#[test]
fn a_datagram_is_read_from_outside_in() {
    let (ethernet, rest) = Ethernet::split(&QUERY).unwrap();
    assert_eq!(ethernet.source(), "02:00:00:00:00:01".parse::<MacAddress>().unwrap());
    assert_eq!(ethernet.ether_type(), EtherType::IPV4);
    let (ipv4, rest) = Ipv4::split(rest).unwrap();
    assert!(ipv4.has_constants() && ipv4.dont_fragment() && !ipv4.is_fragment());
    assert_eq!((ipv4.header_len(), ipv4.total_length()), (20, 57));
    assert_eq!(ipv4.protocol(), IpProtocol::UDP);
    let (options, rest) = ipv4.options(rest).unwrap();
    assert!(options.is_empty() && ipv4.is_checksum_valid(options));
    let mut checksum = ipv4.pseudo_header(37);
    checksum.add(rest);
    assert!(checksum.is_valid());
    let (udp, payload) = Udp::split(rest).unwrap();
    assert_eq!((udp.source_port(), udp.destination_port(), udp.length()), (32781, 53, 37));
    assert_eq!(payload.len(), 29);
}

/// A header whose length does not cover itself, and one cut short.
#[test]
fn options_are_bounded_by_header_and_packet() {
    let fields = |ihl| Ipv4Fields { ihl, ..Ipv4Fields::default() }.emit();
    let options = |ihl, rest: &'static [u8]| {
        Ipv4::of(&fields(ihl)).options(rest).map(|(own, rest)| (own.len(), rest.len()))
    };
    assert_eq!(options(5, &[1, 2, 3, 4, 5]), Ok((0, 5)));
    assert_eq!(options(6, &[1, 2, 3, 4, 5]), Ok((4, 1)));
    assert_eq!(options(7, &[1, 2, 3, 4, 5]), Err(Truncated { needed: 8, found: 5 }));
    assert_eq!(options(3, &[1, 2, 3, 4, 5]), Err(Truncated { needed: 20, found: 12 }));
}

#[test]
fn spending_a_hop_keeps_the_checksum_right() {
    let source = Ipv4Addr::new(192, 0, 2, 1);
    let mut octets =
        Ipv4Fields::new(IpProtocol::UDP, source, Ipv4Addr::BROADCAST, 20).emit_with_checksum();
    for hops in (0..64).rev() {
        let mut header = Ipv4Mut::of(&mut octets);
        assert!(header.spend_hop());
        assert_eq!(header.view().time_to_live(), hops);
        assert!(header.view().is_checksum_valid(&[]), "at {hops} hops");
    }
    assert!(!Ipv4Mut::of(&mut octets).spend_hop());

    // Every checksum that a header can have: as one made anew.
    for identification in 0..=u16::MAX {
        let fields = Ipv4Fields {
            identification,
            ..Ipv4Fields::new(IpProtocol::UDP, source, Ipv4Addr::BROADCAST, 20)
        };
        let mut spent = fields.emit_with_checksum();
        assert!(Ipv4Mut::of(&mut spent).spend_hop());
        let time_to_live = fields.time_to_live - 1;
        assert_eq!(spent, Ipv4Fields { time_to_live, ..fields }.emit_with_checksum());
    }
}

/// The options of a SYN as Linux sends it.
#[test]
fn options_of_a_syn() {
    const OPTIONS: [u8; 20] =
        *b"\x02\x04\x05\xb4\x04\x02\x08\x0a\x00\x9d\x3a\x0b\x00\x00\x00\x00\x01\x03\x03\x07";
    let expected = [
        TcpOption::MaximumSegmentSize(1460),
        TcpOption::SackPermitted,
        TcpOption::Timestamps { value: 0x009d_3a0b, echo_reply: 0 },
        TcpOption::NoOperation,
        TcpOption::WindowScale(7),
    ];
    let read: Vec<TcpOption<'_>> = TcpOptions::new(&OPTIONS).map(Result::unwrap).collect();
    assert_eq!(read, expected);
    let mut octets = [0; 20];
    let mut writer = Writer::new(&mut octets);
    for option in expected {
        option.emit(&mut writer).unwrap();
    }
    assert_eq!(writer.finish(), OPTIONS);
    assert_eq!(Tcp::CHECKSUM_AT, 16);
}

/// RFC 2113: router alert, and an option that ends outside the header.
#[test]
fn options_of_an_igmp_packet() {
    let read: Vec<_> = Ipv4Options::new(&[0x94, 0x04, 0x00, 0x00]).collect();
    assert_eq!(read, [Ok(Ipv4Option::RouterAlert(0))]);
    assert!(Ipv4Options::new(&[0x94, 0x05, 0x00, 0x00]).next().unwrap().is_err());
    assert!(Ipv4Options::new(&[0x07]).next().unwrap().is_err());
    assert!(Ipv4Options::new(&[0x07, 0x01, 0x00]).next().unwrap().is_err());
}

/// RFC 4861 §4.6: "The value 0 is invalid".
#[test]
fn an_option_of_length_zero_ends_the_list() {
    let octets = *b"\x05\x01\0\0\0\0\x05\xdc\x01\0\0\0\0\0\0\0";
    let mut options = NdpOptions::new(&octets);
    assert!(matches!(options.next(), Some(Ok(NdpOption::Mtu(1500)))));
    assert!(matches!(options.next(), Some(Err(_))));
    assert!(options.next().is_none());
}

/// RFC 3376 §4.1.1 and RFC 3810 §5.1.3: the largest plain numbers, and floating ones.
#[test]
fn codes_of_group_queries() {
    assert_eq!([0x00, 0x7f, 0x80, 0x9a, 0xff].map(code_value), [0, 127, 128, 416, 31744]);
    assert_eq!(response_time(100), Duration::from_secs(10));
    assert_eq!(response_delay(10_000), Duration::from_secs(10));
    assert_eq!(response_delay(0x8000), Duration::from_millis(32_768));
    assert_eq!(response_delay(0xffff), Duration::from_millis(8_387_584));
}

#[test]
fn addresses_are_read_and_refused() {
    let good = "33:33:ff:00:00:01".parse::<MacAddress>().unwrap();
    assert!(good.is_multicast() && !good.is_broadcast());
    assert_eq!(good.to_string(), "33:33:ff:00:00:01");
    for bad in
        ["", "33:33:ff:00:00", "33:33:ff:00:00:01:02", "33:33:ff:00:00:1", "33:33:ff:00:00:+1"]
    {
        assert!(bad.parse::<MacAddress>().is_err(), "{bad}");
    }
}

/// RFC 3032 §2.1: the stack ends at its bottom, and a stack without one is refused.
#[test]
fn a_label_stack_ends_at_its_bottom() {
    let octets = *b"\x00\x0c\x80\x40\x00\x0c\x91\x3f\x45";
    let mut stack = LabelStack::new(&octets);
    let first = stack.next().unwrap().unwrap();
    assert_eq!(
        (first.label(), first.bottom_of_stack(), first.time_to_live()),
        (Label(200), false, 64)
    );
    let second = stack.next().unwrap().unwrap();
    assert_eq!(
        (second.label(), second.bottom_of_stack(), second.time_to_live()),
        (Label(201), true, 63)
    );
    assert!(stack.next().is_none());
    assert_eq!(stack.payload(), [0x45]);

    let entry = LabelEntryFields { label: Label(16), ..LabelEntryFields::default() }.emit();
    let bottomless = entry.repeat(STACK_DEPTH_MAX + 1);
    let entries: Vec<_> = LabelStack::new(&bottomless).collect();
    assert_eq!(entries.len(), STACK_DEPTH_MAX);
    assert!(entries.last().unwrap().is_err());
}

/// A DISCOVER, written and read; the shortest message is filled up.
#[test]
fn a_dhcp_message_is_filled_up() {
    let fields = Dhcpv4Fields {
        op: Operation::BOOT_REQUEST,
        htype: dhcpv4::HARDWARE_ETHERNET,
        hlen: 6,
        xid: 0x3903_f326,
        flags: dhcpv4::FLAG_BROADCAST,
        ..Dhcpv4Fields::default()
    };
    let options = [
        DhcpOption::MessageType(DhcpType::DISCOVER),
        DhcpOption::RequestedAddress(Ipv4Addr::new(192, 0, 2, 7)),
        DhcpOption::ParameterRequestList(&[1, 3, 6, 26, 121]),
    ];
    let mut octets = [0; 576];
    let message = dhcpv4::write(&mut octets, fields, &options).unwrap();
    assert_eq!(message.len(), dhcpv4::MESSAGE_LEN_MIN);
    let (header, read) = dhcpv4::read(message).unwrap();
    assert_eq!(header.fields(), fields);
    assert_eq!(read.message_type(), Some(DhcpType::DISCOVER));
    assert_eq!(read.map(Result::unwrap).collect::<Vec<_>>(), options);
    assert!(dhcpv4::read(&message[..239]).is_err());
    assert!(dhcpv4::write(&mut [0; 250], fields, &options).is_err());
}

/// RFC 2131 §4.1: with overload 3, *file* is read before *sname*.
#[test]
fn overloaded_fields_hold_options() {
    let mut fields = Dhcpv4Fields::default();
    fields.file[..4].copy_from_slice(&[12, 2, b'h', b'i']);
    fields.sname[..5].copy_from_slice(&[15, 1, b'd', 255, 9]);
    let mut octets = [0; 300];
    let overload = [DhcpOption::Overload(3)];
    let message = dhcpv4::write(&mut octets, fields, &overload).unwrap();
    let read: Vec<_> = dhcpv4::read(message).unwrap().1.map(Result::unwrap).collect();
    let expected =
        [DhcpOption::Overload(3), DhcpOption::HostName(b"hi"), DhcpOption::DomainName(b"d")];
    assert_eq!(read, expected);
}

/// RFC 4944 §5.1 and RFC 6282 §3: the bit patterns of the dispatch table.
#[test]
fn dispatches() {
    assert_eq!(Dispatch::of(0x3f), Dispatch::NotLowpan);
    assert_eq!(Dispatch::of(0x41), Dispatch::Ipv6);
    assert_eq!(Dispatch::of(0x50), Dispatch::Broadcast);
    assert_eq!(Dispatch::of(0x60), Dispatch::Iphc);
    assert_eq!(Dispatch::of(0xbf), Dispatch::Mesh);
    assert_eq!(Dispatch::of(0xc7), Dispatch::FirstFragment);
    assert_eq!(Dispatch::of(0xe0), Dispatch::NextFragment);
    assert_eq!(Dispatch::of(0x42), Dispatch::Other(0x42));
    let iphc = Iphc::of(&[0x7a, 0x33]);
    assert!(iphc.has_constants() && !iphc.next_header_compressed());
    assert_eq!((iphc.traffic_flow(), iphc.hop_limit()), (3, 2));
    assert_eq!((iphc.source_mode(), iphc.destination_mode()), (3, 3));
    let fragment = NextFragment::of(&[0xe0, 0x7f, 0x12, 0x34, 0x05]);
    assert_eq!((fragment.datagram_size(), fragment.datagram_tag()), (127, 0x1234));
    assert_eq!(fragment.datagram_offset(), 5);
}

/// The check value of this CRC in the catalogues, and a trailer taken off the end of a frame.
#[test]
fn a_check_sequence_is_a_trailer() {
    assert_eq!(crc(b"123456789"), 0x2189);
    let mut octets = b"123456789".to_vec();
    octets.extend(FcsFields::of(b"123456789").emit());
    let (fcs, frame) = Fcs::split_trailer(&octets).unwrap();
    assert_eq!(frame, b"123456789");
    assert!(fcs.is_right(frame) && !fcs.is_right(b"123456788"));
    assert!(Fcs::split_trailer(&octets[..1]).is_err());
}

/// A data frame between short addresses in one network, as the Linux kernel sends it.
#[test]
fn a_frame_of_802154() {
    let (mac, payload) = Mac::split(b"\x61\x88\x2a\xef\xbe\x02\x00\x01\x00\x7a").unwrap();
    assert_eq!(mac.fields.frame_type, FrameType::DATA);
    assert!(mac.fields.ack_request && !mac.fields.pending);
    assert_eq!(mac.fields.sequence_number, Some(0x2a));
    assert_eq!((mac.fields.destination_pan, mac.fields.source_pan), (Some(0xbeef), None));
    assert_eq!(mac.fields.destination, StationAddress::Short(2));
    assert_eq!(mac.fields.source, StationAddress::Short(1));
    assert_eq!(payload, [0x7a]);
}
