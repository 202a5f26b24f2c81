//! Reads that are slow, fail, or find a damaged row; and what changes while rows are read.

use crate::bench::{Bench, config, found, json};
use core::time::Duration;
use gatewright_onem2m::{
    Damage, Input, Operation, OutboxMessage, Output, ReadError, ReadId, Request, ResourceType,
    Response, Status, Token, Unreadable,
};
use proptest::prelude::*;

/// A bench with instances `n0`, `n1` … of `cse-in/a/c`, of which all but the last are paged out.
fn paged(count: usize) -> Bench {
    let mut bench = Bench::with_container();
    for at in 0..count {
        assert_eq!(bench.reading(&format!("n{at}"), "1").status.number(), 2001);
    }
    assert_eq!(bench.cse.instances_paged_out(), count - 1);
    bench
}

/// Asks without reading rows for it.
fn ask(bench: &mut Bench, token: u64, request: Request) -> Vec<Output> {
    bench.cse.handle(bench.now, Input::Request { token: Token(token), request });
    outputs(bench)
}

/// What comes out beside requests to be sent, batches being stored.
fn outputs(bench: &mut Bench) -> Vec<Output> {
    let mut outputs = Vec::new();
    while let Some(output) = bench.cse.poll_output() {
        match output {
            Output::Store(batch) => {
                bench.store(&batch.records);
                bench.cse.handle(bench.now, Input::Committed(batch.number));
            }
            Output::Call(call) => bench.calls.push(*call),
            other => outputs.push(other),
        }
    }
    outputs
}

fn get(bench: &mut Bench, to: &str) -> Request {
    bench.asked += 1;
    bench.request(Operation::Retrieve, "Ca", to)
}

fn read_of(outputs: &[Output]) -> Option<(ReadId, Vec<u64>)> {
    outputs.iter().find_map(|output| match output {
        Output::Read { read, rows } => Some((*read, rows.clone())),
        _ => None,
    })
}

fn answers(outputs: &[Output]) -> Vec<(u64, &Response)> {
    let mut answers = Vec::new();
    for output in outputs {
        if let Output::Respond { token, response } = output {
            answers.push((token.0, response));
        }
    }
    answers
}

#[test]
fn a_request_waits_for_its_row_and_others_do_not() {
    let mut bench = paged(4);
    let request = get(&mut bench, "cse-in/a/c/n0");
    let waiting = ask(&mut bench, 900, request);
    assert!(answers(&waiting).is_empty());
    let (first, rows) = read_of(&waiting).expect("a read");
    assert_eq!(rows.len(), 1);
    let request = get(&mut bench, "cse-in/a/c/la");
    let others = ask(&mut bench, 901, request);
    assert_eq!(answers(&others)[0].0, 901, "what is resident is answered");
    // Two more wait for the next read, together.
    for (token, name) in [(902, "n1"), (903, "n2")] {
        let request = get(&mut bench, &format!("cse-in/a/c/{name}"));
        let waiting = ask(&mut bench, token, request);
        assert!(waiting.is_empty(), "one read at a time: {waiting:?}");
    }
    let rows = Ok(bench.read(&rows));
    bench.cse.handle(bench.now, Input::Rows { read: first, rows });
    let next = outputs(&mut bench);
    assert_eq!(json(answers(&next)[0].1)["m2m:cin"]["rn"], "n0");
    let (second, rows) = read_of(&next).expect("the next read");
    assert_eq!(rows.len(), 2);
    // One that comes twice, or late, changes nothing.
    bench.cse.handle(bench.now, Input::Rows { read: first, rows: Ok(Vec::new()) });
    assert!(outputs(&mut bench).is_empty());
    let rows = Ok(bench.read(&rows));
    bench.cse.handle(bench.now, Input::Rows { read: second, rows });
    let last = outputs(&mut bench);
    assert_eq!(answers(&last).iter().map(|(token, _)| *token).collect::<Vec<_>>(), [902, 903]);
}

