//! Draws a layout as art in RFC style: `read_art(name, draw(layout))` gives the layout again.

use crate::{
    assemble::natural_kind,
    layout::{Field, FieldKind, FieldRole, Layout, ROW_BITS},
    names,
};
use std::{collections::HashSet, fmt::Write};

/// The layout as a diagram of 32 bits per row, followed by the necessary annotations.
pub fn draw(layout: &Layout) -> String {
    let mut drawing = Drawing { labels: Labels::of(layout), annotations: Vec::new() };
    let mut out = String::from(RULER);
    let (mut row, mut above): (Vec<FieldCell>, Vec<FieldCell>) = (Vec::new(), Vec::new());
    for field in &layout.fields {
        for cell in drawing.cells(field) {
            let full = cell.to == ROW_BITS;
            row.push(cell);
            if full {
                rule(&mut out, &above, &row);
                lines(&mut out, &row);
                above = std::mem::take(&mut row);
            }
        }
    }
    if !row.is_empty() {
        rule(&mut out, &above, &row);
        lines(&mut out, &row);
        above = row;
    }
    for variable in &layout.variable {
        let says = variable.length.as_ref().map(|length| format!(": [{length}]"));
        let label = drawing.label(&variable.name, ROW_BITS, ROW_BITS, says);
        let cell = FieldCell { from: 0, to: ROW_BITS, label, joined: false };
        let row = vec![cell];
        rule(&mut out, &above, &row);
        for line in row.iter().flat_map(|cell| &cell.label) {
            let _ = writeln!(out, "~{line:^63}~");
        }
        above = row;
    }
    rule(&mut out, &above, &[]);
    if layout.trailer {
        drawing.annotations.push("trailer".to_owned());
    }
    if !drawing.annotations.is_empty() {
        let _ = writeln!(out, "where {}", drawing.annotations.join(",\n      "));
    }
    out
}

const RULER: &str = " 0                   1                   2                   3
 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
";

/// Maximum rows of a field; a longer one is drawn in one row with its octets in brackets.
const FIELD_ROWS_MAX: u32 = 4;

/// Mark of a continued field at a place that the open ruled line cannot reach.
const DITTO: &str = "\"";

/// Part of a field in one row.
#[derive(Clone, Debug)]
struct FieldCell {
    from: u32,
    to: u32,
    label: Vec<String>,
    /// Whether it continues from the row above through an open ruled line.
    joined: bool,
}

struct Drawing {
    labels: Labels,
    annotations: Vec<String>,
}

/// Short names for fields that are too narrow for their own.
struct Labels {
    count: usize,
    taken: HashSet<String>,
}

impl Drawing {
    /// A field cut into rows.
    fn cells(&mut self, field: &Field) -> Vec<FieldCell> {
        let column = field.offset % ROW_BITS;
        let says = says(field);
        if column == 0
            && field.width.is_multiple_of(ROW_BITS)
            && field.width > FIELD_ROWS_MAX * ROW_BITS
        {
            let mut label = self.label(&field.name, ROW_BITS, field.width, says);
            label.push(format!("({})", field.width / 8));
            return vec![FieldCell { from: 0, to: ROW_BITS, label, joined: false }];
        }
        let first = field.width.min(ROW_BITS - column);
        // What a ditto mark carries on is read apart from the label.
        let (left, below) = (field.width - first, (field.width - first).min(ROW_BITS));
        let labelled = if column < below { field.width } else { first };
        let label = self.label(&field.name, first, labelled, says);
        let mut cells = vec![FieldCell { from: column, to: column + first, label, joined: false }];
        let (mut left, mut above) = (left, column);
        while left > 0 {
            let to = left.min(ROW_BITS);
            let joined = above < to;
            let label = if joined { Vec::new() } else { vec![DITTO.to_owned()] };
            cells.push(FieldCell { from: 0, to, label, joined });
            (left, above) = (left - to, 0);
        }
        cells
    }

    /// The lines that name a field in a cell of `bits`, and the annotations that it needs.
    fn label(&mut self, name: &str, bits: u32, width: u32, says: Option<String>) -> Vec<String> {
        let columns = usize::try_from(2 * bits - 1).unwrap_or(usize::MAX);
        let downwards = width == 1;
        if let Some(lines) = wrap(name, columns, downwards) {
            if let Some(says) = says {
                self.annotations.push(format!("{name}{says}"));
            }
            return lines;
        }
        // One letter a line fits everywhere; read back, the lines are words unless one bit wide.
        let letters: Vec<String> = self.labels.next().chars().map(String::from).collect();
        let drawn = letters.join(if downwards { "" } else { "_" });
        self.annotations.push(format!("{drawn} as {name}{}", says.unwrap_or_default()));
        letters.iter().map(|letter| letter.to_uppercase()).collect()
    }
}

