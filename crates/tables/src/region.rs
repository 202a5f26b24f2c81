//! One region with several tables in it, described by a [`RegionLayout`] that both sides state.
//!
//! ```text
//! word 0..2   magic "GWTABLES"
//!      2      version of this format
//!      3..5   hash of the layout: kinds, names and capacities of the tables, in order
//!      5..7   words of the whole region
//!      7..16  zero
//! then the tables, each on a cache line of its own
//! ```

use crate::counters::{CounterName, CounterShape, CounterTable, CountersWriter};
use crate::down::DownShares;
use crate::hop_groups::{BUCKETS, HopGroups, HopGroupsWriter, group_words};
use crate::map::{Map, MapWriter, map_words};
use crate::mapping::{Access, Mapping, cannot_shrink, reopen, sealed_memory};
use crate::memory::{Words, halves};
use crate::messages::ring_words;
use crate::record::Record;
use crate::routes::{Family, Routes, RoutesWriter, Shape, index};
use crate::sojourn::{WorkerHistograms, histogram_words};
use crate::sync::{AtomicU32, Ordering};
use crate::table::{Table, TableWriter, table_words};
use crate::wake::{Wakers, wake_words};
use std::fs::{File, TryLockError};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const MAGIC: [u32; 2] = [0x4757_5441, 0x424c_4553];
/// The format version: it changes with the meaning of any word outside of the records.
const VERSION: u32 = 2;
const HEADER: usize = 16;
/// Words of a cache line, to which tables are aligned.
const LINE: usize = 16;

/// Why a region cannot be created, adopted or attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The system refuses the memory.
    #[error("cannot have {octets} octets of shared memory")]
    Memory {
        /// Octets asked for.
        octets: u64,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The requested capacities are too large for offsets.
    #[error("the table `{table}` is too large: {capacity} records")]
    TooLarge {
        /// Name of the table.
        table: &'static str,
        /// Records asked for.
        capacity: u32,
    },
    /// This or another process is the writer of this region already.
    #[error("the region has a writer already")]
    HasWriter,
    /// The table was already handed to a writer.
    #[error("the table `{table}` has a writer already")]
    Taken {
        /// Name of the table.
        table: &'static str,
    },
    /// The descriptor is not a region whose size is fixed.
    #[error("the descriptor is no region of tables: {why}")]
    NotARegion {
        /// The error.
        why: &'static str,
    },
    /// A program with a different layout of the tables created the region.
    #[error(
        "the region has version {found} and another layout; this program has version {VERSION}"
    )]
    OtherLayout {
        /// The version of its format.
        found: u32,
    },
}

/// The position of a table, and its kind.
#[derive(Clone, Copy, Debug)]
struct Section {
    name: &'static str,
    number: usize,
    start: usize,
    len: usize,
    capacity: u32,
}

/// A place for a [`Table`] in every region of one layout.
#[derive(Debug)]
pub struct TableAt<R>(Section, PhantomData<fn() -> R>);

/// A place for a [`Map`] in every region of one layout.
#[derive(Debug)]
pub struct MapAt<K, R>(Section, PhantomData<fn() -> (K, R)>);

/// A place for [`Routes`] in every region of one layout.
#[derive(Debug)]
pub struct RoutesAt<A>(Section, PhantomData<fn() -> A>);

/// A place for [`HopGroups`] in every region of one layout.
#[derive(Debug)]
pub struct HopGroupsAt(Section);

/// A place for counters in every region of one layout.
#[derive(Debug)]
pub struct CountersAt(Section, CounterShape);

/// A place for the sleep flags of workers in every region of one layout.
#[derive(Debug)]
pub struct WakersAt(Section);

/// A place for a histogram of each worker in every region of one layout.
#[derive(Debug)]
pub struct HistogramsAt(Section);

/// A place for the shares of links that are down in every region of one layout.
#[derive(Debug)]
pub struct DownSharesAt(Section);

/// A place for rings of messages in every region of one layout.
#[derive(Debug)]
pub struct RingsAt(Section);

/// The tables of a region, in order; the writer and every reader state the same.
#[derive(Clone, Debug)]
pub struct RegionLayout {
    words: usize,
    hash: u64,
    sections: usize,
    /// The positions of maps, whose hash needs a seed.
    maps: Vec<usize>,
}

impl Default for RegionLayout {
    fn default() -> Self {
        Self::new()
    }
}

impl RegionLayout {
    /// No tables yet.
    pub fn new() -> Self {
        // The offset basis of FNV-1a.
        Self { words: HEADER, hash: 0xcbf2_9ce4_8422_2325, sections: 0, maps: Vec::new() }
    }

