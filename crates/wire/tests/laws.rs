//! What holds for every header, whatever its octets; and for every iterator over options.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_wire::{
    Checksum, Writer, arp, checksum, coap, dhcpv4, ethernet, icmpv4, icmpv6, ieee802154, igmp,
    ipv4, ipv6, lowpan, mld, mpls, ndp, tcp, udp, vlan,
};
use proptest::{collection::vec, prelude::*};

/// For each header: emitting undoes reading, setters do what `emit` does, and the places of fields
/// add up to the whole.
macro_rules! headers {
    ($($module:ident::$view:ident / $mutable:ident / $split:ident;)*) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(64))]

            #[test]
            fn emitting_undoes_reading(octets in vec(any::<u8>(), 300)) {
                $({
                    use $module::{$view, $mutable};
                    let (view, rest) = $view::$split(&octets).unwrap();
                    prop_assert_eq!(rest.len() + $view::LEN, octets.len());
                    let fields = view.fields();
                    let emitted = fields.emit();
                    prop_assert_eq!($view::of(&emitted).fields(), fields, "{:?}", view);
                    let widths: u32 = $view::FIELDS.iter().map(|field| field.width).sum();
                    prop_assert_eq!(widths, u32::try_from($view::LEN * 8).unwrap());
                    // Writable in place: what is read back is what was written.
                    let mut copy = octets.clone();
                    let (mutable, _) = $mutable::$split(&mut copy).unwrap();
                    prop_assert_eq!(mutable.view().fields(), fields);
                    let error = $view::$split(&octets[..$view::LEN - 1]).unwrap_err();
                    prop_assert_eq!((error.needed, error.found), ($view::LEN, $view::LEN - 1));
                })*
            }
        }
    };
}

headers! {
    ethernet::Ethernet / EthernetMut / split;
    vlan::Vlan / VlanMut / split;
    arp::Arp / ArpMut / split;
    ipv4::Ipv4 / Ipv4Mut / split;
    ipv6::Ipv6 / Ipv6Mut / split;
    ipv6::ExtensionOptions / ExtensionOptionsMut / split;
    ipv6::Routing / RoutingMut / split;
    ipv6::Fragment / FragmentMut / split;
    icmpv4::Icmpv4 / Icmpv4Mut / split;
    icmpv4::Unused / UnusedMut / split;
    icmpv4::FragmentationNeeded / FragmentationNeededMut / split;
    icmpv4::ParameterProblem / ParameterProblemMut / split;
    icmpv4::Redirect / RedirectMut / split;
    icmpv4::Echo / EchoMut / split;
    icmpv4::Timestamp / TimestampMut / split;
    icmpv4::RouterAdvertisement / RouterAdvertisementMut / split;
    icmpv4::RouterAddress / RouterAddressMut / split;
    icmpv4::RouterSolicitation / RouterSolicitationMut / split;
    icmpv6::Icmpv6 / Icmpv6Mut / split;
    icmpv6::Unused / UnusedMut / split;
    icmpv6::PacketTooBig / PacketTooBigMut / split;
    icmpv6::ParameterProblem / ParameterProblemMut / split;
    icmpv6::Echo / EchoMut / split;
    ndp::RouterSolicitation / RouterSolicitationMut / split;
    ndp::RouterAdvertisement / RouterAdvertisementMut / split;
    ndp::NeighborSolicitation / NeighborSolicitationMut / split;
    ndp::NeighborAdvertisement / NeighborAdvertisementMut / split;
    ndp::Redirect / RedirectMut / split;
    ndp::OptionHead / OptionHeadMut / split;
    ndp::PrefixInformation / PrefixInformationMut / split;
    ndp::RedirectedHeader / RedirectedHeaderMut / split;
    ndp::Mtu / MtuMut / split;
    ndp::RecursiveDns / RecursiveDnsMut / split;
    ndp::DnsSearchList / DnsSearchListMut / split;
    mld::Mld / MldMut / split;
    mld::QueryV2 / QueryV2Mut / split;
    mld::ReportV2 / ReportV2Mut / split;
    mld::Record / RecordMut / split;
    igmp::IgmpV1 / IgmpV1Mut / split;
    igmp::Igmp / IgmpMut / split;
    igmp::QueryV3 / QueryV3Mut / split;
    igmp::ReportV3 / ReportV3Mut / split;
    igmp::Record / RecordMut / split;
    udp::Udp / UdpMut / split;
    tcp::Tcp / TcpMut / split;
    mpls::LabelEntry / LabelEntryMut / split;
    coap::Coap / CoapMut / split;
    dhcpv4::Dhcpv4 / Dhcpv4Mut / split;
    ieee802154::Fcs / FcsMut / split_trailer;
    lowpan::Mesh / MeshMut / split;
    lowpan::FirstFragment / FirstFragmentMut / split;
    lowpan::NextFragment / NextFragmentMut / split;
    lowpan::Broadcast / BroadcastMut / split;
    lowpan::Iphc / IphcMut / split;
    lowpan::ContextIdentifiers / ContextIdentifiersMut / split;
    lowpan::TrafficFlow / TrafficFlowMut / split;
    lowpan::FlowLabel / FlowLabelMut / split;
    lowpan::TrafficClass / TrafficClassMut / split;
    lowpan::ExtensionEncoding / ExtensionEncodingMut / split;
    lowpan::UdpEncoding / UdpEncodingMut / split;
}

