//! The neighbours of a gateway: learnt by the worker, set by the control side, shown in tables.

use crate::{Planes, control::Control, setup::StaticNeighbour};
use gatewright_data::{Forget, Port, PortRequest};
use gatewright_packet::{LinkAddress, LinkIndex};
use gatewright_tables::records::{self, Neighbour, NeighbourKey};
use serde::Serialize;
use std::net::IpAddr;

/// A neighbour at one moment.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct NeighbourStatus {
    /// The link.
    pub link: String,
    /// Its address.
    pub address: IpAddr,
    /// Its link-layer address, if it is known.
    pub mac: Option<String>,
    /// `incomplete`, `reachable`, `stale`, `delay`, `probe` or `permanent` (RFC 4861 §7.3.2).
    pub state: &'static str,
}

impl Planes {
    /// The neighbours on all links, as the data plane knows them now.
    ///
    /// # Errors
    ///
    /// Why the worker cannot answer, in words for the operator.
    pub fn neighbours(&self) -> Result<Vec<NeighbourStatus>, String> {
        self.look_at_neighbours(None)?;
        let mut list: Vec<_> = self.change(|control| {
            let known = control.host.tables().neighbours;
            let known = known.iter().filter_map(Result::ok);
            known.map(|(key, record)| neighbour_status(control, key, record)).collect()
        });
        list.sort();
        Ok(list)
    }

    /// Sets a permanent neighbour, which is neither resolved nor evicted.
    ///
    /// # Errors
    ///
    /// Why it cannot be set, in words for the operator.
    pub fn add_neighbour(
        &self,
        address: IpAddr,
        mac: &str,
        link: Option<&str>,
    ) -> Result<NeighbourStatus, String> {
        let station: LinkAddress = mac.parse().map_err(|error| format!("{mac}: {error}"))?;
        if !station.is_unicast() {
            return Err(format!("{mac} is a group's address or reserved, no neighbour's"));
        }
        let link = self.link_of_neighbour(address, link)?;
        self.refuse_width(link, station)?;
        let (key, record) = permanent(StaticNeighbour { link, address, station });
        let status = self.change(|control| {
            let set = control.host.tables_mut().permanent.set(&key, &record);
            set.map_err(|error| error.to_string())?;
            Ok::<_, String>(neighbour_status(control, key, record))
        })?;
        self.look_at_neighbours(None)?;
        Ok(status)
    }

    /// Sets the static neighbours that are only in `new`, and forgets those that are only in `old`.
    /// Those of commands stay.
    ///
    /// # Errors
    ///
    /// Why one cannot be set, in words for the operator; then the old ones are set.
    pub fn exchange_neighbours(
        &self,
        old: &[StaticNeighbour],
        new: &[StaticNeighbour],
    ) -> Result<(), String> {
        if old == new {
            return Ok(());
        }
        let set = self.set_neighbours(old, new);
        if set.is_err() {
            // What was there a moment ago fits.
            let _fits = self.set_neighbours(new, old);
        }
        set
    }

    fn set_neighbours(
        &self,
        old: &[StaticNeighbour],
        new: &[StaticNeighbour],
    ) -> Result<(), String> {
        for one in new {
            self.refuse_width(one.link, one.station)?;
        }
        let set = self.change(|control| {
            let table = &mut control.host.tables_mut().permanent;
            for (key, _) in old.iter().filter(|one| !new.contains(one)).map(|one| permanent(*one)) {
                table.remove(&key);
            }
            // Those of a process that was adopted are there, and are set again.
            new.iter().map(|one| permanent(*one)).try_for_each(|(key, record)| {
                table
                    .set(&key, &record)
                    .map(drop)
                    .map_err(|error| format!("{}: {error}", key.address))
            })
        });
        set?;
        self.look_at_neighbours(None)
    }

    /// Forgets a neighbour that was set or learnt.
    ///
    /// # Errors
    ///
    /// Why it cannot be forgotten, in words for the operator.
    pub fn remove_neighbour(
        &self,
        address: IpAddr,
        link: Option<&str>,
    ) -> Result<NeighbourStatus, String> {
        let link = self.link_of_neighbour(address, link)?;
        let key = NeighbourKey { link: link.0, address };
        self.look_at_neighbours(None)?;
        let known = self.change(|control| {
            control.host.tables_mut().permanent.remove(&key);
            let known = control.host.tables().neighbours.get(&key).ok().flatten();
            known.map(|record| neighbour_status(control, key, record))
        });
        let known = known.ok_or_else(|| format!("{address} is no neighbour that is known"))?;
        self.look_at_neighbours(Some(Forget { link: Some(link), address: Some(address) }))?;
        Ok(known)
    }

