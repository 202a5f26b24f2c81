//! What the tests of all bindings share: CSEs of ours that speak by one of them, a broker, and the
//! scenario of two CSEs of which one registers at the other.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]
#![allow(dead_code, reason = "each test takes what it needs")]
#![allow(unreachable_pub, reason = "a module of several programs")]

use gatewright_bindings::client::Client;
use gatewright_bindings::cse::{CseServerConfig, RunningCse, start};
use gatewright_onem2m::{CseType, Registrar, ResourceType, Response, Status};
use gatewright_testbed::free_port;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long anything may take to come about.
pub const PATIENCE: Duration = Duration::from_mins(2);
/// Debian puts the broker beside the programs of the system.
const BROKERS: [&str; 2] = ["mosquitto", "/usr/sbin/mosquitto"];

pub fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Runtime::new().unwrap().block_on(future);
}

/// A value of so many characters.
pub fn long(length: usize) -> String {
    (0..length).map(|at| char::from(b'a' + u8::try_from(at % 26).unwrap())).collect()
}

/// How two CSEs speak.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Binding {
    Http,
    Coap,
    Ws,
    /// By the broker at this port.
    Mqtt(u16),
}

impl Binding {
    pub fn scheme(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Coap => "coap",
            Self::Ws => "ws",
            Self::Mqtt(_) => "mqtt",
        }
    }

    /// The URL of a CSE for a client: at a broker it is named.
    pub fn at(self, url: &str, cse: &str) -> String {
        match self {
            Self::Http | Self::Coap | Self::Ws => url.to_owned(),
            Self::Mqtt(_) => format!("{url}/{cse}"),
        }
    }

    /// The URL of one of ours.
    pub fn url(self, running: &RunningCse) -> String {
        let address = match self {
            Self::Http => running.addresses()[0],
            Self::Coap => running.coap_addresses().next().unwrap(),
            Self::Ws => running.ws_addresses()[0],
            Self::Mqtt(port) => ([127, 0, 0, 1], port).into(),
        };
        format!("{}://{address}", self.scheme())
    }

    /// A client of one of ours, as its administrator.
    pub fn admin_of(self, running: &RunningCse, prefix: &str) -> Client {
        let id = running.engine().cse_id();
        let url = self.at(&self.url(running), id.trim_start_matches('/'));
        Client::new(url, "CAdmin", prefix)
    }

    /// Starts one of ours.
    pub async fn cse(
        self,
        kind: CseType,
        (id, name): (&str, &str),
        more: impl FnOnce(&mut gatewright_onem2m::CseConfig),
    ) -> RunningCse {
        let mut cse = gatewright_onem2m::CseConfig::new(kind, id, name);
        cse.admin = Some("CAdmin".to_owned());
        more(&mut cse);
        let mut config = CseServerConfig::new(cse);
        let any = vec!["127.0.0.1:0".parse().unwrap()];
        match self {
            Self::Http => config.listen = any,
            Self::Coap => config.listen_coap = any,
            Self::Ws => config.listen_ws = any,
            Self::Mqtt(port) => config.mqtt = Some(format!("mqtt://127.0.0.1:{port}")),
        }
        start(config).await.unwrap()
    }

    /// Starts one of ours that stands alone.
    pub async fn infrastructure(self) -> RunningCse {
        self.cse(CseType::Infrastructure, ("/id-in", "cse-in"), |_| {}).await
    }
}

/// The broker's program, if it is there.
pub fn broker_program() -> Option<&'static str> {
    // It prints its usage and ends.
    BROKERS.into_iter().find(|program| {
        let mut command = Command::new(program);
        command.arg("-h").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    })
}

/// A broker of its own for one test.
pub struct Broker {
    child: Child,
    pub port: u16,
    folder: PathBuf,
}

