//! The sockets of senders and reflectors.

use super::packet::{
    ClockErrorEstimate, NtpTime, StampKey, StampReflectorPacket, StampSenderPacket,
};
use super::reflector::{StampArrival, StampReflector, StampReflectorCounters, StampReflectorMode};
use super::sender::{StampExchange, StampReport, is_comparable, stamp_report, test_packet};
use crate::clock;
use crate::relay::sockets::is_idle;
use nix::cmsg_space;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Octets of the largest datagram.
const DATAGRAM_MAX: usize = 9216;
/// How long a call waits before it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);
/// How long reflections are waited for at the most once a stop is requested.
const AFTER_STOP: Duration = Duration::from_secs(1);
/// The time to live of test packets (RFC 8762 §4: 255).
const TTL: u8 = 255;
/// The identifier of the sender's one session (RFC 8972 §3: not zero).
const SESSION: u16 = 1;

/// A datagram and when and how it arrived.
struct StampDatagram {
    len: usize,
    from: SocketAddr,
    arrival: StampArrival,
}

/// A socket that has stamps and the time to live of each datagram.
fn socket(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(at)?;
    socket.set_read_timeout(Some(LOOK))?;
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
    if at.is_ipv4() {
        socket.set_ttl(TTL.into())?;
        setsockopt(&socket, sockopt::Ipv4RecvTtl, &true)?;
    } else {
        setsockopt(&socket, sockopt::Ipv6Ttl, &i32::from(TTL))?;
        setsockopt(&socket, sockopt::Ipv6RecvHopLimit, &true)?;
    }
    Ok(socket)
}

fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Option<StampDatagram>> {
    let mut slices = [IoSliceMut::new(buffer)];
    let mut space = cmsg_space!(TimeSpec, i32);
    let flags = MsgFlags::empty();
    let descriptor = socket.as_raw_fd();
    let received = recvmsg::<SockaddrStorage>(descriptor, &mut slices, Some(&mut space), flags);
    let message = match received.map_err(io::Error::from) {
        Ok(message) => message,
        // An ICMP error: whoever was asked does not listen (yet).
        Err(error) if is_idle(&error) || error.kind() == ErrorKind::ConnectionRefused => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let Some(from) = message.address.as_ref().and_then(address_of) else { return Ok(None) };
    // Without the kernel's stamp: now. 255 if the system does not tell the time to live.
    let (mut at, mut ttl) = (NtpTime::of_unix(clock::wall()), u8::MAX);
    for control in message.cmsgs()? {
        match control {
            ControlMessageOwned::ScmTimestampns(time) => {
                let time = Duration::from(time).as_nanos();
                at = NtpTime::of_unix(u64::try_from(time).unwrap_or(u64::MAX));
            }
            ControlMessageOwned::Ipv4Ttl(its) | ControlMessageOwned::Ipv6HopLimit(its) => {
                ttl = u8::try_from(its).unwrap_or(u8::MAX);
            }
            _ => {}
        }
    }
    Ok(Some(StampDatagram { len: message.bytes, from, arrival: StampArrival { at, ttl } }))
}

fn address_of(address: &SockaddrStorage) -> Option<SocketAddr> {
    let four = address.as_sockaddr_in().map(|it| SocketAddr::V4((*it).into()));
    four.or_else(|| address.as_sockaddr_in6().map(|it| SocketAddr::V6((*it).into())))
}

/// The error that this machine's clock is said to have: it is not known what disciplines it, so it
/// is not called synchronised, and a second off.
fn clock_error() -> ClockErrorEstimate {
    ClockErrorEstimate::new(false, Duration::from_secs(1))
}

/// Reflects at `at` until `is_stop_requested` says so; `ready` receives the socket's address.
///
/// # Errors
///
/// The socket cannot be opened or read.
pub fn reflect(
    at: SocketAddr,
    (mode, key): (StampReflectorMode, Option<StampKey>),
    ready: &mut dyn FnMut(SocketAddr),
    is_stop_requested: &mut dyn FnMut() -> bool,
) -> io::Result<StampReflectorCounters> {
    let socket = socket(at)?;
    ready(socket.local_addr()?);
    let mut reflector = StampReflector::new(mode, clock_error(), key);
    let mut buffer = [0; DATAGRAM_MAX];
    while !is_stop_requested() {
        let Some(it) = receive(&socket, &mut buffer)? else { continue };
        let octets = buffer.get(..it.len).unwrap_or_default();
        let now = Duration::from_nanos(clock::now());
        let sent = || NtpTime::of_unix(clock::wall());
        let reflected = reflector.reflect(now, it.from, octets, it.arrival, sent);
        if let Some(reflected) = reflected
            && socket.send_to(&reflected, it.from).is_err()
        {
            reflector.counters.not_sent += 1;
        }
    }
    Ok(reflector.counters())
}

/// How a sender measures.
#[derive(Clone, Debug)]
pub struct StampSettings {
    /// Packets.
    pub count: u32,
    /// Packets a second.
    pub rate: u32,
    /// Octets of a packet: 44, authenticated 112, or more by padding.
    pub octets: u16,
    /// How long the last reflection is waited for.
    pub wait: Duration,
    /// The key of an authenticated session.
    pub key: Option<StampKey>,
}

/// A session of a sender.
struct StampSenderSession<'settings> {
    settings: &'settings StampSettings,
    to: SocketAddr,
    exchanges: Vec<Option<StampExchange>>,
    repeated: u32,
    foreign: u32,
}

