//! Generated accessors cost nothing over hand-written ones: rustc compiles both to the same
//! instructions. A toolchain without `rustc` on the path skips the test by name.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_diagram::{RUST_SUPPORT, read_art, rust};
use libtest_mimic::{Arguments, Failed, Trial};
use std::{collections::BTreeMap, env, fs, path::PathBuf, process::Command};

const IPV6: &str = "
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |Version| Traffic Class |           Flow Label                  |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |         Payload Length        |  Next Header  |   Hop Limit   |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |                                                               |
   +                                                               +
   |                                                               |
   +                         Source Address                        +
   |                                                               |
   +                                                               +
   |                                                               |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   where version = 6, source_address: Ipv6Addr";

/// What a function does: its name and signature, its body by the generated view, and by hand.
const FUNCTIONS: [(&str, &str, &str); 8] = [
    ("version(h: &[u8; 24]) -> u8", "Ipv6::of(h).version()", "h[0] >> 4"),
    (
        "traffic_class(h: &[u8; 24]) -> u8",
        "Ipv6::of(h).traffic_class()",
        "(u16::from_be_bytes([h[0], h[1]]) >> 4) as u8",
    ),
    (
        "flow_label(h: &[u8; 24]) -> u32",
        "Ipv6::of(h).flow_label()",
        "u32::from_be_bytes([h[0], h[1], h[2], h[3]]) & 0xf_ffff",
    ),
    (
        "payload_length(h: &[u8; 24]) -> u16",
        "Ipv6::of(h).payload_length()",
        "u16::from_be_bytes([h[4], h[5]])",
    ),
    (
        "source(h: &[u8; 24]) -> u128",
        "Ipv6::of(h).source_address().to_bits()",
        "u128::from_be_bytes(*h.last_chunk().unwrap())",
    ),
    (
        "guarded(h: &[u8]) -> Option<u8>",
        "Ipv6::split(h).ok().map(|(h, _)| h.hop_limit())",
        "if h.len() < 24 { None } else { Some(h[7]) }",
    ),
    (
        "set_payload_length(h: &mut [u8; 24], v: u16)",
        "Ipv6Mut::of(h).set_payload_length(v)",
        "h[4..6].copy_from_slice(&v.to_be_bytes())",
    ),
    (
        "set_flow_label(h: &mut [u8; 24], v: u32)",
        "Ipv6Mut::of(h).set_flow_label(v)",
        "h[1] = (h[1] & 0xf0) | ((v >> 16) as u8 & 0x0f); \
         h[2..4].copy_from_slice(&(v as u16).to_be_bytes())",
    ),
];

fn main() {
    let paths = env::var_os("PATH").unwrap_or_default();
    let installed = env::split_paths(&paths).any(|directory| directory.join("rustc").is_file());
    let trial = Trial::test("same_instructions_as_by_hand", same_instructions);
    let trials = vec![trial.with_ignored_flag(!installed)];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn same_instructions() -> Result<(), Failed> {
    let layout = read_art("Ipv6", IPV6).expect("the art of RFC 8200");
    let generated = rust(&layout, "crate::support");
    let ours = format!("mod support {{ {RUST_SUPPORT} }}\n{generated}");
    let ours = assembly("generated", &ours, |(_, ours, _)| ours)?;
    let by_hand = assembly("by_hand", "", |(_, _, by_hand)| by_hand)?;
    assert_eq!(ours.len(), FUNCTIONS.len());
    for (function, instructions) in &ours {
        if by_hand.get(function) != Some(instructions) {
            let other = by_hand.get(function).map_or(String::new(), |lines| lines.join("\n"));
            return Err(format!("{function}\n{}\nby hand\n{other}", instructions.join("\n")).into());
        }
    }
    Ok(())
}

/// Compiles the functions with these bodies; the instructions of each, without labels' numbers.
fn assembly(
    name: &str,
    prelude: &str,
    body: fn((&'static str, &'static str, &'static str)) -> &'static str,
) -> Result<BTreeMap<String, Vec<String>>, Failed> {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (file, output) =
        (directory.join(format!("{name}.rs")), directory.join(format!("{name}.s")));
    let functions: Vec<String> = (FUNCTIONS.iter())
        .map(|&function| {
            let (signature, body) = (function.0, body(function));
            format!("#[unsafe(no_mangle)] pub fn {signature} {{ {body} }}\n")
        })
        .collect();
    let allow = "#![allow(dead_code)]\n";
    fs::write(&file, [allow, prelude, &functions.concat()].concat())?;
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition", "2024", "--crate-type", "lib", "-O", "--emit", "asm", "-o"]);
    let ran = rustc.arg(&output).arg(&file).output()?;
    if !ran.status.success() {
        return Err(String::from_utf8_lossy(&ran.stderr).into_owned().into());
    }
    let mut functions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut current = None;
    for line in fs::read_to_string(output)?.lines() {
        let text = line.trim();
        let label = line.strip_suffix(':').filter(|label| !label.starts_with(['.', ' ', '\t']));
        if let Some(label) = label {
            let known = FUNCTIONS.iter().any(|(signature, ..)| signature.starts_with(label));
            current = known.then(|| label.to_owned());
        } else if let Some(function) = &current
            && !text.starts_with('.')
            && !text.is_empty()
        {
            functions.entry(function.clone()).or_default().push(without_numbers(text));
        }
    }
    Ok(functions)
}

/// `jb .LBB7_2` to `jb .LBB_2`: labels are numbered by function.
fn without_numbers(line: &str) -> String {
    match line.split_once(".LBB") {
        Some((before, label)) => {
            let label = label.trim_start_matches(|c: char| c.is_ascii_digit());
            format!("{before}.LBB{label}")
        }
        None => line.to_owned(),
    }
}
