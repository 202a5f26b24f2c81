//! Our share of a shared link's traffic: packets that are only forwarded, over our links.
//!
//! One table of prefixes in the kernel's memory decides it, for all links of a gateway. On AF_XDP a
//! program in the driver looks up each frame, and takes the frame from the kernel or passes it on.
//! A packet socket sees a copy of every frame. There the lookup runs twice: a filter on the socket
//! takes our frames, and a program at the kernel's ingress drops just those. So each frame goes one
//! way, and never both.
//!
//! A frame is ours if it is IPv4 or IPv6, untagged or of a VLAN that is a link of the gateway, sent to
//! our own station, and the longest prefix of its destination is marked as ours. All others are the
//! kernel's, with their tags: frames for its own addresses, groups, ARP, neighbour discovery and
//! unknown destinations.

use crate::bpf::{BpfMap, Instruction, MapType, Tags};
use gatewright_wire::MacAddress;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The table of prefixes that divides frames of shared links between us and the kernel.
///
/// At first everything is the kernel's. When we close the last link that uses it or die, everything
/// is the kernel's again.
#[derive(Debug)]
pub struct Division {
    map: BpfMap,
}

/// Octets of a family and an address, IPv4 at the front of its 16.
const DATA_LEN: usize = 20;

/// Bits of the family in front of a prefix.
const FAMILY_BITS: u32 = 32;

/// Octets of a value: whether the prefix is ours.
const VALUE_LEN: usize = 4;

/// Octets of a key: the length of its prefix in bits, and the data.
const KEY_LEN: usize = 4 + DATA_LEN;

/// The families as the programs write them.
const IPV4: u8 = 4;
const IPV6: u8 = 6;

