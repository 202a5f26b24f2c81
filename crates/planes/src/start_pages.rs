//! Unmaps pages of the executable and its libraries that only start-up used.
#![expect(unsafe_code, reason = "the advice has no safe wrapper")]

use nix::libc::{MADV_DONTNEED, madvise};
use std::{fs, io, ptr::with_exposed_provenance_mut, time::Duration};

/// How long after its start a gateway that runs touches little more than what it needs all the time.
pub const SETTLED_AFTER: Duration = Duration::from_secs(5);

/// Unmaps the pages of the executable and its libraries, code and constants, that the process has
/// touched so far. Returns the octets that they had in memory.
///
/// Call it when a gateway has started, and once more after [`SETTLED_AFTER`]. By then its command line and its description are read, and
/// most of that code is never needed again. The kernel maps sixteen pages at a touch, so nearly
/// half of a large program stays with a gateway that has only begun. Pages needed again are mapped
/// again, from the kernel's own copy of the file. Code that a debugger has changed is not unmapped.
///
/// # Errors
///
/// The kernel's error if it does not list mappings or refuses the advice.
pub fn release_start_pages() -> io::Result<u64> {
    let mut octets = 0;
    for found in unchanged(&fs::read_to_string("/proc/self/smaps")?) {
        let base = with_exposed_provenance_mut(found.first);
        // SAFETY: the mapping is private, cannot be written to, and no page of it differs from the
        // file's (`unchanged`): each reads the same when it is mapped again.
        if unsafe { madvise(base, found.len, MADV_DONTNEED) } != 0 {
            return Err(io::Error::last_os_error());
        }
        octets += found.resident;
    }
    Ok(octets)
}

/// A mapping of a file.
#[derive(Debug, Eq, PartialEq)]
struct Mapping {
    first: usize,
    len: usize,
    /// Its octets in memory.
    resident: u64,
}

/// The private, read-only mappings of files in a text of `/proc/PID/smaps`, without those that have
/// private pages of the process.
fn unchanged(smaps: &str) -> Vec<Mapping> {
    let (mut found, mut next): (Vec<Mapping>, Option<Mapping>) = (Vec::new(), None);
    for line in smaps.lines() {
        if let Some((mapping, rights)) = header(line) {
            let is_fixed = matches!(rights, "r-xp" | "r--p");
            // What the kernel maps of its own has a name in brackets.
            let is_file =
                line.split_ascii_whitespace().nth(5).is_some_and(|it| it.starts_with('/'));
            next = Some(mapping).filter(|_| is_fixed && is_file);
        } else if let Some(resident) = kib(line, "Rss:") {
            next = next.map(|mapping| Mapping { resident: resident * 1024, ..mapping });
        } else if let Some(own) = kib(line, "Anonymous:") {
            found.extend(next.take().filter(|_| own == 0));
        }
    }
    found
}

/// Parses a mapping's first line with its permissions, if the line is one.
fn header(line: &str) -> Option<(Mapping, &str)> {
    let mut words = line.split(' ');
    let (range, rights) = (words.next()?, words.next()?);
    let (first, end) = range.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    let (first, end) = (number(first)?, number(end)?);
    Some((Mapping { first, len: end.saturating_sub(first), resident: 0 }, rights))
}

fn kib(line: &str, key: &str) -> Option<u64> {
    line.strip_prefix(key)?.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
        00400000-00500000 r--p 00000000 fe:00 1 /usr/bin/gw\nSize: 1024 kB\nRss: 100 kB\n\
        Anonymous:             0 kB\nVmFlags: rd mr mw me\n\
        00500000-00700000 r-xp 00100000 fe:00 1 /usr/bin/gw\nRss: 1500 kB\nAnonymous: 0 kB\n\
        00700000-00710000 r--p 00300000 fe:00 1 /usr/bin/gw\nRss: 64 kB\nAnonymous: 60 kB\n\
        00710000-00720000 rw-p 00310000 fe:00 1 /usr/bin/gw\nRss: 64 kB\nAnonymous: 0 kB\n\
        00720000-00730000 r--s 00310000 fe:00 1 /usr/bin/gw\nRss: 64 kB\nAnonymous: 0 kB\n\
        00800000-00900000 rw-p 00000000 00:00 0 \nRss: 64 kB\nAnonymous: 0 kB\n\
        00900000-00a00000 r-xp 00000000 fe:00 2 /usr/lib/libc.so\nRss: 64 kB\nAnonymous: 0 kB\n\
        00b00000-00b02000 r-xp 00000000 00:00 0 [vdso]\nRss: 8 kB\nAnonymous: 0 kB\n";

    #[test]
    fn only_what_the_file_still_says_is_given_back() {
        let mapping = |first, len, kib: u64| Mapping { first, len, resident: kib * 1024 };
        let expected = [
            mapping(0x40_0000, 0x10_0000, 100),
            mapping(0x50_0000, 0x20_0000, 1500),
            mapping(0x90_0000, 0x10_0000, 64),
        ];
        assert_eq!(unchanged(SMAPS), expected);
        // Cut anywhere, it is never more.
        for end in 0..SMAPS.len() {
            assert!(unchanged(&SMAPS[..end]).len() <= expected.len());
        }
    }

    #[test]
    fn a_program_runs_on_without_what_it_gave_back() {
        let first = release_start_pages().unwrap();
        assert!(first > 0, "this test has run from somewhere");
        assert_eq!("still here".len(), 10);
        // Whatever has run since is there again, and is less.
        assert!(release_start_pages().unwrap() > 0);
    }
}
