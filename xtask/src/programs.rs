//! Runs test programs, several at a time: while one waits for a peer, another has the processors.
//!
//! Cargo runs them one after the other, each in its package's folder and with variables that tests
//! read. So cargo gets a runner that only notes what it is to run ([`note`]), and the programs are
//! run as noted. The output of each is shown in one piece when it has ended.
//!
//! So tests share a machine with other tests. They make their network in namespaces, where names and
//! ports are their own; on the machine's loopback they take ports of `gatewright_testbed::free_port`,
//! which gives none twice; folders have a test's name or the process's number; and a count of
//! processes is that of a namespace.

use crate::{
    root,
    step::CommandStep,
    summary::Summary,
    watched::{OutputLine, Watched},
};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};

/// The verb of the runner that cargo gets.
pub const NOTE: &str = "note-test";

/// Variable with the folder of the runner's notes.
const NOTES: &str = "GATEWRIGHT_TEST_NOTES";

/// How long a test program may say nothing before it is taken to hang: the longest takes 100 s on
/// two quiet cores.
const SILENCE_MAX: Duration = Duration::from_mins(10);

/// How long nothing is shown before the programs that run are named.
const PROGRESS: Duration = Duration::from_secs(20);

/// Test programs that may fail at the first attempt: more of them is no chance.
const AGAIN_MAX: usize = 3;

/// Test programs that run at the same time, beyond one for each processor: most of them wait.
const MORE: usize = 1;

/// The longest ones, which begin first: what began last would run alone at the end.
const FIRST: [&str; 8] = [
    "-p gatewright-planes --test kernels",
    "-p gatewright-planes --test daemons",
    "-p gatewright-emit --test machine",
    "-p gatewright-bindings --test acme",
    "-p gatewright-runner --test peers",
    "-p gatewright-bindings --test outbox",
    "-p gatewright-emit --test java",
    "--workspace --doc",
];

/// Runs every test of the workspace. Many of them run kernels and programs that are not ours on two
/// cores, where one in thousands may meet its peer at a bad moment: a test program that failed is
/// run once more, alone, and the summary names each test that passed at the second attempt only.
pub fn test(summary: &mut Summary) -> bool {
    let programs = match prepare() {
        Ok(programs) => programs,
        Err(problem) => {
            eprintln!("tests: {problem}");
            return false;
        }
    };
    let begun = Instant::now();
    let at_once = thread::available_parallelism().map_or(1, usize::from) + MORE;
    println!("== tests: {} programs, {at_once} at a time", programs.len());
    let failed = run(&programs, at_once, summary);
    let passed = failed.is_empty() || again(&failed, summary);
    let word = if passed { "passed" } else { "FAILED" };
    println!("== tests: {word} in {:.0} s", begun.elapsed().as_secs_f64());
    passed
}

/// Runs programs that have failed once more, one after the other.
fn again(failed: &[TestProgram], summary: &mut Summary) -> bool {
    // Without a failed test something else is wrong: a program that crashed.
    if failed.len() > AGAIN_MAX || summary.failures() < failed.len() {
        return false;
    }
    println!("== second attempt");
    let passed = run(failed, 1, &mut Summary::default()).is_empty();
    if passed {
        summary.passed_again();
    }
    passed
}

/// A program of tests, and how cargo would run it.
#[derive(Clone, Debug, Eq, PartialEq)]
struct TestProgram {
    /// Arguments by which `cargo test` runs it alone.
    words: String,
    folder: PathBuf,
    command: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

impl TestProgram {
    /// The examples in documentation, which rustdoc compiles and runs.
    fn documentation(cargo: &OsStr) -> Self {
        let words = "--workspace --doc";
        let arguments = ["test", "--locked", "--no-fail-fast"].into_iter();
        let arguments = arguments.chain(words.split(' ')).map(OsString::from);
        Self {
            words: words.to_owned(),
            folder: root(),
            command: std::iter::once(cargo.to_owned()).chain(arguments).collect(),
            environment: env::vars_os().collect(),
        }
    }

    /// Reads what the runner has noted.
    fn read(note: &[u8]) -> Option<Self> {
        let mut fields = note.split(|octet| *octet == 0);
        let mut field = || Some(OsString::from_vec(fields.next()?.to_vec()));
        let (folder, executable) = (field()?, field()?);
        let variable = |field: &[u8]| {
            let at = field.iter().position(|octet| *octet == b'=')?;
            let (name, value) = field.split_at_checked(at)?;
            Some((OsString::from_vec(name.to_vec()), OsString::from_vec(value.get(1..)?.to_vec())))
        };
        let environment: Vec<_> = fields.filter_map(variable).collect();
        let (_, package) = environment.iter().find(|(name, _)| name == "CARGO_PKG_NAME")?;
        let package = package.to_str()?;
        // Behind the name stands a hash.
        let (target, _) = Path::new(&executable).file_name()?.to_str()?.rsplit_once('-')?;
        let target = if target == package.replace('-', "_") {
            "--lib --bins".to_owned()
        } else {
            format!("--test {target}")
        };
        let words = format!("-p {package} {target}");
        Some(Self { words, folder: folder.into(), command: vec![executable], environment })
    }

