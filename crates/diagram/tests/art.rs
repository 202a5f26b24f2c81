//! Diagrams as printed in RFCs, bit by bit, and the drawings that are refused.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use gatewright_diagnostic::Sources;
use gatewright_diagram::{FieldRole, Layout, read_art};

/// `name offset+width`, with `=N` for constants, `-` for reserved and `~name` for variable parts.
fn summary(layout: &Layout) -> String {
    let fields = layout.fields.iter().map(|field| {
        let role = match field.role {
            FieldRole::Value => String::new(),
            FieldRole::Reserved => "-".to_owned(),
            FieldRole::Constant(value) => format!("={value}"),
            FieldRole::Checksum => "!".to_owned(),
        };
        format!("{} {}+{}{role}", field.name, field.offset, field.width)
    });
    let variable = layout.variable.iter().map(|variable| match &variable.length {
        Some(length) => format!("~{} [{length}]", variable.name),
        None => format!("~{}", variable.name),
    });
    fields.chain(variable).collect::<Vec<_>>().join(", ")
}

fn read(text: &str) -> Layout {
    read_art("Header", text).unwrap_or_else(|findings| {
        let sources = Sources::of("art", text);
        let pictures: Vec<String> = findings.iter().map(|f| f.render(&sources, false)).collect();
        panic!("{}", pictures.join("\n"))
    })
}

/// RFC 768: boxes of nine columns an octet, names over two lines, text right and below.
#[test]
fn boxes_of_octets() {
    let udp = read(
        "
                  0      7 8     15 16    23 24    31  
                 +--------+--------+--------+--------+ 
                 |     Source      |   Destination   | 
                 |      Port       |      Port       | 
                 +--------+--------+--------+--------+ 
                 |                 |                 | 
                 |     Length      |    Checksum     | 
                 +--------+--------+--------+--------+ 
                 |                                     
                 |          data octets ...            
                 +---------------- ...                 
        where checksum: checksum",
    );
    assert_eq!(
        summary(&udp),
        "source_port 0+16, destination_port 16+16, length 32+16, checksum 48+16!, ~data_octets"
    );
}

/// RFC 791 §3.1: options whose length another field says, and padding that they count in.
#[test]
fn options_of_computed_length() {
    let ipv4 = read(
        "
    0                   1                   2                   3   
    0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |Version|  IHL  |Type of Service|          Total Length         |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |         Identification        |Flags|      Fragment Offset    |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |  Time to Live |    Protocol   |         Header Checksum       |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |                       Source Address                          |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |                    Destination Address                        |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |                    Options                    |    Padding    |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   where version = 4, header_checksum: checksum, options: [ihl * 4 - 20],
         source_address: Ipv4Addr, destination_address: Ipv4Addr",
    );
    assert_eq!(
        summary(&ipv4),
        "version 0+4=4, ihl 4+4, type_of_service 8+8, total_length 16+16, identification 32+16, \
         flags 48+3, fragment_offset 51+13, time_to_live 64+8, protocol 72+8, \
         header_checksum 80+16!, source_address 96+32, destination_address 128+32, \
         ~options [ihl * 4 - 20]"
    );
}

/// RFC 9293 §3.1: flags written downwards, options in brackets, data with broken borders.
#[test]
fn flags_written_downwards() {
    let tcp = read(
        "
      0                   1                   2                   3
      0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
     +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
     |  Data |       |C|E|U|A|P|R|S|F|                               |
     | Offset| Rsrvd |W|C|R|C|S|S|Y|I|            Window             |
     |       |       |R|E|G|K|H|T|N|N|                               |
     +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
     |                           [Options]                           |
     +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
     |                                                               :
     :                             Data                              :
     :                                                               |
     +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+",
    );
    assert_eq!(
        summary(&tcp),
        "data_offset 0+4, rsrvd 4+4-, cwr 8+1, ece 9+1, urg 10+1, ack 11+1, psh 12+1, rst 13+1, \
         syn 14+1, fin 15+1, window 16+16, ~options, ~data"
    );
}

