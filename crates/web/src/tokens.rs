//! Tokens: what a program or a person shows to be more than a viewer.
//!
//! A token is 32 random octets. It is printed once, when it is made; the file of tokens has a hash of
//! each, so that who reads the file can use none. As a token is random, a fast hash suffices: there
//! is nothing to guess it from.

use gatewright_gateway::{ReplacedFile, open_file};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{
    fmt::{self, Write as _},
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    str::FromStr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Random octets of a token.
const TOKEN_OCTETS: usize = 32;

/// What a token begins with, so that one that is left somewhere is recognised.
const PREFIX: &str = "gwt_";

/// Maximum tokens in a file.
const TOKENS_MAX: usize = 256;

/// Maximum octets of a file of tokens.
const FILE_MAX: u64 = 64 * 1024;

/// Maximum octets of a token's name.
const NAME_MAX: usize = 32;

/// The bits of a file's mode that are permissions (chmod(2)).
const MODE_BITS: u32 = 0o7777;

/// Permissions of group and others to write.
const WRITTEN_BY_OTHERS: u32 = 0o022;

/// Permissions of group and others to read.
const READ_BY_OTHERS: u32 = 0o044;

/// How long the file is believed before it is looked at again.
const BELIEVED_FOR: Duration = Duration::from_secs(1);

/// What a line begins with that is no token's.
const COMMENT: &[u8] = b"#";

/// The first line of a file of tokens.
const HEADER: &str =
    "# Tokens of the web interface: role, name, SHA-256. `gatewright web token` writes it.\n";

/// What the holder of a token may do; each role may do what those before it may.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessRole {
    /// Looks at status, events, topology and names of resources.
    Viewer,
    /// Also traces packets, reloads the description, and sees values of readings.
    Operator,
    /// Also sees the description's text.
    Admin,
}

impl AccessRole {
    /// All roles, the least first.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for AccessRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for AccessRole {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.name() == text);
        found.ok_or_else(|| format!("{text} is no role: viewer, operator or admin"))
    }
}

/// A SHA-256 hash of a token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenHash([u8; 32]);

impl TokenHash {
    /// The hash of a token.
    pub(crate) fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    fn parse(text: &str) -> Option<Self> {
        let digits: Option<Vec<u8>> =
            text.bytes().map(|digit| u8::try_from(char::from(digit).to_digit(16)?).ok()).collect();
        let octets: Option<Vec<u8>> = digits?
            .chunks(2)
            .map(|pair| match pair {
                [high, low] => Some(high * 16 + low),
                _ => None,
            })
            .collect();
        Some(Self(octets?.try_into().ok()?))
    }
}

/// In a time that does not depend on where two differ.
impl PartialEq for TokenHash {
    fn eq(&self, other: &Self) -> bool {
        let differing = self.0.iter().zip(&other.0).fold(0, |all, (one, two)| all | (one ^ two));
        differing == 0
    }
}

impl Eq for TokenHash {}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

/// A token as its file has it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KnownToken {
    /// What its holder may do.
    pub role: AccessRole,
    /// Its name, for logs.
    pub name: String,
    pub(crate) hash: TokenHash,
}

/// Its line in the file.
impl fmt::Display for KnownToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { role, name, hash } = self;
        write!(f, "{role} {name} {hash}")
    }
}

/// A file of tokens.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TokenFile(PathBuf);

