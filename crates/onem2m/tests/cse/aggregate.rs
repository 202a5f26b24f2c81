//! Notifications that a group gathers from its members (TS-0004 §7.4.14.2.3, §7.5.1.2.6).

use crate::bench::{Bench, json};
use gatewright_onem2m::{Call, Operation, Request, ResourceType, Status};
use serde_json::Value;
use std::time::Duration;

/// Containers `c` and `d`, at a CSE with the registered CSE `/id-mn`, and a group of these members.
fn bench(members: &str, more: &str) -> Bench {
    let mut config = crate::bench::config();
    config.admitted_cses = vec!["/id-mn".to_owned(), "/id-far".to_owned()];
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    for csi in ["/id-mn", "/id-far"] {
        let entry = format!(
            r#"{{"m2m:csr":{{"rn":"{}","cb":"{csi}/b","csi":"{csi}","rr":true,"srv":["4"],
                "poa":["http:/{csi}:1"]}}}}"#,
            csi.trim_start_matches('/')
        );
        assert_eq!(
            bench.create(csi, "cse-in", ResourceType::RemoteCse, &entry).status,
            Status::Created
        );
    }
    for name in ["c", "d"] {
        let content = format!(r#"{{"m2m:cnt":{{"rn":"{name}"}}}}"#);
        bench.create("Ca", "cse-in/a", ResourceType::Container, &content);
    }
    let group = format!(r#"{{"m2m:grp":{{"rn":"g","mnm":9,"mid":[{members}]{more}}}}}"#);
    let made = bench.create("Ca", "cse-in/a", ResourceType::Group, &group);
    assert_eq!(made.status, Status::Created, "{made:?}");
    bench
}

const BOTH: &str = r#""cse-in/a/c","cse-in/a/d""#;

/// Subscribes through the group; the receiver agrees.
fn subscribe(bench: &mut Bench, target: &str) -> Value {
    let content = format!(
        r#"{{"m2m:sub":{{"rn":"s","nu":["{target}"],"nfu":"http://ward:1","enc":{{"net":[3]}}}}}}"#
    );
    let request = bench.request(Operation::Create, "Ca", "cse-in/a/g/fopt");
    bench.ask_later(request.creating(ResourceType::Subscription, content));
    let calls = bench.calls();
    assert_eq!(calls.len(), 1, "the members ask nobody");
    let question: Value = content_of(&calls[0]);
    assert_eq!(question["m2m:sgn"]["vrq"], true);
    let answers = bench.reply(&calls[0], Status::Ok);
    json(&answers[0].1)["m2m:agr"]["m2m:rsp"].clone()
}

fn content_of(call: &Call) -> Value {
    serde_json::from_str(call.request.content.as_deref().unwrap()).unwrap()
}

fn instance(bench: &mut Bench, container: &str, name: &str) {
    let content = format!(r#"{{"m2m:cin":{{"rn":"{name}","con":"x"}}}}"#);
    let to = format!("cse-in/a/{container}");
    let made = bench.create("Ca", &to, ResourceType::ContentInstance, &content);
    assert_eq!(made.status, Status::Created);
}

/// The names of the instances in an aggregated notification.
fn names(call: &Call) -> Vec<String> {
    let list = content_of(call)["m2m:agn"]["m2m:sgn"].clone();
    let name = |one: &Value| one["nev"]["rep"]["m2m:cin"]["rn"].as_str().unwrap().to_owned();
    list.as_array().unwrap().iter().map(name).collect()
}

fn group_id(bench: &mut Bench) -> String {
    json(&bench.get("Ca", "cse-in/a/g"))["m2m:grp"]["ri"].as_str().unwrap().to_owned()
}

#[test]
fn what_members_notify_is_sent_as_one() {
    let mut bench = bench(BOTH, r#","nar":{"num":3,"dur":"PT10S"}"#);
    let answers = subscribe(&mut bench, "http://ward:1");
    assert_eq!((&answers[0]["rsc"], &answers[1]["rsc"]), (&2001.into(), &2001.into()));
    let group = group_id(&mut bench);
    for container in ["c", "d"] {
        let made = json(&bench.get("Ca", &format!("cse-in/a/{container}/s")))["m2m:sub"].clone();
        assert_eq!(made["nu"], serde_json::json!([format!("/id-in/{group}/fopt")]));
        assert_eq!((&made["gpi"], &made["cr"]), (&format!("/id-in/{group}").into(), &"Ca".into()));
    }
    for (container, name) in [("c", "1"), ("d", "2")] {
        instance(&mut bench, container, name);
        assert!(bench.calls().is_empty(), "three of them are one");
    }
    instance(&mut bench, "c", "3");
    let calls = bench.calls();
    assert_eq!((calls.len(), calls[0].urls.as_slice()), (1, &["http://ward:1".to_owned()][..]));
    assert_eq!(names(&calls[0]), ["1", "2", "3"]);
    assert_eq!(content_of(&calls[0])["m2m:agn"]["m2m:sgn"][0]["nfu"], "http://ward:1");
    bench.reply(&calls[0], Status::Ok);
    // What does not become so many is sent after the duration, also over a restart.
    instance(&mut bench, "d", "4");
    bench.restart();
    bench.pass(Duration::from_secs(9));
    assert!(bench.calls().is_empty());
    bench.pass(Duration::from_secs(1));
    let calls = bench.calls();
    assert_eq!(calls.len(), 1);
    bench.reply(&calls[0], Status::Ok);
    instance(&mut bench, "d", "5");
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.calls().len(), 1, "the receiver has agreed before the restart");
}

/// "If the notifyAggregation attribute is not specified … the currentNrOfMembers attribute".
#[test]
fn without_a_number_it_is_that_of_the_members() {
    let mut bench = bench(BOTH, "");
    subscribe(&mut bench, "http://ward:1");
    instance(&mut bench, "c", "1");
    assert!(bench.calls().is_empty());
    instance(&mut bench, "d", "2");
    assert_eq!(names(&bench.calls()[0]), ["1", "2"]);
}

#[test]
fn a_receiver_that_refuses_gets_nothing() {
    let mut bench = bench(BOTH, "");
    let content = r#"{"m2m:sub":{"rn":"s","nu":["http://x:1"],"nfu":"http://x:1"}}"#;
    let request = bench.request(Operation::Create, "Ca", "cse-in/a/g/fopt");
    bench.ask_later(request.creating(ResourceType::Subscription, content));
    let calls = bench.calls();
    let answers = bench.reply(&calls[0], Status::SubscriptionHostHasNoPrivilege);
    assert_eq!(answers[0].1.status.number(), 5205);
    assert_eq!(bench.get("Ca", "cse-in/a/c/s").status, Status::NotFound);
    // Nor is there another way to it: a group is no notification target by itself, and a
    // subscription through one keeps its receiver.
    let group = group_id(&mut bench);
    let content =
        format!(r#"{{"m2m:sub":{{"rn":"t","nu":["/id-in/{group}/fopt"],"nfu":"http://x:1"}}}}"#);
    let direct = bench.create("Ca", "cse-in/a/c", ResourceType::Subscription, &content);
    assert_eq!(direct.status.number(), 5204, "{direct:?}");
    subscribe(&mut bench, "http://ward:1");
    let changed = bench.update("Ca", "cse-in/a/c/s", r#"{"m2m:sub":{"nfu":"http://x:1"}}"#);
    assert_eq!(changed.status, Status::BadRequest);
}

/// Of a member at another CSE: `/id-mn` asks whether the group takes notifications, and sends them.
#[test]
fn only_the_cses_of_members_notify_a_group() {
    let mut bench = bench(r#""/id-mn/b/x""#, r#","nar":{"num":2}"#);
    let to = format!("/id-in/{}/fopt", group_id(&mut bench));
    let notify = |from: &str, id: &str, content: &str| {
        Request::new(Operation::Notify, &*to, from, id).with_content(content)
    };
    let verify = r#"{"m2m:sgn":{"vrq":true,"sur":"/id-mn/sub1","cr":"/id-in/Ca"}}"#;
    assert_eq!(bench.ask(notify("/id-mn", "v1", verify)).status, Status::Ok);
    for stranger in ["/id-far", "Ca", "CAdmin"] {
        let refused = bench.ask(notify(stranger, "v2", verify));
        assert_eq!(refused.status.number(), 4103, "{stranger}");
    }
    let bare = r#"{"m2m:sgn":{"nev":{"rep":{}},"sur":"/id-mn/sub1"}}"#;
    assert_eq!(bench.ask(notify("/id-mn", "n0", bare)).status, Status::BadRequest);
    let event = |name: &str| {
        format!(
            r#"{{"nev":{{"rep":{{"m2m:cin":{{"rn":"{name}","con":1.50}}}},"net":3}},
                "sur":"/id-mn/sub1","cr":"/id-in/Ca","nfu":"http://ward:1"}}"#
        )
    };
    // Nobody has asked the receiver here yet, so that it is asked first.
    let one = format!(r#"{{"m2m:sgn":{}}}"#, event("1"));
    bench.ask_later(notify("/id-mn", "n1", &one));
    let calls = bench.calls();
    assert_eq!(content_of(&calls[0])["m2m:sgn"]["vrq"], true);
    assert_eq!(bench.reply(&calls[0], Status::Ok)[0].1.status, Status::Ok);
    assert!(bench.calls().is_empty());
    // Aggregated ones are taken apart; numbers keep their digits.
    let two = format!(r#"{{"m2m:agn":{{"m2m:sgn":[{}]}}}}"#, event("2"));
    assert_eq!(bench.ask(notify("/id-mn", "n2", &two)).status, Status::Ok);
    let calls = bench.calls();
    assert_eq!(names(&calls[0]), ["1", "2"]);
    assert!(calls[0].request.content.as_deref().unwrap().contains("1.50"));
}

/// A group that is a member of another CSE's group notifies that one.
#[test]
fn a_group_below_another_one_notifies_it() {
    let mut bench = bench(BOTH, r#","nar":{"num":1}"#);
    subscribe(&mut bench, "/id-mn/grp7/fopt");
    let group = group_id(&mut bench);
    let made = json(&bench.get("Ca", "cse-in/a/c/s"))["m2m:sub"].clone();
    let expected = format!("/id-in/{group}/fopt/~/id-mn/grp7/fopt");
    assert_eq!(made["nu"], serde_json::json!([expected]));
    bench.restart();
    instance(&mut bench, "c", "1");
    let calls = bench.calls();
    assert_eq!(calls[0].request.to, "/id-mn/grp7/fopt");
    assert!(calls[0].request.content.as_deref().unwrap().contains("http://ward:1"));
}

/// m2m:memberType is `mixed`, the number of a resource type, or that of oldest or latest (TS-0004
/// §6.3.4.2.11); notifyAggregation is an m2m:batchNotify.
#[test]
fn a_group_has_a_member_type_and_an_aggregation_that_exist() {
    for (attributes, status) in [
        (r#","mt":99"#, 4000),
        (r#","mt":0"#, 2001),
        (r#","mt":3"#, 2001),
        (r#","mt":48"#, 2001),
        (r#","mt":10003"#, 2001),
        (r#","nar":{"num":0}"#, 4000),
        (r#","nar":{"dur":"soon"}"#, 4000),
        (r#","nar":{"number":3}"#, 4000),
        (r#","nar":{"num":3}"#, 2001),
    ] {
        let mut bench = Bench::with_container();
        let content =
            format!(r#"{{"m2m:grp":{{"rn":"g","mnm":9,"mid":["/id-mn/x"]{attributes}}}}}"#);
        let made = bench.create("Ca", "cse-in/a", ResourceType::Group, &content);
        assert_eq!(made.status.number(), status, "{attributes}: {made:?}");
        if status == 2001 {
            let changed = bench.update("Ca", "cse-in/a/g", r#"{"m2m:grp":{"nar":{"num":0}}}"#);
            assert_eq!(changed.status.number(), 4000, "{attributes}");
        }
    }
}
