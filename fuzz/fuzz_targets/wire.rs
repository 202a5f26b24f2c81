//! Any octets are read as a frame from outside in, and as each protocol by itself.
#![no_main]

#[path = "../../crates/wire/tests/walk/mod.rs"]
mod walk;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| walk::walk(octets));
