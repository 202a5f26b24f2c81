//! Laws over descriptions that nobody wrote, and over those that we ship.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_config::{Device, Mode, TEMPLATES, TEXT_LEN_MAX, codes, parse, schema};
use gatewright_diagnostic::{SourceId, Sources};
use proptest::prelude::*;
use serde_json::Value;
use std::path::Path;

/// A broken text is told, never a panic, and every finding can be drawn.
fn total(text: &str) -> bool {
    let parsed = parse(SourceId::default(), text);
    let sources = Sources::of("gateway.toml", text);
    for finding in &parsed.diagnostics {
        assert!(finding.primary.span.end <= text.len(), "{finding:?}");
        // The words may differ: ASCII control characters of the text are not drawn as they are.
        let picture = finding.render(&sources, false);
        assert!(picture.contains(&finding.code.to_string()), "{picture}");
        assert!(!picture.contains(|c: char| c.is_ascii_control() && c != '\n'), "{picture:?}");
    }
    parsed.config.is_some() || !parsed.diagnostics.is_empty()
}

fn templates() -> impl Strategy<Value = &'static str> {
    (0..TEMPLATES.len()).prop_map(|index| TEMPLATES[index].text)
}

proptest! {
    #[test]
    fn any_text_is_judged(text in ".{0,200}") {
        prop_assert!(total(&text));
    }

    #[test]
    fn any_cut_of_a_template_is_judged(text in templates(), at in 0_usize..4000) {
        prop_assert!(total(&text[..text.floor_char_boundary(at.min(text.len()))]));
    }

    #[test]
    fn any_changed_character_is_judged(text in templates(), at in 0_usize..4000, c in any::<char>()) {
        let mut text = text.to_owned();
        let at = text.floor_char_boundary(at.min(text.len() - 1));
        text.remove(at);
        text.insert(at, c);
        prop_assert!(total(&text));
    }

    #[test]
    fn any_lines_in_any_order_are_judged(
        mut lines in Just(TEMPLATES.iter().flat_map(|t| t.text.lines()).collect::<Vec<_>>()).prop_shuffle(),
        count in 0_usize..40,
    ) {
        lines.truncate(count);
        prop_assert!(total(&lines.join("\n")));
    }
}

#[test]
fn the_fuzz_corpus_is_judged() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/config");
    let files: Vec<_> =
        std::fs::read_dir(corpus).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(files.len() >= 5, "{files:?}");
    for file in files {
        let octets = std::fs::read(&file).unwrap();
        assert!(total(&String::from_utf8_lossy(&octets)), "{}", file.display());
    }
}

#[test]
fn every_template_passes() {
    for template in TEMPLATES {
        let parsed = parse(SourceId::default(), template.text);
        let sources = Sources::of(template.name, template.text);
        let told: Vec<_> = parsed.diagnostics.iter().map(|d| d.render(&sources, false)).collect();
        assert!(told.is_empty(), "{}", told.join("\n"));
        assert!(parsed.config.is_some() && template.text.starts_with("# "), "{}", template.name);
    }
}

#[test]
fn the_gateway_template_means_what_it_says() {
    let template = TEMPLATES.iter().find(|template| template.name == "gateway").unwrap();
    let config = parse(SourceId::default(), template.text).config.unwrap();
    assert_eq!(config.name, "gateway");
    let [lan, wan] = config.links.as_slice() else { panic!("{:?}", config.links) };
    let Device::Interface { name, mode: Mode::Auto } = &lan.device else { panic!("{lan:?}") };
    assert_eq!((lan.name.as_str(), name.as_str(), lan.exclusive), ("lan", "eth1", true));
    assert_eq!(wan.addresses[1].to_string(), "2001:db8:2::2/64");
    let routes: Vec<_> = (config.routes.iter())
        .map(|route| (route.to.to_string(), route.link.as_ref().unwrap().value.clone()))
        .collect();
    assert_eq!(routes, [("0.0.0.0/0".into(), "wan".into()), ("::/0".into(), "wan".to_owned())]);
}

/// A link that gets its address at run time may have any neighbour, if the route names it.
#[test]
fn a_neighbour_on_a_dynamic_link_is_believed() {
    let text = "[link.wan]\ndhcp = true\nautoconfigure = true\n\
                [[route]]\nto = \"203.0.113.0/24\"\nvia = \"198.51.100.1\"\nlink = \"wan\"\n";
    let config = parse(SourceId::default(), text).config.unwrap();
    assert!(config.links[0].dhcp && config.links[0].autoconfigure);
    assert_eq!(config.routes[0].link.as_ref().unwrap().value, "wan");
}

