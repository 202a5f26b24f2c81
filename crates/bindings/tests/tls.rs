//! Mutual TLS 1.3: who has no certificate stays outside, who has one is who it says.
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
use futures_util::{SinkExt, StreamExt};
use gatewright_bindings::client::{AskError, Client};
use gatewright_bindings::cse::{CseServerConfig, start};
use gatewright_bindings::tls::Tls;
use gatewright_bindings::{agents, devices};
use gatewright_health::code::SystemId;
use gatewright_health::simulate::SimulationPlan;
use gatewright_health::specialisation::SCALE;
use gatewright_onem2m::{CseType, Registrar, ResourceType, Status};
use rcgen::{
    CertificateRevocationListParams, KeyIdMethod, RevokedCertParams, SerialNumber, date_time_ymd,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request as Ask, Response as Accept};
use tokio_tungstenite::tungstenite::http::HeaderValue;

/// Waits until something is so; if it never is, `why` tells more.
async fn wait_until(mut is_so: impl FnMut() -> bool, why: impl Fn() -> String) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "{}", why());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn config(kind: CseType, id: &str, name: &str, tls: Tls) -> CseServerConfig {
    let mut cse = gatewright_onem2m::CseConfig::new(kind, id, name);
    "//sp.example".clone_into(&mut cse.provider);
    cse.admitted_cses = vec!["/id-mn".to_owned()];
    let mut config = CseServerConfig::new(cse);
    config.listen_tls = vec!["127.0.0.1:0".parse().unwrap()];
    config.tls = Some(tls);
    config
}

const AE: &str = r#"{"m2m:ae":{"rn":"a","api":"Nx","rr":false,"srv":["4"]}}"#;

#[tokio::test]
async fn a_peer_is_who_its_certificate_says() {
    let authority = Authority::new("peer");
    let server = authority.certify("server", &["m2m://sp.example/id-in"]);
    let mine = authority.certify("mine", &["m2m://sp.example/id-in/Cmine"]);
    let running = start(config(CseType::Infrastructure, "/id-in", "cse-in", server)).await.unwrap();
    let url = format!("https://{}", running.addresses()[0]);
    let client =
        |from: &str, tls: &Tls| Client::new(url.as_str(), from, "t").with_tls(tls).unwrap();
    let made =
        client("Cmine", &mine).create("cse-in", ResourceType::ApplicationEntity, AE).await.unwrap();
    assert_eq!(made.status, Status::Created, "{made:?}");
    let seen = client("Cmine", &mine).get("cse-in/a").await.unwrap();
    assert_eq!(seen.status, Status::Ok);
    let other = client("Cother", &mine).create("cse-in", ResourceType::ApplicationEntity, AE).await;
    assert_eq!(other.unwrap().status, Status::OriginatorHasNotRegistered);
    assert!(running.counters().contains(&("unauthenticated", 1)));
    // A certificate of another authority, and none at all, do not get past the handshake.
    let stranger = Authority::new("stranger");
    let mut theirs = stranger.certify("mine", &["m2m://sp.example/id-in/Cmine"]);
    theirs.authorities.clone_from(&mine.authorities);
    for from_outside in [
        client("Cmine", &theirs).get("cse-in/a").await,
        Client::new(url.as_str(), "Cmine", "t").get("cse-in/a").await,
        Client::new(url.replace("https", "http"), "Cmine", "t").get("cse-in/a").await,
    ] {
        assert!(matches!(from_outside, Err(AskError::Unreachable(_))), "{from_outside:?}");
    }
    // The server learns of a refusal after who refused it.
    let counted = || running.counters().contains(&("tls_handshakes_failed", 2));
    wait_until(counted, || format!("{:?}", running.counters())).await;
    running.stop().await;
}

/// A list of revoked certificates (RFC 5280 §5) with those of these names.
fn revoke(authority: &Authority, names: &[&str]) -> PathBuf {
    let revoked = |name: &&str| RevokedCertParams {
        serial_number: SerialNumber::from_slice(name.as_bytes()),
        revocation_time: date_time_ymd(2024, 1, 2),
        reason_code: None,
        invalidity_date: None,
    };
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(2024, 1, 3),
        next_update: date_time_ymd(2124, 1, 3),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: names.iter().map(revoked).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let file = authority.place.join(format!("{}.crl.pem", names.join("-")));
    std::fs::write(&file, list.signed_by(&authority.issuer).unwrap().pem().unwrap()).unwrap();
    file
}

