//! A client that sends its requests without waiting for answers has them answered by turns: whoever
//! has one request waits for one turn of it, not for all. What is asserted is counted, not timed.
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
use gatewright_translate::machine::{
    ConnId, Machine, MachineConfig, Output, PIPELINED_MAX, TURN_MESSAGES,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const NOW: Duration = Duration::from_secs(1);
const REQUEST: &[u8] = b"NOOP\r\n";
const ANSWER: &[u8] = b"250 2.0.0 ok\r\n";
/// As many as are read at once.
const PIPELINED: usize = 1_000;

fn relay() -> Machine {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateways");
    let name = "smtp_relay.gate";
    let mut sources = Sources::of(name, std::fs::read_to_string(folder.join(name)).unwrap());
    let compiled = compile(&mut sources, SourceId::default(), |_, import| {
        Some((import.to_owned(), std::fs::read_to_string(folder.join(import)).ok()?))
    });
    let program: Arc<Program> = Arc::new(compiled.program.unwrap());
    Machine::new(NOW, &program, &MachineConfig::default()).unwrap()
}

fn client(machine: &mut Machine) -> ConnId {
    let conn = machine.accepted(NOW, RoleId::new(0), "192.0.2.1:25".parse().unwrap());
    assert_eq!(answers(machine), [(conn, 0)]);
    conn
}

/// Whom the machine writes to, and how many answers each of them gets; all is sent at once.
fn answers(machine: &mut Machine) -> Vec<(ConnId, usize)> {
    let mut written = Vec::new();
    while let Some(output) = machine.poll_output() {
        if let Output::Write { conn } = output {
            let octets = machine.unsent(conn).to_vec();
            written.push((conn, octets.windows(ANSWER.len()).filter(|of| *of == ANSWER).count()));
            machine.sent(NOW, conn, octets.len());
        }
    }
    written
}

/// Lets one connection have its turn.
fn turn(machine: &mut Machine) -> Vec<(ConnId, usize)> {
    assert!(machine.poll_timeout().is_some_and(|at| at <= NOW));
    machine.handle_timeout(NOW);
    answers(machine)
}

#[test]
fn one_request_waits_for_one_turn_of_a_client_that_pipelines() {
    let mut machine = relay();
    let (greedy, polite) = (client(&mut machine), client(&mut machine));
    let turn_of = usize::try_from(TURN_MESSAGES).unwrap();
    machine.received(NOW, greedy, &REQUEST.repeat(PIPELINED));
    assert_eq!(answers(&mut machine), [(greedy, turn_of)]);
    machine.received(NOW, polite, REQUEST);
    assert_eq!(answers(&mut machine), [(polite, 1)]);
    // It has had its turn, and nothing more of it is read before the next.
    assert_eq!(machine.room(greedy), 0);
    let mut answered = turn_of;
    while answered < PIPELINED {
        let got = turn(&mut machine);
        assert_eq!(got, [(greedy, turn_of.min(PIPELINED - answered))]);
        answered += got[0].1;
    }
    assert!(machine.poll_timeout().is_some_and(|at| at > NOW));
    assert!(machine.room(greedy) > 0);
}

#[test]
fn those_who_pipeline_have_their_turns_one_after_the_other() {
    let mut machine = relay();
    let clients = [client(&mut machine), client(&mut machine), client(&mut machine)];
    for of in clients {
        machine.received(NOW, of, &REQUEST.repeat(PIPELINED));
        assert_eq!(answers(&mut machine)[0].0, of);
    }
    for _round in 0..4 {
        for of in clients {
            assert_eq!(turn(&mut machine)[0].0, of);
        }
    }
}

/// Whoever waits for each answer never waits for a turn, however many requests it has.
#[test]
fn a_client_that_waits_for_its_answers_always_has_its_turn() {
    let mut machine = relay();
    let polite = client(&mut machine);
    for _request in 0..3 * PIPELINED_MAX {
        machine.received(NOW, polite, REQUEST);
        assert_eq!(answers(&mut machine), [(polite, 1)]);
        assert!(machine.poll_timeout().is_none_or(|at| at > NOW));
    }
}

#[test]
fn who_goes_while_it_waits_for_its_turn_takes_nobody_elses() {
    let mut machine = relay();
    let (one, other) = (client(&mut machine), client(&mut machine));
    for of in [one, other] {
        machine.received(NOW, of, &REQUEST.repeat(PIPELINED));
    }
    answers(&mut machine);
    machine.broken(NOW, one);
    assert_eq!(turn(&mut machine), []);
    assert_eq!(turn(&mut machine)[0].0, other);
}

/// What was sent before the end is answered, and the connection ends behind the last answer.
#[test]
fn who_ends_while_it_waits_gets_all_its_answers() {
    let mut machine = relay();
    let greedy = client(&mut machine);
    machine.received(NOW, greedy, &REQUEST.repeat(PIPELINED));
    machine.ended(NOW, greedy);
    let mut answered = answers(&mut machine).iter().map(|(_, count)| count).sum::<usize>();
    while answered < PIPELINED {
        answered += turn(&mut machine)[0].1;
    }
    assert_eq!(answered, PIPELINED);
    answers(&mut machine);
    assert!(machine.is_idle());
}

/// What a request costs ends when its answer is sent, though its handler has ended before.
#[test]
fn the_time_of_a_handler_lasts_until_its_answer_is_sent() {
    let took = Duration::from_micros(7);
    let mut machine = relay();
    let client = client(&mut machine);
    machine.sent_until(NOW);
    let times = |machine: &Machine| {
        let of = machine.handlers().map(|(_, counters)| counters.times.clone());
        of.fold(gatewright_histogram::Histogram::default(), |mut all, one| {
            all.merge(&one);
            all
        })
    };
    let before = times(&machine);
    machine.received(NOW, client, &b"HELO me\r\n".repeat(2));
    assert_eq!(answers(&mut machine)[0].0, client);
    assert!(machine.has_ended_handlers());
    assert_eq!(times(&machine), before, "the caller has not said that it is sent");
    machine.sent_until(NOW + took);
    let since = times(&machine).since(&before);
    let sum = u64::try_from(2 * took.as_nanos()).unwrap();
    assert_eq!((since.count(), since.sum(), machine.has_ended_handlers()), (2, sum, false));
}
