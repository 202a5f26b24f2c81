//! Checks of the tables of files in `ARCHITECTURE.md`, under headings *Rooms in `CRATE`*.

use super::File;

/// A table of the files of some crates.
struct Rooms<'page> {
    /// Number of the heading's line.
    line: usize,
    /// Folders of the crates.
    folders: Vec<String>,
    /// Files in the first cell of each row, with their lines.
    named: Vec<(usize, &'page str)>,
    /// Files and folders that the rest of a row mentions.
    mentioned: Vec<&'page str>,
}

/// Each file that the map's tables name exists, and each source file of those crates is named, by
/// itself or by its folder or parent module.
pub fn rooms(map: &File, files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    for table in tables(map) {
        let is_own = |file: &&File| table.folders.iter().any(|own| file.path.starts_with(own));
        let own: Vec<&File> = files.iter().filter(is_own).collect();
        for (line, name) in &table.named {
            if !own.iter().any(|file| is_at(&file.path, name)) {
                findings.push(format!("{}:{line}: there is no `{name}`", map.path));
            }
        }
        for file in own.iter().filter(|file| file.extension() == "rs") {
            let Some((_, path)) = file.path.split_once("/src/") else { continue };
            let mut names =
                table.named.iter().map(|(_, name)| *name).chain(table.mentioned.clone());
            if !names.any(|name| covers(name, path)) {
                findings.push(format!("{}:{}: {} is missing", map.path, table.line, file.path));
            }
        }
    }
    findings
}

/// The tables of a map.
fn tables(map: &File) -> Vec<Rooms<'_>> {
    let mut tables: Vec<Rooms<'_>> = Vec::new();
    let mut inside = false;
    for (line, text) in map.lines() {
        if text.starts_with('#') {
            let crates = text.strip_prefix("### Rooms in ");
            inside = crates.is_some();
            let folder = |name: &str| {
                if name.contains('/') { format!("{name}/") } else { format!("crates/{name}/") }
            };
            let folders = crates.into_iter().flat_map(quoted).map(folder).collect();
            if inside {
                tables.push(Rooms { line, folders, named: Vec::new(), mentioned: Vec::new() });
            }
        } else if let Some(table) = tables.last_mut().filter(|_| inside && text.starts_with('|')) {
            let row = text.trim_start_matches('|');
            let (first, rest) = row.split_once('|').unwrap_or((row, ""));
            let is_file = |name: &&str| name.contains('.') || name.ends_with('/');
            table.named.extend(quoted(first).filter(is_file).map(|name| (line, name)));
            table.mentioned.extend(quoted(rest).filter(is_file));
        }
    }
    tables
}

/// The words in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Whether `name`, a file or a folder with `/` behind it, is the end of `path` or a folder in it.
fn is_at(path: &str, name: &str) -> bool {
    let (path, name) = (format!("/{path}"), format!("/{name}"));
    if name.ends_with('/') { path.contains(&name) } else { path.ends_with(&name) }
}

/// Whether a name in a table stands for a source file: the file itself, its folder, or a module
/// above it. A crate's root and tests need no name.
fn covers(name: &str, path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    let mut folders = path.match_indices('/').filter_map(|(end, _)| path.get(..end));
    ["lib.rs", "tests.rs"].contains(&file)
        || path.starts_with("bin/")
        || is_at(path, name)
        || folders.any(|folder| {
            let ends = ["/", ".rs", "/mod.rs"].map(|end| format!("{folder}{end}"));
            ends.iter().any(|above| is_at(above, name))
        })
}