/// The latest of a container is not looked at again and again for whether it may leave memory: it
/// leaves when another follows, whether it was created or read back meanwhile.
#[test]
fn the_latest_leaves_memory_when_another_follows() {
    let mut bench = paged(2);
    assert_eq!(bench.delete("Ca", "cse-in/a/c/n1").status.number(), 2002);
    assert_eq!(bench.cse.instances_paged_out(), 1, "the one that was left before");
    assert_eq!(json(&bench.get("Ca", "cse-in/a/c/la"))["m2m:cin"]["rn"], "n0");
    assert_eq!(bench.cse.instances_paged_out(), 0);
    for _ in 0..3 {
        bench.pass(Duration::from_secs(1));
    }
    assert_eq!(bench.cse.instances_paged_out(), 0, "it is the latest");
    assert_eq!(bench.reading("n2", "1").status.number(), 2001);
    assert_eq!(bench.cse.instances_paged_out(), 1);
    assert_eq!(bench.reading("n3", "1").status.number(), 2001);
    assert_eq!(bench.cse.instances_paged_out(), 2);
    assert_eq!(json(&bench.get("Ca", "cse-in/a/c"))["m2m:cnt"]["cni"], 3);
}

/// A row of each kind of request that is damaged or gone: what is damaged is told once, and nothing
/// waits for ever.
#[test]
fn a_damaged_row_is_found_in_its_container_whatever_asked_for_it() {
    for (to, is_missing) in [
        ("cse-in/a/c/n0", false),
        ("cse-in/a/c/ol", false),
        ("cse-in/a/c?rcn=4", false),
        ("cse-in/a/c/ol", true),
        ("cse-in/a/c?rcn=4", true),
    ] {
        let mut bench = paged(3);
        let (path, query) = to.split_once('?').unwrap_or((to, ""));
        let mut request = get(&mut bench, path);
        if let Some((name, value)) = query.split_once('=') {
            request.set(name, value).unwrap();
        }
        let waiting = ask(&mut bench, 900, request);
        let (read, rows) = read_of(&waiting).expect("a read");
        let first = rows[0];
        let mut found = bench.read(&rows);
        found[0].1 = Err(if is_missing { Damage::Missing } else { Damage::Checksum });
        bench.cse.handle(bench.now, Input::Rows { read, rows: Ok(found) });
        let told = outputs(&mut bench);
        let unreadable = |it: &&Output| matches!(it, Output::Unreadable(row) if row.row == first);
        assert_eq!(told.iter().filter(unreadable).count(), 1, "{to}");
        bench.run();
        assert_eq!(json(&bench.get("Ca", "cse-in/a/c"))["m2m:cnt"]["cni"], 2, "{to}");
    }
}

#[test]
fn a_read_that_fails_is_told_and_the_instance_stays() {
    let mut bench = paged(3);
    let request = get(&mut bench, "cse-in/a/c/n0");
    let waiting = ask(&mut bench, 900, request);
    let (read, _) = read_of(&waiting).expect("a read");
    let rows = Err(ReadError("no such disk".to_owned()));
    bench.cse.handle(bench.now, Input::Rows { read, rows });
    let failed = outputs(&mut bench);
    assert_eq!(answers(&failed)[0].1.status.number(), 5000);
    assert_eq!(bench.cse.counters().reads_failed, 1);
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.get("Ca", "cse-in/a/c/n0").status.number(), 2000);
}

#[test]
fn a_damaged_row_is_told_and_left_where_it_is() {
    let mut bench = paged(3);
    let (&row, _) = bench.rows.iter().find(|(_, body)| body.contains("\"rn\":\"n0\"")).unwrap();
    let request = get(&mut bench, "cse-in/a/c/n0");
    let waiting = ask(&mut bench, 900, request);
    let (read, rows) = read_of(&waiting).expect("a read");
    assert_eq!(rows, [row]);
    let rows = Ok(vec![(row, Err(Damage::Checksum))]);
    bench.cse.handle(bench.now, Input::Rows { read, rows });
    let after = outputs(&mut bench);
    assert_eq!(answers(&after)[0].1.status.number(), 4004);
    let unreadable = after.iter().find_map(|output| match output {
        Output::Unreadable(row) => Some(row.clone()),
        _ => None,
    });
    assert_eq!(unreadable, Some(Unreadable { row, damage: Damage::Checksum }));
    assert!(bench.rows.contains_key(&row), "its row stays");
    let container = json(&bench.get("Ca", "cse-in/a/c"));
    assert_eq!(container["m2m:cnt"]["cni"], 2);
}