#[tokio::test]
async fn a_revoked_peer_is_refused_and_counted() {
    let authority = Authority::new("revoked");
    let mut server = authority.certify("server", &["m2m://sp.example/id-in"]);
    let mine = authority.certify("mine", &["m2m://sp.example/id-in/Cmine"]);
    let lost = authority.certify("lost", &["m2m://sp.example/id-in/Clost"]);
    server.crl = Some(revoke(&authority, &["lost", "another"]));
    let infrastructure = |tls| config(CseType::Infrastructure, "/id-in", "cse-in", tls);
    let running = start(infrastructure(server.clone())).await.unwrap();
    let url = format!("https://{}", running.addresses()[0]);
    let client =
        |from: &str, tls: &Tls| Client::new(url.as_str(), from, "t").with_tls(tls).unwrap();
    let made =
        client("Cmine", &mine).create("cse-in", ResourceType::ApplicationEntity, AE).await.unwrap();
    assert_eq!(made.status, Status::Created, "{made:?}");
    let refused = client("Clost", &lost).get("cse-in/a").await;
    assert!(matches!(refused, Err(AskError::Unreachable(_))), "{refused:?}");
    let counted = || running.counters().iter().any(|it| it.0 == "certificates_revoked" && it.1 > 0);
    wait_until(counted, || format!("{:?}", running.counters())).await;
    // A client compares a server's certificate, too.
    let mut careful = mine.clone();
    careful.crl = Some(revoke(&authority, &["other"]));
    assert_eq!(client("Cmine", &careful).get("cse-in/a").await.unwrap().status, Status::Ok);
    careful.crl = Some(revoke(&authority, &["server"]));
    let refused = client("Cmine", &careful).get("cse-in/a").await;
    assert!(matches!(&refused, Err(AskError::Unreachable(_))), "{refused:?}");
    running.stop().await;
    // A file without a list is no list.
    server.crl = Some(server.certificate.clone());
    let error = start(infrastructure(server)).await.err().unwrap().to_string();
    assert!(error.contains("holds no list of revoked certificates"), "{error}");
}

/// Over WebSocket as over HTTP.
#[tokio::test]
async fn over_websocket_a_peer_is_who_its_certificate_says() {
    let authority = Authority::new("wss");
    let server = authority.certify("server", &["m2m://sp.example/id-in"]);
    let mine = authority.certify("mine", &["m2m://sp.example/id-in/Cmine"]);
    let mut config = config(CseType::Infrastructure, "/id-in", "cse-in", server);
    config.listen_tls.clear();
    config.listen_wss = vec!["127.0.0.1:0".parse().unwrap()];
    let running = start(config).await.unwrap();
    let url = format!("wss://{}", running.wss_addresses()[0]);
    let client =
        |from: &str, tls: &Tls| Client::new(url.as_str(), from, "t").with_tls(tls).unwrap();
    let made =
        client("Cmine", &mine).create("cse-in", ResourceType::ApplicationEntity, AE).await.unwrap();
    assert_eq!(made.status, Status::Created, "{made:?}");
    assert_eq!(client("Cmine", &mine).get("cse-in/a").await.unwrap().status, Status::Ok);
    let other = client("Cother", &mine).get("cse-in/a").await.unwrap();
    assert_eq!(other.status, Status::OriginatorHasNotRegistered, "{other:?}");
    let stranger = Authority::new("wss-stranger");
    let mut theirs = stranger.certify("mine", &["m2m://sp.example/id-in/Cmine"]);
    theirs.authorities.clone_from(&mine.authorities);
    for from_outside in [
        client("Cmine", &theirs).get("cse-in/a").await,
        Client::new(url.as_str(), "Cmine", "t").get("cse-in/a").await,
        Client::new(url.replace("wss", "ws"), "Cmine", "t").get("cse-in/a").await,
    ] {
        assert!(matches!(from_outside, Err(AskError::Unreachable(_))), "{from_outside:?}");
    }
    running.stop().await;
}

