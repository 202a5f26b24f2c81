//! A gateway run natively, as C or as Java, so that the same peers meet all three.

use super::{LIMIT, compiled, example};
use gatewright_emit::{C_IO, C_RUNTIME, JAVA_RUNTIME, SourceFile, c, java};
use gatewright_runner::{Runner, RunnerOptions};
use gatewright_testbed::{Namespace, Needs, Process, wait_until};
use libtest_mimic::Trial;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A test, which is shown as ignored if this system lacks what it needs.
pub fn trial(name: &str, missing: bool, test: impl FnOnce() + Send + 'static) -> Trial {
    let run = move || {
        test();
        Ok(())
    };
    Trial::test(name, run).with_ignored_flag(missing)
}

/// What runs a gateway.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BackEnd {
    Native,
    C,
    Java,
}

/// A gateway that runs until it is dropped.
pub enum Gateway {
    Native(Box<Runner>),
    Built(#[expect(dead_code, reason = "it ends the process")] Process),
}

impl Gateway {
    /// The native loops, which can be asked for more than a process can.
    pub fn runner(&self) -> Option<&Runner> {
        match self {
            Self::Native(runner) => Some(runner),
            Self::Built(_) => None,
        }
    }
}

impl BackEnd {
    pub const ALL: [Self; 3] = [Self::Native, Self::C, Self::Java];

    const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::C => "c",
            Self::Java => "java",
        }
    }

    fn needs(self, needs: Needs) -> Needs {
        match self {
            Self::Native => needs,
            Self::C => needs.program("make").program("gcc"),
            Self::Java => needs.program("make").program("javac").program("java"),
        }
    }

    /// A test for each back end.
    pub fn trials(name: &str, needs: &Needs, test: fn(Self)) -> [Trial; 3] {
        Self::ALL.map(|back_end| {
            let missing = back_end.needs(needs.clone()).missing().is_some();
            let name = format!("{}::{name}", back_end.name());
            trial(&name, missing, move || test(back_end))
        })
    }

    /// Runs an example in a namespace, its roles at these addresses; natively by so many loops.
    pub fn run(self, net: &Namespace, name: &str, loops: usize, at: &[(&str, &str)]) -> Gateway {
        let text = fs::read_to_string(example(name)).unwrap();
        self.run_text(net, (name, &text), loops, at)
    }

    /// Runs the text of a gateway beside the examples; `name` is one for each text.
    pub fn run_text(
        self,
        net: &Namespace,
        (name, text): (&str, &str),
        loops: usize,
        at: &[(&str, &str)],
    ) -> Gateway {
        if self == Self::Native {
            let at = at.iter().map(|(role, at)| ((*role).to_owned(), (*at).to_owned()));
            let options =
                RunnerOptions { loops, addresses: at.collect(), ..RunnerOptions::default() };
            let program = compiled(name, text);
            let started = net.run(|| Runner::start(&program, options));
            return Gateway::Native(Box::new(started.unwrap().unwrap()));
        }
        self.run_built(net, (name, text), 1, at)
    }

    /// Runs the text of a gateway as C or as Java, by so many loops.
    pub fn run_built(
        self,
        net: &Namespace,
        (name, text): (&str, &str),
        loops: usize,
        at: &[(&str, &str)],
    ) -> Gateway {
        let words = self.built(name, text);
        // Each loop of C is a process of its own, which says when it is ready.
        let awaited = if self == Self::C { loops } else { 1 };
        let at = at.iter().map(|(role, at)| format!("{role}={at}"));
        let log = folder(self, name).join(format!("log-{}", net.path().replace('/', "-")));
        let told = fs::File::create(&log).unwrap();
        let loops = ["-n".to_owned(), loops.to_string()];
        let command = net.command(&words[0]).args(&words[1..]).args(loops).args(at);
        let process = command.stderr(told).spawn().unwrap();
        let said = || fs::read_to_string(&log).unwrap();
        let ready = || said().lines().filter(|line| line.ends_with("ready")).count() == awaited;
        let ready = wait_until(LIMIT, ready);
        assert!(ready, "{name} as {} did not start\n{}", self.name(), said());
        Gateway::Built(process)
    }

    /// Compiles a gateway as its users do, unless that was done; what runs it.
    fn built(self, name: &str, text: &str) -> Vec<String> {
        let program = compiled(name, text);
        let (files, runtime): (Vec<SourceFile>, Vec<(&str, &str)>) = match self {
            Self::Java => (java(&program, &|_| None).unwrap(), JAVA_RUNTIME.into_iter().collect()),
            _ => (c(&program, &|_| None).unwrap(), C_RUNTIME.into_iter().chain(C_IO).collect()),
        };
        let folder = folder(self, name);
        fs::create_dir_all(folder.parent().unwrap()).unwrap();
        // Other tests, and other test programs, may build the same.
        let building = fs::File::create(folder.with_extension("lock")).unwrap();
        building.lock().unwrap();
        let runtime = runtime.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned()));
        for (name, text) in runtime.chain(files.into_iter().map(|file| (file.name, file.text))) {
            let path = folder.join(name);
            if fs::read_to_string(&path).is_ok_and(|before| before == text) {
                continue;
            }
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let mut make = Command::new("make");
        make.args(["-s", "-C"]).arg(&folder);
        if self == Self::C {
            make.arg("CFLAGS=-O1 -std=c11 -Wall -Wextra -pthread");
        }
        let made = make.output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let path = |name: String| folder.join(name).to_str().unwrap().to_owned();
        match self {
            Self::Java => {
                let flags = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar"];
                let jar = path(format!("{}.jar", program.name));
                flags.map(str::to_owned).into_iter().chain([jar]).collect()
            }
            _ => vec![path(program.name.clone())],
        }
    }
}

fn folder(back_end: BackEnd, name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("gateways");
    folder.join(back_end.name()).join(name.trim_end_matches(".gate"))
}
