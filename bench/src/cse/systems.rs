//! The CSEs: ours as users run it, and acmecse (PyPI) in three set-ups.

use super::kept::{self, Answered};
use super::load;
use crate::process::text;
use gatewright_testbed::{python_program, wait_until};
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The version of the peer.
const PACKAGE: &str = "acmecse==2026.5.3";
/// Generous: what is not there by then does not start.
const READY_WITHIN: Duration = Duration::from_mins(1);

/// How acmecse is set up: the name of its figures and what is given on its command line.
pub(super) const SETUPS: [(&str, &[&str]); 3] = [
    // As it comes: its database in files, the server of Flask.
    ("acmecse_usual", &["--db-type", "tinydb"]),
    // Nothing kept, and nothing else done.
    ("acmecse_memory", &["--db-type", "memory", "--no-statistics", "--no-remote-cse"]),
    // The same behind the server that it has for many connections.
    (
        "acmecse_memory_wsgi",
        &["--db-type", "memory", "--no-statistics", "--no-remote-cse", "--http-wsgi"],
    ),
];

/// What our figures' names begin with: nothing.
pub(super) const OURS: &str = "ours";

/// A CSE that runs until it is dropped.
pub(super) struct System {
    pub(super) name: &'static str,
    pub(super) address: SocketAddr,
    child: Child,
    /// Its command, for another start on the same store.
    command: Command,
    /// What it says.
    log: PathBuf,
}

impl System {
    fn start(
        name: &'static str,
        mut command: Command,
        address: SocketAddr,
        folder: &Path,
    ) -> Result<Self, String> {
        let log = folder.join(format!("{name}.log"));
        let said = File::create(&log).map_err(text)?;
        let err = said.try_clone().map_err(text)?;
        let child = command.stdin(Stdio::null()).stdout(said).stderr(err).spawn();
        let mut system = Self { name, address, child: child.map_err(text)?, command, log };
        system.wait_until_ready()?;
        Ok(system)
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        let ready = wait_until(READY_WITHIN, || {
            TcpStream::connect(self.address).is_ok() || !matches!(self.child.try_wait(), Ok(None))
        });
        if ready && TcpStream::connect(self.address).is_ok() {
            return Ok(());
        }
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        Err(format!("{} does not listen: {said}", self.name))
    }

    /// Kills it with SIGKILL, and waits until it is gone.
    pub(super) fn kill(&mut self) -> Result<(), String> {
        self.child.kill().map_err(text)?;
        self.child.wait().map(drop).map_err(text)
    }

    /// Starts it on the store that it had before it was killed.
    pub(super) fn start_again(&mut self) -> Result<(), String> {
        self.child = self.command.spawn().map_err(text)?;
        self.wait_until_ready()
    }

    /// Kills it, starts it again, and compares what it holds with what it has answered.
    pub(super) fn check(&mut self, answered: Answered<'_>) -> Result<(), String> {
        self.kill()?;
        self.start_again()?;
        kept::check(self.address, answered)
    }

    /// The database of ours.
    pub(super) fn store(folder: &Path) -> PathBuf {
        folder.join("ours.db")
    }

    /// The control socket of ours.
    pub(super) fn socket(folder: &Path) -> PathBuf {
        folder.join("ours.sock")
    }

    /// Ours, with a database in `folder` that is synchronised fully at each commit, and `more` keys
    /// of `[cse]`.
    pub(super) fn ours(binary: &Path, folder: &Path, more: &str) -> Result<Self, String> {
        let address = free_address()?;
        let store = Self::store(folder);
        let description = folder.join("ours.toml");
        let words = format!(
            "[gateway]\nname = \"bench-cse\"\n[cse]\nbase = \"cse-in\"\nid = \"/id-in\"\n\
             type = \"infrastructure\"\nadmin = \"CAdmin\"\nhttp = \"{address}\"\nstore = {:?}\n{more}",
            store.display().to_string()
        );
        fs::write(&description, words).map_err(text)?;
        let mut command = Command::new(binary);
        command.arg("run").arg(&description).arg("--socket").arg(Self::socket(folder));
        Self::start(OURS, command, address, folder)
    }

    /// Ours on a new database.
    pub(super) fn fresh(binary: &Path, folder: &Path) -> Result<Self, String> {
        Self::remove(folder);
        Self::ours(binary, folder, "")
    }

    /// Removes the database of ours.
    pub(super) fn remove(folder: &Path) {
        for file in ["ours.db", "ours.db-wal", "ours.db-shm"] {
            let _none_yet = fs::remove_file(folder.join(file));
        }
    }

    /// The peer in one of its set-ups.
    pub(super) fn acme(
        program: &Path,
        folder: &Path,
        (name, words): (&'static str, &[&str]),
    ) -> Result<Self, String> {
        let address = free_address()?;
        let place = folder.join(name);
        fs::create_dir_all(&place).map_err(text)?;
        let settings = format!(
            "[basic.config]\ncseType=IN\ncseID=id-in\ncseName=cse-in\nadminID=CAdmin\n\
             networkInterface=127.0.0.1\ncseHost=127.0.0.1\nhttpPort={}\nlogLevel=off\n\
             databaseType=tinydb\nconsoleTheme=dark\nsecret=bench\n\
             serviceProviderID=//acme.example.com\n",
            address.port()
        );
        fs::write(place.join("acme.ini"), settings).map_err(text)?;
        let mut command = Command::new(program);
        command.arg("-dir").arg(&place).args(["--headless", "--log-level", "off"]);
        command.args(["--no-coap", "--no-mqtt", "--no-ws"]).args(words);
        Self::start(name, command, address, folder)
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn key(&self, figure: &str) -> String {
        if self.name == OURS { figure.to_owned() } else { format!("{}_{figure}", self.name) }
    }

    /// Loads it; fails unless it has made something, and ours unless it refuses nothing.
    pub(super) fn load(
        &self,
        what: load::What,
        connections: usize,
        duration: Duration,
    ) -> Result<load::LoadResult, String> {
        let told = |problem: String| format!("{}: {problem}", self.name);
        let before = load::container(self.address).map_err(told)?;
        let outcome = load::run(self.address, what, connections, duration).map_err(told)?;
        let made = load::container(self.address).map_err(told)?.saturating_sub(before);
        // The peer's threads lose some of their counts; that it did something is to be seen. All of
        // ours are compared when it was killed.
        if self.name == OURS && outcome.refused > 0.0 {
            return Err(told(format!("{} requests refused", outcome.refused)));
        }
        if what == load::What::Create && made == 0 {
            return Err(told(format!("no instance made, {} answered", outcome.answered)));
        }
        Ok(outcome)
    }
}

impl Drop for System {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The peer's executable, installed if that is possible.
pub(super) fn acme_program() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("GATEWRIGHT_ACMECSE") {
        return Some(given.into());
    }
    // Beside those of the tests: one installation for all.
    let target = std::env::current_exe().ok()?.parent()?.parent()?.to_owned();
    python_program(&target.join("tmp/acme-venv"), PACKAGE, "acmecse")
}

fn free_address() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(text)?;
    listener.local_addr().map_err(text)
}
