//! The journal's native protocol: a datagram for each event, with its fields.
//!
//! Each field is a line `NAME=value`; a value with a line feed is written as its length in eight
//! octets, least significant first, and itself
//! (<https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>).

use super::LogEntry;
use std::{
    env,
    fs::File,
    io,
    os::{
        fd::AsFd,
        unix::{fs::MetadataExt, net::UnixDatagram},
    },
    path::{Path, PathBuf},
};

/// The journal's socket.
const SOCKET: &str = "/run/systemd/journal/socket";

/// Our name in the journal.
const IDENTIFIER: &str = "gatewright";

/// A way to the system's journal.
#[derive(Debug)]
pub(crate) struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Journal {
    /// The journal at its usual place.
    ///
    /// # Errors
    ///
    /// If the system gives no socket.
    pub(crate) fn new() -> io::Result<Self> {
        Self::at(Path::new(SOCKET))
    }

    fn at(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, path: path.to_owned() })
    }

    /// Whether standard error leads to the journal, as a service manager says: `JOURNAL_STREAM` has
    /// its device and inode (systemd.exec(5)).
    pub(crate) fn has_stderr() -> bool {
        let Ok(stream) = env::var("JOURNAL_STREAM") else { return false };
        let stderr = io::stderr().as_fd().try_clone_to_owned().map(File::from);
        let found = stderr.and_then(|file| file.metadata());
        found.is_ok_and(|found| stream == format!("{}:{}", found.dev(), found.ino()))
    }

    /// Sends an event.
    ///
    /// # Errors
    ///
    /// If the journal does not take it now.
    pub(crate) fn write(&self, entry: &LogEntry) -> io::Result<()> {
        self.socket.send_to(&datagram(entry), &self.path).map(drop)
    }
}

fn datagram(entry: &LogEntry) -> Vec<u8> {
    let event = &entry.event;
    let mut out = Vec::new();
    field(&mut out, "MESSAGE", &event.text);
    field(&mut out, "PRIORITY", &event.level.severity().to_string());
    field(&mut out, "SYSLOG_IDENTIFIER", IDENTIFIER);
    field(&mut out, "GATEWRIGHT_EVENT", event.kind);
    field(&mut out, "GATEWRIGHT_PART", event.part);
    field(&mut out, "GATEWRIGHT_SEQUENCE", &entry.sequence.to_string());
    for (name, value) in &event.fields {
        let name = name.to_ascii_uppercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        field(&mut out, &format!("GATEWRIGHT_{name}"), value);
    }
    out
}

fn field(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        out.push(b'\n');
        let len = u64::try_from(value.len()).unwrap_or(u64::MAX);
        out.extend_from_slice(&len.to_le_bytes());
    } else {
        out.push(b'=');
    }
    out.extend_from_slice(value.as_bytes());
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_part::{LogEvent, LogLevel};
    use std::time::SystemTime;

    fn entry(text: &str) -> LogEntry {
        let event = LogEvent::new(LogLevel::Warning, "links", "link-down", text);
        let event = event.with("link", "lan").with("lifetime_s", 7);
        LogEntry { sequence: 3, time: SystemTime::UNIX_EPOCH, event }
    }

    /// systemd.io/JOURNAL_NATIVE_PROTOCOL: `NAME=value`, and a value of two lines with its length in
    /// 64 bits, least significant octet first.
    #[test]
    fn an_event_is_a_datagram_of_fields() {
        let expected = "MESSAGE=link lan is down\nPRIORITY=4\nSYSLOG_IDENTIFIER=gatewright\n\
            GATEWRIGHT_EVENT=link-down\nGATEWRIGHT_PART=links\nGATEWRIGHT_SEQUENCE=3\n\
            GATEWRIGHT_LINK=lan\nGATEWRIGHT_LIFETIME_S=7\n";
        assert_eq!(String::from_utf8(datagram(&entry("link lan is down"))).unwrap(), expected);
        let lines = datagram(&entry("two\nlines"));
        assert!(lines.starts_with(b"MESSAGE\n\x09\0\0\0\0\0\0\0two\nlines\nPRIORITY=4\n"));
    }

    #[test]
    fn the_journal_gets_each_event_and_a_missing_one_stops_nothing() {
        let path = env::temp_dir().join(format!("gatewright-journal-{}", std::process::id()));
        let _old = std::fs::remove_file(&path);
        let journal = Journal::at(&path).unwrap();
        assert!(journal.write(&entry("nobody listens")).is_err());
        let listens = UnixDatagram::bind(&path).unwrap();
        journal.write(&entry("link lan is down")).unwrap();
        let mut octets = [0; 1024];
        let length = listens.recv(&mut octets).unwrap();
        assert_eq!(octets[..length], datagram(&entry("link lan is down")));
        std::fs::remove_file(&path).unwrap();
    }
}
