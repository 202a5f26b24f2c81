//! Updates that wait for consent (TS-0001 §9.6.8, TS-0004 §7.3.2.9 and §7.5.1.2.19).

use crate::bench::{Bench, json};
use core::time::Duration;
use gatewright_onem2m::primitive::Deadline;
use gatewright_onem2m::{
    Call, CseConfig, Input, Operation, Request, ResourceType, Response, ResponseType, Status, Token,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::VecDeque;

const SUBSCRIPTION: &str = r#"{"m2m:sub":{"rn":"s","nu":["Ca"],"enc":{"net":[7],"atr":["lbl"]}}}"#;

/// A container whose labels nobody changes without the consent of `Ca`, which is at `http://a:1`.
fn kept_with(config: CseConfig) -> Bench {
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    let poa = r#"{"m2m:ae":{"poa":["http://a:1"],"rr":true}}"#;
    assert_eq!(bench.update("Ca", "cse-in/a", poa).status.number(), 2004);
    let made = bench.create("Ca", "cse-in/a/c", ResourceType::Subscription, SUBSCRIPTION);
    assert_eq!(made.status.number(), 2001, "{made:?}");
    assert_eq!(json(&made)["m2m:sub"]["nct"], 2, "modified attributes");
    bench
}

fn kept() -> Bench {
    kept_with(crate::bench::config())
}

fn labelling(label: &str) -> String {
    format!(r#"{{"m2m:cnt":{{"lbl":["{label}"]}}}}"#)
}

fn change(bench: &mut Bench, content: &str) -> Request {
    bench.request(Operation::Update, "CAdmin", "cse-in/a/c").with_content(content)
}

/// Asks; the answers that come at once.
fn ask(bench: &mut Bench, request: Request) -> (Token, Vec<(Token, Response)>) {
    bench.asked += 1;
    let token = Token(bench.asked);
    bench.cse.handle(bench.now, Input::Request { token, request });
    (token, bench.run())
}

fn label(bench: &mut Bench) -> Value {
    json(&bench.get("CAdmin", "cse-in/a/c"))["m2m:cnt"]["lbl"].clone()
}

#[test]
fn an_update_is_done_when_the_keeper_agrees() {
    let mut bench = kept();
    let request = change(&mut bench, r#"{"m2m:cnt":{"lbl":["x"],"mni":3}}"#);
    let token = bench.ask_later(request);
    assert_eq!(label(&mut bench), Value::Null, "nothing is changed before");
    let calls = bench.calls();
    assert_eq!(calls.len(), 1);
    assert_eq!(
        (&calls[0].urls[..], &*calls[0].request.from),
        (&["http://a:1".to_owned()][..], "/id-in")
    );
    let told: Value = serde_json::from_str(calls[0].request.content.as_deref().unwrap()).unwrap();
    let event = &told["m2m:sgn"]["nev"];
    assert_eq!(event["net"], 7);
    assert_eq!(event["rep"], json!({"m2m:cnt": {"lbl": ["x"], "mni": 3}}), "what is to be");
    assert!(told["m2m:sgn"]["sur"].as_str().unwrap().starts_with("/id-in/sub"));
    let answers = bench.reply(&calls[0], Status::Ok);
    assert_eq!((answers[0].0, answers[0].1.status.number()), (token, 2004));
    assert_eq!(json(&answers[0].1)["m2m:cnt"]["mni"], 3);
    assert_eq!(label(&mut bench), json!(["x"]));
    assert_eq!(bench.cse.counters().blocked, 1);
    // Other attributes need no consent.
    let other = bench.update("CAdmin", "cse-in/a/c", r#"{"m2m:cnt":{"mni":4}}"#);
    assert_eq!(other.status.number(), 2004);
}

#[test]
fn an_update_without_consent_changes_nothing() {
    for (answer, expected) in [
        (Some(Status::OperationNotAllowed), 4127),
        (Some(Status::BadRequest), 4127),
        (Some(Status::OriginatorHasNoPrivilege), 4127),
        (Some(Status::InternalServerError), 5107),
        (Some(Status::TargetNotReachable), 5107),
        (Some(Status::RequestTimeout), 5107),
        (None, 5107),
    ] {
        let mut bench = kept();
        let request = change(&mut bench, &labelling("x"));
        bench.ask_later(request);
        let calls = bench.calls();
        let answers = match answer {
            Some(status) => bench.reply(&calls[0], status),
            None => bench.away(&calls[0]),
        };
        assert_eq!(answers[0].1.status.number(), expected, "{answer:?}");
        assert_eq!(label(&mut bench), Value::Null);
    }
    // A keeper that has no address cannot be asked.
    let mut bench = kept();
    bench.update("Ca", "cse-in/a", r#"{"m2m:ae":{"poa":null}}"#);
    assert_eq!(bench.update("CAdmin", "cse-in/a/c", &labelling("x")).status.number(), 5107);
}

#[test]
fn a_keeper_that_says_nothing_is_not_waited_for() {
    let mut bench = kept();
    let mut patient = change(&mut bench, &labelling("x"));
    patient.request_expires = Some(Deadline::After(Duration::from_hours(1)));
    let first = bench.ask_later(patient);
    let mut hasty = change(&mut bench, &labelling("y"));
    hasty.id = "hasty".to_owned();
    hasty.request_expires = Some(Deadline::After(Duration::from_secs(12)));
    let second = bench.ask_later(hasty);
    let mut late = change(&mut bench, &labelling("z"));
    late.id = "late".to_owned();
    late.request_expires = Some(Deadline::After(Duration::from_secs(5)));
    let third = bench.ask_later(late);
    // Whatever the originator would, ten seconds are as long as a keeper has.
    bench.now += Duration::from_secs(10);
    bench.cse.handle(bench.now, Input::Tick);
    let answers = bench.run();
    assert_eq!((answers[0].0, answers[0].1.status.number()), (first, 5107));
    assert_eq!(answers.len(), 1, "the next one is asked for now");
    // Its own two seconds are left.
    bench.now += Duration::from_secs(2);
    bench.cse.handle(bench.now, Input::Tick);
    let answers = bench.run();
    let statuses: Vec<_> = answers.iter().map(|(to, it)| (*to, it.status.number())).collect();
    assert_eq!(statuses, [(second, 5107), (third, 4008)]);
    assert_eq!(label(&mut bench), Value::Null);
}

#[test]
fn what_is_refused_anyway_asks_nobody() {
    let mut bench = kept();
    let request = bench
        .request(Operation::Update, "Cstranger", "cse-in/a/c")
        .with_content(labelling("x").as_str());
    assert_eq!(bench.ask(request).status.number(), 4103);
    let wrong = bench.update("CAdmin", "cse-in/a/c", r#"{"m2m:cnt":{"lbl":["x"],"cni":3}}"#);
    assert_eq!(wrong.status.number(), 4000);
    assert!(bench.calls().is_empty());
}

#[test]
fn an_answer_that_is_wanted_later_waits_too() {
    let mut bench = kept();
    let mut request = change(&mut bench, &labelling("x"));
    request.response_type = ResponseType::NonBlockingSynchronous;
    let accepted = bench.ask(request);
    assert_eq!(accepted.status.number(), 1001);
    let at = json(&accepted)["m2m:uri"].as_str().unwrap().to_owned();
    assert_eq!(json(&bench.get("CAdmin", &at))["m2m:req"]["rs"], 3, "pending");
    let calls = bench.calls();
    bench.reply(&calls[0], Status::Ok);
    assert_eq!(json(&bench.get("CAdmin", &at))["m2m:req"]["ors"]["rsc"], 2004);
}

#[test]
fn subscriptions_that_block_say_little() {
    let mut bench = kept();
    let mut make = |content: &str| {
        let content = format!(r#"{{"m2m:sub":{content}}}"#);
        bench.create("Ca", "cse-in/a", ResourceType::Subscription, &content).status.number()
    };
    assert_eq!(make(r#"{"nu":["Ca"],"enc":{"net":[7,1]}}"#), 4000);
    assert_eq!(make(r#"{"nu":["Ca"],"enc":{"net":[7,7]}}"#), 4000);
    assert_eq!(make(r#"{"nu":["Ca","CAdmin"],"enc":{"net":[7]}}"#), 4000);
    assert_eq!(make(r#"{"nu":["http://a:1"],"enc":{"net":[7]}}"#), 4000);
    for policy in [r#""exc":3"#, r#""bn":{"num":2}"#, r#""ln":true"#, r#""pn":1"#, r#""nec":2"#] {
        assert_eq!(make(&format!(r#"{{"nu":["Ca"],"enc":{{"net":[7]}},{policy}}}"#)), 4000);
    }
    assert_eq!(make(r#"{"nu":["Ca"],"enc":{"net":[7],"crb":"20300101T000000"}}"#), 4000);
    assert_eq!(make(r#"{"nu":["Ca"],"enc":{"net":[7]},"nct":1}"#), 4000);
    assert_eq!(make(r#"{"nu":["Ca"],"enc":{"net":[7]},"nct":2}"#), 2001);
    assert_eq!(make(r#"{"nu":["Ca"],"enc":{"net":[7]}}"#), 4124, "there is one");
    assert_eq!(make(r#"{"rn":"u","nu":["Ca"],"enc":{"net":[1]}}"#), 2001);
    let mut update = |to: &str, content: &str| {
        let content = format!(r#"{{"m2m:sub":{content}}}"#);
        bench.update("Ca", to, &content).status.number()
    };
    assert_eq!(update("cse-in/a/u", r#"{"enc":{"net":[7]}}"#), 4000, "none becomes one");
    assert_eq!(update("cse-in/a/c/s", r#"{"exc":2}"#), 4000);
    assert_eq!(update("cse-in/a/c/s", r#"{"nu":["http://a:1"]}"#), 4000);
    assert_eq!(update("cse-in/a/c/s", r#"{"lbl":["kept"]}"#), 2004);
    assert_eq!(update("cse-in/a/c/s", r#"{"enc":null,"nct":1}"#), 2004, "it does not any more");
    let made = bench.create(
        "Ca",
        "cse-in/a/c",
        ResourceType::Subscription,
        &SUBSCRIPTION.replace("\"s\"", "\"t\""),
    );
    assert_eq!(made.status.number(), 2001);
}

/// A keeper whose right to the resource was taken back sees less of it, or keeps it no more.
#[test]
fn a_keeper_sees_what_it_may() {
    for (rights, told) in [(2, true), (32, true), (8, false)] {
        let mut bench = kept();
        let policy = format!(
            r#"{{"m2m:acp":{{"rn":"p","pv":{{"acr":[{{"acor":["Ca"],"acop":{rights}}}]}},
                "pvs":{{"acr":[{{"acor":["CAdmin"],"acop":63}}]}}}}}}"#
        );
        bench.create("CAdmin", "cse-in", ResourceType::AccessControlPolicy, &policy);
        bench.update("CAdmin", "cse-in/a/c", r#"{"m2m:cnt":{"acpi":["cse-in/p"]}}"#);
        let request = change(&mut bench, &labelling("x"));
        let (_, answers) = ask(&mut bench, request);
        let calls = bench.calls();
        assert_eq!((calls.len(), answers.len()), (usize::from(told), usize::from(!told)));
        let Some(call) = calls.first() else {
            assert_eq!(answers[0].1.status.number(), 2004);
            continue;
        };
        let told: Value = serde_json::from_str(call.request.content.as_deref().unwrap()).unwrap();
        let expected = match rights {
            2 => json!({"m2m:cnt": {"lbl": ["x"]}}),
            _ => json!({"m2m:uri": "/id-in/cse-in/a/c"}),
        };
        assert_eq!(told["m2m:sgn"]["nev"]["rep"], expected);
    }
}

/// Two that are asked for at once cannot both begin to block.
#[test]
fn of_two_that_are_agreed_to_one_is_made() {
    let mut bench = Bench::with_container();
    bench.register("Ck", "k");
    bench.update("Ck", "cse-in/k", r#"{"m2m:ae":{"poa":["http://k:1"],"rr":true}}"#);
    for name in ["s", "t"] {
        let sub = format!(r#"{{"m2m:sub":{{"rn":"{name}","nu":["Ck"],"enc":{{"net":[7]}}}}}}"#);
        let request = bench
            .request(Operation::Create, "Ca", "cse-in/a/c")
            .creating(ResourceType::Subscription, sub);
        bench.ask_later(request);
    }
    let calls = bench.calls();
    let statuses: Vec<u16> =
        calls.iter().map(|call| bench.reply(call, Status::Ok)[0].1.status.number()).collect();
    assert_eq!(statuses, [2001, 4124]);
}

#[test]
fn what_waits_is_bounded() {
    let mut config = crate::bench::config();
    config.limits.blocked = 3;
    config.limits.deferred = 40;
    config.limits.deferred_octets = 8_000;
    let mut bench = kept_with(config);
    for number in 0..4 {
        let request = change(&mut bench, &labelling(&number.to_string()));
        bench.ask_later(request);
    }
    assert_eq!(bench.update("CAdmin", "cse-in/a/c", &labelling("x")).status.number(), 5000);
    assert_eq!(bench.cse.counters().deferred_full, 1);
    // The keeper agrees to all of them, and there is room again.
    for _ in 0..4 {
        let calls = bench.calls();
        assert_eq!(bench.reply(&calls[0], Status::Ok)[0].1.status.number(), 2004);
    }
    assert_eq!(label(&mut bench), json!(["3"]));
    let large = change(&mut bench, &labelling(&"x".repeat(3_000)));
    assert_eq!(bench.ask(large).status.number(), 5000, "too large to wait");
    let request = change(&mut bench, &labelling("y"));
    bench.ask_later(request);
    assert_eq!(bench.calls().len(), 1);
}

/// The resource may go with its parent while an update of it waits.
#[test]
fn what_is_gone_is_not_updated() {
    let mut bench = kept();
    let request = change(&mut bench, &labelling("x"));
    bench.ask_later(request);
    let request = change(&mut bench, &labelling("y"));
    bench.ask_later(request);
    let calls = bench.calls();
    assert_eq!(bench.delete("CAdmin", "cse-in/a").status.number(), 2002);
    let answers = bench.reply(&calls[0], Status::Ok);
    let statuses: Vec<u16> = answers.iter().map(|(_, it)| it.status.number()).collect();
    assert_eq!(statuses, [4004, 4004]);
}

#[derive(Clone, Debug)]
enum Step {
    Label(u8),
    Bound(u8),
    Delete,
    Reply(Option<Status>),
    Silence,
}

/// What should become of a resource whose labels are kept: said once more, in a simpler way.
#[derive(Debug, Default)]
struct Model {
    label: Option<u8>,
    bound: Option<u8>,
    gone: bool,
    /// Who waits for the keeper, first, and those behind.
    line: VecDeque<(u64, Step)>,
    asked: bool,
}

impl Model {
    /// A new request; the answers in order.
    fn arrive(&mut self, token: u64, step: Step) -> Vec<(u64, u16)> {
        self.line.push_back((token, step));
        self.advance()
    }

    fn advance(&mut self) -> Vec<(u64, u16)> {
        let mut answers = Vec::new();
        while !self.asked
            && let Some((token, step)) = self.line.front().cloned()
        {
            if matches!(step, Step::Label(_)) && !self.gone {
                self.asked = true;
                break;
            }
            self.line.pop_front();
            answers.push((token, self.perform(&step)));
        }
        answers
    }

    fn perform(&mut self, step: &Step) -> u16 {
        match step {
            _ if self.gone => 4004,
            Step::Label(label) => {
                self.label = Some(*label);
                2004
            }
            Step::Bound(bound) => {
                self.bound = Some(*bound);
                2004
            }
            _ => {
                self.gone = true;
                2002
            }
        }
    }

    /// The keeper says this, or nothing.
    fn hear(&mut self, answer: Option<Status>) -> Vec<(u64, u16)> {
        if !self.asked {
            return Vec::new();
        }
        self.asked = false;
        let (token, step) = self.line.pop_front().unwrap();
        let status = match answer {
            Some(Status::Ok) => self.perform(&step),
            Some(Status::TargetNotReachable) | None => 5107,
            Some(_) => 4127,
        };
        let mut answers = vec![(token, status)];
        answers.extend(self.advance());
        answers
    }
}

fn step() -> impl Strategy<Value = Step> {
    let answer = prop::sample::select(vec![
        Some(Status::Ok),
        Some(Status::Ok),
        Some(Status::OperationNotAllowed),
        Some(Status::TargetNotReachable),
        None,
    ]);
    prop_oneof![
        5 => (0_u8..9).prop_map(Step::Label),
        3 => (1_u8..9).prop_map(Step::Bound),
        1 => Just(Step::Delete),
        6 => answer.prop_map(Step::Reply),
        1 => Just(Step::Silence),
    ]
}

fn numbered(answers: Vec<(Token, Response)>) -> Vec<(u64, u16)> {
    answers.into_iter().map(|(token, it)| (token.0, it.status.number())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever is asked and whatever the keeper says: each is answered once, in the order of the
    /// line, and the resource is what those make of it that were agreed to.
    #[test]
    fn changes_wait_in_line(steps in prop::collection::vec(step(), 1..40)) {
        let (mut bench, mut model) = (kept(), Model::default());
        let mut open: Option<Call> = None;
        for step in steps {
            let (got, expected) = match step.clone() {
                Step::Reply(answer) => {
                    let Some(call) = open.take() else { continue };
                    let got = match answer {
                        Some(status) => bench.reply(&call, status),
                        None => bench.away(&call),
                    };
                    (got, model.hear(answer))
                }
                Step::Silence => {
                    bench.now += Duration::from_secs(10);
                    bench.cse.handle(bench.now, Input::Tick);
                    open = None;
                    (bench.run(), model.hear(None))
                }
                change_wanted => {
                    let request = match &change_wanted {
                        Step::Label(label) => change(&mut bench, &labelling(&label.to_string())),
                        Step::Bound(bound) => {
                            change(&mut bench, &format!(r#"{{"m2m:cnt":{{"mni":{bound}}}}}"#))
                        }
                        _ => bench.request(Operation::Delete, "CAdmin", "cse-in/a/c"),
                    };
                    let (token, got) = ask(&mut bench, request);
                    (got, model.arrive(token.0, change_wanted))
                }
            };
            prop_assert_eq!(numbered(got), expected, "{:?}", step);
            let mut calls = bench.calls();
            prop_assert!(calls.len() <= 1);
            if let Some(call) = calls.pop() {
                prop_assert!(open.is_none(), "one question at a time");
                open = Some(call);
            }
            prop_assert_eq!(open.is_some(), model.asked);
        }
        let there = bench.get("CAdmin", "cse-in/a/c");
        prop_assert_eq!(there.status.number(), if model.gone { 4004 } else { 2000 });
        if !model.gone {
            let there = json(&there);
            let label = model.label.map_or(Value::Null, |label| json!([label.to_string()]));
            prop_assert_eq!(&there["m2m:cnt"]["lbl"], &label);
            prop_assert_eq!(&there["m2m:cnt"]["mni"], &json!(model.bound));
        }
        let rows: Vec<_> = bench.cse.rows().collect();
        prop_assert_eq!(bench.reopened().rows().collect::<Vec<_>>(), rows);
    }
}
