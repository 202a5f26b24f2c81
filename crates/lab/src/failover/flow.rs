//! A flow of numbered datagrams that the other end returns.

use gatewright_testbed::{Namespace, TestbedError};
use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a thread looks whether the flow has ended.
const LOOK: Duration = Duration::from_millis(50);

/// TOS octet of traffic of bounded delay: flows of that class are not spread over several paths, so what
/// is cut is the path that they take.
const BOUNDED_DELAY: i32 = 0xa0;

/// Datagrams of a flow at the most: an hour at one a millisecond.
const DATAGRAMS_MAX: usize = 3_600_000;

/// A datagram of a flow.
#[derive(Clone, Copy, Debug)]
pub struct EchoedDatagram {
    /// When it was sent, since the start of the flow.
    pub sent: Duration,
    /// Its round-trip time; `None` without an answer.
    pub rtt: Option<Duration>,
}

#[derive(Debug)]
struct SharedFlow {
    began: Instant,
    datagrams: Mutex<Vec<EchoedDatagram>>,
    ended: AtomicBool,
}

/// A running flow; dropping it ends it.
#[derive(Debug)]
pub struct EchoFlow {
    shared: Arc<SharedFlow>,
    threads: Vec<JoinHandle<()>>,
}

impl EchoFlow {
    /// Starts a flow from an address of the first host to `target` at the second.
    pub(super) fn start(
        (from, to): (&Namespace, &Namespace),
        [source, target]: &[String; 2],
        len: usize,
        every: Duration,
    ) -> Result<Self, io::Error> {
        let other = |error: TestbedError| io::Error::other(error);
        let far = to.run(|| UdpSocket::bind(target)).map_err(other)??;
        let near = from.run(|| UdpSocket::bind((source.as_str(), 0))).map_err(other)??;
        for socket in [&near, &far] {
            setsockopt(socket, sockopt::Ipv4Tos, &BOUNDED_DELAY)?;
        }
        near.connect(target)?;
        far.set_read_timeout(Some(LOOK))?;
        near.set_read_timeout(Some(LOOK))?;
        let shared = Arc::new(SharedFlow {
            began: Instant::now(),
            datagrams: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let sender = near.try_clone()?;
        let (echo, send, receive) = (Arc::clone(&shared), Arc::clone(&shared), Arc::clone(&shared));
        let threads = vec![
            std::thread::Builder::new().name("echo".into()).spawn(move || echo.echo(&far))?,
            std::thread::Builder::new()
                .name("send".into())
                .spawn(move || send.send(&sender, len, every))?,
            std::thread::Builder::new()
                .name("receive".into())
                .spawn(move || receive.receive(&near))?,
        ];
        Ok(Self { shared, threads })
    }

    /// Time since the start.
    pub fn now(&self) -> Duration {
        self.shared.began.elapsed()
    }

    /// The datagrams so far.
    pub fn datagrams(&self) -> Vec<EchoedDatagram> {
        self.shared.lock().clone()
    }

    /// The longest outage that began in a time: from the first datagram without an answer to the
    /// first with one after it.
    pub fn outage(&self, from: Duration, to: Duration) -> Duration {
        longest_outage(&self.shared.lock(), from, to)
    }
}

impl Drop for EchoFlow {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let _panicked = thread.join();
        }
    }
}

impl SharedFlow {
    fn lock(&self) -> MutexGuard<'_, Vec<EchoedDatagram>> {
        self.datagrams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn runs(&self) -> bool {
        !self.ended.load(Ordering::Acquire)
    }

    fn echo(&self, socket: &UdpSocket) {
        let mut buffer = [0; 2048];
        while self.runs() {
            if let Ok((len, from)) = socket.recv_from(&mut buffer) {
                // Without a path back it is lost, as any datagram.
                let _lost = socket.send_to(buffer.get(..len).unwrap_or_default(), from);
            }
        }
    }

    fn send(&self, socket: &UdpSocket, len: usize, every: Duration) {
        let mut datagram = vec![0; len.max(4)];
        let mut next = self.began;
        while self.runs() {
            next += every;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            let number = {
                let mut datagrams = self.lock();
                if datagrams.len() >= DATAGRAMS_MAX {
                    return;
                }
                datagrams.push(EchoedDatagram { sent: self.began.elapsed(), rtt: None });
                u32::try_from(datagrams.len() - 1).unwrap_or(u32::MAX)
            };
            for (to, from) in datagram.iter_mut().zip(number.to_be_bytes()) {
                *to = from;
            }
            let _lost = socket.send(&datagram);
        }
    }

    fn receive(&self, socket: &UdpSocket) {
        let mut buffer = [0; 2048];
        while self.runs() {
            let Ok(_) = socket.recv(&mut buffer) else { continue };
            let now = self.began.elapsed();
            let number = buffer.first_chunk().map_or(0, |number| u32::from_be_bytes(*number));
            let number = usize::try_from(number).unwrap_or(usize::MAX);
            if let Some(datagram) = self.lock().get_mut(number) {
                datagram.rtt.get_or_insert(now.saturating_sub(datagram.sent));
            }
        }
    }
}

fn longest_outage(datagrams: &[EchoedDatagram], from: Duration, to: Duration) -> Duration {
    let (mut since, mut longest) = (None, Duration::ZERO);
    for datagram in datagrams.iter().filter(|datagram| datagram.sent >= from) {
        match (since, datagram.rtt) {
            (None, None) if datagram.sent < to => since = Some(datagram.sent),
            (Some(first), Some(_)) => {
                longest = longest.max(datagram.sent.saturating_sub(first));
                since = None;
            }
            _ => {}
        }
    }
    // Those of the last milliseconds may still be answered; an outage that lasts is one.
    match since {
        Some(first) if datagrams.last().is_some_and(|last| last.sent > first + LOOK) => {
            longest.max(to.saturating_sub(first))
        }
        _ => longest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(answered: &[bool]) -> Vec<EchoedDatagram> {
        let datagram = |(number, &answered): (u64, &bool)| EchoedDatagram {
            sent: Duration::from_millis(number),
            rtt: answered.then_some(Duration::ZERO),
        };
        (0..).zip(answered).map(datagram).collect()
    }

    #[test]
    fn an_outage_ends_with_the_next_answered_datagram() {
        let ms = Duration::from_millis;
        let all = flow(&[true, false, false, true, false, true]);
        assert_eq!(longest_outage(&all, ms(0), ms(9)), ms(2));
        assert_eq!(longest_outage(&all, ms(3), ms(9)), ms(1));
        assert_eq!(longest_outage(&all, ms(5), ms(9)), ms(0));
        let never = flow(&[false; 200]);
        assert_eq!(longest_outage(&never, ms(0), ms(150)), ms(150));
    }
}
