//! The front end of the gateway language: a pure function from text to a typed program and
//! findings.
//!
//! [`compile`] reads a program with its imports, and reports all errors in one run. The back ends
//! read [`ir`]: `translate` runs it, `emit` writes it as C and Java. The language is defined in
//! `docs/language.md` and its chapters.
//!
//! ```
//! use gatewright_diagnostic::Sources;
//!
//! let mut sources = Sources::of("empty.gate", "gateway nothing { }");
//! let root = Default::default();
//! let compiled = gatewright_lang::compile(&mut sources, root, |_, _| None);
//! assert_eq!(compiled.program.unwrap().name, "nothing");
//! ```
#![forbid(unsafe_code)]

mod codes;
mod fmt;
pub mod ir;
mod listing;
mod lower;
mod syntax;

pub use codes::CODES;
pub use fmt::format;
use gatewright_diagnostic::{Diagnostic, Severity, SourceId, Sources, Span, nearest};
pub use listing::{graph, listing};
use std::collections::{BTreeSet, VecDeque};

/// Maximum number of files of one program.
const FILES_MAX: usize = 64;

/// Maximum number of findings returned: more are not read, and excerpts take long to render.
const FINDINGS_MAX: usize = 200;

/// Result of compiling a program's text.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The program; `None` if there is an error, or if the text can only be imported.
    pub program: Option<ir::Program>,
    /// The findings, in the order of the texts.
    pub diagnostics: Vec<Diagnostic>,
}

/// Result of looking up an imported text.
#[derive(Clone, Debug)]
pub enum Import {
    /// Its name and its text. Two texts with one name are the same text.
    Found(String, String),
    /// It cannot be read.
    Missing {
        /// The searched path, and the error; empty if unknown.
        why: String,
        /// Names of other texts there, in case of a misspelling.
        others: Vec<String>,
    },
}

/// Compiles the program in `root` with what it imports.
///
/// `load` returns the text that `use "PATH"` names. It gets the name of the importing text and
/// PATH, and returns the imported text's name and content. Two texts with one name are the same
/// text. Imported texts are added to `sources`, so that findings can point into them.
pub fn compile(
    sources: &mut Sources,
    root: SourceId,
    mut load: impl FnMut(&str, &str) -> Option<(String, String)>,
) -> Compiled {
    compile_importing(sources, root, |from, path| match load(from, path) {
        Some((name, text)) => Import::Found(name, text),
        None => Import::Missing { why: String::new(), others: Vec::new() },
    })
}

/// Compiles as [`compile`] does, and can report why a text cannot be read.
pub fn compile_importing(
    sources: &mut Sources,
    root: SourceId,
    mut load: impl FnMut(&str, &str) -> Import,
) -> Compiled {
    let mut found = Vec::new();
    let mut files = Vec::new();
    let mut names = BTreeSet::from([sources.get(root).name().to_owned()]);
    let mut queue = VecDeque::from([root]);
    while let Some(id) = queue.pop_front() {
        let file = syntax::parse(id, sources.get(id).text(), &mut found);
        for import in &file.uses {
            let path = String::from_utf8_lossy(&import.value).into_owned();
            let importing = sources.get(id).name().to_owned();
            let (name, text) = match load(&importing, &path) {
                Import::Found(name, text) => (name, text),
                Import::Missing { why, others } => {
                    found.push(not_found(&path, import.span, why, &others));
                    continue;
                }
            };
            if !names.insert(name.clone()) {
                continue;
            }
            if names.len() > FILES_MAX {
                let message = format!("more than {FILES_MAX} files");
                found.push(Diagnostic::error(&codes::IMPORT_CYCLE, import.span, message));
                break;
            }
            queue.push_back(sources.add(name, text));
        }
        files.push(file);
    }
    let readable = !gatewright_diagnostic::has_errors(&found);
    let (program, lowered) = lower::lower(&files);
    // What was lowered from a text that could not be read whole is only partly meaningful: names
    // that stand in the unreadable part would be reported as unknown.
    let is_sure = |of: &Diagnostic| readable || !dangling(of) || is_named_once(of, sources);
    found.extend(lowered.into_iter().filter(is_sure));
    let order = |span: Span| (span.source, span.start, span.end);
    found.sort_by_key(|diagnostic| order(diagnostic.primary.span));
    let wrong = found.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    found.truncate(FINDINGS_MAX);
    Compiled { program: program.filter(|_| !wrong), diagnostics: found }
}

/// The finding for an imported text that cannot be read.
fn not_found(path: &str, span: Span, why: String, others: &[String]) -> Diagnostic {
    let message = format!("`{path}` cannot be read");
    let diagnostic = Diagnostic::error(&codes::NO_IMPORT, span, message);
    let diagnostic = if why.is_empty() { diagnostic } else { diagnostic.note(why) };
    match nearest(path, others.iter().map(String::as_str)) {
        Some(near) => {
            let text = format!("\"{near}\"");
            diagnostic.fix(span, text.clone(), &format!("write `{text}`"))
        }
        None => diagnostic,
    }
}

/// Whether a finding is about an unknown name that stands nowhere else, whatever could not be read: then
/// nothing can define it. Names that come from a diagram have spaces and capitals there.
fn is_named_once(diagnostic: &Diagnostic, sources: &Sources) -> bool {
    if diagnostic.code != &codes::UNKNOWN_NAME {
        return false;
    }
    let span = diagnostic.primary.span;
    let named = sources.get(span.source).text().get(span.start..span.end).unwrap_or_default();
    let Some(word) = named.rsplit('.').next().filter(|word| !word.is_empty()) else {
        return false;
    };
    let word = word.to_ascii_lowercase().replace('_', " ");
    let times = |text: &str| text.to_ascii_lowercase().replace('_', " ").matches(&word).count();
    sources.iter().map(|(_, source)| times(source.text())).sum::<usize>() == 1
}

/// Whether a finding may only be a consequence of a part of the text that could not be read.
pub(crate) fn dangling(diagnostic: &Diagnostic) -> bool {
    [
        &codes::UNKNOWN_NAME,
        &codes::NO_HANDLER,
        &codes::UNKNOWN_HANDLER,
        &codes::HOLE_UNFILLED,
        &codes::UNKNOWN_HOLE,
        &codes::MISSING_SETTING,
        &codes::NO_OTHERWISE,
        &codes::NO_RETURN,
        &codes::UNUSED,
        &codes::NOT_MEASURED,
        &codes::NO_SESSION,
        &codes::OUTSIDE_SESSION,
        &codes::NEED_ROLE,
        &codes::TABLE_KEY,
    ]
    .contains(&diagnostic.code)
}
