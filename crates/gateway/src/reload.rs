//! A running gateway takes another description.
//!
//! Everything that can fail is done before what cannot, and is undone if something else fails: a
//! description is in force as a whole or not at all. Handlers change by one exchange of the wiring;
//! addresses and settings of a link by one snapshot of the host; a route from one next hop to the
//! next, so that no destination that both descriptions have is ever without.

use crate::{
    Configured, RunError,
    configured::{Attached, refuse_what_is_not_there, setup},
    difference::{Change, differences},
    handlers::{self, Made},
    part::{Unable, Undo},
    recorder::Recorder,
};
use gatewright_config::{self as config, Config};
use gatewright_packet::LinkIndex;
use gatewright_planes::{Pace, Placement, PlanesError, Prepared, ReopenedLink};
use gatewright_stack::AttachmentId;

/// Why a running gateway did not take a description. It runs on as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// Some of it needs a gateway that is started anew.
    #[error("nothing is changed, as this needs a restart: {}", list(.0))]
    Restart(Vec<Change>),
    /// Some of it did not work.
    #[error("nothing is changed: {0}")]
    Run(#[from] RunError),
}

impl From<PlanesError> for ReloadError {
    fn from(source: PlanesError) -> Self {
        Self::Run(source.into())
    }
}

impl ReloadError {
    /// What of the description is refused, by its keys, and whether a gateway that is started anew
    /// takes it.
    pub fn refused(&self) -> (Vec<Change>, bool) {
        match self {
            Self::Restart(changes) => (changes.clone(), true),
            Self::Run(RunError::Part(Unable { key: Some(key), why })) => {
                (vec![Change::new(key, why)], false)
            }
            Self::Run(_) => (Vec::new(), false),
        }
    }
}

fn list(changes: &[Change]) -> String {
    changes.iter().map(Change::to_string).collect::<Vec<_>>().join("; ")
}

/// Handlers that stand as soon as their wiring is exchanged.
struct NewHandlers {
    prepared: Prepared,
    /// In the order of the wiring; their ids come when it is exchanged.
    attached: Vec<(Attached, Option<Recorder>)>,
}

impl Configured {
    /// Takes `config` for the description in force; what has changed.
    ///
    /// Handlers and routes that came by command stay. A link whose device changes is closed and
    /// opened anew; links come and go.
    ///
    /// # Errors
    ///
    /// [`ReloadError`]; then the gateway is as it was.
    pub fn reload(&mut self, config: &Config) -> Result<Vec<Change>, ReloadError> {
        refuse_what_is_not_there(config)?;
        let mut changes = differences(&self.config, config);
        for part in self.parts() {
            part.tell_differences(&self.config, config, &mut changes);
        }
        if changes.iter().any(|change| change.restart) {
            changes.retain(|change| change.restart);
            return Err(ReloadError::Restart(changes));
        }
        let names = self.places(config)?;
        let before = std::mem::replace(&mut self.names, names);
        match self.take(config, &before) {
            Ok(reopened) => {
                changes.extend(reopened);
                Ok(changes)
            }
            Err(error) => {
                self.names = before;
                Err(error)
            }
        }
    }

    /// Takes `config`, whose links have their places already; `places` were those before.
    fn take(&mut self, config: &Config, places: &[String]) -> Result<Vec<Change>, ReloadError> {
        // First, as handlers stand at messages of programs that have come.
        let undo = self.exchange_parts(config)?;
        let taken = self.take_all(config, places);
        if taken.is_err() {
            undo.into_iter().rev().for_each(|undo| undo());
        }
        taken
    }

    /// Takes what of `config` is not the parts' own.
    fn take_all(&mut self, config: &Config, places: &[String]) -> Result<Vec<Change>, ReloadError> {
        let old = self.config.clone();
        // First, as they take ids of the same row.
        let messages = self.attach_new_messages(&old, config)?;
        let handlers = self.new_handlers(config, places);
        let taken = handlers.and_then(|of| self.take_rest(config, &old, places, of));
        match taken {
            Ok(reopened) => {
                self.detach_old_messages(config);
                Ok(reopened)
            }
            Err(error) => {
                self.detach_all(&messages);
                Err(error)
            }
        }
    }

