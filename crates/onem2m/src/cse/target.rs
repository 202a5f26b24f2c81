//! Resolution of target addresses on this CSE.

use super::access::{Originator, Right};
use super::{Cse, Refusal, RequestContext, Token, not_allowed, not_found};
use crate::address::Address;
use crate::primitive::{Operation, Request};
use crate::resource_type::ResourceType;
use crate::tree::Slot;

/// A resolved target.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Target<'request> {
    Resource(Slot),
    Latest(Slot),
    Oldest(Slot),
    /// A group's fan-out point, and the path below each member.
    FanOut(Slot, &'request str),
    Polling(Slot),
}

impl Cse {
    /// An originator's local form: this CSE's own AEs and itself without the CSE-ID.
    pub(super) fn own_form<'id>(&self, from: &'id str) -> &'id str {
        let from = match from.strip_prefix(self.config.provider.as_str()) {
            Some(rest) if rest.starts_with('/') => rest,
            _ => from,
        };
        match from.strip_prefix(self.config.cse_id.as_str()).and_then(|rest| rest.strip_prefix('/'))
        {
            // What follows is a stem, and never the name of a CSE.
            Some(rest) if !rest.starts_with('/') => rest,
            _ => from,
        }
    }

    /// An address of this CSE in the form for `from`: SP-relative for an entity of another CSE,
    /// absolute for one of another service provider (TS-0001 §7.2).
    pub(super) fn address_for(&self, from: &str, path: String) -> String {
        let cse = &self.config.cse_id;
        match self.own_form(from) {
            other if other.starts_with("//") => format!("{}{cse}/{path}", self.config.provider),
            other if other.starts_with('/') && other != cse => format!("{cse}/{path}"),
            _ => path,
        }
    }

    /// An originator in the form for a notification target: at another CSE an AE's name alone would
    /// mean that CSE's own AE.
    pub(super) fn originator_for(&self, target: &str, from: &str) -> String {
        let is_here = matches!(
            Address::parse(target, &self.config.cse_id, &self.config.provider),
            Address::Here(_)
        );
        if is_here || from.starts_with('/') {
            from.to_owned()
        } else {
            format!("{}/{from}", self.config.cse_id)
        }
    }

    /// Whether a resource of this CSE has this address.
    pub fn has_resource(&self, address: &str) -> bool {
        matches!(self.resolve_local(address), Some(Target::Resource(_)))
    }

    /// Addresses of the access control policies that a resource of this CSE names; a name that leads
    /// nowhere stays as it is.
    pub fn policies_of(&self, address: &str) -> Vec<String> {
        let Some(Target::Resource(slot)) = self.resolve_local(address) else { return Vec::new() };
        let named = self.tree.get(slot).into_iter().flat_map(|resource| resource.texts("acpi"));
        let path = |name: &str| match self.resolve_local(name) {
            Some(Target::Resource(policy)) => self.tree.path(policy),
            _ => name.to_owned(),
        };
        named.map(path).collect()
    }

    /// The address of the container whose latest instance `request` retrieves, if its originator
    /// may retrieve that.
    pub fn container_of_latest(&self, request: &Request) -> Option<String> {
        if request.operation != Operation::Retrieve {
            return None;
        }
        let Some(Target::Latest(slot)) = self.resolve_local(&request.to) else { return None };
        let asker = RequestContext::outside(Token(0), None, request);
        let from = Originator::of(request, self.own_form(&request.from), &asker);
        let is_container = self.tree.get(slot)?.resource_type == ResourceType::Container;
        let is_allowed = is_container && self.allows(&from, Right::Retrieve, slot, None);
        is_allowed.then(|| self.tree.path(slot))
    }

    /// Resolves a path below this CSE.
    pub(super) fn resolve<'request>(&self, path: &'request str) -> Option<Target<'request>> {
        let (first, rest) = path.split_once('/').unwrap_or((path, ""));
        let at = if first.is_empty() || first == "-" || first == self.config.name {
            self.tree.root()?
        } else {
            self.tree.by_id(first).or_else(|| self.lacks_by_id(first))?
        };
        self.resolve_below(at, rest)
    }

    /// Resolves a path below a resource.
    pub(super) fn resolve_below<'request>(
        &self,
        mut at: Slot,
        mut rest: &'request str,
    ) -> Option<Target<'request>> {
        while !rest.is_empty() {
            let (name, tail) = rest.split_once('/').unwrap_or((rest, ""));
            match self.child(at, name) {
                Some(child) => at = child,
                None => return self.virtual_child(at, name, tail),
            }
            rest = tail;
        }
        Some(Target::Resource(at))
    }

    fn virtual_child<'path>(
        &self,
        at: Slot,
        name: &str,
        rest: &'path str,
    ) -> Option<Target<'path>> {
        let resource_type = self.tree.get(at)?.resource_type;
        let has_instances = matches!(
            resource_type,
            ResourceType::Container | ResourceType::FlexContainer | ResourceType::TimeSeries
        );
        match name {
            "la" if has_instances && rest.is_empty() => Some(Target::Latest(at)),
            "ol" if has_instances && rest.is_empty() => Some(Target::Oldest(at)),
            "fopt" if resource_type == ResourceType::Group => Some(Target::FanOut(at, rest)),
            "pcu" if resource_type == ResourceType::PollingChannel && rest.is_empty() => {
                Some(Target::Polling(at))
            }
            _ => None,
        }
    }

    /// The resource of a target, an instance for `la` and `ol`.
    pub(super) fn settle_target(&self, target: Target<'_>) -> Result<Slot, Refusal> {
        match target {
            Target::Resource(slot) => Ok(slot),
            Target::Latest(slot) => {
                let latest = self.tree.latest(slot);
                self.resident(slot, latest.ok_or_else(|| not_found("there is no instance"))?)
            }
            Target::Oldest(slot) => {
                let oldest = self.tree.oldest(slot);
                self.resident(slot, oldest.ok_or_else(|| not_found("there is no instance"))?)
            }
            Target::FanOut(..) | Target::Polling(_) => {
                Err(not_allowed("a virtual resource does not take this operation"))
            }
        }
    }
}
