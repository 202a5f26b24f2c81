//! Addresses as `host:port`, as programs and configurations write them.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::str::FromStr;

/// Address of a role: an IP address, or a name to be resolved.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum RoleTarget {
    /// An address and a port.
    Address(SocketAddr),
    /// A name and a port.
    Name(String, u16),
}

/// A text that is no `host:port`.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is no `host:port`")]
pub struct AddressError(String);

/// The longest name (RFC 1035 §2.3.4).
const NAME_OCTETS_MAX: usize = 253;

impl FromStr for RoleTarget {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if let Ok(address) = bare.parse::<IpAddr>() {
            let bracketed = bare.len() < host.len();
            return if bracketed == address.is_ipv6() {
                Ok(Self::Address(SocketAddr::new(address, port)))
            } else {
                Err(wrong())
            };
        }
        let named =
            |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'.' | b'_');
        let name = !host.is_empty() && host.len() <= NAME_OCTETS_MAX && host.bytes().all(named);
        if name { Ok(Self::Name(host.to_owned(), port)) } else { Err(wrong()) }
    }
}

impl fmt::Display for RoleTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_or_a_name_with_a_port() {
        for text in ["127.0.0.1:25", "[::1]:5683", "mail.example.com:25", "a:1"] {
            let target: RoleTarget = text.parse().unwrap();
            assert_eq!(target.to_string(), text);
            assert_eq!(matches!(target, RoleTarget::Address(_)), !text.contains('a'), "{text}");
        }
        let long = format!("{}:25", "a".repeat(254));
        for text in
            ["", ":25", "host", "host:", "host:65536", "::1:25", "[1.2.3.4]:5", "a b:1", &long]
        {
            assert!(text.parse::<RoleTarget>().is_err(), "{text}");
        }
    }
}