impl Broker {
    pub fn start(program: &str) -> Self {
        let port = free_port();
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("broker-{port}"));
        std::fs::create_dir_all(&folder).unwrap();
        let settings = format!("listener {port} 127.0.0.1\nallow_anonymous true\n");
        std::fs::write(folder.join("broker.conf"), settings).unwrap();
        let child = spawn_broker(program, &folder);
        let broker = Self { child, port, folder };
        broker.wait();
        broker
    }

    fn wait(&self) {
        for _ in 0..PATIENCE.as_millis() / 20 {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the broker does not listen");
    }

    pub fn binding(&self) -> Binding {
        Binding::Mqtt(self.port)
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again, at the same port.
    pub fn again(&mut self, program: &str) {
        self.child = spawn_broker(program, &self.folder);
        self.wait();
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn_broker(program: &str, folder: &Path) -> Child {
    let mut command = Command::new(program);
    command.arg("-c").arg(folder.join("broker.conf")).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Asks until the answer is good: over a broker nobody may be there yet to answer.
pub async fn wait_for(client: &Client, to: &str) -> Response {
    let mut last = None;
    for _ in 0..PATIENCE.as_millis() / 250 {
        match tokio::time::timeout(Duration::from_secs(2), client.get(to)).await {
            Ok(Ok(response)) if response.status == Status::Ok => return response,
            other => last = Some(other),
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    panic!("{to}: {last:?}");
}

/// Creates a container `c` that everybody may use.
pub async fn public_container(client: &Client, base: &str) {
    let policy = r#"{"m2m:acp":{"rn":"p","pv":{"acr":[{"acor":["all"],"acop":63}]},
        "pvs":{"acr":[{"acor":["CAdmin"],"acop":63}]}}}"#;
    let made = client.create(base, ResourceType::AccessControlPolicy, policy).await.unwrap();
    assert_eq!(made.status, Status::Created, "{made:?}");
    let container = format!(r#"{{"m2m:cnt":{{"rn":"c","acpi":["{base}/p"]}}}}"#);
    let made = client.create(base, ResourceType::Container, &container).await.unwrap();
    assert_eq!(made.status, Status::Created, "{made:?}");
}

/// Does everything below the container `there` by way of `client`'s CSE; finds too, if that CSE
/// sends a discovery on.
pub async fn use_container(client: &Client, there: &str, finds: bool) {
    let content = r#"{"m2m:cin":{"rn":"i1","con":"96.50","cnf":"text/plain:0"}}"#;
    let made = client.create(there, ResourceType::ContentInstance, content).await.unwrap();
    assert_eq!(made.status, Status::Created, "{made:?}");
    let again = client.create(there, ResourceType::ContentInstance, content).await.unwrap();
    assert_eq!(again.status, Status::Conflict, "{again:?}");
    let latest = client.get(&format!("{there}/la")).await.unwrap();
    assert_eq!(latest.status, Status::Ok, "{latest:?}");
    assert!(latest.content.unwrap().contains("96.50"));
    if finds {
        let found = client.get(&format!("{there}?fu=1&ty=4")).await.unwrap();
        assert_eq!(found.status, Status::Ok, "{found:?}");
        assert!(found.content.unwrap().contains("/c/i1"));
    }
    let updated = client.update(there, r#"{"m2m:cnt":{"lbl":["seen"]}}"#).await.unwrap();
    assert_eq!(updated.status, Status::Updated, "{updated:?}");
    let deleted = client.delete(&format!("{there}/i1")).await.unwrap();
    assert_eq!(deleted.status, Status::Deleted, "{deleted:?}");
    let gone = client.get(&format!("{there}/i1")).await.unwrap();
    assert_eq!(gone.status, Status::NotFound, "{gone:?}");
}

/// An MN of ours registers at an IN of ours; requests are sent on in both directions, large ones
/// too.
pub async fn chain(binding: Binding) {
    let upper = binding.cse(CseType::Infrastructure, ("/id-in", "cse-in"), |cse| {
        cse.admitted_cses = vec!["/id-mn".to_owned()];
    });
    let upper = upper.await;
    let registrar = Registrar {
        cse_id: "/id-in".to_owned(),
        name: "cse-in".to_owned(),
        url: binding.url(&upper),
    };
    let lower = binding.cse(CseType::Middle, ("/id-mn", "cse-mn"), |cse| {
        cse.registrar = Some(registrar);
    });
    let lower = lower.await;
    let (above, below) = (binding.admin_of(&upper, "a"), binding.admin_of(&lower, "b"));
    wait_for(&above, "cse-in/id-mn").await;
    wait_for(&below, "cse-mn/id-in").await;
    assert!(lower.engine().is_registered());
    for (client, near) in [(&above, "cse-in"), (&below, "cse-mn")] {
        public_container(client, near).await;
    }
    for (client, far) in [(&above, "/id-mn/cse-mn/c"), (&below, "/id-in/cse-in/c")] {
        use_container(client, far, true).await;
        let value = long(3_000);
        let content = format!(r#"{{"m2m:cin":{{"rn":"large","con":"{value}"}}}}"#);
        let made = client.create(far, ResourceType::ContentInstance, &content).await.unwrap();
        assert_eq!(made.status, Status::Created, "{made:?}");
        let read = client.get(&format!("{far}/la")).await.unwrap();
        assert!(read.content.unwrap().contains(&value));
    }
    lower.stop().await;
    upper.stop().await;
}
