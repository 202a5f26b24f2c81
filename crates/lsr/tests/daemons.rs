//! Programs that are not ours use a mesh of five nodes in a line as one LAN: each finds by multicast
//! what is four hops away.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod nodes;

use gatewright_mesh::Profile;
use gatewright_testbed::{Command, Namespace, Needs, python_with, wait_until};
use libtest_mimic::{Arguments, Failed};
use nodes::{LIMIT, Mesh, missing, trial};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

/// The two ends.
const NEAR: &str = "10.99.0.1";
const FAR: &str = "10.99.0.5";
/// A client asks once more when nobody has answered within this.
const ONE_ATTEMPT: Duration = Duration::from_secs(2);
/// Until a client has its answer: daemon and client start on a machine that others use too, and a client
/// of SLP waits for seconds in each attempt.
const ANSWER_LIMIT: Duration = Duration::from_mins(3);

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trial = |name, programs: &[&str], test| {
        let needs = programs.iter().fold(Needs::new(), |needs, program| needs.program(program));
        trial(name, missing(needs).as_deref(), test)
    };
    let avahi = ["avahi-daemon", "avahi-resolve", "dbus-daemon", "unshare"];
    let trials = vec![
        trial("avahi_resolves_a_name_by_mdns", &avahi, mdns),
        trial("llmnrd_answers_a_name_by_llmnr", &["llmnrd", "llmnr-query"], llmnr),
        trial("minidlna_is_found_by_ssdp", &["minidlnad"], ssdp),
        trial("pyslp_finds_an_agent_by_slp", &["python3"], slp).with_ignored_flag(
            missing(Needs::new().program("python3")).is_some() || pyslp().is_none(),
        ),
        trial("socat_hears_announcements_to_the_groups_of_jini", &["socat"], jini),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A Python that has pyslp, from PyPI.
fn pyslp() -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pyslp");
    python_with(&folder, "pyslp==0.1.7")
}

/// Five nodes in a line, whose hosts send to groups over the mesh.
fn line() -> Result<Mesh, Failed> {
    let mesh = Mesh::line(5, Profile::Default)?;
    for node in &mesh.nodes {
        node.ip(&["route", "add", "224.0.0.0/4", "dev", "mesh0"])?;
    }
    Ok(mesh)
}

/// An empty folder.
fn folder(name: &str) -> Result<PathBuf, Failed> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("daemons-{name}"));
    let _absent = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn silent(command: Command) -> Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

/// What a client says, asked again and again until it says what is expected.
fn says(ask: impl Fn() -> Result<String, Failed>, expected: &str) {
    let mut said = String::new();
    let found = wait_until(ANSWER_LIMIT, || {
        said = ask().unwrap_or_else(|error| format!("{error:?}"));
        said.contains(expected)
    });
    assert!(found, "{expected} is not in: {said}");
}

fn output(command: Command) -> Result<String, Failed> {
    let output = command.stdin(Stdio::null()).output()?;
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    Ok(text(&output.stdout) + &text(&output.stderr))
}

/// avahi-daemon in a place of its own for the file of its number, with these lines of its description.
fn avahi(node: &Namespace, name: &str, dbus: Option<&str>) -> Result<Command, Failed> {
    let file = folder(&format!("avahi-{name}"))?.join("avahi-daemon.conf");
    let enables = if dbus.is_some() { "yes" } else { "no" };
    fs::write(
        &file,
        format!(
            "[server]\nhost-name={name}\nuse-ipv6=no\nallow-interfaces=mesh0\n\
             enable-dbus={enables}\n[publish]\npublish-hinfo=no\npublish-workstation=no\n"
        ),
    )?;
    let start = "mkdir -p /run/avahi-daemon && mount -t tmpfs none /run/avahi-daemon && \
                 exec avahi-daemon --no-drop-root --no-chroot --no-rlimits -f \"$0\"";
    let daemon = node.command("unshare").args(["--mount", "sh", "-c", start]).arg(file);
    let daemon = match dbus {
        Some(bus) => daemon.env("DBUS_SYSTEM_BUS_ADDRESS", bus),
        None => daemon,
    };
    Ok(silent(daemon))
}

/// Multicast DNS (RFC 6762): a name of the far end's avahi, resolved by that of the near end.
fn mdns() -> Result<(), Failed> {
    let mesh = line()?;
    let (near, far) = (&mesh.nodes[0], &mesh.nodes[4]);
    let folder = folder("dbus")?;
    let (file, socket) = (folder.join("bus.conf"), folder.join("bus"));
    let bus = format!("unix:path={}", socket.display());
    fs::write(
        &file,
        format!(
            "<busconfig><listen>{bus}</listen><policy context=\"default\"><allow user=\"*\"/>\
             <allow own=\"*\"/><allow send_destination=\"*\" eavesdrop=\"true\"/>\
             <allow eavesdrop=\"true\"/></policy></busconfig>"
        ),
    )?;
    let daemon = near.command("dbus-daemon").arg("--nofork");
    let config = format!("--config-file={}", file.display());
    let _bus = silent(daemon.arg(config)).spawn()?;
    assert!(wait_until(LIMIT, || socket.exists()), "the bus does not start");
    let _far = avahi(far, "far", None)?.spawn()?;
    let _near = avahi(near, "near", Some(&bus))?.spawn()?;
    let ask = || {
        let client = near.command("avahi-resolve").args(["-4", "-n", "far.local"]);
        output(client.env("DBUS_SYSTEM_BUS_ADDRESS", &bus))
    };
    says(ask, &format!("far.local\t{FAR}"));
    Ok(())
}

