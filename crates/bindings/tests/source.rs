//! Rules that are bound to addresses, by every binding: the address of a socket counts, and what
//! comes by a broker has none. Without mosquitto in the path that part is skipped, and says so.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod shared;

use gatewright_bindings::client::Client;
use gatewright_bindings::cse::RunningCse;
use gatewright_onem2m::{ResourceType, Status};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use libtest_mimic::{Arguments, Trial};
use shared::{Binding, Broker, block_on, broker_program, wait_for};
use std::process::ExitCode;
use tokio::net::TcpStream;

/// Containers by the addresses that may read them: every test speaks over the loopback.
const PLACES: [(&str, &str); 3] = [
    ("near", r#"{"ipv4":["192.0.2.0/24","127.0.0.0/8"],"ipv6":["::1"]}"#),
    ("far", r#"{"ipv4":["192.0.2.0/24"],"ipv6":["2001:db8::/32"]}"#),
    ("anywhere", r#"{"ipv4":["0.0.0.0/0"],"ipv6":["::/0"]}"#),
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trial = |name: &str, run: fn(), present: bool| {
        Trial::test(name, move || {
            run();
            Ok(())
        })
        .with_ignored_flag(!present)
    };
    let trials = vec![
        trial("http", || block_on(by_socket(Binding::Http)), true),
        trial("http_2", || block_on(by_http_2()), true),
        trial("ws", || block_on(by_socket(Binding::Ws)), true),
        trial("coap", || block_on(by_socket(Binding::Coap)), true),
        trial("mqtt", || block_on(by_broker()), broker_program().is_some()),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A CSE with a container for each of the places, and a client that only their policies admit.
async fn places(binding: Binding) -> (RunningCse, Client) {
    let running = binding.infrastructure().await;
    let admin = binding.admin_of(&running, "a");
    wait_for(&admin, "cse-in").await;
    for (name, addresses) in PLACES {
        let policy = format!(
            r#"{{"m2m:acp":{{"rn":"p-{name}",
                "pv":{{"acr":[{{"acor":["Cb"],"acop":63,"acco":[{{"acip":{addresses}}}]}}]}},
                "pvs":{{"acr":[{{"acor":["CAdmin"],"acop":63}}]}}}}}}"#
        );
        let made =
            admin.create("cse-in", ResourceType::AccessControlPolicy, &policy).await.unwrap();
        assert_eq!(made.status, Status::Created, "{made:?}");
        let container = format!(r#"{{"m2m:cnt":{{"rn":"{name}","acpi":["cse-in/p-{name}"]}}}}"#);
        let made = admin.create("cse-in", ResourceType::Container, &container).await.unwrap();
        assert_eq!(made.status, Status::Created, "{made:?}");
    }
    let url = binding.at(&binding.url(&running), "id-in");
    (running, Client::new(url, "Cb", "b"))
}

async fn statuses(client: &Client) -> [Status; 3] {
    let mut found = [Status::InternalServerError; 3];
    for ((name, _), status) in PLACES.iter().zip(&mut found) {
        *status = client.get(&format!("cse-in/{name}")).await.unwrap().status;
    }
    found
}

async fn by_socket(binding: Binding) {
    let (running, client) = places(binding).await;
    let expected = [Status::Ok, Status::OriginatorHasNoPrivilege, Status::Ok];
    assert_eq!(statuses(&client).await, expected);
    running.stop().await;
}

async fn by_broker() {
    let broker = Broker::start(broker_program().unwrap());
    let (running, client) = places(broker.binding()).await;
    assert_eq!(statuses(&client).await, [Status::OriginatorHasNoPrivilege; 3]);
    running.stop().await;
}

async fn by_http_2() {
    let (running, _) = places(Binding::Http).await;
    let stream = TcpStream::connect(running.addresses()[0]).await.unwrap();
    let executor = TokioExecutor::new();
    let (mut asks, connection) =
        hyper::client::conn::http2::handshake(executor, TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    for ((name, _), expected) in PLACES.iter().zip(["2000", "4103", "2000"]) {
        let request = hyper::Request::get(format!("http://x/cse-in/{name}"))
            .header("x-m2m-origin", "Cb")
            .header("x-m2m-ri", *name)
            .header("x-m2m-rvi", "4")
            .body(Empty::<Bytes>::new())
            .unwrap();
        let answer = asks.send_request(request).await.unwrap();
        assert_eq!(answer.version(), hyper::Version::HTTP_2);
        assert_eq!(answer.headers()["x-m2m-rsc"], expected, "{name}");
        answer.into_body().collect().await.unwrap();
    }
    drop(asks);
    connection.await.unwrap().unwrap();
    running.stop().await;
}
