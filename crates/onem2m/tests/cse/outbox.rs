//! Messages of our own, beside what else wants to be sent: order, windows, and what is done when the
//! outbox is full.

use crate::bench::{Bench, config};
use core::time::Duration;
use gatewright_onem2m::{
    Call, Input, Operation, OutboxMessage, Registrar, Request, ResourceType, Status, Token,
};
use std::collections::{BTreeSet, VecDeque};

const TARGET: &str = "http://up:8080";

/// A message on a device's queue that makes this instance above.
fn outbox_message(queue: &str, name: &str) -> OutboxMessage {
    let content = format!(r#"{{"m2m:cin":{{"rn":"{name}","con":"1"}}}}"#);
    let request = Request::new(Operation::Create, "/id-up/cse-up/c", "Ca", name)
        .creating(ResourceType::ContentInstance, content);
    let request = request.into();
    OutboxMessage { queue: queue.into(), target: TARGET.into(), request, keep: None, batch: None }
}

/// Creates an instance with the message that makes the same above; the answer.
fn both(bench: &mut Bench, id: &str, to: &str, name: &str) -> Status {
    both_of(bench, "device/Ca", id, to, name)
}

/// The same with a message on this queue.
fn both_of(bench: &mut Bench, queue: &str, id: &str, to: &str, name: &str) -> Status {
    let message = Box::new(outbox_message(queue, name));
    let content = message.request.content.clone().unwrap();
    let request = Request::new(Operation::Create, to, "Ca", id)
        .creating(ResourceType::ContentInstance, &*content);
    bench.asked += 1;
    let token = Token(bench.asked);
    bench.cse.handle(bench.now, Input::AskAndPost { token, request: request.into(), message });
    let answers = bench.run();
    assert_eq!((answers.len(), answers[0].0), (1, token), "{answers:?}");
    answers[0].1.status
}

/// What is not stored here is not to be found above either: a device is told that its reading was
/// not taken, and sends it again under another name.
#[test]
fn a_message_goes_with_what_is_stored_here_and_with_nothing_else() {
    let mut bench = Bench::with_container();
    for (id, to, name, status, messages) in [
        ("1", "cse-in/a/gone", "one", Status::NotFound, 0),
        ("2", "cse-in/a/c", "one", Status::Created, 1),
        // There already: its message may never have been written.
        ("3", "cse-in/a/c", "one", Status::Conflict, 2),
        // The same request once more: answered as before, and posted as before.
        ("2", "cse-in/a/c", "one", Status::Created, 2),
    ] {
        assert_eq!(both(&mut bench, id, to, name), status, "{id} {to} {name}");
        assert_eq!(bench.cse.messages_waiting(), messages, "{id} {to} {name}");
    }
    let asked = bench.calls();
    assert_eq!(asked.len(), 1, "it is not known to be there");
    assert_eq!((&*asked[0].urls[0], &*asked[0].request.id), (TARGET, "one"));
}

/// A bench whose outbox takes so many messages of a device, and the container of [`both`].
fn small(messages_waiting: usize) -> Bench {
    let mut config = config();
    config.limits.messages_waiting = messages_waiting;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    bench
}

/// Answers whatever is sent until nothing is; the names of the instances made above, in order.
fn arrive(bench: &mut Bench) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let calls = bench.calls();
        if calls.is_empty() {
            return names;
        }
        for call in calls {
            names.push(name_in(&call));
            assert_eq!((&*call.request.to, &*call.request.from), ("/id-up/cse-up/c", "Ca"));
            bench.reply(&call, Status::Created);
        }
    }
}

/// The name of the instance that a request creates.
fn name_in(call: &Call) -> String {
    let content = call.request.content.as_deref().unwrap();
    let content: serde_json::Value = serde_json::from_str(content).unwrap();
    content["m2m:cin"]["rn"].as_str().unwrap().to_owned()
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("n{number}")).collect()
}

