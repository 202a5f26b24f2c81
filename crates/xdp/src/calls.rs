//! The calls of `bpf(2)` that have a use here, for maps and programs of any kind.
#![expect(unsafe_code, reason = "bpf(2) has no wrapper")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

// linux/bpf.h.
const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP: libc::c_int = 1;
const MAP_UPDATE: libc::c_int = 2;
const MAP_DELETE: libc::c_int = 3;
const MAP_NEXT_KEY: libc::c_int = 4;
const PROG_LOAD: libc::c_int = 5;
const PROG_TEST_RUN: libc::c_int = 10;
const MAP_FREEZE: libc::c_int = 22;
const OBJECT_INFO: libc::c_int = 15;
const LINK_CREATE: libc::c_int = 28;
const LINK_UPDATE: libc::c_int = 29;

/// The beginning of `union bpf_attr` for `BPF_MAP_CREATE`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct MapCreate {
    pub(crate) map_type: u32,
    pub(crate) key_size: u32,
    pub(crate) value_size: u32,
    pub(crate) max_entries: u32,
    pub(crate) map_flags: u32,
    pub(crate) inner_map_fd: u32,
    pub(crate) numa_node: u32,
    pub(crate) map_name: [u8; 16],
}

/// The beginning of `union bpf_attr` for the commands that name an element.
#[repr(C)]
#[derive(Default)]
struct Element {
    map_fd: u32,
    _alignment: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The beginning of `union bpf_attr` for `BPF_PROG_LOAD`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct ProgLoad {
    pub(crate) prog_type: u32,
    pub(crate) insn_cnt: u32,
    pub(crate) insns: u64,
    pub(crate) license: u64,
    pub(crate) log_level: u32,
    pub(crate) log_size: u32,
    pub(crate) log_buf: u64,
    pub(crate) kern_version: u32,
    pub(crate) prog_flags: u32,
    pub(crate) prog_name: [u8; 16],
    pub(crate) prog_ifindex: u32,
    pub(crate) expected_attach_type: u32,
}

/// The beginning of `union bpf_attr` for `BPF_LINK_CREATE`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct LinkCreate {
    pub(crate) prog_fd: u32,
    pub(crate) target_ifindex: u32,
    pub(crate) attach_type: u32,
    pub(crate) flags: u32,
    /// The place among other programs, for tcx: none is requested.
    pub(crate) relative: [u64; 2],
}

/// The beginning of `union bpf_attr` for `BPF_LINK_UPDATE`.
#[repr(C)]
#[derive(Default)]
struct LinkUpdate {
    link_fd: u32,
    new_prog_fd: u32,
    flags: u32,
    old_prog_fd: u32,
}

/// The beginning of `union bpf_attr` for `BPF_PROG_TEST_RUN`.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    _end: u32,
}

/// The beginning of `union bpf_attr` for `BPF_OBJ_GET_INFO_BY_FD`.
#[repr(C)]
#[derive(Default)]
struct InfoRequest {
    fd: u32,
    len: u32,
    info: u64,
}

/// The beginning of `struct bpf_prog_info`.
#[repr(C)]
#[derive(Default)]
struct ProgramInfo {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    jited_len: u32,
    checked_len: u32,
}

/// Creates a map.
pub(crate) fn create(mut attributes: MapCreate) -> io::Result<OwnedFd> {
    descriptor(MAP_CREATE, &mut attributes)
}

/// Attempts to load a program while the kernel gives up checking it.
const LOAD_ATTEMPTS: u32 = 5;

/// Loads a program; what the attributes point to must outlive the call.
///
/// The kernel gives up with `EAGAIN` if a signal or other work comes for the thread while it checks
/// the program; nothing is wrong with the program then.
pub(crate) fn load(mut attributes: ProgLoad) -> io::Result<OwnedFd> {
    for _ in 1..LOAD_ATTEMPTS {
        match descriptor(PROG_LOAD, &mut attributes) {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
            loaded => return loaded,
        }
    }
    descriptor(PROG_LOAD, &mut attributes)
}

/// Octets of a program's instructions as the kernel's checker has left them.
pub(crate) fn checked_octets(program: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = ProgramInfo::default();
    let len = u32::try_from(size_of::<ProgramInfo>()).unwrap_or(0);
    let mut attributes = InfoRequest { fd: number(program), len, info: (&raw mut info) as u64 };
    command(OBJECT_INFO, &mut attributes)?;
    // What has no instructions, as of a caller without the right to see them, is not known.
    if info.checked_len == 0 {
        Err(io::ErrorKind::PermissionDenied.into())
    } else {
        Ok(info.checked_len)
    }
}

/// Attaches a program.
pub(crate) fn attach(mut attributes: LinkCreate) -> io::Result<OwnedFd> {
    descriptor(LINK_CREATE, &mut attributes)
}

