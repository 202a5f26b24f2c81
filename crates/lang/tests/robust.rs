//! No text makes the compiler panic or take long.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_diagnostic::{SourceId, Sources};
use gatewright_lang::{compile, listing};
use proptest::prelude::*;
use std::path::Path;

/// Compiles, and renders what was found: places must lie within the text.
fn run(text: &str) {
    let mut sources = Sources::of("text.gate", text);
    let compiled = compile(&mut sources, SourceId::default(), |_, import| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/import");
        Some((import.to_owned(), std::fs::read_to_string(folder.join(import)).ok()?))
    });
    for found in compiled.diagnostics.iter().take(20) {
        found.render(&sources, false);
    }
    if let Some(program) = &compiled.program {
        listing(program);
    }
}

fn corpus() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["tests/cases/accept", "tests/cases/reject", "../../examples/gateways"];
    let mut texts = Vec::new();
    for folder in folders {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "gate") {
                texts.push(std::fs::read_to_string(path).unwrap());
            }
        }
    }
    texts.sort();
    texts
}

#[test]
fn a_text_that_is_cut_anywhere_is_answered() {
    for text in corpus().iter().filter(|text| text.len() < 700) {
        for cut in (0..text.len()).step_by(3).filter(|cut| text.is_char_boundary(*cut)) {
            run(&text[..cut]);
        }
    }
}

#[test]
fn deep_nesting_is_answered() {
    for unit in ["(", "{", "let a = (", "not ", "if x is 1 { ", "\"{\"{", "- "] {
        run(&format!("gateway g {{ on a(b) {{ {}", unit.repeat(3_000)));
        run(&format!("message m {{ view v = {}", unit.repeat(3_000)));
    }
}

/// The codes of the errors that a program with `statement` has, compiled on a stack of `kib` KiB.
fn codes_on_a_stack(kib: usize, statement: &str) -> Vec<u16> {
    let text = format!(
        "use \"ask.gate\"\ngateway g {{ role r = ask server at \"127.0.0.1:1\"\n\
         on ask(request) {{ {statement}\nreturn answer(200, \"x\") }} }}"
    );
    let compiling = move || {
        let mut sources = Sources::of("text.gate", text);
        let compiled = compile(&mut sources, SourceId::default(), |_, import| {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/import");
            Some((import.to_owned(), std::fs::read_to_string(folder.join(import)).ok()?))
        });
        compiled.diagnostics.iter().map(|found| found.code.number).collect()
    };
    std::thread::Builder::new().stack_size(kib << 10).spawn(compiling).unwrap().join().unwrap()
}

/// A chain of operators is a tree as deep as it is long.
#[test]
fn a_long_chain_is_refused_and_a_short_one_is_not() {
    let asked = "request.verb = \"A\"";
    let chains = [
        ("let a = ", "1", " + ", ""),
        ("let a = ", "1", " * ", ""),
        ("let a = ", "request.verb", " after \"A\"", ""),
        ("if ", asked, &format!(" or {asked}"), " { }"),
        ("if ", asked, &format!(" and {asked}"), " { }"),
    ];
    for (before, operand, link, behind) in chains {
        let link = if link.ends_with(' ') { [link, operand].concat() } else { link.to_owned() };
        let chain = |links| format!("{before}{operand}{}{behind}", link.repeat(links));
        let most = (1 << 20) / link.len() - 100;
        for links in [300, 2_000, most.min(100_000)] {
            let codes = codes_on_a_stack(512, &chain(links));
            assert!(codes.contains(&208), "{links} of {link}: {codes:?}");
        }
        let codes = codes_on_a_stack(2_048, &chain(199));
        assert!(!codes.contains(&208), "{link}: {codes:?}");
    }
}

/// Chains in parentheses make the tree deeper together.
#[test]
fn chains_in_a_chain_count_together() {
    let chain = |levels, links| {
        let close = [" + 1".repeat(links).as_str(), ")"].concat().repeat(levels);
        format!("let a = {}1{close}", "(".repeat(levels))
    };
    let refused = |text: &str| codes_on_a_stack(2_048, text).contains(&208);
    assert!(!refused(&chain(4, 50)));
    assert!(!refused(&chain(25, 10)));
    assert!(refused(&chain(20, 50)));
    let holes = format!("let a = \"{{1{}}}\"{}", " + 1".repeat(200), " after \"a\"".repeat(200));
    assert!(refused(&holes));
    let beside = format!("let a = (1{0}) * (1{0})", " + 1".repeat(200));
    assert!(!refused(&beside));
}

/// A large text takes time in proportion: these would take long if anything were quadratic.
#[test]
fn a_large_text_is_answered() {
    let many = 5_000;
    run(&format!("message m {{ view v = {{ {} }} }}", "a: u8; ".repeat(many)));
    let mut fields = String::new();
    for number in 0..many {
        fields += &["a", &number.to_string(), ": u8\n"].concat();
    }
    run(&format!("message m {{ view v = {{ {fields} }} }}"));
    let handler = "if request.verb is \"A\" { wait 1 second }\n".repeat(many / 10);
    run(&format!(
        "use \"ask.gate\"\ngateway g {{ role r = ask server at \"127.0.0.1:1\"\non ask(request) {{ \
         {handler} return answer(200, \"x\") }} }}"
    ));
    run(&"message m { }\n".repeat(many));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_text_is_answered(text in "\\PC{0,300}") {
        run(&text);
    }

    /// Words of the language in any order come further than characters do.
    #[test]
    fn any_words_are_answered(pick in prop::collection::vec(any::<prop::sample::Index>(), 0..200)) {
        let corpus = corpus();
        let words: Vec<&str> =
            corpus.iter().flat_map(|text| text.split_inclusive([' ', '\n', '('])).collect();
        let text: String = pick.iter().map(|index| *index.get(&words)).collect();
        run(&text);
    }

    /// One line taken out of a program that is fine.
    #[test]
    fn any_missing_line_is_answered(
        which in any::<prop::sample::Index>(),
        line in any::<prop::sample::Index>(),
    ) {
        let corpus = corpus();
        let text = which.get(&corpus);
        let lines: Vec<&str> = text.lines().collect();
        let gone = line.index(lines.len().max(1));
        let kept: Vec<&str> =
            lines.iter().enumerate().filter(|(at, _)| *at != gone).map(|(_, line)| *line).collect();
        run(&kept.join("\n"));
    }
}

/// Each of 200 findings in one line of 200,000 octets once took as long as the whole line.
#[test]
fn a_long_line_of_mistakes_is_answered() {
    run(&"/*".repeat(100_000));
    run(&"/*/".repeat(70_000));
}
