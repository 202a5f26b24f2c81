//! JSON Merge Patch (RFC 7396) between two documents.

use serde_json::{Map, Value};

/// The patch that makes `new` of `old`.
///
/// A member that is null and one that is absent are the same in a merge patch (RFC 7396 §1), so
/// a null member of `new` may be absent afterwards.
pub fn merge_patch(old: &Value, new: &Value) -> Value {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => Value::Object(of_objects(old, new)),
        _ => new.clone(),
    }
}

fn of_objects(old: &Map<String, Value>, new: &Map<String, Value>) -> Map<String, Value> {
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    let mut patch: Map<_, _> = gone.map(|name| (name.clone(), Value::Null)).collect();
    for (name, value) in new {
        match old.get(name) {
            Some(before) if before == value => {}
            Some(before) => {
                patch.insert(name.clone(), merge_patch(before, value));
            }
            None => {
                patch.insert(name.clone(), value.clone());
            }
        }
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// RFC 7396 §2, as it is written there.
    fn apply(target: Value, patch: &Value) -> Value {
        let Value::Object(patch) = patch else { return patch.clone() };
        let mut target = match target {
            Value::Object(target) => target,
            _ => Map::new(),
        };
        for (name, value) in patch {
            if value.is_null() {
                target.remove(name);
            } else {
                let below = target.remove(name).unwrap_or(Value::Null);
                target.insert(name.clone(), apply(below, value));
            }
        }
        Value::Object(target)
    }

    /// A document without null members, as in a merge patch they are absent.
    fn without_nulls(value: &Value) -> Value {
        match value {
            Value::Object(members) => {
                let members = members.iter().filter(|(_, value)| !value.is_null());
                members.map(|(name, value)| (name.clone(), without_nulls(value))).collect()
            }
            other => other.clone(),
        }
    }

    /// Those rows of RFC 7396 appendix A in which the patch is the least one.
    #[test]
    fn examples_of_the_rfc() {
        for (old, patch, new) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a": "foo"}), json!("bar"), json!("bar")),
        ] {
            assert_eq!(merge_patch(&old, &new), patch, "{old} {new}");
            assert_eq!(apply(old, &patch), new);
        }
        assert_eq!(merge_patch(&json!({"a": 1}), &json!({"a": 1})), json!({}));
    }

    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..4_u8).prop_map(Value::from),
            "[ab<]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            let member = ("[a-d]", inner.clone());
            prop_oneof![
                prop::collection::vec(inner, 0..3).prop_map(Value::from),
                prop::collection::vec(member, 0..4)
                    .prop_map(|members| members.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_patch_makes_the_new_document_of_the_old_one(old in document(), new in document()) {
            let patched = apply(old.clone(), &merge_patch(&old, &new));
            prop_assert_eq!(without_nulls(&patched), without_nulls(&new));
        }
    }
}
