//! What a machine can check of the rules in `CONTRIBUTING.md` and `ARCHITECTURE.md`.
//!
//! Each check takes texts and returns its findings, one line each with file and line; none means
//! tidy. `tests/tidy.rs` asks them all about the repository, and each about an untidy example.

pub mod code;
pub mod manifests;
pub mod pages;
pub mod rooms;
pub mod shape;
pub mod text;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

/// A file of the repository: its path from the root, with `/`, and its text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct File {
    /// Path from the repository's root.
    pub path: String,
    /// The whole text; what is not UTF-8 is replaced.
    pub text: String,
}

impl File {
    /// A file made of two strings.
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    /// The path's ending behind its last dot, or an empty string.
    pub fn extension(&self) -> &str {
        self.name().rsplit_once('.').map_or("", |(_, extension)| extension)
    }

    /// The last part of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// The folder it is in, or an empty string at the root.
    pub fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    /// The lines with their numbers from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }
}

/// The files that git tracks or would add; without git, all that are not build output.
///
/// # Errors
///
/// What cannot be read.
pub fn files(root: &Path) -> io::Result<Vec<File>> {
    let list = ["ls-files", "--cached", "--others", "--exclude-standard", "-z"];
    let output = Command::new("git").current_dir(root).args(list).output();
    let mut paths: Vec<PathBuf> = match output {
        Ok(output) if output.status.success() && !output.stdout.is_empty() => {
            let names = String::from_utf8_lossy(&output.stdout).into_owned();
            names.split_terminator('\0').map(PathBuf::from).collect()
        }
        _ => walk(root, Path::new(""))?,
    };
    paths.sort();
    let there = paths.into_iter().filter(|path| root.join(path).is_file());
    let read = |path: PathBuf| {
        let octets = fs::read(root.join(&path))?;
        Ok(File::new(path.to_string_lossy(), String::from_utf8_lossy(&octets)))
    };
    there.map(read).collect()
}

fn walk(root: &Path, folder: &Path) -> io::Result<Vec<PathBuf>> {
    const OUTPUT: [&str; 4] = ["target", ".git", "node_modules", "artifacts"];
    let mut paths = Vec::new();
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if OUTPUT.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            paths.extend(walk(root, &path)?);
        } else {
            paths.push(path);
        }
    }
    Ok(paths)
}
