//! Our own relay and tunnel, run as users run them: `gatewright gw run`.

use super::world::{MailSink, SINK, text};
use crate::binary;
use crate::programs::{example, made, written_in_c};
use gatewright_testbed::Process;
use std::fs;
use std::path::Path;

/// Ports of ours.
pub(super) const RELAY: u16 = 2541;
pub(super) const TUNNEL: u16 = 2542;
pub(super) const THREADS: u16 = 2543;
pub(super) const RELAY_IN_C: u16 = 2545;
pub(super) const RELAY_EACH: u16 = 2546;
/// Port of a second relay of any kind, which the clients that pipeline have for themselves.
pub(super) const APART: u16 = 2547;
const TUNNEL_WEB: u16 = 8080;

/// Runs an example with one loop, as the peers have one worker.
fn gateway(world: &MailSink, name: &str, at: [(&str, u16); 2]) -> Result<Process, String> {
    gateway_of(world, &example(name), at)
}

fn gateway_of(world: &MailSink, file: &Path, at: [(&str, u16); 2]) -> Result<Process, String> {
    let binary = binary()?;
    let at = at.map(|(role, port)| format!("{role}=127.0.0.1:{port}"));
    let [here, there] = &at;
    let file = file.to_string_lossy();
    let arguments = ["gw", "run", &file, "--loops", "1", "--at", here, "--at", there];
    let port = here.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0);
    world.start(&binary.to_string_lossy(), &arguments, port)
}

/// The one-hop relay in front of the sink.
pub(super) fn relay(world: &MailSink) -> Result<Process, String> {
    relay_at(world, RELAY)
}

/// The same at another port.
pub(super) fn relay_at(world: &MailSink, port: u16) -> Result<Process, String> {
    gateway(world, "smtp_relay.gate", [("inside", port), ("next", SINK)])
}

/// The same program without the line that keeps connections to the next server: it opens one for
/// each of its client's, as nginx does.
pub(super) fn relay_each(world: &MailSink) -> Result<Process, String> {
    let (relay, protocol) = ("smtp_relay.gate", "smtp.gate");
    let folder = world.folder.join("each");
    fs::create_dir_all(&folder).map_err(text)?;
    fs::copy(example(relay), folder.join(relay)).map_err(text)?;
    let kept = fs::read_to_string(example(protocol)).map_err(text)?;
    let keeps = |line: &&str| line.trim_start().starts_with("reuse ");
    if kept.lines().filter(keeps).count() != 1 {
        return Err(format!("{protocol} does not keep connections by one line"));
    }
    let each: String = kept
        .lines()
        .filter(|line| !keeps(line))
        .fold(String::new(), |text, line| text + line + "\n");
    fs::write(folder.join(protocol), each).map_err(text)?;
    gateway_of(world, &folder.join(relay), [("inside", RELAY_EACH), ("next", SINK)])
}

/// The same program, written as C and built in the folder of `world` unless it is there.
pub(super) fn relay_in_c(world: &MailSink) -> Result<Process, String> {
    relay_in_c_at(world, RELAY_IN_C)
}

/// The same at another port.
pub(super) fn relay_in_c_at(world: &MailSink, port: u16) -> Result<Process, String> {
    let folder = world.folder.join("c");
    if !folder.exists() {
        written_in_c("smtp_relay.gate", &folder)?;
        made(&folder)?;
    }
    let at = [format!("inside=127.0.0.1:{port}"), format!("next=127.0.0.1:{SINK}")];
    let program = folder.join("smtp_relay");
    world.start(&program.to_string_lossy(), &at.each_ref().map(String::as_str), port)
}

/// Both ends of the tunnel: SMTP to HTTP, and HTTP to SMTP.
pub(super) fn tunnel(world: &MailSink) -> Result<[Process; 2], String> {
    let far = gateway(world, "http_to_smtp.gate", [("web", TUNNEL_WEB), ("next", SINK)])?;
    let near = gateway(world, "smtp_to_http.gate", [("mail", TUNNEL), ("web", TUNNEL_WEB)])?;
    Ok([near, far])
}

/// The relay's program, driven by a blocking thread for each session.
pub(super) fn threads(world: &MailSink) -> Result<Process, String> {
    let here = std::env::current_exe().map_err(text)?;
    let port = THREADS.to_string();
    world.start(&here.to_string_lossy(), &[super::blocking::WORD, &port], THREADS)
}
