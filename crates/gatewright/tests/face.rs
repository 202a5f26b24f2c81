//! The command line as a user meets it: the binary is run, its output and exit code are judged.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod common;

use common::{folder, gatewright, with_input};
use gatewright_testbed::Needs;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

const GOOD: &str = "[link.lan]\naddresses = [\"192.0.2.1/24\"]\n";
const BAD: &str = "[link.lan]\nmtuu = 1\n\n[[route]]\nto = \"default\"\n";

/// Nobody writes to it, so that a reader would wait for ever.
#[test]
fn a_named_pipe_is_refused_by_name() {
    let place = folder("pipe");
    let pipe = place.join("gateway.toml");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let program = place.join("courier.gate");
    std::os::unix::fs::symlink(&pipe, &program).unwrap();
    for (verb, file) in [(&["check"][..], &pipe), (&["gw", "check"], &program)] {
        let mut command = Command::new("timeout");
        command.arg("60").arg(env!("CARGO_BIN_EXE_gatewright")).args(verb).arg(file);
        let said = command.output().unwrap();
        let error = String::from_utf8_lossy(&said.stderr).into_owned();
        assert_eq!(said.status.code(), Some(78), "{verb:?}: {error}");
        assert!(error.contains("a named pipe is not read"), "{verb:?}: {error}");
    }
    // The pipe that a shell makes is read.
    let script = format!(
        "{} check <(printf '[link.lan]\naddresses = [\"192.0.2.1/24\"]\n')",
        env!("CARGO_BIN_EXE_gatewright")
    );
    let said = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}

#[test]
fn check_says_yes_with_0_and_no_with_78() {
    let good = with_input(&["check", "-"], GOOD);
    assert_eq!((good.code, good.err.as_str()), (0, ""));
    assert_eq!(good.out, "-: ok: `gatewright`, 1 link\n");
    let bad = with_input(&["check", "-"], BAD);
    assert_eq!((bad.code, bad.out.as_str()), (78, ""));
    for part in ["-:2:1", "GW0101", "-:5:6", "GW0134", "2 errors"] {
        assert!(bad.err.contains(part), "{part} is not in {}", bad.err);
    }
    assert!(!bad.err.contains('\u{1b}'), "no colours where there is no terminal");
}

#[test]
fn check_answers_in_json() {
    let bad = with_input(&["check", "--json", "-"], BAD);
    assert_eq!((bad.code, bad.err.as_str()), (78, ""));
    let answer = bad.json();
    assert_eq!(answer["ok"], false);
    let file = &answer["files"][0];
    assert_eq!((file["file"].as_str(), file["gateway"].is_null()), (Some("-"), true));
    let finding = &file["findings"][0];
    assert_eq!(
        (finding["code"].as_str(), finding["severity"].as_str()),
        (Some("GW0101"), Some("error"))
    );
    assert_eq!(
        (finding["place"]["line"].as_u64(), finding["place"]["column"].as_u64()),
        (Some(2), Some(1))
    );
    assert_eq!(finding["fix"]["replacement"], "mtu");
    let good = with_input(&["check", "--json", "-"], GOOD).json();
    assert_eq!(
        (good["ok"].as_bool(), good["files"][0]["gateway"]["links"].as_u64()),
        (Some(true), Some(1))
    );
}

#[test]
fn check_tells_warnings_beside_errors() {
    let text = "[[program]]\nfile = \"gone.gate\"\n[control]\nmetrics = \"0.0.0.0:9464\"\n";
    let open = format!("{GOOD}{text}");
    let said = with_input(&["check", "-"], &open);
    // The program is not there; the warning stands beside it.
    assert_eq!(said.code, 78);
    assert!(said.err.contains("warning[GW0160]") && said.err.contains("GW0164"), "{}", said.err);
    assert!(said.err.contains("1 error, 1 warning") && said.out.is_empty(), "{}", said.err);
}

#[test]
fn check_compiles_the_programs_that_a_description_names() {
    let folder = folder("programs");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let names = |file: &str| format!("{GOOD}[[program]]\nfile = \"{file}\"\n");
    fs::write(path("good.gate"), "gateway nothing { }\n").unwrap();
    fs::write(path("bad.gate"), "gateway { nothing\n").unwrap();
    for (file, code, part) in
        [("good.gate", 0, ""), ("bad.gate", 78, "bad.gate:1:"), ("gone.gate", 78, "GW0164")]
    {
        fs::write(path("gateway.toml"), names(file)).unwrap();
        let said = gatewright(&["check", &path("gateway.toml")]);
        assert_eq!(said.code, code, "{file}: {}", said.err);
        assert!(said.err.contains(part), "{file}: {}", said.err);
    }
}

