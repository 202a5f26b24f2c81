//! Octets choose a gateway program and what happens to it; native, C (with the address sanitizer)
//! and Java do the same about it, and give back all that they took.
//!
//! The programs are compiled once, at the start: gcc and a JDK have to be there. What is fuzzed here
//! is replayed by `crates/emit/tests`, whose modules these are.
#![no_main]

#[path = "../../crates/emit/tests/build/mod.rs"]
mod build;
#[path = "../../crates/emit/tests/gateways/mod.rs"]
mod gateways;
#[path = "../../crates/emit/tests/happenings/mod.rs"]
mod happenings;
#[path = "../../crates/emit/tests/peers/mod.rs"]
mod peers;

use build::{TARGETS, Target};
use gateways::{CHOSEN_MAX, GATEWAYS, Run, chosen, program, root};
use gatewright_emit::java_package;
use gatewright_lang::ir::Program;
use happenings::Happenings;
use libtest_mimic::Failed;
use peers::Gateway;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

/// The back ends of every program.
struct Triple {
    programs: HashMap<&'static str, (Arc<Program>, Gateway)>,
    java: Gateway,
}

impl Triple {
    fn start() -> Result<Self, Failed> {
        let folder = root().join("fuzz/target/differential");
        let all = GATEWAYS.map(program);
        let java = build::java::classes(&folder.join("java"), &all)?;
        let mut programs = HashMap::new();
        for (name, (program, sources)) in GATEWAYS.into_iter().zip(&all) {
            let driver = include_str!("../../crates/emit/tests/driver/machine.c");
            let target: &Target = &TARGETS[1];
            let built = target.build(&folder.join(name), (program, sources), driver)?;
            programs.insert(name, (Arc::clone(program), Gateway::start(built)?));
        }
        Ok(Self { programs, java: Gateway::start(build::java::driver(&java))? })
    }

    fn run(&mut self, octets: &[u8]) -> Result<(), Failed> {
        let Some((name, events)) = chosen(octets) else { return Ok(()) };
        let (program, c) = self.programs.get_mut(name).unwrap();
        let run = Run::of(program, Happenings::of(program, events), CHOSEN_MAX);
        let of = |language: &str, why: Failed| {
            Failed::from(format!("{name} in {language}:\n{}", why.message().unwrap_or_default()))
        };
        run.is_done_by(c).map_err(|why| of("C", why))?;
        self.java.tell(&format!("program {}", java_package(program)))?;
        run.is_done_by(&mut self.java).map_err(|why| of("Java", why))
    }
}

static TRIPLE: OnceLock<Mutex<Triple>> = OnceLock::new();

fn succeeded<T>(result: Result<T, Failed>) -> T {
    result.unwrap_or_else(|why| panic!("{}", why.message().unwrap_or_default()))
}

libfuzzer_sys::fuzz_target!(
    init: {
        let _ = TRIPLE.set(Mutex::new(succeeded(Triple::start())));
    },
    |octets: &[u8]| {
        let mut triple = TRIPLE.get().unwrap().lock().unwrap();
        succeeded(triple.run(octets));
    }
);
