//! The manual: the pages of `docs/` as a book, and what they lead to.
//!
//! `docs/SUMMARY.md` is the book's order. mdBook is needed to read it as HTML only: the checks of order
//! and links are plain functions over the repository's files.

use crate::{
    root,
    step::CommandStep,
    tidy::{File, files},
};
use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

/// Folder of the pages.
const PAGES: &str = "docs/";
/// The book's order.
const SUMMARY: &str = "docs/SUMMARY.md";
/// The book's first page, at its root, so that links are right from there.
const FIRST: &str = "README.md";
/// Folder of the book that is built, from the root.
const BOOK: &str = "target/manual";

/// Where a link of a page leads.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Link {
    /// Line of the page.
    line: usize,
    /// Path from the repository's root.
    path: String,
    /// The heading's anchor.
    anchor: Option<String>,
}

/// The links of a page to files of the repository, outside of code.
fn links(page: &File) -> Vec<Link> {
    let mut links = Vec::new();
    let mut is_code = false;
    for (line, text) in page.lines() {
        if text.starts_with("```") {
            is_code = !is_code;
        }
        if is_code || text.starts_with("    ") && !text.trim_start().starts_with("- ") {
            continue;
        }
        let targets = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
        for target in targets.filter(|target| !target.contains("://")) {
            let (file, anchor) = match target.split_once('#') {
                Some((file, anchor)) => (file, Some(anchor.to_owned())),
                None => (target, None),
            };
            let path =
                if file.is_empty() { page.path.clone() } else { joined(page.folder(), file) };
            links.push(Link { line, path, anchor });
        }
    }
    links
}

/// A relative path from a folder, without `.` and `..`.
fn joined(folder: &str, relative: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The anchor of a heading: small letters, hyphens for spaces, nothing else but letters and digits.
fn anchor(heading: &str) -> String {
    let title = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = title.chars().filter(|it| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_'));
    kept.map(|it| if it == ' ' { '-' } else { it }).collect()
}

fn has_heading(page: &File, wanted: &str) -> bool {
    let mut is_code = false;
    page.lines().any(|(_, line)| {
        is_code ^= line.starts_with("```");
        !is_code && line.starts_with('#') && anchor(line) == wanted
    })
}

fn is_page(file: &File) -> bool {
    file.path.starts_with(PAGES) && file.extension() == "md" && file.path != SUMMARY
}

/// Findings about the order of the manual: a page that is not in it, twice in it, or not there.
pub fn order(repository: &[File]) -> Vec<String> {
    let Some(summary) = repository.iter().find(|file| file.path == SUMMARY) else {
        return vec![format!("{SUMMARY} is missing")];
    };
    let mut findings = Vec::new();
    let mut listed = BTreeSet::new();
    for Link { line, path, .. } in links(summary) {
        if !repository.iter().any(|file| is_page(file) && file.path == path) {
            findings.push(format!("{SUMMARY}:{line}: there is no page {path}"));
        }
        if !listed.insert(path.clone()) {
            findings.push(format!("{SUMMARY}:{line}: {path} is listed twice"));
        }
    }
    let missing = repository.iter().filter(|file| is_page(file) && !listed.contains(&file.path));
    findings.extend(missing.map(|file| format!("{}: is not in {SUMMARY}", file.path)));
    findings
}

/// Findings about links of the manual and of the pages at the root: to files or headings that are not
/// there.
pub fn dead_links(repository: &[File]) -> Vec<String> {
    let at_root = |file: &File| file.folder().is_empty() && file.extension() == "md";
    let mut findings = Vec::new();
    for page in repository.iter().filter(|file| is_page(file) || at_root(file)) {
        for Link { line, path, anchor } in links(page) {
            let target = repository.iter().find(|file| file.path == path);
            let folder = format!("{path}/");
            let is_folder = || repository.iter().any(|file| file.path.starts_with(&folder));
            let finding = match (target, anchor) {
                (None, _) if !is_folder() => format!("there is no {path}"),
                (Some(target), Some(anchor)) if !has_heading(target, &anchor) => {
                    format!("{path} has no heading #{anchor}")
                }
                _ => continue,
            };
            findings.push(format!("{}:{line}: {finding}", page.path));
        }
    }
    findings
}

/// Writes the reference anew from the sources, and builds the book where mdBook is.
pub fn manual() -> bool {
    let write = ["test", "--locked", "--package", "gatewright", "--test", "reference"];
    if !CommandStep::cargo("reference", &write).environment("UPDATE_EXPECTED", "1").run() {
        return false;
    }
    let staged = files(&root()).and_then(|files| stage(&files, &root().join(BOOK)));
    if let Err(error) = staged {
        eprintln!("manual: {BOOK}: {error}");
        return false;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|folder| folder.join("mdbook").is_file()) {
        println!(
            "manual: the pages are in docs/, to be read as they are. As a book they need mdBook: \
             `cargo install --locked mdbook`, then `cargo xtask manual` again"
        );
        return true;
    }
    let built = CommandStep::program("manual", "mdbook", &["build", BOOK]).run();
    if built {
        println!("manual: {BOOK}/book/index.html");
    }
    built
}

/// Makes the book's source: the pages, and the files outside `docs/` that they lead to, so that no link
/// of the book is dead.
fn stage(repository: &[File], to: &Path) -> io::Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    let mut outside = BTreeSet::new();
    let is_first = |file: &File| file.path == FIRST || file.path.starts_with(PAGES);
    for page in repository.iter().filter(|file| is_first(file)) {
        copy(&page.path, to)?;
        let leads = links(page).into_iter().map(|link| link.path);
        outside.extend(leads.filter(|path| !path.starts_with(PAGES) && path != FIRST));
    }
    let mut summary = fs::read_to_string(root().join(SUMMARY))?.replace("](", "](docs/");
    summary = summary.replacen("\n\n", &format!("\n\n[Gatewright]({FIRST})\n"), 1);
    summary.push_str("\n# The project\n\n");
    let there = repository.iter().filter(|file| outside.contains(&file.path));
    for file in there {
        copy(&file.path, to)?;
        if file.extension() == "md" {
            summary.extend(["- [", file.name(), "](", &file.path, ")\n"]);
        }
    }
    fs::write(to.join("src/SUMMARY.md"), summary)?;
    fs::remove_file(to.join("src").join(SUMMARY))?;
    let settings = fs::read_to_string(root().join("docs/book.toml"))?;
    // mdBook names it index.html, and leaves links to it as they are.
    let first = "\n[output.html.redirect]\n\"/docs/README.html\" = \"index.html\"\n";
    fs::write(to.join("book.toml"), settings.replace("src = \".\"", "src = \"src\"") + first)
}

fn copy(path: &str, to: &Path) -> io::Result<()> {
    let place = to.join("src").join(path);
    if let Some(folder) = place.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(root().join(path), place).map(drop)
}
