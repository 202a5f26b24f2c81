//! Frames at the rate of the kernel's own redirection, and what counts them: for measurements.

use crate::compiled::{CompiledProgram, Symbol};
use crate::forward::{ForwardingError, failed};
use crate::map::{BpfMap, MapType};
use crate::program::{AttachedProgram, BpfProgram, Hook, ProgramType};
use gatewright_tables::SharedWords;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

static GENERATE: &[u8] = include_bytes!("../programs/generate.bpf");
static RECEIVE: &[u8] = include_bytes!("../programs/receive.bpf");

/// Octets of each frame that are written anew.
const TEMPLATE_OCTETS: usize = 64;
/// Maximum number of destinations, which take turns.
const PLACES: usize = 1 << 20;
/// Words of `struct place`.
const PLACE_WORDS: usize = 6;
/// Octets of `struct constants`.
const CONSTANTS_LEN: usize = TEMPLATE_OCTETS + 16;
/// Frames that the kernel passes on at once.
const AT_ONCE: u32 = 64;
/// Position of the IPv4 header's checksum in a frame.
const CHECKSUM_AT: usize = 24;

/// Sends copies of a frame by an interface, to many destinations by turns.
#[derive(Debug)]
pub struct Generator {
    program: BpfProgram,
    frame: Vec<u8>,
}

impl Generator {
    /// Copies of `frame`, an Ethernet frame of at least 64 octets with IPv4 or IPv6, by the
    /// interface with this index, to `destinations` by turns: the first 2ⁿ, at most 2²⁰.
    ///
    /// # Errors
    ///
    /// [`ForwardingError`] if the frame is too short, there is no destination, or the system
    /// refuses maps or program.
    pub fn new(
        interface: u32,
        frame: &[u8],
        destinations: &[IpAddr],
    ) -> Result<Self, ForwardingError> {
        let short = || failed("write the frame anew")(io::ErrorKind::InvalidInput.into());
        let template: &[u8; TEMPLATE_OCTETS] = frame.first_chunk().ok_or_else(short)?;
        let count = 1_usize << destinations.len().min(PLACES).checked_ilog2().ok_or_else(short)?;
        let places = memory("places", PLACES * PLACE_WORDS * 4)?;
        let words = places.words().map_err(failed("map a table's memory"))?;
        let (rows, _) = words.all().as_chunks::<PLACE_WORDS>();
        let mut is_6 = 0_u32;
        for (row, destination) in rows.iter().zip(destinations).take(count) {
            is_6 = u32::from(destination.is_ipv6());
            for (word, value) in row.iter().zip(place(template, *destination)) {
                word.store(value, Ordering::Relaxed);
            }
        }
        let mut value = template.to_vec();
        let count = u32::try_from(count).unwrap_or(1);
        value.extend([interface, count, is_6, 0].iter().flat_map(|number| number.to_ne_bytes()));
        let len = u32::try_from(CONSTANTS_LEN).unwrap_or(u32::MAX);
        let constants = BpfMap::new(MapType::Constants, "constants", 4, len, 1);
        let constants = constants.map_err(failed("make a map of constants"))?;
        let kept = constants.set(&0_u32.to_ne_bytes(), &value).and_then(|()| constants.freeze());
        kept.map_err(failed("set constants"))?;
        let sequence = memory("sequence", 8)?;
        let linked = CompiledProgram::read(GENERATE)?.link(|name| match name {
            "constants" => Some(Symbol::Memory(constants.as_fd())),
            "places" => Some(Symbol::Memory(places.as_fd())),
            "sequence" => Some(Symbol::Memory(sequence.as_fd())),
            _ => None,
        })?;
        let program = BpfProgram::load(ProgramType::Xdp, "gw_generate", &linked, 0)?;
        Ok(Self { program, frame: frame.to_vec() })
    }

    /// Sends `frames`, in the namespace of the interface. A call has a fixed cost of some 20 ms.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn send(&self, frames: u32) -> io::Result<()> {
        self.program.send(&self.frame, frames, AT_ONCE)
    }
}

/// Frames received by an interface while a [`Receiver`] was attached.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReceivedFrames {
    /// Frames.
    pub frames: u64,
    /// From the first to the last.
    pub time: Duration,
}

/// Counts the IPv4 and IPv6 frames that reach an interface, and drops them.
#[derive(Debug)]
pub struct Receiver {
    words: SharedWords,
    _attached: AttachedProgram,
}

impl Receiver {
    /// At the interface with this index, in its driver.
    ///
    /// # Errors
    ///
    /// [`ForwardingError`] if the system refuses it.
    pub fn attach(interface: u32) -> Result<Self, ForwardingError> {
        let received = memory("received", 24)?;
        let words = received.words().map_err(failed("map a table's memory"))?;
        let linked = CompiledProgram::read(RECEIVE)?
            .link(|name| (name == "received").then(|| Symbol::Memory(received.as_fd())))?;
        let program = BpfProgram::load(ProgramType::Xdp, "gw_receive", &linked, 0)?;
        let attached = program.attach(interface, Hook::XdpNative);
        Ok(Self { words, _attached: attached.map_err(failed("attach the receiver"))? })
    }

    /// Frames received since the last call.
    pub fn take(&self) -> ReceivedFrames {
        let (pairs, _) = self.words.all().as_chunks::<2>();
        let number = |[low, high]: &[_; 2]| {
            let [low, high] = [low, high].map(|word: &std::sync::atomic::AtomicU32| {
                u64::from(word.swap(0, Ordering::Relaxed))
            });
            high << 32 | low
        };
        let [frames, first, last] = pairs else { return ReceivedFrames::default() };
        let (frames, first, last) = (number(frames), number(first), number(last));
        ReceivedFrames { frames, time: Duration::from_nanos(last.saturating_sub(first)) }
    }
}

/// A map with one value, whose memory is shared.
fn memory(name: &str, octets: usize) -> Result<BpfMap, ForwardingError> {
    let octets = u32::try_from(octets).unwrap_or(u32::MAX);
    BpfMap::new(MapType::SharedArray, name, 4, octets, 1).map_err(failed("make a table"))
}

/// A destination as the program writes it into a frame.
fn place(template: &[u8; TEMPLATE_OCTETS], destination: IpAddr) -> [u32; PLACE_WORDS] {
    let mut octets = [0; PLACE_WORDS * 4];
    match destination {
        IpAddr::V6(destination) => {
            octets.iter_mut().zip(destination.octets()).for_each(|(to, from)| *to = from);
        }
        IpAddr::V4(destination) => {
            let destination = destination.octets();
            octets.iter_mut().zip(destination).for_each(|(to, from)| *to = from);
            let header = template.get(14..30).unwrap_or(&[]);
            let zeroed = header.iter().enumerate().map(|(at, &octet)| {
                if (CHECKSUM_AT - 14..CHECKSUM_AT - 12).contains(&at) { 0 } else { octet }
            });
            let header: Vec<u8> = zeroed.chain(destination).collect();
            let (pairs, _) = header.as_chunks::<2>();
            let sum: u32 = pairs.iter().map(|&pair| u32::from(u16::from_be_bytes(pair))).sum();
            let sum = (sum >> 16) + (sum & 0xffff);
            let sum = u16::try_from((sum >> 16) + (sum & 0xffff)).unwrap_or(0);
            octets.iter_mut().skip(16).zip((!sum).to_be_bytes()).for_each(|(to, from)| *to = from);
        }
    }
    let (words, _) = octets.as_chunks::<4>();
    std::array::from_fn(|at| words.get(at).copied().map_or(0, u32::from_ne_bytes))
}
