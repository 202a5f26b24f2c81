//! STAMP test packets and their reflector; what a coordinator of the lab and its agents say.

use core::time::Duration;
use gatewright_lab::agent::{AgentAnswer, AgentRequest};
use gatewright_lab::stamp::{
    ClockErrorEstimate, NtpTime, StampArrival, StampKey, StampReflector, StampReflectorMode,
    StampReflectorPacket, StampSenderPacket,
};

/// A reflector that receives a datagram, without a key and with one. What it reflects is as long,
/// has the sender's fields, and is read again.
pub fn stamp(octets: &[u8]) {
    let error = ClockErrorEstimate::new(false, Duration::from_secs(1));
    let from = ([192, 0, 2, 1], 9).into();
    let arrival = StampArrival { at: NtpTime(5), ttl: 64 };
    for key in [None, Some(StampKey::new(b"key"))] {
        let mode = StampReflectorMode::Stateful;
        let mut reflector = StampReflector::new(mode, error, key.clone());
        let key = key.as_ref();
        let reflected = reflector.reflect(Duration::ZERO, from, octets, arrival, || NtpTime(6));
        let Some(reflected) = reflected else {
            assert_eq!(reflector.counters().reflected, 0);
            continue;
        };
        assert_eq!(reflected.len(), octets.len());
        let sender = StampSenderPacket::parse(octets, key).map(|(sender, _)| sender);
        let read = StampReflectorPacket::parse(&reflected, key);
        assert_eq!(
            read.map(|(packet, _)| packet.sender),
            sender,
            "what was reflected is read again"
        );
        if let Ok((packet, rest)) = read {
            assert_eq!((packet.sequence, packet.sender_ttl), (0, 64));
            assert_eq!([packet.emit(key).as_slice(), rest].concat(), reflected);
        }
    }
    if let Ok((packet, rest)) = StampReflectorPacket::parse(octets, None) {
        let again = packet.emit(None);
        assert_eq!(StampReflectorPacket::parse(&again, None), Ok((packet, [].as_slice())));
        assert_eq!(again.len() + rest.len(), octets.len());
    }
}

/// A message of a coordinator or an agent, whose codes are right: what is read is written and read as
/// the same.
pub fn agent_message(octets: &[u8]) {
    if let Some(request) = AgentRequest::parse(octets) {
        assert_eq!(AgentRequest::parse(&request.octets()), Some(request));
    }
    if let Some(answer) = AgentAnswer::parse(octets) {
        let again = AgentAnswer::parse(&answer.octets());
        assert!(again.is_some(), "what was read is written");
    }
}
