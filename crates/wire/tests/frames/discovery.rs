//! IPv6 extension headers, ICMPv6, neighbour discovery, multicast listeners.

use super::{DESTINATION6, Frame, SOURCE6, frame, ipv6, length, written};
use gatewright_wire::{
    IpProtocol,
    icmpv6::{EchoFields, Icmpv6Type, PacketTooBigFields, ParameterProblemFields, UnusedFields},
    ipv6::{ExtensionOptionsFields, FragmentFields, Ipv6Option, RoutingFields},
    mld::{MldFields, QueryV2Fields, RecordFields, RecordType, ReportV2Fields},
    ndp::{
        NdpOption, NeighborAdvertisementFields, NeighborSolicitationFields, PrefixInformation,
        PrefixInformationFields, RedirectFields, RouterAdvertisementFields,
        RouterSolicitationFields,
    },
};
use std::net::Ipv6Addr;

const TARGET: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);

type Expected<'a> = &'a [(&'static str, &'static str)];

pub(super) fn frames() -> Vec<Frame> {
    let mut frames = errors();
    frames.extend(neighbours());
    frames.extend(listeners());
    frames.extend([fragment(), routing()]);
    frames
}

/// The message with its checksum over the pseudo header.
fn summed(mut message: Vec<u8>) -> Vec<u8> {
    let mut checksum = gatewright_wire::Checksum::pseudo_ipv6(
        SOURCE6,
        DESTINATION6,
        IpProtocol::ICMPV6,
        u32::from(length(message.len())),
    );
    checksum.add(&message);
    message[2..4].copy_from_slice(&checksum.finish().to_be_bytes());
    message
}

fn message(name: &'static str, header: &[u8], rest: &[u8], expected: Expected<'_>) -> Frame {
    let mut expected = expected.to_vec();
    expected.push(("icmpv6.checksum.status", "1"));
    let message = summed([header, rest].concat());
    frame(name, ipv6(IpProtocol::ICMPV6, 255, &message), &expected)
}

fn errors() -> Vec<Frame> {
    let original = &ipv6(IpProtocol::NO_NEXT_HEADER, 64, &[])[14..];
    let (code, checksum) = (0, 0);
    let unreachable = UnusedFields { kind: Icmpv6Type::DESTINATION_UNREACHABLE, code: 4, checksum };
    let too_big =
        PacketTooBigFields { kind: Icmpv6Type::PACKET_TOO_BIG, code, checksum, mtu: 1280 };
    let problem = ParameterProblemFields {
        kind: Icmpv6Type::PARAMETER_PROBLEM,
        code: 1,
        checksum,
        pointer: 40,
    };
    let echo = EchoFields {
        kind: Icmpv6Type::ECHO_REQUEST,
        code,
        checksum,
        identifier: 0x1234,
        sequence_number: 7,
    };
    vec![
        message(
            "icmpv6_unreachable",
            &unreachable.emit(),
            original,
            &[("icmpv6.type", "1"), ("icmpv6.code", "4")],
        ),
        message(
            "icmpv6_packet_too_big",
            &too_big.emit(),
            original,
            &[("icmpv6.type", "2"), ("icmpv6.mtu", "1280")],
        ),
        message(
            "icmpv6_parameter_problem",
            &problem.emit(),
            original,
            &[("icmpv6.type", "4"), ("icmpv6.code", "1"), ("icmpv6.pointer", "40")],
        ),
        message(
            "icmpv6_echo",
            &echo.emit(),
            b"abc",
            &[
                ("icmpv6.type", "128"),
                ("icmpv6.echo.identifier", "0x1234"),
                ("icmpv6.echo.sequence_number", "7"),
            ],
        ),
    ]
}

fn option(option: NdpOption<'_>) -> Vec<u8> {
    written(|writer| option.emit(writer).unwrap())
}

