//! Unix sockets at paths: what is replaced when one is bound, and what is removed at its end.

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use std::{
    ffi::OsString,
    fs, io,
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Read and write for the owner, nothing for anybody else.
const OWNER_ONLY: u32 = 0o600;

/// Opens a non-blocking Unix socket that only its owner can use. A socket without a listener is
/// replaced; anything else at `path` stays.
///
/// # Errors
///
/// `AddrInUse` if another process listens there, `AlreadyExists` if `path` is another file; else the
/// system's error.
pub fn bind(path: &Path) -> io::Result<(UnixListener, SocketPath)> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    remove_unused(path)?;
    let listener = UnixListener::bind(path)?;
    let place = SocketPath {
        path: path.to_owned(),
        inode: inode(&fs::symlink_metadata(path)?),
        _listener: listener.try_clone()?,
    };
    fs::set_permissions(path, fs::Permissions::from_mode(OWNER_ONLY))?;
    listener.set_nonblocking(true)?;
    Ok((listener, place))
}

/// Removes a socket that an ended process left behind.
fn remove_unused(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(old) if old.file_type().is_socket() => {}
        Ok(_) => {
            let text = "the file there is not a socket, and is not replaced";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    match UnixStream::connect(path) {
        Ok(stream) if has_listener_ended(&stream) => fs::remove_file(path),
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        // Nobody listens (unix(7)).
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether the process that began to listen has ended. A process that it was about to start may still
/// have its descriptors, and nobody accepts then.
fn has_listener_ended(stream: &UnixStream) -> bool {
    let number = listener(stream);
    let state = || match fs::read_to_string(format!("/proc/{number}/stat")) {
        // Behind the name, which may have any character (proc(5)).
        Ok(stat) => stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some('X'),
        Err(_) => None,
    };
    number > 0 && Path::new("/proc/self/stat").exists() && matches!(state(), Some('X' | 'Z'))
}

/// The process that began to listen; 0 for one of a namespace that is not seen from here.
fn listener(stream: &UnixStream) -> u32 {
    let peer = getsockopt(stream, PeerCredentials);
    peer.map_or(0, |peer| u32::try_from(peer.pid()).unwrap_or(0))
}

/// The process that listens at the Unix socket `path`, if it is seen from here.
pub fn listener_at(path: &Path) -> Option<u32> {
    let stream = UnixStream::connect(path).ok()?;
    Some(listener(&stream)).filter(|process| *process > 0)
}

/// The path of a bound Unix socket; dropping it removes the socket, but not a file that has come
/// into its place since.
#[derive(Debug)]
pub struct SocketPath {
    path: PathBuf,
    inode: (u64, u64),
    /// As long as it is open, no other file has the inode's number.
    _listener: UnixListener,
}

impl SocketPath {
    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|now| inode(&now) == self.inode) {
            // Somebody may have removed it already.
            let _gone = fs::remove_file(&self.path);
        }
    }
}

/// Maximum time in which another program goes on in a gateway's process.
const UPGRADED_WITHIN: Duration = Duration::from_secs(30);

/// The file beside a control socket that is there while another program goes on in the gateway's
/// process, and nobody listens.
fn mark_of(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".upgrade");
    PathBuf::from(name)
}

/// Says that nobody will listen at the control socket `path` for a moment.
pub(crate) fn begin_upgrade(path: &Path) {
    // Without it clients are told that no gateway runs.
    let _unmarked = fs::write(mark_of(path), "");
}

/// Says that a gateway listens again at the control socket `path`, does not end, or has ended.
pub fn end_upgrade(path: &Path) {
    // There is one only after an upgrade.
    let _none = fs::remove_file(mark_of(path));
}

/// Whether another program goes on in the process of the gateway at `path`.
pub(crate) fn is_upgrading(path: &Path) -> bool {
    let began = fs::symlink_metadata(mark_of(path)).and_then(|mark| mark.modified());
    let age = began.map(|began| SystemTime::now().duration_since(began));
    // One of the future was made by a clock that has been set back.
    age.is_ok_and(|age| age.is_ok_and(|age| age < UPGRADED_WITHIN))
}

