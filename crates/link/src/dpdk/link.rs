//! A port of DPDK as a link.
//!
//! A frame is copied once each way, between DPDK's buffers and the slab. DPDK has no descriptor to
//! sleep on, so its link is polled: at once after frames, otherwise each [`POLLED_EVERY`].

use super::DpdkConfig;
use super::binding::{self, BURST_MAX, DpdkPort, Missed};
use crate::claim::Claim;
use crate::exclusive::KernelSilenced;
use crate::interface::{Interface, leaves_checksums};
use crate::packet_socket::frame_len_max;
use crate::tap;
use crate::unbound::UnboundDevice;
use crate::{
    Closing, DriverForwarding, Exclusive, Framing, Link, LinkCounters, LinkInfo, LinkState, Mode,
    OpenError, Preparer, UnboundLink, complete, local_address, nanos, pad,
};
use gatewright_packet::{BATCH_MAX, Batch, Checksum, LinkAddress, LinkIndex, Packet, Pool};
use gatewright_wire::{MacAddress, partial};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

/// Time between two polls of a port without frames.
const POLLED_EVERY: Duration = Duration::from_micros(50);
/// Octets of a frame before its EtherType or tag: two addresses.
const ADDRESSES_LEN: usize = 12;
/// The EtherType of a VLAN tag (IEEE 802.1Q).
const TAG_TYPE: [u8; 2] = [0x81, 0x00];

/// Drivers that share an interface of the kernel.
const AF_PACKET: &str = "net_af_packet";
const AF_XDP: &str = "net_af_xdp";
/// The driver that makes an interface whose other end is the kernel.
const TAP: &str = "net_tap";

/// An open port, which can be given to the thread that will use it.
///
/// Dropping it closes the port before the kernel gets its interface back.
pub(crate) struct OpenPort {
    pub(crate) info: LinkInfo,
    index: LinkIndex,
    port: DpdkPort,
    under: Option<KernelInterface>,
}

/// The kernel's interface under a port.
struct KernelInterface {
    interface: Interface,
    _silenced: Option<KernelSilenced>,
    _claim: Option<Claim>,
}

/// The name of a port in DPDK: its device without the arguments.
fn name_of(device: &str) -> &str {
    device.split_once(',').map_or(device, |(name, _)| name)
}

/// The driver of a virtual device: its name without the number.
fn driver_of(device: &str) -> &str {
    name_of(device).trim_end_matches(|c: char| c.is_ascii_digit())
}

/// An argument of a device.
fn argument<'a>(device: &'a str, wanted: &str) -> Option<&'a str> {
    let arguments = device.split(',').skip(1).filter_map(|argument| argument.split_once('='));
    arguments.filter(|(key, _)| *key == wanted).map(|(_, value)| value).next()
}

impl KernelInterface {
    /// Keeps the kernel's stack and other gateways from the interface that a driver shares with them.
    fn under(device: &str) -> Result<Option<(Self, Exclusive)>, OpenError> {
        let driver = driver_of(device);
        let Some(name) =
            argument(device, "iface").filter(|_| [AF_PACKET, AF_XDP].contains(&driver))
        else {
            return Ok(None);
        };
        let ask = |source| OpenError::system(name, "ask", "CAP_NET_ADMIN", source);
        let interface = Interface::find(name).map_err(ask)?;
        let claim = Claim::take(interface.index)
            .map_err(|by| OpenError::Claimed { name: name.to_owned(), by })?;
        let silenced = (driver == AF_PACKET).then(|| KernelSilenced::new(name, interface.index));
        let silenced =
            silenced.transpose().map_err(|audible| OpenError::audible(name, &audible))?;
        // A program of AF_XDP gives all frames to the port.
        let how = silenced.as_ref().map_or(Exclusive::Redirected, |silenced| silenced.how);
        Ok(Some((Self { interface, _silenced: silenced, _claim: claim }, how)))
    }

    /// Its MTU; no limit if it cannot be asked.
    fn mtu(&self) -> usize {
        self.interface.mtu().unwrap_or(usize::MAX)
    }

    /// Whether frames may arrive there with a partial checksum.
    fn leaves_checksums(&self) -> bool {
        leaves_checksums(&self.interface.driver())
    }
}

