//! Capture files on disk: which file is opened, and which file is overwritten.

use super::read::{CLASSIC_MICROS, CLASSIC_NANOS};
use super::{BYTE_ORDER, ENHANCED_PACKET, INTERFACE_DESCRIPTION, SECTION_HEADER};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Opens a capture file for reading. It never waits for a writer, as opening a FIFO does.
///
/// # Errors
///
/// `InvalidInput` if it is no regular file; else the system's error.
pub fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(not_regular());
    }
    Ok(file)
}

/// Opens a capture file for writing, and creates it if there is none. A file that exists loses what
/// it held, if that is a capture or nothing; any other stays. A character device is written as it is.
///
/// # Errors
///
/// `InvalidInput` if it is no regular file and no character device, `AlreadyExists` if it holds
/// something else than a capture; else the system's error.
pub fn create(path: &Path) -> io::Result<File> {
    let mut file = open_for_writing(path, true)?;
    if file.metadata()?.is_file() {
        file.set_len(0)?;
        // Writers buffer: a file that cannot grow is found here, where its path is known.
        file.write_all(&[0])?;
        file.set_len(0)?;
        file.rewind()?;
        // For [`append`]. A file system without locks has none that is seen.
        let _locked = file.try_lock();
    }
    Ok(file)
}

/// As [`create`], but a regular file at `path` is replaced by a new one: a writer of the old one
/// can finish.
///
/// # Errors
///
/// As [`create`].
pub fn replace(path: &Path) -> io::Result<File> {
    if fs::symlink_metadata(path).is_ok_and(|old| old.is_file()) {
        drop(open_for_writing(path, false)?);
        fs::remove_file(path)?;
    }
    create(path)
}

/// Opens a capture file to write behind what it holds, and creates it if there is none; returns how
/// many octets it has. What is behind its last whole block goes: a writer that was killed has left
/// it. A file that another writer has open is replaced as by [`replace`], and one that is no pcapng
/// as by [`create`].
///
/// # Errors
///
/// As [`create`].
pub fn append(path: &Path) -> io::Result<(File, u64)> {
    let mut file = open_for_writing(path, true)?;
    if !file.metadata()?.is_file() {
        return Ok((file, 0));
    }
    if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        return Ok((replace(path)?, 0));
    }
    let whole = whole_blocks(&mut file)?;
    if whole == 0 {
        // Its lock would be in the way of the next one's.
        drop(file);
        return Ok((create(path)?, 0));
    }
    file.set_len(whole)?;
    file.seek(SeekFrom::End(0))?;
    Ok((file, whole))
}

/// The octets of a pcapng file up to the end of its last whole block; 0 if it is no pcapng file.
fn whole_blocks(file: &mut File) -> io::Result<u64> {
    let len = file.metadata()?.len();
    let mut blocks = Blocks { file: BufReader::new(&*file), at: 0, is_big_endian: false };
    let begins = blocks.next(len)? == Some(SECTION_HEADER);
    if !begins {
        return Ok(0);
    }
    // As a rule the last block is whole, and the way to it is long.
    if ends_with_block(file, len)? {
        return Ok(len);
    }
    while blocks.next(len)?.is_some() {}
    Ok(blocks.at)
}

/// The blocks of a pcapng file, without what is in them.
struct Blocks<'file> {
    file: BufReader<&'file File>,
    /// The end of the last whole block.
    at: u64,
    is_big_endian: bool,
}