fn neighbours() -> Vec<Frame> {
    let (code, checksum) = (0, 0);
    let lladdr = [2, 0, 0, 0, 0, 1];
    let source = option(NdpOption::SourceLinkLayerAddress(&lladdr));
    let target = option(NdpOption::TargetLinkLayerAddress(&lladdr));
    let solicitation =
        RouterSolicitationFields { kind: Icmpv6Type::ROUTER_SOLICITATION, code, checksum };
    let who = NeighborSolicitationFields {
        kind: Icmpv6Type::NEIGHBOR_SOLICITATION,
        code,
        checksum,
        target_address: TARGET,
    };
    let here = NeighborAdvertisementFields {
        kind: Icmpv6Type::NEIGHBOR_ADVERTISEMENT,
        code,
        checksum,
        router: true,
        solicited: false,
        override_flag: true,
        target_address: TARGET,
    };
    vec![
        message(
            "ndp_router_solicitation",
            &solicitation.emit(),
            &source,
            &[
                ("icmpv6.type", "133"),
                ("icmpv6.opt.type", "1"),
                ("icmpv6.opt.src_linkaddr", "02:00:00:00:00:01"),
            ],
        ),
        router_advertisement(),
        message(
            "ndp_neighbor_solicitation",
            &who.emit(),
            &source,
            &[("icmpv6.type", "135"), ("icmpv6.nd.ns.target_address", "fe80::2")],
        ),
        message(
            "ndp_neighbor_advertisement",
            &here.emit(),
            &target,
            &[
                ("icmpv6.type", "136"),
                ("icmpv6.nd.na.flag.r", "1"),
                ("icmpv6.nd.na.flag.s", "0"),
                ("icmpv6.nd.na.flag.o", "1"),
                ("icmpv6.nd.na.target_address", "fe80::2"),
                ("icmpv6.opt.target_linkaddr", "02:00:00:00:00:01"),
            ],
        ),
        redirect(),
    ]
}

fn redirect() -> Frame {
    let (code, checksum) = (0, 0);
    let redirect = RedirectFields {
        kind: Icmpv6Type::REDIRECT,
        code,
        checksum,
        target_address: TARGET,
        destination_address: SOURCE6,
    };
    let original = &ipv6(IpProtocol::NO_NEXT_HEADER, 64, &[])[14..];
    let redirected = option(NdpOption::RedirectedHeader(original));
    message(
        "ndp_redirect",
        &redirect.emit(),
        &redirected,
        &[
            ("icmpv6.type", "137"),
            ("icmpv6.nd.rd.target_address", "fe80::2"),
            ("icmpv6.rd.na.destination_address", "fe80::1"),
            ("icmpv6.opt.type", "4"),
            ("icmpv6.opt.length", "6"),
        ],
    )
}

fn router_advertisement() -> Frame {
    let advertisement = RouterAdvertisementFields {
        kind: Icmpv6Type::ROUTER_ADVERTISEMENT,
        code: 0,
        checksum: 0,
        cur_hop_limit: 64,
        managed: false,
        other_config: true,
        home_agent: false,
        preference: 0,
        router_lifetime: 1800,
        reachable_time: 30_000,
        retrans_timer: 1000,
    };
    let prefix = PrefixInformationFields {
        prefix_length: 64,
        on_link: true,
        autonomous: true,
        valid_lifetime: 86_400,
        preferred_lifetime: 14_400,
        prefix: Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 0),
    }
    .emit();
    let resolvers = [SOURCE6.octets(), TARGET.octets()];
    let options = [
        option(NdpOption::PrefixInformation(PrefixInformation::of(&prefix))),
        option(NdpOption::Mtu(1500)),
        option(NdpOption::RecursiveDns { lifetime: 600, addresses: &resolvers }),
    ];
    message(
        "ndp_router_advertisement",
        &advertisement.emit(),
        &options.concat(),
        &[
            ("icmpv6.type", "134"),
            ("icmpv6.nd.ra.cur_hop_limit", "64"),
            ("icmpv6.nd.ra.flag.m", "0"),
            ("icmpv6.nd.ra.flag.o", "1"),
            ("icmpv6.nd.ra.router_lifetime", "1800"),
            ("icmpv6.nd.ra.reachable_time", "30000"),
            ("icmpv6.nd.ra.retrans_timer", "1000"),
            ("icmpv6.opt.type", "3,5,25"),
            ("icmpv6.opt.prefix.length", "64"),
            ("icmpv6.opt.prefix.flag.l", "1"),
            ("icmpv6.opt.prefix.flag.a", "1"),
            ("icmpv6.opt.prefix.valid_lifetime", "86400"),
            ("icmpv6.opt.prefix.preferred_lifetime", "14400"),
            ("icmpv6.opt.prefix", "2001:db8:0:1::"),
            ("icmpv6.opt.mtu", "1500"),
            ("icmpv6.opt.rdnss.lifetime", "600"),
            ("icmpv6.opt.rdnss", "fe80::1,fe80::2"),
        ],
    )
}

