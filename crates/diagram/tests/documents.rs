//! Diagrams in documents: RFC text with its sections and pages, xml2rfc, field lists.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_diagnostic::Sources;
use gatewright_diagram::{Document, FieldRole, draw, read, read_annotated, read_art};
use proptest::prelude::*;

/// An RFC as published, in the manner of RFC 9293 and RFC 792: contents, numbered and plain
/// sections, a page break, a caption, a box that is no diagram.
const RFC: &str = "\
RFC 9999                   An Example of a Header           November 2026

Table of Contents

   1.  Introduction  . . . . . . . . . . . . . . . . . . . . . . . .   2
   2.  Formats . . . . . . . . . . . . . . . . . . . . . . . . . . .   2

1.  Introduction

     +---------+      +------+
     |  Host   |----->| Gate |
     +---------+      +------+

2.  Formats

2.1.  Probe Message Format

    0                   1
    0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |     Kind      |    Length     |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+


Author                    Standards Track                      [Page 2]
\x0c
RFC 9999                   An Example of a Header           November 2026

2.2.  Answer

   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |     Kind      |    Options    |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+

           Figure 3: Answer Header Format

Appendix of Colours

   +-+-+-+-+-+-+-+-+
   |    Colour     |
   +-+-+-+-+-+-+-+-+
";

fn names(document: &Document) -> Vec<&str> {
    document.layouts.iter().map(|layout| layout.name.as_str()).collect()
}

#[test]
fn an_rfc_is_read_whole_or_by_section() {
    let cases: [(Option<&str>, &[&str]); 6] = [
        (None, &["Probe", "AnswerHeader", "AppendixOfColours"]),
        (Some("2"), &["Probe", "AnswerHeader"]),
        (Some("2.1"), &["Probe"]),
        (Some("2.2."), &["AnswerHeader"]),
        (Some("answer"), &["AnswerHeader"]),
        (Some("Appendix of Colours"), &["AppendixOfColours"]),
    ];
    for (section, expected) in cases {
        let document = read("rfc", RFC, section);
        assert_eq!(document.findings, [], "{section:?}");
        assert_eq!(names(&document), expected, "{section:?}");
    }
    for (section, code) in [("3", "GW0015"), ("1", "GW0001")] {
        let document = read("rfc", RFC, Some(section));
        assert!(document.layouts.is_empty());
        assert_eq!(document.findings[0].code.to_string(), code);
    }
}

/// An excerpt begins with the heading of its section, a page with what is on every page.
#[test]
fn a_heading_on_the_first_line_is_one() {
    const ART: &str = "\n   +-+-+-+-+-+-+-+-+\n   |    Colour     |\n   +-+-+-+-+-+-+-+-+\n\n";
    for (first, section) in [("3.1.  Colours", "3.1"), ("Colours", "colours")] {
        for before in ["", "\n\n"] {
            let text = format!("{before}{first}\n{ART}3.2.  Tones\n{ART}");
            assert_eq!(names(&read("x", &text, Some(section))), ["Colours"], "{text}");
            assert_eq!(names(&read("x", &text, None)), ["Colours", "Tones"], "{text}");
        }
    }
    let running = format!("RFC 9999           Colours          November 2026\n{ART}");
    assert_eq!(read("x", &running, Some("Colours")).findings[0].code.to_string(), "GW0015");
    let scale = format!("0 1 2 3 4 5 6 7{}", ART.replace("\n   ", "\n"));
    let two = format!("{scale}\n1.  Tones\n{ART}");
    assert_eq!(names(&read("x", &two, None)), ["Header", "Tones"], "{two}");
}

/// What art cannot say stands beside a document that is not to be edited.
#[test]
fn annotations_stand_beside_a_document() {
    let mut sources = Sources::of("rfc", RFC);
    let read = |sources: &mut Sources, annotations: &str| {
        let source = sources.add("--where", annotations);
        (read_annotated("rfc", RFC, Some("2.1"), annotations, source), source)
    };
    let (document, _) = read(&mut sources, "kind = 7, length as count");
    assert_eq!(document.findings, []);
    assert_eq!(document.layouts[0].fields[0].role, FieldRole::Constant(7));
    assert_eq!(document.layouts[0].fields[1].name, "count");
    let source = sources.add("--where", "options: rest");
    let all = read_annotated("rfc", RFC, None, "options: rest", source);
    assert_eq!((all.findings.as_slice(), all.layouts[1].octets()), ([].as_slice(), 1));
    for (annotations, code, at) in [("kind 7", "GW0010", 5), ("kind = 7, x: rest", "GW0011", 10)] {
        let (document, source) = read(&mut sources, annotations);
        let finding = &document.findings[0];
        assert_eq!(finding.code.to_string(), code);
        assert_eq!((finding.primary.span.source, finding.primary.span.start), (source, at));
    }
}

