//! Processes: what they take, and whether they listen.

use gatewright_histogram::Histogram;
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long between two attempts to connect.
const ATTEMPTS_EVERY: Duration = Duration::from_millis(2);

#[expect(clippy::needless_pass_by_value, reason = "stands where `map_err` wants it")]
pub(crate) fn text(error: impl ToString) -> String {
    error.to_string()
}

/// Processor time that a process has had so far, with that of threads that have ended.
pub(crate) fn processor(id: u32) -> Result<Duration, String> {
    let id = Pid::from_raw(i32::try_from(id).map_err(text)?);
    let clock = clock_getcpuclockid(id).map_err(text)?;
    clock_gettime(clock).map(Duration::from).map_err(text)
}

/// Resident memory of a process's own, in KiB; what the kernel holds for it is not in it.
pub(crate) fn resident_kib(id: u32) -> Result<f64, String> {
    status_kib(id, "VmRSS:")
}

/// Memory of a process that is no file's, in KiB: without the pages of its binary, of which more are
/// resident when the page cache has more.
pub(crate) fn anonymous_kib(id: u32) -> Result<f64, String> {
    status_kib(id, "RssAnon:")
}

fn status_kib(id: u32, key: &str) -> Result<f64, String> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).map_err(text)?;
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u32>().ok());
    kib.map(f64::from).ok_or_else(|| format!("no {key}"))
}

/// What a gateway says of itself at its control socket.
pub(crate) fn status(binary: &Path, socket: &Path) -> Result<Value, String> {
    let mut status = Command::new(binary);
    status.args(["status", "--json", "--socket"]).arg(socket);
    let output = status.stderr(Stdio::null()).output().map_err(text)?;
    serde_json::from_slice(&output.stdout).map_err(text)
}

/// Histograms of a gateway's parts by their names.
pub(crate) type Histograms = BTreeMap<String, Histogram>;

/// Those in a status.
pub(crate) fn histograms(status: &Value) -> Histograms {
    let parts = status.get("parts").and_then(Value::as_array).into_iter().flatten();
    let of_part = |part: &Value| part.get("histograms").and_then(Value::as_array).cloned();
    let histogram = |histogram: Value| {
        let name = histogram.get("name")?.as_str()?.to_owned();
        Some((name, Histogram::deserialize(&histogram).ok()?))
    };
    parts.filter_map(of_part).flatten().filter_map(histogram).collect()
}

/// Waits until a process listens at an address.
///
/// # Errors
/// What the process wrote into its log, if it has ended or does not listen in time.
pub(crate) fn until_listening(
    child: &mut Child,
    address: SocketAddr,
    log: &Path,
    within: Duration,
) -> Result<(), String> {
    let end = Instant::now() + within;
    while TcpStream::connect(address).is_err() {
        let status = child.try_wait().map_err(text)?;
        if status.is_some() || Instant::now() > end {
            let state = status.map_or_else(|| "runs".to_owned(), |status| status.to_string());
            let written = fs::read_to_string(log).unwrap_or_default();
            return Err(format!("the gateway does not listen at {address} ({state}): {written}"));
        }
        thread::sleep(ATTEMPTS_EVERY);
    }
    Ok(())
}
