//! Checks of names and of how the files of a crate use each other.

use super::File;
use std::collections::{BTreeMap, BTreeSet};

/// Definitions of a type name from which on a reader cannot know which one is meant.
const DEFINITIONS: usize = 4;

/// Files of a circle from which on the map lists it.
const LISTED: usize = 3;

/// At most `most` type names are defined in four or more source files of the crates.
pub fn ambiguous_names(files: &[File], most: usize) -> Vec<String> {
    let mut homes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for file in sources(files) {
        for line in code(file).lines() {
            if let Some(name) = defined(line) {
                homes.entry(name).or_default().insert(&file.path);
            }
        }
    }
    let many: Vec<_> = homes.iter().filter(|(_, homes)| homes.len() >= DEFINITIONS).collect();
    if many.len() <= most {
        return Vec::new();
    }
    let names = many.iter().map(|(name, homes)| format!("{name}: {} definitions", homes.len()));
    let count = format!("{} type names have {DEFINITIONS} or more definitions", many.len());
    std::iter::once(count).chain(names).collect()
}

/// No circle of files that use each other, within a crate, has more than `most` files, and the
/// map's section *Circles of files* has a row for each of three and more, and for no other.
///
/// A file uses another one if it has a path to it by `crate`, `super` or the name of a module.
/// The crate's root, which re-exports, and a file's own submodules do not count.
pub fn file_circles(map: &File, files: &[File], most: usize) -> Vec<String> {
    let section = map.text.split_once("## Circles of files\n").map_or("", |(_, after)| after);
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut listed: BTreeSet<&str> =
        section.lines().filter(|line| line.starts_with("| `")).collect();
    let mut findings = Vec::new();
    for (name, circle) in all_circles(files) {
        if circle.len() > most {
            let (count, all) = (circle.len(), circle.join(", "));
            findings.push(format!("{name}: a circle of {count}: {all}"));
        } else if circle.len() >= LISTED {
            let name = name.trim_start_matches("crates/");
            let row = format!("| `{name}` | `{}` |", circle.join("`, `"));
            if !listed.remove(row.as_str()) {
                findings.push(format!("{}: no row {row}", map.path));
            }
        }
    }
    findings.extend(listed.iter().map(|row| format!("{}: no such circle: {row}", map.path)));
    findings
}

/// Each circle of files, with its crate.
fn all_circles(files: &[File]) -> Vec<(String, Vec<String>)> {
    let mut crates: BTreeMap<&str, BTreeMap<Module, &File>> = BTreeMap::new();
    for file in sources(files) {
        let Some((name, path)) = file.path.split_once("/src/") else { continue };
        crates.entry(name).or_default().insert(module(path), file);
    }
    let mut found = Vec::new();
    for (name, modules) in &crates {
        for circle in circles(&uses(modules)) {
            let files = circle.iter().map(|module| module.join("/")).collect();
            found.push(((*name).to_owned(), files));
        }
    }
    found
}

/// A module's path below its crate.
type Module = Vec<String>;

/// The source files of the crates, without tests.
fn sources(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| {
        let is_test = file.name() == "tests.rs" || file.path.contains("/tests/");
        file.path.starts_with("crates/")
            && file.path.contains("/src/")
            && file.extension() == "rs"
            && !is_test
    })
}

/// The text before a file's tests.
fn code(file: &File) -> &str {
    file.text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default()
}

/// The name of the type that a line begins to define.
fn defined(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub(") {
        Some(scoped) => scoped.split_once(") ")?.1,
        None => line.strip_prefix("pub ").unwrap_or(line),
    };
    let kinds = ["struct ", "enum ", "trait ", "union "];
    let rest = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
    let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    Some(rest.split_at(end.unwrap_or(rest.len())).0).filter(|name| !name.is_empty())
}

/// The module of a source file, by its path below `src`.
fn module(path: &str) -> Module {
    let stem = path.trim_end_matches(".rs");
    let mut module: Module = stem.split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        module.pop();
    }
    module
}

