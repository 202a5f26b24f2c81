use crate::{Namespace, TestbedError};

/// A network interface inside a [`Namespace`].
///
/// Dropping this value leaves the interface in place: it goes with its namespace.
#[derive(Clone, Debug)]
pub struct TestInterface {
    namespace: Namespace,
    name: String,
}

impl TestInterface {
    /// The existing interface `name` of `namespace` (a TAP device, say).
    pub fn existing(namespace: &Namespace, name: &str) -> Self {
        Self { namespace: namespace.clone(), name: name.to_owned() }
    }

    /// Its namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Its name there.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets it up.
    ///
    /// # Errors
    ///
    /// [`TestbedError::Failed`] if the kernel refuses, as in every method below.
    pub fn up(&self) -> Result<(), TestbedError> {
        self.set(&["up"])
    }

    /// Sets it down: it loses its carrier and its IPv6 addresses.
    ///
    /// # Errors
    ///
    /// As [`up`](Self::up).
    pub fn down(&self) -> Result<(), TestbedError> {
        self.set(&["down"])
    }

    /// Removes it, and with it the other end of a veth pair.
    ///
    /// # Errors
    ///
    /// As [`up`](Self::up).
    pub fn delete(&self) -> Result<(), TestbedError> {
        self.namespace.ip(&["link", "delete", &self.name]).map(drop)
    }

    /// Sets its MTU, in octets of network layer.
    ///
    /// # Errors
    ///
    /// As [`up`](Self::up).
    pub fn set_mtu(&self, mtu: u32) -> Result<(), TestbedError> {
        self.set(&["mtu", &mtu.to_string()])
    }

    /// Sets its hardware address, in the form `02:00:00:00:00:01`.
    ///
    /// # Errors
    ///
    /// As [`up`](Self::up).
    pub fn set_mac(&self, address: &str) -> Result<(), TestbedError> {
        self.set(&["address", address])
    }

    /// Its hardware address, in the form `02:00:00:00:00:01`.
    ///
    /// # Errors
    ///
    /// [`TestbedError::NoEntry`] if it has none.
    pub fn mac(&self) -> Result<String, TestbedError> {
        let shown = self.namespace.ip(&["-brief", "link", "show", "dev", &self.name])?;
        let address = shown.split_whitespace().nth(2).map(str::to_owned);
        address.ok_or(TestbedError::NoEntry { path: "ip link", entry: self.name.clone() })
    }

    /// Its index in its namespace.
    ///
    /// # Errors
    ///
    /// [`TestbedError::NoEntry`] if it is not there.
    pub fn index(&self) -> Result<u32, TestbedError> {
        let shown = self.namespace.ip(&["-oneline", "link", "show", "dev", &self.name])?;
        let index = shown.split(':').next().and_then(|index| index.trim().parse().ok());
        index.ok_or(TestbedError::NoEntry { path: "ip link", entry: self.name.clone() })
    }

    /// Number of frames given to it and not sent: a veth's, for which its peer had no room.
    ///
    /// # Errors
    ///
    /// [`TestbedError::NoEntry`] if it is not there.
    pub fn transmit_dropped(&self) -> Result<u64, TestbedError> {
        const TABLE: &str = "/proc/thread-self/net/dev";
        let table = self.namespace.run(|| std::fs::read_to_string(TABLE))?;
        let table = table.map_err(TestbedError::file(TABLE))?;
        transmit_dropped(&table, &self.name)
            .ok_or_else(|| TestbedError::NoEntry { path: TABLE, entry: self.name.clone() })
    }

    /// Adds an address with its prefix length (`192.0.2.1/24`, `2001:db8::1/64`).
    ///
    /// An IPv6 address is usable at once: duplicate address detection is left out.
    ///
    /// # Errors
    ///
    /// As [`up`](Self::up).
    pub fn add_address(&self, address: &str) -> Result<(), TestbedError> {
        let mut arguments = vec!["address", "add", address, "dev", &self.name];
        if address.contains(':') {
            arguments.push("nodad");
        }
        self.namespace.ip(&arguments).map(drop)
    }

