//! The formatter's laws, over every text that the grammar allows.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_diagnostic::SourceId;
use gatewright_lang::format;
use std::path::{Path, PathBuf};

fn texts() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [
        "tests/cases/accept",
        "tests/cases/import",
        "tests/cases/reject",
        "../../examples/gateways",
    ];
    let mut texts = Vec::new();
    for folder in folders {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "gate") {
                let text = std::fs::read_to_string(&path).unwrap();
                texts.push((path, text));
            }
        }
    }
    texts
}

fn formatted(text: &str) -> Option<String> {
    format(SourceId::default(), text).ok()
}

/// A text without its spaces: what must not change.
fn without_spaces(text: &str) -> String {
    text.split_whitespace().collect()
}

#[test]
fn formatting_twice_is_formatting_once() {
    let mut count = 0;
    for (path, text) in texts() {
        let Some(once) = formatted(&text) else { continue };
        assert_eq!(formatted(&once).as_ref(), Some(&once), "{}", path.display());
        count += 1;
    }
    assert!(count > 100, "only {count} texts");
}

#[test]
fn only_spaces_change_and_no_comment_is_lost() {
    for (path, text) in texts() {
        let Some(once) = formatted(&text) else { continue };
        assert_eq!(without_spaces(&once), without_spaces(&text), "{}", path.display());
    }
}

/// What is wrong with the layout does not matter: the same text comes out of a squeezed one.
#[test]
fn indentation_does_not_matter() {
    for (path, text) in texts() {
        // A drawing's columns are its meaning.
        if text.contains("\"\"\"") {
            continue;
        }
        let Some(once) = formatted(&text) else { continue };
        let flat: String = once.lines().map(|line| line.trim_start().to_owned() + "\n").collect();
        assert_eq!(formatted(&flat), Some(once), "{}", path.display());
    }
}

#[test]
fn the_examples_are_formatted() {
    for (path, text) in texts() {
        if !path.components().any(|part| part.as_os_str() == "examples") {
            continue;
        }
        let once = formatted(&text).unwrap();
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            std::fs::write(&path, &once).unwrap();
        } else {
            assert_eq!(once, text, "{}", path.display());
        }
    }
}

#[test]
fn a_text_that_cannot_be_read_is_left_alone() {
    assert!(format(SourceId::default(), "message m {").is_err());
}

#[test]
fn columns_of_arrows_and_comments() {
    let text = "message m{// the message\nview v={\na:u8   // one\n\n\nbcd:u16// two\n}\n}\n\
                protocol p=udp,async unicast{\nrequest v{when a is 1->ignore\nwhen a is 20->x\n\
                otherwise->close}\n}\n";
    let wanted = "message m {  // the message\n    view v = {\n        a: u8  // one\n\n        \
                  bcd: u16  // two\n    }\n}\nprotocol p = udp, async unicast {\n    request v { \
                  when a is 1 -> ignore\n        when a is 20 -> x\n        otherwise    -> close \
                  }\n}\n";
    assert_eq!(formatted(text).unwrap(), wanted);
}

/// A sign touches its number where it did; a subtraction has spaces, and may go on with a line.
#[test]
fn a_sign_touches_what_it_is_of() {
    let text = "message m{constant A=-1;view v={a:i8=-5;when b is -1 or -4..-2{c:u8}}}\ngateway g{\n\
                on h(r){\nlet n=a-1-(-b)*-2\nlet o=n\n-   1\nreturn m.v(-n,b:-1,when n{\n-1->-5\n\
                -2..-1->-n\notherwise->n-1})}}\n";
    let wanted = "message m { constant A = -1; view v = { a: i8 = -5; when b is -1 or -4..-2 { c: u8 } } }\n\
                  gateway g {\n    on h(r) {\n        let n = a - 1 - (-b) * -2\n        let o = n\n\
                  \x20           - 1\n        return m.v(-n, b: -1, when n {\n\
                  \x20               -1        -> -5\n                -2..-1    -> -n\n\
                  \x20               otherwise -> n - 1 }) } }\n";
    assert_eq!(formatted(text).unwrap(), wanted);
}
