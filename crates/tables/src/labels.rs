//! Label tables: incoming labels and paths with their next hops, and the state of the links.
//!
//! Programs in the kernel and layers of the graph read the same words (`crates/xdp/programs/label.h`
//! has the same layout), so both forward alike. RFC 3031 §3.10 to §3.12 calls the tables the
//! incoming label map and the FEC-to-NHLFE map, and [`LabelHop`] an NHLFE.
//!
//! ```text
//! entry, 16 words   0      1      2       3       4..8             8..12            12..16
//!                   key 0  key 1  select  unused  next hop 0       next hop 1       unused
//! next hop          link, outgoing label, link-layer address (6 octets, 2 unused)
//! select            bit 0: the primary's number; 1: there is a primary; 2: there is a backup;
//!                   3: flows are spread over both; from bit 4: a number that changes with every write
//! link, 4 words     0      1          2, 3
//!                   up     interface  own link-layer address (6 octets), flags (2 octets)
//! ```
//!
//! A next hop is written while no reader uses it, and comes into force by one store of `select`. So
//! a writer that stops at any point leaves the earlier next hop in force. A link's `up` is one word:
//! its store moves all labels and paths of that link to their backups at once.

use crate::SharedWords;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Entries of the table of incoming labels, a power of two.
///
/// A label's first place is its lowest bits, so labels given in sequence are found at once; it has
/// three more places, for labels that stay while thousands are given after them.
pub const LABELS_MAX: u32 = 4096;

/// Entries of the table of paths, a power of two.
pub const LABEL_PATHS_MAX: u32 = 1024;

/// Links of a label table.
pub const LABEL_LINKS_MAX: u32 = 64;

/// Traffic classes of paths.
pub const LABEL_CLASSES: u8 = 4;

/// The TTL of a label stack entry that is pushed: no path is longer.
pub const LABEL_TTL: u8 = 64;

/// The traffic class of an IP packet whose traffic class field begins with these three bits
/// (RFC 2474 §4.2.2): 0 network control, 1 bounded delay, 2 bulk, 3 background (RFC 3662).
pub const fn label_class(precedence: u8) -> u8 {
    match precedence {
        6 | 7 => 0,
        4 | 5 => 1,
        1 => 3,
        _ => 2,
    }
}

/// The greatest label: 20 bits (RFC 3032 §2.1).
const LABEL_LAST: u32 = 0xf_ffff;
/// The first label without a meaning of its own (RFC 3032 §2.1).
const LABEL_FIRST: u32 = 16;
/// Places in which a path is looked for.
const PROBES: u32 = 8;
/// Places in which a label is looked for, and the distance from one to the next.
const LABEL_PROBES: u32 = 4;
const LABEL_STRIDE: u32 = 741;
/// Attempts to read an entry that changes meanwhile.
const ATTEMPTS: u32 = 4;

const ENTRY_WORDS: u32 = 16;
const LINK_WORDS: u32 = 4;
const SELECT: usize = 2;
const HOPS: usize = 4;
const HOP_WORDS: usize = 4;
/// A label's key has this bit, so that label 0 is not an empty entry.
const PRESENT: u32 = 1 << 31;
const IS_SECOND: u32 = 1;
const HAS_PRIMARY: u32 = 1 << 1;
const HAS_BACKUP: u32 = 1 << 2;
const SPREADS: u32 = 1 << 3;
const GENERATION: u32 = 1 << 4;
/// The outgoing label of a next hop that pops.
const POP: u32 = u32::MAX;
const NO_SUPER_FRAMES: u32 = 1 << 16;
const BRIDGE_PORT: u32 = 1 << 17;

/// A next hop label forwarding entry (NHLFE, RFC 3031 §3.10).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LabelHop {
    /// Number of the egress link, below [`LABEL_LINKS_MAX`].
    pub link: u32,
    /// The next hop's link-layer address.
    pub address: [u8; 6],
    /// The outgoing label; `None` pops the label, and the packet is delivered on the link.
    pub label: Option<u32>,
}

/// The next hops of a label or a path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LabelHops {
    /// The next hop in use.
    pub primary: LabelHop,
    /// The next hop while the primary's link is down.
    pub backup: Option<LabelHop>,
}

