//! The connection of a coordinator and an agent: both prove that they have the key, and every message
//! has a code that only they can make.
//!
//! | from | octets |
//! |---|---|
//! | agent | `GWLAB 1` and a line feed, a random number A of 32 octets |
//! | coordinator | a random number C of 32 octets, HMAC(key, `coordinator` A C) |
//! | agent | HMAC(key, `agent` A C) |
//! | both | messages: length in 32 bits, HMAC(session key, side, number of the message, octets), octets |
//!
//! The session key is HMAC(key, `session` A C), always HMAC-SHA-256. An agent reads nothing but the
//! 64 octets of the proof from whoever has no key. Messages are authentic and in order; they are not
//! secret.

use crate::stamp::StampKey;
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How an agent greets.
const GREETING: [u8; 8] = *b"GWLAB 1\n";
/// Octets of a random number, and of an HMAC.
const RANDOM_LEN: usize = 32;
/// Octets of a message at the most: the samples of 20,000 packets.
pub(crate) const MESSAGE_MAX: usize = 4 << 20;
/// How long each side waits for the other's proof.
const PROOF_WITHIN: Duration = Duration::from_secs(5);
/// Probes of a silent connection: after how many seconds, how many, and how far apart.
const KEEP_IDLE_S: u32 = 10;
const KEEP_INTERVAL_S: u32 = 5;
const KEEP_COUNT: u32 = 3;
/// How long a call waits before it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);

/// Why there is no message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentChannelError {
    /// The other side does not greet as an agent.
    #[error("it is no agent of the delay lab, or one of another version")]
    NoAgent,
    /// The other side has not proved that it has the key, or a message is not its own.
    #[error("it does not have the same key")]
    NotAuthentic,
    /// A message exceeds the bound.
    #[error("a message of {0} octets is too long")]
    TooLong(usize),
    /// The other side was silent for too long.
    #[error("it was silent for {0} s")]
    Silent(u64),
    /// The connection has ended.
    #[error("the connection has ended")]
    Ended,
    /// The system's error.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A side of the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ChannelSide {
    Coordinator,
    Agent,
}

impl ChannelSide {
    const fn label(self) -> &'static [u8] {
        match self {
            Self::Coordinator => b"coordinator",
            Self::Agent => b"agent",
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::Coordinator => Self::Agent,
            Self::Agent => Self::Coordinator,
        }
    }
}

/// An authenticated connection.
#[derive(Debug)]
pub struct AgentChannel {
    stream: TcpStream,
    session: StampKey,
    side: ChannelSide,
    /// Messages sent and received.
    sent: u64,
    received: u64,
}

impl AgentChannel {
    /// The agent's side: greets, and takes a coordinator that has the key.
    ///
    /// # Errors
    ///
    /// [`AgentChannelError`].
    pub fn accept(
        stream: TcpStream,
        key: &StampKey,
        random: [u8; RANDOM_LEN],
    ) -> Result<Self, AgentChannelError> {
        let mut channel = Self::new(stream, key, ChannelSide::Agent)?;
        channel.stream.write_all(&[&GREETING[..], &random].concat())?;
        let mut answer = [0; 2 * RANDOM_LEN];
        channel.read(&mut answer, PROOF_WITHIN, &|| false)?;
        let (theirs, proof) = answer.split_at(RANDOM_LEN);
        let own = key.whole_hmac(&[ChannelSide::Coordinator.label(), &random, theirs]);
        if !is_same(&own, proof) {
            return Err(AgentChannelError::NotAuthentic);
        }
        channel.session = StampKey::new(&key.whole_hmac(&[b"session", &random, theirs]));
        let proof = key.whole_hmac(&[ChannelSide::Agent.label(), &random, theirs]);
        channel.stream.write_all(&proof)?;
        Ok(channel)
    }

