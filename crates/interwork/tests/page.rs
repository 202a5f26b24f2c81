//! The page on devices shows the tables as they are.
#![allow(clippy::panic, reason = "a test may fail loudly")]

use gatewright_interwork::Mapping;

const PAGE: &str = include_str!("../../../docs/devices.md");

/// The first column of the table below a heading, and its last one.
fn rows(heading: &str) -> Vec<(String, String)> {
    let Some((_, section)) = PAGE.split_once(&format!("## {heading}\n")) else {
        panic!("no section {heading}")
    };
    let section = section.split("\n## ").next().unwrap_or_default();
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let table = section.lines().filter(|line| line.starts_with('|')).skip(2).map(cells);
    table.filter_map(|cells| Some((cells.first()?.clone(), cells.last()?.clone()))).collect()
}

fn quoted(name: &str) -> String {
    format!("`{name}`")
}

#[test]
fn the_page_names_every_container_member_and_command() {
    let mapping = Mapping::default();
    let containers: Vec<_> = rows("Containers").into_iter().map(|(_, last)| last).collect();
    assert_eq!(containers.len(), mapping.rules.len());
    for (shown, rule) in containers.iter().zip(&mapping.rules) {
        assert!(shown.starts_with(&quoted(&rule.container)), "{shown}, not {}", rule.container);
    }
    let members: Vec<_> =
        rows("What an instance says").into_iter().map(|(first, _)| first).collect();
    let fields: Vec<_> = mapping.fields.iter().map(|field| quoted(&field.name)).collect();
    assert_eq!(members, fields);
    let shown: Vec<_> = rows("What may be asked").into_iter().map(|(first, _)| first).collect();
    let commands: Vec<_> = mapping.commands.iter().map(|command| quoted(&command.name)).collect();
    assert_eq!(shown, commands);
}

/// Codes on the page are those of the rules.
#[test]
fn the_page_tells_the_codes() {
    let mapping = Mapping::default();
    for rule in &mapping.rules {
        if let Some(kind) = rule.when.kind {
            let row = PAGE.lines().find(|line| {
                line.contains(&format!("| {kind} |")) && line.contains(&quoted(&rule.container))
            });
            assert!(row.is_some(), "{kind} {}", rule.container);
        }
    }
}
