//! Repeated names in the objects of JSON text and in the maps of CBOR.
//!
//! "When the names within an object are not unique, the behavior of software that receives such an
//! object is unpredictable" (RFC 8259 §4); "a map that has duplicate keys is not valid" (RFC 8949
//! §5.6). A request with one is refused: who checks it might read the first, and who acts on it the
//! last.

use crate::status::Refusal;
use ciborium::Value;
use std::borrow::Cow;

/// Levels that are looked at. What is nested deeper is read by nobody: no parser here takes it.
const LEVELS_MAX: usize = 128;

/// Refuses JSON text of which an object has a name twice.
///
/// # Errors
///
/// 4000 with the place, as `m2m:cnt/lbl`.
pub(crate) fn check_names(text: &str) -> Result<(), Refusal> {
    repeated_name(text).map_or(Ok(()), |place| Err(refusal(&place)))
}

/// Refuses CBOR of which a map has a key twice.
///
/// # Errors
///
/// 4000 with the place.
pub(crate) fn check_keys(value: &Value) -> Result<(), Refusal> {
    let mut place = Vec::new();
    if has_repeated_key(value, &mut place) { Err(refusal(&place.join("/"))) } else { Ok(()) }
}

fn refusal(place: &str) -> Refusal {
    Refusal::bad(format!("the member {place} is there more than once"))
}

/// An object or an array that is open.
#[derive(Clone, Copy)]
struct Level {
    is_object: bool,
    /// Number of the names before its own.
    names_before: usize,
}

/// The place of a name that its object has twice; `None` if there is none, or if this is no JSON.
fn repeated_name(text: &str) -> Option<String> {
    let octets = text.as_bytes();
    // Most contents have no more: an allocation that need not grow.
    let mut levels: Vec<Level> = Vec::with_capacity(8);
    let mut names: Vec<Cow<'_, str>> = Vec::with_capacity(16);
    let mut expects_name = false;
    let mut at = 0;
    while let Some(octet) = octets.get(at) {
        at += 1;
        match octet {
            b'"' => {
                let length = length_of_text(octets.get(at..)?)?;
                if expects_name {
                    names.push(name_of(text.get(at..at + length)?));
                    expects_name = false;
                }
                at += length + 1;
            }
            b'{' | b'[' => {
                expects_name = *octet == b'{';
                levels.push(Level { is_object: expects_name, names_before: names.len() });
                if levels.len() > LEVELS_MAX {
                    return None;
                }
            }
            b'}' | b']' => {
                let level = levels.pop()?;
                let own = names.get_mut(level.names_before..)?;
                if let Some(name) = repeated(own) {
                    names.truncate(level.names_before);
                    return Some(place(&levels, &names, &name));
                }
                names.truncate(level.names_before);
                expects_name = false;
            }
            b',' => expects_name = levels.last()?.is_object,
            _ => {}
        }
    }
    None
}

/// Octets up to the quotation mark that ends a text.
fn length_of_text(octets: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let rest = octets.get(at..)?;
        at += rest.iter().position(|octet| matches!(octet, b'"' | b'\\'))?;
        if octets.get(at) == Some(&b'"') {
            return Some(at);
        }
        at += 2;
    }
}

/// A name as it is meant: two may be written in different ways.
fn name_of(written: &str) -> Cow<'_, str> {
    if !written.contains('\\') {
        return Cow::Borrowed(written);
    }
    let meant = serde_json::from_str(&format!("\"{written}\""));
    meant.map_or(Cow::Borrowed(written), Cow::Owned)
}

/// Names up to which each is compared with each: that takes less time than to sort them.
const FEW: usize = 8;

/// A name that is there twice.
fn repeated<T: Clone + Ord>(names: &mut [T]) -> Option<T> {
    if names.len() <= FEW {
        let is_behind = |at: usize, name: &T| names.iter().skip(at + 1).any(|other| other == name);
        let mut repeated = names.iter().enumerate().filter(|(at, name)| is_behind(*at, name));
        return repeated.next().map(|(_, name)| name.clone());
    }
    names.sort_unstable();
    let mut before: Option<&T> = None;
    for name in names.iter() {
        if before == Some(name) {
            return Some(name.clone());
        }
        before = Some(name);
    }
    None
}