    /// The coordinator's side: proves to have the key, and has the agent prove it.
    ///
    /// # Errors
    ///
    /// [`AgentChannelError`].
    pub fn connect(
        stream: TcpStream,
        key: &StampKey,
        random: [u8; RANDOM_LEN],
    ) -> Result<Self, AgentChannelError> {
        let mut channel = Self::new(stream, key, ChannelSide::Coordinator)?;
        let mut greeting = [0; GREETING.len() + RANDOM_LEN];
        channel.read(&mut greeting, PROOF_WITHIN, &|| false)?;
        let (word, theirs) = greeting.split_at(GREETING.len());
        if word != GREETING {
            return Err(AgentChannelError::NoAgent);
        }
        let proof = key.whole_hmac(&[ChannelSide::Coordinator.label(), theirs, &random]);
        channel.stream.write_all(&[random, proof].concat())?;
        let mut proof = [0; RANDOM_LEN];
        let read = channel.read(&mut proof, PROOF_WITHIN, &|| false);
        // An agent that does not know this coordinator's key ends the connection.
        read.map_err(|error| match error {
            AgentChannelError::Ended => AgentChannelError::NotAuthentic,
            other => other,
        })?;
        let own = key.whole_hmac(&[ChannelSide::Agent.label(), theirs, &random]);
        if !is_same(&own, &proof) {
            return Err(AgentChannelError::NotAuthentic);
        }
        channel.session = StampKey::new(&key.whole_hmac(&[b"session", theirs, &random]));
        Ok(channel)
    }

