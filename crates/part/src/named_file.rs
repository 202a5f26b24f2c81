//! Opens files that a description or a command names.

use std::{
    fs::{self, File},
    io::{Error, ErrorKind, Result},
    os::unix::fs::FileTypeExt,
    path::Path,
};

/// Opens a file for reading. A named pipe would be waited for as long as nobody writes to it, and a
/// reload with it; the pipe that a shell makes for `<(command)` has a writer.
///
/// # Errors
///
/// It cannot be opened, or is a named pipe.
pub fn open_file(path: &Path) -> Result<File> {
    let of_shell = ["/dev/fd", "/dev/stdin", "/proc"].iter().any(|folder| path.starts_with(folder));
    if !of_shell && fs::metadata(path)?.file_type().is_fifo() {
        let why = "a named pipe is not read: give a file, or - for standard input";
        return Err(Error::new(ErrorKind::InvalidInput, why));
    }
    File::open(path)
}
