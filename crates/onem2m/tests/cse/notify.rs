//! Subscriptions, notifications that wait, and messages of our own.

use crate::bench::Bench;
use core::time::Duration;
use gatewright_onem2m::{
    Call, Gather, Input, Operation, OutboxMessage, Release, Request, ResourceType, Response,
    Status, Token,
};
use serde_json::{Value, json};

const TARGET: &str = "http://there:1/n";

/// A subscription `s` below `cse-in/a/c` whose target agreed.
fn subscribed(attributes: &str) -> Bench {
    let mut bench = Bench::with_container();
    let content = format!(r#"{{"m2m:sub":{{"rn":"s","nu":["{TARGET}"]{attributes}}}}}"#);
    let request = bench
        .request(Operation::Create, "Ca", "cse-in/a/c")
        .creating(ResourceType::Subscription, content);
    let token = bench.ask_later(request);
    let asked = bench.calls();
    assert_eq!(asked.len(), 1);
    let answers = bench.reply(&asked[0], Status::Ok);
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!((answers[0].0, answers[0].1.status), (token, Status::Created), "{answers:?}");
    bench
}

fn content(call: &Call) -> Value {
    serde_json::from_str(call.request.content.as_deref().unwrap()).unwrap()
}

/// The event type and the name of what a notification is about.
fn said(call: &Call) -> (u64, String) {
    let content = content(call);
    let event = &content["m2m:sgn"]["nev"];
    let representation = event["rep"].as_object().unwrap().values().next().unwrap();
    (event["net"].as_u64().unwrap(), representation["rn"].as_str().unwrap_or("-").to_owned())
}

#[test]
fn a_target_is_asked_before_it_is_notified() {
    let mut bench = Bench::with_container();
    let content_of =
        |name: &str| format!(r#"{{"m2m:sub":{{"rn":"{name}","nu":["{TARGET}","http://b:2"]}}}}"#);
    let mut subscribe = |name: &str, first: Option<Status>, second: Option<Status>| {
        let request = bench
            .request(Operation::Create, "Ca", "cse-in/a/c")
            .creating(ResourceType::Subscription, content_of(name));
        bench.ask_later(request);
        let asked = bench.calls();
        assert_eq!(asked.len(), 2);
        assert_eq!(asked[0].urls, [TARGET]);
        let question = content(&asked[0]);
        assert_eq!(question["m2m:sgn"]["vrq"], true);
        assert!(question["m2m:sgn"]["nev"].is_null(), "a verification carries no event");
        assert!(question["m2m:sgn"]["sur"].as_str().unwrap().starts_with("/id-in/sub"));
        let mut answers = Vec::new();
        for (call, status) in asked.iter().zip([first, second]) {
            assert!(answers.is_empty(), "before all have been asked");
            answers = match status {
                Some(status) => bench.reply(call, status),
                None => bench.away(call),
            };
        }
        answers[0].1.status.number()
    };
    assert_eq!(subscribe("s1", Some(Status::Ok), Some(Status::Ok)), 2001);
    assert_eq!(subscribe("s2", Some(Status::Ok), None), 5204);
    assert_eq!(subscribe("s3", Some(Status::BadRequest), Some(Status::Ok)), 5204);
    let host = Status::SubscriptionHostHasNoPrivilege;
    assert_eq!(subscribe("s4", Some(host), Some(Status::Ok)), 5205);
    assert_eq!(bench.get("Ca", "cse-in/a/c/s2").status.number(), 4004);
    assert_eq!(bench.get("Ca", "cse-in/a/c/s1").status.number(), 2000);
}

#[test]
fn who_subscribes_for_itself_is_not_asked() {
    let mut bench = Bench::with_container();
    let poa = r#"{"m2m:ae":{"poa":["http://a:1/in"],"rr":true}}"#;
    assert_eq!(bench.update("Ca", "cse-in/a", poa).status.number(), 2004);
    let sub = r#"{"m2m:sub":{"rn":"s","nu":["cse-in/a"],"enc":{"net":[3]}}}"#;
    let made = bench.create("Ca", "cse-in/a/c", ResourceType::Subscription, sub);
    assert_eq!(made.status.number(), 2001, "{made:?}");
    bench.reading("one", "1");
    let calls = bench.calls();
    assert_eq!(calls[0].urls, ["http://a:1/in"]);
    assert_eq!(calls[0].request.to, "http://a:1/in");
    assert_eq!(calls[0].request.from, "/id-in");
}

#[test]
fn subscriptions_that_are_refused() {
    let mut bench = Bench::with_container();
    let mut refused = |from: &str, to: &str, content: &str| {
        bench.create(from, to, ResourceType::Subscription, content).status.number()
    };
    let with = |rest: &str| format!(r#"{{"m2m:sub":{{"nu":["{TARGET}"]{rest}}}}}"#);
    assert_eq!(refused("Ca", "cse-in/a/c", r#"{"m2m:sub":{}}"#), 4000);
    assert_eq!(refused("Ca", "cse-in/a/c", r#"{"m2m:sub":{"nu":[]}}"#), 4000);
    assert_eq!(refused("Ca", "cse-in/a/c", &with(r#","enc":{"net":[9]}"#)), 4000);
    assert_eq!(refused("Ca", "cse-in/a/c", &with(r#","enc":{"net":[6]}"#)), 5001);
    assert_eq!(refused("Ca", "cse-in/a/c", &with(r#","nct":4"#)), 5001);
    assert_eq!(refused("Ca", "cse-in/a/c", &with(r#","nct":6"#)), 4000);
    assert_eq!(refused("Ca", "cse-in/a/c", &with(r#","exc":0"#)), 4000);
    assert_eq!(refused("Ca", "cse-in/a/c", &with(r#","bn":{"num":0}"#)), 4000);
    assert_eq!(refused("Cb", "cse-in/a/c", &with("")), 4103);
    let nobody = r#"{"m2m:sub":{"nu":["Cnobody"]}}"#;
    assert_eq!(refused("Ca", "cse-in/a/c", nobody), 5204);
}

/// TS-0004 §7.4.8.2.1 and 3: children that the resource cannot have, missing data of what is no time
/// series, and events of missing data that are not said to be which.
#[test]
fn criteria_go_with_what_is_subscribed_to() {
    let mut bench = Bench::with_container();
    bench.create("Ca", "cse-in/a", ResourceType::TimeSeries, r#"{"m2m:ts":{"rn":"t"}}"#);
    let of = |criteria: &str| format!(r#"{{"m2m:sub":{{"nu":["Ca"],"enc":{criteria}}}}}"#);
    for (to, criteria, expected) in [
        ("cse-in/a/c", r#"{"net":[3],"chty":[3,4,23]}"#, 2001),
        ("cse-in/a/c", r#"{"net":[3],"chty":[4,2]}"#, 4000),
        ("cse-in/a/c", r#"{"net":[3],"chty":["4"]}"#, 4000),
        ("cse-in/a", r#"{"net":[3],"chty":[4]}"#, 4000),
        ("cse-in/a/t", r#"{"net":[3],"chty":[30]}"#, 2001),
        ("cse-in/a/t", r#"{"net":[8]}"#, 4000),
        ("cse-in/a/t", r#"{"net":[8],"md":{"num":1,"dur":"PT1M"}}"#, 2001),
        ("cse-in/a/c", r#"{"net":[1],"md":{"num":1,"dur":"PT1M"}}"#, 4000),
        ("cse-in/a/c", r#"{"net":[8],"md":{"num":1,"dur":"PT1M"}}"#, 4000),
    ] {
        let made = bench.create("Ca", to, ResourceType::Subscription, &of(criteria));
        assert_eq!(made.status.number(), expected, "{to} {criteria}");
    }
    let requests = of(r#"{"net":[3],"chty":[17]}"#);
    let made = bench.create("CAdmin", "cse-in", ResourceType::Subscription, &requests);
    assert_ne!(made.status.number(), 4000, "requests come below the base");
    bench.create(
        "Ca",
        "cse-in/a/t",
        ResourceType::Subscription,
        r#"{"m2m:sub":{"rn":"s","nu":["Ca"]}}"#,
    );
    let mut update = |criteria: &str| {
        bench.update("Ca", "cse-in/a/t/s", &of(criteria).replace(r#""nu":["Ca"],"#, ""))
    };
    assert_eq!(update(r#"{"net":[8]}"#).status.number(), 4000);
    assert_eq!(update(r#"{"net":[3],"chty":[4]}"#).status.number(), 4000);
    assert_eq!(update(r#"{"net":[3],"chty":[30]}"#).status.number(), 2004);
}

#[test]
fn who_may_create_but_not_retrieve_may_not_subscribe() {
    let mut bench = Bench::with_container();
    let policy = r#"{"m2m:acp":{"pv":{"acr":[{"acor":["Cb"],"acop":1}]},
        "pvs":{"acr":[{"acor":["Ca"],"acop":63}]}}}"#;
    let made = bench.create("Ca", "cse-in/a", ResourceType::AccessControlPolicy, policy);
    let id = crate::bench::json(&made)["m2m:acp"]["ri"].as_str().unwrap().to_owned();
    bench.update("Ca", "cse-in/a/c", &format!(r#"{{"m2m:cnt":{{"acpi":["{id}"]}}}}"#));
    let sub = format!(r#"{{"m2m:sub":{{"nu":["{TARGET}"]}}}}"#);
    let refused = bench.create("Cb", "cse-in/a/c", ResourceType::Subscription, &sub);
    assert_eq!(refused.status.number(), 4103, "TS-0004 §7.4.8.2.1");
}

#[test]
fn each_event_reaches_who_wants_it() {
    let all = subscribed(r#","enc":{"net":[1,2,3,4]}"#);
    let cases: &[(&str, &[(u64, &str)])] = &[
        ("", &[(1, "c")]),
        (r#","enc":{"net":[1]}"#, &[(1, "c")]),
        (r#","enc":{"net":[3]}"#, &[(3, "one"), (3, "d")]),
        (r#","enc":{"net":[3],"chty":[4]}"#, &[(3, "one")]),
        (r#","enc":{"net":[4]}"#, &[(4, "one")]),
        (r#","enc":{"net":[2]}"#, &[(2, "c")]),
        (r#","enc":{"net":[1],"atr":["lbl"]}"#, &[(1, "c")]),
        (r#","enc":{"net":[1],"atr":["mni"]}"#, &[]),
        (r#","enc":{"net":[3],"szb":1}"#, &[]),
    ];
    drop(all);
    for (criteria, expected) in cases {
        let mut bench = subscribed(criteria);
        let mut heard = Vec::new();
        let mut hear = |bench: &mut Bench| {
            for call in bench.calls() {
                heard.push(said(&call));
                bench.reply(&call, Status::Ok);
            }
        };
        bench.reading("one", "1");
        hear(&mut bench);
        bench.create("Ca", "cse-in/a/c", ResourceType::Container, r#"{"m2m:cnt":{"rn":"d"}}"#);
        hear(&mut bench);
        bench.update("Ca", "cse-in/a/c", r#"{"m2m:cnt":{"lbl":["x"]}}"#);
        hear(&mut bench);
        bench.delete("Ca", "cse-in/a/c/one");
        hear(&mut bench);
        bench.delete("Ca", "cse-in/a/c");
        hear(&mut bench);
        let expected: Vec<(u64, String)> =
            expected.iter().map(|(net, name)| (*net, (*name).to_owned())).collect();
        assert_eq!(heard, expected, "{criteria}");
        assert_eq!(bench.cse.messages_waiting(), 0);
    }
}

#[test]
fn content_types_of_notifications() {
    for (nct, expected) in
        [(2, json!({"m2m:cnt": {"lbl": ["x"]}})), (3, json!({"m2m:uri": "/id-in/cse-in/a/c"}))]
    {
        let mut bench = subscribed(&format!(r#","nct":{nct}"#));
        bench.update("Ca", "cse-in/a/c", r#"{"m2m:cnt":{"lbl":["x"]}}"#);
        let calls = bench.calls();
        assert_eq!(content(&calls[0])["m2m:sgn"]["nev"]["rep"], expected);
    }
    let mut bench = subscribed(r#","enc":{"net":[3]}"#);
    let body = r#"{"m2m:cin":{"con":96.50}}"#;
    bench.create("Ca", "cse-in/a/c", ResourceType::ContentInstance, body);
    let calls = bench.calls();
    assert!(calls[0].request.content.as_deref().unwrap().contains("\"con\":96.50"));
}

#[test]
fn a_notification_leaves_after_its_commit() {
    let mut bench = subscribed(r#","enc":{"net":[3]}"#);
    let request = Request::new(Operation::Create, "cse-in/a/c", "Ca", "x")
        .creating(ResourceType::ContentInstance, r#"{"m2m:cin":{}}"#);
    bench.cse.handle(bench.now, Input::Request { token: Token(900), request });
    let first = bench.cse.poll_output().unwrap();
    assert!(matches!(first, gatewright_onem2m::Output::Store(_)), "{first:?}");
    assert!(bench.cse.poll_output().is_none(), "nothing is said before");
}

#[test]
fn notifications_wait_for_a_target_that_is_away_and_arrive_in_order() {
    let mut bench = subscribed(r#","enc":{"net":[3]}"#);
    for number in 0..3 {
        bench.reading(&format!("n{number}"), "1");
    }
    let calls = bench.calls();
    assert_eq!(calls.len(), 1, "one at a time");
    bench.away(&calls[0]);
    for (after, sent) in [(500, 0), (600, 1), (1_500, 0), (600, 1)] {
        bench.pass(Duration::from_millis(after));
        let calls = bench.calls();
        assert_eq!(calls.len(), sent, "after {after} ms");
        for call in calls {
            assert_eq!(said(&call), (3, "n0".to_owned()));
            bench.away(&call);
        }
    }
    // The CSE restarts, and goes on where it was.
    bench.cse = bench.reopened();
    bench.run();
    let mut arrived = Vec::new();
    // As soon as it answers, it gets several.
    for several in [1, 2] {
        let calls = bench.calls();
        assert_eq!(calls.len(), several);
        for call in calls {
            arrived.push(said(&call).1);
            bench.reply(&call, Status::Ok);
        }
    }
    assert_eq!(arrived, ["n0", "n1", "n2"]);
    assert!(bench.calls().is_empty());
    bench.pass(Duration::from_millis(100));
    assert_eq!(bench.cse.messages_waiting(), 0);
    assert!(!bench.rows.values().any(|body| body.starts_with("{\"_x\"")), "nothing left behind");
}

#[test]
fn no_answer_is_as_good_as_away() {
    let mut bench = subscribed(r#","enc":{"net":[3]}"#);
    bench.reading("one", "1");
    assert_eq!(bench.calls().len(), 1);
    bench.pass(Duration::from_secs(11));
    assert_eq!(bench.cse.counters().unanswered, 1);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.calls().len(), 1, "again");
}

/// What waits for a target that an update removes is dropped: it would be sent to nobody for a week.
#[test]
fn what_waits_for_a_removed_target_is_dropped() {
    let mut bench = subscribed(r#","enc":{"net":[3]},"nse":true"#);
    bench.reading("n0", "1");
    let first = bench.calls();
    assert_eq!(said(&first[0]).1, "n0");
    for name in ["n1", "n2"] {
        bench.reading(name, "1");
    }
    let content = r#"{"m2m:sub":{"nu":["http://other:1/n"]}}"#;
    let request = bench.request(Operation::Update, "Ca", "cse-in/a/c/s").with_content(content);
    bench.ask_later(request);
    let asked = bench.calls();
    assert_eq!(asked[0].urls, ["http://other:1/n"], "it is verified");
    let answers = bench.reply(&asked[0], Status::Ok);
    assert_eq!(answers[0].1.status, Status::Updated);
    assert_eq!((bench.cse.messages_waiting(), bench.cse.counters().notifications_dropped), (1, 2));
    // One in progress is not tried again.
    bench.away(&first[0]);
    assert_eq!((bench.cse.messages_waiting(), bench.cse.counters().notifications_dropped), (0, 3));
    bench.reading("n3", "1");
    let next = bench.calls();
    assert_eq!((next[0].urls[0].as_str(), said(&next[0]).1), ("http://other:1/n", "n3".to_owned()));
    bench.reply(&next[0], Status::Ok);
    bench.pass(Duration::from_hours(1));
    assert!(bench.calls().is_empty());
    let subscription = bench.get("Ca", "cse-in/a/c/s");
    let subscription: Value =
        serde_json::from_str(subscription.content.as_deref().unwrap()).unwrap();
    let counted = json!([{ "tg": "http://other:1/n", "rqs": 1, "rsr": 1, "noec": 1 }]);
    assert_eq!(subscription["m2m:sub"]["nsi"], counted);
}

#[test]
fn only_the_latest_is_kept_if_so_wished() {
    let mut bench = subscribed(r#","enc":{"net":[3]},"pn":1"#);
    bench.reading("n0", "1");
    let first = bench.calls();
    bench.away(&first[0]);
    for number in 1..4 {
        bench.reading(&format!("n{number}"), "1");
    }
    bench.pass(Duration::from_secs(1));
    let calls = bench.calls();
    assert_eq!(said(&calls[0]).1, "n3");
    bench.reply(&calls[0], Status::Ok);
    assert!(bench.calls().is_empty());
}

#[test]
fn what_waits_is_bounded_and_the_oldest_goes() {
    let mut config = crate::bench::config();
    config.limits.notifications_waiting = 3;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    let sub = format!(r#"{{"m2m:sub":{{"nu":["{TARGET}"],"enc":{{"net":[1,3]}}}}}}"#);
    let request = bench
        .request(Operation::Create, "Ca", "cse-in/a/c")
        .creating(ResourceType::Subscription, sub);
    bench.ask_later(request);
    let asked = bench.calls();
    bench.reply(&asked[0], Status::Ok);
    bench.reading("n0", "1");
    let first = bench.calls();
    bench.away(&first[0]);
    for number in 1..6 {
        bench.reading(&format!("n{number}"), "1");
    }
    assert_eq!(bench.cse.messages_waiting(), 3);
    assert_eq!(bench.cse.counters().notifications_dropped, 3);
    bench.pass(Duration::from_secs(1));
    let calls = bench.calls();
    assert_eq!(said(&calls[0]).1, "n3");
}

#[test]
fn a_batch_goes_when_it_is_full_or_old() {
    let mut bench = subscribed(r#","enc":{"net":[3]},"bn":{"num":3,"dur":"PT10S"}"#);
    for number in 0..4 {
        bench.reading(&format!("n{number}"), "1");
    }
    let calls = bench.calls();
    assert_eq!(calls.len(), 1);
    let list = content(&calls[0])["m2m:agn"]["m2m:sgn"].clone();
    assert_eq!(list.as_array().unwrap().len(), 3);
    assert_eq!(list[2]["nev"]["rep"]["m2m:cin"]["rn"], "n2");
    bench.reply(&calls[0], Status::Ok);
    assert!(bench.calls().is_empty(), "one is no batch yet");
    bench.pass(Duration::from_secs(10));
    let calls = bench.calls();
    let list = content(&calls[0])["m2m:agn"]["m2m:sgn"].clone();
    assert_eq!(list.as_array().unwrap().len(), 1);
}

/// TS-0001 §10.2.10.7: with `ln` a batch is counted by all of its events, and the latest is told; as
/// one of the event category *latest* (TS-0004 §7.5.1.2.2, step 2.3).
#[test]
fn of_a_batch_the_latest_alone_may_be_told() {
    let batch = r#","enc":{"net":[3]},"ln":true,"bn":{"num":3,"dur":"PT10S"}"#;
    let mut bench = subscribed(batch);
    let told = |call: &Call| {
        assert_eq!(call.request.event_category, Some(4));
        let list = content(call)["m2m:agn"]["m2m:sgn"].clone();
        assert_eq!(list.as_array().unwrap().len(), 1);
        list[0]["nev"]["rep"]["m2m:cin"]["rn"].as_str().unwrap().to_owned()
    };
    for number in 0..7 {
        bench.reading(&format!("n{number}"), "1");
        for call in bench.calls() {
            assert_eq!(told(&call), format!("n{number}"));
            assert!(matches!(number, 2 | 5), "{number}");
            bench.reply(&call, Status::Ok);
        }
    }
    bench.cse = bench.reopened();
    bench.reading("n7", "1");
    bench.pass(Duration::from_secs(10));
    let calls = bench.calls();
    assert_eq!((calls.len(), told(&calls[0])), (1, "n7".to_owned()));
    bench.reply(&calls[0], Status::Ok);
    assert_eq!(bench.cse.messages_waiting(), 0);
}

/// What was gathered is told when nothing more will come: the subscription was deleted, has said
/// enough, or went with what it is of.
#[test]
fn what_is_gathered_outlives_its_subscription() {
    let batch = r#""enc":{"net":[3]},"bn":{"num":100,"dur":"PT1H"}"#;
    let ends: [(&str, &[&str]); 3] = [
        (&format!(",{batch}"), &["cse-in/a/c/s"]),
        (&format!(r#","exc":2,{batch}"#), &[]),
        (&format!(",{batch}"), &["cse-in/a"]),
    ];
    for (attributes, deleted) in ends {
        let mut bench = subscribed(attributes);
        bench.reading("n0", "1");
        assert!(bench.calls().is_empty());
        bench.reading("n1", "1");
        for to in deleted {
            assert_eq!(bench.delete("Ca", to).status.number(), 2002);
        }
        let calls = bench.calls();
        assert_eq!(calls.len(), 1, "{attributes}");
        let list = content(&calls[0])["m2m:agn"]["m2m:sgn"].clone();
        assert_eq!(list.as_array().unwrap().len(), 2, "{attributes}");
        bench.reply(&calls[0], Status::Ok);
        assert_eq!(bench.cse.messages_waiting(), 0);
    }
}

/// TS-0004 §7.5.1.2.4: the end of a subscription is told to its subscriberURI.
#[test]
fn the_end_of_a_subscription_is_told() {
    let mut bench = subscribed(&format!(r#","su":"{TARGET}""#));
    let id = crate::bench::json(&bench.get("Ca", "cse-in/a/c/s"))["m2m:sub"]["ri"].clone();
    bench.delete("Ca", "cse-in/a/c/s");
    let calls = bench.calls();
    assert_eq!((calls.len(), &*calls[0].urls), (1, &[TARGET.to_owned()][..]));
    let reference = format!("/id-in/{}", id.as_str().unwrap());
    assert_eq!(content(&calls[0]), json!({"m2m:sgn": {"sud": true, "sur": reference}}));
    // Nobody asks it whether it wants to hear: it is none whom the subscriber could not notify.
    bench.register("Cb", "b");
    for (su, status) in [("http://elsewhere:1", 4103), ("cse-in/b", 4103), ("cse-in/a", 2001)] {
        let content = format!(r#"{{"m2m:sub":{{"nu":["cse-in/a"],"su":"{su}"}}}}"#);
        let made = bench.create("Ca", "cse-in/a/c", ResourceType::Subscription, &content);
        assert_eq!(made.status.number(), status, "{su}");
    }
}

/// TS-0001 §9.6.8: attributes that are there, and what only the CSE gives.
#[test]
fn policies_of_a_subscription_are_kept() {
    let mut bench = Bench::with_container();
    let mut made = |attribute: &str| {
        let content = format!(r#"{{"m2m:sub":{{"nu":["cse-in/a"],{attribute}}}}}"#);
        bench.create("Ca", "cse-in/a/c", ResourceType::Subscription, &content)
    };
    for kept in [
        r#""nsp":3"#,
        r#""gpi":"grp1""#,
        r#""nfu":"http://a:1""#,
        r#""nse":true"#,
        r#""rl":{"mnn":3,"tww":"PT1M"}"#,
        r#""psn":3"#,
    ] {
        let made = made(kept);
        assert_eq!(made.status.number(), 2001, "{kept}");
        assert!(made.content.unwrap().contains(kept.split(':').next().unwrap()), "{kept}");
    }
    assert_eq!(made(r#""nsi":[]"#).status.number(), 4000);
    let batch = made(r#""bn":{"num":3}"#);
    let batch = crate::bench::json(&batch)["m2m:sub"]["bn"].clone();
    assert_eq!(batch, json!({"num": 3, "dur": "PT1M"}), "TS-0004 §7.4.8.2.1, Recv-6.5");
}

/// TS-0004 §7.4.8.2.1 and TS-0001 §10.2.10.7: who subscribed others is named, to them, too; for a
/// group, where it is to forward what it is told.
#[test]
fn a_notification_names_the_creator_of_its_subscription() {
    let mut bench = subscribed(r#","nfu":"http://there:2""#);
    let made = crate::bench::json(&bench.get("Ca", "cse-in/a/c/s"))["m2m:sub"].clone();
    assert_eq!(made["cr"], "Ca");
    bench.update("Ca", "cse-in/a/c", r#"{"m2m:cnt":{"lbl":["x"]}}"#);
    let calls = bench.calls();
    let told = content(&calls[0])["m2m:sgn"].clone();
    assert_eq!((&told["cr"], &told["nfu"]), (&json!("Ca"), &json!("http://there:2")));
}

/// TS-0004 §7.5.1.1 and §7.5.1.2.2, step 2.5: how a target wants to be written to.
#[test]
fn a_target_is_written_to_as_it_wants() {
    use gatewright_onem2m::Serialisation;
    let (json, cbor) = (Some(Serialisation::Json), Some(Serialisation::Cbor));
    for (csz, target, expected) in [
        ("", "cse-in/a", None),
        (r#","csz":["application/cbor"]"#, "cse-in/a", cbor),
        (r#","csz":["application/cbor","application/json"]"#, "cse-in/a", None),
        (r#","csz":["application/cbor"]"#, "cse-in/a?ct=json", json),
        ("", "cse-in/a?ct=cbor", cbor),
        ("", "http://a:1/in?ct=cbor", cbor),
    ] {
        let mut bench = Bench::with_container();
        let poa = format!(r#"{{"m2m:ae":{{"poa":["http://a:1/in"],"rr":true{csz}}}}}"#);
        assert_eq!(bench.update("Ca", "cse-in/a", &poa).status.number(), 2004);
        let sub = format!(r#"{{"m2m:sub":{{"nu":["{target}"],"enc":{{"net":[3]}}}}}}"#);
        let request = bench
            .request(Operation::Create, "Ca", "cse-in/a/c")
            .creating(ResourceType::Subscription, sub);
        bench.ask_all(request);
        for call in bench.calls() {
            assert_eq!((call.serialisation, &*call.request.to), (expected, "http://a:1/in"));
            bench.reply(&call, Status::Ok);
        }
        bench.reading("one", "1");
        let calls = bench.calls();
        assert_eq!((calls.len(), calls[0].serialisation), (1, expected), "{target}");
        let to = (&*calls[0].urls, &*calls[0].request.to);
        assert_eq!(to, (&["http://a:1/in".to_owned()][..], "http://a:1/in"), "{target}");
    }
}

/// TS-0004 §7.4.7.2.1: what a container lets go to make room is no deletion that anybody hears of.
#[test]
fn instances_that_make_room_go_unheard() {
    let mut bench = subscribed(r#","enc":{"net":[4]}"#);
    bench.update("Ca", "cse-in/a/c", r#"{"m2m:cnt":{"mni":1}}"#);
    bench.reading("one", "1");
    bench.reading("two", "2");
    assert!(bench.calls().is_empty());
    bench.delete("Ca", "cse-in/a/c/two");
    assert_eq!(said(&bench.calls()[0]), (4, "two".to_owned()));
}

#[test]
fn a_subscription_that_has_said_enough_goes() {
    let mut bench = subscribed(r#","enc":{"net":[3]},"exc":2"#);
    for number in 0..3 {
        bench.reading(&format!("n{number}"), "1");
    }
    assert_eq!(bench.cse.counters().notifications, 2);
    assert_eq!(bench.get("Ca", "cse-in/a/c/s").status.number(), 4004);
}

#[test]
fn new_targets_of_an_update_are_asked() {
    let mut bench = subscribed("");
    let update = format!(r#"{{"m2m:sub":{{"nu":["{TARGET}","http://new:1"]}}}}"#);
    let request =
        bench.request(Operation::Update, "Ca", "cse-in/a/c/s").with_content(update.as_str());
    bench.ask_later(request.clone());
    let asked = bench.calls();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].urls, ["http://new:1"]);
    let answers = bench.away(&asked[0]);
    assert_eq!(answers[0].1.status.number(), 5204);
    let mut again = request;
    again.id = "again".to_owned();
    bench.ask_later(again);
    let asked = bench.calls();
    let answers = bench.reply(&asked[0], Status::Ok);
    assert_eq!(answers[0].1.status.number(), 2004);
}

#[test]
fn a_message_of_our_own_arrives_in_the_end() {
    let mut bench = Bench::with_container();
    let message = |name: &str| OutboxMessage {
        queue: "device/1".into(),
        target: "http://in:8080".into(),
        request: Request::new(Operation::Create, "/id-in2/x", "/id-in", name)
            .creating(ResourceType::ContentInstance, r#"{"m2m:cin":{"con":1.50}}"#)
            .into(),
        keep: Some(Duration::from_secs(100)),
        batch: None::<Gather>,
    };
    let messages = [message("a"), message("b"), message("c"), message("d")];
    for (number, message) in messages.into_iter().enumerate() {
        let token = Token(1_000 + number as u64);
        bench.cse.handle(bench.now, Input::Post { token, message });
        let answers = bench.run();
        assert_eq!(answers[0].1.status, Status::Accepted);
    }
    bench.calls();
    bench.cse = bench.reopened();
    bench.run();
    // Created, there already, refused for good, too old: each is done with.
    let mut calls = bench.calls();
    for (name, status) in
        [("a", Status::Created), ("b", Status::Conflict), ("c", Status::BadRequest)]
    {
        let call = calls.remove(0);
        assert_eq!(call.request.id, name);
        assert_eq!((&*call.request.to, &*call.urls[0]), ("/id-in2/x", "http://in:8080"));
        assert!(call.request.content.as_deref().unwrap().contains("1.50"));
        bench.reply(&call, status);
        calls.extend(bench.calls());
    }
    bench.away(&calls[0]);
    bench.pass(Duration::from_secs(100));
    assert_eq!(bench.cse.messages_waiting(), 0);
    let counters = bench.cse.counters();
    assert_eq!((counters.delivered, counters.messages_refused, counters.messages_aged), (2, 1, 1));
}

/// Who is busy has refused nothing, whatever status it says, and is left alone as long as it asks.
#[test]
fn a_busy_receiver_is_left_alone_and_gets_its_message_later() {
    let mut bench = Bench::with_container();
    let request = Request::new(Operation::Create, "/id-up/x", "Cphd-1", "a")
        .creating(ResourceType::ContentInstance, r#"{"m2m:cin":{}}"#);
    let target = "http://in:8080".into();
    let queue = "device/Cphd-1".into();
    let request = request.into();
    let message = OutboxMessage { queue, target, request, keep: None, batch: None };
    bench.cse.handle(bench.now, Input::Post { token: Token(901), message });
    bench.run();
    for status in [Status::NotAcceptable, Status::BadRequest, Status::OriginatorHasNoPrivilege] {
        let call = bench.calls().remove(0);
        let mut busy = Response::new(status, "a", Release::default());
        busy.retry_after = Some(Duration::from_secs(30));
        bench.cse.handle(bench.now, Input::Answer { call: call.id, answer: Ok(busy) });
        bench.run();
        bench.pass(Duration::from_secs(29));
        assert!(bench.calls().is_empty(), "{status:?}: not yet");
        bench.pass(Duration::from_secs(1));
    }
    assert_eq!((bench.cse.messages_waiting(), bench.cse.refused()), (1, None));
    // What it judges and does not want is told.
    let call = bench.calls().remove(0);
    bench.reply(&call, Status::NotAcceptable);
    let counters = bench.cse.counters();
    assert_eq!((bench.cse.messages_waiting(), counters.readings_refused_above), (0, 1));
    let last = bench.cse.refused().unwrap();
    assert_eq!((last.status, &*last.from), (Status::NotAcceptable, "Cphd-1"));
}

#[test]
fn what_is_done_together_is_stored_in_one_batch() {
    let mut bench = Bench::with_container();
    let request = Request::new(Operation::Create, "cse-in/a/c", "Ca", "x")
        .creating(ResourceType::ContentInstance, r#"{"m2m:cin":{}}"#);
    let message = OutboxMessage {
        queue: "l".into(),
        target: TARGET.into(),
        request: request.clone().into(),
        keep: None,
        batch: None,
    };
    let both = vec![
        Input::Request { token: Token(901), request },
        Input::Post { token: Token(902), message },
    ];
    bench.cse.handle(bench.now, Input::Together(both));
    let Some(gatewright_onem2m::Output::Store(batch)) = bench.cse.poll_output() else {
        panic!("nothing to store");
    };
    assert_eq!(batch.records.len(), 2);
    assert!(bench.cse.poll_output().is_none());
    bench.cse.handle(bench.now, Input::Failed(batch.number));
    let statuses: Vec<Status> =
        bench.run().into_iter().map(|(_, response)| response.status).collect();
    assert_eq!(statuses, [Status::InternalServerError; 2]);
    assert_eq!((bench.cse.messages_waiting(), bench.cse.resources()), (0, 3));
}
