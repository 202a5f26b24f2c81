//! Every command of the fenced blocks of README and of `docs/overview.md` runs as it is printed, in
//! namespaces of this test.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod trials;

use gatewright_testbed::{Command, Namespace, Needs, Process, Veth, wait_until};
use std::fs;
use std::os::unix::{fs::PermissionsExt, process::ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// The pages.
const README: &str = "README.md";
const OVERVIEW: &str = "docs/overview.md";

/// How long anything may take.
const WITHIN: Duration = Duration::from_mins(2);

/// Commands that are not run here: they install packages, and `make test` runs this.
const EXCEPTED: [&str; 2] = ["make demo", "make test"];

/// Commands that go on until they are interrupted.
const ENDLESS: [&str; 2] = ["gatewright events --follow", "gatewright gw run"];

/// The signal of an interrupt, by which a command may end.
const SIGINT: i32 = 2;

/// Commands for another terminal while one of them goes on.
const MEANWHILE: &str = "gatewright device simulate";

fn main() {
    let needs = Needs::new().namespaces().program("ping").program("tshark");
    let tests: [(&str, fn()); 4] = [
        ("the_blocks_of_readme_are_known", the_blocks_of_readme_are_known),
        ("first_steps_run_as_printed", first_steps_run_as_printed),
        ("the_commands_of_programs_run_as_printed", the_commands_of_programs_run_as_printed),
        ("the_commands_of_devices_run_as_printed", the_commands_of_devices_run_as_printed),
    ];
    trials::run(&needs, tests)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A page of the repository.
fn read(page: &str) -> String {
    fs::read_to_string(root().join(page)).unwrap()
}

/// The commands of each fenced block without a language, without the remarks behind them.
fn blocks() -> Vec<Vec<String>> {
    let [readme, overview] = [README, OVERVIEW].map(read);
    let mut blocks = Vec::new();
    let mut lines = readme.lines().chain(overview.lines());
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else { continue };
        let block: Vec<&str> = lines.by_ref().take_while(|line| !line.starts_with("```")).collect();
        if language.is_empty() {
            let command = |line: &&str| line.split(" #").next().unwrap().trim().to_owned();
            blocks.push(block.iter().map(command).collect());
        }
    }
    blocks
}

/// The only block that has a command beginning like this.
fn block(begins: &str) -> Vec<String> {
    let has = |block: &Vec<String>| block.iter().any(|command| command.starts_with(begins));
    let found: Vec<_> = blocks().into_iter().filter(has).collect();
    assert_eq!(found.len(), 1, "blocks with `{begins}`");
    found.concat()
}

/// Each block is one that a test below runs, or excepted; so none is added without a test.
fn the_blocks_of_readme_are_known() {
    let begins =
        ["gatewright init", "gatewright attach", "gatewright gw", "gatewright demo", MEANWHILE];
    for block in blocks() {
        let excepted = block.iter().all(|command| EXCEPTED.contains(&command.as_str()));
        let known = begins.iter().any(|known| block.iter().any(|it| it.starts_with(known)));
        assert!(excepted || known, "no test runs {block:?}");
    }
}

/// Where commands run: a namespace, and a folder with the examples and the programs that they name.
struct Terminal {
    place: Namespace,
    folder: PathBuf,
    /// What goes on until the end.
    running: Vec<Process>,
}

impl Terminal {
    fn new(name: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("run")).unwrap();
        fs::create_dir_all(folder.join("bin")).unwrap();
        std::os::unix::fs::symlink(root().join("examples"), folder.join("examples")).unwrap();
        // Reads what Wireshark would, without a screen.
        let reader = folder.join("bin/wireshark");
        fs::write(&reader, "#!/bin/sh\nexec tshark -c 2 -r -\n").unwrap();
        fs::set_permissions(&reader, fs::Permissions::from_mode(0o755)).unwrap();
        Self { place: Namespace::new().unwrap(), folder, running: Vec::new() }
    }

    /// A command as a shell reads it.
    fn command(&self, command: &str) -> Command {
        let binary = Path::new(env!("CARGO_BIN_EXE_gatewright")).parent().unwrap();
        let own = self.folder.join("bin");
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{}:{path}", own.display(), binary.display());
        let script = format!("cd {} && set -o pipefail && {command}", self.folder.display());
        let shell = self.place.command("bash").args(["-c", &script]).env("PATH", path);
        shell.env("XDG_RUNTIME_DIR", self.folder.join("run")).stdin(Stdio::null())
    }

    /// Runs a command to its end; what it said.
    fn ends(&self, command: &str) -> Result<String, String> {
        let output = self.command(command).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = output.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        if output.status.success() { Ok(said) } else { Err(format!("{command}\n{said}")) }
    }

    /// Starts a command that goes on; what it says is in a file.
    fn starts(&self, command: &str) -> (Process, PathBuf) {
        let said = self.folder.join("said");
        let file = fs::File::create(&said).unwrap();
        let process = self.command(&format!("exec {command}"));
        let process = process.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        (process, said)
    }

    /// Runs one command as it is printed.
    fn run(&mut self, command: &str) {
        if let Some(command) = command.strip_suffix('&') {
            let (process, said) = self.starts(command);
            self.running.push(process);
            let answers = || self.ends("gatewright status").is_ok();
            assert!(wait_until(WITHIN, answers), "{}", fs::read_to_string(said).unwrap());
        } else if ENDLESS.iter().any(|endless| command.starts_with(endless)) {
            let (process, said) = self.starts(command);
            let says = || fs::metadata(&said).is_ok_and(|about| about.len() > 0);
            let has_said = wait_until(WITHIN, says);
            process.interrupt().unwrap();
            let status = process.wait().unwrap();
            let said = fs::read_to_string(said).unwrap();
            let is_interrupted = status.signal() == Some(SIGINT);
            assert!(has_said && (status.success() || is_interrupted), "{command}\n{said}{status}");
        } else {
            self.ends(command).unwrap();
        }
    }
}

