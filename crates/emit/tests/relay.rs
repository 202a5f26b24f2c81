//! The SMTP relay as C and as Java, over sockets, between Postfix's load generator and its sink (3.7.11 here).
//!
//! Both are built by their `Makefile`. Without a compiler or those programs it is a skipped test, by
//! name.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub,
    reason = "a test may fail loudly"
)]

mod build;

use build::{is_there, place, succeed};
use gatewright_diagnostic::{SourceId, Sources};
use gatewright_emit::{C_IO, C_RUNTIME, JAVA_RUNTIME, SourceFile, c, java};
use gatewright_lang::compile;
use gatewright_lang::ir::Program;
use gatewright_testbed::{Namespace, Needs, free_port};
use libtest_mimic::{Arguments, Failed, Trial};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

const MESSAGES: &str = "400";

/// Descriptors that a relay may hold more than at its start: two for each of eight sessions, and
/// what a virtual machine opens once.
const DESCRIPTORS_MORE: usize = 40;

/// Who waits at a listener that is closed goes to another one at its address (Linux 5.14).
const MIGRATE: &str = "/proc/sys/net/ipv4/tcp_migrate_req";

/// Clients that come and go while a relay is replaced, and their sessions before and after.
const CLIENTS: usize = 4;
const SESSIONS: usize = 100;

/// A back end: what has to be installed, how a relay is made and what runs it.
#[derive(Clone, Copy)]
struct Language {
    name: &'static str,
    tools: &'static [&'static str],
    build: fn(&Path) -> Result<Vec<String>, Failed>,
}

const LANGUAGES: [Language; 3] = [
    Language { name: "c", tools: &["gcc"], build: as_c },
    Language { name: "c_libuv", tools: &["gcc"], build: with_libuv },
    Language { name: "java", tools: &["javac", "jar", "java"], build: as_java },
];

