use super::*;
use crate::filter::Steps;
use proptest::prelude::*;
use serde_json::json;

/// What another implementation says of 360 pairs of geometries of all types: whole coordinates
/// from 0 to 5, so that they share positions, sides and lines.
const GEOS: &str = include_str!("geos.txt");
const FUNCTIONS: [SpatialFunction; 3] =
    [SpatialFunction::Within, SpatialFunction::Contains, SpatialFunction::Intersects];

fn read(kind: u64, text: &str) -> Result<Geometry, Refusal> {
    Geometry::read(GeometryType::from_number(kind).unwrap(), text)
}

fn lies(first: &Geometry, function: SpatialFunction, second: &Geometry) -> bool {
    first.lies(function, second, &mut Steps::new(1_000_000)).unwrap()
}

#[test]
fn relations_as_geos_finds_them() {
    for line in GEOS.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let geometry = |at: usize| read(words[at].parse().unwrap(), words[at + 1]).unwrap();
        let (first, second) = (geometry(0), geometry(2));
        for (function, expected) in FUNCTIONS.into_iter().zip(&words[4..]) {
            assert_eq!(lies(&first, function, &second), *expected == "1", "{function:?}: {line}");
        }
    }
}

/// On doubles, these are not on one line.
#[test]
fn decimals_stay_what_they_are() {
    let line = read(2, "[[0.1,0.1],[0.3,0.3]]").unwrap();
    let point = read(1, "[0.2,0.2]").unwrap();
    assert!(lies(&point, SpatialFunction::Within, &line));
    let beside = read(1, "[0.2,0.200000001]").unwrap();
    assert!(!lies(&beside, SpatialFunction::Intersects, &line));
    let far = read(2, "[[-360,-360],[360,359.999999999]]").unwrap();
    let middle = read(1, "[0.0,-0.0000000005]").unwrap();
    assert!(!lies(&middle, SpatialFunction::Intersects, &far));
}

/// A hole belongs to nobody: who fills it exactly is not within, though no side leaves the area.
#[test]
fn what_fills_a_hole_is_outside() {
    let hole = "[[1,1],[2,1],[2,2],[1,2],[1,1]]";
    let with_hole = read(3, &format!("[[[0,0],[3,0],[3,3],[0,3],[0,0]],{hole}]")).unwrap();
    let filling = read(3, &format!("[{hole}]")).unwrap();
    assert!(!lies(&filling, SpatialFunction::Within, &with_hole));
    assert!(lies(&filling, SpatialFunction::Intersects, &with_hole), "they touch");
}

#[test]
fn a_ring_alone_is_a_polygon() {
    let ring = "[[0,0],[1,0],[1,1],[0,0]]";
    assert_eq!(read(3, ring), read(3, &format!("[{ring}]")));
    assert_eq!(read(6, &format!("[{ring}]")), read(6, &format!("[[{ring}]]")));
    assert_eq!(read(1, "[1,2]"), read(1, "[1.0,2.0,-7.5]"), "an altitude is left out");
}

#[test]
fn what_is_no_geometry_is_refused() {
    let many = format!("[{}]", vec!["[1,2]"; POSITIONS_MAX + 1].join(","));
    let long = format!("[1,2{}]", " ".repeat(OCTETS_MAX));
    let deep = "[".repeat(1_000);
    for (kind, wrong) in [
        (1, ""),
        (1, "1"),
        (1, "[]"),
        (1, "[1]"),
        (1, "[1,2,3,4]"),
        (1, "[1,\"2\"]"),
        (1, "[1,2,\"3\"]"),
        (1, "[1,361]"),
        (1, "[1e300,0]"),
        (1, "[[1,2]]"),
        (1, &long),
        (1, &deep),
        (2, "[1,2]"),
        (2, "[[1,2]]"),
        (2, "[[1,2],[1,2]]"),
        (3, "[[0,0],[1,0],[1,1]]"),
        (3, "[[0,0],[1,0],[0,0]]"),
        (3, "[[0,0],[1,1],[2,2],[0,0]]"),
        (3, "[[[0,0],[1,0],[1,1],[0,0]],[]]"),
        (4, "[]"),
        (4, "[1,2]"),
        (4, &many),
        (5, "[[1,2],[3,4]]"),
        (6, "[[1,2]]"),
        (6, "{}"),
    ] {
        assert!(read(kind, wrong).is_err(), "{kind} {wrong}");
    }
    assert!(Geometry::read_location(&json!({ "typ": 1, "crd": "[1,2]" })).is_ok());
    for wrong in [
        json!([1, 2]),
        json!({ "typ": 1 }),
        json!({ "typ": 7, "crd": "[1,2]" }),
        json!({ "typ": "1", "crd": "[1,2]" }),
        json!({ "typ": 1, "crd": [1, 2] }),
        json!({ "typ": 1, "crd": "[1,2]", "x": 1 }),
    ] {
        assert!(Geometry::read_location(&wrong).is_err(), "{wrong}");
    }
}

