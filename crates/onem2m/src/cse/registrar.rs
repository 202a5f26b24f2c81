//! Registration of other CSEs here, and of this CSE at its registrar (TS-0001 §10.2.2.7).

use super::calls::{Purpose, Unreachable};
use super::create::Draft;
use super::{Cse, CseConfig, Refusal};
use crate::address::is_cse_stem;
use crate::clock::{Moment, Now};
use crate::fate::pause;
use crate::primitive::{Operation, Release, Request, Response};
use crate::resource_type::ResourceType;
use crate::status::Status;
use core::time::Duration;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// The registrar of this CSE.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Registrar {
    /// Its CSE-ID with the leading slash.
    pub cse_id: String,
    /// The name of its CSEBase.
    pub name: String,
    /// Its URL.
    pub url: String,
}

/// State of the registration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// To be requested (again) at this time.
    Due(Moment),
    /// A creation is in progress.
    Asked,
    /// Registered; to be checked again at this time.
    Stands(Moment),
    /// A check is in progress.
    Checked,
    /// Registered; its points of access are being updated.
    Renewed,
}

/// This CSE's registration.
#[derive(Debug)]
pub(super) struct Registration {
    stage: Stage,
    failures: u32,
    /// Whether the registrar's data of this CSE are outdated.
    is_old: bool,
}

/// Interval of checks of a registration, which detect a registrar that lost its data.
const CHECK_EVERY: Duration = Duration::from_secs(30);
/// Pause after a request that could not be sent.
const FULL_AFTER: Duration = Duration::from_mins(1);

impl Registration {
    pub(super) const fn new(now: Moment) -> Self {
        Self { stage: Stage::Due(now), failures: 0, is_old: false }
    }

    const fn next_step(&self) -> Option<Moment> {
        match self.stage {
            Stage::Due(time) | Stage::Stands(time) => Some(time),
            Stage::Asked | Stage::Checked | Stage::Renewed => None,
        }
    }
}

impl Cse {
    /// Whether this CSE is registered at its registrar, as far as is known.
    pub const fn is_registered_at_registrar(&self) -> bool {
        matches!(self.registration.stage, Stage::Stands(_) | Stage::Checked | Stage::Renewed)
    }

    /// Applies other settings: admitted entities, administrator, limits, the registrar's URL, its
    /// own points of access. Its identity stays as it was.
    ///
    /// Outbox messages for a registrar that has moved go to its new URL.
    pub fn reconfigure(&mut self, now: impl Into<Now>, config: CseConfig) {
        self.set_clocks(now.into());
        let moved = match (&self.config.registrar, &config.registrar) {
            (Some(old), Some(new)) if old.url != new.url => {
                Some((old.url.clone(), new.url.clone()))
            }
            _ => None,
        };
        let CseConfig {
            admin,
            admitted_entities,
            admitted_cses,
            sponsored_entities,
            adopted_entities,
            reserved_names,
            reserved_entities,
            cses_beyond,
            base_readers,
            registrar,
            limits,
            audit,
            points_of_access,
            ..
        } = config;
        let is_elsewhere = points_of_access != self.config.points_of_access;
        self.config = CseConfig {
            admin,
            points_of_access,
            admitted_entities,
            admitted_cses,
            sponsored_entities,
            adopted_entities,
            reserved_names,
            reserved_entities,
            cses_beyond,
            base_readers,
            registrar,
            limits,
            audit,
            ..self.config.clone()
        };
        if is_elsewhere {
            self.found_base();
            self.registration.is_old = true;
        }
        if let Some((from, to)) = moved {
            self.readdress(&from, &to);
            self.registration = Registration::new(self.moment);
            self.forget_refusal_above();
            self.forget_silence_above();
        }
        self.tell_registrar();
        self.pursue_registration();
        self.run_outbox();
        self.settle();
    }

    /// Time of the registration's next step.
    pub(super) fn registration_due(&self) -> Option<Moment> {
        self.config.registrar.as_ref().and_then(|_| self.registration.next_step())
    }