/// RFC 8200 §3 and §4.3: an address over four rows, a part that begins in the middle of a row.
#[test]
fn fields_over_rows() {
    let ipv6 = read(
        "
+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
|         Payload Length        |  Next Header  |   Hop Limit   |
+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
|                                                               |
+                                                               +
|                                                               |
+                         Source Address                        +
|                                                               |
+                                                               +
|                                                               |
+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+",
    );
    assert_eq!(
        summary(&ipv6),
        "payload_length 0+16, next_header 16+8, hop_limit 24+8, source_address 32+128"
    );
    let options = read(
        "
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |  Next Header  |  Hdr Ext Len  |                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+                               +
    |                                                               |
    .                                                               .
    .                            Options                            .
    .                                                               .
    |                                                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    where options: [hdr_ext_len * 8 + 6]",
    );
    assert_eq!(
        summary(&options),
        "next_header 0+8, hdr_ext_len 8+8, ~options [hdr_ext_len * 8 + 6]"
    );
    let option = read(
        "
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+- - - - - - - - -
   |  Option Type  |  Opt Data Len |  Option Data
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+- - - - - - - - -",
    );
    assert_eq!(summary(&option), "option_type 0+8, opt_data_len 8+8, ~option_data");
}

/// RFC 2131 §2: widths in brackets, in octets.
#[test]
fn widths_in_brackets() {
    let dhcp = read(
        "
   0                   1                   2                   3
   0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |     op (1)    |   htype (1)   |   hlen (1)    |   hops (1)    |
   +---------------+---------------+---------------+---------------+
   |           secs (2)            |           flags (2)           |
   +---------------------------------------------------------------+
   |                                                               |
   |                          chaddr  (16)                         |
   |                                                               |
   |                                                               |
   +---------------------------------------------------------------+
   |                                                               |
   |                          file    (128)                        |
   +---------------------------------------------------------------+
   |                                                               |
   |                          options (variable)                   |
   +---------------------------------------------------------------+",
    );
    assert_eq!(
        summary(&dhcp),
        "op 0+8, htype 8+8, hlen 16+8, hops 24+8, secs 32+16, flags 48+16, chaddr 64+128, \
         file 192+1024, ~options"
    );
}

/// RFC 4944 §5.3 and RFC 6282 §3.1.1: constant bits, a narrow last row, four columns a bit.
#[test]
fn constant_bits_and_narrow_rows() {
    let fragment = read(
        "
                        1                   2                   3
    0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |1 1 1 0 0|    datagram_size    |         datagram_tag          |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |datagram_offset|
   +-+-+-+-+-+-+-+-+",
    );
    assert_eq!(
        summary(&fragment),
        "pattern 0+5=28, datagram_size 5+11, datagram_tag 16+16, datagram_offset 32+8"
    );
    let iphc = read(
        "
  0                                       1
  0   1   2   3   4   5   6   7   8   9   0   1   2   3   4   5
+---+---+---+---+---+---+---+---+---+---+---+---+---+---+---+---+
| 0 | 1 | 1 |  TF   |NH | HLIM  |CID|SAC|  SAM  | M |DAC|  DAM  |
+---+---+---+---+---+---+---+---+---+---+---+---+---+---+---+---+
where pattern as dispatch",
    );
    assert_eq!(
        summary(&iphc),
        "dispatch 0+3=3, tf 3+2, nh 5+1, hlim 6+2, cid 8+1, sac 9+1, sam 10+2, m 12+1, dac 13+1, \
         dam 14+2"
    );
}

/// Each refused drawing, with the code and the text under the caret.
#[test]
fn bad_drawings_are_findings() {
    let cases = [
        ("nothing drawn", "GW0001", "n"),
        ("+-+-+-+-+-+-+-+-+\n|      Kind     |\n", "GW0002", "|      Kind     |"),
        ("+-+-+-+-+-+-+-+-+\n|  Kind  |Length|\n+-+-+-+-+-+-+-+-+\n", "GW0003", "|"),
        (
            "+-+-+-+-+-+-+-+-+\n|   A   |   B   |\n|     A |   B   |\n|   A |     B   |\n+-+-+-+-+-+-+-+-+\n",
            "GW0004",
            "|",
        ),
        (
            "+-+-+-+-+-+-+-+-+\n|   A   |   B   |\n+       +-+-+-+-+\n|   C   |   D   |\n+-+-+-+-+-+-+-+-+\n",
            "GW0006",
            "   C   ",
        ),
        (
            "+-+-+-+-+-+-+-+-+\n|   A   |\n+-+-+-+-+-+-+-+-+\n|       B       |\n+-+-+-+-+-+-+-+-+\n",
            "GW0007",
            "   A   ",
        ),
        ("+-+-+-+-+-+-+-+-+\n|   A   |\n+-+-+-+-+-+-+-+-+\n", "GW0008", "   A   "),
        (
            "+-+-+-+-+-+-+-+-+\n|   A   |   B   |\n+-+-+-+-+-+-+-+-+\n~      Name     ~\n+-+-+-+-+-+-+-+-+\n|       C       |\n+-+-+-+-+-+-+-+-+\n",
            "GW0009",
            "       C       ",
        ),
        ("+-+-+-+-+-+-+-+-+\n|       A       |\n+-+-+-+-+-+-+-+-+\nwhere a 4", "GW0010", "4"),
        ("+-+-+-+-+-+-+-+-+\n|       A       |\n+-+-+-+-+-+-+-+-+\nwhere b = 4", "GW0011", "b"),
        (
            "+-+-+-+-+-+-+-+-+\n|       A       |\n+-+-+-+-+-+-+-+-+\nwhere a = 256",
            "GW0012",
            "       A       ",
        ),
        ("+-+-+-+-+-+-+-+-+\n|   A   |       |\n+-+-+-+-+-+-+-+-+\n", "GW0013", "       "),
        ("+-+-+-+-+-+-+-+-+\n|   A   |   A   |\n+-+-+-+-+-+-+-+-+\n", "GW0014", "   A   "),
    ];
    for (text, code, under) in cases {
        let findings = read_art("Bad", text).expect_err(text);
        let first = findings.first().expect(text);
        assert_eq!(first.code.to_string(), code, "{text}\n{first:?}");
        assert_eq!(
            text.get(first.primary.span.start..first.primary.span.end),
            Some(under),
            "{text}"
        );
    }
}

