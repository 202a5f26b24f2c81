//! Parameters of programs, as set by a command line or a description.

use gatewright_config as config;
use gatewright_lang::ir::{ParameterValue, Program};
use gatewright_part::open_file;
use std::io::Read;
use std::path::Path;

/// Maximum octets read of a file: more than a parameter holds.
const FILE_OCTETS_MAX: u64 = (1 << 20) + 3;

/// The values of a program's parameters, each by its name.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ProgramSettings {
    /// Values.
    pub values: Vec<(String, String)>,
    /// Variables of the environment that hold the values.
    pub variables: Vec<(String, String)>,
    /// Files that hold the values; a line end at the end of a file is not part of its value.
    pub files: Vec<(String, String)>,
}

impl ProgramSettings {
    /// The settings of a description.
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
    /// An unknown parameter or an invalid value, an unreadable variable or file, a parameter that is
    /// set twice, or one without a default that is not set. No value is repeated: it may be a secret.
    pub fn apply(&self, program: &mut Program) -> Result<(), String> {
        let wrong = |error: gatewright_lang::ir::ParameterError| error.to_string();
        if let Some(name) = self.set_twice().first() {
            return Err(twice(name));
        }
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

impl ProgramSettings {
    /// Errors that can be found without the environment and the files, each with the parameter's
    /// name; without one if a parameter is not set at all.
    pub fn findings(&self, program: &Program) -> Vec<(Option<&str>, String)> {
        let mut program = program.clone();
        let mut found: Vec<_> =
            self.set_twice().into_iter().map(|name| (Some(name), twice(name))).collect();
        for (name, value) in &self.values {
            let wrong = program.set_parameter(name, value.as_bytes()).err();
            found.extend(wrong.map(|error| (Some(name.as_str()), error.to_string())));
        }
        for (name, _) in self.variables.iter().chain(&self.files) {
            let parameter = program.parameters.iter_mut().find(|of| of.name == *name);
            if let Some(parameter) = parameter {
                parameter.value = Some(ParameterValue::Int(0));
            } else {
                let wrong = program.set_parameter(name, b"").err();
                found.extend(wrong.map(|error| (Some(name.as_str()), error.to_string())));
            }
        }
        found.extend(program.parameters_are_set().err().map(|error| (None, error.to_string())));
        found
    }

    /// Parameters that are set more than once, in whatever way.
    fn set_twice(&self) -> Vec<&str> {
        let mut names: Vec<_> = [&self.values, &self.variables, &self.files]
            .into_iter()
            .flat_map(|settings| settings.iter().map(|(name, _)| name.as_str()))
            .collect();
        names.sort_unstable();
        let repeated = names.chunk_by(|a, b| a == b).filter(|same| same.len() > 1);
        repeated.filter_map(|same| same.first().copied()).collect()
    }

    /// Files of parameters that cannot be read, each with its parameter's name, and the cause.
    pub fn unreadable(&self) -> Vec<(&str, String)> {
        let mut found = Vec::new();
        for (name, file) in &self.files {
            let error = read(file).err().map(|error| format!("{file}: {error}"));
            found.extend(error.map(|why| (name.as_str(), why)));
        }
        found
    }
}

/// Says that a parameter is set more than once.
fn twice(name: &str) -> String {
    format!("parameter `{name}` is set twice")
}

/// The content of a file, without a line end at its end.
fn read(file: &str) -> std::io::Result<Vec<u8>> {
    let mut octets = Vec::new();
    open_file(Path::new(file))?.take(FILE_OCTETS_MAX).read_to_end(&mut octets)?;
    let end = octets.strip_suffix(b"\n").unwrap_or(&octets);
    let end = end.strip_suffix(b"\r").unwrap_or(end).len();
    octets.truncate(end);
    Ok(octets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_diagnostic::{SourceId, Sources};

    const PROGRAM: &str = "
message m { view v = line, at most 80 octets { text: rest } }
protocol p = tcp, sync unicast {
    message m
    idle 1 minute
    connections at most 1
    request v { otherwise -> hello }
    response v
    malformed -> close
    failed    -> close
    full      -> close
}
gateway g {
    role s = p server at \"127.0.0.1:1\"
    parameter name: fragment, at most 8 octets = \"you\"
    parameter times: 1..9 = 2
    parameter secret: fragment, at most 8 octets
    on hello(request) {
        if request.text = secret and times > 1 { return v(name) }
        return v(\"no\")
    }
}
";

    fn program() -> Program {
        let mut sources = Sources::of("test.gate", PROGRAM);
        let compiled = gatewright_lang::compile(&mut sources, SourceId::default(), |_, _| None);
        compiled.program.unwrap()
    }

    fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
        of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn settings(
        values: &[(&str, &str)],
        variables: &[(&str, &str)],
        files: &[(&str, &str)],
    ) -> ProgramSettings {
        ProgramSettings { values: pairs(values), variables: pairs(variables), files: pairs(files) }
    }

    /// A start or a reload would wait for its writer for ever.
    #[test]
    fn a_named_pipe_is_refused() {
        let pipe = std::env::temp_dir().join(format!("settings-pipe-{}", std::process::id()));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let from_pipe = settings(&[], &[], &[("secret", pipe.to_str().unwrap())]);
        let why = from_pipe.apply(&mut program()).unwrap_err();
        std::fs::remove_file(&pipe).unwrap();
        assert!(why.contains("a named pipe is not read"), "{why}");
    }

    #[test]
    fn values_variables_and_files_set_parameters() {
        let folder = std::env::temp_dir().join(format!("settings-{}", std::process::id()));
        std::fs::write(&folder, "sesame\r\n").unwrap();
        let mut program = program();
        let file = folder.to_str().unwrap();
        // Every process of cargo has this variable.
        let wanted = std::env::var("CARGO_PKG_VERSION_MAJOR").unwrap();
        let set = settings(
            &[("times", "9")],
            &[("name", "CARGO_PKG_VERSION_MAJOR")],
            &[("secret", file)],
        );
        assert_eq!(set.findings(&program), []);
        let applied = set.apply(&mut program);
        std::fs::remove_file(&folder).unwrap();
        assert_eq!(applied, Ok(()));
        let values: Vec<_> =
            program.parameters.iter().map(|of| of.value.clone().unwrap()).collect();
        let octets = |text: &str| ParameterValue::Octets(text.as_bytes().to_vec());
        assert_eq!(values, [octets(&wanted), ParameterValue::Int(9), octets("sesame")]);
    }

    #[test]
    fn what_cannot_be_set_is_told_without_its_value() {
        for (set, wanted) in [
            (settings(&[], &[], &[]), "parameter `secret` has no default and is not set"),
            (settings(&[("secret", "123456789")], &[], &[]), "at most 8 octets, and this has 9"),
            (settings(&[("times", "10")], &[], &[]), "`times` is a number in 1..9"),
            (settings(&[("nobody", "1")], &[], &[]), "no parameter `nobody`"),
            (settings(&[], &[("secret", "NOT_THERE_AT_ALL")], &[]), "no `NOT_THERE_AT_ALL`"),
            (settings(&[], &[], &[("secret", "/nowhere")]), "/nowhere: No such file"),
            (settings(&[("secret", "a"), ("secret", "a")], &[], &[]), "`secret` is set twice"),
            (settings(&[("secret", "a")], &[], &[("secret", "b")]), "`secret` is set twice"),
        ] {
            let told = set.apply(&mut program()).unwrap_err();
            assert!(told.contains(wanted) && !told.contains("123456789"), "{told}");
        }
        let set = settings(&[("secret", "a"), ("times", "2")], &[("secret", "HOME")], &[]);
        let found = set.findings(&program());
        assert_eq!(found, [(Some("secret"), "parameter `secret` is set twice".to_owned())]);
        // Without the environment and the files it is told as far as it can be.
        let set = settings(&[("times", "0")], &[("secret", "NOT_THERE_AT_ALL")], &[("other", "x")]);
        let found = set.findings(&program());
        let [(Some("times"), times), (Some("other"), other)] = &found[..] else {
            panic!("{found:?}")
        };
        assert!(times.contains("1..9") && other.contains("`other`"), "{found:?}");
    }
}