/// Version 2 of the vocabulary, with what published sources have: a DOCTYPE of other documents,
/// references to them, a bare ampersand, art with and without CDATA.
const XML: &str = r#"<?xml version="1.0" encoding="US-ASCII"?>
<!DOCTYPE rfc SYSTEM "rfc2629.dtd" [
<!ENTITY rfc2460 PUBLIC "" "reference.RFC.2460.xml">
]>
<rfc><front><title>R & D</title></front><middle>
<section title="Introduction"><t>See &rfc2460;.</t></section>
<section title="Formats">
<section title="Probe Format"><figure><artwork>
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |     Kind      |    Length     |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
</artwork></figure></section>
<section title="Answer"><figure title="Answer Header"><artwork align="center">
  <![CDATA[
   +-+-+-+-+-+-+-+-+
   |  Kind  |Length|
   +-+-+-+-+-+-+-+-+
]]></artwork></figure></section>
</section></middle><back>
<section title="Colours"><figure><artwork><![CDATA[
+-+-+-+-+-+-+-+-+
|    Colour     |
+-+-+-+-+-+-+-+-+
]]></artwork></figure></section>
</back></rfc>
"#;

#[test]
fn xml2rfc_version_2() {
    let document = read("xml", XML, None);
    assert_eq!(names(&document), ["Probe", "Colours"]);
    // The caret stands in the file, not only in the artwork.
    let finding = &document.findings[0];
    assert_eq!(finding.code.to_string(), "GW0003");
    let place = finding.finding(&Sources::of("x.xml", XML)).place;
    assert_eq!((place.line, place.column), (16, 13));
    assert_eq!(names(&read("xml", XML, Some("2.1"))), ["Probe"]);
    assert_eq!(names(&read("xml", XML, Some("A"))), ["Colours"]);
    assert_eq!(names(&read("xml", XML, Some("Colours"))), ["Colours"]);
    assert_eq!(read("xml", XML, Some("9")).findings[0].code.to_string(), "GW0015");
}

#[test]
fn xml2rfc_version_3() {
    let text = r#"<rfc version="3"><middle><section pn="section-1"><name>Probe Format</name>
<figure><name>The Probe</name><artset><artwork type="svg"><svg/></artwork>
<artwork type="ascii-art">
+-+-+-+-+-+-+-+-+
|    Colour     |
+-+-+-+-+-+-+-+-+
</artwork></artset></figure></section></middle></rfc>"#;
    assert_eq!(names(&read("xml", text, Some("1"))), ["TheProbe"]);
}

/// As RFCs from 8650 on are published: what RFC 7991 defines and the publisher's numbers (`pn`), with
/// sections in front that are none, one without a number, titles with elements in them, art beside
/// its picture, in `sourcecode`, with references and with a comment in it.
const XML3: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<rfc xmlns:xi="http://www.w3.org/2001/XInclude" version="3" category="std" consensus="true"
  docName="draft-example-header-01" ipr="trust200902" number="9999" submissionType="IETF"
  sortRefs="true" symRefs="true" tocInclude="true" xml:lang="en" prepTime="2026-11-22T00:00:00">
<front><title abbrev="Header">An Example of a Header</title>
<seriesInfo name="RFC" value="9999" stream="IETF"/>
<author fullname="A. N. Author" initials="A." surname="Author"><address/></author>
<abstract pn="section-abstract"><t indent="0" pn="section-abstract-1">An example.</t></abstract>
<boilerplate><section anchor="status-of-memo" numbered="false" pn="section-boilerplate.1">
<name slugifiedName="name-status-of-this-memo">Status of This Memo</name></section></boilerplate>
<toc><section anchor="toc" numbered="false" removeInRFC="false" toc="exclude" pn="section-toc.1">
<name slugifiedName="name-table-of-contents">Table of Contents</name></section></toc>
</front><middle>
<section anchor="intro" numbered="false" toc="include" removeInRFC="false" pn="section-1">
<name slugifiedName="name-introduction">Introduction</name>
<t indent="0" pn="section-1-1">See <xref target="formats" format="default" sectionFormat="of"
  derivedContent="Section 2"/>. It <bcp14>MUST</bcp14> be read &#8211; twice.</t>
