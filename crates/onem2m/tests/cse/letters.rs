//! Letters of our own, beside what else wants to be sent.

use crate::bench::Bench;
use gatewright_onem2m::{Input, Kind, Letter, Operation, Request, Status, Timestamp, Token};

const TARGET: &str = "http://up:8080";

/// A letter on a device's lane that makes this instance above.
fn letter(lane: &str, name: &str) -> Letter {
    let content = format!(r#"{{"m2m:cin":{{"rn":"{name}","con":"1"}}}}"#);
    let request = Request::new(Operation::Create, "/id-up/cse-up/c", "Ca", name)
        .creating(Kind::ContentInstance, content);
    let (target, until) = (TARGET.to_owned(), Timestamp::MAX);
    Letter { lane: lane.into(), target, request, until, batch: None }
}

/// Creates an instance with the letter that makes the same above; the answer.
fn both(bench: &mut Bench, id: &str, to: &str, name: &str) -> Status {
    let letter = Box::new(letter("device/Ca", name));
    let content = letter.request.content.clone().unwrap();
    let request =
        Request::new(Operation::Create, to, "Ca", id).creating(Kind::ContentInstance, &*content);
    bench.asked += 1;
    let token = Token(bench.asked);
    bench.cse.handle(bench.now, Input::AskAndPost { token, request, letter });
    let answers = bench.run();
    assert_eq!((answers.len(), answers[0].0), (1, token), "{answers:?}");
    answers[0].1.status
}

/// What is not stored here is not to be found above either: a device is told that its reading was
/// not taken, and sends it again under another name.
#[test]
fn a_letter_goes_with_what_is_stored_here_and_with_nothing_else() {
    let mut bench = Bench::with_container();
    for (id, to, name, status, letters) in [
        ("1", "cse-in/a/gone", "one", Status::NotFound, 0),
        ("2", "cse-in/a/c", "one", Status::Created, 1),
        // There already: its letter may never have been written.
        ("3", "cse-in/a/c", "one", Status::Conflict, 2),
        // The same request once more: answered as before, and posted as before.
        ("2", "cse-in/a/c", "one", Status::Created, 2),
    ] {
        assert_eq!(both(&mut bench, id, to, name), status, "{id} {to} {name}");
        assert_eq!(bench.cse.letters(), letters, "{id} {to} {name}");
    }
    let asked = bench.calls();
    assert_eq!(asked.len(), 1, "one lane has one letter under way");
    assert_eq!((&*asked[0].urls[0], &*asked[0].request.id), (TARGET, "one"));
}

#[test]
fn without_room_for_its_letter_nothing_is_stored() {
    let mut config = crate::bench::config();
    config.limits.notifications_waiting = 1;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    bench.create("Ca", "cse-in/a", Kind::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    assert_eq!(both(&mut bench, "1", "cse-in/a/c", "one"), Status::Created);
    let before = bench.cse.resources();
    assert_eq!(both(&mut bench, "2", "cse-in/a/c", "two"), Status::TargetNotReachable);
    assert_eq!((bench.cse.letters(), bench.cse.resources()), (1, before));
}

/// The store fails: neither the instance nor its letter is there.
#[test]
fn both_are_taken_back_together() {
    let mut bench = Bench::with_container();
    let letter = Box::new(letter("device/Ca", "one"));
    let content = letter.request.content.clone().unwrap();
    let request = Request::new(Operation::Create, "cse-in/a/c", "Ca", "1")
        .creating(Kind::ContentInstance, &*content);
    let before = bench.cse.resources();
    bench.cse.handle(bench.now, Input::AskAndPost { token: Token(900), request, letter });
    let Some(gatewright_onem2m::Output::Store(batch)) = bench.cse.poll_output() else {
        panic!("nothing to store");
    };
    assert_eq!(batch.records.len(), 2, "one batch");
    bench.cse.handle(bench.now, Input::Failed(batch.number));
    assert_eq!(bench.run()[0].1.status, Status::InternalServerError);
    assert_eq!((bench.cse.letters(), bench.cse.resources()), (0, before));
    assert_eq!(both(&mut bench, "2", "cse-in/a/c", "one"), Status::Created);
    assert_eq!(bench.cse.letters(), 1);
}
