//! Access control on every path (TS-0003 §7.1).

use crate::bench::{Bench, found, json};
use gatewright_onem2m::primitive::Deadline;
use gatewright_onem2m::{
    AccessGrant, AccessGround, Input, Operation, Request, ResourceType, ResponseType, Status,
};
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
    let made = bench.create("Ca", "cse-in/a", ResourceType::AccessControlPolicy, &content);
    assert_eq!(made.status.number(), 2001, "{made:?}");
    let id = json(&made)["m2m:acp"]["ri"].as_str().unwrap().to_owned();
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
        let made =
            bench.create("Cb", "cse-in/a/c", ResourceType::ContentInstance, r#"{"m2m:cin":{}}"#);
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

/// What grants `from` a retrieval, beside what the CSE answers such a request.
#[track_caller]
fn granted(bench: &mut Bench, from: &str, to: &str) -> Option<AccessGrant> {
    let grant = bench.cse.retrieval_granted(to, from, None);
    let answered = bench.get(from, to).status.number();
    assert_eq!(grant.is_some(), answered == 2000, "{from} {to}: {answered}");
    grant
}

#[test]
fn the_ground_of_a_retrieval_is_the_rule_that_a_request_is_judged_by() {
    let mut bench = Bench::with_container();
    bench.reading("one", "1");
    // Rule 1 grants another right, 2 another originator, 3 single attributes; 4 and 5 both grant it.
    let rules = [
        r#"{"acor":["Cb"],"acop":1}"#,
        r#"{"acor":["Cc"],"acop":2}"#,
        r#"{"acor":["Cb"],"acop":2,"aca":["lbl"]}"#,
        r#"{"acor":["Cx","C*"],"acop":34}"#,
        r#"{"acor":["Cb"],"acop":63}"#,
    ];
    govern(&mut bench, &rules.join(","));
    let expected = AccessGrant {
        at: "cse-in/a/c".to_owned(),
        ground: AccessGround::Rule {
            policy: "cse-in/a/p".to_owned(),
            number: 4,
            originators: vec!["Cx".to_owned(), "C*".to_owned()],
            operations: RETRIEVE | DISCOVER,
        },
    };
    assert_eq!(granted(&mut bench, "Cb", "cse-in/a/c"), Some(expected.clone()));
    // Its container's policies govern an instance.
    assert_eq!(granted(&mut bench, "Cb", "cse-in/a/c/one"), Some(expected.clone()));
    assert_eq!(granted(&mut bench, "Cb", "cse-in/a/c/la"), Some(expected));
    assert_eq!(granted(&mut bench, "Dx", "cse-in/a/c"), None);
    let ground = |bench: &mut Bench, from, to| granted(bench, from, to).map(|it| it.ground);
    // The policy's own privileges name `Cboss` alone.
    assert_eq!(ground(&mut bench, "Cb", "cse-in/a/p"), None);
    let AccessGround::Rule { number: 1, operations: 63, .. } =
        ground(&mut bench, "Cboss", "cse-in/a/p").unwrap()
    else {
        panic!("a rule of its own privileges")
    };
}

#[test]
fn without_a_policy_the_ground_is_who_somebody_is() {
    let mut bench = Bench::with_container();
    let ground = |bench: &mut Bench, from, to| granted(bench, from, to).map(|it| it.ground);
    assert_eq!(ground(&mut bench, "Ca", "cse-in/a/c"), Some(AccessGround::Owner));
    assert_eq!(ground(&mut bench, "Cb", "cse-in/a/c"), None);
    assert_eq!(ground(&mut bench, "Ca", "cse-in"), Some(AccessGround::Registered));
    assert_eq!(ground(&mut bench, "Cstranger", "cse-in"), None);
    let own = bench.cse.retrieval_granted("cse-in/a/c", "/id-in", None);
    assert_eq!(own.unwrap().ground, AccessGround::ThisCse);
    assert_eq!(bench.cse.retrieval_granted("cse-in/a/missing", "/id-in", None), None);
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
    let cin = bench.create("Cb", "cse-in/a/c", ResourceType::ContentInstance, r#"{"m2m:cin":{}}"#);
    assert_eq!(cin.status.number(), 2001);
    let cnt = bench.create("Cb", "cse-in/a/c", ResourceType::Container, r#"{"m2m:cnt":{}}"#);
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
    bench.create("Cb", "cse-in/b", ResourceType::Container, r#"{"m2m:cnt":{"rn":"mine"}}"#);
    bench.reading("one", "1");
    assert_eq!(found(&bench.get("Cb", "cse-in?fu=1")), ["cse-in/b", "cse-in/b/mine"]);
    let all = found(&bench.get("CAdmin", "cse-in?fu=1"));
    assert_eq!(all.len(), 5);
    let children = bench.get("Cb", "cse-in?rcn=4");
    assert!(!children.content.as_deref().unwrap().contains("\"Ca\""));
    let stranger = bench.get("Cstranger", "cse-in?fu=1");
    assert_eq!(stranger.status.number(), 4103, "not registered");
    // Readers of the CSEBase find what policies let them find, here nothing.
    let mut config = bench.cse.config().clone();
    config.base_readers = vec!["/id-in/Cstranger".to_owned()];
    bench.cse.reconfigure(bench.now, config);
    assert_eq!(found(&bench.get("Cstranger", "cse-in?fu=1")), [""; 0]);
    assert_eq!(bench.get("Cstranger", "cse-in").status.number(), 2000);
    assert_eq!(
        bench.update("Cstranger", "cse-in", r#"{"m2m:cb":{"lbl":["x"]}}"#).status.number(),
        4103
    );
    govern(&mut bench, r#"{"acor":["Cb"],"acop":32}"#);
    let more = found(&bench.get("Cb", "cse-in?fu=1"));
    assert_eq!(more, ["cse-in/b", "cse-in/a/c", "cse-in/b/mine", "cse-in/a/c/one"]);
    let children = bench.get("Cb", "cse-in/a/c?rcn=4");
    assert_eq!(children.status.number(), 4103, "to discover is not to retrieve");
}

#[test]
fn policies_that_could_not_be_evaluated_are_not_taken() {
    let mut bench = Bench::with_container();
    let make = |bench: &mut Bench, pv: &str, pvs: &str| {
        let content = format!(r#"{{"m2m:acp":{{"pv":{pv},"pvs":{pvs}}}}}"#);
        bench.create("Ca", "cse-in/a", ResourceType::AccessControlPolicy, &content).status.number()
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
    for good in [
        r#"[{"acip":{"ipv4":["1.2.3.4"]}}]"#,
        r#"[{"acip":{"ipv4":["10.0.0.0/8","1.2.3.4/32"],"ipv6":["2001:db8::/32"]}}]"#,
        r#"[{"actw":["* * 22-23 * * * *"],"acip":{"ipv6":["::1"]}}]"#,
        r#"[{"actw":["* * 22-23 * * * *"]}]"#,
    ] {
        assert_eq!(bound(good), 2001, "{good}");
    }
    for wrong in [
        "[]",
        "[{}]",
        "{}",
        r#"[{"actw":[]}]"#,
        r#"[{"actw":["* * 24 * * * *"]}]"#,
        r#"[{"acip":{}}]"#,
        r#"[{"acip":["1.2.3.4"]}]"#,
        r#"[{"acip":{"ipv4":[]}}]"#,
        r#"[{"acip":{"ipv4":["1.2.3.4"],"ipv6":[]}}]"#,
        r#"[{"acip":{"ipv4":["1.2.3.4/33"]}}]"#,
        r#"[{"acip":{"ipv4":["::1"]}}]"#,
        r#"[{"acip":{"ipv4":[4]}}]"#,
        r#"[{"acip":{"ipv6":["::ffff:1.2.3.4"]}}]"#,
        r#"[{"acip":{"ipv4":["1.2.3.4"],"name":["x"]}}]"#,
    ] {
        assert_eq!(bound(wrong), 4000, "{wrong}");
    }
    for unknown in [r#"[{"aclr":{"accc":["KR"]}}]"#, r#"[{"acip":{"ipv4":["1.2.3.4"]},"acui":[]}]"#]
    {
        assert_eq!(bound(unknown), 5001, "{unknown}");
    }
}

/// TS-0001 §9.6.2: every member of a rule restricts it. One that is misspelt, in a wrong place or of
/// another form restricts nothing, and is not taken for a rule without it.
#[test]
fn a_mistyped_restriction_is_refused_and_named() {
    let mut bench = Bench::with_container();
    let own = r#"{"acor":["Ca"],"acop":63}"#;
    let policy =
        format!(r#"{{"m2m:acp":{{"rn":"q","pv":{{"acr":[{own}]}},"pvs":{{"acr":[{own}]}}}}}}"#);
    bench.create("Ca", "cse-in/a", ResourceType::AccessControlPolicy, &policy);
    for (member, named) in [
        (r#""acod":5"#, "acod"),
        (r#""acod":null"#, "acod"),
        (r#""acod":[]"#, "acod"),
        (r#""acod":[{}]"#, "acod"),
        (r#""acod":[{"chtx":[3]}]"#, "chtx"),
        (r#""acod":[{"ty":3,"chty":[4],"chtx":[3]}]"#, "chtx"),
        (r#""acod":[{"ty":"3"}]"#, "ty"),
        (r#""acod":[{"chty":3}]"#, "chty"),
        (r#""acod":[{"chty":["3"]}]"#, "chty"),
        (r#""acodd":[{"chty":[3]}]"#, "acodd"),
        (r#""acaa":["lbl"]"#, "acaa"),
        (r#""acat":["lbl"]"#, "acat"),
        (r#""acip":{"ipv4":["1.2.3.4"]}"#, "acip"),
        (r#""actw":["* * 22-23 * * * *"]"#, "actw"),
        (r#""acco":null"#, "acco"),
        (r#""acco":[{"actv":["* * 22-23 * * * *"]}]"#, "actv"),
        (r#""acco":[{"acip":{"ipv5":["1.2.3.4"]}}]"#, "ipv5"),
        (r#""acaf":1"#, "acaf"),
    ] {
        let rule = format!(r#"{{"acr":[{own},{{"acor":["Cb"],"acop":3,{member}}}]}}"#);
        for name in ["pv", "pvs"] {
            let other = if name == "pv" { "pvs" } else { "pv" };
            let create =
                format!(r#"{{"m2m:acp":{{"{name}":{rule},"{other}":{{"acr":[{own}]}}}}}}"#);
            let update = format!(r#"{{"m2m:acp":{{"{name}":{rule}}}}}"#);
            for refused in [
                bench.create("Ca", "cse-in/a", ResourceType::AccessControlPolicy, &create),
                bench.update("Ca", "cse-in/a/q", &update),
            ] {
                assert_eq!(refused.status.number(), 4000, "{name} {member}");
                let why = json(&refused)["m2m:dbg"].as_str().unwrap().to_owned();
                assert!(why.contains(named), "{member}: {why}");
            }
        }
    }
    let set = format!(r#"{{"m2m:acp":{{"pv":{{"acr":[],"acrr":[{own}]}}}}}}"#);
    let refused = bench.update("Ca", "cse-in/a/q", &set);
    assert!(json(&refused)["m2m:dbg"].as_str().unwrap().contains("acrr"), "{refused:?}");
    let flagged = r#"{"m2m:acp":{"pv":{"acr":[{"acor":["Cb"],"acop":3,"acaf":true}]}}}"#;
    assert_eq!(bench.update("Ca", "cse-in/a/q", flagged).status.number(), 5001);
    let unflagged = flagged.replace("true", "false");
    assert_eq!(bench.update("Ca", "cse-in/a/q", &unflagged).status.number(), 2004);
}

/// A row of an earlier version may hold such a rule: it grants nothing, and its neighbours what
/// they say.
#[test]
fn a_stored_rule_with_a_mistyped_restriction_grants_nothing() {
    for (sound, broken) in [
        (r#""acod":{"ty":3}"#, r#""acod":5"#),
        (r#""acod":{"ty":3}"#, r#""acod":{"tx":3}"#),
        (r#""acod":{"ty":3}"#, r#""acat":["lbl"]"#),
        (r#""acod":{"ty":3}"#, r#""acip":{"ipv4":["1.2.3.4"]}"#),
        (r#""acod":{"ty":3}"#, r#""acaf":true"#),
        (
            r#""acco":[{"actw":["* * * * * * *"]}]"#,
            r#""acco":[{"actw":["* * * * * * *"],"acui":[]}]"#,
        ),
    ] {
        let mut bench = Bench::with_container();
        let rule = format!(r#"{{"acor":["Cb"],"acop":2,{sound}}},{{"acor":["Cc"],"acop":2}}"#);
        govern(&mut bench, &rule);
        bench.restart();
        assert_eq!(bench.get("Cb", "cse-in/a/c").status.number(), 2000, "{sound}");
        let row = bench.rows.values_mut().find(|row| row.contains(sound)).unwrap();
        *row = row.replace(sound, broken).into();
        bench.restart();
        assert_eq!(bench.get("Cb", "cse-in/a/c").status.number(), 4103, "{broken}");
        assert_eq!(bench.get("Cc", "cse-in/a/c").status.number(), 2000, "{broken}");
    }
}

/// Asks to read `cse-in/a/c` from an address.
fn read_from(bench: &mut Bench, from: &str, source: Option<&str>) -> Request {
    let mut request = bench.request(Operation::Retrieve, from, "cse-in/a/c");
    request.source = source.map(|source| source.parse().unwrap());
    request
}

#[test]
fn a_rule_holds_for_addresses() {
    let mut bench = Bench::with_container();
    let hours = r#""actw":["* * 22-23 * * * *"]"#;
    let near = r#""acip":{"ipv4":["10.1.0.0/16","192.0.2.7"],"ipv6":["2001:db8::/32"]}"#;
    let rule = format!(
        r#"{{"acor":["all"],"acop":2,"acco":[{{{hours},{near}}},{{"acip":{{"ipv4":["10.2.0.1"]}}}}]}}"#
    );
    govern(&mut bench, &rule);
    // It begins at 22:13. Of a context all must hold, of contexts one.
    let cases = [
        (Some("10.1.255.255"), [2000, 4103]),
        (Some("192.0.2.7"), [2000, 4103]),
        (Some("::ffff:192.0.2.7"), [2000, 4103]),
        (Some("2001:db8:ffff::1"), [2000, 4103]),
        (Some("10.2.0.1"), [2000, 2000]),
        (Some("10.2.0.2"), [4103, 4103]),
        (Some("2001:db9::1"), [4103, 4103]),
        (Some("::"), [4103, 4103]),
        (None, [4103, 4103]),
    ];
    for by in [0, 1] {
        for (source, expected) in cases {
            let request = read_from(&mut bench, "Cb", source);
            assert_eq!(bench.ask(request).status.number(), expected[by], "{source:?} {by}");
        }
        bench.pass(Duration::from_hours(3));
    }
}

/// What was allowed from an address is not allowed from another because it says the same; where no
/// address is asked for, who says the same from another one is answered as before.
#[test]
fn a_repetition_comes_from_where_the_first_came() {
    let mut bench = Bench::with_container();
    bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"free"}}"#);
    govern(&mut bench, r#"{"acor":["all"],"acop":3,"acco":[{"acip":{"ipv4":["10.0.0.1"]}}]}"#);
    let mut post = |from: &str, to: &str, source: &str| {
        let request = bench.request(Operation::Create, from, to);
        let content = r#"{"m2m:cin":{"con":"1"}}"#.to_owned();
        let mut request = request.creating(ResourceType::ContentInstance, content);
        request.id = "same".to_owned();
        request.source = Some(source.parse().unwrap());
        bench.ask(request)
    };
    let first = post("Cb", "cse-in/a/c", "10.0.0.1");
    assert_eq!(first.status.number(), 2001);
    assert_eq!(post("Cb", "cse-in/a/c", "10.0.0.2").status.number(), 4103);
    assert_eq!(post("Cb", "cse-in/a/c", "10.0.0.1"), first);
    let first = post("Ca", "cse-in/a/free", "10.0.0.1");
    assert_eq!(first.status.number(), 2001);
    assert_eq!(post("Ca", "cse-in/a/free", "10.0.0.2"), first);
    assert_eq!(json(&bench.get("Ca", "cse-in/a/free"))["m2m:cnt"]["cni"], 1);
}

/// The same where the request is done later, and where only what is shown needs the address.
#[test]
fn a_repetition_of_what_was_done_later_comes_from_where_the_first_came() {
    let mut bench = Bench::with_container();
    govern(&mut bench, r#"{"acor":["Ca"],"acop":63,"acco":[{"acip":{"ipv4":["10.0.0.1"]}}]}"#);
    let from = |source: &str| {
        let mut request = Request::new(Operation::Create, "cse-in/a/c", "Ca", "same")
            .creating(ResourceType::ContentInstance, r#"{"m2m:cin":{"con":"1"}}"#);
        request.source = Some(source.parse().unwrap());
        request
    };
    let mut later = from("10.0.0.1");
    later.executes = Some(Deadline::After(Duration::from_secs(30)));
    let token = bench.ask_later(later);
    bench.now += Duration::from_secs(30);
    bench.cse.handle(bench.now, Input::Tick);
    let answers = bench.run();
    let [(answered, first)] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!((*answered, first.status.number()), (token, 2001));
    assert_eq!(bench.ask(from("10.0.0.2")).status.number(), 4103);
    assert_eq!(bench.ask(from("10.0.0.1")), *first);
}

#[test]
fn a_repeated_deletion_shows_what_was_shown_where_the_first_came_from_alone() {
    let near = r#""acco":[{"acip":{"ipv4":["10.0.0.1"]}}]"#;
    let rules =
        format!(r#"{{"acor":["Cb"],"acop":{DELETE}}},{{"acor":["Cb"],"acop":{RETRIEVE},{near}}}"#);
    for (first, second) in [("10.0.0.1", "10.0.0.2"), ("10.0.0.2", "10.0.0.1")] {
        let mut bench = Bench::with_container();
        bench.reading("one", "secret");
        govern(&mut bench, &rules);
        let mut delete = |source: &str| {
            let mut request = Request::new(Operation::Delete, "cse-in/a/c", "Cb", "same");
            request.set("rcn", "8").unwrap();
            request.source = Some(source.parse().unwrap());
            bench.ask(request)
        };
        let is_near = first == "10.0.0.1";
        let deleted = delete(first);
        assert_eq!(deleted.status.number(), 2002);
        let content = deleted.content.as_deref().unwrap_or_default();
        assert_eq!(content.contains("secret"), is_near, "{content}");
        let again = delete(second);
        // What needed no address is known again from another one.
        assert_eq!(again.status.number(), if is_near { 4004 } else { 2002 }, "{again:?}");
        assert_eq!(delete(first), deleted);
    }
}

/// What a CSE sends on comes from where that is, and not from where its originator is.
#[test]
fn an_address_is_its_senders_alone() {
    let mut config = crate::bench::config();
    config.admitted_cses = vec!["/id-mn".to_owned()];
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    govern(&mut bench, r#"{"acor":["all"],"acop":3,"acco":[{"acip":{"ipv4":["10.0.0.1"]}}]}"#);
    let here = Some("10.0.0.1");
    for (from, sponsor, expected) in [
        ("Cb", None, 2000),
        ("/id-in/Cb", None, 2000),
        ("/id-mn", None, 2000),
        ("/id-mn/Cb", None, 4103),
        ("//other.example/id-mn/Cb", None, 4103),
        ("Cphd-1", Some("/id-mn"), 4106),
    ] {
        let mut request = read_from(&mut bench, from, here);
        request.sponsor = sponsor.map(Into::into);
        assert_eq!(bench.ask(request).status.number(), expected, "{from}");
    }
    // A device that the CSE brought here is there where the CSE is not.
    let brought = |request: &mut Request| request.sponsor = Some("/id-mn".into());
    let ae = r#"{"m2m:ae":{"rn":"d","api":"Nx","rr":false,"srv":["4"]}}"#;
    let mut registration = bench
        .request(Operation::Create, "Cphd-1", "cse-in")
        .creating(ResourceType::ApplicationEntity, ae);
    brought(&mut registration);
    assert_eq!(bench.ask(registration).status.number(), 2001);
    let mut request = read_from(&mut bench, "Cphd-1", here);
    brought(&mut request);
    assert_eq!(bench.ask(request).status.number(), 4103);
}

/// The members of a group are asked by its originator, from where it is; what is done later, too.
#[test]
fn an_address_stays_with_its_request() {
    let mut bench = Bench::with_container();
    govern(&mut bench, r#"{"acor":["Ca"],"acop":63,"acco":[{"acip":{"ipv4":["10.0.0.1"]}}]}"#);
    let group = r#"{"m2m:grp":{"rn":"g","mnm":2,"mid":["cse-in/a/c","cse-in/a"]}}"#;
    let mut request =
        bench.request(Operation::Create, "Ca", "cse-in/a").creating(ResourceType::Group, group);
    request.source = Some("10.0.0.1".parse().unwrap());
    assert_eq!(bench.ask(request).status.number(), 2001);
    for (source, expected) in [(Some("10.0.0.1"), 2000), (Some("10.0.0.2"), 4103), (None, 4103)] {
        let mut request = read_from(&mut bench, "Ca", source);
        request.to = "cse-in/a/g/fopt".to_owned();
        let answers = json(&bench.ask(request));
        let answers = answers["m2m:agr"]["m2m:rsp"].as_array().unwrap();
        assert_eq!((&answers[0]["rsc"], &answers[1]["rsc"]), (&expected.into(), &2000.into()));
        let mut request = read_from(&mut bench, "Ca", source);
        request.response_type = ResponseType::NonBlockingSynchronous;
        let accepted = json(&bench.ask(request));
        let kept = bench.get("Ca", accepted["m2m:uri"].as_str().unwrap());
        assert_eq!(json(&kept)["m2m:req"]["ors"]["rsc"], expected);
    }
    // Nothing of a request's own can say where it comes from.
    let text = r#"{"op":2,"to":"cse-in/a/c","fr":"Ca","rqi":"s","rvi":"4","source":"10.0.0.1"}"#;
    let (_, refusal) = Request::from_json(text.as_bytes()).unwrap_err();
    assert_eq!(refusal.status.number(), 4000);
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

/// Who may only discover learns nothing of what a retrieval would show.
#[test]
fn criteria_tell_nothing_that_may_not_be_retrieved() {
    for (granted, sees) in [(DISCOVER, false), (DISCOVER | RETRIEVE, true)] {
        let mut bench = Bench::with_container();
        let update = r#"{"m2m:cnt":{"mni":9}}"#;
        assert_eq!(bench.update("Ca", "cse-in/a/c", update).status.number(), 2004);
        let readings = [r#""con":"72","cnf":"text/plain:0""#, r#""con":{"pulse":72}"#];
        for reading in readings {
            let content = format!(r#"{{"m2m:cin":{{{reading}}}}}"#);
            bench.create("Ca", "cse-in/a/c", ResourceType::ContentInstance, &content);
        }
        govern(&mut bench, &format!(r#"{{"acor":["Cb"],"acop":{granted}}}"#));
        let mut finds = |criteria: &str| {
            !found(&bench.get("Cb", &format!("cse-in/a/c?fu=1&{criteria}"))).is_empty()
        };
        for criterion in ["atr=con,7*", "cty=text/plain", "cfs=1&cfq=$.pulse", "patr=mni,9"] {
            assert_eq!(finds(criterion), sees, "{criterion} with {granted}");
            // Of two conditions, the one that holds anyway is enough for `or`.
            assert!(finds(&format!("{criterion}&ty=4&fo=2")), "{criterion} or ty");
        }
    }
}

/// Nor by what its parent and children are, where it may not even discover these.
#[test]
fn criteria_tell_nothing_of_relatives_that_may_not_be_seen() {
    let mut bench = Bench::with_container();
    govern(&mut bench, r#"{"acor":["Ca","Cb"],"acop":63}"#);
    let shared = json(&bench.get("CAdmin", "cse-in/a/p"));
    let shared = shared["m2m:acp"]["ri"].as_str().unwrap().to_owned();
    let rules = r#"{"m2m:acp":{"rn":"q","pv":{"acr":[{"acor":["Ca"],"acop":63}]},
        "pvs":{"acr":[{"acor":["Ca"],"acop":63}]}}}"#;
    let own = json(&bench.create("Ca", "cse-in/a", ResourceType::AccessControlPolicy, rules));
    let own = own["m2m:acp"]["ri"].as_str().unwrap();
    // c, open > d, open > e, closed > f, open.
    for (below, name, policy) in [("c", "d", &*shared), ("c/d", "e", own), ("c/d/e", "f", &shared)]
    {
        let content = format!(
            r#"{{"m2m:cnt":{{"rn":"{name}","lbl":["{name}"],"mni":9,"acpi":["{policy}"]}}}}"#
        );
        let made =
            bench.create("Ca", &format!("cse-in/a/{below}"), ResourceType::Container, &content);
        assert_eq!(made.status.number(), 2001, "{made:?}");
    }
    for (criteria, names) in [
        ("lbl=d&catr=mni,9", ["cse-in/a/c/d"]),
        ("lbl=d&clbl=e", ["cse-in/a/c/d"]),
        ("lbl=d&chty=3", ["cse-in/a/c/d"]),
        ("lbl=f&patr=mni,9", ["cse-in/a/c/d/e/f"]),
        ("lbl=f&palb=e", ["cse-in/a/c/d/e/f"]),
        ("lbl=f&pty=3", ["cse-in/a/c/d/e/f"]),
    ] {
        let question = format!("cse-in/a/c?fu=1&{criteria}");
        assert_eq!(found(&bench.get("Ca", &question)), names, "{criteria}");
        assert!(found(&bench.get("Cb", &question)).is_empty(), "{criteria}");
    }
}

/// What subscribers are told of shows no more than they may retrieve at that moment.
#[test]
fn a_notification_shows_what_its_subscriber_may_see() {
    for (granted, told) in [(63, "m2m:cnt"), (DISCOVER, "m2m:uri"), (CREATE, "")] {
        let mut bench = Bench::with_container();
        govern(&mut bench, r#"{"acor":["Ca","Cb"],"acop":63}"#);
        let rules = format!(
            r#"{{"m2m:acp":{{"rn":"q","pv":{{"acr":[{{"acor":["Cb"],"acop":{granted}}}]}},
                "pvs":{{"acr":[{{"acor":["Ca"],"acop":63}}]}}}}}}"#
        );
        let policy =
            json(&bench.create("Ca", "cse-in/a", ResourceType::AccessControlPolicy, &rules));
        let policy = policy["m2m:acp"]["ri"].as_str().unwrap().to_owned();
        let subscription = r#"{"m2m:sub":{"rn":"s","nu":["http://there:1/n"],"enc":{"net":[3]}}}"#;
        let request = bench
            .request(Operation::Create, "Cb", "cse-in/a/c")
            .creating(ResourceType::Subscription, subscription);
        bench.ask_later(request);
        let asked = bench.calls();
        assert_eq!(bench.reply(&asked[0], Status::Ok)[0].1.status, Status::Created);
        let child = format!(r#"{{"m2m:cnt":{{"acpi":["{policy}"],"lbl":["secret"]}}}}"#);
        let made = bench.create("Ca", "cse-in/a/c", ResourceType::Container, &child);
        assert_eq!(made.status.number(), 2001, "{made:?}");
        let calls = bench.calls();
        let shown: Vec<String> = calls
            .iter()
            .map(|call| {
                let content = call.request.content.as_deref().unwrap();
                assert_eq!(content.contains("secret"), granted == 63, "{content}");
                let content: serde_json::Value = serde_json::from_str(content).unwrap();
                let shown = content["m2m:sgn"]["nev"]["rep"].as_object().unwrap();
                shown.keys().cloned().collect()
            })
            .collect();
        assert_eq!(shown.concat(), told);
        assert_eq!(bench.cse.counters().notifications_withheld, u64::from(told.is_empty()));
    }
}

/// TS-0004 §7.3.3.9.2, §7.5.1.1: over HTTP a creation without `ty` is a notification. It is not one
/// by its content, and those who may not notify this CSE are told so.
#[test]
fn what_is_no_notification_is_not_taken_for_one() {
    let mut bench = Bench::with_container();
    let mut notify = |from: &str, content: Option<&str>| {
        let mut request = bench.request(Operation::Notify, from, "cse-in");
        request.content = content.map(Into::into);
        bench.ask(request).status.number()
    };
    let entity = r#"{"m2m:ae":{"rn":"b","api":"Nb","rr":false,"srv":["4"]}}"#;
    for content in [Some(entity), Some("{}"), Some("[]"), Some("1"), None] {
        assert_eq!(notify("Cb", content), 4000, "{content:?}");
        assert_eq!(notify("CAdmin", content), 4000, "{content:?}");
    }
    let verification = Some(r#"{"m2m:sgn":{"vrq":true,"sur":"/id-mn/sub1"}}"#);
    assert_eq!(notify("Cstranger", verification), 4103);
    assert_eq!(notify("Ca", verification), 4103);
    assert_eq!(notify("CAdmin", verification), 5001, "nothing here waits for one");
}

/// TS-0001 §9.6.1.3.2: acpi lists policies.
#[test]
fn what_names_no_policy_governs_nothing() {
    let mut bench = Bench::with_container();
    let policy = r#"{"m2m:acp":{"rn":"p","pv":{"acr":[{"acor":["Cb"],"acop":2}]},
        "pvs":{"acr":[{"acor":["Ca"],"acop":63}]}}}"#;
    bench.create("Ca", "cse-in/a", ResourceType::AccessControlPolicy, policy);
    for (named, status) in [
        (r#"["cse-in/a/nothing"]"#, 4000),
        (r#"["acp99"]"#, 4000),
        (r#"["cse-in/a/c"]"#, 4000),
        (r#"["cse-in/a/c/la"]"#, 4000),
        (r#"["/id-mn/acp1"]"#, 4000),
        (r#"["cse-in/a/p","cse-in/a/c"]"#, 4000),
        (r#"["cse-in/a/p","/id-mn/acp1"]"#, 2004),
        (r#"["/id-in/cse-in/a/p"]"#, 2004),
        (r#"["cse-in/a/p"]"#, 2004),
    ] {
        let update = format!(r#"{{"m2m:cnt":{{"acpi":{named}}}}}"#);
        let updated = bench.update("Ca", "cse-in/a/c", &update).status.number();
        assert_eq!(updated, status, "{named}");
        let create = format!(r#"{{"m2m:cnt":{{"acpi":{named}}}}}"#);
        let made = bench.create("Ca", "cse-in/a", ResourceType::Container, &create).status.number();
        assert_eq!(made, if status == 2004 { 2001 } else { status }, "{named}");
        let group = format!(r#"{{"m2m:grp":{{"mnm":1,"mid":["cse-in/a"],"macp":{named}}}}}"#);
        let made = bench.create("Ca", "cse-in/a", ResourceType::Group, &group).status.number();
        assert_eq!(made, if status == 2004 { 2001 } else { status }, "{named}");
    }
    assert_eq!(bench.get("Ca", "cse-in/a/c").status.number(), 4103);
    // No administrator is needed to get at what a policy governed that is gone.
    assert_eq!(bench.delete("Ca", "cse-in/a/p").status.number(), 2002);
    assert_eq!(bench.get("Ca", "cse-in/a/c").status.number(), 2000);
    assert_eq!(bench.get("Cb", "cse-in/a/c").status.number(), 4103);
    let none = r#"{"m2m:cnt":{"acpi":null}}"#;
    assert_eq!(bench.update("Cb", "cse-in/a/c", none).status.number(), 4103);
    assert_eq!(bench.update("Ca", "cse-in/a/c", none).status.number(), 2004);
}

/// TS-0004 §7.4.21.2: retrieved, updated and deleted by its AE alone, whatever the AE's policies say.
#[test]
fn a_polling_channel_is_its_entitys_own() {
    let mut bench = Bench::with_container();
    let channel = r#"{"m2m:pch":{"rn":"ch"}}"#;
    assert_eq!(
        bench.create("Ca", "cse-in/a", ResourceType::PollingChannel, channel).status.number(),
        2001
    );
    let policy = r#"{"m2m:acp":{"rn":"p","pv":{"acr":[{"acor":["all"],"acop":63}]},
        "pvs":{"acr":[{"acor":["Ca"],"acop":63}]}}}"#;
    bench.create("Ca", "cse-in/a", ResourceType::AccessControlPolicy, policy);
    bench.update("Ca", "cse-in/a", r#"{"m2m:ae":{"acpi":["cse-in/a/p"]}}"#);
    assert_eq!(bench.get("Cb", "cse-in/a").status.number(), 2000);
    assert!(!found(&bench.get("Cb", "cse-in/a?fu=1")).contains(&"cse-in/a/ch".to_owned()));
    let update = r#"{"m2m:pch":{"lbl":["x"]}}"#;
    for (from, read, updated, deleted) in [("Cb", 4103, 4103, 4103), ("Ca", 2000, 2004, 2002)] {
        assert_eq!(bench.get(from, "cse-in/a/ch").status.number(), read);
        assert_eq!(bench.update(from, "cse-in/a/ch", update).status.number(), updated);
        assert_eq!(bench.delete(from, "cse-in/a/ch").status.number(), deleted);
    }
}

/// TS-0004 §7.4.7.2.2 and §7.4.7.2.4, TS-0001 §9.6.6 (disableRetrieval).
#[test]
fn hidden_instances_are_neither_deleted_nor_ever_shown() {
    let mut bench = Bench::with_container();
    bench.update("Ca", "cse-in/a/c", r#"{"m2m:cnt":{"disr":true}}"#);
    bench.reading("one", "1");
    bench.reading("two", "2");
    for to in ["cse-in/a/c/one", "cse-in/a/c/la", "cse-in/a/c/ol"] {
        assert_eq!(bench.get("Ca", to).status.number(), 4005, "{to}");
        assert_eq!(bench.delete("Ca", to).status.number(), 4005, "{to}");
    }
    bench.update("Ca", "cse-in/a/c", r#"{"m2m:cnt":{"lbl":["x"]}}"#);
    assert_eq!(json(&bench.get("Ca", "cse-in/a/c"))["m2m:cnt"]["cni"], 2);
    for shown in ["false", "null"] {
        bench.update("Ca", "cse-in/a/c", r#"{"m2m:cnt":{"disr":true}}"#);
        bench.reading("three", "3");
        bench.update("Ca", "cse-in/a/c", &format!(r#"{{"m2m:cnt":{{"disr":{shown}}}}}"#));
        assert_eq!(json(&bench.get("Ca", "cse-in/a/c"))["m2m:cnt"]["cni"], 0, "{shown}");
        assert_eq!(bench.get("Ca", "cse-in/a/c/la").status.number(), 4004);
    }
    bench.reading("four", "4");
    assert_eq!(bench.get("Ca", "cse-in/a/c/four").status.number(), 2000);
}
