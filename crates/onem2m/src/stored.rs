//! Stored rows: errors of unreadable ones, and the parser of instances.
//!
//! A creation is parsed by it before it is acknowledged, so that a restart can parse it too.

use crate::identity::CseIdentity;
use crate::resource_type::ResourceType;
use crate::time::Timestamp;
use core::fmt;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::Arc;

/// Levels of arrays and objects in the content of a request that is stored. The reader takes 128;
/// an answer with children puts two around the content for each level of the tree.
pub(crate) const NESTING_MAX: usize = 48;

/// A stored row that cannot be parsed. It stays in the store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unreadable {
    /// The number of the row.
    pub row: u64,
    /// The error found in it.
    pub damage: Damage,
}

/// Error of a stored row.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The text is no JSON that can be held.
    #[error("invalid JSON: {0}")]
    Json(String),
    /// A member that each resource has is missing, or has the wrong form.
    #[error("not a resource: {0} is missing or has the wrong form")]
    Member(&'static str),
    /// The row is not as it was written.
    #[error("its checksum is wrong")]
    Checksum,
    /// The row is not in the store.
    #[error("the row is not there")]
    Missing,
    /// The resource that it lies below is not there, or is not readable itself.
    #[error("its parent {0} is missing")]
    Parent(Arc<str>),
}

impl From<serde_json::Error> for Damage {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(error.to_string())
    }
}

/// Why a store cannot be opened: it has rows, but no readable CSEBase of the configured CSE.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NoBase {
    /// A row is damaged, which may be the CSEBase's: the first of those.
    #[error("no row is a readable CSEBase; row {}: {}", .0.row, .0.damage)]
    Damaged(Unreadable),
    /// All rows can be read.
    #[error("none of its {0} rows is a CSEBase")]
    Missing(usize),
    /// Its CSEBase is that of another CSE, or of this one under another name.
    #[error("it is the store of the CSE {stored}, and not of {configured}")]
    Other {
        /// The identity in the store.
        stored: Box<CseIdentity>,
        /// The configured identity.
        configured: Box<CseIdentity>,
    },
}

/// The header of a stored contentInstance.
#[derive(Debug, Default)]
pub(crate) struct InstanceHeader<'text> {
    pub(crate) id: Option<Cow<'text, str>>,
    pub(crate) name: Option<Cow<'text, str>>,
    pub(crate) parent_id: Option<Cow<'text, str>>,
    pub(crate) created: Option<Timestamp>,
    pub(crate) modified: Option<Timestamp>,
    pub(crate) expires: Option<Timestamp>,
    pub(crate) state: u64,
    pub(crate) size: u64,
}

impl<'text> InstanceHeader<'text> {
    /// Whether a row begins like one.
    pub(crate) fn is_in(body: &str) -> bool {
        body.starts_with("{\"m2m:cin\":{")
    }

    /// Reads the row of a contentInstance, all of it.
    pub(crate) fn read(body: &'text str) -> Result<Self, Damage> {
        struct Outer<'text>(InstanceHeader<'text>);
        impl<'de> Deserialize<'de> for Outer<'de> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_map(OuterVisitor).map(Self)
            }
        }
        struct OuterVisitor;
        impl<'de> Visitor<'de> for OuterVisitor {
            type Value = InstanceHeader<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a contentInstance")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let Some((Text(tag), header)) = map.next_entry()? else {
                    return Err(Error::custom("an empty object"));
                };
                if tag != ResourceType::ContentInstance.tag() {
                    return Err(Error::custom("another resource"));
                }
                // Old rows may have had members beside it.
                while map.next_entry::<Readable, Readable>()?.is_some() {}
                Ok(header)
            }
        }
        let Outer(header) = serde_json::from_str(body)?;
        Ok(header)
    }
}