/// The names on the path to an object in `levels`, and one in it.
fn place(levels: &[Level], names: &[Cow<'_, str>], name: &str) -> String {
    let mut place = String::new();
    for (at, _) in levels.iter().enumerate().filter(|(_, level)| level.is_object) {
        // The last of a level's names is that of the member that is being read.
        let end = levels.get(at + 1).map_or(names.len(), |inner| inner.names_before);
        if let Some(name) = end.checked_sub(1).and_then(|last| names.get(last)) {
            place.push_str(name);
            place.push('/');
        }
    }
    place.push_str(name);
    place
}

/// Whether a map has a text twice as its key; then `place` leads to it.
fn has_repeated_key(value: &Value, place: &mut Vec<String>) -> bool {
    match value {
        Value::Map(pairs) => {
            let mut keys: Vec<&str> = pairs.iter().filter_map(|(key, _)| key.as_text()).collect();
            if let Some(key) = repeated(&mut keys) {
                place.push(key.to_owned());
                return true;
            }
            pairs.iter().any(|(key, value)| {
                place.push(key.as_text().unwrap_or_default().to_owned());
                let found = has_repeated_key(value, place);
                if !found {
                    place.pop();
                }
                found
            })
        }
        Value::Array(values) => values.iter().any(|value| has_repeated_key(value, place)),
        Value::Tag(_, value) => has_repeated_key(value, place),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
    use std::collections::HashSet;
    use std::fmt;

    #[test]
    fn a_repeated_name_is_found_with_its_place() {
        for (text, found) in [
            (r#"{"m2m:cin":{"con":1,"con":2}}"#, Some("m2m:cin/con")),
            (
                r#"{"a":{"x":1},"b":{"x":1},"c":[{"x":1},{"x":2,"y":{"z":[],"z":0}}]}"#,
                Some("c/y/z"),
            ),
            (r#"{"a":1,"b":{},"a":2}"#, Some("a")),
            (r#"{"a":1,"\u0061":2}"#, Some("a")),
            (r#"{"a\"b":1,"c":"a\"b","a\"b":2}"#, Some("a\"b")),
            (r#"{"":1,"":2}"#, Some("")),
            (r#"{"a":"a","b":["a","a",{"a":"b"}],"c":"{\"a\":1,\"a\":2}"}"#, None),
            (r#"{"a\\":1,"a":2}"#, None),
            ("[1,2]", None),
            ("{", None),
            (r#"{"a"#, None),
            (r#"{"a\"#, None),
            ("}", None),
            (",", None),
            ("", None),
        ] {
            assert_eq!(repeated_name(text).as_deref(), found, "{text}");
        }
        let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
        assert_eq!(repeated_name(&deep), None);
    }

    /// RFC 8949 §5.6.1: the diagnostic notation's example of a map with a key twice.
    #[test]
    fn a_repeated_key_is_found_with_its_place() {
        // {"a": [{"b": 1, "b": 2}]} and {"a": {"b": 1}, "b": {"a": 1}}
        let twice = [0xa1, 0x61, b'a', 0x81, 0xa2, 0x61, b'b', 1, 0x61, b'b', 2];
        let once = [0xa2, 0x61, b'a', 0xa1, 0x61, b'b', 1, 0x61, b'b', 0xa1, 0x61, b'a', 1];
        let check = |octets: &[u8]| check_keys(&ciborium::from_reader(octets).unwrap());
        let refusal = check(&twice).unwrap_err();
        assert_eq!(refusal.status.number(), 4000);
        assert!(refusal.debug.contains(" a/b "), "{refusal}");
        check(&once).unwrap();
    }

    /// JSON as serde_json reads it, which fails at a repeated name.
    struct Unique;

    impl<'de> Deserialize<'de> for Unique {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_any(UniqueVisitor)
        }
    }

    struct UniqueVisitor;

    impl<'de> Visitor<'de> for UniqueVisitor {
        type Value = Unique;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("JSON")
        }

        fn visit_bool<E>(self, _: bool) -> Result<Unique, E> {
            Ok(Unique)
        }

        fn visit_u64<E>(self, _: u64) -> Result<Unique, E> {
            Ok(Unique)
        }

        fn visit_str<E>(self, _: &str) -> Result<Unique, E> {
            Ok(Unique)
        }

        fn visit_unit<E>(self) -> Result<Unique, E> {
            Ok(Unique)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Unique, A::Error> {
            while seq.next_element::<Unique>()?.is_some() {}
            Ok(Unique)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unique, A::Error> {
            let mut names = HashSet::new();
            while let Some((name, _)) = map.next_entry::<String, Unique>()? {
                if !names.insert(name) {
                    return Err(A::Error::custom("twice"));
                }
            }
            Ok(Unique)
        }
    }

    proptest! {
        /// Of what is JSON, exactly that is found which a parser sees.
        #[test]
        fn what_a_parser_sees_twice_is_found(
            text in r#"(\{|\[|\}|\]|,|"a":|"\\\\":|"\\u0061":|"b":|"a"|1|null| ){0,14}"#
        ) {
            if serde_json::from_str::<serde_json::Value>(&text).is_ok() {
                let is_unique = serde_json::from_str::<Unique>(&text).is_ok();
                prop_assert_eq!(repeated_name(&text).is_none(), is_unique, "{}", text);
            }
        }
    }
}
