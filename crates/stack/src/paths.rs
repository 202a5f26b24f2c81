//! What the paths to destinations carry (RFC 1191, RFC 8201).

use std::{collections::HashMap, net::IpAddr, time::Duration};

/// Paths that are remembered at the most.
pub const PATHS_MAX: usize = 1024;

/// How long a path MTU holds (RFC 8201 §5.3: "The recommended value for this timer is 10 minutes").
pub const PATH_MTU_FOR: Duration = Duration::from_mins(10);

/// Path MTUs learnt from ICMP errors, for packets of this host.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    mtus: HashMap<IpAddr, (u32, Duration)>,
}

impl Paths {
    /// Learns that the path to `destination` carries at most `mtu` octets; whether there was room.
    ///
    /// A larger value than the one that holds is not believed: paths grow by the timer only.
    pub fn learn(&mut self, destination: IpAddr, mtu: u32, now: Duration) -> bool {
        if self.mtus.len() >= PATHS_MAX {
            self.mtus.retain(|_, &mut (_, until)| until > now);
        }
        let known = self.mtus.get(&destination).filter(|(_, until)| *until > now);
        if known.is_some_and(|&(held, _)| held <= mtu) {
            return true;
        }
        if self.mtus.len() >= PATHS_MAX && known.is_none() {
            return false;
        }
        self.mtus.insert(destination, (mtu, now + PATH_MTU_FOR));
        true
    }

    /// Octets of the largest packet to `destination` over a link of `link_mtu`.
    pub fn mtu(&self, destination: IpAddr, link_mtu: u32, now: Duration) -> u32 {
        match self.mtus.get(&destination) {
            Some(&(mtu, until)) if until > now => mtu.min(link_mtu),
            _ => link_mtu,
        }
    }
}
