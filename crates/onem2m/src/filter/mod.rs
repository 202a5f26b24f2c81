//! Filter criteria (TS-0004, m2m:filterCriteria): conditions that select a request's resources.

mod content;
mod labels;
mod place;
mod steps;

pub use content::ContentQuery;
pub use labels::LabelsQuery;
pub use place::PlaceQuery;
pub use steps::{FilterJudgement, Steps};

use crate::schema;
use crate::status::{Refusal, Status};
use crate::time::Timestamp;
use serde_json::{Map, Value, json};

/// Conditions on resources, and the limits of a discovery.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Filter {
    /// `fu`: the usage of the filter.
    pub usage: Option<Usage>,
    /// `fo`: how conditions of different kinds combine.
    pub operation: Combine,
    /// `crb`: created before.
    pub created_before: Option<Timestamp>,
    /// `cra`: created then or after.
    pub created_after: Option<Timestamp>,
    /// `ms`: modified since.
    pub modified_since: Option<Timestamp>,
    /// `us`: not modified since.
    pub unmodified_since: Option<Timestamp>,
    /// `sts`: stateTag smaller than.
    pub state_smaller: Option<u64>,
    /// `stb`: stateTag of at least.
    pub state_bigger: Option<u64>,
    /// `exb`: expires before.
    pub expire_before: Option<Timestamp>,
    /// `exa`: expires then or after.
    pub expire_after: Option<Timestamp>,
    /// `sza`: minimum octets of the content.
    pub size_above: Option<u64>,
    /// `szb`: content of fewer octets.
    pub size_below: Option<u64>,
    /// `ty`: one of these resource types.
    pub resource_types: Vec<u16>,
    /// `chty`: a child of one of these types exists.
    pub child_types: Vec<u16>,
    /// `pty`: the parent is of one of these types.
    pub parent_types: Vec<u16>,
    /// `lbl`: carries one of these labels.
    pub labels: Vec<String>,
    /// `clbl`: a child carries one of these labels.
    pub child_labels: Vec<String>,
    /// `palb`: the parent carries one of these labels.
    pub parent_labels: Vec<String>,
    /// `lbq`: one of these expressions on labels holds.
    pub labels_queries: Vec<LabelsQuery>,
    /// `cty`: contentInfo is one of these.
    pub content_types: Vec<String>,
    /// `atr`: these attributes have these values, `*` standing for any characters; several of one
    /// attribute are alternatives.
    pub attributes: Vec<(String, String)>,
    /// `catr`: the same, of a child.
    pub child_attributes: Vec<(String, String)>,
    /// `patr`: the same, of the parent.
    pub parent_attributes: Vec<(String, String)>,
    /// `cfs`: `cfq` is JSONPath.
    pub content_syntax: bool,
    /// `cfq`: one of these queries selects something of the content.
    pub content_queries: Vec<ContentQuery>,
    /// `gmty`, `geom`, `gsf`: the spatial relation of the location to a geometry.
    pub place: PlaceQuery,
    /// `lim`: maximum number of results.
    pub limit: Option<usize>,
    /// `ofst`: results begin with the one of this number, counted from 1.
    pub offset: Option<usize>,
    /// `lvl`: maximum number of levels below the target.
    pub level: Option<usize>,
    /// `arp`: a relative path appended to each result.
    pub appended_path: Option<String>,
}

/// Usage of a filter (m2m:filterUsage).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Usage {
    /// 1: find resources.
    Discovery,
    /// 2: do the operation only where the conditions hold.
    Conditional,
}

impl Usage {
    const fn number(self) -> u8 {
        match self {
            Self::Discovery => 1,
            Self::Conditional => 2,
        }
    }
}

/// Combination of conditions of different kinds (m2m:filterOperation).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Combine {
    /// 1: all hold.
    #[default]
    And,
    /// 2: at least one holds.
    Or,
    /// 3: an odd number of them holds.
    Xor,
}

impl Combine {
    const fn number(self) -> u8 {
        match self {
            Self::And => 1,
            Self::Or => 2,
            Self::Xor => 3,
        }
    }
}

