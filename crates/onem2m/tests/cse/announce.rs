//! Announcements: what an MN-CSE says of its resources at its IN-CSE, and the IN-CSE's side.

use crate::bench::{Bench, config, found, json};
use core::time::Duration;
use gatewright_onem2m::{
    CseConfig, CseType, Input, Operation, Registrar, Request, ResourceType, Response, Status,
};
use serde_json::{Value, json};

/// An MN-CSE registered at an IN-CSE.
struct Pair {
    middle: Bench,
    above: Bench,
}

fn middle() -> CseConfig {
    let mut config = CseConfig::new(CseType::Middle, "/id-mn", "cse-mn");
    config.admin = Some("CAdmin".to_owned());
    config.registrar = Some(Registrar {
        cse_id: "/id-in".to_owned(),
        name: "cse-in".to_owned(),
        url: "http://in".to_owned(),
    });
    config
}

fn above() -> Bench {
    let mut config = config();
    config.admitted_cses = vec!["/id-mn".to_owned()];
    Bench::with(config)
}

impl Pair {
    fn new() -> Self {
        let mut pair = Self { middle: Bench::with(middle()), above: above() };
        pair.carry();
        assert!(pair.middle.cse.is_registered_at_registrar());
        let entity = r#"{"m2m:ae":{"rn":"a","api":"Nx","rr":false,"srv":["4"]}}"#;
        let made = pair.middle.create("Ca", "cse-mn", ResourceType::ApplicationEntity, entity);
        assert_eq!(made.status.number(), 2001);
        pair
    }

    /// Brings what the MN sends to the IN and the answers back, until nothing is left.
    fn carry(&mut self) -> Vec<Request> {
        let mut carried = Vec::new();
        loop {
            let calls = self.middle.calls();
            if calls.is_empty() {
                return carried;
            }
            for call in calls {
                let response = self.above.ask((*call.request).clone());
                let answer = Input::Answer { call: call.id, answer: Ok(response) };
                self.middle.cse.handle(self.middle.now, answer);
                self.middle.run();
                carried.push((*call.request).clone());
            }
        }
    }

    fn create(&mut self, to: &str, resource_type: ResourceType, content: &str) -> Value {
        let made = self.middle.create("Ca", to, resource_type, content);
        assert_eq!(made.status.number(), 2001, "{made:?}");
        self.carry();
        inner(&made)
    }

    fn update(&mut self, to: &str, content: &str) -> Vec<Request> {
        let changed = self.middle.update("Ca", to, content);
        assert_eq!(changed.status.number(), 2004, "{changed:?}");
        self.carry()
    }

    /// What the IN has at `path` below the MN's announcement.
    fn announced(&mut self, path: &str) -> Value {
        let found = self.above.get("CAdmin", &format!("cse-in/id-mn_Annc{path}"));
        if found.status == Status::Ok { inner(&found) } else { json!(found.status.number()) }
    }

    /// A container `cse-mn/a/c`, announced with its most instances: its identifier.
    fn container(&mut self) -> String {
        let policy = r#"{"m2m:acp":{"rn":"p","pv":{"acr":[{"acor":["Ca"],"acop":63}]},
            "pvs":{"acr":[{"acor":["CAdmin"],"acop":63}]}}}"#;
        let made =
            self.middle.create("CAdmin", "cse-mn", ResourceType::AccessControlPolicy, policy);
        assert_eq!(made.status.number(), 2001, "{made:?}");
        let content = r#"{"m2m:cnt":{"rn":"c","lbl":["x"],"mni":2,"at":["/id-in"],"aa":["mni"],
            "acpi":["cse-mn/p","/id-in/acp2"]}}"#;
        let made = self.middle.create("CAdmin", "cse-mn/a", ResourceType::Container, content);
        assert_eq!(made.status.number(), 2001, "{made:?}");
        self.carry();
        inner(&made)["ri"].as_str().unwrap().to_owned()
    }
}

fn inner(response: &Response) -> Value {
    json(response).as_object().unwrap().values().next().unwrap().clone()
}