/// Starts DPDK, if no link has, and opens the port.
pub(super) fn open_port(
    preparer: &Preparer,
    config: &DpdkConfig,
) -> Result<UnboundLink, OpenError> {
    let device = config.port.as_str();
    preparer.check_chunk(device, config.mtu, Framing::Ethernet)?;
    let unfit = |reason| OpenError::Unsupported { name: device.to_owned(), reason };
    let under = KernelInterface::under(device)?;
    binding::start().map_err(|reason| unfit(format!("DPDK does not start: {reason}")))?;
    let len_max = config.mtu + Framing::Ethernet.header_len_max();
    let port = DpdkPort::open(name_of(device), device, config.mtu, len_max);
    let failed = |source: std::io::Error| unfit(format!("DPDK does not open it: {source}"));
    let port = port.map_err(failed)?;
    if config.promiscuous {
        port.receive_all().map_err(failed)?;
    }
    port.receive_groups();
    let facts = port.facts().map_err(failed)?;
    let link_address = link_address(device, facts.mac, config.index);
    let (under, exclusive) = match under {
        Some((under, how)) => (Some(under), how),
        None => (None, Exclusive::Ours),
    };
    let info = LinkInfo {
        name: device.to_owned(),
        mode: Mode::Dpdk,
        why: "as configured".to_owned(),
        framing: Framing::Ethernet,
        link_address,
        mtu: under.as_ref().map_or(config.mtu, |under| under.mtu().min(config.mtu)),
        // DPDK's drivers do not say which frames have one.
        partial_checksums: under.as_ref().is_some_and(KernelInterface::leaves_checksums),
        exclusive,
        driver: facts.driver,
        kernel_index: under.as_ref().map_or(0, |under| under.interface.index),
        queues: vec![0],
        receivers: 1,
        driver_forwarding: DriverForwarding::NotAsked,
    };
    let port = OpenPort { info, index: config.index, port, under };
    Ok(UnboundLink::once(preparer.slab(), UnboundDevice::Dpdk(Box::new(port))))
}

/// The link's address on a port with this one.
fn link_address(device: &str, mac: [u8; 6], index: LinkIndex) -> LinkAddress {
    match mac {
        // A driver without an address reports zeros.
        [0, 0, 0, 0, 0, 0] => LinkAddress::ethernet(local_address(index).0),
        // It is that of the kernel's end.
        mac if driver_of(device) == TAP => tap::other_end(MacAddress(mac)),
        mac => LinkAddress::ethernet(mac),
    }
}

impl OpenPort {
    /// The link, with packets of `pool`.
    pub(crate) fn bind(self, pool: Rc<Pool>) -> DpdkLink {
        binding::know_this_thread();
        DpdkLink {
            open: self,
            pool,
            counters: LinkCounters::default(),
            missed: Missed::default(),
            next_poll: None,
        }
    }
}

/// The link over a port of DPDK.
pub(crate) struct DpdkLink {
    open: OpenPort,
    pool: Rc<Pool>,
    counters: LinkCounters,
    /// What the port itself had counted when it was last asked.
    missed: Missed,
    /// When it is to be polled again.
    next_poll: Option<Duration>,
}

/// The parts needed to make packets from frames.
struct Taker<'a> {
    pool: &'a Pool,
    /// Whether checksums may be partial.
    partial: bool,
    counters: &'a mut LinkCounters,
}

impl Taker<'_> {
    /// Makes a packet from a frame, with the tag that the device took out of it.
    fn take(&mut self, frame: &[u8], tag: Option<u16>) -> Option<Packet> {
        let [high, low] = tag.unwrap_or_default().to_be_bytes();
        let [type_high, type_low] = TAG_TYPE;
        let on_wire = [type_high, type_low, high, low];
        let tag = if tag.is_some() { &on_wire[..] } else { &[] };
        let Some((addresses, rest)) = frame.split_at_checked(ADDRESSES_LEN) else {
            self.counters.receive_malformed += 1;
            return None;
        };
        if frame.len() + tag.len() > self.pool.packet_len_max() {
            self.counters.receive_oversized += 1;
            return None;
        }
        let Some(mut packet) = self.pool.packet() else {
            self.counters.receive_no_packet += 1;
            return None;
        };
        for piece in [addresses, tag, rest] {
            // It fits: the length was compared above.
            packet.append(piece).ok()?;
        }
        if self.partial && partial::is_partial(packet.octets(), Framing::Ethernet) {
            packet.meta_mut().checksum = Checksum::Partial;
            self.counters.partial += 1;
        }
        Some(packet)
    }
}

