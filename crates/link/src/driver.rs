//! Forwarding in a link's driver: the program in front of a link, and the interfaces that take what
//! it redirects.

use crate::bpf::{BpfProgram, Instruction, Tags, tag_taken};
use crate::{Division, OpenDevices};
use gatewright_packet::LinkIndex;
use gatewright_xdp::{ForwardingMaps, LinkProgram};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The kernel's tables that a gateway's links have in common.
///
/// Links decide by them which frames are only forwarded, in the driver or by the graph. A clone
/// has the same tables.
#[derive(Clone, Debug)]
pub struct KernelTables {
    /// The division of shared links' traffic between gateway and kernel.
    pub division: Option<Arc<Division>>,
    /// The maps of forwarding in the driver, and the links that forward by them.
    pub forwarding: DriverMaps,
    /// What links have open, for another process.
    pub devices: OpenDevices,
}

/// The maps by which drivers forward, or why there are none, and the links whose drivers do so.
///
/// A clone is the same maps and links.
#[derive(Clone)]
pub struct DriverMaps(Arc<Mutex<MapsNow>>);

struct MapsNow {
    maps: Result<Arc<ForwardingMaps>, String>,
    /// Links whose drivers forward, with those that are closed since.
    links: Vec<Weak<dyn ForwardingLink>>,
}

/// A link whose driver forwards.
pub(crate) trait ForwardingLink: Send + Sync {
    /// The name of its interface.
    fn interface(&self) -> &str;

    /// Has its driver forward by other maps.
    fn exchange_maps(&self, maps: &Arc<ForwardingMaps>) -> io::Result<()>;
}

impl fmt::Debug for DriverMaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DriverMaps").field(&self.lock().maps).finish()
    }
}

impl From<Result<Arc<ForwardingMaps>, String>> for DriverMaps {
    fn from(maps: Result<Arc<ForwardingMaps>, String>) -> Self {
        Self(Arc::new(Mutex::new(MapsNow { maps, links: Vec::new() })))
    }
}

impl DriverMaps {
    /// A poisoned lock is safe here: each change is whole before the next.
    fn lock(&self) -> MutexGuard<'_, MapsNow> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The maps of now; otherwise why there are none.
    ///
    /// # Errors
    ///
    /// The reason, in words for the operator.
    pub fn get(&self) -> Result<Arc<ForwardingMaps>, String> {
        self.lock().maps.clone()
    }

    /// Notes a link whose driver forwards by `used`, and has it forward by the maps of now if these
    /// are others.
    pub(crate) fn note(
        &self,
        link: &Arc<impl ForwardingLink + 'static>,
        used: &Result<Arc<ForwardingMaps>, String>,
    ) -> io::Result<()> {
        let mut now = self.lock();
        now.links.retain(|known| known.strong_count() > 0);
        let known = Arc::downgrade(link);
        now.links.push(known);
        match (&now.maps, used) {
            (Ok(now), Ok(used)) if !Arc::ptr_eq(now, used) => link.exchange_maps(now),
            _ => Ok(()),
        }
    }

    /// Exchanges the maps: drivers forward by the new ones, each from one frame to the next. A driver
    /// that cannot forwards nothing more.
    ///
    /// # Errors
    ///
    /// The names of interfaces whose driver cannot, each with the reason.
    pub fn exchange(&self, maps: ForwardingMaps) -> Result<(), String> {
        let maps = Arc::new(maps);
        // Held until all links have them: none is opened with the old ones meanwhile.
        let mut now = self.lock();
        // The kernel empties a map of programs when no process has it any more: one that forwards by the
        // maps of before would then find none that limits, until it is exchanged.
        let _before = std::mem::replace(&mut now.maps, Ok(Arc::clone(&maps)));
        let links: Vec<_> = now.links.iter().filter_map(Weak::upgrade).collect();
        let failed: Vec<_> = links
            .iter()
            .filter_map(|link| {
                let refused = link.exchange_maps(&maps).err()?;
                Some(format!("{}: {refused}", link.interface()))
            })
            .collect();
        if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
    }
}

impl Default for KernelTables {
    fn default() -> Self {
        let forwarding: Result<_, _> =
            Err("this data plane has no tables of routes in the kernel".to_owned());
        Self { division: None, forwarding: forwarding.into(), devices: OpenDevices::default() }
    }
}

/// Whether a link's driver forwards what is only forwarded, before the link has it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum DriverForwarding {
    /// The link's configuration does not ask for it.
    #[default]
    NotAsked,
    /// It forwards.
    Active,
    /// It does not, for this reason.
    Refused(String),
}

impl DriverForwarding {
    /// The refusal of a link of a kind that has no driver's program.
    pub(crate) fn refused(is_asked: bool, reason: &str) -> Self {
        if is_asked { Self::Refused(reason.to_owned()) } else { Self::NotAsked }
    }
}

impl fmt::Display for DriverForwarding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("by the graph"),
            Self::Active => f.write_str("in the driver (XDP)"),
            Self::Refused(reason) => write!(f, "by the graph, not in the driver: {reason}"),
        }
    }
}

/// Loads the forwarding program of a link with `up` behind it, which has all other frames.
pub(crate) fn forwarding_program(
    maps: &ForwardingMaps,
    link: LinkIndex,
    partial: bool,
    (tags, bound_to): (Tags, u32),
    up: &[Instruction],
) -> io::Result<BpfProgram> {
    let tag_taken = tag_taken(tags);
    let link = u32::from(link.0);
    let program = LinkProgram { link, partial, tag_taken: &tag_taken, up, bound_to };
    maps.program(&program).map_err(io::Error::other)
}

/// Puts the program behind it that sends on reports of devices, with `up` behind that, which has all
/// other frames; no driver has taken a tag out of them.
pub(crate) fn add_reports(
    maps: &ForwardingMaps,
    link: LinkIndex,
    partial: bool,
    up: &[Instruction],
) -> io::Result<()> {
    let link = u32::from(link.0);
    let tag_taken = tag_taken(Tags::InFrame);
    let program = LinkProgram { link, partial, tag_taken: &tag_taken, up, bound_to: 0 };
    maps.add_reports(&program).map_err(io::Error::other)
}
