//! Exact spatial relations of two geometries: everything follows from the side of a line on which a
//! position lies, which integer arithmetic decides without error.
//!
//! Where a line enters or leaves an area is seldom a position that whole numbers can name. It
//! need not be named: a line is cut where the area's own positions lie on it, and of each piece it
//! is asked whether it crosses a side of the area, and where one is who goes infinitely little
//! along it.

use super::{Geometry, GeometryShape, Line, Position, SpatialFunction};
use crate::filter::Steps;
use crate::status::Refusal;
use core::cmp::Ordering;

impl Geometry {
    /// Whether this geometry has the spatial relation `function` to the other. Rings that cut
    /// themselves and areas that overlap each other are taken as they come.
    ///
    /// # Errors
    ///
    /// 5207 if it would take more steps than there are.
    pub fn lies(
        &self,
        function: SpatialFunction,
        other: &Self,
        steps: &mut Steps,
    ) -> Result<bool, Refusal> {
        let (first, second) = (&self.0, &other.0);
        let (a, b) = (first.extent(steps)?, second.extent(steps)?);
        match function {
            SpatialFunction::Within => Ok(a.is_in(&b) && within(first, second, steps)?),
            SpatialFunction::Contains => Ok(b.is_in(&a) && within(second, first, steps)?),
            SpatialFunction::Intersects => Ok(a.meets(&b) && intersects(first, second, steps)?),
        }
    }
}

/// Nothing of `first` is outside of `second`, and their interiors meet.
fn within(
    first: &GeometryShape,
    second: &GeometryShape,
    steps: &mut Steps,
) -> Result<bool, Refusal> {
    match (first, second) {
        (GeometryShape::Points(points), _) => points_within(points, second, steps),
        (GeometryShape::Lines(lines), GeometryShape::Lines(others)) => {
            all(segments(lines), |side| side.is_covered_by(others, steps))
        }
        (GeometryShape::Lines(lines), GeometryShape::Areas(areas)) => {
            Ok(all(segments(lines), |side| side.is_in(areas, steps))?
                && any(segments(lines), |side| side.meets_interior(areas, steps))?)
        }
        (GeometryShape::Areas(areas), GeometryShape::Areas(others)) => {
            Ok(all(sides(areas), |side| side.is_in(others, steps))?
                && !any(sides(others), |side| side.meets_interior(areas, steps))?
                && all(areas.iter(), |area| has_its_inside_in(area, others, steps))?)
        }
        (GeometryShape::Lines(_) | GeometryShape::Areas(_), _) => Ok(false),
    }
}

fn points_within(
    points: &Line,
    second: &GeometryShape,
    steps: &mut Steps,
) -> Result<bool, Refusal> {
    let mut meets = false;
    for &point in points {
        match second.locate(&Probe::at(point), steps)? {
            Location::Inside => meets = true,
            Location::Boundary => {}
            Location::Outside => return Ok(false),
        }
    }
    Ok(meets)
}

/// Whether the inside of an area, which no side of the others runs through, is in one of them: it
/// is there wholly or not at all.
fn has_its_inside_in(
    area: &[Line],
    others: &[Vec<Line>],
    steps: &mut Steps,
) -> Result<bool, Refusal> {
    let alone = core::slice::from_ref(&area);
    for side in area.iter().flat_map(joined) {
        for probe in side.beside() {
            if locate(&probe, alone, steps)? == Location::Inside {
                return Ok(locate(&probe, others, steps)? == Location::Inside);
            }
        }
    }
    Ok(false)
}

fn intersects(
    first: &GeometryShape,
    second: &GeometryShape,
    steps: &mut Steps,
) -> Result<bool, Refusal> {
    let shares_position =
        |points: &mut dyn Iterator<Item = Position>, shape: &GeometryShape, steps: &mut Steps| {
            any(points, |point| Ok(shape.locate(&Probe::at(point), steps)? != Location::Outside))
        };
    // If no sides meet, whatever has one position inside of an area is inside as a whole.
    if shares_position(&mut first.starts(), second, steps)?
        || shares_position(&mut second.starts(), first, steps)?
    {
        return Ok(true);
    }
    any(first.segments(), |side| {
        steps.spend(second.positions())?;
        Ok(second.segments().any(|other| side.touches(&other)))
    })
}

