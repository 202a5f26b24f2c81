//! The binding to DPDK 22.11: its start, its ports, and bursts by the shim (`shim.c`).
#![expect(unsafe_code, reason = "DPDK is a library in C")]

use gatewright_packet::Packet;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

/// Maximum frames of a burst, as `BURST_MAX` in the shim.
pub(super) const BURST_MAX: usize = 32;

/// MiB of ordinary memory that DPDK reserves. It takes pages only as buffers use them.
const MEMORY_MIB: &str = "256";
/// Buffers of a port: a full ring each way of the drivers that keep them, and some on the way.
const BUFFERS: c_uint = 4096;
/// Buffers that a thread keeps for itself.
const BUFFERS_CACHED: c_uint = 256;
/// Slots of a port's rings, if its driver has as many.
const SLOTS: u16 = 1024;
/// Octets before and after a frame in a buffer: `RTE_PKTMBUF_HEADROOM`, and room for tags.
const BUFFER_OVERHEAD: usize = 128 + 64;
/// Minimum octets of a buffer: some drivers receive nothing into smaller ones
/// (`RTE_MBUF_DEFAULT_DATAROOM` and the headroom).
const BUFFER_LEN_MIN: usize = 2048 + 128;
/// Any of the machine's memories (`SOCKET_ID_ANY`).
const ANY_SOCKET: c_int = -1;

/// `struct rte_mempool`.
#[repr(C)]
struct Mempool {
    _opaque: [u8; 0],
}

/// `struct gw_dpdk_received` of the shim.
#[derive(Clone, Copy)]
#[repr(C)]
struct ReceivedFrame {
    mbuf: *mut c_void,
    octets: *const u8,
    len: u32,
    tag: u16,
    is_tagged: u16,
}

/// `struct gw_dpdk_frame` of the shim.
#[derive(Clone, Copy)]
#[repr(C)]
struct SentFrame {
    octets: *const u8,
    len: u32,
}

/// What a port has counted beside frames that it exchanged: `struct gw_dpdk_missed` of the shim.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Missed {
    pub(super) overrun: u64,
    pub(super) receive_errors: u64,
    pub(super) no_buffer: u64,
    pub(super) transmit_errors: u64,
}

// SAFETY: the names and types are those of DPDK 22.11's headers and of the shim, which includes
// these; `struct rte_mempool` is only pointed at, and `pthread_t` is not used.
unsafe extern "C" {
    fn rte_eal_init(argc: c_int, argv: *mut *mut c_char) -> c_int;
    fn rte_dev_probe(devargs: *const c_char) -> c_int;
    fn rte_eal_hotplug_remove(bus: *const c_char, name: *const c_char) -> c_int;
    fn rte_eth_dev_get_port_by_name(name: *const c_char, port: *mut u16) -> c_int;
    fn rte_eth_promiscuous_enable(port: u16) -> c_int;
    fn rte_eth_allmulticast_enable(port: u16) -> c_int;
    fn rte_pktmbuf_pool_create(
        name: *const c_char,
        count: c_uint,
        cached: c_uint,
        private: u16,
        data_len: u16,
        socket: c_int,
    ) -> *mut Mempool;
    fn rte_mempool_free(pool: *mut Mempool);
    fn rte_thread_register() -> c_int;
    fn rte_thread_unregister();

    fn gw_dpdk_errno() -> c_int;
    fn gw_dpdk_start(port: u16, pool: *mut Mempool, slots: u16, mtu: u32) -> c_int;
    fn gw_dpdk_close(port: u16);
    fn gw_dpdk_describe(
        port: u16,
        address: *mut [u8; 6],
        driver: *mut c_char,
        driver_len: usize,
    ) -> c_int;
    fn gw_dpdk_is_up(port: u16) -> c_int;
    fn gw_dpdk_missed(port: u16, missed: *mut Missed) -> c_int;
    fn gw_dpdk_receive(port: u16, frames: *mut ReceivedFrame, room: u16) -> u16;
    fn gw_dpdk_release(frames: *const ReceivedFrame, count: u16);
    fn gw_dpdk_transmit(port: u16, pool: *mut Mempool, frames: *const SentFrame, count: u16)
    -> u16;
}