    /// Adds a table of `capacity` records.
    ///
    /// # Errors
    ///
    /// [`RegionError::TooLarge`].
    pub fn table<R: Record>(
        &mut self,
        name: &'static str,
        capacity: u32,
    ) -> Result<TableAt<R>, RegionError> {
        let section =
            self.section(name, capacity, table_words::<R>(capacity), &["table", R::NAME])?;
        Ok(TableAt(section, PhantomData))
    }

    /// Adds a map of `capacity` records.
    ///
    /// # Errors
    ///
    /// [`RegionError::TooLarge`].
    pub fn map<K: Record + PartialEq, R: Record>(
        &mut self,
        name: &'static str,
        capacity: u32,
    ) -> Result<MapAt<K, R>, RegionError> {
        let kinds = ["map", K::NAME, R::NAME];
        let section = self.section(name, capacity, map_words::<K, R>(capacity), &kinds)?;
        self.maps.push(section.start);
        Ok(MapAt(section, PhantomData))
    }

    /// Adds routes, `capacity` of them.
    ///
    /// # Errors
    ///
    /// [`RegionError::TooLarge`].
    pub fn routes<A: Family>(
        &mut self,
        name: &'static str,
        capacity: u32,
    ) -> Result<RoutesAt<A>, RegionError> {
        let bits = <A::Key as crate::routes::PrefixKey>::BITS.to_string();
        let words = Shape::of::<A>(capacity).words().map(index);
        let section = self.section(name, capacity, words, &["routes", &bits])?;
        Ok(RoutesAt(section, PhantomData))
    }

    /// Adds groups of next hops, `capacity` of them.
    ///
    /// # Errors
    ///
    /// [`RegionError::TooLarge`].
    pub fn hop_groups(
        &mut self,
        name: &'static str,
        capacity: u32,
    ) -> Result<HopGroupsAt, RegionError> {
        let kinds = ["hop-groups/1", &BUCKETS.to_string()];
        self.section(name, capacity, group_words(capacity), &kinds).map(HopGroupsAt)
    }

    /// Adds counters: `capacity` for each of `workers` workers.
    ///
    /// # Errors
    ///
    /// [`RegionError::TooLarge`].
    pub fn counters(
        &mut self,
        name: &'static str,
        workers: u32,
        capacity: u32,
    ) -> Result<CountersAt, RegionError> {
        let shape = CounterShape::new(workers, capacity);
        let kinds = ["counters", CounterName::NAME, &workers.to_string()];
        let section = self.section(name, capacity, shape.words(), &kinds)?;
        Ok(CountersAt(section, shape))
    }

    /// Adds the sleep flags of `workers` workers.
    ///
    /// # Errors
    ///
    /// [`RegionError::TooLarge`].
    pub fn wakers(&mut self, name: &'static str, workers: u32) -> Result<WakersAt, RegionError> {
        self.section(name, workers, wake_words(workers), &["wakers/1"]).map(WakersAt)
    }

    /// Adds a histogram for each of `workers` workers.
    ///
    /// # Errors
    ///
    /// [`RegionError::TooLarge`].
    pub fn histograms(
        &mut self,
        name: &'static str,
        workers: u32,
    ) -> Result<HistogramsAt, RegionError> {
        let kinds = ["histograms/1", &gatewright_histogram::BUCKETS.to_string()];
        self.section(name, workers, histogram_words(workers), &kinds).map(HistogramsAt)
    }

    /// Adds a word for each of `links` links: its shares that are down.
    ///
    /// # Errors
    ///
    /// [`RegionError::TooLarge`].
    pub fn down_shares(
        &mut self,
        name: &'static str,
        links: u32,
    ) -> Result<DownSharesAt, RegionError> {
        self.section(name, links, Some(index(links)), &["down-shares/1"]).map(DownSharesAt)
    }

    /// Adds `rings` rings of messages with `words` words each.
    ///
    /// # Errors
    ///
    /// [`RegionError::TooLarge`].
    pub fn rings(
        &mut self,
        name: &'static str,
        rings: u32,
        words: u32,
    ) -> Result<RingsAt, RegionError> {
        let len = ring_words(words).and_then(|each| each.checked_mul(index(rings)));
        self.section(name, rings, len, &["rings/1", &words.to_string()]).map(RingsAt)
    }

    /// Octets of a region, most of which cost nothing until they are used.
    pub fn octets(&self) -> u64 {
        u64::try_from(self.words).unwrap_or(u64::MAX).saturating_mul(4)
    }