    /// Performs the next step of the registration if it is due.
    pub(super) fn pursue_registration(&mut self) {
        // Every step comes by here: nothing is copied unless something is due.
        if self.registration_due().is_none_or(|due| due > self.moment) {
            return;
        }
        let Some(registrar) = self.config.registrar.clone() else {
            return;
        };
        let base = format!("{}/{}", registrar.cse_id, registrar.name);
        let (stage, request) = if matches!(self.registration.stage, Stage::Stands(_)) {
            let stem = self.config.cse_id.trim_start_matches('/');
            (Stage::Checked, self.own_request(Operation::Retrieve, format!("{base}/{stem}")))
        } else {
            let request = self.own_request(Operation::Create, base);
            let content = json!({ "m2m:csr": self.own_entry(true) }).to_string();
            (Stage::Asked, request.creating(ResourceType::RemoteCse, content))
        };
        self.registration.stage = stage;
        self.call_registrar(&registrar, request);
    }

    fn call_registrar(&mut self, registrar: &Registrar, request: Request) {
        let way = (vec![registrar.url.clone()], None);
        if self.call(way, request, Purpose::Registration, "").is_err() {
            self.registration.stage = Stage::Due(self.moment.plus(FULL_AFTER));
        }
    }

    /// A request with this CSE as originator.
    pub(super) fn own_request(&mut self, operation: Operation, to: String) -> Request {
        let id = self.next_request_id();
        Request::new(operation, to, self.config.cse_id.clone(), id)
    }

    /// A request identifier that is unique among this CSE's outgoing requests.
    pub(super) fn next_request_id(&mut self) -> String {
        self.requests_made += 1;
        format!("{:x}-{:x}", self.started.micros(), self.requests_made)
    }

    /// Attributes of this CSE's remoteCSE at the registrar.
    fn own_entry(&self, creating: bool) -> Value {
        let mut entry = Map::new();
        entry.insert("rr".into(), json!(!self.config.points_of_access.is_empty()));
        entry.insert("poa".into(), json!(self.config.points_of_access));
        entry.insert("srv".into(), json!(Release::SUPPORTED));
        if creating {
            let id = &self.config.cse_id;
            entry.insert("rn".into(), json!(id.trim_start_matches('/')));
            entry.insert("csi".into(), json!(id));
            entry.insert("cb".into(), json!(format!("{id}/{}", self.config.name)));
            entry.insert("cst".into(), json!(self.config.cse_type.number()));
        }
        Value::Object(entry)
    }

    pub(super) fn registration_answered(&mut self, answer: Result<Response, Unreachable>) {
        let answer = answer.ok();
        let status = answer.as_ref().map(|answer| answer.status);
        match (self.registration.stage, status) {
            (Stage::Asked | Stage::Renewed, Some(Status::Created | Status::Updated))
            | (Stage::Checked, Some(Status::Ok)) => {
                self.registration.stage = Stage::Stands(self.moment.plus(CHECK_EVERY));
                self.registration.failures = 0;
                self.forget_refusal_above();
                self.know_registrar();
                self.tell_registrar();
                if let (Some(Status::Created), Some(registrar)) = (status, &self.config.registrar) {
                    let cse = registrar.cse_id.clone();
                    self.announce_again(&cse);
                }
            }
            // It stood already, from an earlier run: what it says of this CSE may be old.
            (Stage::Asked, Some(Status::Conflict | Status::OriginatorHasAlreadyRegistered)) => {
                self.renew_entry();
            }
            // The registrar does not know this CSE any more.
            (Stage::Checked | Stage::Renewed, Some(Status::NotFound)) => {
                self.registration.stage = Stage::Due(self.moment);
                self.pursue_registration();
            }
            _ => {
                let judged = answer
                    .as_ref()
                    .filter(|answer| !answer.status.is_success() && answer.retry_after.is_none());
                if let Some(refusal) = judged {
                    self.note_registration_above(refusal);
                }
                let told = answer.and_then(|answer| answer.retry_after);
                let wait = pause(self.registration.failures, told);
                self.registration.failures = self.registration.failures.saturating_add(1);
                self.registration.stage = Stage::Due(self.moment.plus(wait));
            }
        }
    }

