//! What stands beside the gateways: a mail server, who sends it an alarm, and a listener on this machine
//! for the page of the gateway in its namespace.

use super::network::{ALARMS, MAIL, StoryNetwork, WITHIN, text};
use anyhow::Result;
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

/// Mails kept at the most, and octets of one.
const MAILS_MAX: usize = 16;
const MAIL_MAX: u64 = 65_536;
/// Connections of browsers at the most; further ones are closed.
const BROWSERS_MAX: usize = 16;

/// A mail server that takes every mail (RFC 5321), one connection after the other.
pub(super) struct MailSink {
    mails: Arc<Mutex<Vec<String>>>,
}

impl MailSink {
    /// Listens beside the CSE above.
    pub(super) fn start(network: &StoryNetwork) -> Result<Self> {
        let listener = network.above.run(|| TcpListener::bind(MAIL))??;
        let mails = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&mails);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // A client that breaks off is no mail.
                let Ok(mail) = take_mail(&stream) else { continue };
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() < MAILS_MAX {
                    kept.push(mail);
                }
            }
        });
        Ok(Self { mails })
    }

    /// The mails so far.
    pub(super) fn all(&self) -> Vec<String> {
        self.mails.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Speaks with a client until it has sent a mail.
fn take_mail(stream: &TcpStream) -> io::Result<String> {
    stream.set_read_timeout(Some(WITHIN))?;
    let mut out = stream;
    let mut lines = BufReader::new(stream.take(MAIL_MAX)).lines();
    let mut next = || lines.next().unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()));
    out.write_all(b"220 story\r\n")?;
    while !next()?.eq_ignore_ascii_case("DATA") {
        out.write_all(b"250 ok\r\n")?;
    }
    out.write_all(b"354 go on\r\n")?;
    let mut mail = String::new();
    loop {
        let line = next()?;
        if line == "." {
            out.write_all(b"250 taken\r\n")?;
            return Ok(mail);
        }
        mail.push_str(&line);
        mail.push('\n');
    }
}

/// Posts an alarm to the gateway's program; the status line of its answer.
pub(super) fn post(network: &StoryNetwork, body: &str) -> Result<String, String> {
    let request = format!(
        "POST /mail HTTP/1.1\r\nHost: {ALARMS}\r\nX-Mail-From: <monitor@ward.example>\r\n\
         X-Rcpt-To: <nurse@ward.example>\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let answer = network.gateway.run(|| -> io::Result<String> {
        let mut stream = TcpStream::connect(ALARMS)?;
        stream.set_read_timeout(Some(WITHIN))?;
        stream.write_all(request.as_bytes())?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(line.trim().to_owned())
    });
    let line = answer.map_err(text)?.map_err(text)?;
    if line.starts_with("HTTP/1.1 200") { Ok(line) } else { Err(line) }
}

/// Carries connections from a port of this machine's loopback to the page's Unix socket.
pub(super) struct PageProxy {
    address: SocketAddr,
}

impl PageProxy {
    pub(super) fn start(socket: PathBuf) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let open = Arc::new(());
        thread::spawn(move || {
            for browser in listener.incoming().map_while(Result::ok) {
                if Arc::strong_count(&open) <= BROWSERS_MAX {
                    let (socket, held) = (socket.clone(), Arc::clone(&open));
                    thread::spawn(move || {
                        // A browser, or a gateway, that goes away ends it.
                        let _gone = carry(&browser, &socket);
                        drop(held);
                    });
                }
            }
        });
        Ok(Self { address })
    }

    /// Whether the gateway answers there that it is ready.
    pub(super) fn is_ready(&self) -> io::Result<bool> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(WITHIN))?;
        let host = self.address;
        let request = format!("GET /readyz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(line.starts_with("HTTP/1.1 200"))
    }

    /// The page's address for a browser on this machine.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

fn carry(browser: &TcpStream, socket: &Path) -> io::Result<()> {
    let page = UnixStream::connect(socket)?;
    thread::scope(|scope| {
        let back = scope.spawn(|| {
            let copied = io::copy(&mut &page, &mut &*browser);
            browser.shutdown(Shutdown::Both).and(copied)
        });
        let there = io::copy(&mut &*browser, &mut &page);
        let ended = page.shutdown(Shutdown::Both);
        let copied = back.join().unwrap_or(Ok(0));
        there.and(copied).and(ended)
    })
}
