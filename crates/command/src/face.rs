//! How verbs speak: answers on standard output, findings and failures on standard error.

use crate::exit::{Exit, Failure};
use crate::lines::say;
use crate::program::CommandLine;
use anyhow::Result;
use gatewright_diagnostic::{Diagnostic, Finding, Severity, Sources, shown};
use serde::Serialize;
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Output to the user, the same for every verb.
#[derive(Clone, Copy, Debug)]
pub struct Face {
    json: bool,
    /// Whether standard error shows colours.
    colour: bool,
    program: &'static CommandLine,
}

impl Face {
    /// The output of this process: colours only on a terminal, and not if `NO_COLOR` is set.
    pub fn of_process(json: bool, program: &'static CommandLine) -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let colour = std::io::stderr().is_terminal() && !set("NO_COLOR") && !dumb;
        Self { json, colour, program }
    }

    /// The program that speaks.
    pub const fn program(self) -> &'static CommandLine {
        self.program
    }

    /// Whether answers are JSON.
    pub const fn is_json(self) -> bool {
        self.json
    }

    /// Prints one of several answers: with `--json`, a value in one line.
    ///
    /// # Errors
    ///
    /// If standard output takes none.
    pub fn line(self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        let text = if self.json { serde_json::to_string(value)? } else { visible(&text()) };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", text.trim_end_matches('\n'))?;
        Ok(out.flush()?)
    }

    /// Prints the answer: `value` with `--json`, else the text. A reader that has gone is no error.
    ///
    /// # Errors
    ///
    /// If standard output takes none.
    pub fn answer(self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        let text = if self.json { serde_json::to_string_pretty(value)? } else { visible(&text()) };
        let mut out = std::io::stdout().lock();
        let mut write = || {
            out.write_all(text.as_bytes())?;
            if !text.is_empty() && !text.ends_with('\n') {
                out.write_all(b"\n")?;
            }
            out.flush()
        };
        match write() {
            // Whoever has read enough is still told by the exit code.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => Ok(written?),
        }
    }

    /// Prints the answer as [`Self::answer`] does, but waits for a slow reader only for a limited
    /// time.
    ///
    /// # Errors
    ///
    /// If it is not written by then.
    pub fn answer_within(
        self,
        within: Duration,
        value: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        let (value, text) = (serde_json::to_value(value)?, text());
        let (tell, told) = channel();
        let answer = move || {
            // Who waited may have gone.
            let _late = tell.send(self.answer(&value, || text));
        };
        std::thread::Builder::new().name("answer".to_owned()).spawn(answer)?;
        told.recv_timeout(within).unwrap_or_else(|_| {
            let words = "nobody reads standard output: the answer is lost";
            Err(Failure::new(Exit::Negative, words).into())
        })
    }

    /// Prints findings with excerpts of the text; with `--json` they are part of the answer
    /// instead.
    pub fn findings(self, findings: &[Diagnostic], sources: &Sources) {
        if self.json {
            return;
        }
        for finding in findings {
            say(&format!("{}\n", finding.render(sources, self.colour)));
        }
        let count = |severity| findings.iter().filter(|f| f.severity == severity).count();
        let plural = |count, one| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        match (count(Severity::Error), count(Severity::Warning)) {
            (0, 0) => {}
            (0, warnings) => say(&plural(warnings, "warning")),
            (errors, 0) => say(&plural(errors, "error")),
            (errors, warnings) => {
                say(&format!("{}, {}", plural(errors, "error"), plural(warnings, "warning")));
            }
        }
    }

    /// Prints progress on standard error; nothing with `--json`.
    pub fn note(self, text: &str) {
        if !self.json {
            say(&visible(text));
        }
    }

    /// Prints why a verb failed.
    pub fn failure(self, exit: Exit, message: &str) {
        if self.json {
            let value = serde_json::json!({ "error": { "exit": exit.code(), "message": message } });
            // Nobody is left to be told if standard output is gone.
            let _ = self.answer(&value, String::new);
        } else if self.colour {
            say(&format!("\u{1b}[1;31merror\u{1b}[0m: {}", visible(message)));
        } else {
            say(&format!("error: {}", visible(message)));
        }
    }

    /// Findings as data.
    pub fn data(findings: &[Diagnostic], sources: &Sources) -> Vec<Finding> {
        findings.iter().map(|finding| finding.finding(sources)).collect()
    }
}

/// The text without characters that steer a terminal, except tabs and ends of lines: parts of it may
/// be a peer's.
fn visible(text: &str) -> String {
    text.split('\t').map(shown).collect::<Vec<_>>().join("\t")
}
