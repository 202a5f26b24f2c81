//! `gatewright demo planes`: two planes as two processes of this binary, each killed while datagrams
//! pass between two kernels.

use super::{CheckAnswer, DemoReport};
use anyhow::Result;
use gatewright_command::{exit::Exit, face::Face};
use gatewright_gateway::api::{ControlRequest, ask};
use gatewright_testbed::{Namespace, Process, TestbedError, Veth, wait_until};
use serde_json::Value;
use std::{
    fs,
    net::UdpSocket,
    path::PathBuf,
    process::{Output, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread::sleep,
    time::{Duration, Instant},
};

/// The receiver behind the gateway.
const SOUTH: &str = "10.10.2.2:7000";
/// How long anything here may take.
const WITHIN: Duration = Duration::from_secs(20);
/// Datagrams after a death of the control plane, and those on their way at once.
const DATAGRAMS: u32 = 20_000;
const AT_ONCE: u32 = 32;
/// The longest time without a datagram when the data plane dies.
const GAP_MAX: Duration = Duration::from_millis(300);
/// Between two datagrams while the data plane is killed, and how long it is looked at.
const EVERY: Duration = Duration::from_millis(1);
const LOOK: Duration = Duration::from_millis(1500);

const PICTURE: &str = "
    north ── lan ── data plane ── wan ── south
                      │     process 2: moves packets
                    control plane
                            process 1: everything else
";

/// The demo's network, and the processes in it.
struct PlanesDemo {
    middle: Namespace,
    _hosts: [Namespace; 2],
    _cables: [Veth; 2],
    folder: PathBuf,
    sender: UdpSocket,
    receiver: UdpSocket,
    control: Option<Process>,
}

type Outcome = Result<String, String>;

#[expect(clippy::needless_pass_by_value, reason = "stands where `map_err` wants it")]
fn text(error: impl ToString) -> String {
    error.to_string()
}

impl PlanesDemo {
    fn build() -> Result<Self> {
        let [north, middle, south] = [Namespace::new()?, Namespace::new()?, Namespace::new()?];
        let lan = Veth::pair(&north, "north", &middle, "lan")?;
        let wan = Veth::pair(&middle, "wan", &south, "south")?;
        lan.a.add_address("10.10.1.2/24")?;
        wan.b.add_address("10.10.2.2/24")?;
        lan.up()?;
        wan.up()?;
        north.add_route("default", "10.10.1.1")?;
        let sender = north.run(|| UdpSocket::bind("10.10.1.2:0"))??;
        let receiver = south.run(|| UdpSocket::bind(SOUTH))??;
        receiver.set_read_timeout(Some(Duration::from_millis(100)))?;
        let folder = std::env::temp_dir().join(format!("gatewright-demo-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let description = "[planes]\nmode = \"process\"\n\
                           [link.lan]\naddresses = [\"10.10.1.1/24\"]\n\
                           [link.wan]\naddresses = [\"10.10.2.1/24\"]\n";
        fs::write(folder.join("gateway.toml"), description)?;
        Ok(Self {
            middle,
            _hosts: [north, south],
            _cables: [lan, wan],
            folder,
            sender,
            receiver,
            control: None,
        })
    }

    /// Starts a control plane, and waits until it answers.
    fn start(&mut self) -> Result<(), String> {
        let own = std::env::current_exe().map_err(text)?;
        let said = fs::File::create(self.folder.join("said")).map_err(text)?;
        let command = self.middle.command(&own.to_string_lossy()).arg("run");
        let command = command.arg(self.folder.join("gateway.toml")).arg("--socket");
        let command = command.arg(self.folder.join("socket")).stdout(Stdio::null()).stderr(said);
        self.control = Some(command.spawn().map_err(text)?);
        if wait_until(WITHIN, || self.planes().is_ok()) { Ok(()) } else { Err(self.said()) }
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.join("said")).unwrap_or_default()
    }

    /// What the gateway says of its planes.
    fn planes(&self) -> Result<Value, String> {
        let status = ask(&self.folder.join("socket"), &ControlRequest::Status).map_err(text)?;
        status.get("planes").cloned().ok_or_else(|| "no planes".to_owned())
    }

    /// The number of the data plane's process.
    fn data(&self) -> Result<u64, String> {
        let data = self.planes()?.get("data").and_then(Value::as_u64);
        data.ok_or_else(|| "the data plane has no process of its own".to_owned())
    }

    /// Sends a signal to a process, by its number in the gateway's namespace.
    fn signal(&self, signal: &str, number: &str) -> Result<Output, TestbedError> {
        let kill = format!("kill {signal} {number}");
        self.middle.command("sh").args(["-c", &kill]).stderr(Stdio::null()).output()
    }

    fn passes(&self) -> bool {
        self.sender.send_to(&[0], SOUTH).is_ok() && self.receiver.recv(&mut [0; 8]).is_ok()
    }

    /// Sends datagrams, some at once, and counts those that arrive.
    fn pass(&self) -> Result<u32, String> {
        while self.receiver.recv(&mut [0; 8]).is_ok() {}
        let mut came = 0;
        for _ in 0..DATAGRAMS / AT_ONCE {
            for _ in 0..AT_ONCE {
                self.sender.send_to(&[1], SOUTH).map_err(text)?;
            }
            for _ in 0..AT_ONCE {
                came += u32::from(self.receiver.recv(&mut [0; 8]).is_ok());
            }
        }
        Ok(came)
    }

    fn both_run(&mut self) -> Outcome {
        self.start()?;
        if !wait_until(WITHIN, || self.passes()) {
            return Err(format!("nothing passes: {}", self.said()));
        }
        let planes = self.planes()?;
        let number = |name: &str| planes.get(name).and_then(Value::as_u64).unwrap_or_default();
        Ok(format!("control is process {}, data is process {}", number("control"), number("data")))
    }

    fn control_dies(&mut self) -> Outcome {
        self.control.take().ok_or("no control plane runs")?.kill();
        let came = self.pass()?;
        let text = format!("{came} of {DATAGRAMS} datagrams arrive without a control plane");
        if came == DATAGRAMS { Ok(text) } else { Err(text) }
    }

    fn control_returns(&mut self) -> Outcome {
        let started = Instant::now();
        self.start()?;
        let ms = started.elapsed().as_millis();
        let adopted = self.planes()?.get("adopted").and_then(Value::as_bool);
        let came = self.pass()?;
        let text = format!("answers after {ms} ms, {came} of {DATAGRAMS} datagrams arrive");
        if adopted == Some(true) && came == DATAGRAMS { Ok(text) } else { Err(text) }
    }

    fn data_dies(&mut self) -> Outcome {
        let before = self.data()?;
        let number = before.to_string();
        let over = AtomicBool::new(false);
        let longest = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    // Refused while nobody forwards.
                    let _refused = self.sender.send_to(&[2], SOUTH);
                    sleep(EVERY);
                }
            });
            let longest = scope.spawn(|| self.longest_gap());
            sleep(LOOK / 5);
            let killed = self.signal("-KILL", &number);
            let longest = longest.join().map_err(|_| "the receiver has failed".to_owned());
            over.store(true, Ordering::Release);
            killed.map_err(text).and(longest)
        })?;
        let after = self.data()?;
        let text = format!(
            "process {after} for {before}: nothing arrived for {} ms (at most {})",
            longest.as_millis(),
            GAP_MAX.as_millis()
        );
        if after != before && longest <= GAP_MAX { Ok(text) } else { Err(text) }
    }

    /// The longest time without a datagram.
    fn longest_gap(&self) -> Duration {
        let (began, mut longest, mut last) = (Instant::now(), Duration::ZERO, Instant::now());
        while began.elapsed() < LOOK {
            if self.receiver.recv(&mut [0; 8]).is_ok() {
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
        }
        longest.max(last.elapsed())
    }

    fn both_end(&mut self) -> Outcome {
        let number = self.data()?.to_string();
        let control = self.control.take().ok_or("no control plane runs")?;
        control.terminate().map_err(text)?;
        control.wait().map_err(text)?;
        let is_gone = || self.signal("-0", &number).is_ok_and(|told| !told.status.success());
        let gone = wait_until(WITHIN, is_gone);
        if gone { Ok("no process is left".to_owned()) } else { Err(format!("{number} runs on")) }
    }
}

impl Drop for PlanesDemo {
    fn drop(&mut self) {
        // What is in the namespaces ends with them.
        let _gone = fs::remove_dir_all(&self.folder);
    }
}

type Check = fn(&mut PlanesDemo) -> Outcome;

const CHECKS: [(&str, Check); 5] = [
    ("two processes forward", PlanesDemo::both_run),
    ("control is killed", PlanesDemo::control_dies),
    ("control is started again", PlanesDemo::control_returns),
    ("the data plane is killed", PlanesDemo::data_dies),
    ("SIGTERM ends both", PlanesDemo::both_end),
];

/// Shows the planes.
pub(super) fn run(face: Face) -> Result<Exit> {
    face.note(PICTURE);
    let mut demo = PlanesDemo::build()?;
    let mut checks = Vec::new();
    for (name, check) in CHECKS {
        let start = Instant::now();
        checks.push(CheckAnswer::show(face, name, start, check(&mut demo)));
    }
    let answer = DemoReport::of("planes", Vec::new(), checks);
    face.answer(&answer, || answer.summary())?;
    Ok(if answer.passed { Exit::Success } else { Exit::Negative })
}