/// An iterator ends within as many steps as there are octets, and an error is its last item.
fn bounded<T, E>(octets: &[u8], items: impl Iterator<Item = Result<T, E>>) {
    let mut count = 0;
    let mut failed = false;
    for item in items {
        assert!(!failed, "an item after an error");
        failed = item.is_err();
        count += 1;
        assert!(count <= octets.len() + 1, "more items than octets");
    }
}

/// Octets that look like options: short lengths are likelier than in noise.
fn options() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![0_u8..10, Just(25), any::<u8>()], 0..64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_iterator_is_total(octets in options(), count in any::<u16>()) {
        bounded(&octets, ipv4::Ipv4Options::new(&octets));
        bounded(&octets, ipv6::Ipv6Options::new(&octets));
        bounded(&octets, tcp::TcpOptions::new(&octets));
        bounded(&octets, ndp::NdpOptions::new(&octets));
        bounded(&octets, mld::Records::new(count, &octets));
        bounded(&octets, igmp::Records::new(count, &octets));
        bounded(&octets, mpls::LabelStack::new(&octets));
    }

    /// The upper layer is where a chain of headers ends, whatever they are; cut anywhere before, it is
    /// not found.
    #[test]
    fn the_upper_layer_is_behind_all_headers(
        chain in vec((0_usize..7, 0_u8..3), 0..=ipv6::HEADERS_MAX),
        upper in prop::sample::select(vec![6_u8, 17, 58, 59, 50, 253]),
        cut in any::<prop::sample::Index>(),
        noise in vec(any::<u8>(), 0..120),
    ) {
        use ipv6::{ChainError, UpperLayer};
        const KINDS: [u8; 7] = [0, 43, 60, 51, 135, 139, 140];
        let kinds: Vec<u8> = chain.iter().map(|&(kind, _)| KINDS[kind]).chain([upper]).collect();
        let mut packet = [&[0x60, 0, 0, 0, 0, 0, kinds[0], 64][..], &[0; 32]].concat();
        for (pair, (_, len)) in kinds.windows(2).zip(&chain) {
            let octets = if pair[0] == 51 { usize::from(*len) * 4 + 8 } else { usize::from(*len) * 8 + 8 };
            let mut header = vec![0xff; octets];
            header[..2].copy_from_slice(&[pair[1], *len]);
            packet.extend(header);
        }
        let found = UpperLayer::find(&packet);
        let expected = UpperLayer { protocol: upper.into(), offset: packet.len(), fragment: None };
        prop_assert_eq!(found, Ok(expected));
        let cut = cut.index(packet.len());
        prop_assert!(matches!(UpperLayer::find(&packet[..cut]), Err(ChainError::Truncated(_))));
        if let Ok(upper) = UpperLayer::find(&noise) {
            prop_assert!(upper.offset <= noise.len());
        }
    }

    /// 802.15.4: what is written is read back, and noise is read or refused.
    #[test]
    fn mac_headers(
        noise in vec(any::<u8>(), 0..40),
        numbers in any::<(u8, u16, u16, u16, u16)>(),
        flags in any::<(bool, bool, bool)>(),
        modes in (0_u8..3, 0_u8..3),
        octets in any::<([u8; 8], [u8; 8])>(),
    ) {
        use ieee802154::{StationAddress, FrameType, FrameVersion, Mac, MacFields};
        let _ = Mac::split(&noise);
        let address = |mode, short, extended| match mode {
            0 => StationAddress::None,
            1 => StationAddress::Short(short),
            _ => StationAddress::Extended(extended),
        };
        let (destination, source) =
            (address(modes.0, numbers.1, octets.0), address(modes.1, numbers.2, octets.1));
        let alone = destination == StationAddress::None || flags.2;
        let fields = MacFields {
            frame_type: FrameType(numbers.0 & 0b11),
            pending: flags.0,
            ack_request: flags.1,
            version: FrameVersion::V2006,
            sequence_number: Some(numbers.0),
            destination_pan: (destination != StationAddress::None).then_some(numbers.3),
            destination,
            // One network's identifier is told once.
            source_pan: (source != StationAddress::None && alone && (destination == StationAddress::None || numbers.3 != numbers.4)).then_some(numbers.4),
            source,
        };
        let mut buffer = [0; 23];
        let mut writer = Writer::new(&mut buffer);
        fields.emit(&mut writer).unwrap();
        let (mac, rest) = Mac::split(writer.finish()).unwrap();
        prop_assert_eq!(mac.fields, fields);
        prop_assert!(rest.is_empty() && mac.security.is_none());
    }

    /// What is read is written again, octet by octet, as far as it could be read.
    #[test]
    fn emitting_options_undoes_reading_them(octets in options()) {
        let mut buffer = [0; 64];
        let mut writer = Writer::new(&mut buffer);
        let read = tcp::TcpOptions::new(&octets).map_while(Result::ok);
        read.for_each(|option| option.emit(&mut writer).unwrap());
        prop_assert_eq!(writer.written(), &octets[..writer.len()]);

        let mut writer = Writer::new(&mut buffer);
        let read = ipv4::Ipv4Options::new(&octets).map_while(Result::ok);
        read.for_each(|option| option.emit(&mut writer).unwrap());
        prop_assert_eq!(writer.written(), &octets[..writer.len()]);

        let mut writer = Writer::new(&mut buffer);
        let read: Vec<_> = ndp::NdpOptions::new(&octets).map_while(Result::ok).collect();
        for option in &read {
            option.emit(&mut writer).unwrap();
        }
        let again: Vec<_> = ndp::NdpOptions::new(writer.written()).map(Result::unwrap).collect();
        prop_assert_eq!(format!("{again:?}"), format!("{read:?}"));
    }

    /// A packet arrives in as many buffers as it likes, and the sum must not notice (RFC 1071 §2).
    #[test]
    fn a_checksum_does_not_notice_the_pieces(octets in vec(any::<u8>(), 0..200), cuts in vec(0_usize..200, 0..6)) {
        let words: u32 = octets.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0))).sum();
        let expected = !u16::try_from((words & 0xffff) + (words >> 16)).unwrap_or_else(|_| u16::try_from((words & 0xffff) + (words >> 16) - 0xffff).unwrap());
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(octets.len())).collect();
        cuts.extend([0, octets.len()]);
        cuts.sort_unstable();
        let mut sum = Checksum::new();
        cuts.windows(2).for_each(|cut| sum.add(&octets[cut[0]..cut[1]]));
        prop_assert_eq!(sum.finish(), expected);
        prop_assert_eq!(checksum::of(&octets), expected);
    }

    /// RFC 1624: updating is computing anew, but for the two zeros of one's complement.
    #[test]
    fn an_update_is_a_new_checksum(mut octets in vec(any::<u8>(), 20), at in 0_usize..9, new in any::<u16>()) {
        octets[18] = 0x45; // a header is never all zero
        let before = checksum::of(&octets);
        let old = u16::from_be_bytes([octets[at * 2], octets[at * 2 + 1]]);
        octets[at * 2..at * 2 + 2].copy_from_slice(&new.to_be_bytes());
        let after = checksum::of(&octets);
        prop_assert_eq!(checksum::update(before, old, new), after);
        prop_assert_eq!(checksum::update_octets(before, &old.to_be_bytes(), &new.to_be_bytes()), after);
    }

    /// The places in `FIELDS` are those that the getters read.
    #[test]
    fn fields_tell_the_places(octets in any::<[u8; 20]>()) {
        let ipv4 = ipv4::Ipv4::of(&octets);
        let read = |name: &str| {
            let field = ipv4::Ipv4::FIELDS.iter().find(|field| field.name == name).unwrap();
            field.read(&octets).unwrap()
        };
        prop_assert_eq!(read("ihl"), u64::from(ipv4.ihl()));
        prop_assert_eq!(read("flags"), u64::from(ipv4.flags()));
        prop_assert_eq!(read("fragment_offset"), u64::from(ipv4.fragment_offset()));
        prop_assert_eq!(read("source_address"), u64::from(ipv4.source_address().to_bits()));
    }
}

proptest! {
    /// DHCP: options may also stand in *file* and *sname*; each area is read once.
    #[test]
    fn dhcp_options_are_bounded(
        sname in vec(prop_oneof![0_u8..6, Just(52), any::<u8>()], 64),
        file in vec(prop_oneof![0_u8..6, Just(52), any::<u8>()], 128),
        options in options(),
        overload in any::<u8>(),
    ) {
        let mut message = dhcpv4::Dhcpv4Fields {
            sname: sname.try_into().unwrap(),
            file: file.try_into().unwrap(),
            ..dhcpv4::Dhcpv4Fields::default()
        }.emit().to_vec();
        message.extend(dhcpv4::MAGIC_COOKIE);
        message.extend([52, 1, overload]);
        message.extend(options);
        let (_, options) = dhcpv4::read(&message).unwrap();
        bounded(&message, options);
    }
}
