//! The JSON Schema beside the checks, judged by a validator that we did not write: Python's
//! `jsonschema`. What the schema accepts is not refused for its shape, and the other way round.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_config::{TEMPLATES, parse, schema};
use gatewright_diagnostic::{Diagnostic, SourceId};
use gatewright_testbed::python_program;
use libtest_mimic::{Arguments, Trial};
use serde_json::{Map, Value, json};
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The validator: reads the schema and the descriptions, tells the first error of each, or null.
const VALIDATOR: &str = "\
import json, sys, jsonschema
asked = json.load(sys.stdin)
validator = jsonschema.Draft202012Validator(asked['schema'])
validator.check_schema(asked['schema'])
def judge(it):
    found = next(iter(validator.iter_errors(it)), None)
    return found and found.json_path + ': ' + found.message[:300]
print(json.dumps([judge(it) for it in asked['descriptions']]))
";

/// Codes of findings about the shape of one value: its type, range, choice or form.
const SHAPE_CODES: [u16; 22] = [
    101, 102, 103, 105, 106, 107, 108, 110, 111, 112, 114, 115, 116, 162, 163, 166, 167, 168, 169,
    174, 175, 197,
];

/// Codes of these that a rule between values has, too, or that no pattern can express.
const NOT_OF_ONE_VALUE: [u16; 2] = [109, 104];

/// A test, with the Python that it runs.
type Test = fn(&Path);

