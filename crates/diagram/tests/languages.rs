//! The accessors in Rust, C and Java are compiled by their compilers, strictest warnings on, and run
//! on random headers; what they read and write is compared with a bit-by-bit reading in this file.
//!
//! A compiler or emulator that is not installed is a skipped test, by name.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::format_push_string,
    reason = "a test may fail loudly"
)]

mod drivers;
mod layouts;

use drivers::{c_driver, java_driver, rust_driver};
use gatewright_diagram::{
    Expression, Field, FieldKind, FieldRole, Layout, Operator, RUST_SUPPORT, c, java, read_art,
    rust,
};
use libtest_mimic::{Arguments, Failed, Trial};
use proptest::strategy::{Strategy, ValueTree};
use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Random layouts beside the ones of RFCs.
const RANDOM_LAYOUTS: usize = 30;

/// Random headers of each layout.
const HEADERS: usize = 20;

const ARM: [&str; 4] = ["arm-linux-gnueabihf-gcc", "qemu-arm", "-L", "/usr/arm-linux-gnueabihf"];
const PPC: [&str; 4] = ["powerpc-linux-gnu-gcc", "qemu-ppc", "-L", "/usr/powerpc-linux-gnu"];

fn main() {
    let trial = |name: &str, tools: &[&str], test: fn(&Path) -> Result<(), Failed>| {
        let missing = tools.iter().any(|tool| !is_installed(tool));
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let run = move || {
            fs::create_dir_all(&directory)?;
            test(&directory)
        };
        Trial::test(name, run).with_ignored_flag(missing)
    };
    let trials = vec![
        trial("rust", &["rustc"], run_rust),
        trial("c", &["gcc"], |directory| run_c(directory, &["gcc"])),
        trial("c_arm", &ARM[..2], |directory| run_c(directory, &ARM)),
        trial("c_powerpc_big_endian", &PPC[..2], |directory| run_c(directory, &PPC)),
        trial("java", &["javac", "java"], run_java),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn is_installed(tool: &str) -> bool {
    let paths = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&paths).any(|directory| directory.join(tool).is_file())
}

/// One header to read, and what is to be told about it.
struct Case {
    input: String,
    expected: String,
}

fn cases(layouts: &[Layout]) -> Vec<Case> {
    // A generator of Lehmer's kind: the same headers on every run.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut octet = move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        state.to_be_bytes()[0]
    };
    let mut cases = Vec::new();
    for (index, layout) in layouts.iter().enumerate() {
        for _ in 0..HEADERS {
            let header: Vec<u8> = (0..layout.octets()).map(|_| octet()).collect();
            let rest: Vec<u8> = (0..octet() % 60).map(|_| octet()).collect();
            let expected = expected(layout, &header, rest.len());
            cases.push(Case {
                input: format!("{index} {} {}.", hex(&header), hex(&rest)),
                expected,
            });
        }
    }
    cases
}

fn hex(octets: &[u8]) -> String {
    let pairs: Vec<String> = octets.iter().map(|octet| format!("{octet:02x}")).collect();
    pairs.concat()
}

fn bit(octets: &[u8], at: u32) -> bool {
    octets[(at / 8) as usize] >> (7 - at % 8) & 1 == 1
}

/// The number of the field's bits, for fields that are numbers.
fn value(field: &Field, header: &[u8]) -> u128 {
    (field.offset..field.offset + field.width)
        .fold(0, |value, at| value << 1 | u128::from(bit(header, at)))
}

/// Each field in hexadecimal; the header emitted anew; each variable part's length or `-`.
fn expected(layout: &Layout, header: &[u8], rest: usize) -> String {
    let mut told = Vec::new();
    let mut emitted = vec![0_u8; header.len()];
    for field in &layout.fields {
        let (first, last) = (field.offset / 8, (field.offset + field.width) / 8);
        let octets = field.offset.is_multiple_of(8) && field.width.is_multiple_of(8);
        let number = matches!(field.kind, FieldKind::Number) && field.width <= 64;
        if field.role != FieldRole::Reserved {
            told.push(if number {
                format!("{:x}", value(field, header))
            } else if octets {
                hex(&header[first as usize..last as usize])
            } else {
                format!("{:032x}", value(field, header))
            });
        }
        for at in field.offset..field.offset + field.width {
            let below = field.offset + field.width - 1 - at;
            let set = match field.role {
                FieldRole::Reserved => false,
                FieldRole::Constant(value) => value >> below & 1 == 1,
                FieldRole::Value | FieldRole::Checksum => bit(header, at),
            };
            emitted[(at / 8) as usize] |= u8::from(set) << (7 - at % 8);
        }
    }
    told.push(hex(&emitted));
    for length in layout.variable.iter().filter_map(|variable| variable.length.as_ref()) {
        let length = evaluate(length, layout, header).filter(|&length| length <= rest as u128);
        told.push(length.map_or("-".to_owned(), |length| length.to_string()));
    }
    told.join(" ")
}

