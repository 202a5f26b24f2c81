//! Finds diagrams in a text, and the number of bits per column.

use crate::{codes, text::TextLine};
use gatewright_diagnostic::Diagnostic;

/// The left and right border of a diagram and its scale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    /// Column of the left border.
    pub(crate) left: usize,
    /// Column of the right border.
    pub(crate) right: usize,
    scale: Scale,
}

/// Scale from columns to bits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Scale {
    /// This number of columns per bit; two in most RFCs.
    Columns(usize),
    /// Nine columns are one octet, as in `+--------+--------+` (RFC 768).
    OctetBoxes,
}

const OCTET_BOX: usize = 9;

/// Columns of an octet where two columns are one bit.
const BOX_OF_OCTETS: usize = 16;

impl Grid {
    /// The bit boundary in `column`, if there is one.
    pub(crate) fn bit(self, column: usize) -> Option<u32> {
        let columns = column.checked_sub(self.left)?;
        let bit = match self.scale {
            Scale::Columns(scale) => (columns % scale == 0).then_some(columns / scale)?,
            Scale::OctetBoxes => (columns % OCTET_BOX == 0).then_some(columns / OCTET_BOX * 8)?,
        };
        u32::try_from(bit).ok()
    }

    /// The boundary in `column` of `line`, or the finding that there is none.
    pub(crate) fn boundary(self, line: &TextLine, column: usize) -> Result<u32, Diagnostic> {
        self.bit(column).ok_or_else(|| {
            Diagnostic::error(
                &codes::OFF_THE_GRID,
                line.span(column, column + 1),
                "this bar is between two bits",
            )
            .label(format!("column {} of the diagram", column.saturating_sub(self.left)))
            .help("move it below a `+` of the ruled line")
        })
    }

    /// Whether nine columns are an octet.
    pub(crate) fn has_octet_boxes(self) -> bool {
        self.scale == Scale::OctetBoxes
    }

    /// Bits of a full row.
    pub(crate) fn bits(self) -> u32 {
        self.bit(self.right).unwrap_or_default()
    }
}

/// A diagram found in a text: its lines, first and last ruled line included, and its grid.
#[derive(Clone, Debug)]
pub(crate) struct FoundDiagram<'a> {
    pub(crate) lines: &'a [TextLine],
    pub(crate) grid: Grid,
}

/// All diagrams drawn to scale in `lines`; other boxes and arrows are ignored.
pub(crate) fn find(lines: &[TextLine]) -> Vec<FoundDiagram<'_>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let Some(left) = line.indent().filter(|_| is_top(line)) else {
            at += 1;
            continue;
        };
        let after = lines.get(at..).unwrap_or_default();
        let count = after.iter().take_while(|line| belongs(line, left)).count();
        let drawing = after.get(..count).unwrap_or_default();
        let above = lines.get(..at).unwrap_or_default();
        let rows = drawing.iter().any(|line| !is_rule(line, left));
        if let Some(grid) = grid(above, drawing, left).filter(|_| rows) {
            found.push(FoundDiagram { lines: drawing, grid });
        }
        at += count.max(1);
    }
    found
}

/// Whether a line is a ruled line, closed from its left end.
fn is_top(line: &TextLine) -> bool {
    drawn(line).is_some()
}

/// Columns up to the end of a ruled line; a remark may stand right of it (RFC 3032 §2.1).
fn drawn(line: &TextLine) -> Option<usize> {
    let left = line.indent()?;
    let is_ruled = |column: usize| matches!(line.at(column), '+' | '-' | '=');
    // One blank between two dashes is a rule that fades out: `+-+-+- - - -`.
    let is_rule = |column: &usize| {
        is_ruled(*column) || line.at(*column) == ' ' && line.at(*column + 1) == '-'
    };
    let right = (left..line.width()).take_while(is_rule).count() + left;
    let apart = line.at(right) == ' ';
    let begins = line.at(left) == '+' && matches!(line.at(left + 1), '-' | '=');
    (begins && apart && right > left + 2).then_some(right)
}

/// Whether the line begins like a row or a ruled line of a diagram with this left border.
fn belongs(line: &TextLine, left: usize) -> bool {
    line.indent() == Some(left)
        && matches!(line.at(left), '+' | '*' | '|' | '!' | ':' | '~' | '.' | '/' | '\\')
}

/// Whether the line separates two rows, wholly or in part.
pub(crate) fn is_rule(line: &TextLine, left: usize) -> bool {
    matches!(line.at(left), '+' | '*')
}

fn grid(above: &[TextLine], drawing: &[TextLine], left: usize) -> Option<Grid> {
    let mut width = 0;
    let mut distance = 0;
    for (rule, end) in drawing.iter().filter_map(|line| Some((line, drawn(line)?))) {
        // A rule may fade out in `- - - -` or be cut short: it counts as far as it is drawn.
        width = width.max(end - 1 - left);
        for column in rule.columns_of('+', left).into_iter().filter(|&column| column < end) {
            distance = greatest_common_divisor(distance, column - left);
        }
    }
    let scale = match ruler(above, left) {
        Some(columns) if columns > 1 && distance % columns == 0 => Scale::Columns(columns),
        _ if distance % 2 == 0 => Scale::Columns(2),
        _ if distance % OCTET_BOX == 0 => Scale::OctetBoxes,
        _ => return None,
    };
    // A box alone may be anything; several of nine columns are octets.
    let octets = scale == Scale::OctetBoxes && width >= 2 * OCTET_BOX;
    let ticked = |line: &TextLine| line.slice(0, line.width()).contains("+-+");
    let to_scale = drawing.iter().any(ticked) || distance.is_multiple_of(BOX_OF_OCTETS);
    let ticks = to_scale || ruler(above, left).is_some() || octets;
    let columns = match scale {
        Scale::Columns(columns) => columns,
        Scale::OctetBoxes => OCTET_BOX,
    };
    let right = left + width - width % columns;
    let grid = Grid { left, right, scale };
    (ticks && grid.bits() > 0).then_some(grid)
}

fn greatest_common_divisor(mut a: usize, mut b: usize) -> usize {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Columns between the numbers of the ruler `0 1 2 3 …` right above the diagram.
fn ruler(above: &[TextLine], left: usize) -> Option<usize> {
    let line = above.iter().rev().take(2).find(|line| line.indent().is_some())?;
    let digits: Vec<usize> =
        (0..line.width()).filter(|&column| line.at(column).is_ascii_digit()).collect();
    let (first, second) = (*digits.first()?, *digits.get(1)?);
    let spacing = second - first;
    let numbered = (0..).zip(&digits).all(|(number, &column)| {
        column == first + number * spacing
            && line.at(column).to_digit(10) == u32::try_from(number % 10).ok()
    });
    let others = (0..line.width()).all(|column| matches!(line.at(column), ' ' | '0'..='9'));
    (numbered && others && first > left && first <= left + spacing).then_some(spacing)
}
