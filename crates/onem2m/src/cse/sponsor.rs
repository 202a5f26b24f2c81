//! Originators that a peer may name in a request: never as this CSE, and over TLS as those for whom
//! the peer's certificate speaks. A CSE's speaks for itself, for the entities below it, and as
//! follows (TS-0003 §7.2.1).
//!
//! The standard has a registrar check an AE's requests against the AE's certificate and leaves out
//! CSEs, as what a CSE sends on is always another's. Here a CSE is checked, too: it speaks for the
//! AEs that it registered here itself, as long as it is admitted or registered, and a registrar for
//! what comes from beyond it. What comes from below a CSE that is registered here comes by that CSE:
//! which CSEs those are an administrator has to say (`cses_beyond`), as the other's certificate is
//! seen by its own registrar only, and whoever is between could name any. What a binding does not let pass at once comes here with the peer as
//! [`Request::sponsor`].
//!
//! An AE's sponsor is written down with it and never changes. It goes when the AE goes: then its
//! AE-ID is free for whoever registers it next, and the resources that it left elsewhere are that
//! AE-ID's as before. So which AE-IDs CSEs may register is bounded by patterns, and an AE that was
//! registered by its own certificate, or by none, is nobody's ward, unless an administrator has said
//! whose (`adopted_entities`).

use super::{Cse, Refusal};
use crate::address::cse_of;
use crate::filter::matches_wildcard;
use crate::primitive::{Operation, Request};
use crate::resource_type::ResourceType;
use crate::status::Status;

impl Cse {
    /// Refuses a request whose sender cannot be its originator.
    ///
    /// # Errors
    ///
    /// 4106 if the peer's certificate does not authorise the originator, 4103 if that is this CSE.
    pub(super) fn check_identity(&mut self, request: &Request) -> Result<(), Refusal> {
        self.check_sponsor(request).inspect_err(|_| self.counters.unauthenticated += 1)?;
        if self.is_own_name(&request.from) {
            self.counters.posed_as_us += 1;
            let why = "only this CSE itself is the originator of its requests";
            return Err(Refusal::new(Status::OriginatorHasNoPrivilege, why));
        }
        Ok(())
    }

    /// Whether an originator is this CSE, in any form of its identifier.
    ///
    /// Its CSE-ID is public in resources and URLs, and has every right here: as an outside
    /// originator it would be a password known to everyone.
    fn is_own_name(&self, from: &str) -> bool {
        let name = match from.strip_prefix(self.config.provider.as_str()) {
            Some(rest) if rest.starts_with('/') => rest,
            _ => from,
        };
        let rest = name.strip_prefix(self.config.cse_id.as_str());
        // With a name behind it is an entity's.
        rest.is_some_and(|rest| rest.is_empty() || rest == "/" || rest.starts_with("//"))
    }

    /// Refuses a request whose originator the peer's certificate does not authorise.
    ///
    /// "If the values are not identical, then the Registrar CSE shall send a response with Response
    /// Status Code ORIGINATOR_NOT_AUTHENTICATED" (TS-0003 §7.2.1): 4106 in TS-0008 and TS-0009,
    /// which TS-0004 calls ORIGINATOR_HAS_NOT_REGISTERED.
    fn check_sponsor(&self, request: &Request) -> Result<(), Refusal> {
        let Some(sponsor) = request.sponsor.as_deref() else { return Ok(()) };
        let from = self.own_form(&request.from);
        // An AE speaks for nobody but itself.
        let is_cse = sponsor.starts_with('/') && cse_of(sponsor) == sponsor;
        let speaks = if self.is_almighty(from) || !is_cse {
            false
        } else if from.starts_with('/') {
            self.comes_from_above(sponsor, from) || self.comes_from_beyond(sponsor, from)
        } else {
            self.is_ward(sponsor, from, request)
        };
        if speaks {
            return Ok(());
        }
        let why =
            "the sender, by its certificate or its topic, is not authorised for the originator";
        Err(Refusal::new(Status::OriginatorHasNotRegistered, why))
    }

    /// Whether `entity` is an AE that the CSE registered here, or registers by this request.
    fn is_ward(&self, sponsor: &str, entity: &str, request: &Request) -> bool {
        if !self.stands(sponsor) {
            return false;
        }
        let known = self.tree.by_id(entity).and_then(|slot| self.tree.get(slot));
        if let Some(ae) = known.filter(|it| it.resource_type == ResourceType::ApplicationEntity) {
            return match ae.sponsor.as_deref() {
                Some(known) => known == sponsor,
                None => self.adopts(sponsor, entity),
            };
        }
        let registers = request.operation == Operation::Create
            && request.resource_type == Some(ResourceType::ApplicationEntity);
        let mut patterns = self.config.sponsored_entities.iter();
        registers && patterns.any(|pattern| matches_wildcard(pattern, entity))
    }

    /// Whether the CSE is this CSE's registrar, and the way to the entity leads there: not to a CSE
    /// registered here, nor to one below such a CSE.
    fn comes_from_above(&self, sponsor: &str, entity: &str) -> bool {
        let above = self.config.registrar.as_ref().is_some_and(|above| above.cse_id == sponsor);
        let way = self.next_hop(cse_of(entity), &self.config.cse_id);
        above && !self.is_beyond(cse_of(entity)) && way.is_some() && way == self.remote_cse(sponsor)
    }

    /// Whether the entity's CSE is below the sponsor, and not registered here itself.
    fn comes_from_beyond(&self, sponsor: &str, entity: &str) -> bool {
        let cse = cse_of(entity);
        let is_here = cse == self.config.cse_id || self.remote_cse(cse).is_some();
        let mut ways = self.config.cses_beyond.iter();
        self.stands(sponsor) && !is_here && ways.any(|way| way.strip_prefix(sponsor) == Some(cse))
    }

    /// Whether an administrator has configured the CSE by which this one is reached.
    pub(super) fn is_beyond(&self, cse: &str) -> bool {
        let beyond = |way: &String| way.rfind('/').and_then(|at| way.get(at..)) == Some(cse);
        self.config.cses_beyond.iter().any(beyond)
    }

    /// Whether an administrator has assigned this AE, registered without a certificate, to the CSE.
    fn adopts(&self, sponsor: &str, entity: &str) -> bool {
        self.config.adopted_entities.iter().any(|adopted| {
            let pattern = adopted.strip_prefix(sponsor).and_then(|rest| rest.strip_prefix('/'));
            pattern.is_some_and(|pattern| matches_wildcard(pattern, entity))
        })
    }

    /// Whether a CSE is admitted, or registered here.
    fn stands(&self, cse: &str) -> bool {
        self.admits_cse(cse) || self.remote_cse(cse).is_some()
    }

    /// Whether a CSE may register here.
    pub(super) fn admits_cse(&self, cse: &str) -> bool {
        self.config.admitted_cses.iter().any(|pattern| matches_wildcard(pattern, cse))
    }
}
