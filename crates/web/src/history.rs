//! The descriptions that the gateway has taken, and the return to one of them.

use crate::{
    answer::{JSON, PlainAnswer, WebAnswer, WebRefusal, json, tag_of},
    query::Query,
    site::{Asked, Site, read_json},
};
use gatewright_gateway::{
    Gateway,
    api::{self, ControlRequest, Refused},
};
use hyper::{
    StatusCode,
    body::Incoming,
    header::{HeaderMap, HeaderValue},
};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

/// The body of a request to return to a kept description.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RollBackRequest {
    number: u64,
}

/// The kept descriptions as JSON, with their entity tag, which is also a member.
fn history(gateway: &Gateway) -> Result<(HeaderValue, String), Refused> {
    let mut document = api::answer(ControlRequest::DescriptionHistory, gateway)?;
    let etag = tag_of(document.to_string().as_bytes());
    if let Some(document) = document.as_object_mut() {
        document.insert("etag".to_owned(), json!(etag.to_str().unwrap_or_default()));
    }
    Ok((etag, document.to_string()))
}

/// The answer to a request that a gateway refuses.
fn conflict(Refused { error, refused, restart, .. }: Refused) -> WebAnswer {
    let document = json!({ "error": error, "refused": refused, "restart": restart });
    json(StatusCode::CONFLICT, &document)
}

impl Site {
    /// The descriptions that were taken.
    pub(crate) async fn description_history(
        self: &Arc<Self>,
        headers: &HeaderMap,
    ) -> Result<WebAnswer, WebRefusal> {
        // That none are kept is an answer, too.
        let found = self.ask(|gateway| Ok(history(gateway))).await?;
        let missing = |refused: Refused| WebRefusal::not_found(refused.error);
        let (etag, text) = found.map_err(missing)?;
        Ok(PlainAnswer::new(JSON, text).cache("no-cache").etag(etag).finish(headers))
    }

    /// What a return to a kept description would change.
    pub(crate) async fn kept_differences(
        self: &Arc<Self>,
        query: Option<&str>,
    ) -> Result<WebAnswer, WebRefusal> {
        let query = Query::parse(query, &["number"])?;
        let named: Option<u64> = query.value("number", "the number of a kept description")?;
        let found = self.ask(move |gateway| {
            let newest = || gateway.description_history().ok()?.last().map(|kept| kept.number);
            let number = named.or_else(newest).unwrap_or_default();
            Ok(api::answer(ControlRequest::KeptDifferences { number }, gateway))
        });
        let found = found.await?;
        Ok(found.map_or_else(conflict, |document| json(StatusCode::OK, &document)))
    }

    /// Returns to a kept description, if the history is the one that the caller has seen.
    pub(crate) async fn roll_back(
        self: &Arc<Self>,
        asked: &Asked<'_>,
        body: Incoming,
    ) -> Result<WebAnswer, WebRefusal> {
        let seen = asked.versions_seen("/api/v1/config/history")?;
        let RollBackRequest { number } = read_json(&asked.head.headers, body).await?;
        asked.concerns(&format!("description {number}"));
        self.begin_change(asked).await?;
        let done = self.ask(move |gateway| {
            if history(gateway).is_ok_and(|(etag, _)| !seen.admit(&etag)) {
                return Ok(None);
            }
            Ok(Some(api::answer(ControlRequest::RollBack { number }, gateway)))
        });
        let Some(done) = done.await? else {
            let why =
                "another description was taken meanwhile: look at /api/v1/config/history again";
            return Err(WebRefusal::new(StatusCode::PRECONDITION_FAILED, why));
        };
        let outcome = if done.is_ok() { "is done" } else { "is refused" };
        let text = format!("a return to description {number} by {} {outcome}", asked.caller.name);
        self.log_change(asked, "web-rollback", text);
        Ok(done.map_or_else(conflict, |document| json(StatusCode::OK, &document)))
    }
}