impl Filter {
    /// Adds one criterion by its short name; any other name is a condition on the attribute of that
    /// name (TS-0009 §6.2.2.2). A value may list several, joined by `+`.
    ///
    /// # Errors
    ///
    /// 4000 if the value is none of its kind or there are too many, 5001 if the criterion is known and not offered.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Refusal> {
        match name {
            "lbq" => {
                for expression in value.split('+') {
                    bounded(name, &self.labels_queries)?;
                    self.labels_queries.push(LabelsQuery::parse(expression)?);
                }
            }
            "cfs" => {
                if value != JSONPATH {
                    return Err(Refusal::bad(format!("cfs is {JSONPATH} (JSONPath), not {value}")));
                }
                self.content_syntax = true;
            }
            "cfq" => {
                bounded(name, &self.content_queries)?;
                self.content_queries.push(ContentQuery::parse(value)?);
            }
            "gmty" | "geom" | "gsf" => self.place.set(name, value)?,
            "fu" => self.usage = Some(usage(value)?),
            "fo" => self.operation = combine(value)?,
            "crb" => self.created_before = Some(time(name, value)?),
            "cra" => self.created_after = Some(time(name, value)?),
            "ms" => self.modified_since = Some(time(name, value)?),
            "us" => self.unmodified_since = Some(time(name, value)?),
            "exb" => self.expire_before = Some(time(name, value)?),
            "exa" => self.expire_after = Some(time(name, value)?),
            "sts" => self.state_smaller = Some(number(name, value)?),
            "stb" => self.state_bigger = Some(number(name, value)?),
            "sza" => self.size_above = Some(number(name, value)?),
            "szb" => self.size_below = Some(number(name, value)?),
            "ty" => resource_types(name, value, &mut self.resource_types)?,
            "chty" => resource_types(name, value, &mut self.child_types)?,
            "pty" => resource_types(name, value, &mut self.parent_types)?,
            "lbl" => words(value, &mut self.labels),
            "clbl" => words(value, &mut self.child_labels),
            "palb" => words(value, &mut self.parent_labels),
            "cty" => words(value, &mut self.content_types),
            "lim" => self.limit = Some(count(name, value)?),
            "ofst" => self.offset = Some(count(name, value)?),
            "lvl" => self.level = Some(count(name, value)?),
            "arp" => self.appended_path = Some(value.to_owned()),
            "catr" => attribute(name, pair(name, value)?, &mut self.child_attributes)?,
            "patr" => attribute(name, pair(name, value)?, &mut self.parent_attributes)?,
            "atr" => attribute(name, pair(name, value)?, &mut self.attributes)?,
            "smf" => {
                let words = format!("filter criterion {name} is not offered");
                return Err(Refusal::new(Status::NotImplemented, words));
            }
            // "any of the resource attribute short names as listed in tables 8.2.3-1 to 8.2.3-5 in
            // oneM2M TS-0004" (TS-0009 §6.2.2.2).
            _ if !schema::is_attribute(name) => {
                let why = "neither a parameter nor an attribute; one of a definition of its own is";
                return Err(Refusal::bad(format!("{name} is {why} asked for by atr={name},VALUE")));
            }
            _ => {
                let pair = (name.to_owned(), value.to_owned());
                attribute(name, pair, &mut self.attributes)?;
            }
        }
        Ok(())
    }

    /// Takes one value of a criterion that a primitive lists, as [`Self::set`] does, but whole:
    /// a label may have spaces, and `+`.
    ///
    /// # Errors
    ///
    /// As [`Self::set`].
    pub fn set_whole(&mut self, name: &str, value: &str) -> Result<(), Refusal> {
        let list = match name {
            "lbl" => &mut self.labels,
            "clbl" => &mut self.child_labels,
            "palb" => &mut self.parent_labels,
            "cty" => &mut self.content_types,
            "lbq" => {
                bounded(name, &self.labels_queries)?;
                self.labels_queries.push(LabelsQuery::parse(value)?);
                return Ok(());
            }
            _ => return self.set(name, value),
        };
        list.push(value.to_owned());
        Ok(())
    }

    /// The criteria by their short names, as [`Self::set`] takes them.
    pub fn pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = Vec::new();
        let mut push = |name, value: Option<String>| pairs.extend(value.map(|value| (name, value)));
        push("fu", self.usage.map(|usage| usage.number().to_string()));
        push("fo", (self.operation != Combine::And).then(|| self.operation.number().to_string()));
        for (name, time) in [
            ("crb", self.created_before),
            ("cra", self.created_after),
            ("ms", self.modified_since),
            ("us", self.unmodified_since),
            ("exb", self.expire_before),
            ("exa", self.expire_after),
        ] {
            push(name, time.map(|time| time.to_string()));
        }
        for (name, number) in [
            ("sts", self.state_smaller),
            ("stb", self.state_bigger),
            ("sza", self.size_above),
            ("szb", self.size_below),
        ] {
            push(name, number.map(|number| number.to_string()));
        }
        for (name, count) in [("lim", self.limit), ("ofst", self.offset), ("lvl", self.level)] {
            push(name, count.map(|count| count.to_string()));
        }
        for (name, resource_types) in
            [("ty", &self.resource_types), ("chty", &self.child_types), ("pty", &self.parent_types)]
        {
            let words: Vec<String> = resource_types.iter().map(u16::to_string).collect();
            push(name, (!words.is_empty()).then(|| words.join("+")));
        }
        for (name, words) in [
            ("lbl", &self.labels),
            ("clbl", &self.child_labels),
            ("palb", &self.parent_labels),
            ("cty", &self.content_types),
        ] {
            push(name, (!words.is_empty()).then(|| words.join("+")));
        }
        for (name, list) in [
            ("atr", &self.attributes),
            ("catr", &self.child_attributes),
            ("patr", &self.parent_attributes),
        ] {
            for (attribute, wanted) in list {
                push(name, Some(format!("{attribute},{wanted}")));
            }
        }
        push("arp", self.appended_path.clone());
        let expressions: Vec<String> =
            self.labels_queries.iter().map(LabelsQuery::to_string).collect();
        push("lbq", (!expressions.is_empty()).then(|| expressions.join("+")));
        push("cfs", self.content_syntax.then(|| JSONPATH.to_owned()));
        for query in &self.content_queries {
            push("cfq", Some(query.to_string()));
        }
        pairs.extend(self.place.pairs());
        pairs
    }

    /// Whether criteria that belong together are all there.
    ///
    /// # Errors
    ///
    /// 4000 if one is missing.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.content_syntax == self.content_queries.is_empty() {
            return Err(Refusal::bad("cfs and cfq are given together"));
        }
        self.place.check()
    }

    /// The criteria as the object that a request primitive carries (`fc`).
    pub fn to_value(&self) -> Value {
        let mut object = Map::new();
        for (name, value) in self.pairs() {
            match name {
                "ty" | "chty" | "pty" => {
                    let resource_types = value
                        .split('+')
                        .map(|resource_type| number_or_text(resource_type.to_owned()));
                    object.insert(name.to_owned(), resource_types.collect());
                }
                "lbl" => put_words(name, &self.labels, &mut object),
                "clbl" => put_words(name, &self.child_labels, &mut object),
                "palb" => put_words(name, &self.parent_labels, &mut object),
                "cty" => put_words(name, &self.content_types, &mut object),
                "lbq" => put_words(name, &self.labels_queries, &mut object),
                "atr" | "catr" | "patr" => {
                    let (attribute, wanted) = value.split_once(',').unwrap_or((&value, ""));
                    let pair = json!({ "nm": attribute, "val": wanted });
                    match object.entry(name).or_insert_with(|| Value::Array(Vec::new())) {
                        Value::Array(pairs) => pairs.push(pair),
                        other => *other = pair,
                    }
                }
                "cfq" => match object.entry(name).or_insert_with(|| Value::Array(Vec::new())) {
                    Value::Array(queries) => queries.push(Value::String(value)),
                    other => *other = Value::String(value),
                },
                "fu" | "fo" | "sts" | "stb" | "sza" | "szb" | "lim" | "ofst" | "lvl" | "cfs"
                | "gmty" | "gsf" => {
                    object.insert(name.to_owned(), number_or_text(value));
                }
                _ => {
                    object.insert(name.to_owned(), Value::String(value));
                }
            }
        }
        Value::Object(object)
    }

    /// Whether any condition on resources is set, `fu`, `lim` and the like apart.
    pub fn has_conditions(&self) -> bool {
        let plain = Self {
            usage: self.usage,
            operation: self.operation,
            limit: self.limit,
            offset: self.offset,
            level: self.level,
            appended_path: self.appended_path.clone(),
            ..Self::default()
        };
        *self != plain
    }
}

