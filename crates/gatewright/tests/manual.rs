//! The first steps and the tutorials of the manual run as they are printed: each page in one shell, in
//! a network namespace and a folder of its own.
//!
//! Blocks of `sh` run as a whole and must succeed. In blocks of `console` each line after `$ ` is a
//! command, and the lines below it are what it says; `…` stands for anything. What is not yet as the
//! page says is asked again, as a reader would.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod trials;

use gatewright_testbed::{Namespace, Needs, Process};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

/// How long a command may take until it says what the page shows.
const WITHIN: Duration = Duration::from_secs(40);

/// Between two attempts.
const EVERY: Duration = Duration::from_millis(100);

/// What the shell says after each command, before the exit code.
const MARK: &str = "@@@ the command has ended with ";

/// Makes processes and named namespaces the shell's own, and waits for gateways that run in the background.
const PRELUDE: &str = "\
mount --make-rprivate / && mount -t proc proc /proc && mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && ip link set lo up
wait_for() { for _ in $(seq 400); do gatewright status $1 >/dev/null 2>&1 && return; sleep 0.05; done; return 1; }
";

fn main() {
    let base = Needs::new().namespaces().program("ip").program("unshare").program("curl");
    let needs = base.program("ping").linux(6, 6);
    let tests: [(&str, fn()); 7] = [
        ("the_first_steps_run_as_printed", || walk("first-steps")),
        ("the_router_runs_as_printed", || walk("tutorials/router")),
        ("the_ward_runs_as_printed", || walk("tutorials/ward")),
        ("the_mesh_runs_as_printed", || walk("tutorials/mesh")),
        ("the_lab_runs_as_printed", || walk("tutorials/lab")),
        ("the_story_runs_as_printed", || walk("story")),
        ("a_page_that_shows_something_else_is_found", a_wrong_page_is_found),
    ];
    trials::run(&needs, tests)
}

/// A command of a page.
#[derive(Debug, Eq, PartialEq)]
struct Step {
    command: String,
    /// What it says; not compared if there is none.
    shown: Option<String>,
}

/// The commands of a page, in order.
fn steps(page: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else { continue };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let block = block.join("\n");
        match language {
            "sh" => steps.push(Step { command: block, shown: None }),
            "console" => {
                let shown = block.strip_prefix("$ ").expect("a block begins with a command");
                steps.extend(shown.split("\n$ ").map(|step| {
                    let (command, shown) = step.split_once('\n').unwrap_or((step, ""));
                    Step { command: command.to_owned(), shown: Some(shown.to_owned()) }
                }));
            }
            _ => {}
        }
    }
    steps
}

/// Whether a text is as shown, `…` standing for anything.
fn is_as_shown(shown: &str, said: &str) -> bool {
    let pieces: Vec<&str> = shown.split('…').map(|piece| piece.trim_matches('\n')).collect();
    let said = said.trim_matches('\n');
    let [first, rest @ ..] = pieces.as_slice() else { return said.is_empty() };
    let Some(mut left) = said.strip_prefix(first) else { return false };
    let Some((last, middle)) = rest.split_last() else { return left.is_empty() };
    for piece in middle {
        let Some(at) = left.find(piece) else { return false };
        left = &left[at + piece.len()..];
    }
    left.ends_with(last)
}

/// The commands that wait until each gateway that a block starts answers.
fn waits(block: &str) -> Vec<String> {
    let starts = block.lines().filter(|line| line.contains("gatewright run") && line.contains('&'));
    let socket = |line: &str| {
        let (_, rest) = line.split_once("--socket ")?;
        Some(format!("--socket {}", rest.split_whitespace().next()?))
    };
    starts.map(|line| format!("wait_for \"{}\"", socket(line).unwrap_or_default())).collect()
}

