//! CoAP: the messages of RFC 7252's appendix A and RFC 7959, and laws over random ones.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_wire::{
    Truncated,
    coap::{
        Block, BuildError, Builder, Coap, CoapError, Code, Message, MessageType, OptionNumber,
        is_newer_notification,
    },
};
use proptest::{collection::vec, prelude::*};
use std::time::Duration;

/// RFC 7252, figures 16 and 19: a request and its piggybacked response.
#[test]
fn rfc7252_appendix_a() {
    let mut octets = [0; 64];
    let mut request =
        Builder::new(&mut octets, MessageType::CONFIRMABLE, Code::GET, 0x7d34, &[]).unwrap();
    request.option(OptionNumber::URI_PATH, b"temperature").unwrap();
    let request = request.finish();
    assert_eq!(request, b"\x40\x01\x7d\x34\xbbtemperature");
    let message = Message::parse(request).unwrap();
    assert_eq!((message.code(), message.message_id()), (Code::GET, 0x7d34));
    assert_eq!(message.values(OptionNumber::URI_PATH).collect::<Vec<_>>(), [b"temperature"]);

    let mut octets = [0; 64];
    let response =
        Builder::new(&mut octets, MessageType::ACKNOWLEDGEMENT, Code::CONTENT, 0x7d35, &[0x20]);
    let response = response.unwrap().payload(b"22.3 C").unwrap();
    assert_eq!(response, b"\x61\x45\x7d\x35\x20\xff22.3 C");
    let message = Message::parse(response).unwrap();
    assert_eq!(message.message_type(), MessageType::ACKNOWLEDGEMENT);
    assert_eq!((message.token(), message.payload()), ([0x20].as_slice(), b"22.3 C".as_slice()));
    assert_eq!(message.code().to_string(), "2.05");
}

/// RFC 7252 §3: each of its *message format errors*, and the two that are no errors.
#[test]
fn malformed_messages_are_refused() {
    let cases: [(&[u8], Option<CoapError>); 12] = [
        (b"\x40\x00\x00\x01", None),
        (b"\x40\x01\x00\x01", None),
        (b"\x40\x01\x00", Some(CoapError::Truncated(Truncated { needed: 4, found: 3 }))),
        (b"\x00\x01\x00\x01", Some(CoapError::Version(0))),
        (b"\x49\x01\x00\x01123456789", Some(CoapError::TokenLength(9))),
        (b"\x42\x01\x00\x01\x01", Some(CoapError::Truncated(Truncated { needed: 2, found: 1 }))),
        (b"\x41\x00\x00\x01\x01", Some(CoapError::NotEmpty)),
        (b"\x40\x01\x00\x01\xff", Some(CoapError::NoPayload)),
        (b"\x40\x01\x00\x01\xf0", Some(CoapError::ReservedNibble)),
        (b"\x40\x01\x00\x01\x0f", Some(CoapError::ReservedNibble)),
        (b"\x40\x01\x00\x01\x13ab", Some(CoapError::Truncated(Truncated { needed: 3, found: 2 }))),
        (b"\x40\x01\x00\x01\xe0\xff\xff", Some(CoapError::OptionNumber(65_804))),
    ];
    for (octets, error) in cases {
        assert_eq!(Message::parse(octets).err(), error, "{octets:02x?}");
    }
}

#[test]
fn misuse_of_the_builder_is_refused() {
    let mut octets = [0; 16];
    let builder = Builder::new(&mut octets, MessageType::RESET, Code::EMPTY, 1, &[0; 9]);
    assert_eq!(builder.unwrap_err(), BuildError::TokenLength(9));
    let mut builder =
        Builder::new(&mut octets, MessageType::CONFIRMABLE, Code::PUT, 1, &[]).unwrap();
    builder.option(OptionNumber::URI_QUERY, b"a").unwrap();
    let (number, last) = (OptionNumber::URI_PATH, OptionNumber::URI_QUERY);
    assert_eq!(builder.option(number, b"b").unwrap_err(), BuildError::Order { number, last });
    let long = vec![0; 65_805];
    assert_eq!(builder.option(last, &long).unwrap_err(), BuildError::ValueLength(65_805));
    assert_eq!(
        builder.option(last, &[0; 11]).unwrap_err(),
        BuildError::Full(Truncated { needed: 12, found: 9 })
    );
    builder.option(last, &[0; 8]).unwrap();
    assert_eq!(builder.finish().len(), 16);
}