/// Sends test packets to a reflector by schedule and reads what comes back; `progress` receives how
/// many were sent.
///
/// # Errors
///
/// The socket cannot be opened or used.
pub fn measure(
    to: SocketAddr,
    settings: &StampSettings,
    progress: &mut dyn FnMut(u32),
) -> io::Result<StampReport> {
    measure_until(to, settings, progress, &|| false)
}

/// Does what [`measure`] does, and sends no more as soon as `is_stop_requested` says so.
///
/// # Errors
///
/// The socket cannot be opened or used.
pub fn measure_until(
    to: SocketAddr,
    settings: &StampSettings,
    progress: &mut dyn FnMut(u32),
    is_stop_requested: &dyn Fn() -> bool,
) -> io::Result<StampReport> {
    let (sent, exchanges, others) = exchanges(to, settings, progress, is_stop_requested)?;
    Ok(stamp_report(sent, &exchanges, others))
}

/// What came of packets: how many were sent, the exchange of each, and how many datagrams were
/// repeated and foreign.
pub(crate) type StampExchanges = (u32, Vec<Option<StampExchange>>, (u32, u32));

/// Does what [`measure_until`] does, for those that want each exchange.
pub(crate) fn exchanges(
    to: SocketAddr,
    settings: &StampSettings,
    progress: &mut dyn FnMut(u32),
    is_stop_requested: &dyn Fn() -> bool,
) -> io::Result<StampExchanges> {
    let any: IpAddr =
        if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = socket(SocketAddr::new(any, 0))?;
    let exchanges = vec![None; usize::try_from(settings.count).unwrap_or(0)];
    let mut session = StampSenderSession { settings, to, exchanges, repeated: 0, foreign: 0 };
    let gap = 1_000_000_000 / u64::from(settings.rate.max(1));
    let start = clock::now();
    let due = |sent: u32| start + gap * u64::from(sent);
    let wait = u64::try_from(settings.wait.as_nanos()).unwrap_or(u64::MAX);
    let mut last = due(settings.count.saturating_sub(1)).saturating_add(wait);
    let (mut count, mut is_stopped) = (settings.count, false);
    let (mut sent, mut buffer) = (0, [0; DATAGRAM_MAX]);
    loop {
        let now = clock::now();
        if !is_stopped && is_stop_requested() {
            let after = u64::try_from(AFTER_STOP.as_nanos()).unwrap_or(0).min(wait);
            (count, is_stopped, last) = (sent, true, last.min(now.saturating_add(after)));
        }
        if sent < count && now >= due(sent) {
            session.send(&socket, sent)?;
            sent += 1;
            progress(sent);
            continue;
        }
        if sent >= count && (session.is_complete(sent) || now >= last) {
            break;
        }
        let until = if sent < count { due(sent) } else { last };
        let left = Duration::from_nanos(until.saturating_sub(now).max(1000)).min(LOOK);
        socket.set_read_timeout(Some(left))?;
        if let Some(it) = receive(&socket, &mut buffer)? {
            session.take(buffer.get(..it.len).unwrap_or_default(), &it);
        }
    }
    // Nobody reflects what was not sent.
    session.exchanges.truncate(usize::try_from(sent).unwrap_or(usize::MAX));
    Ok((sent, session.exchanges, (session.repeated, session.foreign)))
}

