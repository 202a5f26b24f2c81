//! What a resource is created from, as it is written on a command line.

use gatewright_command::exit::Failure;
use gatewright_onem2m::ResourceType;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;

/// Octets that are read from standard input.
const OCTETS_MAX: u64 = 16 * 1024 * 1024;
/// Numbers of resource types are looked for up to this one.
const KINDS_MAX: u16 = 66;

/// Every type with the name it has on the command line: its tag, or what its identifiers begin
/// with.
pub(super) fn kinds() -> impl Iterator<Item = (&'static str, ResourceType)> {
    (1..=KINDS_MAX).filter_map(ResourceType::from_number).map(|kind| (name(kind), kind))
}

/// The name of a type.
pub(super) fn name(kind: ResourceType) -> &'static str {
    kind.tag().strip_prefix("m2m:").unwrap_or_else(|| kind.prefix())
}

/// The type of a name or a number.
pub(super) fn kind(text: &str) -> Option<ResourceType> {
    if let Ok(number) = text.parse() {
        return ResourceType::from_number(number);
    }
    kinds().find(|(name, _)| *name == text).map(|(_, kind)| kind)
}

/// The content of a creation: from attributes, from JSON, or from standard input.
pub(super) fn content(kind: ResourceType, attributes: &[String]) -> Result<String, String> {
    let whole = match attributes {
        [one] if one == "-" => {
            let mut text = String::new();
            let read = std::io::stdin().lock().take(OCTETS_MAX).read_to_string(&mut text);
            read.map_err(|error| format!("standard input: {error}"))?;
            Some(text)
        }
        [one] if one.trim_start().starts_with('{') => Some(one.clone()),
        _ => None,
    };
    if let Some(text) = whole {
        // As it was written: a decimal stays what it is.
        serde_json::from_str::<IgnoredAny>(&text).map_err(|error| format!("no JSON: {error}"))?;
        return Ok(text.trim().to_owned());
    }
    if kind.tag().is_empty() {
        return Err(format!("a {} has a tag of its own: give the content as JSON", name(kind)));
    }
    let mut members: BTreeMap<&str, String> = BTreeMap::new();
    for text in attributes {
        let (name, value) = attribute(text)?;
        if members.insert(name, value).is_some() {
            return Err(format!("{name} is given twice"));
        }
    }
    let quote = |text: &str| Value::from(text).to_string();
    let member = |(name, value): (&&str, &String)| format!("{}:{value}", quote(name));
    let members: Vec<String> = members.iter().map(member).collect();
    Ok(format!("{{{}:{{{}}}}}", quote(kind.tag()), members.join(",")))
}

/// The failure; if it is that an attribute which was given as text is to be something else, with how
/// that is written.
pub(super) fn explained(mut failure: Failure, attributes: &[String]) -> Failure {
    let given = attributes.iter().filter_map(|text| text.split_once('='));
    let wrong =
        |name: &str| failure.message.contains(&format!("attribute {name} has the wrong form"));
    let is_json = |value: &str| serde_json::from_str::<IgnoredAny>(value).is_ok();
    let mut found = given.filter(|(name, value)| !name.ends_with(':') && is_json(value));
    let found = found.rfind(|(name, _)| wrong(name));
    if let Some((name, value)) = found {
        let help = format!("; `{name}={value}` is a text, `{name}:={value}` is JSON");
        failure.message.push_str(&help);
    }
    failure
}

/// `NAME=TEXT` or `NAME:=JSON`: the name, and the value as JSON text.
fn attribute(text: &str) -> Result<(&str, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| format!("{text} is neither NAME=TEXT nor NAME:=JSON"))?;
    let Some(name) = name.strip_suffix(':') else {
        return Ok((name, Value::from(value).to_string()));
    };
    serde_json::from_str::<IgnoredAny>(value)
        .map_err(|error| format!("{name}: no JSON: {error}"))?;
    Ok((name, value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_become_content() {
        let words = |words: &[&str]| words.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
        let cases: [(&[&str], Result<&str, &str>); 7] = [
            (&["con=96.50"], Ok(r#"{"m2m:cin":{"con":"96.50"}}"#)),
            (&["con:=96.50"], Ok(r#"{"m2m:cin":{"con":96.50}}"#)),
            (&["con=a=b", "lbl:=[\"x\"]"], Ok(r#"{"m2m:cin":{"con":"a=b","lbl":["x"]}}"#)),
            (&[r#" {"m2m:cin": {"con": 1.0}}"#], Ok(r#"{"m2m:cin": {"con": 1.0}}"#)),
            (&[], Ok(r#"{"m2m:cin":{}}"#)),
            (&["con"], Err("con is neither")),
            (&["con:=x"], Err("con: no JSON")),
        ];
        for (given, expected) in cases {
            match (content(ResourceType::ContentInstance, &words(given)), expected) {
                (Ok(content), Ok(expected)) => assert_eq!(content, expected),
                (Err(why), Err(expected)) => assert!(why.starts_with(expected), "{why}"),
                (other, _) => panic!("{given:?}: {other:?}"),
            }
        }
        let refused =
            "4000 BadRequest: attribute mni has the wrong form: a whole number is expected";
        for (given, expected) in
            [("mni=5", true), ("mni:=5", false), ("lbl=5", false), ("mni=x", false)]
        {
            let failure = Failure::new(gatewright_command::exit::Exit::Negative, refused);
            let said = explained(failure, &words(&[given])).message;
            assert_eq!(said.ends_with("; `mni=5` is a text, `mni:=5` is JSON"), expected, "{said}");
        }
        assert!(content(ResourceType::FlexContainer, &words(&["a=b"])).is_err());
        assert_eq!(kind("cin"), Some(ResourceType::ContentInstance));
        assert_eq!(kind("fcnt"), Some(ResourceType::FlexContainer));
        assert_eq!((kind("4"), kind("nothing")), (Some(ResourceType::ContentInstance), None));
    }
}
