//! The delay lab from the command line: without privileges on loopback, its files, what reads them.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod common;

use common::gatewright;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

const EXPERIMENT: &str = "\
title = \"a small <experiment>\"
relays = [\"kernel\", \"translate-udp\", \"translate-tcp\", \"encrypt-portable\"]
seconds = 0.1
repeats = 3
repeats_max = 3
[centre]
octets = 400
rate = 400
[vary]
octets = [100, 1000]
";

/// The user `nobody`.
const NOBODY: u32 = 65_534;

/// A folder that every user may write to; removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = PathBuf::from(format!("/tmp/gatewright-lab-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(path.join("small.toml"), EXPERIMENT).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the command without privileges. A root whose build folder others cannot enter runs it as
/// root; then hosts are namespaces.
fn unprivileged(folder: &Folder, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatewright"));
    command.current_dir(&folder.0).args(arguments);
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if is_root && let Ok(output) = command.uid(NOBODY).gid(NOBODY).output() {
        return output;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatewright"));
    command.current_dir(&folder.0).args(arguments).output().unwrap()
}

#[test]
fn a_small_experiment_is_run_compared_and_promised() {
    let folder = Folder::new();
    let run = unprivileged(&folder, &["lab", "run", "small.toml", "--json"]);
    let error = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{error}");
    let answer: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(answer["title"], "a small <experiment>");

    let result = fs::read_to_string(folder.path("lab-small.json")).unwrap();
    let result: Value = serde_json::from_str(&result).unwrap();
    let left_out = answer["left_out"].as_array().unwrap();
    if result["namespaces"] == false {
        let kernel = left_out.iter().find(|it| it["what"] == "relay kernel").unwrap();
        assert!(kernel["why"].as_str().unwrap().contains("root"), "{kernel}");
    }
    let conditions = result["conditions"].as_array().unwrap();
    for it in conditions {
        assert_eq!(it["sent"], 120, "{}: 40 probes in each repetition", it["relay"]);
        assert!(it["received"].as_u64().unwrap() > 60, "{}", it["relay"]);
        assert!(it["end_to_end"]["p50"].as_f64().unwrap() > 0.0);
    }

    let page = fs::read_to_string(folder.path("lab-small.html")).unwrap();
    assert!(page.contains("a small &lt;experiment&gt;") && !page.contains("<experiment>"));
    for figure in ["Fig. 4", "Fig. 5a", "Fig. 6c", "Fig. 7", "Fig. 8", "data:text/csv"] {
        assert!(page.contains(figure), "{figure} is missing");
    }
    // The namespace of SVG is a name and no address; nothing is loaded from anywhere.
    let addresses = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!addresses.contains("http://") && !addresses.contains("https://"));
    let table = fs::read_to_string(folder.path("lab-small.csv")).unwrap();
    assert_eq!(table.lines().count(), conditions.len() + 1);
    let columns = |line: &str| line.split(',').count();
    let width = columns(table.lines().next().unwrap());
    assert!(table.lines().all(|line| columns(line) == width), "{table}");

    let json = folder.path("lab-small.json");
    let same = gatewright(&["lab", "compare", &json, &json, "--json"]);
    assert_eq!(same.code, 0, "{}", same.err);
    let same = same.json();
    assert_eq!(same["conditions"].as_array().unwrap().len(), conditions.len());
    for it in same["conditions"].as_array().unwrap() {
        let is_steady = it["steady"] == serde_json::json!([true, true]);
        let verdict = if is_steady { "noise" } else { "unsteady" };
        assert_eq!(it["difference"]["verdict"], verdict, "{it}");
        assert_eq!(it["difference"]["relative"], 0.0, "{it}");
    }

    let mut changed = result.clone();
    for (at, steady) in [(0, true), (1, false)] {
        changed["conditions"][at]["steady"] = steady.into();
    }
    let changed_json = folder.path("changed.json");
    fs::write(&changed_json, changed.to_string()).unwrap();
    let compared = gatewright(&["lab", "compare", &changed_json, &changed_json]);
    let lines: Vec<&str> = compared.out.lines().skip(2).collect();
    assert!(lines[0].ends_with(": noise"), "{}", compared.out);
    assert!(lines[1].ends_with(": unsteady in A and B, not judged"), "{}", compared.out);

    let flow = ["--rate", "50", "--octets", "400", "--within-ms", "1000", "--json"];
    let promise = gatewright(&[&["lab", "promise", &json], &flow[..]].concat());
    assert_eq!(promise.code, 0, "{}", promise.err);
    for it in promise.json().as_array().unwrap() {
        assert!(it["flows"].as_u64().unwrap() > 0, "{it}");
        assert!(it["load"].as_f64().unwrap() < 1.0, "{it}");
    }
}

#[test]
fn what_is_wrong_is_told_before_time_is_spent() {
    let unknown = gatewright(&["lab", "run", "paperr"]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.err.contains("default, paper, or a TOML file"), "{}", unknown.err);
    let none = gatewright(&["lab", "compare", "/dev/null", "/dev/null"]);
    assert_eq!(none.code, 78, "{}", none.err);
    assert!(none.err.contains("not a result of `gatewright lab run`"), "{}", none.err);
    for name in ["default", "paper"] {
        let plan = gatewright(&["lab", "plan", name, "--json"]);
        assert_eq!(plan.code, 0, "{}", plan.err);
        let plan = plan.json();
        assert!(plan["seconds"].as_f64().unwrap() > 0.0, "{plan}");
        if name == "default" {
            assert!(plan["seconds_max"].as_f64().unwrap() <= 300.0, "{plan}");
        }
    }
}

#[test]
fn a_senseless_flow_is_refused_with_the_limits() {
    let refused = |option: &str, value: &str, said: &str| {
        let mut flow =
            [("--rate", "50"), ("--octets", "400"), ("--within-ms", "5"), ("--quantile", "0.95")];
        for known in flow.iter_mut().filter(|(known, _)| *known == option) {
            known.1 = value;
        }
        let options: Vec<String> =
            flow.iter().map(|(option, value)| format!("{option}={value}")).collect();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let answer = gatewright(&[&["lab", "promise", "/dev/null"], &options[..]].concat());
        assert_eq!(answer.code, 2, "{option} {value}: {}", answer.err);
        assert!(answer.err.contains(option), "{option} {value}: {}", answer.err);
        assert!(answer.err.contains(said), "{option} {value}: {}", answer.err);
    };
    for number in ["0", "-1", "NaN", "inf", "-inf", "1e300", "1e-300", "much", ""] {
        refused("--rate", number, "from 0.00001 to 20000000 packets a second");
        refused("--within-ms", number, "from 0.000001 to 3600000 milliseconds");
    }
    for share in ["0", "1", "1.5", "-0.5", "NaN", "95"] {
        refused("--quantile", share, "a share of the packets, such as 0.95");
    }
    for octets in ["-1", "65508", "4e2", "NaN"] {
        refused("--octets", octets, "octets");
    }
}