    fn new(stream: TcpStream, key: &StampKey, side: ChannelSide) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(PROOF_WITHIN))?;
        // A machine that is gone without a word is noticed after KEEP_IDLE + KEEP_COUNT · KEEP_INTERVAL.
        setsockopt(&stream, sockopt::KeepAlive, &true)?;
        setsockopt(&stream, sockopt::TcpKeepIdle, &KEEP_IDLE_S)?;
        setsockopt(&stream, sockopt::TcpKeepInterval, &KEEP_INTERVAL_S)?;
        setsockopt(&stream, sockopt::TcpKeepCount, &KEEP_COUNT)?;
        Ok(Self { stream, session: key.clone(), side, sent: 0, received: 0 })
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// [`AgentChannelError`].
    pub fn send(&mut self, octets: &[u8]) -> Result<(), AgentChannelError> {
        let len = u32::try_from(octets.len()).ok().filter(|_| octets.len() <= MESSAGE_MAX);
        let len = len.ok_or(AgentChannelError::TooLong(octets.len()))?;
        let code = code(&self.session, self.side, self.sent, octets);
        self.sent += 1;
        self.stream.write_all(&[&len.to_be_bytes()[..], &code, octets].concat())?;
        Ok(())
    }

    /// The next message, within a time; `is_stop_requested` may end the waiting before.
    ///
    /// # Errors
    ///
    /// [`AgentChannelError`].
    pub fn receive(
        &mut self,
        within: Duration,
        is_stop_requested: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>, AgentChannelError> {
        let mut head = [0; 4 + RANDOM_LEN];
        self.read(&mut head, within, is_stop_requested)?;
        let (len, theirs) = head.split_at(4);
        let len = len.first_chunk().map_or(0, |len| u32::from_be_bytes(*len));
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > MESSAGE_MAX {
            return Err(AgentChannelError::TooLong(len));
        }
        let mut octets = vec![0; len];
        self.read(&mut octets, PROOF_WITHIN, is_stop_requested)?;
        let own = code(&self.session, self.side.other(), self.received, &octets);
        self.received += 1;
        if is_same(&own, theirs) { Ok(octets) } else { Err(AgentChannelError::NotAuthentic) }
    }

    fn read(
        &mut self,
        octets: &mut [u8],
        within: Duration,
        is_stop_requested: &dyn Fn() -> bool,
    ) -> Result<(), AgentChannelError> {
        let start = Instant::now();
        let mut there = 0;
        while let Some(room) = octets.get_mut(there..).filter(|room| !room.is_empty()) {
            match self.stream.read(room) {
                Ok(0) => return Err(AgentChannelError::Ended),
                Ok(len) => there += len,
                Err(error) if is_waiting(&error) && is_stop_requested() => {
                    return Err(AgentChannelError::Ended);
                }
                Err(error) if is_waiting(&error) && start.elapsed() >= within => {
                    return Err(AgentChannelError::Silent(within.as_secs()));
                }
                Err(error) if is_waiting(&error) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return Err(AgentChannelError::Ended);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn is_waiting(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// The code of a side's message with this number.
fn code(key: &StampKey, side: ChannelSide, number: u64, octets: &[u8]) -> [u8; RANDOM_LEN] {
    key.whole_hmac(&[side.label(), &number.to_be_bytes(), octets])
}

/// Whether two codes are the same; it takes the same time wherever they differ.
fn is_same(one: &[u8; RANDOM_LEN], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |all, (one, other)| all | (one ^ other));
    other.len() == RANDOM_LEN && differing == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const SOON: Duration = Duration::from_secs(20);

    /// Both ends of a connection, with a key for each.
    fn both(
        keys: [&[u8]; 2],
    ) -> (Result<AgentChannel, AgentChannelError>, Result<AgentChannel, AgentChannelError>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let [agents, coordinators] = keys.map(StampKey::new);
        let agent = std::thread::spawn(move || {
            AgentChannel::accept(listener.accept().unwrap().0, &agents, [1; 32])
        });
        let stream = TcpStream::connect(at).unwrap();
        let coordinator = AgentChannel::connect(stream, &coordinators, [2; 32]);
        (agent.join().unwrap(), coordinator)
    }

    #[test]
    fn messages_pass_both_ways_in_order() {
        let (agent, coordinator) = both([b"the key", b"the key"]);
        let (mut agent, mut coordinator) = (agent.unwrap(), coordinator.unwrap());
        let long = vec![7; 100_000];
        for message in [&b""[..], b"one", &long] {
            coordinator.send(message).unwrap();
            assert_eq!(agent.receive(SOON, &|| false).unwrap(), message);
            agent.send(message).unwrap();
            assert_eq!(coordinator.receive(SOON, &|| false).unwrap(), message);
        }
        drop(agent);
        let ended = coordinator.receive(SOON, &|| false);
        assert!(matches!(ended, Err(AgentChannelError::Ended)), "{ended:?}");
    }

    #[test]
    fn without_the_key_nothing_is_read() {
        let (agent, coordinator) = both([b"the key", b"another"]);
        assert!(matches!(agent, Err(AgentChannelError::NotAuthentic)), "{agent:?}");
        assert!(matches!(coordinator, Err(AgentChannelError::NotAuthentic)), "{coordinator:?}");
    }

    #[test]
    fn a_message_that_is_changed_repeated_or_too_long_is_refused() {
        type Change<'a> = &'a dyn Fn(&mut Vec<u8>);
        let pair = || {
            let (agent, coordinator) = both([b"the key", b"the key"]);
            (agent.unwrap(), coordinator.unwrap())
        };
        let frame = |session: &StampKey, number, octets: &[u8]| {
            let len = u32::try_from(octets.len()).unwrap();
            let code = code(session, ChannelSide::Coordinator, number, octets);
            [&len.to_be_bytes()[..], &code, octets].concat()
        };
        let refused = |change: &dyn Fn(&mut Vec<u8>), number| {
            let (mut agent, mut coordinator) = pair();
            let mut octets = frame(&coordinator.session, number, b"send");
            change(&mut octets);
            coordinator.stream.write_all(&octets).unwrap();
            agent.receive(SOON, &|| false)
        };
        assert_eq!(refused(&|_| {}, 0).unwrap(), b"send");
        let wrong: [(Change<'_>, u64); 3] =
            [(&|it| it[39] ^= 1, 0), (&|it| it[4] ^= 1, 0), (&|_| {}, 1)];
        for (change, number) in wrong {
            let got = refused(change, number);
            assert!(matches!(got, Err(AgentChannelError::NotAuthentic)), "{got:?}");
        }
        let long = refused(&|it| it[0] = 0xff, 0);
        assert!(matches!(long, Err(AgentChannelError::TooLong(_))), "{long:?}");
        // The agent's own message, sent back to it.
        let (mut agent, mut coordinator) = pair();
        agent.send(b"hello").unwrap();
        let mut own = [0; 41];
        coordinator.read(&mut own, SOON, &|| false).unwrap();
        coordinator.stream.write_all(&own).unwrap();
        let got = agent.receive(SOON, &|| false);
        assert!(matches!(got, Err(AgentChannelError::NotAuthentic)), "{got:?}");
    }

    #[test]
    fn somebody_else_is_no_agent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let other = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n").unwrap();
        });
        let stream = TcpStream::connect(at).unwrap();
        let got = AgentChannel::connect(stream, &StampKey::new(b"k"), [0; 32]);
        assert!(matches!(got, Err(AgentChannelError::NoAgent)), "{got:?}");
        other.join().unwrap();
    }
}