impl Blocks<'_> {
    /// The type of the next block; `None` if none of a file of `len` octets is whole.
    fn next(&mut self, len: u64) -> io::Result<Option<u32>> {
        let left = len.saturating_sub(self.at);
        if left < BLOCK_MIN {
            return Ok(None);
        }
        let (kind, length, order) = (self.word()?, self.word()?, self.word()?);
        // The type of a section header reads the same in both byte orders.
        let is_section = u32::from_le_bytes(kind) == SECTION_HEADER;
        if is_section {
            self.is_big_endian = u32::from_be_bytes(order) == BYTE_ORDER;
        }
        let octets = u64::from(self.in_order(length));
        if !(BLOCK_MIN..=left).contains(&octets) || !octets.is_multiple_of(4) {
            return Ok(None);
        }
        let repeated = if octets == BLOCK_MIN {
            order
        } else {
            let rest = i64::try_from(octets - BLOCK_MIN - 4).map_err(io::Error::other)?;
            self.file.seek_relative(rest)?;
            self.word()?
        };
        if repeated != length {
            return Ok(None);
        }
        self.at += octets;
        Ok(Some(self.in_order(kind)))
    }

    fn word(&mut self) -> io::Result<[u8; 4]> {
        let mut word = [0; 4];
        self.file.read_exact(&mut word).map(|()| word)
    }

    const fn in_order(&self, word: [u8; 4]) -> u32 {
        if self.is_big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    }
}

/// The shortest block: its type, and its length twice.
const BLOCK_MIN: u64 = 12;

/// Whether a file ends with a whole block of those that we write.
fn ends_with_block(file: &File, len: u64) -> io::Result<bool> {
    let mut last = [0; 4];
    file.read_exact_at(&mut last, len.saturating_sub(4))?;
    let octets = u64::from(u32::from_le_bytes(last));
    if octets < BLOCK_MIN || octets > len || !octets.is_multiple_of(4) || !len.is_multiple_of(4) {
        return Ok(false);
    }
    let mut kind = [0; 4];
    let mut first = [0; 4];
    file.read_exact_at(&mut kind, len - octets)?;
    file.read_exact_at(&mut first, len - octets + 4)?;
    let known = [SECTION_HEADER, INTERFACE_DESCRIPTION, ENHANCED_PACKET];
    Ok(first == last && known.contains(&u32::from_le_bytes(kind)))
}

/// Opens a file that may be overwritten, at its beginning and as it is.
fn open_for_writing(path: &Path, creates: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // A FIFO's end would wait for the other one (fifo(7)).
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
    let mut file = match options.open(path) {
        Err(error) if creates && error.kind() == io::ErrorKind::NotFound => {
            // A new file is made at this path alone, not where a symbolic link leads.
            options.create_new(true).open(path).map_err(no_new_file)?
        }
        opened => opened?,
    };
    let about = file.metadata()?;
    if about.file_type().is_char_device() {
        return Ok(file);
    }
    if !about.is_file() {
        return Err(not_regular());
    }
    if about.len() > 0 && !is_capture(&mut file)? {
        let text = "the file there is not a capture, and is not overwritten";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    file.rewind()?;
    Ok(file)
}

/// Whether a file begins as pcapng or as classic pcap of either byte order.
fn is_capture(file: &mut File) -> io::Result<bool> {
    let mut magic = [0; 4];
    match file.read_exact(&mut magic) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        Err(error) => return Err(error),
    }
    let known = [SECTION_HEADER, CLASSIC_MICROS, CLASSIC_NANOS];
    Ok([u32::from_le_bytes(magic), u32::from_be_bytes(magic)].iter().any(|it| known.contains(it)))
}

