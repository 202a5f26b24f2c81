//! Any text is read as diagrams; what is found can be drawn, what is read can be written.
#![no_main]

use gatewright_diagnostic::Sources;
use gatewright_diagram::{c, draw, java, read, rust};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let document = read("Header", text, None);
    let sources = Sources::of("header.txt", text);
    for finding in &document.findings {
        finding.render(&sources, false);
    }
    for layout in &document.layouts {
        draw(layout);
        rust(layout, "support");
        java(layout);
    }
    c(&document.layouts);
});
