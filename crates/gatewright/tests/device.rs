//! `gatewright device simulate` against a listener and a CSE of ours, and against nobody; and the
//! ward.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_bindings::{cse, devices};
use gatewright_onem2m::CseType;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use std::io::Read;
use std::net::TcpListener;
use std::process::{Command, Stdio};

/// Exit code and answer of one run.
fn simulate(arguments: &str) -> (i32, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_gatewright"))
        .args(["device", "simulate", "--json"])
        .args(arguments.split_whitespace())
        .output()
        .unwrap();
    let answer = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code().unwrap(), answer)
}

#[test]
fn every_report_is_answered_and_every_value_stored() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (cse, listener) = runtime.block_on(async {
        let config = gatewright_onem2m::CseConfig::new(CseType::Middle, "/id-mn", "cse-mn");
        let cse = cse::start(cse::CseServerConfig::new(config)).await.unwrap();
        let config = devices::DevicesConfig::new(([127, 0, 0, 1], 0).into(), "cse-mn");
        let listener = devices::start(config, cse.engine().clone()).await.unwrap();
        (cse, listener)
    });
    let mut values = 0;
    for (kind, seed, faults) in
        [("thermometer", 1, "trailing,standing-number"), ("dispenser", 2, "unconfirmed")]
    {
        let to = listener.address();
        let (code, answer) = simulate(&format!(
            "--kind {kind} --count 5 --rate 10 --seconds 1 --seed {seed} --faults {faults} --to {to}"
        ));
        assert_eq!(code, 0, "{answer} {:?}", listener.counters());
        assert_eq!((&answer["devices"], &answer["unanswered"]), (&5.into(), &0.into()));
        // Fifty if the machine has time: what is due while it has none is left out.
        assert!(answer["measured"].as_u64() >= Some(5), "{answer}");
        assert_eq!(answer["answered"], answer["measured"]);
        let delay = |name: &str, at: usize| answer[name][at].as_f64().unwrap();
        assert!(
            (0..3).all(|at| delay("delay_from_due_ms", at) >= delay("late_ms", at)),
            "{answer}"
        );
        assert!(answer["noted"].as_u64() <= answer["answered"].as_u64(), "{answer}");
        values += answer["values"].as_u64().unwrap();
    }
    // Control messages among the data: each is answered, and no reading is lost or there twice.
    let (code, answer) = simulate(&format!(
        "--kind thermometer --count 5 --rate 10 --control-rate 10 --seconds 2 --seed 3 --to {}",
        listener.address()
    ));
    assert_eq!(code, 0, "{answer} {:?}", listener.counters());
    let [sent, asked, replied] = [0, 1, 2].map(|at| answer["control"][at].as_u64().unwrap());
    assert!(sent > 0 && asked == replied && asked < sent, "{answer}");
    assert!(answer["associations"].as_u64() > Some(5), "{answer}");
    values += answer["values"].as_u64().unwrap();
    assert_eq!(listener.counters().readings, values);
    for (name, stage) in listener.stages().each() {
        assert!(!stage.is_empty(), "{name}: {stage:?}");
    }
    runtime.block_on(async {
        listener.stop().await;
        cse.stop().await;
    });
}

/// Somebody who has seen enough still gets the summary.
#[test]
fn an_interrupted_simulation_tells_what_there_was() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = silent.local_addr().unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_gatewright"))
        .args([
            "device",
            "simulate",
            "--json",
            "--kind",
            "scale",
            "--seconds",
            "600",
            "--count",
            "2",
        ])
        .args(["--to", &to.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Both have sent something: their connections are counted, and signals are awaited.
    let connections = [(); 2].map(|()| {
        let (mut connection, _) = silent.accept().unwrap();
        connection.read_exact(&mut [0]).unwrap();
        connection
    });
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{answer}");
    assert_eq!((&answer["interrupted"], &answer["connections"]), (&true.into(), &2.into()));
    drop(connections);
}

#[test]
fn a_manager_that_is_silent_is_a_no_and_one_that_is_away_is_named() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = silent.local_addr().unwrap();
    let brief = "--kind scale --seconds 1 --patience 1 --to";
    let (code, answer) = simulate(&format!("{brief} {to}"));
    assert_eq!((code, &answer["passed"]), (1, &false.into()), "{answer}");
    drop(silent);
    let (code, answer) = simulate(&format!("{brief} {to}"));
    assert_eq!((code, &answer["connections"]), (69, &0.into()), "{answer}");
    assert!(answer["refused"].as_str().unwrap().contains("refused"), "{answer}");
}

#[test]
fn what_is_no_kind_no_fault_and_no_rate_is_wrong_usage() {
    for arguments in [
        "",
        "--kind teapot",
        "--kind scale --faults broken",
        "--kind scale --rate 0",
        "--kind scale --count 0",
        "--kind scale --to nowhere",
    ] {
        assert_eq!(simulate(arguments).0, 2, "{arguments}");
    }
}

#[test]
fn the_ward_loses_nothing_and_shows_nothing_twice() {
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatewright"));
        command.args(["demo", "ward", "--seconds"]).args(arguments).output().unwrap()
    };
    let output = run(&["4", "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{answer}");
    // Three devices in four seconds; how many fewer is up to the machine.
    assert!(answer["sent"].as_u64() > Some(3), "{answer}");
    assert_eq!(answer["stored"], answer["sent"]);
    assert_eq!(answer["received"], answer["sent"]);
    assert_eq!((&answer["kills"], &answer["twice"]), (&1.into(), &0.into()), "{answer}");
    assert!(answer["waited"].as_u64() > Some(0), "{answer}");
    assert_eq!(answer["devices"].as_array().unwrap().len(), 3);
    assert_eq!(run(&["0"]).status.code(), Some(2));
}