/// An error in the description hides none in its programs, of which each has all of its own.
#[test]
fn errors_of_a_description_and_of_all_its_programs_are_told_at_once() {
    let folder = folder("all-at-once");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    fs::write(path("one.gate"), "gateway { nothing\n").unwrap();
    fs::write(path("two.gate"), "gateway two { role a = nothing server at \"x:1\" }\n").unwrap();
    let programs = "[[program]]\nfile = \"one.gate\"\n[[program]]\nfile = \"two.gate\"\n\
                    [[program]]\nfile = \"gone.gate\"\nat = [\"a=b\"]\n";
    fs::write(path("gateway.toml"), format!("{GOOD}colour = 1\n{programs}")).unwrap();
    let said = gatewright(&["check", &path("gateway.toml")]);
    assert_eq!(said.code, 78);
    for part in ["unknown key `colour`", "one.gate:1:", "two.gate:1:", "cannot read"] {
        assert!(said.err.contains(part), "{part}: {}", said.err);
    }
}

/// Nor does it hide a file that a table without errors names; what is said of a table with errors may
/// only follow from them.
#[test]
fn an_error_of_one_table_hides_no_missing_file_of_another() {
    let folder = folder("files-beside");
    let path = folder.join("gateway.toml").to_str().unwrap().to_owned();
    let tls = "[cse]\nbase = \"lan\"\nid = \"/cse\"\nstore = \"cse.db\"\n[cse.tls]\n\
               certificate = \"no.pem\"\nkey = \"no.key\"\nauthorities = \"no.pem\"\n";
    for (text, has_file) in [
        (format!("{GOOD}colour = 1\n{tls}"), true),
        (format!("{GOOD}{tls}"), true),
        (format!("{GOOD}{tls}colour = 1\n"), false),
    ] {
        fs::write(&path, &text).unwrap();
        let said = gatewright(&["check", &path]);
        assert_eq!(said.code, 78, "{text}");
        assert_eq!(said.err.contains("GW0194"), has_file, "{text}\n{}", said.err);
        assert_eq!(said.err.contains("colour"), text.contains("colour"), "{}", said.err);
    }
}

/// A token that is saved is its owner's alone, replaces nothing, and opens what its role may see.
#[test]
fn a_saved_token_is_for_its_owner_alone() {
    let folder = folder("saved-token");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let web = "[web]\nlisten = \"127.0.0.1:7087\"\ntokens = \"web-tokens\"\n";
    fs::write(path("gateway.toml"), format!("{GOOD}{web}")).unwrap();
    let description = path("gateway.toml");
    let add = |name: &str, to: &str| {
        let role = ["--role", "viewer", "--save", to];
        gatewright(&[&["web", "token", "add", &description, "--name", name], &role[..]].concat())
    };
    let said = add("me", &path("token"));
    assert_eq!((said.code, said.out.as_str()), (0, ""), "{}", said.err);
    let saved = fs::read_to_string(path("token")).unwrap();
    assert!(saved.starts_with("gwt_") && !said.err.contains(saved.trim()), "{}", said.err);
    let mode = fs::metadata(path("token")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = add("other", &path("token"));
    assert!(again.code != 0 && again.err.contains(&path("token")), "{}", again.err);
    // No token was made for nobody, and no file for no token.
    let twice = add("me", &path("second"));
    assert!(twice.code != 0 && !fs::exists(path("second")).unwrap(), "{}", twice.err);
    let list = gatewright(&["web", "token", "list", &description]).out;
    assert_eq!(list, "viewer   me\n");
}

/// Saves a token on a full disk, and shows what is there then.
const FULL_DISK: &str =
    "mount -t tmpfs -o size=4k none \"$2\" && head -c 4096 /dev/zero > \"$2/ballast\"
    \"$1\" web token add \"$3\" --name me --role viewer --save \"$2/token\"
    echo \"$? $(ls \"$2\")\"";

/// Neither a file without a token is left, nor a token that nobody has seen.
#[test]
fn a_token_that_cannot_be_saved_is_not_made() {
    if let Some(missing) = Needs::new().namespaces().program("unshare").missing() {
        return println!("skipped: needs {missing}");
    }
    let folder = folder("full-token");
    let web = "[web]\nlisten = \"127.0.0.1:7087\"\ntokens = \"web-tokens\"\n";
    fs::write(folder.join("gateway.toml"), format!("{GOOD}{web}")).unwrap();
    fs::create_dir_all(folder.join("disk")).unwrap();
    let mut script = Command::new("unshare");
    script.args(["-m", "sh", "-c", FULL_DISK, "sh", env!("CARGO_BIN_EXE_gatewright")]);
    let output = script.args(["disk", "gateway.toml"].map(|it| folder.join(it))).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "69 ballast\n", "{said}");
    assert!(said.contains("disk/token: No space left on device"), "{said}");
    let list = gatewright(&["web", "token", "list", folder.join("gateway.toml").to_str().unwrap()]);
    assert!(!list.out.contains("me"), "{}", list.out);
}

