//! A load generator: `load URL create|retrieve CONNECTIONS SECONDS`. It makes a container below
//! the CSEBase as `CAdmin`, then creates contentInstances of 300 octets in it, or retrieves its
//! latest, over connections that are kept. It prints what was answered a second, and what it
//! cost this process.

use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Octets of content in each instance.
const CONTENT_OCTETS: usize = 300;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, what, connections, seconds] = arguments.as_slice() else {
        return Err("load URL create|retrieve CONNECTIONS SECONDS".into());
    };
    let host = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let (connections, seconds): (u64, u64) = (connections.parse()?, seconds.parse()?);
    let container = r#"{"m2m:cnt":{"rn":"load","mni":1000}}"#;
    let make = message(&host, "POST", "/cse-in", "make", Some((3, container)));
    exchange(&mut TcpStream::connect(&host).await?, &make, &mut Vec::new()).await?;
    let (answered, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let stop = Arc::new(AtomicBool::new(false));
    let creates = what == "create";
    let mut tasks = Vec::new();
    let begun = Instant::now();
    for connection in 0..connections {
        let (host, answered, refused) = (host.clone(), Arc::clone(&answered), Arc::clone(&refused));
        let stop = Arc::clone(&stop);
        tasks.push(tokio::spawn(async move {
            let mut stream = TcpStream::connect(&host).await?;
            stream.set_nodelay(true)?;
            let content = format!(r#"{{"m2m:cin":{{"con":"{}"}}}}"#, "x".repeat(CONTENT_OCTETS));
            let mut buffer = Vec::new();
            for number in 0_u64.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let id = format!("{connection}-{number}-{:?}", begun.elapsed().as_micros());
                let request = if creates {
                    message(&host, "POST", "/cse-in/load?rcn=0", &id, Some((4, &content)))
                } else {
                    message(&host, "GET", "/cse-in/load/la", &id, None)
                };
                if exchange(&mut stream, &request, &mut buffer).await? {
                    answered.fetch_add(1, Ordering::Relaxed);
                } else {
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok::<(), std::io::Error>(())
        }));
    }
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    stop.store(true, Ordering::Relaxed);
    let elapsed = begun.elapsed();
    for task in tasks {
        task.await??;
    }
    let (answered, refused) = (answered.load(Ordering::Relaxed), refused.load(Ordering::Relaxed));
    let rate = u128::from(answered) * 1_000_000 / elapsed.as_micros().max(1);
    writeln!(std::io::stdout(), "{what}: {rate}/s answered, {refused} refused")?;
    Ok(())
}

fn message(host: &str, method: &str, path: &str, id: &str, content: Option<(u16, &str)>) -> String {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nX-M2M-Origin: CAdmin\r\nX-M2M-RI: {id}\r\n\
         X-M2M-RVI: 4\r\n"
    );
    match content {
        None => format!("{head}\r\n"),
        Some((kind, content)) => format!(
            "{head}Content-Type: application/json;ty={kind}\r\nContent-Length: {}\r\n\r\n{content}",
            content.len()
        ),
    }
}

/// Sends a request and reads the whole answer; whether it was good. A peer that closes after
/// each answer is connected to again.
async fn exchange(
    stream: &mut TcpStream,
    request: &str,
    buffer: &mut Vec<u8>,
) -> std::io::Result<bool> {
    buffer.clear();
    stream.write_all(request.as_bytes()).await?;
    loop {
        let read = stream.read_buf(buffer).await?;
        if let Some(head) = find(buffer, b"\r\n\r\n") {
            let text = String::from_utf8_lossy(buffer.get(..head).unwrap_or_default());
            let text = text.to_ascii_lowercase();
            let length = text
                .lines()
                .find_map(|line| line.strip_prefix("content-length:"))
                .and_then(|length| length.trim().parse::<usize>().ok())
                .unwrap_or(0);
            if buffer.len() >= head + 4 + length {
                let good = text.get(9..10) == Some("2");
                if text.contains("connection: close") {
                    *stream = TcpStream::connect(stream.peer_addr()?).await?;
                }
                return Ok(good);
            }
        }
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

fn find(octets: &[u8], wanted: &[u8]) -> Option<usize> {
    octets.windows(wanted.len()).position(|window| window == wanted)
}
