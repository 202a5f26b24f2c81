//! Devices behind AEs: only the process around the machine says which AE leads to which, and who
//! wants anything of a device asks its AE.

use crate::bench::{Bench, config};
use gatewright_onem2m::{Input, Operation, Request, ResourceType, Response, Token, device_address};

const DEVICE: &str = "0022090000000001";
/// Ways to write the same to whoever reads it carelessly.
const FORMS: [&str; 5] = [
    "device://0022090000000001",
    "device:0022090000000001",
    "DEVICE://0022090000000001",
    " device://0022090000000001",
    "Device:",
];

/// As the process itself, and as the CSE.
fn own(bench: &mut Bench, request: Request) -> Response {
    bench.asked += 1;
    let token = Token(bench.asked);
    bench.cse.handle(bench.now, Input::Own { token, request: request.into() });
    let mut answers = bench.run();
    assert_eq!(answers.len(), 1);
    answers.remove(0).1
}

/// A CSE with a device, `Cphd`, and a neighbour, `Ca`, with a container of its own.
fn bench() -> Bench {
    let mut bench = Bench::with_container();
    bench.register("Cphd", "phd");
    let reach = format!(r#"{{"m2m:ae":{{"rr":true,"poa":["{}"]}}}}"#, device_address(DEVICE));
    let reach = Request::new(Operation::Update, "cse-in/phd", "/id-in", "w").with_content(reach);
    assert_eq!(own(&mut bench, reach).status.number(), 2004);
    bench
}

fn command(bench: &mut Bench, from: &str, to: &str) -> Request {
    let request = bench.request(Operation::Notify, from, to);
    request.with_content(r#"{"command":"read"}"#)
}

#[test]
fn a_device_is_asked_by_its_ae() {
    let mut bench = bench();
    let request = command(&mut bench, "CAdmin", "cse-in/phd");
    bench.ask_later(request);
    assert!(bench.calls().is_empty(), "not by any URL");
    let asked = bench.device_calls.remove(0);
    assert_eq!(
        (&*asked.device, asked.request.content.as_deref()),
        (DEVICE, Some(r#"{"command":"read"}"#))
    );
    let request = command(&mut bench, "Ca", "cse-in/phd");
    assert_eq!(bench.ask(request).status.number(), 4103, "without the right");
    // It is known after a restart.
    let mut after = Bench { cse: bench.reopened(), ..bench };
    let request = command(&mut after, "CAdmin", "cse-in/phd");
    after.ask_later(request);
    assert_eq!(after.device_calls.remove(0).device, DEVICE);
}

#[test]
fn nobody_else_gives_a_device_an_address() {
    let mut bench = bench();
    for form in FORMS {
        // Whoever may do everything may not do this.
        for from in ["Ca", "CAdmin"] {
            let poa = format!(r#"{{"m2m:ae":{{"rr":true,"poa":["http://x","{form}"]}}}}"#);
            assert_eq!(bench.update(from, "cse-in/a", &poa).status.number(), 4000, "{form}");
            let nu = format!(r#"{{"m2m:sub":{{"nu":["{form}"],"enc":{{"net":[3]}}}}}}"#);
            let made = bench.create(from, "cse-in/a/c", ResourceType::Subscription, &nu);
            assert_eq!(made.status.number(), 4000, "{form}");
            let su = format!(r#"{{"m2m:sub":{{"nu":["Ca"],"su":"{form}"}}}}"#);
            let made = bench.create(from, "cse-in/a/c", ResourceType::Subscription, &su);
            assert_eq!(made.status.number(), 4000, "{form}");
            let mut later = bench.request(Operation::Retrieve, from, "cse-in/a/c");
            later.set("rt", "2").unwrap();
            later.set("rtu", form).unwrap();
            assert_eq!(bench.ask(later).status.number(), 4000, "{form}");
        }
        let entity = format!(
            r#"{{"m2m:ae":{{"rn":"e","api":"Nx","rr":true,"srv":["4"],"poa":["{form}"]}}}}"#
        );
        let made = bench.create("Cevil", "cse-in", ResourceType::ApplicationEntity, &entity);
        assert_eq!(made.status.number(), 4000, "{form}");
    }
    assert!(bench.device_calls.is_empty());
    let request = command(&mut bench, "CAdmin", "cse-in/phd");
    bench.ask_later(request);
    assert_eq!(bench.device_calls.len(), 1, "the device is reached as before");
}

/// The notification of a reading of one's own would be a command.
#[test]
fn a_device_is_notified_by_its_own_gateway_only() {
    let mut bench = bench();
    for target in ["Cphd", "cse-in/phd", "/id-in/Cphd", "/id-in/cse-in/phd"] {
        let sub = format!(r#"{{"m2m:sub":{{"rn":"s","nu":["{target}"],"enc":{{"net":[3]}}}}}}"#);
        let made = bench.create("Ca", "cse-in/a/c", ResourceType::Subscription, &sub);
        assert_eq!(made.status.number(), 4101, "{target}: {made:?}");
        let sub = r#"{"m2m:sub":{"rn":"mine","nu":["Ca"],"enc":{"net":[3]}}}"#;
        assert_eq!(
            bench.create("Ca", "cse-in/a/c", ResourceType::Subscription, sub).status.number(),
            2001
        );
        let more = format!(r#"{{"m2m:sub":{{"nu":["Ca","{target}"]}}}}"#);
        let changed = bench.update("Ca", "cse-in/a/c/mine", &more);
        assert_eq!(changed.status.number(), 4101, "{target}: {changed:?}");
        assert_eq!(bench.delete("Ca", "cse-in/a/c/mine").status.number(), 2002);
    }
    assert!(bench.device_calls.is_empty());
    // The gateway itself may: it asks the device first, then tells it.
    let sub = r#"{"m2m:sub":{"rn":"g","nu":["cse-in/phd"],"enc":{"net":[3]}}}"#;
    let sub = Request::new(Operation::Create, "cse-in/a/c", "/id-in", "sub")
        .creating(ResourceType::Subscription, sub);
    bench.cse.handle(bench.now, Input::Own { token: Token(900), request: sub.into() });
    bench.run();
    assert_eq!(bench.device_calls.remove(0).device, DEVICE);
}

/// What its maker calls poa in a resource of its own is no point of access.
#[test]
fn only_aes_and_cses_are_reached() {
    let mut bench = Bench::with(config());
    bench.register("Ca", "a");
    let made = bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
    assert_eq!(made.status.number(), 2001);
    let flex = r#"{"cod:oximr":{"rn":"f","cnd":"x.y","poa":["http://x"],"rr":true}}"#;
    if bench.create("Ca", "cse-in/a", ResourceType::FlexContainer, flex).status.number() == 2001 {
        let sub = r#"{"m2m:sub":{"rn":"s","nu":["cse-in/a/f"],"enc":{"net":[3]}}}"#;
        let made = bench.create("Ca", "cse-in/a/c", ResourceType::Subscription, sub);
        assert_eq!(made.status.number(), 5204, "{made:?}");
    }
    assert!(bench.calls().is_empty());
}
