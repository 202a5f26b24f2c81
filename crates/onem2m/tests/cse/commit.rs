//! Nothing is said before it is stored; what could not be stored did not happen; what was stored
//! comes back.

use crate::bench::{Bench, json};
use gatewright_onem2m::{
    Batch, Cse, Input, Operation, Output, Request, ResourceType, Response, Status, Token,
};

/// Everything the machine wants done, without doing it.
fn drain(cse: &mut Cse) -> (Vec<Batch>, Vec<(Token, Response)>) {
    let (batches, answers, others) = sort(cse);
    assert!(others.is_empty(), "{others:?}");
    (batches, answers)
}

/// The same, but that rows are read.
fn drain_and_read(bench: &mut Bench) -> (Vec<Batch>, Vec<(Token, Response)>) {
    let (mut batches, mut answers, mut others) = sort(&mut bench.cse);
    while let Some(Output::Read { read, rows }) = others.pop() {
        let rows = Ok(bench.read(&rows));
        bench.cse.handle(bench.now, Input::Rows { read, rows });
        let more = sort(&mut bench.cse);
        batches.extend(more.0);
        answers.extend(more.1);
        others.extend(more.2);
    }
    (batches, answers)
}

/// Batches, answers and all other outputs.
fn sort(cse: &mut Cse) -> (Vec<Batch>, Vec<(Token, Response)>, Vec<Output>) {
    let (mut batches, mut answers, mut others) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(output) = cse.poll_output() {
        match output {
            Output::Store(batch) => batches.push(batch),
            Output::Respond { token, response } => answers.push((token, response)),
            other => others.push(other),
        }
    }
    (batches, answers, others)
}

fn reading(name: &str) -> Request {
    Request::new(Operation::Create, "cse-in/a/c", "Ca", name).creating(
        ResourceType::ContentInstance,
        format!(r#"{{"m2m:cin":{{"rn":"{name}","con":"1"}}}}"#),
    )
}

fn send(bench: &mut Bench, token: u64, request: Request) {
    bench.cse.handle(bench.now, Input::Request { token: Token(token), request });
}

#[test]
fn an_answer_waits_for_its_commit_and_so_does_who_saw_the_effect() {
    let mut bench = Bench::with_container();
    send(&mut bench, 1, reading("one"));
    send(&mut bench, 2, Request::new(Operation::Retrieve, "cse-in/a/c/one", "Ca", "x"));
    // The name is taken by what is not stored yet: the outbox counts a conflict as stored.
    send(&mut bench, 3, reading("one"));
    send(&mut bench, 4, Request { id: "other".into(), ..reading("one") });
    send(&mut bench, 5, Request::new(Operation::Retrieve, "cse-in/a", "Ca", "y"));
    let (batches, answers) = drain(&mut bench.cse);
    assert_eq!(batches.len(), 1);
    assert_eq!(answers.len(), 1, "only what has nothing to do with it");
    assert_eq!(answers[0].0, Token(5));
    bench.cse.handle(bench.now, Input::Committed(batches[0].number));
    let (none, answers) = drain(&mut bench.cse);
    assert!(none.is_empty());
    let statuses: Vec<(u64, u16)> =
        answers.iter().map(|(token, response)| (token.0, response.status.number())).collect();
    assert_eq!(statuses, [(1, 2001), (2, 2000), (3, 2001), (4, 4105)]);
    assert_eq!(answers[0].1.content, answers[2].1.content, "a repetition gets the same answer");
    assert_eq!(bench.cse.counters().repeated, 1);
}

/// What is gone is gone for who reads what is left, and who may read it now may, when it is stored.
#[test]
fn who_sees_that_something_is_gone_or_allowed_waits_for_its_commit() {
    let retrieve = |from: &str, to: &str| Request::new(Operation::Retrieve, to, from, to);
    let grant = |bits: u64| {
        format!(r#"{{"m2m:acp":{{"pv":{{"acr":[{{"acor":["Cb"],"acop":{bits}}}]}}}}}}"#)
    };
    let begin = || {
        let mut bench = Bench::with_container();
        for name in ["one", "two"] {
            assert_eq!(bench.ask(reading(name)).status, Status::Created);
        }
        let policy = r#"{"m2m:acp":{"rn":"p","pv":{"acr":[]},
            "pvs":{"acr":[{"acor":["Ca"],"acop":63}]}}}"#;
        let made = bench.create("Ca", "cse-in/a", ResourceType::AccessControlPolicy, policy);
        assert_eq!(made.status, Status::Created);
        let guarded = r#"{"m2m:cnt":{"rn":"d","acpi":["cse-in/a/p"]}}"#;
        let made = bench.create("Ca", "cse-in/a", ResourceType::Container, guarded);
        assert_eq!(made.status, Status::Created);
        bench
    };
    let delete = |to: &str| Request::new(Operation::Delete, to, "Ca", "change");
    let update = |to: &str, content: String| {
        Request::new(Operation::Update, to, "Ca", "change").with_content(content)
    };
    for (change, read) in [
        (delete("cse-in/a/c/ol"), retrieve("Ca", "cse-in/a/c")),
        (delete("cse-in/a/c/ol"), retrieve("Ca", "cse-in/a/c/ol")),
        (delete("cse-in/a/c/la"), retrieve("Ca", "cse-in/a/c/la")),
        (delete("cse-in/a/c"), retrieve("Ca", "cse-in/a/c")),
        (update("cse-in/a/p", grant(2)), retrieve("Cb", "cse-in/a/d")),
    ] {
        let mut bench = begin();
        send(&mut bench, 900, change);
        let (batches, early) = drain_and_read(&mut bench);
        let context = format!("{read:?}");
        send(&mut bench, 901, read);
        let (more, answers) = drain_and_read(&mut bench);
        let early = early.len() + answers.len();
        assert_eq!((batches.len(), more.len(), early), (1, 0, 0), "{context}");
        bench.cse.handle(bench.now, Input::Committed(batches[0].number));
        assert_eq!(drain_and_read(&mut bench).1.len(), 2, "{context}");
    }
}

