//! Stapled OCSP responses (RFC 6960, RFC 6066 §8) beside OpenSSL: `openssl ocsp` is the responder,
//! `s_server` a server that staples what it says, and `s_client` sees what this one staples.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

#[path = "shared/authority.rs"]
mod authority;

use authority::Authority;
use core::time::Duration;
use gatewright_bindings::client::Client;
use gatewright_bindings::cse::{CseServerConfig, start};
use gatewright_bindings::tls::Tls;
use gatewright_onem2m::{CseConfig, CseType};
use gatewright_testbed::Needs;
use libtest_mimic::{Arguments, Trial};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

fn main() -> ExitCode {
    let missing = Needs::new().program("openssl").missing().is_some();
    let trial = |name: &str, test: fn()| {
        let run = move || {
            test();
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(missing)
    };
    let trials = vec![
        trial("a_stapled_response_is_compared", a_stapled_response_is_compared),
        trial("a_server_staples_its_own", a_server_staples_its_own),
        trial("a_response_that_is_not_ours_is_refused", a_response_that_is_not_ours_is_refused),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// An authority whose key OpenSSL has, too.
struct Responder(Authority);

impl Responder {
    fn new(name: &str) -> Self {
        let authority = Authority::new(name);
        std::fs::write(authority.place.join("ca.key"), authority.issuer.key().serialize_pem())
            .unwrap();
        Self(authority)
    }

    /// What it says of a certificate: V for valid, R for revoked (ca(1), the index file).
    fn says(&self, of: &Tls, status: &str) -> PathBuf {
        let place = |file: &str| self.0.place.join(file);
        let name = of.certificate.file_stem().unwrap().to_str().unwrap();
        let serial = name.bytes().map(|octet| format!("{octet:02X}")).collect::<Vec<_>>().concat();
        let revoked = if status == "R" { "240102000000Z" } else { "" };
        let line = format!("{status}\t21261201000000Z\t{revoked}\t{serial}\tunknown\t/CN={name}\n");
        std::fs::write(place("index.txt"), line).unwrap();
        let response = place(&format!("{name}-{status}.der"));
        let said = Command::new("openssl")
            .args(["ocsp", "-noverify", "-ndays", "7"])
            .args(["-index".as_ref(), place("index.txt").as_os_str()])
            .args(["-CA".as_ref(), place("authority.pem").as_os_str()])
            .args(["-issuer".as_ref(), place("authority.pem").as_os_str()])
            .args(["-rsigner".as_ref(), place("authority.pem").as_os_str()])
            .args(["-rkey".as_ref(), place("ca.key").as_os_str()])
            .args(["-cert".as_ref(), of.certificate.as_os_str()])
            .args(["-respout".as_ref(), response.as_os_str()])
            .output()
            .unwrap();
        assert!(said.status.success(), "{said:?}");
        response
    }
}

/// A server of OpenSSL that answers each request with a page about the connection.
struct Server(Child, u16);

impl Server {
    fn start(tls: &Tls, response: Option<&Path>) -> Self {
        // Free a moment ago.
        let port =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let mut command = Command::new("openssl");
        command.args(["s_server", "-tls1_3", "-www", "-accept", &format!("127.0.0.1:{port}")]);
        command.args(["-cert".as_ref(), tls.certificate.as_os_str()]);
        command.args(["-key".as_ref(), tls.key.as_os_str()]);
        if let Some(response) = response {
            command.args(["-status_file".as_ref(), response.as_os_str()]);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self(child.spawn().unwrap(), port);
        let end = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert!(Instant::now() < end, "openssl s_server listens");
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build().unwrap().block_on(future)
}

/// Why a client with these files does not reach a server, if so. A page that is no oneM2M answer has
/// come through the handshake.
fn refusal(tls: &Tls, url: &str) -> Option<String> {
    let client = Client::new(url, "Cmine", "o").with_tls(tls).unwrap();
    let asked = block_on(client.get("cse-in"));
    asked.err().map(|error| format!("{error}: {error:?}"))
}

/// RFC 6066 §8: what is stapled is compared; without any, it depends on the key.
fn a_stapled_response_is_compared() {
    let responder = Responder::new("ocsp-client");
    let certify = |name| responder.0.certify(name, &["m2m://sp.example/id-in"]);
    let (server, other, mine) = (certify("server"), certify("other"), certify("mine"));
    let [good, revoked] = ["V", "R"].map(|status| responder.says(&server, status));
    let foreign = responder.says(&other, "V");
    let asks = |response: Option<&Path>, required: bool| {
        let server = Server::start(&server, response);
        let tls = Tls { ocsp_required: required, ..mine.clone() };
        refusal(&tls, &format!("https://127.0.0.1:{}", server.1)).unwrap_or_default()
    };
    let fails = |said: &str| said.contains("not reachable");
    for required in [false, true] {
        assert!(!fails(&asks(Some(&good), required)), "{}", asks(Some(&good), required));
        let said = asks(Some(&revoked), required);
        assert!(fails(&said) && said.contains("Revoked"), "{said}");
        let said = asks(Some(&foreign), required);
        assert!(fails(&said) && said.contains("InvalidOcspResponse"), "{said}");
    }
    let said = asks(None, false);
    assert!(!fails(&said), "{said}");
    let said = asks(None, true);
    assert!(fails(&said) && said.contains("staples no OCSP response"), "{said}");
}

fn server_config(tls: Tls) -> CseServerConfig {
    let mut cse = CseConfig::new(CseType::Infrastructure, "/id-in", "cse-in");
    "//sp.example".clone_into(&mut cse.provider);
    let mut config = CseServerConfig::new(cse);
    config.listen_tls = vec!["127.0.0.1:0".parse().unwrap()];
    config.tls = Some(tls);
    config
}

/// OpenSSL's client finds our response good, and so does ours.
fn a_server_staples_its_own() {
    let responder = Responder::new("ocsp-server");
    let certify = |name, id: &str| responder.0.certify(name, &[id]);
    let mut server = certify("server", "m2m://sp.example/id-in");
    let mine = certify("mine", "m2m://sp.example/id-in/Cmine");
    server.ocsp_response = Some(responder.says(&server, "V"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let running = runtime.block_on(start(server_config(server))).unwrap();
    let at = running.addresses()[0];
    let mut seen = Command::new("openssl")
        .args(["s_client", "-status", "-connect", &at.to_string()])
        .args(["-CAfile".as_ref(), mine.authorities.as_os_str()])
        .args(["-cert".as_ref(), mine.certificate.as_os_str()])
        .args(["-key".as_ref(), mine.key.as_os_str()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    seen.stdin.take().unwrap().write_all(b"Q\n").unwrap();
    let mut said = String::new();
    seen.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    seen.wait().unwrap();
    assert!(said.contains("OCSP Response Status: successful"), "{said}");
    assert!(said.contains("Cert Status: good"), "{said}");
    let careful = Tls { ocsp_required: true, ..mine };
    let client = Client::new(format!("https://{at}").as_str(), "Cmine", "o").with_tls(&careful);
    let answered = runtime.block_on(client.unwrap().get("cse-in"));
    assert!(answered.is_ok(), "{answered:?}");
    runtime.block_on(running.stop());
}

/// A file that a server could not mean is told with its name; one that is too old is stapled, as
/// peers judge it.
fn a_response_that_is_not_ours_is_refused() {
    let responder = Responder::new("ocsp-wrong");
    let certify = |name| responder.0.certify(name, &["m2m://sp.example/id-in"]);
    let (server, other) = (certify("server"), certify("other"));
    for (file, expected) in [
        (responder.says(&other, "V"), "it is about another certificate"),
        (server.certificate.clone(), "it is not an OCSP response"),
        (responder.0.place.join("nowhere.der"), "No such file"),
    ] {
        let tls = Tls { ocsp_response: Some(file.clone()), ..server.clone() };
        let error = block_on(start(server_config(tls))).err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(error.contains(file.to_str().unwrap()), "{error}");
    }
}
