//! oneM2M client: sends requests to a CSE over any binding, for command lines and tests.

use crate::http::message::decode;
use crate::mqtt::MqttIdentity;
use crate::outgoing::Sender;
use crate::tls::{Tls, TlsError};
use core::hash::{BuildHasher, Hasher};
use core::sync::atomic::{AtomicU64, Ordering};
use gatewright_onem2m::{
    Operation, Refusal, Request, ResourceType, Response, Serialisation, Status, Unreachable,
};
use serde_json::{Value, json};
use std::{hash::RandomState, sync::Arc};

/// Why a CSE gave no response.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The query has an unknown or invalid parameter.
    #[error("{0}")]
    Parameter(#[from] Refusal),
    /// The CSE cannot be reached.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// MQTT identity of a client: it takes no requests. Its originator may have another connection to
/// the broker, so each client has its own client name.
fn identity(originator: &str, prefix: &str) -> MqttIdentity {
    let nonce = RandomState::new().build_hasher().finish();
    let client = format!("A::{originator}-{prefix}{nonce:x}");
    MqttIdentity { id: originator.to_owned(), provider: String::new(), client, serves: false }
}

/// Client of one CSE on behalf of one originator.
#[derive(Debug)]
pub struct Client {
    url: String,
    originator: String,
    sender: Sender,
    prefix: String,
    asked: AtomicU64,
}

impl Client {
    /// Creates a client of the CSE at `url` (`http://host:port`, `coap://host:port`,
    /// `mqtt://broker:port/cse-id`). `prefix` begins its request identifiers and must differ from
    /// that of the same originator's other clients.
    pub fn new(
        url: impl Into<String>,
        originator: impl Into<String>,
        prefix: impl Into<String>,
    ) -> Self {
        let (originator, prefix) = (originator.into(), prefix.into());
        let identity = identity(&originator, &prefix);
        Self {
            url: url.into(),
            sender: Sender::new(None).with_identity(identity),
            originator,
            prefix,
            asked: AtomicU64::new(0),
        }
    }

    /// Enables TLS with the certificate of `tls`.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if the files cannot be used.
    pub fn with_tls(mut self, tls: &Tls) -> Result<Self, TlsError> {
        let identity = identity(&self.originator, &self.prefix);
        self.sender = Sender::new(Some(tls.client()?)).with_identity(identity);
        Ok(self)
    }

    /// Sets the serialisation of requests and of the responses asked for.
    #[must_use]
    pub fn writing(mut self, serialisation: Serialisation) -> Self {
        self.sender = self.sender.writing(serialisation);
        self
    }

    /// Builds a request for `to`, which may contain a query (`fu=1&ty=4`). Characters with a
    /// meaning in a query are escaped as in a URL (`&` as `%26`).
    ///
    /// # Errors
    ///
    /// [`AskError::Parameter`] if the query has an unknown or invalid parameter.
    pub fn request(&self, operation: Operation, to: &str) -> Result<Request, AskError> {
        let (to, query) = to.split_once('?').unwrap_or((to, ""));
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}{number}", self.prefix);
        let mut request = Request::new(operation, to, self.originator.as_str(), id);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            request.set(&decode(name)?, &decode(value)?)?;
        }
        Ok(request)
    }

    /// Sends a request and waits for the response.
    ///
    /// # Errors
    ///
    /// [`AskError::Unreachable`]; a refusal is an answer.
    pub async fn ask(&self, request: &Request) -> Result<Response, AskError> {
        Ok(self.sender.send(std::slice::from_ref(&self.url), request).await?)
    }

    /// Retrieves a resource: `cse get`; with `fu=1` in the query, discovers.
    ///
    /// # Errors
    ///
    /// [`AskError`].
    pub async fn get(&self, to: &str) -> Result<Response, AskError> {
        self.ask(&self.request(Operation::Retrieve, to)?).await
    }

    /// Retrieves a resource with everything below it: `cse tree`.
    ///
    /// # Errors
    ///
    /// [`AskError`].
    pub async fn tree(&self, to: &str) -> Result<Response, AskError> {
        let mut request = self.request(Operation::Retrieve, to)?;
        request.set("rcn", "4")?;
        self.ask(&request).await
    }

    /// Creates a resource from JSON text with its tag: `cse create`. The response says its address if the
    /// binding carries that, or the content tells it.
    ///
    /// # Errors
    ///
    /// [`AskError`].
    pub async fn create(
        &self,
        to: &str,
        kind: ResourceType,
        content: &str,
    ) -> Result<Response, AskError> {
        let request = self.request(Operation::Create, to)?.creating(kind, content);
        let mut response = self.ask(&request).await?;
        if response.status == Status::Created && response.location.is_none() {
            let content = response.content.as_deref();
            response.location = content.and_then(|content| created_at(&request.to, content));
        }
        Ok(response)
    }

    /// Subscribes to a resource under this name: `cse subscribe`. The `events` (1 update, 2
    /// deletion, 3 creation and 4 deletion of a child) are notified to `target`.
    ///
    /// # Errors
    ///
    /// [`AskError`].
    pub async fn subscribe(
        &self,
        to: &str,
        name: &str,
        target: &str,
        events: &[u8],
    ) -> Result<Response, AskError> {
        let content = json!({
            "m2m:sub": { "rn": name, "nu": [target], "nct": 1, "enc": { "net": events } }
        });
        self.create(to, ResourceType::Subscription, &content.to_string()).await
    }

    /// Updates a resource.
    ///
    /// # Errors
    ///
    /// [`AskError`].
    pub async fn update(&self, to: &str, content: &str) -> Result<Response, AskError> {
        let request = self.request(Operation::Update, to)?.with_content(content);
        self.ask(&request).await
    }

    /// Deletes a resource with everything below it.
    ///
    /// # Errors
    ///
    /// [`AskError`].
    pub async fn delete(&self, to: &str) -> Result<Response, AskError> {
        self.ask(&self.request(Operation::Delete, to)?).await
    }
}