    /// Keeps the kernel from giving it any IPv6 address automatically, so that it carries none.
    ///
    /// # Errors
    ///
    /// [`TestbedError::File`] if the kernel has no IPv6.
    pub fn disable_ipv6(&self) -> Result<(), TestbedError> {
        self.namespace.sysctl(&format!("net.ipv6.conf.{}.disable_ipv6", self.name), "1")
    }

    fn set(&self, what: &[&str]) -> Result<(), TestbedError> {
        let mut arguments = vec!["link", "set", "dev", &self.name];
        arguments.extend_from_slice(what);
        self.namespace.ip(&arguments).map(drop)
    }
}

/// A cable between two namespaces (or inside one).
#[derive(Clone, Debug)]
pub struct Veth {
    /// The end in the first namespace.
    pub a: TestInterface,
    /// The other end.
    pub b: TestInterface,
}

impl Veth {
    /// Makes a cable with the end `a` in `a_in` and the end `b` in `b_in`; both ends are down.
    ///
    /// # Errors
    ///
    /// [`TestbedError::Failed`] if a name is taken or too long (15 octets).
    pub fn pair(
        a_in: &Namespace,
        a: &str,
        b_in: &Namespace,
        b: &str,
    ) -> Result<Self, TestbedError> {
        let there = b_in.path();
        a_in.ip(&["link", "add", a, "type", "veth", "peer", "name", b, "netns", &there])?;
        Ok(Self { a: TestInterface::existing(a_in, a), b: TestInterface::existing(b_in, b) })
    }

    /// As [`Self::pair`], with a number of receive and transmit queues at both ends.
    ///
    /// # Errors
    ///
    /// As [`Self::pair`].
    pub fn with_queues(
        a_in: &Namespace,
        a: &str,
        b_in: &Namespace,
        b: &str,
        queues: usize,
    ) -> Result<Self, TestbedError> {
        let (there, queues) = (b_in.path(), queues.to_string());
        let number = ["numrxqueues", &queues, "numtxqueues", &queues];
        let (one, other) = ([&["link", "add", a], &number[..]], [&["name", b], &number[..]]);
        let cable = [&one.concat()[..], &["type", "veth", "peer"], &other.concat()];
        a_in.ip(&[&cable.concat()[..], &["netns", &there]].concat())?;
        Ok(Self { a: TestInterface::existing(a_in, a), b: TestInterface::existing(b_in, b) })
    }

    /// As [`Self::with_queues`] with one queue, and with these indices of its ends, which differ.
    ///
    /// The kernel reports the carrier of such an end at once. That of an end whose peer has the same index it
    /// reports as that of a device without a peer: at the earliest a second after it has last
    /// reported one, in any namespace (`linkwatch_urgent_event` in `net/core/link_watch.c`).
    ///
    /// # Errors
    ///
    /// As [`Self::pair`].
    pub fn with_indices(
        a_in: &Namespace,
        a: &str,
        b_in: &Namespace,
        b: &str,
        indices: [u32; 2],
    ) -> Result<Self, TestbedError> {
        let (there, [one, other]) = (b_in.path(), indices.map(|index| index.to_string()));
        let queues = ["numrxqueues", "1", "numtxqueues", "1"];
        let cable = ["link", "add", "name", a, "index", &one];
        let peer = ["type", "veth", "peer", "name", b, "index", &other];
        a_in.ip(&[&cable, &queues[..], &peer, &queues, &["netns", &there]].concat())?;
        Ok(Self { a: TestInterface::existing(a_in, a), b: TestInterface::existing(b_in, b) })
    }

    /// Sets both ends up.
    ///
    /// # Errors
    ///
    /// As [`TestInterface::up`].
    pub fn up(&self) -> Result<(), TestbedError> {
        self.a.up()?;
        self.b.up()
    }
}

/// The fourth of the columns about sent frames, after eight about received ones (`proc(5)`).
fn transmit_dropped(table: &str, name: &str) -> Option<u64> {
    let columns =
        table.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'));
    columns?.split_whitespace().nth(8 + 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_sent_stands_in_its_column() {
        let table = "Inter-| Receive | Transmit\n face |bytes packets\n\
            n01: 1 2 3 4 5 6 7 8 9 10 11 99 13 14 15 16\n\
             n0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        assert_eq!(transmit_dropped(table, "n0"), Some(12));
        assert_eq!(transmit_dropped(table, "n"), None);
    }
}
