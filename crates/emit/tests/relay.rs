//! The SMTP relay as C, over sockets, between Postfix's load generator and its sink (3.7.11 here).
//!
//! Without a compiler or those programs it is a skipped test, by name.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    unreachable_pub,
    reason = "a test may fail loudly"
)]

mod build;

use build::{TARGETS, is_there, place, succeed};
use gatewright_diagnostic::{SourceId, Sources};
use gatewright_emit::{C_RIM, C_RUNTIME, c};
use gatewright_lang::compile;
use libtest_mimic::{Arguments, Failed, Trial};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

const MESSAGES: &str = "200";

fn main() {
    let tools = ["smtp-source", "smtp-sink", "make"];
    let missing = !TARGETS[0].is_installed() || !tools.into_iter().all(is_there);
    let trial = |name: &str, kept: bool| {
        Trial::test(name, move || relayed(kept)).with_ignored_flag(missing)
    };
    let trials = vec![trial("each_on_its_own_connection", false), trial("many_on_one", true)];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Ends its process when the test does.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn relayed(kept: bool) -> Result<(), Failed> {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("relay/{kept}"));
    let program = built(&directory)?;
    let (sink_port, relay_port) = (free_port()?, free_port()?);
    let sink_address = format!("127.0.0.1:{sink_port}");
    let mut sink = Command::new("smtp-sink");
    if fs::metadata("/proc/self")?.uid() == 0 {
        sink.args(["-u", "nobody"]);
    }
    let _sink = Running(sink.args([&sink_address, "64"]).stderr(Stdio::null()).spawn()?);
    reachable(sink_port)?;
    let mut relay = Command::new(program);
    relay.arg(format!("inside=127.0.0.1:{relay_port}")).arg(format!("next={sink_address}"));
    let mut relay = Running(relay.stderr(Stdio::piped()).spawn()?);
    let mut told = BufReader::new(relay.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    if !told.any(|line| line.ends_with("ready")) {
        return Err("the relay did not start".into());
    }
    let mut source = Command::new("smtp-source");
    source.args(if kept { &["-d"][..] } else { &[] });
    source.args(["-s", "8", "-m", MESSAGES, "-l", "10240", "-f", "a@example.com"]);
    source.args(["-t", "b@example.com", &format!("127.0.0.1:{relay_port}")]);
    let mut source = Running(source.spawn()?);
    // The relay acknowledges nothing by itself: each message was taken by the sink.
    ended(&mut source.0, "smtp-source")?;
    if let Some(status) = relay.0.try_wait()? {
        return Err(format!("the relay ended: {status}").into());
    }
    Ok(())
}

/// The relay, compiled as its users do.
fn built(directory: &Path) -> Result<PathBuf, Failed> {
    fs::create_dir_all(directory)?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateways");
    let text = fs::read_to_string(folder.join("smtp_relay.gate"))?;
    let mut sources = Sources::of("smtp_relay.gate", text);
    let compiled = compile(&mut sources, SourceId::default(), |_, import| {
        Some((import.to_owned(), fs::read_to_string(folder.join(import)).ok()?))
    });
    let files = c(&compiled.program.unwrap(), &|span| Some(place(&sources, span)))?;
    let runtime = C_RUNTIME.into_iter().chain(C_RIM);
    let texts = runtime.map(|(name, text)| (name.to_owned(), text.to_owned()));
    for (name, text) in texts.chain(files.into_iter().map(|file| (file.name, file.text))) {
        fs::write(directory.join(name), text)?;
    }
    let flags = "CFLAGS=-O1 -pedantic -Werror -std=c11 -Wall -Wextra -pthread";
    succeed(Command::new("make").arg("-s").arg("-C").arg(directory).arg(flags))?;
    Ok(directory.join("smtp_relay"))
}

fn free_port() -> Result<u16, Failed> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn reachable(port: u16) -> Result<(), Failed> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Ok(());
        }
        std::thread::yield_now();
    }
    Err(format!("nobody listens at port {port}").into())
}

fn ended(child: &mut Child, name: &str) -> Result<(), Failed> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait()? {
            return if status.success() { Ok(()) } else { Err(format!("{name}: {status}").into()) };
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(format!("{name} has not ended").into())
}
