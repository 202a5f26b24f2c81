//! Two hosts and, between them, a forwarder that hands each frame on untouched.

use gatewright_link::{Backend, Link, LinkConfig, LinkCounters, OpenError, Opener};
use gatewright_packet::{Batch, CHUNK_SIZE, LinkIndex, Pool};
use gatewright_testbed::{Namespace, TestInterface, TestbedError, Veth, wait_until};
use gatewright_wire::partial::{self, Framing};
use libtest_mimic::Failed;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// `left` l0 – m0 `middle` m1 – r0 `right`, one subnet; the middle's interfaces have no address.
pub(crate) struct Hosts {
    pub(crate) left: Namespace,
    pub(crate) middle: Namespace,
    pub(crate) right: Namespace,
}

impl Hosts {
    pub(crate) fn new() -> Result<Self, TestbedError> {
        Self::with_mtu(1500)
    }

    pub(crate) fn with_mtu(mtu: u32) -> Result<Self, TestbedError> {
        let [left, middle, right] = [Namespace::new()?, Namespace::new()?, Namespace::new()?];
        let cables =
            [Veth::pair(&left, "l0", &middle, "m0")?, Veth::pair(&right, "r0", &middle, "m1")?];
        for (cable, host) in cables.iter().zip(1..) {
            cable.a.set_mtu(mtu)?;
            cable.b.set_mtu(mtu)?;
            cable.b.disable_ipv6()?;
            cable.a.set_mac(&format!("02:00:00:00:00:{host:02}"))?;
            cable.a.add_address(&format!("192.0.2.{host}/24"))?;
            cable.a.add_address(&format!("2001:db8::{host}/64"))?;
            cable.up()?;
        }
        Ok(Self { left, middle, right })
    }

    pub(crate) fn assert_no_checksum_errors(&self) -> Result<(), Failed> {
        for host in [&self.left, &self.right] {
            for name in ["TcpInCsumErrors", "UdpInCsumErrors", "Udp6InCsumErrors"] {
                let errors = host.counter(name)?;
                if errors != 0 {
                    return Err(format!("{name} is {errors}").into());
                }
            }
        }
        Ok(())
    }

    /// Frames that did not get into a cable, at either end of both.
    pub(crate) fn dropped_by_cables(&self) -> Result<u64, TestbedError> {
        let ends = [(&self.left, "l0"), (&self.middle, "m0"), (&self.middle, "m1")];
        let ends = ends.into_iter().chain([(&self.right, "r0")]);
        ends.map(|(host, name)| TestInterface::existing(host, name).transmit_dropped()).sum()
    }

    /// Sends so many datagrams of each family from the left to `port` (IPv4) and the next one
    /// (IPv6) of the right, past the left's UDP; every second one is corrupt.
    pub(crate) fn send_raw_datagrams(&self, port: u16, count: u8) -> Result<(), Failed> {
        let mut frames = Vec::new();
        for number in 0..count {
            for mut frame in [datagram_ipv4(port), datagram_ipv6(port + 1)] {
                assert!(partial::complete(&mut frame, Framing::Ethernet));
                let last = frame.len() - 1;
                frame[last] ^= number % 2;
                frames.push(frame);
            }
        }
        self.left.run(|| Tap::open("l0")?.send(&frames))?
    }

    /// Sends `frames` from the left as they are, and gives those of them that reach the right.
    pub(crate) fn pass_raw(&self, frames: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, Failed> {
        let sender_mac = &frames[0][6..12];
        self.right.run(|| -> Result<_, Failed> {
            let mut right = Tap::open("r0")?;
            self.left.run(|| Tap::open("l0")?.send(frames))??;
            let mut received = Vec::new();
            wait_until(Duration::from_secs(30), || {
                right.link.receive(Duration::ZERO, &mut right.batch);
                let frames_now = right.batch.drain().map(|packet| packet.octets().to_vec());
                // The kernels talk, too: neighbour discovery and the like is of no interest.
                received.extend(frames_now.filter(|frame| {
                    let is_ip = matches!(frame[12..14], [0x86, 0xdd] | [0x08, _]);
                    &frame[6..12] == sender_mac && !is_ip
                }));
                received.len() >= frames.len()
            });
            Ok(received)
        })?
    }
}

/// A packet socket beside a host's own stack.
struct Tap {
    pool: Rc<Pool>,
    link: Box<dyn Link>,
    batch: Batch,
}

impl Tap {
    fn open(interface: &str) -> Result<Self, Failed> {
        let pool = Rc::new(Pool::new(256, CHUNK_SIZE)?);
        let mut config = LinkConfig::new(LinkIndex(0), interface);
        (config.backend, config.exclusive) = (Backend::PacketSocket, false);
        let link = Opener::new(Rc::clone(&pool)).open(&config)?;
        Ok(Self { pool, link, batch: Batch::default() })
    }

