//! Checks of single lines and whole files, whatever their language.

use super::File;

/// The most lines of a file that people read and write.
pub const LINES_MAX: usize = 800;
/// The most lines of a function; clippy sees to Rust's (`clippy.toml`).
pub const FUNCTION_LINES_MAX: usize = 70;

/// The endings of files that people write.
const WRITTEN: [&str; 13] =
    ["rs", "md", "toml", "c", "h", "java", "ts", "svelte", "js", "css", "sh", "py", "gate"];
/// The languages whose functions clippy does not see.
const FOREIGN: [&str; 6] = ["c", "h", "java", "ts", "js", "svelte"];

/// Whether people write the file, and not a machine for a test to compare against.
fn written(file: &File) -> bool {
    let made = ["/snapshots/", "/corpus/", "/expected/"];
    let by_name = matches!(file.name(), "Makefile" | "run");
    (WRITTEN.contains(&file.extension()) || by_name)
        && !made.iter().any(|folder| file.path.contains(folder))
}

/// No written file is longer than [`LINES_MAX`].
pub fn long_files(files: &[File]) -> Vec<String> {
    let counted = files.iter().filter(|file| written(file));
    let counted = counted.map(|file| (&file.path, file.text.lines().count()));
    let long = counted.filter(|&(_, count)| count > LINES_MAX);
    long.map(|(path, count)| format!("{path}: {count} lines; at most {LINES_MAX}")).collect()
}

/// No function in C, Java or TypeScript is longer than [`FUNCTION_LINES_MAX`].
///
/// A function begins with a line that has a `(`, ends in `{`, and does not begin with a word of
/// control; it ends with the next `}` of the same indentation.
pub fn long_functions(files: &[File]) -> Vec<String> {
    let foreign = |file: &&File| FOREIGN.contains(&file.extension()) && written(file);
    files.iter().filter(foreign).flat_map(long_functions_of).collect()
}

fn long_functions_of(file: &File) -> Vec<String> {
    let mut findings = Vec::new();
    let mut begun: Option<(usize, usize)> = None;
    for (number, line) in file.lines() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        match begun {
            Some((first, depth)) if indent == depth && text.starts_with('}') => {
                let length = number + 1 - first;
                if length > FUNCTION_LINES_MAX {
                    let most = FUNCTION_LINES_MAX;
                    let path = &file.path;
                    findings.push(format!("{path}:{first}: {length} lines; at most {most}"));
                }
                begun = None;
            }
            None if begins_function(text) => begun = Some((number, indent)),
            _ => {}
        }
    }
    findings
}

fn begins_function(text: &str) -> bool {
    const OTHERS: [&str; 12] = [
        "if",
        "for",
        "while",
        "switch",
        "else",
        "do",
        "try",
        "catch",
        "class",
        "interface",
        "record",
        "enum",
    ];
    let mut words = text.split(|c: char| !c.is_alphanumeric());
    let before = text.split('(').next().unwrap_or_default();
    let is_type = [" class ", " interface ", " record ", " enum "];
    text.trim_end().ends_with('{')
        && text.contains('(')
        && !words.next().is_some_and(|word| OTHERS.contains(&word))
        && !text.starts_with(['}', '/', '*', '#'])
        && !is_type.iter().any(|word| before.contains(word))
}

/// No note to oneself is left.
pub fn leftovers(files: &[File]) -> Vec<String> {
    const NOTES: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];
    lines_with(files, |line| {
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.find(|word| NOTES.contains(word)).map(str::to_owned)
    })
}

/// No mark of a merge that was not finished is left.
pub fn merge_marks(files: &[File]) -> Vec<String> {
    lines_with(files, |line| {
        let mark = ['<', '>', '|'].into_iter().find(|mark| {
            line.strip_prefix(&mark.to_string().repeat(7)).is_some_and(|it| it.starts_with(' '))
        });
        mark.map(|mark| format!("a merge's mark, {}", mark.to_string().repeat(7)))
    })
}

/// No path of one machine is told.
pub fn machine_paths(files: &[File]) -> Vec<String> {
    const PATHS: [&str; 5] = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
        concat!("/tm", "p/gw"),
        concat!("../sha", "red"),
    ];
    // Behind one of these it is a part of a longer path or address: somebody else's folder.
    let inside = |c: char| c.is_alphanumeric() || "_-.~/}".contains(c);
    lines_with(files, |line| {
        let told = |path: &&&str| {
            let mut places = line.match_indices(**path);
            places.any(|(at, _)| !line.get(..at).is_some_and(|before| before.ends_with(inside)))
        };
        PATHS.iter().find(told).map(|path| format!("the path {path}"))
    })
}

/// RFCs are cited one way: `RFC 791 §3.1`; an appendix, which has no number, by its word.
pub fn citations(files: &[File]) -> Vec<String> {
    lines_with(files, |line| {
        let places = line.match_indices("RFC").chain(line.match_indices("rfc"));
        let mut citations = places.filter_map(|(at, _)| citation(line, at));
        let bad = citations.find(|citation| !is_well_cited(citation))?;
        Some(format!("write it `RFC 791 §3.1`: {}", bad.chars().take(20).collect::<String>()))
    })
}

/// The text from `RFC` on, if it names an RFC and is not part of a longer word or an address.
fn citation(line: &str, at: usize) -> Option<&str> {
    let (before, text) = line.split_at_checked(at)?;
    let inside = before.ends_with(|c: char| c.is_alphanumeric() || "_/-.".contains(c));
    let rest = text.get("RFC".len()..)?;
    let number = rest.trim_start_matches([' ', '-', '\u{a0}']);
    let tail = number.trim_start_matches(|c: char| c.is_ascii_digit());
    // `rfc791_section_3`, `rfc1071.txt` and `rfc768` are names of tests and files.
    let is_name = tail.starts_with(|c: char| c.is_alphanumeric() || c == '_')
        || text.starts_with("rfc") && rest.starts_with(|c: char| c.is_ascii_digit());
    (!inside && tail.len() < number.len() && !is_name).then_some(text)
}

fn is_well_cited(citation: &str) -> bool {
    let Some(number) = citation.strip_prefix("RFC ") else { return false };
    if number.starts_with(['0', ' ', '-']) {
        return false;
    }
    let tail = number.trim_start_matches(|c: char| c.is_ascii_digit());
    let next = tail.trim_start_matches([',', ' ', '(']);
    if let Some(section) = next.strip_prefix('§') {
        return tail.starts_with(" §") && section.starts_with(|c: char| c.is_ascii_alphanumeric());
    }
    let word = next.to_lowercase();
    !["section", "sec.", "sect.", "chapter"].iter().any(|way| word.starts_with(way))
}

/// A finding for each line of the written files in which `look` sees something.
fn lines_with(files: &[File], look: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| written(file)) {
        for (number, line) in file.lines() {
            findings.extend(look(line).map(|what| format!("{}:{number}: {what}", file.path)));
        }
    }
    findings
}
