//! The program that a gateway is upgraded to, and what it says before anything is changed.

use crate::{
    exit::{Exit, Failure},
    face::Face,
    verbs::status::{list, number, word},
};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use serde_json::Value;
use std::{
    fs, io,
    io::Read,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::Duration,
};

/// A program that understands the running planes, unless it says otherwise.
#[derive(Debug)]
pub(super) struct NewProgram(PathBuf);

/// What the kernel appends to the path of a program that was exchanged.
const DELETED: &str = " (deleted)";

/// Maximum time for the program to say its version.
const VERSION_WITHIN: Duration = Duration::from_secs(10);
/// Maximum time for the program to check a description with its programs.
const CHECKED_WITHIN: Duration = Duration::from_secs(30);
/// How long it may take to answer before the user is told that it is waited for.
const TOLD_AFTER: Duration = Duration::from_secs(2);
/// Maximum octets of an answer.
const ANSWER_MAX: u64 = 16 << 20;

impl NewProgram {
    /// The program `named`, or what is now at the path of the process's.
    pub(super) fn of(named: Option<&Path>, process: u64) -> Result<Self, Failure> {
        let found = match named {
            Some(program) => fs::canonicalize(program),
            None => fs::read_link(format!("/proc/{process}/exe")).and_then(|running| {
                let path = running.to_string_lossy();
                fs::canonicalize(path.strip_suffix(DELETED).unwrap_or(&path))
            }),
        };
        found.map(Self).map_err(|error| {
            let named = named.unwrap_or(Path::new("the gateway's program"));
            let text = format!("{}: {error}: say BINARY", named.display());
            Failure::new(Exit::Configuration, text)
        })
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The version of its planes.
    pub(super) fn version(&self, face: Face) -> Result<String, Failure> {
        let value = self.ask(face, &["version", "--json"], VERSION_WITHIN)?;
        Ok(word(&value, "planes").to_owned())
    }

    /// Has it check the description in `file`; the first error is the failure.
    pub(super) fn check(&self, face: Face, file: &str) -> Result<(), Failure> {
        let value = self.ask(face, &["check", "--json", file], CHECKED_WITHIN)?;
        if value.get("ok").and_then(Value::as_bool) == Some(true) {
            return Ok(());
        }
        let mut found = list(&value, "files").iter().flat_map(|file| list(file, "findings"));
        let first = found.find(|finding| word(finding, "severity") == "error");
        let why = first.map_or_else(|| format!("{file}: it has errors"), in_a_line);
        let text = format!("{} refuses the description: {why}; {UNCHANGED}", self.0.display());
        Err(Failure::new(Exit::Configuration, text))
    }

    /// What it answers to `arguments`, as data; says that it waits if that takes long.
    fn ask(&self, face: Face, arguments: &[&str], within: Duration) -> Result<Value, Failure> {
        let failed = |why: String| {
            let text = format!("{} is no such program: {why}; {UNCHANGED}", self.0.display());
            Failure::new(Exit::Configuration, text)
        };
        let asked = arguments.get(..2).unwrap_or(arguments).join(" ");
        let tell = || {
            let (program, seconds) = (self.0.display(), within.as_secs());
            face.note(&format!("{program} is to answer `{asked}` within {seconds} s: waiting"));
        };
        let told = output(Command::new(&self.0).args(arguments), [TOLD_AFTER, within], tell);
        let told = told.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => {
                failed(format!("it does not answer `{asked}` within {} s", within.as_secs()))
            }
            _ => failed(error.to_string()),
        })?;
        let value = serde_json::from_slice(&told);
        value.map_err(|_| failed(format!("it does not answer `{asked}`")))
    }
}

/// The end of each refusal.
pub(super) const UNCHANGED: &str = "nothing is changed";

/// A finding with its place.
fn in_a_line(finding: &Value) -> String {
    let place = finding.get("place").unwrap_or(&Value::Null);
    let (line, column) = (number(place, "line"), number(place, "column"));
    format!("{}:{line}:{column}: {}", word(place, "file"), word(finding, "message"))
}

/// What a program writes to its standard output until it closes it. The program and all that it has
/// started in its process group are then ended. Calls `on_late` if that takes longer than `patience`.
fn output(
    command: &mut Command,
    [patience, within]: [Duration; 2],
    on_late: impl FnOnce(),
) -> io::Result<Vec<u8>> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.process_group(0).spawn()?;
    let (tell, told) = channel();
    if let Some(stdout) = child.stdout.take() {
        let read = move || {
            let mut octets = Vec::new();
            let read = stdout.take(ANSWER_MAX).read_to_end(&mut octets);
            // Nobody waits for an answer that is late.
            let _late = tell.send(read.map(|_| octets));
        };
        thread::Builder::new().name("program".to_owned()).spawn(read)?;
    }
    let told = match told.recv_timeout(patience.min(within)) {
        Err(RecvTimeoutError::Timeout) if patience < within => {
            on_late();
            told.recv_timeout(within.saturating_sub(patience))
        }
        told => told,
    };
    if let Ok(group) = i32::try_from(child.id()) {
        // It may have ended by itself; its number is not given to another before it is waited for.
        let _ended = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    child.wait()?;
    told.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn shell(script: &str, within: Duration) -> io::Result<Vec<u8>> {
        output(Command::new("sh").args(["-c", script]), [within; 2], || ())
    }

    #[test]
    fn the_user_is_told_that_a_program_is_waited_for() {
        for (script, is_late) in [("sleep 1000", true), ("printf one", false)] {
            let patience = Duration::from_millis(if is_late { 10 } else { 60_000 });
            let times = [patience, patience + Duration::from_millis(10)];
            let mut told = 0;
            let answer = output(Command::new("sh").args(["-c", script]), times, || told += 1);
            assert_eq!((answer.is_err(), told), (is_late, u32::from(is_late)), "{script}");
        }
    }

    #[test]
    fn an_answer_is_read_until_its_end() {
        let told = shell("printf one; printf two", Duration::from_mins(1)).unwrap();
        assert_eq!(told, b"onetwo");
        assert_eq!(shell("exit 1", Duration::from_mins(1)).unwrap(), b"");
    }

    /// Neither the program nor what it has started, which has its standard output, is waited for.
    #[test]
    fn a_program_that_does_not_answer_is_ended() {
        let began = Instant::now();
        let told = shell("sleep 1000 & sleep 1000", Duration::from_millis(50));
        assert_eq!(told.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() < Duration::from_secs(500));
    }

    #[test]
    fn a_finding_is_told_with_its_place() {
        let finding = serde_json::json!({
            "severity": "error", "message": "expected a value",
            "place": { "file": "q.toml", "line": 3, "column": 11 },
        });
        assert_eq!(in_a_line(&finding), "q.toml:3:11: expected a value");
    }
}
