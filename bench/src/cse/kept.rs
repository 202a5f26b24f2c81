//! What a CSE holds after it was killed and started again, compared with the creations that it
//! answered: one that stores nothing, or later, is not measured.

use super::load::{self, KEPT, NAMED, What};
use super::systems::System;
use super::{CONNECTIONS, DURATION};
use crate::process::text;
use bench::Bench;
use serde_json::Value;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;

/// Whoever is killed must have answered so many before, or nothing is shown.
const ANSWERED_LEAST: usize = 100;

/// Creations in one container that were answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered<'load> {
    /// The container, below the CSEBase.
    pub(super) container: &'load str,
    /// How many instances it had had before.
    pub(super) before: u64,
    /// Numbers of the requests.
    pub(super) numbers: &'load [u64],
}

/// Compares a container with all creations in it that were answered: their number by its stateTag,
/// which counts each, and the latest ones, which it keeps, each by its content.
///
/// Fails by the name of the container unless all are there.
pub(super) fn check(address: SocketAddr, answered: Answered<'_>) -> Result<(), String> {
    let now = check_count(address, answered)?;
    let Answered { container, numbers, .. } = answered;
    let told = |what: String| told(container, &what);
    let held = load::retrieve(address, &format!("/cse-in/{container}?rcn=4")).map_err(told)?;
    let held = contents(&held);
    let kept = usize::try_from(now).map_or(KEPT, |now| now.min(KEPT));
    if held.len() != kept {
        return Err(told(format!("{} different instances, not {kept}", held.len())));
    }
    let mut latest = numbers.to_vec();
    latest.sort_unstable();
    // Of those that were under way together, any may have been created first.
    let sure = KEPT.saturating_sub(2 * CONNECTIONS);
    let latest = latest.split_off(latest.len().saturating_sub(sure));
    match latest.iter().find(|number| !held.contains(load::text_of(**number).as_str())) {
        Some(number) => Err(told(format!("the instance of request {number} is not there"))),
        None => Ok(()),
    }
}

/// Compares only their number; how many instances the container has had.
pub(super) fn check_count(address: SocketAddr, answered: Answered<'_>) -> Result<u64, String> {
    let Answered { container, before, numbers } = answered;
    let now = load::state(address, container).map_err(|what| told(container, &what))?;
    let count = u64::try_from(numbers.len()).map_err(text)?;
    if now.saturating_sub(before) == count {
        return Ok(now);
    }
    let what = format!("{count} creations were answered, {now} less {before} are held");
    Err(told(container, &what))
}

fn told(container: &str, what: &str) -> String {
    format!("{container} after SIGKILL and a start: {what}")
}

/// The different contents of a container's instances.
fn contents(container: &Value) -> HashSet<&str> {
    let instances = container.pointer("/m2m:cnt/m2m:cin").and_then(Value::as_array);
    let contents = instances.into_iter().flatten().filter_map(|it| it.get("con")?.as_str());
    contents.collect()
}

