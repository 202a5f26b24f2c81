//! `gatewright cse`: what a oneM2M CSE holds, asked over any of its bindings.

pub(super) mod audit;
mod content;
mod subscribe;
mod tree;

use anyhow::Result;
use gatewright_bindings::client::{AskError, Client};
use gatewright_bindings::tasks::block_on;
use gatewright_bindings::tls::Tls;
use gatewright_command::{
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_onem2m::{ResourceType, Response, Serialisation};
use serde::Serialize;
use serde_json::Value;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

pub(super) const JSON: &str = "get, create, update, delete: {status, location, content}; tree: {root: {name, \
     address, type, instances, children}, resources, cut}; subscribe: a notification (m2m:sgn) \
     a line; audit: {last: [{number, at, entry}]}, and with --verify {entries, head, broken_at, \
     intact, allowed, denied, failed, waiting, counted, dropped, lost}, too";

/// Sends requests to a oneM2M CSE, and reads its audit log.
#[derive(Debug, clap::Args)]
pub(crate) struct Cse {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Tree(tree::Tree),
    Get(Get),
    Create(Create),
    Update(Update),
    Delete(Delete),
    Subscribe(subscribe::Subscribe),
    Audit(audit::Audit),
}

impl Cse {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        match self.what {
            What::Tree(verb) => verb.run(face),
            What::Get(verb) => verb.run(face),
            What::Create(verb) => verb.run(face),
            What::Update(verb) => verb.run(face),
            What::Delete(verb) => verb.run(face),
            What::Subscribe(verb) => verb.run(face),
            What::Audit(verb) => verb.run(face),
        }
    }
}

/// The CSE, and the originator of requests.
#[derive(Debug, clap::Args)]
pub(super) struct Whom {
    /// Address of the CSE: http://, https://, coap://, ws:// or wss://HOST:PORT,
    /// mqtt://BROKER:PORT/CSE-ID.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080", value_parser = url)]
    pub(super) url: String,
    /// The originator: an AE-ID, or another identifier that the CSE accepts.
    #[arg(long = "as", value_name = "ORIGINATOR")]
    pub(super) originator: String,
    #[command(flatten)]
    pub(super) how: How,
}

/// How to ask.
#[derive(Debug, clap::Args)]
pub(super) struct How {
    /// Use CBOR instead of JSON.
    #[arg(long)]
    cbor: bool,
    /// Maximum time for an answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    patience: u32,
    /// The client certificate for https, wss and mqtts, in PEM.
    #[arg(long, value_name = "FILE", requires_all = ["key", "authorities"])]
    certificate: Option<PathBuf>,
    /// The key of the client certificate.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// The certificate authorities that are trusted for the CSE.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    authorities: Option<PathBuf>,
}

pub(super) fn url(text: &str) -> Result<String, String> {
    let schemes = ["http://", "https://", "coap://", "ws://", "wss://", "mqtt://", "mqtts://"];
    let is_of_broker = text.starts_with("mqtt");
    let known = schemes.iter().any(|scheme| {
        let rest = text.strip_prefix(scheme).unwrap_or_default();
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        !host.is_empty() && (!is_of_broker || !path.is_empty())
    });
    known.then(|| text.to_owned()).ok_or_else(|| {
        "not http://, https://, coap://, ws:// or wss://HOST:PORT, nor mqtt://BROKER:PORT/CSE-ID".to_owned()
    })
}

impl Whom {
    /// A client; its request identifiers differ from those of every other run.
    pub(super) fn client(&self) -> Result<Client> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let prefix = format!("gw{:x}-{:x}-", since.as_nanos(), std::process::id());
        let mut client = Client::new(self.url.as_str(), self.originator.as_str(), prefix);
        if self.how.cbor {
            client = client.writing(Serialisation::Cbor);
        }
        if let (Some(certificate), Some(key), Some(authorities)) =
            (&self.how.certificate, &self.how.key, &self.how.authorities)
        {
            let tls = Tls {
                certificate: certificate.clone(),
                key: key.clone(),
                authorities: authorities.clone(),
                crl: None,
                ocsp_response: None,
                ocsp_required: false,
            };
            let set = client.with_tls(&tls);
            client = set.map_err(|error| Failure::new(Exit::Configuration, error.to_string()))?;
        } else if ["https:", "wss:", "mqtts:"].iter().any(|it| self.url.starts_with(it)) {
            let why = format!("{} needs --certificate, --key and --authorities", self.url);
            return Err(Failure::new(Exit::Usage, why).into());
        }
        Ok(client)
    }

    /// Has something asked, within the time given; what was refused is a failure.
    pub(super) async fn ask(
        &self,
        asked: impl Future<Output = Result<Response, AskError>>,
    ) -> Result<Response, Failure> {
        let patience = Duration::from_secs(self.how.patience.into());
        let away = |why: String| Failure::new(Exit::Unavailable, format!("{}: {why}", self.url));
        let answer = tokio::time::timeout(patience, asked).await;
        let answer = answer.map_err(|_| away(format!("no answer in {} s", self.how.patience)))?;
        let answer = answer.map_err(|error| match error {
            AskError::Parameter(refusal) => Failure::new(Exit::Usage, refusal.debug),
            other => away(other.to_string()),
        })?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        Err(Failure::new(Exit::Negative, refused(&answer)))
    }
}

/// A refusal in words.
fn refused(answer: &Response) -> String {
    let mut text = format!("{} {:?}", answer.status.number(), answer.status);
    let words = parsed(answer);
    if let Some(words) = words.get("m2m:dbg").and_then(Value::as_str) {
        text.push_str(": ");
        text.push_str(words);
    }
    text
}