/// Prefixes that no router forwards: of this host, of a link, of groups, reserved.
const NEVER_OURS: [(IpAddr, u8); 8] = [
    (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8),
    (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
    (IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16),
    (IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), 3),
    (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 128),
    (IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
    (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
    (IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), 8),
];

impl Division {
    /// A table with room for `prefixes_max` prefixes, in which everything is the kernel's.
    ///
    /// # Errors
    ///
    /// The kernel's error; `PermissionDenied` without `CAP_BPF`.
    pub fn new(prefixes_max: u32) -> io::Result<Self> {
        let reserved = u32::try_from(NEVER_OURS.len()).unwrap_or_default();
        let key_len = u32::try_from(KEY_LEN).unwrap_or_default();
        let entries = prefixes_max.saturating_add(reserved);
        let map = BpfMap::new(MapType::Prefixes, "division", key_len, 4, entries)?;
        let division = Self { map };
        for (address, len) in NEVER_OURS {
            division.set(address, len, false)?;
        }
        Ok(division)
    }

    /// The prefixes of a table with `routes_max` routes of each family.
    pub const fn prefixes_max(routes_max: u32) -> u32 {
        routes_max.saturating_mul(2)
    }

    /// Whether packets for a prefix can be ours. Those of links, groups and loopback cannot;
    /// setting or removing them has no effect on others.
    pub fn may_be_ours(address: IpAddr) -> bool {
        match address {
            IpAddr::V4(ip) => {
                let [first, ..] = ip.octets();
                // The default route begins with zero, too.
                ip.is_unspecified() || !(matches!(first, 0 | 127 | 224..) || ip.is_link_local())
            }
            IpAddr::V6(ip) => {
                !(ip.is_multicast() || ip.is_unicast_link_local() || ip.is_loopback())
            }
        }
    }

    /// Marks frames for the prefix as ours or the kernel's; longer prefixes take precedence.
    ///
    /// # Errors
    ///
    /// The kernel's error; `StorageFull` if there is no room for a further prefix.
    pub fn set(&self, address: IpAddr, prefix_len: u8, ours: bool) -> io::Result<()> {
        let value = u32::from(ours).to_ne_bytes();
        self.map.set(&key(address, prefix_len), &value)
    }

    /// Removes a prefix: the next shorter known prefix decides.
    ///
    /// # Errors
    ///
    /// The kernel's error; an unknown prefix is no error.
    pub fn remove(&self, address: IpAddr, prefix_len: u8) -> io::Result<()> {
        match self.map.remove(&key(address, prefix_len)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// The table of another process, which was created with this `prefixes_max`.
    pub fn received(descriptor: OwnedFd, prefixes_max: u32) -> Self {
        let entries = prefixes_max.saturating_add(NEVER_OURS.len().try_into().unwrap_or(0));
        Self { map: BpfMap::received(descriptor, KEY_LEN, VALUE_LEN, entries) }
    }

    /// Removes every prefix that is not `kept`.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn retain(&self, kept: impl Fn(IpAddr, u8) -> bool) -> io::Result<()> {
        for (address, len) in self.map.keys()?.iter().filter_map(|key| prefix(key)) {
            if !NEVER_OURS.contains(&(address, len)) && !kept(address, len) {
                self.remove(address, len)?;
            }
        }
        Ok(())
    }
}

impl AsFd for Division {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

/// The prefix of a key.
fn prefix(key: &[u8]) -> Option<(IpAddr, u8)> {
    let (len, rest) = key.split_first_chunk()?;
    let (family, address) = rest.split_first_chunk()?;
    let len = u32::from_ne_bytes(*len).checked_sub(FAMILY_BITS)?;
    let address = match u32::from_ne_bytes(*family) {
        family if family == u32::from(IPV4) => IpAddr::from(*address.first_chunk::<4>()?),
        _ => IpAddr::from(*address.first_chunk::<16>()?),
    };
    Some((address, u8::try_from(len).ok()?))
}

fn key(address: IpAddr, prefix_len: u8) -> [u8; KEY_LEN] {
    let (family, octets) = match address {
        IpAddr::V4(ip) => (IPV4, ip.octets().to_vec()),
        IpAddr::V6(ip) => (IPV6, ip.octets().to_vec()),
    };
    let len = (FAMILY_BITS + u32::from(prefix_len)).to_ne_bytes();
    let mut key = [0; KEY_LEN];
    let parts = len.into_iter().chain(u32::from(family).to_ne_bytes()).chain(octets);
    for (to, from) in key.iter_mut().zip(parts) {
        *to = from;
    }
    key
}

// Instructions of the programs (linux/Documentation/bpf/standardization/instruction-set.rst).
const LOAD_WORD: u8 = 0x61;
const LOAD_HALF: u8 = 0x69;
const STORE_WORD: u8 = 0x63;
const STORE_HALF: u8 = 0x6b;
const STORE_IMMEDIATE_WORD: u8 = 0x62;
const STORE_IMMEDIATE_64: u8 = 0x7a;
const MOVE: u8 = 0xbf;
const MOVE_IMMEDIATE: u8 = 0xb7;
const ADD_IMMEDIATE: u8 = 0x07;
const AND_IMMEDIATE: u8 = 0x57;
const TO_BIG_ENDIAN: u8 = 0xdc;
const JUMP: u8 = 0x05;
const JUMP_IF_IMMEDIATE: u8 = 0x15;
const JUMP_IF_NOT_IMMEDIATE: u8 = 0x55;
const JUMP_IF_NOT_IMMEDIATE_32: u8 = 0x56;
const JUMP_IF_GREATER: u8 = 0x2d;
const LOAD_IMMEDIATE_64: u8 = 0x18;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

// Functions of the kernel (enum bpf_func_id).
const MAP_LOOKUP: i32 = 1;
const SKB_LOAD_BYTES: i32 = 26;
const REDIRECT_MAP: i32 = 51;

/// The position of the key on the stack, below register 10: length, family, address.
const KEY: i16 = -24;
const FAMILY: i16 = -20;
const ADDRESS: i16 = -16;

/// Octets of a frame before the destination of its packet, and up to the end of it.
const DESTINATION_4: i16 = 14 + 16;
const DESTINATION_6: i16 = 14 + 24;

/// Where a frame's type is, octets of a tag in front of it, and bits of the VLAN in a tag
/// (IEEE 802.1Q §9.6).
const ETHER_TYPE_AT: i16 = 12;
const TAG_LEN: i16 = 4;
const VLAN_ID: i32 = 0xfff;

/// The register with the tag that the driver has taken out of the frame, 0 if none.
const TAKEN_OUT: u8 = 9;

/// The verdict of a program in the driver that leaves a frame to the kernel.
const XDP_PASS: i32 = 2;

/// Ethernet types as they lie in a register after a load from the wire.
const ETHER_IPV4: u16 = u16::from_ne_bytes([0x08, 0x00]);
const ETHER_IPV6: u16 = u16::from_ne_bytes([0x86, 0xdd]);
const ETHER_VLAN: u16 = u16::from_ne_bytes([0x81, 0x00]);

/// The target of a jump.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Label {
    /// The frame's headers are read.
    Frame,
    Ipv4,
    /// There is a tag in the frame.
    Tagged,
    /// It is one of the VLANs'.
    Known,
    TaggedIpv4,
    LookUp,
    /// The frame has all its tags.
    Whole,
    Kernel,
}

/// Assembles instructions, and fills in the distances of jumps.
#[derive(Default)]
struct Assembler {
    code: Vec<Instruction>,
    jumps: Vec<(usize, Label)>,
    places: Vec<(Label, usize)>,
}

impl Assembler {
    fn push(&mut self, code: u8, [to, from]: [u8; 2], offset: i16, value: i32) {
        self.code.push(Instruction(code, to | (from << 4), offset, value));
    }

    fn jump(&mut self, code: u8, registers: [u8; 2], value: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(code, registers, 0, value);
    }

    fn place(&mut self, label: Label) {
        self.places.push((label, self.code.len()));
    }

    fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let place = self.places.iter().find(|(known, _)| *known == label);
            let distance = place.and_then(|(_, place)| place.checked_sub(at + 1));
            let distance = distance.and_then(|distance| i16::try_from(distance).ok());
            if let (Some(Instruction(_, _, offset, _)), Some(distance)) =
                (self.code.get_mut(at), distance)
            {
                *offset = distance;
            }
        }
        self.code
    }

    /// Writes an empty key, whose prefix is a whole address.
    fn key(&mut self) {
        let bits = i32::try_from(DATA_LEN * 8).unwrap_or_default();
        self.push(STORE_IMMEDIATE_WORD, [10, 0], KEY, bits);
        self.push(STORE_IMMEDIATE_64, [10, 0], ADDRESS, 0);
        self.push(STORE_IMMEDIATE_64, [10, 0], ADDRESS + 8, 0);
    }

    /// Continues after this code if the table says that the key is ours.
    fn look_up(&mut self, division: BorrowedFd<'_>) {
        const MAP_BY_DESCRIPTOR: u8 = 1;
        self.place(Label::LookUp);
        self.push(LOAD_IMMEDIATE_64, [1, MAP_BY_DESCRIPTOR], 0, division.as_raw_fd());
        self.push(0, [0, 0], 0, 0);
        self.push(MOVE, [2, 10], 0, 0);
        self.push(ADD_IMMEDIATE, [2, 0], 0, i32::from(KEY));
        self.push(CALL, [0, 0], 0, MAP_LOOKUP);
        self.jump(JUMP_IF_IMMEDIATE, [0, 0], 0, Label::Kernel);
        self.push(LOAD_WORD, [0, 0], 0, 0);
        self.jump(JUMP_IF_IMMEDIATE, [0, 0], 0, Label::Kernel);
    }

    fn verdict(&mut self, value: i32) {
        self.push(MOVE_IMMEDIATE, [0, 0], 0, value);
        self.push(EXIT, [0, 0], 0, 0);
    }
}

