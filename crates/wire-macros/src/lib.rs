//! The macro `header!`: packet headers from the diagrams of their RFCs.
#![forbid(unsafe_code)]

use gatewright_diagnostic::{Diagnostic, Sources};
use proc_macro::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

/// Generates a header's view, mutable view, plain values and builder from its diagram.
///
/// ```text
/// header! {
///     /// The datagram header (RFC 768).
///     Udp = r"
///                   0      7 8     15 16    23 24    31
///                  +--------+--------+--------+--------+
///                  |     Source      |   Destination   |
///                  |      Port       |      Port       |
///                  +--------+--------+--------+--------+
///                  |     Length      |    Checksum     |
///                  +--------+--------+--------+--------+
///     " where checksum: checksum
/// }
/// ```
///
/// Annotations that a diagram cannot express follow `where`: see `gatewright_diagram`. The diagram
/// is read as printed; an invalid one is a compile error that shows it.
///
/// A protocol whose page has the diagrams takes them from there: `Udp = page "docs/udp.md", "UDP"`
/// reads the fenced block below the heading *UDP*. The path is relative to the crate's manifest.
#[proc_macro]
pub fn header(input: TokenStream) -> TokenStream {
    match expand(input) {
        Ok(output) => output,
        Err((message, span)) => error(&message, span),
    }
}

/// A compiler message with its position.
type Failure = (String, Span);

fn expand(input: TokenStream) -> Result<TokenStream, Failure> {
    let mut tokens = input.into_iter().peekable();
    let mut documentation = Vec::new();
    while matches!(tokens.peek(), Some(TokenTree::Punct(punct)) if punct.as_char() == '#') {
        documentation.extend(tokens.by_ref().take(2));
    }
    let name = match tokens.next() {
        Some(TokenTree::Ident(name)) => name,
        other => return Err(expected("the name of the header", other.as_ref())),
    };
    match tokens.next() {
        Some(TokenTree::Punct(punct)) if punct.as_char() == '=' => {}
        other => return Err(expected("`=`", other.as_ref())),
    }
    let mut page = None;
    let (art, span) = match tokens.next() {
        Some(TokenTree::Literal(literal)) => (text(&literal)?, literal.span()),
        Some(TokenTree::Ident(word)) if word.to_string() == "page" => {
            let (path, art) = on_page(&mut tokens)?;
            page = Some(path);
            (art, word.span())
        }
        other => return Err(expected("the diagram as a string", other.as_ref())),
    };
    let annotations = tokens.collect::<TokenStream>().to_string();
    let rust = write(&name.to_string(), &art, &annotations).map_err(|message| (message, span))?;
    let rust: TokenStream =
        rust.parse().map_err(|error| (format!("the generated code is no Rust: {error}"), span))?;
    let mut output = TokenStream::from_iter(documentation);
    output.extend(rust);
    // The compiler builds the crate anew when the page has changed.
    let watched =
        page.and_then(|path| format!("const _: &str = include_str!({path:?});").parse().ok());
    output.extend(watched.unwrap_or_else(TokenStream::new));
    Ok(output)
}

/// The path of a page, and the diagram below one of its headings.
fn on_page(tokens: &mut impl Iterator<Item = TokenTree>) -> Result<(String, String), Failure> {
    let mut string = |wanted| match tokens.find(|token| !matches!(token, TokenTree::Punct(_))) {
        Some(TokenTree::Literal(literal)) => Ok((text(&literal)?, literal.span())),
        other => Err(expected(wanted, other.as_ref())),
    };
    let (page, span) = string("the path of the page as a string")?;
    let (heading, _) = string("the heading as a string")?;
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let path = std::path::Path::new(&manifest).join(page);
    let shown = path.display().to_string();
    let text =
        std::fs::read_to_string(&path).map_err(|error| (format!("{shown}: {error}"), span))?;
    match gatewright_diagram::fenced(&text, &heading) {
        Some(art) => Ok((shown, art.to_owned())),
        None => Err((format!("{shown}: no diagram below the heading `{heading}`"), span)),
    }
}