#[test]
fn a_resource_is_known_above_below_its_cse() {
    let mut pair = Pair::new();
    let id = pair.container();
    let base = pair.announced("");
    assert_eq!((&base["ty"], &base["lnk"]), (&json!(10_005), &json!("/id-mn/id-mn")));
    let announced = pair.announced(&format!("/{id}"));
    let expected = json!({ "ty": 10_003, "lnk": format!("/id-mn/{id}"), "lbl": ["x"], "mni": 2,
        "acpi": ["/id-mn/cse-mn/p", "/id-in/acp2"] });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&announced[name], value, "{name}");
    }
    assert!(announced["mbs"].is_null() && announced["cni"].is_null());
    let original = inner(&pair.middle.get("CAdmin", "cse-mn/a/c"));
    assert_eq!(original["at"], json!([format!("/id-in/-/id-mn_Annc/{id}")]));
    assert_eq!(original["et"], announced["et"]);
    let all = pair.above.get("CAdmin", "cse-in?fu=1&ty=10003&lbl=x");
    assert_eq!(found(&all), [format!("cse-in/id-mn_Annc/{id}")]);
    assert_eq!(pair.middle.cse.messages_waiting(), 0);
}

#[test]
fn instances_are_announced_with_their_container_and_go_with_them() {
    let mut pair = Pair::new();
    let id = pair.container();
    let mut ids = Vec::new();
    for number in 0..3 {
        let content =
            format!(r#"{{"m2m:cin":{{"con":"v{number}","at":["/id-in"],"aa":["con"]}}}}"#);
        let made =
            pair.middle.create("CAdmin", "cse-mn/a/c", ResourceType::ContentInstance, &content);
        ids.push(inner(&made)["ri"].as_str().unwrap().to_owned());
        pair.carry();
    }
    // The first was the one too many.
    assert_eq!(pair.announced(&format!("/{id}/{}", ids[0])), json!(4004));
    let last = pair.announced(&format!("/{id}/{}", ids[2]));
    assert_eq!((&last["con"], &last["ty"]), (&json!("v2"), &json!(10_004)));
    // All go by one word when the container goes.
    let deleted = pair.middle.delete("CAdmin", "cse-mn/a/c");
    assert_eq!(deleted.status.number(), 2002);
    let told = pair.carry();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(pair.announced(&format!("/{id}")), json!(4004));
    assert_eq!(pair.announced("")["ty"], 10_005);
    // Where its container is not announced, an instance has no place.
    let plain = pair.create("cse-mn/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"d"}}"#);
    assert!(plain["at"].is_null());
    let alone = r#"{"m2m:cin":{"con":"v","at":["/id-in"]}}"#;
    assert!(pair.create("cse-mn/a/d", ResourceType::ContentInstance, alone)["at"].is_null());
}

#[test]
fn what_is_below_an_announced_resource_is_announced_below_it() {
    let mut pair = Pair::new();
    let update = r#"{"m2m:ae":{"at":["/id-in"],"aa":["api","apn"]}}"#;
    pair.update("cse-mn/a", update);
    assert_eq!(pair.announced("/Ca")["api"], "Nx");
    let id = pair.container();
    assert_eq!(pair.announced(&format!("/Ca/{id}"))["ty"], 10_003);
    let flex = r#"{"cod:oximr":{"rn":"f","cnd":"x.y","oxySn":96,"at":["/id-in"],"aa":["oxySn"]}}"#;
    let flex = pair.create("cse-mn/a", ResourceType::FlexContainer, flex);
    let flex = flex["ri"].as_str().unwrap();
    let found = pair.above.get("CAdmin", &format!("cse-in/id-mn_Annc/Ca/{flex}"));
    assert_eq!(json(&found)["cod:oximrAnnc"]["oxySn"], 96, "{found:?}");
    let deleted = pair.middle.delete("CAdmin", "cse-mn/a");
    assert_eq!(deleted.status.number(), 2002);
    assert_eq!(pair.carry().len(), 1);
    assert_eq!(pair.announced("/Ca"), json!(4004));
}

#[test]
fn announced_attributes_follow_their_original() {
    let mut pair = Pair::new();
    pair.update("cse-mn/a", r#"{"m2m:ae":{"at":["/id-in"],"aa":["apn"]}}"#);
    assert!(pair.announced("/Ca")["apn"].is_null());
    pair.update("cse-mn/a", r#"{"m2m:ae":{"apn":"one","or":"x","lbl":["l"]}}"#);
    let announced = pair.announced("/Ca");
    assert_eq!((&announced["apn"], &announced["lbl"]), (&json!("one"), &json!(["l"])));
    assert!(announced["or"].is_null());
    // What nobody above is shown makes no noise there.
    assert_eq!(pair.update("cse-mn/a", r#"{"m2m:ae":{"or":"y"}}"#).len(), 0);
    pair.update("cse-mn/a", r#"{"m2m:ae":{"aa":["or"],"lbl":null}}"#);
    let announced = pair.announced("/Ca");
    assert_eq!(announced["or"], "y");
    assert!(announced["apn"].is_null() && announced["lbl"].is_null(), "{announced}");
    pair.update("cse-mn/a", r#"{"m2m:ae":{"at":null}}"#);
    assert_eq!(pair.announced("/Ca"), json!(4004));
}

#[test]
fn announcements_wait_for_a_cse_that_is_away_and_over_a_restart() {
    let mut pair = Pair::new();
    let content = r#"{"m2m:cnt":{"rn":"c","at":["/id-in"],"aa":["mni"]}}"#;
    let made = pair.middle.create("Ca", "cse-mn/a", ResourceType::Container, content);
    let id = inner(&made)["ri"].as_str().unwrap().to_owned();
    for call in pair.middle.calls() {
        pair.middle.away(&call);
    }
    assert_eq!(
        pair.middle.update("Ca", "cse-mn/a/c", r#"{"m2m:cnt":{"mni":7}}"#).status.number(),
        2004
    );
    // Another start has another time: its requests have other identifiers.
    pair.middle.now += Duration::from_millis(1);
    pair.middle.cse = pair.middle.reopened();
    pair.middle.run();
    pair.carry();
    pair.middle.pass(Duration::from_mins(2));
    pair.carry();
    assert_eq!(pair.announced(&format!("/{id}"))["mni"], 7);
    assert_eq!(pair.middle.cse.messages_waiting(), 0);
}

#[test]
fn a_cse_above_that_forgot_everything_is_told_again() {
    let mut pair = Pair::new();
    let id = pair.container();
    pair.above = above();
    // It is noticed when the registration is looked at.
    for _ in 0..4 {
        pair.middle.pass(Duration::from_secs(31));
        pair.carry();
    }
    assert_eq!(pair.announced(&format!("/{id}"))["lnk"], format!("/id-mn/{id}"));
    // One announcement alone is missed when it is to be changed.
    let gone = pair.above.delete("CAdmin", &format!("cse-in/id-mn_Annc/{id}"));
    assert_eq!(gone.status.number(), 2002);
    let changed = pair.middle.update("CAdmin", "cse-mn/a/c", r#"{"m2m:cnt":{"mni":9}}"#);
    assert_eq!(changed.status.number(), 2004);
    pair.carry();
    assert_eq!(pair.announced(&format!("/{id}"))["mni"], 9);
}

#[test]
fn the_original_is_fetched_through_its_announcement() {
    let mut pair = Pair::new();
    let id = pair.container();
    let entry = r#"{"m2m:csr":{"rr":true,"poa":["http://mn"]}}"#;
    assert_eq!(pair.above.update("CAdmin", "cse-in/id-mn", entry).status.number(), 2004);
    let to = format!("cse-in/id-mn_Annc/{id}");
    let mut request = pair.above.request(Operation::Retrieve, "CAdmin", &to);
    request.set("rcn", "7").unwrap();
    pair.above.ask_later(request);
    let onward = pair.above.calls().pop().unwrap();
    assert_eq!(onward.request.to, format!("/id-mn/{id}"));
    assert_eq!(onward.urls, ["http://mn"]);
}

#[test]
fn who_may_announce_and_what() {
    let mut pair = Pair::new();
    pair.above.register("Cb", "b");
    let content = r#"{"m2m:cbA":{"lnk":"/id-b/x","srv":["4"]}}"#;
    let by_entity = pair.above.create("Cb", "cse-in", ResourceType::CseBaseAnnc, content);
    assert_eq!(by_entity.status.number(), 4103);
    let linkless = pair.above.create(
        "/id-mn",
        "cse-in",
        ResourceType::CseBaseAnnc,
        r#"{"m2m:cbA":{"srv":["4"]}}"#,
    );
    assert_eq!(linkless.status.number(), 4000);
    // As acmecse announces itself.
    let content = r#"{"m2m:cbA":{"et":null,"lnk":"/id-mn/id-mn","srv":["4"]}}"#;
    let made = pair.above.create("/id-mn", "/id-in/-", ResourceType::CseBaseAnnc, content);
    assert_eq!(made.status.number(), 2001, "{made:?}");
    let cases = [
        (r#"{"m2m:cnt":{"at":["/id-mn"]}}"#, 4000),
        (r#"{"m2m:cnt":{"at":["http://in"]}}"#, 4000),
        (r#"{"m2m:cnt":{"at":["//other/id-in"]}}"#, 4000),
        (r#"{"m2m:cnt":{"at":["/id-in"],"ast":2}}"#, 5001),
    ];
    for (content, status) in cases {
        let refused = pair.middle.create("Ca", "cse-mn/a", ResourceType::Container, content);
        assert_eq!(refused.status.number(), status, "{content}");
    }
    // Attributes that are never announced are left out.
    for (given, kept) in [
        (r#"["cni"]"#, json!(null)),
        (r#"["pei","nonsense"]"#, json!(null)),
        (r#"["cni","mni"]"#, json!(["mni"])),
    ] {
        let content = format!(r#"{{"m2m:cnt":{{"at":["/id-in"],"aa":{given}}}}}"#);
        let made = pair.middle.create("Ca", "cse-mn/a", ResourceType::Container, &content);
        assert_eq!((made.status.number(), &inner(&made)["aa"]), (2001, &kept), "{given}");
        let to = format!("cse-mn/a/{}", inner(&made)["rn"].as_str().unwrap());
        let content = format!(r#"{{"m2m:cnt":{{"aa":{given}}}}}"#);
        let changed = pair.middle.update("Ca", &to, &content);
        assert_eq!((changed.status.number(), &inner(&changed)["aa"]), (2004, &kept), "{given}");
    }
}

#[test]
fn an_announcement_that_is_refused_for_good_is_none() {
    let mut pair = Pair::new();
    let content = r#"{"m2m:cnt":{"rn":"c","at":["/id-in"]}}"#;
    let made = pair.middle.create("Ca", "cse-mn/a", ResourceType::Container, content);
    assert_eq!(made.status.number(), 2001);
    for status in [Status::Created, Status::BadRequest] {
        let call = pair.middle.calls().remove(0);
        pair.middle.reply(&call, status);
    }
    assert!(inner(&pair.middle.get("Ca", "cse-mn/a/c"))["at"].is_null());
    assert_eq!(pair.middle.cse.counters().messages_refused, 1);
    let rows: Vec<_> = pair.middle.cse.rows().collect();
    let again: Vec<_> = pair.middle.reopened().rows().collect();
    assert_eq!(rows, again);
}

/// A CSE above that does not know this one, or does not let it create yet, loses nothing.
#[test]
fn a_message_is_kept_for_a_cse_that_does_not_let_it_in_yet() {
    use gatewright_onem2m::{OutboxMessage, Token};
    let mut pair = Pair::new();
    let request = Request::new(Operation::Create, "/id-in/cse-in/c", "/id-mn", "l1")
        .creating(ResourceType::ContentInstance, r#"{"m2m:cin":{"con":"1"}}"#);
    let message = OutboxMessage {
        queue: "device".into(),
        target: "http://in".into(),
        request: request.into(),
        keep: Some(Duration::from_hours(24)),
        batch: None,
    };
    pair.middle.cse.handle(pair.middle.now, Input::Post { token: Token(900), message });
    pair.middle.run();
    let refusals = [Status::OriginatorHasNoPrivilege, Status::OriginatorHasNotRegistered];
    for (count, status) in (1..).zip(refusals) {
        let call = pair.middle.calls().pop().expect("it is tried again");
        assert_eq!(call.request.id, "l1");
        pair.middle.reply(&call, status);
        assert_eq!(pair.middle.cse.counters().messages_unauthorised, count);
        assert_eq!(pair.middle.cse.messages_waiting(), 1);
        let (queues, held) = pair.middle.cse.held();
        let held = held.expect("an operator is told why");
        assert_eq!((queues, held.status, &*held.from), (1, status, "/id-mn"));
        if status == Status::OriginatorHasNotRegistered {
            // It registers again without waiting for its next look.
            let registering = pair.middle.calls();
            assert!(
                registering
                    .iter()
                    .any(|call| call.request.resource_type == Some(ResourceType::RemoteCse))
            );
        }
        pair.middle.pass(Duration::from_secs(2));
    }
    let call = pair.middle.calls().pop().expect("and again");
    pair.middle.reply(&call, Status::Created);
    assert_eq!(pair.middle.cse.messages_waiting(), 0);
    assert_eq!(pair.middle.cse.held(), (0, None));
    assert_eq!(pair.middle.cse.counters().messages_refused, 0);
}

/// TS-0004 §7.3.3.10: what is announced is in a format that means the same at the other CSE
/// (TS-0001 §7.2). `Ca` there would be another AE of this name.
#[test]
fn an_announced_policy_names_the_same_originators_everywhere() {
    let mut pair = Pair::new();
    let originators = r#"["Ca","C*","grp7","/id-in/Cx","all","*"]"#;
    let content = format!(
        r#"{{"m2m:acp":{{"rn":"p","at":["/id-in"],"pv":{{"acr":[{{"acor":{originators},"acop":2}}]}},
            "pvs":{{"acr":[{{"acor":["CAdmin"],"acop":63}}]}}}}}}"#
    );
    let made = pair.middle.create("CAdmin", "cse-mn", ResourceType::AccessControlPolicy, &content);
    assert_eq!(made.status.number(), 2001, "{made:?}");
    pair.carry();
    let id = inner(&made)["ri"].as_str().unwrap().to_owned();
    let announced = pair.announced(&format!("/{id}"));
    assert_eq!(
        announced["pv"]["acr"][0]["acor"],
        json!(["/id-mn/Ca", "/id-mn/C*", "/id-mn/grp7", "/id-in/Cx", "all", "*"])
    );
    assert_eq!(announced["pvs"]["acr"][0]["acor"], json!(["/id-mn/CAdmin"]));
    let update = r#"{"m2m:acp":{"pv":{"acr":[{"acor":["Cb"],"acop":2}]}}}"#;
    assert_eq!(pair.middle.update("CAdmin", "cse-mn/p", update).status.number(), 2004);
    pair.carry();
    let announced = pair.announced(&format!("/{id}"));
    assert_eq!(announced["pv"]["acr"][0]["acor"], json!(["/id-mn/Cb"]));
}

/// An identifier of an announced AE is SP-relative, too.
#[test]
fn an_announced_entity_says_whose_it_is() {
    let mut pair = Pair::new();
    pair.update("cse-mn/a", r#"{"m2m:ae":{"at":["/id-in"],"aa":["aei","apn"],"apn":"x"}}"#);
    let announced = pair.announced("/Ca");
    assert_eq!((&announced["aei"], &announced["apn"]), (&json!("/id-mn/Ca"), &json!("x")));
}

/// TS-0001 §7.2: what an entity of another CSE is told leads here from there.
#[test]
fn addresses_for_others_are_sp_relative() {
    let mut pair = Pair::new();
    let open = r#"{"m2m:acp":{"rn":"open","pv":{"acr":[{"acor":["/id-mn/*","Cx"],"acop":63}]},
        "pvs":{"acr":[{"acor":["CAdmin"],"acop":63}]}}}"#;
    let above = &mut pair.above;
    above.create("CAdmin", "cse-in", ResourceType::AccessControlPolicy, open);
    let container = r#"{"m2m:cnt":{"rn":"c","acpi":["cse-in/open"]}}"#;
    let made = above.create("CAdmin", "cse-in", ResourceType::Container, container);
    assert_eq!(made.status.number(), 2001, "{made:?}");
    above.create("CAdmin", "cse-in/c", ResourceType::ContentInstance, r#"{"m2m:cin":{"rn":"i"}}"#);
    let id = inner(&above.get("Cx", "cse-in/c/i"))["ri"].as_str().unwrap().to_owned();
    for (from, before) in [("Cx", ""), ("/id-in/Cx", ""), ("/id-mn/Ca", "/id-in/")] {
        let path = format!("{before}cse-in/c/i");
        assert_eq!(found(&above.get(from, "cse-in/c?fu=1")), [&*path]);
        let by_id = found(&above.get(from, "cse-in/c?fu=1&drt=2"));
        assert_eq!(by_id, [format!("{before}{id}")]);
        assert_eq!(inner(&above.get(from, "cse-in/c?rcn=6"))["rrf"][0]["val"], json!(path));
        assert_eq!(inner(&above.get(from, "cse-in/c?rcn=5"))["ch"][0]["val"], json!(path));
        let mut request = above.request(Operation::Create, from, "cse-in/c");
        request = request.creating(ResourceType::Container, r#"{"m2m:cnt":{"rn":"d"}}"#);
        request.result_content = Some(2);
        let made = above.ask(request);
        assert_eq!(inner(&made), json!(format!("{before}cse-in/c/d")));
        assert_eq!(above.delete("CAdmin", "cse-in/c/d").status.number(), 2002);
    }
}
