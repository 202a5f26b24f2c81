use crate::{Namespace, Veth, time_namespace};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};
use std::fmt;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

/// Requirements of a test, checked at run time.
///
/// ```
/// use gatewright_testbed::Needs;
///
/// if let Some(missing) = Needs::new().namespaces().program("iperf3").missing() {
///     println!("skipped: {missing}");
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Needs {
    missing: Vec<String>,
}

impl Needs {
    /// No requirements.
    pub fn new() -> Self {
        Self::default()
    }

    /// Namespaces can be created: root (or `CAP_SYS_ADMIN`) and the `ip` program.
    #[must_use]
    pub fn namespaces(mut self) -> Self {
        static ANSWER: OnceLock<Option<String>> = OnceLock::new();
        let answer = ANSWER.get_or_init(|| match Namespace::new() {
            Ok(_) => None,
            Err(_) if !nix::unistd::geteuid().is_root() => Some("root".to_owned()),
            Err(error) => Some(format!("namespaces ({error})")),
        });
        self.missing.extend(answer.clone());
        self
    }

    /// A program on the search path.
    #[must_use]
    pub fn program(mut self, name: &str) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut directories = std::env::split_paths(&path);
        if !directories.any(|directory| directory.join(name).is_file()) {
            self.missing.push(format!("the program {name}"));
        }
        self
    }

    /// Hosts can be members of VLANs ([`TestInterface::vlan`](crate::Interface::vlan)): the kernel makes
    /// VLAN interfaces, or `clang` and `tc` are there.
    #[must_use]
    pub fn vlans(self) -> Self {
        if has_vlan_interfaces() {
            return self;
        }
        self.program("clang").program("tc")
    }

    /// The kernel makes VLAN interfaces.
    #[must_use]
    pub fn vlan_interfaces(mut self) -> Self {
        if !has_vlan_interfaces() {
            self.missing.push("VLAN interfaces of the kernel".to_owned());
        }
        self
    }

    /// Frames that arrive on an interface can be kept from a kernel with an address, after packet
    /// sockets: nftables whose tables have owners (Linux 5.12), or tcx (Linux 6.6).
    #[must_use]
    pub fn silence(self) -> Self {
        static NFTABLES: OnceLock<bool> = OnceLock::new();
        let nftables = *NFTABLES.get_or_init(|| nftables().unwrap_or(false));
        if nftables { self.linux(5, 12) } else { self.linux(6, 6) }
    }

    /// Tests can be run in time namespaces ([`in_time_namespace`](crate::in_time_namespace)).
    #[must_use]
    pub fn time_namespaces(mut self) -> Self {
        static ANSWER: OnceLock<bool> = OnceLock::new();
        if !*ANSWER.get_or_init(time_namespace::is_possible) {
            self.missing.push("time namespaces".to_owned());
        }
        self
    }

    /// A kernel of at least this version.
    #[must_use]
    pub fn linux(mut self, major: u32, minor: u32) -> Self {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        if version(&release).is_none_or(|found| found < (major, minor)) {
            self.missing.push(format!("Linux {major}.{minor}"));
        }
        self
    }

    /// The missing requirements, or `None` if the test can run.
    pub fn missing(self) -> Option<Missing> {
        (!self.missing.is_empty()).then_some(Missing(self.missing))
    }
}

/// Whether the kernel makes VLAN interfaces.
fn has_vlan_interfaces() -> bool {
    static BUILT_IN: OnceLock<bool> = OnceLock::new();
    let make = || {
        let namespace = Namespace::new().ok()?;
        Veth::pair(&namespace, "n0", &namespace, "n1").ok()?;
        let add = ["link", "add", "link", "n0", "name", "v1", "type", "vlan", "id", "1"];
        namespace.ip(&add).ok()
    };
    *BUILT_IN.get_or_init(|| make().is_some())
}

/// Whether the kernel has nftables: it answers with the generation of its rules (`NFT_MSG_GETGEN`),
/// or with an error. The request loads nftables if it is a module.
fn nftables() -> nix::Result<bool> {
    const GET_GENERATION: u16 = 10 << 8 | 16;
    const NEW_GENERATION: u16 = 10 << 8 | 15;
    const REQUEST: u16 = 1;
    // `struct nlmsghdr` and `struct nfgenmsg`.
    const LEN: u32 = 20;
    let mut question = LEN.to_ne_bytes().to_vec();
    question.extend(GET_GENERATION.to_ne_bytes());
    question.extend(REQUEST.to_ne_bytes());
    question.resize(20, 0);
    let (flags, protocol) = (SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkNetFilter);
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
    sendto(socket.as_raw_fd(), &question, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    let mut answer = [0; 256];
    let len = recv(socket.as_raw_fd(), &mut answer, MsgFlags::MSG_DONTWAIT)?;
    let kind = answer.get(..len).and_then(|answer| answer.get(4..)?.first_chunk());
    Ok(kind == Some(&NEW_GENERATION.to_ne_bytes()))
}

/// The first two numbers of a kernel's release (`6.1.0-37-amd64`).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The missing requirements; shown as `root, the program iperf3`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Missing(Vec<String>);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_compared_by_its_numbers() {
        assert_eq!(version("6.1.0-37-amd64"), Some((6, 1)));
        assert_eq!(version("6.18.44"), Some((6, 18)));
        assert_eq!(version("unknown"), None);
        assert_eq!(Needs::new().linux(2, 6).missing(), None);
        assert_eq!(Needs::new().linux(99, 0).missing().unwrap().to_string(), "Linux 99.0");
    }

    #[test]
    fn a_missing_program_is_named() {
        let missing = Needs::new().program("sh").program("no-such-program").missing();
        assert_eq!(missing.unwrap().to_string(), "the program no-such-program");
        assert_eq!(Needs::new().program("sh").missing(), None);
    }
}
