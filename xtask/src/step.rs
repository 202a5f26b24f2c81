//! One command of a verb, announced before it runs and timed.

use crate::{
    root,
    summary::Summary,
    watched::{OutputLine, Watched},
};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a test program, or a compiler, may say nothing before it is taken to hang.
const SILENCE_MAX: Duration = Duration::from_mins(15);

/// What cargo says before the arguments that run a failed test program alone.
const RERUN: &str = "to rerun pass `";

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

    /// The cargo that started this process, whose tests can interrupt what they start. A shell that
    /// runs a command in the background makes it ignore SIGINT, and so every process below it.
    pub fn cargo_with_signals(name: &str, arguments: &[&str]) -> Self {
        let cargo = Self::cargo(name, arguments).command;
        let mut command = Command::new("env");
        command.current_dir(root()).arg("--default-signal=INT,QUIT");
        command.arg(cargo.get_program()).args(cargo.get_args());
        Self { name: name.to_owned(), command }
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

    /// Runs a test command, shows its output as it comes, and notes each test in `summary`. The
    /// arguments by which cargo runs each failed test program alone are added to `failed`.
    pub fn run_tests(mut self, summary: &mut Summary, failed: &mut Vec<String>) -> bool {
        let start = self.announce();
        let watched = match Watched::start(&mut self.command, SILENCE_MAX) {
            Ok(watched) => watched,
            Err(error) => {
                eprintln!("{}: {error}", self.command.get_program().display());
                return self.close(start, false);
            }
        };
        let status = watched.finish(|line| match line {
            OutputLine::Output(line) => {
                println!("{line}");
                summary.note(&line);
            }
            OutputLine::Errors(line) => {
                eprintln!("{line}");
                failed.extend(rerun(&line));
            }
            OutputLine::Silence => {
                let silent = format!("a program that said nothing for {SILENCE_MAX:?}");
                println!("== {silent} is killed");
                summary.fail(silent);
            }
        });
        self.close(start, status.is_some_and(|status| status.success()))
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

/// The arguments of a failed test program, if a line of cargo's tells them.
fn rerun(line: &str) -> Option<String> {
    let (_, arguments) = line.split_once(RERUN)?;
    Some(arguments.strip_suffix('`')?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_tells_how_a_test_program_is_run_alone() {
        let line = "error: test failed, to rerun pass `-p gatewright-planes --test queues`";
        assert_eq!(rerun(line).as_deref(), Some("-p gatewright-planes --test queues"));
        assert_eq!(rerun("error: 1 target failed:"), None);
    }

    #[test]
    fn a_failed_test_program_is_noted_with_its_tests() {
        let words = "echo 'test a ... FAILED'; echo 'x, to rerun pass `--lib`' >&2; exit 1";
        let (mut summary, mut failed) = (Summary::default(), Vec::new());
        let step = CommandStep::program("tests", "sh", &["-c", words]);
        assert!(!step.run_tests(&mut summary, &mut failed));
        assert_eq!((summary.failures(), failed), (1, vec!["--lib".to_owned()]));
    }
}
