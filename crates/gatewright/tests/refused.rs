//! A gateway that cannot begin says what is missing, and ends with the code for it: 77 for a right,
//! 69 for a device or a file that the system lets nobody write.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use gatewright_testbed::{Namespace, Needs, Veth};
use libtest_mimic::{Arguments, Failed, Trial};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The user and group `nobody` of Debian.
const NOBODY: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];
/// The superuser, who may do nothing but what files let him.
const POWERLESS: [&str; 2] = ["--bounding-set=-all", "--inh-caps=-all"];

/// A folder that anybody can enter and write to, with the binary in it; it goes with this.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("gatewright-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        // Where it was built others may not look.
        fs::copy(env!("CARGO_BIN_EXE_gatewright"), folder.join("gatewright")).unwrap();
        Self(folder)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _left = fs::remove_dir_all(&self.0);
    }
}

/// Runs a gateway with this description and without what `setpriv` takes; its code and what it said.
fn run(
    place: &Place,
    host: &Namespace,
    without: &[&str],
    description: &str,
) -> (Option<i32>, String) {
    let [file, socket, binary] =
        ["gateway.toml", "socket", "gatewright"].map(|name| place.path().join(name));
    fs::write(&file, description).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    let mut command = host.command("setpriv").args(without).arg(binary).arg("run").arg(file);
    // It ends by itself, also one that begins against all expectation.
    command = command.args(["--stop-after", "5", "--socket"]).arg(socket);
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn host() -> Result<(Namespace, Veth), Failed> {
    let host = Namespace::new()?;
    let cable = Veth::pair(&host, "g0", &host, "n0")?;
    // What it would speak for.
    cable.b.add_address("192.0.2.1/24")?;
    cable.up()?;
    Ok((host, cable))
}

fn described(device: &str, mode: &str) -> String {
    format!(
        "[link.lan]\ndevice = \"{device}\"\nmode = \"{mode}\"\naddresses = [\"10.10.1.1/24\"]\n"
    )
}

fn a_missing_right_is_named() -> Result<(), Failed> {
    let (host, _cable) = host()?;
    let place = Place::new("rights");
    let shared = "[link.lan]\ndevice = \"g0\"\nexclusive = false\n".to_owned();
    let cases = [
        (described("g0", "auto"), "g0", "CAP_NET_RAW"),
        (described("g0", "packet"), "g0", "CAP_NET_RAW"),
        (described("g0", "xdp"), "g0", "CAP_NET_ADMIN"),
        (shared, "links", "CAP_BPF"),
    ];
    for (description, device, right) in cases {
        for without in [&NOBODY[..], &POWERLESS] {
            let (code, said) = run(&place, &host, without, &description);
            let is_named = said.contains(device) && said.contains(right);
            assert!(code == Some(77) && is_named, "{without:?} {description}: {code:?} {said}");
        }
    }
    // One right is there, the other is not: the kernel would go on speaking.
    let one = ["--inh-caps=+net_raw", "--ambient-caps=+net_raw"];
    let (code, said) =
        run(&place, &host, &[&NOBODY[..], &one].concat(), &described("g0", "packet"));
    assert!(code == Some(77) && said.contains("CAP_NET_ADMIN"), "{code:?} {said}");
    Ok(())
}

fn a_missing_device_is_named() -> Result<(), Failed> {
    let (host, _cable) = host()?;
    let place = Place::new("devices");
    for mode in ["auto", "packet", "xdp"] {
        for without in [&[][..], &NOBODY] {
            let (code, said) = run(&place, &host, without, &described("g9", mode));
            let is_named = said.contains("lan") && said.contains("g9");
            assert!(code == Some(69) && is_named, "{without:?} {mode}: {code:?} {said}");
        }
    }
    Ok(())
}

/// What `check` cannot know of this machine is refused by the start with its file, line and key.
fn a_refused_key_is_named_with_its_place() -> Result<(), Failed> {
    let (host, _cable) = host()?;
    let place = Place::new("keys");
    let link = described("g0", "packet");
    let capture = place.path().join("none/t.pcapng");
    let capture = format!(
        "{link}[[attach]]\nhandler = \"capture\"\nat = \"frame\"\nfile = \"{}\"\n",
        capture.display()
    );
    let cases = [
        (format!("{link}[planes]\ncontrol_core = 1000\n"), 6, "control_core", 69),
        (capture, 8, "file", 69),
    ];
    for (description, line, key, expected) in cases {
        let (code, said) = run(&place, &host, &[], &description);
        let is_named = said.contains(&format!("gateway.toml:{line}:")) && said.contains(key);
        assert!(code == Some(expected) && is_named, "{description}: {code:?} {said}");
        let file = place.path().join("gateway.toml");
        let mut checked = Command::new(place.path().join("gatewright"));
        let checked = checked.arg("check").arg(file).output()?;
        assert!(checked.status.success(), "it may be for another machine");
    }
    Ok(())
}

/// A run that ends by itself, and a look at what the description needs.
const RUN: &str = "run gateway.toml --stop-after 5 --socket socket";
const DOCTOR: &str = "doctor gateway.toml";
/// A folder that nobody can write to, and files that may not grow.
const MOUNT: &str = "mount -t tmpfs -o ro none kept";
const LIMIT: &str = "ulimit -f 0";
/// A disk without room.
const FULL: &str =
    "mount -t tmpfs -o size=32m none kept && { head -c 40M /dev/zero > kept/ballast; true; }";

/// Runs a verb with this description after a command of the shell, with mounts of its own.
fn run_after(
    place: &Place,
    host: &Namespace,
    (first, verb): (&str, &str),
    description: &str,
) -> (Option<i32>, String) {
    let folder = place.path();
    fs::write(folder.join("gateway.toml"), description).unwrap();
    let script = format!("cd {} && {first} && exec ./gatewright {verb} 2>&1", folder.display());
    let output = host.command("unshare").args(["-m", "sh", "-c", &script]).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A store and an audit log where this user may not write, where nobody can, where files may not
/// grow, and where there is no room.
fn a_file_that_cannot_be_written_is_named() -> Result<(), Failed> {
    let host = Namespace::new()?;
    host.ip(&["link", "set", "lo", "up"])?;
    let place = Place::new("stores");
    let kept = place.path().join("kept");
    fs::create_dir(&kept)?;
    let cse = "[cse]\nbase = \"cse\"\nid = \"/cse\"\n";
    let store = format!("{cse}store = \"{}/cse.db\"\n", kept.display());
    let web = "[web]\nlisten = \"127.0.0.1:8787\"\n";
    let audit = format!("{cse}{web}audit = \"{}/web.db\"\n", kept.display());
    for (description, file) in [(&store, "kept/cse.db"), (&audit, "kept/web.db")] {
        let (code, said) = run(&place, &host, &NOBODY, description);
        let is_named = said.contains(file) && said.contains("Permission denied");
        assert!(code == Some(77) && is_named, "{description}: {code:?} {said}");
        for (first, cause) in [
            (MOUNT, "Read-only file system"),
            (LIMIT, "at most 0 octets"),
            (FULL, "the disk is full: 0 KiB are free"),
        ] {
            let (code, said) = run_after(&place, &host, (first, RUN), description);
            let is_named = said.contains(file) && said.contains(cause);
            assert!(code == Some(69) && is_named, "{first} {description}: {code:?} {said}");
        }
    }
    let file = "kept/t.pcapng";
    let link = format!(
        "[link.t]\nmode = \"pcapng\"\nwrite = \"{}\"\naddresses = [\"192.0.2.1/24\"]\n",
        place.path().join(file).display()
    );
    for (first, cause) in [(MOUNT, "Read-only file system"), (LIMIT, "File too large")] {
        let (code, said) = run_after(&place, &host, (first, RUN), &link);
        let is_named = said.contains(file) && said.contains(cause);
        assert!(code == Some(69) && is_named, "{first}: {code:?} {said}");
    }
    for (first, found) in [(MOUNT, "read-only, tmpfs"), (LIMIT, "file size")] {
        let (code, said) = run_after(&place, &host, (first, DOCTOR), &store);
        let mut lines = said.lines();
        let missing = lines.any(|line| line.starts_with("MISSING") && line.contains(found));
        assert!(code == Some(1) && missing, "{first}: {code:?} {said}");
    }
    Ok(())
}

fn main() {
    let trial = |name: &str, run: fn() -> Result<(), Failed>| match Needs::new()
        .namespaces()
        .program("setpriv")
        .program("unshare")
        .missing()
    {
        None => Trial::test(name, run),
        Some(missing) => {
            Trial::test(format!("{name} (needs {missing})"), run).with_ignored_flag(true)
        }
    };
    let trials = vec![
        trial("a_missing_right_is_named", a_missing_right_is_named),
        trial("a_missing_device_is_named", a_missing_device_is_named),
        trial("a_refused_key_is_named_with_its_place", a_refused_key_is_named_with_its_place),
        trial("a_file_that_cannot_be_written_is_named", a_file_that_cannot_be_written_is_named),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