/// The destination of a path: a forwarding equivalence class (RFC 3031 §3.1).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PathKey {
    /// Link-layer address of the destination.
    pub destination: [u8; 6],
    /// Its traffic class, below [`LABEL_CLASSES`].
    pub class: u8,
}

/// A link as programs need it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LabelLink {
    /// Index of its interface in the kernel; 0 for a link without one.
    pub interface: u32,
    /// Its own link-layer address.
    pub address: [u8; 6],
    /// Whether its device takes frames above the MTU and cuts them itself.
    pub takes_super_frames: bool,
}

/// Why a label table cannot be changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LabelTableError {
    /// The label is reserved or has more than 20 bits.
    #[error("label {0} cannot be assigned: labels are 16 to 1048575")]
    Label(u32),
    /// All places of a label are taken by others.
    #[error("the table of {LABELS_MAX} labels has no place for label {0}: assign the next one")]
    LabelsFull(u32),
    /// All places of a path are taken by others.
    #[error("the table of {LABEL_PATHS_MAX} paths has no place for this destination")]
    PathsFull,
    /// There is no such link.
    #[error("there is no link {0} in a label table: links are 0 to {max}", max = LABEL_LINKS_MAX - 1)]
    Link(u32),
    /// There is no such class.
    #[error("there is no traffic class {0}: classes are 0 to {max}", max = LABEL_CLASSES - 1)]
    Class(u8),
}

/// Why a labelled packet has no next hop.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum NoLabelHop {
    /// The label or the destination is not in the table.
    Unknown,
    /// The links of all its next hops are down.
    LinkDown,
    /// The entry changed during every attempt to read it.
    Unsettled,
}

/// The three areas of words: labels, paths, links.
#[derive(Clone, Debug)]
pub struct LabelAreas {
    /// [`Self::LABEL_WORDS`] words.
    pub labels: SharedWords,
    /// [`Self::PATH_WORDS`] words.
    pub paths: SharedWords,
    /// [`Self::LINK_WORDS`] words.
    pub links: SharedWords,
}

impl LabelAreas {
    /// Words of the table of labels.
    pub const LABEL_WORDS: u32 = LABELS_MAX * ENTRY_WORDS;
    /// Words of the table of paths.
    pub const PATH_WORDS: u32 = LABEL_PATHS_MAX * ENTRY_WORDS;
    /// Words of the table of links.
    pub const LINK_WORDS: u32 = LABEL_LINKS_MAX * LINK_WORDS;

    /// Areas in this process's memory, for a graph without programs.
    pub fn private() -> Self {
        let words = |words: u32| SharedWords::private(index(words));
        Self {
            labels: words(Self::LABEL_WORDS),
            paths: words(Self::PATH_WORDS),
            links: words(Self::LINK_WORDS),
        }
    }
}

/// The reader of a label table.
#[derive(Clone, Debug)]
pub struct LabelTable(LabelAreas);

/// The one writer of a label table.
#[derive(Debug)]
pub struct LabelTableWriter(LabelTable);

impl LabelTable {
    /// The number of a label's place: its counters have the same.
    #[inline]
    pub fn place_of_label(&self, label: u32) -> Option<u32> {
        label_places(label).find(|&place| {
            entry(&self.0.labels, place).is_some_and(|entry| key_of(entry)[0] == label | PRESENT)
        })
    }

    /// The next hop of a packet that arrives with `label`, with the number of the label's place.
    ///
    /// # Errors
    ///
    /// [`NoLabelHop`] says why there is none.
    #[inline]
    pub fn label_hop(&self, label: u32) -> Result<(u32, LabelHop), NoLabelHop> {
        let place = self.place_of_label(label).ok_or(NoLabelHop::Unknown)?;
        let entry = entry(&self.0.labels, place).ok_or(NoLabelHop::Unknown)?;
        self.choose(entry, [label | PRESENT, 0], 0).map(|hop| (place, hop))
    }

    /// The next hop of a packet to a destination, with the number of the path's place.
    ///
    /// # Errors
    ///
    /// [`NoLabelHop`] says why there is none.
    pub fn path_hop(&self, key: PathKey) -> Result<(u32, LabelHop), NoLabelHop> {
        self.path_hop_of(key, 0)
    }

