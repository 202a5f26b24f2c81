//! Access control on every path (TS-0003 §7.1).

use crate::bench::{Bench, found};
use gatewright_onem2m::{Kind, Operation};
use std::time::Duration;

const CREATE: u64 = 1;
const RETRIEVE: u64 = 2;
const UPDATE: u64 = 4;
const DELETE: u64 = 8;
const DISCOVER: u64 = 32;

/// Gives `cse-in/a/c` a policy `p` of these rules.
fn govern(bench: &mut Bench, rules: &str) {
    let content = format!(
        r#"{{"m2m:acp":{{"rn":"p","pv":{{"acr":[{rules}]}},
            "pvs":{{"acr":[{{"acor":["Cboss"],"acop":63}}]}}}}}}"#
    );
    let made = bench.create("Ca", "cse-in/a", Kind::AccessControlPolicy, &content);
    assert_eq!(made.status.number(), 2001, "{made:?}");
    let id = crate::bench::json(&made)["m2m:acp"]["ri"].as_str().unwrap().to_owned();
    let update = format!(r#"{{"m2m:cnt":{{"acpi":["{id}"]}}}}"#);
    assert_eq!(bench.update("Ca", "cse-in/a/c", &update).status.number(), 2004);
}

#[test]
fn each_operation_needs_its_own_right() {
    for granted in [CREATE, RETRIEVE, UPDATE, DELETE, DISCOVER] {
        let mut bench = Bench::with_container();
        bench.reading("one", "1");
        govern(&mut bench, &format!(r#"{{"acor":["Cb"],"acop":{granted}}}"#));
        let got = |right: u64| if right == granted { 2 } else { 4 };
        let made = bench.create("Cb", "cse-in/a/c", Kind::ContentInstance, r#"{"m2m:cin":{}}"#);
        assert_eq!(made.status.number() / 1000, got(CREATE));
        let read = bench.get("Cb", "cse-in/a/c/one");
        assert_eq!(read.status.number() / 1000, got(RETRIEVE));
        let latest = bench.get("Cb", "cse-in/a/c/la");
        assert_eq!(latest.status.number() / 1000, got(RETRIEVE));
        let discovered = bench.get("Cb", "cse-in/a/c?fu=1");
        assert_eq!(discovered.status.number() / 1000, got(DISCOVER));
        let updated = bench.update("Cb", "cse-in/a/c", r#"{"m2m:cnt":{"lbl":["x"]}}"#);
        assert_eq!(updated.status.number() / 1000, got(UPDATE));
        let deleted = bench.delete("Cb", "cse-in/a/c");
        assert_eq!(deleted.status.number() / 1000, got(DELETE));
    }
}

#[test]
fn originators_by_name_pattern_all_and_not() {
    for (originator, allowed) in [
        ("Cb", true),
        ("all", true),
        ("C*", true),
        ("/id-in/Cb", true),
        ("Cc", false),
        ("D*", false),
    ] {
        let mut bench = Bench::with_container();
        govern(&mut bench, &format!(r#"{{"acor":["{originator}"],"acop":63}}"#));
        let read = bench.get("Cb", "cse-in/a/c");
        assert_eq!(read.status.is_success(), allowed, "{originator}");
        assert_eq!(bench.cse.counters().denied, u64::from(!allowed));
    }
}

#[test]
fn rules_may_be_bound_to_child_types() {
    let mut bench = Bench::with_container();
    govern(&mut bench, r#"{"acor":["Cb"],"acop":1,"acod":{"ty":3,"chty":[4]}}"#);
    let cin = bench.create("Cb", "cse-in/a/c", Kind::ContentInstance, r#"{"m2m:cin":{}}"#);
    assert_eq!(cin.status.number(), 2001);
    let cnt = bench.create("Cb", "cse-in/a/c", Kind::Container, r#"{"m2m:cnt":{}}"#);
    assert_eq!(cnt.status.number(), 4103);
}

#[test]
fn a_policy_governs_the_resource_that_names_it_and_its_owner_too() {
    let mut bench = Bench::with_container();
    govern(&mut bench, r#"{"acor":["Cb"],"acop":2}"#);
    assert_eq!(bench.get("Ca", "cse-in/a/c").status.number(), 4103, "the owner is not named");
    assert_eq!(bench.get("Cb", "cse-in/a/c").status.number(), 2000);
    assert_eq!(bench.get("CAdmin", "cse-in/a/c").status.number(), 2000);
    // The self-privileges decide over the policy and over exchanging it.
    let exchange = r#"{"m2m:cnt":{"acpi":[]}}"#;
    assert_eq!(bench.update("Ca", "cse-in/a/c", exchange).status.number(), 4103);
    let with_more = r#"{"m2m:cnt":{"acpi":[],"lbl":["x"]}}"#;
    assert_eq!(bench.update("Cboss", "cse-in/a/c", with_more).status.number(), 4000);
    assert_eq!(bench.get("Ca", "cse-in/a/p").status.number(), 4103);
    assert_eq!(bench.get("Cboss", "cse-in/a/p").status.number(), 2000);
    assert_eq!(bench.update("Cboss", "cse-in/a/c", exchange).status.number(), 2004);
    assert_eq!(bench.get("Ca", "cse-in/a/c").status.number(), 2000, "the owner's again");
}

#[test]
fn discovery_and_children_show_only_what_may_be_seen() {
    let mut bench = Bench::with_container();
    bench.register("Cb", "b");
    bench.create("Cb", "cse-in/b", Kind::Container, r#"{"m2m:cnt":{"rn":"mine"}}"#);
    bench.reading("one", "1");
    assert_eq!(found(&bench.get("Cb", "cse-in?fu=1")), ["cse-in/b", "cse-in/b/mine"]);
    let all = found(&bench.get("CAdmin", "cse-in?fu=1"));
    assert_eq!(all.len(), 5);
    let children = bench.get("Cb", "cse-in?rcn=4");
    assert!(!children.content.as_deref().unwrap().contains("\"Ca\""));
    let stranger = bench.get("Cstranger", "cse-in?fu=1");
    assert_eq!(stranger.status.number(), 4103, "not registered");
    govern(&mut bench, r#"{"acor":["Cb"],"acop":32}"#);
    let more = found(&bench.get("Cb", "cse-in?fu=1"));
    assert_eq!(more, ["cse-in/b", "cse-in/a/c", "cse-in/b/mine", "cse-in/a/c/one"]);
    let children = bench.get("Cb", "cse-in/a/c?fu=1&rcn=4");
    assert_eq!(children.status.number(), 4103, "to discover is not to retrieve");
}

#[test]
fn policies_that_could_not_be_evaluated_are_not_taken() {
    let mut bench = Bench::with_container();
    let make = |bench: &mut Bench, pv: &str, pvs: &str| {
        let content = format!(r#"{{"m2m:acp":{{"pv":{pv},"pvs":{pvs}}}}}"#);
        bench.create("Ca", "cse-in/a", Kind::AccessControlPolicy, &content).status.number()
    };
    let good = r#"{"acr":[{"acor":["Ca"],"acop":63}]}"#;
    assert_eq!(make(&mut bench, good, good), 2001);
    assert_eq!(make(&mut bench, "{}", good), 2001);
    assert_eq!(make(&mut bench, good, r#"{"acr":[]}"#), 4000);
    assert_eq!(make(&mut bench, good, "{}"), 4000);
    assert_eq!(make(&mut bench, r#"{"acr":[{"acop":63}]}"#, good), 4000);
    assert_eq!(make(&mut bench, r#"{"acr":[{"acor":["C"],"acop":64}]}"#, good), 4000);
    let mut bound = |contexts: &str| {
        let rule = format!(r#"{{"acr":[{{"acor":["C"],"acop":1,"acco":{contexts}}}]}}"#);
        make(&mut bench, &rule, good)
    };
    assert_eq!(bound(r#"[{"acip":{"ipv4":["1.2.3.4"]}}]"#), 5001);
    assert_eq!(bound(r#"[{"actw":["* * 22-23 * * * *"],"acip":{"ipv4":["1.2.3.4"]}}]"#), 5001);
    assert_eq!(bound(r#"[{"actw":["* * 22-23 * * * *"]}]"#), 2001);
    for wrong in ["[]", "[{}]", "{}", r#"[{"actw":[]}]"#, r#"[{"actw":["* * 24 * * * *"]}]"#] {
        assert_eq!(bound(wrong), 4000, "{wrong}");
    }
}

#[test]
fn a_rule_holds_in_its_time_windows() {
    let mut bench = Bench::with_container();
    let read = |bench: &mut Bench| bench.get("Cnight", "cse-in/a/c").status.number();
    let hour = |bench: &Bench| bench.now.as_secs() / 3_600 % 24;
    // By night, and on no other day than any: of two contexts one is enough.
    let windows =
        r#"[{"actw":["* * 22-23 * * * *","* * 0-5 * * * *"]},{"actw":["0 0 0 1 1 * 1970"]}]"#;
    govern(&mut bench, &format!(r#"{{"acor":["Cnight"],"acop":2,"acco":{windows}}}"#));
    let mut seen = [0, 0];
    for _ in 0..24 {
        let is_night = !(6..22).contains(&hour(&bench));
        assert_eq!(read(&mut bench), if is_night { 2000 } else { 4103 }, "{}", hour(&bench));
        seen[usize::from(is_night)] += 1;
        bench.pass(Duration::from_hours(1));
    }
    assert_eq!(seen, [16, 8]);
}

#[test]
fn without_an_administrator_nobody_is_almighty() {
    let mut config = crate::bench::config();
    config.admin = None;
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    assert_eq!(bench.get("CAdmin", "cse-in/a").status.number(), 4103);
    let request = bench.request(Operation::Delete, "CAdmin", "cse-in/a");
    assert_eq!(bench.ask(request).status.number(), 4103);
}
