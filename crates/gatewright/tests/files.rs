//! `check` loads the certificates, keys and secrets that a description names, as a start does.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod common;

use common::{folder, gatewright};
use gatewright_testbed::free_port;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A CSE with TLS and a web page with TLS, of the same files.
fn description(key: &str) -> String {
    format!(
        "[cse]\nbase = \"cse-a\"\nid = \"/a\"\nadmin = \"CAdmin\"\n\n[cse.tls]\nhttps = \
         \"127.0.0.1:{}\"\ncertificate = \"own.pem\"\nkey = \"{key}\"\nauthorities = \"ca.pem\"\n\n\
         [web]\nlisten = \"127.0.0.1:{}\"\ntokens = \"tokens\"\ntls = {{ certificate = \"own.pem\", \
         key = \"own.key\" }}\n",
        free_port(),
        free_port()
    )
}

/// An authority and a certificate of it, and the key of another.
fn certify(folder: &Path) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    fs::write(folder.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    fs::write(folder.join("own.pem"), own.signed_by(&key, &issuer).unwrap().pem()).unwrap();
    fs::write(folder.join("own.key"), key.serialize_pem()).unwrap();
    let other = KeyPair::generate().unwrap();
    fs::write(folder.join("other.key"), other.serialize_pem()).unwrap();
}

#[test]
fn check_refuses_the_files_that_a_start_would_refuse() {
    let folder = folder("named-files");
    let file = folder.join("gateway.toml");
    let file = file.to_str().unwrap();
    fs::write(file, description("own.key")).unwrap();
    let socket = folder.join("socket");
    let starts = || {
        let socket = socket.to_str().unwrap();
        gatewright(&["run", file, "--stop-after", "1", "--socket", socket]).code
    };
    let said = gatewright(&["check", file]);
    assert_eq!((said.code, starts()), (78, 78), "{}", said.err);
    for part in [
        "error[GW0194]: [cse.tls] certificate: ",
        "error[GW0194]: [cse.tls] key: ",
        "error[GW0194]: [cse.tls] authorities: ",
        "error[GW0194]: [web.tls] certificate: ",
        "error[GW0194]: [web.tls] key: ",
        "own.key: I/O error: No such file",
        "gateway.toml:8:1",
        "gateway.toml:9:1",
        "gateway.toml:10:1",
        "help: the gateway does not start without it",
    ] {
        assert!(said.err.contains(part), "{part} in {}", said.err);
    }
    assert!(!said.err.contains("[web] tokens"), "the first token makes it: {}", said.err);
    let data = gatewright(&["check", "--json", file]).json();
    assert_eq!((&data["ok"], &data["files"][0]["gateway"]), (&false.into(), &().into()));

    certify(&folder);
    let said = gatewright(&["check", file]);
    assert_eq!((said.code, starts()), (0, 0), "{}", said.err);

    let key = fs::read_to_string(folder.join("own.key")).unwrap();
    let other = fs::read_to_string(folder.join("other.key")).unwrap();
    for (content, why) in [("nothing\n", "holds no private key"), (&other, "key refused")] {
        fs::write(folder.join("own.key"), content).unwrap();
        let said = gatewright(&["check", file]);
        assert_eq!((said.code, starts()), (78, 78), "{}", said.err);
        assert_eq!(said.err.matches("error[GW0194]").count(), 2, "{}", said.err);
        assert!(said.err.contains(why) && said.err.contains("gateway.toml:9:1"), "{}", said.err);
    }
    fs::write(folder.join("own.key"), key).unwrap();
    fs::write(folder.join("own.pem"), "nothing\n").unwrap();
    let said = gatewright(&["check", file]);
    assert!(said.err.contains("own.pem holds no certificate"), "{}", said.err);
    certify(&folder);
    fs::write(folder.join("tokens"), "root\n").unwrap();
    let said = gatewright(&["check", file]);
    assert_eq!((said.code, starts()), (78, 78), "{}", said.err);
    assert!(said.err.contains("[web] tokens: ") && said.err.contains("line 1"), "{}", said.err);
}

/// What only the service manager hands over cannot be checked outside its service.
#[test]
fn a_credential_is_checked_where_it_is() {
    let folder = folder("named-credentials");
    certify(&folder);
    let file = folder.join("gateway.toml");
    fs::write(&file, description("credential:cse.key")).unwrap();
    let said = gatewright(&["check", file.to_str().unwrap()]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains("warning[GW0194]: [cse.tls] key: "), "{}", said.err);
    let service = || {
        let mut check = Command::new(env!("CARGO_BIN_EXE_gatewright"));
        check.arg("check").arg(&file).env("CREDENTIALS_DIRECTORY", folder.join("handed"));
        let output = check.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = service();
    assert!(code == Some(78) && said.contains("error[GW0194]: [cse.tls] key: "), "{said}");
    fs::create_dir(folder.join("handed")).unwrap();
    fs::copy(folder.join("own.key"), folder.join("handed/cse.key")).unwrap();
    assert_eq!(service().0, Some(0));
}

#[test]
fn check_loads_the_keys_of_the_mesh_and_the_files_of_parameters() {
    let folder = folder("named-secrets");
    let file = folder.join("gateway.toml");
    let program = "gateway nothing {\n    parameter word: fragment, at most 8 octets\n}\n";
    fs::write(folder.join("nothing.gate"), program).unwrap();
    let text = "[[program]]\nfile = \"nothing.gate\"\nset_file = [\"word=word\"]\n\n[mesh]\ninterface = \
                \"mesh0\"\nlinks = [\"radio0\"]\ntrust = \"psk\"\nkey_file = \"mesh.key\"\n";
    fs::write(&file, text).unwrap();
    let said = gatewright(&["check", file.to_str().unwrap()]);
    assert_eq!(said.code, 78, "{}", said.err);
    for part in
        ["[[program]] set_file word: ", "gateway.toml:3:", "[mesh] key_file: ", "gateway.toml:9:1"]
    {
        assert!(said.err.contains(part), "{part} in {}", said.err);
    }
}
