//! Reads XML: RFCs in xml2rfc's vocabulary (version 2: RFC 7749, version 3: RFC 7991) and field
//! lists.

use crate::{
    Document,
    annotation::{Annotation, Says, length},
    assemble::{self, Beside, UnplacedField},
    codes, grid,
    names::{Naming, identifier, number},
    read_found,
    text::lines,
    title::{is_in, type_name},
};
use gatewright_diagnostic::{Diagnostic, SourceId, Span};
use roxmltree::{Node, ParsingOptions};
use std::{borrow::Cow, ops::Range};

/// Maximum number of elements and texts of one document.
const NODES_MAX: u32 = 1_000_000;

/// Reads an xml2rfc document or a field list, by its root element.
pub(crate) fn read(text: &str, section: Option<&str>, beside: &mut Beside) -> Document {
    let plain = without_entities(text);
    let options = ParsingOptions { nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    let tree = match roxmltree::Document::parse_with_options(&plain, options) {
        Ok(tree) => tree,
        Err(error) => {
            let at = offset(text, error.pos());
            let span = span(at..(at + 1).min(text.len()).max(at));
            return Document::refused(Diagnostic::error(&codes::BAD_XML, span, error.to_string()));
        }
    };
    let root = tree.root_element();
    match root.tag_name().name() {
        "rfc" => document(&plain, root, section, beside),
        "headers" | "header" => field_list(root),
        name => {
            let message = format!("the root element is `{name}`");
            let finding = Diagnostic::error(&codes::BAD_XML, name_span(root), message)
                .help("`rfc` begins an xml2rfc document, `headers` a field list");
            Document::refused(finding)
        }
    }
}

/// The text with blanks in place of its DOCTYPE and its references to entities (mostly other
/// documents). So nothing is fetched or expanded, and every octet keeps its position.
fn without_entities(text: &str) -> String {
    const KNOWN: [&str; 5] = ["amp", "lt", "gt", "quot", "apos"];
    let mut out = text.to_owned();
    if let Some(start) = text.find("<!DOCTYPE") {
        let rest = text.get(start..).unwrap_or_default();
        let subset = rest.find('[').filter(|&open| rest.find('>').is_none_or(|end| open < end));
        let end = match subset {
            Some(_) => rest.find("]>").map(|end| end + 2),
            None => rest.find('>').map(|end| end + 1),
        };
        blank(&mut out, start..start + end.unwrap_or(rest.len()));
    }
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| rest.find('&')) {
        let start = at + found;
        at = start + 1;
        let rest = text.get(at..).unwrap_or_default();
        let length =
            rest.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-' | '.'));
        let name = length.and_then(|length| rest.get(..length)).unwrap_or_default();
        let is_reference = rest.get(name.len()..).is_some_and(|rest| rest.starts_with(';'));
        if is_reference && !name.is_empty() && !KNOWN.contains(&name) {
            blank(&mut out, start..at + name.len() + 1);
        } else if !rest.starts_with('#') && !is_reference {
            // Published sources have bare ampersands.
            blank(&mut out, start..at);
        }
    }
    out
}

fn blank(text: &mut String, range: Range<usize>) {
    let blanks: String = (text.get(range.clone()).unwrap_or_default().bytes())
        .map(|octet| if octet == b'\n' { '\n' } else { ' ' })
        .collect();
    if text.is_char_boundary(range.start) && text.is_char_boundary(range.end) {
        text.replace_range(range, &blanks);
    }
}

fn offset(text: &str, position: roxmltree::TextPos) -> usize {
    let line = usize::try_from(position.row).unwrap_or(1).saturating_sub(1);
    let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    start + usize::try_from(position.col).unwrap_or(1).saturating_sub(1)
}

fn span(range: Range<usize>) -> Span {
    Span::new(SourceId::default(), range.start, range.end)
}

/// `<name` of an element.
fn name_span(node: Node<'_, '_>) -> Span {
    let start = node.range().start;
    span(start..start + 1 + node.tag_name().name().len())
}

