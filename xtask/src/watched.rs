//! A command whose lines are heard as they come, and that is not waited for when it has hung.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How often it is looked whether the command has ended, though somebody holds its output open.
const LOOK: Duration = Duration::from_millis(200);

/// How long it takes at most until the last lines of a command that has ended are here.
const LAST_LINES: Duration = Duration::from_secs(5);

/// What is heard of a command: a line, without its end.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum OutputLine {
    /// Of the standard output.
    Output(String),
    /// Of the standard error.
    Errors(String),
    /// None: nothing was said for too long, and what runs is killed.
    Silence,
}

/// A command under way.
pub(crate) struct Watched {
    child: Child,
    lines: Receiver<OutputLine>,
    /// How long it may say nothing.
    patience: Duration,
}

impl Watched {
    /// Starts a command that may say nothing for `patience`.
    ///
    /// # Errors
    ///
    /// Those of the system, if it does not start.
    pub(crate) fn start(command: &mut Command, patience: Duration) -> std::io::Result<Self> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (sender, lines) = channel();
        hear(child.stdout.take(), OutputLine::Output, sender.clone());
        hear(child.stderr.take(), OutputLine::Errors, sender);
        Ok(Self { child, lines, patience })
    }

    /// Hands each line to `see` until the command has ended. When it has said nothing for too long
    /// it is killed with what it has started.
    pub(crate) fn finish(mut self, mut see: impl FnMut(OutputLine)) -> Option<ExitStatus> {
        let mut heard_at = Instant::now();
        let mut ended = None;
        loop {
            match self.lines.recv_timeout(LOOK) {
                Ok(line) => {
                    see(line);
                    heard_at = Instant::now();
                }
                Err(RecvTimeoutError::Disconnected) => return self.child.wait().ok(),
                Err(RecvTimeoutError::Timeout) if ended.is_some() => {
                    // Whoever outlives it has nothing to say.
                    if heard_at.elapsed() > LAST_LINES {
                        return ended;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    ended = self.child.try_wait().ok().flatten();
                    if ended.is_some() {
                        heard_at = Instant::now();
                    } else if heard_at.elapsed() > self.patience {
                        see(OutputLine::Silence);
                        self.kill();
                        heard_at = Instant::now();
                    }
                }
            }
        }
    }

    /// Kills the command and what it has started.
    fn kill(&mut self) {
        let children = children(self.child.id());
        // It may have ended just now.
        let _ended = self.child.kill();
        for child in children {
            let _ended = Command::new("sh").args(["-c", &format!("kill -KILL {child}")]).status();
        }
    }
}

fn hear(
    stream: Option<impl Read + Send + 'static>,
    kind: fn(String) -> OutputLine,
    to: Sender<OutputLine>,
) {
    thread::spawn(move || {
        let lines = stream.map(|stream| BufReader::new(stream).split(b'\n'));
        for line in lines.into_iter().flatten().map_while(Result::ok) {
            // Nobody listens any more once the command has ended.
            if to.send(kind(String::from_utf8_lossy(&line).into_owned())).is_err() {
                return;
            }
        }
    });
}

/// The processes that `parent` has started and that still run.
fn children(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |process: &u32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // Behind the name in parentheses, which may hold anything: the state, then the parent.
        let behind = stat.rsplit_once(") ").map_or("", |(_, behind)| behind);
        behind.split(' ').nth(1).is_some_and(|it| it.parse() == Ok(parent))
    };
    numbers.filter(is_child).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, patience: Duration) -> (Vec<OutputLine>, Option<ExitStatus>) {
        let mut lines = Vec::new();
        let watched = Watched::start(Command::new("sh").args(["-c", script]), patience).unwrap();
        let status = watched.finish(|line| lines.push(line));
        (lines, status)
    }

    const LONG: Duration = Duration::from_mins(10);

    #[test]
    fn each_line_is_heard_and_the_end() {
        let (lines, status) = run("echo one; echo two; exit 3", LONG);
        assert_eq!(lines, ["one", "two"].map(|line| OutputLine::Output(line.to_owned())));
        assert_eq!(status.and_then(|status| status.code()), Some(3));
        let (lines, _) = run("echo wrong >&2", LONG);
        assert_eq!(lines, [OutputLine::Errors("wrong".to_owned())]);
    }

    #[test]
    fn who_outlives_it_is_not_waited_for() {
        let (lines, status) = run("sleep 600 & echo $!", LONG);
        assert!(status.is_some_and(|status| status.success()));
        let [OutputLine::Output(sleeper)] = &lines[..] else { panic!("{lines:?}") };
        let kill = format!("kill {sleeper}");
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success(), "it slept on");
    }

    #[test]
    fn what_hangs_is_killed_with_what_it_has_started() {
        let (lines, status) = run("sleep 600 & echo $!; wait; echo after", Duration::from_secs(1));
        let [OutputLine::Output(sleeper), OutputLine::Silence] = &lines[..] else {
            panic!("{lines:?}")
        };
        assert!(status.is_some_and(|status| !status.success()));
        // It closes its output before it has ended, and nobody may ask how it ended.
        let stat = || fs::read_to_string(format!("/proc/{sleeper}/stat")).unwrap_or_default();
        let is_gone = |stat: String| stat.is_empty() || stat.contains(") Z ");
        let begun = Instant::now();
        while !is_gone(stat()) {
            assert!(begun.elapsed() < Duration::from_secs(30), "it sleeps on: {}", stat());
            thread::sleep(LOOK);
        }
    }
}