fn all<T>(
    mut items: impl Iterator<Item = T>,
    mut holds: impl FnMut(T) -> Result<bool, Refusal>,
) -> Result<bool, Refusal> {
    items.try_fold(true, |held, item| Ok(held && holds(item)?))
}

fn any<T>(
    mut items: impl Iterator<Item = T>,
    mut holds: impl FnMut(T) -> Result<bool, Refusal>,
) -> Result<bool, Refusal> {
    items.try_fold(false, |held, item| Ok(held || holds(item)?))
}

/// The relation of a position to a geometry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Location {
    Inside,
    Boundary,
    Outside,
}

/// Smallest and largest coordinates.
struct Extent {
    low: Position,
    high: Position,
}

impl Extent {
    fn is_in(&self, other: &Self) -> bool {
        other.low.x <= self.low.x
            && other.low.y <= self.low.y
            && self.high.x <= other.high.x
            && self.high.y <= other.high.y
    }

    fn meets(&self, other: &Self) -> bool {
        other.low.x <= self.high.x
            && other.low.y <= self.high.y
            && self.low.x <= other.high.x
            && self.low.y <= other.high.y
    }
}

impl GeometryShape {
    /// Every position.
    fn each_position(&self) -> Box<dyn Iterator<Item = Position> + '_> {
        match self {
            Self::Points(points) => Box::new(points.iter().copied()),
            Self::Lines(lines) => Box::new(lines.iter().flatten().copied()),
            Self::Areas(areas) => Box::new(areas.iter().flatten().flatten().copied()),
        }
    }

    /// How many positions it has, as steps.
    fn positions(&self) -> u64 {
        let count = match self {
            Self::Points(points) => points.len(),
            Self::Lines(lines) => lines.iter().map(Vec::len).sum(),
            Self::Areas(areas) => areas.iter().flatten().map(Vec::len).sum(),
        };
        u64::try_from(count).unwrap_or(u64::MAX)
    }

    /// One position of each piece.
    fn starts(&self) -> Box<dyn Iterator<Item = Position> + '_> {
        match self {
            Self::Points(points) => Box::new(points.iter().copied()),
            Self::Lines(lines) => Box::new(lines.iter().filter_map(|line| line.first().copied())),
            Self::Areas(areas) => {
                Box::new(areas.iter().filter_map(|area| area.first()?.first().copied()))
            }
        }
    }

    fn segments(&self) -> Box<dyn Iterator<Item = LineSegment> + '_> {
        match self {
            Self::Points(_) => Box::new(core::iter::empty()),
            Self::Lines(lines) => Box::new(segments(lines)),
            Self::Areas(areas) => Box::new(sides(areas)),
        }
    }

    fn extent(&self, steps: &mut Steps) -> Result<Extent, Refusal> {
        steps.spend(self.positions())?;
        let mut low = Position { x: i64::MAX, y: i64::MAX };
        let mut high = Position { x: i64::MIN, y: i64::MIN };
        for position in self.each_position() {
            low = Position { x: low.x.min(position.x), y: low.y.min(position.y) };
            high = Position { x: high.x.max(position.x), y: high.y.max(position.y) };
        }
        Ok(Extent { low, high })
    }

    fn locate(&self, probe: &Probe, steps: &mut Steps) -> Result<Location, Refusal> {
        match self {
            Self::Areas(areas) => locate(probe, areas, steps),
            Self::Points(points) => {
                steps.spend(self.positions())?;
                let is_one = points.contains(&probe.at);
                Ok(if is_one { Location::Inside } else { Location::Outside })
            }
            Self::Lines(lines) => {
                steps.spend(self.positions())?;
                Ok(locate_on_lines(probe.at, lines))
            }
        }
    }
}

/// The boundary of lines is where an odd number of them ends (OGC 06-103r4 §6.1.8.1).
fn locate_on_lines(position: Position, lines: &[Line]) -> Location {
    if !segments(lines).any(|side| side.has(position)) {
        return Location::Outside;
    }
    let ends = lines.iter().flat_map(|line| [line.first(), line.last()]);
    let count = ends.flatten().filter(|&&end| end == position).count();
    if count % 2 == 1 { Location::Boundary } else { Location::Inside }
}

