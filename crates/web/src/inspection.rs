//! What the API answers about the inside of the gateway: its graph, mesh, routes, neighbours, devices and
//! resources.

use crate::{
    answer::{JSON, PlainAnswer, WebAnswer, WebRefusal, json, tag_of},
    audit::AuditedChange,
    query::Query,
    resources::{ResourceReader, time_of},
    routes::Endpoint,
    site::{Asked, Site},
    tokens::AccessRole,
};
use gatewright_bindings::Engine;
use gatewright_gateway::api::{self, ControlRequest};
use gatewright_onem2m::Timestamp;
use gatewright_part::AlarmStatus;
use gatewright_planes::WayStatus;
use hyper::{StatusCode, header::HeaderMap};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// Maximum rows of an answer: a gateway may have millions of routes.
const ROWS_MAX: usize = 500;

/// How long the times of layers are measured after the last look at the graph.
const MEASURED_SECONDS: f64 = 3.0;

/// Maximum characters of a resource's address in an event.
const READ_PATH_MAX: usize = 256;

impl Site {
    /// The layers and edges of the workers' graph with their counters, and with the times of packets,
    /// which are measured while somebody asks. An edge names its ends by the places of the layers in
    /// the list.
    pub(crate) async fn graph(self: &Arc<Self>) -> Result<WebAnswer, WebRefusal> {
        let document = self.ask(|gateway| {
            let status = gateway.measured_status(MEASURED_SECONDS)?;
            let planes = &status.gateway;
            let edge = |way: &WayStatus| {
                let to = if way.to_device { json!("device") } else { json!(way.to) };
                json!({
                    "from": way.from, "to": to, "at": way.at, "side": way.side, "link": way.link,
                    "packets": way.packets, "measured": way.measured,
                })
            };
            let edges: Vec<Value> = planes.ways.iter().map(edge).collect();
            Ok(json!({
                "layers": planes.layers, "edges": edges, "unclaimed": planes.unclaimed,
                "workers": planes.workers, "attached": status.attached, "sojourn": planes.sojourn,
                "measured_runs": planes.measured_runs,
            }))
        });
        Ok(json(StatusCode::OK, &document.await?))
    }

    /// The state of the mesh's node, with every node that it knows.
    pub(crate) async fn mesh(
        self: &Arc<Self>,
        headers: &HeaderMap,
    ) -> Result<WebAnswer, WebRefusal> {
        let mut state = self.mesh_state().await?;
        let nodes = nodes_of(&state);
        if let Some(state) = state.as_object_mut() {
            state.insert("nodes".to_owned(), nodes);
        }
        let octets = state.to_string();
        let etag = tag_of(octets.as_bytes());
        Ok(PlainAnswer::new(JSON, octets).cache("no-cache").etag(etag).finish(headers))
    }

    /// The state of the mesh's node, as the control socket has it.
    ///
    /// # Errors
    ///
    /// 404 without a mesh.
    pub(crate) async fn mesh_state(self: &Arc<Self>) -> Result<Value, WebRefusal> {
        let state = self.ask(|gateway| {
            // Without a mesh that is an answer, too.
            Ok(api::answer(ControlRequest::Mesh, gateway).map_err(|refused| refused.error))
        });
        state.await?.map_err(WebRefusal::not_found)
    }

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

    /// Reads resources for the caller of a request.
    fn reader(&self, asked: &Asked<'_>) -> Result<ResourceReader, WebRefusal> {
        let engine = self.gateway().map_err(WebRefusal::unavailable)?.service_entity();
        let why = "this gateway has no service entity: [cse] in the description begins one";
        let engine = engine.and_then(|entity| entity.downcast::<Engine>().ok());
        let engine = engine.ok_or_else(|| WebRefusal::not_found(why))?;
        Ok(ResourceReader::new(engine, asked))
    }

