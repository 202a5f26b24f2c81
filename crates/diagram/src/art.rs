//! Reads a drawing into drawn fields: bars and ruled lines are geometry, the rest are names.

use crate::{
    borders::{self, Band},
    codes,
    grid::{FoundDiagram, Grid, is_rule},
    text::TextLine,
};
use gatewright_diagnostic::{Diagnostic, Span};

/// A field as drawn, with the texts written in it from top to bottom.
#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    pub(crate) texts: Vec<String>,
    /// Number of bits drawn; without meaning for a variable field.
    pub(crate) width: u32,
    pub(crate) variable: bool,
    /// Whether it has at least one row of the diagram to itself.
    pub(crate) full_row: bool,
    /// Whether it begins at the left border.
    pub(crate) starts_row: bool,
    pub(crate) span: Span,
}

/// One cell of a row.
#[derive(Debug)]
struct RowCell {
    from: u32,
    to: u32,
    drawn: Drawn,
}

/// Lines between two ruled lines.
#[derive(Debug)]
struct Row {
    cells: Vec<RowCell>,
    /// Bits from the left border to the last bar.
    width: u32,
}

/// A stretch of a ruled line between two `+`.
#[derive(Debug)]
struct RulePart {
    from: u32,
    to: u32,
    /// Whether it is closed, so that different fields are above and below it.
    closed: bool,
    text: String,
}

/// The drawn fields in order of their bits; `warnings` gets what they may not mean.
pub(crate) fn read(
    found: &FoundDiagram<'_>,
    warnings: &mut Vec<Diagnostic>,
) -> Result<Vec<Drawn>, Vec<Diagnostic>> {
    let grid = found.grid;
    let mut rows: Vec<Row> = Vec::new();
    let mut rules: Vec<Vec<RulePart>> = Vec::new();
    let mut findings = Vec::new();
    let (mut above, mut rest) = (None, found.lines);
    while let Some((first, after)) = rest.split_first() {
        if is_rule(first, grid.left) {
            // Of two ruled lines in a row, the second alone counts.
            if rules.len() > rows.len() {
                rules.pop();
            }
            rules.push(segments(grid, first));
            (above, rest) = (Some(first), after);
            continue;
        }
        let count = rest.iter().take_while(|line| !is_rule(line, grid.left)).count();
        let (band, below) = rest.split_at(count);
        match row(grid, band) {
            Ok(row) => rows.push(row),
            Err(finding) => findings.push(finding),
        }
        let is_last = below.iter().all(|line| is_rule(line, grid.left));
        let band = Band { lines: band, above, below: below.first(), is_last };
        warnings.extend(borders::unclosed(grid, band));
        warnings.extend(borders::joined(grid, band));
        rest = below;
    }
    if let Some(last) = found.lines.last().filter(|line| !is_rule(line, grid.left)) {
        findings.push(not_closed(last));
    }
    if !findings.is_empty() {
        return Err(findings);
    }
    join(grid, rows, &rules)
}

fn not_closed(last: &TextLine) -> Diagnostic {
    Diagnostic::error(&codes::NOT_CLOSED, last.whole(), "no ruled line below the last row")
        .label("the diagram ends here")
        .help("close it with a line such as `+-+-+-+-+`")
}

/// Splits the lines of one row into its cells.
fn row(grid: Grid, band: &[TextLine]) -> Result<Row, Diagnostic> {
    let broken = !band.iter().all(|line| is_wall(line, grid));
    // A border of `~`, `:` or `.` says that lines are left out.
    let walls = band.iter().filter(|line| is_wall(line, grid)).map(|line| (line, bars(line, grid)));
    let mut model: Option<(&TextLine, Vec<usize>)> = None;
    for (line, bars) in walls {
        match &model {
            Some((other, wanted)) if *wanted != bars => {
                return Err(bars_differ(line, &bars, other, wanted));
            }
            _ => model = Some((line, bars)),
        }
    }
    let Some((line, columns)) = model.or_else(|| band.first().map(|line| (line, vec![grid.left])))
    else {
        return Ok(Row { cells: Vec::new(), width: 0 });
    };
    let mut edges = Vec::new();
    for &column in &columns {
        edges.push((column, grid.boundary(line, column)?));
    }
    let last = edges.last().map_or(0, |&(column, _)| column);
    let open = edges.len() < 2 || last < grid.right && line.width() > last + 1;
    let width = if open { grid.bits() } else { edges.last().map_or(0, |&(_, bit)| bit) };
    if open {
        edges.push((grid.right.max(line.width()), grid.bits()));
    }
    let count = edges.len();
    let alone = count == 2;
    let pairs = (1..).zip(edges.iter().zip(edges.iter().skip(1)));
    let cells = pairs.map(|(edge, (&(left, from), &(right, to)))| {
        let texts = band.iter().map(|line| line.slice(left + 1, right)).collect();
        let variable = open && edge + 1 == count || broken && alone;
        let full_row = alone && width == grid.bits();
        let drawn = Drawn {
            texts,
            width: to.saturating_sub(from),
            variable,
            full_row,
            starts_row: from == 0,
            span: span(band, left, right),
        };
        RowCell { from, to, drawn }
    });
    Ok(Row { cells: cells.collect(), width })
}

/// The first line of a cell with text, otherwise the first line.
fn span(band: &[TextLine], left: usize, right: usize) -> Span {
    let speaking = band.iter().find(|line| !line.slice(left + 1, right).trim().is_empty());
    let line = speaking.or(band.first());
    line.map_or_else(Span::default, |line| line.span(left + 1, right.min(line.width())))
}

