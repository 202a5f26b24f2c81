//! DIR-24-8: IPv4 routes as a table by the first 24 bits of an address, which a program reads in
//! one step or two (Gupta, Lin and McKeown, *Routing lookups in hardware at memory access speeds*,
//! 1998).
//!
//! ```text
//! entries  2^24 × 16 bits   0: no route · 1 to 0x7ffd: one more than a next hop
//!                           0x7ffe, 0x7fff: ask · 0x8000 | group: the last eight bits decide
//! groups   256 × 16 bits    0 · 1 to 0x7ffd · 0x7fff
//! ```
//!
//! *Ask* stands where the table cannot say: 0x7fff for next hops above 0x7ffc, 0x7ffe for prefixes
//! longer than 24 bits when all groups are in use. Such packets go up to the graph.

use crate::layout::{DIRECT_ASK, DIRECT_DEEP, DIRECT_ENTRIES, DIRECT_GROUP};
use gatewright_tables::{HopIndex, Prefix, RoutesWriter, SharedWords};
use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;

/// Entries of a group.
const GROUP_ENTRIES: usize = 256;
/// Maximum number of groups: an index has fifteen bits.
pub const GROUPS_MAX: u16 = 1 << 15;

/// The writer of a DIR-24-8 table, which follows the changes of a [`RoutesWriter`].
///
/// It keeps the length of the prefix that each entry has its value from: 16 MiB when all addresses
/// have routes, less as long as parts of the table were never written.
#[derive(Debug)]
pub struct Direct {
    entries: SharedWords,
    groups: SharedWords,
    /// One more than the length of the prefix that an entry has its value from, 0 for none. Of an
    /// entry that is a group or that asks, it is not used.
    lens: Vec<u8>,
    /// The same of the groups' entries.
    group_lens: Vec<u8>,
    free: Vec<u16>,
    /// Groups that readers may still be in.
    released: Vec<u16>,
    /// Entries that ask although a group would do, for want of groups.
    asking: u32,
}

/// The table does not hold the route: the packet goes to the graph.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the table does not have the route")]
pub struct Undecided;

/// The meaning of an entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Entry {
    Value(u16),
    Group(u16),
    /// Longer prefixes, for which there is no group.
    Deep,
}

impl Direct {
    /// Words of `entries`.
    pub const ENTRY_WORDS: u32 = DIRECT_ENTRIES / 2;

    /// Words of `groups`.
    pub fn group_words(groups: u16) -> u32 {
        u32::from(groups.min(GROUPS_MAX)) * 128
    }

    /// An empty table in memory that is all zero.
    pub fn new(entries: SharedWords, groups: SharedWords) -> Self {
        let count = (groups.all().len() * 2 / GROUP_ENTRIES).min(GROUPS_MAX.into());
        let lens = entries.all().len() * 2;
        Self {
            entries,
            groups,
            lens: vec![0; lens],
            group_lens: vec![0; count * GROUP_ENTRIES],
            // The lowest number is taken first, so that little memory is touched.
            free: (0..u16::try_from(count).unwrap_or(GROUPS_MAX)).rev().collect(),
            released: Vec::new(),
            asking: 0,
        }
    }

    /// Adds a route, which `routes` has already.
    pub fn insert(
        &mut self,
        prefix: Prefix<Ipv4Addr>,
        hop: HopIndex,
        routes: &RoutesWriter<Ipv4Addr>,
    ) {
        let (first, len) = (prefix.address().to_bits(), prefix.len());
        if len > 24 {
            self.deepen(first >> 8, routes);
        }
        self.cover(first, len, len + 1, value(hop), |has| has <= len + 1);
    }

    /// Removes a route, which `routes` no longer has.
    pub fn remove(&mut self, prefix: Prefix<Ipv4Addr>, routes: &RoutesWriter<Ipv4Addr>) {
        let (first, len) = (prefix.address().to_bits(), prefix.len());
        let (shorter, hop) = covering(routes, prefix.address(), len);
        self.cover(first, len, shorter, hop, |has| has == len + 1);
        if len > 24 {
            self.flatten(first >> 8, routes);
        }
    }

    /// Frees groups that were released before the last call: no program that ran then may still
    /// run.
    pub fn settle(&mut self) {
        self.free.append(&mut self.released);
    }

    /// The number of groups that are not in use.
    pub fn groups_free(&self) -> usize {
        self.free.len()
    }

    /// The number of entries that are undecided because all groups are in use.
    pub fn asking(&self) -> u32 {
        self.asking
    }

    /// Looks up an address as a program does: the next hop, `None` without a route, or undecided.
    ///
    /// # Errors
    ///
    /// [`Undecided`] where only the graph knows the route.
    pub fn look_up(&self, address: Ipv4Addr) -> Result<Option<HopIndex>, Undecided> {
        let bits = address.to_bits();
        let value = match self.entry(bits >> 8) {
            Entry::Value(value) => value,
            Entry::Deep => return Err(Undecided),
            Entry::Group(group) => half(&self.groups, place(group, bits)),
        };
        if value == DIRECT_ASK {
            return Err(Undecided);
        }
        Ok(u32::from(value).checked_sub(1).map(HopIndex))
    }