/// A reading is never refused because the CSE above is away: what the outbox does not take is made
/// from the tree later, in order, as it was, and once.
#[test]
fn a_full_outbox_stores_readings_all_the_same_and_sends_them_later() {
    let mut bench = small(3);
    let names = names(200);
    for name in &names {
        assert_eq!(both(&mut bench, name, "cse-in/a/c", name), Status::Created);
    }
    assert_eq!(bench.cse.counters().readings_backlogged, 197);
    assert!(bench.cse.messages_waiting() <= 3 + 64, "memory is bounded");
    let rows =
        |bench: &Bench, mark: &str| bench.rows.values().filter(|row| row.starts_with(mark)).count();
    assert_eq!((rows(&bench, "{\"_x\":"), rows(&bench, "{\"_b\":")), (3, 1));
    assert_eq!(arrive(&mut bench), names);
    bench.pass(Duration::from_millis(100));
    assert_eq!((bench.cse.messages_waiting(), bench.cse.backlogs()), (0, 0));
    assert_eq!((rows(&bench, "{\"_x\":"), rows(&bench, "{\"_b\":")), (0, 0));
    // There is room again, and the outbox takes it.
    assert_eq!(both(&mut bench, "last", "cse-in/a/c", "last"), Status::Created);
    assert_eq!((bench.cse.backlogs(), arrive(&mut bench)), (0, vec!["last".to_owned()]));
}

/// What has arrived before the process was killed is sent again at most as far as it was not noted.
#[test]
fn a_backlog_goes_on_where_it_was_after_a_restart() {
    let mut bench = small(2);
    let names = names(150);
    for name in &names {
        both(&mut bench, name, "cse-in/a/c", name);
    }
    let mut arrived = Vec::new();
    for _ in 0..50 {
        let call = bench.calls.remove(0);
        arrived.push(name_in(&call));
        bench.reply(&call, Status::Created);
    }
    bench.pass(Duration::from_millis(100));
    bench.calls();
    bench.restart();
    bench.run();
    let rest = arrive(&mut bench);
    assert_eq!(rest.len(), 100, "nothing twice, and nothing missing");
    arrived.extend(rest);
    assert_eq!(arrived, names);
    bench.pass(Duration::from_millis(100));
    assert!(!bench.rows.values().any(|row| row.starts_with("{\"_")), "nothing is left behind");
}

/// The store fails while the outbox is full: neither the instance nor the backlog is there.
#[test]
fn a_backlog_is_taken_back_with_its_instance() {
    let mut bench = small(1);
    both(&mut bench, "1", "cse-in/a/c", "n0");
    let before = bench.cse.resources();
    let message = Box::new(outbox_message("device/Ca", "n1"));
    let content = message.request.content.clone().unwrap();
    let request = Request::new(Operation::Create, "cse-in/a/c", "Ca", "2")
        .creating(ResourceType::ContentInstance, &*content);
    bench.cse.handle(
        bench.now,
        Input::AskAndPost { token: Token(900), request: request.into(), message },
    );
    let Some(gatewright_onem2m::Output::Store(batch)) = bench.cse.poll_output() else {
        panic!("nothing to store");
    };
    bench.cse.handle(bench.now, Input::Failed(batch.number));
    assert_eq!(bench.run()[0].1.status, Status::InternalServerError);
    assert_eq!((bench.cse.backlogs(), bench.cse.resources()), (0, before));
    bench.pass(Duration::from_secs(2));
    assert_eq!(both(&mut bench, "3", "cse-in/a/c", "n1"), Status::Created);
    assert_eq!(arrive(&mut bench), ["n0", "n1"]);
}

