//! Changes to a running gateway, as the control socket takes them: handlers, links, routes,
//! neighbours, the level of the log.
//!
//! A body is the control socket's own request without `do`: it is read by the same type
//! ([`ControlRequest`](api::ControlRequest)), and refused with the same words. Each change is an
//! event, and two entries of the audit log. Changes last until the gateway ends, or until a reload
//! undoes them.

use crate::{
    answer::{WebAnswer, WebRefusal, json},
    change_requests::ChangeRequest,
    site::{ABOUT_MAX, Asked, Site, read_json},
};
use gatewright_gateway::api;
use hyper::{StatusCode, body::Incoming};
use serde_json::{Map, Value, json};
use std::sync::Arc;

impl Site {
    /// Makes a change as the control socket does.
    pub(crate) async fn change(
        self: &Arc<Self>,
        change: &ChangeRequest,
        asked: &Asked<'_>,
        body: Incoming,
    ) -> Result<WebAnswer, WebRefusal> {
        let members: Map<String, Value> = read_json(&asked.head.headers, body).await?;
        let about = Value::from(members.clone()).to_string();
        let request = change.read(members)?;
        asked.concerns(&about);
        self.begin_change(asked).await?;
        let done = self.ask(move |gateway| Ok(api::answer(request, gateway))).await?;
        let about: String = about.chars().take(ABOUT_MAX).collect();
        let (what, by) = (change.name, &asked.caller.name);
        let (outcome, answer) = match done {
            Ok(document) => ("is made".to_owned(), json(StatusCode::OK, &document)),
            Err(refused) => {
                let document = json!({ "error": refused.error });
                let outcome = format!("is refused: {}", refused.error);
                (outcome, json(StatusCode::BAD_REQUEST, &document))
            }
        };
        self.log_change(asked, "web-change", format!("{what} {about} by {by} {outcome}"));
        Ok(answer)
    }
}
