//! Parameters of programs: what a command line or a description sets them to.

use gatewright_config as config;
use gatewright_lang::ir::{ParameterValue, Program};
use std::fs::File;
use std::io::Read;

/// The most octets that are read of a file: more than a parameter holds.
const FILE_OCTETS_MAX: u64 = (1 << 20) + 3;

/// What parameters of a program are set to, each by its name.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Settings {
    /// Values.
    pub values: Vec<(String, String)>,
    /// Variables of the environment that hold the values.
    pub variables: Vec<(String, String)>,
    /// Files that hold the values; a line's end behind one does not belong to it.
    pub files: Vec<(String, String)>,
}

impl Settings {
    /// Those of a description.
    pub fn of(program: &config::Program) -> Self {
        Self {
            values: program.set.clone(),
            variables: program.set_env.clone(),
            files: program.set_file.clone(),
        }
    }

    /// Sets the parameters of a program.
    ///
    /// # Errors
    ///
    /// A parameter that the program does not have or that cannot be that, a variable or file that
    /// cannot be read, a parameter without a default that is not set. No value is repeated: it may
    /// be a secret.
    pub fn apply(&self, program: &mut Program) -> Result<(), String> {
        let wrong = |error: gatewright_lang::ir::ParameterError| error.to_string();
        for (name, value) in &self.values {
            program.set_parameter(name, value.as_bytes()).map_err(wrong)?;
        }
        for (name, variable) in &self.variables {
            let value = std::env::var_os(variable)
                .ok_or_else(|| format!("`{name}`: the environment has no `{variable}`"))?;
            program.set_parameter(name, value.as_encoded_bytes()).map_err(wrong)?;
        }
        for (name, file) in &self.files {
            let value = read(file).map_err(|error| format!("`{name}`: {file}: {error}"))?;
            program.set_parameter(name, &value).map_err(wrong)?;
        }
        program.parameters_are_set().map_err(wrong)
    }
}

impl Settings {
    /// What is wrong with them, as far as it can be said without the environment and the files.
    pub fn findings(&self, program: &Program) -> Vec<String> {
        let mut program = program.clone();
        let mut found = Vec::new();
        for (name, value) in &self.values {
            found.extend(program.set_parameter(name, value.as_bytes()).err());
        }
        for (name, _) in self.variables.iter().chain(&self.files) {
            let parameter = program.parameters.iter_mut().find(|of| of.name == *name);
            match parameter {
                Some(parameter) => drop(parameter.value.replace(ParameterValue::Int(0))),
                None => found.extend(program.set_parameter(name, b"").err()),
            }
        }
        found.extend(program.parameters_are_set().err());
        found.iter().map(ToString::to_string).collect()
    }
}

/// What a file holds, without a line's end behind it.
fn read(file: &str) -> std::io::Result<Vec<u8>> {
    let mut octets = Vec::new();
    File::open(file)?.take(FILE_OCTETS_MAX).read_to_end(&mut octets)?;
    let end = octets.strip_suffix(b"\n").unwrap_or(&octets);
    let end = end.strip_suffix(b"\r").unwrap_or(end).len();
    octets.truncate(end);
    Ok(octets)
}
