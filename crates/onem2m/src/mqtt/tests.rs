//! A broker by hand: the packets of MQTT 3.1.1, in any split.

use super::*;
use core::time::Duration;
use proptest::prelude::*;

const CONNECT_ACK: &[u8] = b"\x20\x02\x00\x00";
const SUBSCRIBE_ACK: &[u8] = b"\x90\x05\x00\x01\x01\x01\x01";

fn settings() -> MqttSettings {
    MqttSettings {
        client: "C::id-in".to_owned(),
        clean: false,
        keep_alive: Duration::from_mins(1),
        will: None,
        credentials: None,
        filters: filters("/id-in"),
        packet_octets_max: 1_000,
    }
}

fn drain(session: &mut MqttSession) -> Vec<Output> {
    core::iter::from_fn(|| session.poll_output()).collect()
}

fn ready() -> MqttSession {
    let mut session = MqttSession::new(Duration::ZERO, settings());
    session.handle(Duration::ZERO, Input::Octets(CONNECT_ACK));
    session.handle(Duration::ZERO, Input::Octets(SUBSCRIBE_ACK));
    assert_eq!(drain(&mut session).last(), Some(&Output::Ready));
    session
}

/// MQTT 3.1.1 §3.1, §3.8, §3.3, §3.4: the octets as the standard's tables have them.
#[test]
fn the_packets_of_a_client() {
    let mut session = MqttSession::new(Duration::ZERO, settings());
    let connect = b"\x10\x14\x00\x04MQTT\x04\x00\x00\x3c\x00\x08C::id-in".to_vec();
    assert_eq!(drain(&mut session), [Output::Send(connect)]);
    session.handle(Duration::ZERO, Input::Octets(CONNECT_ACK));
    let [Output::Send(subscribe)] = &drain(&mut session)[..] else { panic!() };
    let mut expected = b"\x82\x4f\x00\x01\x00\x15/oneM2M/req/+/id-in/#\x01".to_vec();
    expected.extend_from_slice(b"\x00\x19/oneM2M/reg_req/+/id-in/#\x01");
    expected.extend_from_slice(b"\x00\x14/oneM2M/resp/id-in/#\x01");
    expected[1] = u8::try_from(expected.len() - 2).unwrap();
    assert_eq!(*subscribe, expected);
    session.handle(Duration::ZERO, Input::Octets(SUBSCRIBE_ACK));
    assert_eq!(drain(&mut session), [Output::Ready]);
    session.handle(Duration::ZERO, Input::Publish { topic: "a/b", payload: b"hi", retain: false });
    assert_eq!(drain(&mut session), [Output::Send(b"\x32\x09\x00\x03a/b\x00\x02hi".to_vec())]);
    session.handle(Duration::ZERO, Input::Octets(b"\x32\x09\x00\x03a/b\x00\x0ahi"));
    let arrived = Output::Arrived { topic: "a/b".into(), payload: b"hi".to_vec() };
    assert_eq!(drain(&mut session), [Output::Send(b"\x40\x02\x00\x0a".to_vec()), arrived]);
    session.handle(Duration::ZERO, Input::Leave);
    assert_eq!(drain(&mut session), [Output::Send(vec![0xe0, 0]), Output::End(End::Left)]);
    assert_eq!(session.poll_timeout(), None);
}

#[test]
fn a_silent_broker_is_noticed() {
    let mut session = MqttSession::new(Duration::ZERO, settings());
    drain(&mut session);
    session.handle(session.poll_timeout().unwrap(), Input::Tick);
    assert_eq!(drain(&mut session), [Output::End(End::Silent)]);
    let mut session = ready();
    assert_eq!(session.poll_timeout(), Some(Duration::from_mins(1)));
    session.handle(Duration::from_mins(1), Input::Tick);
    assert_eq!(drain(&mut session), [Output::Send(vec![0xc0, 0])]);
    session.handle(Duration::from_secs(61), Input::Octets(b"\xd0\x00"));
    assert_eq!(session.poll_timeout(), Some(Duration::from_secs(121)));
    session.handle(Duration::from_secs(121), Input::Tick);
    session.handle(Duration::from_secs(151), Input::Tick);
    assert_eq!(drain(&mut session)[1], Output::End(End::Silent));
}

