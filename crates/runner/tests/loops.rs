//! A relay of mail by the loops: what passes, what breaks, what is replaced while it runs.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    dead_code,
    unreachable_pub,
    reason = "a test may fail loudly, and uses its part of what the tests share"
)]

mod common;

use common::{Client, Fate, LIMIT, Server, compiled, program};
use gatewright_runner::{Runner, RunnerError, RunnerOptions};
use gatewright_testbed::{free_port, wait_until};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

fn options(next: SocketAddr, loops: usize) -> RunnerOptions {
    let addresses = vec![
        ("inside".to_owned(), "127.0.0.1:0".to_owned()),
        ("next".to_owned(), next.to_string()),
    ];
    RunnerOptions { loops, addresses, drain_within: LIMIT, ..RunnerOptions::default() }
}

fn relay(next: SocketAddr, loops: usize) -> Runner {
    Runner::start(&program("smtp_relay.gate"), options(next, loops)).unwrap()
}

fn inside(runner: &Runner) -> SocketAddr {
    runner.listening().iter().find(|it| it.role == "inside").unwrap().address
}

#[test]
fn mail_passes_by_several_loops() {
    let server = Server::start(|_| Fate::Taken);
    let runner = relay(server.address, 2);
    let at = inside(&runner);
    std::thread::scope(|scope| {
        for _client in 0..8 {
            scope.spawn(|| {
                for size in [0, 1, 4_000, 100_000] {
                    let mut client = Client::connect(at);
                    assert!(client.say("HELO me").starts_with("250"));
                    let body = "one line of sixty-four octets, with its end, for a long body..\r\n";
                    let verdict = client.mail(&body.repeat(size / body.len() + 1));
                    assert!(verdict.starts_with("250 taken"), "{verdict}");
                    assert!(client.say("QUIT").starts_with("221"));
                    assert_eq!(client.reply(), "");
                }
            });
        }
    });
    assert_eq!(server.taken(), 32);
    let report = runner.stop(Duration::ZERO);
    assert_eq!((report.loops, report.counters["accepted"]), (2, 32));
    assert_eq!(report.counters["accepts_refused"], 0);
}

#[test]
fn connections_to_the_next_server_serve_one_session_after_the_other() {
    let server = Server::start(|_| Fate::Taken);
    let runner = relay(server.address, 1);
    for _session in 0..20 {
        let mut client = Client::connect(inside(&runner));
        assert!(client.mail("hello").starts_with("250"));
        assert!(client.say("QUIT").starts_with("221"));
    }
    assert_eq!(server.taken(), 20);
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

/// The sender is told, and what it was told to be taken has been taken.
#[test]
fn a_server_that_dies_within_a_mail_is_told_and_nothing_acknowledged_is_lost() {
    let server = Server::start(|mail| match mail % 3 {
        0 => Fate::Taken,
        1 => Fate::CutAfter(1),
        _ => Fate::CutAfter(50_000),
    });
    let runner = relay(server.address, 1);
    let body = "0123456789abcdef\r\n".repeat(20_000);
    let acknowledged: usize = std::thread::scope(|scope| {
        let client = || {
            let mut acknowledged = 0;
            for _mail in 0..6 {
                let mut client = Client::connect(inside(&runner));
                let verdict = client.mail(&body);
                assert!(["250", "451"].contains(&&verdict[..3]), "{verdict}");
                acknowledged += usize::from(verdict.starts_with("250"));
            }
            acknowledged
        };
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    assert!(acknowledged > 0 && acknowledged < 24, "{acknowledged}");
    assert_eq!(server.taken(), u64::try_from(acknowledged).unwrap());
}

#[test]
fn a_server_that_is_not_there_is_told() {
    // Nobody listens at tcpmux (RFC 7805), and the system gives its port to nobody.
    let runner = relay(SocketAddr::from(([127, 0, 0, 1], 1)), 1);
    let mut client = Client::connect(inside(&runner));
    assert!(client.say("MAIL FROM:<a@x>").starts_with("451"));
    assert!(client.say("QUIT").starts_with("221"));
}

#[test]
fn a_name_is_resolved() {
    let server = Server::start(|_| Fate::Taken);
    let mut options = options(server.address, 1);
    options.addresses[1].1 = format!("localhost:{}", server.address.port());
    let runner = Runner::start(&program("smtp_relay.gate"), options).unwrap();
    assert!(Client::connect(inside(&runner)).mail("hello").starts_with("250"));
    assert_eq!(runner.report().counters["names_asked"], 1);
}

#[test]
fn a_program_is_replaced_under_load_and_nobody_notices() {
    let server = Server::start(|_| Fate::Taken);
    let mut runner = relay(server.address, 2);
    let at = inside(&runner);
    let text = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/gateways/smtp_relay.gate"
    ));
    let other =
        text.unwrap().replace("return reply(250, \"gatewright\")", "return reply(250, \"new\")");
    let other = compiled("other.gate", &other);
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    // A session of the first program, which outlives it.
    let mut old = Client::connect(at);
    assert_eq!(old.say("HELO me"), "250 gatewright\r\n");
    std::thread::scope(|scope| {
        for _client in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    let mut client = Client::connect(at);
                    let verdict = client.mail("hello");
                    assert!(verdict.starts_with("250"), "{verdict}");
                    sent.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let first = program("smtp_relay.gate");
        for program in [&other, &first, &other] {
            let before = sent.load(Ordering::SeqCst);
            assert!(wait_until(LIMIT, || sent.load(Ordering::SeqCst) >= before + 10));
            runner.replace(program).unwrap();
        }
        stop.store(true, Ordering::SeqCst);
    });
    assert_eq!(server.taken(), sent.load(Ordering::SeqCst));
    assert_eq!(Client::connect(at).say("HELO me"), "250 new\r\n");
    assert_eq!(old.say("HELO me"), "250 gatewright\r\n");
    assert!(old.mail("hello").starts_with("250"));
    assert_eq!(runner.report().counters["programs_replaced"], 6);
    drop(old);
    assert!(wait_until(LIMIT, || runner.report().draining == 0), "{:?}", runner.report());
}

#[test]
fn a_program_that_cannot_have_its_address_changes_nothing() {
    let server = Server::start(|_| Fate::Taken);
    let mut runner = relay(server.address, 1);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let again = Runner::start(
        &program("smtp_relay.gate"),
        RunnerOptions {
            addresses: vec![("inside".to_owned(), address.to_string())],
            ..options(server.address, 1)
        },
    );
    let error = again.unwrap_err();
    assert!(matches!(&error, RunnerError::Listen { role, .. } if role == "inside"), "{error}");
    let two = "use \"smtp.gate\"\ngateway two {\n role inside = smtp server at \"127.0.0.1:1\"\n \
               role web = smtp server at \"ADDRESS\"\n role next = smtp client to \"x:1\"\n"
        .replace("ADDRESS", &address.to_string());
    let text = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/gateways/smtp_relay.gate"
    ))
    .unwrap();
    let (_, handlers) = text.split_once("    on hello").unwrap();
    let (handlers, _) = handlers.split_once("test ").unwrap();
    let two = compiled("two.gate", &format!("{two}    on hello{handlers}"));
    let error = runner.replace(&two).unwrap_err();
    assert!(matches!(&error, RunnerError::Listen { role, .. } if role == "web"), "{error}");
    assert!(Client::connect(inside(&runner)).mail("hello").starts_with("250"));
}

