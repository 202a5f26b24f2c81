//! Content queries (TS-0004 §7.3.3.17.13): JSONPath (RFC 9535) over a content that is JSON. A
//! content matches where the query selects something of it.
//!
//! What an evaluation costs is bounded before it begins, by what is seen of the query's text and
//! of the content: the evaluation itself cannot be stopped.

use crate::status::{Refusal, Status};
use core::fmt;
use serde_json::Value;
use serde_json_path::JsonPath;

/// A query on the content of an instance.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ContentQuery {
    text: String,
    path: JsonPath,
    shape: Shape,
}

impl ContentQuery {
    /// Reads a query.
    ///
    /// # Errors
    ///
    /// 4000 if it is none, is too long or nests too deep; 5001 if it calls a function that takes
    /// a regular expression.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        if text.len() > OCTETS_MAX {
            return Err(Refusal::bad(format!("cfq has {OCTETS_MAX} octets at most")));
        }
        let shape = Shape::of(text);
        if shape.depth > DEPTH_MAX || shape.filters > FILTERS_MAX {
            return Err(Refusal::bad(format!(
                "cfq has {FILTERS_MAX} filters at most, and brackets {DEPTH_MAX} deep"
            )));
        }
        if shape.has_expression {
            return Err(Refusal::new(
                Status::NotImplemented,
                "the functions match and search of JSONPath are not offered",
            ));
        }
        let path = JsonPath::parse(text)
            .map_err(|error| Refusal::bad(format!("cfq is no JSONPath: {error}")))?;
        Ok(Self { text: text.to_owned(), path, shape })
    }

    /// Whether it selects something of `content`.
    pub fn holds(&self, content: &Value) -> bool {
        !self.path.query(content).is_empty()
    }

    /// Steps that an evaluation takes at most.
    ///
    /// A node is below as many others as the content is deep, so each descent, and each filter
    /// whose own queries begin at the nodes that it tries, multiplies by that; each further
    /// selector of a list may select the same once more; each query in a filter that begins at
    /// the root goes over all of it for each node that is tried.
    pub fn cost(&self, content: &Value) -> u64 {
        let (size, height) = measure(content);
        let shape = &self.shape;
        size.saturating_mul(height.saturating_pow(shape.descents + shape.filters))
            .saturating_mul(2_u64.saturating_pow(shape.commas))
            .saturating_mul(size.saturating_pow(shape.roots.saturating_sub(1)))
            .saturating_mul(u64::from(shape.operators) + 1)
    }
}

impl fmt::Display for ContentQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Counts over a query's text, without quoted names and texts.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Shape {
    depth: u32,
    filters: u32,
    descents: u32,
    commas: u32,
    roots: u32,
    operators: u32,
    has_expression: bool,
}

impl Shape {
    fn of(text: &str) -> Self {
        let mut shape = Self::default();
        let mut open = 0_u32;
        let mut rest = text.char_indices();
        let mut before = ' ';
        while let Some((at, character)) = rest.next() {
            match character {
                '\'' | '"' => skip_quoted(&mut rest, character),
                '[' | '(' => {
                    open += 1;
                    shape.depth = shape.depth.max(open);
                    let name = text.get(..at).unwrap_or_default();
                    shape.has_expression |= character == '('
                        && ["match", "search"].iter().any(|function| name.ends_with(function));
                }
                ']' | ')' => open = open.saturating_sub(1),
                '?' => shape.filters += 1,
                '.' if before == '.' => shape.descents += 1,
                ',' => shape.commas += 1,
                '$' => shape.roots += 1,
                '&' | '|' | '=' | '<' | '>' | '!' => shape.operators += 1,
                _ => {}
            }
            before = character;
        }
        shape
    }
}

/// Goes on behind the closing quote.
fn skip_quoted(rest: &mut core::str::CharIndices<'_>, quote: char) {
    while let Some((_, character)) = rest.next() {
        match character {
            '\\' => {
                rest.next();
            }
            _ if character == quote => return,
            _ => {}
        }
    }
}

