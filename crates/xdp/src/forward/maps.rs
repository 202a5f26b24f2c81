//! The maps of forwarding as descriptors: enough to load the program of a link.

use super::{ForwardingError, LimitIndex, TableSizes, check, failed};
use crate::compiled::{CompiledProgram, Symbol};
use crate::layout::{LIMIT_LEN, LINKS_MAX, RULE_LIMITS_MAX};
use crate::map::{BpfMap, MapType};
use crate::program::{BpfProgram, Instruction, ProgramType};
use gatewright_tables::{BUCKETS, DriverReports, RoutesFull, RoutesWriter, SharedWords};
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The compiled program.
static PROGRAM: &[u8] = include_bytes!("../../programs/forward.bpf");
/// The compiled program to which it passes packets that rules limit.
static LIMIT: &[u8] = include_bytes!("../../programs/limit.bpf");
/// The compiled program to which it passes what is for this host.
static REPORTS: &[u8] = include_bytes!("../../programs/report.bpf");

/// Names of the maps in the program, in the order of their descriptors.
const NAMES: [&str; 21] = [
    "links",
    "own",
    "rules",
    "limits",
    "direct",
    "groups",
    "routes4",
    "routes6",
    "members",
    "reports",
    "hops",
    "neighbours",
    "ports",
    "counts",
    "hop_counts",
    "rule_counts",
    "limited_packets",
    "stages",
    "report_devices",
    "report_counts",
    "report_scratch",
];

/// The number of names that stand for memory: the first ones.
const MEMORIES: usize = 10;

/// The places of `limits`, `reports`, `stages`, `report_devices`.
const LIMITS: usize = 3;
const COMMON: usize = 9;
const STAGES: usize = 17;
const DEVICES: usize = 18;

/// Programs behind those of links: what sends on reports, and what limits packets.
pub(super) const STAGES_MAX: u32 = 2 * LINKS_MAX;

/// Return from a program with 0 or `XDP_PASS`.
const NO: [Instruction; 2] = [Instruction(0xb7, 0, 0, 0), Instruction(0x95, 0, 0, 0)];
const PASS: [Instruction; 2] = [Instruction(0xb7, 0, 0, 2), Instruction(0x95, 0, 0, 0)];