/// Which modules each one uses.
fn uses(modules: &BTreeMap<Module, &File>) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut uses = BTreeMap::new();
    for (own, file) in modules.iter().filter(|(own, _)| !own.is_empty()) {
        let targets = paths(code(file)).into_iter().filter_map(|path| target(modules, own, &path));
        let counts = |other: &Module| !other.is_empty() && !other.starts_with(own);
        uses.insert(own.clone(), targets.filter(counts).collect());
    }
    uses
}

/// The file that a path in the module `own` leads to, if it is one of the crate's.
fn target(modules: &BTreeMap<Module, &File>, own: &Module, path: &[String]) -> Option<Module> {
    let (first, rest) = path.split_first()?;
    let (mut module, mut rest) = match first.as_str() {
        "crate" => (Module::new(), rest),
        "self" => (own.clone(), rest),
        "super" => (own.split_last()?.1.to_vec(), rest),
        name => {
            let below: Module = own.iter().cloned().chain([name.to_owned()]).collect();
            (modules.contains_key(&below).then_some(below)?, rest)
        }
    };
    while let Some((_, further)) = rest.split_first().filter(|(name, _)| *name == "super") {
        module.pop();
        rest = further;
    }
    for name in rest {
        module.push(name.clone());
        if !modules.contains_key(&module) {
            module.pop();
            break;
        }
    }
    modules.contains_key(&module).then_some(module)
}

/// All paths in a text: of its imports, and of its code if they begin with `crate` or `super`.
fn paths(code: &str) -> Vec<Vec<String>> {
    let code: String = code
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n");
    let mut paths = Vec::new();
    for statement in code.split(';') {
        let at = statement.rfind("use ").filter(|at| {
            let before = statement.split_at(*at).0;
            before.is_empty() || before.ends_with([' ', '\n'])
        });
        if let Some(at) = at {
            tree(&[], statement.split_at(at + 4).1, &mut paths);
        }
    }
    let is_path = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    for word in code.split(|letter| !is_path(letter)) {
        if word.starts_with("crate::") || word.starts_with("super::") {
            paths.push(word.split("::").map(str::to_owned).collect());
        }
    }
    paths
}

/// Adds the paths of an import, `a::{b, c::d}`, behind `above`.
fn tree(above: &[String], text: &str, paths: &mut Vec<Vec<String>>) {
    let mut depth = 0_u32;
    let mut begin = 0;
    let mut parts = Vec::new();
    for (at, letter) in text.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.extend(text.get(begin..at));
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.extend(text.get(begin..));
    for part in parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty()) {
        let (path, below) = match part.split_once('{') {
            Some((path, below)) => (path, below.rsplit_once('}').map(|(below, _)| below)),
            None => (part.split(" as ").next().unwrap_or_default(), None),
        };
        let names = path.split("::").map(str::trim).filter(|name| !name.is_empty());
        let whole: Vec<String> = above.iter().cloned().chain(names.map(str::to_owned)).collect();
        match below {
            Some(below) => tree(&whole, below, paths),
            None => paths.push(whole),
        }
    }
}

/// The sets of modules that reach each other, without those of one.
fn circles(uses: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<BTreeSet<Module>> {
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        uses.keys().map(|module| (module, reachable(uses, module))).collect();
    let reach = |from: &Module, to: &Module| reached.get(from).is_some_and(|all| all.contains(to));
    let circle = |module: &Module| -> BTreeSet<Module> {
        uses.keys().filter(|other| reach(module, other) && reach(other, module)).cloned().collect()
    };
    uses.keys().map(circle).filter(|circle| circle.len() > 1).collect()
}

/// The modules that `from` uses, directly or by others.
fn reachable<'a>(
    uses: &'a BTreeMap<Module, BTreeSet<Module>>,
    from: &'a Module,
) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut queue = vec![from];
    while let Some(module) = queue.pop() {
        for next in uses.get(module).into_iter().flatten() {
            if reached.insert(next) {
                queue.push(next);
            }
        }
    }
    reached
}