fn main() {
    let mut trials = Vec::new();
    for language in LANGUAGES {
        // libuv has no program, but a header.
        let libuv = language.name == "c_libuv";
        let unlinked = libuv && !Path::new("/usr/include/uv.h").is_file();
        let has = |tools: &[&str]| tools.iter().chain(language.tools).all(|tool| is_there(tool));
        let missing = unlinked || !has(&["smtp-source", "smtp-sink", "make"]);
        let run = move || relayed(language, false).and_then(|()| relayed(language, true));
        trials.push(Trial::test(language.name, run).with_ignored_flag(missing));
        let missing = unlinked || !has(&["make", "sh"]);
        let name = format!("{}_goes_on_to_the_end_of_what_runs", language.name);
        let ends = move || ended_in_order(language);
        trials.push(Trial::test(name, ends).with_ignored_flag(missing));
        let name = format!("{}_as_a_group_goes_on_to_the_end_of_what_runs", language.name);
        let ends = move || group_ended_in_order(language);
        trials.push(Trial::test(name, ends).with_ignored_flag(missing));
        let name = format!("{}_reads_a_long_body_by_turns", language.name);
        let turns = move || reads_by_turns(language);
        trials.push(Trial::test(name, turns).with_ignored_flag(missing));
        let name = format!("{}_rests_without_descriptors", language.name);
        let rests = move || rests_without_descriptors(language);
        trials.push(Trial::test(name, rests).with_ignored_flag(missing));
        let name = format!("{}_rests_with_a_client_that_says_no_more", language.name);
        let rests = move || rests_half_closed(language);
        trials.push(Trial::test(name, rests).with_ignored_flag(missing));
        let name = format!("{}_tells_of_a_server_that_is_lost_and_back", language.name);
        let tells = move || tells_of_its_server(language);
        trials.push(Trial::test(name, tells).with_ignored_flag(missing));
        let alone = Needs::new().namespaces().missing().is_some();
        let missing = missing || alone || !Path::new(MIGRATE).exists();
        let name = format!("{}_is_replaced_and_nobody_is_turned_away", language.name);
        let replaced = move || replaced(language);
        trials.push(Trial::test(name, replaced).with_ignored_flag(missing));
    }
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

/// Messages each on a connection of its own, or many on one.
fn relayed(language: Language, kept: bool) -> Result<(), Failed> {
    let words = (language.build)(&directory(language))?;
    let (sink_port, relay_port) = (free_port(), free_port());
    let sink_address = format!("127.0.0.1:{sink_port}");
    let mut sink = Command::new("smtp-sink");
    if fs::metadata("/proc/self")?.uid() == 0 {
        sink.args(["-u", "nobody"]);
    }
    let _sink = Running(sink.args([&sink_address, "64"]).stderr(Stdio::null()).spawn()?);
    reachable(sink_port)?;
    let mut relay = Command::new(&words[0]);
    relay
        .args(&words[1..])
        .arg(format!("inside=127.0.0.1:{relay_port}"))
        .arg(format!("next={sink_address}"));
    let mut relay = Running(relay.stderr(Stdio::piped()).spawn()?);
    let mut told = BufReader::new(relay.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    if !told.any(|line| line.ends_with("ready")) {
        return Err("the relay did not start".into());
    }
    let held = descriptors(&relay.0)?;
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
    let now = descriptors(&relay.0)?;
    if now > held + DESCRIPTORS_MORE {
        return Err(format!("{now} descriptors are open, {held} were at the start").into());
    }
    Ok(())
}

fn directory(language: Language) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("relay").join(language.name)
}

/// How many descriptors a process has open.
fn descriptors(process: &Child) -> Result<usize, Failed> {
    Ok(fs::read_dir(format!("/proc/{}/fd", process.id()))?.count())
}

/// It says what the system does not allow it; told to end, it takes nobody in any more, serves who
/// is there, and tells what was done.
fn ended_in_order(language: Language) -> Result<(), Failed> {
    let words = (language.build)(&directory(language))?;
    let port = free_port();
    let mut relay = Command::new("sh");
    // The first loop tells the second, which has a session or none.
    relay
        .args(["-c", "ulimit -n 200; exec \"$0\" \"$@\""])
        .args(&words)
        .args(["-n", "2"])
        .arg(format!("inside=127.0.0.1:{port}"))
        .stderr(Stdio::piped());
    let mut relay = Running(relay.spawn()?);
    let lines = BufReader::new(relay.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || lines.map(|line| tell.send(line)).all(|sent| sent.is_ok()));
    let await_told = |part: &str| {
        let mut lines = std::iter::from_fn(|| told.recv_timeout(PATIENCE).ok());
        lines.find(|line| line.contains(part)).ok_or(format!("`{part}` was not told"))
    };
    await_told("descriptors, this process may have 200 ")?;
    await_told("ready")?;
    if language.name != "java" {
        // Each of its loops is a process that says so.
        await_told("ready")?;
    }
    let session = TcpStream::connect(("127.0.0.1", port))?;
    session.set_read_timeout(Some(PATIENCE))?;
    let mut replies = BufReader::new(&session).lines();
    let mut say = |command: &str, wanted: &str| {
        (&session).write_all(command.as_bytes())?;
        let reply = replies.next().ok_or("no reply")??;
        if reply.starts_with(wanted) { Ok(()) } else { Err(Failed::from(reply)) }
    };
    say("", "220")?;
    say("HELO client\r\n", "250")?;
    let id = relay.0.id();
    let signal =
        |name: &str| succeed(Command::new("sh").args(["-c", &format!("kill -{name} {id}")]));
    signal("USR1")?;
    let line = await_told("handler inside.hello: ")?;
    if !line.contains("1 started, 1 finished, 0 failed, half below ") {
        return Err(line.into());
    }
    signal("TERM")?;
    await_told("draining")?;
    await_told("draining")?;
    if TcpStream::connect(("127.0.0.1", port)).is_ok() {
        return Err("it still listens".into());
    }
    say("HELO again\r\n", "250")?;
    say("QUIT\r\n", "221")?;
    drop(session);
    ended(&mut relay.0, "the relay")
}

/// Sessions, so many that no loop is without one, but for a chance of one in thousands: then nothing
/// is tried.
const SPREAD: usize = 16;

/// Who signals all processes of its group tells those that the first one leads twice.
fn group_ended_in_order(language: Language) -> Result<(), Failed> {
    let words = (language.build)(&directory(language))?;
    let port = free_port();
    let mut relay = Command::new(&words[0]);
    relay.args(&words[1..]).args(["-n", "2"]).arg(format!("inside=127.0.0.1:{port}"));
    let mut relay = serve(relay.process_group(0))?;
    relay.await_told("ready")?;
    if language.name != "java" {
        relay.await_told("ready")?;
    }
    let sessions: Result<Vec<_>, _> = (0..SPREAD).map(|_| Session::begin(port)).collect();
    let group = format!("kill -s TERM -- -{}", relay.process.0.id());
    succeed(Command::new("sh").args(["-c", &group]))?;
    relay.await_told("draining")?;
    relay.await_told("draining")?;
    for mut session in sessions? {
        session.say("HELO client\r\n", "250")?;
        session.say("QUIT\r\n", "221")?;
    }
    ended(&mut relay.process.0, "the relay")
}

/// Descriptors of a relay, and those who want one of them.
const DESCRIPTORS: usize = 100;
const WAITING: usize = 120;

/// Who comes when there is no descriptor left waits without work for anybody, and is served when
/// there is one.
fn rests_without_descriptors(language: Language) -> Result<(), Failed> {
    let words = (language.build)(&directory(language))?;
    let port = free_port();
    let mut relay = Command::new("sh");
    relay.args(["-c", &format!("ulimit -n {DESCRIPTORS}; exec \"$0\" \"$@\"")]).args(&words);
    let relay = serve(relay.arg(format!("inside=127.0.0.1:{port}")))?;
    relay.await_told("ready")?;
    let connect = |_| TcpStream::connect(("127.0.0.1", port));
    let mut waiting: Vec<TcpStream> = (0..WAITING).map(connect).collect::<Result<_, _>>()?;
    let begun = Instant::now();
    while descriptors(&relay.process.0)? < DESCRIPTORS {
        if begun.elapsed() > PATIENCE {
            return Err("it takes fewer in than it may".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    rests(&relay.process.0)?;
    let last = waiting.pop().unwrap();
    drop(waiting);
    last.set_read_timeout(Some(PATIENCE))?;
    Ok(Session(BufReader::new(last)).say("", "220")?)
}

/// Who ends its side while it waits for an answer is no work until the answer is there.
fn rests_half_closed(language: Language) -> Result<(), Failed> {
    let words = (language.build)(&directory(language))?;
    let port = free_port();
    let next = TcpListener::bind(("127.0.0.1", 0))?;
    let mut relay = Command::new(&words[0]);
    relay.args(&words[1..]).arg(format!("next={}", next.local_addr()?));
    let relay = serve(relay.arg(format!("inside=127.0.0.1:{port}")))?;
    relay.await_told("ready")?;
    let mut session = Session::begin(port)?;
    session.say("HELO client\r\n", "250")?;
    session.0.get_mut().write_all(b"MAIL FROM:<a@example.com>\r\n")?;
    // It is asked, and says nothing.
    let _silent = next.accept()?;
    session.0.get_mut().shutdown(Shutdown::Write)?;
    rests(&relay.process.0)
}

/// A server that nobody reaches is told once, and so is its return; both are counted.
fn tells_of_its_server(language: Language) -> Result<(), Failed> {
    let words = (language.build)(&directory(language))?;
    let (port, next) = (free_port(), free_port());
    let mut relay = Command::new(&words[0]);
    relay.args(&words[1..]).arg(format!("next=127.0.0.1:{next}"));
    let relay = serve(relay.arg(format!("inside=127.0.0.1:{port}")))?;
    relay.await_told("ready")?;
    let mut session = Session::begin(port)?;
    session.say("HELO client\r\n", "250")?;
    session.say("MAIL FROM:<a@example.com>\r\n", "451")?;
    session.say("MAIL FROM:<a@example.com>\r\n", "451")?;
    let lost = format!("peer-lost: cannot reach its next at 127.0.0.1:{next}: ");
    let told = relay.await_told(&lost)?;
    if !told.contains("Connection refused") {
        return Err(told.into());
    }
    let listener = TcpListener::bind(("127.0.0.1", next))?;
    std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| take_mail(&stream)));
    session.say("MAIL FROM:<a@example.com>\r\n", "250")?;
    relay.await_told(&format!("peer-back: reaches its next at 127.0.0.1:{next} again, after "))?;
    let id = relay.process.0.id();
    succeed(Command::new("sh").args(["-c", &format!("kill -USR1 {id}")]))?;
    let told = [relay.await_told("peers_lost ")?, relay.await_told("peers_back ")?];
    if told.iter().all(|line| line.ends_with(" 1")) { Ok(()) } else { Err(told.concat().into()) }
}

/// What a loop reads between two questions to the system: a turn of 16 KiB of each of the two
/// connections, as much as four turns of those that had theirs, and each turn ends with the read
/// that reaches it, which is of 8 KiB at the most.
const READ: u64 = 8 << 10;
const TURN: u64 = 16 << 10;
const AT_ONCE: u64 = 2 * (TURN + READ) + (64 << 10) + TURN + READ;

/// Octets of a mail whose sender never waits.
const BODY: usize = 12 << 20;

/// A body that comes as fast as it is taken is read in turns: between two questions to the system no
/// more than so much, so that others are heard.
fn reads_by_turns(language: Language) -> Result<(), Failed> {
    let words = (language.build)(&directory(language))?;
    let port = free_port();
    let next = TcpListener::bind(("127.0.0.1", 0))?;
    let address = next.local_addr()?;
    std::thread::spawn(move || next.incoming().flatten().for_each(|stream| take_mail(&stream)));
    let mut relay = Command::new(&words[0]);
    relay.args(&words[1..]).arg(format!("next={address}"));
    let relay = serve(relay.arg(format!("inside=127.0.0.1:{port}")))?;
    relay.await_told("ready")?;
    let mut session = Session::begin(port)?;
    session.say("HELO client\r\n", "250")?;
    session.say("MAIL FROM:<a@example.com>\r\n", "250")?;
    session.say("RCPT TO:<b@example.com>\r\n", "250")?;
    session.say("DATA\r\n", "354")?;
    let line = "one line of sixty-four octets, for a long body it is enough..\r\n";
    let body = line.repeat(BODY / line.len());
    session.say(&format!("{body}.\r\n"), "250")?;
    let id = relay.process.0.id();
    succeed(Command::new("sh").args(["-c", &format!("kill -USR1 {id}")]))?;
    let told = relay.await_told("octets_in ")?;
    let words = told.split(|other: char| !other.is_ascii_digit()).filter_map(|of| of.parse().ok());
    let [octets, at_once] = words.collect::<Vec<u64>>()[..] else { return Err(told.into()) };
    if octets < u64::try_from(body.len())? || !(TURN..=AT_ONCE).contains(&at_once) {
        return Err(told.into());
    }
    Ok(())
}

/// A mail server that takes everything.
fn take_mail(mut stream: &TcpStream) {
    let mut is_content = false;
    let _gone = stream.write_all(b"220 ready\r\n");
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let answer: &[u8] = match (line.as_str(), is_content) {
            ("DATA", false) => b"354 go\r\n",
            (".", true) => b"250 taken\r\n",
            (_, true) => continue,
            _ => b"250 ok\r\n",
        };
        is_content = answer.starts_with(b"354");
        let _gone = stream.write_all(answer);
    }
}

/// A window of time, and the most of it that a process that rests may use.
const WINDOW: Duration = Duration::from_millis(500);
const RESTING: f64 = 0.05;

/// Waits until a process does next to nothing.
fn rests(process: &Child) -> Result<(), Failed> {
    let begun = Instant::now();
    let mut used = 0.0;
    while begun.elapsed() < PATIENCE {
        let (before, from) = (processor_time(process)?, Instant::now());
        std::thread::sleep(WINDOW);
        used = (processor_time(process)? - before) / from.elapsed().as_secs_f64();
        if used <= RESTING {
            return Ok(());
        }
    }
    Err(format!("it works {used:.2} of the time").into())
}

/// What a process has used so far, in seconds: proc_pid_stat(5), a hundred ticks each.
fn processor_time(process: &Child) -> Result<f64, Failed> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.id()))?;
    let (_, fields) = stat.rsplit_once(')').ok_or("no name")?;
    let ticks = fields.split_ascii_whitespace().skip(11).take(2).map(str::parse::<u32>);
    Ok(ticks.sum::<Result<u32, _>>().map(f64::from)? / 100.0)
}

