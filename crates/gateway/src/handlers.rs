//! The built-in handlers at packets: created from the description, attached live, exchanged by a
//! reload.

use crate::{
    RunError,
    balance::{BalanceStatus, flow_balance, status_of, watched_counters},
    by_command::{described, dropped},
    difference,
    links::{Links, link_of},
    recorder::{EarlierCapture, Recorder},
};
use gatewright_config::{self as config, Config};
use gatewright_packet::LinkIndex;
use gatewright_part::{
    Change, EventSink, LogLevel, Part, PartStatus, Staged, Unable, Watched, When,
};
use gatewright_planes::{
    FlowBalanceCounts, HandlerNow, HandlerValue, Placement, PlanesError, Prepared,
};
use gatewright_stack::{
    Attachment, AttachmentId,
    builtin::{Match, Subnet},
};
use gatewright_wire::IpProtocol;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A running built-in handler.
#[derive(Clone, Debug)]
pub(crate) struct Attached {
    /// Its id, by which it is detached.
    pub(crate) id: AttachmentId,
    /// Its name: `count`, `drop` and so on.
    pub(crate) name: &'static str,
    /// Its position.
    pub(crate) attachment: Attachment,
    /// Its entry in the description; none if it was attached since.
    described: Option<config::Attach>,
    /// As a command has described it, if one has.
    pub(crate) spec: Option<config::HandlerSpec>,
}

/// The built-in handlers of a gateway.
#[derive(Clone, Debug)]
pub(crate) struct Handlers {
    links: Links,
    events: EventSink,
    standing: Arc<Mutex<Standing>>,
    /// Whether a route had a balance at the start: the gateway watches refusals then.
    watches: bool,
}

#[derive(Debug, Default)]
struct Standing {
    attached: Vec<Attached>,
    recorders: Vec<(AttachmentId, Recorder)>,
}

impl Handlers {
    /// Attaches the handlers of `config`; `events` learn of capture files that cannot be written.
    pub(crate) fn start(
        links: &Links,
        config: &Config,
        events: EventSink,
    ) -> Result<Self, RunError> {
        let watches = config.routes.iter().any(|route| route.balance.is_some());
        let this = Self { links: links.clone(), events, standing: Arc::default(), watches };
        if links.planes().is_adopted() {
            // All at once: the handlers of before stand until then, and no filter is missing.
            this.go_on(config)?;
            return Ok(this);
        }
        for attach in &config.attachments {
            this.attach_as(attach, (Some(attach.clone()), None))?;
        }
        Ok(this)
    }

    /// Puts the handlers of `config` in force at a data plane that was adopted, with those that were
    /// set by command under the control plane before.
    fn go_on(&self, config: &Config) -> Result<(), RunError> {
        let kept = &self.links.kept_by_command().packets;
        let names = self.links.names();
        let prepared = self.prepare(config, kept, &names).or_else(|error| {
            if kept.is_empty() {
                return Err(error);
            }
            // If those of the description are the cause, it is as at any start.
            self.prepare(config, &[], &names)?;
            let fits = |some: &[_]| self.prepare(config, some, &names).map(drop);
            let standing = each_that_fits(kept, fits, |(spec, _), error| {
                self.events.log(dropped(&described(spec), &error.to_string()));
            });
            self.prepare(config, &standing, &names)
        })?;
        prepared.put_in_force()
    }

