//! A gateway with few descriptors and small files: it refuses what it cannot serve or store, and goes
//! on.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_testbed::{free_port, wait_until};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output};
use std::time::Duration;
use std::{fs, thread};

/// How long anything may take to come about.
const WITHIN: Duration = Duration::from_mins(1);

/// A gateway with a service entity, started by a shell that sets limits first.
struct Limited {
    folder: PathBuf,
    at: SocketAddr,
    child: Child,
}

impl Limited {
    fn start(name: &str, limits: &str, more: &str) -> Self {
        let folder = format!("/tmp/gatewright-limited-{name}-{}", std::process::id());
        let folder = PathBuf::from(folder);
        fs::create_dir_all(&folder).unwrap();
        let at = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let described = format!(
            "[cse]\nbase = \"cse-in\"\nid = \"/id-in\"\nadmin = \"CAdmin\"\nhttp = \"{at}\"\n{more}"
        );
        fs::write(folder.join("gateway.toml"), described).unwrap();
        let script = format!("{limits} && exec \"$0\" run gateway.toml --socket control");
        let mut run = Command::new("sh");
        run.args(["-c", &script, env!("CARGO_BIN_EXE_gatewright")]).current_dir(&folder);
        let log = fs::File::create(folder.join("log")).unwrap();
        let child = run.stderr(log).spawn().unwrap();
        let limited = Self { folder, at, child };
        let serves = wait_until(WITHIN, || limited.gatewright(&["status"]).status.success());
        assert!(serves, "it serves: {}", limited.log());
        limited
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap()
    }

    fn gatewright(&self, arguments: &[&str]) -> Output {
        let mut gatewright = Command::new(env!("CARGO_BIN_EXE_gatewright"));
        gatewright.current_dir(&self.folder).args(arguments).args(["--socket", "control"]);
        gatewright.output().unwrap()
    }

    /// The status of an answer, `HTTP/1.1 201 Created`; empty if the connection is closed.
    fn ask(&self, method: &str, target: &str, more: &str, content: &str) -> String {
        let Ok(mut stream) = TcpStream::connect(self.at) else { return String::new() };
        stream.set_read_timeout(Some(WITHIN)).unwrap();
        let length = content.len();
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: x\r\nX-M2M-Origin: CAdmin\r\nX-M2M-RI: r{}\r\n\
             X-M2M-RVI: 4\r\n{more}Content-Length: {length}\r\nConnection: close\r\n\r\n{content}",
            stream.local_addr().unwrap().port()
        );
        let mut answer = Vec::new();
        let _closed = stream.write_all(request.as_bytes());
        let _closed = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        answer.lines().next().unwrap_or_default().to_owned()
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// SIGXFSZ would end it: a write beyond the largest size of a file is refused as by a full disk.
#[test]
fn a_file_that_may_not_grow_is_as_a_full_disk() {
    // 512 or 1024 octets each, as the shell likes.
    let more = "store = \"cse.db\"\nreserve_mib = 1\n";
    let mut limited = Limited::start("size", "ulimit -f 4096", more);
    let container = r#"{"m2m:cnt":{"rn":"c"}}"#;
    let made = limited.ask("POST", "/cse-in", "Content-Type: application/json;ty=3\r\n", container);
    assert!(made.contains(" 201 "), "{made}");
    let instance = format!(r#"{{"m2m:cin":{{"con":"{}"}}}}"#, "x".repeat(200_000));
    let create = || {
        let kind = "Content-Type: application/json;ty=4\r\n";
        limited.ask("POST", "/cse-in/c", kind, &instance)
    };
    let (mut stored, mut refused) = (0, 0);
    for _ in 0..100 {
        let made = create();
        if made.contains(" 201 ") {
            stored += 1;
        } else {
            assert!(made.contains(" 500 "), "{made}: {}", limited.log());
            refused += 1;
        }
        if refused == 3 {
            break;
        }
    }
    assert!(stored > 0 && refused == 3, "{stored} {refused}");
    assert_eq!(limited.child.try_wait().unwrap(), None, "{}", limited.log());
    let there = limited.ask("GET", "/cse-in/c/la", "", "");
    assert!(there.contains(" 200 "), "{there}");
    assert!(limited.gatewright(&["status"]).status.success());
}

/// Connections that nobody asks anything over, as many as there may be: the control socket has
/// descriptors left.
#[test]
fn a_flood_of_connections_leaves_the_control_socket_its_descriptors() {
    let limited = Limited::start("descriptors", "ulimit -n 96", "");
    let served = limited.ask("GET", "/cse-in", "", "");
    assert!(served.contains(" 200 "), "{served}");
    let flood: Vec<_> = (0..200).map(|_| TcpStream::connect(limited.at)).collect();
    let descriptors = format!("/proc/{}/fd", limited.child.id());
    let taken = || fs::read_dir(&descriptors).unwrap().count() >= 70;
    assert!(wait_until(WITHIN, taken), "the flood is there");
    // It goes on, and so does what asks.
    let floods = thread::scope(|scope| {
        let floods =
            scope.spawn(|| (0..500).filter(|_| TcpStream::connect(limited.at).is_ok()).count());
        for _ in 0..10 {
            let status = limited.gatewright(&["status"]);
            let told = String::from_utf8_lossy(&status.stderr);
            assert!(status.status.success(), "{told}{}", limited.log());
        }
        floods.join().unwrap()
    });
    assert!(floods > 0);
    drop(flood);
    let serves = || limited.ask("GET", "/cse-in", "", "").contains(" 200 ");
    assert!(wait_until(WITHIN, serves), "it serves again");
}

/// What a verb writes without room ends as a full disk does, and leaves no part of a file in the way.
#[test]
fn an_output_file_without_room_is_69_and_is_not_left_behind() {
    let folder = PathBuf::from(format!("/tmp/gatewright-no-room-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let run = |arguments: &str| {
        let script = format!("trap '' XFSZ; ulimit -f 0; exec \"$0\" {arguments}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_gatewright")]).current_dir(&folder);
        shell.output().unwrap()
    };
    let said = run("init health -o health.toml");
    let error = String::from_utf8_lossy(&said.stderr).into_owned();
    assert_eq!(said.status.code(), Some(69), "{error}");
    assert!(error.contains("health.toml"), "{error}");
    assert!(!folder.join("health.toml").exists(), "half a description");
    for (arguments, file) in [
        ("diag -o diag.tar.gz --socket none", "diag.tar.gz"),
        ("mesh key new node.key", "node.key"),
    ] {
        let said = run(arguments);
        let error = String::from_utf8_lossy(&said.stderr).into_owned();
        assert_eq!(said.status.code(), Some(69), "{error}");
        assert!(error.contains(file) && !folder.join(file).exists(), "{error}");
    }
    let said = run("man --output .");
    let error = String::from_utf8_lossy(&said.stderr).into_owned();
    assert_eq!(said.status.code(), Some(69), "{error}");
    // Answers as long as a pipe takes are not concerned.
    assert!(run("init health").status.success());
    fs::remove_dir_all(folder).unwrap();
}
