//! Properties of an interface, from the kernel.

use crate::{LinkInfo, LinkState, socket};
use gatewright_packet::LinkAddress;
use gatewright_wire::MacAddress;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Properties of an interface at one moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InterfaceProperties {
    /// Its index: another one means another interface.
    pub index: u32,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Maximum octets of a packet without its link-layer header.
    pub mtu: usize,
    /// Whether it can carry frames.
    pub is_up: bool,
    /// Whether its device cuts super-frames itself.
    pub cuts_super_frames: bool,
}

impl InterfaceProperties {
    /// Those of the interface `name`.
    ///
    /// # Errors
    ///
    /// The system's error: `ENODEV` if there is no such interface. `Unsupported` if its frames do
    /// not begin with an Ethernet header.
    pub fn of(name: &str) -> io::Result<Self> {
        let interface = Interface::find(name)?;
        let mac = interface.mac()?.ok_or(io::ErrorKind::Unsupported)?;
        Ok(Self {
            index: interface.index,
            mac: mac.0,
            mtu: interface.mtu()?,
            is_up: interface.state() == LinkState::Up,
            cuts_super_frames: interface.cuts_super_frames(),
        })
    }
}

/// An interface of the namespace in which it was looked up.
#[derive(Debug)]
pub(crate) struct Interface {
    name: String,
    /// Any socket, for the requests.
    socket: OwnedFd,
    /// Its index when it was found; a later index means a different interface.
    pub(crate) index: u32,
}

/// The result of a request about an interface.
type Answer<T> = io::Result<T>;