<artwork name="" type="" align="left" alt="" pn="section-1-2">
  +------+      +------+
  | Host |-----&gt;| Gate |
  +------+      +------+
</artwork></section>
<section anchor="formats" numbered="true" toc="include" removeInRFC="false" pn="section-2">
<name slugifiedName="name-formats">Formats</name>
<section anchor="probe" numbered="true" toc="include" removeInRFC="false" pn="section-2.1">
<name slugifiedName="name-probe">The <tt>Probe</tt>
  Message Format</name>
<sourcecode type="test-vectors" markers="false" pn="section-2.1-1">
 0                   1
 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5
+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
|     Kind      |    Length     |
+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
</sourcecode>
<sourcecode type="c" markers="true" pn="section-2.1-2">
struct probe { uint8_t kind, length; };
</sourcecode></section>
<section numbered="true" pn="section-2.2"><name>Answer</name>
<figure anchor="fig-answer" align="left" suppress-title="false" pn="figure-1">
<name slugifiedName="name-answer-header">Answer Header</name>
<artset pn="section-2.2-1.1">
<artwork type="svg" align="left" pn="section-2.2-1.1.1"><svg xmlns="http://www.w3.org/2000/svg"
  width="80" height="20"><text x="1" y="1">Kind</text></svg></artwork>
<artwork type="ascii-art" align="left" alt="" pn="section-2.2-1.1.2"><![CDATA[
+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
|     Kind      |  Length  |    |
+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
]]></artwork></artset></figure>
<aside><t>Not a drawing.</t></aside></section></section>
</middle><back>
<references pn="section-3"><name>References</name></references>
<section anchor="tones" numbered="true" pn="section-appendix.a"><name>Tones</name>
<section numbered="true" pn="section-appendix.a.1"><name>Loud &amp; Low</name>
<artwork type="ascii-art"><!-- one octet -->
+-+-+-+-+-+-+-+-+
|     Tone      |
+-+-+-+-+-+-+-+-+
</artwork></section></section>
<section numbered="false" pn="section-appendix.b"><name>Acknowledgments</name><t>All.</t></section>
</back></rfc>
"#;

#[test]
fn xml2rfc_version_3_as_published() {
    let cases: [(Option<&str>, &[&str]); 9] = [
        (None, &["TheProbe", "LoudLow"]),
        (Some("2"), &["TheProbe"]),
        (Some("2.1"), &["TheProbe"]),
        (Some("The Probe Message Format"), &["TheProbe"]),
        (Some("probe"), &["TheProbe"]),
        (Some("A"), &["LoudLow"]),
        (Some("A.1"), &["LoudLow"]),
        (Some("tones"), &["LoudLow"]),
        (Some("Loud & Low"), &["LoudLow"]),
    ];
    for (section, expected) in cases {
        assert_eq!(names(&read("xml", XML3, section)), expected, "{section:?}");
    }
    // The caret stands in the file; the figure is asked for by its anchor.
    for section in [None, Some("2.2"), Some("fig-answer")] {
        let document = read("xml", XML3, section);
        let finding = &document.findings[0];
        let place = finding.finding(&Sources::of("x.xml", XML3)).place;
        let line = XML3.lines().position(|line| line.contains("Length  |    |")).unwrap() + 1;
        assert_eq!((place.line, document.findings.len()), (line, 1), "{finding:?}");
    }
    for (section, code) in [("9", "GW0015"), ("1", "GW0001"), ("fig-none", "GW0015")] {
        let document = read("xml", XML3, Some(section));
        assert_eq!(document.findings[0].code.to_string(), code, "{section}");
    }
}

/// A draft of version 3 has no publisher's numbers: they are counted, and not for what has none.
#[test]
fn sections_of_a_draft_are_counted() {
    let art = "<artwork>\n+-+-+-+-+-+-+-+-+\n|     Tone      |\n+-+-+-+-+-+-+-+-+\n</artwork>";
    let text = format!(
        "<rfc version=\"3\"><front/><middle>\
         <section numbered=\"false\"><name>Note</name></section>\
         <section><name>One</name>{art}</section>\
         <section><name>Two</name><section><name>Deep</name>{art}</section></section>\
         </middle><back><section><name>Late</name>{art}</section></back></rfc>"
    );
    for (section, name) in [("1", "One"), ("2", "Deep"), ("2.1", "Deep"), ("A", "Late")] {
        assert_eq!(names(&read("xml", &text, Some(section))), [name], "{section}");
    }
}

