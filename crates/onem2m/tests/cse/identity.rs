//! As whom nothing comes from outside: as the CSE itself.

use crate::bench::Bench;
use gatewright_onem2m::{CseConfig, CseType, Input, Operation, Request, ResourceType, Token};

/// The CSE-ID, as anybody may read it and as it may be written (TS-0001 §7.2).
const FORMS: [&str; 5] =
    ["/id-in", "/id-in/", "//sp.example/id-in", "//sp.example/id-in/", "/id-in//id-in"];

/// A CSE without an administrator, and an AE whose container is its own.
fn bench() -> Bench {
    let mut config = CseConfig::new(CseType::Infrastructure, "/id-in", "cse-in");
    "//sp.example".clone_into(&mut config.provider);
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    let made = bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    assert_eq!(made.status.number(), 2001);
    bench.reading("one", "96.5");
    bench
}

#[test]
fn nobody_outside_asks_as_the_cse_itself() {
    let mut bench = bench();
    for from in FORMS {
        for operation in [Operation::Retrieve, Operation::Update, Operation::Delete] {
            for to in ["cse-in", "cse-in/a", "cse-in/a/c", "cse-in/a/c/la"] {
                let request = bench.request(operation, from, to);
                let request = match operation {
                    Operation::Update => request.with_content(r#"{"m2m:cnt":{"lbl":["x"]}}"#),
                    _ => request,
                };
                let answer = bench.ask(request);
                assert_eq!(
                    answer.status.number(),
                    4103,
                    "{operation:?} {to} as {from}: {answer:?}"
                );
            }
        }
        let found = bench.get(from, "cse-in?fu=1");
        assert_eq!(found.status.number(), 4103, "{from} discovers");
        let entity = r#"{"m2m:ae":{"api":"Nx","rr":false,"srv":["4"]}}"#;
        let made = bench.create(from, "cse-in", ResourceType::ApplicationEntity, entity);
        assert_eq!(made.status.number(), 4103, "{from} registers");
    }
    let counted = u64::try_from(14 * FORMS.len()).unwrap();
    assert_eq!(bench.cse.counters().posed_as_us, counted);
    assert_eq!(bench.get("Ca", "cse-in/a/c/la").status.number(), 2000, "the neighbour works on");
}

#[test]
fn nobody_outside_observes_as_the_cse_itself() {
    let mut bench = bench();
    for from in FORMS {
        bench.asked += 1;
        let token = Token(bench.asked);
        let request = Request::new(Operation::Retrieve, "cse-in/a/c/la", from, "o");
        bench.cse.handle(bench.now, Input::Observe { token, request });
        let answers = bench.run();
        assert_eq!(answers[0].1.status.number(), 4103, "{from}");
        assert!(!bench.cse.is_observed(token), "{from}");
    }
    bench.reading("two", "97");
    assert_eq!(bench.cse.counters().observed, 0);
}

/// Accepted first and done later, it would be done all the same.
#[test]
fn nor_without_waiting_for_the_answer() {
    let mut bench = bench();
    for response_type in ["1", "2", "5"] {
        let mut request = bench.request(Operation::Delete, "/id-in", "cse-in/a");
        request.set("rt", response_type).unwrap();
        assert_eq!(bench.ask(request).status.number(), 4103, "{response_type}");
    }
    assert_eq!(bench.get("Ca", "cse-in/a/c/la").status.number(), 2000);
}

/// The process around the machine may.
#[test]
fn the_process_itself_asks_as_the_cse() {
    let mut bench = bench();
    let request = Request::new(Operation::Retrieve, "cse-in/a/c/la", "/id-in", "own");
    bench.cse.handle(bench.now, Input::Own { token: Token(900), request: request.into() });
    let answers = bench.run();
    assert_eq!(answers[0].1.status.number(), 2000);
    assert_eq!(bench.cse.counters().posed_as_us, 0);
}