#[test]
fn what_cannot_be_read_is_named() {
    let said = gatewright(&["check", "no-such-file.toml"]);
    assert_eq!((said.code, said.out.as_str()), (78, ""));
    assert!(said.err.starts_with("error: no-such-file.toml: "), "{}", said.err);
    let said = gatewright(&["check", "--json", "no-such-file.toml"]);
    assert_eq!((said.code, said.json()["error"]["exit"].as_u64()), (78, Some(78)));
    let path = folder("octets").join("latin1.toml");
    fs::write(&path, b"# caf\xe9\n").unwrap();
    let said = gatewright(&["check", path.to_str().unwrap()]);
    assert_eq!(said.code, 78);
    assert!(said.err.contains("not UTF-8 from octet 5 on"), "{}", said.err);
}

#[test]
fn a_wrong_command_line_ends_with_2() {
    for arguments in [&["chekc"][..], &[], &["check"], &["header", "x"], &["init", "gatewey"]] {
        let said = gatewright(arguments);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{arguments:?}");
    }
    assert!(gatewright(&["init", "gatewey"]).err.contains("a similar value exists: 'gateway'"));
}

/// A program that asks for JSON is answered in it, whatever is wrong.
#[test]
fn a_wrong_command_line_with_json_is_told_in_json() {
    for (arguments, why) in [
        (&["status", "--nosuch", "--json"][..], "unexpected argument '--nosuch' found"),
        (&["--json", "chekc"], "unrecognized subcommand 'chekc'"),
        (&["events", "--since", "x", "--json"], "invalid value 'x' for '--since <NUMBER>'"),
        (&["olsr", "--json"], "required arguments were not provided"),
    ] {
        let said = gatewright(arguments);
        let told: Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!((said.code, &told["error"]["exit"]), (2, &2.into()), "{arguments:?}");
        let message = told["error"]["message"].as_str().unwrap();
        assert!(message.contains(why) && !message.contains("Usage:"), "{message}");
        assert_eq!(said.err, "");
    }
    // What follows `--` is no option.
    assert_eq!(gatewright(&["check", "one", "--nosuch", "--", "--json"]).out, "");
}

#[test]
fn every_template_that_init_writes_passes_check() {
    let list = gatewright(&["init", "--json"]).json();
    let names: Vec<&str> =
        list["templates"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"gateway") && names.contains(&"udp-proxy"), "{names:?}");
    for name in names {
        let path = folder(&format!("init-{name}")).join("gateway.toml");
        let path = path.to_str().unwrap();
        let said = gatewright(&["init", name, "--output", path]);
        assert_eq!(said.code, 0, "{}", said.err);
        assert_eq!(fs::read_to_string(path).unwrap(), gatewright(&["init", name]).out);
        let said = gatewright(&["check", path]);
        assert_eq!(said.code, 0, "{name}: {}", said.err);
    }
}

#[test]
fn init_never_replaces_a_file() {
    let path = folder("init-twice").join("gateway.toml");
    fs::write(&path, "mine").unwrap();
    let said = gatewright(&["init", "gateway", "-o", path.to_str().unwrap()]);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("is not replaced"), "{}", said.err);
    assert_eq!(fs::read_to_string(path).unwrap(), "mine");
}

#[test]
fn explain_knows_the_codes_of_every_language() {
    for (asked, code) in [("GW0101", "GW0101"), ("gw1", "GW0001"), ("105", "GW0105")] {
        let said = gatewright(&["explain", asked]);
        assert_eq!(said.code, 0, "{}", said.err);
        assert!(said.out.starts_with(&format!("{code}: ")), "{}", said.out);
        assert_eq!(gatewright(&["explain", "--json", asked]).json()["code"], code);
    }
    let all = gatewright(&["explain"]).out;
    for code in ["GW0001", "GW0100", "GW02"] {
        assert!(all.contains(code), "{code}");
    }
    let said = gatewright(&["explain", "GW9999"]);
    assert_eq!((said.code, said.out.as_str()), (1, ""));
}

/// The art of RFC 768, from which each language gets its accessors.
const UDP: &str = "
     0      7 8     15 16    23 24    31
    +--------+--------+--------+--------+
    |     Source      |   Destination   |
    |      Port       |      Port       |
    +--------+--------+--------+--------+
    |                 |                 |
    |     Length      |    Checksum     |
    +--------+--------+--------+--------+
";

