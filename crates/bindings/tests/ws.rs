//! Over WebSocket: our client at our CSE, and two of our CSEs.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_bindings::client::Client;
use gatewright_bindings::cse::{Config, Running, start};
use gatewright_onem2m::{CseType, Kind, Registrar, Serialisation, Status};
use std::time::Duration;

async fn cse(
    kind: CseType,
    (id, name): (&str, &str),
    more: impl FnOnce(&mut gatewright_onem2m::Config),
) -> Running {
    let mut cse = gatewright_onem2m::Config::new(kind, id, name);
    cse.admin = Some("CAdmin".to_owned());
    more(&mut cse);
    let mut config = Config::new(cse);
    config.listen_ws = vec!["127.0.0.1:0".parse().unwrap()];
    start(config).await.unwrap()
}

fn url(running: &Running) -> String {
    format!("ws://{}", running.ws_addresses()[0])
}

/// Every operation, small and large, in both serialisations; a decimal stays what it is.
#[tokio::test]
async fn our_client_at_our_cse() {
    let running = cse(CseType::Infrastructure, ("/id-in", "cse-in"), |_| {}).await;
    for serialisation in [Serialisation::Json, Serialisation::Cbor] {
        let prefix = format!("{serialisation:?}");
        let client = Client::new(url(&running), "CAdmin", &*prefix).writing(serialisation);
        let container = format!(r#"{{"m2m:cnt":{{"rn":"{prefix}"}}}}"#);
        let made = client.create("cse-in", Kind::Container, &container).await.unwrap();
        assert_eq!(made.status, Status::Created, "{made:?}");
        let to = format!("cse-in/{prefix}");
        let large = "x".repeat(200_000);
        for value in ["1", &large, "96.50"] {
            let content = format!(r#"{{"m2m:cin":{{"con":"{value}"}}}}"#);
            let made = client.create(&to, Kind::ContentInstance, &content).await.unwrap();
            assert_eq!(made.status, Status::Created, "{made:?}");
            let read = client.get(&format!("{to}/la")).await.unwrap();
            assert!(read.content.unwrap().contains(&format!("\"{value}\"")));
        }
        let found = client.get(&format!("{to}?fu=1&ty=4&lim=1")).await.unwrap();
        assert!(found.cut_at.is_some());
        assert_eq!(client.delete(&to).await.unwrap().status, Status::Deleted);
        assert_eq!(client.get(&to).await.unwrap().status, Status::NotFound);
    }
    let there = url(&running);
    running.stop().await;
    let away = Client::new(there, "CAdmin", "a").get("cse-in").await;
    assert!(away.is_err(), "{away:?}");
}

/// An MN registers at an IN; requests are sent on in both directions.
#[tokio::test]
async fn requests_between_two_of_ours_go_both_ways() {
    let upper = cse(CseType::Infrastructure, ("/id-in", "cse-in"), |cse| {
        cse.admitted_cses = vec!["/id-mn".to_owned()];
    })
    .await;
    let registrar =
        Registrar { cse_id: "/id-in".to_owned(), name: "cse-in".to_owned(), url: url(&upper) };
    let lower = cse(CseType::Middle, ("/id-mn", "cse-mn"), |cse| {
        cse.registrar = Some(registrar);
    })
    .await;
    for _ in 0..300 {
        if lower.engine().is_registered() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(lower.engine().is_registered());
    let (above, below) =
        (Client::new(url(&upper), "CAdmin", "a"), Client::new(url(&lower), "CAdmin", "b"));
    for (client, near) in [(&above, "cse-in"), (&below, "cse-mn")] {
        let policy = r#"{"m2m:acp":{"rn":"p","pv":{"acr":[{"acor":["all"],"acop":63}]},
            "pvs":{"acr":[{"acor":["CAdmin"],"acop":63}]}}}"#;
        let made = client.create(near, Kind::AccessControlPolicy, policy).await.unwrap();
        assert_eq!(made.status, Status::Created, "{made:?}");
        let container = format!(r#"{{"m2m:cnt":{{"rn":"c","acpi":["{near}/p"]}}}}"#);
        let made = client.create(near, Kind::Container, &container).await.unwrap();
        assert_eq!(made.status, Status::Created, "{made:?}");
    }
    for (client, far) in [(&above, "/id-mn/cse-mn/c"), (&below, "/id-in/cse-in/c")] {
        let content = r#"{"m2m:cin":{"rn":"i","con":"96.50"}}"#;
        let made = client.create(far, Kind::ContentInstance, content).await.unwrap();
        assert_eq!(made.status, Status::Created, "{made:?}");
        let found = client.get(&format!("{far}?fu=1&ty=4")).await.unwrap();
        assert!(found.content.unwrap().contains("/c/i"));
    }
    lower.stop().await;
    upper.stop().await;
}