/// Another one is started at its address, then it is told to end: each client is served by one of
/// them, and who is in the middle of a session by the old one to its end.
fn replaced(language: Language) -> Result<(), Failed> {
    let words = (language.build)(&directory(language))?;
    let net = Namespace::new()?;
    net.run(|| {
        fs::write(MIGRATE, "1")?;
        let port = free_port();
        let over = AtomicBool::new(false);
        let served = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let mut old = start(&words, port, &[])?;
            old.await_told("ready")?;
            let clients: Vec<_> =
                (0..CLIENTS).map(|_| scope.spawn(|| come_and_go(port, &over, &served))).collect();
            let replaced = replace(&words, port, &mut old, &served);
            over.store(true, Ordering::Release);
            // Their server is there until the last has gone.
            let gone: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
            let mut new = replaced?;
            gone.into_iter().collect::<Result<(), String>>()?;
            terminate(&new.process.0)?;
            ended(&mut new.process.0, "the new relay")
        })
    })?
}

/// A relay that serves, and what it tells.
struct Serving {
    process: Running,
    told: mpsc::Receiver<String>,
}

impl Serving {
    fn await_told(&self, part: &str) -> Result<String, Failed> {
        let mut lines = std::iter::from_fn(|| self.told.recv_timeout(PATIENCE).ok());
        Ok(lines.find(|line| line.contains(part)).ok_or(format!("`{part}` was not told"))?)
    }
}

