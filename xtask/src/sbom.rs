//! `cargo xtask sbom`: the packages of the command's binary as CycloneDX 1.5, from what cargo says and
//! `Cargo.lock` has.
//!
//! It names each package with version, licence, source and hash, in the order of their names, and has
//! no time and no number of its own: the same sources give the same octets.

use crate::root;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs, io,
    process::Command,
};

/// What cargo is asked to say of each package; a tab is in none of them.
const FORMAT: &str = "{p}\t{l}\t{r}";

/// A package of the binary.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Component {
    name: String,
    version: String,
    licence: String,
    repository: String,
    /// SHA-256 of its archive at the registry; none for our own crates.
    hash: Option<String>,
}

/// The list as JSON.
///
/// # Errors
///
/// If cargo cannot be asked, or says what is not understood.
pub fn sbom() -> io::Result<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let tree = ["tree", "--locked", "--package", "gatewright", "--edges", "normal"];
    let mut command = Command::new(cargo);
    command.current_dir(root()).args(tree).args(["--prefix", "none", "--format", FORMAT]);
    let output = command.output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(format!("cargo tree: {said}")));
    }
    let lock = fs::read_to_string(root().join("Cargo.lock"))?;
    let components = components(&String::from_utf8_lossy(&output.stdout), &hashes(&lock));
    if components.is_empty() {
        return Err(io::Error::other("cargo tree names no package"));
    }
    Ok(document(&components))
}

/// Prints the list; whether it could be made.
pub fn print() -> bool {
    match sbom() {
        Ok(text) => {
            print!("{text}");
            true
        }
        Err(error) => {
            eprintln!("sbom: {error}");
            false
        }
    }
}

/// The packages in what cargo says: `serde v1.0.229 (proc-macro)` and two more columns.
fn components(tree: &str, hashes: &BTreeMap<(String, String), String>) -> BTreeSet<Component> {
    let component = |line: &str| {
        let mut columns = line.split('\t');
        let mut words = columns.next()?.split_whitespace();
        let (name, version) =
            (words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned());
        let column =
            |text: Option<&str>| text.unwrap_or_default().trim_end_matches(" (*)").to_owned();
        let (licence, repository) = (column(columns.next()), column(columns.next()));
        let hash = hashes.get(&(name.clone(), version.clone())).cloned();
        Some(Component { name, version, licence, repository, hash })
    };
    tree.lines().filter_map(component).collect()
}

/// The hashes in `Cargo.lock`, by name and version.
fn hashes(lock: &str) -> BTreeMap<(String, String), String> {
    let entry = |package: &str| {
        let value = |key: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(key))?;
            Some(line.strip_prefix(" = \"")?.trim_end_matches('"').to_owned())
        };
        Some(((value("name")?, value("version")?), value("checksum")?))
    };
    lock.split("[[package]]").filter_map(entry).collect()
}

fn document(components: &BTreeSet<Component>) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut out = format!(
        "{{\n  \"bomFormat\": \"CycloneDX\",\n  \"specVersion\": \"1.5\",\n  \"version\": 1,\n  \
         \"metadata\": {{\n    \"component\": {{\n      \"type\": \"application\",\n      \
         \"bom-ref\": \"pkg:cargo/gatewright@{version}\",\n      \"name\": \"gatewright\",\n      \
         \"version\": \"{version}\"\n    }}\n  }},\n  \"components\": [\n"
    );
    let parts: Vec<_> = components.iter().filter(|it| it.name != "gatewright").map(part).collect();
    out += &parts.join(",\n");
    out + "\n  ]\n}\n"
}

fn part(component: &Component) -> String {
    let Component { name, version, licence, repository, hash } = component;
    let reference = quoted(&format!("pkg:cargo/{name}@{version}"));
    let mut out = format!(
        "    {{\n      \"type\": \"library\",\n      \"bom-ref\": {reference},\n      \"name\": {},\n      \
         \"version\": {},\n      \"purl\": {reference}",
        quoted(name),
        quoted(version)
    );
    // Writing to a string cannot fail.
    if !licence.is_empty() {
        // The older form of "or".
        let expression = quoted(&licence.replace('/', " OR "));
        let _ = write!(out, ",\n      \"licenses\": [{{ \"expression\": {expression} }}]");
    }
    if let Some(hash) = hash {
        let hash = quoted(hash);
        let _ =
            write!(out, ",\n      \"hashes\": [{{ \"alg\": \"SHA-256\", \"content\": {hash} }}]");
    }
    if !repository.is_empty() {
        let url = quoted(repository);
        let _ = write!(
            out,
            ",\n      \"externalReferences\": [{{ \"type\": \"vcs\", \"url\": {url} }}]"
        );
    }
    out + "\n    }"
}

/// A string of JSON.
fn quoted(text: &str) -> String {
    let escaped = |letter: char| match letter {
        '"' | '\\' => format!("\\{letter}"),
        letter if letter.is_control() => format!("\\u{:04x}", u32::from(letter)),
        letter => letter.to_string(),
    };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_have_their_licences_and_hashes() {
        let tree = "gatewright v0.1.0 (/src/crates/gatewright)\tApache-2.0 OR MIT\t\n\
                    serde v1.0.229\tMIT OR Apache-2.0\thttps://github.com/serde-rs/serde\n\
                    old v0.1.2\tMIT/Apache-2.0\t (*)\nserde v1.0.229\tMIT OR Apache-2.0\t\
                    https://github.com/serde-rs/serde (*)\n";
        let lock = "version = 4\n\n[[package]]\nname = \"serde\"\nversion = \"1.0.229\"\nsource = \"r\"\n\
                    checksum = \"ab12\"\n\n[[package]]\nname = \"gatewright\"\nversion = \"0.1.0\"\n";
        let found = components(tree, &hashes(lock));
        let names: Vec<_> = found.iter().map(|it| (it.name.as_str(), it.hash.as_deref())).collect();
        assert_eq!(names, [("gatewright", None), ("old", None), ("serde", Some("ab12"))]);
        let text = document(&found);
        assert!(text.contains("\"purl\": \"pkg:cargo/serde@1.0.229\""), "{text}");
        assert!(text.contains("\"expression\": \"MIT OR Apache-2.0\""), "{text}");
        assert!(!text.contains("/src/"), "no path of a machine: {text}");
    }

    #[test]
    fn the_list_of_this_program_is_whole() {
        let text = sbom().unwrap();
        for name in ["gatewright-onem2m", "serde", "rusqlite", "clap"] {
            assert!(text.contains(&format!("\"name\": \"{name}\"")), "{name}");
        }
        assert_eq!(text, sbom().unwrap());
    }
}