/// An xml2rfc document.
fn document(
    text: &str,
    root: Node<'_, '_>,
    section: Option<&str>,
    beside: &mut Beside,
) -> Document {
    let mut document = Document::default();
    let mut exists = false;
    let mut found_any = false;
    for artwork in root.descendants().filter(|node| is_drawing(*node)) {
        let heading = heading(artwork);
        let inside = section.is_none_or(|wanted| {
            is_in(wanted, &heading.0, &heading.1) || is_anchored(artwork, wanted)
        });
        let Some((art, base)) = art(text, artwork).filter(|_| inside) else { continue };
        let lines = lines(&art, base.unwrap_or(0));
        for found in grid::find(&lines) {
            found_any = true;
            let name = type_name(&figure_title(artwork).unwrap_or_else(|| heading.1.clone()));
            let (mut warnings, behind) = (Vec::new(), (&mut *beside, Vec::new()));
            let mut reading = read_found(&name, &found, behind, &mut warnings);
            if base.is_none() {
                let errors = reading.as_mut().err().into_iter().flatten();
                for finding in errors.chain(&mut warnings) {
                    finding.primary.span = name_span(artwork);
                }
            }
            document.findings.extend(warnings);
            document.add(reading);
        }
    }
    for node in root.descendants().filter(|node| node.has_tag_name("section")) {
        let (number, title) = (section_number(node), section_title(node));
        exists |= section.is_some_and(|wanted| is_in(wanted, &number, &title));
    }
    let mut all = root.descendants();
    exists |=
        section.is_some_and(|wanted| all.any(|node| node.attribute("anchor") == Some(wanted)));
    let finding = match section {
        Some(wanted) if !exists => Diagnostic::error(
            &codes::NO_SECTION,
            name_span(root),
            format!("the document has no section `{wanted}`"),
        )
        .help("give its number, its title or its anchor"),
        _ if found_any => return document,
        _ => Diagnostic::error(&codes::NO_DIAGRAM, name_span(root), "no packet diagram found"),
    };
    document.findings.push(finding);
    document
}

/// Whether a node may contain a diagram: version 3 has drawings also as `sourcecode`.
fn is_drawing(node: Node<'_, '_>) -> bool {
    node.has_tag_name("artwork") || node.has_tag_name("sourcecode")
}

/// Whether a node, or an enclosing one, has this anchor.
fn is_anchored(node: Node<'_, '_>, anchor: &str) -> bool {
    node.ancestors().any(|node| node.attribute("anchor") == Some(anchor))
}

/// The text of an artwork with its position in the file, as far as it contains no references.
fn art<'a>(text: &'a str, artwork: Node<'a, '_>) -> Option<(Cow<'a, str>, Option<usize>)> {
    let own = text.get(artwork.range())?;
    if let Some((before, rest)) = own.split_once("<![CDATA[") {
        let base = own.len() - rest.len();
        let art = rest.split("]]>").next().unwrap_or(rest);
        let is_first = before.starts_with('<');
        return is_first.then_some((art.into(), Some(artwork.range().start + base)));
    }
    let mut texts = artwork.children().filter(Node::is_text).filter_map(|node| node.text());
    let first = texts.next()?;
    let rest: String = texts.collect();
    if !rest.is_empty() {
        // A comment stands in the art.
        return Some((format!("{first}{rest}").into(), None));
    }
    Some((first.into(), own.find(first).map(|at| artwork.range().start + at)))
}

/// Number and title of the section around a node.
fn heading(node: Node<'_, '_>) -> (String, String) {
    let section = node.ancestors().find(|node| node.has_tag_name("section"));
    section.map(|section| (section_number(section), section_title(section))).unwrap_or_default()
}

/// The number in a published document of version 3 (`pn="section-2.1"`), otherwise counted from the
/// preceding and enclosing sections.
fn section_number(section: Node<'_, '_>) -> String {
    if let Some(part) = section.attribute("pn").and_then(|part| part.strip_prefix("section-")) {
        let appendix = part.strip_prefix("appendix.").map(str::to_ascii_uppercase);
        return appendix.unwrap_or_else(|| part.to_owned());
    }
    let around = section.ancestors().filter(|node| node.has_tag_name("section"));
    let mut numbers: Vec<String> = around
        .map(|node| {
            // Of version 3 some are not numbered.
            let is_numbered = |node: &Node<'_, '_>| {
                node.has_tag_name("section") && node.attribute("numbered") != Some("false")
            };
            node.prev_siblings().filter(is_numbered).count().to_string()
        })
        .collect();
    let appendix = section.ancestors().any(|node| node.has_tag_name("back"));
    if let Some(last) = numbers.last_mut().filter(|_| appendix) {
        // Appendices are counted by letters.
        let index = last.parse::<u8>().unwrap_or(1).clamp(1, 26);
        *last = char::from(b'A' + index - 1).to_string();
    }
    numbers.reverse();
    numbers.join(".")
}

