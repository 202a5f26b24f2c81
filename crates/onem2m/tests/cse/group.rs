//! Groups and requests to all of their members.

use crate::bench::{Bench, json};
use gatewright_onem2m::{Operation, Request, ResourceType, Status, Token};

fn group(bench: &mut Bench, attributes: &str) -> u16 {
    let content = format!(r#"{{"m2m:grp":{{"rn":"g",{attributes}}}}}"#);
    bench.create("Ca", "cse-in/a", ResourceType::Group, &content).status.number()
}

fn with_two_containers() -> Bench {
    let mut bench = Bench::with_container();
    bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"d"}}"#);
    bench
}

#[test]
fn members_are_checked() {
    let cases = [
        (r#""mnm":5,"mid":["cse-in/a/c","cse-in/a/d"],"mt":3"#, 2001, 2),
        (r#""mnm":5,"mid":["cse-in/a/c","cse-in/a/c"],"mt":3"#, 2001, 1),
        (r#""mnm":1,"mid":["cse-in/a/c","cse-in/a/d"]"#, 6010, 0),
        (r#""mnm":5,"mid":["cse-in/a/x"]"#, 4004, 0),
        (r#""mnm":5,"mid":["cse-in/a","cse-in/a/c"],"mt":3"#, 2001, 1),
        (r#""mnm":5,"mid":["cse-in/a","cse-in/a/c"],"mt":3,"csy":2"#, 4110, 0),
        (r#""mnm":5,"mid":["cse-in/a","cse-in/a/c"],"mt":3,"csy":3"#, 2001, 2),
        (r#""mnm":5,"mid":["/id-mn/cse-mn/x"],"mt":3"#, 2001, 1),
        (r#""mid":[]"#, 4000, 0),
    ];
    for (attributes, status, members) in cases {
        let mut bench = with_two_containers();
        assert_eq!(group(&mut bench, attributes), status, "{attributes}");
        if status == 2001 {
            let made = json(&bench.get("Ca", "cse-in/a/g"));
            assert_eq!(made["m2m:grp"]["cnm"], members, "{attributes}");
        }
    }
    let mut bench = with_two_containers();
    bench.register("Cb", "b");
    let content = r#"{"m2m:grp":{"mnm":5,"mid":["cse-in/a/c"]}}"#;
    let refused = bench.create("Cb", "cse-in/b", ResourceType::Group, content);
    assert_eq!(refused.status.number(), 5105);
    assert_eq!(group(&mut bench, r#""mnm":2,"mid":["cse-in/a/c"]"#), 2001);
    let more = r#"{"m2m:grp":{"mid":["cse-in/a/c","cse-in/a/d","cse-in/a"]}}"#;
    assert_eq!(bench.update("Ca", "cse-in/a/g", more).status.number(), 6010);
    let two = r#"{"m2m:grp":{"mid":["cse-in/a/c","cse-in/a/d"]}}"#;
    assert_eq!(bench.update("Ca", "cse-in/a/g", two).status.number(), 2004);
    assert_eq!(json(&bench.get("Ca", "cse-in/a/g"))["m2m:grp"]["cnm"], 2);
}

#[test]
fn one_request_reaches_every_member_and_each_says_yes_or_no() {
    let mut bench = with_two_containers();
    group(&mut bench, r#""mnm":5,"mid":["cse-in/a/c","cse-in/a/d"],"mt":3"#);
    let cin = r#"{"m2m:cin":{"rn":"i","con":1.50}}"#;
    let made = bench.create("Ca", "cse-in/a/g/fopt", ResourceType::ContentInstance, cin);
    assert_eq!(made.status, Status::Ok);
    assert!(made.content.as_deref().unwrap().contains("1.50"));
    let answers = json(&made)["m2m:agr"]["m2m:rsp"].clone();
    assert_eq!(answers[0]["rsc"], 2001);
    assert_eq!(answers[0]["to"], "cse-in/a/c");
    assert_eq!(answers[1]["pc"]["m2m:cin"]["rn"], "i");
    bench.delete("Ca", "cse-in/a/d/i");
    let latest = json(&bench.get("Ca", "cse-in/a/g/fopt/la"));
    assert_eq!(latest["m2m:agr"]["m2m:rsp"][0]["rsc"], 2000);
    assert_eq!(latest["m2m:agr"]["m2m:rsp"][1]["rsc"], 4004);
    // A stranger is stopped at the group; a member's own policy still decides for itself.
    assert_eq!(bench.get("Cb", "cse-in/a/g/fopt/la").status.number(), 4103);
    let policy = r#"{"m2m:acp":{"rn":"p","pv":{"acr":[{"acor":["Cb"],"acop":63}]},
        "pvs":{"acr":[{"acor":["Ca"],"acop":63}]}}}"#;
    bench.create("Ca", "cse-in/a", ResourceType::AccessControlPolicy, policy);
    bench.update("Ca", "cse-in/a/d", r#"{"m2m:cnt":{"acpi":["cse-in/a/p"]}}"#);
    bench.update("Ca", "cse-in/a/g", r#"{"m2m:grp":{"macp":["cse-in/a/p"]}}"#);
    let mixed = json(&bench.get("Cb", "cse-in/a/g/fopt"));
    assert_eq!(mixed["m2m:agr"]["m2m:rsp"][0]["rsc"], 4103);
    assert_eq!(mixed["m2m:agr"]["m2m:rsp"][1]["rsc"], 2000);
}

#[test]
fn a_group_that_holds_itself_comes_to_an_end() {
    let mut bench = with_two_containers();
    group(&mut bench, r#""mnm":5,"mid":["cse-in/a/c"]"#);
    let members = r#"{"m2m:grp":{"mid":["cse-in/a/g/fopt","cse-in/a/c"]}}"#;
    assert_eq!(bench.update("Ca", "cse-in/a/g", members).status.number(), 2004);
    let answer = bench.get("Ca", "cse-in/a/g/fopt");
    assert_eq!(answer.status, Status::Ok);
    assert!(answer.content.unwrap().contains("\"rsc\":5207"));
}

#[test]
fn a_member_elsewhere_is_waited_for() {
    let mut config = crate::bench::config();
    config.admitted_cses = vec!["/id-mn".to_owned()];
    let mut bench = Bench::with(config);
    bench.register("Ca", "a");
    let entry = r#"{"m2m:csr":{"rn":"id-mn","cb":"/id-mn/cse-mn","csi":"/id-mn","rr":true,
        "srv":["4"],"poa":["http://mn:1"]}}"#;
    let made = bench.create("/id-mn", "cse-in", ResourceType::RemoteCse, entry);
    assert_eq!(made.status.number(), 2001, "{made:?}");
    let members = r#""mnm":5,"mid":["cse-in/a","/id-mn/cse-mn/x"]"#;
    assert_eq!(group(&mut bench, members), 2001);
    let request = Request::new(Operation::Retrieve, "cse-in/a/g/fopt", "Ca", "far");
    bench.ask_later(request);
    let calls = bench.calls();
    assert_eq!(calls[0].urls, ["http://mn:1"]);
    assert_eq!(calls[0].request.to, "/id-mn/cse-mn/x");
    assert_eq!(calls[0].request.from, "/id-in/Ca");
    let answers = bench.away(&calls[0]);
    let Token(token) = answers[0].0;
    assert_eq!(token, bench.asked);
    let list = json(&answers[0].1)["m2m:agr"]["m2m:rsp"].clone();
    assert_eq!((&list[0]["rsc"], &list[1]["rsc"]), (&2000.into(), &5103.into()));
}

#[test]
fn who_may_register_as_a_cse() {
    let mut config = crate::bench::config();
    config.admitted_cses = vec!["/id-m*".to_owned()];
    let mut bench = Bench::with(config);
    let mut register = |from: &str, csi: &str| {
        let entry =
            format!(r#"{{"m2m:csr":{{"cb":"{csi}/b","csi":"{csi}","rr":false,"srv":["4"]}}}}"#);
        bench.create(from, "cse-in", ResourceType::RemoteCse, &entry).status.number()
    };
    assert_eq!(register("/id-mn", "/id-mn"), 2001);
    assert_eq!(register("/id-mn", "/id-mn"), 4117);
    assert_eq!(register("/id-m2", "/id-m3"), 4000);
    assert_eq!(register("/id-x", "/id-x"), 4126);
    assert_eq!(register("Ca", "Ca"), 4126);
    // Registered, but not to be reached.
    let away = bench.get("CAdmin", "/id-mn/b");
    assert_eq!(away.status.number(), 5103);
    assert_eq!(bench.get("/id-mn/Cx", "cse-in").status.number(), 2000);
    assert_eq!(bench.get("/id-zz/Cx", "cse-in").status.number(), 4103);
    assert_eq!(bench.get("Cx", "/id-mn/b").status.number(), 4103, "a stranger sends nothing on");
}

/// However an address is spelt, what it leads to is a member once.
#[test]
fn spellings_of_one_address_are_one_member() {
    let mut bench = Bench::with_container();
    let id = json(&bench.get("Ca", "cse-in/a/c"))["m2m:cnt"]["ri"].as_str().unwrap().to_owned();
    let inner = r#"{"m2m:grp":{"rn":"g","mnm":9,"mid":["cse-in/a/c"]}}"#;
    assert_eq!(bench.create("Ca", "cse-in/a", ResourceType::Group, inner).status.number(), 2001);
    let members = format!(
        r#"["cse-in/a/c","{id}","/id-in/cse-in/a/c","/id-in/{id}","-/a/c","cse-in/a/g/fopt","/id-in/cse-in/a/g/fopt"]"#
    );
    let outer = format!(r#"{{"m2m:grp":{{"rn":"h","mnm":9,"mid":{members}}}}}"#);
    let made = json(&bench.create("Ca", "cse-in/a", ResourceType::Group, &outer));
    assert_eq!(made["m2m:grp"]["mid"], serde_json::json!(["cse-in/a/c", "cse-in/a/g/fopt"]));
    assert_eq!(made["m2m:grp"]["cnm"], 2);
}
