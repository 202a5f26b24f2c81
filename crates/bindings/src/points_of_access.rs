//! The URLs that a CSE tells others as its points of access.

use crate::listeners::ListenerAddress;
use crate::reach::{host_of, source_towards};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Addresses that no host has (RFC 5737, RFC 3849): the way there is the default route.
const ELSEWHERE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xDB8, 0, 0, 0, 0, 0, 1)),
];

/// The URL of a listener as others can use it. One at all addresses is told with the address from
/// which this host reaches the registrar at this URL; without a registrar, or without a way to it,
/// it is not told.
pub(crate) fn told(place: ListenerAddress, registrar: Option<&str>) -> Option<String> {
    if !place.address.ip().is_unspecified() {
        return Some(place.to_string());
    }
    let own = own_address(&host_of(registrar?), place.address.is_ipv4())?;
    let address = SocketAddr::new(own, place.address.port());
    Some(ListenerAddress { address, ..place }.to_string())
}

/// The address of this host from which it reaches a host; the way to one with a name is taken to be
/// the default route.
fn own_address(host_and_port: &str, is_v4_only: bool) -> Option<IpAddr> {
    let (host, _port) = host_and_port.rsplit_once(':')?;
    let literal = host.trim_matches(['[', ']']).parse();
    let targets = literal.map_or_else(|_| ELSEWHERE.to_vec(), |ip: IpAddr| vec![ip]);
    targets.into_iter().filter(|ip| ip.is_ipv4() || !is_v4_only).find_map(source_towards)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listeners::ListenerKind;

    #[test]
    fn a_listener_at_all_addresses_is_told_as_the_registrar_sees_it() {
        let place = |address: &str| ListenerAddress {
            kind: ListenerKind::Http,
            address: address.parse().unwrap(),
        };
        let registrar = Some("http://127.0.0.1:7579");
        let of = |address: &str, registrar| told(place(address), registrar);
        let url = |url: &str| Some(url.to_owned());
        assert_eq!(of("192.0.2.7:80", None), url("http://192.0.2.7:80"));
        assert_eq!(of("0.0.0.0:80", registrar), url("http://127.0.0.1:80"));
        assert_eq!(of("[::]:80", registrar), url("http://127.0.0.1:80"));
        assert_eq!(of("0.0.0.0:80", Some("http://[::1]:7579")), None);
        assert_eq!(of("0.0.0.0:80", None), None);
    }
}
