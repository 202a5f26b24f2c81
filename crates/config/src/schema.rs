//! The JSON Schema of a description, for editors.

use crate::form;
use crate::tables::{Form, ROOT, Shape, Table};
use serde_json::{Map, Value, json};

/// The JSON Schema (draft 2020-12) of a description. It is made from the same tables as the checks,
/// so both agree. It covers single values, not rules between them.
pub fn schema() -> Value {
    let mut schema = table(&ROOT);
    if let Value::Object(root) = &mut schema {
        root.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
        root.insert("title".into(), json!("Gatewright gateway description"));
        let one_of = ["link", "devices", "cse"].map(|key| json!({ "required": [key] }));
        root.insert("anyOf".into(), json!(one_of));
    }
    schema
}

fn table(table: &Table) -> Value {
    let keys = table.keys.iter().filter(|key| !matches!(key.shape, Shape::NotYet));
    let properties: Map<String, Value> = keys
        .map(|key| {
            let mut value = shape(key.shape);
            if let Value::Object(value) = &mut value {
                let restart = if key.fixed { " Another value needs a restart." } else { "" };
                value.insert("description".into(), json!(format!("{}{restart}", key.doc)));
            }
            (key.name.to_owned(), value)
        })
        .collect();
    let required: Vec<&str> =
        table.keys.iter().filter(|key| key.required).map(|key| key.name).collect();
    json!({
        "type": "object",
        "description": table.doc,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn shape(shape: Shape) -> Value {
    match shape {
        Shape::Text(form) => text(form),
        Shape::Flag => json!({ "type": "boolean" }),
        Shape::Number(min, max) => number(min, max),
        Shape::Choice(words) => json!({ "type": "string", "enum": words }),
        Shape::ChoiceOrNumber(words, min, max) => {
            json!({ "anyOf": [{ "type": "string", "enum": words }, number(min, max)] })
        }
        Shape::List(form, max) => json!({ "type": "array", "items": text(form), "maxItems": max }),
        Shape::Table(inner) => table(inner),
        Shape::Many(inner, max) => {
            json!({ "type": "array", "items": table(inner), "maxItems": max })
        }
        Shape::Named(inner, max) => json!({
            "type": "object",
            "propertyNames": text(Form::Name),
            "additionalProperties": table(inner),
            "maxProperties": max,
        }),
        Shape::NotYet => json!(false),
    }
}

fn number(min: i64, max: i64) -> Value {
    json!({ "type": "integer", "minimum": min, "maximum": max })
}

fn text(form: Form) -> Value {
    let mut value = json!({ "type": "string", "examples": [form::example(form)] });
    let pattern = match form {
        Form::Name => "^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$",
        Form::Interface => "^[^/:\\s]{1,15}$",
        Form::Mac => "^([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}$",
        Form::Position => {
            "^(frame|(ether|ip|udp|tcp|label|dispatch):[0-9a-z]+|gateway:[A-Za-z0-9_.+]+/([A-Za-z0-9_.+]+|\\*))$"
        }
        Form::Program => "^.+\\.gate$",
        Form::CseId => "^/[A-Za-z0-9][A-Za-z0-9_-]{0,31}$",
        Form::AeIds => "^[CS][A-Za-z0-9._~*-]{0,254}$",
        Form::AeIdsOfCse => "^/[A-Za-z0-9][A-Za-z0-9_-]{0,31}/[CS][A-Za-z0-9._~*-]{0,254}$",
        Form::CseBeyond => "^(/[A-Za-z0-9][A-Za-z0-9_-]{0,31}){2}$",
        Form::Place => "^/[A-Za-z0-9][A-Za-z0-9_-]{0,31}(/[A-Za-z0-9._~-]+)+$",
        Form::Url => "^(https?|coap|wss?|mqtts?)://[^/?#\\s]+$",
        Form::Broker => "^mqtts?://[^/?#\\s]+$",
        Form::SystemId => "^[0-9A-Fa-f]{16}$",
        Form::DeviceKind => "^[a-z][a-z-]*$",
        Form::Field | Form::Setting => "^[A-Za-z_][A-Za-z0-9_]*=.*$",
        Form::Role => "^[A-Za-z_][A-Za-z0-9_]*$",
        Form::RoleAddress => "^[A-Za-z_][A-Za-z0-9_]*=.+:[0-9]+$",
        _ => "^.+$",
    };
    if let Value::Object(value) = &mut value {
        value.insert("pattern".into(), json!(pattern));
    }
    value
}
