//! The languages of filter criteria: expressions on labels, JSONPath over a content, geometries.

use gatewright_onem2m::filter::{ContentQuery, LabelsQuery, Steps};
use gatewright_onem2m::geometry::{Geometry, GeometryType, SpatialFunction};
use serde_json::Value;

/// What one condition on one resource may cost.
const STEPS: u64 = 1_000_000;

/// The first octet says which language, and of which types geometries are; the rest is two texts
/// with a line's end between them: what is asked, and what it is asked of.
pub fn criteria(octets: &[u8]) {
    let Some((&how, rest)) = octets.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    let (query, subject) = text.split_once('\n').unwrap_or((&text, ""));
    match how % 3 {
        0 => labels(query, subject),
        1 => content(query, subject),
        _ => places(how / 3, query, subject),
    }
}

fn labels(query: &str, labels: &str) {
    let Ok(query) = LabelsQuery::parse(query) else { return };
    let again = LabelsQuery::parse(&query.to_string());
    assert_eq!(again.as_ref(), Ok(&query), "written and read again");
    let each = || labels.split('\n');
    assert_eq!(query.holds(each()), again.is_ok_and(|again| again.holds(each())));
}

fn content(query: &str, content: &str) {
    let Ok(query) = ContentQuery::parse(query) else { return };
    let content: Value = serde_json::from_str(content).unwrap_or_default();
    if query.cost(&content) <= STEPS {
        let _selects = query.holds(&content);
    }
}

fn places(kinds: u8, first: &str, second: &str) {
    let read = |kind: u8, text: &str| {
        let kind = GeometryType::from_number(u64::from(kind % 6) + 1)?;
        Geometry::read(kind, text).ok()
    };
    let (Some(a), Some(b)) = (read(kinds, first), read(kinds / 6, second)) else { return };
    let lies = |a: &Geometry, function, b: &Geometry| a.lies(function, b, &mut Steps::new(STEPS));
    let within = lies(&a, SpatialFunction::Within, &b);
    assert_eq!(within, lies(&b, SpatialFunction::Contains, &a), "two names of one thing");
    let meets = lies(&a, SpatialFunction::Intersects, &b);
    assert!(within != Ok(true) || meets != Ok(false), "within, and nothing in common");
}
