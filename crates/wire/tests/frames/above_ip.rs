//! ICMP, IGMP, UDP and what it carries, TCP.

use super::{DESTINATION, Frame, SOURCE, frame, ipv4, length, written};
use gatewright_wire::{
    Checksum, IpProtocol, Port, checksum,
    coap::{Builder, Code, MessageType, OptionNumber},
    dhcpv4::{self, DhcpOption, DhcpType, Dhcpv4Fields, Operation},
    icmpv4::{
        EchoFields, FragmentationNeededFields, Icmpv4Type, ParameterProblemFields, RedirectFields,
        RouterAddressFields, RouterAdvertisementFields, RouterSolicitationFields, TimestampFields,
        UnusedFields, exceeded, unreachable,
    },
    igmp::{IgmpFields, IgmpType, QueryV3Fields, RecordFields, ReportV3Fields},
    mld::RecordType,
    tcp::{TcpFields, TcpOption},
    udp::UdpFields,
};
use std::net::Ipv4Addr;

pub(super) fn frames() -> Vec<Frame> {
    let mut frames = icmp_errors();
    frames.extend(icmp_queries());
    frames.extend(igmp());
    frames.extend([udp(), tcp(), dhcp(), coap(), coap_observe()]);
    frames
}

/// The message with its checksum, which covers all of it and nothing else.
fn summed(mut message: Vec<u8>) -> Vec<u8> {
    let checksum = checksum::of(&message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

fn message(
    name: &'static str,
    header: &[u8],
    rest: &[u8],
    expected: &[(&'static str, &'static str)],
) -> Frame {
    let mut expected = expected.to_vec();
    expected.push(("icmp.checksum.status", "1"));
    let message = summed([header, rest].concat());
    frame(name, ipv4(IpProtocol::ICMPV4, &message), &expected)
}

fn icmp_errors() -> Vec<Frame> {
    let checksum = 0;
    let original = &ipv4(IpProtocol::UDP, &[0, 53, 0, 53, 0, 8, 0, 0])[14..];
    let exceeded =
        UnusedFields { kind: Icmpv4Type::TIME_EXCEEDED, code: exceeded::REASSEMBLY, checksum };
    let needed = FragmentationNeededFields {
        kind: Icmpv4Type::DESTINATION_UNREACHABLE,
        code: unreachable::FRAGMENTATION_NEEDED,
        checksum,
        next_hop_mtu: 1280,
    };
    let problem = ParameterProblemFields {
        kind: Icmpv4Type::PARAMETER_PROBLEM,
        code: 0,
        checksum,
        pointer: 20,
    };
    let redirect = RedirectFields {
        kind: Icmpv4Type::REDIRECT,
        code: 1,
        checksum,
        gateway: Ipv4Addr::new(192, 0, 2, 254),
    };
    vec![
        message(
            "icmpv4_time_exceeded",
            &exceeded.emit(),
            original,
            &[("icmp.type", "11"), ("icmp.code", "1")],
        ),
        message(
            "icmpv4_fragmentation_needed",
            &needed.emit(),
            original,
            &[("icmp.type", "3"), ("icmp.code", "4"), ("icmp.mtu", "1280")],
        ),
        message(
            "icmpv4_parameter_problem",
            &problem.emit(),
            original,
            &[("icmp.type", "12"), ("icmp.pointer", "20")],
        ),
        message(
            "icmpv4_redirect",
            &redirect.emit(),
            original,
            &[("icmp.type", "5"), ("icmp.code", "1"), ("icmp.redir_gw", "192.0.2.254")],
        ),
    ]
}

fn icmp_queries() -> Vec<Frame> {
    let (code, checksum) = (0, 0);
    let echo = EchoFields {
        kind: Icmpv4Type::ECHO_REQUEST,
        code,
        checksum,
        identifier: 0x1234,
        sequence_number: 7,
    };
    let timestamp = TimestampFields {
        kind: Icmpv4Type::TIMESTAMP,
        code,
        checksum,
        identifier: 1,
        sequence_number: 2,
        originate_timestamp: 3_600_000,
        receive_timestamp: 0,
        transmit_timestamp: 0,
    };
    let advertisement = RouterAdvertisementFields {
        kind: Icmpv4Type::ROUTER_ADVERTISEMENT,
        code,
        checksum,
        num_addrs: 1,
        addr_entry_size: 2,
        lifetime: 1800,
    };
    let router = RouterAddressFields { router_address: SOURCE, preference_level: 5 };
    let solicitation =
        RouterSolicitationFields { kind: Icmpv4Type::ROUTER_SOLICITATION, code, checksum };
    vec![
        message(
            "icmpv4_echo",
            &echo.emit(),
            b"abcdefgh",
            &[("icmp.type", "8"), ("icmp.ident", "4660"), ("icmp.seq", "7")],
        ),
        message(
            "icmpv4_timestamp",
            &timestamp.emit(),
            &[],
            &[("icmp.type", "13"), ("icmp.originate_timestamp", "3600000")],
        ),
        message(
            "icmpv4_router_advertisement",
            &advertisement.emit(),
            &router.emit(),
            &[
                ("icmp.type", "9"),
                ("icmp.num_addrs", "1"),
                ("icmp.addr_entry_size", "2"),
                ("icmp.lifetime", "1800"),
                ("icmp.router_address", "192.0.2.1"),
                ("icmp.pref_level", "5"),
            ],
        ),
        message("icmpv4_router_solicitation", &solicitation.emit(), &[], &[("icmp.type", "10")]),
    ]
}

fn igmp() -> Vec<Frame> {
    let group_address = Ipv4Addr::new(224, 0, 0, 251);
    let report = IgmpFields {
        kind: IgmpType::MEMBERSHIP_REPORT_V2,
        max_resp_time: 0,
        checksum: 0,
        group_address,
    };
    let query = QueryV3Fields {
        max_resp_code: 100,
        checksum: 0,
        group_address,
        suppress: true,
        qrv: 2,
        qqic: 125,
        number_of_sources: 1,
    };
    let report_v3 = ReportV3Fields { checksum: 0, number_of_records: 2 };
    let include = RecordFields {
        record_type: RecordType::MODE_IS_INCLUDE,
        aux_data_len: 0,
        number_of_sources: 1,
        multicast_address: group_address,
    };
    let exclude = RecordFields {
        record_type: RecordType::CHANGE_TO_EXCLUDE,
        number_of_sources: 0,
        ..include
    };
    let records =
        [report_v3.emit().as_slice(), &include.emit(), &SOURCE.octets(), &exclude.emit()].concat();
    vec![
        frame(
            "igmp_v2",
            ipv4(IpProtocol::IGMP, &summed(report.emit().to_vec())),
            &[("igmp.type", "0x16"), ("igmp.maddr", "224.0.0.251"), ("igmp.checksum.status", "1")],
        ),
        frame(
            "igmp_v3_query",
            ipv4(IpProtocol::IGMP, &summed([query.emit().as_slice(), &SOURCE.octets()].concat())),
            &[
                ("igmp.type", "0x11"),
                ("igmp.max_resp", "100"),
                ("igmp.s", "1"),
                ("igmp.qrv", "2"),
                ("igmp.qqic", "125"),
                ("igmp.num_src", "1"),
                ("igmp.saddr", "192.0.2.1"),
                ("igmp.checksum.status", "1"),
            ],
        ),
        frame(
            "igmp_v3_report",
            ipv4(IpProtocol::IGMP, &summed(records)),
            &[
                ("igmp.type", "0x22"),
                ("igmp.num_grp_recs", "2"),
                ("igmp.record_type", "1,4"),
                ("igmp.num_src", "1,0"),
                ("igmp.maddr", "224.0.0.251,224.0.0.251"),
                ("igmp.saddr", "192.0.2.1"),
                ("igmp.checksum.status", "1"),
            ],
        ),
    ]
}

/// A datagram with its checksum over the pseudo header.
fn datagram(source: Port, destination: Port, payload: &[u8]) -> Vec<u8> {
    let mut fields = UdpFields {
        source_port: source.0,
        destination_port: destination.0,
        length: length(8 + payload.len()),
        checksum: 0,
    };
    let mut checksum = Checksum::pseudo_ipv4(SOURCE, DESTINATION, IpProtocol::UDP, fields.length);
    checksum.add(&fields.emit());
    checksum.add(payload);
    fields.checksum = checksum.finish_udp();
    ipv4(IpProtocol::UDP, &[fields.emit().as_slice(), payload].concat())
}

fn udp() -> Frame {
    frame(
        "udp",
        datagram(Port(40000), Port(40001), b"odd"),
        &[
            ("udp.srcport", "40000"),
            ("udp.dstport", "40001"),
            ("udp.length", "11"),
            ("udp.checksum.status", "1"),
            ("udp.payload", "6f6464"),
        ],
    )
}

fn tcp() -> Frame {
    let options = written(|writer| {
        let timestamps = TcpOption::Timestamps { value: 0x0102_0304, echo_reply: 5 };
        let sack = &[[0, 0, 0, 1, 0, 0, 0, 9]];
        for option in [
            TcpOption::MaximumSegmentSize(1460),
            TcpOption::SackPermitted,
            timestamps,
            TcpOption::NoOperation,
            TcpOption::WindowScale(7),
            TcpOption::Sack(sack),
        ] {
            option.emit(writer).unwrap();
        }
        writer.pad(4).unwrap();
    });
    let mut fields = TcpFields {
        source_port: 40000,
        destination_port: 40001,
        sequence_number: 0xdead_beef,
        acknowledgment_number: 0x0bad_cafe,
        data_offset: u8::try_from(5 + options.len() / 4).unwrap(),
        cwr: true,
        ack: true,
        syn: true,
        window: 29200,
        ..TcpFields::default()
    };
    let count = length(20 + options.len());
    let mut checksum = Checksum::pseudo_ipv4(SOURCE, DESTINATION, IpProtocol::TCP, count);
    checksum.add(&fields.emit());
    checksum.add(&options);
    fields.checksum = checksum.finish();
    frame(
        "tcp",
        ipv4(IpProtocol::TCP, &[fields.emit().as_slice(), &options].concat()),
        &[
            ("tcp.srcport", "40000"),
            ("tcp.dstport", "40001"),
            ("tcp.seq_raw", "3735928559"),
            ("tcp.ack_raw", "195939070"),
            ("tcp.hdr_len", "52"),
            ("tcp.flags", "0x0092"),
            ("tcp.window_size_value", "29200"),
            ("tcp.checksum.status", "1"),
            ("tcp.urgent_pointer", "0"),
            ("tcp.options.mss_val", "1460"),
            ("tcp.options.wscale.shift", "7"),
            ("tcp.options.timestamp.tsval", "16909060"),
            ("tcp.options.timestamp.tsecr", "5"),
            ("tcp.options.sack.count", "1"),
        ],
    )
}

fn dhcp() -> Frame {
    let mut fields = Dhcpv4Fields {
        op: Operation::BOOT_REQUEST,
        htype: dhcpv4::HARDWARE_ETHERNET,
        hlen: 6,
        hops: 1,
        xid: 0x3903_f326,
        secs: 3,
        flags: dhcpv4::FLAG_BROADCAST,
        yiaddr: Ipv4Addr::new(192, 0, 2, 7),
        ..Dhcpv4Fields::default()
    };
    fields.chaddr[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    let mut octets = [0; 576];
    let message = dhcpv4::write(
        &mut octets,
        fields,
        &[
            DhcpOption::MessageType(DhcpType::REQUEST),
            DhcpOption::RequestedAddress(Ipv4Addr::new(192, 0, 2, 7)),
            DhcpOption::ServerIdentifier(SOURCE),
            DhcpOption::LeaseTime(3600),
            DhcpOption::ParameterRequestList(&[1, 3, 6]),
            DhcpOption::HostName(b"gate"),
        ],
    );
    frame(
        "dhcp",
        datagram(Port::DHCP_CLIENT, Port::DHCP_SERVER, message.unwrap()),
        &[
            ("dhcp.type", "1"),
            ("dhcp.hw.type", "0x01"),
            ("dhcp.hw.len", "6"),
            ("dhcp.hops", "1"),
            ("dhcp.id", "0x3903f326"),
            ("dhcp.secs", "3"),
            ("dhcp.flags.bc", "1"),
            ("dhcp.ip.your", "192.0.2.7"),
            ("dhcp.hw.mac_addr", "02:00:00:00:00:01"),
            ("dhcp.option.dhcp", "3"),
            ("dhcp.option.requested_ip_address", "192.0.2.7"),
            ("dhcp.option.dhcp_server_id", "192.0.2.1"),
            ("dhcp.option.ip_address_lease_time", "3600"),
            ("dhcp.option.request_list_item", "1,3,6"),
            ("dhcp.option.hostname", "gate"),
        ],
    )
}

fn coap() -> Frame {
    let mut octets = [0; 128];
    let token = &[0xca, 0xfe];
    let mut message =
        Builder::new(&mut octets, MessageType::CONFIRMABLE, Code::POST, 0x7d34, token).unwrap();
    message.option(OptionNumber::URI_PATH, b"cse").unwrap();
    message.option(OptionNumber::URI_PATH, b"temperature").unwrap();
    message.uint(OptionNumber::CONTENT_FORMAT, 50).unwrap();
    message.option(OptionNumber::URI_QUERY, b"rt=4").unwrap();
    let block = gatewright_wire::coap::Block::new(2, true, 64).unwrap();
    message.uint(OptionNumber::BLOCK1, block.value().into()).unwrap();
    message.uint(OptionNumber::SIZE1, 1000).unwrap();
    let message = message.payload(b"{}").unwrap();
    frame(
        "coap",
        datagram(Port(40000), Port::COAP, message),
        &[
            ("coap.version", "1"),
            ("coap.type", "0"),
            ("coap.token_len", "2"),
            ("coap.code", "2"),
            ("coap.mid", "32052"),
            ("coap.token", "cafe"),
            ("coap.opt.uri_path", "cse,temperature"),
            ("coap.opt.uri_query", "rt=4"),
            ("coap.opt.ctype", "application/json"),
            ("coap.opt.block_number", "2"),
            ("coap.opt.block_mflag", "1"),
            ("coap.opt.block_size", "2"),
            ("coap.opt.size1", "1000"),
        ],
    )
}

fn coap_observe() -> Frame {
    let mut octets = [0; 128];
    let (kind, code) = (MessageType::NON_CONFIRMABLE, Code::CONTENT);
    let mut message = Builder::new(&mut octets, kind, code, 1, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    message.option(OptionNumber::ETAG, &[0xab; 8]).unwrap();
    message.uint(OptionNumber::OBSERVE, 0x12_3456).unwrap();
    message.uint(OptionNumber::MAX_AGE, 300).unwrap();
    let message = message.payload(b"22.3 C").unwrap();
    frame(
        "coap_observe",
        datagram(Port::COAP, Port(40000), message),
        &[
            ("coap.type", "1"),
            ("coap.code", "69"),
            ("coap.token", "0102030405060708"),
            ("coap.opt.etag", "abababababababab"),
            ("coap.opt.observe", "1193046"),
            ("coap.opt.max_age", "300"),
            ("coap.payload_length", "6"),
        ],
    )
}