/// The warnings about a drawing that is read: code and text under the caret.
fn warned(text: &str) -> Vec<(String, String)> {
    let document = gatewright_diagram::read("Header", text, None);
    assert_eq!(document.layouts.len(), 1, "{text}\n{:?}", document.findings);
    let told = document.findings.iter().map(|it| {
        let under = text.get(it.primary.span.start..it.primary.span.end);
        (it.code.to_string(), under.unwrap_or_default().to_owned())
    });
    told.collect()
}

const RULE: &str = "+-+-+-+-+-+-+-+-+\n";

/// Rows without a ruled line between them: told, and read as RFC 768 and RFC 9293 mean it.
#[test]
fn rows_without_a_ruled_line_are_told() {
    let joined = |under: &str| vec![("GW0019".to_owned(), under.to_owned())];
    let two = format!("{RULE}|   A1  |   B1  |\n|   C   |   D   |\n{RULE}");
    assert_eq!(warned(&two), joined("|   C   |   D   |"));
    let one = format!("{RULE}|     Source    |\n|  Destination  |\n{RULE}");
    assert_eq!(warned(&one), joined("|  Destination  |"));
    let named = [
        // A name and a remark, flags downwards, a name beside a blank, boxes of octets (RFC 768).
        format!("{RULE}|     Magic     |\n|   (1 octet)   |\n{RULE}"),
        format!("{RULE}|S|F|M|A|R|E|O|P|\n|Y|I|O|C|S|O|N|S|\n|N|N|R|K|T|F|E|H|\n{RULE}"),
        format!("{RULE}| Data  |       |\n| Offset| Rsrvd |\n{RULE}"),
        "+--------+--------+\n| Source |  Dest  |\n|  Port  |  Port  |\n+--------+--------+\n"
            .to_owned(),
    ];
    for text in named {
        assert_eq!(warned(&text), [], "{text}");
    }
}

/// A last cell without its border: told, unless `...` or a ruled line that ends with it says that it
/// is meant.
#[test]
fn an_unclosed_last_cell_is_told() {
    let unclosed = |under: &str| vec![("GW0005".to_owned(), under.to_owned())];
    let wide = format!("+-+-+-+-+-+-+-+-{RULE}");
    assert_eq!(warned(&format!("{wide}|       A       |   B\n{wide}")), unclosed("|   B"));
    let alone = format!("{RULE}|       A       |\n{RULE}|   B\n{RULE}");
    assert_eq!(warned(&alone), unclosed("|   B"));
    let narrow = format!("{wide}|       A       |       B       |\n{wide}|       C       |\n");
    assert_eq!(warned(&format!("{narrow}{wide}")), unclosed("|"));
    let meant = [
        format!("{narrow}{RULE}"),
        format!("{wide}|       A       |   Data ...\n{wide}"),
        format!("{RULE}|       A       |\n{RULE}|  data octets ...\n+-------- ...\n"),
        "+-+-+-+-+-+-+-+-+- - - - -\n|       A       |   B\n+-+-+-+-+-+-+-+-+- - - - -\n"
            .to_owned(),
    ];
    for text in meant {
        assert_eq!(warned(&text), [], "{text}");
    }
}
