//! The loopback of one namespace with a mail sink, what stands before it, and load.

use crate::process;
pub(super) use crate::process::text;
use gatewright_testbed::{Namespace, Process, wait_until};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Where the sink listens.
pub(super) const SINK: u16 = 2525;
/// Generous: a program that is not there by then does not start.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Octets at the end of what the sink has printed that surely hold its last counts.
const TAIL: i64 = 120;

/// One run of the load generator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Sessions at once.
    pub(super) sessions: u32,
    /// Messages, of all sessions together.
    pub(super) messages: u32,
    /// Octets of each message's body.
    pub(super) octets: u32,
    /// Whether sessions go on with their connection, or make a new one for each message.
    pub(super) kept: bool,
}

/// A namespace with a mail sink in it.
pub(super) struct MailSink {
    pub(super) net: Namespace,
    pub(super) folder: PathBuf,
    _sink: Process,
}

impl MailSink {
    /// Starts the sink; what the programs write lies in `folder`.
    pub(super) fn new(folder: &Path) -> Result<Self, String> {
        let net = Namespace::new().map_err(text)?;
        let printed = File::create(folder.join("sink")).map_err(text)?;
        let sink = format!("127.0.0.1:{SINK}");
        // The greatest number of sessions is the sink's own choice to make; 256 is its default.
        let sink = ["-c", "-u", "nobody", "-m", "20000", &sink, "4096"];
        let sink = net.command("smtp-sink").args(sink).stdout(printed);
        let sink = sink.stderr(Stdio::null()).spawn().map_err(text)?;
        let world = Self { net, folder: folder.to_owned(), _sink: sink };
        world.await_port(SINK)?;
        Ok(world)
    }

    /// Starts a program that listens on `port`, and waits until it does.
    pub(super) fn start(
        &self,
        program: &str,
        arguments: &[&str],
        port: u16,
    ) -> Result<Process, String> {
        let log = File::create(self.folder.join(format!("{port}.log"))).map_err(text)?;
        let command = self.net.command(program).args(arguments).stdout(Stdio::null()).stderr(log);
        let process = command.spawn().map_err(text)?;
        self.await_port(port).map_err(|problem| {
            let log = fs::read_to_string(self.folder.join(format!("{port}.log")));
            format!("{program}: {problem}: {}", log.unwrap_or_default())
        })?;
        Ok(process)
    }

    fn await_port(&self, port: u16) -> Result<(), String> {
        let connects = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        let listens = || self.net.run(connects).unwrap_or(false);
        let ready = wait_until(READY_WITHIN, listens);
        if ready { Ok(()) } else { Err(format!("nothing listens on port {port}")) }
    }

    /// Sends mail to `port` and returns how long it took.
    ///
    /// Fails unless the sink has counted each message.
    pub(super) fn send(&self, port: u16, load: Load) -> Result<Duration, String> {
        let Load { sessions, messages, octets, kept } = load;
        let before = self.received()?;
        let mut arguments: Vec<String> = if kept { vec!["-d".to_owned()] } else { Vec::new() };
        let numbers = [("-s", sessions), ("-m", messages), ("-l", octets)];
        arguments.extend(numbers.iter().flat_map(|(name, n)| [(*name).to_owned(), n.to_string()]));
        let letter = ["-f", "a@example.com", "-t", "b@example.com"];
        arguments.extend(letter.map(str::to_owned));
        arguments.push(format!("127.0.0.1:{port}"));
        let source = self.net.command("smtp-source").args(arguments).stdin(Stdio::null());
        let start = Instant::now();
        let output = source.output().map_err(text)?;
        let elapsed = start.elapsed();
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("smtp-source to port {port}: {}: {said}", output.status));
        }
        let arrived = || self.received().is_ok_and(|now| now - before >= u64::from(messages));
        if wait_until(READY_WITHIN, arrived) {
            Ok(elapsed)
        } else {
            let arrived = self.received()?.saturating_sub(before);
            Err(format!("the sink has {arrived} of {messages} messages sent to port {port}"))
        }
    }

    /// How many messages the sink has counted.
    pub(super) fn received(&self) -> Result<u64, String> {
        let mut printed = File::open(self.folder.join("sink")).map_err(text)?;
        let length = i64::try_from(printed.metadata().map_err(text)?.len()).map_err(text)?;
        printed.seek(SeekFrom::End(-TAIL.min(length))).map_err(text)?;
        let mut tail = String::new();
        printed.read_to_string(&mut tail).map_err(text)?;
        Ok(last_count(&tail).unwrap_or(0))
    }
}

/// The last `mesg=N` that a `\r` ends.
fn last_count(printed: &str) -> Option<u64> {
    let (whole, _) = printed.rsplit_once('\r')?;
    let (_, count) = whole.rsplit_once("mesg=")?;
    count.trim().parse().ok()
}

/// Processor time that a process has had so far, with that of threads that have ended.
pub(super) fn processor(process: &Process) -> Result<Duration, String> {
    process::processor(process.id().ok_or("the process has ended")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_count_is_taken() {
        assert_eq!(last_count("sess=1 quit=1 mesg=17\rsess=2 quit=1 mesg=18\r"), Some(18));
        assert_eq!(last_count("sess=1 quit=1 mesg=  17\rsess=2 quit=1 mesg=1"), Some(17));
        assert_eq!(last_count(""), None);
    }
}