impl Labels {
    fn of(layout: &Layout) -> Self {
        let names = layout.fields.iter().map(|field| field.name.replace('_', ""));
        Self { count: 0, taken: names.collect() }
    }

    /// The next of `qa`, `qb`, … `qz`, `qaa`, … that is no field's name.
    fn next(&mut self) -> String {
        // Each name of the layout is passed over at most once.
        loop {
            let label = self.count_up();
            if !self.taken.contains(&label) {
                return label;
            }
        }
    }

    fn count_up(&mut self) -> String {
        let (mut number, mut label) = (self.count, String::new());
        self.count += 1;
        loop {
            let letter = char::from(b'a' + u8::try_from(number % 26).unwrap_or(0));
            label.insert(0, letter);
            if number < 26 {
                break;
            }
            number = number / 26 - 1;
        }
        format!("q{label}")
    }
}

/// The words of a name in lines of at most so many columns, if that reads back as the same name.
fn wrap(name: &str, columns: usize, downwards: bool) -> Option<Vec<String>> {
    if downwards {
        let letters = name.chars().all(|c| c.is_ascii_alphanumeric());
        return letters.then(|| name.to_ascii_uppercase().chars().map(String::from).collect());
    }
    let mut lines: Vec<String> = Vec::new();
    for word in name.split('_') {
        let mut letters = word.chars();
        let first = letters.next()?;
        let word = format!("{}{}", first.to_ascii_uppercase(), letters.as_str());
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= columns => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    let fits = lines.iter().all(|line| line.len() <= columns);
    // Equal lines would be read as the elements of an array.
    let differ =
        lines.iter().enumerate().all(|(at, line)| !lines.iter().take(at).any(|l| l == line));
    (fits && differ && names::identifier(name) == name).then_some(lines)
}

/// The annotation that a field needs beside the art.
fn says(field: &Field) -> Option<String> {
    let natural = natural_kind(field.offset, field.width, field.role);
    let plain = !names::is_reserved(&field.name);
    Some(match (field.role, &field.kind) {
        (FieldRole::Constant(value), _) => format!(" = {value}"),
        (FieldRole::Checksum, _) => ": checksum".to_owned(),
        (FieldRole::Reserved, _) if plain => ": reserved".to_owned(),
        (FieldRole::Reserved, _) => return None,
        (FieldRole::Value, kind) if *kind == natural && plain => return None,
        (FieldRole::Value, FieldKind::Number) => ": number".to_owned(),
        (FieldRole::Value, FieldKind::Octets) => ": octets".to_owned(),
        (FieldRole::Value, FieldKind::Ipv4) => ": Ipv4Addr".to_owned(),
        (FieldRole::Value, FieldKind::Ipv6) => ": Ipv6Addr".to_owned(),
        (FieldRole::Value, FieldKind::Mac) => ": MacAddress".to_owned(),
        (FieldRole::Value, FieldKind::Newtype(name)) => format!(": {name}"),
    })
}

/// The ruled line between two rows, open where a field continues.
fn rule(out: &mut String, above: &[FieldCell], below: &[FieldCell]) {
    let width = above.last().into_iter().chain(below.last()).map(|cell| cell.to).max().unwrap_or(0);
    let open = match (above.last(), below.first()) {
        (Some(above), Some(below)) if below.joined => above.from..below.to,
        _ => 0..0,
    };
    out.push('+');
    for bit in 0..width {
        let inside = |bit: u32| open.contains(&bit);
        out.push(if inside(bit) { ' ' } else { '-' });
        out.push(if inside(bit) && inside(bit + 1) { ' ' } else { '+' });
    }
    out.push('\n');
}

/// The lines of one row, with each label centred in its cell.
fn lines(out: &mut String, row: &[FieldCell]) {
    let height = row.iter().map(|cell| cell.label.len()).max().unwrap_or(0).max(1);
    for line in 0..height {
        out.push('|');
        for cell in row {
            let columns = usize::try_from(2 * (cell.to - cell.from) - 1).unwrap_or(0);
            let top = (height - cell.label.len()) / 2;
            let text = line.checked_sub(top).and_then(|line| cell.label.get(line));
            let _ = write!(out, "{:^columns$}|", text.map_or("", String::as_str));
        }
        out.push('\n');
    }
}
