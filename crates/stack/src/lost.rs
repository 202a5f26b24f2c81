//! Neighbours whose link-layer address nobody told, for handlers that choose next hops.

use gatewright_packet::LinkIndex;
use std::{net::IpAddr, time::Duration};

/// Maximum neighbours remembered.
const LOST_MAX: usize = 64;

/// Neighbours to which packets could not be sent, as nobody told their link-layer address. The one
/// lost longest ago gives way to a further one.
#[derive(Clone, Debug, Default)]
pub struct LostNeighbours {
    lost: Vec<(LinkIndex, IpAddr, Duration)>,
    losses: u64,
}

impl LostNeighbours {
    /// Remembers that a neighbour did not answer.
    pub fn note(&mut self, link: LinkIndex, address: IpAddr, now: Duration) {
        self.losses = self.losses.wrapping_add(1);
        let known = self.lost.iter().position(|&(its, ip, _)| (its, ip) == (link, address));
        if let Some(known) = known {
            self.lost.remove(known);
        } else if self.lost.len() >= LOST_MAX {
            self.lost.remove(0);
        }
        self.lost.push((link, address, now));
    }

    /// A number that changes with each loss.
    pub const fn losses(&self) -> u64 {
        self.losses
    }

    /// When a neighbour last did not answer; `None` if that was never so, or is forgotten.
    pub fn lost_at(&self, link: LinkIndex, address: IpAddr) -> Option<Duration> {
        let its = self.lost.iter().find(|&&(its, ip, _)| (its, ip) == (link, address));
        its.map(|(.., at)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_loss_counts_and_the_oldest_is_forgotten() {
        let mut lost = LostNeighbours::default();
        let address = |last: u8| IpAddr::from([192, 0, 2, last]);
        let at = Duration::from_secs;
        lost.note(LinkIndex(0), address(1), at(1));
        lost.note(LinkIndex(0), address(2), at(2));
        lost.note(LinkIndex(0), address(1), at(3));
        assert_eq!((lost.losses(), lost.lost_at(LinkIndex(0), address(1))), (3, Some(at(3))));
        assert_eq!(lost.lost_at(LinkIndex(1), address(1)), None, "another link");
        for last in 3..=65 {
            lost.note(LinkIndex(0), address(last), at(4));
        }
        assert_eq!(lost.lost_at(LinkIndex(0), address(2)), None);
        assert_eq!(lost.lost_at(LinkIndex(0), address(1)), Some(at(3)));
    }
}