    /// Takes what of `config` is not the handlers at messages.
    fn take_rest(
        &mut self,
        config: &Config,
        old: &Config,
        places: &[String],
        handlers: NewHandlers,
    ) -> Result<Vec<Change>, ReloadError> {
        let (then, now) = (setup(old, places, self.seed)?, setup(config, &self.names, self.seed)?);
        let exchanged = self.planes.exchange(&then, &now)?;
        if let Err(error) = self.exchange(old, config) {
            self.planes.undo(exchanged);
            return Err(error.into());
        }
        self.commit(handlers)?;
        self.planes.set_pace(Pace { spin: now.spin })?;
        if self.config.cse != config.cse || self.config.devices != config.devices {
            self.parts().iter().for_each(|part| part.take(config));
        }
        self.config = config.clone();
        Ok(exchanged.reopened().iter().map(reopened).collect())
    }

    /// The names of the links by their places when `config` is in force: links that stay keep
    /// theirs, and those that come get one that is free.
    fn places(&self, config: &Config) -> Result<Vec<String>, ReloadError> {
        let stays = |name: &String| config.links.iter().any(|link| link.name.value == *name);
        let mut names: Vec<String> = (self.names.iter())
            .map(|name| if stays(name) { name.clone() } else { String::new() })
            .collect();
        let come = config.links.iter().map(|link| &link.name.value);
        for name in come.filter(|name| !self.names.contains(name)) {
            let Some(place) = names.iter_mut().find(|place| place.is_empty()) else {
                let how = "added, and no further link fits beside those of the start";
                return Err(ReloadError::Restart(vec![Change::restart(
                    format!("link {name}"),
                    how,
                )]));
            };
            place.clone_from(name);
        }
        Ok(names)
    }

    /// The description in force.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Makes the handlers that `config` adds, and the wiring in which they stand in its order, those
    /// that came by command behind them. Those of links that go, go with them.
    fn new_handlers(&self, config: &Config, places: &[String]) -> Result<NewHandlers, ReloadError> {
        let goes = |attached: &Attached| {
            let link = attached.attachment.link.map(LinkIndex::index);
            link.is_some_and(|link| self.names.get(link) != places.get(link))
        };
        let mut standing: Vec<_> = self.attached.iter().map(Some).collect();
        let (mut placements, mut attached) = (Vec::new(), Vec::new());
        for attach in &config.attachments {
            let same = |place: &&mut Option<&Attached>| {
                place.is_some_and(|one| one.described.as_ref() == Some(attach) && !goes(one))
            };
            if let Some(stays) = standing.iter_mut().find(same).and_then(Option::take) {
                placements.push(Placement::Kept(stays.id));
                attached.push((stays.clone(), None));
                continue;
            }
            let Made { name, attachment, handler, count, missed, recorder } =
                handlers::make(attach, &self.names)?;
            placements.push(Placement::New(attachment, handler));
            let (id, described) = (AttachmentId(0), Some(attach.clone()));
            attached.push((Attached { id, name, attachment, count, missed, described }, recorder));
        }
        let by_command = standing.into_iter().flatten().filter(|one| one.described.is_none());
        for by_command in by_command.filter(|one| !goes(one)) {
            placements.push(Placement::Kept(by_command.id));
            attached.push((by_command.clone(), None));
        }
        // What an embedder or a live capture has attached is no affair of the description's.
        let own = |id| self.attached.iter().any(|attached| attached.id == id);
        let others = self.planes.handlers().into_iter().filter(|(id, ..)| !own(*id));
        placements.extend(others.map(|(id, ..)| Placement::Kept(id)));
        Ok(NewHandlers { prepared: self.planes.prepare(placements)?, attached })
    }

    /// Exchanges the wiring; handlers that are gone end their files.
    fn commit(&mut self, new: NewHandlers) -> Result<(), PlanesError> {
        let NewHandlers { prepared, attached } = new;
        let ids = prepared.ids().to_vec();
        self.planes.commit(prepared)?;
        self.attached.clear();
        for (id, (attached, recorder)) in ids.into_iter().zip(attached) {
            self.recorders.extend(recorder.map(|recorder| (id, recorder)));
            self.attached.push(Attached { id, ..attached });
        }
        let standing = &self.attached;
        self.recorders.retain(|(id, _)| standing.iter().any(|attached| attached.id == *id));
        Ok(())
    }