    /// Gives `value`, from a prefix whose length plus one is `from`, to each address of a prefix
    /// whose present value is to be replaced.
    fn cover(&mut self, first: u32, len: u8, from: u8, value: u16, replaces: impl Fn(u8) -> bool) {
        let entries = 1_u32.checked_shl(24_u32.saturating_sub(len.into())).unwrap_or(1);
        let start = first >> 8;
        for entry in start..start.saturating_add(entries) {
            match self.entry(entry) {
                Entry::Group(group) => {
                    let count = 1_u32 << (32 - u32::from(len.max(24)));
                    let low = if len > 24 { first & 0xff } else { 0 };
                    for address in low..low + count {
                        let at = place(group, address);
                        if let Some(has) = self.group_lens.get_mut(at).filter(|has| replaces(**has))
                        {
                            *has = from;
                            set_half(&self.groups, at, value);
                        }
                    }
                }
                Entry::Value(_) if len <= 24 => {
                    if let Some(has) = self.lens.get_mut(index(entry)).filter(|has| replaces(**has))
                    {
                        *has = from;
                        set_half(&self.entries, index(entry), value);
                    }
                }
                // An entry that asks finds its value again when a group is free, or none is needed.
                Entry::Value(_) | Entry::Deep => {}
            }
        }
    }

    /// Makes an entry a group, if it is none yet and one is free; else it asks.
    fn deepen(&mut self, entry: u32, routes: &RoutesWriter<Ipv4Addr>) {
        let asked = match self.entry(entry) {
            Entry::Group(_) => return,
            Entry::Deep => true,
            Entry::Value(_) => false,
        };
        let Some(group) = self.free.pop() else {
            if !asked {
                self.asking += 1;
                set_half(&self.entries, index(entry), DIRECT_DEEP);
            }
            return;
        };
        self.asking -= u32::from(asked);
        self.fill(group, entry, routes);
        // Linked when it is whole; the store releases what was written before.
        set_half(&self.entries, index(entry), DIRECT_GROUP | group);
    }

    /// Writes what `routes` say of an entry's 256 addresses into a group.
    fn fill(&mut self, group: u16, entry: u32, routes: &RoutesWriter<Ipv4Addr>) {
        let (len, hop) = covering(routes, Ipv4Addr::from_bits(entry << 8), 25);
        for low in 0..256_u32 {
            let at = place(group, low);
            set_half(&self.groups, at, hop);
            if let Some(has) = self.group_lens.get_mut(at) {
                *has = len;
            }
        }
        for len in 25..=32_u8 {
            let step = 1_u32 << (32 - len);
            for low in (0..256_u32).step_by(index(step)) {
                let address = Ipv4Addr::from_bits(entry << 8 | low);
                let Ok(prefix) = Prefix::new(address, len) else { continue };
                let Some(hop) = routes.get(prefix) else { continue };
                for low in low..low + step {
                    let at = place(group, low);
                    set_half(&self.groups, at, value(hop));
                    if let Some(has) = self.group_lens.get_mut(at) {
                        *has = len + 1;
                    }
                }
            }
        }
    }

    /// Makes an entry a plain one again, if it holds no longer prefix.
    fn flatten(&mut self, entry: u32, routes: &RoutesWriter<Ipv4Addr>) {
        let group = match self.entry(entry) {
            Entry::Group(group) => {
                let start = place(group, 0);
                let own = self.group_lens.get(start..start + GROUP_ENTRIES).unwrap_or(&[]);
                if own.iter().any(|&len| len > 25) {
                    return;
                }
                Some(group)
            }
            Entry::Deep if !has_longer(routes, entry) => {
                self.asking -= 1;
                None
            }
            Entry::Deep | Entry::Value(_) => return,
        };
        let (len, hop) = covering(routes, Ipv4Addr::from_bits(entry << 8), 25);
        if let Some(has) = self.lens.get_mut(index(entry)) {
            *has = len;
        }
        set_half(&self.entries, index(entry), hop);
        self.released.extend(group);
    }

    fn entry(&self, entry: u32) -> Entry {
        match half(&self.entries, index(entry)) {
            DIRECT_DEEP => Entry::Deep,
            group if group & DIRECT_GROUP != 0 => Entry::Group(group & !DIRECT_GROUP),
            value => Entry::Value(value),
        }
    }
}

/// The value of the longest prefix of `address` that is shorter than `below`, and its length plus
/// one.
fn covering(routes: &RoutesWriter<Ipv4Addr>, address: Ipv4Addr, below: u8) -> (u8, u16) {
    let shorter = |len| {
        let hop = routes.get(Prefix::new(address, len).ok()?)?;
        Some((len + 1, value(hop)))
    };
    (0..below).rev().find_map(shorter).unwrap_or((0, 0))
}