/// A gateway registers AEs for its devices at the CSE above and speaks for them by its certificate:
/// for these only, and no other gateway does (TS-0003 §7.2.1).
#[tokio::test]
async fn a_cse_speaks_for_the_aes_that_it_registered() {
    let authority = Authority::new("wards");
    let server = authority.certify("server", &["m2m://sp.example/id-in"]);
    let mine = authority.certify("mine", &["m2m://sp.example/id-mn"]);
    let other = authority.certify("other", &["m2m://sp.example/id-mn2"]);
    let device = authority.certify("device", &["m2m://sp.example/id-in/Cphd-own"]);
    let mut config = config(CseType::Infrastructure, "/id-in", "cse-in", server);
    config.cse.admitted_cses.push("/id-mn2".to_owned());
    config.listen_wss = vec!["127.0.0.1:0".parse().unwrap()];
    let running = start(config).await.unwrap();
    let urls = [
        ("https", format!("https://{}", running.addresses()[0])),
        ("wss", format!("wss://{}", running.wss_addresses()[0])),
    ];
    for (scheme, url) in urls {
        let as_whom =
            |from: &str, tls: &Tls| Client::new(url.as_str(), from, scheme).with_tls(tls).unwrap();
        let (ward, own) = (format!("Cphd-{scheme}"), "Cphd-own");
        let ae = AE.replace("\"a\"", &format!("\"{scheme}\""));
        let (to, kind) = (format!("cse-in/{scheme}"), ResourceType::ApplicationEntity);
        let made = as_whom(&ward, &mine).create("cse-in", kind, &ae).await.unwrap();
        assert_eq!(made.status, Status::Created, "{scheme}: {made:?}");
        let seen = as_whom(&ward, &mine).get(&to).await.unwrap();
        assert_eq!(seen.status, Status::Ok, "{scheme}: {seen:?}");
        // An AE with a certificate of its own is nobody's ward.
        let _ = as_whom(own, &device).create("cse-in", kind, AE).await.unwrap();
        for (from, tls, to, why) in [
            (ward.as_str(), &other, to.as_str(), "another gateway's device"),
            (own, &mine, "cse-in/a", "a device with a certificate"),
            ("Cnurse", &mine, to.as_str(), "nobody that is registered"),
            (ward.as_str(), &device, to.as_str(), "another device"),
        ] {
            let refused = as_whom(from, tls).get(to).await.unwrap();
            assert_eq!(refused.status, Status::OriginatorHasNotRegistered, "{scheme}: {why}");
        }
        let nurse = AE.replace("\"a\"", "\"n\"");
        let brought = as_whom("Cnurse", &mine).create("cse-in", kind, &nurse).await.unwrap();
        assert_eq!(brought.status, Status::OriginatorHasNotRegistered, "{scheme}: no device");
    }
    running.stop().await;
}

/// The names of all instances that `client`'s CSE has below `place`.
async fn names_below(client: &Client, place: &str) -> Vec<String> {
    let found = client.get(&format!("{place}?fu=1&ty=4")).await.unwrap();
    assert_eq!(found.status, Status::Ok, "{found:?}");
    let found: serde_json::Value = serde_json::from_str(&found.content.unwrap()).unwrap();
    let uris = found["m2m:uril"].as_array().unwrap().iter().map(|uri| uri.as_str().unwrap());
    let readings = uris.filter(|uri| !uri.contains("/about/"));
    readings.map(|uri| uri.rsplit('/').next().unwrap().to_owned()).collect()
}

/// Who has this certificate asks as `from`: refused, and counted.
async fn refused_as(from: &str, tls: &Tls, at: &gatewright_bindings::cse::RunningCse) {
    let url = format!("https://{}", at.addresses().last().unwrap());
    let client = Client::new(url, from, "foreign").with_tls(tls).unwrap();
    let before = at.counters().iter().find(|(name, _)| *name == "unauthenticated").unwrap().1;
    let refused = client.get("/id-in/cse-in/ward").await.unwrap();
    assert_eq!(refused.status, Status::OriginatorHasNotRegistered, "{refused:?}");
    assert!(at.counters().contains(&("unauthenticated", before + 1)));
}

/// A container in which devices of `/id-leaf` may create, and nothing more.
async fn make_ward(admin: &Client) {
    let policy = r#"{"m2m:acp":{"rn":"p","pv":{"acr":[{"acor":["/id-leaf/Cphd-*"],"acop":1}]},
        "pvs":{"acr":[{"acor":["CAdmin"],"acop":63}]}}}"#;
    for (kind, content) in [
        (ResourceType::AccessControlPolicy, policy),
        (ResourceType::Container, r#"{"m2m:cnt":{"rn":"ward","acpi":["cse-in/p"]}}"#),
    ] {
        let made = admin.create("cse-in", kind, content).await.unwrap();
        assert_eq!(made.status, Status::Created, "{made:?}");
    }
}

