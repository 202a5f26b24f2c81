//! The trial of a program before it goes on in this process: its `run` begins with the same arguments in
//! a process of its own, reads what it reads at a start, says that it could begin, and ends.

use nix::{
    sys::{
        signal::{Signal, killpg},
        wait::{Id, WaitPidFlag, WaitStatus, waitid},
    },
    unistd::Pid,
};
use std::{
    env, io,
    io::Read,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

/// Set for a program that is on trial.
const TRIAL: &str = "GATEWRIGHT_TRIAL";

/// What a program on trial says on its standard output when it could begin.
const COULD_BEGIN: &str = "gatewright: the trial has found nothing that prevents a start";

/// Maximum time for the trial.
const TRIED_WITHIN: Duration = Duration::from_secs(10);
/// Time between two looks at whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Maximum time to read the rest of what a program has said that has ended.
const READ_WITHIN: Duration = Duration::from_millis(500);

/// Octets that are kept of what it says, the last ones, and the part of them that is told.
const SAID_MAX: usize = 8 << 10;
const TOLD_LINES: usize = 3;

/// Variables by which a service manager speaks to this process alone (sd_notify(3), sd_listen_fds(3)).
const OF_SERVICE: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
];

/// Whether this process is on trial.
pub(super) fn is_asked() -> bool {
    env::var_os(TRIAL).is_some()
}

/// Says that this process, which is on trial, could begin.
pub(super) fn pass(out: &mut impl io::Write) -> io::Result<()> {
    writeln!(out, "{COULD_BEGIN}")?;
    out.flush()
}

/// Tries `program` with the arguments of this process.
///
/// # Errors
///
/// How it has ended, and the end of what it has written to its standard error.
pub(super) fn try_out(program: &Path) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args(env::args_os().skip(1));
    outcome(&mut command, TRIED_WITHIN)
}

fn outcome(command: &mut Command, within: Duration) -> Result<(), String> {
    for name in OF_SERVICE {
        command.env_remove(name);
    }
    command.env(TRIAL, "1").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.process_group(0).spawn();
    let mut child = child.map_err(|error| format!("it does not start: {error}"))?;
    let said = [child.stdout.take().map(last_of), child.stderr.take().map(last_of)];
    let in_time = has_ended(&child, within);
    if let Ok(group) = i32::try_from(child.id()) {
        // What it has started ends with it. Its number is not given to another before it is waited for.
        let _ended = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    let [out, error] = said.map(|said| {
        let said = said.and_then(|said| said.recv_timeout(READ_WITHIN).ok()).unwrap_or_default();
        String::from_utf8_lossy(&said).into_owned()
    });
    if in_time && status.success() && out.lines().any(|line| line == COULD_BEGIN) {
        return Ok(());
    }
    let how = if in_time {
        format!("its `run` ends at once ({status})")
    } else {
        format!("its `run` has not begun within {} s", within.as_secs())
    };
    let end = end_of(&error);
    Err(if end.is_empty() { how } else { format!("{how}: {end}") })
}

/// Waits until a child has ended, which keeps its number; returns whether it has in time.
fn has_ended(child: &Child, within: Duration) -> bool {
    let deadline = Instant::now() + within;
    let Ok(process) = i32::try_from(child.id()) else { return false };
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    loop {
        // An error says that it has been waited for.
        if waitid(Id::Pid(Pid::from_raw(process)), flags) != Ok(WaitStatus::StillAlive) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Receives the last octets of a stream when that has ended.
fn last_of(mut stream: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (tell, told) = channel();
    let read = move || {
        let (mut last, mut part) = (Vec::new(), [0; 1024]);
        while let Ok(len @ 1..) = stream.read(&mut part) {
            last.extend_from_slice(part.get(..len).unwrap_or_default());
            let old = last.len().saturating_sub(SAID_MAX);
            last.drain(..old);
        }
        // Nobody waits for what comes late.
        let _late = tell.send(last);
    };
    // Without a thread nothing is told.
    let _started = thread::Builder::new().name("trial".to_owned()).spawn(read);
    told
}

/// The last lines of what a program has said, as one.
fn end_of(said: &str) -> String {
    let lines: Vec<_> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let from = lines.len().saturating_sub(TOLD_LINES);
    lines.get(from..).unwrap_or_default().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, within: Duration) -> (Result<(), String>, Duration) {
        let began = Instant::now();
        (outcome(Command::new("sh").args(["-c", script]), within), began.elapsed())
    }

    #[test]
    fn a_program_that_could_begin_says_so() {
        let script =
            format!("[ $GATEWRIGHT_TRIAL = 1 ] && [ -z $NOTIFY_SOCKET ] && echo '{COULD_BEGIN}'");
        assert_eq!(shell(&script, Duration::from_mins(1)).0, Ok(()));
        let mut said = Vec::new();
        pass(&mut said).unwrap();
        assert_eq!(said, format!("{COULD_BEGIN}\n").into_bytes());
    }

    /// One that ends is told with its status and the end of what it said, and soon.
    #[test]
    fn a_program_that_ends_at_once_is_told() {
        let cases = [
            ("true", "its `run` ends at once (exit status: 0)"),
            (
                "echo one >&2; echo two >&2; echo three >&2; echo four >&2; exit 3",
                "its `run` ends at once (exit status: 3): two; three; four",
            ),
            ("kill -KILL $$", "its `run` ends at once (signal: 9 (SIGKILL))"),
            // What it has started has its standard error, and is not waited for.
            (
                "sleep 1000 & echo broken >&2; exit 1",
                "its `run` ends at once (exit status: 1): broken",
            ),
        ];
        for (script, expected) in cases {
            let (outcome, elapsed) = shell(script, Duration::from_mins(1));
            assert_eq!(outcome, Err(expected.to_owned()));
            assert!(elapsed < Duration::from_secs(30), "{script}: {elapsed:?}");
        }
        let missing = outcome(&mut Command::new("/no/such/program"), Duration::from_mins(1));
        assert!(missing.unwrap_err().starts_with("it does not start: "));
    }

    #[test]
    fn a_program_that_does_not_end_is_ended() {
        let (outcome, elapsed) = shell("sleep 1000 & sleep 1000", Duration::from_millis(50));
        assert_eq!(outcome, Err("its `run` has not begun within 0 s".to_owned()));
        assert!(elapsed < Duration::from_secs(500));
    }

    #[test]
    fn only_the_end_of_much_is_kept() {
        let script = "i=0; while [ $i -lt 3000 ]; do echo line $i >&2; i=$((i+1)); done; exit 1";
        let (outcome, _) = shell(script, Duration::from_mins(1));
        let expected = "its `run` ends at once (exit status: 1): line 2997; line 2998; line 2999";
        assert_eq!(outcome, Err(expected.to_owned()));
    }
}
