//! A gateway with a web interface at a free port, and a client that writes its requests by hand.

use gatewright_bindings::services;
use gatewright_config::{Config, Listen, Located, Web, parse};
use gatewright_diagnostic::SourceId;
use gatewright_gateway::{Assembly, Gateway};
use gatewright_web::WebPart;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

/// What these gateways have beside their links.
pub const ASSEMBLY: Assembly = Assembly {
    services: Some(services::component),
    programs: Some(gatewright_programs::component),
    web: true,
};

/// A gateway that needs no privilege.
pub const DESCRIPTION: &str = "[cse]\nbase = \"gw\"\nid = \"/gw\"\n";

/// How long anything may take to come about.
pub const DEADLINE: Duration = Duration::from_mins(1);

pub struct Served {
    pub gateway: Arc<Gateway>,
    pub web: WebPart,
    pub address: SocketAddr,
}

/// The description, with a web interface at a free port of loopback.
pub fn config() -> Config {
    let parsed = parse(SourceId::default(), &format!("{DESCRIPTION}[web]\n"));
    let mut config = parsed.config.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics));
    config.web = Some(at(Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))));
    config
}

pub fn at(listen: Listen) -> Web {
    let parsed = parse(SourceId::default(), "[cse]\nbase = \"a\"\nid = \"/a\"\n[web]\n");
    let span = parsed.config.unwrap().web.unwrap().listen.span;
    Web {
        listen: Located { value: listen, span },
        tokens: None,
        audit: None,
        reports: None,
        tls: None,
    }
}

pub fn serve() -> Served {
    serve_as(&config())
}

pub fn serve_as(config: &Config) -> Served {
    let web = WebPart::default();
    let gateway = Gateway::open(config, 1, ASSEMBLY).unwrap().with_part(Arc::new(web.clone()));
    let gateway = Arc::new(gateway);
    let url = web.serve(&gateway, config).unwrap().unwrap();
    let address = url.split_once("://").unwrap().1.parse().unwrap();
    Served { gateway, web, address }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.web.end();
        let _status = self.gateway.stop();
    }
}

impl Served {
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    /// Sends `request` and reads until the server closes.
    pub fn exchange(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut octets = Vec::new();
        // A server that refuses early may reset what it has not read.
        let _read = stream.read_to_end(&mut octets);
        String::from_utf8(octets).unwrap()
    }

    /// The answer to a GET of this path with these fields: status, head, body.
    pub fn get(&self, path: &str, fields: &str) -> (u16, String, String) {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n");
        split(&self.exchange(&request))
    }

    /// A counter of the web interface.
    pub fn counter(&self, name: &str) -> u64 {
        let status = serde_json::to_value(self.gateway.status().unwrap()).unwrap();
        let parts = status["parts"].as_array().unwrap();
        let web = parts.iter().find(|part| part["name"] == "web").unwrap();
        let counters = web["counters"].as_array().unwrap();
        let found = counters.iter().find(|counter| counter[0] == name);
        found.unwrap_or_else(|| panic!("no counter {name}"))[1].as_u64().unwrap()
    }
}

/// The status, the head and the body of an answer.
pub fn split(answer: &str) -> (u16, String, String) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), body.to_owned())
}

/// A viewer of the stream that reads its chunked body (RFC 9112 §7.1) by line.
pub struct StreamReader(BufReader<TcpStream>);

/// An event of the stream: id, type, data.
pub type StreamEvent = (String, String, serde_json::Value);

impl StreamReader {
    pub fn begin(served: &Served, fields: &str) -> (u16, Self) {
        let mut stream = served.connect();
        let request = format!("GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut status = String::new();
        reader.read_line(&mut status).unwrap();
        let code = status.split(' ').nth(1).unwrap_or_else(|| panic!("{status:?}"));
        let code = code.parse().unwrap();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap() <= 2 {
                return (code, Self(reader));
            }
        }
    }

    /// The next event; `None` at the end.
    pub fn next(&mut self) -> Option<StreamEvent> {
        let (mut id, mut kind, mut data) = (String::new(), String::new(), None);
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap() == 0 || line == "0\r\n" {
                return None;
            }
            let line = line.trim_end_matches('\n');
            match line.split_once(": ") {
                Some(("id", value)) => value.clone_into(&mut id),
                Some(("event", value)) => value.clone_into(&mut kind),
                Some(("data", value)) => data = Some(serde_json::from_str(value).unwrap()),
                _ => {}
            }
            if line.is_empty()
                && let Some(data) = data.take()
            {
                return Some((id, kind, data));
            }
        }
    }

    /// The next event of this type.
    pub fn next_of(&mut self, kind: &str) -> StreamEvent {
        loop {
            let event = self.next().unwrap_or_else(|| panic!("the stream ended without {kind}"));
            if event.1 == kind {
                return event;
            }
        }
    }
}