    /// Runs it to its end.
    fn run(&self) -> Finished {
        let begun = Instant::now();
        let mut lines = Vec::new();
        // A shell that runs a command in the background makes it ignore SIGINT, and so every process
        // below it; tests interrupt what they start.
        let mut command = Command::new("env");
        command.arg("--default-signal=INT,QUIT").args(&self.command).current_dir(&self.folder);
        command.env_clear().envs(self.environment.iter().cloned());
        let passed = match Watched::start(&mut command, SILENCE_MAX) {
            Ok(watched) => watched.finish(|line| lines.push(line)).is_some_and(|it| it.success()),
            Err(error) => {
                lines.push(OutputLine::Errors(format!("{}: {error}", self.words)));
                false
            }
        };
        Finished { passed, lines, took: begun.elapsed() }
    }
}

/// What a program that has ended leaves.
struct Finished {
    passed: bool,
    lines: Vec<OutputLine>,
    took: Duration,
}

impl Finished {
    /// Shows its output, and notes its tests.
    fn show(self, words: &str, summary: &mut Summary) {
        println!("== cargo test {words}");
        for line in self.lines {
            match line {
                OutputLine::Output(line) => {
                    println!("{line}");
                    summary.note(&line);
                }
                OutputLine::Errors(line) => eprintln!("{line}"),
                OutputLine::Silence => {
                    let silent = format!("{words}: killed, it said nothing for {SILENCE_MAX:?}");
                    println!("== {silent}");
                    summary.fail(silent);
                }
            }
        }
    }
}

/// What a thread that runs programs tells.
enum Event {
    Begun(usize),
    Ended(usize, Finished),
}

/// Runs programs, up to `at_once` at the same time, and returns those that failed.
fn run(programs: &[TestProgram], at_once: usize, summary: &mut Summary) -> Vec<TestProgram> {
    let (next, (events, heard)) = (AtomicUsize::new(0), channel());
    let mut failed = Vec::new();
    thread::scope(|scope| {
        for _ in 0..at_once.min(programs.len()) {
            let (events, next) = (events.clone(), &next);
            scope.spawn(move || {
                let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
                for (number, program) in numbers.map_while(|it| Some((it, programs.get(it)?))) {
                    // Who listens does so to the end.
                    let _heard = events.send(Event::Begun(number));
                    let _heard = events.send(Event::Ended(number, program.run()));
                }
            });
        }
        drop(events);
        let (mut running, mut ended) = (BTreeMap::new(), 0);
        loop {
            match heard.recv_timeout(PROGRESS) {
                Ok(Event::Begun(number)) => _ = running.insert(number, Instant::now()),
                Ok(Event::Ended(number, finished)) => {
                    running.remove(&number);
                    ended += 1;
                    let Some(program) = programs.get(number) else { continue };
                    let word = if finished.passed { "passed" } else { "FAILED" };
                    if !finished.passed {
                        failed.push(program.clone());
                    }
                    let seconds = finished.took.as_secs_f64();
                    finished.show(&program.words, summary);
                    println!("== {word} in {seconds:.1} s; {ended} of {}", programs.len());
                }
                Err(RecvTimeoutError::Timeout) => show_running(programs, &running),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    });
    failed
}

fn show_running(programs: &[TestProgram], running: &BTreeMap<usize, Instant>) {
    let shown = running.iter().filter_map(|(number, begun)| {
        Some(format!("{} ({:.0} s)", programs.get(*number)?.words, begun.elapsed().as_secs_f64()))
    });
    println!("== running: {}", shown.collect::<Vec<_>>().join(", "));
}

/// Builds all test programs and finds out how cargo would run each.
fn prepare() -> io::Result<Vec<TestProgram>> {
    // Before the build, which may replace the file.
    let this = env::current_exe()?;
    let build = ["test", "--workspace", "--no-run", "--locked"];
    if !CommandStep::cargo("build of tests", &build).run() {
        return Err(io::Error::other("they could not be built"));
    }
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let folder = env::temp_dir().join(format!("gatewright-tests-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let noted = notes(&cargo, &this, &folder);
    fs::remove_dir_all(&folder)?;
    let mut programs = noted?;
    programs.push(TestProgram::documentation(&cargo));
    let place = |program: &TestProgram| {
        FIRST.iter().position(|words| **words == program.words).unwrap_or(FIRST.len())
    };
    programs.sort_by_key(place);
    Ok(programs)
}

/// Lets cargo run `this` in place of each test program, and reads its notes from `folder`.
fn notes(cargo: &OsStr, this: &Path, folder: &Path) -> io::Result<Vec<TestProgram>> {
    let runner = format!("target.'cfg(unix)'.runner=['{}', '{NOTE}']", this.display());
    let mut command = Command::new(cargo);
    command.args(["test", "--workspace", "--lib", "--bins", "--tests", "--locked"]);
    command.arg("--config").arg(runner).env(NOTES, folder).current_dir(root());
    let output = command.output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr)));
    }
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        paths.push(entry?.path());
    }
    paths.sort();
    let read = |path: &PathBuf| {
        let program = TestProgram::read(&fs::read(path)?);
        program.ok_or_else(|| io::Error::other("a test program without a package or a name"))
    };
    let programs: io::Result<Vec<_>> = paths.iter().map(read).collect();
    let programs = programs?;
    if programs.is_empty() {
        let why = "cargo has run none by `cargo xtask note-test`: is another runner configured?";
        return Err(io::Error::other(why));
    }
    Ok(programs)
}

