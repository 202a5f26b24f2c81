//! Checks of the pages against what they describe: README's commands, the Makefile, `.ci/run`.

use super::File;
use std::collections::BTreeSet;

/// The targets of a Makefile that has one line each.
pub fn targets(makefile: &File) -> BTreeSet<&str> {
    let named = makefile.lines().filter_map(|(_, line)| Some(line.split_once(':')?.0));
    named.filter(|name| !name.is_empty() && name.chars().all(char::is_alphanumeric)).collect()
}

/// Every `make WORD` that a page tells as code exists.
pub fn told_targets(pages: &[&File], makefile: &File) -> Vec<String> {
    told(pages, "make", &targets(makefile))
}

/// Every `gatewright WORD` that a page tells as code is a verb of the command line, as the list in
/// its source has them: `Check = "check" in check`.
pub fn told_verbs(pages: &[&File], list: &File) -> Vec<String> {
    let verb = |(_, line)| {
        let (name, module): (&str, &str) = str::split_once(line, "\" in ")?;
        module.ends_with(',').then(|| name.rsplit('"').next()).flatten()
    };
    told(pages, "gatewright", &list.lines().filter_map(verb).collect())
}

/// Findings about the words behind `program` in the code of pages that are not among `known`.
fn told(pages: &[&File], program: &str, known: &BTreeSet<&str>) -> Vec<String> {
    let mut findings = Vec::new();
    for page in pages {
        let mut fenced = false;
        for (number, line) in page.lines() {
            fenced ^= line.trim_start().starts_with("```");
            let code: Vec<&str> = if fenced || line.starts_with("    ") {
                vec![line.trim().trim_start_matches("$ ")]
            } else {
                line.split('`').skip(1).step_by(2).collect()
            };
            let words = code.iter().filter_map(|command| word(command, program));
            for word in words.filter(|word| !known.contains(word)) {
                findings.push(format!("{}:{number}: there is no `{program} {word}`", page.path));
            }
        }
    }
    findings
}

/// The word behind `program`, if the command begins with it; options and placeholders are none.
fn word<'a>(command: &'a str, program: &str) -> Option<&'a str> {
    let rest = command.strip_prefix(program)?.strip_prefix(' ')?;
    rest.split_whitespace().next().filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()))
}

/// Every test that the tables of a page name in their last cell is one of the sources: a function, or
/// a name in quotation marks.
pub fn told_tests(page: &File, sources: &[&File]) -> Vec<String> {
    let mut findings = Vec::new();
    let rows = page.lines().filter(|(_, line)| line.starts_with("| "));
    for (number, row) in rows {
        let last = row.trim_end_matches(['|', ' ']).rsplit(" | ").next().unwrap_or_default();
        let is_name = |code: &&str| {
            code.contains('_') && code.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
        };
        for name in last.split('`').skip(1).step_by(2).filter(is_name) {
            let (function, quoted) = (format!("fn {name}("), format!("\"{name}\""));
            let is_in = |file: &&File| file.text.contains(&function) || file.text.contains(&quoted);
            if !sources.iter().any(is_in) {
                findings.push(format!("{}:{number}: there is no test `{name}`", page.path));
            }
        }
    }
    findings
}

/// The part of a page below one of its headings, up to the next; its lines keep their numbers.
pub fn section(page: &File, heading: &str) -> File {
    let Some((before, rest)) = page.text.split_once(&format!("\n## {heading}\n")) else {
        return File::new(page.path.as_str(), "");
    };
    let part = rest.split("\n## ").next().unwrap_or_default();
    File::new(page.path.as_str(), "\n".repeat(before.matches('\n').count() + 2) + part)
}

/// README's two commands are there, and the second is what continuous integration runs.
pub fn two_commands(readme: &File, makefile: &File, ci: &File) -> Vec<String> {
    let mut findings = Vec::new();
    for target in ["demo", "test"] {
        if !readme.text.contains(&format!("make {target}")) {
            findings.push(format!("{}: does not tell `make {target}`", readme.path));
        }
        if !targets(makefile).contains(target) {
            findings.push(format!("{}: has no target `{target}`", makefile.path));
        }
    }
    let runs = |line: &str| line.trim().trim_start_matches("exec ") == "make test";
    if !ci.lines().any(|(_, line)| runs(line)) {
        findings.push(format!("{}: does not run `make test`", ci.path));
    }
    findings
}

/// Targets of the Makefile that are no verb in the help of `cargo xtask`.
pub fn targets_without_verb(makefile: &File, help: &str) -> Vec<String> {
    let indented = help.lines().filter_map(|line| line.strip_prefix("  "));
    let verbs: BTreeSet<&str> = indented.filter_map(|line| line.split([' ', '[']).next()).collect();
    let closed = targets(makefile).into_iter().filter(|target| !verbs.contains(target));
    let path = &makefile.path;
    closed.map(|target| format!("{path}: `cargo xtask` has no verb `{target}`")).collect()
}