/// The identity of a file: its device and inode.
fn inode(file: &fs::Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        os::fd::OwnedFd,
        process::{Command, Stdio},
    };

    #[test]
    fn a_file_in_the_way_stays_and_a_left_socket_is_replaced() {
        let folder = std::env::temp_dir().join(format!("gw-socket-path-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("h.db");
        fs::write(&file, "a database").unwrap();
        let refused = bind(&file).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&file).unwrap(), "a database");
        let link = folder.join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(bind(&link).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(fs::symlink_metadata(&link).is_ok());
        let path = folder.join("left.sock");
        drop(UnixListener::bind(&path).unwrap());
        let bound = bind(&path).unwrap();
        assert_eq!(bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(bound);
        assert!(!path.exists());
        fs::remove_dir_all(folder).unwrap();
    }

    /// Where the process of the next test listens.
    const LISTENS_AT: &str = "GATEWRIGHT_TEST_LISTENS_AT";

    /// A process that is killed while it starts another one leaves its descriptors to that one, until
    /// that runs its program.
    #[test]
    fn a_socket_is_replaced_whose_listener_has_ended_though_another_process_has_it_open() {
        if let Some(path) = std::env::var_os(LISTENS_AT) {
            let listener = UnixListener::bind(path).unwrap();
            let mut heir = Command::new("sleep");
            heir.arg("60").stdin(OwnedFd::from(listener));
            heir.stdout(Stdio::null()).stderr(Stdio::null());
            println!("heir {}", heir.spawn().unwrap().id());
            return;
        }
        let path = std::env::temp_dir().join(format!("gw-socket-heir-{}", std::process::id()));
        let name = std::thread::current().name().unwrap().to_owned();
        let mut ended = Command::new(std::env::current_exe().unwrap());
        let ended = ended.args([&name, "--exact", "--nocapture"]).env(LISTENS_AT, &path).output();
        let said = String::from_utf8(ended.unwrap().stdout).unwrap();
        let number = said.split("heir ").nth(1).and_then(|rest| rest.split_whitespace().next());
        let number: u32 = number.unwrap().parse().unwrap();
        assert!(UnixStream::connect(&path).is_ok(), "it is open: {said}");
        let bound = bind(&path);
        Command::new("kill").arg(number.to_string()).status().unwrap();
        bound.unwrap();
    }

    /// The mark of an upgrade that never ended means nothing after a while.
    #[test]
    fn a_gateway_that_is_upgraded_is_busy_and_one_that_has_ended_is_not() {
        let path = std::env::temp_dir().join(format!("gw-socket-upgrade-{}", std::process::id()));
        let asked = || crate::api::ask(&path, &crate::api::ControlRequest::Status).unwrap_err();
        assert_eq!(asked().kind(), io::ErrorKind::NotFound);
        begin_upgrade(&path);
        assert_eq!(asked().kind(), io::ErrorKind::ResourceBusy);
        let mark = fs::File::options().write(true).open(mark_of(&path)).unwrap();
        mark.set_modified(SystemTime::now() - UPGRADED_WITHIN).unwrap();
        assert_eq!(asked().kind(), io::ErrorKind::NotFound);
        begin_upgrade(&path);
        assert!(is_upgrading(&path));
        end_upgrade(&path);
        assert_eq!(asked().kind(), io::ErrorKind::NotFound);
        assert!(!mark_of(&path).exists());
    }

    #[test]
    fn the_end_of_a_listener_leaves_the_socket_of_another_in_its_place() {
        let path = std::env::temp_dir().join(format!("gw-socket-own-{}", std::process::id()));
        let first = bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let second = bind(&path).unwrap();
        drop(first);
        assert!(UnixStream::connect(&path).is_ok());
        drop(second);
        assert!(!path.exists());
    }
}