/// Queues of one target take turns, each has a window, and what has arrived costs no commit of its
/// own.
#[test]
fn queues_share_their_target_and_answers_are_noted_together() {
    let mut config = config();
    (config.limits.queue_window, config.limits.target_window) = (4, 6);
    let mut bench = Bench::with(config);
    for number in 0..12 {
        for (at, queue) in ["device/Ca", "device/Cb", "device/Cc"].into_iter().enumerate() {
            let message = outbox_message(queue, &format!("{queue}-{number}"));
            let token = Token(900 + 12 * at as u64 + number);
            bench.cse.handle(bench.now, Input::Post { token, message });
            bench.run();
        }
    }
    let first = bench.calls();
    assert_eq!(first.len(), 1, "it is not known to be there");
    bench.reply(&first[0], Status::Created);
    let of = |calls: &[Call], queue: &str| {
        calls.iter().filter(|call| call.queue.as_deref() == Some(queue)).count()
    };
    let all = |calls: &[Call]| ["device/Ca", "device/Cb", "device/Cc"].map(|it| of(calls, it));
    let mut calls = bench.calls();
    assert_eq!(all(&calls), [2, 1, 1], "who was taken may send two");
    let mut arrived = vec![first[0].clone()];
    for call in std::mem::take(&mut calls) {
        bench.reply(&call, Status::Created);
        arrived.push(call);
        calls.extend(bench.calls());
    }
    assert_eq!(calls.len(), 6, "the target's window");
    assert!(all(&calls).iter().all(|count| (1..=4).contains(count)), "{:?}", all(&calls));
    let batches = bench.cse.counters().batches;
    let mut calls: VecDeque<_> = calls.into();
    while let Some(call) = calls.pop_front() {
        bench.reply(&call, Status::Created);
        arrived.push(call);
        assert!(calls.len() < 6);
        calls.extend(bench.calls());
    }
    for queue in ["device/Ca", "device/Cb", "device/Cc"] {
        let of = arrived.iter().filter(|call| call.queue.as_deref() == Some(queue));
        let ids: Vec<_> = of.map(|call| call.request.id.clone()).collect();
        let expected: Vec<_> = (0..12).map(|number| format!("{queue}-{number}")).collect();
        assert_eq!(ids, expected);
    }
    assert_eq!(bench.cse.counters().batches, batches, "none of them was a commit");
    bench.pass(Duration::from_millis(100));
    assert_eq!(bench.cse.counters().batches, batches + 1, "all of them were one");
    assert!(!bench.rows.values().any(|row| row.starts_with("{\"_x\"")));
}

/// A route that keeps no order gets one request of a queue at a time, and the next one after its
/// answer.
#[test]
fn messages_go_one_after_the_other_where_the_route_keeps_no_order() {
    let mut bench = Bench::with_container();
    for number in 0..5 {
        let mut message = outbox_message("device/Ca", &format!("n{number}"));
        message.target = "wss://up:1".into();
        bench.cse.handle(bench.now, Input::Post { token: Token(900 + number), message });
        bench.run();
    }
    for number in 0..5 {
        let calls = bench.calls();
        assert_eq!(calls.len(), 1);
        assert_eq!(name_in(&calls[0]), format!("n{number}"));
        bench.reply(&calls[0], Status::Created);
    }
    assert_eq!(bench.cse.messages_waiting(), 0);
}

/// However many queues wait for a target that is away, it is tried once at a time, and when it is
/// back all go on.
#[test]
fn a_target_that_is_away_is_tried_once_at_a_time() {
    let mut bench = Bench::with_container();
    for number in 0..50 {
        let message = outbox_message(&format!("device/C{number}"), "x");
        bench.cse.handle(bench.now, Input::Post { token: Token(900 + number), message });
        bench.run();
    }
    for (attempt, pause) in [1, 2, 4].into_iter().enumerate() {
        let calls = bench.calls();
        assert_eq!(calls.len(), 1, "attempt {attempt}");
        bench.away(&calls[0]);
        bench.pass(Duration::from_millis(1_000 * pause - 1));
        assert!(bench.calls().is_empty());
        bench.pass(Duration::from_millis(1));
    }
    let call = bench.calls().remove(0);
    bench.reply(&call, Status::Created);
    assert_eq!(bench.calls().len(), 49);
}