/// Refuses one more than a list may have.
fn bounded<T>(name: &str, list: &[T]) -> Result<(), Refusal> {
    if list.len() < QUERIES_MAX {
        return Ok(());
    }
    Err(Refusal::bad(format!("{name} is given {QUERIES_MAX} times at most")))
}

/// Puts a list, each of its entries whole.
fn put_words(name: &str, words: &[impl ToString], into: &mut Map<String, Value>) {
    into.insert(name.to_owned(), words.iter().map(ToString::to_string).collect());
}

fn number_or_text(text: String) -> Value {
    text.parse::<u64>().map_or_else(|_| Value::String(text), Value::from)
}

/// Whether `text` is what `pattern` describes, `*` standing for any characters.
pub fn matches_wildcard(pattern: &str, text: &str) -> bool {
    let Some((head, mut rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(head) else {
        return false;
    };
    // Each middle piece is taken where it first occurs: a later place could only leave less.
    while let Some((piece, tail)) = rest.split_once('*') {
        let Some(at) = text.find(piece) else {
            return false;
        };
        text = text.get(at + piece.len()..).unwrap_or_default();
        rest = tail;
    }
    text.ends_with(rest)
}

fn usage(value: &str) -> Result<Usage, Refusal> {
    match value {
        "1" => Ok(Usage::Discovery),
        "2" => Ok(Usage::Conditional),
        "3" => {
            let why = "fu 3, discovery that an interworking proxy does on demand, is not offered";
            Err(Refusal::new(Status::NotImplemented, why))
        }
        _ => Err(Refusal::bad(format!("fu is 1 or 2, not {value}"))),
    }
}

fn combine(value: &str) -> Result<Combine, Refusal> {
    match value {
        "1" => Ok(Combine::And),
        "2" => Ok(Combine::Or),
        "3" => Ok(Combine::Xor),
        _ => Err(Refusal::bad(format!("fo is 1, 2 or 3, not {value}"))),
    }
}

fn time(name: &str, value: &str) -> Result<Timestamp, Refusal> {
    Timestamp::parse(value).ok_or_else(|| {
        let wanted = "a time is written YYYYMMDDThhmmss in UTC, as 20261128T120000";
        Refusal::bad(format!("{name} is no time: {value}; {wanted}"))
    })
}

fn number(name: &str, value: &str) -> Result<u64, Refusal> {
    value.parse().map_err(|_| Refusal::bad(format!("{name} is no number: {value}")))
}

fn count(name: &str, value: &str) -> Result<usize, Refusal> {
    value.parse().map_err(|_| Refusal::bad(format!("{name} is no number: {value}")))
}

fn words(value: &str, into: &mut Vec<String>) {
    into.extend(value.split(['+', ' ']).filter(|word| !word.is_empty()).map(str::to_owned));
}

fn resource_types(name: &str, value: &str, into: &mut Vec<u16>) -> Result<(), Refusal> {
    for word in value.split(['+', ' ']) {
        into.push(word.parse().map_err(|_| Refusal::bad(format!("{name} is no type: {word}")))?);
    }
    Ok(())
}

fn attribute(
    name: &str,
    pair: (String, String),
    into: &mut Vec<(String, String)>,
) -> Result<(), Refusal> {
    bounded(name, into)?;
    into.push(pair);
    Ok(())
}

fn pair(name: &str, value: &str) -> Result<(String, String), Refusal> {
    let (attribute, wanted) = value
        .split_once(',')
        .ok_or_else(|| Refusal::bad(format!("{name} is NAME,VALUE, not {value}")))?;
    Ok((attribute.to_owned(), wanted.to_owned()))
}

/// m2m:contentFilterSyntax, JSON_PATH_SYNTAX: the only one there is.
const JSONPATH: &str = "1";
/// Expressions on labels, queries of contents, and values of attributes.
const QUERIES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards() {
        let cases = [
            ("abc", "abc", true),
            ("abc", "abcd", false),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "ac", true),
            ("a*a", "a", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxcyyb", false),
            ("*", "", true),
            ("**", "x", true),
            ("/id-*", "/id-mn", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches_wildcard(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_criterion_with_a_wrong_value_is_a_bad_request() {
        for (name, value) in [
            ("fu", "4"),
            ("fo", "0"),
            ("crb", "yesterday"),
            ("lim", "-1"),
            ("ty", "4+x"),
            ("sts", ""),
            ("atr", "no comma"),
        ] {
            let refusal = Filter::default().set(name, value).map_err(|refusal| refusal.status);
            assert_eq!(refusal, Err(Status::BadRequest), "{name}={value}");
        }
        for (name, value) in [("smf", "SELECT"), ("fu", "3")] {
            let refusal = Filter::default().set(name, value).map_err(|refusal| refusal.status);
            assert_eq!(refusal, Err(Status::NotImplemented), "{name}={value}");
        }
    }

    #[test]
    fn lists_and_unknown_names() {
        let mut filter = Filter::default();
        filter.set("ty", "3+4").unwrap();
        filter.set("lbl", "a b").unwrap();
        assert!(filter.has_conditions());
        filter.set("cnf", "text/*").unwrap();
        assert_eq!(filter.resource_types, [3, 4]);
        assert_eq!(filter.labels, ["a", "b"]);
        assert_eq!(filter.attributes, [("cnf".to_owned(), "text/*".to_owned())]);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut filter = Filter::default();
        for (name, value) in [
            ("fu", "1"),
            ("fo", "2"),
            ("crb", "20231114T221320,000000"),
            ("ty", "3+4"),
            ("lbl", "a+b"),
            ("sza", "7"),
            ("lim", "5"),
            ("atr", "con,1*"),
            ("arp", "la"),
        ] {
            filter.set(name, value).unwrap();
        }
        let mut again = Filter::default();
        for (name, value) in filter.pairs() {
            again.set(name, &value).unwrap();
        }
        assert_eq!(again, filter);
    }

    #[test]
    fn usage_and_cut_are_no_conditions() {
        let mut filter = Filter::default();
        for (name, value) in [("fu", "1"), ("lim", "5"), ("ofst", "2"), ("lvl", "1"), ("fo", "2")] {
            filter.set(name, value).unwrap();
        }
        assert!(!filter.has_conditions());
    }
}