/// Notes the test program that cargo is to run, with its folder and variables, and runs nothing.
///
/// # Errors
///
/// Those of the system; and if no folder for notes is given.
pub fn note(command: &[String]) -> io::Result<()> {
    let folder = env::var_os(NOTES).ok_or_else(|| io::Error::other(format!("no {NOTES}")))?;
    let [executable] = command else {
        return Err(io::Error::other("a test program has no arguments"));
    };
    let folder = PathBuf::from(folder);
    let at = env::current_dir()?;
    let mut fields = vec![at.into_os_string(), executable.into()];
    for (name, value) in env::vars_os().filter(|(name, _)| name != NOTES) {
        fields.push([name.as_os_str(), OsStr::new("="), &value].into_iter().collect());
    }
    let fields: Vec<&[u8]> = fields.iter().map(|field| field.as_bytes()).collect();
    // Cargo runs one after the other.
    let number = fs::read_dir(&folder)?.count();
    fs::write(folder.join(format!("{number:06}")), fields.join(&0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(words: &str, script: &str) -> TestProgram {
        TestProgram {
            words: words.to_owned(),
            folder: root(),
            command: ["sh", "-c", script].map(OsString::from).to_vec(),
            environment: env::vars_os().collect(),
        }
    }

    #[test]
    fn a_note_tells_how_cargo_runs_a_program() {
        let note = |executable: &str| {
            let note = ["/house/crates/x", executable, "A=b=c", "CARGO_PKG_NAME=gatewright-x"];
            TestProgram::read(note.join("\0").as_bytes())
        };
        let program = note("/target/debug/deps/queues-97b84bf6").unwrap();
        assert_eq!(program.words, "-p gatewright-x --test queues");
        assert_eq!(program.folder, Path::new("/house/crates/x"));
        assert_eq!(program.environment[0], ("A".into(), "b=c".into()));
        let program = note("/target/debug/deps/gatewright_x-97b84bf6").unwrap();
        assert_eq!(program.words, "-p gatewright-x --lib --bins");
        assert_eq!(note("/target/debug/deps/nohash"), None);
        assert_eq!(TestProgram::read(b"/house\0/target/queues-1\0A=b"), None, "no package");
    }

    /// Each waits for the other's file: neither would end if it ran alone.
    #[test]
    fn programs_run_at_the_same_time_and_a_failed_one_is_returned() {
        let folder = env::temp_dir().join(format!("gatewright-together-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let script = |own: &str, other: &str, code: u8| {
            let at = folder.display();
            format!(
                "touch {at}/{own}; until [ -e {at}/{other} ]; do sleep 0.01; done; \
                 echo 'test {own} ... ok'; exit {code}"
            )
        };
        let programs = [shell("a", &script("a", "b", 0)), shell("b", &script("b", "a", 1))];
        let mut summary = Summary::default();
        let failed = run(&programs, 2, &mut summary);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(failed, programs[1..]);
        assert!(summary.to_string().starts_with("2 passed"), "{summary}");
    }

    #[test]
    fn a_failed_program_runs_once_more_unless_it_names_no_test() {
        let folder = env::temp_dir().join(format!("gatewright-again-{}", std::process::id()));
        let _ = fs::remove_file(&folder);
        let at = folder.display();
        let script = format!("[ -e {at} ] && exit 0; touch {at}; echo 'test a ... FAILED'; exit 1");
        let mut summary = Summary::default();
        let failed = run(&[shell("a", &script)], 3, &mut summary);
        assert!(again(&failed, &mut summary), "{summary}");
        fs::remove_file(&folder).unwrap();
        assert!(summary.to_string().contains("second attempt only: a\n"), "{summary}");
        let crashed = run(&[shell("b", "exit 101")], 1, &mut summary);
        assert!(!again(&crashed, &mut summary), "nothing says which test failed");
    }

    #[test]
    fn the_named_programs_exist() {
        for words in FIRST.iter().filter(|words| **words != "--workspace --doc") {
            let (package, test) = words.split_once(" --test ").unwrap();
            let package = package.trim_start_matches("-p ");
            let folder = package.strip_prefix("gatewright-").unwrap_or(package);
            let file = root().join("crates").join(folder).join("tests").join(test);
            let names = [file.with_extension("rs"), file.join("main.rs")];
            assert!(names.iter().any(|name| name.is_file()), "{words}");
        }
    }
}