/// The store fails: neither the instance nor its message is there.
#[test]
fn both_are_taken_back_together() {
    let mut bench = Bench::with_container();
    let message = Box::new(outbox_message("device/Ca", "one"));
    let content = message.request.content.clone().unwrap();
    let request = Request::new(Operation::Create, "cse-in/a/c", "Ca", "1")
        .creating(ResourceType::ContentInstance, &*content);
    let before = bench.cse.resources();
    bench.cse.handle(
        bench.now,
        Input::AskAndPost { token: Token(900), request: request.into(), message },
    );
    let Some(gatewright_onem2m::Output::Store(batch)) = bench.cse.poll_output() else {
        panic!("nothing to store");
    };
    assert_eq!(batch.records.len(), 2, "one batch");
    bench.cse.handle(bench.now, Input::Failed(batch.number));
    assert_eq!(bench.run()[0].1.status, Status::InternalServerError);
    assert_eq!((bench.cse.messages_waiting(), bench.cse.resources()), (0, before));
    assert_eq!(both(&mut bench, "2", "cse-in/a/c", "one"), Status::Created);
    assert_eq!(bench.cse.messages_waiting(), 1);
}

/// A subscription of `from` to the container, whose target is away and has `seen` its verification.
fn subscribe(bench: &mut Bench, from: &str, name: &str) {
    let sub =
        format!(r#"{{"m2m:sub":{{"rn":"{name}","nu":["http://{name}:1"],"enc":{{"net":[3]}}}}}}"#);
    let request = bench
        .request(Operation::Create, from, "cse-in/a/c")
        .creating(ResourceType::Subscription, sub);
    bench.ask_later(request);
    for call in bench.calls() {
        bench.reply(&call, Status::Ok);
    }
}

/// Who fills the room of notifications fills that: readings have their own, and a quarter is as
/// much as one originator's subscriptions use up.
#[test]
fn notifications_to_targets_that_are_away_take_no_room_of_readings_nor_of_others() {
    let mut config = config();
    config.limits.notifications_waiting = 8;
    config.limits.notifications_waiting_total = 40;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    for number in 0..5 {
        subscribe(&mut bench, "Ca", &format!("ca{number}"));
    }
    subscribe(&mut bench, "CAdmin", "other");
    for number in 0..20 {
        assert_eq!(bench.reading(&format!("n{number}"), "1").status, Status::Created);
    }
    // Ten of the one who has five subscriptions, eight of the one who has one.
    assert_eq!(bench.cse.messages_waiting(), 10 + 8);
    assert_eq!(bench.cse.counters().subscriptions_behind, 6);
    for number in 0..50 {
        let name = format!("r{number}");
        assert_eq!(both(&mut bench, &name, "cse-in/a/c", &name), Status::Created);
    }
    assert!(bench.cse.messages_waiting() >= 50 + 18, "{}", bench.cse.messages_waiting());
    // After a restart they are counted as before.
    bench.cse = bench.reopened();
    bench.run();
    assert!(bench.cse.has_room("device/Cb", 1));
    assert!(!bench.cse.has_room(&queue_of(&bench, "ca0"), 1));
}

fn queue_of(bench: &Bench, name: &str) -> String {
    let target = format!("http://{name}:1");
    let rows = bench.rows.values().find_map(|row| {
        let row: serde_json::Value = serde_json::from_str(row).ok()?;
        let message = row.get("_x")?;
        (message["target"] == target.as_str()).then(|| message["lane"].as_str().unwrap().to_owned())
    });
    rows.unwrap()
}

/// Requests that nobody hurries for, to an entity that is silent: as many as one originator may
/// have, and readings go above all the same, and what others ask is asked.
#[test]
fn thousands_of_requests_that_wait_for_a_silent_entity_hold_up_nobody_else() {
    let mut config = config();
    config.limits.outstanding = 400;
    let mut bench = Bench::with(config);
    for (from, name) in [("Ca", "a"), ("Cb", "b"), ("Ce", "e")] {
        bench.register(from, name);
        let poa = format!(r#"{{"m2m:ae":{{"poa":["http://{name}:1"],"rr":true}}}}"#);
        bench.update(from, &format!("cse-in/{name}"), &poa);
    }
    bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    let tell = |bench: &mut Bench, from: &str, to: &str, response_type: &str| {
        bench.asked += 1;
        let (token, id) = (Token(bench.asked), format!("t{}", bench.asked));
        let mut request = Request::new(Operation::Notify, to, from, id);
        for (name, value) in [("rt", response_type), ("rqet", "86400000"), ("rp", "600000")] {
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
        let message = outbox_message(&format!("device/C{number}"), "one");
        bench.cse.handle(bench.now, Input::Post { token: Token(9_000 + number), message });
    }
    bench.run();
    // The first answer shows that the target is there.
    let first = bench.calls().remove(0);
    bench.reply(&first, Status::Created);
    assert_eq!(bench.calls().len(), 99, "every device's reading is on its way");
    // Nobody can be told any more: nobody waits any longer.
    bench.pass(Duration::from_mins(10));
    tell(&mut bench, "Ca", "cse-in/a", "1");
    assert!(bench.calls().iter().any(|call| call.urls == ["http://a:1"]));
}

/// Messages of one queue expire in any order; one that is in progress may still arrive.
#[test]
fn messages_expire_each_at_its_time() {
    let mut config = config();
    config.limits.queue_window = 1;
    let mut bench = Bench::with(config);
    let ages = [5, 40, 10, 30, 10, 20];
    for (number, seconds) in (0..).zip(ages) {
        let mut message = outbox_message("device/Ca", &format!("n{number}"));
        message.keep = Some(Duration::from_secs(seconds));
        bench.cse.handle(bench.now, Input::Post { token: Token(900 + number), message });
        bench.run();
    }
    let first = bench.calls().remove(0);
    assert_eq!(first.request.id, "n0");
    bench.pass(Duration::from_secs(9));
    assert_eq!(bench.cse.messages_waiting(), 6, "the first has expired, and is in progress");
    bench.reply(&first, Status::Created);
    for (id, left) in [("n1", 5), ("n3", 2)] {
        let call = bench.calls().remove(0);
        assert_eq!((&*call.request.id, bench.cse.messages_waiting()), (id, left));
        bench.pass(Duration::from_secs(1));
        // What is behind it, or it itself, has expired.
        bench.reply(&call, Status::Created);
    }
    assert_eq!(bench.calls().remove(0).request.id, "n5");
    let counters = bench.cse.counters();
    assert_eq!((counters.delivered, counters.messages_aged), (3, 2));
}

/// So many subscriptions of `Ca` to the container, each with a target of its own.
fn subscribe_all(bench: &mut Bench, count: usize) {
    for number in 0..count {
        let content = format!(
            r#"{{"m2m:sub":{{"rn":"s{number}","nu":["http://t{number}:1"],"enc":{{"net":[1,3],"chty":[4]}}}}}}"#
        );
        let request = bench
            .request(Operation::Create, "Ca", "cse-in/a/c")
            .creating(ResourceType::Subscription, content);
        bench.ask_later(request);
        let asked = bench.calls();
        bench.reply(&asked[0], Status::Ok);
    }
}

/// Waiting notifications are counted by their octets: an AE that has large ones sent to many targets
/// uses no more than its share, and loses its own.
#[test]
fn large_notifications_take_several_places() {
    let mut config = config();
    // A quarter of 160 for one originator: 40.
    config.limits.notifications_waiting_total = 160;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    subscribe_all(&mut bench, 10);
    // 8 KiB: five places, so that eight fit and two do not.
    assert_eq!(bench.reading("large", &"x".repeat(8_400)).status.number(), 2001);
    assert_eq!(bench.cse.messages_waiting(), 8);
    assert_eq!(bench.cse.counters().notifications_dropped, 2);
    // In the places of a large one, small ones have room.
    bench.calls();
    for number in 0..3 {
        assert_eq!(bench.reading(&format!("n{number}"), "1").status.number(), 2001);
    }
    assert!(bench.cse.messages_waiting() <= 40, "{}", bench.cse.messages_waiting());
    bench.restart();
    assert!(bench.cse.messages_waiting() <= 40);
}

/// The octets of messages are bounded as their number is: readings are stored here and go above later,
/// from the tree, in order and with all digits, and an outbox message has a row only within the bound.
#[test]
fn readings_beyond_the_octets_of_the_outbox_go_above_later() {
    let mut config = config();
    config.limits.messages_octets = 10_000;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    let all = names(40);
    for name in &all {
        assert_eq!(both(&mut bench, name, "cse-in/a/c", name), Status::Created);
    }
    let messages = |bench: &Bench| {
        let rows = bench.rows.values().filter(|row| row.starts_with("{\"_x\":"));
        rows.map(|row| row.len()).collect::<Vec<usize>>()
    };
    let rows = messages(&bench);
    assert!(rows.len() > 5 && rows.iter().sum::<usize>() <= 10_000, "{rows:?}");
    let counters = bench.cse.counters();
    assert!(counters.readings_backlogged > 20, "{counters:?}");
    assert_eq!(counters.outbox_octets_full, counters.readings_backlogged);
    // What was sent before is sent again.
    bench.calls();
    bench.restart();
    assert!(messages(&bench).iter().sum::<usize>() <= 10_000);
    let mut arrived = Vec::new();
    for _ in 0..all.len() {
        arrived.extend(arrive(&mut bench));
        bench.pass(Duration::from_millis(200));
    }
    assert_eq!((arrived, bench.cse.messages_waiting()), (all, 0));
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.cse.backlogs(), 0);
}

/// So are those of notifications; one that is larger than all of its part waits alone.
#[test]
fn notifications_are_bounded_in_octets() {
    let mut config = config();
    config.limits.notifications_octets = 16_000;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    subscribe_all(&mut bench, 10);
    assert_eq!(bench.reading("large", &"x".repeat(9_000)).status.number(), 2001);
    assert_eq!(bench.cse.messages_waiting(), 1);
    for number in 0..10 {
        assert_eq!(bench.reading(&format!("n{number}"), "1").status.number(), 2001);
    }
    assert!(bench.cse.messages_waiting() <= 8, "{}", bench.cse.messages_waiting());
    assert!(bench.cse.has_room("device/Cb", 1));
}

/// While answers are late, what a device has reported goes on here at once and above later: for a
/// second at a time, and nobody else's messages wait.
#[test]
fn messages_of_devices_give_way_for_a_second_while_answers_are_late() {
    let mut bench = small(100);
    assert_eq!(both(&mut bench, "1", "cse-in/a/c", "n1"), Status::Created);
    bench.cse.handle(bench.clocks(), Input::Overloaded);
    for name in ["n2", "n3"] {
        assert_eq!(both(&mut bench, name, "cse-in/a/c", name), Status::Created);
    }
    let first = bench.calls();
    assert_eq!(first.iter().map(name_in).collect::<Vec<_>>(), ["n1"], "it was sent before");
    bench.reply(&first[0], Status::Created);
    assert!(bench.calls().is_empty(), "the next one waits");
    subscribe(&mut bench, "CAdmin", "sub");
    assert_eq!(bench.reading("n4", "1").status.number(), 2001);
    let notified = bench.calls();
    assert!(notified.iter().all(|call| call.request.operation == Operation::Notify));
    assert_eq!(notified.len(), 1);
    bench.cse.handle(bench.clocks(), Input::Overloaded);
    bench.pass(Duration::from_millis(999));
    assert!(bench.calls().is_empty());
    bench.pass(Duration::from_millis(1));
    assert_eq!(arrive(&mut bench), ["n2", "n3"]);
    assert_eq!(bench.cse.counters().overloads, 1);
}

/// Answers that are late for good do not keep messages here: neither those of a small outbox, nor
/// those that are made from the tree because it was full.
#[test]
fn a_small_outbox_goes_on_however_long_answers_are_late() {
    let mut bench = small(2);
    for name in names(9) {
        assert_eq!(both(&mut bench, &name, "cse-in/a/c", &name), Status::Created);
    }
    assert_eq!(bench.cse.counters().readings_backlogged, 7);
    let mut arrived = Vec::new();
    for _ in 0..1_200 {
        bench.cse.handle(bench.clocks(), Input::Overloaded);
        for call in bench.calls() {
            arrived.push(name_in(&call));
            bench.reply(&call, Status::Created);
        }
        bench.pass(Duration::from_millis(10));
    }
    assert_eq!((arrived, bench.cse.messages_waiting()), (names(9), 0));
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.cse.backlogs(), 0);
    assert!(bench.cse.counters().overloads > 1);
}

/// A bench whose outbox takes one message of all devices together.
fn small_for_all() -> Bench {
    let mut config = config();
    config.limits.messages_waiting_total = 1;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    bench
}

/// Stores a reading of each of some devices, from the one of this number on, in a container of its own.
fn readings_of_devices(bench: &mut Bench, first: usize, names: &[String]) {
    for (number, name) in (first..).zip(names) {
        let container = format!(r#"{{"m2m:cnt":{{"rn":"c{number}"}}}}"#);
        bench.create("Ca", "cse-in/a", ResourceType::Container, &container);
        let (queue, to) = (format!("device/C{number}"), format!("cse-in/a/c{number}"));
        assert_eq!(both_of(bench, &queue, name, &to, name), Status::Created);
    }
}

/// What a target does not take is not made ahead: while the CSE above is away, readings beyond the
/// outbox cost neither memory nor reads, and they all go when it is there.
#[test]
fn messages_are_made_from_the_tree_when_their_target_takes_them() {
    let mut bench = small_for_all();
    let names = names(40);
    let (first, rest) = names.split_at(1);
    readings_of_devices(&mut bench, 0, first);
    let call = bench.calls().remove(0);
    bench.away(&call);
    readings_of_devices(&mut bench, 1, rest);
    assert_eq!((bench.cse.messages_waiting(), bench.cse.backlogs()), (1, 39));
    assert!(bench.calls().is_empty());
    bench.pass(Duration::from_secs(10));
    let arrived: BTreeSet<String> = arrive(&mut bench).into_iter().collect();
    assert_eq!(arrived, names.into_iter().collect());
    bench.pass(Duration::from_secs(1));
    assert_eq!((bench.cse.messages_waiting(), bench.cse.backlogs()), (0, 0));
}

/// The CSE above has another address before messages were made for the one that was away.
#[test]
fn messages_that_were_not_made_go_to_the_new_address_of_the_cse_above() {
    let config = |url: &str| {
        let mut config = config();
        config.limits.messages_waiting_total = 1;
        config.registrar = Some(Registrar {
            cse_id: "/id-up".to_owned(),
            name: "cse-up".to_owned(),
            url: url.to_owned(),
        });
        config
    };
    let mut bench = Bench::with(config(TARGET));
    bench.register("Ca", "a");
    let names = names(5);
    for number in 0..names.len() {
        readings_of_devices(&mut bench, number, &names[number..=number]);
        for call in bench.calls() {
            bench.away(&call);
        }
    }
    assert_eq!((bench.cse.messages_waiting(), bench.cse.backlogs()), (1, 4));
    bench.cse.reconfigure(bench.clocks(), config("http://up:9090"));
    bench.run();
    let mut arrived = BTreeSet::new();
    for _ in 0..100 {
        for call in bench.calls() {
            if call.request.resource_type == Some(ResourceType::ContentInstance) {
                assert_eq!(call.urls, ["http://up:9090"]);
                arrived.insert(name_in(&call));
            }
            bench.reply(&call, Status::Created);
        }
        bench.pass(Duration::from_millis(100));
    }
    assert_eq!(arrived, names.into_iter().collect());
    assert_eq!((bench.cse.messages_waiting(), bench.cse.backlogs()), (0, 0));
}

/// The same while answers are late: messages that give way are not made either.
#[test]
fn messages_that_give_way_are_not_made_from_the_tree() {
    let mut bench = small_for_all();
    let names = names(5);
    let (first, rest) = names.split_at(1);
    readings_of_devices(&mut bench, 0, first);
    bench.cse.handle(bench.clocks(), Input::Overloaded);
    readings_of_devices(&mut bench, 1, rest);
    assert_eq!((bench.cse.messages_waiting(), bench.cse.backlogs()), (1, 4));
    bench.pass(Duration::from_secs(1));
    assert_eq!(arrive(&mut bench).len(), 5);
    bench.pass(Duration::from_secs(1));
    assert_eq!((bench.cse.messages_waiting(), bench.cse.backlogs()), (0, 0));
}
