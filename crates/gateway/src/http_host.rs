//! The field Host of HTTP requests at listeners that only this machine reaches.
//!
//! A page of another site can have its own name resolved to an address of this machine and then read
//! answers from there (DNS rebinding). Its requests carry that name in the field Host.

use std::net::IpAddr;

/// Whether a field Host (RFC 9110 §7.2) names this machine for itself: `localhost` or an address of
/// loopback, with or without a port.
pub fn names_loopback(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, port)) => (name, port),
            None => return false,
        },
        None => host.find(':').and_then(|at| host.split_at_checked(at)).unwrap_or((host, "")),
    };
    let is_port = match port.strip_prefix(':') {
        // RFC 3986 §3.2.3: digits, and no sign.
        Some(digits) => !digits.starts_with('+') && digits.parse::<u16>().is_ok(),
        None => port.is_empty(),
    };
    let is_loopback = name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    is_port && (name.eq_ignore_ascii_case("localhost") || is_loopback)
}
