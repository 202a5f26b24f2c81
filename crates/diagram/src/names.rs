//! Reads the text in a cell: a name, constant bits, a width in octets, or an open length.

use crate::art::Drawn;

/// The meaning of the text in a drawn field.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Naming {
    /// As drawn, with single blanks; compared with quoted annotations.
    pub(crate) written: String,
    /// `snake_case`; empty if there is no name.
    pub(crate) name: String,
    pub(crate) constant: Option<u128>,
    /// Width given in brackets, as in `chaddr (16)` (RFC 2131).
    pub(crate) bracketed: Option<u32>,
    pub(crate) variable: bool,
    /// Whether it continues the last field of the row above: `(continued)`, `(cont.)` or `"`.
    pub(crate) continued: bool,
}

/// Reads the texts of a drawn field.
pub(crate) fn read(drawn: &Drawn) -> Naming {
    let written = written(drawn);
    let mut naming = Naming { written: written.clone(), ..Naming::default() };
    let mut rest = written;
    for mark in ["(continued)", "(cont.)", "(cont)", "\""] {
        if rest == mark || mark.starts_with('(') && rest.ends_with(mark) {
            naming.continued = true;
            return naming;
        }
    }
    if rest.contains("...") {
        naming.variable = true;
        rest = rest.replace("...", " ");
    }
    if let Some(inner) = rest.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        naming.variable = true;
        rest = inner.to_owned();
    }
    // `Source Address [1]`: the elements of an array are drawn one by one.
    let element = rest.split_once(" [").filter(|(_, index)| index.contains(']'));
    if let Some((element, _)) = element {
        naming.variable = true;
        element.trim().clone_into(&mut naming.written);
        rest = element.to_owned();
    }
    if let Some(name) = rest.trim().strip_suffix("(variable)") {
        naming.variable = true;
        rest = name.to_owned();
    }
    if let Some((name, width)) = bracketed(&rest) {
        naming.bracketed = Some(width);
        rest = name;
    }
    if let Some(bits) = constant_bits(&rest, drawn.width) {
        naming.constant = Some(bits);
        return naming;
    }
    if let Some((name, value)) = rest.split_once('=') {
        if let Some(value) = number(value.trim()) {
            naming.constant = Some(value);
            rest = name.to_owned();
        }
    } else if let Some(value) = number(rest.trim()) {
        naming.constant = Some(value);
        return naming;
    }
    naming.name = identifier(&rest);
    naming
}

/// The lines of a cell as one text. Words of one line are joined with the next, each line only once
/// (an array is drawn by repeating its element). Single letters below each other form one word.
fn written(drawn: &Drawn) -> String {
    let mut lines: Vec<String> = Vec::new();
    let downwards = drawn.width == 1 && drawn.texts.iter().all(|text| text.trim().len() <= 1);
    for text in &drawn.texts {
        let words = text.split_whitespace().filter(|word| !is_filler(word) || text.trim() == "...");
        let line = words.collect::<Vec<_>>().join(" ");
        let element = line.split(" [").next().unwrap_or_default().to_owned();
        let repeated = line != element && lines.iter().any(|line| line.starts_with(&element));
        if !line.is_empty() && !repeated && (downwards || !lines.contains(&line)) {
            lines.push(line);
        }
    }
    lines.join(if downwards { "" } else { " " })
}

/// Whether a word is dots, dashes or stars in place of omitted text.
fn is_filler(word: &str) -> bool {
    word.chars().all(|c| matches!(c, '.' | '-' | '~' | ':' | '*' | '/' | '\\' | '|'))
        && word != "..."
}

/// `name (16)` to name and number.
fn bracketed(text: &str) -> Option<(String, u32)> {
    let (name, width) = text.trim().strip_suffix(')')?.rsplit_once('(')?;
    let width = width.trim().parse().ok()?;
    Some((name.trim().to_owned(), width))
}

/// `1 1 0 0 0` of five bits to a number.
fn constant_bits(text: &str, width: u32) -> Option<u128> {
    let bits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let fits = u32::try_from(bits.len()).is_ok_and(|count| count == width && width <= 128);
    (fits && bits.iter().all(|bit| matches!(bit, '0' | '1')))
        .then(|| bits.iter().fold(0, |value, bit| value << 1 | u128::from(*bit == '1')))
}

/// A number in decimal, hexadecimal (`0x`) or binary (`0b`).
pub(crate) fn number(text: &str) -> Option<u128> {
    let digits = text.replace('_', "");
    if let Some(digits) = digits.strip_prefix("0x") {
        u128::from_str_radix(digits, 16).ok()
    } else if let Some(digits) = digits.strip_prefix("0b") {
        u128::from_str_radix(digits, 2).ok()
    } else {
        digits.parse().ok()
    }
}

/// `Time to Live` to `time_to_live`.
pub(crate) fn identifier(text: &str) -> String {
    let mut name = String::new();
    for word in text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
        if !name.is_empty() {
            name.push('_');
        } else if word.starts_with(|c: char| c.is_ascii_digit()) {
            name.push_str("n_");
        }
        name.push_str(&word.to_ascii_lowercase());
    }
    name
}

/// Whether RFCs use this name for bits that are sent as zero and ignored.
pub(crate) fn is_reserved(name: &str) -> bool {
    const NAMES: [&str; 12] = [
        "reserved",
        "unused",
        "rsrvd",
        "rsvd",
        "resv",
        "res",
        "rsv",
        "mbz",
        "must_be_zero",
        "zero",
        "zeros",
        "all_zeros",
    ];
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_');
    NAMES.contains(&stem)
}