    fn section(
        &mut self,
        name: &'static str,
        capacity: u32,
        len: Option<usize>,
        kinds: &[&str],
    ) -> Result<Section, RegionError> {
        let too_large = RegionError::TooLarge { table: name, capacity };
        let end = len.and_then(|len| self.words.checked_add(len)?.checked_next_multiple_of(LINE));
        let (Some(len), Some(end)) = (len, end) else { return Err(too_large) };
        if end > usize::MAX / 4 {
            return Err(too_large);
        }
        let section = Section { name, number: self.sections, start: self.words, len, capacity };
        (self.words, self.sections) = (end, self.sections + 1);
        for text in [name].iter().chain(kinds) {
            self.mix(text.as_bytes());
            self.mix(&[0xff]);
        }
        self.mix(&capacity.to_be_bytes());
        Ok(section)
    }

    /// FNV-1a, which suffices to distinguish two versions of one program.
    fn mix(&mut self, octets: &[u8]) {
        for &octet in octets {
            self.hash = (self.hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// A number that another layout, or another format of regions, most likely does not have.
    pub fn signature(&self) -> u64 {
        let mut whole = Self { maps: Vec::new(), ..*self };
        whole.mix(&VERSION.to_be_bytes());
        whole.hash
    }

    /// The header of a region of this layout.
    fn header(&self) -> [u32; 7] {
        let [high, low] = MAGIC;
        let [hash, hash_low] = halves(self.hash);
        let [words, words_low] = halves(u64::try_from(self.words).unwrap_or(u64::MAX));
        [high, low, VERSION, hash, hash_low, words, words_low]
    }

    fn check(&self, words: &[AtomicU32]) -> Result<(), RegionError> {
        let expected = self.header();
        let mut found = [0; 7];
        for (found, word) in found.iter_mut().zip(words) {
            *found = word.load(Ordering::Acquire);
        }
        let [magic @ .., version, _, _, _, _] = found;
        if magic != MAGIC {
            return Err(RegionError::NotARegion { why: "no such magic number" });
        }
        if found == expected { Ok(()) } else { Err(RegionError::OtherLayout { found: version }) }
    }
}

/// A region, to read; clones are the same region.
#[derive(Clone, Debug)]
pub struct Region {
    words: Words,
}

impl Region {
    /// Maps the region behind `descriptor`, read-only, after its header was compared with this
    /// layout.
    ///
    /// # Errors
    ///
    /// [`RegionError`] if it is no such region, or cannot be mapped.
    pub fn attach(descriptor: impl AsFd, layout: &RegionLayout) -> Result<Self, RegionError> {
        let file = reopen(descriptor, Access::Read).map_err(|source| memory(layout, source))?;
        Ok(Self { words: map(&file, layout, Access::Read)? })
    }

    /// Maps the sleep flags in the region behind `descriptor` for writing: a worker may be woken from
    /// any process that has the region, without being its owner.
    ///
    /// # Errors
    ///
    /// [`RegionError`] if it is no such region, or cannot be mapped.
    pub fn attach_wakers(
        descriptor: impl AsFd,
        layout: &RegionLayout,
        at: &WakersAt,
    ) -> Result<Wakers, RegionError> {
        Ok(Self::attach_writing(descriptor, layout)?.wakers(at))
    }

    /// Maps the region behind `descriptor` for writing, without being its owner.
    pub(crate) fn attach_writing(
        descriptor: impl AsFd,
        layout: &RegionLayout,
    ) -> Result<Self, RegionError> {
        let file = reopen(descriptor, Access::Write).map_err(|source| memory(layout, source))?;
        Ok(Self { words: map(&file, layout, Access::Write)? })
    }

    /// A reader of a table.
    pub fn table<R: Record>(&self, at: &TableAt<R>) -> Table<R> {
        Table::new(self.part(&at.0))
    }

    /// A reader of a map.
    pub fn map<K: Record + PartialEq, R: Record>(&self, at: &MapAt<K, R>) -> Map<K, R> {
        Map::new(self.part(&at.0), at.0.capacity)
    }

    /// A reader of routes.
    pub fn routes<A: Family>(&self, at: &RoutesAt<A>) -> Routes<A> {
        Routes::new(self.part(&at.0))
    }

    /// A reader of groups of next hops.
    pub fn hop_groups(&self, at: &HopGroupsAt) -> HopGroups {
        HopGroups::new(self.part(&at.0))
    }

    /// A reader of counters.
    pub fn counters(&self, at: &CountersAt) -> CounterTable {
        CounterTable::new(self.part(&at.0), at.1)
    }

    /// A reader of the histograms of workers.
    pub fn histograms(&self, at: &HistogramsAt) -> WorkerHistograms {
        WorkerHistograms::new(self.part(&at.0))
    }

    /// The shares of links that are down; to be changed only where the region is mapped for writing.
    pub(crate) fn down_shares(&self, at: &DownSharesAt) -> DownShares {
        DownShares::new(self.part(&at.0))
    }

    /// Sleep flags; to be changed only where the region is mapped for writing.
    pub(crate) fn wakers(&self, at: &WakersAt) -> Wakers {
        Wakers::new(self.part(&at.0))
    }

    /// The words of each of several rings.
    pub(crate) fn rings(&self, RingsAt(section): &RingsAt) -> Vec<Words> {
        let rings = index(section.capacity);
        let each = section.len / rings.max(1);
        let words = self.part(section);
        (0..rings).filter_map(|ring| words.part(ring * each, each)).collect()
    }

    /// The words of a table.
    pub(crate) fn table_part<R>(&self, at: &TableAt<R>) -> Words {
        self.part(&at.0)
    }

    /// The words of a map.
    pub(crate) fn map_part<K, R>(&self, at: &MapAt<K, R>) -> (Words, u32) {
        (self.part(&at.0), at.0.capacity)
    }

    /// The writer of counters; there may be no other.
    pub(crate) fn counters_writer(&self, at: &CountersAt) -> CountersWriter {
        CountersWriter::new(self.part(&at.0), at.1)
    }

    /// The words of a section; empty if it is of another layout, which reads as an empty table.
    fn part(&self, section: &Section) -> Words {
        self.words.part(section.start, section.len).unwrap_or_else(|| Words::zeroed(0))
    }
}

/// The writer's handle of a region: gives each table to one writer, once.
///
/// With a descriptor behind it the region has one owner among all processes, by a lock that ends
/// with the owner in every case.
#[derive(Debug)]
pub struct RegionOwner {
    region: Region,
    taken: Vec<bool>,
    shared: Option<ProcessShared>,
}

/// The state of a region for several processes.
#[derive(Debug)]
struct ProcessShared {
    /// The descriptor for other processes. It is not the locked one: a lock lasts as long as any
    /// copy of its descriptor.
    descriptor: OwnedFd,
    /// The locked descriptor, opened only for this, so the lock ends with this process.
    _lock: File,
}

impl RegionOwner {
    /// A region in this process's own memory. `seed` keeps outsiders from choosing keys that
    /// collide; draw it at random.
    ///
    /// # Errors
    ///
    /// [`RegionError::Memory`] if the system has no address space for it.
    pub fn in_memory(layout: &RegionLayout, seed: [u64; 2]) -> Result<Self, RegionError> {
        let words = Words::reserved(layout.words).map_err(|source| memory(layout, source))?;
        let owner = Self::new(words, layout, None);
        owner.begin(layout, seed);
        Ok(owner)
    }

    /// A region behind a descriptor, to be attached by other processes. It is sealed against
    /// resizing only, so that a restarted writer can [`Self::adopt`] it.
    ///
    /// # Errors
    ///
    /// [`RegionError::Memory`] if the system refuses it.
    pub fn create(layout: &RegionLayout, seed: [u64; 2]) -> Result<Self, RegionError> {
        let made = sealed_memory(layout.words).map_err(|source| memory(layout, source))?;
        let lock = lock(&made, layout)?;
        let mapping = Mapping::new(&made, layout.words, Access::Write);
        let mapping = mapping.map_err(|source| memory(layout, source))?;
        let shared = ProcessShared { descriptor: made.into(), _lock: lock };
        let owner = Self::new(Words::mapped(mapping), layout, Some(shared));
        owner.begin(layout, seed);
        Ok(owner)
    }

    /// Becomes the writer of the region behind `descriptor`, whose last writer has ended. Readers
    /// do not notice.
    ///
    /// # Errors
    ///
    /// [`RegionError`] if it is no such region, or has a writer.
    pub fn adopt(descriptor: impl AsFd, layout: &RegionLayout) -> Result<Self, RegionError> {
        let copy = descriptor.as_fd().try_clone_to_owned();
        let copy = copy.map_err(|source| memory(layout, source))?;
        let lock = lock(descriptor, layout)?;
        let words = map(&lock, layout, Access::Write)?;
        let shared = ProcessShared { descriptor: copy, _lock: lock };
        Ok(Self::new(words, layout, Some(shared)))
    }

    fn new(words: Words, layout: &RegionLayout, shared: Option<ProcessShared>) -> Self {
        Self { region: Region { words }, taken: vec![false; layout.sections], shared }
    }

    /// Writes the header, its magic number last, so that a reader knows it is complete.
    fn begin(&self, layout: &RegionLayout, seed: [u64; 2]) {
        let words = self.region.words.all();
        for &map in &layout.maps {
            crate::map::set_seed(words.get(map..).unwrap_or(&[]), seed);
        }
        let header = layout.header();
        // Cut first: from its end, a longer list would be walked down word by word.
        let words = words.get(..header.len()).unwrap_or(words);
        for (word, value) in words.iter().zip(header).rev() {
            word.store(value, Ordering::Release);
        }
    }

    /// The region for readers.
    pub fn region(&self) -> Region {
        self.region.clone()
    }

    /// The descriptor to give to other processes; none for a region in this process's memory.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.shared.as_ref().map(|shared| shared.descriptor.as_fd())
    }

    /// The writer of a table; records that the last writer left half-written are freed.
    ///
    /// # Errors
    ///
    /// [`RegionError::Taken`] the second time.
    pub fn table<R: Record>(&mut self, at: &TableAt<R>) -> Result<TableWriter<R>, RegionError> {
        Ok(TableWriter::new(self.take(&at.0)?))
    }

    /// The writer of a map; records that the last writer left half-written are freed.
    ///
    /// # Errors
    ///
    /// [`RegionError::Taken`] the second time.
    pub fn map<K: Record + PartialEq, R: Record>(
        &mut self,
        at: &MapAt<K, R>,
    ) -> Result<MapWriter<K, R>, RegionError> {
        Ok(MapWriter::adopt(self.take(&at.0)?, at.0.capacity))
    }

    /// The writer of routes; the linked ones stay in force until its first change.
    ///
    /// # Errors
    ///
    /// [`RegionError::Taken`] the second time.
    pub fn routes<A: Family>(&mut self, at: &RoutesAt<A>) -> Result<RoutesWriter<A>, RegionError> {
        Ok(RoutesWriter::new(self.take(&at.0)?, Shape::of::<A>(at.0.capacity)))
    }

    /// The writer of groups of next hops; each stays in force until it is set.
    ///
    /// # Errors
    ///
    /// [`RegionError::Taken`] the second time.
    pub fn hop_groups(&mut self, at: &HopGroupsAt) -> Result<HopGroupsWriter, RegionError> {
        Ok(HopGroupsWriter::new(self.take(&at.0)?))
    }

    /// The writer of counters; it leaves them as they are until it begins.
    ///
    /// # Errors
    ///
    /// [`RegionError::Taken`] the second time.
    pub fn counters(&mut self, at: &CountersAt) -> Result<CountersWriter, RegionError> {
        Ok(CountersWriter::new(self.take(&at.0)?, at.1))
    }

    /// The sleep flags of workers. Several write them, so this may be asked for more than once.
    pub fn wakers(&self, at: &WakersAt) -> Wakers {
        self.region.wakers(at)
    }

    fn take(&mut self, section: &Section) -> Result<Words, RegionError> {
        match self.taken.get_mut(section.number) {
            Some(taken) if !*taken => *taken = true,
            _ => return Err(RegionError::Taken { table: section.name }),
        }
        Ok(self.region.part(section))
    }
}

/// Opens the region anew and locks it for its one writer.
fn lock(descriptor: impl AsFd, layout: &RegionLayout) -> Result<File, RegionError> {
    let file = reopen(descriptor, Access::Write).map_err(|source| memory(layout, source))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(RegionError::HasWriter),
        Err(TryLockError::Error(source)) => Err(memory(layout, source)),
    }
}

/// Maps a region whose header says that it has this layout.
fn map(file: &File, layout: &RegionLayout, access: Access) -> Result<Words, RegionError> {
    if !cannot_shrink(file) {
        return Err(RegionError::NotARegion { why: "it could be made shorter" });
    }
    let octets = file.metadata().map_err(|source| memory(layout, source))?.len();
    if octets != layout.octets() {
        // Its header still tells a wrong layout from something else altogether.
        let whole = Mapping::new(file, usize::try_from(octets / 4).unwrap_or(0), Access::Read);
        let words = Words::mapped(whole.map_err(|source| memory(layout, source))?);
        layout.check(words.all())?;
        return Err(RegionError::NotARegion { why: "its size is not what its header says" });
    }
    let mapping = Mapping::new(file, layout.words, access);
    let words = Words::mapped(mapping.map_err(|source| memory(layout, source))?);
    layout.check(words.all())?;
    Ok(words)
}

fn memory(layout: &RegionLayout, source: io::Error) -> RegionError {
    RegionError::Memory { octets: layout.octets(), source }
}
