//! Opens files that a description or a command names.

use std::{
    fs::File,
    io::{Error, ErrorKind, Result},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
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
    if of_shell {
        return File::open(path);
    }
    // What is opened is looked at, as something else may be at the path a moment later.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.file_type().is_fifo() {
        let why = "a named pipe is not read: give a file, or - for standard input";
        return Err(Error::new(ErrorKind::InvalidInput, why));
    }
    Ok(file)
}
