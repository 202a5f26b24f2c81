//! Geometries in the coordinates of GeoJSON (RFC 7946 §3.1), and their spatial relations.
//!
//! A coordinate is a whole number of nanodegrees (some tenth of a millimetre), so a decimal stays
//! what it is and every answer is exact: 0.1, 0.2 and 0.3 lie on one line. The plane is that of
//! the coordinates: "a line between two positions is a straight Cartesian line" (RFC 7946
//! §3.1.1). Altitudes are read and left out.

mod relate;
#[cfg(test)]
mod tests;

use crate::status::Refusal;
use serde_json::Value;

/// Type of a geometry (m2m:geometryType).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum GeometryType {
    /// 1: one position.
    Point,
    /// 2: positions joined by lines.
    LineString,
    /// 3: a ring, perhaps with holes.
    Polygon,
    /// 4: several positions.
    MultiPoint,
    /// 5: several of 2.
    MultiLineString,
    /// 6: several of 3.
    MultiPolygon,
}

impl GeometryType {
    /// The number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Self::Point => 1,
            Self::LineString => 2,
            Self::Polygon => 3,
            Self::MultiPoint => 4,
            Self::MultiLineString => 5,
            Self::MultiPolygon => 6,
        }
    }

    /// The type of a number.
    pub const fn from_number(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::Point),
            2 => Some(Self::LineString),
            3 => Some(Self::Polygon),
            4 => Some(Self::MultiPoint),
            5 => Some(Self::MultiLineString),
            6 => Some(Self::MultiPolygon),
            _ => None,
        }
    }
}

/// Spatial relation of two geometries (m2m:geoSpatialFunctionType, after the relations of the
/// same names of OGC 06-103r4 §6.1.15.3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SpatialFunction {
    /// 1: nothing of the first is outside of the second, and their interiors meet.
    Within,
    /// 2: the second is within the first.
    Contains,
    /// 3: they have a point in common.
    Intersects,
}

impl SpatialFunction {
    /// The number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Self::Within => 1,
            Self::Contains => 2,
            Self::Intersects => 3,
        }
    }

    /// The function of a number.
    pub const fn from_number(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::Within),
            2 => Some(Self::Contains),
            3 => Some(Self::Intersects),
            _ => None,
        }
    }
}

/// A position, in nanodegrees.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Position {
    x: i64,
    y: i64,
}

/// Positions joined by lines; of a ring, the first is the last.
type Line = Vec<Position>;

/// Positions, lines or areas; an area is its rings, a position being inside that an odd number of
/// them goes around.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Geometry(GeometryShape);

#[derive(Clone, Debug, Eq, PartialEq)]
enum GeometryShape {
    Points(Line),
    Lines(Vec<Line>),
    Areas(Vec<Vec<Line>>),
}

impl Geometry {
    /// Reads the coordinates of a geometry of this type from JSON text. A polygon is a list of
    /// rings, as RFC 7946 writes it, or one ring alone.
    ///
    /// # Errors
    ///
    /// 4000 if they are no such coordinates, or too many.
    pub fn read(kind: GeometryType, text: &str) -> Result<Self, Refusal> {
        if text.len() > OCTETS_MAX {
            return Err(Refusal::bad(format!("coordinates have {OCTETS_MAX} octets at most")));
        }
        let value: Value = serde_json::from_str(text)
            .map_err(|error| Refusal::bad(format!("coordinates are no JSON: {error}")))?;
        let mut left = POSITIONS_MAX;
        let shape = match kind {
            GeometryType::Point => GeometryShape::Points(vec![position(&value, &mut left)?]),
            GeometryType::MultiPoint => GeometryShape::Points(each(&value, &mut left, position)?),
            GeometryType::LineString => GeometryShape::Lines(vec![line(&value, &mut left)?]),
            GeometryType::MultiLineString => GeometryShape::Lines(each(&value, &mut left, line)?),
            GeometryType::Polygon => GeometryShape::Areas(vec![area(&value, &mut left)?]),
            GeometryType::MultiPolygon => GeometryShape::Areas(each(&value, &mut left, area)?),
        };
        Ok(Self(shape))
    }

