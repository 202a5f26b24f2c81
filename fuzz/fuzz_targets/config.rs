//! Any text is read as a description; what is found can be drawn.
#![no_main]

use gatewright_diagnostic::{SourceId, Sources};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let parsed = gatewright_config::parse(SourceId::default(), text);
    assert!(parsed.config.is_some() || !parsed.diagnostics.is_empty());
    let sources = Sources::of("gateway.toml", text);
    for finding in &parsed.diagnostics {
        finding.render(&sources, true);
    }
});
