//! Capture files on disk: which file is opened, and which file is overwritten.

use super::SECTION_HEADER;
use super::read::{CLASSIC_MICROS, CLASSIC_NANOS};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
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

/// Opens a file that may be overwritten, at its beginning and as it is.
fn open_for_writing(path: &Path, creates: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(creates).truncate(false);
    // A FIFO's end would wait for the other one (fifo(7)).
    let mut file = options.custom_flags(libc::O_NONBLOCK).open(path)?;
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

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::process::Command;

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