/// Sets `key` to `value`; the caller has checked that both have the map's lengths.
pub(crate) fn update(map: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> io::Result<()> {
    let mut attributes = Element { value: value.as_ptr() as u64, ..Element::of(map, key) };
    command(MAP_UPDATE, &mut attributes).map(drop)
}

/// Copies the value of `key` to `value`; the caller has checked that both have the map's lengths.
pub(crate) fn look_up(map: BorrowedFd<'_>, key: &[u8], value: &mut [u8]) -> io::Result<()> {
    let mut attributes = Element { value: value.as_mut_ptr() as u64, ..Element::of(map, key) };
    command(MAP_LOOKUP, &mut attributes).map(drop)
}

/// Removes `key`; the caller has checked that it has the map's key length.
pub(crate) fn delete(map: BorrowedFd<'_>, key: &[u8]) -> io::Result<()> {
    command(MAP_DELETE, &mut Element::of(map, key)).map(drop)
}

/// Copies the key after `key` to `next`, the first one for none; returns whether there is one. The
/// caller has checked that both have the map's key length.
pub(crate) fn next_key(
    map: BorrowedFd<'_>,
    key: Option<&[u8]>,
    next: &mut [u8],
) -> io::Result<bool> {
    let element = Element {
        map_fd: number(map),
        key: key.map_or(0, |key| key.as_ptr() as u64),
        ..Element::default()
    };
    let mut attributes = Element { value: next.as_mut_ptr() as u64, ..element };
    match command(MAP_NEXT_KEY, &mut attributes) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Ends all writing to a map by system calls.
pub(crate) fn freeze(map: BorrowedFd<'_>) -> io::Result<()> {
    let mut attributes = Element { map_fd: number(map), ..Element::default() };
    command(MAP_FREEZE, &mut attributes).map(drop)
}

/// Replaces the program of a link.
pub(crate) fn exchange(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let (link_fd, new_prog_fd) = (number(link), number(program));
    let mut attributes = LinkUpdate { link_fd, new_prog_fd, ..LinkUpdate::default() };
    command(LINK_UPDATE, &mut attributes).map(drop)
}

/// The result of a program that ran on octets instead of a received frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran {
    /// The program's return value.
    pub(crate) verdict: u32,
    /// Octets of the frame afterwards.
    pub(crate) len: usize,
    /// Mean time of a run, in nanoseconds.
    pub(crate) nanoseconds: u32,
}

/// Runs a program `repeat` times on `frame`; writes the last result to `out`.
pub(crate) fn run(
    program: BorrowedFd<'_>,
    frame: &[u8],
    out: &mut [u8],
    repeat: u32,
) -> io::Result<Ran> {
    let mut attributes = TestRun {
        prog_fd: number(program),
        data_size_in: u32::try_from(frame.len()).unwrap_or(u32::MAX),
        data_size_out: u32::try_from(out.len()).unwrap_or(u32::MAX),
        data_in: frame.as_ptr() as u64,
        data_out: out.as_mut_ptr() as u64,
        repeat,
        ..TestRun::default()
    };
    command(PROG_TEST_RUN, &mut attributes)?;
    Ok(Ran {
        verdict: attributes.retval,
        len: usize::try_from(attributes.data_size_out).unwrap_or(0),
        nanoseconds: attributes.duration,
    })
}

/// Runs a program on `frames` copies of `frame`, which leave as it says, `at_once` together.
pub(crate) fn send(
    program: BorrowedFd<'_>,
    frame: &[u8],
    frames: u32,
    at_once: u32,
) -> io::Result<()> {
    const LIVE_FRAMES: u32 = 1 << 1;
    let mut attributes = TestRun {
        prog_fd: number(program),
        data_size_in: u32::try_from(frame.len()).unwrap_or(u32::MAX),
        data_in: frame.as_ptr() as u64,
        repeat: frames,
        flags: LIVE_FRAMES,
        batch_size: at_once,
        ..TestRun::default()
    };
    command(PROG_TEST_RUN, &mut attributes).map(drop)
}

impl Element {
    fn of(map: BorrowedFd<'_>, key: &[u8]) -> Self {
        Self { map_fd: number(map), key: key.as_ptr() as u64, ..Self::default() }
    }
}

fn number(descriptor: BorrowedFd<'_>) -> u32 {
    descriptor.as_raw_fd().cast_unsigned()
}

/// Calls `bpf(2)` with a command that returns a descriptor.
fn descriptor<T>(name: libc::c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    let fd = command(name, attributes)?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Calls `bpf(2)`; its result is not negative.
fn command<T>(name: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: `T` is one of the structs above: plain, as large as said. What its fields point to is
    // borrowed by the caller during the call and as long as the kernel believes: the callers in
    // `map.rs` and `program.rs` compare lengths with those that the map was created with.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, name, (&raw mut *attributes).cast::<u8>(), size_of::<T>())
    };
    match libc::c_int::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}
