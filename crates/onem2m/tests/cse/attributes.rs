//! Rules for single attributes (TS-0001 §9.6.2, accessControlAttributes): what they let an originator
//! read and write, as acmecse 2026.5 has it.

use crate::bench::{Bench, json};
use gatewright_onem2m::ResourceType;
use serde_json::json;

/// `cse-in/a/c` of `Ca`, with a policy that has this rule for `Cb`.
fn bound(rule: &str) -> Bench {
    let mut bench = Bench::with_container();
    bench.register("Cb", "b");
    let policy = format!(
        r#"{{"m2m:acp":{{"rn":"p","pv":{{"acr":[{{"acor":["Ca"],"acop":63}},{{"acor":["Cb"],{rule}}}]}},
        "pvs":{{"acr":[{{"acor":["Ca"],"acop":63}}]}}}}}}"#
    );
    let made = bench.create("Ca", "cse-in/a", ResourceType::AccessControlPolicy, &policy);
    assert_eq!(made.status.number(), 2001, "{made:?}");
    let id = json(&made)["m2m:acp"]["ri"].as_str().unwrap().to_owned();
    bench.update("Ca", "cse-in/a/c", &format!(r#"{{"m2m:cnt":{{"acpi":["{id}"]}}}}"#));
    bench
}

#[test]
fn a_rule_for_attributes_shows_those_alone() {
    let mut bench = bound(r#""acop":34,"aca":["lbl","mni"]"#);
    bench.update("Ca", "cse-in/a/c", r#"{"m2m:cnt":{"lbl":["x"],"mni":3}}"#);
    let mut ask = |to: &str| bench.get("Cb", to);
    let shown = ask("cse-in/a/c?atrl=lbl");
    assert_eq!(json(&shown), json!({"m2m:cnt": {"lbl": ["x"]}}));
    assert_eq!(json(&ask("cse-in/a/c?atrl=lbl+mni"))["m2m:cnt"]["mni"], 3);
    assert_eq!(ask("cse-in/a/c?atrl=lbl+cr").status.number(), 4103, "one of them is not granted");
    assert_eq!(ask("cse-in/a/c").status.number(), 4103, "the whole has more");
    assert_eq!(ask("cse-in/a/c?rcn=4").status.number(), 4103);
    assert_eq!(ask("cse-in/a/c?fu=1").status.number(), 4103, "nothing is discovered by them");
    assert_eq!(ask("cse-in/a/c?atrl=lbl&crb=20990101T000000").status.number(), 4103);
    assert_eq!(bench.delete("Cb", "cse-in/a/c").status.number(), 4103);
    let write = bench.update("Cb", "cse-in/a/c", r#"{"m2m:cnt":{"lbl":["y"]}}"#);
    assert_eq!(write.status.number(), 4103, "another operation");
}

#[test]
fn a_rule_for_attributes_lets_those_be_written() {
    let mut bench = bound(r#""acop":4,"aca":["lbl","mni"]"#);
    let mut update = |content: &str| bench.update("Cb", "cse-in/a/c", content);
    let updated = update(r#"{"m2m:cnt":{"lbl":["y"]}}"#);
    assert_eq!(updated.status.number(), 2004);
    assert_eq!(json(&updated), json!({"m2m:cnt": {"lbl": ["y"]}}), "nothing else is shown");
    assert_eq!(update(r#"{"m2m:cnt":{"mni":null,"lbl":["z"]}}"#).status.number(), 2004);
    assert_eq!(update(r#"{"m2m:cnt":{"lbl":["z"],"mbs":10}}"#).status.number(), 4103);
    assert_eq!(update(r#"{"m2m:cnt":{"acpi":null}}"#).status.number(), 4103);
    assert_eq!(json(&bench.get("Ca", "cse-in/a/c"))["m2m:cnt"]["lbl"], json!(["z"]));
    assert_eq!(bench.get("Cb", "cse-in/a/c").status.number(), 4103);
}

#[test]
fn a_rule_for_attributes_lets_children_be_made_of_them() {
    let mut bench = bound(r#""acop":1,"aca":["con","rn"]"#);
    let mut make = |content: &str| {
        bench.create("Cb", "cse-in/a/c", ResourceType::ContentInstance, content).status.number()
    };
    assert_eq!(make(r#"{"m2m:cin":{"con":"1"}}"#), 2001);
    assert_eq!(make(r#"{"m2m:cin":{"con":"1","rn":"one"}}"#), 2001);
    assert_eq!(make(r#"{"m2m:cin":{"con":"1","lbl":["x"]}}"#), 4103);
    assert_eq!(make("nonsense"), 4103);
    assert_eq!(bench.get("Cb", "cse-in/a/c/one").status.number(), 4103);
    // Instances follow their container's policy, for their attributes too.
    let mut bench = bound(r#""acop":2,"aca":["con"]"#);
    bench.reading("one", "42");
    for path in ["one", "la", "ol"] {
        let shown = bench.get("Cb", &format!("cse-in/a/c/{path}?atrl=con"));
        assert_eq!(json(&shown), json!({"m2m:cin": {"con": "42"}}), "{path}");
        assert_eq!(bench.get("Cb", &format!("cse-in/a/c/{path}")).status.number(), 4103);
    }
    assert_eq!(bench.get("Cstranger", "cse-in/a/c/la?atrl=con").status.number(), 4103);
}

#[test]
fn rules_add_up_and_are_checked() {
    let mut bench = bound(r#""acop":2,"aca":["lbl"]},{"acor":["Cb"],"acop":2,"aca":["mni"]"#);
    bench.update("Ca", "cse-in/a/c", r#"{"m2m:cnt":{"lbl":["x"],"mni":3}}"#);
    assert_eq!(bench.get("Cb", "cse-in/a/c?atrl=lbl+mni").status.number(), 2000);
    let mut whole = bound(r#""acop":2,"aca":["lbl"]},{"acor":["Cb"],"acop":2"#);
    assert_eq!(whole.get("Cb", "cse-in/a/c").status.number(), 2000, "another rule grants all");
    let mut made = |aca: &str, selves: &str| {
        let policy = format!(
            r#"{{"m2m:acp":{{"pv":{{"acr":[{{"acor":["all"],"acop":2,"aca":{aca}}}]}},
            "pvs":{{"acr":[{{"acor":["Ca"],"acop":63{selves}}}]}}}}}}"#
        );
        bench.create("Ca", "cse-in/a", ResourceType::AccessControlPolicy, &policy).status.number()
    };
    assert_eq!(made(r#"["lbl"]"#, ""), 2001);
    for wrong in ["[]", r#""lbl""#, "[1]", r#"[""]"#] {
        assert_eq!(made(wrong, ""), 4000, "{wrong}");
    }
    assert_eq!(made(r#"["lbl"]"#, r#","aca":["pv"]"#), 5001);
}