    /// Exchanges what stands beside the links; all of it or nothing.
    fn exchange(&mut self, old: &Config, new: &Config) -> Result<(), RunError> {
        self.exchange_relays(old, new)?;
        let exchanged = self.exchange_proxies(old, new).and_then(|()| {
            self.serve_control(old, new).inspect_err(|_| {
                // Ports that were ours a moment ago are free.
                let _free = self.exchange_proxies(new, old);
            })
        });
        exchanged.inspect_err(|_| {
            let _free = self.exchange_relays(new, old);
        })
    }

    /// Has the parts take what they may be unable to; how each undoes it.
    fn exchange_parts(&self, new: &Config) -> Result<Vec<Undo>, RunError> {
        let mut done: Vec<Undo> = Vec::new();
        for taken in self.parts().iter().filter_map(|part| part.exchange(new)) {
            match taken {
                Ok(undo) => done.push(undo),
                Err(why) => {
                    done.into_iter().rev().for_each(|undo| undo());
                    return Err(RunError::Part(why));
                }
            }
        }
        Ok(done)
    }

    /// Ends the TCP proxies that have changed, with their connections, and starts those that come; all
    /// of them or none.
    fn exchange_proxies(&self, old: &Config, new: &Config) -> Result<(), RunError> {
        let (old, new) = (&old.tcp_proxies, &new.tcp_proxies);
        let gone: Vec<_> = old.iter().filter(|proxy| !new.contains(proxy)).collect();
        let come = new.iter().filter(|proxy| !old.contains(proxy));
        // Whoever listens where another one does can begin only when that one has ended; the others
        // begin first, so that what fails cuts no connection.
        let taken = |proxy: &config::TcpProxy| {
            gone.iter().any(|gone| {
                gone.listen.value == proxy.listen.value || gone.name.value == proxy.name.value
            })
        };
        let (later, first): (Vec<_>, Vec<_>) = come.partition(|proxy| taken(proxy));
        self.start_proxies(&first)?;
        self.end_proxies(&gone);
        if let Err(error) = self.start_proxies(&later) {
            self.end_proxies(&first);
            // Their ports were their own a moment ago.
            let _free = self.start_proxies(&gone);
            return Err(error);
        }
        Ok(())
    }

    /// Starts all of them or none.
    fn start_proxies(&self, proxies: &[&config::TcpProxy]) -> Result<(), RunError> {
        for (at, proxy) in proxies.iter().enumerate() {
            if let Err(error) = self.proxy(proxy) {
                self.end_proxies(proxies.get(..at).unwrap_or_default());
                return Err(error);
            }
        }
        Ok(())
    }

    fn end_proxies(&self, proxies: &[&config::TcpProxy]) {
        for proxy in proxies {
            self.tcp_proxies.end(&proxy.name.value);
        }
    }

    /// Has control socket and metrics page served as `new` says, if it says something else.
    fn serve_control(&mut self, old: &Config, new: &Config) -> Result<(), RunError> {
        if old.control == new.control { Ok(()) } else { self.rim.serve(&new.control) }
    }

    /// Ends the UDP gateways that have changed and starts those that come; all of them or none.
    fn exchange_relays(&mut self, old: &Config, new: &Config) -> Result<(), RunError> {
        let gone: Vec<_> =
            old.udp_gateways.iter().filter(|relay| !new.udp_gateways.contains(relay)).collect();
        self.end_relays(&gone);
        let mut started = Vec::new();
        for relay in new.udp_gateways.iter().filter(|relay| !old.udp_gateways.contains(relay)) {
            if let Err(error) = self.relay(relay) {
                self.end_relays(&started);
                for relay in gone {
                    // Its port was its own a moment ago.
                    let _free = self.relay(relay);
                }
                return Err(error);
            }
            started.push(relay);
        }
        Ok(())
    }

    fn end_relays(&mut self, relays: &[&config::UdpGateway]) {
        self.udp_gateways.retain(|(name, _)| relays.iter().all(|relay| relay.name.value != *name));
    }
}

/// A link that was opened, as a change that is told.
fn reopened(link: &ReopenedLink) -> Change {
    let (mode, why) = (&link.info.mode, &link.info.why);
    let how = if link.is_new {
        format!("opened by {mode}, {why}")
    } else {
        let pause = link.pause.as_millis();
        format!("opened anew by {mode}, {why}; it took no frames for {pause} ms")
    };
    Change::new(format!("link {}", link.name), how)
}