#[test]
fn a_request_is_the_same_only_if_all_of_it_is() {
    let mut bench = Bench::with_container();
    let same = |name: &str| Request { id: "same".into(), ..reading(name) };
    for (name, status) in [("one", 2001), ("one", 2001), ("two", 2001)] {
        assert_eq!(bench.ask(same(name)).status.number(), status);
    }
    assert_eq!(bench.cse.counters().repeated, 1);
    assert_eq!(json(&bench.get("Ca", "cse-in/a/c"))["m2m:cnt"]["cni"], 2);
    // Long after, the name still protects.
    bench.now += core::time::Duration::from_secs(301);
    assert_eq!(bench.ask(same("one")).status.number(), 4105);
}

/// Who asks the same again while it waits for somebody else is answered with the first, or at once.
#[test]
fn everybody_who_asks_again_is_answered() {
    let mut bench = Bench::with_container();
    let poa = r#"{"m2m:ae":{"poa":["http://a:1/in"],"rr":true}}"#;
    assert_eq!(bench.update("Ca", "cse-in/a", poa).status.number(), 2004);
    for token in 100..112 {
        let notify = Request::new(Operation::Notify, "cse-in/a", "CAdmin", "same");
        send(&mut bench, token, notify.with_content(r#"{"m2m:sgn":{}}"#));
    }
    let refused = bench.run();
    let refused: Vec<_> = refused.iter().map(|(token, it)| (token.0, it.status.number())).collect();
    assert_eq!(refused, [(109, 5000), (110, 5000), (111, 5000)]);
    let calls = bench.calls();
    assert_eq!(calls.len(), 1, "it is asked once");
    let answers = bench.reply(&calls[0], Status::Ok);
    let mut tokens: Vec<u64> = answers.iter().map(|(token, _)| token.0).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (100..109).collect::<Vec<_>>());
    let counters = bench.cse.counters();
    assert_eq!((counters.repeated, counters.repeated_too_often), (8, 3));
}

/// A refusal that changed nothing is not remembered: an outbox asks again with the same identifier,
/// and what was missing may be there by then.
#[test]
fn a_refusal_is_no_answer_for_ever() {
    let mut bench = Bench::with_container();
    let elsewhere = || Request { to: "cse-in/a/later".into(), ..reading("one") };
    assert_eq!(bench.ask(elsewhere()).status.number(), 4004);
    let later = Request::new(Operation::Create, "cse-in/a", "Ca", "later")
        .creating(ResourceType::Container, r#"{"m2m:cnt":{"rn":"later"}}"#);
    assert_eq!(bench.ask(later).status.number(), 2001);
    assert_eq!(bench.ask(elsewhere()).status.number(), 2001);
    assert_eq!(bench.cse.counters().repeated, 0);
    assert_eq!(bench.ask(elsewhere()).status.number(), 2001, "this is the repetition");
    assert_eq!(bench.cse.counters().repeated, 1);
}

#[test]
fn what_could_not_be_stored_did_not_happen() {
    let mut bench = Bench::with_container();
    bench.update("Ca", "cse-in/a/c", r#"{"m2m:cnt":{"mni":2}}"#);
    bench.reading("one", "1");
    bench.reading("two", "2");
    let before: Vec<_> = bench.cse.rows().collect();
    let latest = bench.get("Ca", "cse-in/a/c/la").content;
    send(&mut bench, 1, reading("three"));
    send(
        &mut bench,
        2,
        Request::new(Operation::Update, "cse-in/a/c", "Ca", "u")
            .with_content(r#"{"m2m:cnt":{"lbl":["x"]}}"#),
    );
    send(&mut bench, 3, Request::new(Operation::Delete, "cse-in/a", "Ca", "d"));
    let (batches, answers) = drain(&mut bench.cse);
    assert_eq!((batches.len(), answers.len()), (3, 0));
    bench.cse.handle(bench.now, Input::Failed(batches[0].number));
    let (none, answers) = drain(&mut bench.cse);
    assert!(none.is_empty());
    let statuses: Vec<u16> = answers.iter().map(|(_, response)| response.status.number()).collect();
    assert_eq!(statuses, [5000, 5000, 5000]);
    assert_eq!(bench.get("Ca", "cse-in/a/c/la").content, latest);
    let after: Vec<_> = bench.cse.rows().collect();
    assert_eq!(after.len(), before.len());
    assert_eq!(json(&bench.get("Ca", "cse-in/a/c"))["m2m:cnt"]["cni"], 2);
    // Repeated now, it is done: the refusal was not remembered.
    let again = bench.ask(reading("three"));
    assert_eq!(again.status.number(), 2001);
    assert_eq!(bench.cse.counters().rolled_back, 3);
}

#[test]
fn what_came_before_the_failure_stands() {
    let mut bench = Bench::with_container();
    send(&mut bench, 1, reading("one"));
    send(&mut bench, 2, reading("two"));
    let (batches, _) = drain(&mut bench.cse);
    bench.cse.handle(bench.now, Input::Failed(batches[1].number));
    let (_, answers) = drain(&mut bench.cse);
    let statuses: Vec<u16> = answers.iter().map(|(_, response)| response.status.number()).collect();
    assert_eq!(statuses, [2001, 5000]);
    send(&mut bench, 3, reading("three"));
    let (later, _) = drain(&mut bench.cse);
    assert!(later[0].epoch > batches[1].epoch, "a batch of before the failure can be told");
}

#[test]
fn the_stored_rows_make_the_same_tree() {
    let mut bench = Bench::with_container();
    bench.update("Ca", "cse-in/a/c", r#"{"m2m:cnt":{"mni":3}}"#);
    for number in 0..5 {
        bench.reading(&format!("r{number}"), "x");
    }
    bench.delete("Ca", "cse-in/a/c/ol");
    let reopened = bench.reopened();
    let rows: Vec<_> = reopened.rows().collect();
    let expected: Vec<_> = bench.cse.rows().collect();
    assert_eq!(rows, expected);
    let before = bench.get("Ca", "cse-in?rcn=4").content;
    bench.cse = reopened;
    assert_eq!(bench.get("Ca", "cse-in?rcn=4").content, before);
    assert_eq!(bench.reading("new", "1").status.number(), 2001);
    let ids: std::collections::HashSet<_> = bench.rows.values().map(ToString::to_string).collect();
    assert_eq!(ids.len(), bench.rows.len());
}
