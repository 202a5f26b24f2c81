//! The container with the changes of alarms, below the CSEBase: operators read and subscribe to it.
//!
//! Each change is an instance, which also lists everything that is raised: so the latest instance
//! is the state of all alarms, for a reader who comes later and for the next start.

use super::{AlarmChange, Alarms};
use crate::engine::{Engine, Task, wall};
use core::time::Duration;
use gatewright_onem2m::{Operation, Request, ResourceType, Response, Status};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Name of the container.
pub(crate) const CONTAINER: &str = "alarms";
/// Label of the container, by which a later start recognises it as its own.
const OWN_LABEL: &str = "gatewright:alarms";
/// Changes that the container keeps.
const INSTANCES_MAX: u64 = 1_000;
/// Changes that wait to be stored; beyond, the oldest is dropped.
const WAITING_MAX: usize = 256;
/// Pause after a change could not be stored, as on a full disk.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// A change on its way to the store.
#[derive(Debug)]
struct StoringChange {
    name: String,
    content: String,
    answer: Option<oneshot::Receiver<Response>>,
}

/// The container with the changes of alarms.
#[derive(Debug)]
pub(crate) struct AlarmContainer {
    engine: Arc<Engine>,
    /// Address of the CSEBase.
    base: String,
    /// Why changes are not stored; `None` if the container is there and ours.
    obstacle: Option<String>,
    waiting: VecDeque<StoringChange>,
    dropped: u64,
    attempts: u64,
    /// When changes may be stored again after a failure, by the monotonic clock.
    retry_at: Duration,
}

impl AlarmContainer {
    /// Creates the container if it is missing, lets the operators in whom `policy` names, and
    /// continues `alarms` where the last instance ended.
    pub(crate) async fn found(
        engine: &Arc<Engine>,
        base: &str,
        policy: Option<&str>,
        alarms: &mut Alarms,
    ) -> Self {
        let container = Self {
            engine: Arc::clone(engine),
            base: base.to_owned(),
            obstacle: Self::admit(engine, base, policy).await,
            waiting: VecDeque::new(),
            dropped: 0,
            attempts: 0,
            retry_at: Duration::ZERO,
        };
        let latest = request((engine, base), Operation::Retrieve, "/la", "latest");
        if let Some(content) = content_of(engine, latest).await
            && let Some(raised) = content.pointer("/m2m:cin/con/raised")
        {
            alarms.restore(raised);
        }
        container
    }

    /// Creates the container if it is missing, and lets the operators in whom `policy` names;
    /// returns why changes cannot be stored, as somebody may have had another resource of this name
    /// before.
    pub(crate) async fn admit(engine: &Engine, base: &str, policy: Option<&str>) -> Option<String> {
        // A conflict is the usual case.
        let made = engine.ask(creation(engine, base)).await;
        let retrieve = request((engine, base), Operation::Retrieve, "", "container");
        let Some(found) = content_of(engine, retrieve).await else {
            let status = made.map_or(Status::InternalServerError, |answer| answer.status).number();
            return Some(format!(
                "the container `{CONTAINER}` cannot be created ({status}): changes of alarms are in \
                 the log only"
            ));
        };
        let list = |name: &str| -> Vec<&str> {
            let list = found.pointer(&format!("/m2m:cnt/{name}")).and_then(Value::as_array);
            list.into_iter().flatten().filter_map(Value::as_str).collect()
        };
        let is_own = list("lbl").contains(&OWN_LABEL);
        let mut policies = list("acpi");
        if let Some(policy) = policy.filter(|policy| is_own && !policies.contains(policy)) {
            policies.push(policy);
            let content = json!({ "m2m:cnt": { "acpi": policies } }).to_string();
            let update = request((engine, base), Operation::Update, "", "policy");
            let _ = engine.ask(update.with_content(content)).await;
        }
        (!is_own).then(|| {
            format!(
                "`{CONTAINER}` is the name of {}: changes of alarms are in the log only",
                described(&found)
            )
        })
    }

    /// Notes why changes are not stored.
    pub(crate) fn set_obstacle(&mut self, obstacle: Option<String>) {
        self.obstacle = obstacle;
    }

    /// Why changes are not stored, as text for operators.
    pub(crate) fn obstacle(&self) -> Option<&str> {
        self.obstacle.as_deref()
    }

