//! Over MQTT, by Debian's mosquitto: our client at our CSE, two of our CSEs, and a broker that goes
//! away for a while. Without mosquitto in the path they are skipped, and say so.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod shared;

use gatewright_bindings::client::Client;
use gatewright_onem2m::{Operation, ResourceType, Serialisation, Status};
use libtest_mimic::{Arguments, Trial};
use shared::{Broker, PATIENCE, block_on, broker_program, chain, long, wait_for};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let program = broker_program();
    let trial = |name: &str, run: fn(&'static str)| {
        Trial::test(name, move || {
            run(program.expect("there"));
            Ok(())
        })
        .with_ignored_flag(program.is_none())
    };
    let trials = vec![
        trial("our_client_at_our_cse", |program| block_on(ours_at_ours(program))),
        trial("requests_between_two_of_ours_go_both_ways", |program| {
            block_on(chain(Broker::start(program).binding()));
        }),
        trial("a_broker_that_was_away_is_found_again", |program| block_on(outage(program))),
        trial("who_asks_is_who_its_topic_says", |program| block_on(topics(program))),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Every operation, small and large, in both serialisations.
async fn ours_at_ours(program: &str) {
    let broker = Broker::start(program);
    let running = broker.binding().infrastructure().await;
    for serialisation in [Serialisation::Json, Serialisation::Cbor] {
        let prefix = format!("{serialisation:?}");
        let client = broker.binding().admin_of(&running, &prefix).writing(serialisation);
        wait_for(&client, "cse-in").await;
        let container = format!(r#"{{"m2m:cnt":{{"rn":"{prefix}"}}}}"#);
        let made = client.create("cse-in", ResourceType::Container, &container).await.unwrap();
        assert_eq!(made.status, Status::Created, "{made:?}");
        let to = format!("cse-in/{prefix}");
        for length in [1, 100_000] {
            let value = long(length);
            let content = format!(r#"{{"m2m:cin":{{"rn":"i{length}","con":"{value}"}}}}"#);
            let made = client.create(&to, ResourceType::ContentInstance, &content).await.unwrap();
            assert_eq!(made.status, Status::Created, "{length}: {made:?}");
            let again = client.create(&to, ResourceType::ContentInstance, &content).await.unwrap();
            assert_eq!(again.status, Status::Conflict);
            let read = client.get(&format!("{to}/la")).await.unwrap();
            let read: serde_json::Value = serde_json::from_str(&read.content.unwrap()).unwrap();
            assert_eq!(read["m2m:cin"]["con"], value);
        }
        let found = client.get(&format!("{to}?fu=1&ty=4&lim=1")).await.unwrap();
        assert!(found.cut_at().is_some() && found.content.unwrap().contains("/i1"));
        let updated = client.update(&to, r#"{"m2m:cnt":{"lbl":["x"]}}"#).await.unwrap();
        assert_eq!(updated.status, Status::Updated);
        assert_eq!(client.delete(&to).await.unwrap().status, Status::Deleted);
        assert_eq!(client.get(&to).await.unwrap().status, Status::NotFound);
    }
    running.stop().await;
}

/// A broker's rules say who may publish to which topic: what is asked there as another is refused.
async fn topics(program: &str) {
    let broker = Broker::start(program);
    let running = broker.binding().infrastructure().await;
    let admin = broker.binding().admin_of(&running, "t");
    wait_for(&admin, "cse-in").await;
    let url = broker.binding().at(&broker.binding().url(&running), "id-in");
    for (number, topic) in ["Cmine", "id-mn", "id-in", "id-in:Cmine"].into_iter().enumerate() {
        let mine = Client::new(url.as_str(), topic, format!("m{number}-"));
        for from in ["CAdmin", "/id-in/CAdmin", "/id-in", "Cother", "/id-other/Cx"] {
            let mut request = mine.request(Operation::Retrieve, "cse-in").unwrap();
            from.clone_into(&mut request.from);
            let answer = mine.ask(&request).await.unwrap();
            let refused = Status::OriginatorHasNotRegistered;
            assert_eq!(answer.status, refused, "{from} at the topic of {topic}: {answer:?}");
        }
    }
    let mine = Client::new(url.as_str(), "Cmine", "own-");
    let entity = r#"{"m2m:ae":{"rn":"mine","api":"Nx","rr":false,"srv":["4"]}}"#;
    let made = mine.create("cse-in", ResourceType::ApplicationEntity, entity).await.unwrap();
    assert_eq!(made.status, Status::Created, "{made:?}");
    assert_eq!(mine.get("cse-in/mine").await.unwrap().status, Status::Ok);
    assert_eq!(admin.get("cse-in/mine").await.unwrap().status, Status::Ok);
    running.stop().await;
}

async fn outage(program: &str) {
    let mut broker = Broker::start(program);
    let running = broker.binding().infrastructure().await;
    let client = broker.binding().admin_of(&running, "o");
    wait_for(&client, "cse-in").await;
    broker.kill();
    let refused = tokio::time::timeout(PATIENCE, client.get("cse-in")).await.unwrap();
    assert!(refused.is_err(), "{refused:?}");
    broker.again(program);
    wait_for(&client, "cse-in").await;
    let counters = running.counters();
    let count = |name: &str| counters.iter().find(|(known, _)| *known == name).unwrap().1;
    assert!(count("mqtt_connections") >= 2);
    running.stop().await;
}
