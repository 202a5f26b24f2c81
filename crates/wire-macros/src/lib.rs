//! `header!`: packet headers from the diagrams of their RFCs.
#![forbid(unsafe_code)]

use gatewright_diagnostic::{Diagnostic, Sources};
use proc_macro::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

/// Writes a header's view, mutable view, plain values and builder from its drawing.
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
/// Behind `where` stands what the drawing cannot say: see `gatewright_diagram`. The drawing is read
/// as it is printed; a bad one is an error of compilation that shows it.
#[proc_macro]
pub fn header(input: TokenStream) -> TokenStream {
    match expand(input) {
        Ok(output) => output,
        Err((message, span)) => error(&message, span),
    }
}

/// A message of the compiler, and where.
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
    let (art, span) = match tokens.next() {
        Some(TokenTree::Literal(literal)) => (text(&literal)?, literal.span()),
        other => return Err(expected("the diagram as a string", other.as_ref())),
    };
    let annotations = tokens.collect::<TokenStream>().to_string();
    let source = if annotations.is_empty() { art } else { format!("{art}\n{annotations}") };
    let header = name.to_string();
    let layout = gatewright_diagram::read_art(&header, &source)
        .map_err(|findings| (picture(&header, &source, &findings), span))?;
    let drawing = gatewright_diagram::draw(&layout);
    let mut output = TokenStream::from_iter(documentation);
    for line in std::iter::once("\n```text").chain(drawing.lines()).chain(["```"]) {
        output.extend(doc(line));
    }
    let rust = gatewright_diagram::rust(&layout, "::gatewright_wire");
    let rust: TokenStream =
        rust.parse().map_err(|error| (format!("the generated code is no Rust: {error}"), span))?;
    output.extend(rust);
    Ok(output)
}

/// `#[doc = "LINE"]`
fn doc(line: &str) -> TokenStream {
    let attribute = TokenStream::from_iter([
        TokenTree::from(Ident::new("doc", Span::call_site())),
        Punct::new('=', Spacing::Alone).into(),
        Literal::string(line).into(),
    ]);
    TokenStream::from_iter([
        TokenTree::from(Punct::new('#', Spacing::Alone)),
        Group::new(Delimiter::Bracket, attribute).into(),
    ])
}

fn expected(wanted: &str, found: Option<&TokenTree>) -> Failure {
    match found {
        Some(token) => (format!("expected {wanted}, found `{token}`"), token.span()),
        None => (format!("expected {wanted}"), Span::call_site()),
    }
}

/// The text of a string literal; drawings hold backslashes, so that raw strings are usual.
fn text(literal: &Literal) -> Result<String, Failure> {
    let written = literal.to_string();
    let raw = written.strip_prefix('r').map(|rest| rest.trim_matches('#'));
    let inner = |text: &str| Some(text.strip_prefix('"')?.strip_suffix('"')?.to_owned());
    match (raw, inner(&written)) {
        (Some(raw), _) => inner(raw),
        (None, Some(plain)) if !plain.contains('\\') => Some(plain),
        _ => None,
    }
    .ok_or_else(|| ("expected a raw string such as r\"…\"".to_owned(), literal.span()))
}

/// The findings as the user reads them, with the drawing.
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
