//! `--socket` means the same before and behind the part of a verb.

use std::{fs, io::ErrorKind, os::unix::net::UnixListener, path::PathBuf, process::Command};

#[test]
fn a_socket_before_the_part_of_a_verb_is_the_one_that_is_asked() {
    // A path of a socket has 108 octets at the most.
    let folder = PathBuf::from(format!("/tmp/gatewright-socket-{}", std::process::id()));
    fs::create_dir_all(folder.join("gatewright")).unwrap();
    let other = UnixListener::bind(folder.join("gatewright/default.sock")).unwrap();
    other.set_nonblocking(true).unwrap();
    let meant = folder.join("b.sock");
    let forms: [(&str, &[&str]); 9] = [
        ("route", &["list"]),
        ("route", &["add", "10.77.0.0/16", "--via", "10.5.0.9"]),
        ("route", &["del", "10.77.0.0/16"]),
        ("neigh", &["list"]),
        ("neigh", &["add", "10.5.0.9", "02:00:00:00:00:09"]),
        ("neigh", &["del", "10.5.0.9"]),
        ("neigh", &["flush"]),
        ("link", &["down", "world"]),
        ("link", &["up", "world"]),
    ];
    for (verb, part) in forms {
        for is_before in [true, false] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_gatewright"));
            command.env("XDG_RUNTIME_DIR", &folder).arg(verb);
            let socket = ["--socket".as_ref(), meant.as_os_str()];
            if is_before {
                command.args(socket).args(part);
            } else {
                command.args(part).args(socket);
            }
            let done = command.output().unwrap();
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(said.contains(meant.to_str().unwrap()), "{verb} {part:?}: {said}");
            assert_eq!(done.status.code(), Some(69), "{verb} {part:?}: {said}");
            let asked = other.accept().map_err(|error| error.kind());
            assert!(matches!(asked, Err(ErrorKind::WouldBlock)), "{verb} {part:?}: {asked:?}");
        }
    }
    let mut twice = Command::new(env!("CARGO_BIN_EXE_gatewright"));
    let twice = twice.args(["link", "lan", "down", "world", "--socket"]).arg(&meant);
    assert_eq!(twice.output().unwrap().status.code(), Some(2));
    fs::remove_dir_all(folder).unwrap();
}
