//! The maps of forwarding as descriptors: enough to load the program of a link.

use super::{ForwardingError, TableSizes, check, failed};
use crate::compiled::{CompiledProgram, Symbol};
use crate::layout::{CONSTANTS_LEN, LINKS_MAX};
use crate::map::{BpfMap, MapType};
use crate::program::{BpfProgram, Instruction, ProgramType};
use gatewright_tables::{BUCKETS, RoutesFull, RoutesWriter};
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The compiled program.
static PROGRAM: &[u8] = include_bytes!("../../programs/forward.bpf");

/// Names of the maps in the program, in the order of their descriptors.
const NAMES: [&str; 14] = [
    "links",
    "own",
    "rules",
    "direct",
    "groups",
    "routes4",
    "routes6",
    "members",
    "hops",
    "neighbours",
    "ports",
    "counts",
    "hop_counts",
    "rule_counts",
];

/// The number of names that stand for memory: the first ones.
const MEMORIES: usize = 8;

/// Return from a program with 0 or `XDP_PASS`.
const NO: [Instruction; 2] = [Instruction(0xb7, 0, 0, 0), Instruction(0x95, 0, 0, 0)];
const PASS: [Instruction; 2] = [Instruction(0xb7, 0, 0, 2), Instruction(0x95, 0, 0, 0)];

/// The maps of [`Forwarding`](super::Forwarding), for whoever attaches programs to links.
#[derive(Debug)]
pub struct ForwardingMaps {
    descriptors: Vec<OwnedFd>,
    /// The program's constants: words of the IPv4 and of the IPv6 trie, groups of the DIR-24-8 table,
    /// next hops, words of the groups of next hops.
    shape: [u32; 5],
}

/// A link's forwarding program, with the link's own code behind it.
#[derive(Clone, Copy, Debug)]
pub struct LinkProgram<'a> {
    /// The link's index, below [`LINKS_MAX`].
    pub link: u32,
    /// Whether frames may have partial transport checksums.
    pub partial: bool,
    /// A function that says whether the driver has taken a VLAN tag out of the frame.
    pub tag_taken: &'a [Instruction],
    /// A program that takes what is not forwarded.
    pub up: &'a [Instruction],
    /// The interface's index if a function calls the kernel's, else 0.
    pub bound_to: u32,
}

impl LinkProgram<'static> {
    /// The program of a link that hands what goes up to the kernel, and whose driver leaves tags in
    /// their frames.
    pub const fn passing(link: u32) -> Self {
        Self { link, partial: false, tag_taken: &NO, up: &PASS, bound_to: 0 }
    }
}

impl ForwardingMaps {
    /// Descriptors of `maps`, which stand in the order of [`NAMES`].
    pub(super) fn of<'a>(
        sizes: &TableSizes,
        words4: u32,
        maps: impl Iterator<Item = &'a BpfMap>,
    ) -> Result<Self, ForwardingError> {
        let words6 = RoutesWriter::<Ipv6Addr>::words(sizes.routes6);
        let words6 = words6.ok_or(RoutesFull { routes_max: sizes.routes6 })?;
        let clone = |map: &BpfMap| map.as_fd().try_clone_to_owned();
        let descriptors = maps.map(clone).collect::<io::Result<_>>();
        let members = sizes.hop_groups.saturating_mul(BUCKETS);
        let shape = [words4, words6, u32::from(sizes.groups.max(1)), sizes.hops, members];
        Ok(Self { descriptors: descriptors.map_err(failed("share a map"))?, shape })
    }

    /// Maps of another process, by their descriptors and their shape.
    ///
    /// `None` if they are not as many as the program has.
    pub fn received(descriptors: Vec<OwnedFd>, shape: [u32; 5]) -> Option<Self> {
        (descriptors.len() == NAMES.len()).then_some(Self { descriptors, shape })
    }

    /// Their descriptors, in the order that [`Self::received`] takes them in.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.descriptors.iter().map(AsFd::as_fd)
    }

    /// Their shape, which the program of a link is made for.
    pub const fn shape(&self) -> [u32; 5] {
        self.shape
    }

    /// Loads the program of a link.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Load`] if the kernel refuses it.
    pub fn program(&self, of: &LinkProgram<'_>) -> Result<BpfProgram, ForwardingError> {
        check("link", of.link, LINKS_MAX)?;
        let constants = self.constants(of).map_err(failed("make a map of constants"))?;
        let linked = CompiledProgram::read(PROGRAM)?.link(|name| match name {
            "constants" => Some(Symbol::Memory(constants.as_fd())),
            "tag_taken" => Some(Symbol::Code(of.tag_taken)),
            "up" => Some(Symbol::Code(of.up)),
            _ => {
                let number = NAMES.iter().position(|known| *known == name)?;
                let map = self.descriptors.get(number)?.as_fd();
                Some(if number < MEMORIES { Symbol::Memory(map) } else { Symbol::Map(map) })
            }
        })?;
        Ok(BpfProgram::load(ProgramType::Xdp, "gw_forward", &linked, of.bound_to)?)
    }

    /// The constants of a link's program, which the kernel checks it with.
    fn constants(&self, of: &LinkProgram<'_>) -> io::Result<BpfMap> {
        // Loads are not reordered with loads on x86-64.
        let needs_fence = u32::from(cfg!(not(target_arch = "x86_64")));
        let [words4, words6, groups, hops, members] = self.shape;
        let partial = u32::from(of.partial);
        let numbers = [of.link, words4, words6, groups, hops, needs_fence, partial, members];
        let value: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let len = u32::try_from(CONSTANTS_LEN).unwrap_or(u32::MAX);
        let map = BpfMap::new(MapType::Constants, "constants", 4, len, 1)?;
        map.set(&0_u32.to_ne_bytes(), &value)?;
        map.freeze()?;
        Ok(map)
    }
}