    /// The devices with their containers, and the counters of their listener.
    pub(crate) async fn devices(
        self: &Arc<Self>,
        asked: &Asked<'_>,
    ) -> Result<WebAnswer, WebRefusal> {
        let (mut devices, is_cut) = self.reader(asked)?.devices().await?;
        let parts = self.ask(|gateway| Ok(gateway.status()?.parts)).await?;
        let told = |name: &str| parts.iter().find(|part| part.name == name).map(|part| &part.told);
        let waiting = told("cse").and_then(|told| {
            let found = told.gauges.iter().find(|(name, _)| *name == "messages_waiting");
            found.map(|(_, waiting)| json!({ "waiting": waiting }))
        });
        let alarms = told("cse").map(|told| told.alarms.as_slice()).unwrap_or_default();
        note_silent(&mut devices, alarms);
        let counters = told("devices").map(|told| told.counters.clone()).unwrap_or_default();
        let document = json!({
            "devices": devices, "cut": is_cut, "outbox": waiting, "counters": counters,
        });
        Ok(json(StatusCode::OK, &document))
    }

    /// A resource with its children, or the last readings of a container.
    pub(crate) async fn resources(&self, asked: &Asked<'_>) -> Result<WebAnswer, WebRefusal> {
        let known = ["at", "depth", "latest", "since", "until", "as"];
        let query = Query::parse(asked.head.uri.query(), &known)?;
        let (reader, at) = (self.reader(asked)?, query.text("at"));
        let latest = query.value("latest", "a number of readings, 1 to 500")?;
        let [since, until] = ["since", "until"].map(|name| time_in(&query, name));
        let span = [since?, until?];
        let document = if span.iter().any(Option::is_some) {
            reader.readings_between(at, span, latest).await?
        } else if let Some(latest) = latest {
            reader.readings(at, latest).await?
        } else {
            let depth = query.value("depth", "a number of levels, 0 to 3")?.unwrap_or(1);
            reader.resource(at, depth, query.text("as")).await?
        };
        if asked.caller.role >= Some(AccessRole::Operator) {
            self.log_read(asked, at.unwrap_or("-")).await;
        }
        Ok(json(StatusCode::OK, &document))
    }

    /// Logs that a caller has read values of the resource at `at`: the first time, and again each
    /// minute.
    async fn log_read(&self, asked: &Asked<'_>, at: &str) {
        let at: String = at.chars().take(READ_PATH_MAX).collect();
        let by = (asked.caller.name.clone(), asked.arrival.peer, at);
        if !self.reads.is_new(&by) {
            return;
        }
        if let Some(log) = self.audit() {
            let what = (Endpoint::Resources, asked.head.uri.path());
            let read = AuditedChange::new(log, what, (&asked.caller, asked.arrival));
            self.end_change(&read, Some(&by.2), StatusCode::OK).await;
        }
        let text = format!("{} reads values of {:?}", by.0, by.2);
        self.log_change(asked, "web-read", text);
    }
}

/// Every node that the state of a node names, each once, with its distance in hops if that is known.
fn nodes_of(state: &Value) -> Value {
    let list = |of: &Value, name: &str| of.get(name).and_then(Value::as_array).cloned();
    let text = |of: &Value, name: &str| of.get(name).and_then(Value::as_str).map(str::to_owned);
    let mut nodes: BTreeMap<String, Option<u64>> = BTreeMap::new();
    let mut meet = |node: Option<String>, hops: Option<u64>| {
        let Some(node) = node else { return };
        let known = nodes.entry(node).or_insert(hops);
        *known = (*known).into_iter().chain(hops).min();
    };
    meet(text(state, "node"), Some(0));
    for neighbour in list(state, "neighbours").unwrap_or_default() {
        let is_up = neighbour.get("up").and_then(Value::as_bool).unwrap_or(false);
        meet(text(&neighbour, "node"), is_up.then_some(1));
    }
    for destination in list(state, "destinations").unwrap_or_default() {
        let node = text(&destination, "node");
        meet(node.clone(), None);
        for path in list(&destination, "paths").unwrap_or_default() {
            let relays = list(&path, "relays").unwrap_or_default();
            for (hops, relay) in (1..).zip(&relays) {
                meet(relay.as_str().map(str::to_owned), Some(hops));
            }
            meet(node.clone(), u64::try_from(relays.len() + 1).ok());
        }
    }
    nodes.into_iter().map(|(node, hops)| json!({ "node": node, "hops": hops })).collect()
}