/// Whether a line of a row has its left border.
pub(crate) fn is_wall(line: &TextLine, grid: Grid) -> bool {
    matches!(line.at(grid.left), '|' | '!')
}

/// The columns of a line's bars, borders included.
pub(crate) fn bars(line: &TextLine, grid: Grid) -> Vec<usize> {
    let mut columns: Vec<usize> = (grid.left..line.width())
        .filter(|&column| matches!(line.at(column), '|' | '!') && column <= grid.right)
        .collect();
    // `|        :`: the right border of a row that is cut short.
    let border = matches!(line.at(grid.right), ':' | '~' | '.' | '/' | '\\' | '+');
    if border && line.width() == grid.right + 1 {
        columns.push(grid.right);
    }
    columns
}

fn bars_differ(line: &TextLine, bars: &[usize], other: &TextLine, wanted: &[usize]) -> Diagnostic {
    let odd = bars.iter().find(|column| !wanted.contains(column));
    let missing = wanted.iter().find(|column| !bars.contains(column));
    let column = odd.or(missing).copied().unwrap_or_default();
    let message =
        if odd.is_some() { "a bar that the line above does not have" } else { "a bar is missing" };
    let there = missing.or(odd).copied().unwrap_or_default();
    Diagnostic::error(&codes::BARS_DIFFER, line.span(column, column + 1), message)
        .also(other.span(there, there + 1), "the line it differs from")
        .help("lines without a ruled line between them are one row")
}

/// Splits a ruled line into segments. Everything right of its end counts as closed.
fn segments(grid: Grid, line: &TextLine) -> Vec<RulePart> {
    let marks: Vec<usize> = (grid.left..line.width())
        .filter(|&column| matches!(line.at(column), '+' | '*') && grid.bit(column).is_some())
        .collect();
    (marks.iter().zip(marks.iter().skip(1)))
        .map(|(&left, &right)| {
            let text = line.slice(left + 1, right);
            let drawn = text.chars().all(|c| matches!(c, '-' | '=' | '+'));
            let dashed = text.contains("- -") && text.chars().all(|c| matches!(c, '-' | ' '));
            let (from, to) = (grid.bit(left).unwrap_or(0), grid.bit(right).unwrap_or(0));
            RulePart { from, to, closed: drawn || dashed, text }
        })
        .collect()
}

/// Joins cells across open ruled lines, and rows to one sequence.
fn join(
    grid: Grid,
    rows: Vec<Row>,
    rules: &[Vec<RulePart>],
) -> Result<Vec<Drawn>, Vec<Diagnostic>> {
    let mut fields: Vec<Drawn> = Vec::new();
    let mut findings = Vec::new();
    let mut above: Option<(u32, u32)> = None; // the last cell of the row above
    let fixed = |row: &Row| row.cells.iter().any(|cell| !cell.drawn.variable);
    let last_fixed = rows.iter().rposition(fixed).unwrap_or(0);
    for (index, row) in rows.into_iter().enumerate() {
        let rule = rules.get(index).map(Vec::as_slice).unwrap_or_default();
        let narrow = row.width < grid.bits() && index < last_fixed;
        if narrow && let Some(cell) = row.cells.last() {
            findings.push(narrow_row(cell, row.width, grid.bits()));
        }
        let last = row.cells.last().map(|cell| (cell.from, cell.to));
        for (place, cell) in row.cells.into_iter().enumerate() {
            let opened = opened(rule, cell.from, cell.to);
            let overlap = above.is_some_and(|(from, to)| from.max(cell.from) < to.min(cell.to));
            let Some(text) = opened.filter(|_| index > 0) else {
                fields.push(cell.drawn);
                continue;
            };
            match fields.last_mut() {
                Some(field) if place == 0 && overlap => {
                    field.texts.push(text);
                    field.texts.extend(cell.drawn.texts);
                    field.width += cell.drawn.width;
                    field.variable |= cell.drawn.variable;
                    field.full_row |= cell.drawn.full_row;
                }
                _ => findings.push(not_contiguous(&cell)),
            }
        }
        above = last;
    }
    if findings.is_empty() { Ok(fields) } else { Err(findings) }
}

/// The text in the open part of a ruled line above bits `from` to `to`, if any part is open.
fn opened(rule: &[RulePart], from: u32, to: u32) -> Option<String> {
    let open = |segment: &&RulePart| !segment.closed && segment.from.max(from) < segment.to.min(to);
    let mut texts = rule.iter().filter(open).map(|segment| segment.text.as_str()).peekable();
    texts.peek()?;
    Some(texts.collect::<Vec<_>>().join("+"))
}

fn narrow_row(cell: &RowCell, width: u32, bits: u32) -> Diagnostic {
    Diagnostic::error(
        &codes::NARROW_ROW,
        cell.drawn.span,
        format!("this row has {width} bits, the diagram {bits}"),
    )
    .help("only the last row may be narrower than the diagram")
}

fn not_contiguous(cell: &RowCell) -> Diagnostic {
    Diagnostic::error(
        &codes::NOT_CONTIGUOUS,
        cell.drawn.span,
        "this field goes on from the row above, but other bits lie between",
    )
    .label(format!("bits {} to {} of this row", cell.from, cell.to.saturating_sub(1)))
    .help("close the ruled line above it, or draw the field from the end of one row to the start of the next")
}
