//! Laws over random layouts and random texts.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may fail loudly"
)]

mod layouts;

use gatewright_diagram::{draw, read_art};
use layouts::layouts;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// What is drawn is read back as it was.
    #[test]
    fn reading_undoes_drawing(layout in layouts()) {
        let drawing = draw(&layout);
        let read = read_art("Random", &drawing);
        prop_assert_eq!(read, Ok(layout), "{}", drawing);
    }

    /// Whatever is typed, reading ends in a layout or in findings that point into the text.
    #[test]
    fn any_text_is_read_or_refused(
        lines in prop::collection::vec("[-+|~:. 0-9A-Za-z=\\[\\]()\"*]{0,40}", 0..12),
        tail in "(where [a-z:= \\[\\]*0-9,()-]{0,30})?",
    ) {
        let text = format!("+-+-+-+-+-+-+-+-+\n{}\n{tail}", lines.join("\n"));
        if let Err(findings) = read_art("Any", &text) {
            prop_assert!(!findings.is_empty());
            for finding in findings {
                prop_assert!(finding.primary.span.end <= text.len());
            }
        }
    }

    /// The same over drawings with one character changed: near misses reach further than noise.
    #[test]
    fn a_damaged_drawing_is_read_or_refused(layout in layouts(), at in any::<prop::sample::Index>(), by in "[-+|~ a0\n\"]") {
        let mut drawing = draw(&layout);
        let at = at.index(drawing.len());
        drawing.replace_range(at..=at, &by);
        let _ = read_art("Damaged", &drawing);
    }
}
