//! What a user sees.

use gatewright_diagnostic::{Code, Diagnostic, SourceId, Sources, Span, has_errors};

const UNKNOWN_KEY: Code =
    Code { number: 101, title: "unknown key", explanation: "The key means nothing here." };

const TEXT: &str = "[link.lan]\nadress = \"10.0.0.1/24\"\nmtu = 900\n";

fn misspelt() -> Diagnostic {
    let source = SourceId::default();
    let key = Span::new(source, 11, 17);
    Diagnostic::error(&UNKNOWN_KEY, key, "unknown key `adress`")
        .label("not a key of a link")
        .also(Span::new(source, 0, 10), "in this table")
        .note("keys are written in lower case")
        .help("a link has `address`, `mtu` and `mode`")
        .fix(key, "address", "did you mean `address`?")
}

#[test]
fn a_finding_is_a_picture_of_the_text() {
    let sources = Sources::of("gateway.toml", TEXT);
    insta::assert_snapshot!(misspelt().render(&sources, false));
}

#[test]
fn a_finding_is_data() {
    let sources = Sources::of("gateway.toml", TEXT);
    insta::assert_json_snapshot!(misspelt().finding(&sources));
}

/// The renderer must not be reachable by a wrong span: a text may have shrunk, or a column may
/// fall inside a character.
#[test]
fn a_span_outside_the_text_is_cut_to_it() {
    let sources = Sources::of("u", "Lübeck");
    for (start, end) in [(2, 2), (0, 90), (90, 95), (5, 1)] {
        let span = Span::new(SourceId::default(), start, end);
        let finding = Diagnostic::warning(&UNKNOWN_KEY, span, "somewhere");
        assert!(finding.render(&sources, true).contains("somewhere"));
        assert!(!has_errors(&[finding]));
    }
}