    fn lock(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The attached handlers, in order.
    pub(crate) fn attached(&self) -> Vec<Attached> {
        self.lock().attached.clone()
    }

    /// The balances of routes.
    pub(crate) fn balances(&self) -> Vec<BalanceStatus> {
        let mut now = self.links.planes().handlers();
        let attached = self.attached();
        let status = |attached: &Attached| {
            let described = attached.described.as_ref()?;
            let config::Handler::NextHops { balance, flow, .. } = &described.handler else {
                return None;
            };
            let its = now.iter_mut().find(|one| one.id == attached.id)?;
            Some(status_of(balance, flow, its.balance.take()?))
        };
        attached.iter().filter_map(status).collect()
    }

    /// Captured packets that the recorder of a handler did not take in time or could not write.
    pub(crate) fn unrecorded(&self, id: AttachmentId) -> u64 {
        let standing = self.lock();
        let own = standing.recorders.iter().filter(|(other, _)| *other == id);
        own.map(|(_, recorder)| recorder.missed()).sum()
    }

    /// Attaches one handler by command, without losing a packet.
    pub(crate) fn attach(
        &self,
        attach: &config::Attach,
        spec: &config::HandlerSpec,
    ) -> Result<AttachmentId, RunError> {
        if let config::Handler::Capture { file } = &attach.handler
            && self.lock().recorders.iter().any(|(_, recorder)| recorder.writes(&file.value))
        {
            let words = "another capture of this gateway writes it: choose another file";
            let source = std::io::Error::new(std::io::ErrorKind::AlreadyExists, words);
            return Err(RunError::File { file: file.value.clone(), source });
        }
        self.attach_as(attach, (None, Some(spec.clone())))
    }

    fn attach_as(
        &self,
        attach: &config::Attach,
        (described, spec): (Option<config::Attach>, Option<config::HandlerSpec>),
    ) -> Result<AttachmentId, RunError> {
        let earlier =
            if described.is_some() { EarlierCapture::Kept } else { EarlierCapture::Replaced };
        let Made { name, placement, attachment, recorder } =
            self.make((attach, earlier), &self.links.names())?;
        let attach_error =
            |source| RunError::Attach { name: name.to_owned(), source: Box::new(source) };
        let id = self.links.planes().place(placement).map_err(attach_error)?;
        let mut standing = self.lock();
        standing.recorders.extend(recorder.map(|recorder| (id, recorder)));
        standing.attached.push(Attached { id, name, attachment, described, spec });
        Ok(id)
    }

    /// The request for a handler on the links `names`, which the planes build. The file of a capture is
    /// opened here.
    fn make(
        &self,
        (attach, earlier): (&config::Attach, EarlierCapture),
        names: &[String],
    ) -> Result<Made, RunError> {
        let attachment = attachment(attach, names);
        let made = |name, value| Made {
            name,
            placement: Placement::Described(attachment, value),
            attachment,
            recorder: None,
        };
        Ok(match &attach.handler {
            config::Handler::Count => made("count", HandlerValue::Count),
            config::Handler::Drop { matching } => made("drop", drop_matching(*matching)),
            config::Handler::Filter { rules, default } => {
                let (rules, default) = (rules.clone(), *default);
                made("filter", HandlerValue::Filter { rules, default })
            }
            config::Handler::RateLimit { rate, burst } => {
                made("rate-limit", HandlerValue::RateLimit { rate: *rate, burst: *burst })
            }
            config::Handler::Mirror { to } => {
                let to = link_of(names, to).unwrap_or(LinkIndex::NONE);
                made("mirror", HandlerValue::Mirror { to })
            }
            config::Handler::NextHops { to, balance, flow } => {
                let to = Subnet { address: to.address(), bits: to.length() };
                let balance = flow_balance(balance, flow);
                made("next-hops", HandlerValue::NextHops { to, balance })
            }
            config::Handler::Host { part, to } => {
                let to = link_of(names, to).unwrap_or(LinkIndex::NONE);
                made("host", HandlerValue::Host { part: *part, to })
            }
            config::Handler::Capture { file } => {
                let capture = self.links.planes().capture()?;
                let value = HandlerValue::Capture { which: Match::default(), to: capture.number };
                let recorder = Recorder::start(
                    (file.value.as_str(), earlier),
                    attachment.at,
                    names,
                    capture,
                    self.events.clone(),
                )
                .map_err(|source| RunError::File { file: file.value.clone(), source })?;
                Made { recorder: Some(recorder), ..made("capture", value) }
            }
            _ => return Err(RunError::NotInThisVersion("this handler".to_owned())),
        })
    }

    /// Detaches one handler; returns whether the id was known.
    pub(crate) fn detach(&self, id: AttachmentId) -> Result<bool, PlanesError> {
        let found = self.links.planes().detach(id)?.is_some();
        let mut standing = self.lock();
        standing.attached.retain(|attached| attached.id != id);
        // The handler is gone, so its recorder writes what waits and ends.
        let gone: Vec<_> = standing.recorders.extract_if(.., |(other, _)| *other == id).collect();
        drop(standing);
        drop(gone);
        Ok(found)
    }

    /// Creates the handlers that `config` adds, and the wiring in its order. Handlers attached by
    /// command come after them, then `more` of such. Handlers of removed links are removed.
    fn prepare(
        &self,
        config: &Config,
        more: &[(config::HandlerSpec, config::Attach)],
        places: &[String],
    ) -> Result<StagedHandlers, RunError> {
        let (names, standing) = (self.links.names(), self.attached());
        let goes = |attached: &Attached| {
            let link = attached.attachment.link.map(LinkIndex::index);
            link.is_some_and(|link| places.get(link) != names.get(link))
        };
        let mut left: Vec<_> = standing.iter().map(Some).collect();
        let (mut placements, mut attached) = (Vec::new(), Vec::new());
        for attach in &config.attachments {
            let same = |place: &&mut Option<&Attached>| {
                place.is_some_and(|one| one.described.as_ref() == Some(attach) && !goes(one))
            };
            if let Some(stays) = left.iter_mut().find(same).and_then(Option::take) {
                placements.push(Placement::Kept(stays.id));
                attached.push((stays.clone(), None));
                continue;
            }
            let Made { name, placement, attachment, recorder } =
                self.make((attach, EarlierCapture::Kept), places)?;
            placements.push(placement);
            let (id, described) = (AttachmentId(0), Some(attach.clone()));
            attached.push((Attached { id, name, attachment, described, spec: None }, recorder));
        }
        let by_command = left.into_iter().flatten().filter(|one| one.described.is_none());
        for by_command in by_command.filter(|one| !goes(one)) {
            placements.push(Placement::Kept(by_command.id));
            attached.push((by_command.clone(), None));
        }
        for (spec, attach) in more {
            let Made { name, placement, attachment, recorder } =
                self.make((attach, EarlierCapture::Replaced), places)?;
            placements.push(placement);
            let (id, spec) = (AttachmentId(0), Some(spec.clone()));
            attached.push((Attached { id, name, attachment, described: None, spec }, recorder));
        }
        // What an embedder or a live capture has attached is no affair of the description's.
        let own = |id| standing.iter().any(|attached| attached.id == id);
        let planes = self.links.planes();
        let others = planes.handlers().into_iter().filter(|other| !own(other.id));
        placements.extend(others.map(|other| Placement::Kept(other.id)));
        let prepared = planes.prepare(placements)?;
        Ok(StagedHandlers { handlers: self.clone(), prepared, attached })
    }
}

impl Part for Handlers {
    fn name(&self) -> &'static str {
        "handlers"
    }

