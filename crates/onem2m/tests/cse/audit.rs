//! The audit log: an entry is stored with what it tells of, and an answer waits for its entry.

use crate::bench::{Bench, config};
use gatewright_onem2m::audit::Audit;
use gatewright_onem2m::{
    Batch, Cse, Input, Operation, Output, Request, ResourceType, Response, Status, Token,
};
use serde_json::{Value, json};

fn bench(audit: Audit) -> Bench {
    let mut config = config();
    config.audit = audit;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    let made = bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    assert_eq!(made.status, Status::Created);
    bench.entries.clear();
    bench
}

fn drain(cse: &mut Cse) -> (Vec<Batch>, Vec<(u64, u16)>) {
    let (mut batches, mut answers) = (Vec::new(), Vec::new());
    while let Some(output) = cse.poll_output() {
        match output {
            Output::Store(batch) => batches.push(batch),
            Output::Respond { token, response } => {
                answers.push((token.0, response.status.number()));
            }
            other => panic!("{other:?}"),
        }
    }
    (batches, answers)
}

fn texts(batch: &Batch) -> Vec<Value> {
    batch.entries.iter().map(|entry| serde_json::from_str(&entry.to_text()).unwrap()).collect()
}

fn send(bench: &mut Bench, token: u64, request: Request) {
    bench.cse.handle(bench.now, Input::Request { token: Token(token), request });
}

