//! A gateway of the binary between two kernel hosts, for the verbs that ask a running one.

use gatewright_testbed::{Namespace, Process, Veth, wait_until};
use serde_json::Value;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use std::{fs, path::PathBuf};

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
    pub(crate) folder: PathBuf,
    _gateway: Process,
    _middle: Namespace,
    _links: [Veth; 2],
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
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let [north, middle, south] = [(); 3].map(|()| Namespace::new().unwrap());
        let lan = Veth::pair(&north, "n0", &middle, "g0").unwrap();
        let wan = Veth::pair(&middle, "g1", &south, "s0").unwrap();
        lan.a.add_address("10.10.1.2/24").unwrap();
        wan.b.add_address("10.10.2.2/24").unwrap();
        lan.up().unwrap();
        wan.up().unwrap();
        north.add_route("default", "10.10.1.1").unwrap();
        south.add_route("default", "10.10.2.1").unwrap();
        let file = folder.join("gateway.toml");
        fs::write(&file, DESCRIPTION).unwrap();
        let gateway = middle
            .command(env!("CARGO_BIN_EXE_gatewright"))
            .args(["run".as_ref(), file.as_os_str(), "--socket".as_ref()])
            .arg(folder.join("s"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let running =
            Self { north, south, folder, _gateway: gateway, _middle: middle, _links: [lan, wan] };
        assert!(wait_until(WITHIN, || running.ask(&["status"]).code == Some(0)), "it answers");
        assert!(wait_until(WITHIN, || running.ping(&["-c1", "-W1", SOUTH])), "packets pass");
        running
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
        fs::write(self.folder.join("gateway.toml"), text).unwrap();
    }

    /// Whether the host behind `lan` has all its answers.
    pub(crate) fn ping(&self, arguments: &[&str]) -> bool {
        let ping = self.north.command("ping").args(["-n", "-q"]).args(arguments).output().unwrap();
        ping.status.success() && String::from_utf8_lossy(&ping.stdout).contains(" 0% packet loss")
    }
}