/// The address of a resource that was created below `parent`, by the content of the response: response
/// primitives have no parameter for it (TS-0004 §7.2.2), which bindings other than HTTP and CoAP carry as
/// they are.
fn created_at(parent: &str, content: &str) -> Option<Arc<str>> {
    let content: Value = serde_json::from_str(content).ok()?;
    let (tag, created) = content.as_object()?.iter().next()?;
    let text = |name| created.get(name).and_then(Value::as_str);
    let address = match tag.as_str() {
        "m2m:uri" => created.as_str()?.to_owned(),
        "m2m:rce" => text("uri")?.to_owned(),
        _ => {
            // A name is added to an address of names, and not to an identifier.
            let last = parent.rsplit('/').next();
            let is_identifier = last == Some("-") || last == text("pi");
            match (text("rn").filter(|_| !is_identifier), text("ri")?) {
                (Some(name), _) => format!("{parent}/{name}"),
                (None, id) => {
                    match parent.strip_prefix('/').and_then(|rest| rest.split('/').next()) {
                        Some(cse) => format!("/{cse}/{id}"),
                        None => id.to_owned(),
                    }
                }
            }
        }
    };
    Some(address.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_of_a_creation_tells_the_address() {
        let made = r#"{"m2m:cnt":{"rn":"c","ri":"cnt-7","pi":"cb-1"}}"#;
        for (parent, content, address) in [
            ("cse-in", made, Some("cse-in/c")),
            ("cse-in/app", made, Some("cse-in/app/c")),
            ("/id-in/cse-in", made, Some("/id-in/cse-in/c")),
            ("-", made, Some("cnt-7")),
            ("cb-1", made, Some("cnt-7")),
            ("/id-in/-", made, Some("/id-in/cnt-7")),
            ("cse-in", r#"{"m2m:uri":"cse-in/c"}"#, Some("cse-in/c")),
            ("-", r#"{"m2m:rce":{"uri":"cse-in/c","m2m:cnt":{}}}"#, Some("cse-in/c")),
            ("cse-in", r#"{"m2m:cnt":{"et":"x"}}"#, None),
            ("cse-in", "{}", None),
            ("cse-in", "no JSON", None),
        ] {
            assert_eq!(created_at(parent, content).as_deref(), address, "{parent} {content}");
        }
    }

    #[test]
    fn what_is_escaped_in_an_address_is_a_part_of_its_value() {
        let client = Client::new("http://127.0.0.1:1", "Ca", "t");
        let to = "cse-in?fu=1&cfs=1&cfq=$[?@.a == 1 %26%26 @.b]&lbq=a+b";
        let request = client.request(Operation::Retrieve, to).unwrap();
        let queries = request.query();
        assert!(queries.contains(&("cfq", "$[?@.a == 1 && @.b]".to_owned())), "{queries:?}");
        assert!(queries.contains(&("lbq", "a+b".to_owned())), "{queries:?}");
        for wrong in ["cse-in?lbq=%", "cse-in?lbq=a IS b"] {
            assert!(client.request(Operation::Retrieve, wrong).is_err(), "{wrong}");
        }
    }
}
