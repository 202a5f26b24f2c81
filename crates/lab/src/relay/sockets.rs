//! Relays over the kernel's sockets: one thread that receives, works and sends.

use super::cipher::Cipher;
use super::{Ready, RelayJob};
use crate::clock;
use crate::computation::Computation;
use crate::probe::Place;
use nix::cmsg_space;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, setsockopt, sockopt::ReceiveTimestampns,
};
use nix::sys::time::TimeSpec;
use std::io::{self, ErrorKind, IoSliceMut, Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Octets of the largest datagram.
const DATAGRAM_MAX: usize = 2048;
/// How long a call waits before it looks whether it is to end.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// The work between receiving and sending.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Encrypts.
    pub(crate) cipher: Option<Cipher>,
    /// Computes for so long.
    pub(crate) spin_ns: u64,
    /// Does it so many times, as a slower processor would take.
    pub(crate) times: u32,
}

impl Work {
    /// Works on a payload; all but the last time by `again`, and on a copy, as an even number of
    /// encryptions would undo each other.
    fn apply(&self, payload: &mut [u8], scratch: &mut Vec<u8>, again: Option<Again>) {
        for _time in 1..self.times {
            if let Some(cipher) = &self.cipher {
                scratch.clear();
                scratch.extend_from_slice(payload);
                cipher.apply(std::hint::black_box(scratch));
            }
            if let Some(Again { computation, base_ns }) = again {
                computation.compute(self.spin_ns + base_ns);
            }
        }
        if let Some(cipher) = &self.cipher {
            cipher.apply(payload);
        }
        if self.spin_ns > 0 {
            clock::spin(self.spin_ns);
        }
    }
}

/// What a relay that does its work several times computes in place of receiving and sending again.
#[derive(Clone, Copy, Debug)]
struct Again {
    computation: Computation,
    base_ns: u64,
}

impl Again {
    /// Calibrates it, if the work is done more than once.
    fn of(work: &Work) -> io::Result<Option<Self>> {
        if work.times <= 1 {
            return Ok(None);
        }
        Ok(Some(Self { computation: Computation::calibrate(), base_ns: base_time()? }))
    }
}

/// Relays datagrams from `local` to `to`.
pub(super) fn relay_datagrams(
    job: &RelayJob,
    (local, to): (SocketAddrV4, SocketAddrV4),
    work: &Work,
    ready: &Ready,
) -> io::Result<()> {
    let again = Again::of(work)?;
    let socket = UdpSocket::bind(local)?;
    let onward = UdpSocket::bind(SocketAddrV4::new(job.onward_ip, 0))?;
    onward.connect(to)?;
    socket.set_read_timeout(Some(LOOK))?;
    if job.stamps_ingress {
        setsockopt(&socket, ReceiveTimestampns, &true)?;
    }
    ready.tell(Ok(()));
    let (mut buffer, mut scratch) = ([0; DATAGRAM_MAX], Vec::new());
    while !job.is_stopped() {
        let received = if job.stamps_ingress {
            receive_stamped(&socket, &mut buffer).map(|it| (it.len, it.stamp))
        } else {
            socket.recv(&mut buffer).map(|len| (len, None))
        };
        let taken = clock::now();
        let (len, stamp) = match received {
            Ok(received) => received,
            Err(error) if is_idle(&error) => continue,
            Err(error) => return Err(error),
        };
        let Some(payload) = buffer.get_mut(..len) else { continue };
        work.apply(payload, &mut scratch, again);
        // Stamped before the call, and written down behind it, out of the packet's way.
        let given = clock::now();
        match onward.send(payload) {
            Ok(_) => {}
            Err(error) if is_idle(&error) => {}
            Err(error) => return Err(error),
        }
        job.records.stamp(payload, Place::Taken, taken);
        job.records.stamp(payload, Place::Given, given);
        if let Some(stamp) = stamp {
            job.records.stamp(payload, Place::Ingress, stamp);
        }
    }
    Ok(())
}

