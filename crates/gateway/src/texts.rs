//! Texts of descriptions and programs: how much of which files is read.

use gatewright_part::open_file;
use std::{
    io::{self, ErrorKind, Read},
    path::Path,
};

/// `path` as the text `from` means it: relative to its own folder.
pub fn beside(from: &str, path: &str) -> String {
    let folder = Path::new(from).parent().unwrap_or(Path::new(""));
    folder.join(path).to_string_lossy().into_owned()
}

/// The text of a file of a program or a description, as [`read_text`] reads it.
///
/// # Errors
///
/// The file cannot be opened or read, or is not UTF-8.
pub fn read_file(file: &Path) -> io::Result<String> {
    let octets = read_text(open_file(file)?)?;
    String::from_utf8(octets).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

/// The octets of a program or a description. Of one that is too long, only so many that its reader
/// finds it too long, and never a part of a character at the end.
///
/// # Errors
///
/// It cannot be read.
pub fn read_text(from: impl Read) -> io::Result<Vec<u8>> {
    let mut octets = Vec::new();
    from.take(TEXT_READ_MAX).read_to_end(&mut octets)?;
    if u64::try_from(octets.len()).is_ok_and(|len| len >= TEXT_READ_MAX) {
        let cut = core::str::from_utf8(&octets).err().filter(|error| error.error_len().is_none());
        octets.truncate(cut.map_or(octets.len(), |error| error.valid_up_to()));
    }
    Ok(octets)
}

/// Maximum octets read of a text: more than a program or a description may have, even without the
/// up to three octets of a character that is cut at the end.
const TEXT_READ_MAX: u64 = (1 << 20) + 4;