/// Serialises calls that open and close ports: DPDK leaves that to its callers.
static CONTROL: Mutex<()> = Mutex::new(());

fn control() -> MutexGuard<'static, ()> {
    // A poisoned lock is safe here: it guards calls, not data.
    CONTROL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}

/// The error of a call that leaves it in `rte_errno`.
fn last_error() -> io::Error {
    // SAFETY: it reads a number of the calling thread.
    io::Error::from_raw_os_error(unsafe { gw_dpdk_errno() })
}

/// Starts DPDK, once in a process. It cannot be started again if that failed.
///
/// It has no huge pages, telemetry or secondary processes, and takes no device by itself. Its
/// start binds the calling thread to processors, so another thread calls it, and it may use all
/// processors that this thread may.
pub(super) fn start() -> Result<(), String> {
    static STARTED: OnceLock<Result<(), String>> = OnceLock::new();
    STARTED
        .get_or_init(|| match thread::Builder::new().name("dpdk".to_owned()).spawn(start_here) {
            Ok(thread) => thread.join().unwrap_or_else(|_| Err("it panicked".to_owned())),
            Err(error) => Err(format!("no thread for it: {error}")),
        })
        .clone()
}

fn start_here() -> Result<(), String> {
    let processors = processors().map_err(|error| format!("its processors: {error}"))?;
    let arguments = [
        "gatewright",
        "--no-huge",
        "-m",
        MEMORY_MIB,
        // Nothing is shared with other processes, so one name does for all.
        "--no-shconf",
        "--file-prefix=gatewright",
        "--no-telemetry",
        // A list of one device, which no driver is for: none is taken that is not asked for.
        "-a",
        "0000:00:00.0",
        "--log-level=error",
        &processors,
    ];
    let owned = arguments.iter().map(|argument| CString::new(*argument));
    let owned = owned.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    let mut pointers: Vec<*mut c_char> =
        owned.iter().map(|text| text.as_ptr().cast_mut()).collect();
    let count = c_int::try_from(pointers.len()).map_err(|error| error.to_string())?;
    pointers.push(std::ptr::null_mut());
    // SAFETY: as many arguments as told and a null after them; DPDK only changes their order, and
    // copies what it keeps.
    let result = unsafe { rte_eal_init(count, pointers.as_mut_ptr()) };
    if result < 0 { Err(last_error().to_string()) } else { Ok(()) }
}

/// The option that gives DPDK's one lcore all processors that this thread may use.
fn processors() -> io::Result<String> {
    use nix::sched::{CpuSet, sched_getaffinity};
    let set = sched_getaffinity(nix::unistd::Pid::from_raw(0))?;
    let own = (0..CpuSet::count()).filter(|number| set.is_set(*number).unwrap_or(false));
    let own: Vec<_> = own.map(|number| number.to_string()).collect();
    Ok(format!("--lcores=0@({})", own.join(",")))
}

/// A port with its buffers, started, with one queue each way. Dropping it closes the port.
#[derive(Debug)]
pub(super) struct DpdkPort {
    number: u16,
    pool: BufferPool,
}

/// Address and driver of a port.
pub(super) struct PortFacts {
    pub(super) mac: [u8; 6],
    pub(super) driver: String,
}

