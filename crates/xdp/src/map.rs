//! Maps: memory that programs in the kernel read and write.

use crate::calls::{self, MapCreate};
use gatewright_tables::SharedWords;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The type of a map (`enum bpf_map_type`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MapType {
    /// Values by hashed key.
    Hash,
    /// Values by index.
    Array,
    /// Values by index, whose memory user space may map ([`BpfMap::words`]).
    SharedArray,
    /// Values by index that programs read only: constants, once [`BpfMap::freeze`] was called.
    Constants,
    /// Values by index, one for each processor.
    PerProcessorArray,
    /// Programs by index, to which a program may jump.
    Programs,
    /// Words by prefix; keys begin with the length of their prefix in bits.
    Prefixes,
    /// Interfaces by index, to which frames are redirected.
    Interfaces,
    /// AF_XDP sockets by index.
    Sockets,
}

impl MapType {
    /// `BPF_MAP_TYPE_…` and `BPF_F_…` of linux/bpf.h.
    const fn codes(self) -> (u32, u32) {
        const NO_PREALLOC: u32 = 1;
        const READ_ONLY_PROGRAM: u32 = 1 << 7;
        const MAPPABLE: u32 = 1 << 10;
        match self {
            Self::Hash => (1, NO_PREALLOC),
            Self::Array => (2, 0),
            Self::SharedArray => (2, MAPPABLE),
            Self::Constants => (2, READ_ONLY_PROGRAM),
            Self::Programs => (3, 0),
            Self::PerProcessorArray => (6, 0),
            Self::Prefixes => (11, NO_PREALLOC),
            Self::Interfaces => (14, 0),
            Self::Sockets => (17, 0),
        }
    }
}

/// A map. The kernel keeps it as long as a descriptor or a loaded program refers to it.
#[derive(Debug)]
pub struct BpfMap {
    descriptor: OwnedFd,
    /// Whether its memory may be mapped.
    is_shared: bool,
    key_len: usize,
    /// Octets that a system call reads or writes as one value.
    value_len: usize,
    entries: u32,
}

impl BpfMap {
    /// Creates a map for `entries` keys of `key_len` octets with values of `value_len` octets.
    ///
    /// # Errors
    ///
    /// The system's error: `EPERM` without `CAP_BPF`, `E2BIG` or `ENOMEM` if it is too large.
    pub fn new(
        map_type: MapType,
        name: &str,
        key_len: u32,
        value_len: u32,
        entries: u32,
    ) -> io::Result<Self> {
        let (code, map_flags) = map_type.codes();
        let descriptor = calls::create(MapCreate {
            map_type: code,
            map_flags,
            key_size: key_len,
            value_size: value_len,
            max_entries: entries,
            map_name: crate::kernel_name(name),
            ..MapCreate::default()
        })?;
        let [key_len, value_len] = [key_len, value_len].map(|len| len.try_into().unwrap_or(0));
        let value_len = match map_type {
            // linux/kernel/bpf/syscall.c, `bpf_map_value_size`.
            MapType::PerProcessorArray => usize::next_multiple_of(value_len, 8) * processors()?,
            _ => value_len,
        };
        let is_shared = map_type == MapType::SharedArray;
        Ok(Self { descriptor, is_shared, key_len, value_len, entries })
    }

    /// A map that another process has created with these lengths, whose memory is not mapped and
    /// whose values are not one for each processor.
    pub fn received(descriptor: OwnedFd, key_len: usize, value_len: usize, entries: u32) -> Self {
        Self { descriptor, is_shared: false, key_len, value_len, entries }
    }

    /// All keys. One that is set or removed meanwhile may be missing.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn keys(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let most = usize::try_from(self.entries).unwrap_or(usize::MAX);
        while keys.len() < most {
            let mut next = vec![0; self.key_len];
            if !calls::next_key(self.as_fd(), keys.last().map(Vec::as_slice), &mut next)? {
                break;
            }
            keys.push(next);
        }
        Ok(keys)
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if key or value have another length than the map's, else the system's error.
    pub fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.check(key, value.len())?;
        calls::update(self.as_fd(), key, value)
    }

    /// The value of a key; of a [`MapType::PerProcessorArray`] one after the other, each rounded up
    /// to eight octets.
    ///
    /// # Errors
    ///
    /// `NotFound` if it has none, else as [`Self::set`].
    pub fn get(&self, key: &[u8]) -> io::Result<Vec<u8>> {
        self.check(key, self.value_len)?;
        let mut value = vec![0; self.value_len];
        calls::look_up(self.as_fd(), key, &mut value)?;
        Ok(value)
    }

    /// Removes a key.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is none, else as [`Self::set`].
    pub fn remove(&self, key: &[u8]) -> io::Result<()> {
        self.check(key, self.value_len)?;
        calls::delete(self.as_fd(), key)
    }

    /// Ends all writing by system calls, so that programs loaded from now on may be checked with
    /// the values as constants.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn freeze(&self) -> io::Result<()> {
        calls::freeze(self.as_fd())
    }

    /// The memory of a [`MapType::SharedArray`] as words, which programs see change at once.
    ///
    /// Each value is rounded up to eight octets.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if it is of another type, else the system's error.
    pub fn words(&self) -> io::Result<SharedWords> {
        if !self.is_shared {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let words = self.value_len.next_multiple_of(8) / size_of::<u32>();
        let entries = usize::try_from(self.entries).unwrap_or(usize::MAX);
        SharedWords::map(self.as_fd(), words.saturating_mul(entries))
    }

    fn check(&self, key: &[u8], value_len: usize) -> io::Result<()> {
        let fits = key.len() == self.key_len && value_len == self.value_len;
        if fits { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }
}

impl AsFd for BpfMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The number of processors that the kernel may ever have, each of which has a value of its own in
/// a per-processor map.
fn processors() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    // Ranges such as `0-3,6`: the highest number counts.
    let last = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<usize>().ok());
    last.map(|last| last + 1).ok_or_else(|| io::ErrorKind::InvalidData.into())
}
