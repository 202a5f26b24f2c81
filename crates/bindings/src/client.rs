//! The other side: asks a CSE over any binding, for command lines and tests.

use crate::http::message::decode;
use crate::mqtt::Speaker;
use crate::outgoing::Sender;
use crate::tls::{Tls, TlsError};
use core::hash::{BuildHasher, Hasher};
use core::sync::atomic::{AtomicU64, Ordering};
use gatewright_onem2m::{Kind, Operation, Refusal, Request, Response, Serialisation, Unreachable};
use serde_json::json;
use std::hash::RandomState;

/// Why a CSE gave no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// A parameter is none.
    #[error("{0}")]
    Parameter(#[from] Refusal),
    /// The CSE is away.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// How a client is known at brokers: it takes no requests, and as its originator may have another
/// connection there, its own has a name of its own.
fn speaker(originator: &str, prefix: &str) -> Speaker {
    let nonce = RandomState::new().build_hasher().finish();
    let client = format!("A::{originator}-{prefix}{nonce:x}");
    Speaker { id: originator.to_owned(), provider: String::new(), client, serves: false }
}

/// Asks one CSE on behalf of one originator.
#[derive(Debug)]
pub struct Client {
    url: String,
    originator: String,
    sender: Sender,
    prefix: String,
    asked: AtomicU64,
}

impl Client {
    /// A client of the CSE at `url` (`http://host:port`, `coap://host:port`,
    /// `mqtt://broker:port/cse-id`); `prefix` begins its request
    /// identifiers, which are to differ from those of the same originator's other clients.
    pub fn new(
        url: impl Into<String>,
        originator: impl Into<String>,
        prefix: impl Into<String>,
    ) -> Self {
        let (originator, prefix) = (originator.into(), prefix.into());
        let speaker = speaker(&originator, &prefix);
        Self {
            url: url.into(),
            sender: Sender::new(None).speaking(speaker),
            originator,
            prefix,
            asked: AtomicU64::new(0),
        }
    }

    /// This client over TLS, showing the certificate of `tls`.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if the files cannot be used.
    pub fn with_tls(mut self, tls: &Tls) -> Result<Self, TlsError> {
        let speaker = speaker(&self.originator, &self.prefix);
        self.sender = Sender::new(Some(tls.client()?)).speaking(speaker);
        Ok(self)
    }

    /// This client, writing what it sends so, and asking for answers in the same.
    #[must_use]
    pub fn writing(mut self, serialisation: Serialisation) -> Self {
        self.sender = self.sender.writing(serialisation);
        self
    }

    /// A request for `to`, of which the query (`fu=1&ty=4`) may be part; what has a meaning in a
    /// query is escaped there as in a URL (`&` as `%26`).
    ///
    /// # Errors
    ///
    /// [`AskError::Parameter`] if the query has one that is none.
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

    /// Asks.
    ///
    /// # Errors
    ///
    /// [`AskError::Unreachable`]; a refusal is an answer.
    pub async fn ask(&self, request: &Request) -> Result<Response, AskError> {
        Ok(self.sender.send(std::slice::from_ref(&self.url), request).await?)
    }

    /// Retrieves a resource: `cse get`; with `fu=1` in the query it discovers.
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

    /// Creates a resource from JSON text with its tag: `cse create`.
    ///
    /// # Errors
    ///
    /// [`AskError`].
    pub async fn create(&self, to: &str, kind: Kind, content: &str) -> Result<Response, AskError> {
        let request = self.request(Operation::Create, to)?.creating(kind, content);
        self.ask(&request).await
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
        self.create(to, Kind::Subscription, &content.to_string()).await
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

#[cfg(test)]
mod tests {
    use super::*;

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
