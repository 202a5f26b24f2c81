//! How many of the admitted flows one client may have.

use crate::FlowRefusal;
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
};

/// The admitted flows of each client: of an IPv4 address, or an IPv6 network of 64 bits, as a host has
/// all addresses of one (RFC 7934).
///
/// It has an entry for each client with a flow, so admission bounds it.
#[derive(Clone, Debug)]
pub struct ClientFlows {
    flows_max: Option<u32>,
    flows: BTreeMap<IpAddr, u32>,
}

impl ClientFlows {
    /// No client yet; `None` lets one have all flows.
    pub const fn new(flows_max: Option<u32>) -> Self {
        Self { flows_max, flows: BTreeMap::new() }
    }

    /// Whether a client may have one more flow.
    ///
    /// # Errors
    ///
    /// [`FlowRefusal::Client`] if it has as many as one may have.
    pub fn check(&self, client: IpAddr) -> Result<(), FlowRefusal> {
        let Some(limit) = self.flows_max else { return Ok(()) };
        let has = self.flows.get(&client_network(client)).copied().unwrap_or_default();
        if has >= limit { Err(FlowRefusal::Client { limit }) } else { Ok(()) }
    }

    /// Records a flow that was admitted.
    pub fn add(&mut self, client: IpAddr) {
        if self.flows_max.is_some() {
            *self.flows.entry(client_network(client)).or_default() += 1;
        }
    }

    /// Records the end of a flow.
    pub fn remove(&mut self, client: IpAddr) {
        let client = client_network(client);
        if let Some(flows) = self.flows.get_mut(&client) {
            *flows = flows.saturating_sub(1);
            if *flows == 0 {
                self.flows.remove(&client);
            }
        }
    }
}

/// What counts as one client: an IPv4 address, or an IPv6 network of 64 bits.
pub fn client_network(client: IpAddr) -> IpAddr {
    /// The first 64 bits.
    const PREFIX: u128 = !0 << 64;
    match client.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & PREFIX).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_has_its_share_and_others_have_theirs() {
        let mut clients = ClientFlows::new(Some(2));
        let at = |text: &str| text.parse::<IpAddr>().unwrap();
        for client in ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "2001:db8::2"] {
            clients.check(at(client)).unwrap();
            clients.add(at(client));
        }
        for client in ["192.0.2.1", "2001:db8::ffff:3"] {
            assert_eq!(clients.check(at(client)), Err(FlowRefusal::Client { limit: 2 }));
        }
        for other in ["192.0.2.2", "2001:db8:0:1::1"] {
            clients.check(at(other)).unwrap();
        }
        clients.remove(at("192.0.2.1"));
        clients.check(at("192.0.2.1")).unwrap();
        clients.remove(at("192.0.2.1"));
        clients.remove(at("192.0.2.1"));
        assert_eq!(clients.flows.len(), 1, "one that has no flow has no entry");
    }

    #[test]
    fn without_a_bound_nothing_is_kept() {
        let mut clients = ClientFlows::new(None);
        for _ in 0..9 {
            clients.add([192, 0, 2, 1].into());
        }
        assert!(clients.check([192, 0, 2, 1].into()).is_ok() && clients.flows.is_empty());
    }
}
