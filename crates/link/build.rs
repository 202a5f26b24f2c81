//! With the feature `dpdk`: compiles the shim around DPDK's bursts, and links DPDK's libraries.
//! Without it there is nothing to do.
#![allow(clippy::print_stdout, reason = "a build script answers cargo by what it prints")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const SHIM: &str = "src/dpdk/shim.c";
/// The libraries that the shim and the binding call. DPDK loads its drivers itself.
const LIBRARIES: [&str; 4] = ["rte_ethdev", "rte_mbuf", "rte_mempool", "rte_eal"];

fn main() -> Result<(), String> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={SHIM}");
    if env::var_os("CARGO_FEATURE_DPDK").is_none() {
        return Ok(());
    }
    let out = env::var_os("OUT_DIR").map(PathBuf::from).ok_or("cargo gives no OUT_DIR")?;
    let (object, archive) = (out.join("shim.o"), out.join("libgatewright_dpdk.a"));
    let flags = run(Command::new("pkg-config").args(["--cflags", "libdpdk"]))?;
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut compile = Command::new(compiler);
    compile.args(["-std=gnu11", "-O2", "-fPIC", "-Wall", "-Wextra", "-c", SHIM, "-o"]).arg(&object);
    run(compile.args(flags.split_whitespace()))?;
    run(Command::new("ar").arg("crs").arg(&archive).arg(&object))?;
    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-link-lib=static=gatewright_dpdk");
    for folder in run(Command::new("pkg-config").args(["--libs-only-L", "libdpdk"]))?
        .split_whitespace()
        .filter_map(|option| option.strip_prefix("-L"))
    {
        println!("cargo::rustc-link-search=native={}", Path::new(folder).display());
    }
    for library in LIBRARIES {
        println!("cargo::rustc-link-lib=dylib={library}");
    }
    Ok(())
}

/// What a program prints, or why the feature cannot be built.
fn run(command: &mut Command) -> Result<String, String> {
    let needs = "the feature `dpdk` needs DPDK 22.11 with its headers, pkg-config and a C compiler \
                 (Debian: libdpdk-dev, pkg-config, gcc)";
    let output = command.output().map_err(|error| format!("{needs}: {command:?}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{needs}: {command:?}: {said}"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