    fn differences(&self, old: &Config, new: &Config) -> Vec<Change> {
        difference::handlers(old, new)
    }

    fn stage(&self, _: &Config, new: &Config) -> Result<Box<dyn Staged>, Unable> {
        let places =
            self.links.places(new).map_err(|name| format!("link {name}: no place is free"))?;
        Ok(Box::new(self.prepare(new, &[], &places)?))
    }

    fn watched(&self) -> &'static [Watched] {
        if self.watches { &WATCHED } else { &[] }
    }

    /// The refusals of the balances of all routes, and how often their next hops were left out;
    /// nothing without one.
    fn tell(&self) -> PartStatus {
        let now = self.links.planes().handlers();
        let own = self.attached();
        let is_own = |one: &&HandlerNow| own.iter().any(|attached| attached.id == one.id);
        let balances = now.iter().filter(is_own).filter_map(|one| one.balance.as_ref());
        let counters = watched_counters(balances.map(FlowBalanceCounts::watched));
        PartStatus { counters, ..PartStatus::default() }
    }

    /// Recorders write their queues and end when their handlers are gone.
    fn stop(&self) {
        let recorders = std::mem::take(&mut self.lock().recorders);
        for (id, recorder) in recorders {
            // A worker that has ended has no handlers.
            let _gone = self.links.planes().detach(id);
            drop(recorder);
        }
    }
}