/// Version 2 has the title as an attribute, version 3 as an element, which may have others in it.
fn section_title(node: Node<'_, '_>) -> String {
    if let Some(title) = node.attribute("title") {
        return title.to_owned();
    }
    let Some(name) = node.children().find(|child| child.has_tag_name("name")) else {
        return String::new();
    };
    let text: String =
        name.descendants().filter(Node::is_text).filter_map(|it| it.text()).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn figure_title(artwork: Node<'_, '_>) -> Option<String> {
    let figure = artwork.ancestors().find(|node| node.has_tag_name("figure"))?;
    Some(section_title(figure)).filter(|title| !title.is_empty())
}

/// A field list: see the explanation of `GW0017`.
fn field_list(root: Node<'_, '_>) -> Document {
    let mut document = Document::default();
    let headers: Vec<Node<'_, '_>> = if root.has_tag_name("header") {
        vec![root]
    } else {
        root.children().filter(Node::is_element).collect()
    };
    if headers.is_empty() {
        return Document::refused(bad(name_span(root), "the list has no `header`"));
    }
    for header in headers {
        document
            .add(header_layout(header).and_then(|(name, parts, annotations)| {
                assemble::layout(&name, parts, annotations)
            }));
    }
    document
}

fn bad(span: Span, message: impl Into<String>) -> Diagnostic {
    Diagnostic::error(&codes::BAD_FIELD_LIST, span, message)
        .help("`gatewright explain GW0017` shows a field list")
}

type Header = (String, Vec<UnplacedField>, Vec<Annotation>);

fn header_layout(header: Node<'_, '_>) -> Result<Header, Vec<Diagnostic>> {
    let mut findings = Vec::new();
    if !header.has_tag_name("header") {
        let message = format!("`{}` instead of `header`", header.tag_name().name());
        return Err(vec![bad(name_span(header), message)]);
    }
    let name = header.attribute("name").map(type_name_of).unwrap_or_default();
    if name.is_empty() {
        findings.push(bad(name_span(header), "the header has no name"));
    }
    let mut parts = Vec::new();
    for field in header.children().filter(Node::is_element) {
        match part(field) {
            Ok(part) => parts.push(part),
            Err(finding) => findings.push(finding),
        }
    }
    let trailer = header.attribute("trailer") == Some("true");
    let annotations = if trailer { vec![Annotation::Trailer] } else { Vec::new() };
    if findings.is_empty() { Ok((name, parts, annotations)) } else { Err(findings) }
}

/// A name given as a type is kept as it is.
fn type_name_of(name: &str) -> String {
    let is_type = name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.chars().all(|c| c.is_ascii_alphanumeric());
    if is_type { name.to_owned() } else { type_name(name) }
}

/// A `field` or a `variable`.
fn part(node: Node<'_, '_>) -> Result<UnplacedField, Diagnostic> {
    let place = name_span(node);
    let written = node.attribute("name").ok_or_else(|| bad(place, "the field has no name"))?;
    let name = identifier(written);
    if name.is_empty() {
        return Err(bad(value_span(node, "name"), "the name has no letters"));
    }
    let mut naming = Naming { written: written.to_owned(), name, ..Naming::default() };
    if node.has_tag_name("variable") {
        naming.variable = true;
        let says = node
            .attribute_node("octets")
            .map(|octets| length(octets.value(), span(octets.range_value())).map(Says::Length));
        return Ok(UnplacedField { naming, width: 0, says: says.transpose()?, span: place });
    }
    if !node.has_tag_name("field") {
        let message = format!("`{}` instead of `field` or `variable`", node.tag_name().name());
        return Err(bad(place, message));
    }
    let count = |attribute: &str| match node.attribute(attribute) {
        None => Ok(None),
        Some(value) => (number(value).and_then(|value| u32::try_from(value).ok()).map(Some))
            .ok_or_else(|| bad(value_span(node, attribute), format!("`{value}` is no width"))),
    };
    let width = match (count("bits")?, count("octets")?) {
        (Some(bits), None) => bits,
        (None, Some(octets)) => octets.saturating_mul(8),
        _ => return Err(bad(place, "a field has either `bits` or `octets`")),
    };
    if let Some(value) = node.attribute("constant") {
        let constant = number(value);
        let place = value_span(node, "constant");
        naming.constant =
            Some(constant.ok_or_else(|| bad(place, format!("`{value}` is no number")))?);
    }
    let says = node.attribute("type").map(Says::of);
    if matches!(says, Some(Says::Rest)) || naming.constant.is_some() && says.is_some() {
        return Err(bad(value_span(node, "type"), "a type that this field cannot have"));
    }
    Ok(UnplacedField { naming, width, says, span: place })
}

/// The place of an attribute's value.
fn value_span(node: Node<'_, '_>, attribute: &str) -> Span {
    node.attribute_node(attribute).map_or_else(|| name_span(node), |node| span(node.range_value()))
}
