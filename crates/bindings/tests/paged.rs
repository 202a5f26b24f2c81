//! Instances that are in the store only: read when they are asked for, over restarts too.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_bindings::cse::{CseServerConfig, RunningCse, start};
use gatewright_onem2m::{CseConfig, CseType, Operation, Request, ResourceType, Response};
use serde_json::Value;
use std::path::PathBuf;

const READINGS: usize = 300;

struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A CSE that keeps no instance in memory that may leave it.
async fn open(place: &Place) -> RunningCse {
    let mut machine = CseConfig::new(CseType::Infrastructure, "/id-in", "cse-in");
    machine.admin = Some("CAdmin".to_owned());
    machine.limits.resident_octets = Some(0);
    let mut config = CseServerConfig::new(machine);
    config.store = Some(place.0.join("cse.db"));
    start(config).await.unwrap()
}

async fn ask(cse: &RunningCse, request: Request) -> Response {
    cse.engine().ask(request).await.unwrap()
}

async fn get(cse: &RunningCse, to: &str) -> Value {
    let (to, query) = to.split_once('?').unwrap_or((to, ""));
    let mut request = Request::new(Operation::Retrieve, to, "CAdmin", format!("get {to} {query}"));
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap();
        request.set(name, value).unwrap();
    }
    let response = ask(cse, request).await;
    assert_eq!(response.status.number(), 2000, "{to}: {response:?}");
    serde_json::from_str(response.content.as_deref().unwrap()).unwrap()
}

async fn create(cse: &RunningCse, to: &str, kind: ResourceType, content: String) {
    let id = format!("create {to} {content}");
    let request = Request::new(Operation::Create, to, "CAdmin", id).creating(kind, content);
    assert_eq!(ask(cse, request).await.status.number(), 2001);
}

/// Every way to an instance shows it.
async fn check(cse: &RunningCse) {
    assert!(cse.engine().instances_paged_out() > 0);
    let first = get(cse, "cse-in/c/n0").await;
    assert_eq!(first["m2m:cin"]["con"], "0");
    assert_eq!(get(cse, "cse-in/c/ol").await, first);
    assert_eq!(get(cse, first["m2m:cin"]["ri"].as_str().unwrap()).await, first);
    let all = get(cse, "cse-in/c?rcn=4").await;
    let all = all["m2m:cnt"]["m2m:cin"].as_array().unwrap();
    assert_eq!(all.len(), READINGS);
    for (at, instance) in all.iter().enumerate() {
        assert_eq!(instance["con"], at.to_string());
    }
    let found = get(cse, "cse-in/c?fu=1&atr=rn,n7").await;
    assert_eq!(found["m2m:uril"], serde_json::json!(["cse-in/c/n7"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_are_read_when_they_are_asked_for() {
    let place = Place(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("paged"));
    let _ = std::fs::remove_dir_all(&place.0);
    std::fs::create_dir_all(&place.0).unwrap();
    let cse = open(&place).await;
    create(&cse, "cse-in", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#.to_owned()).await;
    for at in 0..READINGS {
        let content = format!(r#"{{"m2m:cin":{{"rn":"n{at}","con":"{at}"}}}}"#);
        create(&cse, "cse-in/c", ResourceType::ContentInstance, content).await;
    }
    check(&cse).await;
    cse.stop().await;
    let cse = open(&place).await;
    check(&cse).await;
    assert_eq!(cse.unreadable(), []);
    cse.stop().await;
}