/// Link-local multicast name resolution (RFC 4795).
fn llmnr() -> Result<(), Failed> {
    let mesh = line()?;
    let daemon = mesh.nodes[4].command("llmnrd").args(["-H", "farhost", "-i", "mesh0"]);
    let _daemon = silent(daemon).spawn()?;
    let ask = || {
        let client = mesh.nodes[0].command("llmnr-query");
        output(client.args(["-I", "mesh0", "-T", "A", "farhost"]))
    };
    says(ask, FAR);
    Ok(())
}

/// UPnP: a media server answers a search (SSDP), and gives its description over TCP.
fn ssdp() -> Result<(), Failed> {
    const SEARCH: &[u8] = b"M-SEARCH * HTTP/1.1\r\nHOST: 239.255.255.250:1900\r\n\
        MAN: \"ssdp:discover\"\r\nMX: 1\r\nST: urn:schemas-upnp-org:device:MediaServer:1\r\n\r\n";
    let mesh = line()?;
    let at = folder("minidlna")?;
    fs::create_dir_all(at.join("media"))?;
    let file = at.join("minidlna.conf");
    let folder = at.display();
    let text = format!(
        "network_interface=mesh0\nport=8200\nmedia_dir={folder}/media\ndb_dir={folder}\n\
         log_dir={folder}\ninotify=no\nminissdpdsocket={folder}/none\n"
    );
    fs::write(&file, text)?;
    let daemon = mesh.nodes[4].command("minidlnad").args(["-S", "-f"]).arg(&file);
    let _daemon = silent(daemon.arg("-P").arg(at.join("pid"))).spawn()?;
    let near = mesh.nodes[0].run(|| UdpSocket::bind((NEAR, 0)))??;
    near.set_read_timeout(Some(ONE_ATTEMPT))?;
    let ask = || {
        near.send_to(SEARCH, "239.255.255.250:1900")?;
        let mut buffer = [0; 2_048];
        let (len, _) = near.recv_from(&mut buffer)?;
        Ok(String::from_utf8_lossy(&buffer[..len]).into_owned())
    };
    says(ask, &format!("LOCATION: http://{FAR}:8200/rootDesc.xml"));
    let mut stream = mesh.nodes[0].run(|| TcpStream::connect((FAR, 8_200)))??;
    stream.set_read_timeout(Some(LIMIT))?;
    stream
        .write_all(format!("GET /rootDesc.xml HTTP/1.0\r\nHost: {FAR}:8200\r\n\r\n").as_bytes())?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    assert!(page.contains("MediaServer:1"), "{page}");
    Ok(())
}

/// SLP (RFC 2608): a user agent asks all, a service agent answers.
fn slp() -> Result<(), Failed> {
    const URL: &str = "service:printer://10.99.0.5:515";
    let python = pyslp().ok_or("pyslp is not there any more")?;
    let python = python.to_str().ok_or("no path")?;
    let tests = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mesh = line()?;
    let agent = mesh.nodes[4].command(python).arg(tests.join("python/slp_agent.py"));
    let _agent = silent(agent.args([FAR, "service:printer", URL])).spawn()?;
    let client = tests.join("../../runner/tests/python/find_services.py");
    let ask = || output(mesh.nodes[0].command(python).arg(&client).args([NEAR, "service:printer"]));
    says(ask, URL);
    Ok(())
}

/// Announcements and requests as those of Jini (its discovery protocol, §DJ.2): datagrams to
/// 224.0.1.84 and .85 at port 4160.
fn jini() -> Result<(), Failed> {
    let mesh = line()?;
    for group in [Ipv4Addr::new(224, 0, 1, 84), Ipv4Addr::new(224, 0, 1, 85)] {
        let hears = format!("UDP4-RECV:4160,ip-add-membership={group}:{FAR},reuseaddr");
        let file = folder("jini")?.join("heard");
        let receiver = mesh.nodes[4].command("socat").args(["-u", &hears, "STDOUT"]);
        let receiver = receiver.stdin(Stdio::null()).stdout(fs::File::create(&file)?);
        let _receiver = receiver.stderr(Stdio::null()).spawn()?;
        let sends =
            format!("UDP4-DATAGRAM:{group}:4160,ip-multicast-if={NEAR},ip-multicast-ttl=15");
        let ask = || {
            let sender = mesh.nodes[0].command("sh");
            let command = format!("printf 'announcement to {group}' | socat -u STDIN {sends}");
            output(sender.args(["-c", &command]))?;
            Ok(fs::read_to_string(&file)?)
        };
        says(ask, &format!("announcement to {group}"));
    }
    Ok(())
}