    /// Reads the attribute location (m2m:geoCoordinates): an object of `typ` and `crd`.
    ///
    /// # Errors
    ///
    /// 4000 if it is not that.
    pub fn read_location(value: &Value) -> Result<Self, Refusal> {
        let members = value.as_object().filter(|members| members.len() == 2);
        let members =
            members.ok_or_else(|| Refusal::bad("attribute loc is an object of typ and crd"))?;
        let kind = members.get("typ").and_then(Value::as_u64).and_then(GeometryType::from_number);
        let kind = kind.ok_or_else(|| Refusal::bad("typ of attribute loc is from 1 to 6"))?;
        let text = members.get("crd").and_then(Value::as_str);
        let text = text.ok_or_else(|| Refusal::bad("crd of attribute loc is a text"))?;
        Self::read(kind, text)
    }
}

/// Every entry of a list that is not empty.
fn each<T>(
    value: &Value,
    left: &mut usize,
    read: impl Fn(&Value, &mut usize) -> Result<T, Refusal>,
) -> Result<Vec<T>, Refusal> {
    let list = value.as_array().filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| Refusal::bad("coordinates are lists of their type's depth"))?;
    list.iter().map(|entry| read(entry, left)).collect()
}

fn position(value: &Value, left: &mut usize) -> Result<Position, Refusal> {
    *left = left
        .checked_sub(1)
        .ok_or_else(|| Refusal::bad(format!("a geometry has {POSITIONS_MAX} positions at most")))?;
    let numbers = value.as_array().map_or(&[] as &[Value], Vec::as_slice);
    let [x, y] = match numbers {
        [x, y] => [x, y],
        [x, y, altitude] if altitude.is_number() => [x, y],
        _ => return Err(Refusal::bad("a position is two or three numbers, in degrees")),
    };
    Ok(Position { x: nanodegrees(x)?, y: nanodegrees(y)? })
}

fn nanodegrees(value: &Value) -> Result<i64, Refusal> {
    let degrees = value.as_f64().filter(|degrees| degrees.abs() <= DEGREES_MAX);
    // Written with nine digits behind the point, a double of this size is the decimal it came from.
    let digits = degrees.map(|degrees| format!("{degrees:.9}").replace('.', ""));
    digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| {
        Refusal::bad(format!("a coordinate is a number from -{DEGREES_MAX} to {DEGREES_MAX}"))
    })
}

/// A line that has a length; the same position twice in a row is one.
fn line(value: &Value, left: &mut usize) -> Result<Line, Refusal> {
    let mut line = each(value, left, position)?;
    line.dedup();
    if line.len() < 2 {
        return Err(Refusal::bad("a line has two different positions"));
    }
    Ok(line)
}

fn area(value: &Value, left: &mut usize) -> Result<Vec<Line>, Refusal> {
    let is_ring = value.pointer("/0/0").is_some_and(Value::is_number);
    if is_ring { Ok(vec![ring(value, left)?]) } else { each(value, left, ring) }
}

/// A closed line around something (RFC 7946 §3.1.6).
fn ring(value: &Value, left: &mut usize) -> Result<Line, Refusal> {
    let ring = line(value, left)?;
    let doubled: i128 = ring
        .iter()
        .zip(ring.iter().skip(1))
        .map(|(from, to)| {
            i128::from(from.x) * i128::from(to.y) - i128::from(to.x) * i128::from(from.y)
        })
        .sum();
    if ring.first() != ring.last() || doubled == 0 {
        return Err(Refusal::bad("a ring ends where it begins and goes around something"));
    }
    Ok(ring)
}

/// Octets of coordinates.
const OCTETS_MAX: usize = 65_536;
/// Positions of a geometry.
const POSITIONS_MAX: usize = 1_024;
/// A coordinate at most: what crosses the antimeridian may go on beyond 180 degrees.
const DEGREES_MAX: f64 = 360.0;
