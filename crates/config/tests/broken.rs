//! Broken descriptions, one file a case, each beside what is said about it.
//!
//! Beside the snapshots stand laws that hold whatever the wording.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_config::{CODES, Parsed, codes, parse};
use gatewright_diagnostic::{Diagnostic, SourceId, Sources};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn cases() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/broken");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: std::path::PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(path).unwrap())
    };
    let mut cases: Vec<_> = entries.map(read).collect();
    cases.sort();
    assert!(cases.len() >= 150, "{} cases", cases.len());
    cases
}

fn findings(text: &str) -> Vec<Diagnostic> {
    parse(SourceId::default(), text).diagnostics
}

#[test]
fn each_broken_description_is_told_what_is_wrong() {
    for (name, text) in cases() {
        let Parsed { config, diagnostics, .. } = parse(SourceId::default(), &text);
        let sources = Sources::of(format!("{name}.toml"), text);
        assert!(!diagnostics.is_empty(), "{name}: nothing is said");
        let refused =
            diagnostics.iter().any(|d| d.severity > gatewright_diagnostic::Severity::Warning);
        assert_eq!(config.is_none(), refused, "{name}: only errors refuse");
        let told: Vec<String> =
            diagnostics.iter().map(|finding| finding.render(&sources, false)).collect();
        insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
            insta::assert_snapshot!(name, told.join("\n\n"));
        });
    }
}

/// A fix that is offered must mend its finding and bring no other kind of error.
#[test]
fn a_fix_mends_its_finding() {
    let mut fixes = 0;
    for (name, text) in cases() {
        let before = findings(&text);
        for finding in &before {
            let Some(fix) = &finding.fix else { continue };
            fixes += 1;
            let mut mended = text.clone();
            mended.replace_range(fix.span.start..fix.span.end, &fix.replacement);
            let same = |findings: &[Diagnostic]| {
                findings.iter().filter(|other| other.message == finding.message).count()
            };
            let after = findings(&mended);
            assert!(same(&after) < same(&before), "{name}: {} is still there", finding.message);
            let syntax = after.iter().any(|other| other.code.number == 100);
            let had = before.iter().any(|other| other.code.number == 100);
            assert!(had || !syntax, "{name}: the fix breaks the text");
        }
    }
    assert!(fixes >= 20, "{fixes} fixes tried");
}

/// `check` promises it: whoever reads a finding is told what to do.
#[test]
fn each_finding_has_a_help_a_fix_or_a_note() {
    let mut without = BTreeSet::new();
    for (name, text) in cases() {
        for finding in findings(&text) {
            let is_helped = finding.help.is_some() || !finding.notes.is_empty();
            if !is_helped && finding.fix.is_none() {
                without.insert(format!("{} {name}: {}", finding.code, finding.message));
            }
        }
    }
    let without: Vec<String> = without.into_iter().collect();
    assert!(without.is_empty(), "{}", without.join("\n"));
}

#[test]
fn every_code_has_a_case_and_an_explanation() {
    let shown: BTreeSet<u16> = (cases().iter())
        .flat_map(|(_, text)| findings(text))
        .map(|finding| finding.code.number)
        .collect();
    // The command line reports these: only it reads files, and asks gateways that run.
    let running = [&codes::NEEDS_RESTART, &codes::CANNOT_LISTEN, &codes::NOT_TAKEN];
    let unread =
        [&codes::NO_PROGRAM, &codes::NO_CAPTURE, &codes::UNUSABLE_FILE, &codes::WITHOUT_DPDK];
    let of_programs =
        [&codes::NO_MESSAGE_POSITION, &codes::NOT_OVER_STACK, &codes::PROGRAM_NAME_TWICE];
    let elsewhere = [&unread[..], &of_programs, &running].concat();
    for code in CODES {
        let shown =
            |number| shown.contains(number) || elsewhere.iter().any(|code| code.number == *number);
        assert!(shown(&code.number), "{code} has no broken description");
        assert!((100..200).contains(&code.number), "{code} is not of this crate");
        assert!(
            code.explanation.len() > 40 && code.explanation.ends_with(['.', ']', '"', 't']),
            "{code}"
        );
        assert!(!code.title.ends_with('.') && !code.title.is_empty(), "{code}");
    }
    let numbers: BTreeSet<u16> = CODES.iter().map(|code| code.number).collect();
    assert_eq!(numbers.len(), CODES.len(), "a number is given twice");
}