impl DpdkLink {
    /// Hands the device a burst, and counts what it took.
    fn send(port: &mut DpdkPort, burst: &[Packet], counters: &mut LinkCounters) {
        let sent = port.transmit(burst);
        let octets = burst.iter().take(sent).map(Packet::len).sum::<usize>();
        counters.sent += sent as u64;
        counters.sent_octets += octets as u64;
        counters.transmit_full += (burst.len() - sent) as u64;
    }
}

impl Link for DpdkLink {
    fn info(&self) -> &LinkInfo {
        &self.open.info
    }

    fn receive(&mut self, now: Duration, batch: &mut Batch) -> usize {
        let before = batch.len();
        let partial = self.open.info.partial_checksums;
        let (index, port) = (self.open.index, &mut self.open.port);
        // Bounded, even if all frames are dropped.
        for _ in 0..BATCH_MAX.div_ceil(BURST_MAX) {
            let room = batch.room().min(BURST_MAX);
            let mut taker = Taker { pool: &self.pool, partial, counters: &mut self.counters };
            let received = port.receive(room, |frame, tag| {
                let Some(mut packet) = taker.take(frame, tag) else { return };
                packet.set_received_ns(nanos(now));
                packet.meta_mut().ingress = index;
                taker.counters.received += 1;
                taker.counters.received_octets += packet.len() as u64;
                // The burst is no larger than the room.
                let _ = batch.push(packet);
            });
            if received < BURST_MAX {
                break;
            }
        }
        let received = batch.len() - before;
        self.next_poll = Some(if received > 0 { now } else { now + POLLED_EVERY });
        received
    }

    fn transmit(&mut self, _: Duration, batch: &mut Batch) {
        let (mtu, counters) = (self.open.info.mtu, &mut self.counters);
        batch.retain(|packet| {
            let lengths = Framing::Ethernet.header_len()..=frame_len_max(packet.octets(), mtu);
            let fits = lengths.contains(&packet.len());
            counters.transmit_length += u64::from(!fits);
            fits
        });
        for packet in batch.iter_mut() {
            complete(packet, Framing::Ethernet, counters);
            pad(packet);
        }
        for burst in batch.iter().as_slice().chunks(BURST_MAX) {
            Self::send(&mut self.open.port, burst, counters);
        }
        batch.clear();
    }

    fn counters(&mut self) -> LinkCounters {
        self.missed = self.open.port.missed().unwrap_or(self.missed);
        self.counted()
    }

    fn counted(&self) -> LinkCounters {
        let Missed { overrun, receive_errors, no_buffer, transmit_errors } = self.missed;
        let of_port = LinkCounters {
            receive_overrun: overrun + no_buffer,
            receive_malformed: receive_errors,
            kernel_refused: transmit_errors,
            ..LinkCounters::default()
        };
        self.counters.plus(of_port)
    }

    fn state(&mut self) -> LinkState {
        match &self.open.under {
            Some(under) => under.interface.state(),
            None if self.open.port.is_up() => LinkState::Up,
            None => LinkState::Down,
        }
    }

    fn close(self: Box<Self>) -> Closing {
        let Self { open, .. } = *self;
        Closing::new(open)
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn poll_timeout(&self) -> Option<Duration> {
        self.next_poll
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_a_name_a_driver_and_arguments() {
        let device = "net_af_packet12,iface=eth0,qpairs=1";
        assert_eq!(name_of(device), "net_af_packet12");
        assert_eq!(driver_of(device), "net_af_packet");
        assert_eq!(argument(device, "iface"), Some("eth0"));
        assert_eq!(argument(device, "qpairs"), Some("1"));
        assert_eq!(argument(device, "face"), None);
        assert_eq!(argument("net_ring0", "iface"), None);
        assert_eq!(
            (name_of("0000:03:00.0"), argument("0000:03:00.0", "iface")),
            ("0000:03:00.0", None)
        );
    }
}
