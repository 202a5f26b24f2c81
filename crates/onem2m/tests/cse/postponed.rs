//! Requests that are done at a time (operation execution time, TS-0001 §8.1.2, TS-0004 §7.3.3).

use crate::bench::{Bench, START, found, json};
use core::time::Duration;
use gatewright_onem2m::primitive::Deadline;
use gatewright_onem2m::{
    Input, Operation, Output, Request, ResourceType, Response, ResponseType, Timestamp, Token,
};
use proptest::prelude::*;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A request to create the container `name`, so many seconds from now.
fn later(bench: &mut Bench, name: &str, wait: u64) -> Request {
    let content = format!(r#"{{"m2m:cnt":{{"rn":"{name}"}}}}"#);
    let mut request = bench
        .request(Operation::Create, "Ca", "cse-in/a")
        .creating(ResourceType::Container, content);
    request.executes = Some(Deadline::After(seconds(wait)));
    request
}

/// Lets time pass as a timer does: from one point that is due to the next.
fn walk(bench: &mut Bench, span: Duration) -> Vec<(Token, Response)> {
    let end = bench.now + span;
    let mut answers = Vec::new();
    while bench.now < end {
        let due = bench.cse.poll_timeout().unwrap_or(end);
        bench.now = due.clamp(bench.now, end).max(bench.now + Duration::from_micros(1)).min(end);
        bench.cse.handle(bench.now, Input::Tick);
        answers.extend(bench.run());
    }
    answers
}

fn there(bench: &mut Bench, name: &str) -> bool {
    bench.get("CAdmin", &format!("cse-in/a/{name}")).status.is_success()
}

#[test]
fn a_request_is_done_at_its_time_and_not_before() {
    let mut bench = Bench::with_container();
    let at = Timestamp::new(bench.now + seconds(30));
    let mut absolute = later(&mut bench, "x", 0);
    absolute.executes = Some(Deadline::At(at));
    for (request, name) in [(absolute, "x"), (later(&mut bench, "y", 30), "y")] {
        let mut request = request;
        request.id = name.to_owned();
        let began = bench.now;
        let token = bench.ask_later(request);
        assert_eq!(bench.cse.poll_timeout(), Some(began + seconds(30)));
        assert!(walk(&mut bench, Duration::from_millis(29_999)).is_empty());
        assert!(!there(&mut bench, name));
        let answers = walk(&mut bench, Duration::from_millis(1));
        assert_eq!((answers[0].0, answers[0].1.status.number()), (token, 2001));
        let made = json(&answers[0].1)["m2m:cnt"]["ct"].as_str().unwrap().to_owned();
        assert_eq!(made, Timestamp::new(began + seconds(30)).to_string());
    }
    assert_eq!(bench.cse.counters().postponed, 2);
}

#[test]
fn what_is_over_is_done_at_once() {
    let mut bench = Bench::with_container();
    let mut request = later(&mut bench, "x", 0);
    request.executes = Some(Deadline::At(Timestamp::new(seconds(1))));
    assert_eq!(bench.ask(request).status.number(), 2001);
    let mut request = later(&mut bench, "y", 0);
    request.set("oet", "-5").unwrap();
    assert_eq!(bench.ask(request).status.number(), 2001);
}

/// "If it has been reached": a request that expires first is answered then, and never done.
#[test]
fn a_request_that_expires_first_is_refused() {
    let mut bench = Bench::with_container();
    for (name, value) in [("rqet", "20000"), ("rset", "20000"), ("rqet", "30000")] {
        let mut request = later(&mut bench, "x", 30);
        request.set(name, value).unwrap();
        assert_eq!(bench.ask(request).status.number(), 4000, "{name} {value}");
    }
    // Nor does the result expire before the request.
    let mut request = bench.request(Operation::Retrieve, "Ca", "cse-in/a");
    request.set("rqet", "3000").unwrap();
    request.set("rset", "2999").unwrap();
    assert_eq!(bench.ask(request.clone()).status.number(), 4000);
    request.set("rset", "3000").unwrap();
    request.id = "again".to_owned();
    assert_eq!(bench.ask(request).status.number(), 2000);
    let mut request = later(&mut bench, "x", 30);
    request.set("rqet", "30001").unwrap();
    bench.ask_later(request);
    assert_eq!(walk(&mut bench, seconds(30))[0].1.status.number(), 2001);
}

#[test]
fn what_it_meets_is_what_is_there_then() {
    let mut bench = Bench::with_container();
    let nowhere = later_at(&mut bench, "cse-in/none");
    assert_eq!(bench.ask(nowhere).status.number(), 4004, "told at once");
    let request = later_at(&mut bench, "cse-in/a/c");
    bench.ask_later(request);
    bench.delete("Ca", "cse-in/a/c");
    assert_eq!(walk(&mut bench, seconds(10))[0].1.status.number(), 4004);
    // The right to it is looked at then, too.
    let request = later_at(&mut bench, "cse-in/a");
    bench.ask_later(request);
    let policy =
        r#"{"m2m:acp":{"rn":"p","pv":{"acr":[]},"pvs":{"acr":[{"acor":["Ca"],"acop":63}]}}}"#;
    bench.create("Ca", "cse-in/a", ResourceType::AccessControlPolicy, policy);
    bench.update("Ca", "cse-in/a", r#"{"m2m:ae":{"acpi":["cse-in/a/p"]}}"#);
    assert_eq!(walk(&mut bench, seconds(10))[0].1.status.number(), 4103);
}

fn later_at(bench: &mut Bench, to: &str) -> Request {
    let mut request = bench.request(Operation::Retrieve, "Ca", to);
    request.executes = Some(Deadline::After(seconds(10)));
    request
}

#[test]
fn what_was_accepted_outlives_the_process() {
    let mut bench = Bench::with_container();
    bench.update("Ca", "cse-in/a", r#"{"m2m:ae":{"rr":true,"poa":["http://me:1"]}}"#);
    let mut kept = later(&mut bench, "kept", 30);
    kept.response_type = ResponseType::NonBlockingSynchronous;
    kept.content = Some(r#"{"m2m:cnt":{"rn":"kept","lbl":["1.50"]}}"#.into());
    let accepted = bench.ask(kept);
    assert_eq!(accepted.status.number(), 1001);
    let at = json(&accepted)["m2m:uri"].as_str().unwrap().to_owned();
    let pending = json(&bench.get("Ca", &at));
    assert_eq!(
        (&pending["m2m:req"]["rs"], &pending["m2m:req"]["mi"]["oet"]),
        (&json!(3), &json!("30000"))
    );
    let mut told = later(&mut bench, "told", 31);
    told.response_type = ResponseType::NonBlockingAsynchronous;
    told.notify = vec!["http://me:1".to_owned()];
    assert_eq!(bench.ask(told).status.number(), 1002);
    let mut silent = later(&mut bench, "silent", 32);
    silent.response_type = ResponseType::None;
    assert_eq!(bench.ask(silent).status.number(), 1000);
    // Its originator waits: it goes with the connection.
    let waited = later(&mut bench, "waited", 33);
    bench.ask_later(waited);
    let rows: Vec<_> = bench.cse.rows().collect();
    bench.cse = bench.reopened();
    assert_eq!(bench.cse.rows().collect::<Vec<_>>(), rows);
    bench.run();
    assert!(walk(&mut bench, Duration::from_millis(29_999)).is_empty());
    assert!(!there(&mut bench, "kept"));
    walk(&mut bench, seconds(10));
    let names = ["kept", "told", "silent", "waited"].map(|name| there(&mut bench, name));
    assert_eq!(names, [true, true, true, false]);
    let kept = json(&bench.get("Ca", &at));
    assert_eq!(kept["m2m:req"]["ors"]["rsc"], 2001);
    assert_eq!(kept["m2m:req"]["ors"]["pc"]["m2m:cnt"]["lbl"], json!(["1.50"]));
    let calls = bench.calls();
    assert_eq!(calls[0].urls, ["http://me:1"]);
    assert!(calls[0].request.content.as_deref().unwrap().starts_with(r#"{"m2m:rsp":{"rsc":2001,"#));
    // A result is kept for ten minutes from when there is one.
    walk(&mut bench, seconds(560));
    assert!(bench.get("Ca", &at).status.is_success());
    walk(&mut bench, seconds(60));
    assert_eq!(bench.get("Ca", &at).status.number(), 4004);
}

/// TS-0001 §10.2.5.6: who deletes the request resource takes back the request.
#[test]
fn a_request_can_be_taken_back() {
    let mut bench = Bench::with_container();
    let mut request = later(&mut bench, "x", 30);
    request.response_type = ResponseType::NonBlockingSynchronous;
    let at = json(&bench.ask(request))["m2m:uri"].as_str().unwrap().to_owned();
    assert_eq!(bench.delete("CAdmin", &at).status.number(), 2002);
    assert_eq!(bench.rows.values().filter(|row| row.starts_with("{\"_o\"")).count(), 0);
    walk(&mut bench, seconds(60));
    assert!(!there(&mut bench, "x"));
}

#[test]
fn it_is_done_once_whatever_the_store_does() {
    let mut bench = Bench::with_container();
    let mut request = later(&mut bench, "x", 30);
    request.response_type = ResponseType::None;
    // The order is not stored: nothing is promised.
    bench.cse.handle(bench.now, Input::Request { token: Token(900), request: request.clone() });
    fail(&mut bench);
    assert_eq!(bench.run()[0].1.status.number(), 5000);
    walk(&mut bench, seconds(40));
    assert!(!there(&mut bench, "x"));
    // What comes of it is not stored: it is done again.
    request.id = "again".to_owned();
    assert_eq!(bench.ask(request).status.number(), 1000);
    bench.now += seconds(30);
    bench.cse.handle(bench.now, Input::Tick);
    fail(&mut bench);
    assert!(bench.run().is_empty());
    assert!(!there(&mut bench, "x"));
    walk(&mut bench, seconds(1));
    assert!(there(&mut bench, "x"));
    assert_eq!(bench.rows.values().filter(|row| row.starts_with("{\"_o\"")).count(), 0);
    walk(&mut bench, seconds(10));
    assert_eq!(found(&bench.get("CAdmin", "cse-in/a?fu=1")), ["cse-in/a/c", "cse-in/a/x"]);
}

/// The next batch cannot be stored.
fn fail(bench: &mut Bench) {
    match bench.cse.poll_output().expect("something to store") {
        Output::Store(batch) => bench.cse.handle(bench.now, Input::Failed(batch.number)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_waits_is_bounded() {
    let mut config = crate::bench::config();
    config.limits.deferred = 8;
    config.limits.deferred_octets = 2_000;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    let stranger = {
        let mut request = later(&mut bench, "x", 30);
        request.from = "Cstranger".to_owned();
        request
    };
    assert_eq!(bench.ask(stranger).status.number(), 4103);
    let mut far = later(&mut bench, "far", 0);
    far.set("oet", &u64::MAX.to_string()).unwrap();
    assert_eq!(bench.ask(far).status.number(), 4000);
    let mut large = later(&mut bench, "large", 30);
    large.content = Some(format!(r#"{{"m2m:cnt":{{"lbl":["{}"]}}}}"#, "x".repeat(600)).into());
    assert_eq!(bench.ask(large).status.number(), 5000);
    for name in ["x", "y"] {
        let request = later(&mut bench, name, 30);
        bench.ask_later(request);
    }
    let third = later(&mut bench, "z", 30);
    assert_eq!(bench.ask(third).status.number(), 5000);
    // A quarter of the room is one originator's, and what is left is the others'.
    assert_eq!(bench.cse.counters().deferred_of_one_full, 2);
    for other in ["Cb", "Cc", "Cd"] {
        bench.register(other, other);
        for number in 0..2 {
            let mut request = later_at(&mut bench, "cse-in");
            request.from = other.to_owned();
            request.id = format!("{other}{number}");
            bench.ask_later(request);
        }
    }
    let mut request = later_at(&mut bench, "cse-in");
    request.from = "CAdmin".to_owned();
    assert_eq!(bench.ask(request).status.number(), 5000);
    assert_eq!(bench.cse.counters().deferred_full, 1);
    walk(&mut bench, seconds(10));
    let answers = walk(&mut bench, seconds(20));
    let order: Vec<u64> = answers.iter().map(|(token, _)| token.0).collect();
    assert!(order.is_sorted(), "those of one time in the order they came: {order:?}");
    let third = later(&mut bench, "z", 30);
    bench.ask_later(third);
}

#[test]
fn values_that_are_none() {
    for wrong in ["", "soon", "20230230T000000", "-x", "P", "1.5"] {
        let mut request = Request::new(Operation::Retrieve, "x", "Ca", "1");
        let read = request.set("oet", wrong).map(|()| request.executes);
        let harmless = matches!(&read, Ok(Some(Deadline::After(span))) if span.is_zero());
        assert!(read.is_err() || harmless, "{wrong}: {read:?}");
    }
}

#[test]
fn members_are_asked_when_the_group_is() {
    let mut bench = Bench::with_container();
    let group = r#"{"m2m:grp":{"rn":"g","mnm":2,"mid":["cse-in/a/c","cse-in/a"]}}"#;
    bench.create("Ca", "cse-in/a", ResourceType::Group, group);
    let mut request = bench
        .request(Operation::Create, "Ca", "cse-in/a/g/fopt")
        .creating(ResourceType::Container, r#"{"m2m:cnt":{"rn":"x"}}"#);
    request.executes = Some(Deadline::After(seconds(10)));
    bench.ask_later(request);
    assert!(!there(&mut bench, "c/x") && !there(&mut bench, "x"));
    let answers = walk(&mut bench, seconds(10));
    let answers = json(&answers[0].1)["m2m:agr"]["m2m:rsp"].clone();
    assert_eq!((&answers[0]["rsc"], &answers[1]["rsc"]), (&json!(2001), &json!(2001)));
}

/// TS-0004 §7.3.2.6: it is sent on before its time, and waits where it is done.
#[test]
fn what_is_for_another_is_sent_on_at_once() {
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
    let mut request = bench.request(Operation::Retrieve, "Ca", "/id-mn/cse-mn/x");
    request.set("oet", "60000").unwrap();
    let token = bench.ask_later(request);
    let calls = bench.calls();
    assert_eq!(calls[0].request.executes, Some(Deadline::After(seconds(60))));
    assert!(calls[0].request.to_json().contains(r#""oet":"60000""#));
    // It is waited for until then, and as long as for any other.
    assert!(walk(&mut bench, Duration::from_millis(69_999)).is_empty());
    let answers = walk(&mut bench, Duration::from_millis(1));
    assert_eq!((answers[0].0, answers[0].1.status.number()), (token, 5103));
    let mut over = bench.request(Operation::Retrieve, "Ca", "/id-mn/cse-mn/x");
    over.executes = Some(Deadline::At(Timestamp::new(START)));
    assert_eq!(bench.ask(over).status.number(), 4008);
}

#[test]
fn a_monitor_hears_of_it_when_it_is_done() {
    let mut bench = Bench::with_container();
    let sub = r#"{"m2m:sub":{"rn":"s","nu":["Ca"],"enc":{"om":[{"ops":2}]}}}"#;
    assert_eq!(
        bench.create("Ca", "cse-in/a/c", ResourceType::Subscription, sub).status.number(),
        2001
    );
    let request = later_at(&mut bench, "cse-in/a/c");
    bench.ask_later(request);
    assert_eq!(bench.cse.counters().notifications, 0);
    walk(&mut bench, seconds(10));
    assert_eq!(bench.cse.counters().notifications, 1);
}

#[derive(Clone, Debug)]
enum Step {
    Ask { wait: u64, expires: Option<u64>, how: ResponseType },
    Pass(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let how = prop::sample::select(vec![
        ResponseType::Blocking,
        ResponseType::Flexible,
        ResponseType::NonBlockingSynchronous,
        ResponseType::None,
    ]);
    prop_oneof![
        6 => (0_u64..40, prop::option::of(1_u64..40), how)
            .prop_map(|(wait, expires, how)| Step::Ask { wait, expires, how }),
        4 => (1_u64..30).prop_map(Step::Pass),
        1 => Just(Step::Restart),
    ]
}

/// What should come of requests for containers: the seconds when each is done or given up, and
/// whether it survives the process. Said without a queue: each is on its own.
#[derive(Debug, Default)]
struct Model {
    now: u64,
    /// By name: when it ends, how, and whose answer that is.
    open: BTreeMap<u64, (u64, u16, Option<Token>)>,
    made: BTreeSet<u64>,
    refused: BTreeSet<u64>,
}

impl Model {
    fn ask(&mut self, name: u64, wait: u64, token: Option<Token>) {
        self.open.insert(name, (self.now + wait, 2001, token));
    }

    /// The answers up to now, of each token.
    fn pass(&mut self, span: u64) -> BTreeMap<Token, u16> {
        self.now += span;
        let now = self.now;
        let mut answers = BTreeMap::new();
        let ended: Vec<_> =
            self.open.iter().filter(|(_, it)| it.0 <= now).map(|(n, _)| *n).collect();
        for name in ended {
            let (_, status, token) = self.open.remove(&name).unwrap();
            if status == 2001 { &mut self.made } else { &mut self.refused }.insert(name);
            answers.extend(token.map(|token| (token, status)));
        }
        answers
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn each_is_done_in_its_time(steps in prop::collection::vec(step(), 1..40)) {
        let (mut bench, mut model) = (Bench::with_container(), Model::default());
        let mut kept: BTreeMap<u64, String> = BTreeMap::new();
        for (name, step) in (0..).zip(steps) {
            match step {
                Step::Ask { wait, expires, how } => {
                    let mut request = later(&mut bench, &format!("n{name}"), wait);
                    request.request_expires = expires.map(|span| Deadline::After(seconds(span)));
                    request.response_type = how;
                    let waits = matches!(how, ResponseType::Blocking | ResponseType::Flexible);
                    bench.asked += 1;
                    let token = Token(bench.asked);
                    bench.cse.handle(bench.now, Input::Request { token, request });
                    let got: BTreeMap<Token, u16> = statuses(bench.run(), &mut kept, name);
                    let refused = expires.is_some_and(|expires| expires <= wait);
                    if !refused {
                        model.ask(name, wait, waits.then_some(token));
                    }
                    let mut expected = model.pass(0);
                    if refused {
                        expected.insert(token, 4000);
                    } else if !waits {
                        let accepted = if how == ResponseType::None { 1000 } else { 1001 };
                        expected.insert(token, accepted);
                    }
                    prop_assert_eq!(got, expected);
                }
                Step::Pass(span) => {
                    let got = walk(&mut bench, seconds(span));
                    let got = statuses(got, &mut kept, u64::MAX);
                    prop_assert_eq!(got, model.pass(span));
                }
                Step::Restart => {
                    let rows: Vec<_> = bench.cse.rows().collect();
                    bench.cse = bench.reopened();
                    prop_assert_eq!(bench.cse.rows().collect::<Vec<_>>(), rows);
                    bench.run();
                    // Who waited for an answer waits no more, and gets nothing done.
                    model.open.retain(|_, (_, _, token)| token.is_none());
                }
            }
        }
        let made = model.made.iter().map(|name| format!("cse-in/a/n{name}"));
        let expected: BTreeSet<String> = made.chain(["cse-in/a/c".to_owned()]).collect();
        let got: BTreeSet<String> =
            found(&bench.get("CAdmin", "cse-in/a?fu=1")).into_iter().collect();
        prop_assert_eq!(got, expected);
        for (name, at) in kept {
            let request = json(&bench.get("CAdmin", &at));
            let ended = match (model.made.contains(&name), model.refused.contains(&name)) {
                (true, _) => json!(2001),
                (_, true) => json!(4008),
                // As it was accepted.
                _ => json!(1001),
            };
            prop_assert_eq!(&request["m2m:req"]["ors"]["rsc"], &ended, "{}", name);
        }
    }
}

/// The status of each answer; the address of a result that is kept.
fn statuses(
    answers: Vec<(Token, Response)>,
    kept: &mut BTreeMap<u64, String>,
    name: u64,
) -> BTreeMap<Token, u16> {
    let mut found = BTreeMap::new();
    for (token, response) in answers {
        if response.status.number() == 1001 {
            kept.insert(name, json(&response)["m2m:uri"].as_str().unwrap().to_owned());
        }
        found.insert(token, response.status.number());
    }
    found
}
