//! For whom the certificate of a CSE speaks (TS-0003 §7.2.1).

use crate::bench::{Bench, config};
use gatewright_onem2m::{
    CseConfig, Input, Operation, Registrar, Request, ResourceType, Response, Token,
};

const AE: &str = r#"{"m2m:ae":{"rn":"NAME","api":"Nx","rr":false,"srv":["4"]}}"#;
const REMOTE: &str = r#"{"m2m:csr":{"rn":"id-mn","csi":"/id-mn","cb":"/id-mn/cse-mn","rr":false,
    "srv":["4"],"dcse":["/id-leaf"]}}"#;

fn admitting() -> CseConfig {
    let mut config = config();
    config.admitted_cses = vec!["/id-mn*".to_owned()];
    config.sponsored_entities = vec!["Cphd-*".to_owned()];
    config
}

/// What a CSE asks as somebody, by its own certificate.
fn brought(bench: &mut Bench, sponsor: &str, mut request: Request) -> Response {
    request.sponsor = Some(sponsor.into());
    bench.ask(request)
}

fn register(bench: &mut Bench, sponsor: &str, from: &str, name: &str) -> u16 {
    let content = AE.replace("NAME", name);
    let request = bench.request(Operation::Create, from, "cse-in");
    let request = request.creating(ResourceType::ApplicationEntity, content);
    brought(bench, sponsor, request).status.number()
}

/// Retrieves the AE `name` as the AE `from`.
fn look(bench: &mut Bench, sponsor: &str, from: &str, name: &str) -> u16 {
    let request = bench.request(Operation::Retrieve, from, &format!("cse-in/{name}"));
    brought(bench, sponsor, request).status.number()
}

