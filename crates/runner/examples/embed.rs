//! A gateway program within a program of one's own: `embed FILE [ROLE=HOST:PORT…]`.
//!
//! Runs until its standard input ends, and then tells what it has done.
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

use gatewright_diagnostic::{SourceId, Sources};
use gatewright_runner::{Runner, RunnerOptions};
use std::error::Error;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("embed FILE [ROLE=HOST:PORT…]")?;
    let addresses = arguments
        .filter_map(|it| it.split_once('=').map(|(role, at)| (role.to_owned(), at.to_owned())));
    let options =
        RunnerOptions { loops: 1, addresses: addresses.collect(), ..RunnerOptions::default() };

    let folder = Path::new(&file).parent().unwrap_or(Path::new("")).to_owned();
    let mut sources = Sources::of(file.as_str(), std::fs::read_to_string(&file)?);
    let compiled = gatewright_lang::compile(&mut sources, SourceId::default(), |_, path| {
        Some((path.to_owned(), std::fs::read_to_string(folder.join(path)).ok()?))
    });
    for finding in &compiled.diagnostics {
        println!("{}", finding.render(&sources, false));
    }
    let program = Arc::new(compiled.program.ok_or("the program is refused")?);

    let runner = Runner::start(&program, options)?;
    for role in runner.listening() {
        println!("{} at {}", role.role, role.address);
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    println!("{:#?}", runner.stop(Duration::from_secs(5)).counters);
    Ok(())
}