/// The rows that a query asks for: how many are left out, and how many follow at most.
fn rows_of(query: Option<&str>) -> Result<(usize, usize), WebRefusal> {
    let query = Query::parse(query, &["offset", "limit"])?;
    let offset = query.value("offset", "the number of rows that are left out")?;
    let limit = query.value("limit", "a number of rows")?.unwrap_or(ROWS_MAX);
    if !(1..=ROWS_MAX).contains(&limit) {
        let why = format!("limit is a number of rows, 1 to {ROWS_MAX}");
        return Err(WebRefusal::bad_request(why));
    }
    Ok((offset.unwrap_or(0), limit))
}

/// The time that a parameter has.
fn time_in(query: &Query, name: &str) -> Result<Option<Timestamp>, WebRefusal> {
    let Some(text) = query.text(name) else { return Ok(None) };
    let bad = || {
        let why = format!("{name} is a time in UTC: 2026-01-31T23:59:59Z");
        WebRefusal::bad_request(why)
    };
    time_of(text).map(Some).ok_or_else(bad)
}

/// Adds to each device whether its alarm `device-silent` is raised.
fn note_silent(devices: &mut [Value], alarms: &[AlarmStatus]) {
    let silent = alarms.iter().filter(|alarm| alarm.name == "device-silent");
    let silent: Vec<&str> =
        silent.flat_map(|alarm| &alarm.subjects).map(|it| it.subject.as_str()).collect();
    for device in devices.iter_mut().filter_map(Value::as_object_mut) {
        // Of an AE that is no device's nothing is known.
        let is_device = device.get("associated").is_some_and(Value::is_boolean);
        let name = device.get("name").and_then(Value::as_str).unwrap_or_default();
        let is_silent = silent.iter().any(|subject| name.ends_with(subject));
        device.insert("silent".to_owned(), json!(is_device.then_some(is_silent)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_part::AlarmSubject;

    /// Paths a–b–c and a–d–e–c: b and d are one hop away, c two by the shorter one.
    #[test]
    fn nodes_of_a_mesh_are_named_once_with_their_distance() {
        let path = |relays: &[&str]| json!({ "relays": relays });
        let state = json!({
            "node": "a",
            "neighbours": [{ "node": "b", "up": true }, { "node": "f", "up": false }],
            "destinations": [{ "node": "c", "paths": [path(&["d", "e"]), path(&["b"])] }],
        });
        let hops = |node: &str, hops: Value| json!({ "node": node, "hops": hops });
        let expected = [("a", 0), ("b", 1), ("c", 2), ("d", 1), ("e", 2)];
        let mut expected: Vec<Value> =
            expected.into_iter().map(|(node, count)| hops(node, count.into())).collect();
        expected.push(hops("f", Value::Null));
        assert_eq!(nodes_of(&state), Value::from(expected));
    }

    #[test]
    fn a_device_is_silent_whose_alarm_is_raised() {
        let device = |name: &str, associated| json!({ "name": name, "associated": associated });
        let mut devices = [
            device("phd-0247000100000001", json!(false)),
            device("phd-0247000100000002", json!(true)),
            device("app", Value::Null),
        ];
        let subject = |subject: &str| AlarmSubject {
            subject: subject.to_owned(),
            since: String::new(),
            detail: String::new(),
        };
        let alarm = |name, of: &str| AlarmStatus { name, raised: 1, subjects: vec![subject(of)] };
        let alarms = [
            alarm("device-silent", "0247000100000001"),
            alarm("certificate-ending", "0247000100000002"),
        ];
        note_silent(&mut devices, &alarms);
        let silent = devices.map(|device| device["silent"].clone());
        assert_eq!(silent, [json!(true), json!(false), Value::Null]);
    }
}
