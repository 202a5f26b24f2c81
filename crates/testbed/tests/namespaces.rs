//! The testbed against the kernel: what it makes works, and what it made is gone afterwards.
//!
//! A test that lacks its rights or programs is shown as ignored, with what is missing.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

use gatewright_testbed::{Namespace, Needs, Transport, Veth, wait_until};
use libtest_mimic::{Arguments, Failed, Trial};
use std::io::{BufRead, BufReader};
use std::process::{ExitCode, Stdio};
use std::time::Duration;
use std::{env, fs, path::Path};

const LIMIT: Duration = Duration::from_secs(30);
/// Set for the process that the kill -9 test starts from this same binary: the path of the
/// namespace to which it is to connect.
const VICTIM: &str = "GATEWRIGHT_TESTBED_VICTIM";

fn main() -> ExitCode {
    if let Ok(path) = env::var(VICTIM) {
        victim(&path).expect("the victim must come up");
        return ExitCode::FAILURE;
    }
    let trials = vec![
        trial("two_namespaces_ping_each_other", Needs::new().program("ping"), ping),
        trial("a_namespace_sees_its_own_network_only", Needs::new(), separate),
        trial("processes_end_with_the_namespace", Needs::new().program("setsid"), processes_end),
        trial("kill_9_leaves_nothing_behind", Needs::new().program("setsid"), kill_9),
        trial("a_failed_command_is_told_in_its_own_words", Needs::new(), failed_command),
        trial("listeners_and_counters_are_seen", Needs::new(), listeners),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn trial(name: &str, needs: Needs, test: fn() -> Result<(), Failed>) -> Trial {
    match needs.namespaces().missing() {
        None => Trial::test(name, test),
        Some(missing) => {
            Trial::test(format!("{name} (needs {missing})"), test).with_ignored_flag(true)
        }
    }
}

fn ping() -> Result<(), Failed> {
    let (left, right) = (Namespace::new()?, Namespace::new()?);
    let veth = Veth::pair(&left, "l0", &right, "r0")?;
    veth.a.add_address("192.0.2.1/24")?;
    veth.b.add_address("192.0.2.2/24")?;
    veth.a.add_address("2001:db8::1/64")?;
    veth.b.add_address("2001:db8::2/64")?;
    veth.a.set_mac("02:00:00:00:00:0a")?;
    veth.b.set_mtu(1400)?;
    veth.up()?;
    assert_eq!(veth.a.mac()?, "02:00:00:00:00:0a");
    assert!(right.ip(&["link", "show", "dev", "r0"])?.contains("mtu 1400"));
    for address in ["192.0.2.2", "2001:db8::2"] {
        left.command("ping").args(["-c", "1", "-W", "30", address]).run()?;
    }
    let answered = right.counter("IcmpInEchos")? + right.counter("Icmp6InEchos")?;
    assert_eq!(answered, 2);
    Ok(())
}

fn separate() -> Result<(), Failed> {
    let namespace = Namespace::new()?;
    let names = |text: String| -> Vec<String> {
        let names = text.lines().skip(2).filter_map(|line| line.split(':').next());
        names.map(|name| name.trim().to_owned()).collect()
    };
    let inside = namespace.run(|| fs::read_to_string("/proc/thread-self/net/dev"))??;
    assert_eq!(names(inside), ["lo"]);
    let link = |path: &str| fs::read_link(path).map(|link| link.display().to_string());
    let own = link("/proc/thread-self/ns/net")?;
    assert_ne!(namespace.run(|| link("/proc/thread-self/ns/net"))??, own);
    assert_eq!(link("/proc/thread-self/ns/net")?, own, "the caller stays where it was");
    namespace.sysctl("net.ipv4.ip_forward", "1")?;
    let forward = || fs::read_to_string("/proc/sys/net/ipv4/ip_forward");
    assert_eq!(namespace.run(forward)??, "1\n");
    Ok(())
}

/// A shell that starts a daemon in a session of its own, prints its id, and waits.
const DAEMON: &str = "setsid sleep 1000 & echo $!; wait";

fn processes_end() -> Result<(), Failed> {
    let namespace = Namespace::new()?;
    let mut shell = namespace.command("sh").args(["-c", DAEMON]).stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(shell.stdout().ok_or("no output")?).lines();
    lines.next().ok_or("no line")??;
    let inside = || processes_in(&namespace);
    assert!(wait_until(LIMIT, || inside().len() >= 2), "the shell and its daemon run inside");
    let before = inside();
    shell.kill();
    drop(namespace);
    assert!(wait_until(LIMIT, || !before.iter().any(|id| alive(id))), "{before:?} must be gone");
    Ok(())
}

fn kill_9() -> Result<(), Failed> {
    let here = Namespace::new()?;
    let mut victim = std::process::Command::new(env::current_exe()?)
        .env(VICTIM, here.path())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(victim.stdout.take().ok_or("no output")?).lines();
    let mut line = || lines.next().ok_or("the victim ended")?.map_err(Failed::from);
    let inside = line()?;
    let processes: Vec<String> = line()?.split_whitespace().map(str::to_owned).collect();
    assert!(processes.len() >= 2, "{processes:?}");
    let cable = || here.ip(&["link", "show", "dev", "y0"]).is_ok();
    assert!(cable(), "the cable to the victim is there");
    victim.kill()?;
    victim.wait()?;
    assert!(wait_until(LIMIT, || !cable()), "the victim's namespace {inside} must be gone");
    assert!(wait_until(LIMIT, || !processes.iter().any(|id| alive(id))), "{processes:?}");
    Ok(())
}

/// Makes a namespace with a cable to `path` and a daemon inside, tells about it, and waits.
fn victim(path: &str) -> Result<(), Failed> {
    let namespace = Namespace::new()?;
    namespace.ip(&["link", "add", "x0", "type", "veth", "peer", "name", "y0", "netns", path])?;
    let shell = namespace.command("sh").args(["-c", DAEMON]).stdout(Stdio::piped()).spawn()?;
    wait_until(LIMIT, || processes_in(&namespace).len() >= 2);
    println!("{}\n{}", namespace.path(), processes_in(&namespace).join(" "));
    std::thread::sleep(Duration::from_secs(1000));
    drop(shell);
    Ok(())
}

fn failed_command() -> Result<(), Failed> {
    let namespace = Namespace::new()?;
    let error = namespace.ip(&["link", "set", "dev", "nothing0", "up"]).unwrap_err().to_string();
    assert!(error.starts_with("ip link set dev nothing0 up failed: "), "{error}");
    assert!(error.contains("nothing0"), "{error}");
    let error = namespace.command("no-such-program").run().unwrap_err().to_string();
    assert!(error.starts_with("cannot start no-such-program: "), "{error}");
    let error = namespace.sysctl("net.no_such.thing", "1").unwrap_err().to_string();
    assert!(error.starts_with("/proc/sys/net/no_such/thing: "), "{error}");
    assert!(namespace.counter("TcpNoSuchCounter").is_err());
    Ok(())
}

fn listeners() -> Result<(), Failed> {
    let namespace = Namespace::new()?;
    let waits = |transport| namespace.wait_listening(transport, 4242, Duration::ZERO);
    assert!(!waits(Transport::Udp)? && !waits(Transport::Tcp)?);
    let sockets = namespace.run(|| {
        let udp = std::net::UdpSocket::bind("127.0.0.1:4242")?;
        Ok::<_, std::io::Error>((udp, std::net::TcpListener::bind("[::1]:4242")?))
    })??;
    assert!(waits(Transport::Udp)? && waits(Transport::Tcp)?);
    drop(sockets);
    assert_eq!(namespace.counter("UdpInCsumErrors")?, 0);
    assert_eq!(namespace.counter("Udp6InCsumErrors")?, 0);
    assert_eq!(namespace.counter("TcpExtListenDrops")?, 0);
    Ok(())
}

/// The ids of the processes whose network is `namespace`, without this one.
fn processes_in(namespace: &Namespace) -> Vec<String> {
    let inside = namespace.run(|| fs::read_link("/proc/thread-self/ns/net").unwrap()).unwrap();
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let ids = entries.filter_map(|entry| entry.file_name().into_string().ok());
    // The anchor is inside, too, but not a process that a test started.
    let is_anchor =
        |id: &str| fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|c| c == "cat\n");
    ids.filter(|id| fs::read_link(format!("/proc/{id}/ns/net")).is_ok_and(|net| net == inside))
        .filter(|id| !is_anchor(id))
        .collect()
}

/// Whether the process `id` still runs (one that has ended and waits to be collected does not).
fn alive(id: &str) -> bool {
    let directory = Path::new("/proc").join(id);
    let status = fs::read_to_string(directory.join("stat")).unwrap_or_default();
    let state = status.rsplit_once(')').and_then(|(_, rest)| rest.trim().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}