impl StampSenderSession<'_> {
    fn send(&self, socket: &UdpSocket, sequence: u32) -> io::Result<()> {
        let error = clock_error();
        let sent = NtpTime::of_unix(clock::wall());
        let packet = StampSenderPacket { sequence, sent, error, session: SESSION };
        let octets = test_packet(&packet, self.settings.octets.into(), self.settings.key.as_ref());
        match socket.send_to(&octets, self.to) {
            // The last one found no reflector; this one may.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
            sent => sent.map(|_| ()),
        }
    }

    /// Whether all of the packets sent came back.
    fn is_complete(&self, sent: u32) -> bool {
        let sent = usize::try_from(sent).unwrap_or(usize::MAX);
        self.exchanges.iter().take(sent).all(Option::is_some)
    }

    fn take(&mut self, octets: &[u8], it: &StampDatagram) {
        let parsed = StampReflectorPacket::parse(octets, self.settings.key.as_ref());
        let reflected = parsed.ok().map(|(reflected, _)| reflected);
        let reflected = reflected.filter(|its| it.from == self.to && is_comparable(its.error));
        let place = reflected.and_then(|reflected| {
            let at = usize::try_from(reflected.sender.sequence).ok()?;
            Some((reflected, self.exchanges.get_mut(at)?))
        });
        match place {
            Some((reflected, place @ None)) => {
                *place = Some(StampExchange { reflected, back: it.arrival.at });
            }
            Some(_) => self.repeated += 1,
            None => self.foreign += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;

    /// Measures to a reflector of ours at `at`, with a key for each side.
    fn measured(
        at: &str,
        settings: &StampSettings,
        key: Option<StampKey>,
    ) -> (StampReport, StampReflectorCounters) {
        let (stop, at) = (AtomicBool::new(false), at.parse().unwrap());
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            let work = || {
                let mut ready = |at: SocketAddr| tell.send(at).unwrap();
                let mode = StampReflectorMode::Stateless;
                let mut is_stop_requested = || stop.load(Ordering::Relaxed);
                reflect(at, (mode, key), &mut ready, &mut is_stop_requested).unwrap()
            };
            let reflector = scope.spawn(work);
            let report = measure(told.recv().unwrap(), settings, &mut |_| {});
            stop.store(true, Ordering::Relaxed);
            (report.unwrap(), reflector.join().unwrap())
        })
    }

    fn settings(octets: u16, key: Option<StampKey>) -> StampSettings {
        StampSettings { count: 20, rate: 1000, octets, wait: Duration::from_secs(20), key }
    }

    #[test]
    fn every_packet_is_reflected_and_the_same_clock_is_found_the_same() {
        let key = StampKey::new(b"a shared secret");
        for (at, octets, key) in [
            ("127.0.0.1:0", 44, None),
            ("127.0.0.1:0", 200, None),
            ("127.0.0.1:0", 200, Some(key)),
            ("[::1]:0", 44, None),
        ] {
            let (report, counters) = measured(at, &settings(octets, key.clone()), key);
            assert_eq!((report.sent, report.reflected, report.repeated), (20, 20, 0), "{report:?}");
            assert_eq!((report.stateful, report.ttl), (None, Some(255)), "{at}");
            assert_eq!((counters.reflected, counters.malformed), (20, 0));
            // T1 ≤ T2 ≤ T3 ≤ T4 of one clock: the offset cannot be beyond its bound.
            let (offset, bound) = (report.offset_us.unwrap(), report.offset_error_us.unwrap());
            assert!(offset.abs() <= bound + 0.001, "{report:?}");
            let lost = (report.lost_there, report.lost_back, report.reflector_error_us);
            assert_eq!(lost, (Some(0), Some(0), None), "{report:?}");
        }
    }

    #[test]
    fn a_sender_that_is_stopped_reports_what_it_has_sent() {
        let far = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let settings = StampSettings { rate: 1000, count: 1_000_000, ..settings(44, None) };
        let sent = std::cell::Cell::new(0);
        let begin = std::time::Instant::now();
        let to = far.local_addr().unwrap();
        let report = measure_until(to, &settings, &mut |it| sent.set(it), &|| sent.get() == 7);
        let report = report.unwrap();
        assert_eq!((report.sent, report.reflected, report.lost_either), (7, 0, 7), "{report:?}");
        assert!(begin.elapsed() < settings.wait, "it waits a second for reflections");
    }

    #[test]
    fn another_key_reflects_nothing() {
        let (wait, one) = (Duration::from_millis(100), Some(StampKey::new(b"one")));
        let settings = StampSettings { count: 5, wait, ..settings(112, one) };
        let (report, counters) = measured("127.0.0.1:0", &settings, Some(StampKey::new(b"two")));
        assert_eq!((report.sent, report.reflected), (5, 0));
        assert_eq!((counters.reflected, counters.not_authentic), (0, 5));
    }
}
