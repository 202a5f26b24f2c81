//! DPDK's `testpmd`, where it is installed: one core that polls both ends, writes the receiver's
//! link-layer address, and sends on. It knows no IP, so it does less than a gateway.

use super::world::{RECEIVER_MAC, TestHosts};
use gatewright_testbed::{Needs, Process, wait_until};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Debian has it in a package with all of DPDK, which set-up does not ask for.
pub(crate) const PROGRAM: &str = "dpdk-testpmd";

/// DPDK's drivers of interfaces that the kernel has.
pub(crate) const AF_XDP: &str = "net_af_xdp";
pub(crate) const AF_PACKET: &str = "net_af_packet";

/// How long it may take to say that it forwards.
const STARTS_WITHIN: Duration = Duration::from_secs(20);

/// What it says then.
const READY: &str = "Press enter to exit";

/// Fewer packets than this are no flood, but what a kernel says when a cable comes up.
const FLOOD_MIN: u64 = 100;

/// A running testpmd.
pub(crate) struct Testpmd {
    process: Process,
    said: Arc<Mutex<String>>,
    listener: JoinHandle<()>,
}

/// Why it cannot be measured here, if so.
pub(crate) fn missing() -> Option<String> {
    let missing = Needs::new().program(PROGRAM).program("stdbuf").missing()?;
    Some(format!("{missing} (Debian: dpdk-dev)"))
}

impl Testpmd {
    /// Starts it between the gateway's two ends, which it has by this driver of DPDK; its forwarding
    /// core is the gateway's processor.
    pub(crate) fn start(world: &TestHosts, driver: &str) -> Result<Self, String> {
        let peer = format!("--eth-peer=1,{RECEIVER_MAC}");
        let device = ["--no-pci", "--no-huge", "-m", "512", "--no-telemetry", "--no-shconf"];
        let [lan, wan] = [0, 1].map(|end| format!("--vdev={driver}{end},iface=g{end}"));
        let links = ["-l", "0,1", lan.as_str(), wan.as_str()];
        let forward = ["--", "--forward-mode=mac", &peer, "--auto-start", "--nb-cores=1"];
        let forward = forward.into_iter().chain(["--total-num-mbufs=32768"]);
        // Into a pipe it would say so only at its end.
        let command = world.gateway.command("stdbuf").args(["-oL", PROGRAM]);
        let command = command.args(device).args(links).args(forward);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().map_err(|error| error.to_string())?;
        let output = process.stdout().ok_or("its output is not ours")?;
        let said = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&said);
        let listener = std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            // To its end, for what it says when it ends.
            while output.by_ref().take(4096).read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
                let text = String::from_utf8_lossy(&line).into_owned();
                heard.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
                line.clear();
            }
        });
        let mut this = Self { process, said, listener };
        let ready = wait_until(STARTS_WITHIN, || {
            this.said().contains(READY)
                || this.process.try_wait().is_ok_and(|ended| ended.is_some())
        });
        if ready && this.said().contains(READY) {
            return Ok(this);
        }
        let said = this.said();
        Err(format!("it does not start: {}", said.lines().last().unwrap_or("it says nothing")))
    }

    fn said(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends it; refuses if it says that it has sent nothing.
    pub(crate) fn finish(mut self) -> Result<(), String> {
        let mut input = self.process.stdin().ok_or("its input is not ours")?;
        // It has ended by itself if this fails, and says nothing below.
        let _ended = input.write_all(b"\n");
        drop(input);
        let Self { process, said, listener } = self;
        process.wait().map_err(|error| error.to_string())?;
        listener.join().map_err(|_| "who listened to it panicked".to_owned())?;
        let said = said.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let counts = said.lines().filter_map(|line| line.split("TX-packets: ").nth(1));
        let counts = counts.filter_map(|rest| rest.split_whitespace().next()?.parse().ok());
        if counts.max().unwrap_or(0_u64) < FLOOD_MIN {
            return Err("it does not say that it has sent what arrived".to_owned());
        }
        Ok(())
    }
}