#[test]
fn what_a_broker_may_not_send_ends_the_connection() {
    let cases: [(&[u8], End); 8] = [
        (b"\x32\x02\x00\x09", End::Packet(PacketError::Malformed(3))),
        (b"\x34\x05\x00\x01a\x00\x01", End::Packet(PacketError::Malformed(3))),
        (b"\x20\x02\x00\x00", End::Packet(PacketError::Unexpected(2))),
        (b"\x10\x00", End::Packet(PacketError::Unexpected(1))),
        (b"\x30\xff\xff\xff\xff\x01", End::Packet(PacketError::Length)),
        (b"\x90\xe9\x07", End::Packet(PacketError::TooLarge { length: 1_001, most: 1_000 })),
        (b"\x34\xe9\x07", End::Packet(PacketError::Malformed(3))),
        (b"\x40\x01\x00", End::Packet(PacketError::Malformed(4))),
    ];
    for (octets, end) in cases {
        let mut session = ready();
        session.handle(Duration::ZERO, Input::Octets(octets));
        assert_eq!(drain(&mut session), [Output::End(end)], "{octets:02x?}");
    }
    let mut session = MqttSession::new(Duration::ZERO, settings());
    session.handle(Duration::ZERO, Input::Octets(b"\x20\x02\x00\x05"));
    assert_eq!(drain(&mut session)[1], Output::End(End::Refused(5)));
    let mut session = MqttSession::new(Duration::ZERO, settings());
    session.handle(Duration::ZERO, Input::Octets(CONNECT_ACK));
    session.handle(Duration::ZERO, Input::Octets(b"\x90\x05\x00\x01\x01\x80\x01"));
    assert_eq!(drain(&mut session).last(), Some(&Output::End(End::SubscriptionRefused)));
}

/// A broker delivers an unacknowledged message again on every connection (MQTT 3.1.1 §4.4), so one
/// message that is too long must not end the connection.
#[test]
fn a_publication_that_is_too_long_is_acknowledged_and_passed_over() {
    let mut octets = b"\x32\xe9\x07\x00\x01t\x00\x2a".to_vec();
    octets.resize(3 + 1_001, b'x');
    octets.extend_from_slice(b"\x30\x04\x00\x01tz");
    let acknowledged = Output::Send(b"\x40\x02\x00\x2a".to_vec());
    let next = Output::Arrived { topic: "t".to_owned(), payload: b"z".to_vec() };
    for piece in [1, 7, 8, 100, octets.len()] {
        let mut session = ready();
        for octets in octets.chunks(piece) {
            session.handle(Duration::ZERO, Input::Octets(octets));
        }
        let outputs = drain(&mut session);
        assert_eq!(outputs, [acknowledged.clone(), Output::Oversized, next.clone()], "{piece}");
    }
    let mut session = ready();
    session.handle(Duration::ZERO, Input::Octets(b"\x30\xff\xff\xff\x7f"));
    assert_eq!(drain(&mut session), [Output::Oversized]);
}

#[test]
fn unacknowledged_publications_are_bounded() {
    let mut session = ready();
    for _ in 0..1_030 {
        session.handle(Duration::ZERO, Input::Publish { topic: "t", payload: b"", retain: false });
    }
    assert_eq!((drain(&mut session).len(), session.dropped()), (1_024, 6));
    session.handle(Duration::ZERO, Input::Octets(b"\x40\x02\x00\x05"));
    session.handle(Duration::ZERO, Input::Publish { topic: "t", payload: b"", retain: false });
    assert_eq!(drain(&mut session).len(), 1);
}