#[test]
fn what_is_deleted_while_it_is_read_is_gone() {
    let mut bench = paged(3);
    let request = get(&mut bench, "cse-in/a/c/n0");
    let waiting = ask(&mut bench, 900, request);
    let (read, rows) = read_of(&waiting).expect("a read");
    let rows = Ok(bench.read(&rows));
    let request = bench.request(Operation::Delete, "Ca", "cse-in/a/c");
    let deleted = ask(&mut bench, 901, request);
    assert_eq!(answers(&deleted)[0].1.status.number(), 2002);
    bench.cse.handle(bench.now, Input::Rows { read, rows });
    let after = outputs(&mut bench);
    assert_eq!(answers(&after)[0].1.status.number(), 4004);
    assert_eq!(bench.cse.instances_paged_out(), 0);
}

/// A walk judges the stored texts where they are: a search of everything would else push what is
/// wanted out of memory.
#[test]
fn a_walk_judges_texts_without_bringing_the_instances_into_memory() {
    let mut bench = paged(300);
    let paged_in = bench.cse.counters().instances_paged_in;
    assert!(found(&bench.get("Ca", "cse-in/a?fu=1&ty=4&atr=con,none*")).is_empty());
    assert_eq!(bench.cse.counters().instances_paged_in, paged_in);
    assert!(bench.cse.counters().rows_read >= 299, "they were read");
    assert_eq!(found(&bench.get("Ca", "cse-in/a?fu=1&ty=4&atr=con,1")).len(), 300);
    let some = found(&bench.get("Ca", "cse-in/a?fu=1&ty=4&atr=rn,n29*"));
    assert_eq!(some.len(), 11);
    // What is to be shown comes into memory, and nothing else.
    let before = bench.cse.counters().instances_paged_in;
    assert_eq!(found(&bench.get("Ca", "cse-in/a?fu=1&atr=rn,n17")), ["cse-in/a/c/n17"]);
    assert_eq!(bench.cse.counters().instances_paged_in, before + 1);
}

#[test]
fn a_damaged_row_that_a_walk_meets_is_told_and_passed_by() {
    let mut bench = paged(4);
    let (&row, _) = bench.rows.iter().find(|(_, body)| body.contains("\"rn\":\"n1\"")).unwrap();
    let mut request = get(&mut bench, "cse-in/a");
    for (name, value) in [("fu", "1"), ("ty", "4"), ("atr", "con,1")] {
        request.set(name, value).unwrap();
    }
    let waiting = ask(&mut bench, 900, request);
    let (read, rows) = read_of(&waiting).expect("a read");
    let mut read_rows = bench.read(&rows);
    for (number, found) in &mut read_rows {
        if *number == row {
            *found = Err(Damage::Checksum);
        }
    }
    bench.cse.handle(bench.now, Input::Rows { read, rows: Ok(read_rows) });
    let after = outputs(&mut bench);
    assert!(after.iter().any(|it| matches!(it, Output::Unreadable(it) if it.row == row)));
    let (read, rows) = read_of(&after).expect("what was found is read to be named");
    let rows = Ok(bench.read(&rows));
    bench.cse.handle(bench.now, Input::Rows { read, rows });
    let after = outputs(&mut bench);
    assert_eq!(found(answers(&after)[0].1).len(), 3);
}

/// A large result is read in parts, each in a step of its own, and is whole in the end.
#[test]
fn a_large_result_is_read_in_parts() {
    let mut bench = paged(1_100);
    let mut request = get(&mut bench, "cse-in/a/c");
    request.set("rcn", "4").unwrap();
    let mut after = ask(&mut bench, 900, request);
    let mut parts = Vec::new();
    while answers(&after).is_empty() {
        let next = match read_of(&after) {
            Some((read, rows)) => {
                parts.push(rows.len());
                Input::Rows { read, rows: Ok(bench.read(&rows)) }
            }
            // The walk itself takes several slices.
            None => Input::Tick,
        };
        bench.cse.handle(bench.now, next);
        after = outputs(&mut bench);
    }
    assert_eq!((parts.iter().sum::<usize>(), parts.len()), (1_099, 2), "{parts:?}");
    let nested = json(answers(&after)[0].1);
    assert_eq!(nested["m2m:cnt"]["m2m:cin"].as_array().map(Vec::len), Some(1_100));
    // Nothing is kept longer than it is needed.
    assert_eq!(bench.reading("last", "1").status.number(), 2001);
    bench.pass(Duration::from_secs(1));
    for _ in 0..100 {
        bench.get("Ca", "cse-in");
    }
    assert_eq!(bench.cse.instances_paged_out(), 1_100);
}