    /// Changes dropped because too many waited.
    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Takes changes to be stored, with the state of all alarms after each.
    pub(crate) fn take(&mut self, changes: &[AlarmChange], alarms: &Alarms) {
        if self.obstacle.is_some() {
            return;
        }
        let micros = wall().as_micros();
        for (number, change) in changes.iter().enumerate() {
            if self.waiting.len() >= WAITING_MAX {
                self.waiting.pop_front();
                self.dropped = self.dropped.saturating_add(1);
            }
            let name = format!("{}-{micros}-{number}", change.name);
            let content = instance(&name, change, alarms);
            self.waiting.push_back(StoringChange { name, content, answer: None });
        }
    }

    /// Stores what waits, and takes the answers to what was to be stored; waits for nothing.
    pub(crate) fn pursue(&mut self, now: Duration) {
        let mut is_storing = false;
        let mut has_failed = false;
        self.waiting.retain_mut(|change| {
            let Some(answer) = &mut change.answer else { return true };
            match answer.try_recv() {
                Ok(answer) if answer.fate().is_stored() => return false,
                Err(oneshot::error::TryRecvError::Empty) => is_storing = true,
                Ok(_) | Err(oneshot::error::TryRecvError::Closed) => {
                    change.answer = None;
                    has_failed = true;
                }
            }
            true
        });
        if has_failed {
            self.retry_at = now.saturating_add(RETRY_AFTER);
        }
        if is_storing || self.waiting.is_empty() || now < self.retry_at {
            return;
        }
        self.attempts = self.attempts.saturating_add(1);
        let requests: Vec<Task> = self.waiting.iter().map(|it| self.instance_of(it)).collect();
        let answers = self.engine.together(requests);
        for (change, answer) in self.waiting.iter_mut().zip(answers) {
            change.answer = Some(answer);
        }
    }

    /// The request that creates a change's instance. An instance that is there already has this
    /// name.
    fn instance_of(&self, change: &StoringChange) -> Task {
        let id = format!("{}-{}", change.name, self.attempts);
        let request = request((&self.engine, &self.base), Operation::Create, "", &id);
        let request = request.creating(ResourceType::ContentInstance, change.content.as_str());
        Task::Ask(request.into())
    }
}

fn creation(engine: &Engine, base: &str) -> Request {
    let content = json!({ "m2m:cnt": {
        "rn": CONTAINER, "lbl": [OWN_LABEL], "mni": INSTANCES_MAX,
    } });
    let id = format!("{CONTAINER}-made-{}", wall().as_micros());
    Request::new(Operation::Create, base, engine.cse_id(), id)
        .creating(ResourceType::Container, content.to_string())
}

/// A request of this CSE to the container, or to `below` it.
fn request(
    (engine, base): (&Engine, &str),
    operation: Operation,
    below: &str,
    what: &str,
) -> Request {
    let to = format!("{base}/{CONTAINER}{below}");
    let id = format!("{CONTAINER}-{what}-{}", wall().as_micros());
    Request::new(operation, to, engine.cse_id(), id)
}

/// What a representation is of, for operators: the AE with its AE-ID, or the type's tag.
pub(crate) fn described(representation: &Value) -> String {
    let tagged = representation.as_object().and_then(|all| all.iter().next());
    let tag = tagged.map_or("resource", |(tag, _)| tag.as_str());
    let member = |name| tagged.and_then(|(_, inner)| inner.get(name)).and_then(Value::as_str);
    match (member("aei"), member("cr")) {
        (Some(entity), _) => format!("the AE {entity}"),
        (None, Some(creator)) => format!("a resource of {creator} ({tag})"),
        (None, None) => format!("another resource ({tag})"),
    }
}

/// The content of a successful answer.
pub(crate) async fn content_of(engine: &Engine, request: Request) -> Option<Value> {
    let answer = engine.ask(request).await.filter(|it| it.status == Status::Ok)?;
    serde_json::from_str(&answer.content?).ok()
}

/// The instance of a change.
fn instance(name: &str, change: &AlarmChange, alarms: &Alarms) -> String {
    let state = if change.is_raised { "raised" } else { "cleared" };
    let mut labels = vec![format!("alarm:{}", change.name), format!("state:{state}")];
    let mut content = json!({
        "name": change.name.text(),
        "state": state,
        "level": change.level,
        "since": change.since.to_string(),
        "detail": change.detail,
        "raised": alarms.to_json(),
    });
    if let (false, Some(members)) = (change.subject.is_empty(), content.as_object_mut()) {
        members.insert("subject".to_owned(), json!(change.subject));
        labels.push(format!("subject:{}", change.subject));
    }
    json!({ "m2m:cin": {
        "rn": name, "lbl": labels, "cnf": "application/json:0", "con": content,
    } })
    .to_string()
}
