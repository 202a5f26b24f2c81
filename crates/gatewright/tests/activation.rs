//! A socket that a service manager passes (sd_listen_fds(3)): clients wait for the gateway in it, and it
//! stays while gateways come and go.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_testbed::free_port;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::{fd::OwnedFd, unix::net::UnixListener, unix::net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

const BINARY: &str = env!("CARGO_BIN_EXE_gatewright");

/// Generous: nothing here takes as long unless it never comes.
const LIMIT: Duration = Duration::from_mins(1);

/// `EX_TEMPFAIL` of `sysexits.h`: another process has the address.
const IN_USE: i32 = 75;

/// What a service manager does: the socket is descriptor 3, and the variables name the process.
const PASS: &str = "exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\"";

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs a gateway whose web interface is at `listen`, with a socket of this name.
fn run(folder: &Path, listen: &str, socket: impl Into<OwnedFd>, name: &str) -> Child {
    let file = folder.join("gateway.toml");
    fs::write(&file, format!("[web]\nlisten = \"{listen}\"\n{}", relay())).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", PASS, "sh", BINARY, "run", "--log", "none", "--socket"]);
    command.arg(folder.join("gateway.sock")).arg(&file).env("LISTEN_FDNAMES", name);
    command.stdin(Stdio::from(socket.into())).spawn().unwrap()
}

/// A gateway has something to run: a relay that nobody uses.
fn relay() -> String {
    format!(
        "[tcp_proxy.a]\nlisten = \"127.0.0.1:{}\"\nforward = {{ address = \"127.0.0.1\", port = 1 }}\n",
        free_port()
    )
}

/// Asks whether it lives, and reads to the end.
fn asked(stream: &mut (impl Read + Write)) -> String {
    let request = "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Ends it as a service manager does, so that it cleans up.
fn ends(mut gateway: Child) {
    kill(Pid::from_raw(gateway.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let status = gateway.wait().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn clients_wait_in_the_socket_for_one_gateway_after_the_other() {
    let folder = folder("activation-tcp");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    for _ in 0..2 {
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(LIMIT)).unwrap();
        let socket = listener.try_clone().unwrap();
        let gateway = run(&folder, &address.to_string(), socket, "web");
        let answer = asked(&mut client);
        ends(gateway);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

#[test]
fn a_socket_at_a_path_stays_when_the_gateway_ends() {
    let folder = folder("activation-unix");
    let path = folder.join("web.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut client = UnixStream::connect(&path).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    let listen = format!("unix:{}", path.display());
    let gateway = run(&folder, &listen, listener.try_clone().unwrap(), "web");
    let answer = asked(&mut client);
    ends(gateway);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(path.exists());
}

#[test]
fn a_socket_of_another_name_is_not_taken() {
    let folder = folder("activation-other");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let socket = listener.try_clone().unwrap();
    let status = run(&folder, &address, socket, "metrics").wait().unwrap();
    assert_eq!(status.code(), Some(IN_USE));
}
