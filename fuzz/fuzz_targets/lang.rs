//! Any text is compiled as a gateway program and formatted; what is found can be drawn.
#![no_main]

use gatewright_diagnostic::{SourceId, Sources};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let mut sources = Sources::of("program.gate", text);
    let compiled = gatewright_lang::compile(&mut sources, SourceId::default(), |_, _| None);
    for finding in &compiled.diagnostics {
        finding.render(&sources, false);
    }
});
