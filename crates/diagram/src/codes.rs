//! Diagnostic codes of diagrams and field lists: `GW0001` to `GW0099`.

use gatewright_diagnostic::Code;

macro_rules! codes {
    ($($name:ident $number:literal $title:literal $explanation:literal)*) => {
        $(#[doc = $title]
        pub const $name: Code =
            Code { number: $number, title: $title, explanation: $explanation };)*

        /// All codes of this crate, for `gatewright explain`.
        pub const ALL: &[&Code] = &[$(&$name),*];
    };
}

codes! {
    NO_DIAGRAM 1 "no packet diagram found"
    "A diagram begins with a ruled line such as `+-+-+-+-+`, two columns a bit, and each line below \
    it begins in the same column. Text without one has nothing to read."

    NOT_CLOSED 2 "the diagram is not closed"
    "The last row needs a ruled line below it, as the first has one above it. A page break inside a \
    diagram also ends it early."

    OFF_THE_GRID 3 "a bar is between two bits"
    "Each `|` must stand below a `+` of the ruled line: columns 0, 2, 4, … of the drawing for two \
    columns a bit. Usually one blank too many or too few was typed on this line:\n\n\
    \x20   +-+-+-+-+-+-+-+-+\n\
    \x20   | Kind   |Length|      wrong: the bar is in column 9\n\
    \x20   | Kind  |Length |      right: 4 bits each"

    BARS_DIFFER 4 "the lines of one row have different bars"
    "Lines without a ruled line between them are one row (as the flags of TCP, written downwards), \
    so their bars must agree."

    NO_END 5 "the line does not reach the right border"
    "A row ends with `|` below the last `+` of the ruled lines around it. Without it the last field \
    is read as a part of variable length, which has no accessor of its own; `|  Options ...` says \
    that this is meant. A last row that is narrower has a ruled line as narrow below it."

    NOT_CONTIGUOUS 6 "the drawn field is not one piece"
    "Bits are numbered row by row. A field may go on in the next row only if it is the last of its \
    row and the first of the next one."

    NARROW_ROW 7 "a narrow row in the middle"
    "Every row but the last has the width of the diagram."

    NOT_OCTETS 8 "the fields are not whole octets"
    "A header is a number of octets: the widths of its fixed fields must add up to a multiple of 8 \
    bits. A `reserved` field can fill the rest."

    AFTER_VARIABLE 9 "a fixed field behind a variable part"
    "Where this field stands depends on a length that differs from packet to packet. Describe it by \
    a header of its own, or add it to the part before it by `where NAME: rest`."

    BAD_ANNOTATION 10 "an annotation that cannot be read"
    "Behind the diagram, `where` and a list with commas say what art cannot:\n\n\
    \x20   where version = 4, source_address: Ipv4Addr, header_checksum: checksum,\n\
    \x20         options: [ihl * 4 - 20], \"Cur Hop Limit\" as hop_limit, mbz: reserved,\n\
    \x20         data: rest, trailer"

    UNKNOWN_FIELD 11 "no field of that name"
    "An annotation names a field as the diagram does, in lower case with `_` for blanks, or in \
    quotation marks as drawn."

    WRONG_WIDTH 12 "the width does not fit"
    "An IPv4 address is 32 bits wide, an IPv6 address 128, a MAC address 48; octets begin and end at \
    octets; a number has at most 128 bits, a constant 64; a constant must fit its field."

    NO_NAME 13 "a field without a name"
    "Each field needs a name, or `Reserved`, or its constant bits: an accessor is named after it."

    SAME_NAME 14 "two fields of the same name"
    "Rename one of them by `where \"NAME AS DRAWN\" as other_name`."

    NO_SECTION 15 "no such section"
    "The section is given by its number as printed, such as `3.1` or `4.6.2`."

    BAD_XML 16 "the XML cannot be read"
    "The text is not well-formed XML, or not a field list or an xml2rfc document."

    BAD_FIELD_LIST 17 "a field list that cannot be read"
    "A field list looks like this:\n\n\
    \x20   <headers>\n\
    \x20     <header name=\"Udp\">\n\
    \x20       <field name=\"source_port\" bits=\"16\"/>\n\
    \x20       <field name=\"version\" bits=\"4\" constant=\"4\"/>\n\
    \x20       <field name=\"source\" bits=\"32\" type=\"Ipv4Addr\"/>\n\
    \x20       <variable name=\"options\" octets=\"ihl * 4 - 20\"/>\n\
    \x20     </header>\n\
    \x20   </headers>"

    TOO_LARGE 18 "the diagram is too large"
    "A header has at most 512 fields and 65535 octets of fixed length."

    JOINED 19 "two lines are read as one row"
    "Lines without a ruled line between them are one row, so a name may stand on several lines. Here \
    each cell has a name on both lines, so a ruled line may be missing:\n\n\
    \x20   +-+-+-+-+-+-+-+-+\n\
    \x20   |   A   |   B   |\n\
    \x20   |   C   |   D   |      the fields `a_c` and `b_d`\n\
    \x20   +-+-+-+-+-+-+-+-+\n\n\
    If one row is meant, write each name on one line."
}
