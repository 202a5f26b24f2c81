//! The page of the protocol and what is generated from it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

mod dissector;

use std::{env, fs};

/// `docs/mesh-protocol.lua` is what the page gives; with `MESH_WRITE=1` the test writes it.
#[test]
fn the_dissector_is_generated_from_the_page() {
    let path = dissector::repository("docs/mesh-protocol.lua");
    let generated = dissector::dissector();
    if env::var_os("MESH_WRITE").is_some() {
        fs::write(&path, &generated).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == generated, "changed: run this test with MESH_WRITE=1");
}