/// Two CSEs below the one that has the readings: the device's gateway asks by way of its registrar,
/// and each CSE takes from the one below what that one's certificate speaks for. What was answered
/// is stored there once. A CSE that only says that it is between is refused.
#[tokio::test]
async fn readings_go_up_by_a_chain_of_registrars() {
    let authority = Authority::new("hops");
    let certify = |id: &str| authority.certify(id, &[format!("m2m://sp.example/{id}").as_str()]);
    let middle = |id: &str, name: &str, above: &str, url: String| {
        let mut config = config(CseType::Middle, id, name, certify(&id[1..]));
        config.cse.admitted_cses = vec!["/id-leaf".to_owned()];
        let (cse_id, name) = (above.to_owned(), above.replace("/id", "cse"));
        config.cse.registrar = Some(Registrar { cse_id, name, url });
        config
    };
    let mut upper = config(CseType::Infrastructure, "/id-in", "cse-in", certify("id-in"));
    upper.cse.admin = Some("CAdmin".to_owned());
    upper.cse.admitted_cses = vec!["/id-mn".to_owned(), "/id-foreign".to_owned()];
    upper.cse.cses_beyond = vec!["/id-mn/id-leaf".to_owned()];
    upper.listen = vec!["127.0.0.1:0".parse().unwrap()];
    let upper = start(upper).await.unwrap();
    let secure = |running: &gatewright_bindings::cse::RunningCse| {
        format!("https://{}", running.addresses().last().unwrap())
    };
    let between = start(middle("/id-mn", "cse-mn", "/id-in", secure(&upper))).await.unwrap();
    let leaf = start(middle("/id-leaf", "cse-leaf", "/id-mn", secure(&between))).await.unwrap();
    let admin = Client::new(format!("http://{}", upper.addresses()[0]), "CAdmin", "admin");
    make_ward(&admin).await;
    for lower in [&between, &leaf] {
        let registered = || lower.engine().is_registered();
        wait_until(registered, || format!("{:?}", lower.counters())).await;
    }
    for (delivery, number) in [
        (devices::Delivery::Durable(Duration::from_hours(1)), b'1'),
        (devices::Delivery::Direct, b'2'),
    ] {
        let mut wanted = devices::DevicesConfig::new(([127, 0, 0, 1], 0).into(), "cse-leaf");
        wanted.above = Some(devices::Above {
            url: secure(&between),
            base: "/id-in/cse-in/ward".to_owned(),
            beyond: true,
            delivery,
            kinds: std::collections::BTreeMap::new(),
            coap: None,
        });
        let listener = devices::start(wanted, leaf.engine().clone()).await.unwrap();
        let plan = SimulationPlan::new(&SCALE, SystemId([2, b'H', b'O', b'P', 0, 0, 0, number]), 1);
        let plan = SimulationPlan { period: Duration::from_millis(50), ..plan };
        let measuring = Duration::from_secs(1);
        let (to, patience) = (listener.address(), Duration::from_secs(30));
        let outcome = agents::run(agents::Run { plan, to, measuring, patience }).await;
        assert!(outcome.is_answered(), "{outcome:?} {:?}", listener.counters());
        let none = || leaf.engine().messages_waiting() == 0;
        wait_until(none, || format!("{:?} {:?}", leaf.counters(), upper.counters())).await;
        let place = format!("cse-in/ward/phd-{}", plan.system_id);
        let names = names_below(&admin, &place).await;
        let once: std::collections::BTreeSet<_> = names.iter().collect();
        let sent = outcome.counters.acknowledged_values;
        assert_eq!((names.len() as u64, once.len() as u64), (sent, sent), "{delivery:?}");
        listener.stop().await;
    }
    // In its name, by somebody else's certificate: a CSE that is admitted, an AE of the one between.
    let foreign = certify("id-foreign");
    let nurse = authority.certify("nurse", &["m2m://sp.example/id-mn/Cnurse"]);
    for (at, tls) in [(&upper, &foreign), (&upper, &nurse), (&between, &foreign)] {
        refused_as("/id-leaf/Cphd-0248", tls, at).await;
    }
    leaf.stop().await;
    between.stop().await;
    upper.stop().await;
}