#[test]
fn topics() {
    for (text, answer) in [
        ("/oneM2M/req/id-mn/id-in/json", Some("/oneM2M/resp/id-mn/id-in/json")),
        ("oneM2M/reg_req/Cx/id-in/cbor", Some("/oneM2M/reg_resp/Cx/id-in/cbor")),
        ("/oneM2M/resp/id-mn/id-in/json", None),
    ] {
        let answering = Topic::parse(text).unwrap().answering();
        assert_eq!(answering.map(|topic| topic.to_string()).as_deref(), answer);
    }
    for text in
        ["", "/oneM2M/req/a/b/xml", "/oneM2M/req/a/b/json/c", "/oneM2M/req/a/b", "/x/req/a/b/json"]
    {
        assert_eq!(Topic::parse(text), None, "{text}");
    }
    assert_eq!(level("/id-in/Cx"), "id-in:Cx");
    assert_eq!(level("//sp.example/id-in/#+"), "sp.example:id-in:::");
}

proptest! {
    /// Any split of the broker's octets gives the same result, and noise is survived.
    #[test]
    fn any_split_is_the_same(
        payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..8),
        noise in proptest::collection::vec(any::<u8>(), 0..30),
        cuts in proptest::collection::vec(1_usize..40, 1..40),
    ) {
        let mut stream = [CONNECT_ACK, SUBSCRIBE_ACK].concat();
        for (id, payload) in (1..).zip(&payloads) {
            stream.extend(packet::publish(id, "/oneM2M/req/a/b/json", payload, false).unwrap());
        }
        stream.extend(&noise);
        let mut whole = MqttSession::new(Duration::ZERO, settings());
        whole.handle(Duration::ZERO, Input::Octets(&stream));
        let whole = drain(&mut whole);
        let arrived = whole.iter().filter(|it| matches!(it, Output::Arrived { .. })).count();
        prop_assert!(arrived >= payloads.len());
        let mut pieces = MqttSession::new(Duration::ZERO, settings());
        let (mut rest, mut cuts) = (stream.as_slice(), cuts.iter().cycle());
        while !rest.is_empty() {
            let (piece, tail) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
            pieces.handle(Duration::ZERO, Input::Octets(piece));
            rest = tail;
        }
        prop_assert_eq!(drain(&mut pieces), whole);
    }
}

/// Who only publishes subscribes to nothing, and leaves a last will. The octets are those of MQTT 3.1.1
/// §3.1 and §3.3, written by hand.
#[test]
fn a_last_will_and_retained_publications() {
    let will = Some(MqttWill { topic: "t/s".to_owned(), payload: b"off".to_vec() });
    let only = MqttSettings {
        client: "c".to_owned(),
        keep_alive: Duration::from_secs(30),
        will,
        credentials: None,
        filters: Vec::new(),
        ..settings()
    };
    let mut session = MqttSession::new(Duration::ZERO, MqttSettings { clean: true, ..only });
    let connect = [
        &[0x10, 23, 0, 4][..],
        b"MQTT",
        &[4, 0x2e, 0, 30, 0, 1],
        b"c",
        &[0, 3],
        b"t/s",
        &[0, 3],
        b"off",
    ];
    assert_eq!(session.poll_output(), Some(Output::Send(connect.concat())));
    assert!(!session.can_publish());
    session.handle(Duration::ZERO, Input::Octets(&[0x20, 2, 0, 0]));
    assert_eq!(session.poll_output(), Some(Output::Ready));
    assert!(session.can_publish());
    session.handle(Duration::ZERO, Input::Publish { topic: "t", payload: b"on", retain: true });
    let sent = [&[0x33, 7, 0, 1][..], b"t", &[0, 1], b"on"].concat();
    assert_eq!(session.poll_output(), Some(Output::Send(sent)));
    assert_eq!(session.poll_output(), None);
}
