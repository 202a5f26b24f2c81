//! `gatewright device export --fhir`: what devices reported, from a running CSE and from the
//! database of a stopped one; each resource is read by fhir.resources (PyPI), which knows the
//! definitions of FHIR.
//!
//! That is installed into a virtual environment below the target directory the first time, or
//! taken from `GATEWRIGHT_FHIR_PYTHON` (a Python that has it). HAPI's instance validator (Maven
//! Central), which knows the rules that the definitions state, too, is fetched by Maven likewise.
//! Without them the checks are skipped, and say so.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod common;

use common::{folder, gatewright};
use gatewright_bindings::{cse, devices};
use gatewright_onem2m::CseType;
use libtest_mimic::{Arguments, Trial};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// The version these tests were made against. Of Observation and Device, FHIR R4B is R4.
const PACKAGE: &str = "fhir.resources==8.3.0";
const KINDS: [&str; 8] = [
    "oximeter",
    "spot-oximeter",
    "blood-pressure",
    "scale",
    "glucose",
    "dispenser",
    "activity",
    "thermometer",
];
/// Reads resources, one a line or all in one Bundle, and says how many it took.
const JUDGE: &str = r#"
import sys
from fhir.resources.R4B import get_fhir_model_class
lines = open(sys.argv[1]).read().splitlines()
import json
for line in lines:
    name = json.loads(line)["resourceType"]
    get_fhir_model_class(name).model_validate_json(line)