/// The maps of [`Forwarding`](super::Forwarding), for whoever attaches programs to links.
#[derive(Debug)]
pub struct ForwardingMaps {
    descriptors: Vec<OwnedFd>,
    /// The programs' constants: words of the IPv4 and of the IPv6 trie, groups of the DIR-24-8 table,
    /// next hops, words of the groups of next hops; devices whose reports are sent on, and the seed of
    /// their table.
    shape: [u32; 8],
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
        (words4, [devices, first, second]): (u32, [u32; 3]),
        maps: impl Iterator<Item = &'a BpfMap>,
    ) -> Result<Self, ForwardingError> {
        let words6 = RoutesWriter::<Ipv6Addr>::words(sizes.routes6);
        let words6 = words6.ok_or(RoutesFull { routes_max: sizes.routes6 })?;
        let clone = |map: &BpfMap| map.as_fd().try_clone_to_owned();
        let descriptors = maps.map(clone).collect::<io::Result<_>>();
        let members = sizes.hop_groups.saturating_mul(BUCKETS);
        let groups = u32::from(sizes.groups.max(1));
        let shape = [words4, words6, groups, sizes.hops, members, devices, first, second];
        Ok(Self { descriptors: descriptors.map_err(failed("share a map"))?, shape })
    }

    /// Maps of another process, by their descriptors and their shape.
    ///
    /// `None` if they are not as many as the program has.
    pub fn received(descriptors: Vec<OwnedFd>, shape: [u32; 8]) -> Option<Self> {
        (descriptors.len() == NAMES.len()).then_some(Self { descriptors, shape })
    }

    /// Their descriptors, in the order that [`Self::received`] takes them in.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.descriptors.iter().map(AsFd::as_fd)
    }

    /// Their shape, which the program of a link is made for.
    pub const fn shape(&self) -> [u32; 8] {
        self.shape
    }

    /// The memory of reports that drivers send on; none if they send on none.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Map`] if the system refuses to map it.
    pub fn driver_reports(&self) -> Result<Option<DriverReports>, ForwardingError> {
        let [.., devices, first, second] = self.shape;
        let (common, records) = (self.descriptors.get(COMMON), self.descriptors.get(DEVICES));
        let Some((common, records)) = common.zip(records).filter(|_| devices > 0) else {
            return Ok(None);
        };
        let common = map_memory(common, DriverReports::COMMON_OCTETS, 1)?;
        let records = map_memory(records, DriverReports::DEVICE_OCTETS, devices)?;
        Ok(Some(DriverReports::new(common, records, devices, [first, second])))
    }

    /// The memory of the buckets from which programs take tokens, and the place in it of the time of
    /// the bucket with this number: a number of 64 bits.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Map`] if the system refuses to map it, [`ForwardingError::Index`] for a
    /// bucket beyond the last one.
    pub fn bucket(&self, number: u16) -> Result<(SharedWords, usize), ForwardingError> {
        let index = u32::from(number);
        check("bucket of tokens", index, RULE_LIMITS_MAX.into())?;
        let error = ForwardingError::Index { what: "bucket of tokens", index };
        let limits = self.descriptors.get(LIMITS).ok_or(error)?;
        let words = map_memory(limits, LIMIT_LEN * u32::from(RULE_LIMITS_MAX), 1)?;
        Ok((words, LimitIndex(number).time_at()))
    }

    /// Loads the program of a link, and puts the one behind it that limits packets.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Load`] if the kernel refuses one.
    pub fn program(&self, of: &LinkProgram<'_>) -> Result<BpfProgram, ForwardingError> {
        let limit = self.load((LIMIT, "gw_limit"), &LinkProgram { bound_to: 0, ..*of })?;
        self.put_behind(LINKS_MAX + of.link, &limit)?;
        self.load((PROGRAM, "gw_forward"), of)
    }

    /// Loads the program that sends on reports of devices, if there may be any, and puts it behind that
    /// of the link; `up` of it has frames whose tag is in them, and calls no function of the kernel's:
    /// a program that is bound to an interface may not stand behind another.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Load`] if the kernel refuses it.
    pub fn add_reports(&self, of: &LinkProgram<'_>) -> Result<(), ForwardingError> {
        let [.., devices, _, _] = self.shape;
        if devices == 0 {
            return Ok(());
        }
        let program = self.load((REPORTS, "gw_report"), &LinkProgram { bound_to: 0, ..*of })?;
        self.put_behind(of.link, &program)
    }

    /// Puts a program behind those of links.
    fn put_behind(&self, stage: u32, program: &BpfProgram) -> Result<(), ForwardingError> {
        let stages = self.descriptors.get(STAGES).map(OwnedFd::try_clone);
        let stages = stages.transpose().map_err(failed("share a map"))?;
        let Some(stages) = stages else { return Ok(()) };
        let stages = BpfMap::received(stages, 4, 4, STAGES_MAX);
        let number = program.as_fd().as_raw_fd().to_ne_bytes();
        stages.set(&stage.to_ne_bytes(), &number).map_err(failed("put a program behind another"))
    }

    fn load(
        &self,
        (program, name): (&[u8], &str),
        of: &LinkProgram<'_>,
    ) -> Result<BpfProgram, ForwardingError> {
        check("link", of.link, LINKS_MAX)?;
        let (own, reports) = (self.constants(of)?, self.report_constants()?);
        let linked = CompiledProgram::read(program)?.link(|name| match name {
            "constants" => Some(Symbol::Memory(own.as_fd())),
            "report_constants" => Some(Symbol::Memory(reports.as_fd())),
            "tag_taken" => Some(Symbol::Code(of.tag_taken)),
            "up" => Some(Symbol::Code(of.up)),
            _ => {
                let number = NAMES.iter().position(|known| *known == name)?;
                let map = self.descriptors.get(number)?.as_fd();
                Some(if number < MEMORIES { Symbol::Memory(map) } else { Symbol::Map(map) })
            }
        })?;
        Ok(BpfProgram::load(ProgramType::Xdp, name, &linked, of.bound_to)?)
    }

    /// The constants of a link's program, which the kernel checks it with.
    fn constants(&self, of: &LinkProgram<'_>) -> Result<BpfMap, ForwardingError> {
        // Loads are not reordered with loads on x86-64.
        let needs_fence = u32::from(cfg!(not(target_arch = "x86_64")));
        let [words4, words6, groups, hops, members, ..] = self.shape;
        let partial = u32::from(of.partial);
        constants(&[of.link, words4, words6, groups, hops, needs_fence, partial, members])
    }

    /// The constants of programs that send on reports.
    fn report_constants(&self) -> Result<BpfMap, ForwardingError> {
        let [.., devices, first, second] = self.shape;
        constants(&[devices.saturating_sub(1), first, second])
    }
}

/// Maps the memory of a map of `count` values.
fn map_memory(map: &OwnedFd, octets: u32, count: u32) -> Result<SharedWords, ForwardingError> {
    let words = u64::from(octets.next_multiple_of(8) / 4) * u64::from(count);
    SharedWords::map(map, usize::try_from(words).unwrap_or(usize::MAX))
        .map_err(failed("map a table's memory"))
}

/// A map of numbers that never change.
fn constants(numbers: &[u32]) -> Result<BpfMap, ForwardingError> {
    let make = || {
        let value: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let len = u32::try_from(value.len()).unwrap_or(u32::MAX);
        let map = BpfMap::new(MapType::Constants, "constants", 4, len, 1)?;
        map.set(&0_u32.to_ne_bytes(), &value)?;
        map.freeze()?;
        Ok(map)
    };
    make().map_err(failed("make a map of constants"))
}