impl TokenFile {
    /// The file at this path, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes a token; returns it. It is nowhere else afterwards.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the name is no name, `AlreadyExists` if a token has it, `QuotaExceeded` if
    /// there are [`TOKENS_MAX`]; else the system's error.
    pub fn add(&self, role: AccessRole, name: &str) -> io::Result<String> {
        if !is_name(name) {
            let text = format!("a token's name has 1 to {NAME_MAX} letters, digits, `-`, `_`, `.`");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mut tokens = self.read_or_none()?;
        if tokens.iter().any(|token| token.name == name) {
            let text = format!("there is a token {name} already: remove it, or take another name");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        if tokens.len() >= TOKENS_MAX {
            let text = format!("there are {TOKENS_MAX} tokens: remove some");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
        }
        let token = random_token()?;
        tokens.push(KnownToken { role, name: name.to_owned(), hash: TokenHash::of(&token) });
        self.write(&tokens)?;
        Ok(token)
    }

    /// Removes a token: sessions that began with it end, too. Returns whether it was there.
    ///
    /// Where the file cannot be written anew, as the disk is full, the token's line becomes a comment
    /// in place: that needs no room.
    ///
    /// # Errors
    ///
    /// The system's error, with a word that the token goes on admitting.
    pub fn remove(&self, name: &str) -> io::Result<bool> {
        let mut tokens = self.read_or_none()?;
        let before = tokens.len();
        tokens.retain(|token| token.name != name);
        if tokens.len() == before {
            return Ok(false);
        }
        let Err(error) = self.write(&tokens) else { return Ok(true) };
        self.comment_out(name).map_err(|in_place| {
            let text = format!(
                "the token {name} STILL ADMITS: neither a new file can be written ({error}), nor its \
                 line in this one be made a comment ({in_place}); put a `#` before it yourself"
            );
            io::Error::new(error.kind(), text)
        })?;
        Ok(true)
    }

    /// Makes the lines of a token comments, by one octet each.
    fn comment_out(&self, name: &str) -> io::Result<()> {
        let mut file = File::options().read(true).write(true).open(&self.0)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            if parse(line).is_some_and(|token| token.name == name) {
                file.write_all_at(COMMENT, at)?;
            }
            at += u64::try_from(line.len()).unwrap_or_default();
        }
        file.sync_all()
    }

    /// Its tokens, in its order.
    ///
    /// # Errors
    ///
    /// `InvalidData` if a line is no token's, or others than the file's owner can write to it; else the
    /// system's error.
    pub fn read(&self) -> io::Result<Vec<KnownToken>> {
        let (mut text, file) = (String::new(), open_file(&self.0)?);
        let mode = file.metadata()?.mode() & MODE_BITS;
        if mode & WRITTEN_BY_OTHERS != 0 {
            let text =
                format!("others than its owner can write to it (mode {mode:04o}): chmod 600");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        file.take(FILE_MAX + 1).read_to_string(&mut text)?;
        if u64::try_from(text.len()).is_ok_and(|length| length > FILE_MAX) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is too long"));
        }
        let lines = text.lines().enumerate();
        let rows = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
        rows.map(|(number, line)| {
            let text = || format!("line {} is no token's: role, name, hash", number + 1);
            parse(line).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, text()))
        })
        .take(TOKENS_MAX)
        .collect()
    }

    /// The mode of the file, if others than its owner can read it. They learn names and roles from it.
    pub fn read_by_others(&self) -> Option<u32> {
        let mode = fs::metadata(&self.0).ok()?.mode() & MODE_BITS;
        (mode & READ_BY_OTHERS != 0).then_some(mode)
    }

    fn read_or_none(&self) -> io::Result<Vec<KnownToken>> {
        match self.read() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            read => read,
        }
    }

    fn write(&self, tokens: &[KnownToken]) -> io::Result<()> {
        let mut text = String::from(HEADER);
        for token in tokens {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{token}");
        }
        ReplacedFile::write_private(&self.0, &text)
    }
}

fn is_name(name: &str) -> bool {
    let is_right = |octet: u8| octet.is_ascii_alphanumeric() || b"-_.".contains(&octet);
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_right)
}

/// A line of a file of tokens: `operator ops 9f86…`.
pub(crate) fn parse(line: &str) -> Option<KnownToken> {
    let mut words = line.split_ascii_whitespace();
    let (role, name, hash) = (words.next()?, words.next()?, words.next()?);
    let is_whole = words.next().is_none() && is_name(name);
    let (role, hash) = (role.parse().ok()?, TokenHash::parse(hash)?);
    is_whole.then(|| KnownToken { role, name: name.to_owned(), hash })
}

/// A new token.
pub(crate) fn random_token() -> io::Result<String> {
    let mut octets = [0; TOKEN_OCTETS];
    File::open("/dev/urandom")?.read_exact(&mut octets)?;
    let mut token = String::from(PREFIX);
    for octet in octets {
        // Writing to a string cannot fail.
        let _ = write!(token, "{octet:02x}");
    }
    Ok(token)
}

