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

/// Whether a character steers a terminal.
fn steers(c: char) -> bool {
    (c.is_control() && c != '\n') || "\u{61c}\u{200e}\u{202e}\u{2066}".contains(c)
}

/// An escape sequence in a file of a stranger is shown, not obeyed.
#[test]
fn no_control_character_reaches_the_terminal() {
    let source = SourceId::default();
    let controls = ('\u{0}'..='\u{9f}').filter(|c| c.is_control() && *c != '\n');
    let controls = controls.chain("\u{61c}\u{200e}\u{202e}\u{2066}".chars());
    for control in controls {
        let word = format!("a{control}b");
        let (start, end) = (0, word.len());
        let mut sources = Sources::of(word.clone(), format!("{word} = 1\n{word} = 2\n"));
        let other = sources.add(word.clone(), format!("{word} = 3\n"));
        let span = Span::new(source, start, end);
        let finding = Diagnostic::error(&UNKNOWN_KEY, span, word.clone())
            .label(word.clone())
            .also(Span::new(source, end + 5, end + 5 + end), word.clone())
            .also(Span::new(other, start, end), word.clone())
            .note(word.clone())
            .help(word.clone())
            .fix(span, word.clone(), &word);
        let plain = finding.render(&sources, false);
        let left = plain.chars().find(|&c| steers(c));
        assert_eq!(left, None, "{control:?} in {plain:?}");
        // What a style is made of: `ESC [`, digits and semicolons, `m`.
        let styled = finding.render(&sources, true);
        let mut parts = styled.split('\u{1b}');
        let first = parts.next().unwrap_or_default().to_owned();
        let rest = parts.map(|part| {
            let style = part.strip_prefix('[').and_then(|part| part.split_once('m'));
            let (style, text) = style.unwrap_or_else(|| panic!("{control:?} in {styled:?}"));
            assert!(style.chars().all(|c| c.is_ascii_digit() || c == ';'), "{styled:?}");
            text
        });
        let text = first + &rest.collect::<String>();
        let left = text.chars().find(|&c| steers(c));
        assert_eq!(left, None, "{control:?} in {styled:?}");
    }
}

/// A finding in a line of 200,000 octets is told with its place and without the line, as are two
/// places that are far from each other.
#[test]
fn an_excerpt_is_bounded() {
    let source = SourceId::default();
    let long = format!("first\n{}\n", "/*".repeat(100_000));
    let sources = Sources::of("long", long);
    let at = 6 + 150_000;
    let finding = Diagnostic::error(&UNKNOWN_KEY, Span::new(source, at, at + 2), "here")
        .label("this")
        .fix(Span::new(source, at, at + 2), "//", "write `//`");
    let shown = finding.render(&sources, false);
    assert!(shown.contains("long:2:150001") && shown.contains("this"), "{shown}");
    assert!(shown.contains("write `//`") && shown.len() < 1_000, "{shown}");

    let lines = "0123456789\n".repeat(10_000);
    let sources = Sources::of("lines", lines);
    let finding = Diagnostic::error(&UNKNOWN_KEY, Span::new(source, 99_000, 99_003), "far")
        .label("it ends here")
        .also(Span::new(source, 11, 14), "it begins here");
    let shown = finding.render(&sources, false);
    assert!(shown.contains("lines:9001:1") && shown.contains("9001 | 0123456789"), "{shown}");
    assert!(shown.contains("lines:2:1") && shown.contains("it begins here"), "{shown}");
    assert!(shown.len() < 1_000, "{shown}");
}

/// A finding is read in logs and on terminals: neither its excerpt nor its words have the password of a
/// URL, and its marks stand where they belong.
#[test]
fn no_password_of_a_url_is_shown() {
    let text = "[cse]\nmqtt = \"mqtt://nurse:seed-one@broker:1883\"\ntoken = \"seed-two\" # here\n";
    let source = SourceId::default();
    let span = |part: &str| {
        let start = text.find(part).unwrap();
        Span::new(source, start, start + part.len())
    };
    let sources = Sources::of("gateway.toml", text);
    let url = "mqtt://nurse:seed-one@broker:1883";
    let finding = Diagnostic::error(&UNKNOWN_KEY, span("broker:1883"), format!("`{url}` is wrong"))
        .label(format!("this is {url}"))
        .also(span("# here"), "and this")
        .note(format!("no {url}"))
        .help(format!("not {url}"))
        .fix(span(&format!("\"{url}\"")), format!("\"{url}/x\""), "write it so")
        .hide(span("seed-two"));
    let shown = finding.render(&sources, false);
    assert!(!shown.contains("seed") && !shown.contains("nurse"), "{shown}");
    insta::assert_snapshot!(shown);
    let data = serde_json::to_string(&finding.finding(&sources)).unwrap();
    assert!(!data.contains("seed") && data.contains("\"fix\":null"), "{data}");
}
