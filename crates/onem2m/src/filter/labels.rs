//! Labels queries (TS-0004 §7.3.3.17.16): a small language of conditions on labels, which are
//! `KEY` or `KEY:VALUE`.
//!
//! | expression | holds where a resource |
//! |---|---|
//! | `KEY` | has the key, alone or with a value |
//! | `NT KEY` | does not have it |
//! | `KEY EQ VALUE`, `KEY:VALUE` | has the pair |
//! | `KEY NE VALUE` | has the key with values, and this one is none of them |
//! | `KEY IN (VALUE, …)` | has the key with one of the values |
//! | `KEY NI (VALUE, …)` | has the key with values, and none of these |

use crate::status::Refusal;
use core::fmt;

/// A query on labels.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LabelsQuery {
    key: String,
    condition: Condition,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Condition {
    Present,
    Absent,
    /// The key has one of these values.
    OneOf(Vec<String>),
    /// The key has values, none of them one of these.
    NoneOf(Vec<String>),
}

impl LabelsQuery {
    /// Reads one expression.
    ///
    /// # Errors
    ///
    /// 4000 if it is none, or too long, or names too many values.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        if text.len() > OCTETS_MAX {
            return Err(Refusal::bad(format!(
                "lbq has expressions of {OCTETS_MAX} octets at most"
            )));
        }
        let (first, rest) = split_word(text);
        let (second, operand) = split_word(rest);
        let one = || Some(vec![operand.to_owned()]).filter(|_| !operand.is_empty());
        let read = match (first, second) {
            ("", _) => None,
            // What begins with a pair is that pair to its end: values may have spaces in them.
            (word, _) if word.contains(':') => pair(text.trim(), second),
            (key, "") => Some((key, Condition::Present)),
            ("NT", key) if operand.is_empty() && !key.contains(':') => {
                Some((key, Condition::Absent))
            }
            (key, "EQ") => one().map(|values| (key, Condition::OneOf(values))),
            (key, "NE") => one().map(|values| (key, Condition::NoneOf(values))),
            (key, "IN") => list(operand).map(|values| (key, Condition::OneOf(values))),
            (key, "NI") => list(operand).map(|values| (key, Condition::NoneOf(values))),
            _ => None,
        };
        // Parentheses are those of a list: a key with one is a broken list.
        let read = read.filter(|(key, _)| !key.contains(['(', ')']));
        let (key, condition) = read.ok_or_else(|| {
            Refusal::bad(
                "lbq is KEY, NT KEY, KEY:VALUE, KEY EQ|NE VALUE or KEY IN|NI (VALUE, ...), \
                 expressions joined by +",
            )
        })?;
        Ok(Self { key: key.to_owned(), condition })
    }

    /// Whether the labels of a resource are as it says.
    pub fn holds<'label>(&self, labels: impl Iterator<Item = &'label str>) -> bool {
        let of_key = labels.filter_map(|label| match label.split_once(':') {
            Some((key, value)) => (key == self.key).then_some(Some(value)),
            None => (label == self.key).then_some(None),
        });
        let is_one_of = |values: &[String], found: &str| values.iter().any(|value| value == found);
        match &self.condition {
            Condition::Present => of_key.count() > 0,
            Condition::Absent => of_key.count() == 0,
            Condition::OneOf(values) => of_key.flatten().any(|found| is_one_of(values, found)),
            Condition::NoneOf(values) => {
                let mut pairs = of_key.flatten().peekable();
                pairs.peek().is_some() && !pairs.any(|found| is_one_of(values, found))
            }
        }
    }

    /// How many comparisons a label costs.
    pub(crate) const fn comparisons(&self) -> usize {
        match &self.condition {
            Condition::Present | Condition::Absent => 1,
            Condition::OneOf(values) | Condition::NoneOf(values) => 1 + values.len(),
        }
    }
}

impl fmt::Display for LabelsQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (single, several, values) = match &self.condition {
            Condition::Present => return f.write_str(&self.key),
            Condition::Absent => return write!(f, "NT {}", self.key),
            Condition::OneOf(values) => ("EQ", "IN", values),
            Condition::NoneOf(values) => ("NE", "NI", values),
        };
        match values.as_slice() {
            [value] => write!(f, "{} {single} {value}", self.key),
            values => write!(f, "{} {several} ({})", self.key, values.join(", ")),
        }
    }
}

/// The first word of a text, and what follows it.
fn split_word(text: &str) -> (&str, &str) {
    let text = text.trim();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim_start())
}

/// `KEY:VALUE`; an operator behind it is a mistake, not a part of the value.
fn pair<'text>(text: &'text str, second: &str) -> Option<(&'text str, Condition)> {
    let (key, value) = text.split_once(':')?;
    let value = value.trim_start();
    let is_operator = matches!(second, "EQ" | "NE" | "IN" | "NI");
    if key.is_empty() || value.is_empty() || is_operator {
        return None;
    }
    Some((key, Condition::OneOf(vec![value.to_owned()])))
}

/// `(VALUE, …)`.
fn list(operand: &str) -> Option<Vec<String>> {
    let inner = operand.strip_prefix('(')?.strip_suffix(')')?;
    let values: Vec<String> = inner.split(',').map(|value| value.trim().to_owned()).collect();
    let is_whole = |value: &String| !value.is_empty() && !value.contains(['(', ')']);
    (values.len() <= VALUES_MAX && values.iter().all(is_whole)).then_some(values)
}