/// A gateway as `init gateway` describes it, with a host at each side.
fn first_steps_run_as_printed() {
    let mut terminal = Terminal::new("readme-steps");
    let [north, south] = [(); 2].map(|()| Namespace::new().unwrap());
    let lan = Veth::pair(&north, "n0", &terminal.place, "eth1").unwrap();
    let wan = Veth::pair(&south, "s0", &terminal.place, "eth0").unwrap();
    lan.a.add_address("192.0.2.9/24").unwrap();
    wan.a.add_address("198.51.100.1/24").unwrap();
    lan.up().unwrap();
    wan.up().unwrap();
    let ping = north.command("ping").args(["-n", "-q", "-i0.05", "192.0.2.1"]);
    let _traffic = ping.stdout(Stdio::null()).spawn().unwrap();
    for command in block("gatewright init").into_iter().chain(block("gatewright attach")) {
        terminal.run(&command);
    }
}

fn the_commands_of_programs_run_as_printed() {
    let mut terminal = Terminal::new("readme-programs");
    for command in block("gatewright gw") {
        terminal.run(&command);
    }
}

/// The page says in a sentence what runs in the other terminal.
fn the_commands_of_devices_run_as_printed() {
    let mut terminal = Terminal::new("readme-devices");
    for command in block("gatewright demo") {
        terminal.run(&command);
    }
    let overview = read(OVERVIEW);
    let [init, run] = ["gatewright init health -o health.toml", "gatewright run health.toml"];
    assert!(overview.contains(&format!("`{init}` and `{run}`")));
    terminal.run(init);
    terminal.run(&format!("{run} &"));
    let (meanwhile, others): (Vec<_>, Vec<_>) =
        block(MEANWHILE).into_iter().partition(|command| command.starts_with(MEANWHILE));
    let (devices, said) = terminal.starts(&meanwhile[0]);
    for command in others {
        // A device is asked once it has associated.
        let mut why = String::new();
        let works = || terminal.ends(&command).map_err(|said| why = said).is_ok();
        assert!(wait_until(WITHIN, works), "{why}");
    }
    assert!(devices.wait().unwrap().success(), "{}", fs::read_to_string(said).unwrap());
}
