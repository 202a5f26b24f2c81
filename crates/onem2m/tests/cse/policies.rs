//! Notification policies of subscriptions (TS-0001 §9.6.8): rate limits, statistics, events before the
//! subscription, subscriptions across resources; and subscriptions that lag behind.

use crate::bench::{Bench, config, json};
use core::time::Duration;
use gatewright_onem2m::{Call, Cse, Input, Operation, Output, ResourceType, Status, Token};
use serde_json::{Value, json};

const TARGET: &str = "http://there:1/n";

/// Subscribes `Ca` below `cse-in/a/c`, at a target that agrees; the number of the answer.
fn subscribe(bench: &mut Bench, name: &str, attributes: &str) -> u16 {
    let content = format!(r#"{{"m2m:sub":{{"rn":"{name}","nu":["{TARGET}"]{attributes}}}}}"#);
    let request = bench
        .request(Operation::Create, "Ca", "cse-in/a/c")
        .creating(ResourceType::Subscription, content);
    let mut answers = bench.ask_all(request);
    for call in bench.calls() {
        answers.extend(bench.reply(&call, Status::Ok));
    }
    answers.remove(0).1.status.number()
}

fn subscribed(attributes: &str) -> Bench {
    let mut bench = Bench::with_container();
    assert_eq!(subscribe(&mut bench, "s", attributes), 2001);
    bench
}

fn content(call: &Call) -> Value {
    serde_json::from_str(call.request.content.as_deref().unwrap()).unwrap()
}

/// The name of what a notification is about.
fn told(call: &Call) -> String {
    let content = content(call);
    let representation = content["m2m:sgn"]["nev"]["rep"].as_object().unwrap();
    representation.values().next().unwrap()["rn"].as_str().unwrap().to_owned()
}

/// Answers calls until there are none; what they told.
fn hear(bench: &mut Bench) -> Vec<String> {
    let mut heard = Vec::new();
    loop {
        let calls = bench.calls();
        if calls.is_empty() {
            return heard;
        }
        for call in calls {
            heard.push(told(&call));
            bench.reply(&call, Status::Ok);
        }
    }
}

fn statistics(bench: &mut Bench) -> Value {
    json(&bench.get("Ca", "cse-in/a/c/s"))["m2m:sub"]["nsi"].clone()
}

/// TS-0001 §9.6.8, rateLimit: beyond the number, notifications wait for the end of the window.
#[test]
fn a_rate_limit_holds_notifications_until_the_next_window() {
    let mut bench = subscribed(r#","enc":{"net":[3]},"rl":{"mnn":2,"tww":"PT10S"}"#);
    for number in 0..5 {
        bench.reading(&format!("n{number}"), "1");
        bench.now += Duration::from_secs(1);
    }
    assert_eq!(hear(&mut bench), ["n0", "n1"], "the window began with the first");
    bench.pass(Duration::from_millis(4_900));
    assert!(hear(&mut bench).is_empty());
    bench.pass(Duration::from_millis(200));
    assert_eq!(hear(&mut bench), ["n2", "n3"]);
    bench.pass(Duration::from_secs(10));
    assert_eq!(hear(&mut bench), ["n4"]);
    // A window without notifications saves up nothing.
    bench.pass(Duration::from_mins(5));
    for number in 5..8 {
        bench.reading(&format!("n{number}"), "1");
    }
    assert_eq!(hear(&mut bench), ["n5", "n6"]);
    // Without the limit what waits goes at once.
    bench.update("Ca", "cse-in/a/c/s", r#"{"m2m:sub":{"rl":null}}"#);
    bench.pass(Duration::from_secs(10));
    assert_eq!(hear(&mut bench), ["n7"]);
    for wrong in ["{}", r#"{"mnn":0,"tww":"PT1S"}"#, r#"{"mnn":1}"#, r#"{"mnn":1,"tww":"soon"}"#] {
        let attributes = format!(r#","rl":{wrong}"#);
        assert_eq!(subscribe(&mut bench, "t", &attributes), 4000, "{wrong}");
    }
}

/// TS-0001 §9.6.8, notificationStatsEnable: counted while it is true, kept when it becomes false, and
/// begun again when it becomes true.
#[test]
fn statistics_are_counted_for_each_target() {
    let mut bench = subscribed(r#","enc":{"net":[3]},"nse":true"#);
    assert!(statistics(&mut bench).is_null(), "nothing is counted yet");
    bench.reading("one", "1");
    bench.reading("two", "2");
    let counted = |sent: u64, answered: u64, events: u64| json!([{ "tg": TARGET, "rqs": sent, "rsr": answered, "noec": events }]);
    assert_eq!(statistics(&mut bench), counted(1, 0, 2), "the target has not proved itself");
    hear(&mut bench);
    assert_eq!(statistics(&mut bench), counted(2, 2, 2));
    bench.pass(Duration::from_secs(10));
    bench.restart();
    assert_eq!(statistics(&mut bench), counted(2, 2, 2), "stored within 10 s");
    let update = |bench: &mut Bench, nse: &str| {
        let content = format!(r#"{{"m2m:sub":{{"nse":{nse}}}}}"#);
        assert_eq!(bench.update("Ca", "cse-in/a/c/s", &content).status.number(), 2004);
    };
    update(&mut bench, "false");
    bench.reading("three", "3");
    hear(&mut bench);
    assert_eq!(statistics(&mut bench), counted(2, 2, 2), "kept, and not counted on");
    update(&mut bench, "true");
    assert!(statistics(&mut bench).is_null());
    bench.reading("four", "4");
    hear(&mut bench);
    assert_eq!(statistics(&mut bench), counted(1, 1, 1));
    update(&mut bench, "null");
    assert!(statistics(&mut bench).is_null());
    let given = bench.update("Ca", "cse-in/a/c/s", r#"{"m2m:sub":{"nsi":[]}}"#);
    assert_eq!(given.status.number(), 4000, "only the CSE gives it");
}

/// TS-0001 §9.6.8, preSubscriptionNotify: prior events that are retained, in their order.
#[test]
fn what_was_before_a_subscription_is_told_if_wished() {
    let mut bench = Bench::with_container();
    for number in 0..4 {
        bench.reading(&format!("n{number}"), if number == 2 { "123" } else { "1" });
    }
    assert_eq!(subscribe(&mut bench, "s", r#","enc":{"net":[3]},"psn":3"#), 2001);
    assert_eq!(hear(&mut bench), ["n1", "n2", "n3"]);
    bench.reading("n4", "1");
    assert_eq!(hear(&mut bench), ["n4"]);
    bench.delete("Ca", "cse-in/a/c/s");
    let sized = r#","enc":{"net":[3],"szb":2},"psn":2"#;
    assert_eq!(subscribe(&mut bench, "s", sized), 2001, "those that meet the criteria");
    assert_eq!(hear(&mut bench), ["n3", "n4"]);
    assert_eq!(subscribe(&mut bench, "u", r#","psn":2"#), 2001, "updates are not retained");
    assert!(hear(&mut bench).is_empty());
    assert_eq!(subscribe(&mut bench, "v", r#","psn":0"#), 4000);
    let changed = bench.update("Ca", "cse-in/a/c/s", r#"{"m2m:sub":{"psn":1}}"#);
    assert_eq!(changed.status.number(), 4000, "at creation only");
}

/// TS-0004 §7.4.8.2.4: subscriptions across resources hear that one of theirs is deleted.
#[test]
fn a_subscription_across_resources_hears_the_end_of_its_parts() {
    let mut bench = Bench::with_container();
    bench.update("Ca", "cse-in/a", r#"{"m2m:ae":{"poa":["http://a:1/in"],"rr":true}}"#);
    let acrs = r#","acrs":["http://a:1/in","Ca"],"enc":{"net":[3]}"#;
    assert_eq!(subscribe(&mut bench, "s", acrs), 2001);
    let ends = |bench: &mut Bench| {
        let calls = bench.calls();
        assert!(calls.iter().all(|call| content(call)["m2m:sgn"]["sud"] == json!(true)));
        let targets: Vec<String> = calls.iter().map(|call| call.request.to.clone()).collect();
        for call in calls {
            bench.reply(&call, Status::Ok);
        }
        targets
    };
    bench.update("Ca", "cse-in/a/c/s", r#"{"m2m:sub":{"acrs":["http://a:1/in"]}}"#);
    assert_eq!(ends(&mut bench).len(), 1, "it is no part of the other any more");
    bench.delete("Ca", "cse-in/a/c/s");
    assert_eq!(ends(&mut bench), ["http://a:1/in"]);
    // Whom the subscriber may not notify, nobody notifies for it.
    bench.register("Cb", "b");
    assert_eq!(subscribe(&mut bench, "t", r#","acrs":["Cb"]"#), 4103);
    assert_eq!(subscribe(&mut bench, "t", ""), 2001);
    let changed = bench.update("Ca", "cse-in/a/c/t", r#"{"m2m:sub":{"acrs":["Cb"]}}"#);
    assert_eq!(changed.status.number(), 4103);
}

/// A bench with room for few notifications, and a subscription that lags behind: its target is away.
fn lagging(attributes: &str, readings: usize) -> Bench {
    let mut config = config();
    config.limits.notifications_waiting = 3;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    assert_eq!(subscribe(&mut bench, "s", attributes), 2001);
    for number in 0..readings {
        bench.reading(&format!("n{number}"), "1");
        for call in bench.calls() {
            bench.away(&call);
        }
    }
    bench
}

/// Children that a subscription could not be told of wait in the tree; they are told in order, none
/// of them twice, over a restart too.
#[test]
fn a_subscription_without_room_lags_behind_and_catches_up() {
    for restarts in [false, true] {
        let mut bench = lagging(r#","enc":{"net":[3]}"#, 200);
        let counters = bench.cse.counters();
        assert_eq!((counters.subscriptions_behind, counters.notifications_dropped), (1, 0));
        assert_eq!(counters.notifications, 3, "no notification is made for one that lags");
        assert_eq!(bench.cse.messages_waiting(), 3);
        let rows = bench.rows.len();
        bench.reading("n200", "1");
        assert_eq!(bench.rows.len(), rows + 1, "the reading, and nothing else, is stored");
        if restarts {
            bench.restart();
        } else {
            bench.pass(Duration::from_mins(2));
        }
        let heard = hear(&mut bench);
        let expected: Vec<String> = (0..=200).map(|number| format!("n{number}")).collect();
        assert_eq!(heard, expected, "restarts: {restarts}");
        assert_eq!(bench.cse.counters().notifications_dropped, 0);
        // It has caught up.
        bench.reading("then", "1");
        assert_eq!(hear(&mut bench), ["then"]);
        bench.pass(Duration::from_secs(1));
        assert!(!bench.rows.values().any(|row| row.starts_with("{\"_l\"")), "no row is left");
    }
}

/// Instances that went before it was told of them are counted, for the subscriber too.
#[test]
fn what_a_lagging_subscription_misses_is_counted() {
    let mut bench = lagging(r#","enc":{"net":[3]},"nse":true"#, 10);
    bench.update("Ca", "cse-in/a/c", r#"{"m2m:cnt":{"lbl":["x"]}}"#);
    for number in 0..7 {
        bench.delete("Ca", &format!("cse-in/a/c/n{number}"));
    }
    bench.pass(Duration::from_mins(2));
    assert_eq!(hear(&mut bench), ["n0", "n1", "n2", "n7", "n8", "n9"]);
    assert_eq!(bench.cse.counters().notifications_dropped, 4, "n3 to n6");
    assert_eq!(statistics(&mut bench)[0]["noec"], 10);
    // A subscription that ends has missed the rest.
    let mut bench = lagging(r#","enc":{"net":[3]}"#, 10);
    bench.delete("Ca", "cse-in/a/c/s");
    assert_eq!(bench.cse.counters().notifications_dropped, 7);
    assert!(!bench.rows.values().any(|row| row.starts_with("{\"_l\"")), "no row is left");
}

/// What could not be stored has not begun, and not gone on.
#[test]
fn a_lag_that_is_not_stored_has_not_begun() {
    let mut bench = lagging(r#","enc":{"net":[3]}"#, 3);
    // What is stored but for the instances, of which some may be paged out, and their number.
    let stored = |cse: &Cse| {
        let rows = cse.rows().filter(|(_, row)| !row.starts_with("{\"m2m:cin\""));
        (rows.collect::<Vec<_>>(), cse.resources())
    };
    let before = stored(&bench.cse);
    let fail = |bench: &mut Bench, input: Input| {
        bench.cse.handle(bench.now, input);
        while let Some(output) = bench.cse.poll_output() {
            if let Output::Store(batch) = output {
                bench.cse.handle(bench.now, Input::Failed(batch.number));
            }
        }
    };
    let request = bench
        .request(Operation::Create, "Ca", "cse-in/a/c")
        .creating(ResourceType::ContentInstance, r#"{"m2m:cin":{"rn":"n3"}}"#);
    fail(&mut bench, Input::Request { token: Token(900), request });
    assert_eq!(stored(&bench.cse), before);
    bench.reading("n3", "1");
    bench.reading("n4", "1");
    let before = stored(&bench.cse);
    assert!(before.0.iter().any(|(_, row)| row.starts_with(r#"{"_l""#)));
    assert_eq!(stored(&bench.reopened()), before);
    bench.pass(Duration::from_mins(2));
    assert_eq!(hear(&mut bench), ["n0", "n1", "n2", "n3", "n4"]);
}

/// Its counter counts what it is told of, late as it may be.
#[test]
fn a_lagging_subscription_ends_by_its_counter() {
    let mut bench = lagging(r#","enc":{"net":[3]},"exc":5"#, 10);
    bench.pass(Duration::from_mins(2));
    assert_eq!(hear(&mut bench), ["n0", "n1", "n2", "n3", "n4"]);
    assert_eq!(bench.get("Ca", "cse-in/a/c/s").status.number(), 4004);
}

/// Others may leave no room at all: it goes on by one notification at a time.
#[test]
fn a_lagging_subscription_goes_on_when_others_have_all_room() {
    let mut config = config();
    config.limits.notifications_waiting_total = 8;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    let other = r#","enc":{"net":[1,3]}"#;
    let content = format!(r#"{{"m2m:sub":{{"rn":"dead","nu":["http://dead:1"]{other}}}}}"#);
    let request = bench
        .request(Operation::Create, "Ca", "cse-in/a/c")
        .creating(ResourceType::Subscription, content);
    bench.ask_later(request);
    let asked = bench.calls();
    bench.reply(&asked[0], Status::Ok);
    for number in 0..2 {
        bench.reading(&format!("d{number}"), "1");
        for call in bench.calls() {
            bench.away(&call);
        }
    }
    assert_eq!(bench.cse.messages_waiting(), 2, "a quarter of all is one originator's");
    assert_eq!(subscribe(&mut bench, "s", r#","enc":{"net":[3]}"#), 2001);
    let mut heard = Vec::new();
    for number in 0..5 {
        bench.reading(&format!("n{number}"), "1");
        for call in bench.calls() {
            match call.urls[0].as_str() {
                TARGET => {
                    heard.push(told(&call));
                    bench.reply(&call, Status::Ok);
                }
                _ => drop(bench.away(&call)),
            }
        }
    }
    assert_eq!(heard, ["n0", "n1", "n2", "n3", "n4"]);
}

/// TS-0001 §9.6.9: a subscription sends notifications at the times of its schedule.
#[test]
fn notifications_wait_for_the_times_of_a_schedule() {
    // 22:13:20: seconds 40 to 59 of each minute.
    let mut bench = subscribed(r#","enc":{"net":[3]}"#);
    let schedule = r#"{"m2m:sch":{"se":{"sce":["40-59 * * * * * *"]}}}"#;
    let made = bench.create("Ca", "cse-in/a/c/s", ResourceType::Schedule, schedule);
    assert_eq!(made.status.number(), 2001, "{made:?}");
    assert_eq!(json(&made)["m2m:sch"]["rn"], "notificationSchedule");
    bench.reading("one", "1");
    assert!(hear(&mut bench).is_empty());
    bench.pass(Duration::from_secs(19));
    assert!(hear(&mut bench).is_empty());
    bench.pass(Duration::from_secs(1));
    assert_eq!(hear(&mut bench), ["one"]);
    bench.reading("two", "2");
    assert_eq!(hear(&mut bench), ["two"], "it is 22:13:40");
    bench.pass(Duration::from_secs(20));
    bench.reading("three", "3");
    assert!(hear(&mut bench).is_empty(), "22:14:00");
    // Without the schedule, within a minute.
    bench.delete("Ca", "cse-in/a/c/s/notificationSchedule");
    bench.pass(Duration::from_mins(1));
    assert_eq!(hear(&mut bench), ["three"]);
}

/// The schedule of an AE says when it can be reached.
#[test]
fn an_entity_is_notified_at_the_times_of_its_schedule() {
    let mut bench = Bench::with_container();
    bench.update("Ca", "cse-in/a", r#"{"m2m:ae":{"poa":["http://a:1/in"],"rr":true}}"#);
    let own = r#"{"m2m:sub":{"rn":"s","nu":["Ca"],"enc":{"net":[3]}}}"#;
    assert_eq!(
        bench.create("Ca", "cse-in/a/c", ResourceType::Subscription, own).status.number(),
        2001
    );
    let schedule = r#"{"m2m:sch":{"rn":"sch","se":{"sce":["0-9 14 22 * * * *"]}}}"#;
    assert_eq!(
        bench.create("Ca", "cse-in/a", ResourceType::Schedule, schedule).status.number(),
        2001
    );
    bench.reading("one", "1");
    assert!(hear(&mut bench).is_empty());
    bench.restart();
    bench.pass(Duration::from_secs(40));
    assert_eq!(hear(&mut bench), ["one"], "22:14:00");
}

#[test]
fn schedules_that_are_refused() {
    let mut bench = subscribed("");
    for (to, content, status) in [
        ("cse-in/a", "{}", 4000),
        ("cse-in/a", r#"{"se":{}}"#, 4000),
        ("cse-in/a", r#"{"se":{"sce":[]}}"#, 4000),
        ("cse-in/a", r#"{"se":{"sce":["every day"]}}"#, 4000),
        ("cse-in/a", r#"{"se":{"sce":["* * * * * * *"]},"nco":true}"#, 5001),
        ("cse-in/a/c", r#"{"se":{"sce":["* * * * * * *"]}}"#, 4108),
        ("cse-in/a/c/s", r#"{"rn":"x","se":{"sce":["* * * * * * *"]}}"#, 4000),
        ("cse-in/a", r#"{"rn":"sch","se":{"sce":["* * * * * * *"]}}"#, 2001),
        ("cse-in/a", r#"{"se":{"sce":["* * * * * * *"]}}"#, 4105),
    ] {
        let content = format!(r#"{{"m2m:sch":{content}}}"#);
        let made = bench.create("Ca", to, ResourceType::Schedule, &content);
        assert_eq!(made.status.number(), status, "{to} {content}: {:?}", made.content);
    }
    let changed = bench.update("Ca", "cse-in/a/sch", r#"{"m2m:sch":{"se":{"sce":["x"]}}}"#);
    assert_eq!(changed.status.number(), 4000);
}
