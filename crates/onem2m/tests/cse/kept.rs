//! What is acknowledged is what a restart reads; what cannot be kept is refused when it comes, and
//! what cannot be read is told.

use crate::bench::{Bench, START, config, json};
use gatewright_onem2m::{Cse, CseIdentity, Damage, NoBase, Operation, Request, ResourceType};
use proptest::prelude::*;
use std::sync::Arc;

/// Texts that are JSON by its grammar (RFC 8259), and that implementations may bound (§9): depth,
/// range of numbers, characters that are half of one.
fn hostile() -> Vec<String> {
    vec![
        format!("{}{}", "[".repeat(130), "]".repeat(130)),
        format!("{}{}", "[".repeat(60), "]".repeat(60)),
        "1e400".to_owned(),
        "[1,{\"a\":-1e400}]".to_owned(),
        r#""\ud800""#.to_owned(),
        r#"{"\udfff":1}"#.to_owned(),
    ]
}

fn instance(content: &str) -> String {
    format!(r#"{{"m2m:cin":{{"con":{content}}}}}"#)
}

#[test]
fn content_that_a_restart_could_not_read_is_refused() {
    let mut bench = Bench::with_container();
    for content in hostile() {
        let made =
            bench.create("Ca", "cse-in/a/c", ResourceType::ContentInstance, &instance(&content));
        assert_eq!(made.status.number(), 4000, "{content}");
        assert!(made.content.unwrap().contains("m2m:dbg"), "with a reason");
    }
    // It gave way to nothing.
    assert_eq!(json(&bench.get("Ca", "cse-in/a/c"))["m2m:cnt"]["cni"], 0);
}

#[test]
fn other_types_refuse_it_too() {
    let mut bench = Bench::with_container();
    for content in hostile() {
        let flex = format!(r#"{{"m2m:fcnt":{{"cnd":"x.y","a":{content}}}}}"#);
        let made = bench.create("Ca", "cse-in/a", ResourceType::FlexContainer, &flex);
        assert_eq!(made.status.number(), 4000, "{content}");
    }
}

#[test]
fn what_is_acknowledged_is_there_after_a_restart() {
    let mut bench = Bench::with_container();
    let deep = format!("{}{}", "[".repeat(44), "]".repeat(44));
    let contents =
        [deep.as_str(), "1e300", "123456789012345678901234567890.10", r#""\ud83d\ude00""#];
    for content in contents {
        let made =
            bench.create("Ca", "cse-in/a/c", ResourceType::ContentInstance, &instance(content));
        assert_eq!(made.status.number(), 2001, "{content}");
    }
    let before: Vec<_> = bench.cse.rows().collect();
    bench.cse = bench.reopened();
    assert_eq!(bench.cse.rows().collect::<Vec<_>>(), before);
    assert_eq!(json(&bench.get("Ca", "cse-in/a/c"))["m2m:cnt"]["cni"], 4);
}

proptest! {
    /// Whatever content is acknowledged, a restart reads.
    #[test]
    fn content_is_refused_or_read_back(
        content in r#"(\[|\{"a":|\]|\}|"(\\ud8[0-9]{2}|\\u00e9|x|\\")*"|1e[0-9]{1,3}|-?[0-9]{1,30}|,|null){0,6}"#
    ) {
        let mut bench = Bench::with_container();
        let made = bench.create("Ca", "cse-in/a/c", ResourceType::ContentInstance, &instance(&content));
        let before: Vec<_> = bench.cse.rows().collect();
        bench.cse = bench.reopened();
        prop_assert_eq!(bench.cse.rows().collect::<Vec<_>>(), before);
        let latest = bench.get("Ca", "cse-in/a/c/la");
        prop_assert_eq!(latest.status.is_success(), made.status.is_success(), "{}", content);
    }
}

/// Whatever shows an instance shows its content character for character: alone, among the children
/// of its container, in part, and in the answers of a group's members.
#[test]
fn numbers_keep_their_digits_wherever_they_are_shown() {
    const DIGITS: &str = "96.500000000000000000000000010";
    let mut bench = Bench::with_container();
    let made = bench.create("Ca", "cse-in/a/c", ResourceType::ContentInstance, &instance(DIGITS));
    assert_eq!(made.status.number(), 2001);
    let group = r#"{"m2m:grp":{"rn":"g","mnm":5,"mid":["cse-in/a/c"]}}"#;
    assert_eq!(bench.create("Ca", "cse-in/a", ResourceType::Group, group).status.number(), 2001);
    for (to, parameter, value) in [
        ("cse-in/a/c/la", "rcn", "1"),
        ("cse-in/a/c/la", "atrl", "con"),
        ("cse-in/a/c/la", "rcn", "5"),
        ("cse-in/a/c", "rcn", "4"),
        ("cse-in/a", "rcn", "8"),
        ("cse-in/a/g/fopt", "rcn", "4"),
        ("cse-in/a/g/fopt/la", "rcn", "1"),
    ] {
        let mut request = Request::new(Operation::Retrieve, to, "Ca", "q");
        request.set(parameter, value).unwrap();
        let text = bench.ask(request).content.unwrap();
        assert!(text.contains(&format!(r#""con":{DIGITS}"#)), "{to} {parameter}={value}: {text}");
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{text}");
    }
}

#[test]
fn rows_that_cannot_be_read_are_told_one_by_one() {
    let mut bench = Bench::with_container();
    for content in ["1", "2", "3"] {
        bench.create("Ca", "cse-in/a/c", ResourceType::ContentInstance, &instance(content));
    }
    let rows: Vec<u64> = bench.rows.keys().copied().collect();
    let instance = *rows.last().unwrap();
    let container = rows[2];
    // A bit has flipped in the one, the other has lost a member.
    let flipped = bench.rows[&instance].replacen("\"con\":3", "\"con\"23", 1);
    bench.rows.insert(instance, flipped.into());
    let open = |bench: &Bench| {
        let rows = bench.rows.iter().map(|(&seq, body)| (seq, Arc::clone(body)));
        Cse::open(config(), START, rows, bench.next_seq)
    };
    let (cse, unreadable) = open(&bench).unwrap();
    assert_eq!(cse.resources(), bench.rows.len() - 1);
    assert_eq!(unreadable.len(), 1);
    assert_eq!(unreadable[0].row, instance);
    assert!(matches!(unreadable[0].damage, Damage::Json(_)), "{unreadable:?}");
    // What lies below a damaged one is not lost either: it is told with the reason.
    let nameless = bench.rows[&container].replacen("\"rn\":", "\"nr\":", 1);
    bench.rows.insert(container, nameless.into());
    let (_, unreadable) = open(&bench).unwrap();
    assert_eq!(unreadable.len(), 4, "{unreadable:?}");
    assert_eq!(unreadable[0].damage, Damage::Member("rn"));
    assert!(matches!(unreadable[1].damage, Damage::Parent(_)));
}

#[test]
fn a_damaged_base_is_not_founded_anew() {
    let mut bench = Bench::with_container();
    let base = *bench.rows.keys().next().unwrap();
    let damaged = bench.rows[&base].replacen('{', "", 1);
    bench.rows.insert(base, damaged.into());
    let rows = || bench.rows.iter().map(|(&seq, body)| (seq, Arc::clone(body)));
    let Err(NoBase::Damaged(row)) = Cse::open(config(), START, rows(), bench.next_seq) else {
        panic!("it has started");
    };
    assert_eq!(row.row, base);
    let without = rows().skip(1).filter(|(_, body)| body.contains("m2m:zzz"));
    assert!(Cse::open(config(), START, without, 1).is_ok(), "a store without rows is a new one");
}

#[test]
fn the_rows_of_another_cse_are_not_taken() {
    let bench = Bench::with_container();
    let rows = || bench.rows.iter().map(|(&seq, body)| (seq, Arc::clone(body)));
    let ours = config().identity();
    let stored: Vec<_> = rows().filter_map(|(_, body)| CseIdentity::of_row(&body)).collect();
    assert_eq!(stored, std::slice::from_ref(&ours));
    let (mut id, mut name) = (config(), config());
    id.cse_id = "/id-other".to_owned();
    name.name = "cse-other".to_owned();
    for other in [id, name] {
        let configured = Box::new(other.identity());
        let Err(refused) = Cse::open(other, START, rows(), bench.next_seq) else {
            panic!("it has started as {configured}");
        };
        assert_eq!(refused, NoBase::Other { stored: Box::new(ours.clone()), configured });
    }
    assert!(Cse::open(config(), START, rows(), bench.next_seq).is_ok());
}
