//! A gateway that was started with a file, as a user's is.

use super::common::{ASSEMBLY, DESCRIPTION, Served, split};
use gatewright_bindings::Engine;
use gatewright_config::parse;
use gatewright_diagnostic::SourceId;
use gatewright_gateway::{DescriptionCause, Gateway, LogOptions, StartOptions};
use gatewright_onem2m::{Operation, Request, ResourceType};
use gatewright_store::{StoredEntry, last_entries};
use gatewright_web::{
    WebPart,
    tokens::{AccessRole, TokenFile},
};
use serde_json::Value;
use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    sync::atomic::{AtomicU32, Ordering},
};

static FOLDERS: AtomicU32 = AtomicU32::new(0);

/// A report that would run a script, load an image and send a form.
pub const REPORT: &str = "<!doctype html><title>A &lt;first&gt; run</title><script>alert(1)</script>\
                      <img src=http://example.org/x><form action=/api/v1/reload method=post></form>";

/// A gateway that was started with a file, and a token of each role.
pub struct Started {
    pub served: Served,
    pub folder: PathBuf,
    pub file: PathBuf,
    pub tokens: [String; 3],
}

impl Started {
    pub fn new() -> Self {
        Self::with("", Path::to_owned)
    }

    /// One whose service entity has these further keys, started with what `place` says of its file.
    pub fn with(keys: &str, place: fn(&Path) -> PathBuf) -> Self {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("gw-web-api-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("gateway.toml");
        let port = free_port();
        let text = format!(
            "{DESCRIPTION}{keys}[web]\nlisten = \"127.0.0.1:{port}\"\ntokens = \"tokens\"\n\
             audit = \"audit.db\"\nreports = \"reports\"\n"
        );
        fs::write(&file, &text).unwrap();
        fs::create_dir(folder.join("reports")).unwrap();
        fs::write(folder.join("reports/first.html"), REPORT).unwrap();
        let tokens = TokenFile::new(folder.join("tokens"));
        let tokens = AccessRole::ALL.map(|role| tokens.add(role, role.name()).unwrap());
        let config = parse(SourceId::default(), &text).config.unwrap().with_files_in(&folder, None);
        let web = WebPart::default();
        let socket = folder.join("gateway.sock");
        let options = StartOptions {
            seed: 1,
            file: Some(place(&file).to_string_lossy().into_owned()),
            last_good: Some(folder.join("last-good.toml")),
            fallback: None,
            socket: Some(socket.clone()),
            default_socket: socket,
            say: Arc::new(|_| {}),
            log: LogOptions {
                format: Some(gatewright_config::LogFormat::None),
                ..LogOptions::default()
            },
            upgrade: None,
            data_plane: None,
            parts: vec![Arc::new(web.clone())],
            assembly: ASSEMBLY,
        };
        let gateway = Gateway::start(&config, options).unwrap();
        web.serve(&gateway, &config).unwrap();
        gateway.keep_description(&text, DescriptionCause::Start);
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        Self { served: Served { gateway, web, address }, folder, file, tokens }
    }

    pub fn get(&self, role: AccessRole, path: &str) -> (u16, String, Value) {
        let (status, head, body) = self.served.get(path, &self.bearer(role));
        let body = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{body}: {error}"));
        (status, head, body)
    }

    pub fn bearer(&self, role: AccessRole) -> String {
        format!("Authorization: Bearer {}\r\n", self.tokens[role as usize])
    }

    pub fn post(
        &self,
        role: AccessRole,
        path: &str,
        fields: &str,
        body: &str,
    ) -> (u16, String, String) {
        let (length, token) = (body.len(), self.bearer(role));
        split(&self.served.exchange(&format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Length: {length}\r\nContent-Type: application/json\r\n{token}{fields}\r\n{body}"
        )))
    }

    /// Has the service entity create a resource.
    pub fn create(&self, to: &str, kind: ResourceType, from: &str, content: &Value) {
        let engine = self.served.gateway.service_entity().unwrap();
        let engine = engine.downcast::<Engine>().unwrap();
        let from = if from.is_empty() { engine.cse_id() } else { from.to_owned() };
        let mut request = Request::new(Operation::Create, to, from, "t");
        request.resource_type = Some(kind);
        request.content = Some(content.to_string().into());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let answer = runtime.block_on(engine.ask(request)).unwrap();
        assert!(answer.status.is_success(), "{to}: {:?} {:?}", answer.status, answer.content);
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.folder);
    }
}

pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The entries of the audit log: operation, who, role, how shown, about what, and the end.
pub fn audited(started: &Started) -> Vec<[String; 6]> {
    let entries = last_entries(&started.folder.join("audit.db"), 100).unwrap();
    let member = |entry: &StoredEntry, name: &str| {
        let value = &entry.fields.as_ref().unwrap()[name];
        value.as_str().map_or_else(|| value.to_string(), str::to_owned)
    };
    let members = ["op", "fr", "as", "by", "of", "end"];
    entries.iter().map(|entry| members.map(|name| member(entry, name))).collect()
}