    /// The same for a packet of a flow, by the flow's hash: of a path that is spread, flows with an odd
    /// one take the backup.
    ///
    /// # Errors
    ///
    /// [`NoLabelHop`] says why there is none.
    pub fn path_hop_of(&self, key: PathKey, flow: u32) -> Result<(u32, LabelHop), NoLabelHop> {
        let words = key.words();
        let place = self.path_place(words).ok_or(NoLabelHop::Unknown)?;
        let entry = entry(&self.0.paths, place).ok_or(NoLabelHop::Unknown)?;
        self.choose(entry, words, flow).map(|hop| (place, hop))
    }

    /// Whether packets may leave by the link.
    #[inline]
    pub fn is_up(&self, link: u32) -> bool {
        self.link_word(link, 0).is_some_and(|up| up.load(Ordering::Relaxed) != 0)
    }

    /// The number of a path's place: its counters have the same.
    pub fn place_of_path(&self, key: PathKey) -> Option<u32> {
        self.path_place(key.words())
    }

    fn path_place(&self, words: [u32; 2]) -> Option<u32> {
        path_places(words)
            .find(|&place| entry(&self.0.paths, place).is_some_and(|entry| key_of(entry) == words))
    }

    /// The next hop in force: the primary, or the backup if the primary's link is down. Of a spread
    /// entry, a flow has the backup as its primary if its hash is odd.
    #[inline]
    fn choose(&self, entry: &EntryWords, key: [u32; 2], flow: u32) -> Result<LabelHop, NoLabelHop> {
        for _ in 0..ATTEMPTS {
            let select = entry[SELECT].load(Ordering::Acquire);
            if key_of(entry) != key {
                return Err(NoLabelHop::Unknown);
            }
            let number = (select ^ ((select / SPREADS) & flow)) & IS_SECOND;
            let primary = hop_of(entry, number);
            let found = if select & HAS_PRIMARY != 0 && self.is_up(primary.link) {
                Ok(primary)
            } else {
                let backup = hop_of(entry, number ^ 1);
                let stands = select & HAS_BACKUP != 0 && self.is_up(backup.link);
                if stands { Ok(backup) } else { Err(NoLabelHop::LinkDown) }
            };
            // The loads above are before the one below.
            fence(Ordering::Acquire);
            if entry[SELECT].load(Ordering::Relaxed) == select {
                return found;
            }
        }
        Err(NoLabelHop::Unsettled)
    }

    fn link_word(&self, link: u32, word: u32) -> Option<&AtomicU32> {
        let at = link.checked_mul(LINK_WORDS)?.checked_add(word)?;
        self.0.links.all().get(index(at))
    }
}

impl LabelTableWriter {
    /// The writer of the table in `areas`, which no other writer has.
    pub const fn new(areas: LabelAreas) -> Self {
        Self(LabelTable(areas))
    }

    /// A reader.
    pub fn table(&self) -> LabelTable {
        self.0.clone()
    }

    /// Sets a link, which stays down until [`Self::set_link_up`]; `None` removes it.
    ///
    /// # Errors
    ///
    /// [`LabelTableError::Link`].
    pub fn set_link(&mut self, link: u32, what: Option<&LabelLink>) -> Result<(), LabelTableError> {
        self.write_link(link, what, 0)
    }

    /// Sets a bridge port, which stays down until [`Self::set_link_up`]: packets whose label ends there
    /// leave by it as they were before they got one.
    ///
    /// # Errors
    ///
    /// [`LabelTableError::Link`].
    pub fn set_bridge_port(&mut self, link: u32, what: &LabelLink) -> Result<(), LabelTableError> {
        self.write_link(link, Some(what), BRIDGE_PORT)
    }

