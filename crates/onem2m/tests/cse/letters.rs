//! Letters of our own, beside what else wants to be sent.

use crate::bench::Bench;
use core::time::Duration;
use gatewright_onem2m::{Input, Kind, Letter, Operation, Request, Status, Token};

const TARGET: &str = "http://up:8080";

/// A letter on a device's lane that makes this instance above.
fn letter(lane: &str, name: &str) -> Letter {
    let content = format!(r#"{{"m2m:cin":{{"rn":"{name}","con":"1"}}}}"#);
    let request = Request::new(Operation::Create, "/id-up/cse-up/c", "Ca", name)
        .creating(Kind::ContentInstance, content);
    Letter { lane: lane.into(), target: TARGET.to_owned(), request, keep: None, batch: None }
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
    config.limits.letters_waiting = 1;
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

/// A subscription of `from` to the container, whose target is away and has `seen` its verification.
fn subscribe(bench: &mut Bench, from: &str, name: &str) {
    let sub =
        format!(r#"{{"m2m:sub":{{"rn":"{name}","nu":["http://{name}:1"],"enc":{{"net":[3]}}}}}}"#);
    let request =
        bench.request(Operation::Create, from, "cse-in/a/c").creating(Kind::Subscription, sub);
    bench.ask_later(request);
    for call in bench.calls() {
        bench.reply(&call, Status::Ok);
    }
}

/// Who fills the room of notifications fills that: readings have their own, and a quarter is as
/// much as one originator's subscriptions use up.
#[test]
fn notifications_to_targets_that_are_away_take_no_room_of_readings_nor_of_others() {
    let mut config = crate::bench::config();
    config.limits.notifications_waiting = 8;
    config.limits.notifications_waiting_total = 40;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    bench.create("Ca", "cse-in/a", Kind::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    for number in 0..5 {
        subscribe(&mut bench, "Ca", &format!("ca{number}"));
    }
    subscribe(&mut bench, "CAdmin", "other");
    for number in 0..20 {
        assert_eq!(bench.reading(&format!("n{number}"), "1").status, Status::Created);
    }
    // Ten of the one who has five subscriptions, eight of the one who has one.
    assert_eq!(bench.cse.letters(), 10 + 8);
    assert!(bench.cse.counters().notifications_dropped > 0);
    for number in 0..50 {
        let name = format!("r{number}");
        assert_eq!(both(&mut bench, &name, "cse-in/a/c", &name), Status::Created);
    }
    assert!(bench.cse.letters() >= 50 + 18, "{}", bench.cse.letters());
    // After a restart they are counted as before.
    bench.cse = bench.reopened();
    bench.run();
    assert!(bench.cse.has_room("device/Cb", 1));
    assert!(!bench.cse.has_room(&lane_of(&bench, "ca0"), 1));
}

fn lane_of(bench: &Bench, name: &str) -> String {
    let target = format!("http://{name}:1");
    let rows = bench.rows.values().find_map(|row| {
        let row: serde_json::Value = serde_json::from_str(row).ok()?;
        let letter = row.get("_x")?;
        (letter["target"] == target.as_str()).then(|| letter["lane"].as_str().unwrap().to_owned())
    });
    rows.unwrap()
}

/// Requests that nobody hurries for, to an entity that is silent: as many as one originator may
/// have, and readings go above all the same, and what others ask is asked.
#[test]
fn thousands_of_requests_that_wait_for_a_silent_entity_hold_up_nobody_else() {
    let mut config = crate::bench::config();
    config.limits.outstanding = 400;
    let mut bench = Bench::with(config);
    for (from, name) in [("Ca", "a"), ("Cb", "b"), ("Ce", "e")] {
        bench.register(from, name);
        let poa = format!(r#"{{"m2m:ae":{{"poa":["http://{name}:1"],"rr":true}}}}"#);
        bench.update(from, &format!("cse-in/{name}"), &poa);
    }
    bench.create("Ca", "cse-in/a", Kind::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    let tell = |bench: &mut Bench, from: &str, to: &str, kind: &str| {
        bench.asked += 1;
        let (token, id) = (Token(bench.asked), format!("t{}", bench.asked));
        let mut request = Request::new(Operation::Notify, to, from, id);
        for (name, value) in [("rt", kind), ("rqet", "86400000"), ("rp", "600000")] {
            request.set(name, value).unwrap();
        }
        let request = request.with_content(r#"{"m2m:sgn":{}}"#);
        bench.cse.handle(bench.now, Input::Request { token, request });
        bench.run();
    };
    for _ in 0..4_096 {
        tell(&mut bench, "Ca", "cse-in/a", "1");
    }
    assert_eq!(bench.calls().len(), 100, "a quarter of all");
    let counters = bench.cse.counters();
    assert_eq!((counters.outstanding_of_one_full, counters.outstanding_full), (3_996, 0));
    tell(&mut bench, "Cb", "cse-in/b", "5");
    assert_eq!(bench.calls().len(), 1, "another one is served");
    // Three quarters are for peers, whoever they are; what is left is for what devices say.
    for (from, to) in [("Cb", "cse-in/b"), ("CAdmin", "cse-in/b"), ("Ce", "cse-in/e")] {
        for _ in 0..100 {
            tell(&mut bench, from, to, "5");
        }
    }
    assert!(bench.cse.counters().outstanding_full > 0);
    bench.calls();
    for number in 0..100 {
        let letter = letter(&format!("device/C{number}"), "one");
        bench.cse.handle(bench.now, Input::Post { token: Token(9_000 + number), letter });
    }
    bench.run();
    assert_eq!(bench.calls().len(), 100, "every device's reading is on its way");
    // Nobody can be told any more: nobody waits any longer.
    bench.pass(Duration::from_mins(10));
    tell(&mut bench, "Ca", "cse-in/a", "1");
    assert!(bench.calls().iter().any(|call| call.urls == ["http://a:1"]));
}

/// Letters of one lane grow too old in any order; one that is under way may still arrive.
#[test]
fn letters_grow_too_old_each_at_its_time() {
    let mut bench = Bench::with_container();
    let ages = [5, 40, 10, 30, 10, 20];
    for (number, seconds) in (0..).zip(ages) {
        let mut letter = letter("device/Ca", &format!("n{number}"));
        letter.keep = Some(Duration::from_secs(seconds));
        bench.cse.handle(bench.now, Input::Post { token: Token(900 + number), letter });
        bench.run();
    }
    let first = bench.calls().remove(0);
    assert_eq!(first.request.id, "n0");
    bench.pass(Duration::from_secs(9));
    assert_eq!(bench.cse.letters(), 6, "the first is too old, and under way");
    bench.reply(&first, Status::Created);
    for (id, left) in [("n1", 5), ("n3", 2)] {
        let call = bench.calls().remove(0);
        assert_eq!((&*call.request.id, bench.cse.letters()), (id, left));
        bench.pass(Duration::from_secs(1));
        // What is behind it, or it itself, has become too old.
        bench.reply(&call, Status::Created);
    }
    assert_eq!(bench.calls().remove(0).request.id, "n5");
    let counters = bench.cse.counters();
    assert_eq!((counters.delivered, counters.letters_aged), (3, 2));
}