/// Nodes, long texts counted by their length, and levels.
fn measure(value: &Value) -> (u64, u64) {
    let mut size = 1;
    let mut height = 0;
    let mut add = |child: &Value| {
        let (below, levels) = measure(child);
        size += below;
        height = height.max(levels);
    };
    match value {
        Value::Array(list) => list.iter().for_each(&mut add),
        Value::Object(members) => members.values().for_each(&mut add),
        Value::String(text) => size += u64::try_from(text.len() / TEXT_STEP).unwrap_or(u64::MAX),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    (size, height + 1)
}

/// Octets of a query.
const OCTETS_MAX: usize = 1_024;
/// Brackets and parentheses within each other.
const DEPTH_MAX: u32 = 16;
/// Filter selectors of a query: what is nested is read twice a level.
const FILTERS_MAX: u32 = 4;
/// Octets of text that cost what a node costs.
const TEXT_STEP: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn holds(query: &str, content: &Value) -> bool {
        ContentQuery::parse(query).unwrap().holds(content)
    }

    /// Figure 1 of RFC 9535 §1.5, and the queries of its table 2 and of §2.3.5.3.
    #[test]
    fn queries_of_rfc_9535() {
        let store = json!({ "store": {
            "book": [
                { "category": "reference", "author": "Nigel Rees",
                  "title": "Sayings of the Century", "price": 8.95 },
                { "category": "fiction", "author": "Evelyn Waugh",
                  "title": "Sword of Honour", "price": 12.99 },
                { "category": "fiction", "author": "Herman Melville",
                  "title": "Moby Dick", "isbn": "0-553-21311-3", "price": 8.99 },
                { "category": "fiction", "author": "J. R. R. Tolkien",
                  "title": "The Lord of the Rings", "isbn": "0-395-19395-8", "price": 22.99 }
            ],
            "bicycle": { "color": "red", "price": 399 }
        } });
        for query in [
            "$",
            "$.store.book[*].author",
            "$..author",
            "$.store.*",
            "$.store..price",
            "$..book[2]",
            "$..book[-1]",
            "$..book[:2]",
            "$..book[?@.isbn]",
            "$..book[?@.price<10]",
            "$..*",
            "$.store[?@.price == 399]",
            "$['store']['bicycle']['color']",
            "$.store.book[?length(@.author) == 10]",
            "$[?count(@.book[*]) == 4]",
            "$.store.book[?@.price > 20 && @.isbn]",
            "$.store[?@.color == 'red' || @.color == \"blue\"]",
            "$.store.book[?@.price < $.store.bicycle.price]",
        ] {
            assert!(holds(query, &store), "{query}");
        }
        for query in [
            "$..book[2].publisher",
            "$.author",
            "$.store.book[4]",
            "$..book[?@.price>30]",
            "$.store[?@.color == 'green']",
            "$.store.book[?!@.title]",
        ] {
            assert!(!holds(query, &store), "{query}");
        }
    }

    #[test]
    fn what_is_no_query_is_refused() {
        let status = |query: &str| ContentQuery::parse(query).map_err(|refusal| refusal.status);
        let (long, deep) = (format!("$.{}", "a".repeat(OCTETS_MAX)), "[".repeat(20));
        let nested = format!("$[?{}@.a{}]", "(".repeat(200), ")".repeat(200));
        let filters = "$[?@[?@[?@[?@[?@.a]]]]]";
        for wrong in
            ["", "a", "$.", "$[", "$.a eq 3", "$[?@.a=1]", "$..", &long, &deep, &nested, filters]
        {
            assert_eq!(status(wrong), Err(Status::BadRequest), "{wrong}");
        }
        for function in ["$[?match(@.a, 'x')]", "$[?search(@, 'x')]"] {
            assert_eq!(status(function), Err(Status::NotImplemented), "{function}");
        }
        assert!(status("$['match(']").is_ok(), "a name is no function");
    }

    /// Queries that grow with each step are seen before they are asked.
    #[test]
    fn a_hostile_query_costs_more_than_it_may() {
        let wide = Value::Array((0..2_000).map(|number| json!({ "a": [number] })).collect());
        let cost = |query: &str| ContentQuery::parse(query).unwrap().cost(&wide);
        assert!(cost("$[?@.a[0] > 1999]") < 1_000_000);
        assert!(cost("$..a") < 1_000_000);
        for query in [
            "$[?count($..*) > 1]",
            "$[*,*,*,*,*,*,*,*,*][*,*,*,*]",
            "$..*..*..*..*..*..*..*",
            "$[?@.a[?@ == $[-1].a[0] || count($..*) > 0]]",
        ] {
            assert!(cost(query) > 1_000_000, "{query}");
        }
    }

    fn any_content() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-3_i64..4).prop_map(Value::from),
            "[ab]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[ab]", inner, 0..3)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn any_query() -> impl Strategy<Value = String> {
        let selector = prop::sample::select(vec![
            "*",
            "'a'",
            "0",
            "-1",
            ":2",
            "*,*",
            "?@.a",
            "?@ == 1",
            "?@.b > 0 || !@.a",
            "?count(@.*) > 1",
        ]);
        let segment = (any::<bool>(), selector)
            .prop_map(|(down, it)| format!("{}[{it}]", if down { ".." } else { "" }));
        prop::collection::vec(segment, 0..5).prop_map(|segments| format!("${}", segments.concat()))
    }

    proptest! {
        /// What is selected has no more entries than the cost that was told before.
        #[test]
        fn the_cost_bounds_what_is_selected(content in any_content(), text in any_query()) {
            if let Ok(query) = ContentQuery::parse(&text) {
                let selected = query.path.query(&content).len();
                prop_assert!(u64::try_from(selected).unwrap() <= query.cost(&content));
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[$@.*?,:0-9a\\[\\]()'\"=<>!&| ]{0,40}") {
            if let Ok(query) = ContentQuery::parse(&text) {
                prop_assert_eq!(query.to_string(), text);
            }
        }
    }
}
