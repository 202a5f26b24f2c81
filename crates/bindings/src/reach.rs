//! Addresses to which peers may have this CSE send requests: not this machine itself.
//!
//! An originator that registers an entity or subscribes names URLs that the CSE asks. It could
//! reach services that listen on loopback only, or learn of them. Such addresses are refused unless
//! the CSE itself listens on loopback only, or an operator allows them. An operator may also name the
//! networks that are to be asked, or are not.

use crate::local_route::stays_here;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::sync::atomic::{AtomicU64, Ordering};
use gatewright_config::Prefix;
use std::net::UdpSocket;
use std::sync::{Arc, PoisonError, RwLock};

/// Port for the lookup of a URL without one: only the address matters.
const ANY_PORT: u16 = 9;

/// Which addresses may be asked on behalf of peers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ReachRules {
    /// Whether this machine may be.
    pub(crate) own: bool,
    /// The only networks that may be; all if there is none.
    pub(crate) only: Vec<Prefix>,
    /// Networks that may not be.
    pub(crate) not: Vec<Prefix>,
}

impl ReachRules {
    fn allow(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let within = |networks: &[Prefix]| networks.iter().any(|one| one.contains(address));
        !within(&self.not)
            && (self.only.is_empty() || within(&self.only))
            && (self.own || !is_own(address))
    }

    const fn allow_all(&self) -> bool {
        self.own && self.only.is_empty() && self.not.is_empty()
    }
}

/// Addresses that may be asked on behalf of peers.
#[derive(Debug)]
pub(crate) struct Reach {
    rules: RwLock<Arc<ReachRules>>,
    refused: AtomicU64,
}

impl Reach {
    pub(crate) fn new(rules: ReachRules) -> Self {
        Self { rules: RwLock::new(Arc::new(rules)), refused: AtomicU64::new(0) }
    }

    /// Sets what may be asked.
    pub(crate) fn set(&self, rules: ReachRules) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
    }

    fn rules(&self) -> Arc<ReachRules> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Requests that were not sent.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Whether an address may be asked; a refusal is counted.
    pub(crate) fn allows_address(&self, address: IpAddr) -> bool {
        let is_allowed = self.rules().allow(address);
        self.refused.fetch_add(u64::from(!is_allowed), Ordering::Relaxed);
        is_allowed
    }

    /// Whether a URL may be asked: each address of its host may be.
    pub(crate) async fn allows(&self, url: &str) -> bool {
        let rules = self.rules();
        if rules.allow_all() {
            return true;
        }
        let is_allowed = match tokio::net::lookup_host(host_of(url)).await {
            Ok(addresses) => addresses.into_iter().all(|address| rules.allow(address.ip())),
            // Nobody is asked then.
            Err(_) => true,
        };
        self.refused.fetch_add(u64::from(!is_allowed), Ordering::Relaxed);
        is_allowed
    }
}

/// Whether an address is reachable from this machine only.
pub(crate) fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Host and port of a URL, as for a name lookup.
pub(crate) fn host_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let has_port = host.rsplit_once(':').is_some_and(|(before, port)| {
        let digits = !port.is_empty() && port.bytes().all(|octet| octet.is_ascii_digit());
        digits && (!before.contains(':') || before.ends_with(']'))
    });
    if has_port { host.to_owned() } else { format!("{host}:{ANY_PORT}") }
}

/// Whether an address is this machine's, or depends on the link.
fn is_own(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_local = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast() || v4.octets()[0] == 0,
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    is_local
        || address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || stays_here(address)
}

/// The source address by which the system would send to an address.
pub(crate) fn source_towards(to: IpAddr) -> Option<IpAddr> {
    let any = match to {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    // Nothing is sent: a datagram socket that is connected has only looked up its route.
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((to, ANY_PORT)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spellings of this machine (RFC 6890: loopback, this network, link-local; RFC 4291 §2.5.5.2:
    /// IPv4-mapped), which libraries take for an address.
    #[tokio::test]
    async fn this_machine_is_not_asked_however_it_is_spelt() {
        let reach = Reach::new(ReachRules::default());
        let spellings = [
            "http://127.0.0.1:8080/x",
            "http://127.9.9.9",
            "http://[::1]:80/",
            "http://[::ffff:127.0.0.1]/",
            "http://0.0.0.0:22",
            "http://[::]:22",
            "coap://169.254.169.254/latest",
            "ws://[fe80::1]:80",
            "http://user:secret@127.0.0.1/",
            "http://localhost:631",
            "http://2130706433/",
            "coap://224.0.1.187",
        ];
        for url in spellings {
            assert!(!reach.allows(url).await, "{url}");
        }
        assert_eq!(reach.refused(), 12);
        // A documentation address (RFC 5737) is nobody's here.
        assert!(reach.allows("http://192.0.2.1:80/x").await);
        reach.set(ReachRules { own: true, ..ReachRules::default() });
        assert!(reach.allows("http://127.0.0.1:8080/x").await);
    }

    /// The addresses are those of documentation (RFC 5737, RFC 3849).
    #[tokio::test]
    async fn networks_are_asked_or_not_as_an_operator_says() {
        let networks = |all: &[&str]| all.iter().map(|one| Prefix::parse(one).unwrap()).collect();
        let only = networks(&["192.0.2.0/24", "2001:db8:1::/48", "127.0.0.0/8"]);
        let not = networks(&["192.0.2.128/25", "2001:db8:1:2::/64"]);
        let reach = Reach::new(ReachRules { own: false, only, not });
        for (url, expected) in [
            ("http://192.0.2.1:80/x", true),
            ("http://[::ffff:192.0.2.1]/", true),
            ("http://192.0.2.129", false),
            ("http://[::ffff:192.0.2.129]/", false),
            ("coap://198.51.100.1", false),
            ("http://[2001:db8:1::7]", true),
            ("http://[2001:db8:1:2::7]", false),
            ("http://[2001:db8:2::7]", false),
            // A list does not open this machine.
            ("http://127.0.0.1:8080/x", false),
        ] {
            assert_eq!(reach.allows(url).await, expected, "{url}");
        }
        assert_eq!(reach.refused(), 6);
        assert!(!reach.allows_address([198, 51, 100, 1].into()));
        let not = networks(&["127.0.0.0/8"]);
        reach.set(ReachRules { own: true, only: Vec::new(), not });
        assert!(!reach.allows("http://127.0.0.1:8080/x").await, "what is denied stays so");
        assert!(reach.allows("http://[::1]:80/").await);
    }
}
