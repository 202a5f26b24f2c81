//! Why an originator may retrieve a resource: the ground on which access control decides.

use super::access::{Ground, Originator, Right};
use super::{Cse, Target};
use crate::tree::Slot;
use core::cell::Cell;
use core::net::IpAddr;
use serde_json::Value;

/// Why an originator may retrieve a resource.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AccessGrant {
    /// The address of the resource that decides: an instance is under the policies of its container.
    pub at: String,
    /// The ground.
    pub ground: AccessGround,
}

/// The ground on which an originator has a right.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum AccessGround {
    /// It is this CSE, which has every right.
    ThisCse,
    /// It is the administrator of this CSE, who has every right.
    Administrator,
    /// It is the CSE that announced the resource.
    Announcer,
    /// It is the AE or CSE that the resource represents.
    Entity,
    /// It is registered here, or configured to read the CSEBase.
    Registered,
    /// It created the resource or is its custodian, and no policy governs the resource.
    Owner,
    /// A rule of an access control policy.
    Rule {
        /// The address of the policy.
        policy: String,
        /// The number of the rule in the policy's privileges (`pv`, of a policy itself `pvs`), from 1.
        number: usize,
        /// Its originators (`acor`).
        originators: Vec<String>,
        /// Its operations (`acop`).
        operations: u64,
    },
}

impl Cse {
    /// Why `from`, at the address `source` if that is known, may retrieve the resource at `address`.
    /// None if it may not, or if there is no such resource here.
    ///
    /// It is what a request of `from` would be judged by; rules for single attributes are left out.
    pub fn retrieval_granted(
        &self,
        address: &str,
        from: &str,
        source: Option<IpAddr>,
    ) -> Option<AccessGrant> {
        let slot = match self.resolve_local(address)? {
            Target::Resource(slot) | Target::Latest(slot) | Target::Oldest(slot) => slot,
            Target::FanOut(..) | Target::Polling(_) => return None,
        };
        let by_place = Cell::new(false);
        let from = Originator::at(self.own_form(from), source, &by_place);
        let (decides, ground) = self.ground(&from, Right::Retrieve, slot, None)?;
        Some(AccessGrant { at: self.tree.path(decides), ground: self.told(ground) })
    }

    fn told(&self, ground: Ground<'_>) -> AccessGround {
        match ground {
            Ground::ThisCse => AccessGround::ThisCse,
            Ground::Administrator => AccessGround::Administrator,
            Ground::Announcer => AccessGround::Announcer,
            Ground::Entity => AccessGround::Entity,
            Ground::Registered => AccessGround::Registered,
            Ground::Owner => AccessGround::Owner,
            Ground::Rule(policy, number, rule) => {
                let originators = rule.get("acor").and_then(Value::as_array).into_iter().flatten();
                let slot: Option<Slot> = self.tree.by_id(policy);
                AccessGround::Rule {
                    policy: slot.map_or_else(|| policy.to_owned(), |slot| self.tree.path(slot)),
                    number,
                    originators: originators
                        .filter_map(|name| name.as_str().map(str::to_owned))
                        .collect(),
                    operations: rule.get("acop").and_then(Value::as_u64).unwrap_or(0),
                }
            }
        }
    }
}