/// Whether a prefix of more than 24 bits lies in an entry.
fn has_longer(routes: &RoutesWriter<Ipv4Addr>, entry: u32) -> bool {
    (25..=32_u8).any(|len| {
        (0..256_u32).step_by(index(1 << (32 - len))).any(|low| {
            let prefix = Prefix::new(Ipv4Addr::from_bits(entry << 8 | low), len);
            prefix.is_ok_and(|prefix| routes.get(prefix).is_some())
        })
    })
}

/// A next hop as it lies in the table.
fn value(HopIndex(hop): HopIndex) -> u16 {
    let value = hop.checked_add(1).and_then(|value| u16::try_from(value).ok());
    value.filter(|&value| value < DIRECT_DEEP).unwrap_or(DIRECT_ASK)
}

/// The place of an address in a group.
fn place(group: u16, address: u32) -> usize {
    usize::from(group) * GROUP_ENTRIES + index(address & 0xff)
}

/// The 16 bits at `at`, as a little-endian machine has them in its words.
fn half(words: &SharedWords, at: usize) -> u16 {
    let word = words.all().get(at / 2).map_or(0, |word| word.load(Ordering::Relaxed));
    let [low, high] = [word & 0xffff, word >> 16];
    u16::try_from(if at.is_multiple_of(2) { low } else { high }).unwrap_or(0)
}

/// Sets the 16 bits at `at`; there is one writer. Whoever sees them sees what was written before.
fn set_half(words: &SharedWords, at: usize, value: u16) {
    let Some(word) = words.all().get(at / 2) else { return };
    let (old, value) = (word.load(Ordering::Relaxed), u32::from(value));
    let new =
        if at.is_multiple_of(2) { old & 0xffff_0000 | value } else { old & 0xffff | value << 16 };
    word.store(new, Ordering::Release);
}

/// An offset as an index; past every end where a word is wider than an index.
fn index(offset: u32) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_tables::Miss;
    use proptest::prelude::*;

    /// Few addresses and next hops, so that prefixes cover each other and groups come and go.
    fn prefixes() -> impl Strategy<Value = Prefix<Ipv4Addr>> {
        let address = (0..3_u32, 0..3_u32, any::<u8>());
        (address, prop_oneof![0..=24_u8, 22..=32_u8]).prop_map(|((a, b, low), len)| {
            let bits = 10 << 24 | a << 16 | b << 8 | u32::from(low);
            Prefix::new(Ipv4Addr::from_bits(bits), len).unwrap_or(Prefix::all())
        })
    }

    fn changes() -> impl Strategy<Value = Vec<(Prefix<Ipv4Addr>, Option<u32>)>> {
        let hop = prop_oneof![Just(None), (0..5_u32).prop_map(Some), Just(Some(0x7ffd))];
        proptest::collection::vec((prefixes(), hop), 1..60)
    }

    /// Every answer is the trie's, or the graph is asked where the table cannot say.
    fn agrees(direct: &Direct, routes: &RoutesWriter<Ipv4Addr>, groups: u16) {
        let reader = routes.reader();
        for bits in (0..3 << 16_u32).step_by(0x1_0000).flat_map(|a| (0..3 << 8).map(move |b| a | b))
        {
            let address = Ipv4Addr::from_bits(10 << 24 | bits);
            let expected = match reader.lookup(address) {
                Ok(HopIndex(hop)) if hop > 0x7ffc => Err(Undecided),
                Ok(hop) => Ok(Some(hop)),
                Err(Miss::NoRoute) => Ok(None),
                Err(miss) => panic!("{miss}"),
            };
            let found = direct.look_up(address);
            let full =
                found == Err(Undecided) && groups < 9 && has_longer(routes, address.to_bits() >> 8);
            assert!(found == expected || full, "{address}: {found:?}, {expected:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_table_says_what_the_trie_says(changes in changes(), groups in 0..10_u16) {
            let mut routes = RoutesWriter::in_memory(1_000).unwrap_or_else(|full| panic!("{full}"));
            // Only the entries up to 10.8 are there.
            let entries = SharedWords::private(index(0x0a_0800 / 2));
            let group_words = SharedWords::private(index(Direct::group_words(groups)));
            let mut direct = Direct::new(entries, group_words);
            for (prefix, hop) in changes {
                // A shorter one would write more entries, not others.
                let Ok(prefix) = Prefix::new(prefix.address(), prefix.len().max(13)) else { continue };
                match hop.map(HopIndex) {
                    Some(hop) => {
                        prop_assert!(routes.insert(prefix, hop).is_ok());
                        direct.insert(prefix, hop, &routes);
                    }
                    None => {
                        if routes.remove(prefix).is_some() {
                            direct.remove(prefix, &routes);
                        }
                    }
                }
                direct.settle();
            }
            agrees(&direct, &routes, groups);
            let all: Vec<_> = routes.iter().map(|(prefix, _)| prefix).collect();
            for prefix in all {
                routes.remove(prefix);
                direct.remove(prefix, &routes);
            }
            direct.settle();
            agrees(&direct, &routes, groups);
            prop_assert_eq!((direct.groups_free(), direct.asking()), (groups.into(), 0));
        }
    }
}
