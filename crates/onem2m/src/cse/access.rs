//! Access control (TS-0003 §7.1): access control policies, and the default without one.

use super::privileges::{is_detail, is_understood};
use super::{Cse, Refusal, RequestContext, denied};
use crate::address::cse_of;
use crate::filter::matches_wildcard;
use crate::prefix::Prefix;
use crate::primitive::Request;
use crate::resource::Resource;
use crate::resource_type::ResourceType;
use crate::schedule::Schedule;
use crate::schema;
use crate::time::Timestamp;
use crate::tree::Slot;
use core::cell::Cell;
use core::net::IpAddr;
use core::ops::Deref;
use serde_json::{Map, Value};

/// An operation in access control (m2m:accessControlOperations).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Right {
    Create,
    Retrieve,
    Update,
    Delete,
    Notify,
    Discover,
}

/// Every bit of m2m:accessControlOperations.
pub(super) const ALL_RIGHTS: u64 = 63;

impl Right {
    pub(super) const fn bit(self) -> u64 {
        match self {
            Self::Create => 1,
            Self::Retrieve => 2,
            Self::Update => 4,
            Self::Delete => 8,
            Self::Notify => 16,
            Self::Discover => 32,
        }
    }
}

/// The ground on which an originator has a right; what each means says [`super::AccessGround`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Ground<'cse> {
    ThisCse,
    Administrator,
    Announcer,
    Entity,
    Registered,
    Owner,
    /// Identifier of the policy, number of the rule, the rule.
    Rule(&'cse str, usize, &'cse Value),
}

/// An entity whose rights are checked, with the address of its request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Originator<'name> {
    name: &'name str,
    source: Option<IpAddr>,
    /// Set where a rule allows something because of the address.
    by_place: Option<&'name Cell<bool>>,
}

impl<'name> Originator<'name> {
    /// The originator of a request, by its local `name`.
    pub(super) fn of(request: &Request, name: &'name str, asker: &'name RequestContext) -> Self {
        Self { name, source: source_of(request, name), by_place: Some(&asker.by_place) }
    }

    /// The originator with the address of its request, if that is known; `by_place` is set where
    /// that matters.
    pub(super) const fn at(
        name: &'name str,
        source: Option<IpAddr>,
        by_place: &'name Cell<bool>,
    ) -> Self {
        Self { name, source, by_place: Some(by_place) }
    }

    /// An entity that asks for nothing itself, such as a subscriber: where another's request comes
    /// from says nothing of where it is.
    pub(super) const fn absent(name: &'name str) -> Self {
        Self { name, source: None, by_place: None }
    }

    /// The address, unless another entity has forwarded the request.
    pub(super) const fn source(&self) -> Option<IpAddr> {
        self.source
    }

    /// Records that something was allowed because of the address.
    pub(super) fn set_by_place(&self) {
        if let Some(by_place) = self.by_place {
            by_place.set(true);
        }
    }
}

impl Deref for Originator<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        self.name
    }
}

impl Cse {
    /// Refuses unless `from` has `right` on the resource; `child` is the type to be created.
    pub(super) fn demand(
        &self,
        from: &Originator<'_>,
        right: Right,
        slot: Slot,
        child: Option<ResourceType>,
    ) -> Result<(), Refusal> {
        if self.allows(from, right, slot, child) { Ok(()) } else { Err(denied()) }
    }

    /// Whether `from` has `right` on the resource.
    pub(super) fn allows(
        &self,
        from: &Originator<'_>,
        right: Right,
        slot: Slot,
        child: Option<ResourceType>,
    ) -> bool {
        self.ground(from, right, slot, child).is_some()
    }

    /// Why `from` has `right` on the resource, with the resource that decides; none if it has not.
    pub(super) fn ground(
        &self,
        from: &Originator<'_>,
        right: Right,
        slot: Slot,
        child: Option<ResourceType>,
    ) -> Option<(Slot, Ground<'_>)> {
        let resource = self.tree.get(slot)?;
        if self.is_almighty(from) {
            let is_own = **from == *self.config.cse_id;
            return Some((slot, if is_own { Ground::ThisCse } else { Ground::Administrator }));
        }
        // An announced resource is kept up by the CSE that announced it; its policies may be
        // known there only.
        if resource.resource_type.original().is_some() && *resource.owner == **from {
            return Some((slot, Ground::Announcer));
        }
        let kind = resource.resource_type;
        if kind == ResourceType::AccessControlPolicy {
            let rule = self.granting_rule(resource, "pvs", from, right, kind, child)?;
            return Some((slot, rule));
        }
        // "The Hosting CSE shall check if the Originator ID is the same as the AE-ID or CSE-ID of
        // the target <AE> resource or <remoteCSE> resource" (TS-0004 §7.4.21.2).
        if kind == ResourceType::PollingChannel {
            let is_its = resource.parent.is_some_and(|parent| self.is_entity(from, parent));
            return is_its.then_some((slot, Ground::Entity));
        }
        if !schema::has_policies(kind) {
            return self.ground(from, right, resource.parent?, child);
        }
        let mut policies = self.policies(resource.texts("acpi")).peekable();
        if policies.peek().is_none() {
            return Some((slot, self.default_ground(resource, from, right)?));
        }
        let rule = |policy| self.granting_rule(policy, "pv", from, right, kind, child);
        policies.find_map(rule).map(|rule| (slot, rule))
    }

