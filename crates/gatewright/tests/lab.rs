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
use gatewright_testbed::{Needs, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

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
        Self::named("small")
    }

    fn named(name: &str) -> Self {
        let path = PathBuf::from(format!("/tmp/gatewright-lab-{name}-{}", std::process::id()));
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

/// Delays of another experiment differ by that, too; one without the same conditions is not compared.
fn another_experiment_is_said(folder: &Folder, json: &str, other: &mut Value) {
    let other_json = folder.path("other.json");
    other["experiment"]["node"]["slowdown"] = 3.into();
    fs::write(&other_json, other.to_string()).unwrap();
    let compared = gatewright(&["lab", "compare", json, &other_json]);
    let said = "the experiments differ: node.slowdown is 1 in A, 3 in B";
    assert!(compared.out.contains(said), "{}", compared.out);
    other["conditions"] = serde_json::json!([]);
    fs::write(&other_json, other.to_string()).unwrap();
    let compared = gatewright(&["lab", "compare", json, &other_json]);
    assert_eq!(compared.code, 78, "{}", compared.out);
    assert!(compared.err.contains("no condition in common"), "{}", compared.err);
}

/// A condition a hundred times as slow and unsteady is not judged, and is counted.
fn unsteady_differences_are_counted(folder: &Folder, result: &Value) {
    let written = |name: &str, scale: f64, steady: bool| {
        let mut result = result.clone();
        result["conditions"][0]["medians"] = [10.0, 10.1, 9.9].map(|it| it * scale).to_vec().into();
        result["conditions"][0]["steady"] = steady.into();
        let file = folder.path(name);
        fs::write(&file, result.to_string()).unwrap();
        file
    };
    let compared = gatewright(&[
        "lab",
        "compare",
        &written("one.json", 1.0, true),
        &written("hundred.json", 100.0, false),
    ]);
    assert!(compared.out.contains(" µs, ×100 (×"), "{}", compared.out);
    assert!(
        compared.out.contains(" not judged (1 differs, but is unsteady); "),
        "{}",
        compared.out
    );
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
    let settings =
        ",slowdown,quota_pct,link_capacity_mbps,link_latency_us,link_jitter_us,link_loss_pct";
    assert!(table.lines().next().unwrap().ends_with(settings), "{table}");
    assert!(table.lines().skip(1).all(|line| line.ends_with(",1,100,,,,")), "{table}");

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

    another_experiment_is_said(&folder, &json, &mut changed);
    unsteady_differences_are_counted(&folder, &result);

    let promise = gatewright(&[&["lab", "promise", &json, "--json"], &FLOW[..]].concat());
    let promises = promise.json();
    let promises = promises.as_array().unwrap();
    assert_eq!(promises.len(), result["models"].as_array().unwrap().len());
    for it in promises.iter().filter(|it| it["cause"].is_null()) {
        assert!(it["flows"].as_u64().unwrap() > 0, "{it}");
        assert!(it["load"].as_f64().unwrap() < 1.0, "{it}");
    }
    let has_any = promises.iter().any(|it| it["cause"].is_null());
    assert_eq!(promise.code, i32::from(!has_any), "{}", promise.err);
    a_changed_model_is_promised_by(&folder, result);
}

/// 50 packets of 400 octets a second, 95 % of them within a second.
const FLOW: [&str; 6] = ["--rate", "50", "--octets", "400", "--within-ms", "1000"];

/// The first relay of a result, alone and with what the machine measured in its place: a model of
/// 10 µs, and steady conditions without losses.
fn steady(mut result: Value) -> Value {
    let relay = result["models"][0]["relay"].clone();
    let of_relay = |values: &Value| -> Value {
        values.as_array().unwrap().iter().filter(|it| it["relay"] == relay).cloned().collect()
    };
    result["models"] = of_relay(&result["models"]);
    result["conditions"] = of_relay(&result["conditions"]);
    for it in result["conditions"].as_array_mut().unwrap() {
        (it["steady"], it["received"]) = (true.into(), it["sent"].clone());
    }
    let model = &mut result["models"][0];
    (model["service_variation"], model["p95_over_mean"]) = (0.1.into(), 1.0.into());
    model["queue"] = serde_json::json!({
        "chosen": "first-in-first-out", "setup": null, "error_pct": 5.0, "loser_error_pct": 6.0,
        "service": {"intercept": 1e-5, "slope": 0.0, "r_squared": 1.0, "count": 3}, "conditions": 3
    });
    result
}

/// What `lab promise --model` says of a result that is changed so, in JSON and as text.
fn promised(folder: &Folder, result: &Value, flow: &[&str]) -> (i32, Value, String) {
    let file = folder.path("promised.json");
    fs::write(&file, result.to_string()).unwrap();
    let arguments = [&["lab", "promise", &file, "--model"], flow].concat();
    let text = gatewright(&arguments);
    let json = gatewright(&[&arguments[..], &["--json"]].concat());
    assert_eq!(text.code, json.code);
    (json.code, json.json()[0].clone(), text.out)
}

fn a_changed_model_is_promised_by(folder: &Folder, result: Value) {
    let steady = steady(result);
    let (code, json, text) = promised(folder, &steady, &FLOW);
    assert_eq!((code, &json["beyond_rate"], &json["unsteady"]), (0, &400.into(), &0.into()));
    // Ten times the 400 packets a second that were measured, in flows of 50.
    assert_eq!((&json["flows"], &json["or_more"]), (&80.into(), &true.into()), "{json}");
    assert_eq!(json["model"]["fixed_ns"], 10_000, "{json}");
    let marks = " times the most that was measured, 400/s\n";
    assert!(text.contains("the model errs by 5 %; ") && text.contains(marks), "{text}");
    assert!(text.contains("\n    fixed_ns = 10000\n"), "{text}");

    let mut unsteady = steady.clone();
    unsteady["conditions"][0]["steady"] = false.into();
    let larger = ["--rate", "50", "--octets", "5000", "--within-ms", "1000"];
    let (code, json, text) = promised(folder, &unsteady, &larger);
    assert_eq!((code, &json["beyond_octets"]), (0, &serde_json::json!([100, 1000])), "{json}");
    let marks = "; beyond the measured 100 to 1000 octets; 1 of 3 conditions unsteady\n";
    assert!(text.contains(marks), "{text}");

    let refused = |change: &dyn Fn(&mut Value), why: &str| {
        let mut changed = steady.clone();
        change(&mut changed);
        let (code, json, text) = promised(folder, &changed, &FLOW);
        assert_eq!(code, 1, "{why}");
        assert!(json["flows"].is_null() && json["model"].is_null(), "{json}");
        assert!(json["cause"].as_str().unwrap().contains(why), "{json}");
        assert!(text.contains(" no promise: ") && text.contains(why), "{text}");
        assert!(text.contains("\n    # none: ") && !text.contains("fixed_ns"), "{text}");
    };
    let fixed = "/models/0/queue/service/intercept";
    refused(&|it| *it.pointer_mut(fixed).unwrap() = (-2e-6).into(), "no octets takes -2.0 µs");
    let setup = serde_json::json!({"longest": -3e-6, "time_constant": 0.008});
    refused(
        &|it| it["models"][0]["queue"]["setup"] = setup.clone(),
        "-3.0 µs longer after a long pause",
    );
    refused(
        &|it| it["models"][0]["queue"]["error_pct"] = 72.into(),
        "the model errs by 72 %, and 50 % are allowed",
    );
    refused(
        &|it| it["conditions"][1]["received"] = 90.into(),
        "25.0 % were lost at 400/s, and 5.0 % are allowed",
    );
    refused(&|it| it["models"][0]["queue"] = Value::Null, "too few conditions for a model");
}

/// An experiment that lasts until it is ended: each of its rounds takes a second or two.
const LONG: &str = "\
title = \"long\"
relays = [\"translate-udp\"]
seconds = 0.2
repeats = 1000
repeats_max = 1000
[centre]
octets = 400
rate = 400
";

/// A run of an experiment of many rounds, with its folder.
fn long_run(name: &str) -> (PathBuf, Child) {
    let folder = common::folder(name);
    fs::write(folder.join("long.toml"), LONG).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatewright"));
    command.current_dir(&folder).args(["lab", "run", "long.toml"]);
    (folder, command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
}

/// Waits until the results so far are there; the page takes its place last.
fn until_kept(folder: &Path) -> PathBuf {
    let kept = folder.join("lab-long-unfinished.json");
    let page = kept.with_extension("html");
    assert!(wait_until(Duration::from_mins(2), || page.exists()), "no results are kept");
    kept
}

#[test]
fn a_run_that_is_killed_leaves_a_report_that_says_so() {
    let (folder, mut run) = long_run("lab-killed");
    let kept = until_kept(&folder);
    run.kill().unwrap();
    run.wait().unwrap();
    let read: Value = serde_json::from_str(&fs::read_to_string(&kept).unwrap()).unwrap();
    let why = read["unfinished"].as_str().unwrap();
    assert!(why.contains(" of 1000 repetitions; ") && why.contains("was killed"), "{why}");
    assert!(read["conditions"][0]["received"].as_u64().unwrap() > 0, "{read}");
    let page = fs::read_to_string(kept.with_extension("html")).unwrap();
    assert!(page.contains("This run is unfinished: "), "{page}");
    assert!(!folder.join("lab-long.json").exists(), "nothing looks whole");
    let kept = kept.to_str().unwrap();
    let compared = gatewright(&["lab", "compare", kept, kept]);
    assert!(compared.err.contains("the run is unfinished: "), "{}", compared.err);
}

#[test]
fn a_run_that_is_interrupted_writes_what_it_has() {
    let (folder, run) = long_run("lab-interrupted");
    let kept = until_kept(&folder);
    kill(Pid::from_raw(run.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{:?}", output.status);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("UNFINISHED: ") && said.contains("ended by who ran it"), "{said}");
    let page = fs::read_to_string(folder.join("lab-long.html")).unwrap();
    assert!(page.contains("This run is unfinished: "), "{page}");
    assert!(!kept.exists(), "the report is there in its place");
}

/// Runs the program `$1` on the experiment `$3`, with its output on a disk `$2` that is full until it
/// has complained; copies what it has written to `$4`.
const SCRIPT: &str = "set -eu
    mount -t tmpfs -o size=1m tmpfs \"$2\"
    cat /dev/zero > \"$2/filling\" 2> \"$2.cat\" || true
    \"$1\" lab run \"$3\" -o \"$2\" 2> \"$2.said\" &
    run=$!
    until grep -q 'is not kept' \"$2.said\"; do sleep 0.02; kill -0 $run; done
    rm \"$2/filling\"
    wait $run
    cp \"$2\"/lab-* \"$4\"";

/// The disk is full until the run has complained about it; the report, for which there is room then,
/// says so.
#[test]
fn a_full_disk_is_said_in_the_report() {
    let missing = Needs::new().namespaces().program("unshare").missing();
    if let Some(missing) = missing {
        return println!("skipped: needs {missing}");
    }
    let folder = common::folder("lab-full");
    let experiment = LONG.replace("= 1000", "= 4");
    fs::write(folder.join("long.toml"), experiment).unwrap();
    for name in ["disk", "kept"] {
        fs::create_dir_all(folder.join(name)).unwrap();
    }
    let program = env!("CARGO_BIN_EXE_gatewright");
    let mut script = Command::new("unshare");
    script.args(["-m", "timeout", "120", "sh", "-c", SCRIPT, "sh", program]);
    let output = script.args(["disk", "long.toml", "kept"].map(|it| folder.join(it))).output();
    let output = output.unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let said = fs::read_to_string(folder.join("disk.said")).unwrap_or_default();
    assert!(output.status.success(), "{error}{said}");
    assert!(said.contains("No space left on device"), "{said}");
    let page = fs::read_to_string(folder.join("kept/lab-long.html")).unwrap();
    assert!(page.contains("could not be kept: ") && page.contains("No space left"), "{page}");
    assert!(!folder.join("kept/lab-long-unfinished.json").exists());
}

/// Files without an end are read as far as they may be long.
#[test]
fn a_file_without_an_end_is_refused() {
    let refused = |arguments: &[&str], said: &str| {
        let answer = gatewright(arguments);
        assert_eq!(answer.code, 78, "{arguments:?}: {}", answer.err);
        assert!(answer.err.contains(said), "{arguments:?}: {}", answer.err);
    };
    refused(&["lab", "plan", "/dev/zero"], "an experiment of more than 1048576 octets");
    refused(&["lab", "run", "/dev/zero"], "an experiment of more than 1048576 octets");
    refused(&["lab", "run", "--agents", "/dev/zero"], "of more than 1048576 octets");
    refused(&["lab", "plan", "/dev/urandom"], "/dev/urandom: not UTF-8");
    refused(&[&["lab", "promise", "/dev/zero"], &FLOW[..]].concat(), "longer than 64 MiB");
    let stamp = ["lab", "stamp", "send", "127.0.0.1", "--key-file"];
    refused(&[&stamp[..], &["/dev/zero"]].concat(), "/dev/zero: longer than 64 KiB");
    refused(&["mesh", "key", "show", "/dev/zero"], "/dev/zero: line 1");
    let folder = common::folder("lab-pipe");
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let pipe = pipe.to_str().unwrap();
    refused(&["lab", "plan", pipe], "a named pipe is not read");
    refused(&[&stamp[..], &[pipe]].concat(), "a named pipe is not read");
    refused(&["mesh", "key", "show", pipe], "a named pipe is not read");
}

#[test]
fn what_is_wrong_is_told_before_time_is_spent() {
    let unknown = gatewright(&["lab", "run", "paperr"]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.err.contains("default, paper, unexplained, or a TOML file"), "{}", unknown.err);
    let none = gatewright(&["lab", "compare", "/dev/null", "/dev/null"]);
    assert_eq!(none.code, 78, "{}", none.err);
    assert!(none.err.contains("not a result of `gatewright lab run`"), "{}", none.err);
    for name in ["default", "paper", "unexplained"] {
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

/// A link of a sensor network that is to carry ten times as much as it can.
const OVERLOADED: &str = "\
title = \"overloaded\"
relays = [\"translate-udp\", \"translate-tcp\"]
seconds = 0.1
repeats = 1
repeats_max = 1
[centre]
octets = 1400
rate = 200
[link]
like = \"802.15.4\"
";

#[test]
fn a_link_that_is_asked_for_too_much_is_said_in_plan_and_run() {
    let missing = Needs::new().namespaces().linux(6, 6).missing();
    if let Some(missing) = missing {
        return println!("skipped: needs {missing}");
    }
    let folder = common::folder("lab-overloaded");
    let file = folder.join("overloaded.toml");
    fs::write(&file, OVERLOADED).unwrap();
    let file = file.to_str().unwrap();
    let said = "1 of 1 condition asks for more than the link's capacity of 0.25 Mbit/s";
    let plan = gatewright(&["lab", "plan", file]);
    assert!(plan.out.contains(said), "{}", plan.out);
    assert!(plan.out.contains("\n1 condition each, 2 repetitions of "), "{}", plan.out);
    let run = gatewright(&["lab", "run", file, "-o", folder.to_str().unwrap()]);
    assert!(run.err.contains(said), "{}", run.err);
    assert!(run.err.contains("2 relays under 1 condition: "), "{}", run.err);
    assert!(run.out.contains(&format!("\n- {said}")), "{}", run.out);
}

/// Without a relay that can be set up there is a report, which says so, and the answer is no.
#[test]
fn a_run_without_a_result_says_so() {
    let missing = Needs::new().namespaces().linux(6, 6).missing();
    if let Some(missing) = missing {
        return println!("skipped: needs {missing}");
    }
    let folder = common::folder("lab-nothing");
    let file = folder.join("nothing.toml");
    let lossy = OVERLOADED.replace("like = \"802.15.4\"", "loss_pct = 100.0");
    fs::write(&file, lossy).unwrap();
    let run = gatewright(&["lab", "run", file.to_str().unwrap(), "-o", folder.to_str().unwrap()]);
    assert_eq!(run.code, 1, "{}{}", run.out, run.err);
    assert!(
        run.out.contains("NO RELAY HAS A RESULT\nleft out: relay translate-udp: "),
        "{}",
        run.out
    );
    let page = fs::read_to_string(folder.join("lab-nothing.html")).unwrap();
    assert!(page.contains("No relay has a result.") && page.contains("0 conditions"), "{page}");
}

/// A folder of another user's, and a file of another user's in a folder like `/tmp`: both end the run
/// before it measures.
#[test]
fn files_that_cannot_be_written_end_the_run_at_once() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return println!("skipped: needs root");
    }
    let folder = Folder::named("unwritable");
    let as_nobody = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatewright"));
        command.current_dir(&folder.0).args(["lab", "run", "small.toml", "-o", "results"]);
        command.uid(NOBODY).gid(NOBODY).output()
    };
    let results = folder.0.join("results");
    fs::create_dir(&results).unwrap();
    if as_nobody().is_err() {
        return println!("skipped: needs a build folder that others can enter");
    }
    let refused = |said: &str| {
        let run = as_nobody().unwrap();
        let error = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(77), "{error}");
        assert!(error.contains(said) && !error.contains("relays under"), "{error}");
    };
    refused("Permission denied");
    fs::set_permissions(&results, fs::Permissions::from_mode(0o1777)).unwrap();
    fs::write(results.join("lab-small.json"), "root's").unwrap();
    refused("lab-small.json: another user's file");
    assert_eq!(fs::read_dir(&results).unwrap().count(), 1, "nothing is left behind");
}

#[test]
fn a_second_run_of_the_same_files_is_refused() {
    let (folder, mut run) = long_run("lab-twice");
    until_kept(&folder);
    let file = folder.join("long.toml");
    let second = ["lab", "run", file.to_str().unwrap(), "-o", folder.to_str().unwrap()];
    let refused = gatewright(&second);
    assert_eq!(refused.code, 75, "{}{}", refused.out, refused.err);
    let said = "lab-long.html: another `gatewright lab run` is measuring for this file";
    assert!(refused.err.contains(said), "{}", refused.err);
    run.kill().unwrap();
    run.wait().unwrap();
    // What a killed run leaves behind keeps nobody away.
    fs::write(&file, LONG.replace("= 1000", "= 1")).unwrap();
    let next = gatewright(&second);
    assert_eq!(next.code, 0, "{}{}", next.out, next.err);
    assert!(!folder.join("lab-long.lock.part").exists());
}
