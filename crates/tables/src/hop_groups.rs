//! Groups of next hops: of several, each flow keeps one.
//!
//! A flow is hashed to one of [`BUCKETS`] buckets, and each bucket of a group has one of its next hops
//! (as in the resilient groups of the kernel's `nexthop` objects). The graph and the programs of
//! drivers read the same words and share one definition of the hash ([`Flow::bucket`];
//! `bucket_of` in `xdp`'s `forward.c`), so both choose alike.
//!
//! The writer fills the buckets by weighted rendezvous hashing (Thaler and Ravishankar 1998; weights
//! as in Schindelhauer and Schomaker 2005): a next hop that goes leaves its buckets to the others,
//! and takes the same ones back when it returns; no other bucket changes. The choice depends on who
//! the next hops are, so two routers in a row do not choose alike.
//!
//! A bucket is one word, so that each reader sees the earlier or the later next hop, without a
//! version. The shares of equal next hops differ by chance: with two by some 3 %, with sixteen by
//! some 12 %.

use crate::memory::Words;
use crate::routes::{HopIndex, index};
use crate::sync::Ordering;

/// Buckets of a group, a power of two; each is one word.
pub const BUCKETS: u32 = 1 << BUCKET_BITS;
const BUCKET_BITS: u32 = 10;

/// Maximum next hops of a group.
pub const GROUP_MEMBERS_MAX: usize = 16;

/// A place in the table of groups.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct HopGroupIndex(pub u32);

/// What the packets of a flow have in common, as it is in their headers.
///
/// Words hold octets in the order of the header, the first one lowest, as a program in the kernel
/// of a little-endian machine reads them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Flow {
    /// The source; IPv4 addresses are in the first word.
    pub source: [u32; 4],
    /// The destination.
    pub destination: [u32; 4],
    /// The protocol in the IP header.
    pub protocol: u8,
    /// The ports, source first, of an unfragmented packet that shows them directly behind its IP
    /// header. Else the flow label of IPv6 as a number (RFC 6437 §2), which is for packets whose
    /// ports are hidden; 0 for IPv4.
    pub rest: u32,
}

impl Flow {
    /// The flow's bucket, below [`BUCKETS`].
    #[inline]
    pub fn bucket(&self) -> u32 {
        let (source, _) = self.source.as_chunks::<2>();
        let (destination, _) = self.destination.as_chunks::<2>();
        let end = [[self.rest, self.protocol.into()], [0, 0]];
        let pairs = source.iter().chain(destination).chain(&end);
        let word = |[low, high]: &[u32; 2]| u64::from(*low) | u64::from(*high) << 32;
        let hash = pairs.map(word).fold(0, stir);
        u32::try_from(hash >> (u64::BITS - BUCKET_BITS)).unwrap_or(0)
    }
}

/// Mixes a word into a hash (`stir` in `forward.c`).
#[inline]
const fn stir(hash: u64, word: u64) -> u64 {
    // 2^64 divided by the golden ratio, odd (Knuth, The Art of Computer Programming 3, §6.4).
    let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 32)
}

/// A next hop of a group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GroupMember {
    /// Its place in the table of next hops.
    pub hop: HopIndex,
    /// A number that stays the same as long as it is the same next hop, in other groups too.
    pub identity: u64,
    /// Its weight, 0 counting as 1.
    pub weight: u16,
}

impl GroupMember {
    /// A cost of this next hop for a bucket; the one with the least has it.
    fn cost(&self, bucket: u32) -> f64 {
        const END: f64 = 4_294_967_296.0;
        let hash = stir(stir(stir(0, self.identity), bucket.into()), 0) >> 32;
        let share = (f64::from(u32::try_from(hash).unwrap_or(0)) + 0.5) / END;
        -share.ln() / f64::from(self.weight.max(1))
    }
}

/// The next hop of each bucket, in order. Empty without members.
pub fn spread(members: &[GroupMember]) -> impl Iterator<Item = HopIndex> + '_ {
    (0..BUCKETS).filter_map(move |bucket| {
        let of = |member: &GroupMember| (member.cost(bucket), member.hop);
        let costs = members.iter().map(of);
        costs.min_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, hop)| hop)
    })
}

/// Words of `groups` groups, if they can be addressed.
pub(crate) fn group_words(groups: u32) -> Option<usize> {
    groups.checked_mul(BUCKETS).map(index)
}

/// A reader of groups; clones read the same ones.
#[derive(Clone, Debug)]
pub struct HopGroups(Words);

impl HopGroups {
    pub(crate) const fn new(words: Words) -> Self {
        Self(words)
    }

    /// The next hop of a bucket; `None` for a group that was never set.
    #[inline]
    pub fn member(&self, HopGroupIndex(group): HopGroupIndex, bucket: u32) -> Option<HopIndex> {
        let place = index(group).checked_mul(index(BUCKETS))?.checked_add(index(bucket))?;
        // Acquires the next hop's record, which was written before.
        let entry = self.0.all().get(place)?.load(Ordering::Acquire);
        entry.checked_sub(1).map(HopIndex)
    }
}

/// The writer of groups; there is one.
#[derive(Debug)]
pub struct HopGroupsWriter(Words);

impl HopGroupsWriter {
    pub(crate) const fn new(words: Words) -> Self {
        Self(words)
    }

    /// The groups in shared memory of [`BUCKETS`] words for each.
    #[cfg(not(loom))]
    pub fn in_words(words: &crate::SharedWords) -> Self {
        Self(words.0.clone())
    }

