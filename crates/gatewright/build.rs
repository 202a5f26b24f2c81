//! Options of the linker, for the released binary.
#![allow(clippy::print_stdout, reason = "a build script answers cargo by what it prints")]

use std::env;

/// The target for which rustc links with LLD, which knows these options.
const TARGET: &str = "x86_64-unknown-linux-gnu";
const OPTIONS: [&str; 2] = [
    // Functions of equal machine code are there once: instances of generic ones for types of one
    // layout.
    "-Wl,--icf=all",
    // 24 octets become two bits for most of the pointers that are adjusted at the start (glibc 2.36
    // and later).
    "-Wl,-z,pack-relative-relocs",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, wanted: &str| env::var(name).is_ok_and(|value| value == wanted);
    if is("PROFILE", "release") && is("TARGET", TARGET) {
        for option in OPTIONS {
            println!("cargo::rustc-link-arg-bins={option}");
        }
    }
}