/// A program for the driver. Our frames go to the AF_XDP socket of their receive queue in
/// `sockets`. All others, also those without a socket, go to the kernel. Only frames to the station
/// `mac` are looked at, untagged or of one of the VLANs. A tag that the driver has taken out of a
/// frame of ours is put back.
pub(crate) fn in_driver(
    sockets: BorrowedFd<'_>,
    (division, vlans): (BorrowedFd<'_>, &[u16]),
    mac: MacAddress,
    tags: Tags,
) -> Vec<Instruction> {
    const MAP_BY_DESCRIPTOR: u8 = 1;
    // struct xdp_md: data, its end, metadata, interface, receive queue.
    const RECEIVE_QUEUE: i16 = 16;
    let mut program = Assembler::default();
    program.push(MOVE, [6, 1], 0, 0);
    program.push(MOVE_IMMEDIATE, [TAKEN_OUT, 0], 0, 0);
    if let Tags::TakenOut(function) = tags {
        read_tag(&mut program, function, vlans);
    }
    program.place(Label::Frame);
    load_frame(&mut program, DESTINATION_4 + 4);
    let MacAddress([m1, m2, m3, m4, m5, m6]) = mac;
    let (front, back) = (i32::from_ne_bytes([m1, m2, m3, m4]), u16::from_ne_bytes([m5, m6]));
    program.push(LOAD_WORD, [5, 2], 0, 0);
    program.jump(JUMP_IF_NOT_IMMEDIATE_32, [5, 0], front, Label::Kernel);
    program.push(LOAD_HALF, [5, 2], 4, 0);
    program.jump(JUMP_IF_NOT_IMMEDIATE, [5, 0], i32::from(back), Label::Kernel);
    program.key();
    program.push(LOAD_HALF, [5, 2], ETHER_TYPE_AT, 0);
    if !vlans.is_empty() {
        program.jump(JUMP_IF_IMMEDIATE, [5, 0], i32::from(ETHER_VLAN), Label::Tagged);
    }
    load_destination(&mut program, 0, Label::Ipv4);
    if !vlans.is_empty() {
        program.place(Label::Tagged);
        // What has two tags is the kernel's.
        program.jump(JUMP_IF_NOT_IMMEDIATE, [TAKEN_OUT, 0], 0, Label::Kernel);
        is_long(&mut program, DESTINATION_4 + 4 + TAG_LEN);
        program.push(LOAD_HALF, [5, 2], ETHER_TYPE_AT + 2, 0);
        program.push(TO_BIG_ENDIAN, [5, 0], 0, 16);
        is_one_of(&mut program, vlans, Label::Known);
        program.place(Label::Known);
        program.push(LOAD_HALF, [5, 2], ETHER_TYPE_AT + TAG_LEN, 0);
        load_destination(&mut program, TAG_LEN, Label::TaggedIpv4);
    }
    program.look_up(division);
    if !vlans.is_empty() && tags != Tags::InFrame {
        put_tag_back(&mut program);
    }
    program.push(LOAD_WORD, [2, 6], RECEIVE_QUEUE, 0);
    program.push(LOAD_IMMEDIATE_64, [1, MAP_BY_DESCRIPTOR], 0, sockets.as_raw_fd());
    program.push(0, [0, 0], 0, 0);
    program.push(MOVE_IMMEDIATE, [3, 0], 0, XDP_PASS);
    program.push(CALL, [0, 0], 0, REDIRECT_MAP);
    program.push(EXIT, [0, 0], 0, 0);
    program.place(Label::Kernel);
    program.verdict(XDP_PASS);
    program.finish()
}

/// Loads a frame's beginning and end to registers 2 and 3, and passes it to the kernel unless it has
/// at least `octets`.
fn load_frame(program: &mut Assembler, octets: i16) {
    const DATA: i16 = 0;
    const DATA_END: i16 = 4;
    program.push(LOAD_WORD, [2, 6], DATA, 0);
    program.push(LOAD_WORD, [3, 6], DATA_END, 0);
    is_long(program, octets);
}

/// Passes the frame in registers 2 and 3 to the kernel unless it has at least `octets`.
fn is_long(program: &mut Assembler, octets: i16) {
    program.push(MOVE, [4, 2], 0, 0);
    program.push(ADD_IMMEDIATE, [4, 0], 0, i32::from(octets));
    program.jump(JUMP_IF_GREATER, [4, 3], 0, Label::Kernel);
}

/// Writes family and destination of the packet into the key, and goes on to the lookup. The packet's
/// type is in register 5, and it begins `tag_len` octets later than without a tag.
fn load_destination(program: &mut Assembler, tag_len: i16, ipv4: Label) {
    program.jump(JUMP_IF_IMMEDIATE, [5, 0], i32::from(ETHER_IPV4), ipv4);
    program.jump(JUMP_IF_NOT_IMMEDIATE, [5, 0], i32::from(ETHER_IPV6), Label::Kernel);
    is_long(program, DESTINATION_6 + 16 + tag_len);
    program.push(STORE_IMMEDIATE_WORD, [10, 0], FAMILY, i32::from(IPV6));
    for word in 0..4 {
        program.push(LOAD_WORD, [5, 2], DESTINATION_6 + tag_len + 4 * word, 0);
        program.push(STORE_WORD, [10, 5], ADDRESS + 4 * word, 0);
    }
    program.jump(JUMP, [0, 0], 0, Label::LookUp);
    program.place(ipv4);
    program.push(STORE_IMMEDIATE_WORD, [10, 0], FAMILY, i32::from(IPV4));
    program.push(LOAD_WORD, [5, 2], DESTINATION_4 + tag_len, 0);
    program.push(STORE_WORD, [10, 5], ADDRESS, 0);
    program.jump(JUMP, [0, 0], 0, Label::LookUp);
}

/// Goes on at `to` if register 5 has a tag of one of the VLANs; else the frame is the kernel's.
fn is_one_of(program: &mut Assembler, vlans: &[u16], to: Label) {
    program.push(AND_IMMEDIATE, [5, 0], 0, VLAN_ID);
    for vlan in vlans {
        program.jump(JUMP_IF_IMMEDIATE, [5, 0], i32::from(*vlan), to);
    }
    program.jump(JUMP, [0, 0], 0, Label::Kernel);
}

/// Asks the driver for the tag that it has taken out of the frame. One of these VLANs is kept in a
/// register; frames with another go to the kernel, which learns the tag itself.
fn read_tag(program: &mut Assembler, function: u32, vlans: &[u16]) {
    const KERNEL_FUNCTION: u8 = 2;
    // Where the function writes to: protocol and tag, below register 10.
    const PROTOCOL: i16 = -8;
    const TAG: i16 = -6;
    program.push(STORE_IMMEDIATE_64, [10, 0], PROTOCOL, 0);
    program.push(MOVE, [1, 6], 0, 0);
    program.push(MOVE, [2, 10], 0, 0);
    program.push(ADD_IMMEDIATE, [2, 0], 0, i32::from(PROTOCOL));
    program.push(MOVE, [3, 10], 0, 0);
    program.push(ADD_IMMEDIATE, [3, 0], 0, i32::from(TAG));
    program.push(CALL, [0, KERNEL_FUNCTION], 0, function.cast_signed());
    if vlans.is_empty() {
        program.jump(JUMP_IF_IMMEDIATE, [0, 0], 0, Label::Kernel);
        return;
    }
    program.jump(JUMP_IF_NOT_IMMEDIATE, [0, 0], 0, Label::Frame);
    program.push(LOAD_HALF, [5, 10], PROTOCOL, 0);
    program.jump(JUMP_IF_NOT_IMMEDIATE, [5, 0], i32::from(ETHER_VLAN), Label::Kernel);
    program.push(LOAD_HALF, [5, 10], TAG, 0);
    program.push(MOVE, [TAKEN_OUT, 5], 0, 0);
    // A tag may have no bit but those of its VLAN, and those are not zero.
    is_one_of(program, vlans, Label::Frame);
}

/// Puts the tag that the driver has taken out of a frame of ours back, if there was one.
fn put_tag_back(program: &mut Assembler) {
    const ADJUST_HEAD: i32 = 44;
    program.jump(JUMP_IF_IMMEDIATE, [TAKEN_OUT, 0], 0, Label::Whole);
    program.push(MOVE, [1, 6], 0, 0);
    program.push(MOVE_IMMEDIATE, [2, 0], 0, -i32::from(TAG_LEN));
    program.push(CALL, [0, 0], 0, ADJUST_HEAD);
    // Without room in front of it the frame is as it was.
    program.jump(JUMP_IF_NOT_IMMEDIATE, [0, 0], 0, Label::Kernel);
    load_frame(program, ETHER_TYPE_AT + 2 + TAG_LEN);
    // Both addresses move to the front, and the tag comes behind them.
    for word in 0..3 {
        program.push(LOAD_WORD, [5, 2], TAG_LEN + 4 * word, 0);
        program.push(STORE_WORD, [2, 5], 4 * word, 0);
    }
    program.push(MOVE_IMMEDIATE, [5, 0], 0, i32::from(ETHER_VLAN));
    program.push(STORE_HALF, [2, 5], ETHER_TYPE_AT, 0);
    program.push(TO_BIG_ENDIAN, [TAKEN_OUT, 0], 0, 16);
    program.push(STORE_HALF, [2, TAKEN_OUT], ETHER_TYPE_AT + 2, 0);
    program.place(Label::Whole);
}

/// A filter for a packet socket, which takes our frames whole.
pub(crate) fn filter(division: BorrowedFd<'_>, vlans: &[u16]) -> Vec<Instruction> {
    const WHOLE: i32 = -1;
    behind_driver(division, vlans, [WHOLE, 0])
}

/// A program at the kernel's ingress, which drops our frames (`TCX_DROP`), and leaves all others to
/// the next program (`TCX_NEXT`).
pub(crate) fn at_ingress(division: BorrowedFd<'_>, vlans: &[u16]) -> Vec<Instruction> {
    const TCX_NEXT: i32 = -1;
    const TCX_DROP: i32 = 2;
    behind_driver(division, vlans, [TCX_DROP, TCX_NEXT])
}

fn behind_driver(
    division: BorrowedFd<'_>,
    vlans: &[u16],
    [ours, kernels]: [i32; 2],
) -> Vec<Instruction> {
    // struct __sk_buff. The kind of a packet is 0 for one to our own station (PACKET_HOST).
    const KIND: i16 = 4;
    const PROTOCOL: i16 = 16;
    let mut program = Assembler::default();
    program.push(MOVE, [6, 1], 0, 0);
    program.push(LOAD_WORD, [2, 6], KIND, 0);
    program.jump(JUMP_IF_NOT_IMMEDIATE, [2, 0], 0, Label::Kernel);
    check_tag(&mut program, vlans);
    program.place(Label::Frame);
    program.key();
    let load = |program: &mut Assembler, family: u8, from: i16, len: i32| {
        program.push(STORE_IMMEDIATE_WORD, [10, 0], FAMILY, i32::from(family));
        program.push(MOVE, [1, 6], 0, 0);
        program.push(MOVE_IMMEDIATE, [2, 0], 0, i32::from(from));
        program.push(MOVE, [3, 10], 0, 0);
        program.push(ADD_IMMEDIATE, [3, 0], 0, i32::from(ADDRESS));
        program.push(MOVE_IMMEDIATE, [4, 0], 0, len);
        program.push(CALL, [0, 0], 0, SKB_LOAD_BYTES);
        program.jump(JUMP_IF_NOT_IMMEDIATE, [0, 0], 0, Label::Kernel);
    };
    program.push(LOAD_WORD, [2, 6], PROTOCOL, 0);
    program.jump(JUMP_IF_IMMEDIATE, [2, 0], i32::from(ETHER_IPV4), Label::Ipv4);
    program.jump(JUMP_IF_NOT_IMMEDIATE, [2, 0], i32::from(ETHER_IPV6), Label::Kernel);
    load(&mut program, IPV6, DESTINATION_6, 16);
    program.jump(JUMP, [0, 0], 0, Label::LookUp);
    program.place(Label::Ipv4);
    load(&mut program, IPV4, DESTINATION_4, 4);
    program.look_up(division);
    program.verdict(ours);
    program.place(Label::Kernel);
    program.verdict(kernels);
    program.finish()
}

/// Goes on with frames that have no tag or one of the VLANs'. The kernel has taken the tag out of the
/// frame, and the packet's type is the one behind it.
fn check_tag(program: &mut Assembler, vlans: &[u16]) {
    // struct __sk_buff.
    const HAS_TAG: i16 = 20;
    const TAG: i16 = 24;
    const TAG_PROTOCOL: i16 = 28;
    program.push(LOAD_WORD, [2, 6], HAS_TAG, 0);
    if vlans.is_empty() {
        program.jump(JUMP_IF_NOT_IMMEDIATE, [2, 0], 0, Label::Kernel);
        return;
    }
    program.jump(JUMP_IF_IMMEDIATE, [2, 0], 0, Label::Frame);
    program.push(LOAD_WORD, [2, 6], TAG_PROTOCOL, 0);
    program.jump(JUMP_IF_NOT_IMMEDIATE, [2, 0], i32::from(ETHER_VLAN), Label::Kernel);
    program.push(LOAD_WORD, [5, 6], TAG, 0);
    is_one_of(program, vlans, Label::Frame);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_read_back_from_its_key() {
        for (address, len) in NEVER_OURS {
            assert_eq!(prefix(&key(address, len)), Some((address, len)));
        }
        assert_eq!(prefix(&[0; 7]), None, "too short");
    }
}