    /// Refuses unless `from` has `right` on the resource or, by rules for single attributes, on each
    /// of the attributes named (TS-0001 §9.6.2, accessControlAttributes).
    pub(super) fn demand_attributes<'name>(
        &self,
        from: &Originator<'_>,
        right: Right,
        (slot, child): (Slot, Option<ResourceType>),
        mut names: impl Iterator<Item = &'name str>,
    ) -> Result<(), Refusal> {
        if self.allows(from, right, slot, child) {
            return Ok(());
        }
        let granted = self.attributes_granted(from, right, slot, child);
        if !granted.is_empty() && names.all(|name| granted.contains(&name)) {
            return Ok(());
        }
        Err(denied())
    }

    /// The attributes that rules for single attributes give `from` this right on; none if another
    /// rule gives it on all.
    pub(super) fn attributes_granted(
        &self,
        from: &Originator<'_>,
        right: Right,
        slot: Slot,
        child: Option<ResourceType>,
    ) -> Vec<&str> {
        let Some(resource) = self.tree.get(slot) else { return Vec::new() };
        if !schema::has_policies(resource.resource_type) {
            let parent = resource.parent.filter(|_| resource.resource_type.is_instance());
            return parent.map_or_else(Vec::new, |parent| {
                self.attributes_granted(from, right, parent, child)
            });
        }
        if self.allows(from, right, slot, child) {
            return Vec::new();
        }
        let policies = self.policies(resource.texts("acpi"));
        let rules = policies.flat_map(|policy| rules(policy, "pv"));
        let rules =
            rules.filter(|rule| self.applies(rule, from, right, resource.resource_type, child));
        rules.flat_map(|rule| texts(rule.get("aca"))).collect()
    }

    /// Whether an AE or remoteCSE belongs to `from`.
    pub(super) fn is_entity(&self, from: &str, entity: Slot) -> bool {
        self.tree.get(entity).is_some_and(|entity| match entity.resource_type {
            ResourceType::ApplicationEntity => *entity.id == *from,
            ResourceType::RemoteCse => entity.text("csi") == Some(from),
            _ => false,
        })
    }

    /// The existing policies of this CSE among those named. Policies may be deleted or expire while
    /// they are still named; a resource without any remaining policy is again under its creator's
    /// control.
    fn policies<'id>(
        &self,
        named: impl Iterator<Item = &'id str>,
    ) -> impl Iterator<Item = &Resource> {
        named
            .filter_map(|id| match self.resolve_local(id)? {
                super::Target::Resource(slot) => self.tree.get(slot),
                _ => None,
            })
            .filter(|policy| policy.resource_type == ResourceType::AccessControlPolicy)
    }

    /// Refuses lists of policies (acpi, macp) that name other resources, or no policy of this CSE:
    /// such a list would leave no one any right, not even the owner.
    ///
    /// # Errors
    ///
    /// 4000 for an entry that names no policy here, or if every entry names another CSE's.
    pub(super) fn check_policies_named(
        &self,
        resource_type: ResourceType,
        given: &Map<String, Value>,
    ) -> Result<(), Refusal> {
        // The policies of announced resources may be known only at the CSE that announces them.
        if resource_type.original().is_some() {
            return Ok(());
        }
        for name in ["acpi", "macp"] {
            let named: Vec<&str> = texts(given.get(name)).collect();
            let here = named.iter().filter(|id| self.is_here(id));
            let (mut found, mut wanted) = (0, 0);
            for id in here {
                wanted += 1;
                found += self.policies(core::iter::once(*id)).count();
            }
            if found < wanted || (found == 0 && !named.is_empty()) {
                let why = format!("{name} names a resource that is no policy of this CSE");
                return Err(Refusal::bad(why));
            }
        }
        Ok(())
    }

    /// Whether one of the policies named grants the right to `from`.
    pub(super) fn any_policy_grants<'id>(
        &self,
        policies: impl Iterator<Item = &'id str>,
        from: &Originator<'_>,
        right: Right,
        resource_type: ResourceType,
        child: Option<ResourceType>,
    ) -> bool {
        self.policies(policies)
            .any(|policy| self.grants(policy, "pv", from, right, resource_type, child))
    }

    /// Whether `from` may change the list of policies: by the self-privileges of existing policies,
    /// or as owner if there are none (TS-0001 §9.6.1.3.2).
    pub(super) fn may_change_policies(&self, from: &Originator<'_>, resource: &Resource) -> bool {
        if self.is_almighty(from) {
            return true;
        }
        let mut policies = self.policies(resource.texts("acpi")).peekable();
        if policies.peek().is_none() {
            return owns(resource, from);
        }
        policies.any(|policy| {
            self.grants(policy, "pvs", from, Right::Update, resource.resource_type, None)
        })
    }

    /// Whether `from` has every right: the administrator, and this CSE itself, which no outside
    /// request can have as originator.
    pub(super) fn is_almighty(&self, from: &str) -> bool {
        self.config.admin.as_deref() == Some(from) || from == self.config.cse_id
    }

    /// Without a policy only the creator has rights; registered entities and its configured readers
    /// can retrieve the CSEBase.
    fn default_ground(
        &self,
        resource: &Resource,
        from: &str,
        right: Right,
    ) -> Option<Ground<'static>> {
        match resource.resource_type {
            ResourceType::CseBase => {
                let reads = matches!(right, Right::Retrieve | Right::Discover)
                    && (self.is_registered(from) || self.reads_base(from));
                reads.then_some(Ground::Registered)
            }
            ResourceType::RemoteCse if resource.text("csi") == Some(from) => Some(Ground::Entity),
            _ => owns(resource, from).then_some(Ground::Owner),
        }
    }

    /// Whether `from` is configured to read the CSEBase.
    fn reads_base(&self, from: &str) -> bool {
        self.config.base_readers.iter().any(|reader| self.own_form(reader) == from)
    }

    /// Whether `from` is an AE or CSE registered here, or an AE of such a CSE.
    pub(super) fn is_registered(&self, from: &str) -> bool {
        if from.starts_with('/') {
            return self.remote_cse(cse_of(from)).is_some();
        }
        self.tree
            .by_id(from)
            .and_then(|slot| self.tree.get(slot))
            .is_some_and(|resource| resource.resource_type == ResourceType::ApplicationEntity)
    }

    /// Whether `from` is this CSE or one registered here.
    pub(super) fn is_cse(&self, from: &str) -> bool {
        from == self.config.cse_id || self.remote_cse(from).is_some()
    }

    /// The remoteCSE resource of a registered CSE-ID.
    pub(super) fn remote_cse(&self, cse: &str) -> Option<Slot> {
        self.tree.by_cse(cse)
    }

    fn grants(
        &self,
        policy: &Resource,
        privileges: &str,
        from: &Originator<'_>,
        right: Right,
        resource_type: ResourceType,
        child: Option<ResourceType>,
    ) -> bool {
        self.granting_rule(policy, privileges, from, right, resource_type, child).is_some()
    }

    /// The first rule of a policy that grants the right.
    fn granting_rule<'cse>(
        &self,
        policy: &'cse Resource,
        privileges: &str,
        from: &Originator<'_>,
        right: Right,
        resource_type: ResourceType,
        child: Option<ResourceType>,
    ) -> Option<Ground<'cse>> {
        // A rule for single attributes grants nothing on the resource as a whole.
        let mut rules =
            (1..).zip(rules(policy, privileges)).filter(|(_, rule)| rule.get("aca").is_none());
        let rule = rules.find(|(_, rule)| self.applies(rule, from, right, resource_type, child));
        rule.map(|(number, rule)| Ground::Rule(&policy.id, number, rule))
    }

    /// Whether a rule is about this originator, this right and this type, now.
    fn applies(
        &self,
        rule: &Value,
        from: &Originator<'_>,
        right: Right,
        resource_type: ResourceType,
        child: Option<ResourceType>,
    ) -> bool {
        let operations = rule.get("acop").and_then(Value::as_u64).unwrap_or(0);
        // A row of an earlier version may have a rule with a condition that is none: it grants
        // nothing, since what it was to restrict is not known.
        operations & right.bit() != 0
            && is_understood(rule)
            && covers(rule, resource_type, child)
            && self.names(rule, from)
            && holds(rule, self.now, from)
    }

    /// Whether a rule's originators include `from`: `all`, itself, a pattern, or a group.
    fn names(&self, rule: &Value, from: &str) -> bool {
        texts(rule.get("acor")).any(|originator| {
            let originator = self.own_form(originator);
            originator == "all"
                || originator == from
                || (originator.contains('*') && matches_wildcard(originator, from))
                || self.group_names(originator, from)
        })
    }

    fn group_names(&self, group: &str, from: &str) -> bool {
        let group = self.tree.by_id(group).and_then(|slot| self.tree.get(slot));
        group.is_some_and(|group| {
            group.resource_type == ResourceType::Group
                && group.texts("mid").any(|member| self.own_form(member) == from)
        })
    }

    /// Whether an identifier in an attribute names a resource of this CSE, existing or not.
    fn is_here(&self, id: &str) -> bool {
        use crate::address::Address;
        let address = Address::parse(id, &self.config.cse_id, &self.config.provider);
        matches!(address, Address::Here(_))
    }

    /// The resource named by an identifier in an attribute, if it is on this CSE.
    pub(super) fn resolve_local<'id>(&self, id: &'id str) -> Option<super::Target<'id>> {
        use crate::address::Address;
        match Address::parse(id, &self.config.cse_id, &self.config.provider) {
            Address::Here(path) => self.resolve(path),
            _ => None,
        }
    }
}