/// Tokens of a file that may change while they are used.
#[derive(Debug)]
pub(crate) struct LiveTokens {
    file: TokenFile,
    last: Mutex<LastRead>,
}

#[derive(Debug, Default)]
struct LastRead {
    looked_at: Option<Instant>,
    /// The version of the file.
    version: Option<FileVersion>,
    tokens: Vec<KnownToken>,
    /// Why there are none.
    error: Option<String>,
}

/// What tells one version of a file from another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct FileVersion {
    inode: u64,
    length: u64,
    /// When its content was written: seconds, nanoseconds.
    written: (i64, i64),
    /// When its content or its mode was changed.
    changed: (i64, i64),
}

impl LiveTokens {
    pub(crate) fn new(file: TokenFile) -> Self {
        Self { file, last: Mutex::default() }
    }

    /// The token with this hash, as the file has it now.
    ///
    /// # Errors
    ///
    /// [`UnreadableTokens`] if the file is gone or is not understood: then it admits nobody.
    pub(crate) fn find(&self, hash: &TokenHash) -> Result<Option<KnownToken>, UnreadableTokens> {
        let last = self.look();
        if last.error.is_some() {
            return Err(UnreadableTokens);
        }
        // All are compared: the time does not tell which one it is.
        let known = last
            .tokens
            .iter()
            .fold(None, |found, token| if token.hash == *hash { Some(token) } else { found });
        Ok(known.cloned())
    }

    /// Why its tokens are not known, if they are not.
    pub(crate) fn error(&self) -> Option<String> {
        self.look().error.clone()
    }

    /// What was read last, after a look at whether the file has changed.
    fn look(&self) -> MutexGuard<'_, LastRead> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.looked_at.is_none_or(|when| when.elapsed() >= BELIEVED_FOR) {
            let version = fs::metadata(self.file.path()).ok().map(|found| FileVersion {
                inode: found.ino(),
                length: found.len(),
                written: (found.mtime(), found.mtime_nsec()),
                changed: (found.ctime(), found.ctime_nsec()),
            });
            if version != last.version || version.is_none() || last.error.is_some() {
                let path = self.file.path().display();
                (last.tokens, last.error) = match self.file.read() {
                    Ok(tokens) => (tokens, None),
                    Err(error) => (Vec::new(), Some(format!("{path}: {error}"))),
                };
                last.version = version;
            }
            last.looked_at = Some(Instant::now());
        }
        last
    }
}