/// Kills the CSE while it is loaded, starts it again, and retrieves every instance whose creation
/// it had answered.
fn killed_under_load(binary: &Path, folder: &Path, bench: &mut Bench) -> Result<(), String> {
    let mut ours = System::fresh(binary, folder)?;
    let container = format!(r#"{{"m2m:cnt":{{"rn":"{NAMED}","mni":10000000}}}}"#);
    load::make(ours.address, "/cse-in", 3, &container)?;
    let address = ours.address;
    let load = thread::spawn(move || load::until_gone(address, What::CreateNamed, CONNECTIONS));
    thread::sleep(bench.options().pick(DURATION, DURATION / 3));
    ours.kill()?;
    let numbers = load.join().map_err(|_| "the load has panicked".to_owned())??;
    if numbers.len() < ANSWERED_LEAST {
        return Err(format!("only {} creations were answered", numbers.len()));
    }
    ours.start_again()?;
    load::all_are_named(ours.address, &numbers)?;
    let count = u32::try_from(numbers.len()).map_err(text)?;
    bench.sample("killed_answered_and_held", "instances", count.into());
    Ok(())
}

/// Does so in each round.
pub(super) fn run(bench: &mut Bench, binary: &Path, folder: &Path) -> Result<(), String> {
    for _round in 0..bench.options().rounds() {
        killed_under_load(binary, folder, bench)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    /// A CSE that answers 2001 to everything and stores nothing: it holds what it was sent until it
    /// ends.
    struct Forgetful(SocketAddr);

    impl Forgetful {
        fn start() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let contents = Arc::new(Mutex::new(Vec::new()));
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let (stream, contents) = (stream.unwrap(), Arc::clone(&contents));
                    thread::spawn(move || serve(stream, &contents));
                }
            });
            Self(address)
        }
    }

    /// Answers until the peer goes.
    fn serve(stream: TcpStream, contents: &Mutex<Vec<Value>>) -> Option<()> {
        let mut stream = BufReader::new(stream);
        loop {
            let (mut first, mut length) = (String::new(), 0);
            stream.read_line(&mut first).ok().filter(|read| *read > 0)?;
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).ok()?;
                let Some((name, value)) = line.split_once(':') else { break };
                if name == "Content-Length" {
                    length = value.trim().parse().ok()?;
                }
            }
            let mut content = vec![0; length];
            stream.read_exact(&mut content).ok()?;
            let mut contents = contents.lock().unwrap();
            let (status, answer) = if first.starts_with("GET ") {
                let (state, kept) = (contents.len(), contents.len().min(KEPT));
                let kept: Vec<_> = contents.iter().rev().take(kept).collect();
                let answer = serde_json::json!({"m2m:cnt": {"st": state, "m2m:cin": kept}});
                ("200 OK", answer.to_string())
            } else {
                let content: Value = serde_json::from_slice(&content).ok()?;
                contents.extend(content.get("m2m:cin").cloned());
                ("201 Created", String::new())
            };
            drop(contents);
            let head = format!("HTTP/1.1 {status}\r\nX-M2M-RSC: 2001\r\nContent-Length: ");
            let answer = format!("{head}{}\r\n\r\n{answer}", answer.len());
            stream.get_mut().write_all(answer.as_bytes()).ok()?;
        }
    }

    const MOMENT: Duration = Duration::from_millis(100);

    #[test]
    fn a_cse_that_stores_nothing_is_refused_by_name_after_its_end() {
        let cse = Forgetful::start();
        let before = load::container(cse.0).unwrap();
        let made = load::run(cse.0, What::Create, CONNECTIONS, MOMENT).unwrap();
        let answered = Answered { container: "load", before, numbers: &made.numbers };
        assert_eq!(check(cse.0, answered), Ok(()), "it holds them while it runs");
        let after = check(Forgetful::start().0, answered).unwrap_err();
        let count = made.numbers.len();
        let why = format!("{count} creations were answered, 0 less 0 are held");
        assert_eq!(after, format!("load after SIGKILL and a start: {why}"));
    }

    #[test]
    fn as_many_instances_with_other_contents_are_refused() {
        let cse = Forgetful::start();
        let made = load::run(cse.0, What::Create, CONNECTIONS, MOMENT).unwrap();
        let mut numbers = made.numbers;
        let last = numbers.iter_mut().max().unwrap();
        *last += 1;
        let missing = *last;
        let answered = Answered { container: "load", before: 0, numbers: &numbers };
        let why = check(cse.0, answered).unwrap_err();
        assert!(why.contains(&format!("request {missing} is not there")), "{why}");
    }

    #[test]
    fn a_named_instance_that_is_not_there_is_refused() {
        let why = load::all_are_named(Forgetful::start().0, &[7]).unwrap_err();
        assert!(why.starts_with("instance n0000000000000007: "), "{why}");
    }

    #[test]
    fn a_cse_that_admits_everybody_guards_nothing() {
        let why = load::foreign_is_refused(Forgetful::start().0).unwrap_err();
        assert!(why.starts_with("Cforeign, whom no policy names, is not refused"), "{why}");
    }
}
