//! Addresses that no packet from a link has as its source: our own, and the broadcast addresses of
//! our subnets (RFC 1122 §3.2.1.3, RFC 1812 §5.3.7).
//!
//! A packet from such an address is forged, or has come back. Answered, it would go to ourselves or
//! to a whole subnet; forwarded, it would do so elsewhere.

use super::{Interface, Prefix, View, broadcast};
use crate::destination::DestinationKey;
use gatewright_packet::LinkIndex;
use std::net::IpAddr;

/// A set of addresses that is checked for each forwarded packet.
///
/// One bit of many, chosen by a hash, shows for almost every packet that its source is not in the
/// set. That costs a multiplication, a load that stays in the first cache, and a branch that is
/// never taken. The few other packets cost a search through the addresses.
#[derive(Debug)]
pub(super) struct Sources {
    bits: [u64; WORDS],
    /// In order.
    addresses: Vec<IpAddr>,
}

/// Words of 64 bits, a power of two: with ten addresses, one source of 400 is searched for.
const WORDS: usize = 1 << WORDS_BITS;
const WORDS_BITS: u32 = 6;

impl Default for Sources {
    fn default() -> Self {
        Self { bits: [0; WORDS], addresses: Vec::new() }
    }
}

impl Sources {
    /// Sets the addresses that follow from `interfaces`.
    ///
    /// Addresses that are not in use are not among them: a duplicate is another host's. Link-local
    /// ones are not either, as another host may have them on another link.
    pub(super) fn set(&mut self, interfaces: &[Interface]) {
        *self = Self::default();
        for address in interfaces.iter().flat_map(Interface::usable) {
            match address.ip {
                IpAddr::V4(ip) => {
                    if !ip.is_link_local() {
                        self.add(ip);
                    }
                    let subnet = Prefix::new(ip, address.prefix_len).ok();
                    if let Some(all) = subnet.and_then(broadcast) {
                        self.add(all);
                    }
                }
                IpAddr::V6(ip) if !ip.is_unicast_link_local() => self.add(ip),
                IpAddr::V6(_) => {}
            }
        }
        self.addresses.sort_unstable();
    }

    fn add<A: DestinationKey>(&mut self, address: A) {
        let (word, bit) = place(address);
        if let Some(word) = self.bits.get_mut(word) {
            *word |= bit;
        }
        self.addresses.push(address.into());
    }

    #[inline]
    fn has<A: DestinationKey>(&self, address: A) -> bool {
        let (word, bit) = place(address);
        self.bits.get(word).is_some_and(|word| word & bit != 0) && self.finds(address.into())
    }

    #[cold]
    fn finds(&self, address: IpAddr) -> bool {
        self.addresses.binary_search(&address).is_ok()
    }
}

/// The addresses that follow from `interfaces`, in order.
pub(super) fn all(interfaces: &[Interface]) -> Vec<IpAddr> {
    let mut sources = Sources::default();
    sources.set(interfaces);
    sources.addresses
}

/// The word, and the bit in it.
#[inline]
fn place<A: DestinationKey>(address: A) -> (usize, u64) {
    let hash = address.hash();
    let word = usize::try_from(hash >> (u64::BITS - WORDS_BITS)).unwrap_or_default();
    (word, 1 << (hash >> (u64::BITS - 2 * WORDS_BITS) & 63))
}

impl View {
    /// Whether `source` is an address of this host, but for link-local ones, or the broadcast address
    /// of one of its subnets.
    #[inline]
    pub(crate) fn is_martian<A: DestinationKey>(&self, source: A) -> bool {
        self.sources.has(source)
    }

    /// As [`Self::is_martian`], of a packet that came by `link`: its link-local addresses, too.
    pub(crate) fn is_martian_on<A: DestinationKey>(&self, link: LinkIndex, source: A) -> bool {
        self.is_martian(source)
            || (!source.is_routable()
                && self.interface(link).is_some_and(|interface| interface.has(source.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, AddressState};
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn address(text: &str, prefix_len: u8, state: AddressState) -> Address {
        Address { ip: text.parse().unwrap(), prefix_len, state }
    }

    /// Of a million addresses those that share a bit with one of ours are told apart from it.
    #[test]
    fn only_addresses_of_ours_are_in_the_set() {
        let (used, old) = (AddressState::Preferred, AddressState::Deprecated);
        let addresses = vec![
            address("10.0.0.1", 24, used),
            address("10.0.1.1", 31, old),
            address("10.0.2.1", 24, AddressState::Duplicate),
            address("169.254.3.1", 16, used),
            address("2001:db8::1", 64, used),
            address("2001:db8::2", 64, AddressState::Tentative),
            address("fe80::1", 64, used),
        ];
        let mut sources = Sources::default();
        sources.set(&[Interface { addresses, ..Interface::default() }]);
        let found = |text: &str| match text.parse().unwrap() {
            IpAddr::V4(ip) => sources.has::<Ipv4Addr>(ip),
            IpAddr::V6(ip) => sources.has::<Ipv6Addr>(ip),
        };
        let ours = ["10.0.0.1", "10.0.0.255", "10.0.1.1", "169.254.255.255", "2001:db8::1"];
        assert!(ours.into_iter().all(found));
        let others =
            ["10.0.1.0", "10.0.2.1", "10.0.2.255", "169.254.3.1", "2001:db8::2", "fe80::1"];
        assert!(!others.into_iter().any(found));
        let all = (0..1 << 20).map(|low| Ipv4Addr::from_bits(0x0a00_0000 | low));
        let found: Vec<_> = all.filter(|ip| sources.has(*ip)).map(|ip| ip.octets()).collect();
        assert_eq!(found, [[10, 0, 0, 1], [10, 0, 0, 255], [10, 0, 1, 1]]);
    }
}