fn start(words: &[String], port: u16, options: &[&str]) -> Result<Serving, Failed> {
    let mut relay = Command::new(&words[0]);
    serve(relay.args(&words[1..]).args(options).arg(format!("inside=127.0.0.1:{port}")))
}

fn serve(relay: &mut Command) -> Result<Serving, Failed> {
    let mut process = Running(relay.stderr(Stdio::piped()).spawn()?);
    let lines = BufReader::new(process.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || lines.map(|line| tell.send(line)).all(|sent| sent.is_ok()));
    Ok(Serving { process, told })
}

fn terminate(process: &Child) -> Result<(), Failed> {
    succeed(Command::new("sh").args(["-c", &format!("kill -TERM {}", process.id())]))
}

fn replace(
    words: &[String],
    port: u16,
    old: &mut Serving,
    served: &AtomicUsize,
) -> Result<Serving, Failed> {
    wait_for(served, SESSIONS)?;
    let mut session = Session::begin(port)?;
    // Nobody takes its place by mistake.
    let twice = start(words, port, &[])?;
    twice.await_told("-r serves beside who has it")?;
    let new = start(words, port, &["-r"])?;
    new.await_told("ready")?;
    terminate(&old.process.0)?;
    old.await_told("draining")?;
    session.say("HELO client\r\n", "250")?;
    session.say("QUIT\r\n", "221")?;
    drop(session);
    ended(&mut old.process.0, "the old relay")?;
    wait_for(served, served.load(Ordering::Acquire) + SESSIONS)?;
    Ok(new)
}

