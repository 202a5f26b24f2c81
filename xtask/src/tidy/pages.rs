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
    let known = targets(makefile);
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
            for target in code.iter().filter_map(|command| target(command)) {
                if !known.contains(target) {
                    findings.push(format!("{}:{number}: there is no `make {target}`", page.path));
                }
            }
        }
    }
    findings
}

fn target(command: &str) -> Option<&str> {
    command.strip_prefix("make ")?.split_whitespace().next()
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

/// Every target of the Makefile is a verb that the help of `cargo xtask` tells.
pub fn doors(makefile: &File, help: &str) -> Vec<String> {
    let indented = help.lines().filter_map(|line| line.strip_prefix("  "));
    let verbs: BTreeSet<&str> = indented.filter_map(|line| line.split([' ', '[']).next()).collect();
    let closed = targets(makefile).into_iter().filter(|target| !verbs.contains(target));
    let path = &makefile.path;
    closed.map(|target| format!("{path}: `cargo xtask` has no verb `{target}`")).collect()
}