/// Names, widths and constants in XML give the header that the diagram gives.
#[test]
fn a_field_list_is_another_way_to_the_same_header() {
    let list = r#"<headers>
  <header name="Ipv4">
    <field name="Version" bits="4" constant="4"/>
    <field name="IHL" bits="4"/>
    <field name="type_of_service" octets="1"/>
    <field name="Header Checksum" bits="16" type="checksum"/>
    <field name="Reserved" bits="32"/>
    <field name="Source Address" bits="32" type="Ipv4Addr"/>
    <variable name="Options" octets="ihl * 4 - 20"/>
  </header>
  <header name="Tail" trailer="true"><field name="crc" bits="0x20"/></header>
</headers>"#;
    let document = read("list", list, None);
    assert_eq!(document.findings, []);
    let art = "
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |Version|  IHL  |Type of Service|        Header Checksum        |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                           Reserved                            |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                        Source Address                         |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                    Options                    |    Padding    |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    where version = 4, header_checksum: checksum, source_address: Ipv4Addr,
          options: [ihl * 4 - 20]";
    assert_eq!(document.layouts[0], read_art("Ipv4", art).unwrap());
    assert!(document.layouts[1].trailer);
    assert_eq!(read_art("Tail", &draw(&document.layouts[1])).as_ref(), Ok(&document.layouts[1]));
}

/// Each refused list, with the code and the text under the caret.
#[test]
fn bad_lists_are_findings() {
    let cases = [
        ("<headers>", "GW0016", "<"),
        ("<routes/>", "GW0016", "<routes"),
        ("<headers/>", "GW0017", "<headers"),
        ("<headers><field/></headers>", "GW0017", "<field"),
        ("<header><field name='a' bits='8'/></header>", "GW0017", "<header"),
        ("<header name='A'><field bits='8'/></header>", "GW0017", "<field"),
        ("<header name='A'><field name='a'/></header>", "GW0017", "<field"),
        ("<header name='A'><field name='a' bits='x'/></header>", "GW0017", "x"),
        ("<header name='A'><field name='a' bits='8' constant='y'/></header>", "GW0017", "y"),
        ("<header name='A'><field name='a' bits='8' constant='256'/></header>", "GW0012", "<field"),
        ("<header name='A'><field name='a' bits='7'/></header>", "GW0008", "<field"),
        ("<header name='A'><field name='a' bits='4294967295'/></header>", "GW0018", "<field"),
        (
            "<header name='A'><field name='a' bits='32' type='Ipv6Addr'/></header>",
            "GW0012",
            "<field",
        ),
        (
            "<header name='A'><field name='a' bits='8'/><variable name='b' octets='a +'/></header>",
            "GW0010",
            "",
        ),
    ];
    for (text, code, under) in cases {
        let document = read("bad", text, None);
        let first = document.findings.first().expect(text);
        assert_eq!(first.code.to_string(), code, "{text}");
        let span = first.primary.span;
        assert_eq!(text.get(span.start..span.end), Some(under), "{text}");
    }
}

proptest! {
    /// Whatever a document is, reading ends, and its findings point into it.
    #[test]
    fn any_document_is_read_or_refused(
        at in any::<prop::sample::Index>(),
        by in "(?s).{0,4}",
        xml in any::<bool>(),
        section in "(|[0-9A.]{1,3})",
    ) {
        let mut text = if xml { XML } else { RFC }.to_owned();
        let at = at.index(text.len());
        text.replace_range(at..=at, &by);
        for section in [None, Some(section.as_str())] {
            let document = read("any", &text, section);
            for finding in &document.findings {
                prop_assert!(finding.primary.span.end <= text.len().max(1), "{:?}", finding);
            }
        }
    }
}

/// The examples of `docs/headers.md`: the drawing and the field list are one header.
#[test]
fn the_examples_of_the_manual_are_one_header() {
    const MANUAL: &str = include_str!("../../../docs/headers.md");
    let example = |language: &str| {
        let begin = MANUAL.find(&format!("```{language}\n")).expect(language) + language.len() + 4;
        MANUAL[begin..].split("```").next().unwrap()
    };
    let drawn = read_art("Probe", example("text")).unwrap();
    let document = read("manual", example("xml"), None);
    assert_eq!(document.findings, []);
    assert_eq!(document.layouts, [drawn]);
}