/// RFC 7959 §2.2 and §3: `NUM/M/SZX` as written in its figures.
#[test]
fn rfc7959_blocks() {
    type Read = Option<(u32, bool, usize)>;
    let cases: [(&[u8], Read); 6] = [
        (&[], Some((0, false, 16))),
        (&[0x33], Some((3, false, 128))),
        (&[0x0e], Some((0, true, 1024))),
        (&[0xff, 0xff, 0xf6], Some((0xf_ffff, false, 1024))),
        (&[0x07], None),
        (&[0, 0, 0, 0], None),
    ];
    for (value, expected) in cases {
        let block = Block::read(value);
        assert_eq!(block.map(|b| (b.number(), b.more(), b.size())), expected, "{value:02x?}");
        if let Some((number, more, size)) = expected {
            assert_eq!(Block::new(number, more, size), block);
            assert_eq!(block.unwrap().offset(), number as usize * size);
        }
    }
    assert_eq!(Block::new(0x10_0000, false, 64), None);
    assert_eq!(Block::new(0, false, 2048), None);
}

/// RFC 7641 §3.4: numbers wrap at 24 bits, and time makes any number new.
#[test]
fn rfc7641_section_3_4() {
    let (now, late) = (Duration::ZERO, Duration::from_secs(129));
    assert!(is_newer_notification(1, 2, now));
    assert!(!is_newer_notification(2, 1, now) && !is_newer_notification(2, 2, now));
    assert!(is_newer_notification(0xff_ffff, 0, now));
    assert!(!is_newer_notification(0, 0xff_ffff, now));
    assert!(is_newer_notification(2, 1, late));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// What is built is read back.
    #[test]
    fn reading_undoes_building(
        message_type in 0_u8..4,
        code in 1_u8..,
        id in any::<u16>(),
        token in vec(any::<u8>(), 0..=8),
        mut options in vec((any::<u16>(), vec(any::<u8>(), 0..400)), 0..6),
        payload in vec(any::<u8>(), 0..40),
    ) {
        options.sort_by_key(|(number, _)| *number);
        let mut octets = vec![0; 4000];
        let mut builder =
            Builder::new(&mut octets, MessageType(message_type), Code(code), id, &token).unwrap();
        for (number, value) in &options {
            builder.option(OptionNumber(*number), value).unwrap();
        }
        let octets = builder.payload(&payload).unwrap();
        let message = Message::parse(octets).unwrap();
        prop_assert_eq!(message.message_type(), MessageType(message_type));
        prop_assert_eq!((message.code(), message.message_id()), (Code(code), id));
        prop_assert_eq!((message.token(), message.payload()), (&*token, &*payload));
        let read: Vec<_> = message.options().map(|o| (o.number.0, o.value.to_vec())).collect();
        prop_assert_eq!(read, options);
    }

    /// Noise is a message or an error, and a message's options end.
    #[test]
    fn any_datagram_is_read_or_refused(mut octets in vec(any::<u8>(), 0..64)) {
        if let Some(first) = octets.first_mut() {
            *first = *first & 0x3f | 0x40;
        }
        if let Ok(message) = Message::parse(&octets) {
            prop_assert!(message.options().count() <= octets.len());
            prop_assert!(message.token().len() <= 8);
            prop_assert!(Coap::split(&octets).is_ok());
        }
    }

    /// A number takes as few octets as it needs (RFC 7252 §3.2).
    #[test]
    fn numbers_are_short(value in any::<u64>(), shift in 0_u32..64) {
        let value = value >> shift;
        let mut octets = [0; 32];
        let mut builder = Builder::new(&mut octets, MessageType(0), Code::GET, 0, &[]).unwrap();
        builder.uint(OptionNumber::MAX_AGE, value).unwrap();
        let message = Message::parse(builder.finish()).unwrap();
        prop_assert_eq!(message.uint(OptionNumber::MAX_AGE), Some(value));
        let octets = message.value(OptionNumber::MAX_AGE).unwrap();
        prop_assert!(octets.first() != Some(&0));
    }
}
