//! Which keys take effect only after a restart, and where a key is in a text.
//!
//! A key is named with its table, as `[cse.tls] https`; a table as `[cse.tls]`.

use crate::tables::{ROOT, Shape, Table};
use crate::view::View;
use gatewright_diagnostic::{SourceId, Span};
use toml::de::DeTable;

/// The keys whose changed values take effect only after a restart, in the order of the tables.
/// Likewise a link shared with the kernel, or a virtual link, is neither added nor removed at run time.
pub fn fixed_keys() -> Vec<String> {
    let mut keys = Vec::new();
    collect(&ROOT, &mut keys);
    keys
}

/// Those of [`fixed_keys`] that a description contains.
pub fn fixed_keys_of(text: &str) -> Vec<String> {
    let (document, _) = DeTable::parse_recoverable(text);
    let root = View::new(document.get_ref(), SourceId::default(), 0..0);
    let mut keys = fixed_keys();
    keys.retain(|key| span(root, key).1);
    keys
}

/// Whether a changed value of a key takes effect only after a restart.
pub fn is_fixed(key: &str) -> bool {
    fixed_keys().iter().any(|known| known == key)
}

/// Position of a key in the text of the source `source`; otherwise of its table, and otherwise the
/// beginning.
pub fn place_of(source: SourceId, text: &str, key: &str) -> Span {
    let (document, _) = DeTable::parse_recoverable(text);
    span(View::new(document.get_ref(), source, 0..0), key).0
}

fn collect(table: &Table, keys: &mut Vec<String>) {
    for key in table.keys {
        if key.fixed {
            keys.push(format!("{} {}", table.name, key.name));
        }
        if let Shape::Table(inner) = key.shape {
            collect(inner, keys);
        }
    }
}

/// Position of a key, and whether the key itself is there.
fn span(root: View<'_>, key: &str) -> (Span, bool) {
    let (header, name) = key.split_once(' ').unwrap_or((key, ""));
    let mut view = root;
    for table in header.trim_matches(['[', ']']).split('.') {
        let Some(inner) = view.table(table) else { return (view.header, false) };
        view = inner;
    }
    match view.key(name) {
        Some(span) => (span, true),
        None => (view.header, name.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CODES, TEMPLATES, codes};

    const TEXT: &str = "[cse]\nbase = \"gw\"\nid = \"/gw\"\nstore = \"a.db\"\n\n\
                        [cse.tls]\nhttps = \"127.0.0.1:1\"\n";

    #[test]
    fn a_key_is_found_where_it_stands_or_should() {
        let at = |key| {
            let span = place_of(SourceId::default(), TEXT, key);
            &TEXT[span.start..span.end]
        };
        assert_eq!(at("[cse] store"), "store");
        assert_eq!(at("[cse.tls] https"), "https");
        assert!(at("[cse] coap").starts_with("[cse]"), "{}", at("[cse] coap"));
        assert!(at("[cse.tls]").starts_with("[cse.tls]"), "{}", at("[cse.tls]"));
        assert_eq!(at("[devices] listen"), "");
        assert_eq!(at("nothing of the kind"), "");
    }

    #[test]
    fn what_is_fixed_is_known_by_its_key() {
        assert_eq!(fixed_keys_of(TEXT), ["[cse] base", "[cse] id", "[cse] store"]);
        assert!(is_fixed("[gateway] workers") && !is_fixed("[cse] http"));
        assert!(CODES.contains(&&codes::NEEDS_RESTART));
        for template in TEMPLATES {
            let known = fixed_keys();
            assert!(fixed_keys_of(template.text).iter().all(|key| known.contains(key)));
        }
    }
}
