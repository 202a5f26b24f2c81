//! A running gateway takes another description.
//!
//! Everything that can fail is done before what cannot, and is undone if something else fails: a
//! description is in force as a whole or not at all. Handlers change by one exchange of the wiring;
//! addresses and settings of a link by one snapshot of the host; a route from one next hop to the
//! next, so that no destination that both descriptions have is ever without.

use crate::{
    Configured, GatewayError, Pace, RunError,
    configured::{Attached, link_setup, refuse_what_is_not_there, static_routes},
    control::{Origin, Post, Prepared},
    difference::{Change, differences},
    handlers::{self, Made, link_of},
    recorder::Recorder,
    reopen::Reopen,
    setup::{LinkSetup, StaticRoute},
    start::interface,
};
use gatewright_config::{self as config, Config};
use gatewright_packet::LinkIndex;
use gatewright_stack::{AttachmentId, HostError, Interface};

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

impl From<GatewayError> for ReloadError {
    fn from(source: GatewayError) -> Self {
        Self::Run(source.into())
    }
}

fn list(changes: &[Change]) -> String {
    changes.iter().map(Change::to_string).collect::<Vec<_>>().join("; ")
}

/// What the host is to have.
struct Wanted {
    interfaces: Vec<Interface>,
    routes: Vec<StaticRoute>,
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
    /// opened anew.
    ///
    /// # Errors
    ///
    /// [`ReloadError`]; then the gateway is as it was.
    pub fn reload(&mut self, config: &Config) -> Result<Vec<Change>, ReloadError> {
        refuse_what_is_not_there(config)?;
        let mut changes = differences(&self.config, config);
        if changes.iter().any(|change| change.restart) {
            changes.retain(|change| change.restart);
            return Err(ReloadError::Restart(changes));
        }
        let old = self.config.clone();
        let before = self.wanted(&old)?;
        let handlers = self.new_handlers(config)?;
        let reopened = self.reopen_links(&old, config)?;
        let applied = self.wanted(config).and_then(|after| {
            self.furnish(&before, &after)?;
            self.exchange_relays(&old, config).inspect_err(|_| {
                // What was there a moment ago fits.
                let _fits = self.furnish(&after, &before);
            })
        });
        if let Err(error) = applied {
            // What was open a moment ago can be opened, or the link says that it is closed.
            let _closed = self.reopen_links(config, &old);
            return Err(error.into());
        }
        self.commit(handlers)?;
        let spin = config.links.iter().map(|link| link.spin).max().unwrap_or_default();
        self.gateway.set_pace(Pace { spin })?;
        self.config = config.clone();
        changes.extend(reopened);
        Ok(changes)
    }

    /// The description in force.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The links of a description in the order in which they run.
    fn setups(&self, config: &Config) -> Result<Vec<LinkSetup>, RunError> {
        let by_name = config.links.iter().filter_map(|link| {
            Some((link_of(&self.names, &link.name)?, link)) // a new link was refused
        });
        let mut setups = by_name
            .map(|(index, link)| Ok((index, link_setup(index, link)?)))
            .collect::<Result<Vec<(LinkIndex, LinkSetup)>, RunError>>()?;
        setups.sort_by_key(|(index, _)| *index);
        Ok(setups.into_iter().map(|(_, setup)| setup).collect())
    }

    fn wanted(&self, config: &Config) -> Result<Wanted, RunError> {
        let setups = self.setups(config)?;
        let interfaces = self.gateway.change(|control| {
            let opened = control.links.iter().map(|(_, info)| info);
            setups.iter().zip(opened).map(|(setup, info)| interface(setup, info)).collect()
        });
        Ok(Wanted { interfaces, routes: static_routes(config, &self.names)? })
    }

