//! Registrations of CSEs that are refused.

use crate::bench::{Bench, config};
use core::time::Duration;
use gatewright_onem2m::{CseConfig, CseType, Input, Registrar, ResourceType, Status};

/// The registrar and the registree tell a refused registration: once for each answer, and again
/// when another answer was between.
#[test]
fn a_refused_registration_is_told_on_both_sides() {
    let mut config = config();
    config.admitted_cses = vec!["/id-mn".to_owned()];
    let mut bench = Bench::with(config);
    let register = |bench: &mut Bench, from: &str, csi: &str| {
        let entry =
            format!(r#"{{"m2m:csr":{{"cb":"{csi}/b","csi":"{csi}","rr":false,"srv":["4"]}}}}"#);
        bench.create(from, "cse-in", ResourceType::RemoteCse, &entry).status.number()
    };
    let told = |bench: &mut Bench| {
        let refused = bench.cse.take_refused_registrations().into_iter();
        refused.map(|it| (it.cse_id, it.registrar, it.status.number())).collect::<Vec<_>>()
    };
    let one = |code| vec![("/id-x".to_owned(), "/id-in".to_owned(), code)];
    assert_eq!(register(&mut bench, "/id-x", "/id-x"), 4126);
    assert_eq!(told(&mut bench), one(4126));
    for _ in 0..3 {
        assert_eq!(register(&mut bench, "/id-x", "/id-x"), 4126);
    }
    assert_eq!(told(&mut bench), [], "the same answer");
    assert_eq!(register(&mut bench, "/id-x", "/id-y"), 4000);
    assert_eq!(told(&mut bench), one(4000));
    // What stands already is no refusal.
    assert_eq!(register(&mut bench, "/id-mn", "/id-mn"), 2001);
    assert_eq!(register(&mut bench, "/id-mn", "/id-mn"), 4117);
    assert_eq!(told(&mut bench), []);
    assert_eq!(bench.cse.counters().registrations_refused, 5);
    // Strangers do not fill the log: 16 a minute, two of which are used; of 64 originators.
    for minute in 0..8 {
        for number in 0..100 {
            register(&mut bench, &format!("/id-s{number}"), "/id-s");
        }
        let many = if minute == 0 { 14 } else { told(&mut bench).len() };
        assert!(many <= 16, "{many}");
        bench.pass(Duration::from_mins(1));
    }
    told(&mut bench);
    register(&mut bench, "/id-s99", "/id-s");
    assert_eq!(told(&mut bench), [], "too many originators: counted only");
}

/// The registree says who refused it, and with which code.
#[test]
fn a_registree_tells_that_it_was_refused() {
    let mut config = CseConfig::new(CseType::Middle, "/id-mn", "cse-mn");
    let registrar = Registrar {
        cse_id: "/id-in".to_owned(),
        name: "cse-in".to_owned(),
        url: "http://in".to_owned(),
    };
    config.registrar = Some(registrar);
    let mut bench = Bench::with(config);
    for (status, news) in [
        (Status::AppRuleValidationFailed, 1),
        (Status::AppRuleValidationFailed, 0),
        (Status::OriginatorHasNoPrivilege, 1),
    ] {
        let call = bench.calls().pop().unwrap();
        bench.reply(&call, status);
        bench.pass(Duration::from_mins(10));
        let told = bench.cse.take_refused_registrations();
        assert_eq!(told.len(), news);
        let last = bench.cse.refused_by_registrar().unwrap();
        assert_eq!((&*last.cse_id, &*last.registrar), ("/id-mn", "/id-in"));
        assert_eq!(last.status, status);
    }
    assert!(!bench.cse.is_registrar_silent());
    // What was not sent tells nothing of it.
    let call = bench.calls().pop().unwrap();
    bench.tell(Input::Unsent { call: call.id, why: "too many wait to be sent".to_owned() });
    assert!(!bench.cse.is_registrar_silent());
    bench.pass(Duration::from_mins(10));
    // Who cannot be reached has not answered.
    let call = bench.calls().pop().unwrap();
    bench.away(&call);
    assert!(bench.cse.is_registrar_silent());
    assert_eq!(bench.cse.take_refused_registrations(), []);
    bench.pass(Duration::from_mins(10));
    let call = bench.calls().pop().unwrap();
    bench.reply(&call, Status::Created);
    assert_eq!(bench.cse.refused_by_registrar(), None);
    assert!(!bench.cse.is_registrar_silent());
}