fn locate<Area: AsRef<[Line]>>(
    probe: &Probe,
    areas: &[Area],
    steps: &mut Steps,
) -> Result<Location, Refusal> {
    let mut best = Location::Outside;
    for area in areas {
        let rings = area.as_ref();
        steps
            .spend(u64::try_from(rings.iter().map(Vec::len).sum::<usize>()).unwrap_or(u64::MAX))?;
        match locate_in_rings(probe, rings) {
            Location::Inside => return Ok(Location::Inside),
            Location::Boundary => best = Location::Boundary,
            Location::Outside => {}
        }
    }
    Ok(best)
}

/// Counts the sides that a ray to the right meets; a side has its lower end and not its upper.
fn locate_in_rings(probe: &Probe, rings: &[Line]) -> Location {
    let mut inside = false;
    for side in rings.iter().flat_map(joined) {
        let turn = probe.side_of(&side);
        let (from, to) = (probe.height_over(side.from), probe.height_over(side.to));
        if turn == Ordering::Equal && probe.is_between(&side) {
            return Location::Boundary;
        }
        let goes_up = from != Ordering::Less && to == Ordering::Less;
        let goes_down = from == Ordering::Less && to != Ordering::Less;
        if goes_up && turn == Ordering::Greater || goes_down && turn == Ordering::Less {
            inside = !inside;
        }
    }
    if inside { Location::Inside } else { Location::Outside }
}

/// A difference of positions.
#[derive(Clone, Copy, Debug, Default)]
struct Displacement {
    x: i128,
    y: i128,
}

impl Displacement {
    /// Twice the area between the two, positive if `other` turns to the left. With coordinates
    /// of 2³⁹ it stays below 2⁸².
    const fn cross(self, other: Self) -> i128 {
        self.x * other.y - self.y * other.x
    }
}

impl Position {
    fn to(self, other: Self) -> Displacement {
        Displacement { x: i128::from(other.x - self.x), y: i128::from(other.y - self.y) }
    }
}

/// A position moved infinitely little in one direction and, by a smaller order, in another.
#[derive(Clone, Copy, Debug)]
struct Probe {
    at: Position,
    along: Displacement,
    aside: Displacement,
}

impl Probe {
    fn at(position: Position) -> Self {
        Self { at: position, along: Displacement::default(), aside: Displacement::default() }
    }

    /// The first of three that is not zero decides.
    fn sign(three: [i128; 3]) -> Ordering {
        three.into_iter().find(|&it| it != 0).unwrap_or(0).cmp(&0)
    }

    /// Greater on the left of a segment, less on its right.
    fn side_of(&self, side: &LineSegment) -> Ordering {
        let way = side.way();
        Self::sign([way.cross(side.from.to(self.at)), way.cross(self.along), way.cross(self.aside)])
    }

    fn height_over(&self, position: Position) -> Ordering {
        Self::sign([position.to(self.at).y, self.along.y, self.aside.y])
    }

    fn right_of(&self, position: Position) -> Ordering {
        Self::sign([position.to(self.at).x, self.along.x, self.aside.x])
    }

    /// Whether one that is on a segment's line is on the segment.
    fn is_between(&self, side: &LineSegment) -> bool {
        let spans = |a: Ordering, b: Ordering| a != b || a == Ordering::Equal;
        spans(self.right_of(side.from), self.right_of(side.to))
            && spans(self.height_over(side.from), self.height_over(side.to))
    }
}

/// A straight piece of a line; its ends differ.
#[derive(Clone, Copy, Debug)]
struct LineSegment {
    from: Position,
    to: Position,
}

fn joined(line: &Line) -> impl Iterator<Item = LineSegment> + '_ {
    line.iter().zip(line.iter().skip(1)).map(|(&from, &to)| LineSegment { from, to })
}

fn segments(lines: &[Line]) -> impl Iterator<Item = LineSegment> + '_ {
    lines.iter().flat_map(joined)
}

fn sides(areas: &[Vec<Line>]) -> impl Iterator<Item = LineSegment> + '_ {
    areas.iter().flatten().flat_map(joined)
}

