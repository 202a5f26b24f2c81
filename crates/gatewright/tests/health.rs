//! `[devices]` and `[cse]` under `gatewright run`: what devices report is stored, told by status
//! and metrics, and there again after a restart.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_testbed::free_port;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_mins(1);

fn gatewright(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gatewright")).args(arguments).output().unwrap()
}

/// A folder of this test's own, empty.
fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn wait_until(what: &str, is_so: impl FnMut() -> bool) {
    wait_until_or(is_so, || what.to_owned());
}

fn wait_until_or(mut is_so: impl FnMut() -> bool, why: impl Fn() -> String) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{}", why());
        thread::sleep(Duration::from_millis(20));
    }
}

/// `gatewright run`, killed if the test ends.
struct Running {
    child: Child,
    socket: PathBuf,
}

impl Running {
    fn start(file: &Path) -> Self {
        let socket = file.with_extension("sock");
        let _ = fs::remove_file(&socket);
        let said = file.with_extension("said");
        let child = Command::new(env!("CARGO_BIN_EXE_gatewright"))
            .args(["run", "--socket"])
            .args([&socket, file])
            .current_dir(file.parent().unwrap())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&said).unwrap())
            .spawn()
            .unwrap();
        let running = Self { child, socket };
        let said = || format!("it answers: {}", fs::read_to_string(&said).unwrap());
        wait_until_or(|| running.status().is_some(), said);
        running
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        let socket = self.socket.to_str().unwrap();
        gatewright(&[&["status", "--socket", socket], arguments].concat())
    }

    fn status(&self) -> Option<Value> {
        let output = self.ask(&["--json"]);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// A number that a part tells.
    fn number(&self, part: &str, name: &str) -> u64 {
        let status = self.status().unwrap();
        let part = status["parts"].as_array().unwrap().iter().find(|it| it["name"] == part);
        let pairs = |kind: &str| part.unwrap()[kind].as_array().unwrap().clone();
        let pair = pairs("gauges").into_iter().chain(pairs("counters")).find(|it| it[0] == name);
        pair.unwrap()[1].as_u64().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn simulate(to: u16, arguments: &str) -> Value {
    let to = format!("127.0.0.1:{to}");
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let output =
        gatewright(&[&["device", "simulate", "--json", "--to", &to], &arguments[..]].concat());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The content of an answer to an originator's GET.
fn get(port: u16, path: &str) -> Value {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\nX-M2M-Origin: CAdmin\r\n\
         X-M2M-RI: {path}\r\nX-M2M-RVI: 4\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap()
}

fn instances(port: u16) -> Vec<String> {
    let found = get(port, "/cse-gw?fu=1&ty=4");
    let list = found["m2m:uril"].as_array().unwrap();
    let uris = list.iter().map(|uri| uri.as_str().unwrap().to_owned());
    uris.filter(|uri| !uri.contains("/about/")).collect()
}

/// The description of `gatewright init health` with ports of its own, in its own folder.
fn described(name: &str) -> (PathBuf, u16, u16) {
    let output = gatewright(&["init", "health"]);
    let [devices, http] = [free_port(), free_port()];
    let text = String::from_utf8(output.stdout).unwrap();
    let text = text
        .replace("127.0.0.1:6024", &format!("127.0.0.1:{devices}"))
        .replace("127.0.0.1:8080", &format!("127.0.0.1:{http}"));
    let file = folder(name).join("health.toml");
    fs::write(&file, text).unwrap();
    (file, devices, http)
}

/// The commands that the page shows for the template, as printed there but for ports of this test's
/// own and for how long devices measure.
#[test]
fn the_commands_of_the_readme_run_as_printed() {
    const PAGE: &str = include_str!("../../../docs/overview.md");
    let (_, text) = PAGE.split_once("`gatewright init health -o health.toml`").unwrap();
    let block = text.split("```").nth(1).unwrap();
    let commands: Vec<Vec<&str>> = (block.lines())
        .filter_map(|line| line.split('#').next().unwrap().strip_prefix("gatewright "))
        .map(|line| line.split_whitespace().collect())
        .collect();
    let [simulate, asked @ ..] = commands.as_slice() else { panic!("{block}") };
    assert_eq!((&simulate[..2], asked.len()), (&["device", "simulate"][..], 3));
    let (file, devices, http) = described("health-readme");
    let here = |argument: &&str| {
        let ours = argument.replace("127.0.0.1:6024", &format!("127.0.0.1:{devices}"));
        ours.replace("127.0.0.1:8080", &format!("127.0.0.1:{http}"))
    };
    let running = Running::start(&file);
    let command = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatewright"));
        command.args(arguments.iter().map(here)).current_dir(file.parent().unwrap());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let mut ward = command(&[simulate, &["--seconds", "60"][..]].concat()).spawn().unwrap();
    wait_until("all have reported", || running.number("devices", "readings") >= 200);
    for arguments in asked {
        let said = command(arguments).output().unwrap();
        assert!(said.status.success(), "{arguments:?}: {said:?}");
    }
    ward.kill().unwrap();
    ward.wait().unwrap();
    let exported = fs::read_to_string(file.with_file_name("readings.json")).unwrap();
    assert!(exported.lines().count() >= 1 && exported.starts_with("{\"resourceType\":\"Bundle\""));
}

/// A ward has no links: an empty answer would look as if nothing had passed.
#[test]
fn a_status_with_layers_says_why_there_are_none() {
    let (file, ..) = described("health-layers");
    let running = Running::start(&file);
    let said = |arguments: &[&str]| String::from_utf8(running.ask(arguments).stdout).unwrap();
    let layers = said(&["--layers"]);
    assert!(layers.ends_with("are served over the kernel's sockets\n"), "{layers}");
    assert!(layers.contains("the gateway has no links") && !said(&[]).contains("no links"));
}

#[test]
fn the_template_takes_devices_and_keeps_their_readings_over_a_restart() {
    let (file, devices, http) = described("health-template");
    let running = Running::start(&file);
    // It says when it measured: what it reports again is the same instance.
    let answer = simulate(devices, "--kind thermometer --count 2 --rate 5 --seconds 1");
    assert_eq!(answer["passed"], true, "{answer}");
    let stored = instances(http);
    assert_eq!(Some(stored.len() as u64), answer["values"].as_u64());
    assert_eq!(running.number("devices", "readings"), stored.len() as u64);
    let metrics = String::from_utf8(running.ask(&["--metrics"]).stdout).unwrap();
    let line = format!("gatewright_devices_readings_total {}", stored.len());
    assert!(metrics.contains(&line), "{metrics}");
    assert!(metrics.contains("# TYPE gatewright_cse_resources gauge"), "{metrics}");
    for family in ["cse_store_synchronised", "cse_store_waited", "devices_report_stored"] {
        let count = format!("gatewright_{family}_seconds_count ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&count)).unwrap();
        assert!(line.parse::<u64>().unwrap() > 0, "{count}{line}");
    }
    let text = String::from_utf8(running.ask(&[]).stdout).unwrap();
    assert!(text.contains("devices: listens at 127.0.0.1:"), "{text}");
    assert!(text.contains("     store synchronised: "), "{text}");
    let url = format!("http://127.0.0.1:{http}");
    let away = gatewright(&[
        "device",
        "ask",
        "--json",
        "--cse",
        &url,
        "cse-gw/phd-0247000100000001",
        "read",
    ]);
    let answer: Value = serde_json::from_slice(&away.stdout).unwrap();
    assert_eq!((away.status.code(), &answer["status"]), (Some(1), &5103.into()), "{answer}");
    drop(running);
    let again = Running::start(&file);
    assert_eq!(instances(http), stored);
    drop(again);
}

/// What can change under way does: bounds, who may associate, where the CSE above is; its messages
/// follow it there. What cannot is told, and nothing changes then.
#[test]
fn a_reload_takes_bounds_devices_and_the_place_of_the_cse_above() {
    let (file, devices, http) = described("health-reload");
    let [nobody, above] = [free_port(), free_port()];
    let folder = file.parent().unwrap();
    let upper = folder.join("above.toml");
    let entity = "[cse]\nbase = \"cse-in\"\nid = \"/id-in\"\ntype = \"infrastructure\"\n\
                  admin = \"CAdmin\"\nadmit = [\"/gw\"]\n";
    let text = format!("[gateway]\nname = \"above\"\n{entity}http = \"127.0.0.1:{above}\"\n");
    fs::write(&upper, text).unwrap();
    let plain = fs::read_to_string(&file).unwrap();
    let registrar = |port: u16| {
        format!(
            "[cse.registrar]\nurl = \"http://127.0.0.1:{port}\"\nid = \"/id-in\"\n\
             base = \"cse-in\"\n"
        )
    };
    fs::write(&file, format!("{plain}\n{}", registrar(nobody))).unwrap();
    let running = Running::start(&file);
    let answer = simulate(devices, "--kind thermometer --count 2 --rate 5 --seconds 1");
    assert_eq!(answer["passed"], true, "{answer}");
    let stored = instances(http);
    assert!(running.number("cse", "messages_waiting") > stored.len() as u64, "nobody is there");
    // The CSE above has moved, and from now on only one device may associate.
    let above_runs = Running::start(&upper);
    let changed = plain
        .replace("[devices]\n", "[devices]\nadmit = [\"0247000100000001\"]\n")
        .replace("[cse]\n", "[cse]\npeer_rate = 200\naudit = true\n");
    fs::write(&file, format!("{changed}\n{}", registrar(above))).unwrap();
    let socket = running.socket.to_str().unwrap().to_owned();
    let reload = || gatewright(&["reload", "--socket", &socket, "--json"]);
    let answer = reload();
    let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
    assert_eq!(answer["ok"], true, "{answer}");
    let whats: Vec<_> =
        answer["changes"].as_array().unwrap().iter().map(|it| &it["what"]).collect();
    let keys = ["[devices] admit", "[cse] audit", "[cse] peer_rate", "[cse.registrar] url"];
    assert_eq!(whats, keys, "{answer}");
    wait_until("every message arrives", || running.number("cse", "messages_waiting") == 0);
    let there = get(above, "/cse-in?fu=1&ty=4");
    let there = there["m2m:uril"].as_array().unwrap().iter();
    let there = there.filter(|uri| !uri.as_str().unwrap().contains("/about/"));
    assert_eq!(there.count(), stored.len());
    let answer =
        simulate(devices, "--kind thermometer --count 2 --rate 5 --seconds 1 --patience 8");
    assert_eq!(answer["unanswered"], 1, "{answer}");
    assert_eq!(answer["associations"], 1, "{answer}");
    // Another store needs a restart: it says so, and nothing else of the file is taken either.
    let wrong = changed.replace("health.db", "other.db");
    fs::write(&file, wrong.replace("peer_rate = 200", "peer_rate = 7")).unwrap();
    let refused = reload();
    assert!(!refused.status.success());
    let answer: Value = serde_json::from_slice(&refused.stdout).unwrap();
    let finding = &answer["findings"][0];
    assert_eq!((&answer["ok"], &finding["code"]), (&false.into(), &"GW0170".into()), "{answer}");
    assert!(finding["message"].as_str().unwrap().starts_with("[cse] store: "), "{answer}");
    drop((running, above_runs));
}

/// A CSE above that dies is told: by a warning, an alarm, a metric, the status, and a cause of readiness,
/// which stays. When it runs again, it is registered at again.
#[test]
fn a_cse_above_that_dies_is_told() {
    let (file, devices, _) = described("health-above");
    let [above, web] = [free_port(), free_port()];
    let upper = file.parent().unwrap().join("above.toml");
    let entity = "[cse]\nbase = \"cse-in\"\nid = \"/id-in\"\ntype = \"infrastructure\"\n\
                  admin = \"CAdmin\"\nadmit = [\"/gw\"]\n";
    fs::write(&upper, format!("{entity}http = \"127.0.0.1:{above}\"\n")).unwrap();
    let more = format!(
        "[cse.registrar]\nurl = \"http://127.0.0.1:{above}\"\nid = \"/id-in\"\n\
         base = \"cse-in\"\n[web]\nlisten = \"127.0.0.1:{web}\"\n"
    );
    let plain = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{plain}\n{more}")).unwrap();
    let (above_runs, running) = (Running::start(&upper), Running::start(&file));
    let is_registered = |wanted| {
        let told = || String::from_utf8(running.ask(&[]).stdout).unwrap();
        wait_until_or(|| running.number("cse", "registered") == wanted, told);
        told()
    };
    let readiness = || {
        let mut stream = TcpStream::connect(("127.0.0.1", web)).unwrap();
        let request = "GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        serde_json::from_str::<Value>(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap()
    };
    assert!(is_registered(1).contains("registered at /id-in"));
    assert_eq!(readiness()["causes"], serde_json::json!([]));
    drop(above_runs);
    simulate(devices, "--kind thermometer --count 1 --rate 5 --seconds 1");
    assert!(is_registered(0).contains("no answer from /id-in"));
    let readiness = readiness();
    assert_eq!(
        (&readiness["ready"], &readiness["causes"][0]["level"]),
        (&true.into(), &"warning".into())
    );
    let cause = readiness["causes"][0]["text"].as_str().unwrap();
    assert!(cause.contains("registrar-unreachable"), "{cause}");
    let events = gatewright(&["events", "--socket", running.socket.to_str().unwrap()]).stdout;
    let events = String::from_utf8(events).unwrap();
    assert!(events.contains(" warning registrar-unreachable: "), "{events}");
    let _again = Running::start(&upper);
    assert!(is_registered(1).contains("registered at /id-in"));
}

/// An authority and a certificate of it for 127.0.0.1, written over what was there: `NAME.pem`,
/// `NAME.key` and `NAME-authority.pem`.
fn certify(folder: &Path, name: &str) {
    certify_all(folder, &[(name, None)]);
}

/// One authority and its certificates, for 127.0.0.1 and perhaps an identifier each.
fn certify_all(folder: &Path, names: &[(&str, Option<&str>)]) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    for (name, identifier) in names {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let uris = identifier.iter().map(|uri| SanType::URI((*uri).try_into().unwrap()));
        params.subject_alt_names.extend(uris);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        fs::write(folder.join(format!("{name}-authority.pem")), authority.pem()).unwrap();
        fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

/// Over TLS with certificates on both sides readings get to the CSE above, for which the gateway's
/// certificate speaks for its devices: as far as that CSE is told to let it. Until then they wait, and
/// an operator is told why.
#[test]
fn readings_go_above_by_the_gateways_certificate() {
    let (file, devices, http) = described("health-above-tls");
    let folder = file.parent().unwrap();
    certify_all(
        folder,
        &[("gw", Some("m2m://sp.example/gw")), ("in", Some("m2m://sp.example/id-in"))],
    );
    let tls = |name: &str| {
        format!(
            "[cse.tls]\ncertificate = \"{name}.pem\"\nkey = \"{name}.key\"\n\
             authorities = \"{name}-authority.pem\"\n"
        )
    };
    let [https, plain] = [free_port(), free_port()];
    let upper = folder.join("above.toml");
    let above = |admitted: &str| {
        format!(
            "[gateway]\nname = \"above\"\n[cse]\nbase = \"cse-in\"\nid = \"/id-in\"\n\
             type = \"infrastructure\"\nadmin = \"CAdmin\"\nadmit = [\"/gw\"]\n{admitted}\
             provider = \"sp.example\"\nhttp = \"127.0.0.1:{plain}\"\n{}\
             https = \"127.0.0.1:{https}\"\n",
            tls("in")
        )
    };
    fs::write(&upper, above("admit_devices = [\"Cother-*\"]\n")).unwrap();
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace("[cse]\n", "[cse]\nprovider = \"sp.example\"\n");
    let registrar = format!(
        "[cse.registrar]\nurl = \"https://127.0.0.1:{https}\"\nid = \"/id-in\"\nbase = \"cse-in\"\n"
    );
    fs::write(&file, format!("{text}\n{}{registrar}", tls("gw"))).unwrap();
    let (above_runs, running) = (Running::start(&upper), Running::start(&file));
    let answer = simulate(devices, "--kind thermometer --count 2 --rate 5 --seconds 1");
    assert_eq!(answer["passed"], true, "{answer}");
    let stored = instances(http);
    let told = || String::from_utf8(running.ask(&[]).stdout).unwrap();
    wait_until_or(|| told().contains("is answered 4106 at /id-in/cse-in"), told);
    fs::write(&upper, above("")).unwrap();
    let reload = gatewright(&["reload", "--socket", above_runs.socket.to_str().unwrap()]);
    assert!(reload.status.success(), "{reload:?}");
    wait_until_or(|| running.number("cse", "messages_waiting") == 0, told);
    assert!(!told().contains("is answered"), "{}", told());
    let there = get(plain, "/cse-in?fu=1&ty=4");
    let there = there["m2m:uril"].as_array().unwrap().iter();
    let names = |uri: &str| uri.rsplit('/').next().unwrap().to_owned();
    let mut there: Vec<_> = there.map(|uri| names(uri.as_str().unwrap())).collect();
    there.retain(|name| !name.ends_with("-about"));
    let mut here: Vec<_> = stored.iter().map(|uri| names(uri)).collect();
    there.sort_unstable();
    here.sort_unstable();
    assert_eq!(there, here, "each once");
}

/// Devices over TLS by command line, with one certificate for both sides: whoever has another
/// authority's stays outside. Certificates that are renewed in their files count from a reload on;
/// ones that cannot be used change nothing.
#[test]
fn devices_over_tls_and_certificates_renewed_under_way() {
    let (file, _, _) = described("health-tls");
    let folder = file.parent().unwrap().to_owned();
    let port = free_port();
    let [first, second] = ["first", "second"];
    for name in [first, second] {
        certify(&folder, name);
    }
    let copy = |from: &str| {
        for end in [".pem", ".key", "-authority.pem"] {
            let read = fs::read(folder.join(format!("{from}{end}"))).unwrap();
            fs::write(folder.join(format!("manager{end}")), read).unwrap();
        }
    };
    copy(first);
    let tls = format!(
        "[devices.tls]\nlisten = \"127.0.0.1:{port}\"\ncertificate = \"manager.pem\"\n\
         key = \"manager.key\"\nauthorities = \"manager-authority.pem\"\n"
    );
    let plain = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{plain}\n{tls}")).unwrap();
    let running = Running::start(&file);
    let over_tls = |name: &str, patience: u8| {
        let [certificate, key, authorities] = [".pem", ".key", "-authority.pem"]
            .map(|end| folder.join(format!("{name}{end}")).display().to_string());
        let answer = simulate(
            port,
            &format!(
                "--kind thermometer --count 2 --rate 5 --seconds 1 --patience {patience} --tls \
                 --certificate {certificate} --key {key} --authorities {authorities}"
            ),
        );
        (answer["passed"] == true, answer["answered"].as_u64().unwrap())
    };
    let (passed, answered) = over_tls(first, 30);
    assert!(passed && answered > 0, "{answered}");
    assert!(running.number("devices", "readings") >= answered);
    assert_eq!(over_tls(second, 3), (false, 0), "another authority's");
    let clear = simulate(port, "--kind oximeter --seconds 1 --patience 1");
    assert_eq!((&clear["passed"], &clear["answered"]), (&false.into(), &0.into()), "in the clear");
    wait_until("a handshake fails", || running.number("devices", "handshakes_failed") > 0);
    // Renewed, by another authority even.
    let socket = running.socket.to_str().unwrap().to_owned();
    let reload = || gatewright(&["reload", "--socket", &socket, "--json"]);
    let nothing: Value = serde_json::from_slice(&reload().stdout).unwrap();
    assert_eq!(nothing["changes"].as_array().map(Vec::len), Some(0), "{nothing}");
    copy(second);
    let answer: Value = serde_json::from_slice(&reload().stdout).unwrap();
    assert_eq!(answer["ok"], true, "{answer}");
    assert_eq!(answer["changes"][0]["what"], "[devices.tls]", "{answer}");
    assert!(over_tls(second, 30).0);
    assert_eq!(over_tls(first, 3), (false, 0), "the authority before does not count any more");
    // A file that holds none.
    fs::write(folder.join("manager.pem"), "nothing\n").unwrap();
    let refused = reload();
    assert!(!refused.status.success());
    let said = String::from_utf8(refused.stdout).unwrap();
    assert!(said.contains("manager.pem"), "{said}");
    assert!(over_tls(second, 30).0, "what was there counts on");
    drop(running);
}

/// The API tells of each device whether it is associated or silent, and when it was last heard.
#[test]
fn the_api_tells_the_state_of_each_device() {
    let folder = folder("device-state");
    let [http, devices, web] = [(); 3].map(|()| free_port());
    let text = format!(
        "[cse]\nbase = \"gw\"\nid = \"/gw\"\nhttp = \"127.0.0.1:{http}\"\n\
         [devices]\nlisten = \"127.0.0.1:{devices}\"\n[web]\nlisten = \"127.0.0.1:{web}\"\n"
    );
    let file = folder.join("gateway.toml");
    fs::write(&file, text).unwrap();
    let _running = Running::start(&file);
    let device = || {
        let mut stream = TcpStream::connect(("127.0.0.1", web)).unwrap();
        let head = "GET /api/v1/devices HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let body = answer.split("\r\n\r\n").nth(1).unwrap();
        let found: Value = serde_json::from_str(body).unwrap_or_default();
        let all = found["devices"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|it| it["name"].as_str().unwrap().starts_with("phd-"))
    };
    let reports =
        thread::spawn(move || simulate(devices, "--kind thermometer --rate 5 --seconds 4"));
    wait_until("it is associated", || device().is_some_and(|it| it["associated"] == true));
    reports.join().unwrap();
    wait_until("it has left", || device().is_some_and(|it| it["associated"] == false));
    let left = device().unwrap();
    assert_eq!(left["silent"], false, "{left}");
    assert!(left["last_heard"].as_str().unwrap().ends_with('Z'), "{left}");
}