fn wait_for(served: &AtomicUsize, sessions: usize) -> Result<(), Failed> {
    let begun = Instant::now();
    while served.load(Ordering::Acquire) < sessions {
        if begun.elapsed() > PATIENCE {
            return Err("the clients are not served".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn come_and_go(port: u16, over: &AtomicBool, served: &AtomicUsize) -> Result<(), String> {
    while !over.load(Ordering::Acquire) {
        let mut session = Session::begin(port)?;
        session.say("HELO client\r\n", "250")?;
        session.say("QUIT\r\n", "221")?;
        served.fetch_add(1, Ordering::AcqRel);
    }
    Ok(())
}

/// A client's session.
struct Session(BufReader<TcpStream>);

impl Session {
    fn begin(port: u16) -> Result<Self, String> {
        let begun = || {
            let stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(Self(BufReader::new(stream)))
        };
        let mut session = begun().map_err(|wrong: std::io::Error| format!("connect: {wrong}"))?;
        session.say("", "220")?;
        Ok(session)
    }

    fn say(&mut self, command: &str, wanted: &str) -> Result<(), String> {
        let mut reply = String::new();
        let said = self.0.get_mut().write_all(command.as_bytes());
        said.and_then(|()| self.0.read_line(&mut reply))
            .map_err(|wrong| format!("{command:?}: {wrong}"))?;
        let good = reply.starts_with(wanted);
        if good { Ok(()) } else { Err(format!("{command:?}: {reply:?}")) }
    }
}

fn as_c(directory: &Path) -> Result<Vec<String>, Failed> {
    c_over(directory, "epoll")
}

fn with_libuv(directory: &Path) -> Result<Vec<String>, Failed> {
    c_over(directory, "uv")
}

fn c_over(directory: &Path, poller: &str) -> Result<Vec<String>, Failed> {
    let (program, sources) = program()?;
    let files = c(&program, &|span| Some(place(&sources, span)))?;
    let flags = "CFLAGS=-O1 -pedantic -Werror -std=c11 -Wall -Wextra -pthread";
    make(directory, files, C_RUNTIME.into_iter().chain(C_IO), &[flags, &format!("LOOP={poller}")])?;
    Ok(vec![directory.join("smtp_relay").display().to_string()])
}

fn as_java(directory: &Path) -> Result<Vec<String>, Failed> {
    let (program, sources) = program()?;
    let files = java(&program, &|span| Some(place(&sources, span)))?;
    make(directory, files, JAVA_RUNTIME, &["JAVACFLAGS=-Xlint:all -Werror"])?;
    let jar = directory.join("smtp_relay.jar").display().to_string();
    Ok(["java", "-XX:+UseSerialGC", "-jar", &jar].map(str::to_owned).into())
}

fn program() -> Result<(Arc<Program>, Sources), Failed> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateways");
    let text = fs::read_to_string(folder.join("smtp_relay.gate"))?;
    let mut sources = Sources::of("smtp_relay.gate", text);
    let compiled = compile(&mut sources, SourceId::default(), |_, import| {
        Some((import.to_owned(), fs::read_to_string(folder.join(import)).ok()?))
    });
    Ok((Arc::new(compiled.program.unwrap()), sources))
}

/// One compiles at a time: two tests run what one of them has built.
static BUILDING: Mutex<()> = Mutex::new(());

/// Compiles a relay as its users do; one that is compiled already stays.
fn make(
    directory: &Path,
    files: Vec<SourceFile>,
    runtime: impl IntoIterator<Item = (&'static str, &'static str)>,
    flags: &[&str],
) -> Result<(), Failed> {
    let _building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = runtime.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned()));
    for (name, text) in runtime.chain(files.into_iter().map(|file| (file.name, file.text))) {
        let path = directory.join(name);
        if fs::read_to_string(&path).is_ok_and(|before| before == text) {
            continue;
        }
        fs::create_dir_all(path.parent().unwrap())?;
        fs::write(path, text)?;
    }
    succeed(Command::new("make").arg("-s").arg("-C").arg(directory).args(flags))
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