/// The rules in a policy's privileges or self-privileges.
fn rules<'policy>(
    policy: &'policy Resource,
    privileges: &str,
) -> impl Iterator<Item = &'policy Value> {
    let rules = policy.attribute(privileges).and_then(|set| set.get("acr"));
    rules.and_then(Value::as_array).into_iter().flatten()
}

/// Whether `from` created the resource, or is its custodian.
fn owns(resource: &Resource, from: &str) -> bool {
    !from.is_empty() && (*resource.owner == *from || resource.text("cstn") == Some(from))
}

/// Address of a request's originator: the request's address, unless another entity forwarded it,
/// such as a CSE for one of its entities or for one that it sponsors.
pub(super) fn source_of(request: &Request, from: &str) -> Option<IpAddr> {
    let is_sent_on = request.sponsor.is_some() || (from.starts_with('/') && cse_of(from) != from);
    if is_sent_on { None } else { request.source }
}

/// Whether a rule holds now and for the originator's address: always, or in one of its contexts.
fn holds(rule: &Value, now: Timestamp, from: &Originator<'_>) -> bool {
    let Some(contexts) = rule.get("acco") else {
        return true;
    };
    contexts.as_array().into_iter().flatten().any(|context| {
        let in_time = context.get("actw").is_none_or(|windows| {
            texts(Some(windows)).filter_map(Schedule::parse).any(|window| window.includes(now))
        });
        let in_place = context.get("acip").is_none_or(|addresses| {
            // Who asks from nobody knows where is at none of them.
            from.source.is_some_and(|source| prefixes(addresses).any(|it| it.contains(source)))
        });
        // A context without either would hold for everybody: none is taken in, and none holds.
        let says = context.get("actw").is_some() || context.get("acip").is_some();
        let holds = says && in_time && in_place;
        if holds && context.get("acip").is_some() {
            from.set_by_place();
        }
        holds
    })
}