/// Relays one connection after the other from `local` to `to`.
pub(super) fn relay_stream(
    job: &RelayJob,
    (local, to): (SocketAddrV4, SocketAddrV4),
    work: &Work,
    ready: &Ready,
) -> io::Result<()> {
    let again = Again::of(work)?;
    let listener = TcpListener::bind(local)?;
    listener.set_nonblocking(true)?;
    ready.tell(Ok(()));
    while !job.is_stopped() {
        match listener.accept() {
            Ok((near, _)) => {
                near.set_nonblocking(false)?;
                let far = TcpStream::connect(to)?;
                relay_connection(job, near, far, (work, again))?;
            }
            Err(error) if is_idle(&error) => std::thread::sleep(LOOK / 10),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn relay_connection(
    job: &RelayJob,
    mut near: TcpStream,
    mut far: TcpStream,
    (work, again): (&Work, Option<Again>),
) -> io::Result<()> {
    near.set_read_timeout(Some(LOOK))?;
    far.set_nodelay(true)?;
    let octets = job.records.octets().max(1);
    let (mut buffer, mut scratch) = (vec![0; 64 * DATAGRAM_MAX], Vec::new());
    // Octets of an unfinished probe at the front of the buffer.
    let mut held = 0;
    while !job.is_stopped() {
        let Some(room) = buffer.get_mut(held..) else { break };
        let len = match near.read(room) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if is_idle(&error) => continue,
            Err(error) => return Err(error),
        };
        let taken = clock::now();
        let end = held + len;
        let whole = end - end % octets;
        let probes = buffer.get_mut(..whole).unwrap_or_default().chunks_exact_mut(octets);
        for probe in probes {
            work.apply(probe, &mut scratch, again);
            let given = clock::now();
            far.write_all(probe)?;
            job.records.stamp(probe, Place::Taken, taken);
            job.records.stamp(probe, Place::Given, given);
        }
        buffer.copy_within(whole..end, 0);
        held = end - whole;
    }
    Ok(())
}

/// A datagram that has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StampedDatagram {
    /// Its octets in the buffer.
    pub(crate) len: usize,
    /// When the kernel received it, by the monotonic clock.
    pub(crate) stamp: Option<u64>,
    /// Who sent it.
    pub(crate) from: Option<SocketAddrV4>,
}

/// Receives a datagram with the kernel's stamp.
pub(crate) fn receive_stamped(
    socket: &UdpSocket,
    buffer: &mut [u8],
) -> io::Result<StampedDatagram> {
    let mut slices = [IoSliceMut::new(buffer)];
    let mut space = cmsg_space!(TimeSpec);
    let flags = MsgFlags::empty();
    let message = recvmsg::<SockaddrIn>(socket.as_raw_fd(), &mut slices, Some(&mut space), flags)?;
    let stamp = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(time) => {
            let time = Duration::from(time);
            u64::try_from(time.as_nanos()).ok().map(clock::monotonic_of)
        }
        _ => None,
    });
    let from = message.address.map(|from| SocketAddrV4::new(from.ip(), from.port()));
    Ok(StampedDatagram { len: message.bytes, stamp, from })
}

/// What this processor takes to receive and send one small datagram by sockets, in nanoseconds: the
/// mean of the fastest of several tries, as others may use the processor during the rest.
fn base_time() -> io::Result<u64> {
    const TRIES: usize = 10;
    const TIMES: u32 = 200;
    let [one, other] = [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?];
    one.connect(other.local_addr()?)?;
    let mut buffer = [0; 128];
    let mut fastest = u64::MAX;
    for _try in 0..TRIES {
        let start = clock::now();
        for _time in 0..TIMES {
            one.send(&buffer)?;
            other.recv(&mut buffer)?;
        }
        fastest = fastest.min((clock::now() - start) / u64::from(TIMES));
    }
    Ok(fastest)
}

/// Whether a call only says that there is nothing, no room now, or nobody yet.
pub(crate) fn is_idle(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock
            | ErrorKind::TimedOut
            | ErrorKind::Interrupted
            | ErrorKind::ConnectionRefused
    ) || error.raw_os_error() == Some(nix::libc::ENOBUFS)
}