/// A deletion needs no text, and its undo neither.
#[test]
fn a_deletion_that_is_not_stored_is_taken_back() {
    let mut bench = paged(5);
    let before = json(&bench.get("Ca", "cse-in/a/c"));
    let resources = bench.cse.resources();
    let request = bench.request(Operation::Delete, "Ca", "cse-in/a/c");
    bench.cse.handle(bench.now, Input::Request { token: Token(900), request });
    while let Some(output) = bench.cse.poll_output() {
        match output {
            Output::Store(batch) => bench.cse.handle(bench.now, Input::Failed(batch.number)),
            Output::Read { .. } => panic!("a deletion reads nothing"),
            _ => {}
        }
    }
    assert_eq!(bench.cse.resources(), resources);
    assert_eq!(json(&bench.get("Ca", "cse-in/a/c")), before);
    for name in ["n0", "n3", "n4"] {
        assert_eq!(bench.get("Ca", &format!("cse-in/a/c/{name}")).status.number(), 2000, "{name}");
    }
    assert_eq!(bench.get("Ca", "cse-in/a/c/ol").status.number(), 2000);
}

/// An identifier leads to an instance without an index: the row says where it is.
#[test]
fn an_identifier_is_looked_up_in_the_store() {
    let mut bench = paged(3);
    let first = json(&bench.get("Ca", "cse-in/a/c/n0"))["m2m:cin"]["ri"].clone();
    let id = first.as_str().unwrap();
    assert_eq!(json(&bench.get("Ca", id))["m2m:cin"]["rn"], "n0");
    assert_eq!(bench.get("Ca", "cin1").status.number(), 4004, "a row of another type");
    assert_eq!(bench.get("Ca", "cinffff").status.number(), 4004, "no row yet");
    assert_eq!(bench.delete("Ca", id).status.number(), 2002);
    assert_eq!(bench.get("Ca", id).status.number(), 4004);
}

proptest! {
    /// Answers and rows are those of a machine that keeps every instance in memory. It starts again with
    /// rows, the other one with blocks of records.
    #[test]
    fn answers_are_as_without_paging(steps in prop::collection::vec((0_u8..9, 0_usize..8), 1..60)) {
        let mut whole = Bench::with({
            let mut all = config();
            all.limits.resident_octets = None;
            all
        });
        let mut paged = Bench::new();
        for bench in [&mut whole, &mut paged] {
            bench.register("Ca", "a");
            bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c","mni":6}}"#);
        }
        for (what, at) in steps {
            let mut each = Vec::new();
            for bench in [&mut whole, &mut paged] {
                bench.pass(Duration::from_secs(1));
                let name = format!("cse-in/a/c/n{at}");
                if what == 7 {
                    bench.restart();
                }
                let answer = match what {
                    0 | 1 => bench.reading(&format!("n{at}"), &format!("{at}")),
                    2 => bench.get("Ca", &name),
                    3 => bench.get("Ca", "cse-in/a/c?rcn=4"),
                    4 => bench.get("Ca", "cse-in/a?fu=1&atr=rn,n1"),
                    5 => bench.delete("Ca", &name),
                    6 => bench.get("Ca", "cse-in/a?fu=1&crb=20231114T221400&cra=20231114T221330"),
                    _ => bench.get("Ca", "cse-in/a/c"),
                };
                each.push((answer.status, answer.content, answer.location));
            }
            prop_assert_eq!(&each[0], &each[1], "{} {}", what, at);
            if what == 4 {
                prop_assert_eq!(found(&whole.get("Ca", "cse-in/a?fu=1")), found(&paged.get("Ca", "cse-in/a?fu=1")));
            }
        }
        prop_assert_eq!(whole.rows, paged.rows);
    }
}