/// The addresses of m2m:accessControlIpAddresses.
fn prefixes(addresses: &Value) -> impl Iterator<Item = Prefix> {
    let v4 = texts(addresses.get("ipv4")).filter_map(Prefix::parse_v4);
    v4.chain(texts(addresses.get("ipv6")).filter_map(Prefix::parse_v6))
}

/// Whether a rule's object details, if it has any, include this resource type and child type.
fn covers(rule: &Value, resource_type: ResourceType, child: Option<ResourceType>) -> bool {
    let Some(details) = rule.get("acod") else {
        return true;
    };
    let one = core::slice::from_ref(details);
    details.as_array().map_or(one, Vec::as_slice).iter().any(|detail| {
        let number = detail.get("ty").and_then(Value::as_u64);
        let kind_fits = number.is_none_or(|number| number == u64::from(resource_type.number()));
        let children = detail.get("chty").and_then(Value::as_array);
        let child_fits = match (child, children) {
            (Some(child), Some(list)) => {
                list.iter().any(|number| number.as_u64() == Some(u64::from(child.number())))
            }
            (None, Some(list)) => list.is_empty(),
            (_, None) => true,
        };
        is_detail(detail) && kind_fits && child_fits
    })
}

fn texts(value: Option<&Value>) -> impl Iterator<Item = &str> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}
