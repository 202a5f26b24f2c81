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
    query::Query,
    site::{ABOUT_MAX, Asked, Site, read_json},
};
use gatewright_gateway::api;
use hyper::{StatusCode, body::Incoming};
use serde_json::{Map, Value, json};
use std::sync::Arc;

impl Site {
    /// A page of the routes in force.
    pub(crate) async fn routes(
        self: &Arc<Self>,
        query: Option<&str>,
    ) -> Result<WebAnswer, WebRefusal> {
        let (offset, limit) = rows_of(query)?;
        let found = self.ask(move |gateway| {
            let (routes, total) = gateway.planes().routes_from(offset, limit);
            Ok(json!({ "routes": routes, "total": total }))
        });
        Ok(json(StatusCode::OK, &found.await?))
    }

    /// A page of the known neighbours.
    pub(crate) async fn neighbours(
        self: &Arc<Self>,
        query: Option<&str>,
    ) -> Result<WebAnswer, WebRefusal> {
        let (offset, limit) = rows_of(query)?;
        let found = self.ask(move |gateway| {
            let all = gateway.planes().neighbours()?;
            let page: Vec<_> = all.iter().skip(offset).take(limit).collect();
            Ok(json!({ "neighbours": page, "total": all.len() }))
        });
        Ok(json(StatusCode::OK, &found.await?))
    }

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

/// The rows that a query asks for: how many are left out, and how many follow at most.
fn rows_of(query: Option<&str>) -> Result<(usize, usize), WebRefusal> {
    let query = Query::parse(query, &["offset", "limit"])?;
    let offset = query.value("offset", "the number of rows that are left out")?;
    let limit = query.value("limit", "a number of rows")?.unwrap_or(ROWS_MAX);
    if !(1..=ROWS_MAX).contains(&limit) {
        let why = format!("limit is a number of rows, 1 to {ROWS_MAX}");
        return Err(WebRefusal::new(StatusCode::BAD_REQUEST, why));
    }
    Ok((offset.unwrap_or(0), limit))
}

/// Maximum rows of an answer: a gateway may have millions of routes.
const ROWS_MAX: usize = 500;
