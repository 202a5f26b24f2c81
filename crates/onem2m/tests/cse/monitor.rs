//! Operation monitors, containers found empty, and how each event is told (TS-0001 §9.6.8).

use crate::bench::{Bench, json};
use gatewright_onem2m::{Call, Input, Operation, Request, ResourceType, Status, Token};
use serde_json::{Value, json};

/// A subscription `s` of `Ca` below `cse-in/a/c`, told to `Ca` itself, which is at `http://a:1`.
fn subscribed(attributes: &str) -> Bench {
    let mut bench = Bench::with_container();
    let poa = r#"{"m2m:ae":{"poa":["http://a:1"],"rr":true}}"#;
    assert_eq!(bench.update("Ca", "cse-in/a", poa).status.number(), 2004);
    let sub = format!(r#"{{"m2m:sub":{{"rn":"s","nu":["Ca"],{attributes}}}}}"#);
    let made = bench.create("Ca", "cse-in/a/c", ResourceType::Subscription, &sub);
    assert_eq!(made.status.number(), 2001, "{made:?}");
    bench
}

fn event(call: &Call) -> Value {
    let content: Value = serde_json::from_str(call.request.content.as_deref().unwrap()).unwrap();
    content["m2m:sgn"]["nev"].clone()
}

/// What has been told since, each notification taken.
fn heard(bench: &mut Bench) -> Vec<Value> {
    let mut events = Vec::new();
    loop {
        let calls = bench.calls();
        if calls.is_empty() {
            return events;
        }
        for call in calls {
            events.push(event(&call));
            bench.reply(&call, Status::Ok);
        }
    }
}

/// Every operation once: done, refused for want of a right, and refused as wrong.
fn everything(bench: &mut Bench) {
    bench.reading("one", "1");
    bench.get("CAdmin", "cse-in/a/c");
    bench.get("Cstranger", "cse-in/a/c?fu=1");
    bench.update("Cstranger", "cse-in/a/c", r#"{"m2m:cnt":{"lbl":["x"]}}"#);
    let request = bench.request(Operation::Notify, "CAdmin", "cse-in/a/c");
    assert_eq!(bench.ask(request).status.number(), 4005);
    bench.get("CAdmin", "cse-in/a/c/one");
    bench.get("CAdmin", "cse-in/a/c/la");
    bench.delete("Ca", "cse-in/a/c");
}

#[test]
fn a_monitor_hears_of_what_is_attempted() {
    let create = json!({"om": {"op": 1, "or": "Ca"}});
    let retrieve = json!({"om": {"op": 2, "or": "CAdmin"}});
    let discover = json!({"om": {"op": 2, "or": "Cstranger"}});
    let update = json!({"om": {"op": 3, "or": "Cstranger"}});
    let notify = json!({"om": {"op": 5, "or": "CAdmin"}});
    let delete = json!({"om": {"op": 4, "or": "Ca"}});
    for (monitors, expected) in [
        (r#"{"ops":1}"#, vec![&create]),
        (r#"{"ops":2}"#, vec![&retrieve]),
        (r#"{"ops":32}"#, vec![&discover]),
        (r#"{"ops":4}"#, vec![&update]),
        (r#"{"ops":16}"#, vec![&notify]),
        (r#"{"ops":8}"#, vec![&delete]),
        (r#"{"ops":63}"#, vec![&create, &retrieve, &discover, &update, &notify, &delete]),
        (r#"{"or":"Cstranger"}"#, vec![&discover, &update]),
        (r#"{"or":"/id-in/Ca"}"#, vec![&create, &delete]),
        (r#"{"ops":4,"or":"Ca"}"#, vec![]),
        (r#"{"ops":5,"or":"Ca"},{"or":"Cstranger","ops":4}"#, vec![&create, &update]),
        (r#"{"ops":3},{"ops":1}"#, vec![&create, &retrieve]),
    ] {
        let mut bench = subscribed(&format!(r#""enc":{{"om":[{monitors}]}}"#));
        everything(&mut bench);
        assert_eq!(heard(&mut bench).iter().collect::<Vec<_>>(), expected, "{monitors}");
        assert_eq!(bench.cse.messages_waiting(), 0);
    }
}

#[test]
fn a_monitor_shows_what_it_is_asked_to() {
    let whole = |bench: &mut Bench| json(&bench.get("CAdmin", "cse-in/a/c"));
    let mut bench = subscribed(r#""enc":{"om":[{"ops":4}]},"nct":1"#);
    let before = whole(&mut bench);
    bench.update("Cstranger", "cse-in/a/c", r#"{"m2m:cnt":{"lbl":["x"]}}"#);
    assert_eq!(heard(&mut bench)[0]["rep"], before);
    let mut bench = subscribed(r#""enc":{"om":[{"ops":2}]},"nct":3"#);
    bench.get("CAdmin", "cse-in/a/c");
    assert_eq!(heard(&mut bench)[0]["rep"], json!({"m2m:uri": "/id-in/cse-in/a/c"}));
    // Without a word an update is no event, where there is a monitor.
    let mut bench = subscribed(r#""enc":{"om":[{"ops":2}]}"#);
    bench.update("CAdmin", "cse-in/a/c", r#"{"m2m:cnt":{"lbl":["x"]}}"#);
    assert!(heard(&mut bench).is_empty());
    // The conditions of other events hold for these.
    let mut bench = subscribed(r#""enc":{"om":[{"ops":2}],"crb":"20000101T000000"}"#);
    bench.get("CAdmin", "cse-in/a/c");
    assert!(heard(&mut bench).is_empty());
    // So many, and no more.
    let mut bench = subscribed(r#""enc":{"om":[{"ops":2}]},"exc":2"#);
    for _ in 0..3 {
        bench.get("CAdmin", "cse-in/a/c");
    }
    assert_eq!(heard(&mut bench).len(), 2);
    assert_eq!(bench.get("Ca", "cse-in/a/c/s").status.number(), 4004);
}

/// An observer's answers are looked up again at every change: that is nobody's request.
#[test]
fn an_observer_asks_once() {
    let mut bench = subscribed(r#""enc":{"om":[{"ops":2}]}"#);
    let request = Request::new(Operation::Retrieve, "cse-in/a/c", "CAdmin", "o");
    bench.cse.handle(bench.now, Input::Observe { token: Token(900), request });
    assert_eq!(bench.run().len(), 1);
    assert_eq!(heard(&mut bench).len(), 1);
    bench.asked += 1;
    let update = Request::new(Operation::Update, "cse-in/a/c", "CAdmin", "u")
        .with_content(r#"{"m2m:cnt":{"lbl":["x"]}}"#);
    bench.cse.handle(bench.now, Input::Request { token: Token(901), request: update });
    assert_eq!(bench.run().len(), 2, "the update's answer and the observer's");
    assert!(heard(&mut bench).is_empty());
}

#[test]
fn members_of_a_group_are_monitored_too() {
    let mut bench = subscribed(r#""enc":{"om":[{"ops":2}]}"#);
    let group = r#"{"m2m:grp":{"rn":"g","mnm":2,"mid":["cse-in/a/c"]}}"#;
    bench.create("Ca", "cse-in/a", ResourceType::Group, group);
    bench.get("Ca", "cse-in/a/g/fopt");
    assert_eq!(heard(&mut bench), [json!({"om": {"op": 2, "or": "Ca"}})]);
}

#[test]
fn who_looks_into_an_empty_container_is_told_of() {
    let mut bench = subscribed(r#""enc":{"net":[5]}"#);
    assert_eq!(json(&bench.get("Ca", "cse-in/a/c/s"))["m2m:sub"]["nct"], 1);
    let names = |events: &[Value]| -> Vec<Value> {
        events.iter().map(|event| event["rep"]["m2m:cnt"]["rn"].clone()).collect()
    };
    for query in ["", "?rcn=5", "?rcn=6", "?fu=1", "?fu=1&rcn=4", "/la"] {
        bench.get("CAdmin", &format!("cse-in/a/c{query}"));
        assert!(heard(&mut bench).is_empty(), "{query}");
    }
    assert_eq!(bench.get("Cstranger", "cse-in/a/c?rcn=4").status.number(), 4103);
    assert!(heard(&mut bench).is_empty(), "who may not look has not looked");
    for query in ["?rcn=4", "?rcn=8"] {
        assert_eq!(bench.get("CAdmin", &format!("cse-in/a/c{query}")).status.number(), 2000);
        let events = heard(&mut bench);
        assert_eq!(events[0]["net"], 5, "{query}");
        assert_eq!(names(&events), ["c"], "{query}");
    }
    // A child that is no instance is none.
    bench.create("Ca", "cse-in/a/c", ResourceType::Container, r#"{"m2m:cnt":{"rn":"d"}}"#);
    bench.get("CAdmin", "cse-in/a/c?rcn=4");
    assert_eq!(heard(&mut bench).len(), 1);
    bench.reading("one", "1");
    bench.get("CAdmin", "cse-in/a/c?rcn=4");
    assert!(heard(&mut bench).is_empty());
    bench.delete("Ca", "cse-in/a/c/la");
    bench.get("CAdmin", "cse-in/a/c?rcn=8");
    assert_eq!(heard(&mut bench).len(), 1);
}

/// TS-0001 Table 9.6.8-4, row by row: the contents that go with each event; and 5001 for what
/// needs an underlying network.
#[test]
fn contents_go_with_events() {
    let mut bench = Bench::with_container();
    bench.create("Ca", "cse-in/a", ResourceType::TimeSeries, r#"{"m2m:ts":{"rn":"t"}}"#);
    for (to, net, valid, usual) in [
        ("cse-in/a/c", "1", vec![1, 2, 3], Some(1)),
        ("cse-in/a/c", "2", vec![1, 3], Some(1)),
        ("cse-in/a/c", "3", vec![1, 3], Some(1)),
        ("cse-in/a/c", "4", vec![1, 3], Some(1)),
        ("cse-in/a/c", "5", vec![1, 3], Some(1)),
        ("cse-in/a/c", "1,3", vec![1, 3], Some(1)),
        ("cse-in/a", "7", vec![2], Some(2)),
        ("cse-in/a/t", "8", vec![5], Some(5)),
        ("cse-in/a/t", "1,8", vec![], None),
    ] {
        let missing = if net.contains('8') { r#","md":{"num":1,"dur":"PT1H"}"# } else { "" };
        let criteria = format!(r#""nu":["Ca"],"enc":{{"net":[{net}]{missing}}}"#);
        for told in 1..=6 {
            let sub = format!(r#"{{"m2m:sub":{{{criteria},"nct":{told}}}}}"#);
            let made = bench.create("Ca", to, ResourceType::Subscription, &sub);
            let expected = match told {
                _ if valid.contains(&told) => 2001,
                4 => 5001,
                _ => 4000,
            };
            assert_eq!(made.status.number(), expected, "{net} by {told}");
            if expected == 2001 {
                let id = json(&made)["m2m:sub"]["ri"].as_str().unwrap().to_owned();
                bench.delete("Ca", &id);
            }
        }
        let sub = format!(r#"{{"m2m:sub":{{{criteria}}}}}"#);
        let made = bench.create("Ca", to, ResourceType::Subscription, &sub);
        assert_eq!(json(&made)["m2m:sub"]["nct"], json!(usual), "{net}: {made:?}");
    }
    let mut refused = |to: &str, rest: &str| {
        let sub = format!(r#"{{"m2m:sub":{{"nu":["Ca"],{rest}}}}}"#);
        bench.create("Ca", to, ResourceType::Subscription, &sub).status.number()
    };
    assert_eq!(refused("cse-in/a", r#""enc":{"net":[6]}"#), 5001);
    assert_eq!(refused("cse-in/a", r#""enc":{"net":[5]}"#), 4000, "no container");
    assert_eq!(refused("cse-in/a/c", r#""enc":{"om":[{"ops":1}]},"nct":2"#), 4000);
    for criteria in [
        r#"{"om":[{"ops":1}],"net":[1]}"#,
        r#"{"om":[]}"#,
        r#"{"om":{"ops":1}}"#,
        r#"{"om":[{}]}"#,
        r#"{"om":[{"ops":0}]}"#,
        r#"{"om":[{"ops":64}]}"#,
        r#"{"om":[{"ops":[1]}]}"#,
        r#"{"om":[{"or":""}]}"#,
        r#"{"om":[{"or":"Ca","op":1}]}"#,
        r#"{"om":[1]}"#,
    ] {
        assert_eq!(refused("cse-in/a/c", &format!(r#""enc":{criteria}"#)), 4000, "{criteria}");
    }
}

#[test]
fn an_update_keeps_what_goes_together() {
    let mut bench = subscribed(r#""enc":{"net":[1]},"nct":2"#);
    let mut update = |content: &str| {
        let content = format!(r#"{{"m2m:sub":{content}}}"#);
        bench.update("Ca", "cse-in/a/c/s", &content).status.number()
    };
    assert_eq!(update(r#"{"enc":{"net":[3]}}"#), 4000, "what has stood does not go with it");
    assert_eq!(update(r#"{"enc":{"net":[3]},"nct":1}"#), 2004);
    assert_eq!(update(r#"{"nct":2}"#), 4000);
    assert_eq!(update(r#"{"enc":{"om":[{"ops":2}]}}"#), 2004);
    assert_eq!(update(r#"{"enc":null,"nct":2}"#), 2004);
}

/// TS-0001 §7.2: an AE's name alone would mean another AE at the target's CSE, in verifications and
/// in what is told.
#[test]
fn a_target_elsewhere_is_told_whose_originators_they_are() {
    let mut config = crate::bench::config();
    config.admitted_cses = vec!["/id-mn".to_owned()];
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    let csr = r#"{"m2m:csr":{"rn":"mn","cb":"/id-mn/cse-mn","csi":"/id-mn","rr":true,
        "srv":["4"],"poa":["http://mn:1"]}}"#;
    assert_eq!(
        bench.create("/id-mn", "cse-in", ResourceType::RemoteCse, csr).status.number(),
        2001
    );
    let sub = r#"{"m2m:sub":{"nu":["/id-mn/Cx"],"enc":{"om":[{"ops":2}]},"nct":3}}"#;
    let request = bench
        .request(Operation::Create, "Ca", "cse-in/a")
        .creating(ResourceType::Subscription, sub);
    bench.ask_later(request);
    let asked = bench.calls();
    let content = |call: &Call| -> Value {
        serde_json::from_str(call.request.content.as_deref().unwrap()).unwrap()
    };
    assert_eq!(content(&asked[0])["m2m:sgn"]["cr"], "/id-in/Ca");
    assert_eq!(asked[0].request.to, "/id-mn/Cx");
    bench.reply(&asked[0], Status::Ok);
    bench.get("Ca", "cse-in/a");
    let told = content(&bench.calls()[0])["m2m:sgn"].clone();
    assert_eq!(told["cr"], "/id-in/Ca");
    assert_eq!(told["nev"]["om"], json!({"op": 2, "or": "/id-in/Ca"}));
    assert_eq!(told["nev"]["rep"], json!({"m2m:uri": "/id-in/cse-in/a"}));
}
