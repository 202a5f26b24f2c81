//! From an MN-CSE to an IN-CSE, with kill -9 of either under load at ten points: the names that
//! the MN accepted are the names stored at the IN, each once.
//!
//! Both are this same program as children. The MN child posts a message for each name that comes
//! in on standard input, and says the name when it was accepted; at the end it waits until every
//! message has arrived.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

use core::time::Duration;
use gatewright_bindings::client::Client;
use gatewright_bindings::cse::{CseServerConfig, start};
use gatewright_onem2m::{CseType, Operation, OutboxMessage, Request, ResourceType, Status};
use libtest_mimic::{Arguments, Trial};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

const ROLE: &str = "GATEWRIGHT_CHAIN_ROLE";
const DATABASE: &str = "GATEWRIGHT_CHAIN_DATABASE";
const PORT: &str = "GATEWRIGHT_CHAIN_PORT";
/// Names that go through the chain.
const NAMES: usize = 1_500;
/// Times that one of the two is killed.
const KILLS: usize = 10;
/// Queues that the messages are spread over, as those of several devices.
const QUEUES: usize = 8;
/// Letters whose acceptance is waited for at once.
const AT_ONCE: usize = 16;

fn main() -> ExitCode {
    let role = std::env::var(ROLE);
    if let Ok(role) = role {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            match role.as_str() {
                "in" => be_in().await,
                _ => be_mn().await,
            }
        });
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::from_args();
    let trial = Trial::test("nothing_lost_and_nothing_twice_over_kill_9_of_either", || {
        chain();
        Ok(())
    });
    libtest_mimic::run(&arguments, vec![trial]).exit_code()
}

fn config(kind: CseType, id: &str, name: &str) -> CseServerConfig {
    let mut cse = gatewright_onem2m::CseConfig::new(kind, id, name);
    cse.admin = Some("CAdmin".to_owned());
    let mut config = CseServerConfig::new(cse);
    config.store = std::env::var_os(DATABASE).map(PathBuf::from);
    config
}

fn port() -> u16 {
    std::env::var(PORT).unwrap().parse().unwrap()
}

async fn be_in() {
    let mut config = config(CseType::Infrastructure, "/id-in", "cse-in");
    config.listen = vec![([127, 0, 0, 1], port()).into()];
    let _running = start(config).await.unwrap();
    core::future::pending::<()>().await;
}

async fn be_mn() {
    let running = start(config(CseType::Middle, "/id-mn", "cse-mn")).await.unwrap();
    loop {
        let group = tokio::task::spawn_blocking(|| -> Vec<String> {
            std::io::stdin().lock().lines().take(AT_ONCE).map(Result::unwrap).collect()
        });
        let group = group.await.unwrap();
        if group.is_empty() {
            break;
        }
        let mut posted = Vec::new();
        for name in &group {
            let content = format!(r#"{{"m2m:cin":{{"rn":"{name}","con":"{name}"}}}}"#);
            let request =
                Request::new(Operation::Create, "/id-in/cse-in/c", "CAdmin", name.as_str())
                    .creating(ResourceType::ContentInstance, content);
            let number: usize = name.trim_start_matches('n').parse().unwrap();
            let message = OutboxMessage {
                queue: format!("device/{}", number % QUEUES).into(),
                target: format!("http://127.0.0.1:{}", port()).into(),
                request: request.into(),
                keep: None,
                batch: None,
            };
            posted.push((name, running.engine().post(message)));
        }
        let mut out = Vec::new();
        for (name, accepted) in posted {
            match accepted.await.unwrap().status {
                Status::Accepted => writeln!(out, "{name}").unwrap(),
                // As many wait as may: asked again later.
                Status::TargetNotReachable => {}
                other => panic!("{name}: {other:?}"),
            }
        }
        std::io::stdout().write_all(&out).unwrap();
    }
    while running.engine().messages_waiting() > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    running.stop().await;
}

/// A child that does not outlive the test, however that ends.
struct Kept(Child);

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(role: &str, place: &Path, port: u16) -> Kept {
    let child = Command::new(std::env::current_exe().unwrap())
        .env(ROLE, role)
        .env(DATABASE, place.join(format!("{role}.db")))
        .env(PORT, port.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    Kept(child)
}

fn kill(Kept(child): &mut Kept) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Asks the IN until it is there and answers.
fn ask_in(
    runtime: &tokio::runtime::Runtime,
    port: u16,
    kind: Option<ResourceType>,
    to: &str,
) -> String {
    let client = Client::new(format!("http://127.0.0.1:{port}"), "CAdmin", format!("{to}{kind:?}"));
    let mut last = None;
    for _ in 0..600 {
        let answer = runtime.block_on(async {
            match kind {
                Some(kind) => client.create(to, kind, r#"{"m2m:cnt":{"rn":"c"}}"#).await,
                None => client.get(to).await,
            }
        });
        match answer {
            Ok(answer) if answer.status.is_success() => {
                return answer.content.unwrap_or_default().to_string();
            }
            other => last = Some(other),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("the IN does not answer {to}: {last:?}");
}

fn chain() {
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("chain");
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(&place).unwrap();
    let port = gatewright_testbed::free_port();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut upper = spawn("in", &place, port);
    ask_in(&runtime, port, Some(ResourceType::Container), "cse-in");
    let mut wanted: BTreeSet<String> = (0..NAMES).map(|number| format!("n{number:05}")).collect();
    let mut accepted = BTreeSet::new();
    let mut kills = 0;
    for round in 0..=KILLS {
        let mut lower = spawn("mn", &place, port);
        let mut input = lower.0.stdin.take();
        let mut lines = BufReader::new(lower.0.stdout.take().unwrap()).lines();
        // The last round goes on to the end; the IN is away for a while in the odd ones.
        let (down_at, kill_at) = if round < KILLS { (2, 4 + round % 5) } else { (9, usize::MAX) };
        for group in 0.. {
            if round % 2 == 1 && group == down_at {
                kill(&mut upper);
            }
            let names: Vec<String> = wanted.iter().take(AT_ONCE).cloned().collect();
            let text: String = names.iter().flat_map(|name| [name, "\n"]).collect();
            if names.is_empty() {
                break;
            }
            input.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
            if names.len() < AT_ONCE {
                // The child takes full groups, or what is left at the end.
                drop(input.take());
            }
            if group == kill_at {
                // With messages under way, and some perhaps stored and not yet said.
                lower.0.kill().unwrap();
                kills += 1;
            }
            let said: Vec<String> =
                lines.by_ref().take(names.len()).map_while(Result::ok).collect();
            for name in said {
                assert!(wanted.remove(&name), "{name} was accepted before");
                accepted.insert(name);
            }
            if group == kill_at {
                break;
            }
        }
        if round % 2 == 1 {
            upper = spawn("in", &place, port);
        }
        drop(input.take());
        let status = lower.0.wait().unwrap();
        assert_eq!(status.success(), round == KILLS, "round {round}: {status}");
    }
    assert_eq!(kills, KILLS);
    assert!(wanted.is_empty(), "{} were never accepted", wanted.len());
    let found = ask_in(&runtime, port, None, "cse-in/c?fu=1&ty=4");
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    let stored: Vec<String> = found["m2m:uril"]
        .as_array()
        .unwrap()
        .iter()
        .map(|path| path.as_str().unwrap().rsplit('/').next().unwrap().to_owned())
        .collect();
    kill(&mut upper);
    let set: BTreeSet<String> = stored.iter().cloned().collect();
    assert_eq!(stored.len(), set.len(), "each once");
    assert_eq!(set, accepted);
    std::fs::remove_dir_all(place).unwrap();
}
