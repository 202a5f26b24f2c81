//! What the tests share: compiled programs, a client and a server of mail that are ours.

pub mod back_end;

use gatewright_diagnostic::{SourceId, Sources};
use gatewright_lang::ir::Program;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Generous: nothing here takes as long unless it never comes.
pub const LIMIT: Duration = Duration::from_mins(1);

/// The file of an example.
pub fn example(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/gateways")).join(name)
}

/// A program of the examples.
pub fn program(name: &str) -> Arc<Program> {
    compiled(name, &std::fs::read_to_string(example(name)).unwrap())
}

/// A program of its own text, beside the examples.
pub fn compiled(name: &str, text: &str) -> Arc<Program> {
    let mut sources = Sources::of(name, text);
    let import =
        |_: &str, path: &str| Some((path.to_owned(), std::fs::read_to_string(example(path)).ok()?));
    let compiled = gatewright_lang::compile(&mut sources, SourceId::default(), import);
    let findings: Vec<String> =
        compiled.diagnostics.iter().map(|it| it.render(&sources, false)).collect();
    Arc::new(compiled.program.unwrap_or_else(|| panic!("{}", findings.join("\n"))))
}

/// A Python that has a package of PyPI, in an environment of the package's own, which is made if
/// that is possible.
pub fn python_with(package: &str) -> Option<PathBuf> {
    let name = package.split("==").next().unwrap();
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-venv"));
    gatewright_testbed::python_with(&folder, package)
}

/// A program in Python of the tests.
pub fn script(name: &str) -> String {
    format!("{}/tests/python/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A session of mail, from the client's side.
pub struct Client {
    stream: TcpStream,
    replies: BufReader<TcpStream>,
}

impl Client {
    /// Connects and reads the greeting.
    pub fn connect(to: SocketAddr) -> Self {
        let (client, greeting) = Self::greeted(to);
        assert!(greeting.starts_with("220"), "{greeting}");
        client
    }

    /// Connects, whatever the greeting says.
    pub fn greeted(to: SocketAddr) -> (Self, String) {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let replies = BufReader::new(stream.try_clone().unwrap());
        let mut client = Self { stream, replies };
        let greeting = client.reply();
        (client, greeting)
    }

    /// Sends octets as they are.
    pub fn write(&mut self, octets: &[u8]) {
        self.stream.write_all(octets).unwrap();
    }

    /// The next line; empty at the end of the connection.
    pub fn reply(&mut self) -> String {
        let mut line = String::new();
        self.replies.read_line(&mut line).unwrap();
        line
    }

    /// Sends a command and returns the reply.
    pub fn say(&mut self, command: &str) -> String {
        self.write(format!("{command}\r\n").as_bytes());
        self.reply()
    }

    /// Sends a whole mail; the last reply, or the first that is not what a mail needs.
    pub fn mail(&mut self, body: &str) -> String {
        for (command, wanted) in
            [("MAIL FROM:<a@x>", "250"), ("RCPT TO:<b@y>", "250"), ("DATA", "354")]
        {
            let reply = self.say(command);
            if !reply.starts_with(wanted) {
                return reply;
            }
        }
        self.say(&format!("{body}\r\n."))
    }
}

/// What becomes of a server's next mail.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// It is taken.
    Taken,
    /// The connection breaks after this many octets of its body.
    CutAfter(usize),
}

/// A server of mail that takes what it gets, and counts it.
pub struct Server {
    pub address: SocketAddr,
    pub taken: Arc<AtomicU64>,
    pub connections: Arc<AtomicU64>,
}

impl Server {
    /// Serves until the process ends; `fate` is asked for the number of each mail of all.
    pub fn start(fate: impl Fn(u64) -> Fate + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (taken, connections) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (fate, begun) = (Arc::new(fate), Arc::new(AtomicU64::new(0)));
        let counts = (Arc::clone(&taken), Arc::clone(&connections));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                counts.1.fetch_add(1, Ordering::SeqCst);
                let (taken, begun, fate) =
                    (Arc::clone(&counts.0), Arc::clone(&begun), Arc::clone(&fate));
                let next = move || fate(begun.fetch_add(1, Ordering::SeqCst));
                // A client that breaks off ends its thread only.
                std::thread::spawn(move || serve(stream.unwrap(), next, &taken));
            }
        });
        Self { address, taken, connections }
    }

    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::SeqCst)
    }
}

fn serve(mut stream: TcpStream, fate: impl Fn() -> Fate, taken: &AtomicU64) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?);
    stream.write_all(b"220 server\r\n").ok()?;
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let reply: &[u8] = match line.get(..4)? {
            "DATA" => {
                stream.write_all(b"354 go\r\n").ok()?;
                let fate = fate();
                let mut octets = 0;
                loop {
                    let mut line = String::new();
                    if lines.read_line(&mut line).ok()? == 0 {
                        return None;
                    }
                    if line == ".\r\n" {
                        break;
                    }
                    octets += line.len();
                    if matches!(fate, Fate::CutAfter(most) if octets >= most) {
                        return None;
                    }
                }
                if fate != Fate::Taken {
                    return None;
                }
                taken.fetch_add(1, Ordering::SeqCst);
                b"250 taken\r\n"
            }
            "QUIT" => b"221 bye\r\n",
            _ => b"250 ok\r\n",
        };
        stream.write_all(reply).ok()?;
    }
}

/// A Modbus device that answers each query for a register with its number plus 218.
pub fn device() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut query = [0; 12];
                while stream.read_exact(&mut query).is_ok() {
                    let value = u16::from_be_bytes([query[8], query[9]]) + 218;
                    let mut reply = query[..4].to_vec();
                    reply.extend([0, 5, 1, 3, 2]);
                    reply.extend(value.to_be_bytes());
                    // Who asked may have gone.
                    if stream.write_all(&reply).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}
