//! A tar archive (POSIX.1-1988, ustar) in a gzip file (RFC 1952) whose blocks are stored and not
//! compressed (RFC 1951 §3.2.4): it is small, and no library is needed.

use serde::Serialize;
use std::io::Write;

/// Octets of a tar block.
const BLOCK: usize = 512;
/// Octets of the largest stored block of deflate (RFC 1951 §3.2.4).
const STORED_MAX: usize = 0xffff;
/// The header of a gzip file: deflate, no flags, no time, from Unix (RFC 1952 §2.3).
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
/// The polynomial of CRC-32, its bits reversed (RFC 1952 §8).
const CRC_POLYNOMIAL: u32 = 0xedb8_8320;
/// The folder that it unpacks to.
const FOLDER: &str = "gatewright-diag";

/// An archive that is being made.
#[derive(Debug)]
pub(super) struct Archive {
    tar: Vec<u8>,
    entries: Vec<Entry>,
    /// Time of its files, in seconds since 1970.
    time: u64,
}

/// A file of the archive.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Entry {
    name: String,
    octets: usize,
}

impl Archive {
    /// An empty archive whose files are of `time`.
    pub(super) const fn new(time: u64) -> Self {
        Self { tar: Vec::new(), entries: Vec::new(), time }
    }

    /// Adds a file; names are short.
    pub(super) fn file(&mut self, name: &str, octets: &[u8]) {
        self.tar.extend(header(&format!("{FOLDER}/{name}"), octets.len(), self.time));
        self.tar.extend_from_slice(octets);
        self.tar.resize(self.tar.len().next_multiple_of(BLOCK), 0);
        self.entries.push(Entry { name: name.to_owned(), octets: octets.len() });
    }

    /// Adds a file of JSON.
    ///
    /// # Errors
    ///
    /// If the value has no form in JSON.
    pub(super) fn json(&mut self, name: &str, value: &impl Serialize) -> serde_json::Result<()> {
        self.file(name, &serde_json::to_vec_pretty(value)?);
        Ok(())
    }

    /// Its files.
    pub(super) fn entries(&self) -> Vec<Entry> {
        self.entries.clone()
    }

    /// The whole archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        // Two blocks of zeros end it.
        self.tar.resize(self.tar.len() + 2 * BLOCK, 0);
        gzip(&self.tar)
    }
}

/// The header of a regular file that its owner alone can read.
fn header(name: &str, len: usize, time: u64) -> Vec<u8> {
    let mut header = Vec::with_capacity(BLOCK);
    let field = |header: &mut Vec<u8>, text: &str, len: usize| {
        let end = header.len() + len;
        header.extend(text.bytes().take(len));
        header.resize(end, 0);
    };
    field(&mut header, name, 100);
    field(&mut header, "0000600", 8);
    field(&mut header, "0000000", 8);
    field(&mut header, "0000000", 8);
    field(&mut header, &format!("{len:011o}"), 12);
    field(&mut header, &format!("{time:011o}"), 12);
    // The sum is made with blanks in its own place.
    field(&mut header, "        ", 8);
    field(&mut header, "0", 1);
    field(&mut header, "", 100);
    field(&mut header, "ustar\u{0}00", 8);
    header.resize(BLOCK, 0);
    let sum: u32 = header.iter().map(|&octet| u32::from(octet)).sum();
    let sum = format!("{sum:06o}\u{0} ");
    header.splice(148..156, sum.bytes());
    header
}

/// A gzip file of stored blocks.
fn gzip(octets: &[u8]) -> Vec<u8> {
    let mut out = GZIP_HEADER.to_vec();
    let blocks = octets.chunks(STORED_MAX);
    let last = blocks.len().saturating_sub(1);
    for (number, block) in blocks.enumerate() {
        let len = u16::try_from(block.len()).unwrap_or(u16::MAX);
        out.push(u8::from(number == last));
        out.extend(len.to_le_bytes());
        out.extend((!len).to_le_bytes());
        out.extend_from_slice(block);
    }
    out.extend(crc(octets).to_le_bytes());
    // The length modulo 2^32 (RFC 1952 §2.3.1).
    let len = u32::try_from(octets.len() & 0xffff_ffff).unwrap_or_default();
    // Writing to a vector cannot fail.
    let _ = out.write_all(&len.to_le_bytes());
    out
}

/// CRC-32 (RFC 1952 §8).
fn crc(octets: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { CRC_POLYNOMIAL ^ (crc >> 1) } else { crc >> 1 };
    let take = |crc: u32, &octet: &u8| (0..8).fold(crc ^ u32::from(octet), |crc, _| step(crc));
    !octets.iter().fold(u32::MAX, take)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// The check value of CRC-32 in the catalogue of CRC algorithms.
    #[test]
    fn the_crc_is_that_of_gzip() {
        assert_eq!(crc(b"123456789"), 0xcbf4_3926);
    }

    /// tar and gzip of the system read it, a file of several blocks, too.
    #[test]
    fn tar_reads_it() {
        let mut archive = Archive::new(1_700_000_000);
        archive.file("empty", b"");
        let long: Vec<u8> = (0..200_000_u32).map(|number| (number % 251) as u8).collect();
        archive.file("long", &long);
        let octets = archive.finish();
        let tar = |arguments: &[&str]| {
            let mut tar = Command::new("tar");
            let mut child =
                tar.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            child.stdin.take().unwrap().write_all(&octets).unwrap();
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success());
            output.stdout
        };
        assert_eq!(tar(&["-tz"]), b"gatewright-diag/empty\ngatewright-diag/long\n");
        assert!(tar(&["-xzO", "gatewright-diag/long"]) == long);
    }
}
