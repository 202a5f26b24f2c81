//! A gateway of the binary between two kernel hosts, for the verbs that ask a running one.
#![allow(dead_code, reason = "no test needs all of this")]

use gatewright_testbed::{Namespace, Process, Veth, wait_until};
use serde_json::Value;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fs, ops::Deref, path::PathBuf};

/// How long a gateway has to answer, and a packet to arrive.
pub(crate) const WITHIN: Duration = Duration::from_secs(30);

/// The description that every gateway here begins with.
pub(crate) const DESCRIPTION: &str = "\
[link.lan]
device = \"g0\"
mode = \"packet\"
addresses = [\"10.10.1.1/24\", \"fd00:1::1/64\"]

[link.wan]
device = \"g1\"
mode = \"packet\"
addresses = [\"10.10.2.1/24\", \"fd00:2::1/64\"]
";

/// The host behind `wan`; the one behind `lan` is 10.10.1.2.
pub(crate) const SOUTH: &str = "10.10.2.2";

/// Two hosts with a running gateway between them.
pub(crate) struct Running {
    pub(crate) north: Namespace,
    pub(crate) south: Namespace,
    daemon: Daemon,
    pub(crate) middle: Namespace,
    _links: [Veth; 2],
}

/// A running gateway.
pub(crate) struct Daemon {
    pub(crate) folder: PathBuf,
    pub(crate) process: Process,
}

impl Deref for Running {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}

/// What one run of the binary said.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// The answer as data.
    pub(crate) fn json(&self) -> Value {
        let read = serde_json::from_str(&self.out);
        read.unwrap_or_else(|error| panic!("{error} in {}{}", self.out, self.err))
    }

    /// The text of an answer that must be there.
    #[track_caller]
    pub(crate) fn text(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.err);
        self.out
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |octets: Vec<u8>| String::from_utf8_lossy(&octets).into_owned();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Running {
    /// Starts one, in a folder called `name`, and waits until packets pass.
    pub(crate) fn start(name: &str) -> Self {
        let [north, middle, south] = [(); 3].map(|()| Namespace::new().unwrap());
        let lan = Veth::pair(&north, "n0", &middle, "g0").unwrap();
        let wan = Veth::pair(&middle, "g1", &south, "s0").unwrap();
        lan.a.add_address("10.10.1.2/24").unwrap();
        wan.b.add_address("10.10.2.2/24").unwrap();
        lan.up().unwrap();
        wan.up().unwrap();
        north.add_route("default", "10.10.1.1").unwrap();
        south.add_route("default", "10.10.2.1").unwrap();
        let daemon = Daemon::start(name, &middle, DESCRIPTION);
        let running = Self { north, south, daemon, middle, _links: [lan, wan] };
        let passes = || running.ping(&["-c1", "-W1", SOUTH]);
        assert!(wait_until(WITHIN, passes), "packets pass: {}", running.said());
        running
    }

    /// Whether the host behind `lan` has all its answers.
    pub(crate) fn ping(&self, arguments: &[&str]) -> bool {
        ping(&self.north, arguments)
    }
}

/// Whether `host` has all its answers. Once it has one, `ping` waits for the others as long as the
/// interval, or twice the longest time before, and no longer: several are sent at once (`-l`) with a
/// long interval.
pub(crate) fn ping(host: &Namespace, arguments: &[&str]) -> bool {
    let ping = host.command("ping").args(["-n", "-q"]).args(arguments).output().unwrap();
    ping.status.success() && String::from_utf8_lossy(&ping.stdout).contains(" 0% packet loss")
}

/// Whether each of so many requests, one after the other, has its answer. (`ping -c` with more than
/// one waits for the last answer only twice as long as for the others: a moment's pause is a loss.)
pub(crate) fn ping_times(host: &Namespace, times: u32, to: &str) -> bool {
    (0..times).all(|_| ping(host, &["-c1", "-W30", to]))
}

/// Datagrams that a host sends to another one and that come back, numbered.
pub(crate) struct Traffic {
    sender: JoinHandle<()>,
    receiver: JoinHandle<BTreeSet<u32>>,
    ended: Arc<AtomicBool>,
    echo: JoinHandle<()>,
}

impl Traffic {
    /// Begins to send so many, one every `pause`, from `north` to `to` in `south`.
    pub(crate) fn start(
        [north, south]: [&Namespace; 2],
        to: &str,
        count: u32,
        pause: Duration,
    ) -> Self {
        let open = |host: &Namespace, at: (&str, u16)| {
            let socket = host.run(|| UdpSocket::bind(at)).unwrap().unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            socket
        };
        let (far, near) = (open(south, (to, 7)), open(north, ("0.0.0.0", 0)));
        let ended = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&ended);
        let echo = thread::spawn(move || {
            let mut octets = [0; 64];
            while !over.load(Ordering::SeqCst) {
                // Nothing has come, or somebody was not there: both pass.
                let Ok((length, from)) = far.recv_from(&mut octets) else { continue };
                let _sent = far.send_to(&octets[..length], from);
            }
        });
        let (sending, to) = (near.try_clone().unwrap(), (to.to_owned(), 7));
        let sender = thread::spawn(move || {
            for number in 0..count {
                let _sent = sending.send_to(&number.to_be_bytes(), (to.0.as_str(), to.1));
                thread::sleep(pause);
            }
        });
        let receiver = thread::spawn(move || {
            let (mut answered, mut octets) = (BTreeSet::new(), [0; 64]);
            let end = Instant::now() + pause * count * 4 + WITHIN;
            while answered.len() < count as usize && Instant::now() < end {
                if let Ok((4, _)) = near.recv_from(&mut octets) {
                    answered.insert(u32::from_be_bytes(octets[..4].try_into().unwrap()));
                }
            }
            answered
        });
        Self { sender, receiver, ended, echo }
    }

    /// How many have come back, once all have or none comes any more.
    pub(crate) fn answered(self) -> usize {
        self.sender.join().unwrap();
        let answered = self.receiver.join().unwrap();
        self.ended.store(true, Ordering::SeqCst);
        self.echo.join().unwrap();
        answered.len()
    }
}

impl Daemon {
    /// Starts one in a namespace, with files in a folder called `name`, and waits until it answers.
    pub(crate) fn start(name: &str, place: &Namespace, description: &str) -> Self {
        let mode = if IN_PROCESS.get() { "-process" } else { "" };
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}{mode}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("gateway.toml");
        fs::write(&file, in_mode(description)).unwrap();
        let said = fs::File::create(folder.join("said")).unwrap();
        let process = place
            .command(env!("CARGO_BIN_EXE_gatewright"))
            .args(["run".as_ref(), file.as_os_str(), "--socket".as_ref()])
            .arg(folder.join("s"))
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .unwrap();
        let daemon = Self { folder, process };
        let answers = || daemon.ask(&["status"]).code == Some(0);
        assert!(wait_until(WITHIN, answers), "{}{}", daemon.said(), daemon.ask(&["status"]).err);
        daemon
    }

    /// What it said on its standard error.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.folder.join("said")).unwrap()
    }

    /// The binary with `arguments` and the socket of this gateway.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatewright"));
        command.args(arguments).arg("--socket").arg(self.folder.join("s"));
        command.stdin(Stdio::null());
        command
    }

    /// Runs it.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Said {
        self.command(arguments).output().unwrap().into()
    }

    /// Writes the description anew.
    pub(crate) fn describe(&self, text: &str) {
        fs::write(self.folder.join("gateway.toml"), in_mode(text)).unwrap();
    }
}

thread_local! {
    /// Whether gateways of this thread run their data plane as a process.
    static IN_PROCESS: Cell<bool> = const { Cell::new(false) };
}

/// Sets whether gateways that this thread starts run their data plane as a process.
pub(crate) fn set_process_mode(process: bool) {
    IN_PROCESS.set(process);
}

/// The description in the mode of this thread.
fn in_mode(description: &str) -> String {
    let mode = if IN_PROCESS.get() { "\n[planes]\nmode = \"process\"\n" } else { "" };
    format!("{description}{mode}")
}