    fn send(&mut self, frames: &[Vec<u8>]) -> Result<(), Failed> {
        for frame in frames {
            let packet = self.pool.packet_of(frame).ok_or("no packet")?;
            self.batch.push(packet).map_err(|_| "full")?;
        }
        self.link.transmit(Duration::ZERO, &mut self.batch);
        let counters = self.link.counters();
        if counters.sent != frames.len() as u64 {
            return Err(format!("{counters:?}").into());
        }
        Ok(())
    }
}

fn ethernet(kind: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend(kind.to_be_bytes());
    frame
}

fn udp(port: u16) -> Vec<u8> {
    let mut segment = Vec::new();
    for word in [4444, port, 8 + 16, 0] {
        segment.extend(word.to_be_bytes());
    }
    segment.extend(*b"sixteen octets !");
    segment
}

fn datagram_ipv4(port: u16) -> Vec<u8> {
    let mut frame = ethernet(0x0800);
    // The header's checksum by hand: 4500 + 002c + 0000 + 4000 + 4011 + c000+0201 + c000+0202.
    let sum: u32 = 0x4500 + 0x002c + 0x4000 + 0x4011 + 0xc000 + 0x0201 + 0xc000 + 0x0202;
    let checksum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    frame.extend([0x45, 0, 0, 44, 0, 0, 0x40, 0, 64, 17]);
    frame.extend(checksum.to_be_bytes());
    frame.extend([192, 0, 2, 1, 192, 0, 2, 2]);
    frame.extend(udp(port));
    frame
}

fn datagram_ipv6(port: u16) -> Vec<u8> {
    let mut frame = ethernet(0x86dd);
    frame.extend([0x60, 0, 0, 0, 0, 24, 17, 64]);
    for host in 1..=2 {
        frame.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    }
    frame.extend(udp(port));
    frame
}

/// A forwarder on a thread of its own inside `middle`.
pub(crate) struct Bridge {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<[LinkCounters; 2]>>,
}

impl Bridge {
    pub(crate) fn start(hosts: &Hosts, backend: Backend) -> Result<Self, Failed> {
        Self::start_with(hosts, backend, CHUNK_SIZE)
    }

    /// With a slab of chunks of another size.
    pub(crate) fn start_with(
        hosts: &Hosts,
        backend: Backend,
        chunk_size: usize,
    ) -> Result<Self, Failed> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, opened) = channel();
        let stopped = Arc::clone(&stop);
        // A thread started inside a namespace stays there.
        let thread = hosts.middle.run(move || {
            std::thread::spawn(move || forward(backend, chunk_size, &stopped, &ready))
        })?;
        opened.recv()??;
        Ok(Self { stop, thread: Some(thread) })
    }

    pub(crate) fn stop(mut self) -> [LinkCounters; 2] {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn forward(
    backend: Backend,
    chunk_size: usize,
    stop: &AtomicBool,
    ready: &Sender<Result<(), OpenError>>,
) -> [LinkCounters; 2] {
    let pool = Rc::new(Pool::new(8192, chunk_size).unwrap());
    let configs = [0, 1].map(|number: u16| {
        let config = LinkConfig::new(LinkIndex(number), &format!("m{number}"));
        LinkConfig { backend, promiscuous: true, ..config }
    });
    let links = match Opener::new(pool).open_all(&configs) {
        Ok(links) => links,
        Err((_, error)) => {
            ready.send(Err(error)).unwrap();
            return [LinkCounters::default(); 2];
        }
    };
    let [mut left, mut right]: [Box<dyn Link>; 2] = links.try_into().ok().unwrap();
    ready.send(Ok(())).unwrap();
    let start = Instant::now();
    let mut batch = Batch::default();
    while !stop.load(Ordering::Relaxed) {
        let mut moved = 0;
        for _ in 0..16 {
            moved += pass(&mut *left, &mut *right, start.elapsed(), &mut batch);
            moved += pass(&mut *right, &mut *left, start.elapsed(), &mut batch);
        }
        if moved == 0 {
            // Leave the processor to the hosts, as a worker that sleeps on `poll_fd` would.
            std::thread::sleep(Duration::from_micros(20));
        }
    }
    [left.counters(), right.counters()]
}

fn pass(from: &mut dyn Link, to: &mut dyn Link, now: Duration, batch: &mut Batch) -> usize {
    let received = from.receive(now, batch);
    if received > 0 {
        to.transmit(now, batch);
    }
    received
}