/// The end of a connection that `peer` takes over TLS, as a WebSocket.
async fn take_wss(listener: &TcpListener, peer: &Tls) -> WebSocketStream<TlsStream<TcpStream>> {
    let certificates = CertificateDer::pem_file_iter(&peer.certificate).unwrap();
    let key = PrivateKeyDer::from_pem_file(&peer.key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates.map(Result::unwrap).collect(), key)
        .unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await.unwrap();
    #[expect(clippy::result_large_err, reason = "the handshake wants its refusal whole")]
    let choose = |_: &Ask, mut accept: Accept| {
        let json = HeaderValue::from_static("oneM2M.json");
        accept.headers_mut().insert("sec-websocket-protocol", json);
        Ok(accept)
    };
    tokio_tungstenite::accept_hdr_async(stream, choose).await.unwrap()
}

/// A peer may ask over a connection that we made: as itself, and as nobody else. Who is at the
/// registrar's URL is the registrar, whatever else its certificate says.
#[tokio::test]
async fn over_a_connection_of_ours_a_peer_is_who_its_certificate_says() {
    let authority = Authority::new("reverse");
    let server = authority.certify("server", &["m2m://sp.example/id-mn/Cmine"]);
    let lower_tls = authority.certify("lower", &["m2m://sp.example/id-mn"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut lower = config(CseType::Middle, "/id-mn", "cse-mn", lower_tls);
    lower.cse.admin = Some("CAdmin".to_owned());
    lower.cse.registrar = Some(Registrar {
        cse_id: "/id-in".to_owned(),
        name: "cse-in".to_owned(),
        url: format!("wss://{}", listener.local_addr().unwrap()),
    });
    // It connects to register.
    let lower = start(lower).await.unwrap();
    let mut socket = take_wss(&listener, &server).await;
    for (id, from, status) in [
        ("1", "CAdmin", 4106),
        ("2", "/id-mn/CAdmin", 4106),
        ("3", "/id-mn", 4106),
        ("4", "/id-x", 4106),
        // These are let in, and may not see what is asked for.
        ("5", "/id-in", 4103),
        ("6", "/id-in/CAdmin", 4103),
        ("7", "Cmine", 4103),
    ] {
        let ask = format!(r#"{{"op":2,"to":"cse-mn","fr":"{from}","rqi":"{id}","rvi":"4"}}"#);
        socket.send(Message::text(ask)).await.unwrap();
        // Between the answers it asks, too: to be registered.
        let answer = loop {
            let message = socket.next().await.unwrap().unwrap();
            let Ok(text) = message.to_text() else { continue };
            let value: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
            if value["rqi"] == id {
                break value;
            }
        };
        assert_eq!(answer["rsc"], status, "{from}: {answer}");
    }
    drop(socket);
    lower.stop().await;
}

#[tokio::test]
async fn two_cses_register_and_talk_over_tls() {
    let authority = Authority::new("cses");
    let upper_tls = authority.certify("upper", &["m2m://sp.example/id-in"]);
    let lower_tls = authority.certify("lower", &["m2m://sp.example/id-mn"]);
    let ae = authority.certify("ae", &["m2m://sp.example/id-mn/Cx"]);
    let upper = config(CseType::Infrastructure, "/id-in", "cse-in", upper_tls);
    let upper = start(upper).await.unwrap();
    let mut lower = config(CseType::Middle, "/id-mn", "cse-mn", lower_tls);
    lower.cse.registrar = Some(Registrar {
        cse_id: "/id-in".to_owned(),
        name: "cse-in".to_owned(),
        url: format!("https://{}", upper.addresses()[0]),
    });
    let lower = start(lower).await.unwrap();
    let registered = || lower.engine().is_registered();
    wait_until(registered, || format!("{:?}", lower.counters())).await;
    let url = format!("https://{}", lower.addresses()[0]);
    let client = Client::new(url, "Cx", "t").with_tls(&ae).unwrap();
    let made = client.create("cse-mn", ResourceType::ApplicationEntity, AE).await.unwrap();
    assert_eq!(made.status, Status::Created, "{made:?}");
    let above = client.get("/id-in/cse-in").await.unwrap();
    assert_eq!(above.status, Status::Ok, "{above:?}");
    lower.stop().await;
    upper.stop().await;
}

#[tokio::test]
async fn files_that_are_none_are_named() {
    let authority = Authority::new("files");
    let mut tls = authority.certify("server", &[]);
    tls.key = authority.place.join("nowhere.key");
    let refused = start(config(CseType::Infrastructure, "/id-in", "cse-in", tls)).await;
    let text = refused.err().map(|error| error.to_string()).unwrap();
    assert!(text.contains("nowhere.key"), "{text}");
}

/// Devices with a certificate of the authority are taken; without one, or of another authority,
/// they store nothing.
#[tokio::test]
async fn devices_show_a_certificate() {
    let (authority, other) = (Authority::new("devices"), Authority::new("devices-other"));
    let mut machine = gatewright_onem2m::CseConfig::new(CseType::Middle, "/id-mn", "cse-mn");
    machine.admin = Some("CAdmin".to_owned());
    let cse = start(CseServerConfig::new(machine)).await.unwrap();
    let here = "127.0.0.1:0".parse().unwrap();
    let mut config = devices::DevicesConfig::new(here, "cse-mn");
    config.tls = Some((here, authority.certify("manager", &[])));
    let listener = devices::start(config, cse.engine().clone()).await.unwrap();
    let run = |number, seconds| agents::Run {
        plan: SimulationPlan::new(&SCALE, SystemId([2, b'T', b'L', b'S', 0, 0, 0, number]), 1),
        to: listener.tls().unwrap(),
        measuring: Duration::from_secs(2),
        patience: Duration::from_secs(seconds),
    };
    let (known, stranger) = (authority.certify("scale", &[]), other.certify("scale", &[]));
    let (known, stranger, bare) = tokio::join!(
        agents::run_tls(run(1, 30), &known),
        agents::run_tls(run(2, 1), &stranger),
        agents::run(run(3, 1)),
    );
    let known = known.unwrap();
    assert!(known.is_answered(), "{known:?} {:?}", listener.counters());
    assert_eq!(stranger.unwrap().counters.associations + bare.counters.associations, 0);
    assert_eq!(listener.counters().readings, known.counters.acknowledged_values);
    let counted = || listener.counters().handshakes_failed >= 2;
    wait_until(counted, || format!("{:?}", listener.counters())).await;
    listener.stop().await;
    cse.stop().await;
}

/// A device associates under the system-id of its certificate, and under no other (RFC 9039 §4.1);
/// as long as nobody says where certificates have it, they are not compared, and that is told.
#[tokio::test]
async fn a_devices_certificate_says_its_system_id() {
    let authority = Authority::new("system-id");
    let server = authority.certify("manager", &[]);
    let own = authority.certify("own", &["urn:dev:mac:0254455354000001"]);
    let other = authority.certify("other", &["urn:dev:mac:0254455354000002", "urn:dev:mac:2"]);
    let none = authority.certify("none", &[]);
    let mut machine = gatewright_onem2m::CseConfig::new(CseType::Middle, "/id-mn", "cse-mn");
    machine.admin = Some("CAdmin".to_owned());
    let cse = start(CseServerConfig::new(machine)).await.unwrap();
    let mut config = devices::DevicesConfig::new(([127, 0, 0, 1], 0).into(), "cse-mn");
    config.tls = Some((([127, 0, 0, 1], 0).into(), server));
    config.system_id = Some(devices::SystemIdField::Uri);
    let listener = devices::start(config.clone(), cse.engine().clone()).await.unwrap();
    assert!(!listener.is_unbound());
    let report = async |tls: &Tls, patience: u64| {
        let plan =
            SimulationPlan::new(&SCALE, SystemId(0x0254_4553_5400_0001_u64.to_be_bytes()), 1);
        let plan = SimulationPlan { period: Duration::from_millis(50), ..plan };
        let (to, patience) = (listener.tls().unwrap(), Duration::from_millis(patience));
        let measuring = Duration::from_millis(300);
        let run = agents::Run { plan, to, measuring, patience };
        agents::run_tls(run, tls).await.unwrap().counters.acknowledged
    };
    assert!(report(&own, 30_000).await > 0);
    assert_eq!(listener.counters().system_ids_foreign, 0);
    for foreign in [&other, &none] {
        let before = listener.counters().system_ids_foreign;
        assert_eq!(report(foreign, 500).await, 0);
        assert!(listener.counters().system_ids_foreign > before);
    }
    let told = listener.refusals();
    let told: Vec<_> = told.iter().filter(|event| event.kind == "system-id-foreign").collect();
    assert_eq!(told.len(), 2, "one for each certificate: {told:?}");
    assert!(told.iter().all(|event| event.text.contains("association of 0254455354000001")));
    // The rule is read anew with each connection.
    config.system_id = None;
    listener.reconfigure(config).await;
    assert!(listener.is_unbound());
    assert!(report(&other, 30_000).await > 0);
    listener.stop().await;
    cse.stop().await;
}
