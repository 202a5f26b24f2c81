//! Nobody reads what a gateway says on standard error and standard output: it serves and ends
//! nevertheless.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_testbed::{free_port, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

/// How long anything may take to come about.
const WITHIN: Duration = Duration::from_mins(1);

/// A pipe that is full and that nobody reads; both ends of it stay open with the first.
fn full_pipe() -> (std::io::PipeReader, Stdio) {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut filler = writer.try_clone().unwrap();
    // It waits in the middle of this until the reader is gone.
    thread::spawn(move || while filler.write_all(&[b'x'; 4_096]).is_ok() {});
    (reader, writer.into())
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
}

#[test]
fn a_gateway_whose_words_nobody_reads_serves_and_ends() {
    let folder = Folder(PathBuf::from(format!("/tmp/gatewright-stalled-{}", std::process::id())));
    fs::create_dir_all(&folder.0).unwrap();
    let (file, socket) = (folder.0.join("gateway.toml"), folder.0.join("control"));
    let port = free_port();
    let described =
        format!("[cse]\nbase = \"cse-in\"\nid = \"/id-in\"\nhttp = \"127.0.0.1:{port}\"\n");
    fs::write(&file, described).unwrap();
    for format in ["text", "json"] {
        let ((error_reader, error), (out_reader, out)) = (full_pipe(), full_pipe());
        let mut run = Command::new(env!("CARGO_BIN_EXE_gatewright"));
        run.arg("run").arg(&file).args(["--log", format, "--log-level", "debug", "--socket"]);
        let mut run = run.arg(&socket).stderr(error).stdout(out).spawn().unwrap();
        let status = || {
            let mut status = Command::new(env!("CARGO_BIN_EXE_gatewright"));
            status.arg("status").arg("--socket").arg(&socket).output().unwrap().status.success()
        };
        assert!(wait_until(WITHIN, status), "{format}: it serves");
        for _ in 0..5 {
            signal(&run, Signal::SIGHUP);
        }
        assert!(wait_until(WITHIN, status), "{format}: it serves on");
        signal(&run, Signal::SIGTERM);
        let mut ended = None;
        let ends = || {
            ended = run.try_wait().unwrap();
            ended.is_some()
        };
        assert!(wait_until(WITHIN, ends), "{format}: it ends");
        // The answer on standard output is lost, and that is no success.
        assert_eq!(ended.unwrap().code(), Some(1), "{format}");
        drop((error_reader, out_reader));
    }
}