/// Two combs of a thousand positions: their relation costs what it costs, and no more is done.
#[test]
fn a_costly_relation_is_refused() {
    let comb = |turned: bool| {
        let teeth = (0..POSITIONS_MAX / 2).flat_map(|at| {
            let (low, high) = (json!([at, 0]), json!([at, 511]));
            let teeth = if at % 2 == 0 { [low, high] } else { [high, low] };
            teeth.map(|it| if turned { json!([it[1], it[0]]) } else { it })
        });
        let scaled =
            teeth.map(|it| json!([it[0].as_f64().unwrap() / 1e3, it[1].as_f64().unwrap() / 1e3]));
        read(2, &scaled.collect::<Value>().to_string()).unwrap()
    };
    let (upright, lying) = (comb(false), comb(true));
    let mut few = Steps::new(20_000);
    assert!(lies(&upright, SpatialFunction::Intersects, &lying));
    let refused = upright.lies(SpatialFunction::Within, &lying, &mut few);
    assert!(refused.is_ok_and(|within| !within), "the first side decides");
    let refused = upright.lies(SpatialFunction::Within, &upright, &mut few);
    assert_eq!(refused.map_err(|refusal| refusal.status.number()), Err(5207));
}

fn any_position() -> impl Strategy<Value = Value> {
    (0_i8..5, 0_i8..5).prop_map(|(x, y)| json!([x, y]))
}

fn any_line() -> impl Strategy<Value = Value> {
    prop::collection::vec(any_position(), 2..5).prop_map(Value::from)
}

/// A triangle, or a box.
fn any_ring() -> impl Strategy<Value = Value> {
    prop_oneof![
        prop::collection::vec(any_position(), 3).prop_map(|mut ring| {
            ring.push(ring[0].clone());
            Value::from(ring)
        }),
        (0_i8..4, 0_i8..4, 1_i8..4, 1_i8..4).prop_map(|(x, y, width, height)| {
            let (right, top) = (x + width, y + height);
            json!([[x, y], [right, y], [right, top], [x, top], [x, y]])
        }),
    ]
}

fn any_geometry() -> impl Strategy<Value = (u64, Value)> {
    prop_oneof![
        any_position().prop_map(|it| (1, it)),
        any_line().prop_map(|it| (2, it)),
        any_ring().prop_map(|it| (3, it)),
        prop::collection::vec(any_position(), 1..4).prop_map(|it| (4, it.into())),
        prop::collection::vec(any_line(), 1..3).prop_map(|it| (5, it.into())),
    ]
}

/// The same coordinates, each number changed.
fn mapped(value: &Value, change: &impl Fn(f64) -> f64) -> Value {
    match value {
        Value::Array(list) => list.iter().map(|it| mapped(it, change)).collect(),
        number => json!(change(number.as_f64().unwrap())),
    }
}

proptest! {
    #[test]
    fn laws_of_relations((kind, first) in any_geometry(), (other, second) in any_geometry()) {
        let (a, b) = (read(kind, &first.to_string()), read(other, &second.to_string()));
        let (Ok(a), Ok(b)) = (a, b) else { return Ok(()); };
        let [within, contains, meets] = FUNCTIONS.map(|function| lies(&a, function, &b));
        let [back_within, back_contains, back_meets] = FUNCTIONS.map(|it| lies(&b, it, &a));
        prop_assert_eq!((within, contains, meets), (back_contains, back_within, back_meets));
        prop_assert!(meets || !(within || contains));
        prop_assert!(lies(&a, SpatialFunction::Within, &a));
        // The place and the size of the plane decide nothing.
        for change in [|it: f64| it + 100.25, |it: f64| it * 0.000_001 - 3.1, |it: f64| -it] {
            let a = read(kind, &mapped(&first, &change).to_string()).unwrap();
            let b = read(other, &mapped(&second, &change).to_string()).unwrap();
            let again = FUNCTIONS.map(|function| lies(&a, function, &b));
            prop_assert_eq!(again, [within, contains, meets]);
        }
    }

    /// What is within another meets all that this one is within.
    #[test]
    fn within_goes_on((x, a) in any_geometry(), (y, b) in any_geometry(), (z, c) in any_geometry()) {
        let read = |kind, it: Value| read(kind, &it.to_string());
        let (Ok(a), Ok(b), Ok(c)) = (read(x, a), read(y, b), read(z, c)) else { return Ok(()); };
        let within = |first, second| lies(first, SpatialFunction::Within, second);
        let meets = lies(&a, SpatialFunction::Intersects, &c);
        prop_assert!(meets || !(within(&a, &b) && within(&b, &c)));
    }

    #[test]
    fn any_text_is_read_or_refused(kind in 1_u64..7, text in "[\\[\\]0-9.,e-]{0,40}") {
        let _refused = read(kind, &text).is_err();
    }
}