impl<'de> Deserialize<'de> for InstanceHeader<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeaderVisitor;
        impl<'de> Visitor<'de> for HeaderVisitor {
            type Value = InstanceHeader<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the attributes of a contentInstance")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut header = InstanceHeader::default();
                while let Some(Text(name)) = map.next_key()? {
                    let mut time = || {
                        let Text(time) = map.next_value()?;
                        Ok(Timestamp::parse(&time))
                    };
                    match &*name {
                        "ct" => header.created = time()?,
                        "lt" => header.modified = time()?,
                        "et" => header.expires = time()?,
                        "ri" => header.id = Some(map.next_value::<Text<'_>>()?.0),
                        "rn" => header.name = Some(map.next_value::<Text<'_>>()?.0),
                        "pi" => header.parent_id = Some(map.next_value::<Text<'_>>()?.0),
                        "st" => header.state = map.next_value()?,
                        "cs" => header.size = map.next_value()?,
                        _ => {
                            map.next_value::<Readable>()?;
                        }
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(HeaderVisitor)
    }
}

/// Attributes of an instance that are wanted by name, out of its text without the tag. The others
/// are passed over, which halves the time of a walk by `atr`.
pub(crate) fn attributes_of(text: &str, is_wanted: impl Fn(&str) -> bool) -> Map<String, Value> {
    let mut reader = serde_json::Deserializer::from_str(text);
    Wanted(is_wanted).deserialize(&mut reader).unwrap_or_default()
}

/// Reads an object's members that are wanted by name.
struct Wanted<F>(F);

impl<'de, F: Fn(&str) -> bool> DeserializeSeed<'de> for Wanted<F> {
    type Value = Map<String, Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, F: Fn(&str) -> bool> Visitor<'de> for Wanted<F> {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the attributes of an instance")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut attributes = Map::new();
        while let Some(Text(name)) = map.next_key()? {
            if (self.0)(&name) {
                attributes.insert(name.into_owned(), map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(attributes)
    }
}

/// Text that is borrowed if nothing in it is escaped.
struct Text<'text>(Cow<'text, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// Any value that [`serde_json::Value`] can hold, read and not kept.
pub(crate) struct Readable;

impl<'de> Deserialize<'de> for Readable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ReadableVisitor;
        impl<'de> Visitor<'de> for ReadableVisitor {
            type Value = Readable;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }

            fn visit_bool<E>(self, _: bool) -> Result<Readable, E> {
                Ok(Readable)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Readable, E> {
                Ok(Readable)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Readable, E> {
                Ok(Readable)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Readable, E> {
                Ok(Readable)
            }

            fn visit_str<E>(self, _: &str) -> Result<Readable, E> {
                Ok(Readable)
            }

            fn visit_unit<E>(self) -> Result<Readable, E> {
                Ok(Readable)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Readable, A::Error> {
                while seq.next_element::<Readable>()?.is_some() {}
                Ok(Readable)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Readable, A::Error> {
                while map.next_entry::<Readable, Readable>()?.is_some() {}
                Ok(Readable)
            }
        }
        deserializer.deserialize_any(ReadableVisitor)
    }
}

/// Whether arrays and objects in a JSON text are nested deeper than `levels`.
pub(crate) fn is_nested_deeper(text: &str, levels: usize) -> bool {
    // No level without its bracket: most texts have fewer, and counting those is cheap.
    let in_chunk = |chunk: &[u8]| {
        // `[` and `{` differ in this bit, and no other octet is as one of them with it.
        let brackets = chunk.iter().map(|octet| u8::from(octet | 0x20 == b'{'));
        usize::from(brackets.sum::<u8>())
    };
    let brackets: usize = text.as_bytes().chunks(usize::from(u8::MAX)).map(in_chunk).sum();
    brackets > levels && nesting(text) > levels
}

/// The deepest level of arrays and objects in a JSON text.
fn nesting(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_text, mut escaped) = (false, false);
    for octet in text.bytes() {
        match octet {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn attributes_are_read_by_name() {
        let text = r#"{"rn":"x","con":{"a":[1,"rn"]},"lbl":["\u00e9"],"st":3,"con":2}"#;
        let all: Map<String, Value> = serde_json::from_str(text).unwrap();
        for name in ["rn", "con", "lbl", "st", "none"] {
            let read = attributes_of(text, |it| it == name);
            assert_eq!(read.get(name), all.get(name), "{name}");
            assert!(read.len() <= 1);
        }
        assert_eq!(attributes_of("[1]", |_| true), Map::new());
    }

    #[test]
    fn brackets_are_counted_over_all_chunks() {
        for levels in [48, 254, 255, 256, 600] {
            let text =
                format!("{}\"{}\"{}", "[".repeat(levels), "x{".repeat(9), "]".repeat(levels));
            assert!(is_nested_deeper(&text, levels - 1), "{levels}");
            assert!(!is_nested_deeper(&text, levels), "{levels}");
        }
    }

    #[test]
    fn levels_are_counted_outside_of_text() {
        for (text, levels) in [
            ("1", 0),
            ("[]", 1),
            (r#"{"a":[{}],"b":[]}"#, 3),
            (r#"["[[\"[["]"#, 1),
            (r#"["\\",[2]]"#, 2),
        ] {
            assert_eq!(nesting(text), levels, "{text}");
            assert!(!is_nested_deeper(text, levels), "{text}");
            assert_eq!(is_nested_deeper(text, levels.saturating_sub(1)), levels > 0, "{text}");
        }
    }

    proptest! {
        /// What is read and thrown away is read exactly where `Value` can hold it.
        #[test]
        fn readable_is_what_a_value_can_hold(
            text in r#"(\[|\{"a":|\]|\}|"(\\ud8[0-9]{2}|\\u00e9|x)*"|1e[0-9]{1,3}|-?[0-9]{1,30}|,|null){0,9}"#
        ) {
            let held = serde_json::from_str::<Value>(&text).is_ok();
            prop_assert_eq!(serde_json::from_str::<Readable>(&text).is_ok(), held, "{}", text);
        }
    }
}