#[test]
fn header_writes_accessors_in_each_language() {
    for (lang, part) in [("rust", "pub struct Udp"), ("c", "static inline"), ("java", "class Udp")]
    {
        let arguments = ["header", "-", "--lang", lang, "--name", "Udp"];
        let said = with_input(&arguments, UDP);
        assert_eq!(said.code, 0, "{}", said.err);
        assert!(said.out.contains(part), "{lang}: {}", said.out);
        let answer = with_input(&[&arguments[..], &["--json"]].concat(), UDP).json();
        assert_eq!(
            (answer["lang"].as_str(), answer["headers"][0].as_str()),
            (Some(lang), Some("Udp"))
        );
        assert_eq!(answer["files"][0]["text"].as_str(), Some(said.out.as_str()));
    }
}

/// Two sections, of which one is asked for, and one file a class.
#[test]
fn header_reads_one_section_and_writes_files() {
    let document = format!("A Memo\n\n1.  One\n\n{UDP}\n2.  Two\n\n{UDP}\n");
    let folder = folder("header");
    let written = |arguments: &[&str]| {
        let base = ["header", "-", "--lang", "java", "--output", folder.to_str().unwrap()];
        with_input(&[&base[..], arguments].concat(), &document)
    };
    let one = written(&["--section", "2"]);
    assert_eq!((one.code, one.out.as_str()), (0, "Two.java\n"), "{}", one.err);
    let both = written(&[]);
    assert_eq!((both.code, both.out.as_str()), (0, "One.java\nTwo.java\n"), "{}", both.err);
    let text = fs::read_to_string(folder.join("One.java")).unwrap();
    assert!(text.contains("public final class One"), "{text}");
    assert_eq!(written(&["--section", "7"]).code, 78);
}

#[test]
fn header_points_into_bad_art() {
    let art = UDP.replace("|     Length      |", "|     Length    |  ");
    let said = with_input(&["header", "-", "--lang", "c"], &art);
    assert_eq!((said.code, said.out.as_str()), (78, ""));
    assert!(said.err.contains("error[GW00") && said.err.contains("--> -:8:"), "{}", said.err);
    let answer = with_input(&["header", "-", "--lang", "c", "--json"], &art).json();
    assert!(
        answer["files"] == Value::Array(Vec::new()) && answer["findings"][0]["code"].is_string(),
        "{answer}"
    );
}

#[test]
fn the_schema_is_json_with_or_without() {
    let schema = gatewright(&["schema"]).json();
    assert_eq!(schema, gatewright(&["schema", "--json"]).json());
    assert!(schema["properties"]["link"].is_object());
}

#[test]
fn completion_and_manual_know_every_verb() {
    let verbs = ["check", "init", "explain", "header", "schema", "completion", "man", "version"];
    let bash = gatewright(&["completion", "bash"]).out;
    let folder = folder("man");
    assert_eq!(gatewright(&["man", "--output", folder.to_str().unwrap()]).code, 0);
    for verb in verbs {
        assert!(bash.contains(verb), "{verb}");
        let page = fs::read_to_string(folder.join(format!("gatewright-{verb}.1"))).unwrap();
        assert_eq!(page, gatewright(&["man", verb]).out);
        for part in ["Exit codes:", "  78", "With \\-\\-json: "] {
            assert!(page.contains(part), "{part} is not in the page of {verb}");
        }
        let help = gatewright(&[verb, "--help"]);
        assert_eq!(help.code, 0);
        assert!(help.out.contains("Exit codes:") && help.out.contains("With --json: "), "{verb}");
    }
    let help = gatewright(&["cse", "create", "--help"]).out;
    assert!(
        help.contains("With --json: get, create, update, delete: {") && !help.contains("tree: {"),
        "{help}"
    );
    assert_eq!(gatewright(&["man", "chekc"]).code, 1);
    assert!(gatewright(&["man"]).out.starts_with(".ie"));
}

#[test]
fn version_tells_the_packages() {
    let version = env!("CARGO_PKG_VERSION");
    assert!(gatewright(&["version"]).out.starts_with(&format!("gatewright {version} (")));
    assert_eq!(gatewright(&["version", "--json"]).json()["version"], version);
    assert_eq!(gatewright(&["--version"]).out, format!("gatewright {version}\n"));
    for words in [["--version", "--json"], ["--json", "--version"]] {
        assert_eq!(gatewright(&words).json(), gatewright(&["version", "--json"]).json());
    }
}

/// A reader that goes away early, as `head` does, is no failure.
#[test]
fn a_closed_pipe_is_no_failure() {
    let binary = env!("CARGO_BIN_EXE_gatewright");
    let line = format!("{binary} explain | true; echo \"${{PIPESTATUS[0]}}\"");
    let output = Command::new("bash").args(["-c", &line]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    // Nor does it make a bad answer a good one.
    let line =
        format!("echo {BAD:?} | {binary} check --json - | true; echo \"${{PIPESTATUS[1]}}\"");
    let output = Command::new("bash").args(["-c", &line]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "78\n");
}