/// An observer whose target is not in memory is told of its changes as any other is.
#[test]
fn an_observation_whose_target_is_paged_out_is_registered_when_it_is_answered() {
    let mut bench = paged(3);
    let request = get(&mut bench, "cse-in/a/c/n0");
    let token = Token(900);
    bench.cse.handle(bench.now, Input::Observe { token, request });
    let waiting = outputs(&mut bench);
    let (read, rows) = read_of(&waiting).expect("a read");
    assert!(answers(&waiting).is_empty() && !bench.cse.is_observed(token));
    let rows = Ok(bench.read(&rows));
    bench.cse.handle(bench.now, Input::Rows { read, rows });
    let told = outputs(&mut bench);
    assert_eq!((answers(&told)[0].0, bench.cse.is_observed(token)), (900, true));
    // It stays in memory as long as it is observed, and its end is told.
    assert_eq!(bench.reading("n3", "1").status.number(), 2001);
    assert_eq!(bench.cse.instances_paged_out(), 2);
    let gone = bench.request(Operation::Delete, "Ca", "cse-in/a/c/n0");
    assert_eq!(bench.ask_all(gone).len(), 2, "the deletion's answer and the observer's");
    assert!(!bench.cse.is_observed(token));
}

#[test]
fn an_observation_whose_read_fails_or_that_ends_meanwhile_is_not_registered() {
    for is_ended in [false, true] {
        let mut bench = paged(3);
        let request = get(&mut bench, "cse-in/a/c/n0");
        let token = Token(900);
        bench.cse.handle(bench.now, Input::Observe { token, request });
        let (read, rows) = read_of(&outputs(&mut bench)).expect("a read");
        let rows = if is_ended {
            bench.cse.handle(bench.now, Input::Unobserve(token));
            Ok(bench.read(&rows))
        } else {
            Err(ReadError("no".to_owned()))
        };
        bench.cse.handle(bench.now, Input::Rows { read, rows });
        let told = outputs(&mut bench);
        assert_eq!((answers(&told).len(), bench.cse.is_observed(token)), (1, false));
    }
}

/// A reading whose name may be that of one that is paged out waits until that is read. Meanwhile the
/// outbox may fill, or the container's backlog may end: its message is made all the same.
#[test]
fn a_reading_that_waits_for_a_row_has_its_message_whenever_the_outbox_is_full() {
    for (room, fills) in [(1, false), (2, true)] {
        let mut config = config();
        config.limits.messages_waiting = room;
        let mut bench = Bench::with(config);
        bench.register("Ca", "a");
        let container = r#"{"m2m:cnt":{"rn":"c"}}"#;
        bench.create("Ca", "cse-in/a", ResourceType::Container, container);
        assert_eq!(bench.reading("n0", "1").status.number(), 2001);
        post(&mut bench, 800, "n1");
        outputs(&mut bench);
        post(&mut bench, 801, "n0");
        let (read, rows) = read_of(&outputs(&mut bench)).expect("a read");
        if fills {
            post(&mut bench, 802, "n2");
            outputs(&mut bench);
        }
        // The one that is stored cannot be read: the name is free.
        let damaged = rows.iter().map(|&row| (row, Err(Damage::Checksum))).collect();
        bench.cse.handle(bench.now, Input::Rows { read, rows: Ok(damaged) });
        let told = outputs(&mut bench);
        assert_eq!(answers(&told)[0].1.status.number(), 2001, "{told:?}");
        assert_eq!(bench.cse.counters().readings_backlogged, 1);
        let mut sent = 0;
        while let Some(call) = bench.calls.pop() {
            sent += 1;
            bench.reply(&call, Status::Created);
        }
        bench.pass(Duration::from_millis(100));
        assert_eq!((sent, bench.cse.backlogs()), (room + 1, 0), "{:?}", bench.rows);
    }
}

/// Posts a reading with its outbox message.
fn post(bench: &mut Bench, token: u64, name: &str) {
    let content = format!(r#"{{"m2m:cin":{{"rn":"{name}","con":"1"}}}}"#);
    let create = |to: &str, id: &str| {
        Request::new(Operation::Create, to, "Ca", id)
            .creating(ResourceType::ContentInstance, &*content)
    };
    let message = Box::new(OutboxMessage {
        queue: "device/Ca".into(),
        target: "http://up.example:8080".into(),
        request: create("/id-up/cse-up/c", name).into(),
        keep: None,
        batch: None,
    });
    let request = create("cse-in/a/c", &format!("p{token}"));
    bench.cse.handle(
        bench.now,
        Input::AskAndPost { token: Token(token), request: request.into(), message },
    );
}