print(len(lines))
"#;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let python = if arguments.list { None } else { find() };
    let absent = python.is_none() && !arguments.list;
    let hapi = if arguments.list { None } else { find_hapi() };
    let unknown = hapi.is_none() && !arguments.list;
    let trials = vec![
        Trial::test("from_a_running_cse_and_from_its_database_the_same", || {
            from_both();
            Ok(())
        }),
        Trial::test("a_wrong_command_line_and_a_wrong_file_are_told", || {
            wrong();
            Ok(())
        }),
        Trial::test("another_implementation_of_fhir_reads_it", move || {
            judged(python.as_deref().expect("installed"));
            Ok(())
        })
        .with_ignored_flag(absent),
        Trial::test("the_instance_validator_of_hapi_finds_no_error", move || {
            validated(hapi.as_deref().expect("installed"));
            Ok(())
        })
        .with_ignored_flag(unknown),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A Python that knows FHIR.
fn find() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("GATEWRIGHT_FHIR_PYTHON") {
        return Some(given.into());
    }
    let venv = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("fhir-venv");
    let python = venv.join("bin/python");
    let done = |command: &mut Command| {
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    let knows = || done(Command::new(&python).args(["-c", "import fhir.resources.R4B.bundle"]));
    if python.exists() && knows() {
        return Some(python);
    }
    let made = done(Command::new("python3").args(["-m", "venv"]).arg(&venv));
    let pip = venv.join("bin/pip");
    let installed = made && done(Command::new(pip).args(["install", "--quiet", PACKAGE]));
    (installed && knows()).then_some(python)
}

/// The folder with the jars of HAPI, if Maven and Java are here.
fn find_hapi() -> Option<PathBuf> {
    let jars = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("fhir-hapi");
    let whole = jars.join("whole");
    let quiet = |command: &mut Command| {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !quiet(Command::new("java").arg("-version")) {
        return None;
    }
    if !whole.exists() {
        let mut fetch = Command::new("mvn");
        fetch.args(["-q", "-B", "dependency:copy-dependencies", "-f"]).arg(judge("pom.xml"));
        fetch.arg(format!("-DoutputDirectory={}", jars.display()));
        if !quiet(&mut fetch) {
            return None;
        }
        fs::write(&whole, "").ok()?;
    }
    Some(jars)
}

fn judge(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fhir_judge").join(file)
}

/// Devices of all kinds at a gateway, which is stopped then: what it was asked before, and its
/// database.
fn ward(name: &str, ask: impl FnOnce(&str)) -> (PathBuf, u64) {
    let store = folder(name).join("cse.db");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut machine = gatewright_onem2m::CseConfig::new(CseType::Middle, "/id-mn", "cse-mn");
    machine.admin = Some("CAdmin".to_owned());
    let mut config = cse::CseServerConfig::new(machine);
    config.listen = vec!["127.0.0.1:0".parse().unwrap()];
    config.store = Some(store.clone());
    let (cse, listener) = runtime.block_on(async {
        let cse = cse::start(config).await.unwrap();
        let config = devices::DevicesConfig::new(([127, 0, 0, 1], 0).into(), "cse-mn");
        let listener = devices::start(config, cse.engine().clone()).await.unwrap();
        (cse, listener)
    });
    let to = listener.address().to_string();
    let mut answered = 0;
    let all: Vec<_> = KINDS
        .iter()
        .zip(1_u16..)
        .map(|(kind, seed)| {
            let seed = seed.to_string();
            let to = to.clone();
            std::thread::spawn(move || {
                let simulate = ["device", "simulate", "--json", "--rate", "5", "--seconds", "1"];
                let more = ["--kind", kind, "--seed", &seed, "--to", &to];
                gatewright(&[&simulate[..], &more].concat())
            })
        })
        .collect();
    for (kind, said) in KINDS.iter().zip(all) {
        let said = said.join().unwrap();
        assert_eq!(said.code, 0, "{kind}: {} {}", said.out, said.err);
        answered += said.json()["answered"].as_u64().unwrap();
    }
    ask(&format!("http://{}", cse.addresses()[0]));
    runtime.block_on(async {
        listener.stop().await;
        cse.stop().await;
    });
    (store, answered)
}

fn export(from: &[&str], more: &[&str]) -> String {
    let said = gatewright(&[&["device", "export", "--fhir"], from, more].concat());
    assert_eq!(said.code, 0, "{}", said.err);
    said.out
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn from_both() {
    let mut running = String::new();
    let (store, answered) = ward("fhir-both", |url| {
        let from = ["--url", url, "--as", "CAdmin"];
        running = export(&from, &["--subject", "Patient/7", "--ndjson"]);
    });
    let store = store.to_str().unwrap();
    let stopped = export(&["--store", store], &["--subject", "Patient/7", "--ndjson"]);
    assert_eq!(running, stopped);
    let all = lines(&running);
    let of = |kind: &str| all.iter().filter(|it| it["resourceType"] == kind).count();
    assert_eq!(of("Device"), KINDS.len());
    assert!(of("Observation") as u64 >= answered, "{answered}");
    let ids: BTreeSet<&str> = all.iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), all.len());
    // Who they are is what they said of themselves.
    let oximeter = all.iter().find(|it| it["id"] == "phd-0247000100000001").unwrap();
    assert_eq!(oximeter["identifier"][0]["value"], "02-47-00-01-00-00-00-01");
    assert!(oximeter["manufacturer"].is_string(), "{oximeter}");
    assert_eq!(oximeter["specialization"][0]["systemType"]["coding"][0]["code"], "528388");
    let pressure = all.iter().find(|it| it["code"]["coding"][0]["code"] == "150020").unwrap();
    assert_eq!(pressure["component"].as_array().unwrap().len(), 3, "{pressure}");
    assert_eq!(pressure["subject"]["reference"], "Patient/7");
    // One device of one patient, as a transaction.
    let one = ["--device", "0247000400000001", "--subject", "0247000400000001=Patient/8"];
    let file = folder("fhir-file").join("bundle.json");
    let to = ["--to", file.to_str().unwrap(), "--json"];
    let answer =
        gatewright(&[&["device", "export", "--fhir", "--store", store][..], &one, &to].concat());
    assert_eq!((answer.code, &answer.json()["devices"]), (0, &1.into()), "{}", answer.err);
    let bundle: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let entries = bundle["entry"].as_array().unwrap();
    assert_eq!(Some(entries.len() as u64 - 1), answer.json()["observations"].as_u64());
    let weight = &entries[1]["resource"];
    assert_eq!(weight["device"]["reference"], entries[0]["fullUrl"], "{weight}");
    assert_eq!(weight["valueQuantity"]["code"], "kg");
    // A ward in several transactions, each of which has the devices that it refers to.
    let ward = ["--subject", "Patient/7", "--bundle", "10"];
    let bundles = lines(&export(&["--store", store], &ward));
    let mut observed = 0;
    for bundle in &bundles {
        let entries = bundle["entry"].as_array().unwrap();
        assert!((1..=10).contains(&entries.len()), "{}", entries.len());
        let devices: BTreeSet<&str> =
            entries.iter().filter_map(|it| it["fullUrl"].as_str()).collect();
        for entry in entries.iter().filter(|it| it["resource"]["resourceType"] == "Observation") {
            let device = entry["resource"]["device"]["reference"].as_str().unwrap();
            assert!(devices.contains(device), "{device} {devices:?}");
            observed += 1;
        }
    }
    assert_eq!(observed, of("Observation"));
    assert!(bundles.len() > observed / 10, "{} {observed}", bundles.len());
    check_absent_device(store);
    // Whom nobody named for is left out; what is older than tomorrow, too.
    let nobody = gatewright(&[
        "device",
        "export",
        "--fhir",
        "--store",
        store,
        "--ndjson",
        "--subject",
        "0247000400000001=Patient/8",
    ]);
    assert_eq!(lines(&nobody.out).iter().filter(|it| it["resourceType"] == "Device").count(), 1);
    assert!(nobody.err.contains("7 devices without --subject"), "{}", nobody.err);
    let later = ["--subject", "Patient/7", "--ndjson", "--since", "20991231T000000"];
    assert_eq!(lines(&export(&["--store", store], &later)).len(), KINDS.len());
}

/// A device that was asked for and is not there is named.
fn check_absent_device(store: &str) {
    let file = folder("fhir-absent").join("none.json");
    let answer = gatewright(&[
        "device",
        "export",
        "--fhir",
        "--store",
        store,
        "--subject",
        "1111111111111111=Patient/9",
        "--json",
        "--to",
        file.to_str().unwrap(),
    ]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert_eq!(answer.json()["unknown"], serde_json::json!(["1111111111111111"]));
}

fn wrong() {
    for arguments in [
        &["--store", "x.db", "--subject", "Patient/1"][..],
        &["--fhir", "--store", "x.db"],
        &["--fhir", "--subject", "Patient/1"],
        &["--fhir", "--url", "http://127.0.0.1:1", "--subject", "Patient/1"],
        &["--fhir", "--as", "CAdmin", "--subject", "Patient/1"],
        &["--fhir", "--store", "x.db", "--as", "CAdmin", "--subject", "Patient/1"],
        &["--fhir", "--store", "x.db", "--subject", "nobody"],
        &["--fhir", "--store", "x.db", "--subject", "Patient/1", "--since", "yesterday"],
    ] {
        assert_eq!(
            gatewright(&[&["device", "export"], arguments].concat()).code,
            2,
            "{arguments:?}"
        );
    }
    let from = |from: &[&str]| {
        gatewright(&[&["device", "export", "--fhir", "--subject", "Patient/1"], from].concat())
    };
    assert_eq!(from(&["--store", "/nonexistent/cse.db"]).code, 78);
    assert_eq!(from(&["--url", "http://127.0.0.1:1", "--as", "CAdmin"]).code, 69);
    // What was exported before stays until the new export is whole.
    let to = folder("fhir-kept").join("before.json");
    fs::write(&to, "before").unwrap();
    let nowhere = ["--url", "http://127.0.0.1:1", "--as", "CAdmin", "--to", to.to_str().unwrap()];
    assert_eq!(from(&nowhere).code, 69);
    assert_eq!(fs::read(&to).unwrap(), b"before");
    assert_eq!(fs::read_dir(to.parent().unwrap()).unwrap().count(), 1);
    let empty = folder("fhir-empty").join("empty.db");
    fs::write(&empty, "").unwrap();
    let said = from(&["--store", empty.to_str().unwrap()]);
    assert!(said.code == 78 && said.err.contains("no CSE"), "{} {}", said.code, said.err);
    assert_eq!(fs::read(&empty).unwrap(), b"", "it was only read");
    assert_eq!(fs::read_dir(empty.parent().unwrap()).unwrap().count(), 1);
}

fn judged(python: &Path) {
    let (store, _) = ward("fhir-judged", |_| {});
    let store = store.to_str().unwrap();
    for form in [&["--ndjson"][..], &[]] {
        let text = export(&["--store", store], &[&["--subject", "Patient/7"], form].concat());
        let file = folder("fhir-judged-text").join("export.json");
        fs::write(&file, &text).unwrap();
        let output = Command::new(python).args(["-c", JUDGE]).arg(&file).output().unwrap();
        let judged = String::from_utf8(output.stdout).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(judged.trim(), text.lines().count().to_string(), "{said}");
    }
}

/// What HAPI says of a text, without what it cannot know: the guide's own definitions are in none of
/// the packages that are to be had.
fn said(jars: &Path, text: &str) -> Vec<String> {
    let file = folder("fhir-validated").join("export.ndjson");
    fs::write(&file, text).unwrap();
    let path = format!("{}/*", jars.display());
    let output =
        Command::new("java").args(["-cp", &path]).arg(judge("Judge.java")).arg(&file).output();
    let output = output.unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let all = format!("judged\t{}", text.lines().count());
    assert!(said.lines().any(|line| line == all), "{}", String::from_utf8_lossy(&output.stderr));
    let errors =
        said.lines().filter(|line| line.contains("\tERROR\t") || line.contains("\tFATAL\t"));
    let known = |line: &&str| {
        let guide = line.contains("\tValidation_VAL_Profile_Unknown\t")
            && line.contains("http://hl7.org/fhir/uv/phd/");
        // The guide has codes as values of components; the profiles of vital signs, which came
        // before it, bind every such value to units.
        let is_coded = line.contains(".component[") && line.contains("ofType(CodeableConcept)");
        guide || (is_coded && line.contains("ucum-vitals-common"))
    };
    errors.filter(|line| !known(line)).map(str::to_owned).collect()
}

/// One resource of every device and of every kind of observation, against FHIR R4's definitions,
/// and vital signs against their profiles.
fn validated(jars: &Path) {
    let (store, _) = ward("fhir-validated-store", |_| {});
    let store = store.to_str().unwrap();
    let all = export(&["--store", store], &["--subject", "Patient/7", "--ndjson"]);
    let mut kinds = BTreeSet::new();
    let one_each = lines(&all).into_iter().filter(|it| {
        let kind = |it: &Value| (it["device"].to_string(), it["code"]["coding"][0].to_string());
        it["resourceType"] == "Device" || kinds.insert(kind(it))
    });
    let mut few: Vec<Value> = one_each.collect();
    let text = |few: &[Value]| few.iter().map(|it| it.to_string() + "\n").collect::<String>();
    let whole = few.len();
    assert!(whole > 2 * KINDS.len(), "{whole}");
    // It judges: an observation without a status is none, and so is a weight without its unit.
    let mut broken = few.iter().find(|it| it["valueQuantity"]["code"] == "kg").unwrap().clone();
    broken.as_object_mut().unwrap().remove("status");
    broken["valueQuantity"].as_object_mut().unwrap().remove("unit");
    few.push(broken);
    let found = said(jars, &text(&few));
    let of_broken = format!("said\t{whole}\t");
    let (expected, others): (Vec<_>, Vec<_>) =
        found.iter().partition(|line| line.starts_with(&of_broken));
    assert!(others.is_empty(), "{others:#?}");
    let tells = |what: &str| expected.iter().any(|line| line.contains(what));
    assert!(tells("Observation.status") && tells("unit: minimum required = 1"), "{expected:#?}");
}
