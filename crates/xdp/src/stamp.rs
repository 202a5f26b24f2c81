//! When probe packets pass a hook: a program that writes their times into shared memory.

use crate::clock::by_own_clock;
use crate::compiled::{CompiledProgram, Symbol};
use crate::forward::{ForwardingError, failed};
use crate::map::{BpfMap, MapType};
use crate::program::{AttachedProgram, BpfProgram, Hook, ProgramType};
use gatewright_tables::SharedWords;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};

static STAMP: &[u8] = include_bytes!("../programs/stamp.bpf");

/// Probes whose times are kept; a later one takes the place of that so many before.
pub const STAMPS_MAX: u32 = 1 << 16;
/// Words of `struct place`.
const PLACE_WORDS: usize = 4;

/// Writes down when probe packets pass an interface, at its ingress or egress (tcx).
///
/// A probe is an IPv4 packet of UDP or TCP, behind a label (RFC 3032) or without, whose payload has its
/// identity, at its beginning or at another place: its sequence number (32 bits, big-endian) and the tag
/// of the run (64 bits). Times are of the monotonic clock of this process, in nanoseconds. Needs Linux 6.6.
#[derive(Debug)]
pub struct Stamper {
    probe: SharedWords,
    places: SharedWords,
    program: BpfProgram,
    _attached: AttachedProgram,
}

impl Stamper {
    /// At `hook` of the interface with this index, in the caller's network namespace.
    ///
    /// # Errors
    ///
    /// [`ForwardingError`] if the system refuses maps, program or hook.
    pub fn attach(interface: u32, hook: Hook) -> Result<Self, ForwardingError> {
        let memory = |name: &str, octets: u32| {
            let map = BpfMap::new(MapType::SharedArray, name, 4, octets, 1);
            map.map_err(failed("make a table"))
        };
        let places = memory("stamps", STAMPS_MAX * 4 * 4)?;
        let probe = memory("probe", 4 * 3)?;
        let linked = CompiledProgram::read(STAMP)?.link(|name| match name {
            "stamps" => Some(Symbol::Memory(places.as_fd())),
            "probe" => Some(Symbol::Memory(probe.as_fd())),
            _ => None,
        })?;
        let kind = if hook == Hook::Egress { ProgramType::Egress } else { ProgramType::Ingress };
        let program = BpfProgram::load(kind, "gw_stamp", &linked, 0)?;
        // Before programs that take packets away, as those that switch labels do.
        let attached = match hook {
            Hook::Ingress => program.attach_first(interface, hook),
            _ => program.attach(interface, hook),
        };
        let attached = attached.map_err(failed("attach the stamps"))?;
        let [probe, places] =
            [probe, places].map(|map| map.words().map_err(failed("map a table's memory")));
        Ok(Self { probe: probe?, places: places?, program, _attached: attached })
    }

    /// Forgets all times and takes probes with `tag` from now on, whose payloads begin with their
    /// identity.
    pub fn begin(&self, tag: [u8; 8]) {
        self.begin_at(tag, 0);
    }

    /// The same, where so many octets of the payload are before the identity.
    pub fn begin_at(&self, tag: [u8; 8], octets: u32) {
        for word in self.places.all() {
            word.store(0, Ordering::Relaxed);
        }
        let (halves, _) = tag.as_chunks::<4>();
        let words = halves.iter().map(|half| u32::from_ne_bytes(*half)).chain([octets]);
        for (word, value) in self.probe.all().iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// When the probe passed; `None` if it did not.
    pub fn time(&self, sequence: u32) -> Option<u64> {
        let (places, _) = self.places.all().as_chunks::<PLACE_WORDS>();
        let place = places.get(usize::try_from(sequence % STAMPS_MAX).ok()?)?;
        let [after, after_high, low, high] = place.each_ref().map(load);
        let passed = u64::from(after_high) << 32 | u64::from(after);
        (passed == u64::from(sequence) + 1)
            .then(|| by_own_clock(u64::from(high) << 32 | u64::from(low)))
    }

    /// The mean time that the program takes for `frame`, in nanoseconds, over `repeat` runs.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn cost(&self, frame: &[u8], repeat: u32) -> io::Result<u32> {
        Ok(self.program.run(frame, repeat)?.nanoseconds)
    }
}

fn load(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed)
}
