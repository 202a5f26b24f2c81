//! Tables and keys of a description as a page, from its JSON Schema.

use serde_json::Value;
use std::fmt::Write;

/// The page: a section for each table, in the order of their names.
pub(crate) fn page(schema: &Value) -> String {
    let mut out = String::new();
    for (name, table) in members(schema) {
        section(&mut out, name, table);
    }
    out
}

/// Members of an object with their names.
fn members(table: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let properties = table["properties"].as_object();
    properties.into_iter().flatten().map(|(name, of)| (name.as_str(), of))
}

/// A table that a key has, with the name that follows the key's: `.NAME` if each is named.
fn table(of: &Value) -> Option<(&Value, &'static str, bool)> {
    if of["properties"].is_object() {
        Some((of, "", false))
    } else if of["additionalProperties"]["properties"].is_object() {
        Some((&of["additionalProperties"], ".NAME", false))
    } else if of["items"]["properties"].is_object() {
        Some((&of["items"], "", true))
    } else {
        None
    }
}

fn section(out: &mut String, path: &str, of: &Value) {
    let Some((inner, suffix, is_list)) = table(of) else { return };
    let path = format!("{path}{suffix}");
    let shown = if is_list { format!("[[{path}]]") } else { format!("[{path}]") };
    let said = |of: &Value| of["description"].as_str().unwrap_or_default().to_owned();
    let (outer, own) = (said(of), said(inner));
    let text = if outer == own || own.is_empty() { outer } else { format!("{outer} {own}") };
    write!(out, "## `{shown}`\n\n{text}\n\n| key | value | meaning |\n|---|---|---|\n").unwrap();
    let required: Vec<&str> =
        inner["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, of) in members(inner) {
        let meaning = cell(&said(of));
        let must = if required.contains(&name) { " **Required.**" } else { "" };
        writeln!(out, "| `{name}` | {} | {meaning}{must} |", cell(&kind(of))).unwrap();
    }
    out.push('\n');
    for (name, of) in members(inner) {
        section(out, &format!("{path}.{name}"), of);
    }
}

/// A text as a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// The values that a key takes.
fn kind(of: &Value) -> String {
    if table(of).is_some() {
        return if of["items"].is_object() { "tables".to_owned() } else { "table".to_owned() };
    }
    if let Some(all) = of["anyOf"].as_array() {
        return all.iter().map(kind).collect::<Vec<_>>().join(", or ");
    }
    if let Some(values) = of["enum"].as_array() {
        let shown: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
        return shown.join(", ");
    }
    match of["type"].as_str().unwrap_or_default() {
        "integer" => match (&of["minimum"], &of["maximum"]) {
            (Value::Null, _) | (_, Value::Null) => "integer".to_owned(),
            (min, max) => format!("{min} to {max}"),
        },
        "array" => format!("list of: {}", kind(&of["items"])),
        "string" => match of["examples"][0].as_str() {
            Some(example) => format!("text, such as `\"{example}\"`"),
            None => "text".to_owned(),
        },
        "boolean" => "`true`, `false`".to_owned(),
        other => other.to_owned(),
    }
}