/// The content of an answer; null if there is none.
pub(super) fn parsed(answer: &Response) -> Value {
    let content = answer.content.as_deref().unwrap_or("null");
    serde_json::from_str(content).unwrap_or_else(|_| Value::String(content.to_owned()))
}

/// A runtime for one command.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?)
}

#[derive(Debug, Serialize)]
struct CseResponse {
    status: u16,
    location: Option<String>,
    content: Value,
}

impl CseResponse {
    fn of(response: &Response) -> Self {
        Self {
            status: response.status.number(),
            location: response.location.as_deref().map(str::to_owned),
            content: parsed(response),
        }
    }

    fn show(&self, face: Face) -> Result<Exit> {
        let pretty = serde_json::to_string_pretty(&self.content)?;
        face.answer(self, || if self.content.is_null() { String::new() } else { pretty })?;
        Ok(Exit::Success)
    }
}

/// Retrieves a resource, or discovers below it, and prints its content.
///
/// Parameters of TS-0009 follow `?`, escaped as in a URL: `cse-in/c?rcn=4`,
/// `cse-in?fu=1&ty=4&lbl=ward`. Discovery (`fu=1`) by labels: `lbq=color IN (red, green)`; by JSON
/// content: `cfs=1&cfq=$[?@.spo2 < 90]`; by location, here within an area:
/// `gmty=3&geom=[[0,0],[1,0],[1,1],[0,0]]&gsf=2`.
#[derive(Debug, clap::Args)]
struct Get {
    /// Its address: `cse-in/app/c/la`, `/id-mn/cse-mn`; `-` is the CSEBase.
    address: String,
    #[command(flatten)]
    whom: Whom,
}

impl Get {
    fn run(self, face: Face) -> Result<Exit> {
        let client = self.whom.client()?;
        let answer = block_on(&runtime()?, self.whom.ask(client.get(&self.address)))?;
        CseResponse::of(&answer).show(face)
    }
}

/// Creates a resource and prints its representation.
///
/// `gatewright cse create - ae api=Napp rn=app rr:=false srv:='["3"]' --as CAdmin`; `gatewright cse
/// create cse-in/app/c cin con=96.50 --as CAdmin`.
#[derive(Debug, clap::Args)]
struct Create {
    /// The address of its parent.
    address: String,
    /// Its type: `ae`, `cnt`, `cin`, `acp`, `grp`, `sub`, … or the number.
    #[arg(value_name = "TYPE", value_parser = kind)]
    kind: ResourceType,
    /// Its attributes: NAME=TEXT or NAME:=JSON. For a type with its own tags, the whole content as
    /// JSON; `-` reads it from standard input.
    #[arg(value_name = "ATTRIBUTE")]
    attributes: Vec<String>,
    #[command(flatten)]
    whom: Whom,
}

impl Create {
    fn run(self, face: Face) -> Result<Exit> {
        let content = content::content(self.kind, &self.attributes)
            .map_err(|why| Failure::new(Exit::Usage, why))?;
        let client = self.whom.client()?;
        let asked = client.create(&self.address, self.kind, &content);
        let answer = block_on(&runtime()?, self.whom.ask(asked))
            .map_err(|failure| content::explained(failure, &self.attributes))?;
        CseResponse::of(&answer).show(face)
    }
}

/// Changes attributes of a resource and prints it as it became.
///
/// `gatewright cse update cse-in/app/c cnt mni:=100 --as CAdmin`; an attribute that is null is
/// removed: `lbl:=null`.
#[derive(Debug, clap::Args)]
struct Update {
    /// Its address.
    address: String,
    /// Its type: `ae`, `cnt`, `acp`, `grp`, `sub`, … or the number.
    #[arg(value_name = "TYPE", value_parser = kind)]
    kind: ResourceType,
    /// The attributes: NAME=TEXT or NAME:=JSON. Of a type that brings its own tag the whole content
    /// as JSON, and `-` reads that from standard input.
    #[arg(value_name = "ATTRIBUTE", required = true)]
    attributes: Vec<String>,
    #[command(flatten)]
    whom: Whom,
}

impl Update {
    fn run(self, face: Face) -> Result<Exit> {
        let content = content::content(self.kind, &self.attributes)
            .map_err(|why| Failure::new(Exit::Usage, why))?;
        let client = self.whom.client()?;
        let asked = self.whom.ask(client.update(&self.address, &content));
        let answer = runtime()?
            .block_on(asked)
            .map_err(|failure| content::explained(failure, &self.attributes))?;
        CseResponse::of(&answer).show(face)
    }
}

/// Deletes a resource with everything below it.
///
/// `gatewright cse delete cse-in/app/c --as CAdmin`; `cse-in/app/c/la` is the latest instance.
#[derive(Debug, clap::Args)]
struct Delete {
    /// Its address.
    address: String,
    #[command(flatten)]
    whom: Whom,
}

impl Delete {
    fn run(self, face: Face) -> Result<Exit> {
        let client = self.whom.client()?;
        let answer = runtime()?.block_on(self.whom.ask(client.delete(&self.address)))?;
        CseResponse::of(&answer).show(face)
    }
}

fn kind(text: &str) -> Result<ResourceType, String> {
    content::kind(text).ok_or_else(|| {
        let known = content::kinds().map(|(name, _)| name).collect::<Vec<_>>();
        format!("no type of resource that is known here: {}, or a number", known.join(", "))
    })
}