/// The header as Rust text, or the diagram with its errors.
fn write(name: &str, art: &str, annotations: &str) -> Result<String, String> {
    let source =
        if annotations.is_empty() { art.to_owned() } else { format!("{art}\n{annotations}") };
    match gatewright_diagram::read_art(name, &source) {
        Ok(layout) => Ok(gatewright_diagram::rust(&layout, "::gatewright_wire")),
        Err(findings) => Err(picture(name, &source, &findings)),
    }
}

fn expected(wanted: &str, found: Option<&TokenTree>) -> Failure {
    match found {
        Some(token) => (format!("expected {wanted}, found `{token}`"), token.span()),
        None => (format!("expected {wanted}"), Span::call_site()),
    }
}

/// The text of a string literal.
fn text(literal: &Literal) -> Result<String, Failure> {
    let wrong = || ("expected a raw string such as r\"…\"".to_owned(), literal.span());
    unquoted(&literal.to_string()).ok_or_else(wrong)
}

/// The text between the quotation marks. Diagrams contain backslashes, so raw strings are usual; a
/// plain string must have no escapes.
fn unquoted(written: &str) -> Option<String> {
    let inner = |text: &str| Some(text.strip_prefix('"')?.strip_suffix('"')?.to_owned());
    match written.strip_prefix('r') {
        Some(raw) => inner(raw.trim_matches('#')),
        None if written.contains('\\') => None,
        None => inner(written),
    }
}

/// The findings as the user reads them, with the diagram.
fn picture(name: &str, source: &str, findings: &[Diagnostic]) -> String {
    let sources = Sources::of(name, source);
    let pictures = findings.iter().map(|finding| finding.render(&sources, false));
    format!("the diagram of `{name}` cannot be read\n{}", pictures.collect::<Vec<_>>().join("\n"))
}

/// `::core::compile_error!("…")` at `span`.
fn error(message: &str, span: Span) -> TokenStream {
    let text = TokenStream::from(TokenTree::from(Literal::string(message)));
    let parts = [
        TokenTree::from(Punct::new(':', Spacing::Joint)),
        Punct::new(':', Spacing::Alone).into(),
        Ident::new("core", span).into(),
        Punct::new(':', Spacing::Joint).into(),
        Punct::new(':', Spacing::Alone).into(),
        Ident::new("compile_error", span).into(),
        Punct::new('!', Spacing::Alone).into(),
        Group::new(Delimiter::Brace, text).into(),
    ];
    let spanned = parts.into_iter().map(|mut token| {
        token.set_span(span);
        token
    });
    spanned.collect()
}

#[cfg(test)]
mod tests {
    use super::{unquoted, write};

    /// The compiler's message shows the diagram with a caret below the wrong bar.
    #[test]
    fn a_bad_drawing_is_shown() {
        let art = "\n+-+-+-+-+-+-+-+-+\n|  Kind  |Length|\n+-+-+-+-+-+-+-+-+\n";
        let message = write("Probe", art, "").unwrap_err();
        assert!(message.starts_with("the diagram of `Probe` cannot be read"), "{message}");
        let lines: Vec<&str> = message.lines().collect();
        let row = lines.iter().position(|line| line.contains("|  Kind  |Length|")).unwrap();
        let column = lines[row].find("|Length").unwrap();
        assert_eq!(lines[row + 1].find('^'), Some(column), "{message}");
    }

    #[test]
    fn a_good_drawing_is_rust() {
        let art = "+-+-+-+-+-+-+-+-+\n|     Kind      |\n+-+-+-+-+-+-+-+-+";
        let rust = write("Probe", art, "where kind = 7").unwrap();
        assert!(rust.contains("pub struct Probe<'p>(&'p [u8; 1]);"), "{rust}");
        assert!(rust.contains("pub const KIND: u8 = 0x7;"), "{rust}");
        assert!(write("Probe", art, "where kin = 7").unwrap_err().contains("did you mean `kind`?"));
    }

    #[test]
    fn strings_are_raw_or_without_escapes() {
        assert_eq!(unquoted("r\"a\\b\""), Some("a\\b".to_owned()));
        assert_eq!(unquoted("r#\"a\"b\"#"), Some("a\"b".to_owned()));
        assert_eq!(unquoted("\"ab\""), Some("ab".to_owned()));
        assert_eq!(unquoted("\"a\\nb\""), None);
        assert_eq!(unquoted("7"), None);
    }
}
