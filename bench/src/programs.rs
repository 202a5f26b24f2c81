//! The example gateways, compiled.

use gatewright_diagnostic::{SourceId, Sources};
use gatewright_emit::{C_IO, C_RUNTIME, c};
use gatewright_lang::compile;
use gatewright_lang::ir::{MessageId, Program};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where an example is.
pub(crate) fn example(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/gateways")).join(name)
}

/// An example gateway's file, and the libraries that it may use.
pub(crate) struct Text {
    name: String,
    text: String,
}

impl Text {
    /// Reads an example.
    pub(crate) fn read(name: &str) -> Result<Self, String> {
        let file = example(name);
        let text = fs::read_to_string(&file).map_err(|error| error.to_string())?;
        Ok(Self { name: file.to_string_lossy().into_owned(), text })
    }

    /// Checks and lowers it, with the files that it uses.
    pub(crate) fn compiled(&self) -> Result<Program, String> {
        let mut sources = Sources::of(self.name.clone(), self.text.clone());
        let import = |_: &str, path: &str| {
            let imported = Self::read(path).ok()?;
            Some((imported.name, imported.text))
        };
        let compiled = compile(&mut sources, SourceId::default(), import);
        compiled.program.ok_or_else(|| format!("{} is refused", self.name))
    }
}

/// An example gateway, compiled.
pub(crate) fn compiled(name: &str) -> Result<Program, String> {
    Text::read(name)?.compiled()
}

/// A message of a program by its name, `module.name`.
pub(crate) fn message(program: &Program, name: &str) -> Result<MessageId, String> {
    let found = program.messages.iter().position(|message| message.name == name);
    found.map(MessageId::new).ok_or_else(|| format!("there is no message {name}"))
}

/// The names of all example gateways.
pub(crate) fn gateways() -> Result<Vec<String>, String> {
    let files = fs::read_dir(example("")).map_err(|error| error.to_string())?;
    let names = files.flatten().map(|file| file.file_name().to_string_lossy().into_owned());
    let is_gate = |name: &String| Path::new(name).extension().is_some_and(|it| it == "gate");
    let mut names: Vec<String> = names.filter(is_gate).collect();
    names.sort();
    Ok(names)
}

/// What builds a program in C.
pub(crate) const C_TOOLS: [&str; 2] = ["cc", "make"];

/// Writes an example as C into a new folder, with its runtime.
pub(crate) fn written_in_c(name: &str, folder: &Path) -> Result<(), String> {
    let files = c(&compiled(name)?, &|_| None).map_err(|error| error.to_string())?;
    let runtime = C_RUNTIME.into_iter().chain(C_IO);
    let texts = runtime.map(|(name, text)| (name.to_owned(), text.to_owned()));
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    for (name, text) in texts.chain(files.into_iter().map(|file| (file.name, file.text))) {
        fs::write(folder.join(name), text).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Builds what was written, as its users do.
pub(crate) fn made(folder: &Path) -> Result<(), String> {
    let made = Command::new("make").arg("-s").arg("-C").arg(folder).status();
    match made {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("make: {status}")),
        Err(error) => Err(format!("make: {error}")),
    }
}