/// The file of tokens cannot be read now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct UnreadableTokens;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(name: &str) -> TokenFile {
        let folder = std::env::temp_dir().join(format!("gw-tokens-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        TokenFile::new(folder.join(name))
    }

    /// FIPS 180-4's example: SHA-256 of "abc".
    #[test]
    fn a_hash_is_sha_256() {
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(TokenHash::of("abc").to_string(), text);
        assert_eq!(TokenHash::parse(text), Some(TokenHash::of("abc")));
        for bad in ["", "ba78", &text[1..], &format!("{text}0"), &text.replace('b', "x")] {
            assert_eq!(TokenHash::parse(bad), None, "{bad}");
        }
    }

    /// A named pipe is an error while it is there: it is not waited for.
    #[test]
    fn a_named_pipe_in_place_of_the_file_admits_nobody_and_keeps_nobody_waiting() {
        let file = file("pipe");
        let _earlier = fs::remove_file(file.path());
        let mut mkfifo = std::process::Command::new("mkfifo");
        let made = mkfifo.args(["-m", "600"]).arg(file.path()).status().unwrap();
        assert!(made.success());
        let (tell, told) = std::sync::mpsc::channel();
        let read = file.clone();
        std::thread::spawn(move || tell.send(LiveTokens::new(read).error()));
        let error = told.recv_timeout(Duration::from_secs(30)).unwrap().unwrap();
        assert!(error.contains("a named pipe is not read"), "{error}");
        fs::remove_file(file.path()).unwrap();
        file.add(AccessRole::Viewer, "again").unwrap();
        assert_eq!(LiveTokens::new(file).error(), None);
    }

    #[test]
    fn a_token_is_in_its_file_as_a_hash_only() {
        let file = file("added");
        let token = file.add(AccessRole::Operator, "ops").unwrap();
        assert!(token.len() == PREFIX.len() + 64 && token.starts_with(PREFIX), "{token}");
        let text = fs::read_to_string(file.path()).unwrap();
        assert!(!text.contains(token.trim_start_matches(PREFIX)), "{text}");
        assert_eq!(fs::metadata(file.path()).unwrap().mode() & 0o777, 0o600);
        let known = file.read().unwrap();
        assert_eq!((known[0].role, known[0].name.as_str()), (AccessRole::Operator, "ops"));
        assert_eq!(
            file.add(AccessRole::Viewer, "ops").unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        for bad in ["", "a b", "<script>", &"x".repeat(33)] {
            let refused = file.add(AccessRole::Viewer, bad).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{bad}");
        }
        let live = LiveTokens::new(file.clone());
        let found = live.find(&TokenHash::of(&token)).unwrap();
        assert_eq!(found.map(|it| it.name), Some("ops".to_owned()));
        assert_eq!(live.find(&TokenHash::of("gwt_0")), Ok(None));
        assert!(file.remove("ops").unwrap() && !file.remove("ops").unwrap());
        assert_eq!(LiveTokens::new(file.clone()).find(&TokenHash::of(&token)), Ok(None));
        fs::remove_file(file.path()).unwrap();
        let gone = LiveTokens::new(file);
        assert_eq!(gone.find(&TokenHash::of(&token)), Err(UnreadableTokens));
        assert!(gone.error().unwrap().contains("No such file"), "{:?}", gone.error());
    }

    #[test]
    fn a_file_that_is_not_understood_admits_nobody() {
        let file = file("broken");
        for text in ["viewer a", "viewer a zz", "root a 00", "viewer a b c", "operator <b> 00"] {
            fs::write(file.path(), text).unwrap();
            assert_eq!(file.read().unwrap_err().kind(), io::ErrorKind::InvalidData, "{text}");
        }
        fs::remove_file(file.path()).unwrap();
    }

    /// A file that others can write to admits nobody, whoever has written it.
    #[test]
    fn a_file_that_others_can_write_to_is_refused() {
        let file = file("modes");
        let token = file.add(AccessRole::Viewer, "eve").unwrap();
        let set =
            |mode| fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        for (mode, is_admitted, is_told) in [
            (0o600, true, None),
            (0o640, true, Some(0o640)),
            (0o644, true, Some(0o644)),
            (0o620, false, None),
            (0o602, false, None),
            (0o666, false, Some(0o666)),
        ] {
            set(mode);
            assert_eq!(file.read().is_ok(), is_admitted, "{mode:o}");
            assert_eq!(file.read_by_others(), is_told, "{mode:o}");
        }
        let live = LiveTokens::new(file.clone());
        assert!(live.error().unwrap().contains("mode 0666"), "{:?}", live.error());
        assert_eq!(live.find(&TokenHash::of(&token)), Err(UnreadableTokens));
        assert!(file.add(AccessRole::Admin, "more").is_err(), "it does not become right by that");
        fs::remove_file(file.path()).unwrap();
    }

    /// The file beside cannot be written: a folder has its name. The token's line is a comment then.
    #[test]
    fn a_token_is_removed_in_place_where_no_file_can_be_written() {
        let file = file("in-place");
        let tokens = ["eve", "ops"].map(|name| file.add(AccessRole::Operator, name).unwrap());
        let beside = file.path().with_added_extension("part");
        fs::create_dir(&beside).unwrap();
        assert!(file.add(AccessRole::Viewer, "more").is_err());
        assert!(file.remove("eve").unwrap() && !file.remove("eve").unwrap());
        let names: Vec<_> = file.read().unwrap().into_iter().map(|token| token.name).collect();
        assert_eq!(names, ["ops"]);
        let live = LiveTokens::new(file.clone());
        assert_eq!(live.find(&TokenHash::of(&tokens[0])), Ok(None));
        assert_eq!(live.find(&TokenHash::of(&tokens[1])).unwrap().unwrap().name, "ops");
        fs::remove_dir(beside).unwrap();
        file.add(AccessRole::Viewer, "eve").unwrap();
        fs::remove_file(file.path()).unwrap();
    }
}
