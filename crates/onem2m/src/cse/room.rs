//! Room for resources: of the tree, of a branch (a child of the CSEBase with everything below it) and of
//! a peer, and the rest that is kept for what this process makes itself, such as its devices' readings.
//!
//! An originator may register any number of AEs, each a branch. So branches count together that one peer
//! has made: an address, or all that come without one, by a broker. A CSE with a certificate has no such
//! bound, as an administrator has admitted it.

use super::{Cse, Refusal, RequestContext};
use crate::places::{Account, LackingPlaces, PlacesMax};
use crate::prefix::network;
use crate::primitive::Request;
use crate::resource::{PLACE_OCTETS, row_octets};
use crate::status::Status;
use crate::tree::Slot;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The peer that what a request makes counts toward; `None` if this process asks.
pub(super) fn peer_of(asker: &RequestContext, request: &Request) -> Option<Arc<str>> {
    if asker.is_own {
        return None;
    }
    let Some(address) = request.source else { return Some(Arc::default()) };
    // A sponsor whose request has an address is known by its certificate.
    let sponsor = request.sponsor.clone();
    Some(sponsor.unwrap_or_else(|| network(address).to_string().into()))
}

impl Cse {
    /// Checks that there is room for one more resource below `parent`, made by a peer or this process.
    pub(super) fn check_room(
        &mut self,
        parent: Slot,
        made_by: Option<&Arc<str>>,
    ) -> Result<(), Refusal> {
        if self.stores_deletions_only {
            self.counters.disk_full += 1;
            let why = "the disk is full: only deletions are stored";
            return Err(Refusal::new(Status::InternalServerError, why));
        }
        let account = self.tree.account_below(parent, made_by);
        self.check_places(&account, 1, row_octets(0))?;
        self.check_depth(parent)
    }

    /// Checks that an update's values fit where there is no room.
    pub(super) fn check_growth(
        &mut self,
        slot: Slot,
        given: &Map<String, Value>,
    ) -> Result<(), Refusal> {
        match self.resource(slot)?.further_places(given) {
            0 => Ok(()),
            further => {
                let account = self.tree.account_of(slot);
                self.check_places(&account, further, further.saturating_mul(PLACE_OCTETS))
            }
        }
    }

    /// Whether a place, or room for so many octets of the store, lacks.
    pub(super) fn is_full(&self, account: &Account, stored: usize) -> bool {
        let (places, octets) = self.places_max();
        self.tree.lacking_places(account, 1, &places).is_some()
            || self.tree.lacking_octets(account, stored, &octets).is_some()
    }

    /// Checks that there are so many further places, and octets of the store.
    fn check_places(
        &mut self,
        account: &Account,
        further: usize,
        stored: usize,
    ) -> Result<(), Refusal> {
        let (places, octets) = self.places_max();
        let lacking = self.tree.lacking_places(account, further, &places);
        let Some((lacking, most)) = lacking.map(|it| (it, Some(&places))).or_else(|| {
            let lacking = self.tree.lacking_octets(account, stored, &octets);
            lacking.map(|it| (it, None))
        }) else {
            return Ok(());
        };
        let counters = &mut self.counters;
        let (counter, whose, of) = match lacking {
            LackingPlaces::Tree => (&mut counters.tree_full, "the whole tree", places.all),
            LackingPlaces::Peers => {
                (&mut counters.tree_full, "all but this CSE's own devices", places.peers)
            }
            LackingPlaces::Peer => {
                (&mut counters.peer_full, "what one address makes, or all without one", places.peer)
            }
            LackingPlaces::Branch => (&mut counters.branch_full, "one AE or CSE", places.branch),
        };
        *counter += 1;
        let why = match most {
            Some(_) => format!("{whose} has room for {of} resources of 2 KiB"),
            None => format!("{whose} has used its part of the store"),
        };
        Err(Refusal::new(Status::InternalServerError, why))
    }

    /// The most places, and octets of the store.
    fn places_max(&self) -> (PlacesMax, PlacesMax) {
        let limits = &self.config.limits;
        let places = PlacesMax {
            all: limits.resources,
            branch: limits.branch_resources,
            peer: limits.peer_resources,
            peers: limits.resources.saturating_sub(limits.reserved_resources),
        };
        let octets = PlacesMax {
            all: limits.stored_octets,
            branch: limits.branch_stored_octets,
            peer: limits.peer_stored_octets,
            peers: limits.stored_octets.saturating_sub(limits.reserved_stored_octets),
        };
        (places, octets)
    }
}
