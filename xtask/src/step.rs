//! One command of a verb, announced before it runs and timed.

use crate::root;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// A command that runs at the repository's root.
#[derive(Debug)]
pub struct CommandStep {
    name: String,
    command: Command,
}

impl CommandStep {
    /// The program `program`.
    pub fn program(name: &str, program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.current_dir(root()).args(arguments);
        Self { name: name.to_owned(), command }
    }

    /// The cargo that started this process.
    pub fn cargo(name: &str, arguments: &[&str]) -> Self {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        Self::program(name, &cargo, arguments)
    }

    /// Adds what the user wrote behind the verb.
    #[must_use]
    pub fn arguments(mut self, arguments: &[String]) -> Self {
        self.command.args(arguments);
        self
    }

    /// Sets a variable of the command's environment.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it in a folder.
    #[must_use]
    pub fn within(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Runs it with our own output and says whether it passed.
    pub fn run(mut self) -> bool {
        let start = self.announce();
        let result = self.command.status();
        let passed = result.as_ref().is_ok_and(std::process::ExitStatus::success);
        if let Err(error) = &result {
            eprintln!("{}: {error}", self.command.get_program().display());
        }
        self.close(start, passed)
    }

    /// Whether it runs at all and says yes; its output is thrown away.
    pub fn works(mut self) -> bool {
        let command = self.command.stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    fn announce(&self) -> Instant {
        let words = self.command.get_args().map(|word| word.to_string_lossy().into_owned());
        let program = self.command.get_program().to_string_lossy().into_owned();
        let program = program.rsplit('/').next().unwrap_or_default().to_owned();
        let line: Vec<String> = std::iter::once(program).chain(words).collect();
        println!("== {}: {}", self.name, line.join(" "));
        Instant::now()
    }

    fn close(&self, start: Instant, passed: bool) -> bool {
        let word = if passed { "passed" } else { "FAILED" };
        println!("== {}: {word} in {:.0} s", self.name, start.elapsed().as_secs_f64());
        passed
    }
}