fn no_new_file(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::AlreadyExists {
        return error;
    }
    let text = "a symbolic link that leads to no file is there, and is not followed";
    io::Error::new(error.kind(), text)
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::process::Command;

    /// A file is not made where a symbolic link leads that somebody put there.
    #[test]
    fn a_dangling_symbolic_link_is_not_followed() {
        let folder = std::env::temp_dir().join(format!("gw-dangling-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (path, behind) = (folder.join("lan.pcapng"), folder.join("behind"));
        std::os::unix::fs::symlink(&behind, &path).unwrap();
        for opened in [create(&path), replace(&path)] {
            let error = opened.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{error}");
            assert!(error.to_string().contains("is not followed"), "{error}");
        }
        assert!(!behind.exists());
        // One that leads to a file of the operator's is that file.
        fs::write(&behind, "").unwrap();
        create(&path).unwrap();
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn only_captures_and_empty_files_are_overwritten() {
        let folder = std::env::temp_dir().join(format!("gw-capture-file-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let database = folder.join("h.db");
        fs::write(&database, "SQLite format 3\0").unwrap();
        for opened in [create(&database), replace(&database)] {
            assert_eq!(opened.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        }
        assert_eq!(fs::read(&database).unwrap(), b"SQLite format 3\0");
        let capture = folder.join("ok.pcap");
        // The magics of draft-ietf-opsawg-pcapng §4.1 and draft-ietf-opsawg-pcap §4.
        let magics: [&[u8]; 6] = [
            b"\x0a\x0d\x0d\x0a and more",
            b"\xa1\xb2\xc3\xd4 and more",
            b"\xd4\xc3\xb2\xa1 and more",
            b"\xa1\xb2\x3c\x4d and more",
            b"\x4d\x3c\xb2\xa1 and more",
            b"",
        ];
        for magic in magics {
            for open in [create, replace] {
                fs::write(&capture, magic).unwrap();
                drop(open(&capture).unwrap());
                assert_eq!(fs::metadata(&capture).unwrap().len(), 0);
            }
        }
        drop(create(Path::new("/dev/null")).unwrap());
        drop(replace(&folder.join("new.pcapng")).unwrap());
        fs::remove_dir_all(folder).unwrap();
    }

    /// A capture is written on behind its last whole block, wherever its last writer was killed, and in
    /// either byte order; never into a file that is being written.
    #[test]
    fn a_capture_goes_on_behind_its_last_whole_block() {
        let path = std::env::temp_dir().join(format!("gw-capture-append-{}", std::process::id()));
        let block = |kind: u32, body: &[u32]| -> Vec<u32> {
            let octets = 12 + 4 * u32::try_from(body.len()).unwrap();
            [&[kind, octets], body, &[octets]].concat()
        };
        let words = [
            block(SECTION_HEADER, &[BYTE_ORDER, 1, u32::MAX, u32::MAX]),
            block(INTERFACE_DESCRIPTION, &[1, 0]),
            block(ENHANCED_PACKET, &[0, 0, 0, 4, 4, 7]),
            // None that we write, and the shortest.
            block(5, &[]),
            block(ENHANCED_PACKET, &[0, 0, 0, 4, 4, 8]),
        ];
        for octets in [u32::to_le_bytes, u32::to_be_bytes] {
            let blocks: Vec<Vec<u8>> = words
                .iter()
                .map(|block| block.iter().copied().flat_map(octets).collect())
                .collect();
            let whole = blocks.concat();
            let ends: Vec<usize> = (0..=blocks.len()).map(|n| blocks[..n].concat().len()).collect();
            for cut in 0..=whole.len() {
                fs::write(&path, &whole[..cut]).unwrap();
                if 0 < cut && cut < 4 {
                    assert!(append(&path).is_err(), "{cut}: it is no capture");
                    continue;
                }
                let (mut file, at) = append(&path).unwrap();
                let end = *ends.iter().rfind(|end| **end <= cut).unwrap();
                assert_eq!(at, end as u64, "{cut}");
                file.write_all(b"more").unwrap();
                assert_eq!(fs::read(&path).unwrap(), [&whole[..end], b"more"].concat(), "{cut}");
            }
        }
        fs::write(&path, words[0].iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>())
            .unwrap();
        let (mut first, _) = append(&path).unwrap();
        let (_second, at) = append(&path).unwrap();
        assert_eq!((at, fs::read(&path).unwrap().len()), (0, 0), "another file");
        first.write_all(b"more").unwrap();
        assert_eq!(fs::read(&path).unwrap().len(), 0);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_fifo_is_refused_at_once() {
        let path = std::env::temp_dir().join(format!("gw-capture-fifo-{}", std::process::id()));
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        for opened in [open(&path), create(&path), replace(&path)] {
            assert_eq!(opened.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        fs::remove_file(path).unwrap();
    }
}
