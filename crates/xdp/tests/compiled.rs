//! Each compiled program is what its source compiles to, with Debian 12's compiler.
//!
//! `UPDATE_EXPECTED=1 cargo test -p gatewright-xdp --test compiled` writes them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use gatewright_testbed::Needs;
use gatewright_xdp::CompiledProgram;
use libtest_mimic::{Arguments, Failed, Trial};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The programs, without the endings of their files.
const PROGRAMS: [&str; 9] = [
    "forward",
    "limit",
    "report",
    "generate",
    "receive",
    "label_push",
    "label_switch",
    "label_swap",
    "stamp",
];

/// The compiler's major version: another one makes other octets of the same meaning.
const CLANG: &str = "14";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let missing = match version() {
        Some(version) if version == CLANG => None,
        Some(version) => Some(format!("clang {CLANG}, not {version}")),
        None => Needs::new().program("clang").missing().map(|missing| missing.to_string()),
    };
    let trials = PROGRAMS.map(|name| match &missing {
        None => Trial::test(name, move || is_compiled(name)),
        Some(missing) => {
            let name = format!("{name} (needs {missing})");
            Trial::test(name, || Ok(())).with_ignored_flag(true)
        }
    });
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}

/// The major version of `clang`.
fn version() -> Option<String> {
    let output = Command::new("clang").arg("-dumpversion").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.trim().split('.').next().map(str::to_owned)
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

fn is_compiled(name: &str) -> Result<(), Failed> {
    let made = flat(&compile(name)?)?;
    assert!(CompiledProgram::read(&made)?.names().count() > 0);
    let path = programs().join(name).with_extension("bpf");
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        fs::write(&path, &made)?;
    }
    let kept = fs::read(&path).unwrap_or_default();
    let help = "UPDATE_EXPECTED=1 cargo test -p gatewright-xdp --test compiled";
    if made == kept { Ok(()) } else { Err(format!("{} differs: {help}", path.display()).into()) }
}

/// The object that the compiler makes.
fn compile(name: &str) -> Result<Vec<u8>, Failed> {
    let object = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name).with_extension("o");
    let output = Command::new("clang")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-target", "bpfel"])
        .args(["-mcpu=v3", "-fno-stack-protector", "-c", "-o"])
        .arg(&object)
        .arg(format!("{name}.c"))
        .current_dir(programs())
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(fs::read(object)?)
}

/// The object's program in the form that `compiled.rs` reads.
fn flat(octets: &[u8]) -> Result<Vec<u8>, Failed> {
    const NAMED: u8 = 0xf0;
    let object = object::File::parse(octets)?;
    let section = object.section_by_name("xdp").or_else(|| object.section_by_name("tc"));
    let section = section.ok_or("no section `xdp` or `tc`")?;
    let mut code = section.data()?.to_vec();
    let mut names: Vec<String> = Vec::new();
    for (at, relocation) in section.relocations() {
        let RelocationTarget::Symbol(symbol) = relocation.target() else {
            return Err("a relocation without a symbol".into());
        };
        let name = object.symbol_by_index(symbol)?.name()?.to_owned();
        let number = names.iter().position(|known| *known == name).unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        });
        let at = usize::try_from(at)?;
        // The offset lies in the first half of the instruction; the kernel wants it in the second.
        let offset: [u8; 4] = code[at + 4..at + 8].try_into()?;
        code[at + 1] = code[at + 1] & 0xf | NAMED;
        code[at + 4..at + 8].copy_from_slice(&u32::try_from(number)?.to_le_bytes());
        match code[at] {
            0x18 => code[at + 12..at + 16].copy_from_slice(&offset),
            0x85 => {}
            other => return Err(format!("a relocation of instruction {other:#x}").into()),
        }
    }
    let mut made = b"GWBPF001".to_vec();
    for count in [names.len(), code.len() / 8] {
        made.extend(u32::try_from(count)?.to_le_bytes());
    }
    for name in names {
        assert!(name.len() <= 16, "{name} is too long");
        let mut padded = [0; 16];
        padded[..name.len()].copy_from_slice(name.as_bytes());
        made.extend(padded);
    }
    made.extend(code);
    Ok(made)
}
