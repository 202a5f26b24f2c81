//! Many sessions at once: 10,000 that are silent, 1,000 that all send.

use super::world::{MailSink, text};
use crate::process;
use gatewright_descriptors::Claim;
use gatewright_testbed::Process;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Messages that each of the active clients sends.
const MESSAGES_EACH: u32 = 5;
/// A reply that has not come by then does not come.
const REPLY_WITHIN: Duration = Duration::from_mins(1);
/// The stack of a client's thread: it does very little.
const STACK: usize = 128 << 10;

/// Opens silent sessions and returns how much the relay's resident memory grew for each, in KiB.
pub(super) fn idle(
    world: &MailSink,
    (relay, port): (&Process, u16),
    sessions: u32,
) -> Result<f64, String> {
    let descriptors = Claim::new(sessions.into());
    if let Some(shortage) = descriptors.shortage() {
        return Err(shortage.to_string());
    }
    let before = resident_kib(relay)?;
    let opened = world.net.run(|| {
        let open = |_| {
            let stream = TcpStream::connect(("127.0.0.1", port)).map_err(text)?;
            greeted(&stream)?;
            Ok(stream)
        };
        (0..sessions).map(open).collect::<Result<Vec<TcpStream>, String>>()
    });
    let opened = opened.map_err(text)??;
    let after = resident_kib(relay)?;
    drop(opened);
    Ok((after - before) / f64::from(sessions))
}

/// Reads the greeting octet by octet, so that nothing of ours is held for the session.
fn greeted(mut stream: &TcpStream) -> Result<(), String> {
    stream.set_read_timeout(Some(REPLY_WITHIN)).map_err(text)?;
    let mut octet = [0];
    let mut first = None;
    while octet != *b"\n" {
        stream.read_exact(&mut octet).map_err(text)?;
        first.get_or_insert(octet);
    }
    if first == Some(*b"2") { Ok(()) } else { Err("a session was not greeted".to_owned()) }
}

fn resident_kib(process: &Process) -> Result<f64, String> {
    process::resident_kib(process.id().ok_or("the relay has ended")?)
}

/// Lets clients send at once, each some messages over a connection of its own; the time of each
/// message in milliseconds, sorted. None may fail.
pub(super) fn active(
    world: &MailSink,
    port: u16,
    clients: u32,
    octets: u32,
) -> Result<Vec<f64>, String> {
    let body = body(octets);
    let body = body.as_str();
    let before = world.received()?;
    let times = world.net.run(|| {
        std::thread::scope(|scope| {
            let start = |_| {
                let builder = std::thread::Builder::new().stack_size(STACK);
                builder.spawn_scoped(scope, || client(port, body, MESSAGES_EACH)).map_err(text)
            };
            let started: Result<Vec<_>, String> = (0..clients).map(start).collect();
            let mut times = Vec::new();
            for thread in started? {
                times.extend(thread.join().map_err(|_| "a client panicked")??);
            }
            Ok::<_, String>(times)
        })
    });
    let mut times = times.map_err(text)??;
    times.sort_by(f64::total_cmp);
    let arrived = world.received()? - before;
    let sent = u64::from(clients) * u64::from(MESSAGES_EACH);
    if arrived == sent { Ok(times) } else { Err(format!("{arrived} of {sent} messages arrived")) }
}

/// The body of a mail with about so many octets, and its end.
pub(super) fn body(octets: u32) -> String {
    let line = "x".repeat(64) + "\r\n";
    line.repeat(usize::try_from(octets).unwrap_or(0) / line.len()) + ".\r\n"
}

/// Sends some messages over one connection; the time of each in milliseconds.
pub(super) fn client(port: u16, body: &str, messages: u32) -> Result<Vec<f64>, String> {
    let stream = TcpStream::connect(("127.0.0.1", port)).map_err(text)?;
    stream.set_nodelay(true).map_err(text)?;
    stream.set_read_timeout(Some(REPLY_WITHIN)).map_err(text)?;
    let mut replies = BufReader::with_capacity(512, &stream);
    let mut line = String::new();
    let mut say = |command: &str, wanted: &str| {
        (&stream).write_all(command.as_bytes()).map_err(text)?;
        line.clear();
        replies.read_line(&mut line).map_err(text)?;
        if line.starts_with(wanted) { Ok(()) } else { Err(format!("{command:.20}: {line}")) }
    };
    say("", "220")?;
    say("HELO client\r\n", "250")?;
    let mut times = Vec::new();
    for _message in 0..messages {
        let start = Instant::now();
        say("MAIL FROM:<a@example.com>\r\n", "250")?;
        say("RCPT TO:<b@example.com>\r\n", "250")?;
        say("DATA\r\n", "354")?;
        say(body, "250")?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    say("QUIT\r\n", "221")?;
    Ok(times)
}
