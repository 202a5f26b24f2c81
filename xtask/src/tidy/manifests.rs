//! Checks of `Cargo.toml` files: floors, inherited lints, descriptions; and of `deny.toml`.

use super::File;
use std::collections::{BTreeMap, BTreeSet};

/// The prefix of our package names.
const PREFIX: &str = "gatewright-";
/// The most packages the default build may have.
pub const PACKAGES_MAX: usize = 220;

/// What the checks need of one package's manifest.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Manifest {
    /// Path of the file.
    pub path: String,
    /// The package's name without `gatewright-`.
    pub name: String,
    /// `floor` of `[package.metadata.gatewright]`.
    pub floor: Option<u8>,
    /// Our own crates among all dependencies, without the prefix; tests' and builds' too.
    pub uses: Vec<String>,
    /// Those of them that it is built with: without tests' own.
    pub built_with: Vec<String>,
    /// Whether `[lints] workspace = true` is there.
    pub lints: bool,
    /// Whether the package says what it is.
    pub description: bool,
}

impl Manifest {
    /// Reads the lines of a manifest written the plain way: one key a line.
    pub fn read(file: &File) -> Self {
        let mut manifest = Self { path: file.path.clone(), ..Self::default() };
        let mut section = "";
        for (_, line) in file.lines() {
            let line = line.trim();
            if let Some(header) = header(line) {
                section = header;
                if let Some((kind, name)) = section.rsplit_once("dependencies.") {
                    manifest.uses(kind, name);
                }
            } else if let Some((key, value)) = line.split_once('=') {
                manifest.take(section, key.trim(), value.trim());
            }
        }
        manifest
    }

    fn take(&mut self, section: &str, key: &str, value: &str) {
        match (section, key) {
            ("package", "name") => {
                let name = value.trim_matches('"');
                name.strip_prefix(PREFIX).unwrap_or(name).clone_into(&mut self.name);
            }
            ("package", "description") => self.description = value.len() > "\"\"".len(),
            ("package.metadata.gatewright", "floor") => self.floor = value.parse().ok(),
            ("lints", "workspace") | ("", "lints.workspace") => self.lints = value == "true",
            _ => {
                if let Some(kind) = section.strip_suffix("dependencies") {
                    self.uses(kind, key.split('.').next().unwrap_or(key).trim_matches('"'));
                }
            }
        }
    }

    /// Adds a package of a table of dependencies, whose header begins with `kind`.
    fn uses(&mut self, kind: &str, package: &str) {
        let Some(name) = own(package) else { return };
        if !kind.ends_with("dev-") {
            self.built_with.push(name.clone());
        }
        self.uses.push(name);
    }
}

fn header(line: &str) -> Option<&str> {
    line.strip_prefix('[')?.strip_suffix(']').map(|header| header.trim_matches(['[', ']']))
}

fn own(name: &str) -> Option<String> {
    name.strip_prefix(PREFIX).map(str::to_owned)
}

/// The manifests of the crates, which lie in `crates/NAME/`.
pub fn crates(files: &[File]) -> Vec<Manifest> {
    let is_crate = |file: &&File| file.path.starts_with("crates/") && file.name() == "Cargo.toml";
    files.iter().filter(is_crate).map(Manifest::read).collect()
}

/// Every crate has a floor, and everything it uses, its tests too, is on a lower one.
pub fn floors(manifests: &[Manifest]) -> Vec<String> {
    let floor = |name: &str| manifests.iter().find(|other| other.name == name)?.floor;
    let mut findings = Vec::new();
    for Manifest { path, name, floor: own, uses, .. } in manifests {
        let Some(own) = *own else {
            findings.push(format!("{path}: no floor in [package.metadata.gatewright]"));
            continue;
        };
        for used in uses {
            match floor(used) {
                Some(lower) if lower < own => {}
                Some(other) => findings.push(format!(
                    "{path}: {name} on floor {own} uses {used}, which is on floor {other}"
                )),
                None => findings.push(format!("{path}: {name} uses {used}, which has no floor")),
            }
        }
    }
    findings
}

/// The lock file of a separate workspace has every crate that one of its crates is built with.
pub fn stale_lock(lock: &File, manifests: &[Manifest]) -> Vec<String> {
    let packages: BTreeMap<&str, &str> = (lock.text.split("[[package]]").skip(1))
        .filter_map(|package| Some((package.split('"').nth(1)?, package)))
        .collect();
    let mut findings = Vec::new();
    for Manifest { name, built_with, .. } in manifests {
        let Some(package) = packages.get(format!("{PREFIX}{name}").as_str()) else { continue };
        for used in built_with {
            if !package.contains(&format!("\n \"{PREFIX}{used}\",")) {
                findings.push(format!("{}: {name} without {used}", lock.path));
            }
        }
    }
    findings
}

/// The floors that `ARCHITECTURE.md` tells are the manifests'.
pub fn floor_table(architecture: &File, manifests: &[Manifest]) -> Vec<String> {
    let mut table = BTreeMap::new();
    for (_, line) in architecture.lines() {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let (Some(floor), Some(names)) = (cells.next(), cells.next()) else { continue };
        if let Ok(floor) = floor.parse::<u8>() {
            table.extend(names.split('`').skip(1).step_by(2).map(|name| (name, floor)));
        }
    }
    let say = |floor: Option<u8>| floor.map_or("none".to_owned(), |floor| floor.to_string());
    let mut findings = Vec::new();
    for Manifest { path, name, floor, .. } in manifests {
        let told = table.get(name.as_str()).copied();
        if told.is_none() || told != *floor {
            let (own, told) = (say(*floor), say(told));
            findings.push(format!("{path}: floor {own}, in {}: {told}", architecture.path));
        }
    }
    findings
}

/// Every package inherits the house's lints, says what it is, and has its folder's name.
pub fn manners(manifests: &[Manifest]) -> Vec<String> {
    let mut findings = Vec::new();
    for Manifest { path, name, lints, description, .. } in manifests {
        if !lints {
            findings.push(format!("{path}: no `[lints] workspace = true`"));
        }
        if !description {
            findings.push(format!("{path}: no description"));
        }
        let folder = path.rsplit('/').nth(1).unwrap_or_default();
        if folder != name {
            findings.push(format!("{path}: folder {folder}, package {name}"));
        }
    }
    findings
}

/// `deny.toml` ignores no advisory.
pub fn advisories(deny: &File) -> Vec<String> {
    let mut section = "";
    let mut ignores = Vec::new();
    for (_, line) in deny.lines() {
        let line = line.trim();
        section = header(line).unwrap_or(section);
        let pair = line.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
        if let ("advisories", Some(("ignore", value))) = (section, pair) {
            ignores.push(value);
        }
    }
    if ignores == ["[]"] {
        return Vec::new();
    }
    vec![format!("{}: [advisories] must say `ignore = []`", deny.path)]
}

/// At most [`PACKAGES_MAX`] packages in the output of `cargo tree --prefix none`.
pub fn package_count(tree: &str) -> Vec<String> {
    let names = tree.lines().map(|line| line.split(" (").next().unwrap_or(line).trim());
    match names.filter(|name| !name.is_empty()).collect::<BTreeSet<_>>().len() {
        0 => vec!["cargo tree lists nothing".to_owned()],
        1..=PACKAGES_MAX => Vec::new(),
        count => vec![format!("the default build has {count} packages; at most {PACKAGES_MAX}")],
    }
}
