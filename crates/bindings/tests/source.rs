//! Rules that are bound to addresses, by every binding: the address of a socket counts, and what
//! comes by a broker has none. Without mosquitto in the path that part is skipped, and says so; so is
//! what needs a namespace.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod shared;

use gatewright_bindings::client::Client;
use gatewright_bindings::cse::{CseServerConfig, RunningCse, start};
use gatewright_onem2m::{CseConfig, CseType, ResourceType, Status};
use gatewright_testbed::{Namespace, Needs, Veth};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use libtest_mimic::{Arguments, Trial};
use shared::{Binding, Broker, block_on, broker_program, wait_for};
use std::process::ExitCode;
use tokio::net::{TcpListener, TcpStream};

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
        trial(
            "local_route",
            networks_routed_to_this_machine,
            Needs::new().namespaces().missing().is_none(),
        ),
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

/// Whole networks (RFC 5737, RFC 3849) are this machine's by local routes, on no interface.
fn networks_routed_to_this_machine() {
    let host = Namespace::new().unwrap();
    host.ip(&["-4", "route", "add", "local", "192.0.2.0/24", "dev", "lo"]).unwrap();
    host.ip(&["-6", "route", "add", "local", "2001:db8::/64", "dev", "lo"]).unwrap();
    // Another machine's, if it were there: the kernel has a route that leads away.
    let cable = Veth::pair(&host, "away", &host, "there").unwrap();
    cable.a.add_address("198.51.100.1/24").unwrap();
    cable.up().unwrap();
    host.run(|| block_on(by_local_routes())).unwrap();
}

async fn by_local_routes() {
    let own = ["192.0.2.7", "[2001:db8::7]", "198.51.100.1", "198.51.100.255"];
    for allowed in [false, true] {
        let cse = CseConfig::new(CseType::Infrastructure, "/id-in", "cse-in");
        let mut config = CseServerConfig::new(cse);
        config.listen = vec!["0.0.0.0:0".parse().unwrap()];
        config.reach_own = allowed;
        let running = start(config).await.unwrap();
        let url = format!("http://127.0.0.1:{}", running.addresses()[0].port());
        let plain = Client::new(url, "Cplain", "p");
        let ae = r#"{"m2m:ae":{"rn":"a","api":"Nx","rr":false,"srv":["4"]}}"#;
        let made = plain.create("cse-in", ResourceType::ApplicationEntity, ae).await.unwrap();
        assert_eq!(made.status, Status::Created, "{made:?}");
        let heard = TcpListener::bind("[::]:0").await.unwrap();
        let port = heard.local_addr().unwrap().port();
        let refused = || -> u64 {
            let all = running.counters().into_iter();
            all.filter(|(name, _)| *name == "calls_to_own_addresses").map(|(_, count)| count).sum()
        };
        let subscribe = async |host: &str| {
            let sub = format!(r#"{{"m2m:sub":{{"nu":["http://{host}:{port}/"]}}}}"#);
            plain.create("cse-in/a", ResourceType::Subscription, &sub).await.unwrap()
        };
        if allowed {
            // What the refusals below stand against: these addresses do reach this machine.
            for host in &own[..2] {
                tokio::select! {
                    told = heard.accept() => drop(told.unwrap()),
                    answer = subscribe(host) => panic!("{host} was not asked: {answer:?}"),
                }
            }
        } else {
            for (before, host) in (0_u64..).zip(own) {
                assert_eq!(refused(), before);
                assert!(!subscribe(host).await.status.is_success(), "{host}");
                assert_eq!(refused(), before + 1, "{host}");
            }
            assert!(!subscribe("198.51.100.7").await.status.is_success());
            assert_eq!(refused(), 4, "that one is not this machine's");
        }
        running.stop().await;
    }
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
