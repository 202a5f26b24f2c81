//! Replays the committed corpus of each target, and octets that nobody chose.
#![allow(clippy::expect_used, reason = "a test may fail loudly")]

use fuzz_targets::TARGETS;
use std::{fs, path::Path};

#[test]
fn every_input_of_the_corpus_is_survived() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus");
    for (name, target) in TARGETS {
        let mut inputs = 0;
        for entry in fs::read_dir(corpus.join(name)).expect("each target has a corpus") {
            target(&fs::read(entry.expect("a file").path()).expect("readable"));
            inputs += 1;
        }
        assert!(inputs > 0, "the corpus of {name} is empty");
    }
}

/// Every target survives octets at random, cut and repeated.
#[test]
fn octets_that_nobody_chose_are_survived() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut octets = Vec::new();
    for round in 0..100 {
        for _ in 0..round % 40 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            octets.extend_from_slice(&state.to_be_bytes());
        }
        octets.truncate(round * 7);
        for (_, target) in TARGETS {
            target(&octets);
        }
    }
}

/// The fuzzer runs what is replayed here: each target has its file there.
#[test]
fn each_target_can_be_fuzzed() {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz_targets");
    for (name, _) in TARGETS {
        assert!(files.join(format!("{name}.rs")).exists(), "{name} has no file");
    }
}

/// Gateway programs survive whatever happens to them: events that nobody chose, thousands of runs.
#[test]
fn events_that_nobody_chose_leave_nothing_behind() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..ROUNDS {
        let length = 20 + round * 3;
        let octets: Vec<u8> = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_be_bytes()[3]
        })
        .take(length)
        .collect();
        fuzz_targets::machine(&octets);
    }
}

/// Runs with events at random: some seconds of them.
const ROUNDS: usize = 500;
