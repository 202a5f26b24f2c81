//! The JSON Schema of a description, for editors.

use crate::form;
use crate::shape::text_of;
use crate::tables::{Form, Key, ROOT, RUNNING, Shape, Table};
use crate::values::{self, DEVICE_KINDS};
use serde_json::{Map, Value, json};

/// The JSON Schema (draft 2020-12) of a description. It is made from the same tables as the checks,
/// so both agree. It covers single values, not rules between them.
pub fn schema() -> Value {
    let mut schema = table(&ROOT);
    if let Value::Object(root) = &mut schema {
        root.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
        root.insert("title".into(), json!("Gatewright gateway description"));
        let one_of = RUNNING.map(|key| json!({ "required": [key] }));
        root.insert("anyOf".into(), json!(one_of));
    }
    schema
}

fn table(table: &Table) -> Value {
    let properties: Map<String, Value> = (table.keys.iter())
        .map(|key| {
            let mut value = shape(key);
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

fn shape(key: &Key) -> Value {
    match key.shape {
        Shape::Text(form) => text(form, text_of(key, form)),
        Shape::Flag => json!({ "type": "boolean" }),
        Shape::Number(min, max) => number(min, max),
        Shape::Choice(words) => json!({ "type": "string", "enum": words }),
        Shape::ChoiceOrNumber(words, min, max) => {
            json!({ "anyOf": [{ "type": "string", "enum": words }, number(min, max)] })
        }
        Shape::List(form, max) => {
            json!({ "type": "array", "items": text(form, text_of(key, form)), "maxItems": max })
        }
        Shape::Table(inner) => table(inner),
        Shape::Many(inner, max) => {
            json!({ "type": "array", "items": table(inner), "maxItems": max })
        }
        // A table of tables that is there has one at least.
        Shape::Named(inner, max) => json!({
            "type": "object",
            "minProperties": 1,
            "propertyNames": text(Form::Name, form::example(Form::Name)),
            "additionalProperties": table(inner),
            "maxProperties": max,
        }),
    }
}

fn number(min: i64, max: i64) -> Value {
    json!({ "type": "integer", "minimum": min, "maximum": max })
}

fn text(form: Form, example: &str) -> Value {
    let mut value = json!({ "type": "string", "examples": [example] });
    if let Value::Object(value) = &mut value {
        if form == Form::DeviceKind {
            value.insert("enum".into(), json!(DEVICE_KINDS));
        } else {
            value.insert("pattern".into(), json!(format!("^({})$", pattern(form))));
        }
        if matches!(form, Form::Place) {
            value.insert("maxLength".into(), json!(form::PLACE_LEN_MAX));
        }
    }
    value
}

/// A name in a description.
const NAME: &str = "[A-Za-z0-9][A-Za-z0-9_-]{0,31}";
/// An octet in digits.
const OCTET: &str = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
/// An IPv6 address, roughly: a pattern for all of its forms is longer than this file.
const IPV6: &str = "(?=[0-9A-Fa-f:]*::|([0-9A-Fa-f]{1,4}:){6})[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*";
/// A number of 16 bits in digits.
const WORD: &str = "0*(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5]?[0-9]{1,4})";
/// The same without 0.
const PORT_NUMBER: &str =
    "(?!0+$)0*(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5]?[0-9]{1,4})";
/// Patterns of AE-IDs.
const AE_IDS: &str = "[CS][A-Za-z0-9._~*-]{0,254}";
/// Before a path: not a credential whose name is that of no file.
const NO_BAD_CREDENTIAL: &str = "(?!credential:([.]{0,2}$|[^/]*/))";
/// A name in a gateway program.
const WORD_NAME: &str = "[A-Za-z_][A-Za-z0-9_]*";

/// The pattern of a form, as exact as a pattern can be: a network's host part, the order of two
/// ports and the colons of an IPv6 address are left to the checks.
fn pattern(form: Form) -> String {
    let ipv4 = || format!("{OCTET}([.]{OCTET}){{3}}");
    let socket = || format!("({}|\\[{IPV6}(%[0-9]+)?\\]):{PORT_NUMBER}", ipv4());
    let network =
        || format!("{}/(3[0-2]|[12]?[0-9])|{IPV6}/(12[0-8]|1[01][0-9]|[1-9]?[0-9])", ipv4());
    match form {
        Form::Any(_) => "[^\\u0000]+".to_owned(),
        Form::File(_) => format!("{NO_BAD_CREDENTIAL}[^\\u0000]+"),
        Form::Name => NAME.to_owned(),
        Form::Interface => "(?![.]{1,2}$)[^/:\\s\\u0000]{1,15}".to_owned(),
        Form::Address => format!("{}|{IPV6}", ipv4()),
        Form::AddressOfNetwork | Form::Network => network(),
        Form::Destination => format!("default|{}", network()),
        // Not of a group, and not zero.
        Form::DpdkPort => {
            const ADDRESS: &str = "[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}[.][0-7]";
            format!(
                "(?=.{{1,128}}$)(net_[a-z_]{{1,32}}[0-9]{{1,3}}|{ADDRESS})(,[a-z0-9_-]+=[A-Za-z0-9_.:/-]+)*"
            )
        }
        Form::Mac => "(?!00(:00){5}$)[0-9A-Fa-f][02468ACEace](:[0-9A-Fa-f]{2}){5}".to_owned(),
        Form::Position => position(),
        Form::Socket => socket(),
        Form::Listen => format!("unix:[^\\u0000]+|{}", socket()),
        Form::Protocol => number_or(&protocol_names(), OCTET_NUMBER),
        Form::Program => "[^\\u0000]+[.]gate".to_owned(),
        Form::CseId => format!("/{NAME}"),
        Form::AeIds => AE_IDS.to_owned(),
        Form::AeIdsOfCse => format!("/{NAME}/{AE_IDS}"),
        Form::CseBeyond => format!("(?!/([^/]+)/\\2$)/{NAME}/{NAME}"),
        Form::Place => format!("/{NAME}(/[A-Za-z0-9._~-]+)+"),
        Form::Url => "(https?|coap|wss?|mqtts?)://[^/?#\\s]+".to_owned(),
        Form::Broker => "mqtts?://[^/?#\\s]+".to_owned(),
        Form::SystemId => "[0-9A-Fa-f]{16}".to_owned(),
        Form::DeviceKind => DEVICE_KINDS.join("|"),
        Form::Field | Form::Setting(_) => format!("{WORD_NAME}=[\\s\\S]*"),
        Form::FileSetting(_) => format!("{WORD_NAME}={NO_BAD_CREDENTIAL}[\\s\\S]*"),
        Form::Role => WORD_NAME.to_owned(),
        Form::RoleAddress => format!("{WORD_NAME}=[\\s\\S]+:{WORD}"),
        Form::Ports => format!("{WORD}(-{WORD})?"),
    }
}

/// Numbers of 8 and of 16 bits, and labels, as positions have them, in digits or in hexadecimal ones.
const OCTET_NUMBER: &str = "0*(25[0-5]|2[0-4][0-9]|1?[0-9]{1,2})|0x0*[0-9A-Fa-f]{1,2}";
const WORD_NUMBER: &str = "0*(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5]?[0-9]{1,4})|0x0*[0-9A-Fa-f]{1,4}";
const PORT_OR_HEX: &str = "(?!0+$|0x0+$)(0*(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5]?[0-9]{1,4})|0x0*[0-9A-Fa-f]{1,4})";
const LABEL_NUMBER: &str = "0*(104857[0-5]|10485[0-6][0-9]|1048[0-4][0-9]{2}|104[0-7][0-9]{3}|10[0-3][0-9]{4}|[0-9]{1,6})|0x0*[0-9A-Fa-f]{1,5}";

/// The names of positions that begin so, without the beginning.
fn protocol_names() -> Vec<String> {
    values::protocol_names().map(str::to_owned).collect()
}

fn names(kind: &str) -> Vec<String> {
    let names = values::position_names();
    names.iter().filter_map(|name| name.strip_prefix(kind).map(str::to_owned)).collect()
}

fn number_or(names: &[String], number: &str) -> String {
    names.iter().map(String::as_str).chain([number]).collect::<Vec<_>>().join("|")
}

fn position() -> String {
    let numbered = |kind: &str, number: &str| {
        format!("{kind}:({})", number_or(&names(&format!("{kind}:")), number))
    };
    let kinds = [
        "frame".to_owned(),
        numbered("ether", WORD_NUMBER),
        numbered("ip", OCTET_NUMBER),
        format!("(icmp|icmpv6|dispatch):({OCTET_NUMBER})"),
        format!("(udp|tcp):{PORT_OR_HEX}"),
        format!("label:({LABEL_NUMBER})"),
        "gateway:[A-Za-z0-9_.+]+/([A-Za-z0-9_.+]+|[*])".to_owned(),
    ];
    kinds.join("|")
}
