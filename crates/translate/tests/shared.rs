//! Requests of all sessions over one connection: they wait for it, and no more of them than the
//! program says.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a test may fail loudly"
)]

use gatewright_diagnostic::{SourceId, Sources};
use gatewright_lang::compile;
use gatewright_lang::ir::{Program, RoleId};
use gatewright_translate::machine::{ConnId, Machine, MachineConfig, Output};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const NOW: Duration = Duration::from_secs(1);
/// The role of the example that hears of requests.
const APPS: usize = 0;
/// MQTT 3.1.1 §3.1, §3.2: a client without a name, and what it is answered.
const CONNECT: &[u8] = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00";
const CONNACK: &[u8] = b"\x20\x02\x00\x00";

/// `coap_to_mqtt`, with so many messages that may wait for the broker.
fn gateway(waiting: &str) -> Machine {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateways");
    let name = "coap_to_mqtt.gate";
    let mut sources = Sources::of(name, std::fs::read_to_string(folder.join(name)).unwrap());
    let compiled = compile(&mut sources, SourceId::default(), |_, import| {
        let text = std::fs::read_to_string(folder.join(import)).ok()?;
        Some((import.to_owned(), text.replace("at most 1_000 waiting", waiting)))
    });
    let program: Arc<Program> = Arc::new(compiled.program.unwrap());
    Machine::new(NOW, &program, &MachineConfig::default()).unwrap()
}

/// A request of its own sender that puts `number` to `/t` (RFC 7252 §3): confirmable, PUT.
fn put(machine: &mut Machine, number: u16) {
    let [high, low] = number.to_be_bytes();
    let from = SocketAddr::from(([192, 0, 2, 1], 10_000 + number));
    let octets = [&[0x40, 3, high, low, 0xb1, b't', 0xff][..], &payload(number)].concat();
    machine.datagram(NOW, RoleId::new(APPS), from, &octets);
}

fn payload(number: u16) -> Vec<u8> {
    format!("{number:04}").into_bytes()
}

/// MQTT 3.1.1 §3.3: what is published for it.
fn published(number: u16) -> Vec<u8> {
    [b"\x30\x07\x00\x01t", &payload(number)[..]].concat()
}

/// What the machine did: connections that it asked for, octets written to the broker, and the codes
/// of its answers by datagrams.
#[derive(Default)]
struct Done {
    connects: Vec<ConnId>,
    written: Vec<u8>,
    codes: Vec<u8>,
}

/// Does what the machine says; each connection takes as much as `takes` says.
fn settle(machine: &mut Machine, done: &mut Done, takes: usize) {
    while let Some(output) = machine.poll_output() {
        match output {
            Output::Connect { conn, .. } => done.connects.push(conn),
            Output::Write { conn } => {
                let mut left = takes;
                while left > 0 && !machine.unsent(conn).is_empty() {
                    let octets = machine.unsent(conn).to_vec();
                    let length = octets.len().min(left);
                    done.written.extend_from_slice(&octets[..length]);
                    left -= length;
                    machine.sent(NOW, conn, length);
                }
            }
            Output::Datagram { octets, .. } => done.codes.push(octets[1]),
            _ => {}
        }
    }
}

/// The codes of RFC 7252 §5.9: 2.04, 5.02.
const CHANGED: u8 = 0x44;
const BAD_GATEWAY: u8 = 0xa2;

#[test]
fn what_is_sent_at_once_goes_over_one_connection() {
    const AT_ONCE: u16 = 200;
    let (mut machine, mut done) = (gateway("at most 1_000 waiting"), Done::default());
    (0..AT_ONCE).for_each(|number| put(&mut machine, number));
    settle(&mut machine, &mut done, usize::MAX);
    assert_eq!((done.connects.len(), done.codes.len()), (1, 0));
    machine.connected(NOW, done.connects[0]);
    settle(&mut machine, &mut done, usize::MAX);
    assert_eq!(done.written, CONNECT);
    machine.received(NOW, done.connects[0], CONNACK);
    settle(&mut machine, &mut done, usize::MAX);
    let all: Vec<u8> = (0..AT_ONCE).flat_map(published).collect();
    assert_eq!(done.written[CONNECT.len()..], all);
    assert_eq!(done.codes, [CHANGED; AT_ONCE as usize]);
    // It is there for the next message, too, and until the program ends.
    put(&mut machine, AT_ONCE);
    settle(&mut machine, &mut done, usize::MAX);
    assert_eq!((done.connects.len(), done.codes.len()), (1, usize::from(AT_ONCE) + 1));
    assert!(!machine.is_idle());
    machine.drain(NOW);
    let closed = machine.poll_output();
    assert_eq!(closed, Some(Output::Close { conn: done.connects[0], reset: false }));
    assert!(machine.is_idle());
}

#[test]
fn no_more_wait_than_may_and_who_is_above_is_told_at_once() {
    let (mut machine, mut done) = (gateway("at most 10 waiting"), Done::default());
    (0..12).for_each(|number| put(&mut machine, number));
    settle(&mut machine, &mut done, usize::MAX);
    assert_eq!(done.codes, [BAD_GATEWAY; 2]);
    assert!(machine.counters().any(|counted| counted == ("no_room", 2)));
    machine.connected(NOW, done.connects[0]);
    settle(&mut machine, &mut done, usize::MAX);
    machine.received(NOW, done.connects[0], CONNACK);
    settle(&mut machine, &mut done, usize::MAX);
    assert_eq!(done.codes[2..], [CHANGED; 10]);
}

#[test]
fn a_broker_that_is_lost_fails_who_waits_and_the_next_message_connects_again() {
    let (mut machine, mut done) = (gateway("at most 1_000 waiting"), Done::default());
    (0..3).for_each(|number| put(&mut machine, number));
    settle(&mut machine, &mut done, usize::MAX);
    machine.connect_failed(NOW, done.connects[0]);
    settle(&mut machine, &mut done, usize::MAX);
    assert_eq!(done.codes, [BAD_GATEWAY; 3]);
    put(&mut machine, 3);
    settle(&mut machine, &mut done, usize::MAX);
    assert_eq!(done.connects.len(), 2);
}

/// A broker that takes nothing has no more wait in our memory than two pages and the queue.
#[test]
fn a_broker_that_takes_nothing_has_the_rest_wait_in_the_queue() {
    const AT_ONCE: u16 = 990;
    let (mut machine, mut done) = (gateway("at most 400 waiting"), Done::default());
    put(&mut machine, AT_ONCE);
    settle(&mut machine, &mut done, usize::MAX);
    machine.connected(NOW, done.connects[0]);
    settle(&mut machine, &mut done, usize::MAX);
    machine.received(NOW, done.connects[0], CONNACK);
    settle(&mut machine, &mut done, 0);
    (0..AT_ONCE).for_each(|number| put(&mut machine, number));
    settle(&mut machine, &mut done, 0);
    let unsent = machine.unsent(done.connects[0]).len();
    assert!(unsent < 8_192 + published(0).len(), "{unsent} octets");
    assert!(done.codes.len() < usize::from(AT_ONCE), "{} were sent", done.codes.len());
    machine.sent(NOW, done.connects[0], unsent);
    settle(&mut machine, &mut done, usize::MAX);
    assert!(done.codes.iter().all(|code| *code == CHANGED));
    assert_eq!(done.codes.len(), usize::from(AT_ONCE) + 1);
}
