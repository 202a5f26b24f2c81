//! `[devices]` and `[cse]` under `gatewright run`: what devices report is stored, told by status
//! and metrics, and there again after a restart.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

fn gatewright(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gatewright")).args(arguments).output().unwrap()
}

/// A folder of this test's own, empty.
fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// `gatewright run`, killed if the test ends.
struct Running {
    child: Child,
    socket: PathBuf,
}

impl Running {
    fn start(file: &Path) -> Self {
        let socket = file.with_extension("sock");
        let _ = fs::remove_file(&socket);
        let child = Command::new(env!("CARGO_BIN_EXE_gatewright"))
            .args(["run", "--socket"])
            .args([&socket, file])
            .current_dir(file.parent().unwrap())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let running = Self { child, socket };
        wait_until("it answers", || running.status().is_some());
        running
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        let socket = self.socket.to_str().unwrap();
        gatewright(&[&["status", "--socket", socket], arguments].concat())
    }

    fn status(&self) -> Option<Value> {
        let output = self.ask(&["--json"]);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// A number that a part tells.
    fn number(&self, part: &str, name: &str) -> u64 {
        let status = self.status().unwrap();
        let part = status["parts"].as_array().unwrap().iter().find(|it| it["name"] == part);
        let pairs = |kind: &str| part.unwrap()[kind].as_array().unwrap().clone();
        let pair = pairs("gauges").into_iter().chain(pairs("counters")).find(|it| it[0] == name);
        pair.unwrap()[1].as_u64().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn simulate(to: u16, arguments: &str) -> Value {
    let to = format!("127.0.0.1:{to}");
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let output =
        gatewright(&[&["device", "simulate", "--json", "--to", &to], &arguments[..]].concat());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The content of an answer to an originator's GET.
fn get(port: u16, path: &str) -> Value {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\nX-M2M-Origin: CAdmin\r\n\
         X-M2M-RI: {path}\r\nX-M2M-RVI: 4\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap()
}

fn instances(port: u16) -> Vec<String> {
    let found = get(port, "/cse-gw?fu=1&ty=4");
    let list = found["m2m:uril"].as_array().unwrap();
    list.iter().map(|uri| uri.as_str().unwrap().to_owned()).collect()
}

/// The description of `gatewright init health` with ports of its own, in its own folder.
fn described(name: &str) -> (PathBuf, u16, u16) {
    let output = gatewright(&["init", "health"]);
    let [devices, http] = [free_port(), free_port()];
    let text = String::from_utf8(output.stdout).unwrap();
    let text = text
        .replace("127.0.0.1:6024", &format!("127.0.0.1:{devices}"))
        .replace("127.0.0.1:8080", &format!("127.0.0.1:{http}"));
    let file = folder(name).join("health.toml");
    fs::write(&file, text).unwrap();
    (file, devices, http)
}

#[test]
fn the_template_takes_devices_and_keeps_their_readings_over_a_restart() {
    let (file, devices, http) = described("health-template");
    let running = Running::start(&file);
    let answer = simulate(devices, "--kind oximeter --count 2 --rate 5 --seconds 1");
    assert_eq!(answer["passed"], true, "{answer}");
    let stored = instances(http);
    assert_eq!(Some(stored.len() as u64), answer["values"].as_u64());
    assert_eq!(running.number("devices", "readings"), stored.len() as u64);
    let metrics = String::from_utf8(running.ask(&["--metrics"]).stdout).unwrap();
    let line = format!("gatewright_devices_readings_total {}", stored.len());
    assert!(metrics.contains(&line), "{metrics}");
    assert!(metrics.contains("# TYPE gatewright_cse_resources gauge"), "{metrics}");
    let text = String::from_utf8(running.ask(&[]).stdout).unwrap();
    assert!(text.contains("devices: listens at 127.0.0.1:"), "{text}");
    let url = format!("http://127.0.0.1:{http}");
    let away = gatewright(&[
        "device",
        "ask",
        "--json",
        "--cse",
        &url,
        "cse-gw/phd-0247000100000001",
        "read",
    ]);
    let answer: Value = serde_json::from_slice(&away.stdout).unwrap();
    assert_eq!((away.status.code(), &answer["status"]), (Some(1), &5103.into()), "{answer}");
    drop(running);
    let again = Running::start(&file);
    assert_eq!(instances(http), stored);
    drop(again);
}
