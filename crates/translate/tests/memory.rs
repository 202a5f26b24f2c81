//! What a machine holds: nothing for who is silent, two pages for who is slow.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_diagnostic::{SourceId, Sources};
use gatewright_lang::compile;
use gatewright_lang::ir::RoleId;
use gatewright_translate::machine::{BUFFER_OCTETS, ConnId, Machine, MachineConfig, Output};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const NOW: Duration = Duration::from_secs(1);
const INSIDE: usize = 0;

fn machine(name: &str) -> Machine {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateways");
    let mut sources = Sources::of(name, std::fs::read_to_string(folder.join(name)).unwrap());
    let compiled = compile(&mut sources, SourceId::default(), |_, import| {
        Some((import.to_owned(), std::fs::read_to_string(folder.join(import)).ok()?))
    });
    let program = Arc::new(compiled.program.unwrap());
    Machine::new(NOW, &program, &MachineConfig::default()).unwrap()
}

fn peer() -> SocketAddr {
    "192.0.2.1:50000".parse().unwrap()
}

/// Takes all that is to be sent on a connection.
fn take(machine: &mut Machine, conn: ConnId) -> Vec<u8> {
    let octets = machine.unsent(conn).to_vec();
    machine.sent(NOW, conn, octets.len());
    octets
}

fn outputs(machine: &mut Machine) -> Vec<Output> {
    std::iter::from_fn(|| machine.poll_output()).collect()
}

/// The part of the memory that is this process's own, in octets.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

/// Ten thousand clients that have said hello and wait: at most 4 KiB each.
#[test]
fn an_idle_session_takes_little() {
    const SESSIONS: usize = 10_000;
    let mut machine = machine("smtp_to_http.gate");
    let before = resident();
    for _ in 0..SESSIONS {
        let conn = machine.accepted(NOW, RoleId::new(INSIDE), peer());
        take(&mut machine, conn);
        machine.received(NOW, conn, b"HELO c\r\nMAIL FROM:<a@x>\r\nRCPT TO:<b@y>\r\n");
        assert!(take(&mut machine, conn).ends_with(b"250 2.1.5 recipient ok\r\n"));
        outputs(&mut machine);
    }
    let each = (resident() - before) / SESSIONS;
    assert!(each <= 4_096, "{each} octets a session");
    println!("{each} octets an idle session");
}

/// A body of a mebibyte against a server that reads nothing, and then reads slowly: what is held
/// has its bound all the time, and the body arrives as it was.
#[test]
fn a_stream_runs_at_the_pace_of_the_slower_side() {
    let mut machine = machine("smtp_relay.gate");
    let inside = machine.accepted(NOW, RoleId::new(INSIDE), peer());
    take(&mut machine, inside);
    machine.received(NOW, inside, b"DATA\r\n");
    let next = outputs(&mut machine).into_iter().find_map(|output| match output {
        Output::Connect { conn, .. } => Some(conn),
        _ => None,
    });
    let next = next.unwrap();
    machine.connected(NOW, next);
    for answer in [&b"220 ready\r\n"[..], b"250 hello\r\n", b"354 go\r\n"] {
        machine.received(NOW, next, answer);
        take(&mut machine, next);
    }
    assert_eq!(take(&mut machine, inside), b"354 go\r\n");
    let line = [&[b'x'; 998][..], b"\r\n"].concat();
    let body = [line.repeat(1_048), b".\r\n".to_vec()].concat();
    let (mut given, mut got) = (0, Vec::new());
    outputs(&mut machine);
    let mut stalls = 0;
    while given < body.len() {
        let room = machine.room(inside);
        let piece = &body[given..body.len().min(given + room.min(3_000))];
        machine.received(NOW, inside, piece);
        given += piece.len();
        let held = machine.unsent(next).len();
        assert!(held <= 2 * BUFFER_OCTETS, "{held} octets wait to be sent");
        assert!(given <= got.len() + 4 * BUFFER_OCTETS, "more is held than two pages a side");
        if machine.room(inside) == 0 {
            stalls += 1;
            assert!(machine.has_more(next), "what waits is not told of");
            outputs(&mut machine);
            let part = machine.unsent(next)[..1_500].to_vec();
            machine.sent(NOW, next, part.len());
            got.extend(part);
            if machine.room(inside) > 0 {
                let told = outputs(&mut machine);
                assert!(told.contains(&Output::Read { conn: inside }), "{told:?}");
            }
        }
    }
    assert!(stalls > 100, "the slow side held the other back only {stalls} times");
    while !machine.unsent(next).is_empty() {
        got.extend(take(&mut machine, next));
    }
    assert!(got == body, "the body is not what it was");
    assert!(!machine.has_more(next), "more is told of than there is");
    machine.received(NOW, next, b"250 queued\r\n");
    assert_eq!(take(&mut machine, inside), b"250 queued\r\n");
}

/// What is not read by its peer does not grow: the next request waits.
#[test]
fn answers_that_nobody_takes_hold_requests_back() {
    let mut machine = machine("smtp_relay.gate");
    let inside = machine.accepted(NOW, RoleId::new(INSIDE), peer());
    let request = b"NOOP\r\n".repeat(500);
    for _ in 0..1_000 {
        let room = machine.room(inside).min(request.len());
        machine.received(NOW, inside, &request[..room]);
    }
    assert_eq!(machine.room(inside), 0);
    let unsent = machine.unsent(inside).len();
    assert!(unsent <= 2 * BUFFER_OCTETS, "{unsent} octets wait to be sent");
}