/// Octets of one expression.
const OCTETS_MAX: usize = 1_024;
/// Values of one expression.
const VALUES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn holds(query: &str, labels: &[&str]) -> bool {
        LabelsQuery::parse(query).unwrap().holds(labels.iter().copied())
    }

    /// The examples of TS-0004 §7.3.3.17.16, and what lies beside them.
    #[test]
    fn expressions_as_the_specification_tells_them() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            ("color", &["color", "color:red", "color:green"], &["colour", "colors:red", ""]),
            ("NT color", &["size:3", "colour:red", "red:color"], &["color", "color:red"]),
            ("color EQ red", &["color:red"], &["color", "color:green", "red", "Color:red"]),
            ("color:red", &["color:red"], &["color", "color:green", "color:reddish"]),
            ("color NE red", &["color:blue", "color:"], &["color:red", "color", "size:3"]),
            ("color IN (red, green)", &["color:red", "color:green"], &["color:blue", "color"]),
            ("color NI (red, green)", &["color:yellow", "color:blue"], &["color:red", "color"]),
            ("name EQ Ada Lovelace", &["name:Ada Lovelace"], &["name:Ada"]),
            ("name:Ada Lovelace", &["name:Ada Lovelace"], &["name:Ada"]),
            ("at:urn:x:1", &["at:urn:x:1"], &["at:urn"]),
            ("room:(east)", &["room:(east)"], &["room:east"]),
            ("NT", &["NT", "NT:1"], &["N"]),
        ];
        for (query, good, bad) in cases {
            for label in *good {
                assert!(holds(query, &[label]), "{query} {label}");
            }
            for label in *bad {
                assert!(!holds(query, &[label]), "{query} {label}");
            }
        }
        assert!(!holds("color NE red", &["color:blue", "color:red"]), "one of them is it");
        assert!(!holds("color NI (red, green)", &["color:blue", "color:green"]));
        assert!(holds("color IN (red, green)", &["color:blue", "color:green"]));
        assert!(holds("NT color", &[]) && !holds("color", &[]) && !holds("color NE red", &[]));
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        let long = "a".repeat(OCTETS_MAX + 1);
        let many = format!("k IN ({})", vec!["v"; VALUES_MAX + 1].join(","));
        for wrong in [
            "",
            " ",
            ":",
            ":red",
            "color:",
            "color EQ",
            "color NE ",
            "(",
            ")",
            "(red)",
            "IN(red)",
            "color(",
            "NT (red",
            "NT (",
            "color IN",
            "color IN red",
            "color IN ()",
            "color IN (red",
            "color IN (red,)",
            "color IN (red) green",
            "color NI ((red))",
            "size IN(3)",
            "color IS red",
            "color red",
            "NT a b",
            "NT a:b",
            "color:red EQ blue",
            &long,
            &many,
        ] {
            assert!(LabelsQuery::parse(wrong).is_err(), "{wrong}");
        }
    }

    fn word() -> impl Strategy<Value = String> {
        "[a-c]{1,2}"
    }

    fn any_query() -> impl Strategy<Value = String> {
        let values = prop::collection::vec(word(), 1..4);
        prop_oneof![
            word(),
            word().prop_map(|key| format!("NT {key}")),
            (word(), word()).prop_map(|(key, value)| format!("{key}:{value}")),
            (word(), prop::sample::select(vec!["EQ", "NE"]), word())
                .prop_map(|(key, operator, value)| format!("{key} {operator} {value}")),
            (word(), prop::sample::select(vec!["IN", "NI"]), values).prop_map(
                |(key, operator, values)| format!("{key} {operator} ({})", values.join(" , "))
            ),
        ]
    }

    fn any_labels() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec("[a-c]{1,2}(:[a-c]{1,2})?", 0..5)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(text in any_query()) {
            let query = LabelsQuery::parse(&text).unwrap();
            prop_assert_eq!(LabelsQuery::parse(&query.to_string()).unwrap(), query);
        }

        /// A key is there or not; of a key that is there with a value, a list takes it or does not.
        #[test]
        fn each_operator_has_its_opposite(
            key in word(),
            values in prop::collection::vec(word(), 1..4),
            labels in any_labels(),
        ) {
            let ask = |query: String| {
                LabelsQuery::parse(&query).unwrap().holds(labels.iter().map(String::as_str))
            };
            prop_assert_ne!(ask(key.clone()), ask(format!("NT {key}")));
            let has_pair = labels.iter().any(|label| label.starts_with(&format!("{key}:")));
            let list = values.join(",");
            let (inside, outside) =
                (ask(format!("{key} IN ({list})")), ask(format!("{key} NI ({list})")));
            prop_assert_eq!(inside ^ outside, has_pair);
            prop_assert!(!(inside && outside));
            let each = values.iter().any(|value| ask(format!("{key} EQ {value}")));
            prop_assert_eq!(inside, each);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[A-Zab:,() ]{0,24}") {
            if let Ok(query) = LabelsQuery::parse(&text) {
                prop_assert_eq!(LabelsQuery::parse(&query.to_string()), Ok(query));
            }
        }
    }
}