    /// Forgets all learnt neighbours, or those of one link; returns the neighbours known before.
    ///
    /// # Errors
    ///
    /// Why they cannot be forgotten, in words for the operator.
    pub fn flush_neighbours(&self, link: Option<&str>) -> Result<Vec<NeighbourStatus>, String> {
        let index = link.map(|name| self.link(name)).transpose()?;
        self.refuse_shared(index)?;
        let mut known = self.neighbours()?;
        known.retain(|one| one.state != "permanent" && link.is_none_or(|name| one.link == name));
        self.look_at_neighbours(Some(Forget { link: index, address: None }))?;
        Ok(known)
    }

    /// The link of a neighbour's address: the named one, or the one whose network contains the
    /// address.
    fn link_of_neighbour(&self, address: IpAddr, link: Option<&str>) -> Result<LinkIndex, String> {
        self.refuse_without_links("neighbour")?;
        let named = link.map(|name| self.link(name)).transpose()?;
        let found = named.or_else(|| {
            self.change(|control| {
                let local = matches!(address, IpAddr::V6(ip) if ip.is_unicast_link_local());
                let interfaces = control.host.interfaces().iter().filter(|_| !local);
                let near = |own: &&gatewright_stack::Interface| {
                    own.usable().any(|own| own.covers(address))
                };
                interfaces.into_iter().find(near).map(|own| own.link)
            })
        });
        let link = found.ok_or_else(|| format!("on which link is {address}? name its `link`"))?;
        self.refuse_shared(Some(link))?;
        Ok(link)
    }

    /// Refuses what needs a link where there is none.
    pub(crate) fn refuse_without_links(&self, what: &str) -> Result<(), String> {
        if self.change(|control| control.host.interfaces().is_empty()) {
            return Err(format!("the gateway has no links, so there is no {what}"));
        }
        Ok(())
    }

    /// Refuses a link-layer address that no station of the link can have.
    fn refuse_width(&self, link: LinkIndex, station: LinkAddress) -> Result<(), String> {
        let own = self.change(|control| {
            let own = control.host.interfaces().iter().find(|own| own.link == link)?;
            Some((own.name.clone(), own.link_address))
        });
        match own {
            Some((name, own)) if !own.shares_links_with(station) => Err(format!(
                "{station} has {} octets, and the address of {name} is {own}",
                station.width()
            )),
            _ => Ok(()),
        }
    }

    /// Refuses links whose neighbours the kernel keeps; of no link in particular, if it keeps all.
    fn refuse_shared(&self, link: Option<LinkIndex>) -> Result<(), String> {
        let shared = self.change(|control| {
            let interfaces = control.host.interfaces().iter();
            let mut asked = interfaces.filter(|own| link.is_none_or(|link| link == own.link));
            let first = asked.next().filter(|own| own.shared)?;
            asked.all(|own| own.shared).then(|| first.name.clone())
        });
        match shared {
            Some(name) => Err(format!("the kernel keeps the neighbours of {name}: `ip neigh`")),
            None => Ok(()),
        }
    }

    /// Makes the worker forget, take newly set neighbours, and write down what it knows.
    fn look_at_neighbours(&self, forget: Option<Forget>) -> Result<(), String> {
        let looked = self.port().ask(PortRequest::LookAtNeighbours(forget));
        looked.map(drop).map_err(|error| error.to_string())
    }
}

/// The record of a neighbour that was set.
const fn permanent(
    StaticNeighbour { link, address, station }: StaticNeighbour,
) -> (NeighbourKey, Neighbour) {
    let state = records::NeighbourState::Permanent;
    (NeighbourKey { link: link.0, address }, Neighbour { address: station, state, router: false })
}

fn neighbour_status(control: &Control, key: NeighbourKey, record: Neighbour) -> NeighbourStatus {
    NeighbourStatus {
        link: (control.links.get(usize::from(key.link)))
            .map_or_else(String::new, |(name, _)| name.clone()),
        address: key.address,
        mac: (!record.address.is_none()).then(|| record.address.to_string()),
        state: match record.state {
            records::NeighbourState::Incomplete => "incomplete",
            records::NeighbourState::Reachable => "reachable",
            records::NeighbourState::Stale => "stale",
            records::NeighbourState::Delay => "delay",
            records::NeighbourState::Probe => "probe",
            records::NeighbourState::Failed => "failed",
            records::NeighbourState::Permanent => "permanent",
        },
    }
}
