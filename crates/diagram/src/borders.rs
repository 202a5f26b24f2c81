//! Checks that the borders of a row say what its author meant: the last cell is closed, and a ruled
//! line stands between two rows.

use crate::{
    art::{bars, is_wall},
    codes,
    grid::Grid,
    text::TextLine,
};
use gatewright_diagnostic::Diagnostic;

/// The lines of one row with the ruled lines around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Band<'a> {
    pub(crate) lines: &'a [TextLine],
    pub(crate) above: Option<&'a TextLine>,
    pub(crate) below: Option<&'a TextLine>,
    pub(crate) is_last: bool,
}

/// The warning that the last cell of a row has no right border, though the ruled lines around it go
/// on to the border of the diagram. It is read as a part of variable length (as RFC 4944 §5.2 means
/// it), or not at all if it is blank. A cell with `...` in it is known to be open.
pub(crate) fn unclosed(grid: Grid, band: Band<'_>) -> Option<Diagnostic> {
    let walls = || band.lines.iter().filter(|line| is_wall(line, grid));
    let first = walls().next()?;
    let last = bars(first, grid).last().copied().filter(|&last| last < grid.right)?;
    let text: String = walls().map(|line| line.slice(last + 1, line.width())).collect();
    let is_open = text.contains("...") || text.contains('…');
    let is_ruled = |rule: Option<&TextLine>| rule.is_some_and(|rule| is_ruled(grid, rule, last));
    // A narrow last row has a ruled line as narrow below it; above it the row before ends.
    let is_blank = text.trim().is_empty();
    let is_closed = if is_blank { !band.is_last } else { !is_ruled(band.above) };
    if is_open || is_closed || !is_ruled(band.below) {
        return None;
    }
    let message = if is_blank {
        "this row ends before the ruled line below it, the rest is not read"
    } else {
        "the last field of this row is not closed and is read as a part of variable length"
    };
    let label = format!("the ruled line goes on to column {}", grid.right - grid.left);
    let span = first.span(last, first.width());
    let help =
        "end the row with `|` below the last `+`, or write `...` behind a name of open length";
    Some(Diagnostic::warning(&codes::NO_END, span, message).label(label).help(help))
}

/// Whether the ruled line is drawn from a column to the right border.
fn is_ruled(grid: Grid, rule: &TextLine, from: usize) -> bool {
    (from..=grid.right).all(|column| matches!(rule.at(column), '+' | '-' | '=' | '*'))
}

/// The warning that two lines without a ruled line between them are read as one row, though each has
/// a word in every cell. Names of several lines are usual where boxes are octets (RFC 768), and
/// flags are written downwards (RFC 9293 §3.1).
pub(crate) fn joined(grid: Grid, band: Band<'_>) -> Option<Diagnostic> {
    if grid.has_octet_boxes() {
        return None;
    }
    let full = band.lines.iter().filter(|line| is_wall(line, grid)).filter_map(|line| {
        let columns = bars(line, grid);
        let cells = columns.iter().zip(columns.iter().skip(1));
        let texts = cells.map(|(&left, &right)| line.slice(left + 1, right));
        let texts: Vec<String> = texts.map(|text| text.trim().to_owned()).collect();
        let is_full = texts.iter().all(|text| text.starts_with(char::is_alphabetic));
        let longest = texts.iter().map(|text| text.chars().count()).max()?;
        is_full.then_some((line, longest))
    });
    let full: Vec<(&TextLine, usize)> = full.collect();
    let [(first, _), (second, _), ..] = full.as_slice() else { return None };
    full.iter().find(|&&(_, longest)| longest > 1)?;
    let message = "this line and the one above it are read as one row";
    Some(
        Diagnostic::warning(&codes::JOINED, second.whole(), message)
            .also(first.whole(), "each cell has a name on both lines")
            .help("draw a ruled line such as `+-+-+-+-+` between two rows"),
    )
}
