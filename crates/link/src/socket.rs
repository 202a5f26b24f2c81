//! Kernel calls without a safe wrapper: sockets' options, requests, bursts.
#![expect(unsafe_code, reason = "packet and AF_XDP sockets have no safe wrapper in std")]

use std::ffi::c_int;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Values that the kernel reads and writes as they lie in memory.
///
/// # Safety
///
/// Every pattern of bits is a value of the type, and it has no padding.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: integers, and arrays of them.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for i32 {}
// SAFETY: as above.
unsafe impl<const N: usize> Plain for [u32; N] {}
// SAFETY: as above.
unsafe impl<const N: usize> Plain for [u64; N] {}
// SAFETY: as above.
unsafe impl<const N: usize> Plain for [u8; N] {}

/// How long an interface or a queue may be busy: a socket closed just now releases it a little
/// later.
const BUSY_LIMIT: Duration = Duration::from_secs(1);
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// Repeats a request while it is busy, at most a second.
pub(crate) fn while_busy<T>(mut ask: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let start = Instant::now();
    loop {
        match ask() {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && start.elapsed() < BUSY_LIMIT =>
            {
                std::thread::sleep(BUSY_PAUSE);
            }
            result => return result,
        }
    }
}

/// Opens a socket that neither blocks nor survives `exec`.
pub(crate) fn open(family: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    let flags = kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::socket(family, flags, protocol) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option of a socket.
pub(crate) fn set_option<T: Plain>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of::<T>()` octets at `value`.
    let result = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const *value).cast(), len_of::<T>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets the size of a socket's buffer; without permission (`CAP_NET_ADMIN`), within the system's
/// limit.
pub(crate) fn set_buffer(
    fd: BorrowedFd<'_>,
    [force, limited]: [c_int; 2],
    octets: i32,
) -> io::Result<()> {
    let set = |name| set_option(fd, libc::SOL_SOCKET, name, &octets);
    set(force).or_else(|_| set(limited))
}

/// Reads an option of a socket into `value`; returns the octets that the kernel wrote.
pub(crate) fn get_option<T: Plain>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &mut T,
) -> io::Result<usize> {
    let mut len = len_of::<T>();
    // SAFETY: the kernel writes at most `len` octets at `value`, which takes any bits (`Plain`).
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut *value).cast(), &raw mut len)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(len as usize) }
}

#[expect(clippy::cast_possible_truncation, reason = "options have a few octets")]
const fn len_of<T>() -> libc::socklen_t {
    size_of::<T>() as libc::socklen_t
}

/// Makes a socket receive nothing, until [`take_everything`] or another filter.
pub(crate) fn take_nothing(fd: BorrowedFd<'_>) -> io::Result<()> {
    const RETURN: u16 = 0x06;
    attach_filter(fd, &mut [libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: 0 }])
}

/// Makes a packet socket receive TCP segments with SYN, FIN or RST, and of the other frames none, or all but
/// IPv4, IPv6 and those of VLANs. A segment behind other extension headers of IPv6 is none.
pub(crate) fn take_tcp_ends(fd: BorrowedFd<'_>, others: bool) -> io::Result<()> {
    const LOAD_WORD: u16 = 0x20;
    const LOAD_HALF: u16 = 0x28;
    const LOAD_OCTET: u16 = 0x30;
    const LOAD_OCTET_BEHIND: u16 = 0x50;
    // The length of the IPv4 header, from its first octet.
    const LOAD_HEADER_LEN: u16 = 0xb1;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const JUMP_IF_BITS: u16 = 0x45;
    // A tag that the kernel has taken out of the frame: SKF_AD_OFF + SKF_AD_VLAN_TAG, 0 without one.
    const TAG: u32 = 0xffff_f02c;
    const VLAN: u32 = 0x0fff;
    const TCP: u32 = 6;
    const FRAGMENT_OFFSET: u32 = 0x1fff;
    // FIN, SYN and RST (RFC 9293 §3.1), in the octet 13 of the header.
    const ENDS: u32 = 0b111;
    const ETHERNET: u32 = 14;
    const FLAGS: u32 = 13;
    const RETURN: u16 = 0x06;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut steps = [
        step(LOAD_WORD, 0, 0, TAG),
        step(JUMP_IF_BITS, 16, 0, VLAN),
        // The EtherType.
        step(LOAD_HALF, 0, 0, 12),
        step(JUMP_IF_EQUAL, 7, 0, 0x0800),
        step(JUMP_IF_EQUAL, 2, 0, 0x86dd),
        step(JUMP_IF_EQUAL, 12, 0, 0x8100),
        step(RETURN, 0, 0, if others { u32::MAX } else { 0 }),
        // IPv6: its next header.
        step(LOAD_OCTET, 0, 0, ETHERNET + 6),
        step(JUMP_IF_EQUAL, 0, 9, TCP),
        step(LOAD_OCTET, 0, 0, ETHERNET + 40 + FLAGS),
        step(JUMP_IF_BITS, 8, 7, ENDS),
        // IPv4: its protocol, and no later fragment.
        step(LOAD_OCTET, 0, 0, ETHERNET + 9),
        step(JUMP_IF_EQUAL, 0, 5, TCP),
        step(LOAD_HALF, 0, 0, ETHERNET + 6),
        step(JUMP_IF_BITS, 3, 0, FRAGMENT_OFFSET),
        step(LOAD_HEADER_LEN, 0, 0, ETHERNET),
        step(LOAD_OCTET_BEHIND, 0, 0, ETHERNET + FLAGS),
        step(JUMP_IF_BITS, 1, 0, ENDS),
        step(RETURN, 0, 0, 0),
        step(RETURN, 0, 0, u32::MAX),
    ];
    attach_filter(fd, &mut steps)
}

/// Attaches a filter to a socket (`bpf(4)`'s instructions).
fn attach_filter(fd: BorrowedFd<'_>, steps: &mut [libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(steps.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len, filter: steps.as_mut_ptr() };
    // SAFETY: the kernel reads the program and the `len` instructions that it points to.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            len_of::<libc::sock_fprog>(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Removes the filter of a socket.
pub(crate) fn take_everything(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0_i32)
}

/// Clears a socket's error: it would count as readable until then.
pub(crate) fn clear_error(fd: BorrowedFd<'_>) {
    let mut error = 0_i32;
    // There is nothing to be done about an error that cannot be asked for.
    let _ = get_option(fd, libc::SOL_SOCKET, libc::SO_ERROR, &mut error);
}

/// Binds a packet socket to the interface with `index`, to receive `protocol` (0 for nothing).
pub(crate) fn bind_packet(fd: BorrowedFd<'_>, index: u32, protocol: u16) -> io::Result<()> {
    /// `AF_PACKET`, in the width of an address.
    const FAMILY: u16 = 17;
    // SAFETY: all zeros is a value of this plain struct.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = FAMILY;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = i32::try_from(index).unwrap_or(-1);
    bind(fd, &address)
}

/// Binds an AF_XDP socket to a receive queue of the interface with `index`; `owner` is the socket
/// whose registered memory it shares, 0 for its own.
pub(crate) fn bind_xdp(
    fd: BorrowedFd<'_>,
    flags: u16,
    index: u32,
    queue: u32,
    owner: u32,
) -> io::Result<()> {
    /// `AF_XDP`, in the width of an address.
    const FAMILY: u16 = 44;
    let address = libc::sockaddr_xdp {
        sxdp_family: FAMILY,
        sxdp_flags: flags,
        sxdp_ifindex: index,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: owner,
    };
    bind(fd, &address)
}

/// Makes the kernel look at an AF_XDP socket's transmit ring.
pub(crate) fn send_nothing(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no memory is passed.
    let result = unsafe {
        libc::sendto(fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Binds a socket to an address of its family.
fn bind<T>(fd: BorrowedFd<'_>, address: &T) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of::<T>()` octets at `address`.
    let result = unsafe { libc::bind(fd.as_raw_fd(), (&raw const *address).cast(), len_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Queries the kernel about the interface `name`; returns the first octets of the request's union.
pub(crate) fn request(
    fd: BorrowedFd<'_>,
    name: &str,
    request: libc::c_ulong,
) -> io::Result<[u8; 16]> {
    let mut asked = ifreq(name)?;
    // SAFETY: these requests read and write one `ifreq`.
    if unsafe { libc::ioctl(fd.as_raw_fd(), request as _, &raw mut asked) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the union has at least 16 octets (24 where pointers have 8), all initialised.
    Ok(unsafe { (&raw const asked.ifr_ifru).cast::<[u8; 16]>().read_unaligned() })
}

/// Queries an interface's driver by `ethtool`: the command is in `data`, which takes the answer.
pub(crate) fn ethtool<T: Plain>(fd: BorrowedFd<'_>, name: &str, data: &mut T) -> io::Result<()> {
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    let mut asked = ifreq(name)?;
    asked.ifr_ifru.ifru_data = (&raw mut *data).cast();
    // SAFETY: the commands used write no more than the struct that `T` is the size of.
    if unsafe { libc::ioctl(fd.as_raw_fd(), SIOCETHTOOL as _, &raw mut asked) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn ifreq(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all zeros is a value of this plain struct.
    let mut asked: libc::ifreq = unsafe { zeroed() };
    if name.is_empty() || name.len() >= asked.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in asked.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed() as libc::c_char;
    }
    Ok(asked)
}

/// Attaches a file of the TUN device to the interface `name`; returns its final name.
pub(crate) fn tun_attach(fd: BorrowedFd<'_>, name: &str, flags: c_int) -> io::Result<String> {
    let mut asked = ifreq(name)?;
    asked.ifr_ifru.ifru_flags = i16::try_from(flags).unwrap_or_default();
    // SAFETY: the request reads and writes one `ifreq`.
    if unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF as _, &raw mut asked) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let name = asked.ifr_name.iter().take_while(|&&octet| octet != 0);
    Ok(name.map(|&octet| char::from(octet.cast_unsigned())).collect())
}

/// Sets the offloads that the kernel may leave to us on a TUN device.
pub(crate) fn tun_offload(fd: BorrowedFd<'_>, features: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the argument is a number.
    if unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD as _, features) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sets the MTU of an interface.
pub(crate) fn set_mtu(fd: BorrowedFd<'_>, name: &str, mtu: i32) -> io::Result<()> {
    let mut asked = ifreq(name)?;
    asked.ifr_ifru.ifru_mtu = mtu;
    // SAFETY: the request reads one `ifreq`.
    if unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCSIFMTU as _, &raw mut asked) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sets an interface up.
pub(crate) fn set_up(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let [one, two, ..] = request(fd, name, libc::SIOCGIFFLAGS)?;
    let mut asked = ifreq(name)?;
    let up = i16::try_from(libc::IFF_UP).unwrap_or_default();
    asked.ifr_ifru.ifru_flags = i16::from_ne_bytes([one, two]) | up;
    // SAFETY: the request reads one `ifreq`.
    if unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw mut asked) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Receives one message into `buffer`, without waiting; returns its octets.
pub(crate) fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the kernel writes at most `buffer.len()` octets into it.
    let len = unsafe {
        libc::recv(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT)
    };
    usize::try_from(len).map_err(|_| io::Error::last_os_error())
}

/// Sends one message, without waiting.
pub(crate) fn send(fd: BorrowedFd<'_>, octets: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads `octets.len()` octets at `octets`.
    let sent = unsafe {
        libc::send(fd.as_raw_fd(), octets.as_ptr().cast(), octets.len(), libc::MSG_DONTWAIT)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Memory to send a burst of messages: allocated once, without pointers between calls.
pub(crate) struct Burst {
    parts: Vec<libc::iovec>,
    /// Parts of each message.
    counts: Vec<usize>,
    messages: Vec<libc::mmsghdr>,
}

impl Burst {
    pub(crate) fn new(messages: usize) -> Self {
        Self {
            parts: Vec::with_capacity(2 * messages),
            counts: Vec::with_capacity(messages),
            messages: Vec::with_capacity(messages),
        }
    }

    /// Sends `frames` in order, each in parts, in one call of the kernel; returns how many it took.
    /// An error is that of the first.
    pub(crate) fn send<'a, F: Iterator<Item = &'a [u8]>>(
        &mut self,
        fd: BorrowedFd<'_>,
        frames: impl Iterator<Item = F>,
    ) -> io::Result<usize> {
        self.parts.clear();
        self.counts.clear();
        self.messages.clear();
        for frame in frames {
            let before = self.parts.len();
            self.parts.extend(frame.map(|part| libc::iovec {
                iov_base: part.as_ptr().cast_mut().cast(),
                iov_len: part.len(),
            }));
            self.counts.push(self.parts.len() - before);
        }
        // From here on the parts stay where they are.
        let mut rest = self.parts.as_mut_slice();
        for &count in &self.counts {
            let Some((parts, behind)) = rest.split_at_mut_checked(count) else { break };
            rest = behind;
            // SAFETY: all zeros is a value of this plain struct.
            let mut message: libc::mmsghdr = unsafe { zeroed() };
            message.msg_hdr.msg_iov = parts.as_mut_ptr();
            message.msg_hdr.msg_iovlen = count;
            self.messages.push(message);
        }
        let count = u32::try_from(self.messages.len()).unwrap_or(u32::MAX);
        // SAFETY: the messages point to parts, and the parts to frames that are borrowed for this
        // call; the kernel only reads them.
        let sent = unsafe {
            libc::sendmmsg(fd.as_raw_fd(), self.messages.as_mut_ptr(), count, libc::MSG_DONTWAIT)
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}