    /// A reader of these groups, for any thread.
    pub fn reader(&self) -> HopGroups {
        HopGroups(self.0.clone())
    }

    /// The number of groups that there is room for.
    pub fn capacity(&self) -> u32 {
        u32::try_from(self.0.all().len() / index(BUCKETS)).unwrap_or(u32::MAX)
    }

    /// Gives each bucket of a group its next hop; only buckets whose next hop changes are written.
    /// Returns whether there is such a group.
    pub fn set(&mut self, HopGroupIndex(group): HopGroupIndex, members: &[GroupMember]) -> bool {
        let buckets = index(BUCKETS);
        let start = index(group).saturating_mul(buckets);
        let end = start.saturating_add(buckets);
        let Some(words) = self.0.all().get(start..end) else { return false };
        for (word, HopIndex(hop)) in words.iter().zip(spread(members)) {
            let entry = hop.saturating_add(1);
            if word.load(Ordering::Relaxed) != entry {
                word.store(entry, Ordering::Release);
            }
        }
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn member(hop: u32, weight: u16) -> GroupMember {
        GroupMember { hop: HopIndex(hop), identity: u64::from(hop) * 31 + 7, weight }
    }

    fn shares(all: &[HopIndex], hops: u32) -> Vec<usize> {
        (0..hops).map(|hop| all.iter().filter(|its| its.0 == hop).count()).collect()
    }

    #[test]
    fn a_next_hop_that_goes_moves_its_own_buckets_only() {
        for number in 2..=16 {
            let all: Vec<_> = (0..number).map(|hop| member(hop, 1 + (hop % 3) as u16)).collect();
            let before: Vec<_> = spread(&all).collect();
            assert_eq!(before.len(), BUCKETS as usize);
            for gone in 0..number {
                let rest: Vec<_> = all.iter().copied().filter(|one| one.hop.0 != gone).collect();
                let after: Vec<_> = spread(&rest).collect();
                for (before, after) in before.iter().zip(&after) {
                    assert!(before == after || before.0 == gone, "{number} {gone}");
                    assert_ne!(after.0, gone);
                }
                let order: Vec<_> = all.iter().rev().copied().collect();
                assert_eq!(spread(&order).collect::<Vec<_>>(), before, "any order");
            }
        }
    }

    #[test]
    fn shares_are_as_the_weights() {
        let alike: Vec<_> = spread(&[member(0, 1), member(1, 1)]).collect();
        let [one, other] = shares(&alike, 2)[..] else { panic!("two") };
        assert!(one.abs_diff(other) < 100, "{one} {other}");
        let heavy: Vec<_> = spread(&[member(0, 3), member(1, 1)]).collect();
        let [three, one] = shares(&heavy, 2)[..] else { panic!("two") };
        assert!((704..=832).contains(&three) && three + one == 1024, "{three} {one}");
        let sixteen: Vec<_> = (0..16).map(|hop| member(hop, 1)).collect();
        let sixteen: Vec<_> = spread(&sixteen).collect();
        assert!(shares(&sixteen, 16).iter().all(|share| (36..=92).contains(share)));
    }

    #[test]
    fn flows_are_spread_over_all_buckets() {
        let mut by_port = vec![0; BUCKETS as usize];
        let mut by_host = by_port.clone();
        let flow = Flow {
            source: [u32::from_le_bytes([192, 0, 2, 7]), 0, 0, 0],
            destination: [u32::from_le_bytes([198, 51, 100, 7]), 0, 0, 0],
            protocol: 17,
            rest: 0,
        };
        for number in 0..32_768_u32 {
            let [high, low, ..] = number.to_le_bytes();
            let rest = u32::from_le_bytes([low, high, 0x16, 0x2e]);
            by_port[Flow { rest, ..flow }.bucket() as usize] += 1;
            let source = [u32::from_le_bytes([10, 0, low, high]), 0, 0, 0];
            by_host[Flow { source, ..flow }.bucket() as usize] += 1;
        }
        // 32 on average.
        for (bucket, count) in by_port.iter().chain(&by_host).enumerate() {
            assert!((8..=64).contains(count), "{bucket} {count}");
        }
    }

    #[test]
    fn every_field_decides() {
        let flow = Flow { source: [1, 2, 3, 4], destination: [5, 6, 7, 8], protocol: 6, rest: 9 };
        let mut others = vec![Flow { protocol: 17, ..flow }, Flow { rest: 10, ..flow }];
        for word in 0..4 {
            let mut other = flow;
            other.source[word] ^= 1 << 31;
            others.push(other);
            let mut other = flow;
            other.destination[word] ^= 1;
            others.push(other);
        }
        assert!(others.iter().all(|other| other.bucket() != flow.bucket()));
    }

    #[test]
    fn readers_see_what_was_set_and_nothing_beyond_the_end() {
        let mut writer = HopGroupsWriter::new(Words::zeroed(2 * BUCKETS as usize));
        let reader = writer.reader();
        assert_eq!((writer.capacity(), reader.member(HopGroupIndex(1), 5)), (2, None));
        assert!(writer.set(HopGroupIndex(1), &[member(70_000, 1)]));
        assert_eq!(reader.member(HopGroupIndex(1), BUCKETS - 1), Some(HopIndex(70_000)));
        assert_eq!(reader.member(HopGroupIndex(0), 0), None);
        assert!(!writer.set(HopGroupIndex(2), &[member(1, 1)]));
        assert_eq!(reader.member(HopGroupIndex(u32::MAX), 0), None);
    }
}
