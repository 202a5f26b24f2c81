//! What originators are told of a container is linearisable: several clients ask a CSE at the same
//! time over HTTP, and some order of their requests, each between its call and its answer, explains
//! every answer. The same with kill -9 of the CSE in between: what was told, a read included, is in
//! all that is read later, and a request that is repeated because its answer was lost is done once.
//!
//! The CSE is this same program as a child.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]
#![allow(unreachable_pub, reason = "modules of a program")]

mod history;

use gatewright_bindings::cse::{CseServerConfig, start};
use gatewright_onem2m::CseType;
use history::{Event, KEPT, Request, Told, is_linearisable};
use libtest_mimic::{Arguments, Trial};
use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const DATABASE: &str = "GATEWRIGHT_LINEAR_DATABASE";
const PORT: &str = "GATEWRIGHT_LINEAR_PORT";
/// Rounds of a test, each with its own seed and containers.
const ROUNDS: u64 = 10;
const CLIENTS: usize = 5;
const CONTAINERS: usize = 3;
/// Requests of each client to each container.
const REQUESTS: usize = 20;
/// How often the CSE is killed in a round.
const KILLS: usize = 2;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_mins(2);

fn main() -> ExitCode {
    if let Some(database) = std::env::var_os(DATABASE) {
        let port = std::env::var(PORT).unwrap().parse().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(be_cse(database.into(), port));
        return ExitCode::SUCCESS;
    }
    let test = |name: &str, run: fn()| {
        Trial::test(name, move || {
            run();
            Ok(())
        })
    };
    let trials = vec![
        test("histories_of_known_verdict", history::verdicts),
        test("concurrent_requests_are_linearisable", || rounds("beside", 0)),
        test("so_they_are_over_kill_9", || rounds("killed", KILLS)),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

async fn be_cse(database: PathBuf, port: u16) {
    let mut cse = gatewright_onem2m::CseConfig::new(CseType::Infrastructure, "/id-in", "cse-in");
    cse.admin = Some("CAdmin".to_owned());
    let mut config = CseServerConfig::new(cse);
    config.store = Some(database);
    config.listen = vec![(Ipv4Addr::LOCALHOST, port).into()];
    let _running = start(config).await.unwrap();
    core::future::pending::<()>().await;
}

/// A child that does not outlive the test, however that ends.
struct Cse(Child);

impl Cse {
    fn start(place: &Path, port: u16) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(DATABASE, place.join("cse.db")).env(PORT, port.to_string());
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Cse {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Random numbers from a seed (xorshift64*, Marsaglia 2003, Vigna 2016).
struct Random(u64);

impl Random {
    const fn new(seed: u64) -> Self {
        // No seed of 0, and neighbours far from each other.
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(number).unwrap() % end
    }

    fn request(&mut self, content: u32) -> Request {
        match self.below(18) {
            0..=1 => Request::Make,
            2..=3 => Request::Label(content),
            4..=5 => Request::Read,
            6 => Request::Remove,
            7..=10 => Request::Push(content),
            11..=12 => Request::Latest,
            13 => Request::Oldest,
            14..=15 => Request::TakeOldest,
            _ => Request::Whole,
        }
    }
}

/// One client: it has one request under way at a time.
struct Client {
    name: String,
    number: usize,
    address: SocketAddr,
    stream: Option<TcpStream>,
    random: Random,
    began: Instant,
    asked: u32,
}

impl Client {
    /// Asks until there is an answer; where the CSE is killed meanwhile, it may leave it at that.
    fn ask(&mut self, container: &str, request: Request) -> Event {
        self.asked += 1;
        let id = format!("{}-{}", self.name, self.asked);
        let octets = http(container, request, &id);
        let called = self.began.elapsed();
        let event = |told, ended| Event { client: self.number, request, called, ended, told };
        loop {
            match exchange(&mut self.stream, self.address, &octets) {
                Ok((status, content)) => {
                    let told = read(request, status, &content);
                    return event(Some(told), self.began.elapsed());
                }
                // Its sockets are closed when none of its threads does anything any more.
                Err(Failure::After) if self.random.below(2) == 0 => {
                    return event(None, self.began.elapsed());
                }
                Err(Failure::Before | Failure::After) => {}
            }
            assert!(self.began.elapsed() < PATIENCE, "nobody answers");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// When a connection failed: before the request was sent, or after that.
enum Failure {
    Before,
    After,
}

/// Sends a request and reads its answer.
fn exchange(
    stream: &mut Option<TcpStream>,
    address: SocketAddr,
    octets: &str,
) -> Result<(u16, String), Failure> {
    let connected = match stream.take() {
        Some(connected) => connected,
        None => TcpStream::connect(address).map_err(|_| Failure::Before)?,
    };
    let answer = answer(&connected, octets).map_err(|_| Failure::After)?;
    *stream = Some(connected);
    Ok(answer)
}

fn answer(mut stream: &TcpStream, octets: &str) -> io::Result<(u16, String)> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(octets.as_bytes())?;
    let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        read.extend_from_slice(&buffer[..length]);
        let text = String::from_utf8_lossy(&read);
        let Some((head, content)) = text.split_once("\r\n\r\n") else { continue };
        let head = head.to_ascii_lowercase();
        let octets = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let octets: usize = octets.map_or(0, |octets| octets.trim().parse().unwrap());
        if content.len() >= octets {
            let status = head.split(' ').nth(1).unwrap().parse().unwrap();
            return Ok((status, content.to_owned()));
        }
    }
}

/// The request as octets.
fn http(container: &str, request: Request, id: &str) -> String {
    let path = format!("/cse-in/{container}");
    let (method, target, kind, body) = match request {
        Request::Make => {
            let body = format!(r#"{{"m2m:cnt":{{"rn":"{container}","mni":{KEPT}}}}}"#);
            ("POST", "/cse-in?rcn=0".to_owned(), ";ty=3", body)
        }
        Request::Label(label) => {
            let body = format!(r#"{{"m2m:cnt":{{"lbl":["{label}"]}}}}"#);
            ("PUT", format!("{path}?rcn=0"), "", body)
        }
        Request::Push(content) => {
            let body = format!(r#"{{"m2m:cin":{{"con":"{content}"}}}}"#);
            ("POST", path, ";ty=4", body)
        }
        Request::Remove => ("DELETE", path, "", String::new()),
        Request::TakeOldest => ("DELETE", format!("{path}/ol?rcn=1"), "", String::new()),
        Request::Read => ("GET", path, "", String::new()),
        Request::Latest => ("GET", format!("{path}/la"), "", String::new()),
        Request::Oldest => ("GET", format!("{path}/ol"), "", String::new()),
        Request::Whole => ("GET", format!("{path}?rcn=4"), "", String::new()),
    };
    let mut text = format!(
        "{method} {target} HTTP/1.1\r\nHost: x\r\nX-M2M-Origin: CAdmin\r\nX-M2M-RI: {id}\r\n\
         X-M2M-RVI: 4\r\n"
    );
    if !body.is_empty() {
        let length = body.len().to_string();
        text += ["Content-Type: application/json", kind, "\r\nContent-Length: ", &length, "\r\n"]
            .concat()
            .as_str();
    }
    text + "\r\n" + &body
}

/// What an answer says.
fn read(request: Request, status: u16, content: &str) -> Told {
    match status {
        404 => return Told::NotFound,
        409 => return Told::Conflict,
        200 | 201 => {}
        _ => panic!("{request:?}: {status} {content}"),
    }
    let json = || -> Value { serde_json::from_str(content).unwrap() };
    let number = |value: &Value| value.as_str().unwrap().parse::<u32>().unwrap();
    let label = |container: &Value| container["lbl"].get(0).map(number);
    match request {
        Request::Make | Request::Label(_) | Request::Remove | Request::Push(_) => Told::Done,
        Request::Latest | Request::Oldest | Request::TakeOldest => {
            Told::Instance(number(&json()["m2m:cin"]["con"]))
        }
        Request::Read => {
            let container = &json()["m2m:cnt"];
            let count = usize::try_from(container["cni"].as_u64().unwrap()).unwrap();
            Told::Container { label: label(container), count }
        }
        Request::Whole => {
            let container = &json()["m2m:cnt"];
            let instances = container["m2m:cin"].as_array();
            let contents = instances.into_iter().flatten().map(|it| number(&it["con"])).collect();
            Told::Whole { label: label(container), contents }
        }
    }
}

fn rounds(name: &str, kills: usize) {
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("linear-{name}"));
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(&place).unwrap();
    let port = gatewright_testbed::free_port();
    let mut cse = Cse::start(&place, port);
    for seed in 0..ROUNDS {
        for (container, events) in round(&mut cse, (&place, port), seed, kills) {
            let unanswered = events.iter().filter(|event| event.told.is_none()).count();
            assert!(kills > 0 || unanswered == 0, "{unanswered} without an answer");
            assert!(
                is_linearisable(&events),
                "seed {seed}, {container}: no order of these explains the answers\n{events:#?}"
            );
        }
    }
}

/// Has all clients ask at once; what each container was asked and each client was told.
fn round(
    cse: &mut Cse,
    (place, port): (&Path, u16),
    seed: u64,
    kills: usize,
) -> Vec<(String, Vec<Event>)> {
    let names: Vec<String> = (0..CONTAINERS).map(|at| format!("c{seed}-{at}")).collect();
    let (began, done) = (Instant::now(), AtomicUsize::new(0));
    let mut histories: Vec<_> = names.iter().map(|name| (name.clone(), Vec::new())).collect();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let client = Client {
                    name: format!("{seed}-{number}"),
                    number,
                    address: (Ipv4Addr::LOCALHOST, port).into(),
                    stream: None,
                    random: Random::new(seed << 8 | u64::try_from(number).unwrap()),
                    began,
                    asked: 0,
                };
                let (names, done) = (&names, &done);
                scope.spawn(move || play(client, names, done))
            })
            .collect();
        let mut random = Random::new(!seed);
        for kill in 0..kills {
            let all = CLIENTS * CONTAINERS * REQUESTS;
            let share = all / kills;
            let at = share * kill + random.below(share);
            while done.load(Ordering::Relaxed) < at && began.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_micros(200));
            }
            cse.kill();
            *cse = Cse::start(place, port);
        }
        for client in clients {
            for (container, event) in client.join().unwrap() {
                histories[container].1.push(event);
            }
        }
    });
    histories
}

/// One client's requests, to the containers in any order.
fn play(mut client: Client, names: &[String], done: &AtomicUsize) -> Vec<(usize, Event)> {
    let mut left = [REQUESTS; CONTAINERS];
    let mut events = Vec::new();
    while left.iter().any(|left| *left > 0) {
        let container = client.random.below(CONTAINERS);
        if left[container] == 0 {
            continue;
        }
        left[container] -= 1;
        let content = u32::try_from(client.number * 1_000_000 + events.len()).unwrap();
        let request = client.random.request(content);
        events.push((container, client.ask(&names[container], request)));
        done.fetch_add(1, Ordering::Relaxed);
    }
    events
}