fn evaluate(length: &Expression, layout: &Layout, header: &[u8]) -> Option<u128> {
    Some(match length {
        Expression::Number(number) => u128::from(*number),
        Expression::Field(name) => {
            value(layout.fields.iter().find(|field| field.name == *name).unwrap(), header)
        }
        Expression::Binary(left, operator, right) => {
            let (left, right) = (evaluate(left, layout, header)?, evaluate(right, layout, header)?);
            match operator {
                Operator::Add => left + right,
                Operator::Subtract => left.checked_sub(right)?,
                Operator::Multiply => left * right,
            }
        }
    })
}

const IPV4: &str = "
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |Version|  IHL  |Type of Service|          Total Length         |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |         Identification        |Flags|      Fragment Offset    |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |  Time to Live |    Protocol   |         Header Checksum       |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |                       Source Address                          |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |                    Destination Address                        |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |                    Options                    |    Padding    |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   where version = 4, header_checksum: checksum, options: [ihl * 4 - 20],
         source_address: Ipv4Addr, destination_address: Ipv4Addr";

/// Words of all three languages as names, and lengths with brackets.
const AWKWARD: &str = "
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   | Type  | Class |      Int      |    Default    |     Match     |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   |      Len      |     Split     |    Fields     |     Value     |
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   ~                             Static                            ~
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   ~                              Long                             ~
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
   where len = 7, static: [(type + 1) * (20 - class) + 3], long: [5 + (type - class)], trailer";

fn all_layouts() -> Vec<Layout> {
    let mut layouts = vec![
        read_art("Ipv4", IPV4).expect("the art of RFC 791"),
        read_art("AwkwardNames", AWKWARD).expect("drawn here"),
    ];
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for index in 0..RANDOM_LAYOUTS {
        let mut layout = layouts::layouts().new_tree(&mut runner).unwrap().current();
        layout.name = format!("Random{index}");
        for field in &mut layout.fields {
            // A newtype is Rust alone.
            if matches!(field.kind, FieldKind::Newtype(_)) {
                field.kind = FieldKind::Number;
            }
        }
        layouts.push(layout);
    }
    layouts
}

/// Runs `program` on all cases and compares line by line.
fn compare(mut program: Command, layouts: &[Layout]) -> Result<(), Failed> {
    let cases = cases(layouts);
    let lines: Vec<&str> = cases.iter().map(|case| case.input.as_str()).collect();
    let input = lines.join("\n");
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output()?;
    writer.join().unwrap()?;
    let told = String::from_utf8(output.stdout)?;
    let told: Vec<&str> = told.lines().collect();
    if told.len() != cases.len() || !output.status.success() {
        return Err(
            format!("{} answers to {} cases, {}", told.len(), cases.len(), output.status).into()
        );
    }
    for (case, told) in cases.iter().zip(told) {
        if case.expected != told.trim_end() {
            let layout: usize = case.input.split(' ').next().unwrap().parse()?;
            let drawing = gatewright_diagram::draw(&layouts[layout]);
            return Err(format!(
                "{drawing}\n{}\nwanted {}\nfound  {told}",
                case.input, case.expected
            )
            .into());
        }
    }
    Ok(())
}

fn succeed(command: &mut Command) -> Result<(), Failed> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).chars().take(6000).collect::<String>();
    Err(format!("{command:?}\n{text}{}", String::from_utf8_lossy(&output.stdout)).into())
}

fn run_rust(directory: &Path) -> Result<(), Failed> {
    let layouts = all_layouts();
    let mut source = format!("#![deny(warnings)]\nmod support {{ {RUST_SUPPORT} }}\n");
    for (index, layout) in layouts.iter().enumerate() {
        source.push_str(&format!("mod l{index} {{ {} }}\n", rust(layout, "crate::support")));
    }
    source.push_str(&rust_driver(&layouts));
    let (file, program) = (directory.join("main.rs"), directory.join("main"));
    fs::write(&file, source)?;
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition", "2024", "-A", "dead_code", "-C", "debug-assertions=on", "-o"]);
    succeed(rustc.arg(&program).arg(&file))?;
    compare(Command::new(program), &layouts)
}

fn run_c(directory: &Path, tools: &[&str]) -> Result<(), Failed> {
    let layouts = all_layouts();
    fs::write(directory.join("headers.h"), c(&layouts))?;
    fs::write(directory.join("main.c"), c_driver(&layouts))?;
    let program = directory.join("main");
    let mut gcc = Command::new(tools[0]);
    gcc.args(["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O2", "-o"]);
    succeed(gcc.arg(&program).arg(directory.join("main.c")))?;
    let program = match tools.get(1) {
        Some(emulator) => {
            let mut command = Command::new(emulator);
            command.args(&tools[2..]).arg(program);
            command
        }
        None => Command::new(program),
    };
    compare(program, &layouts)
}

fn run_java(directory: &Path) -> Result<(), Failed> {
    let layouts = all_layouts();
    let mut javac = Command::new("javac");
    javac.args(["--release", "17", "-Xlint:all", "-Werror", "-d"]).arg(directory);
    for layout in &layouts {
        let file = directory.join(format!("{}.java", layout.name));
        fs::write(&file, java(layout))?;
        javac.arg(file);
    }
    let file = directory.join("Main.java");
    fs::write(&file, java_driver(&layouts))?;
    succeed(javac.arg(file))?;
    let mut program = Command::new("java");
    program.arg("-cp").arg(directory).arg("Main");
    compare(program, &layouts)
}