/// Changes of balances that are events.
static WATCHED: [Watched; 3] = [
    Watched {
        name: "flows_refused",
        when: When::Grows,
        level: LogLevel::Warning,
        kind: "flow-refused",
        text: "no next hop can carry flows of a route within their bounds; more next hops, or a \
               wider bound, would",
    },
    Watched {
        name: "relays_left_out",
        when: When::Grows,
        level: LogLevel::Warning,
        kind: "relay-left-out",
        text: "next hops of routes with a balance do not tell their link-layer addresses, and their \
               flows go to others; `status` says which",
    },
    Watched {
        name: "relays_back",
        when: When::Grows,
        level: LogLevel::Info,
        kind: "relay-back",
        text: "next hops of routes with a balance carry flows again",
    },
];

/// Handlers that are attached as soon as their wiring is exchanged.
struct StagedHandlers {
    handlers: Handlers,
    prepared: Prepared,
    /// In the order of the wiring; their ids come when it is exchanged.
    attached: Vec<(Attached, Option<Recorder>)>,
}

impl StagedHandlers {
    /// Exchanges the wiring; removed handlers end their files.
    fn put_in_force(self) -> Result<(), RunError> {
        let Self { handlers, prepared, attached } = self;
        let ids = prepared.ids();
        handlers.links.planes().commit(prepared)?;
        let mut standing = handlers.lock();
        standing.attached.clear();
        for (id, (attached, recorder)) in ids.into_iter().zip(attached) {
            standing.recorders.extend(recorder.map(|recorder| (id, recorder)));
            standing.attached.push(Attached { id, ..attached });
        }
        let Standing { attached, recorders } = &mut *standing;
        let goes = |(id, _): &mut (AttachmentId, Recorder)| {
            attached.iter().all(|attached| attached.id != *id)
        };
        let gone: Vec<_> = recorders.extract_if(.., goes).collect();
        drop(standing);
        drop(gone);
        Ok(())
    }
}

impl Staged for StagedHandlers {
    fn commit(self: Box<Self>) -> Result<Vec<Change>, Unable> {
        self.put_in_force()?;
        Ok(Vec::new())
    }

    fn undo(self: Box<Self>) {}
}

/// Those of `all` that fit beside the ones before them; the others are given to `dropped`, each with
/// its own error.
fn each_that_fits<T: Clone, E>(
    all: &[T],
    fits: impl Fn(&[T]) -> Result<(), E>,
    dropped: impl Fn(&T, E),
) -> Vec<T> {
    let mut standing = Vec::new();
    for one in all {
        standing.push(one.clone());
        if let Err(error) = fits(&standing) {
            standing.pop();
            dropped(one, error);
        }
    }
    standing
}

/// A handler that is not attached yet.
struct Made {
    name: &'static str,
    placement: Placement,
    attachment: Attachment,
    recorder: Option<Recorder>,
}

/// A handler's position.
fn attachment(attach: &config::Attach, names: &[String]) -> Attachment {
    Attachment {
        at: attach.at.value,
        side: attach.side,
        place: attach.place,
        link: attach.link.as_ref().and_then(|name| link_of(names, name)),
    }
}

fn drop_matching(matching: config::Match) -> HandlerValue {
    let subnet = |prefix: config::Prefix| (prefix.address(), prefix.length());
    let which = Match {
        source: matching.source.map(subnet),
        destination: matching.destination.map(subnet),
        protocol: matching.protocol.map(IpProtocol),
        port: matching.port,
    };
    HandlerValue::Drop { which }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn one_that_does_not_fit_takes_no_other_with_it() {
        let told = RefCell::new(Vec::new());
        let fits = |some: &[u32]| if some.contains(&2) { Err("no link") } else { Ok(()) };
        let dropped = |one: &u32, error| told.borrow_mut().push((*one, error));
        assert_eq!(each_that_fits(&[1, 2, 3], fits, dropped), [1, 3]);
        assert_eq!(told.into_inner(), [(2, "no link")]);
    }
}