#[test]
fn a_cse_speaks_for_the_aes_that_it_registered() {
    let mut bench = Bench::with(admitting());
    assert_eq!(look(&mut bench, "/id-mn", "Cphd-1", "one"), 4106, "not registered yet");
    assert_eq!(register(&mut bench, "/id-mn", "Cphd-1", "one"), 2001);
    assert_eq!(register(&mut bench, "/id-mn", "Cphd-1", "one"), 4117, "its own, again");
    for from in ["Cphd-1", "/id-in/Cphd-1", "//gatewright.invalid/id-in/Cphd-1"] {
        assert_eq!(look(&mut bench, "/id-mn", from, "one"), 2000, "{from}");
    }
    let request = bench.request(Operation::Create, "Cphd-1", "cse-in/one");
    let request = request.creating(ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    assert_eq!(brought(&mut bench, "/id-mn", request).status.number(), 2001);
    assert_eq!(bench.cse.counters().unauthenticated, 1);
}

#[test]
fn nobody_else_speaks_for_them() {
    let mut bench = Bench::with(admitting());
    register(&mut bench, "/id-mn", "Cphd-1", "one");
    bench.register("Cphd-2", "two");
    bench.register("Cnurse", "nurse");
    for (sponsor, from, name, why) in [
        ("/id-mn2", "Cphd-1", "one", "another's"),
        ("/id-mn", "Cphd-2", "two", "it registered itself"),
        ("/id-mn", "Cnurse", "nurse", "it registered itself, and is no device"),
        ("/id-mn", "CAdmin", "one", "the administrator"),
        ("/id-mn", "/id-in", "one", "this CSE"),
        ("/id-mn", "/id-in/CAdmin", "one", "the administrator in a longer form"),
        ("/id-mn", "/id-mn2/Cphd-1", "one", "an entity of another CSE"),
        ("/id-mn", "", "one", "nobody"),
        ("/id-x", "Cphd-1", "one", "by a CSE that is not admitted"),
        ("/id-mn/Cx", "Cphd-1", "one", "by an AE of the CSE"),
        ("", "Cphd-1", "one", "by a certificate that names nobody"),
    ] {
        assert_eq!(look(&mut bench, sponsor, from, name), 4106, "{why}");
    }
    for (sponsor, from, why) in [
        ("/id-mn2", "Cphd-1", "another's"),
        ("/id-mn", "Cphd-2", "it registered itself"),
        ("/id-mn", "Cdoctor", "not among the AE-IDs that CSEs may bring"),
        ("/id-mn", "CAdmin", "the administrator"),
        ("/id-mn", "", "nobody"),
        ("/id-x", "Cphd-3", "by a CSE that is not admitted"),
        ("/id-mn/Cx", "Cphd-3", "by an AE, whose name begins as an admitted CSE's"),
        ("", "Cphd-3", "by a certificate that names nobody"),
    ] {
        assert_eq!(register(&mut bench, sponsor, from, "new"), 4106, "{why}");
    }
    assert_eq!(bench.cse.counters().unauthenticated, 19);
}

/// What was answered to one is not told to another who says the same (TS-0003 §7.2.1).
#[test]
fn a_repetition_by_another_cse_is_no_repetition() {
    let mut bench = Bench::with(admitting());
    let make = Request::new(Operation::Create, "cse-in", "Cphd-1", "same")
        .creating(ResourceType::ApplicationEntity, AE.replace("NAME", "one"));
    assert_eq!(brought(&mut bench, "/id-mn", make.clone()).status.number(), 2001);
    assert_eq!(brought(&mut bench, "/id-mn", make.clone()).status.number(), 2001, "as before");
    assert_eq!(brought(&mut bench, "/id-mn2", make).status.number(), 4106);
}

#[test]
fn a_sponsor_is_known_after_a_restart_and_after_a_change() {
    let mut bench = Bench::with(admitting());
    register(&mut bench, "/id-mn", "Cphd-1", "one");
    bench.register("Cphd-2", "two");
    let label = bench.request(Operation::Update, "Cphd-1", "cse-in/one");
    let label = label.with_content(r#"{"m2m:ae":{"lbl":["x"]}}"#);
    assert_eq!(brought(&mut bench, "/id-mn", label).status.number(), 2004);
    let mut after = Bench { cse: bench.reopened(), ..bench };
    assert_eq!(look(&mut after, "/id-mn", "Cphd-1", "one"), 2000);
    assert_eq!(look(&mut after, "/id-mn2", "Cphd-1", "one"), 4106);
    assert_eq!(look(&mut after, "/id-mn", "Cphd-2", "two"), 4106);
    let shown = after.get("Cphd-1", "cse-in/one");
    assert!(!shown.content.unwrap().contains("id-mn"), "it is no attribute");
}

#[test]
fn whoever_registers_it_next_is_its_sponsor() {
    let mut bench = Bench::with(admitting());
    register(&mut bench, "/id-mn", "Cphd-1", "one");
    let leave = bench.request(Operation::Delete, "Cphd-1", "cse-in/one");
    assert_eq!(brought(&mut bench, "/id-mn", leave).status.number(), 2002);
    assert_eq!(look(&mut bench, "/id-mn", "Cphd-1", "one"), 4106);
    assert_eq!(register(&mut bench, "/id-mn2", "Cphd-1", "moved"), 2001);
    assert_eq!(look(&mut bench, "/id-mn", "Cphd-1", "moved"), 4106);
    assert_eq!(look(&mut bench, "/id-mn2", "Cphd-1", "moved"), 2000);
    let by_itself = bench.delete("Cphd-1", "cse-in/moved");
    assert_eq!(by_itself.status.number(), 2002);
    bench.register("Cphd-1", "own");
    assert_eq!(look(&mut bench, "/id-mn2", "Cphd-1", "own"), 4106);
}

/// An admission that is taken back counts at once, unless the CSE is registered: then with that.
#[test]
fn a_cse_that_is_not_admitted_any_more_speaks_for_nobody() {
    let mut bench = Bench::with(admitting());
    register(&mut bench, "/id-mn", "Cphd-1", "one");
    let mut closed = admitting();
    closed.admitted_cses.clear();
    bench.cse.reconfigure(bench.now, closed.clone());
    assert_eq!(register(&mut bench, "/id-mn", "Cphd-2", "two"), 4106);
    assert_eq!(look(&mut bench, "/id-mn", "Cphd-1", "one"), 4106);
    bench.cse.reconfigure(bench.now, admitting());
    assert_eq!(look(&mut bench, "/id-mn", "Cphd-1", "one"), 2000);
    assert_eq!(
        bench.create("/id-mn", "cse-in", ResourceType::RemoteCse, REMOTE).status.number(),
        2001
    );
    bench.cse.reconfigure(bench.now, closed);
    assert_eq!(look(&mut bench, "/id-mn", "Cphd-1", "one"), 2000);
    assert_eq!(bench.delete("/id-mn", "cse-in/id-mn").status.number(), 2002);
    assert_eq!(look(&mut bench, "/id-mn", "Cphd-1", "one"), 4106);
}

/// What comes from beyond a registrar comes by it; what is below here does not.
#[test]
fn a_registrar_speaks_for_what_is_beyond_it() {
    let mut config = admitting();
    config.registrar = Some(Registrar {
        cse_id: "/id-top".to_owned(),
        name: "cse-top".to_owned(),
        url: "http://192.0.2.1".to_owned(),
    });
    let mut bench = Bench::with(config);
    let call = bench.calls().remove(0);
    bench.reply(&call, gatewright_onem2m::Status::Created);
    assert_eq!(
        bench.create("/id-mn", "cse-in", ResourceType::RemoteCse, REMOTE).status.number(),
        2001
    );
    // 4004: it is let in, and there is no such resource.
    for (sponsor, from, status) in [
        ("/id-top", "/id-far/Cx", 4004),
        ("/id-top", "/id-mn/Cx", 4106),
        ("/id-top", "/id-leaf/Cx", 4106),
        ("/id-top", "/id-in/CAdmin", 4106),
        ("/id-mn", "/id-far/Cx", 4106),
    ] {
        assert_eq!(look(&mut bench, sponsor, from, "nothing"), status, "{sponsor} for {from}");
    }
}

/// What is below a CSE that is registered here comes by that CSE and by no other, and only where an
/// administrator has said so: a CSE that names its descendants (`dcse`) could name any.
#[test]
fn what_is_beyond_a_cse_comes_by_it_alone() {
    let mut config = admitting();
    config.cses_beyond = vec!["/id-mn/id-leaf".to_owned(), "/id-mn/id-direct".to_owned()];
    config.admitted_cses.push("/id-direct".to_owned());
    let mut bench = Bench::with(config);
    for cse in ["id-mn", "id-mn2", "id-direct"] {
        let content = REMOTE.replace("id-mn", cse);
        let content =
            if cse == "id-direct" { content.replace("id-leaf", "id-none") } else { content };
        let made = bench.create(&format!("/{cse}"), "cse-in", ResourceType::RemoteCse, &content);
        assert_eq!(made.status.number(), 2001, "{cse}");
    }
    // 4004: it is let in, and there is no such resource.
    for (sponsor, from, status, why) in [
        ("/id-mn", "/id-leaf/Cphd-1", 4004, "its AE"),
        ("/id-mn", "/id-leaf", 4004, "itself"),
        ("/id-mn", "//gatewright.invalid/id-leaf/Cphd-1", 4004, "in a longer form"),
        ("/id-mn2", "/id-leaf/Cphd-1", 4106, "by another CSE, which claims it in its dcse"),
        ("/id-x", "/id-leaf/Cphd-1", 4106, "by a CSE that is not admitted"),
        ("/id-mn/Cx", "/id-leaf/Cphd-1", 4106, "by an AE of the CSE between"),
        ("/id-mn", "/id-leaf2/Cphd-1", 4106, "a CSE that nobody spoke of"),
        ("/id-mn", "/id-direct/Cx", 4106, "a CSE that is registered here itself"),
        ("/id-mn", "/id-in/Cphd-1", 4106, "an AE of this CSE that it did not bring"),
        ("/id-m", "/n/id-leaf", 4106, "names that only look like the way"),
    ] {
        assert_eq!(look(&mut bench, sponsor, from, "nothing"), status, "{why}");
    }
    assert_eq!(bench.cse.counters().unauthenticated, 7);
}

/// A registrar does not speak for what is below here, though the way there is not known yet.
#[test]
fn a_registrar_does_not_speak_for_what_is_beyond_those_below() {
    let mut config = admitting();
    config.cses_beyond = vec!["/id-mn/id-far".to_owned()];
    config.registrar = Some(Registrar {
        cse_id: "/id-top".to_owned(),
        name: "cse-top".to_owned(),
        url: "http://192.0.2.1".to_owned(),
    });
    let mut bench = Bench::with(config);
    let call = bench.calls().remove(0);
    bench.reply(&call, gatewright_onem2m::Status::Created);
    assert_eq!(look(&mut bench, "/id-top", "/id-far/Cx", "nothing"), 4106);
    assert_eq!(look(&mut bench, "/id-top", "/id-other/Cx", "nothing"), 4004);
    assert_eq!(look(&mut bench, "/id-mn", "/id-far/Cx", "nothing"), 4004);
}

/// An AE that came without a certificate is whose an administrator says, and nobody else's; one that
/// a CSE brought stays that CSE's.
#[test]
fn an_ae_that_came_without_a_certificate_is_given_to_a_cse() {
    let mut config = admitting();
    config.adopted_entities = vec!["/id-mn/Cphd-*".to_owned()];
    let mut bench = Bench::with(config);
    bench.register("Cphd-1", "one");
    bench.register("Cnurse", "nurse");
    register(&mut bench, "/id-mn2", "Cphd-2", "two");
    for (sponsor, from, name, status, why) in [
        ("/id-mn", "Cphd-1", "one", 2000, "it was given to it"),
        ("/id-mn2", "Cphd-1", "one", 4106, "it was given to another"),
        ("/id-mn", "Cnurse", "nurse", 4106, "it was not given away"),
        ("/id-mn", "Cphd-2", "two", 4106, "another brought it"),
        ("/id-x", "Cphd-1", "one", 4106, "not admitted"),
        ("/id-mn/Cphd-1", "Cphd-1", "one", 4106, "an AE of the CSE"),
    ] {
        assert_eq!(look(&mut bench, sponsor, from, name), status, "{why}");
    }
    // What was given may be taken back.
    bench.cse.reconfigure(bench.now, admitting());
    assert_eq!(look(&mut bench, "/id-mn", "Cphd-1", "one"), 4106);
}

/// What the process reserves at the CSEBase is refused to everybody else, by whatever path it comes,
/// except to a CSE with a certificate.
#[test]
fn reserved_names_and_entities_are_for_the_process_itself() {
    let mut config = admitting();
    config.reserved_names = vec!["phd-*".to_owned(), "alarms".to_owned()];
    config.reserved_entities = vec!["Cphd-*".to_owned()];
    let mut bench = Bench::with(config);
    for (from, name, expected) in [
        ("Cphd-1", "one", 4103),
        ("/id-in/Cphd-1", "one", 4103),
        ("//gatewright.invalid/id-in/Cphd-1", "one", 4103),
        ("Cbob", "phd-1", 4105),
        ("Cbob", "alarms", 4105),
        ("CAdmin", "alarms", 4105),
        ("Cbob", "bob", 2001),
    ] {
        let status = bench.register(from, name).status.number();
        assert_eq!(status, expected, "{from} {name}");
    }
    let container = ResourceType::Container;
    let other = bench.create("CAdmin", "cse-in", container, r#"{"m2m:cnt":{"rn":"phd-1"}}"#);
    assert_eq!(other.status.number(), 4105, "any type");
    let below = bench.create("Cbob", "cse-in/bob", container, r#"{"m2m:cnt":{"rn":"alarms"}}"#);
    assert_eq!(below.status.number(), 2001, "only directly below the CSEBase");
    assert_eq!(register(&mut bench, "/id-mn", "Cphd-2", "phd-2"), 2001, "a CSE's device");
    let content = AE.replace("NAME", "phd-1");
    let own = bench.request(Operation::Create, "Cphd-1", "cse-in");
    let own = own.creating(ResourceType::ApplicationEntity, content);
    let token = Token(u64::MAX);
    bench.cse.handle(bench.now, Input::Own { token, request: own.into() });
    let answers = bench.run();
    assert_eq!(answers[0].1.status.number(), 2001, "the process's own");
}