    /// Makes the handlers that `config` adds, and the wiring in which they stand in its order, those
    /// that came by command behind them.
    fn new_handlers(&self, config: &Config) -> Result<NewHandlers, ReloadError> {
        let mut standing: Vec<_> = self.attached.iter().map(Some).collect();
        let (mut posts, mut attached) = (Vec::new(), Vec::new());
        for attach in &config.attachments {
            let same = |place: &&mut Option<&Attached>| {
                place.is_some_and(|standing| standing.described.as_ref() == Some(attach))
            };
            if let Some(stays) = standing.iter_mut().find(same).and_then(Option::take) {
                posts.push(Post::Kept(stays.id));
                attached.push((stays.clone(), None));
                continue;
            }
            let Made { name, attachment, handler, count, missed, recorder } =
                handlers::make(attach, &self.names)?;
            posts.push(Post::New(attachment, handler));
            let (id, described) = (AttachmentId(0), Some(attach.clone()));
            attached.push((Attached { id, name, attachment, count, missed, described }, recorder));
        }
        for by_command in standing.into_iter().flatten().filter(|one| one.described.is_none()) {
            posts.push(Post::Kept(by_command.id));
            attached.push((by_command.clone(), None));
        }
        // What an embedder or a live capture has attached is no affair of the description's.
        let others = self.gateway.change(|control| control.handlers());
        let own = |id| self.attached.iter().any(|attached| attached.id == id);
        posts
            .extend(others.into_iter().filter(|(id, ..)| !own(*id)).map(|(id, ..)| Post::Kept(id)));
        Ok(NewHandlers { prepared: self.gateway.prepare(posts)?, attached })
    }

    /// Exchanges the wiring; handlers that are gone end their files.
    fn commit(&mut self, new: NewHandlers) -> Result<(), GatewayError> {
        let NewHandlers { prepared, attached } = new;
        let ids = prepared.ids.clone();
        self.gateway.commit(prepared)?;
        self.attached.clear();
        for (id, (attached, recorder)) in ids.into_iter().zip(attached) {
            self.recorders.extend(recorder.map(|recorder| (id, recorder)));
            self.attached.push(Attached { id, ..attached });
        }
        let standing = &self.attached;
        self.recorders.retain(|(id, _)| standing.iter().any(|attached| attached.id == *id));
        Ok(())
    }

    /// Opens anew the links whose device differs; all of them or none.
    fn reopen_links(&self, old: &Config, new: &Config) -> Result<Vec<Change>, RunError> {
        let (old, new) = (self.setups(old)?, self.setups(new)?);
        let mut done: Vec<(&str, Reopen)> = Vec::new();
        let mut told = Vec::new();
        for (old, new) in old.iter().zip(&new).filter(|(old, new)| old.device != new.device) {
            let order = Reopen { device: new.device.clone(), before: old.device.clone() };
            match self.gateway.reopen(&new.name, order.clone()) {
                Ok(reopened) => {
                    let how = format!(
                        "opened anew by {}, {}; it took no frames for {} ms",
                        reopened.info.mode,
                        reopened.info.why,
                        reopened.pause.as_millis()
                    );
                    told.push(Change::new(format!("link {}", new.name), how));
                    done.push((&new.name, order));
                }
                Err(error) => {
                    for (name, Reopen { device, before }) in done {
                        let back = Reopen { device: before, before: device };
                        // A link that does not come back says so itself.
                        let _closed = self.gateway.reopen(name, back);
                    }
                    return Err(error.into());
                }
            }
        }
        Ok(told)
    }

    /// Gives the host what is in `after` and takes what was in `before` only.
    fn furnish(&self, before: &Wanted, after: &Wanted) -> Result<(), RunError> {
        let furnished = self.gateway.change(|control| -> Result<(), HostError> {
            for (before, after) in before.interfaces.iter().zip(&after.interfaces) {
                if before != after {
                    control.refurnish(before, after)?;
                }
            }
            for route in after.routes.iter().filter(|route| !before.routes.contains(route)) {
                control.add_static(*route, Origin::Configured)?;
            }
            for gone in &before.routes {
                if after.routes.iter().all(|route| route.to != gone.to) {
                    control.remove_static(gone.to, Origin::Configured);
                }
            }
            Ok(())
        });
        furnished.map_err(|error| GatewayError::from(error).into())
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
