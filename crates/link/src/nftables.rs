//! An nftables table that drops frames after packet sockets have seen them.
//!
//! The table belongs to its netlink socket (`NFT_TABLE_F_OWNER`). When we close it or die, the
//! kernel removes the table; nobody else can flush it meanwhile. It takes effect at once; with a
//! program at the same place (tcx) the kernel waits for its readers, one interface after the other.

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, getsockname,
    recv, send, socket,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

// linux/netlink.h, linux/netfilter/nfnetlink.h.
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const SUBSYSTEM: u16 = 10;
const ERROR: u16 = 2;
const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;
const NESTED: u16 = 0x8000;
/// Octets of `struct nlmsghdr` and `struct nfgenmsg`.
const HEADER_LEN: usize = 20;

// linux/netfilter.h, linux/netfilter/nf_tables.h.
const FAMILY_NONE: u8 = 0;
const FAMILY_NETDEV: u8 = 5;
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const TABLE_NAME: u16 = 1;
const TABLE_FLAGS: u16 = 2;
const TABLE_OWNED: u32 = 0x2;
const NEW_CHAIN: u16 = SUBSYSTEM << 8 | 3;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const HOOK_DEVICE: u16 = 3;
const INGRESS: u32 = 0;
const DROP: u32 = 0;

/// Priority before every other table at this place, as later work on dropped frames is useless.
const FIRST: u32 = i32::MIN.cast_unsigned();

/// Maximum octets of the kernel's answers: it has two messages to refuse, each with at most the
/// request in it.
const ANSWERS_MAX: usize = 4096;

/// Drops everything that arrives on an interface, after packet sockets and before the kernel's
/// stack, until the descriptor is closed. Needs Linux 5.12 and `CAP_NET_ADMIN`.
pub(crate) fn drop_all(interface: &str) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let protocol = SockProtocol::NetlinkNetFilter;
    let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
    bind(fd.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
    // No two sockets of a namespace have the same port.
    let port = getsockname::<NetlinkAddr>(fd.as_raw_fd())?.pid();
    let request = request(&format!("gatewright-{port}"), interface);
    send(fd.as_raw_fd(), &request, MsgFlags::empty())?;
    // All is done, or nothing, when the call has returned; so the answers wait already.
    let mut answers = [0; ANSWERS_MAX];
    let len = recv(fd.as_raw_fd(), &mut answers, MsgFlags::MSG_DONTWAIT)?;
    match answers.get(..len).and_then(error) {
        Some(0) => Ok(fd),
        Some(errno) => Err(io::Error::from_raw_os_error(-errno)),
        None => Err(Errno::EPROTO.into()),
    }
}

/// A request to create a table and a chain that drops all frames of an interface, both or none.
fn request(table: &str, interface: &str) -> Vec<u8> {
    let table = text(table);
    let hook = [
        attribute(HOOK_NUMBER, &INGRESS.to_be_bytes()),
        attribute(HOOK_PRIORITY, &FIRST.to_be_bytes()),
        attribute(HOOK_DEVICE, &text(interface)),
    ];
    let new_table =
        [attribute(TABLE_NAME, &table), attribute(TABLE_FLAGS, &TABLE_OWNED.to_be_bytes())];
    let new_chain = [
        attribute(CHAIN_TABLE, &table),
        attribute(CHAIN_NAME, &text("ingress")),
        attribute(CHAIN_HOOK | NESTED, &hook.concat()),
        attribute(CHAIN_POLICY, &DROP.to_be_bytes()),
        attribute(CHAIN_TYPE, &text("filter")),
    ];
    let create = CREATE | EXCLUSIVE;
    [
        message(BATCH_BEGIN, 0, FAMILY_NONE, SUBSYSTEM, &[]),
        message(NEW_TABLE, create, FAMILY_NETDEV, 0, &new_table.concat()),
        // The last one is answered also when it is done, and with it the first.
        message(NEW_CHAIN, create | ACKNOWLEDGE, FAMILY_NETDEV, 0, &new_chain.concat()),
        message(BATCH_END, 0, FAMILY_NONE, SUBSYSTEM, &[]),
    ]
    .concat()
}

/// `struct nlmsghdr`, `struct nfgenmsg` and attributes.
fn message(kind: u16, flags: u16, family: u8, resource: u16, attributes: &[u8]) -> Vec<u8> {
    let len = u32::try_from(HEADER_LEN + attributes.len()).unwrap_or(u32::MAX);
    let (sequence, port, version) = (0_u32, 0_u32, 0_u8);
    let mut message = Vec::with_capacity(HEADER_LEN + attributes.len());
    message.extend(len.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((REQUEST | flags).to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend(port.to_ne_bytes());
    message.extend([family, version]);
    message.extend(resource.to_be_bytes());
    message.extend(attributes);
    message
}

/// `struct nlattr` and its value, padded to four octets.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    const HEADER_LEN: usize = 4;
    let len = HEADER_LEN + value.len();
    let mut attribute = Vec::with_capacity(len.next_multiple_of(4));
    attribute.extend(u16::try_from(len).unwrap_or(u16::MAX).to_ne_bytes());
    attribute.extend(kind.to_ne_bytes());
    attribute.extend(value);
    attribute.resize(len.next_multiple_of(4), 0);
    attribute
}

/// A string in the kernel's form, with a zero at its end.
fn text(text: &str) -> Vec<u8> {
    let mut octets = text.as_bytes().to_vec();
    octets.push(0);
    octets
}

/// The error of an answer (`struct nlmsgerr`): 0, or the negative of its number. `None` for other
/// messages.
fn error(answer: &[u8]) -> Option<i32> {
    let kind = answer.get(4..)?.first_chunk()?;
    let error = answer.get(16..)?.first_chunk()?;
    (u16::from_ne_bytes(*kind) == ERROR).then(|| i32::from_ne_bytes(*error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_say_their_own_length() {
        let attribute = attribute(TABLE_NAME, &text("gw"));
        let [a, b] = 7_u16.to_ne_bytes();
        let [c, d] = 1_u16.to_ne_bytes();
        assert_eq!(attribute, [a, b, c, d, b'g', b'w', 0, 0]);
    }

    #[test]
    fn messages_of_a_request_follow_each_other_to_its_end() {
        let request = request("gatewright-1", "g0");
        let (mut kinds, mut rest) = (Vec::new(), request.as_slice());
        while let Some(len) = rest.first_chunk() {
            let len = usize::try_from(u32::from_ne_bytes(*len)).unwrap();
            kinds.push(u16::from_ne_bytes(*rest[4..].first_chunk().unwrap()));
            rest = &rest[len..];
        }
        assert_eq!(kinds, [BATCH_BEGIN, NEW_TABLE, NEW_CHAIN, BATCH_END]);
    }

    #[test]
    fn what_is_no_answer_has_no_error() {
        assert_eq!(error(&[]), None);
        assert_eq!(error(&[0; 19]), None);
        assert_eq!(error(&[0; 64]), None);
    }
}