impl LineSegment {
    fn way(&self) -> Displacement {
        self.from.to(self.to)
    }

    fn turn(&self, position: Position) -> Ordering {
        self.way().cross(self.from.to(position)).cmp(&0)
    }

    fn has(&self, position: Position) -> bool {
        self.turn(position) == Ordering::Equal && Probe::at(position).is_between(self)
    }

    /// Whether the two have a position in common.
    fn touches(&self, other: &Self) -> bool {
        self.crosses(other)
            || self.has(other.from)
            || self.has(other.to)
            || other.has(self.from)
            || other.has(self.to)
    }

    /// Whether the two cut each other between their ends.
    fn crosses(&self, other: &Self) -> bool {
        let opposite = |a: Ordering, b: Ordering| a != Ordering::Equal && a == b.reverse();
        opposite(self.turn(other.from), self.turn(other.to))
            && opposite(other.turn(self.from), other.turn(self.to))
    }

    /// Just beside where it begins, on both sides.
    fn beside(&self) -> [Probe; 2] {
        let way = self.way();
        let probe = |aside| Probe { at: self.from, along: way, aside };
        [probe(Displacement { x: -way.y, y: way.x }), probe(Displacement { x: way.y, y: -way.x })]
    }

    /// How far along it a position of its line is, in some unit.
    fn progress(&self, position: Position) -> i128 {
        let (way, gone) = (self.way(), self.from.to(position));
        way.x * gone.x + way.y * gone.y
    }

    /// Cut where positions of the areas lie on it.
    fn pieces(&self, areas: &[Vec<Line>], steps: &mut Steps) -> Result<Vec<Self>, Refusal> {
        let positions = || areas.iter().flatten().flatten().copied();
        steps.spend(u64::try_from(positions().count()).unwrap_or(u64::MAX))?;
        let mut stops: Vec<Position> = positions().filter(|&position| self.has(position)).collect();
        stops.extend([self.from, self.to]);
        stops.sort_by_key(|&stop| self.progress(stop));
        stops.dedup();
        Ok(joined(&stops).collect())
    }

    /// Where a piece is that no position of the areas lies on, or nothing if it crosses a side.
    fn place(&self, areas: &[Vec<Line>], steps: &mut Steps) -> Result<Option<Location>, Refusal> {
        let probe = Probe { at: self.from, along: self.way(), aside: Displacement::default() };
        let location = locate(&probe, areas, steps)?;
        Ok((!sides(areas).any(|side| self.crosses(&side))).then_some(location))
    }

    /// Whether nothing of it is outside of the areas.
    fn is_in(&self, areas: &[Vec<Line>], steps: &mut Steps) -> Result<bool, Refusal> {
        all(self.pieces(areas, steps)?.into_iter(), |piece| {
            let place = piece.place(areas, steps)?;
            Ok(place.is_some_and(|place| place != Location::Outside))
        })
    }

    /// Whether something of it is inside of an area.
    fn meets_interior(&self, areas: &[Vec<Line>], steps: &mut Steps) -> Result<bool, Refusal> {
        any(self.pieces(areas, steps)?.into_iter(), |piece| {
            let place = piece.place(areas, steps)?;
            Ok(place.is_none_or(|place| place == Location::Inside))
        })
    }

    /// Whether all of it is on the lines.
    fn is_covered_by(&self, lines: &[Line], steps: &mut Steps) -> Result<bool, Refusal> {
        let end = self.progress(self.to);
        steps
            .spend(u64::try_from(lines.iter().map(Vec::len).sum::<usize>()).unwrap_or(u64::MAX))?;
        let mut spans: Vec<(i128, i128)> = segments(lines)
            .filter(|other| [other.from, other.to].map(|it| self.turn(it)) == [Ordering::Equal; 2])
            .map(|other| (self.progress(other.from), self.progress(other.to)))
            .map(|(from, to)| (from.min(to), from.max(to)))
            .collect();
        spans.sort_unstable();
        let mut reached = 0;
        for (from, to) in spans {
            if from <= reached {
                reached = reached.max(to);
            }
        }
        Ok(reached >= end)
    }
}