/// As many routes as a text has room for are taken, and judged as few are.
#[test]
fn a_description_may_have_very_many_routes() {
    const COUNT: usize = 16_000;
    let route =
        |net: &str, via: u8| format!("[[route]]\nto = \"{net}/24\"\nvia = \"192.0.2.{via}\"\n");
    let routes = (0..COUNT).map(|at| route(&format!("10.{}.{}.0", at / 256, at % 256), 9));
    let link = "[link.lan]\naddresses = [\"192.0.2.1/24\"]\n".to_owned();
    let text: String = std::iter::once(link).chain(routes).collect();
    let config = parse(SourceId::default(), &text).config.unwrap();
    let last = config.routes.last().unwrap();
    assert_eq!((config.routes.len(), last.to.to_string()), (COUNT, "10.62.127.0/24".to_owned()));
    assert_eq!(last.link.as_ref().unwrap().value, "lan");
    let text = text + &route("10.0.7.0", 9);
    let told = parse(SourceId::default(), &text).diagnostics;
    assert_eq!((told.len(), told[0].code), (1, &codes::ROUTE_TWICE));
}

#[test]
fn a_text_beyond_the_bound_is_refused_unread() {
    let text = "# x\n".repeat(TEXT_LEN_MAX / 4 + 1);
    let parsed = parse(SourceId::default(), &text);
    assert_eq!(parsed.diagnostics[0].code.number, 115);
    assert!(parsed.config.is_none());
}

/// Every key of every template is in the schema: an editor marks none of them.
#[test]
fn the_schema_knows_the_templates() {
    let schema = schema();
    for template in TEMPLATES {
        let table: toml::Value = toml::from_str(template.text).unwrap();
        covers(&schema, &serde_json::to_value(table).unwrap(), template.name);
    }
}

fn covers(schema: &Value, value: &Value, path: &str) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let properties = schema["properties"].get(key);
                let inner = properties.unwrap_or(&schema["additionalProperties"]);
                assert!(inner.is_object(), "{path}.{key} is not in the schema");
                covers(inner, value, &format!("{path}.{key}"));
            }
        }
        Value::Array(items) => items.iter().for_each(|item| covers(&schema["items"], item, path)),
        Value::String(_) => {
            assert!(schema["type"] == "string" || schema["anyOf"].is_array(), "{path}");
        }
        Value::Number(_) => {
            assert!(schema["type"] == "integer" || schema["anyOf"].is_array(), "{path}");
        }
        _ => assert_eq!(schema["type"], "boolean", "{path}"),
    }
}

/// systemd.exec(5), `LoadCredential=`: each credential is a file in `$CREDENTIALS_DIRECTORY`.
#[test]
fn a_credential_is_a_file_that_the_service_manager_has_put_there() {
    let text = "[cse]\nbase = \"b\"\nid = \"/i\"\nstore = \"cse.db\"\n[cse.tls]\nhttps = \"127.0.0.1:8443\"\n\
                certificate = \"cse.pem\"\nkey = \"credential:cse.key\"\nauthorities = \"/etc/ca.pem\"\n\
                [[program]]\nfile = \"mail.gate\"\nset_file = [\"password=credential:mail\"]\n";
    let parsed = parse(SourceId::default(), text);
    let config = parsed.config.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics));
    let files = |credentials: Option<&str>| {
        let (folder, credentials) = (Path::new("/etc/gw"), credentials.map(Path::new));
        let config = config.clone().with_files_in(folder, credentials);
        let cse = config.cse.unwrap();
        let tls = cse.tls.unwrap();
        let password = config.programs[0].set_file[0].1.clone();
        [cse.store.unwrap(), tls.certificate, tls.authorities, tls.key, password]
    };
    let paths = ["/etc/gw/cse.db", "/etc/gw/cse.pem", "/etc/ca.pem"];
    let handed_over = files(Some("/run/credentials/gw"));
    assert_eq!(handed_over[..3], paths);
    assert_eq!(handed_over[3..], ["/run/credentials/gw/cse.key", "/run/credentials/gw/mail"]);
    let beside = files(None);
    assert_eq!(beside[..3], paths);
    assert_eq!(beside[3..], ["/etc/gw/credentials/cse.key", "/etc/gw/credentials/mail"]);
}
