//! Agents of the delay lab on three machines: a sender, a router and a reflector in namespaces.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_testbed::{Namespace, Needs, Process, Veth, free_port, wait_until};
use libtest_mimic::{Arguments, Trial};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::Duration;

const GATEWRIGHT: &str = env!("CARGO_BIN_EXE_gatewright");

fn main() -> ExitCode {
    let missing = Needs::new().namespaces().missing();
    let tests: [(&str, fn()); 2] = [
        ("two_machines_are_measured_through_a_router", through_a_router),
        ("an_agent_that_dies_is_said_in_the_report", dies),
    ];
    let mut trials: Vec<Trial> = tests
        .into_iter()
        .map(|(name, test)| match &missing {
            None => Trial::test(name, move || {
                test();
                Ok(())
            }),
            Some(missing) => {
                let name = format!("{name} (needs {missing})");
                Trial::test(name, || Ok(())).with_ignored_flag(true)
            }
        })
        .collect();
    trials.push(Trial::test("an_agent_does_only_what_it_was_started_for", || {
        only_what_was_configured();
        Ok(())
    }));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Three machines in line, and a folder for the key; removed at the end.
struct Line {
    hosts: [Namespace; 3],
    _cables: [Veth; 2],
    folder: PathBuf,
}

impl Line {
    fn new(name: &str) -> Self {
        let hosts = [0, 1, 2].map(|_| Namespace::new().unwrap());
        let [left, router, right] = &hosts;
        let near = Veth::pair(left, "l0", router, "r0").unwrap();
        let far = Veth::pair(router, "r1", right, "w0").unwrap();
        let ends = [(&near.a, "10.75.1.1/24"), (&near.b, "10.75.1.2/24")];
        let more = [(&far.a, "10.75.2.1/24"), (&far.b, "10.75.2.2/24")];
        for (end, address) in ends.into_iter().chain(more) {
            end.add_address(address).unwrap();
        }
        near.up().unwrap();
        far.up().unwrap();
        left.add_route("10.75.2.0/24", "10.75.1.2").unwrap();
        right.add_route("10.75.1.0/24", "10.75.2.1").unwrap();
        router.sysctl("net.ipv4.ip_forward", "1").unwrap();
        Self { hosts, _cables: [near, far], folder: folder(name) }
    }

    /// Agents of all three machines.
    fn agents(&self) -> [Process; 3] {
        let key = self.folder.join("lab.key").to_string_lossy().into_owned();
        let agent = |at: usize, listen: &str, more: &[&str]| {
            let command = self.hosts[at].command(GATEWRIGHT);
            let command = command.args(["lab", "agent", "--key-file", &key, "--listen", listen]);
            let mut process = command.args(more).stdout(Stdio::piped()).spawn().unwrap();
            let mut said = String::new();
            BufReader::new(process.stdout().unwrap()).read_line(&mut said).unwrap();
            assert!(said.contains(listen), "{said}");
            process
        };
        let sends = ["--send-to", "10.75.2.2:8621"];
        [
            agent(0, "10.75.1.1:8620", &sends),
            agent(1, "10.75.1.2:8620", &[]),
            agent(2, "10.75.2.2:8620", &["--reflect", "10.75.2.2:8621"]),
        ]
    }

    fn experiment(&self, seconds: f64, repeats: u32) {
        let text = format!(
            "title = 'Through <the> router'\nkey_file = 'lab.key'\noctets = [112, 1000]\nrate = [200]\n\
             seconds = {seconds:?}\nrepeats = {repeats}\nsteady_pct = 50.0\n\
             [[agent]]\nname = 'left'\naddress = '10.75.1.1:8620'\n\
             [[agent]]\nname = 'router'\naddress = '10.75.1.2:8620'\n\
             [[agent]]\nname = 'right'\naddress = '10.75.2.2:8620'\n\
             [[session]]\nfrom = 'left'\nto = 'right'\nthrough = ['router']\n"
        );
        fs::write(self.folder.join("line.toml"), text).unwrap();
    }

    /// The coordinator, on the left machine.
    fn run(&self) -> Output {
        let file = self.folder.join("line.toml");
        let command = self.hosts[0].command(GATEWRIGHT).args(["lab", "run", "--json", "--agents"]);
        command.arg(file).arg("--output").arg(&self.folder).output().unwrap()
    }

    fn result(&self) -> Value {
        let text = fs::read_to_string(self.folder.join("lab-line.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("gatewright-{name}-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("lab.key"), "a secret of the test\n").unwrap();
    path
}

fn through_a_router() {
    let line = Line::new("lab-agents");
    let agents = line.agents();
    line.experiment(0.25, 2);
    let run = line.run();
    let error = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{error}");
    let result = line.result();
    let conditions = result["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 2);
    for it in conditions {
        assert_eq!((&it["sent"], &it["received"]), (&100.into(), &100.into()), "{it}");
        assert_eq!((&it["lost_there"], &it["lost_back"]), (&0.into(), &0.into()), "{it}");
        let median = |key: &str| it[key]["p50"].as_f64().unwrap();
        assert!(median("round_trip") > 0.0, "{it}");
        // All machines have one clock, so both ways are positive but for the bound.
        let error = it["one_way_error_us"].as_f64().unwrap();
        assert!(median("there") > -error && median("back") > -error, "{it}");
    }
    let machines = result["machines"].as_array().unwrap();
    let names: Vec<&str> = machines.iter().filter_map(|it| it["name"].as_str()).collect();
    assert_eq!(names, ["left", "router", "right"]);
    for it in machines {
        assert!(it["covariates"]["load"][0].is_number(), "{it}");
        for clock in it["clocks"].as_array().unwrap() {
            let value = |key: &str| clock[key].as_f64().unwrap();
            // The same clock: the offset cannot be beyond its bound.
            assert!(value("offset_us").abs() <= value("error_us") + 1.0, "{clock}");
        }
    }
    let file = line.folder.join("lab-line.json");
    let compare =
        line.hosts[0].command(GATEWRIGHT).args(["lab", "compare"]).args([&file, &file]).output();
    let told = String::from_utf8(compare.unwrap().stderr).unwrap();
    assert!(told.contains("a result of `gatewright lab run --agents`"), "{told}");
    let findings = result["findings"].as_array().unwrap();
    assert!(findings.is_empty(), "{findings:?}");
    let page = fs::read_to_string(line.folder.join("lab-line.html")).unwrap();
    assert!(
        page.contains("Through &lt;the&gt; router")
            && page.contains("left to right through router")
    );
    drop(agents);
}

fn dies() {
    let line = Line::new("lab-agents-dies");
    let [left, router, right] = line.agents();
    line.experiment(2.0, 1);
    let run = std::thread::scope(|scope| {
        let run = scope.spawn(|| line.run());
        // In the middle of the first session of two seconds, or before it on a busy machine.
        std::thread::sleep(Duration::from_millis(1500));
        right.kill();
        run.join().unwrap()
    });
    drop((left, router));
    let result = line.result();
    let findings = result["findings"].to_string();
    let error = String::from_utf8_lossy(&run.stderr);
    assert!(findings.contains("right took no"), "{findings} {error}");
    assert!(findings.contains("a session from left was left out"), "{findings}");
    assert!(result["machines"][2]["ended"].is_string(), "{result}");
    assert_eq!(result["machines"][2]["covariates"], Value::Null);
    assert_eq!(result["conditions"][1]["received"], 0, "{result}");
    assert!(result["machines"][1]["covariates"].is_object(), "the router goes on: {result}");
}

/// Without privileges, on loopback.
fn only_what_was_configured() {
    let folder = folder("lab-agents-alone");
    let [control, other] = [free_port(), free_port()];
    let key = folder.join("lab.key");
    let mut agent = Command::new(GATEWRIGHT);
    agent.args(["lab", "agent", "--listen", &format!("127.0.0.1:{control}"), "--key-file"]);
    let mut agent = agent.arg(&key).stdout(Stdio::null()).spawn().unwrap();
    let experiment = |key: &str| {
        let text = format!(
            "title = 't'\nkey_file = '{key}'\noctets = [200]\nrate = [100]\nseconds = 0.2\n\
             repeats = 1\nsteady_pct = 50.0\n[[agent]]\nname = 'one'\n\
             address = '127.0.0.1:{control}'\n[[session]]\nfrom = 'one'\n\
             reflector = '127.0.0.1:{other}'\n"
        );
        fs::write(folder.join("one.toml"), text).unwrap();
        let mut run = Command::new(GATEWRIGHT);
        run.args(["lab", "run", "--json", "--agents"]).arg(folder.join("one.toml"));
        let run = run.arg("--output").arg(&folder).output().unwrap();
        assert_eq!(run.status.code(), Some(1), "{}", String::from_utf8_lossy(&run.stderr));
        let answer: Value = serde_json::from_slice(&run.stdout).unwrap();
        answer["findings"].to_string()
    };
    let mut said = String::new();
    let is_refused = || {
        said = experiment("lab.key");
        said.contains("it was not started with")
    };
    assert!(wait_until(Duration::from_secs(20), is_refused), "{said}");
    fs::write(folder.join("other.key"), "another secret of it").unwrap();
    let said = experiment("other.key");
    assert!(said.contains("it does not have the same key"), "{said}");
    agent.kill().unwrap();
    agent.wait().unwrap();
    let _ = fs::remove_dir_all(&folder);
    // An agent without a key does not start.
    let without = Command::new(GATEWRIGHT).args(["lab", "agent"]).output().unwrap();
    assert_eq!(without.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&without.stderr).contains("--key-file"));
}
