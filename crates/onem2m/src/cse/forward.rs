//! Forwarding of requests to another CSE, or to the next one on the way (TS-0001 §10.2.1).

use super::calls::{Purpose, device_of, is_device_like};
use super::polling::EntityRoute;
use super::{Cse, Refusal, RequestContext, denied, not_found};
use crate::address::cse_of;
use crate::primitive::{Request, Serialisation};
use crate::resource::Resource;
use crate::resource_type::ResourceType;
use crate::status::Status;
use crate::tree::Slot;
use serde_json::{Map, Value};

impl Cse {
    /// Forwards a request for the resource `path` of the CSE `cse`.
    pub(super) fn forward(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        from: &str,
        (cse, path): (&str, &str),
    ) -> Result<(), Refusal> {
        let known = self.is_registered(from)
            || (from.starts_with('/') && self.is_beyond(cse_of(from)))
            || from == self.config.cse_id
            || self.config.admin.as_deref() == Some(from);
        if !known {
            return Err(denied());
        }
        let hop = self
            .next_hop(cse, from)
            .ok_or_else(|| not_found(format!("no CSE {cse} is registered here")))?;
        let route = self.route_to(hop)?;
        let mut onward = request.clone();
        // Two originators may have called theirs the same: answers are told apart by it, and get the
        // originator's own put back (`RequestContext::id`).
        onward.id = self.next_request_id();
        onward.to = if path.is_empty() { cse.to_owned() } else { format!("{cse}/{path}") };
        if !from.starts_with('/') {
            onward.from = format!("{}/{from}", self.config.cse_id);
        }
        self.counters.forwarded += 1;
        self.send(route, onward, Purpose::Forward(asker.clone()), from)
    }

    /// Route to a registered AE or CSE.
    pub(super) fn route_to(&self, entity: Slot) -> Result<EntityRoute, Refusal> {
        let resource = self.resource(entity)?;
        match resource.resource_type {
            ResourceType::ApplicationEntity => {
                // Only the process itself has given an address like that: see `check_ways`.
                if let Some(device) = resource.texts("poa").find_map(device_of) {
                    return Ok(EntityRoute::Device(device.to_owned()));
                }
            }
            ResourceType::RemoteCse => {}
            // What its maker calls poa is no point of access.
            _ => return Err(not_found("it takes no requests: it is no AE and no CSE")),
        }
        match (reachable_at(resource), self.channel_of(entity)) {
            (Err(_), Some(channel)) => Ok(EntityRoute::Channel(channel)),
            (urls, _) => Ok(EntityRoute::Urls(urls?, serialisation_of(resource))),
        }
    }

    /// Refuses addresses of devices in any attribute: they would let an originator reach a device
    /// without its AE and the AE's policies.
    pub(super) fn check_addresses<'text>(
        mut addresses: impl Iterator<Item = &'text str>,
    ) -> Result<(), Refusal> {
        if addresses.any(is_device_like) {
            return Err(Refusal::bad(
                "device: is no address that can be given: a device has its AE",
            ));
        }
        Ok(())
    }

    /// Checks the addresses in a resource's attributes, unless the process itself gives them.
    pub(super) fn check_ways(
        asker: &RequestContext,
        given: &Map<String, Value>,
    ) -> Result<(), Refusal> {
        if asker.is_own {
            return Ok(());
        }
        let lists = ["poa", "nu"].into_iter().filter_map(|name| given.get(name)?.as_array());
        let single = given.get("su").and_then(Value::as_str);
        Self::check_addresses(lists.flatten().filter_map(Value::as_str).chain(single))
    }

    /// The remoteCSE on the way to `cse`: itself, one that has it below, or the registrar. A
    /// request from the registrar does not go back to it, which would be a loop.
    pub(super) fn next_hop(&self, cse: &str, from: &str) -> Option<Slot> {
        if let Some(direct) = self.remote_cse(cse) {
            return Some(direct);
        }
        let root = self.tree.root()?;
        let below = self.tree.children(root).find(|&child| {
            self.tree.get(child).is_some_and(|it| it.texts("dcse").any(|below| below == cse))
        });
        if below.is_some() {
            return below;
        }
        let registrar = self.config.registrar.as_ref()?;
        let from_above = from.starts_with('/') && from.starts_with(registrar.cse_id.as_str());
        if from_above { None } else { self.remote_cse(&registrar.cse_id) }
    }
}

/// Serialisation for an entity: "it shall use one of the serializations specified in that <AE>'s
/// contentSerialization attribute" (TS-0004 §7.5.1.1). `None` if it leaves the choice.
fn serialisation_of(entity: &Resource) -> Option<Serialisation> {
    let speaks = |wanted: Serialisation| entity.texts("csz").any(|it| wanted.is_called(it));
    match (speaks(Serialisation::Json), speaks(Serialisation::Cbor)) {
        (false, true) => Some(Serialisation::Cbor),
        (true, false) => Some(Serialisation::Json),
        _ => None,
    }
}

/// The URLs of an entity's points of access.
fn reachable_at(entity: &Resource) -> Result<Vec<String>, Refusal> {
    let urls: Vec<String> = entity.texts("poa").map(str::to_owned).collect();
    if urls.is_empty() || !entity.flag("rr") {
        return Err(Refusal::new(
            Status::TargetNotReachable,
            "the entity takes no requests: it has no point of access",
        ));
    }
    Ok(urls)
}