fn listeners() -> Vec<Frame> {
    let done = MldFields {
        kind: Icmpv6Type::MULTICAST_LISTENER_DONE,
        code: 0,
        checksum: 0,
        maximum_response_delay: 0,
        multicast_address: GROUP,
    };
    let query = QueryV2Fields {
        kind: Icmpv6Type::MULTICAST_LISTENER_QUERY,
        code: 0,
        checksum: 0,
        maximum_response_code: 10_000,
        multicast_address: GROUP,
        suppress: true,
        qrv: 2,
        qqic: 125,
        number_of_sources: 1,
    };
    vec![
        message(
            "mld_done",
            &done.emit(),
            &[],
            &[("icmpv6.type", "132"), ("icmpv6.mld.multicast_address", "ff02::fb")],
        ),
        message(
            "mld_v2_query",
            &query.emit(),
            &TARGET.octets(),
            &[
                ("icmpv6.type", "130"),
                ("icmpv6.mld.maximum_response_code", "10000"),
                ("icmpv6.mld.flag.s", "1"),
                ("icmpv6.mld.flag.qrv", "2"),
                ("icmpv6.mld.qqi", "125"),
                ("icmpv6.mld.nb_sources", "1"),
                ("icmpv6.mld.source_address", "fe80::2"),
            ],
        ),
        listener_report(),
    ]
}

fn listener_report() -> Frame {
    let report = ReportV2Fields {
        kind: Icmpv6Type::MULTICAST_LISTENER_REPORT_V2,
        code: 0,
        checksum: 0,
        number_of_records: 1,
    };
    let record = RecordFields {
        record_type: RecordType::CHANGE_TO_INCLUDE,
        aux_data_len: 0,
        number_of_sources: 1,
        multicast_address: GROUP,
    };
    let report = summed([report.emit().as_slice(), &record.emit(), &TARGET.octets()].concat());
    // RFC 3810 §5: every message has the router alert in a hop-by-hop header.
    let options = written(|writer| {
        Ipv6Option::RouterAlert(0).emit(writer).unwrap();
        Ipv6Option::PadN(0).emit(writer).unwrap();
    });
    let hop_by_hop =
        ExtensionOptionsFields { next_header: IpProtocol::ICMPV6, hdr_ext_len: 0 }.emit();
    let packet = [hop_by_hop.as_slice(), &options, &report].concat();
    frame(
        "mld_v2_report",
        ipv6(IpProtocol::HOP_BY_HOP, 1, &packet),
        &[
            ("ipv6.nxt", "0"),
            ("ipv6.hlim", "1"),
            ("ipv6.opt.type", "0x05,0x01"),
            ("ipv6.opt.router_alert", "0"),
            ("icmpv6.type", "143"),
            ("icmpv6.checksum.status", "1"),
            ("icmpv6.mldr.nb_mcast_records", "1"),
            ("icmpv6.mldr.mar.record_type", "3"),
            ("icmpv6.mldr.mar.nb_sources", "1"),
            ("icmpv6.mldr.mar.multicast_address", "ff02::fb"),
            ("icmpv6.mldr.mar.source_address", "fe80::2"),
        ],
    )
}

fn fragment() -> Frame {
    let fragment = FragmentFields {
        next_header: IpProtocol::UDP,
        fragment_offset: 154,
        more_fragments: true,
        identification: 0xdead_beef,
    };
    let packet = [fragment.emit().as_slice(), &[0; 8]].concat();
    frame(
        "ipv6_fragment",
        ipv6(IpProtocol::FRAGMENT, 64, &packet),
        &[
            ("ipv6.version", "6"),
            ("ipv6.plen", "16"),
            ("ipv6.src", "fe80::1"),
            ("ipv6.dst", "ff02::1"),
            ("ipv6.fraghdr.nxt", "17"),
            ("ipv6.fraghdr.offset", "154"),
            ("ipv6.fraghdr.more", "1"),
            ("ipv6.fraghdr.ident", "0xdeadbeef"),
        ],
    )
}

fn routing() -> Frame {
    let routing = RoutingFields {
        next_header: IpProtocol::NO_NEXT_HEADER,
        hdr_ext_len: 2,
        routing_type: 253,
        segments_left: 0,
    };
    let packet = [routing.emit().as_slice(), &[0xaa; 20]].concat();
    frame(
        "ipv6_routing",
        ipv6(IpProtocol::ROUTING, 64, &packet),
        &[
            ("ipv6.routing.nxt", "59"),
            ("ipv6.routing.len_oct", "24"),
            ("ipv6.routing.type", "253"),
            ("ipv6.routing.segleft", "0"),
        ],
    )
}