fn main() {
    let python = python();
    let tests: [(&str, Test); 3] = [
        ("every_description_that_we_ship_fits_the_schema", shipped),
        ("the_least_description_of_each_kind_fits_the_schema", least),
        ("schema_and_checks_agree_about_every_value", agree),
    ];
    let trials = tests.map(|(name, test)| {
        let found = python.clone();
        let run = move || {
            test(&found.unwrap_or_default());
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(python.is_none())
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit();
}

/// A Python that has the validator.
fn python() -> Option<PathBuf> {
    let has = |python: &Path| {
        let import = ["-W", "ignore", "-c", "import jsonschema"];
        let done = Command::new(python).args(import).stderr(Stdio::null()).status();
        done.is_ok_and(|status| status.success())
    };
    let system = PathBuf::from("python3");
    if has(&system) {
        return Some(system);
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("jsonschema");
    python_program(&folder, "jsonschema==4.26.0", "jsonschema")?;
    Some(folder.join("bin/python3")).filter(|python| has(python))
}

/// What the validator says of each description.
fn judged(python: &Path, schema: &Value, descriptions: &[Value]) -> Vec<Option<String>> {
    let mut child = Command::new(python)
        .args(["-W", "ignore", "-c", VALIDATOR])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let asked = json!({ "schema": schema, "descriptions": descriptions }).to_string();
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(asked.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn data(name: &str, text: &str) -> Value {
    let table: toml::Value = toml::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
    serde_json::to_value(table).unwrap()
}

/// The files below a folder whose names end so.
fn files(folder: &Path, end: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, end, found);
        } else if path.to_string_lossy().ends_with(end) {
            found.push(path);
        }
    }
}

/// The fenced blocks of a page that are parts of a description: they have a table's header.
fn blocks(page: &str) -> Vec<String> {
    let tables = schema()["properties"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let is_header = |line: &str| {
        let name = line.trim_start_matches('[').split(['.', ']']).next().unwrap_or_default();
        // What a command says may begin with a table's name, too.
        let rest = line.split_once(']').map_or("", |(_, rest)| rest.trim_start_matches(']'));
        let is_alone = rest.trim().is_empty() || rest.trim_start().starts_with('#');
        line.starts_with('[') && is_alone && tables.iter().any(|table| table == name)
    };
    let fenced = page.split("```").skip(1).step_by(2);
    let inside = fenced.filter_map(|block| Some(block.split_once('\n')?.1));
    let parts = inside.map(|block| {
        // In a page of commands, a description is between `<<EOF` and `EOF`, or the whole block.
        let from = block.lines().position(is_header);
        let lines = block.lines().skip(from.unwrap_or(usize::MAX));
        lines.take_while(|line| !line.starts_with("EOF")).collect::<Vec<_>>().join("\n")
    });
    parts.filter(|part| !part.is_empty()).collect()
}

/// Templates, files of the examples, and what README and the pages show. A page may show a part of a
/// description, which need not have everything that a whole one needs.
fn shipped(python: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut whole: Vec<(String, String)> =
        TEMPLATES.iter().map(|it| (it.name.to_owned(), it.text.to_owned())).collect();
    let (mut examples, mut pages) = (Vec::new(), vec![root.join("README.md")]);
    files(&root.join("examples"), ".toml", &mut examples);
    // Experiments of the delay lab are of another form.
    examples.retain(|path| !path.starts_with(root.join("examples/lab")));
    files(&root.join("docs"), ".md", &mut pages);
    // A description in several files is in none of them whole.
    let (several, examples): (Vec<_>, Vec<_>) = examples.into_iter().partition(|path| {
        path.ancestors().skip(1).take(2).any(|folder| folder.join("conf.d").is_dir())
    });
    assert!(!several.is_empty(), "an example of several files");
    let read = |path: &PathBuf| (path.display().to_string(), fs::read_to_string(path).unwrap());
    whole.extend(examples.iter().map(read));
    let parts: Vec<_> = (pages.iter().map(read))
        .flat_map(|(name, text)| blocks(&text).into_iter().map(move |part| (name.clone(), part)))
        .chain(several.iter().map(read))
        .collect();
    assert!(whole.len() >= TEMPLATES.len() && parts.len() >= 5, "{parts:?}");
    let mut lax = schema();
    drop_needs(&mut lax);
    for (schema, texts) in [(schema(), whole), (lax, parts)] {
        let all: Vec<_> = texts.iter().map(|(name, text)| data(name, text)).collect();
        for ((name, text), error) in texts.iter().zip(judged(python, &schema, &all)) {
            assert_eq!(error, None, "{name}: {text}");
        }
    }
}

/// Leaves out which keys and tables must be there.
fn drop_needs(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            map.remove("required");
            map.values_mut().for_each(drop_needs);
            let is_of_needs =
                |it: &Value| it.as_array().is_some_and(|all| all.contains(&json!({})));
            map.retain(|key, value| key != "anyOf" || !is_of_needs(value));
        }
        Value::Array(items) => items.iter_mut().for_each(drop_needs),
        _ => {}
    }
}

/// GW0120: what a gateway may consist of, alone.
fn least(python: &Path) {
    let schema = schema();
    let parts: Vec<_> = ["link", "devices", "cse", "program", "tcp_proxy", "route", "gateway"]
        .map(|key| json!({ key: example(&schema["properties"][key]) }))
        .into_iter()
        .chain([json!({}), json!({ "link": {} }), json!({ "link": {}, "cse": {} })])
        .collect();
    let found = judged(python, &schema, &parts);
    for (part, error) in parts.iter().zip(found) {
        let is_empty = codes(part).contains(&120);
        assert_eq!(error.is_some(), is_empty || part["link"] == json!({}), "{part}: {error:?}");
    }
}

/// A small value that fits a schema.
fn example(schema: &Value) -> Value {
    if let Some(options) = schema["anyOf"].as_array() {
        return example(&options[0]);
    }
    if let Some(words) = schema["enum"].as_array() {
        return words[0].clone();
    }
    match schema["type"].as_str().unwrap_or_default() {
        "string" => schema["examples"][0].clone(),
        "boolean" => json!(true),
        "integer" => schema["minimum"].clone(),
        "array" => json!([example(&schema["items"])]),
        _ if schema.get("propertyNames").is_some() => {
            json!({ "lan": example(&schema["additionalProperties"]) })
        }
        _ => {
            let needed = schema["required"].as_array().into_iter().flatten();
            let pair = |key: &Value| {
                let key = key.as_str().unwrap();
                (key.to_owned(), example(&schema["properties"][key]))
            };
            Value::Object(needed.map(pair).collect::<Map<_, _>>())
        }
    }
}

/// Texts of every form, and ones that nearly have it.
const TEXTS: [&str; 67] = [
    "",
    " ",
    "lan",
    "eth0",
    "a/b",
    ".",
    "..",
    "x\ny",
    "0123456789abcdef",
    "ä",
    "192.0.2.1",
    "192.0.2.256",
    "192.0.2.1/24",
    "192.0.2.0/24",
    "192.0.2.0/33",
    "2001:db8::1",
    "2001:db8::/32",
    "2001:db8::1/129",
    "::",
    "default",
    "02:00:00:00:00:01",
    "01:00:00:00:00:01",
    "00:00:00:00:00:00",
    "02:+1:00:00:00:01",
    "frame",
    "ether:ipv4",
    "ether:arp",
    "ether:0x88b5",
    "ether:65536",
    "ether:nothing",
    "ip:udp",
    "ip:256",
    "icmp:3",
    "icmpv6:135",
    "icmp:256",
    "udp:5683",
    "udp:0",
    "tcp:80",
    "label:1048575",
    "label:1048576",
    "dispatch:0x41",
    "gateway:a/b",
    "gateway:a",
    "127.0.0.1:80",
    "127.0.0.1:0",
    "[::1]:80",
    "localhost:80",
    "unix:/run/x",
    "udp",
    "17",
    "a.gate",
    ".gate",
    "/in-cse",
    "Cnurse*",
    "/in-cse/Cnurse",
    "/a/b",
    "/a/a",
    "/a/b/c",
    "http://192.0.2.1:80",
    "mqtt://192.0.2.1",
    "web=192.0.2.1:80",
    "5683-5690",
    "credential:a..b",
    "credential:../a",
    "credential:..",
    "password=credential:a",
    "password=credential:/a",
];

/// Values of every type; lists of a text each only where a list is expected.
fn values(wants_list: bool) -> Vec<Value> {
    let numbers = [-1, 0, 1, 2, 15, 64, 1279, 1280, 65_535, 65_536, i64::MAX];
    let mut all: Vec<Value> = TEXTS.iter().map(|text| json!(text)).collect();
    all.extend(numbers.map(|number| json!(number)));
    all.extend([json!(true), json!([]), json!({}), json!([1]), json!(1.5)]);
    all.push(json!(["lan"]));
    all.extend(TEXTS.iter().filter(|_| wants_list).map(|text| json!([text])));
    all
}

/// Descriptions that differ from a small one in the value of one key, for every key of every table.
/// `inside` puts a table where it belongs.
fn variants(schema: &Value, inside: &dyn Fn(Value) -> Value, found: &mut Vec<Value>) {
    if let Some(of_all) = schema.get("additionalProperties").filter(|it| it.is_object()) {
        for name in ["a", "A_b-1", "", "a.b", "-a", "ä"] {
            found.push(inside(json!({ name: example(of_all) })));
        }
        return variants(of_all, &|table| inside(json!({ "lan": table })), found);
    }
    let small = example(schema);
    let with = |key: &str, value: Value| {
        let mut table = small.clone();
        table[key] = value;
        inside(table)
    };
    found.push(with("nobody_knows_this", json!(1)));
    for (key, inner) in schema["properties"].as_object().unwrap() {
        if let Some(words) = inner["enum"].as_array() {
            found.extend(words.iter().map(|word| with(key, word.clone())));
        }
        // The schema alone refuses a table of tables that is empty: the checks let it be of no use.
        let has_least = inner["minProperties"] == 1;
        let fit = values(inner["type"] == "array").into_iter();
        let fit = fit.filter(|value| !has_least || *value != json!({}));
        found.extend(fit.map(|value| with(key, value)));
        match inner["type"].as_str() {
            Some("object") => variants(inner, &|table| with(key, table), found),
            Some("array") if inner["items"]["type"] == "object" => {
                variants(&inner["items"], &|table| with(key, json!([table])), found);
            }
            Some("integer") => {
                for bound in ["minimum", "maximum"] {
                    let bound = inner[bound].as_i64().unwrap();
                    let around = [bound.saturating_sub(1), bound, bound.saturating_add(1)];
                    found.extend(around.map(|number| with(key, json!(number))));
                }
            }
            _ => found.push(with(key, example(inner))),
        }
    }
}

/// The codes of errors in a description.
fn codes(description: &Value) -> Vec<u16> {
    let text = toml::to_string(&description).unwrap();
    let errors = parse(SourceId::default(), &text).diagnostics.into_iter();
    let errors = errors.filter(|it| it.severity == gatewright_diagnostic::Severity::Error);
    // A number may also be out of the range that another value leaves.
    let by_itself =
        |it: &Diagnostic| it.code.number != 105 || it.message.contains(" must be a number from ");
    errors.filter(by_itself).map(|it| it.code.number).collect()
}

fn agree(python: &Path) {
    let schema = schema();
    let mut all = Vec::new();
    for (key, inner) in schema["properties"].as_object().unwrap() {
        let items = if inner["type"] == "array" { &inner["items"] } else { inner };
        let inside = |table: Value| {
            let table = if inner["type"] == "array" { json!([table]) } else { table };
            let mut whole = json!({ "tcp_proxy": { "p": {
                "listen": "127.0.0.1:8000", "forward": { "address": "192.0.2.1", "port": 80 } } } });
            whole[key] = table;
            whole
        };
        variants(items, &inside, &mut all);
    }
    // TOML has no null, and its numbers have 64 bits.
    assert!(all.len() > 5_000, "{}", all.len());
    let mut wrong = Vec::new();
    for (description, error) in all.iter().zip(judged(python, &schema, &all)) {
        let found = codes(description);
        let refused = found.iter().any(|code| SHAPE_CODES.contains(code));
        let may = refused || found.iter().any(|code| NOT_OF_ONE_VALUE.contains(code));
        match error {
            None if refused => {
                wrong.push(format!("only check refuses {description}: {found:?}"));
            }
            Some(error) if !may => {
                wrong.push(format!("only the schema refuses {description}: {error}"));
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), all.len(), wrong.join("\n"));
}
