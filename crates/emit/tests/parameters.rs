//! A built program takes its parameters as options: values, variables of the environment, files.
//!
//! Both languages are built by their `Makefile`. Without a compiler it is a skipped test, by name.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub,
    dead_code,
    reason = "a test may fail loudly"
)]

mod build;

use build::{is_there, place, succeed};
use gatewright_diagnostic::{SourceId, Sources};
use gatewright_emit::{C_IO, C_RUNTIME, JAVA_RUNTIME, SourceFile, c, java};
use gatewright_lang::compile;
use gatewright_lang::ir::Program;
use gatewright_testbed::free_port;
use libtest_mimic::{Arguments, Failed, Trial};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_mins(1);

const GREETER: &str = "
message words {
    view line_of_words = line, at most 80 octets { text: rest }
}
protocol greeting = tcp, sync unicast {
    message words
    idle 1 minute
    connections at most 4
    request line_of_words { otherwise -> hello }
    response line_of_words
    malformed -> close
    failed    -> close
    full      -> close
}
gateway greeter {
    role desk = greeting server at \"127.0.0.1:7000\"
    parameter name: fragment, at most 8 octets = \"you\"
    parameter times: 1..9 = 2
    parameter secret: fragment, at most 16 octets
    on hello(request) {
        if request.text = secret { return line_of_words(name) }
        if times > 5 { return line_of_words(\"many\") }
        return line_of_words(\"{name} {times}\")
    }
}
";

/// Builds a program; the command that runs it.
type Build = fn() -> Result<Vec<String>, Failed>;

fn main() {
    let c = (is_there("gcc") && is_there("make"), as_c as fn() -> _, "c");
    let java =
        (["make", "javac", "jar", "java"].into_iter().all(is_there), as_java as fn() -> _, "java");
    let trials = [c, java].map(|(there, build, name): (bool, Build, _)| {
        Trial::test(name, move || run(&build()?)).with_ignored_flag(!there)
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit();
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(words: &[String]) -> Result<(), Failed> {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("parameters.secret");
    fs::write(&file, "open sesame\r\n")?;
    let file = format!("secret={}", file.display());
    answers(words, &["-s", "secret=x"], &[("hi", "you 2"), ("x", "you")])?;
    answers(
        words,
        &["-s", "name=Ada", "-s", "times=6", "-f", &file],
        &[("hi", "many"), ("open sesame", "Ada")],
    )?;
    answers(
        words,
        &["-e", "name=GREETED", "-e", "secret=GREETED"],
        &[("hi", "Bob 2"), ("Bob", "Bob")],
    )?;
    // As `ParameterError` and `ProgramSettings` say it for a program that runs natively.
    for (options, said) in [
        (&[][..], "parameter `secret` has no default and is not set"),
        (&["-s", "times=10"], "`times` is a number in 1..9, and this is none"),
        (&["-s", "times=2x"], "`times` is a number in 1..9, and this is none"),
        (&["-s", "times= 2"], "`times` is a number in 1..9, and this is none"),
        (&["-s", "times="], "`times` is a number in 1..9, and this is none"),
        (&["-s", "times=\u{664}"], "`times` is a number in 1..9, and this is none"),
        (
            &["-f", &file.replace("secret=", "times=")],
            "`times` is a number in 1..9, and this is none",
        ),
        (&["-s", "name=123456789"], "`name` has at most 8 octets, and this has 9"),
        (
            &["-f", &file.replace("secret=", "name=")],
            "`name` has at most 8 octets, and this has 11",
        ),
        (&["-s", "nobody=1"], "no parameter `nobody`; it has `name`, `times`, `secret`"),
        (&["-s", "nobody"], "-s nobody: it takes NAME=VALUE"),
        (&["-e", "secret=NOT_THERE_AT_ALL"], "`secret`: the environment has no `NOT_THERE_AT_ALL`"),
        (&["-f", "secret=/nowhere"], "`secret`: /nowhere: No such file or directory"),
    ] {
        let output = command(words).args(options).output()?;
        let told = String::from_utf8_lossy(&output.stderr);
        if output.status.success() || !told.contains(said) {
            return Err(format!("{options:?}: {:?}, {told}", output.status).into());
        }
    }
    Ok(())
}

fn command(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env("GREETED", "Bob");
    command
}

/// Starts the program, says each line and expects its answer.
fn answers(words: &[String], options: &[&str], lines: &[(&str, &str)]) -> Result<(), Failed> {
    let port = free_port();
    let mut greeter = command(words);
    greeter.args(options).arg(format!("desk=127.0.0.1:{port}")).stderr(Stdio::piped());
    let mut greeter = Running(greeter.spawn()?);
    let mut told = BufReader::new(greeter.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    if !told.any(|line| line.ends_with("ready")) {
        return Err(format!("{options:?}: it did not start").into());
    }
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut replies = BufReader::new(&stream).lines();
    for (line, wanted) in lines {
        (&stream).write_all(format!("{line}\r\n").as_bytes())?;
        let reply = replies.next().ok_or("no reply")??;
        if reply != *wanted {
            return Err(format!("{options:?}, {line}: {reply} instead of {wanted}").into());
        }
    }
    Ok(())
}

fn program() -> (Program, Sources) {
    let mut sources = Sources::of("greeter.gate", GREETER);
    let compiled = compile(&mut sources, SourceId::default(), |_, _| None);
    let found: String = compiled.diagnostics.iter().map(|of| of.render(&sources, false)).collect();
    (compiled.program.unwrap_or_else(|| panic!("{found}")), sources)
}

fn as_c() -> Result<Vec<String>, Failed> {
    let (program, sources) = program();
    let files = c(&program, &|span| Some(place(&sources, span)))?;
    let flags = "CFLAGS=-O1 -pedantic -Werror -std=c11 -Wall -Wextra -pthread";
    let folder = made("c", files, C_RUNTIME.into_iter().chain(C_IO), flags)?;
    Ok(vec![folder.join("greeter").display().to_string()])
}

fn as_java() -> Result<Vec<String>, Failed> {
    let (program, sources) = program();
    let files = java(&program, &|span| Some(place(&sources, span)))?;
    let folder = made("java", files, JAVA_RUNTIME, "JAVACFLAGS=-Xlint:all -Werror")?;
    let jar = folder.join("greeter.jar").display().to_string();
    Ok(["java", "-XX:+UseSerialGC", "-jar", &jar].map(str::to_owned).into())
}

fn made(
    name: &str,
    files: Vec<SourceFile>,
    runtime: impl IntoIterator<Item = (&'static str, &'static str)>,
    flags: &str,
) -> Result<PathBuf, Failed> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("parameters").join(name);
    let runtime = runtime.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned()));
    for (name, text) in runtime.chain(files.into_iter().map(|file| (file.name, file.text))) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("")))?;
        fs::write(path, text)?;
    }
    succeed(Command::new("make").arg("-s").arg("-C").arg(&folder).arg(flags))?;
    Ok(folder)
}
