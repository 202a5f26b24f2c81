//! Agents on loopback that are not what they should be: each is said in the report.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use gatewright_config::{AgentExperiment, parse_agent_experiment};
use gatewright_diagnostic::SourceId;
use gatewright_lab::Covariates;
use gatewright_lab::agent::{
    AgentAnswer, AgentChannel, AgentClock, AgentDescription, AgentRequest, AgentRun, AgentSamples,
    AgentSetup, run_between_agents, serve_agent, wall_clock,
};
use gatewright_lab::report::{agents_csv, agents_html};
use gatewright_lab::stamp::StampKey;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// An address where a reflector can be.
fn free() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn key() -> StampKey {
    StampKey::new(b"a secret of the test")
}

fn experiment(left: SocketAddr, right: SocketAddr, repeats: u32) -> AgentExperiment {
    let text = format!(
        "title = 't'\nkey_file = 'k'\noctets = [112]\nrate = [500]\nseconds = 0.1\n\
         repeats = {repeats}\nsteady_pct = 100.0\n\
         [[agent]]\nname = 'left'\naddress = '{left}'\n[[agent]]\nname = 'right'\n\
         address = '{right}'\n[[session]]\nfrom = 'left'\nto = 'right'\n"
    );
    parse_agent_experiment(SourceId::default(), &text).unwrap()
}

/// Runs `experiment` with a true agent on the right, and what `left` does on the left.
fn with_left(
    repeats: u32,
    left: impl FnOnce(&TcpListener, SocketAddr, &dyn Fn() -> bool) + Send,
) -> AgentRun {
    let [near, far] = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let [left_at, right_at] = [&near, &far].map(|it| it.local_addr().unwrap());
    let (reflector, stop) = (free(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let is_stop_requested = || stop.load(Ordering::Relaxed);
        scope.spawn(move || left(&near, reflector, &is_stop_requested));
        scope.spawn(|| {
            let (reflect, send_to) = (Some(reflector), Vec::new());
            let setup = AgentSetup { key: key(), reflect, send_to, clock: wall_clock };
            serve_agent(&far, &setup, &|| stop.load(Ordering::Relaxed)).unwrap();
        });
        let run = run_between_agents(&experiment(left_at, right_at, repeats), &key(), &mut |_| {});
        stop.store(true, Ordering::Relaxed);
        run
    })
}

/// A clock that leaps by a second after it was read a hundred times.
fn leaping() -> u64 {
    static READ: AtomicU64 = AtomicU64::new(0);
    let leap = if READ.fetch_add(1, Ordering::Relaxed) < 100 { 0 } else { 1_000_000_000 };
    wall_clock() + leap
}

#[test]
fn a_clock_that_leaps_is_found() {
    let run = with_left(3, |listener, to, is_stop_requested| {
        let (reflect, send_to) = (None, vec![to]);
        let setup = AgentSetup { key: key(), reflect, send_to, clock: leaping };
        serve_agent(listener, &setup, is_stop_requested).unwrap();
    });
    assert_eq!((run.conditions[0].sent, run.conditions[0].received), (150, 150), "{run:?}");
    let leapt: Vec<&String> =
        run.findings.iter().filter(|it| it.contains("the clock of left leapt by")).collect();
    assert_eq!(leapt.len(), 1, "{:?}", run.findings);
    let micros = leapt[0].split("leapt by ").nth(1).unwrap().split(' ').next().unwrap();
    assert!((micros.parse::<f64>().unwrap() - 1e6).abs() < 50_000.0, "{}", leapt[0]);
    assert!(!run.findings.iter().any(|it| it.contains("of right")), "{:?}", run.findings);
    for text in [agents_html(&run), agents_csv(&run)] {
        assert!(text.contains("left") && text.len() < 100_000);
    }
    assert!(agents_html(&run).contains("the clock of left leapt by"));
}

/// Who has no key and says nothing keeps away nobody who has it.
#[test]
fn silent_connections_keep_no_coordinator_away() {
    let mut silent = Vec::new();
    let run = with_left(1, |listener, to, is_stop_requested| {
        let at = listener.local_addr().unwrap();
        silent.extend((0..40).map(|_| TcpStream::connect(at).unwrap()));
        let setup = AgentSetup { key: key(), reflect: None, send_to: vec![to], clock: wall_clock };
        let counters = serve_agent(listener, &setup, is_stop_requested).unwrap();
        assert_eq!(counters.coordinators, 1);
    });
    assert_eq!(run.machines[0].ended, None, "{run:?}");
    assert_eq!((run.conditions[0].sent, run.conditions[0].received), (50, 50), "{run:?}");
}

/// Of more silent connections than are kept, the oldest go.
#[test]
fn the_oldest_silent_connections_are_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (at, stop) = (listener.local_addr().unwrap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let agent = scope.spawn(|| {
            let setup =
                AgentSetup { key: key(), reflect: None, send_to: Vec::new(), clock: wall_clock };
            serve_agent(&listener, &setup, &|| stop.load(Ordering::Relaxed)).unwrap()
        });
        let mut silent: Vec<_> = (0..70).map(|_| TcpStream::connect(at).unwrap()).collect();
        // Each is greeted; the first ones are closed for the last.
        for stream in &mut silent[..6] {
            let mut greeting = Vec::new();
            stream.read_to_end(&mut greeting).unwrap();
        }
        AgentChannel::connect(TcpStream::connect(at).unwrap(), &key(), [3; 32]).unwrap();
        stop.store(true, Ordering::Relaxed);
        agent.join().unwrap();
    });
}

/// It sends nothing, and says that most came back.
fn lie(listener: &TcpListener) {
    let mut channel = AgentChannel::accept(listener.accept().unwrap().0, &key(), [9; 32]).unwrap();
    while let Ok(octets) = channel.receive(std::time::Duration::from_secs(20), &|| false) {
        let received = wall_clock();
        let answer = match AgentRequest::parse(&octets).unwrap() {
            AgentRequest::Describe => AgentAnswer::Description(AgentDescription::default()),
            AgentRequest::Clock => AgentAnswer::Clock(AgentClock { received, sent: wall_clock() }),
            AgentRequest::Begin => AgentAnswer::Begun,
            AgentRequest::Covariates => AgentAnswer::Covariates(Covariates::default()),
            AgentRequest::Send(_) => AgentAnswer::Sent(AgentSamples {
                sent: 49,
                reached: 48,
                samples: vec![(10.0, 1.0, 12.0); 48],
                ..AgentSamples::default()
            }),
            AgentRequest::Reflect | AgentRequest::StopReflecting => {
                AgentAnswer::Refused("it has no reflector".to_owned())
            }
        };
        channel.send(&answer.octets()).unwrap();
    }
}

#[test]
fn an_agent_that_lies_about_its_count_is_found() {
    let run = with_left(1, |listener, _, _| lie(listener));
    let findings = run.findings.join("\n");
    for wanted in [
        "left was asked for 50 packets and says it sent 49",
        "right says it reflected 0 packets; left has 48 back, with numbers up to 48",
    ] {
        assert!(findings.contains(wanted), "{findings}");
    }
    assert_eq!(run.machines[0].ended, None, "it took part to the end");
}