    /// Registers again at once, since the registrar does not know this CSE, unless that is in
    /// progress.
    pub(super) fn registration_lost(&mut self) {
        if matches!(self.registration.stage, Stage::Stands(_)) {
            self.registration.stage = Stage::Due(self.moment);
        }
    }

    /// Updates this CSE's data at the registrar, once it is registered.
    fn tell_registrar(&mut self) {
        if self.registration.is_old && matches!(self.registration.stage, Stage::Stands(_)) {
            self.registration.is_old = false;
            self.renew_entry();
        }
    }

    fn renew_entry(&mut self) {
        let Some(registrar) = self.config.registrar.clone() else {
            return;
        };
        let stem = self.config.cse_id.trim_start_matches('/');
        let to = format!("{}/{}/{stem}", registrar.cse_id, registrar.name);
        let content = json!({ "m2m:csr": self.own_entry(false) }).to_string();
        let request = self.own_request(Operation::Update, to).with_content(content);
        self.registration.stage = Stage::Renewed;
        self.call_registrar(&registrar, request);
    }

    /// Keeps a remoteCSE of the registrar: requests for it and for unknown CSEs go to it.
    fn know_registrar(&mut self) {
        let (Some(registrar), Some(parent)) = (self.config.registrar.clone(), self.tree.root())
        else {
            return;
        };
        if let Some(known) = self.remote_cse(&registrar.cse_id) {
            let same = self
                .tree
                .get(known)
                .is_some_and(|entry| entry.texts("poa").eq([registrar.url.as_str()]));
            if !same {
                self.change(known, |entry| {
                    entry.attributes.insert("poa".into(), json!([registrar.url]));
                });
            }
            return;
        }
        let stem = registrar.cse_id.trim_start_matches('/').to_owned();
        let attributes = json!({
            "rn": stem,
            "csi": registrar.cse_id,
            "cb": format!("{}/{}", registrar.cse_id, registrar.name),
            "poa": [registrar.url],
            "rr": true,
            "srv": Release::SUPPORTED,
        });
        let Value::Object(attributes) = attributes else {
            return;
        };
        // Refused only if the tree is full, which is counted; the next check tries again.
        let _ = self.found(Draft {
            resource_type: ResourceType::RemoteCse,
            tag: Cow::Borrowed(ResourceType::RemoteCse.tag()),
            parent,
            attributes,
            id: Some(stem),
            owner: self.config.cse_id.clone(),
            sponsor: None,
            made_by: None,
        });
    }

    /// Checks a remoteCSE that a CSE creates for itself.
    pub(super) fn prepare_remote_cse(&self, draft: &mut Draft, from: &str) -> Result<(), Refusal> {
        let given = draft.attributes.get("csi").and_then(Value::as_str);
        let cse = given.unwrap_or(from).to_owned();
        let by_admin = self.config.admin.as_deref() == Some(from);
        if cse != from && !by_admin {
            return Err(Refusal::bad("csi is not the originator"));
        }
        let admitted = self.admits_cse(&cse);
        let stem = cse.strip_prefix('/').filter(|stem| is_cse_stem(stem));
        let (Some(stem), true) = (stem, admitted || by_admin) else {
            return Err(Refusal::new(
                Status::AppRuleValidationFailed,
                "the originator is not among the CSE-IDs admitted",
            ));
        };
        if self.remote_cse(&cse).is_some() {
            return Err(Refusal::new(
                Status::OriginatorHasAlreadyRegistered,
                "the CSE is registered",
            ));
        }
        draft.id = Some(stem.to_owned());
        draft.owner.clone_from(&cse);
        draft.attributes.insert("csi".into(), json!(cse));
        Ok(())
    }
}