    fn write_link(
        &mut self,
        link: u32,
        what: Option<&LabelLink>,
        kind: u32,
    ) -> Result<(), LabelTableError> {
        self.set_link_up(link, false)?;
        let (interface, address, flags) = what.map_or((0, [0; 6], 0), |what| {
            let flags = if what.takes_super_frames { 0 } else { NO_SUPER_FRAMES };
            (what.interface, what.address, flags | kind)
        });
        let [first, second] = address_words(address, flags);
        for (word, value) in [(1, interface), (2, first), (3, second)] {
            if let Some(place) = self.0.link_word(link, word) {
                place.store(value, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Sets whether packets may leave by a link: one store, which moves all its labels and paths to
    /// their backups, or back.
    ///
    /// # Errors
    ///
    /// [`LabelTableError::Link`].
    pub fn set_link_up(&mut self, link: u32, up: bool) -> Result<(), LabelTableError> {
        check_link(link)?;
        if let Some(word) = self.0.link_word(link, 0) {
            word.store(u32::from(up), Ordering::Release);
        }
        Ok(())
    }

    /// Sets the next hops of an incoming label; `None` removes it.
    ///
    /// # Errors
    ///
    /// [`LabelTableError::Label`], [`LabelTableError::LabelsFull`] and [`LabelTableError::Link`].
    pub fn set_label(
        &mut self,
        label: u32,
        hops: Option<&LabelHops>,
    ) -> Result<(), LabelTableError> {
        check_label(label)?;
        check_hops(hops)?;
        let free = || {
            let is_free = |place: &u32| {
                entry(&self.0.0.labels, *place).is_some_and(|entry| key_of(entry)[0] == 0)
            };
            label_places(label).find(is_free)
        };
        let place = match (self.0.place_of_label(label), hops) {
            (Some(place), _) => place,
            (None, None) => return Ok(()),
            (None, Some(_)) => free().ok_or(LabelTableError::LabelsFull(label))?,
        };
        if let Some(entry) = entry(&self.0.0.labels, place) {
            write(entry, [label | PRESENT, 0], hops, 0);
        }
        Ok(())
    }

    /// Sets the next hops of a path; `None` removes it.
    ///
    /// # Errors
    ///
    /// [`LabelTableError::Class`], [`LabelTableError::PathsFull`] and [`LabelTableError::Link`].
    pub fn set_path(
        &mut self,
        key: PathKey,
        hops: Option<&LabelHops>,
    ) -> Result<(), LabelTableError> {
        self.write_path(key, hops, 0)
    }

    /// Sets the next hops of a path whose flows are spread over both; each has the other one while its
    /// link is down.
    ///
    /// # Errors
    ///
    /// Those of [`Self::set_path`].
    pub fn set_spread_path(
        &mut self,
        key: PathKey,
        hops: &LabelHops,
    ) -> Result<(), LabelTableError> {
        self.write_path(key, Some(hops), SPREADS)
    }

    fn write_path(
        &mut self,
        key: PathKey,
        hops: Option<&LabelHops>,
        spreads: u32,
    ) -> Result<(), LabelTableError> {
        if key.class >= LABEL_CLASSES {
            return Err(LabelTableError::Class(key.class));
        }
        check_hops(hops)?;
        let words = key.words();
        let place = match (self.0.path_place(words), hops) {
            (Some(place), _) => place,
            (None, None) => return Ok(()),
            (None, Some(_)) => self.free_place(words).ok_or(LabelTableError::PathsFull)?,
        };
        if let Some(entry) = entry(&self.0.0.paths, place) {
            write(entry, words, hops, spreads);
        }
        Ok(())
    }

    fn free_place(&self, words: [u32; 2]) -> Option<u32> {
        path_places(words)
            .find(|&place| entry(&self.0.0.paths, place).is_some_and(|entry| key_of(entry)[1] == 0))
    }
}

impl PathKey {
    /// The key as it lies in an entry; its second word is never 0.
    fn words(self) -> [u32; 2] {
        let [front @ .., fifth, sixth] = self.destination;
        let class = self.class.saturating_add(1);
        [u32::from_ne_bytes(front), u32::from_ne_bytes([fifth, sixth, class, 0])]
    }
}

/// An entry of the table of labels or paths.
type EntryWords = [AtomicU32; ENTRY_WORDS as usize];

fn index(word: u32) -> usize {
    usize::try_from(word).unwrap_or(usize::MAX)
}

fn entry(area: &SharedWords, place: u32) -> Option<&EntryWords> {
    let (entries, _) = area.all().as_chunks();
    entries.get(index(place))
}

#[inline]
fn key_of(entry: &EntryWords) -> [u32; 2] {
    [entry[0].load(Ordering::Relaxed), entry[1].load(Ordering::Relaxed)]
}

/// The places in which a label can be: the programs compute the same (`label_place`).
#[inline]
fn label_places(label: u32) -> impl Iterator<Item = u32> {
    let place = move |probe: u32| label.wrapping_add(probe * LABEL_STRIDE) & (LABELS_MAX - 1);
    (0..LABEL_PROBES).map(place)
}

/// The places in which a path can be: the programs compute the same (`path_place`).
fn path_places([first, second]: [u32; 2]) -> impl Iterator<Item = u32> {
    let mixed = first.wrapping_mul(0x9e37_79b1) ^ second.wrapping_mul(0x85eb_ca6b);
    let start = mixed.wrapping_mul(0xc2b2_ae35) >> 16;
    (0..PROBES).map(move |probe| start.wrapping_add(probe) & (LABEL_PATHS_MAX - 1))
}

fn address_words(address: [u8; 6], upper: u32) -> [u32; 2] {
    let [front @ .., fifth, sixth] = address;
    let second = u32::from(u16::from_ne_bytes([fifth, sixth]));
    let second =
        if cfg!(target_endian = "little") { second | upper } else { second << 16 | upper >> 16 };
    [u32::from_ne_bytes(front), second]
}

/// A next hop of an entry.
#[inline]
fn hop_of(entry: &EntryWords, number: u32) -> LabelHop {
    let at = if number == 0 { HOPS } else { HOPS + HOP_WORDS };
    let word = |offset: usize| {
        entry.get(at + offset).map_or(0, |word: &AtomicU32| word.load(Ordering::Relaxed))
    };
    let [first, second, third, fourth] = word(2).to_ne_bytes();
    let [fifth, sixth, ..] = word(3).to_ne_bytes();
    let label = word(1);
    LabelHop {
        link: word(0),
        address: [first, second, third, fourth, fifth, sixth],
        label: (label != POP).then_some(label),
    }
}

fn write_hop(entry: &EntryWords, number: u32, hop: LabelHop) {
    let [first, second] = address_words(hop.address, 0);
    let values = [hop.link, hop.label.unwrap_or(POP), first, second];
    let places = entry.iter().skip(if number == 0 { HOPS } else { HOPS + HOP_WORDS });
    for (place, value) in places.zip(values) {
        place.store(value, Ordering::Relaxed);
    }
}

/// Changes an entry so that a reader at any moment finds the earlier next hops or the new ones.
fn write(entry: &EntryWords, key: [u32; 2], hops: Option<&LabelHops>, spreads: u32) {
    let mut select = entry[SELECT].load(Ordering::Relaxed);
    // Stores `value` with the next number, after all stores before and before all behind it.
    let mut choose = |value: u32| {
        select = select.wrapping_add(GENERATION) & !(GENERATION - 1) | value;
        fence(Ordering::Release);
        entry[SELECT].store(select, Ordering::Relaxed);
        fence(Ordering::Release);
    };
    let Some(hops) = hops else {
        entry[0].store(0, Ordering::Relaxed);
        entry[1].store(0, Ordering::Relaxed);
        return choose(0);
    };
    let now = entry[SELECT].load(Ordering::Relaxed);
    let is_new = key_of(entry) != key;
    let mut primary = now & IS_SECOND;
    if is_new {
        choose(0);
        primary = 0;
        write_hop(entry, 0, hops.primary);
        choose(HAS_PRIMARY);
    } else {
        // The primary in force stays readable; what the backup was is not used from here on.
        choose(primary | now & HAS_PRIMARY);
        if now & HAS_PRIMARY == 0 || hop_of(entry, primary) != hops.primary {
            primary ^= 1;
            write_hop(entry, primary, hops.primary);
            choose(primary | HAS_PRIMARY);
        }
    }
    if let Some(backup) = hops.backup {
        write_hop(entry, primary ^ 1, backup);
        choose(primary | HAS_PRIMARY | HAS_BACKUP | spreads);
    }
    if is_new {
        entry[1].store(key[1], Ordering::Relaxed);
        entry[0].store(key[0], Ordering::Release);
    }
}

const fn check_label(label: u32) -> Result<(), LabelTableError> {
    if LABEL_FIRST <= label && label <= LABEL_LAST {
        Ok(())
    } else {
        Err(LabelTableError::Label(label))
    }
}

const fn check_link(link: u32) -> Result<(), LabelTableError> {
    if link < LABEL_LINKS_MAX { Ok(()) } else { Err(LabelTableError::Link(link)) }
}

/// Checks the links and outgoing labels of next hops.
fn check_hops(hops: Option<&LabelHops>) -> Result<(), LabelTableError> {
    let Some(hops) = hops else { return Ok(()) };
    for hop in [Some(hops.primary), hops.backup].into_iter().flatten() {
        check_link(hop.link)?;
        hop.label.map_or(Ok(()), check_label)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: LabelHop = LabelHop { link: 1, address: [2, 0, 0, 0, 0, 1], label: Some(200) };
    const B: LabelHop = LabelHop { link: 2, address: [2, 0, 0, 0, 0, 2], label: Some(300) };
    const C: LabelHop = LabelHop { link: 3, address: [2, 0, 0, 0, 0, 3], label: None };

    fn hop_at(table: &LabelTable, label: u32) -> Result<LabelHop, NoLabelHop> {
        table.label_hop(label).map(|(_, hop)| hop)
    }

    fn writer() -> LabelTableWriter {
        let mut writer = LabelTableWriter::new(LabelAreas::private());
        for link in [1, 2, 3] {
            let address = [2, 0, 0, 0, 1, 0];
            let what = LabelLink { interface: link, address, takes_super_frames: true };
            writer.set_link(link, Some(&what)).unwrap();
            writer.set_link_up(link, true).unwrap();
        }
        writer
    }

    #[test]
    fn one_store_moves_all_labels_of_a_link_to_their_backups() {
        let mut writer = writer();
        let table = writer.table();
        for label in 100..200 {
            writer.set_label(label, Some(&LabelHops { primary: A, backup: Some(B) })).unwrap();
        }
        assert!((100..200).all(|label| hop_at(&table, label) == Ok(A)));
        writer.set_link_up(1, false).unwrap();
        assert!((100..200).all(|label| hop_at(&table, label) == Ok(B)));
        writer.set_link_up(2, false).unwrap();
        assert_eq!(hop_at(&table, 100), Err(NoLabelHop::LinkDown));
        writer.set_link_up(1, true).unwrap();
        assert_eq!(hop_at(&table, 100), Ok(A));
    }

    /// Flows keep their next hop, take the other one while its link is down, and are no longer spread
    /// once the path is set without that.
    #[test]
    fn a_spread_path_divides_its_flows() {
        let mut writer = writer();
        let table = writer.table();
        let key = PathKey { destination: [2, 0, 0, 0, 0, 9], class: 2 };
        let hops = LabelHops { primary: A, backup: Some(B) };
        let of = |flow| table.path_hop_of(key, flow).map(|(_, hop)| hop);
        writer.set_spread_path(key, &hops).unwrap();
        for flow in 0..64 {
            assert_eq!(of(flow), Ok(if flow % 2 == 0 { A } else { B }), "{flow}");
        }
        writer.set_link_up(2, false).unwrap();
        assert_eq!([of(0), of(1)], [Ok(A), Ok(A)]);
        writer.set_link_up(1, false).unwrap();
        assert_eq!(of(1), Err(NoLabelHop::LinkDown));
        writer.set_link_up(2, true).unwrap();
        assert_eq!([of(0), of(1)], [Ok(B), Ok(B)]);
        writer.set_link_up(1, true).unwrap();
        // Another primary: what was the backup of even flows is that of odd ones.
        writer.set_spread_path(key, &LabelHops { primary: B, backup: Some(C) }).unwrap();
        assert_eq!([of(0), of(1)], [Ok(B), Ok(C)]);
        writer.set_spread_path(key, &LabelHops { primary: B, backup: None }).unwrap();
        assert_eq!([of(0), of(1)], [Ok(B), Ok(B)]);
        writer.set_path(key, Some(&hops)).unwrap();
        assert_eq!([of(0), of(1)], [Ok(A), Ok(A)]);
    }

    #[test]
    fn next_hops_change_in_any_order() {
        let mut writer = writer();
        let table = writer.table();
        let all = [A, B, C];
        for step in 0..200_usize {
            let primary = all[step % 3];
            let backup = [None, Some(all[(step + 1) % 3]), Some(all[step / 3 % 3])][step % 5 % 3];
            writer.set_label(77, Some(&LabelHops { primary, backup })).unwrap();
            assert_eq!(hop_at(&table, 77), Ok(primary), "{step}");
            writer.set_link_up(primary.link, false).unwrap();
            let spare = backup.filter(|backup| backup.link != primary.link);
            assert_eq!(hop_at(&table, 77), spare.ok_or(NoLabelHop::LinkDown), "{step}");
            writer.set_link_up(primary.link, true).unwrap();
        }
        writer.set_label(77, None).unwrap();
        assert_eq!(hop_at(&table, 77), Err(NoLabelHop::Unknown));
    }

    #[test]
    fn labels_of_the_same_places_are_kept_until_there_are_none() {
        let mut writer = writer();
        let hops = LabelHops { primary: A, backup: None };
        let label = |turn: u32| 100 + turn * LABELS_MAX;
        let table = writer.table();
        for turn in 0..LABEL_PROBES {
            writer.set_label(label(turn), Some(&hops)).unwrap();
        }
        let last = label(LABEL_PROBES);
        let full = Err(LabelTableError::LabelsFull(last));
        assert_eq!(writer.set_label(last, Some(&hops)), full);
        assert_eq!(writer.set_label(last, None), Ok(()));
        assert!((0..LABEL_PROBES).all(|turn| hop_at(&table, label(turn)) == Ok(A)));
        assert_eq!(hop_at(&table, last), Err(NoLabelHop::Unknown));
        writer.set_label(label(1), None).unwrap();
        writer.set_label(last, Some(&hops)).unwrap();
        assert_eq!(hop_at(&table, label(1)), Err(NoLabelHop::Unknown));
        assert_eq!(hop_at(&table, label(2)), Ok(A));
        assert_eq!(hop_at(&table, last), Ok(A));
        for label in [0, 15, LABEL_LAST + 1] {
            assert_eq!(writer.set_label(label, None), Err(LabelTableError::Label(label)));
        }
        let far = LabelHops { primary: LabelHop { link: LABEL_LINKS_MAX, ..A }, backup: None };
        let refused = LabelTableError::Link(LABEL_LINKS_MAX);
        assert_eq!(writer.set_label(100, Some(&far)), Err(refused));
    }

    #[test]
    fn paths_are_found_until_the_table_is_full() {
        let mut writer = writer();
        let hops = LabelHops { primary: A, backup: None };
        let key = |number: u32| {
            let [a, b, c, d] = number.to_be_bytes();
            PathKey { destination: [2, 0, a, b, c, d], class: u8::try_from(number % 4).unwrap() }
        };
        let mut kept = Vec::new();
        for number in 0..2 * LABEL_PATHS_MAX {
            match writer.set_path(key(number), Some(&hops)) {
                Ok(()) => kept.push(number),
                Err(error) => assert_eq!(error, LabelTableError::PathsFull),
            }
        }
        assert!(kept.len() > 900, "{} paths", kept.len());
        let table = writer.table();
        let has = |number: &u32| table.path_hop(key(*number)).is_ok();
        assert!(kept.iter().all(has));
        assert_eq!((0..2 * LABEL_PATHS_MAX).filter(has).count(), kept.len());
        for number in &kept {
            writer.set_path(key(*number), None).unwrap();
        }
        assert!(!kept.iter().any(has));
        let wrong = PathKey { destination: [0; 6], class: LABEL_CLASSES };
        assert_eq!(writer.set_path(wrong, None), Err(LabelTableError::Class(LABEL_CLASSES)));
    }

    /// A reader on another thread finds one of the next hops that were ever set, whole.
    #[test]
    fn a_reader_finds_whole_next_hops_while_they_change() {
        let mut writer = writer();
        let table = writer.table();
        writer.set_label(77, Some(&LabelHops { primary: A, backup: None })).unwrap();
        let reader = std::thread::spawn(move || {
            for _ in 0..200_000 {
                match hop_at(&table, 77) {
                    Ok(hop) => assert!([A, B, C].contains(&hop), "{hop:?}"),
                    Err(error) => assert_eq!(error, NoLabelHop::Unsettled),
                }
            }
        });
        let all = [A, B, C];
        let mut step = 0_usize;
        while !reader.is_finished() {
            let (primary, backup) = (all[step % 3], Some(all[(step + 1) % 3]));
            writer.set_label(77, Some(&LabelHops { primary, backup })).unwrap();
            step += 1;
        }
        reader.join().unwrap();
    }
}
