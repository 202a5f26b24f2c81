//! The control plane's process while another program goes on in it.

use std::{fs, os::unix::process::ExitStatusExt, process::ExitStatus};

/// A process by its number and when it began, which no other process has together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ControlProcess {
    number: u32,
    began: u64,
}

/// What `/proc/PID/stat` says of a process (proc_pid_stat(5)).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct ProcessStat {
    state: char,
    /// Ticks since the system's start.
    began: u64,
    /// As by waitpid(2); 0 for who may not know it.
    status: i32,
}

/// The fields of that file, counted from the one behind the name.
const STATE: usize = 0;
const BEGAN: usize = 19;
const STATUS: usize = 49;

impl ControlProcess {
    /// The process with this number; `None` if nothing is known of it.
    pub(super) fn of(number: u32) -> Option<Self> {
        Some(Self { number, began: stat(number)?.began })
    }

    /// How it has ended, in words, if it has; also as another program, which keeps both.
    pub(super) fn end(&self) -> Option<String> {
        let now = stat(self.number).filter(|now| now.began == self.began);
        match now {
            Some(ProcessStat { state: 'Z' | 'X', status, .. }) if status != 0 => {
                Some(format!("has ended ({})", ExitStatus::from_raw(status)))
            }
            Some(ProcessStat { state: 'Z' | 'X', .. }) | None => Some("has ended".to_owned()),
            Some(_) => None,
        }
    }
}

fn stat(number: u32) -> Option<ProcessStat> {
    parsed(&fs::read_to_string(format!("/proc/{number}/stat")).ok()?)
}

fn parsed(stat: &str) -> Option<ProcessStat> {
    // The name may have any character.
    let fields: Vec<_> = stat.rsplit_once(") ")?.1.split_ascii_whitespace().collect();
    Some(ProcessStat {
        state: fields.get(STATE)?.chars().next()?,
        began: fields.get(BEGAN)?.parse().ok()?,
        // Kernels before 3.5 have it not.
        status: fields.get(STATUS).and_then(|status| status.parse().ok()).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        process::Command,
        time::{Duration, Instant},
    };

    #[test]
    fn a_process_is_told_by_its_fields() {
        let stat = "4711 (a ) R name) Z 1 4711 4711 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 987654 0 0 \
                    18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 768\n";
        let expected = ProcessStat { state: 'Z', began: 987_654, status: 768 };
        assert_eq!(parsed(stat), Some(expected));
        assert_eq!(ExitStatus::from_raw(expected.status).code(), Some(3));
        assert_eq!(parsed("4711 (name) Z 1"), None);
    }

    /// The end is told as soon as it has come, before anybody waits for the process and afterwards.
    #[test]
    fn the_end_of_a_process_is_told_with_its_status() {
        let mut command = Command::new("sh");
        let command = command.args(["-c", "read x; exit 3"]);
        let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let process = ControlProcess::of(child.id()).unwrap();
        assert_eq!(process.end(), None);
        drop(child.stdin.take());
        let began = Instant::now();
        let end = loop {
            assert!(began.elapsed() < Duration::from_mins(1));
            if let Some(end) = process.end() {
                break end;
            }
        };
        // A kernel that hides it from others tells nothing more.
        assert!(["has ended (exit status: 3)", "has ended"].contains(&&*end), "{end}");
        child.wait().unwrap();
        assert_eq!(process.end().as_deref(), Some("has ended"));
    }
}