impl Interface {
    /// Finds the interface `name`.
    pub(crate) fn find(name: &str) -> Answer<Self> {
        let socket = socket::open(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        let index = index_of(&socket, name)?;
        Ok(Self { name: name.to_owned(), socket, index })
    }

    /// Maximum octets of a packet without its link-layer header.
    pub(crate) fn mtu(&self) -> Answer<usize> {
        let octets = socket::request(self.socket.as_fd(), &self.name, libc::SIOCGIFMTU)?;
        Ok(usize::try_from(first_u32(octets)).unwrap_or(usize::MAX))
    }

    /// Its Ethernet address; `None` if its frames do not begin with an Ethernet header.
    pub(crate) fn mac(&self) -> Answer<Option<MacAddress>> {
        let octets = socket::request(self.socket.as_fd(), &self.name, libc::SIOCGIFHWADDR)?;
        let [family_1, family_2, address @ ..] = octets;
        let ethernet = [libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK];
        let family = u16::from_ne_bytes([family_1, family_2]);
        let address = address.first_chunk().copied().map(MacAddress);
        Ok(address.filter(|_| ethernet.contains(&family)))
    }

    /// Takes over what may have changed since it was found; packets have at most `mtu_max` octets.
    pub(crate) fn follow(&self, info: &mut LinkInfo, mtu_max: usize) {
        if let Ok(Some(mac)) = self.mac() {
            info.link_address = LinkAddress::ethernet(mac.0);
        }
        if let Ok(mtu) = self.mtu() {
            info.mtu = mtu.min(mtu_max);
        }
    }

    /// Whether it is still this interface, and can carry frames.
    pub(crate) fn state(&self) -> LinkState {
        if !index_of(&self.socket, &self.name).is_ok_and(|index| index == self.index) {
            return LinkState::Gone;
        }
        let flags = socket::request(self.socket.as_fd(), &self.name, libc::SIOCGIFFLAGS);
        // The flags are the first 16 bits.
        let Ok([one, two, ..]) = flags else { return LinkState::Gone };
        let flags = u32::from(u16::from_ne_bytes([one, two]));
        let has = |flag: libc::c_int| flags & flag.cast_unsigned() != 0;
        if has(libc::IFF_UP) && (has(libc::IFF_RUNNING) || self.has_carrier()) {
            LinkState::Up
        } else {
            LinkState::Down
        }
    }

    /// Whether the driver sees a carrier now: the flag for it comes up to a second later. The call
    /// waits for processes that configure interfaces, so it is not made while the flag is set.
    fn has_carrier(&self) -> bool {
        const GET_LINK: u32 = 0x0a;
        let mut value = [GET_LINK, 0];
        let answer = socket::ethtool(self.socket.as_fd(), &self.name, &mut value);
        let [_, carrier] = value;
        answer.is_ok() && carrier != 0
    }

    /// Sets its MTU.
    pub(crate) fn set_mtu(&self, mtu: usize) -> Answer<()> {
        let mtu = i32::try_from(mtu).unwrap_or(i32::MAX);
        socket::set_mtu(self.socket.as_fd(), &self.name, mtu)
    }

    /// Sets it up.
    pub(crate) fn set_up(&self) -> Answer<()> {
        socket::set_up(self.socket.as_fd(), &self.name)
    }

    /// The name of its driver, empty if it reports none.
    pub(crate) fn driver(&self) -> String {
        const GET_DRIVER_INFO: u32 = 3;
        const DRIVER_LEN: usize = 32;
        // struct ethtool_drvinfo: the command, five names of 32 octets, 12 octets and five words.
        let mut info = [0_u8; 196];
        let (command, rest) = info.split_at_mut(4);
        command.copy_from_slice(&GET_DRIVER_INFO.to_ne_bytes());
        rest.fill(0);
        if socket::ethtool(self.socket.as_fd(), &self.name, &mut info).is_err() {
            return String::new();
        }
        let name = info.iter().skip(4).take(DRIVER_LEN).take_while(|&&octet| octet != 0);
        name.map(|&octet| char::from(octet)).collect()
    }

    /// The same interface, with its own socket.
    pub(crate) fn again(&self) -> Answer<Self> {
        Self::find(&self.name)
    }

    /// Receive queues in use.
    pub(crate) fn receive_queues(&self) -> u32 {
        self.queues().0
    }

    /// Transmit queues in use.
    pub(crate) fn transmit_queues(&self) -> u32 {
        self.queues().1
    }

    fn queues(&self) -> (u32, u32) {
        const GET_CHANNELS: u32 = 0x3c;
        // struct ethtool_channels: the command, four limits, then receive, transmit, other and
        // combined channels.
        let mut channels = [GET_CHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
        match socket::ethtool(self.socket.as_fd(), &self.name, &mut channels) {
            Ok(()) => {
                let [_, _, _, _, _, receive, transmit, _, combined] = channels;
                ((receive + combined).max(1), (transmit + combined).max(1))
            }
            // A driver that has no such command has one queue.
            Err(_) => (1, 1),
        }
    }

    /// Whether the driver may remove VLAN tags from received frames.
    pub(crate) fn takes_tags_out(&self) -> bool {
        const GET_FLAGS: u32 = 0x25;
        const TAKES_TAGS: u32 = 1 << 8;
        let mut value = [GET_FLAGS, 0];
        let answer = socket::ethtool(self.socket.as_fd(), &self.name, &mut value);
        let [_, flags] = value;
        answer.is_ok() && flags & TAKES_TAGS != 0
    }

    /// Whether the device cuts super-frames of TCP.
    fn cuts_super_frames(&self) -> bool {
        const GET_TSO: u32 = 0x1e;
        let mut value = [GET_TSO, 0];
        let answer = socket::ethtool(self.socket.as_fd(), &self.name, &mut value);
        let [_, on] = value;
        answer.is_ok() && on != 0
    }

    /// Whether the kernel merges received segments before a generic program sees them.
    pub(crate) fn receives_super_frames(&self) -> bool {
        const GET_GRO: u32 = 0x2b;
        const GET_FLAGS: u32 = 0x25;
        const LRO: u32 = 1 << 15;
        // struct ethtool_value: the command and the value.
        let asked = |command, bits: u32| {
            let mut value = [command, 0];
            let answer = socket::ethtool(self.socket.as_fd(), &self.name, &mut value);
            let [_, value] = value;
            answer.is_ok() && value & bits != 0
        };
        asked(GET_GRO, u32::MAX) || asked(GET_FLAGS, LRO)
    }
}

/// Whether the peer of a driver's devices is a kernel that leaves checksums to them.
pub(crate) fn leaves_checksums(driver: &str) -> bool {
    ["veth", "virtio_net", "tun"].contains(&driver)
}

fn index_of(socket: &OwnedFd, name: &str) -> Answer<u32> {
    socket::request(socket.as_fd(), name, libc::SIOCGIFINDEX).map(first_u32)
}

fn first_u32(octets: [u8; 16]) -> u32 {
    let [a, b, c, d, ..] = octets;
    u32::from_ne_bytes([a, b, c, d])
}