/// A shell that goes on from command to command.
struct Shell {
    process: Process,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Shell {
    fn new(name: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("manual-{name}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("run")).unwrap();
        let binary = Path::new(env!("CARGO_BIN_EXE_gatewright")).parent().unwrap();
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
        let place = Namespace::new().unwrap();
        let shell = place.command("unshare").args(["--mount", "bash", "--norc"]).env("PATH", path);
        let shell = shell.env("XDG_RUNTIME_DIR", folder.join("run"));
        let shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = shell.spawn().unwrap();
        let input = process.stdin().unwrap();
        let output = BufReader::new(process.stdout().unwrap());
        let mut shell = Self { process, input, output };
        let enter = format!("exec 2>&1; {PRELUDE}cd {}", folder.display());
        let (code, said) = shell.runs(&enter);
        assert_eq!(code, 0, "{said}");
        shell
    }

    /// Runs a command to its end: its exit code, and what it said.
    fn runs(&mut self, command: &str) -> (i32, String) {
        write!(self.input, "{{ {command}\n}} </dev/null\ncode=$?; echo; echo '{MARK}'$code\n")
            .unwrap();
        self.input.flush().unwrap();
        let mut said = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the shell has ended: {said}");
            if let Some(code) = line.strip_prefix(MARK) {
                return (code.trim().parse().unwrap(), said);
            }
            said.push_str(&line);
        }
    }

    /// Runs a step until it is as the page shows.
    fn takes(&mut self, step: &Step) -> Result<(), String> {
        let Step { command, shown } = step;
        let Some(shown) = shown else {
            // What goes on in the background does not write between later commands.
            let fails = "failed=0; trap 'failed=$?' ERR";
            let block = format!("{fails}; {{ {command}\n}} >block.log 2>&1; trap - ERR");
            let (code, _) = self.runs(&format!("{block}; (exit $failed)"));
            let ok = code == 0 && waits(command).iter().all(|wait| self.runs(wait).0 == 0);
            let said = self.runs("cat block.log").1;
            return if ok { Ok(()) } else { Err(format!("{command}\nends with {code}:\n{said}")) };
        };
        let start = Instant::now();
        loop {
            let (_, said) = self.runs(command);
            if is_as_shown(shown, &said) {
                return Ok(());
            }
            // What changes something is not done twice.
            let asks = [
                "gatewright attach",
                "gatewright detach",
                "gatewright demo",
                ">>",
                "lab run",
                "simulate",
                "token add",
            ];
            if start.elapsed() > WITHIN || asks.iter().any(|changes| command.contains(changes)) {
                return Err(format!("{command}\nsays:\n{said}\nand not:\n{shown}"));
            }
            std::thread::sleep(EVERY);
        }
    }
}

/// Walks through a page; the first command that is not as shown, if any.
fn walked(name: &str, page: &str) -> Result<usize, String> {
    let steps = steps(page);
    let mut shell = Shell::new(&name.replace('/', "-"));
    for step in &steps {
        shell.takes(step)?;
    }
    let Shell { process, input, .. } = shell;
    drop(input);
    process.wait().unwrap();
    Ok(steps.len())
}

/// Walks through a page of the manual.
fn walk(name: &str) {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = fs::read_to_string(docs.join(format!("{name}.md"))).unwrap();
    match walked(name, &page) {
        Ok(steps) => assert!(steps > 0, "{name}: {steps} commands"),
        Err(why) => panic!("{name}: {why}"),
    }
}

fn a_wrong_page_is_found() {
    let page = |lines: &str| format!("text\n\n```console\n{lines}\n```\n\n```text\n$ no\n```\n");
    let cases = [
        ("$ echo one\none\n$ echo two; echo 3\n…3", Ok(2)),
        ("$ echo one\n…n…", Ok(1)),
        ("$ true", Ok(1)),
        ("$ echo one >> file; echo two\none", Err("says:\ntwo")),
        ("$ echo one >> file; echo two\n…o…w", Err("says:\ntwo")),
        ("$ echo said >> file; echo said", Err("says:\nsaid")),
    ];
    for (lines, wanted) in cases {
        match (walked("wrong", &page(lines)), wanted) {
            (Ok(steps), Ok(wanted)) => assert_eq!(steps, wanted, "{lines}"),
            (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
            (found, _) => panic!("{lines}: {found:?}"),
        }
    }
    let fails = walked("wrong", "```sh\nfalse\ntrue\n```\n");
    assert!(fails.unwrap_err().contains("ends with 1"));
}