impl DpdkPort {
    /// Opens the port of the device `arguments`, which DPDK knows by `name`.
    pub(super) fn open(
        name: &str,
        arguments: &str,
        mtu: usize,
        len_max: usize,
    ) -> io::Result<Self> {
        let text = |text: &str| CString::new(text).map_err(io::Error::other);
        let (name_text, arguments) = (text(name)?, text(arguments)?);
        let mtu = u32::try_from(mtu).map_err(io::Error::other)?;
        let _control = control();
        let pool = BufferPool::new(len_max)?;
        let mut number = 0;
        // SAFETY: the texts end with a zero and live through the calls, as the number does.
        let (has_it, probed) = unsafe {
            let has_it = rte_eth_dev_get_port_by_name(name_text.as_ptr(), &raw mut number) == 0;
            (has_it, if has_it { 0 } else { rte_dev_probe(arguments.as_ptr()) })
        };
        if has_it {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        check(probed)?;
        // SAFETY: as above.
        let found = unsafe { rte_eth_dev_get_port_by_name(name_text.as_ptr(), &raw mut number) };
        if found < 0 {
            let bus = if name.starts_with("net_") { c"vdev" } else { c"pci" };
            // SAFETY: as above. Some drivers make no port, and say so nowhere, if they miss an
            // argument.
            let _gone = unsafe { rte_eal_hotplug_remove(bus.as_ptr(), name_text.as_ptr()) };
        }
        check(found)?;
        // After the buffers, so that it goes before them.
        let closing = ClosesPort(number);
        // SAFETY: the pool lives until the port is closed, here or in `Drop`.
        check(unsafe { gw_dpdk_start(number, pool.0.as_ptr(), SLOTS, mtu) })?;
        std::mem::forget(closing);
        Ok(Self { number, pool })
    }

    /// Its address and driver.
    pub(super) fn facts(&self) -> io::Result<PortFacts> {
        let (mut mac, mut driver) = ([0; 6], [0; 64]);
        let driver_len = driver.len();
        // SAFETY: it writes six octets, and a text with its zero into the length told.
        check(unsafe {
            gw_dpdk_describe(self.number, &raw mut mac, driver.as_mut_ptr(), driver_len)
        })?;
        // SAFETY: it holds a zero: the last one at the latest.
        let driver = unsafe { CStr::from_ptr(driver.as_ptr()) };
        Ok(PortFacts { mac, driver: driver.to_string_lossy().into_owned() })
    }

    /// Receives frames for other stations, too.
    pub(super) fn receive_all(&self) -> io::Result<()> {
        // SAFETY: a number of a port, which is open.
        check(unsafe { rte_eth_promiscuous_enable(self.number) })
    }

    /// Receives frames for all groups, if the driver selects any.
    pub(super) fn receive_groups(&self) {
        // SAFETY: a number of a port, which is open.
        let _unsupported = unsafe { rte_eth_allmulticast_enable(self.number) };
    }

    /// Whether it has a carrier.
    pub(super) fn is_up(&self) -> bool {
        // SAFETY: a number of a port, which is open.
        unsafe { gw_dpdk_is_up(self.number) != 0 }
    }

    /// What it has counted.
    pub(super) fn missed(&self) -> Option<Missed> {
        let mut missed = Missed::default();
        // SAFETY: it writes the four numbers.
        check(unsafe { gw_dpdk_missed(self.number, &raw mut missed) }).ok()?;
        Some(missed)
    }

    /// Receives up to `room` frames, at most [`BURST_MAX`], and hands each to `take` with the tag that
    /// the device took out of it. A frame that is in pieces and cannot be joined is empty.
    pub(super) fn receive(
        &mut self,
        room: usize,
        mut take: impl FnMut(&[u8], Option<u16>),
    ) -> usize {
        let empty = ReceivedFrame {
            mbuf: std::ptr::null_mut(),
            octets: std::ptr::null(),
            len: 0,
            tag: 0,
            is_tagged: 0,
        };
        let mut frames = [empty; BURST_MAX];
        let room = u16::try_from(room.min(BURST_MAX)).unwrap_or_default();
        // SAFETY: there is room for as many; `&mut self` says that no other thread uses the queue.
        let count = unsafe { gw_dpdk_receive(self.number, frames.as_mut_ptr(), room) };
        let received = Received(frames.get(..usize::from(count)).unwrap_or_default());
        for frame in received.0 {
            let len = usize::try_from(frame.len).unwrap_or_default();
            let octets = if len == 0 {
                &[][..]
            } else {
                // SAFETY: DPDK wrote so many octets there, and leaves them until the release below.
                unsafe { std::slice::from_raw_parts(frame.octets, len) }
            };
            take(octets, (frame.is_tagged != 0).then_some(frame.tag));
        }
        received.0.len()
    }

    /// Sends copies of packets, of at most [`BURST_MAX`]; returns how many the device took.
    pub(super) fn transmit(&mut self, packets: &[Packet]) -> usize {
        let mut frames = [SentFrame { octets: std::ptr::null(), len: 0 }; BURST_MAX];
        let mut count = 0;
        for (frame, packet) in frames.iter_mut().zip(packets) {
            let octets = packet.octets();
            let len = u32::try_from(octets.len()).unwrap_or(u32::MAX);
            *frame = SentFrame { octets: octets.as_ptr(), len };
            count += 1;
        }
        let pool = self.pool.0.as_ptr();
        // SAFETY: so many frames, each of so many octets, which are copied before it returns;
        // `&mut self` says that no other thread uses the queue.
        let sent = unsafe { gw_dpdk_transmit(self.number, pool, frames.as_ptr(), count) };
        usize::from(sent).min(packets.len())
    }
}

impl Drop for DpdkPort {
    fn drop(&mut self) {
        let _control = control();
        // SAFETY: it is open, nobody else has it, and its buffers are freed after it, by `pool`.
        unsafe { gw_dpdk_close(self.number) };
    }
}

/// Closes a port that could not be started. The caller holds the lock of control.
struct ClosesPort(u16);

impl Drop for ClosesPort {
    fn drop(&mut self) {
        // SAFETY: it was probed, and nobody else knows it.
        unsafe { gw_dpdk_close(self.0) };
    }
}

/// The buffers of a port.
#[derive(Debug)]
struct BufferPool(NonNull<Mempool>);

// SAFETY: DPDK's pools may be used by any thread.
unsafe impl Send for BufferPool {}

impl BufferPool {
    fn new(len_max: usize) -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("gatewright-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let name = CString::new(name).map_err(io::Error::other)?;
        let len = (len_max + BUFFER_OVERHEAD).max(BUFFER_LEN_MIN);
        let len = u16::try_from(len).map_err(io::Error::other)?;
        // SAFETY: the name ends with a zero and is copied.
        let pool = unsafe {
            rte_pktmbuf_pool_create(name.as_ptr(), BUFFERS, BUFFERS_CACHED, 0, len, ANY_SOCKET)
        };
        NonNull::new(pool).map(Self).ok_or_else(last_error)
    }
}

impl Drop for BufferPool {
    fn drop(&mut self) {
        // SAFETY: its port is closed, which gave back what its driver had.
        unsafe { rte_mempool_free(self.0.as_ptr()) };
    }
}

/// Received frames, which go back to their pool.
struct Received<'a>(&'a [ReceivedFrame]);

impl Drop for Received<'_> {
    fn drop(&mut self) {
        let count = u16::try_from(self.0.len()).unwrap_or_default();
        // SAFETY: DPDK gave as many, and each is given back once.
        unsafe { gw_dpdk_release(self.0.as_ptr(), count) };
    }
}

/// The calling thread as one that DPDK knows, until the thread ends: such a thread keeps some buffers
/// for itself. It does not change on which processors the thread runs.
pub(super) fn know_this_thread() {
    thread_local!(static KNOWN: KnownThread = KnownThread::new());
    // A thread that ends has no use for it any more.
    let _ending = KNOWN.try_with(|_| ());
}

struct KnownThread {
    is_known: bool,
    /// It belongs to its thread.
    _here: PhantomData<*const ()>,
}

impl KnownThread {
    fn new() -> Self {
        // SAFETY: DPDK is started, as a port is open. Without a place it works more slowly.
        let is_known = unsafe { rte_thread_register() } == 0;
        Self { is_known, _here: PhantomData }
    }
}

impl Drop for KnownThread {
    fn drop(&mut self) {
        if self.is_known {
            // SAFETY: this thread was registered, and ends.
            unsafe { rte_thread_unregister() };
        }
    }
}
