//! Mail of one client while others send commands without waiting for answers: to the same relay, to
//! another process of the same relay, and not at all.

use super::clients::{body, client};
use super::percentile;
use super::world::{MailSink, text};
use bench::Bench;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Clients that pipeline.
const PIPELINING: usize = 50;
/// What they send, as many at once as a socket takes, and what each of them is answered.
const COMMAND: &[u8] = b"NOOP\r\n";
const ANSWER_OCTETS: usize = "250 2.0.0 ok\r\n".len();
const COMMANDS_AT_ONCE: usize = 1_000;
/// Mails of the one client, and their octets.
const MAILS: u32 = 400;
const OCTETS: u32 = 10 << 10;
/// Milliseconds after which the clients look whether it is over.
const LOOK_EVERY: u8 = 10;

/// A relay by name: the port of the mails, and that of a second process which only the clients that
/// pipeline have.
#[derive(Clone, Copy)]
pub(super) struct Relays {
    pub(super) name: &'static str,
    pub(super) port: u16,
    pub(super) apart: u16,
}

/// Samples the percentiles of a mail's time in each state.
///
/// `apart` is the load without the relay's own part: the same clients, and as much to do for the
/// processors, but another process serves them.
pub(super) fn sample(bench: &mut Bench, world: &MailSink, relays: Relays) -> Result<(), String> {
    let Relays { name, port, apart } = relays;
    let mails = bench.options().pick(MAILS, MAILS / 2);
    let calm = mail(world, port, mails)?;
    let busy = mail_beside(world, relays, port, mails)?;
    let apart = mail_beside(world, relays, apart, mails)?;
    for (key, times) in [("calm", calm), ("pipelined", busy), ("apart", apart)] {
        bench.sample(&format!("{name}_{key}_p50_ms"), "ms", percentile(&times, 50));
        bench.sample(&format!("{name}_{key}_p99_ms"), "ms", percentile(&times, 99));
    }
    Ok(())
}

/// The times of some mails while clients pipeline at the port `pipelined`, sorted.
fn mail_beside(
    world: &MailSink,
    relays: Relays,
    pipelined: u16,
    mails: u32,
) -> Result<Vec<f64>, String> {
    let stop = AtomicBool::new(false);
    let (busy, answered) = std::thread::scope(|scope| {
        let pipelining =
            scope.spawn(|| world.net.run(|| pipeline(pipelined, &stop)).map_err(text)?);
        let busy = mail(world, relays.port, mails);
        stop.store(true, Ordering::Relaxed);
        let answered = pipelining.join().map_err(|_| "the pipelining clients panicked")??;
        Ok::<_, String>((busy?, answered))
    })?;
    if answered.contains(&0) {
        let name = relays.name;
        return Err(format!("a pipelining client of {name} had no answer: {answered:?}"));
    }
    Ok(busy)
}

/// The times of some mails of one client, sorted.
fn mail(world: &MailSink, port: u16, mails: u32) -> Result<Vec<f64>, String> {
    let body = body(OCTETS);
    let mut times = world.net.run(|| client(port, &body, mails)).map_err(text)??;
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Sends commands over all connections as fast as they are taken until it is to stop; how many
/// answers each of them got.
fn pipeline(port: u16, stop: &AtomicBool) -> Result<Vec<usize>, String> {
    let connect = |_| {
        let stream = TcpStream::connect(("127.0.0.1", port)).map_err(text)?;
        stream.set_nonblocking(true).map_err(text)?;
        Ok(stream)
    };
    let streams = (0..PIPELINING).map(connect).collect::<Result<Vec<_>, String>>()?;
    let commands = COMMAND.repeat(COMMANDS_AT_ONCE);
    // How much of the commands was taken in the last turn: none may be cut.
    let mut states = vec![(0, 0); PIPELINING];
    while !stop.load(Ordering::Relaxed) {
        let both = PollFlags::POLLIN | PollFlags::POLLOUT;
        let mut asked: Vec<_> = streams.iter().map(|of| PollFd::new(of.as_fd(), both)).collect();
        poll(&mut asked, PollTimeout::from(LOOK_EVERY)).map_err(text)?;
        for (stream, (taken, got)) in streams.iter().zip(&mut states) {
            *got += drain(stream)?;
            let rest = commands.get(*taken..).unwrap_or_default();
            match { stream }.write(rest) {
                Ok(length) => *taken = (*taken + length) % commands.len(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(text(error)),
            }
        }
    }
    Ok(states.into_iter().map(|(_, got)| got / ANSWER_OCTETS).collect())
}

/// Octets that were there to be read.
fn drain(mut stream: &TcpStream) -> Result<usize, String> {
    let mut octets = [0; 8 << 10];
    match stream.read(&mut octets) {
        Ok(0) => Err("the relay ended a connection".to_owned()),
        Ok(length) => Ok(length),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        Err(error) => Err(text(error)),
    }
}
