//! The tutorial of the gateway language (`docs/language/tutorial.md`), step by step, as a newcomer takes it.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The chapter with the tutorial.
fn chapter() -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    fs::read_to_string(docs.join("language/tutorial.md")).unwrap()
}

/// The blocks of one language, in order.
fn blocks(chapter: &str, language: &str) -> Vec<String> {
    let begins = format!("```{language}\n");
    let rest = chapter.split(&begins).skip(1);
    rest.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// A folder with the tutorial's three files.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let files = ["oracle-messages.gate", "oracle.gate", "courier.gate"];
    for (name, text) in files.iter().zip(blocks(&chapter(), "gate")) {
        fs::write(folder.join(name), text).unwrap();
    }
    folder
}

/// What a command of the tutorial prints, on both streams.
fn said(folder: &Path, command: &str) -> String {
    let programs = Path::new(env!("CARGO_BIN_EXE_gatewright")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("( {command} ) 2>&1")]).current_dir(folder).env("PATH", path);
    let output = shell.stdin(Stdio::null()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_command_of_the_tutorial_says_what_it_shows() {
    let folder = folder("tutorial");
    let mut commands = 0;
    for block in blocks(&chapter(), "console") {
        for step in block.split("$ ").skip(1) {
            let (command, shown) = step.split_once('\n').unwrap();
            assert_eq!(said(&folder, command), shown, "{command}");
            commands += 1;
        }
    }
    assert!(commands >= 6, "{commands} commands");
}

/// Chapter 7.1: a program takes its parameters from values, the environment and files.
#[test]
fn the_greeter_takes_its_parameters_as_the_chapter_says() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let chapter = fs::read_to_string(docs.join("language/gateways.md")).unwrap();
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("greeter");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("greeter.gate"), &blocks(&chapter, "gate")[0]).unwrap();
    fs::write(folder.join("secret"), "sesame\n").unwrap();
    let mut commands = 0;
    for step in blocks(&chapter, "console")[0].split("$ ").skip(1) {
        let (command, shown) = step.split_once('\n').unwrap();
        assert_eq!(said(&folder, command), shown, "{command}");
        commands += 1;
    }
    assert_eq!(commands, 2);
    let ways: [(&[&str], &str); 3] = [
        (&["--set", "secret=sesame", "--set", "times=2"], "you, 2"),
        (&["--set-env", "secret=GREETER_SECRET", "--set", "name=Ada"], "Ada, 1"),
        (&["--set-file", "secret=secret"], "you, 1"),
    ];
    for (options, wanted) in ways {
        let mut greeter = Command::new(env!("CARGO_BIN_EXE_gatewright"));
        greeter.args(["gw", "run", "greeter.gate", "--at", "desk=127.0.0.1:0"]).args(options);
        greeter.current_dir(&folder).env("GREETER_SECRET", "sesame").stdin(Stdio::null());
        assert_eq!(asked(greeter, "desk at ", "sesame"), wanted, "{options:?}");
    }
}

/// Starts a program, asks the server that it tells of one line, and gives its answer.
fn asked(mut program: Command, told: &str, line: &str) -> String {
    let mut child = program.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let listening = lines.find(|line| line.contains(told)).unwrap();
    let address = listening.rsplit(' ').next().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    answer.trim_end().to_owned()
}

/// The last step: the courier runs, and is asked what the chapter asks it.
#[test]
fn the_running_courier_answers_what_is_shown() {
    let (chapter, folder) = (chapter(), folder("tutorial-run"));
    let courier = fs::read_to_string(folder.join("courier.gate")).unwrap();
    for address in ["127.0.0.1:7000", "127.0.0.1:7001"] {
        let port = address.rsplit(':').next().unwrap();
        assert!(courier.contains(address) && chapter.contains(port), "{address}");
    }
    let mut child = Command::new(env!("CARGO_BIN_EXE_gatewright"))
        .args(["gw", "run", "courier.gate", "--at", "here=127.0.0.1:0"])
        // As at port 7001, nobody listens there (tcpmux, RFC 7805).
        .args(["--at", "there=127.0.0.1:1"])
        .current_dir(&folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    let port: u16 = line.trim().rsplit(':').next().unwrap().parse().unwrap();
    let rest = std::thread::spawn(move || std::io::copy(&mut told, &mut std::io::sink()));
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let shown = blocks(&chapter, "text");
    let mut asked = 0;
    for line in shown[0].lines() {
        if line.starts_with(|first: char| first.is_ascii_digit()) {
            let mut answer = String::new();
            answers.read_line(&mut answer).unwrap();
            assert_eq!(answer.trim_end(), line);
        } else {
            // As `nc` sends a line.
            stream.write_all(format!("{line}\n").as_bytes()).unwrap();
            asked += 1;
        }
    }
    assert_eq!(asked, 3);
    let mut end = String::new();
    assert_eq!(answers.read_line(&mut end).unwrap(), 0, "{end}");
    let kill = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    rest.join().unwrap().unwrap();
}