/// Loops share an address by a means that would let two processes of one user share it, too.
#[test]
fn an_address_is_not_shared_with_another_runner() {
    let server = Server::start(|_| Fate::Taken);
    let mut again = options(server.address, 2);
    // A port that nobody else is given between the two.
    again.addresses[0].1 = format!("127.0.0.1:{}", free_port());
    let runner = Runner::start(&program("smtp_relay.gate"), again.clone()).unwrap();
    let error = Runner::start(&program("smtp_relay.gate"), again.clone()).unwrap_err();
    assert!(matches!(&error, RunnerError::Listen { role, .. } if role == "inside"), "{error}");
    // Sessions that were served leave nothing behind that would be in the way.
    assert!(Client::connect(inside(&runner)).mail("hello").starts_with("250"));
    runner.stop(Duration::ZERO);
    Runner::start(&program("smtp_relay.gate"), again).unwrap();
}

#[test]
fn the_end_waits_for_the_mail_that_is_on_its_way() {
    let server = Server::start(|_| Fate::Taken);
    let runner = relay(server.address, 1);
    let at = inside(&runner);
    let mut client = Client::connect(at);
    for command in ["MAIL FROM:<a@x>", "RCPT TO:<b@y>", "DATA"] {
        client.say(command);
    }
    let end = std::thread::spawn(move || runner.stop(LIMIT));
    assert!(wait_until(LIMIT, || std::net::TcpStream::connect(at).is_err()));
    assert!(client.say("hello\r\n.").starts_with("250 taken"));
    drop(client);
    let report = end.join().unwrap();
    assert_eq!(report.counters["drains_cut"], 0);
    assert_eq!(server.taken(), 1);
}

/// A body that comes as fast as it is taken is read in turns: between two questions to the kernel no
/// connection gives more than its share, so that others are heard.
#[test]
fn a_long_body_is_read_by_turns() {
    // A turn is 16 KiB, and ends with the read that reaches it; so do those of 64 KiB that follow.
    const READ: u64 = 8 << 10;
    const TURN: u64 = (16 << 10) + READ;
    const WAKEUP: u64 = 2 * TURN + (64 << 10) + TURN;
    const LINES: usize = 200_000;
    let server = Server::start(|_| Fate::Taken);
    let runner = relay(server.address, 1);
    let mut client = Client::connect(inside(&runner));
    let verdict = client
        .mail(&"one line of sixty-four octets, for a long body it is enough..\r\n".repeat(LINES));
    assert!(verdict.starts_with("250 taken"), "{verdict}");
    let counters = runner.report().counters;
    let (octets, wakeups) = (counters["octets_in"], counters["wakeups"]);
    assert!(octets > 12_000_000, "{octets}");
    assert!(octets <= (wakeups + 1) * WAKEUP, "{octets} octets in {wakeups} wake-ups");
}

/// Also a request whose handler waits for nothing takes time from its receipt to its answer.
#[test]
fn handlers_that_do_not_wait_take_time() {
    let server = Server::start(|_| Fate::Taken);
    let runner = relay(server.address, 1);
    let mut client = Client::connect(inside(&runner));
    for _request in 0..20 {
        assert!(client.say("HELO me").starts_with("250"));
    }
    // Times are counted once the answer is written, which the client may see first.
    let times = || {
        let handlers = runner.report().handlers;
        handlers.into_values().map(|of| of.times).find(|times| times.count() >= 20)
    };
    assert!(wait_until(LIMIT, || times().is_some()));
    let times = times().unwrap();
    assert!(times.quantile(1, 2).unwrap() > 0, "{:?}", times.buckets().collect::<Vec<_>>());
}
