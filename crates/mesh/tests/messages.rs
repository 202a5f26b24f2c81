//! Messages: encoding and decoding are inverse, and no octets are too much for a decoder.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod samples;

use gatewright_mesh::message::{Message, MessageError, Profile};
use proptest::prelude::*;
use samples::{SENDER, samples};

#[test]
fn each_message_is_read_as_it_was_written() {
    for (name, octets, _) in samples() {
        let (sender, message) = Message::decode(&octets, Profile::Default).unwrap();
        assert_eq!(sender, SENDER, "{name}");
        assert_eq!(message.encode(SENDER, Profile::Default), octets, "{name}");
    }
}

/// Ethernet pads short frames: what follows the length is ignored.
#[test]
fn padding_is_ignored() {
    for (name, mut octets, _) in samples() {
        let whole = octets.clone();
        octets.extend([0xa5; 40]);
        let (_, message) = Message::decode(&octets, Profile::Default).unwrap();
        assert_eq!(message.encode(SENDER, Profile::Default), whole, "{name}");
    }
}

#[test]
fn a_truncated_message_is_refused_at_every_length() {
    for (name, octets, _) in samples() {
        for length in 0..octets.len() {
            assert!(
                Message::decode(&octets[..length], Profile::Default).is_err(),
                "{name} {length}"
            );
        }
    }
}

#[test]
fn another_version_and_another_profile_are_told_apart() {
    let (_, mut octets, _) = samples().remove(0);
    assert_eq!(Message::decode(&octets, Profile::Classic), Err(MessageError::Profile(1)));
    octets[0] = 0x21;
    assert_eq!(Message::decode(&octets, Profile::Default), Err(MessageError::Version(2)));
    octets[0] = 0x11;
    octets[1] = 200;
    assert_eq!(Message::decode(&octets, Profile::Default), Err(MessageError::Type(200)));
}

#[test]
fn the_classic_profile_does_not_know_link_back_and_bypasses() {
    let newer = samples().split_off(13);
    let types = [("BYPASS REQUEST", 15), ("BYPASS TEAR", 16), ("LINK BACK", 12)];
    for ((name, mut octets, _), (expected, number)) in newer.into_iter().zip(types) {
        assert_eq!((name, octets[1]), (expected, number));
        octets[0] &= 0xf0;
        assert_eq!(Message::decode(&octets, Profile::Classic), Err(MessageError::Type(number)));
    }
    assert!(Message::decode(&samples().remove(0).1, Profile::Default).is_ok());
}

/// A reply whose position is behind its record, or whose label is reserved, would address nobody.
#[test]
fn counts_that_contradict_each_other_are_refused() {
    let (_, reply, _) = samples().swap_remove(2);
    // 20 octets of common header; hops and position are octets 30 and 31 of the body.
    for (at, value) in [(51, 3), (50, 33), (44, 0x00)] {
        let mut octets = reply.clone();
        octets[at] = value;
        if at == 44 {
            octets[45] = 0;
            octets[46] = 0;
        }
        assert!(Message::decode(&octets, Profile::Default).is_err(), "octet {at}");
    }
}

proptest! {
    #[test]
    fn any_octets_are_decoded_or_refused(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _refused = Message::decode(&octets, Profile::Default).is_err();
    }

    /// What is read from changed octets is written as octets that are read alike.
    #[test]
    fn what_is_read_is_written_alike(index in 0_usize..16, at in 20_usize..120, value: u8) {
        let (_, mut octets, _) = samples().swap_remove(index);
        let at = at % octets.len();
        if at >= 2 {
            octets[at] = value;
        }
        if let Ok((sender, message)) = Message::decode(&octets, Profile::Default) {
            let again = message.encode(sender, Profile::Default);
            prop_assert_eq!(Message::decode(&again, Profile::Default), Ok((sender, message)));
        }
    }
}