fn reading(name: &str) -> Request {
    Request::new(Operation::Create, "cse-in/a/c", "Ca", name).creating(
        ResourceType::ContentInstance,
        format!(r#"{{"m2m:cin":{{"rn":"{name}","con":"1"}}}}"#),
    )
}

fn retrieval(to: &str) -> Request {
    Request::new(Operation::Retrieve, to, "Ca", "r")
}

fn created(name: &str) -> Value {
    let made = format!("cse-in/a/c/{name}");
    json!({ "op": "Create", "to": "cse-in/a/c", "fr": "Ca", "end": 2001, "made": made })
}

fn ended(op: &str, to: &str, end: u16) -> Value {
    json!({ "op": op, "to": to, "fr": "Ca", "end": end })
}

#[test]
fn an_entry_is_in_the_batch_it_tells_of() {
    let mut bench = bench(Audit::Strict);
    send(&mut bench, 1, reading("one"));
    let (batches, answers) = drain(&mut bench.cse);
    assert!(answers.is_empty(), "{answers:?}");
    let [batch] = batches.as_slice() else { panic!("{batches:?}") };
    assert_eq!((batch.records.len(), texts(batch)), (1, vec![created("one")]));
    // A retrieval makes no row, and its answer waits for its entry all the same.
    send(&mut bench, 2, retrieval("cse-in/a"));
    let (batches, answers) = drain(&mut bench.cse);
    assert!(answers.is_empty(), "{answers:?}");
    let [read] = batches.as_slice() else { panic!("{batches:?}") };
    assert_eq!((read.records.len(), texts(read)), (0, vec![ended("Retrieve", "cse-in/a", 2000)]));
    bench.cse.handle(bench.now, Input::Committed(read.number));
    assert_eq!(drain(&mut bench.cse).1, [(1, 2001), (2, 2000)]);
}

#[test]
fn what_could_not_be_stored_is_noted_as_it_was_answered() {
    let mut bench = bench(Audit::Strict);
    send(&mut bench, 1, reading("one"));
    send(&mut bench, 2, retrieval("cse-in/a"));
    let (batches, _) = drain(&mut bench.cse);
    bench.cse.handle(bench.now, Input::Failed(batches[0].number));
    let (batches, answers) = drain(&mut bench.cse);
    assert_eq!(answers, [(1, 5000), (2, 5000)]);
    let [noted] = batches.as_slice() else { panic!("{batches:?}") };
    let told = [ended("Create", "cse-in/a/c", 5000), ended("Retrieve", "cse-in/a", 5000)];
    assert_eq!((noted.records.len(), texts(noted)), (0, told.to_vec()));
    // That there is no room for this either changes nothing, and is the end of it.
    bench.cse.handle(bench.now, Input::Failed(noted.number));
    let (batches, answers) = drain(&mut bench.cse);
    assert!(batches.is_empty() && answers.is_empty(), "{batches:?} {answers:?}");
    // The name is free.
    assert_eq!(bench.ask(reading("one")).status, Status::Created);
}

#[test]
fn a_lenient_log_refuses_only_what_was_not_stored() {
    let mut bench = bench(Audit::Lenient);
    send(&mut bench, 1, retrieval("cse-in/a"));
    send(&mut bench, 2, reading("one"));
    // It has seen what cannot be stored.
    send(&mut bench, 3, retrieval("cse-in/a/c/one"));
    send(&mut bench, 4, retrieval("cse-in/a"));
    let (batches, answers) = drain(&mut bench.cse);
    assert!(answers.is_empty(), "{answers:?}");
    bench.cse.handle(bench.now, Input::Failed(batches[0].number));
    let mut answers = drain(&mut bench.cse).1;
    answers.sort_unstable();
    assert_eq!(answers, [(1, 2000), (2, 5000), (3, 5000), (4, 2000)]);
}

#[test]
fn without_a_log_nothing_waits_and_nothing_is_told() {
    let mut bench = bench(Audit::Off);
    send(&mut bench, 1, retrieval("cse-in/a"));
    assert_eq!(drain(&mut bench.cse), (vec![], vec![(1, 2000)]));
    send(&mut bench, 2, reading("one"));
    assert!(drain(&mut bench.cse).0[0].entries.is_empty());
}

#[test]
fn who_is_sent_on_waits_for_the_entry_too() {
    let mut bench = bench(Audit::Strict);
    let poa = r#"{"m2m:ae":{"poa":["http://u:p@a:1/in"],"rr":true}}"#;
    assert_eq!(bench.update("Ca", "cse-in/a", poa).status.number(), 2004);
    let notify = Request::new(Operation::Notify, "cse-in/a", "CAdmin", "n");
    send(&mut bench, 9, notify.with_content(r#"{"m2m:sgn":{}}"#));
    let Some(Output::Store(batch)) = bench.cse.poll_output() else { panic!("no batch") };
    assert!(bench.cse.poll_output().is_none(), "nothing is sent before it is noted");
    assert_eq!(
        texts(&batch),
        [
            json!({ "op": "Notify", "to": "http://a:1/in", "fr": "CAdmin", "as": "passed on",
                "of": "cse-in/a", "end": "waits" }),
            json!({ "op": "Notify", "to": "cse-in/a", "fr": "CAdmin", "end": "waits" }),
        ]
    );
    bench.cse.handle(bench.now, Input::Committed(batch.number));
    assert!(bench.run().is_empty());
    let call = bench.calls.pop().unwrap();
    let answer = Response::new(Status::Ok, call.request.id.as_str(), call.request.release);
    bench.cse.handle(bench.now, Input::Answer { call: call.id, answer: Ok(answer) });
    bench.entries.clear();
    let answers = bench.run();
    assert_eq!((answers[0].0, answers[0].1.status), (Token(9), Status::Ok));
    let told = json!({ "op": "Notify", "to": "cse-in/a", "fr": "CAdmin", "end": 2000 });
    assert_eq!(bench.told(), [told]);
}

/// If it cannot be noted that it was sent, it is not, and who asked hears of that at once.
#[test]
fn what_is_not_sent_is_answered() {
    let mut bench = bench(Audit::Strict);
    let poa = r#"{"m2m:ae":{"poa":["http://a:1/in"],"rr":true}}"#;
    assert_eq!(bench.update("Ca", "cse-in/a", poa).status.number(), 2004);
    let notify = Request::new(Operation::Notify, "cse-in/a", "CAdmin", "n");
    send(&mut bench, 9, notify.with_content(r#"{"m2m:sgn":{}}"#));
    let (batches, _) = drain(&mut bench.cse);
    bench.cse.handle(bench.now, Input::Failed(batches[0].number));
    let (batches, answers) = drain(&mut bench.cse);
    assert!(answers.is_empty(), "it waits for its entry: {answers:?}");
    bench.cse.handle(bench.now, Input::Committed(batches[0].number));
    assert_eq!(drain(&mut bench.cse).1, [(9, 5103)]);
}

#[test]
fn every_member_of_a_group_is_told() {
    let mut bench = bench(Audit::Strict);
    let content = r#"{"m2m:grp":{"rn":"g","mid":["cse-in/a","cse-in/a/c"],"mnm":2}}"#;
    let made = bench.create("CAdmin", "cse-in", ResourceType::Group, content);
    assert_eq!(made.status, Status::Created);
    bench.entries.clear();
    assert_eq!(bench.get("CAdmin", "cse-in/g/fopt").status, Status::Ok);
    let member = |to: &str| {
        json!({ "op": "Retrieve", "to": to, "fr": "CAdmin", "as": "member",
        "of": "cse-in/g/fopt", "end": 2000 })
    };
    let whole = json!({ "op": "Retrieve", "to": "cse-in/g/fopt", "fr": "CAdmin", "end": 2000 });
    assert_eq!(bench.told(), [member("cse-in/a"), member("cse-in/a/c"), whole]);
}

#[test]
fn later_answers_of_an_observation_are_told() {
    let mut bench = bench(Audit::Strict);
    let request = retrieval("cse-in/a/c");
    bench.cse.handle(bench.now, Input::Observe { token: Token(70), request });
    assert_eq!(bench.run().len(), 1);
    bench.entries.clear();
    assert_eq!(bench.ask_all(reading("one")).len(), 2, "the reading, and the observer");
    let again = json!({ "op": "Retrieve", "to": "cse-in/a/c", "fr": "Ca", "as": "again",
        "end": 2000 });
    assert_eq!(bench.told(), [created("one"), again]);
}

#[test]
fn what_a_subscription_sends_out_is_told_and_how_it_ends() {
    let mut bench = bench(Audit::Strict);
    let content = r#"{"m2m:sub":{"rn":"s","nu":["Ca"],"nct":1,"enc":{"net":[3]}}}"#;
    let poa = r#"{"m2m:ae":{"poa":["http://a:1/in"],"rr":true}}"#;
    assert_eq!(bench.update("Ca", "cse-in/a", poa).status.number(), 2004);
    let made = bench.create("Ca", "cse-in/a/c", ResourceType::Subscription, content);
    assert_eq!(made.status, Status::Created, "{made:?}");
    let text = made.content.as_deref().unwrap_or_default();
    let made: Value = serde_json::from_str(text).unwrap();
    let id = made["m2m:sub"]["ri"].clone();
    bench.entries.clear();
    assert_eq!(bench.ask(reading("one")).status, Status::Created);
    let told = |end: Value| {
        json!({ "op": "Notify", "to": "Ca", "fr": "/id-in",
        "as": "notification", "of": id, "end": end })
    };
    assert_eq!(bench.told(), [told("waits".into()), created("one")]);
    let call = bench.calls.pop().unwrap();
    let answer = Response::new(Status::Ok, call.request.id.as_str(), call.request.release);
    bench.cse.handle(bench.now, Input::Answer { call: call.id, answer: Ok(answer) });
    bench.entries.clear();
    assert!(bench.run().is_empty());
    assert_eq!(bench.told(), [told(2000.into())]);
}

#[test]
fn what_is_answered_later_is_told_with_its_end() {
    use gatewright_onem2m::ResponseType;
    let mut bench = bench(Audit::Strict);
    let mut request = reading("one");
    request.response_type = ResponseType::NonBlockingSynchronous;
    assert_eq!(bench.ask(request).status.number(), 1001);
    let told = bench.told();
    assert_eq!((&told[0]["end"], &told[0]["later"]), (&1001.into(), &Value::Null), "{told:?}");
    let mut later = created("one");
    later["later"] = true.into();
    assert_eq!(told[1..], [later]);
}

/// Refusals of one address are told one by one, then only how many they are; nobody else's are less
/// for that.
#[test]
fn many_refusals_are_counted() {
    let mut bench = bench(Audit::Strict);
    let ask = |bench: &mut Bench, number: usize, from: &str, address: &str| {
        let mut request = Request::new(Operation::Retrieve, "cse-in/a", from, number.to_string());
        request.source = Some(address.parse().unwrap());
        assert!(!bench.ask(request).status.is_success());
    };
    for number in 0..10_000 {
        ask(&mut bench, number, &format!("Cevil{number}"), "192.0.2.1");
    }
    let told = bench.told();
    assert!(told.len() <= 20, "{}", told.len());
    ask(&mut bench, 1, "Cnurse", "192.0.2.2");
    assert_eq!(bench.told().len(), told.len() + 1, "hers is told");
    for _ in 0..50 {
        let refused = Input::Refused { from: "Cx".into(), address: "192.0.2.1".parse().ok() };
        bench.cse.handle(bench.now, refused);
    }
    bench.now += core::time::Duration::from_mins(1);
    assert!(bench.cse.poll_timeout().is_some_and(|due| due <= bench.now));
    bench.cse.handle(bench.now, Input::Tick);
    bench.run();
    let count = 10_050 - told.len();
    let counted = json!({ "op": "Refused", "fr": "192.0.2.1", "count": count });
    assert_eq!(bench.told().last(), Some(&counted));
}

/// However many addresses there are.
#[test]
fn refusals_of_many_are_bounded() {
    let mut bench = bench(Audit::Strict);
    for number in 0..5_000_u32 {
        let mut request = Request::new(Operation::Retrieve, "cse-in/a", "Cevil", "1");
        request.source = Some(core::net::Ipv4Addr::from_bits(number).into());
        bench.ask(request);
    }
    bench.now += core::time::Duration::from_mins(1);
    bench.cse.handle(bench.now, Input::Tick);
    bench.run();
    assert!(bench.told().len() < 150, "{}", bench.told().len());
    let told = bench.told();
    let counts = told.iter().filter_map(|entry| entry["count"].as_u64());
    let one_by_one = told.iter().filter(|entry| entry["op"] == "Retrieve").count();
    assert_eq!(counts.sum::<u64>(), 5_000 - u64::try_from(one_by_one).unwrap());
}
