//! Traces end when nobody awaits them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail loudly")]

use gatewright_config::parse;
use gatewright_diagnostic::SourceId;
use gatewright_gateway::{Assembly, Gateway, TraceRequest, api::ControlServer};
use std::{
    io::Write,
    os::unix::net::UnixStream,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Only one packet is traced at a time: the trace of a client that is gone would keep all others out
/// for its hour.
#[test]
fn a_client_that_goes_away_ends_its_trace() {
    let text =
        "[link.lan]\nmode = \"segment\"\nsegment = \"traces\"\naddresses = [\"192.0.2.1/24\"]\n";
    let config = parse(SourceId::default(), text).config.unwrap();
    let gateway = Arc::new(Gateway::open(&config, 7, Assembly::default()).unwrap());
    let path = std::env::temp_dir().join(format!("gw-traces-{}.sock", std::process::id()));
    let socket = ControlServer::start(Arc::clone(&gateway), &path).unwrap();
    // Long enough to be told that another packet is traced: one that ends by itself ends all traces.
    let soon = TraceRequest { seconds: Some(1.0), ..TraceRequest::default() };
    let is_free = || gateway.trace(&soon, || true).is_ok();
    let began = Instant::now();
    let again = || {
        assert!(began.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(20));
    };
    let client = loop {
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"{\"do\":\"trace\",\"seconds\":3600}\n").unwrap();
        again();
        // It is refused if it has met a look of ours.
        if !is_free() {
            break client;
        }
    };
    drop(client);
    while !is_free() {
        again();
    }
    drop(socket);
    gateway.stop().unwrap();
}
