//! What the tests of the command line share: the binary is run, its output and exit code are kept.
#![allow(dead_code, reason = "each test uses its part")]

use gatewright_testbed::wait_until;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long anything may take.
pub(crate) const WITHIN: Duration = Duration::from_secs(30);

/// What one run said.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// The answer of `--json`.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error} in {}", self.out))
    }
}

/// One run of the binary.
pub(crate) fn gatewright(arguments: &[&str]) -> Said {
    with_input(arguments, "")
}

/// The same with something on its standard input.
pub(crate) fn with_input(arguments: &[&str], input: &str) -> Said {
    let mut child = Command::new(env!("CARGO_BIN_EXE_gatewright"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A verb that reads nothing may have ended already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |octets| String::from_utf8(octets).unwrap();
    Said { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

/// A folder of its own for one test, empty, below the build's.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The example gateways, and the modules that they use.
pub(crate) fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateways")
}

/// A gateway under way that the binary runs from a description; it ends with this.
pub(crate) struct Daemon {
    pub(crate) folder: PathBuf,
    pub(crate) child: Child,
}

impl Daemon {
    /// Runs the description `text` in a folder, once it answers.
    pub(crate) fn start(folder: PathBuf, text: &str) -> Self {
        Self::start_with(folder, text, &[])
    }

    /// The same with variables of its environment.
    pub(crate) fn start_with(folder: PathBuf, text: &str, variables: &[(&str, &Path)]) -> Self {
        fs::write(folder.join("gateway.toml"), text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatewright"));
        // Another folder than the description's: programs are found from there all the same.
        command.current_dir("/").args(["run".as_ref(), folder.join("gateway.toml").as_os_str()]);
        command.args(["--socket".as_ref(), folder.join("socket").as_os_str()]);
        command.envs(variables.iter().copied());
        let said = fs::File::create(folder.join("said")).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let this = Self { child: child.spawn().unwrap(), folder };
        assert!(wait_until(WITHIN, || this.ask(&["status"]).code == 0), "{}", this.said());
        this
    }

    /// One run of the binary that asks it.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Said {
        let socket = self.folder.join("socket");
        gatewright(&[arguments, &["--socket", socket.to_str().unwrap()]].concat())
    }

    /// What it said on its standard error.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.folder.join("said")).unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}
