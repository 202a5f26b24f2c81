//! Items that a gateway has learnt from the network: routers, prefixes, addresses, better first
//! hops.
//!
//! Each item has an end, and a place in a bounded list; the router takes its routes from the list
//! by [`Learnt::route`].

use crate::setup::RouteTo;
use gatewright_packet::LinkIndex;
use gatewright_stack::{Route, RouterPreference};
use gatewright_tables::Prefix;
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::{Duration, Instant},
};

/// A learnt item that ends by itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LearntItem {
    /// A default router.
    Router { link: LinkIndex, address: IpAddr },
    /// An address of ours.
    Address { link: LinkIndex, address: IpAddr },
    /// A prefix whose addresses are on the link.
    OnLink { link: LinkIndex, prefix: Prefix<Ipv6Addr> },
    /// A route of a lease (RFC 3442); on the link if the gateway is unspecified.
    Leased { link: LinkIndex, to: Prefix<Ipv4Addr>, gateway: Ipv4Addr },
    /// A learnt item with its lifetime.
    Redirect { link: LinkIndex, destination: IpAddr, gateway: IpAddr },
}

/// When it ends; `None` for ever.
#[derive(Clone, Copy, Debug)]
struct Entry {
    thing: LearntItem,
    /// For ever if there is none.
    until: Option<Instant>,
    /// For an address: when it stops beginning exchanges.
    preferred_until: Option<Instant>,
    /// For a router: its preference.
    preference: RouterPreference,
}

/// Maximum number of learnt items: hosts must bound what routers make them keep.
pub(super) const LEARNT_MAX: usize = 256;

/// Maximum number of redirects among them; the oldest gives way.
const REDIRECTS_MAX: usize = 64;

/// Lifetime of a redirect. RFC 4861 §8.3 gives no time; a path MTU, which is believed on the same
/// grounds, holds as long (RFC 8201 §5.3).
const REDIRECT_FOR: Duration = Duration::from_mins(10);

/// The shortest valid lifetime to which an unauthenticated advertisement cuts an address (RFC 4862
/// §5.5.3 (e)).
const TWO_HOURS: Duration = Duration::from_hours(2);

/// All learnt items, oldest first.
#[derive(Debug, Default)]
pub(super) struct Learnt {
    entries: Vec<Entry>,
    /// An item was refused for lack of room, since there was room last.
    overfull: bool,
}

/// There is no room for more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Full {
    /// Whether there was room a moment ago.
    pub(super) is_news: bool,
}

impl Learnt {
    /// Takes `thing` for `lifetime` from `now` on; returns whether it is new. A known one keeps its
    /// place.
    pub(super) fn take(
        &mut self,
        thing: LearntItem,
        lifetime: Duration,
        preference: RouterPreference,
        now: Instant,
    ) -> Result<bool, Full> {
        let until = now.checked_add(lifetime);
        if let Some(known) = self.entry(thing) {
            (known.until, known.preference) = (until, preference);
            return Ok(false);
        }
        if self.entries.len() >= LEARNT_MAX {
            return Err(Full { is_news: !std::mem::replace(&mut self.overfull, true) });
        }
        self.entries.push(Entry { thing, until, preferred_until: None, preference });
        Ok(true)
    }

    /// Takes a redirect; returns the one that gives way to it.
    pub(super) fn redirect(
        &mut self,
        (link, destination, gateway): (LinkIndex, IpAddr, IpAddr),
        now: Instant,
    ) -> Result<Option<LearntItem>, Full> {
        let others = |thing: &LearntItem| matches!(thing, LearntItem::Redirect { .. });
        let to = LearntItem::Redirect { link, destination, gateway }.to();
        // The latest that is heard of a destination holds.
        self.remove(|thing| others(thing) && thing.to() == to);
        let redirects = self.entries.iter().filter(|entry| others(&entry.thing));
        let gone = (redirects.clone().count() >= REDIRECTS_MAX)
            .then(|| redirects.map(|entry| entry.thing).next())
            .flatten();
        self.remove(|thing| Some(*thing) == gone);
        let thing = LearntItem::Redirect { link, destination, gateway };
        self.take(thing, REDIRECT_FOR, RouterPreference::default(), now)?;
        Ok(gone)
    }

    /// Takes an address formed from an advertised prefix, or new lifetimes of a known one; returns
    /// whether it is new. A prefix that is no longer valid forms nothing.
    pub(super) fn form(
        &mut self,
        (link, address): (LinkIndex, IpAddr),
        (valid, preferred): (Duration, Duration),
        now: Instant,
    ) -> Result<bool, Full> {
        let thing = LearntItem::Address { link, address };
        let known = self.entry(thing).map(|entry| entry.until);
        if known.is_none() && valid.is_zero() {
            return Ok(false);
        }
        let lifetime = known.map_or(valid, |until| {
            let remaining = until.map_or(Duration::MAX, |until| until.duration_since(now));
            // RFC 4862 §5.5.3 (e), 1 to 3: no advertisement, which may be forged, takes an address
            // away sooner than in two hours.
            if valid > TWO_HOURS || valid > remaining { valid } else { remaining.min(TWO_HOURS) }
        });
        let is_new = self.take(thing, lifetime, RouterPreference::default(), now)?;
        if let Some(entry) = self.entry(thing) {
            // "the preferred lifetime of the address is reset to the Preferred Lifetime in the
            // received advertisement."
            entry.preferred_until = now.checked_add(preferred);
        }
        Ok(is_new)
    }

    /// Whether `thing` is known.
    pub(super) fn has(&self, thing: LearntItem) -> bool {
        self.entries.iter().any(|entry| entry.thing == thing)
    }

    /// Forgets and returns the items that `which` selects.
    pub(super) fn remove(&mut self, which: impl Fn(&LearntItem) -> bool) -> Vec<LearntItem> {
        let gone: Vec<LearntItem> = self
            .entries
            .extract_if(.., |entry| which(&entry.thing))
            .map(|gone| gone.thing)
            .collect();
        self.overfull &= gone.is_empty();
        gone
    }

    /// Forgets and returns the items that have ended at `now`.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<LearntItem> {
        let over = |entry: &mut Entry| entry.until.is_some_and(|until| until <= now);
        let gone: Vec<LearntItem> =
            self.entries.extract_if(.., over).map(|gone| gone.thing).collect();
        self.overfull &= gone.is_empty();
        gone
    }

    /// The formed addresses with whether they begin exchanges at `now`.
    pub(super) fn formed(
        &self,
        now: Instant,
    ) -> impl Iterator<Item = (LinkIndex, IpAddr, bool)> + '_ {
        self.entries.iter().filter_map(move |entry| match entry.thing {
            LearntItem::Address { link, address } if address.is_ipv6() => {
                Some((link, address, entry.preferred_until.is_none_or(|until| until > now)))
            }
            _ => None,
        })
    }

    /// The destinations of all learnt items.
    pub(super) fn destinations(&self) -> impl Iterator<Item = RouteTo> + '_ {
        self.entries.iter().map(|entry| entry.thing.to())
    }

    /// The route to `to`. Of several routers the most preferred one counts; among equals the one
    /// known first, so that no later one takes the traffic over (RFC 4861 §6.3.6, RFC 4191 §3.2).
    pub(super) fn route(&self, to: RouteTo, leads: impl Fn(Route) -> bool) -> Option<Route> {
        let about = self.entries.iter().filter(|entry| entry.thing.to() == to);
        let routes = about.filter_map(|entry| Some((entry.preference, entry.thing.route()?)));
        let usable = routes.filter(|(_, route)| leads(*route));
        // Of equal ones, `max_by_key` has the last.
        usable
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .max_by_key(|(preference, _)| *preference)
            .map(|(_, route)| route)
    }

    fn entry(&mut self, thing: LearntItem) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.thing == thing)
    }
}

impl LearntItem {
    /// The link on which it was learnt.
    pub(super) const fn link(self) -> LinkIndex {
        match self {
            Self::Router { link, .. }
            | Self::Address { link, .. }
            | Self::OnLink { link, .. }
            | Self::Leased { link, .. }
            | Self::Redirect { link, .. } => link,
        }
    }

    /// Whether a DHCP server gave it.
    pub(super) const fn is_leased(self) -> bool {
        match self {
            Self::Router { address, .. } | Self::Address { address, .. } => address.is_ipv4(),
            Self::Leased { .. } => true,
            Self::OnLink { .. } | Self::Redirect { .. } => false,
        }
    }

    /// Whether an IPv6 router gave it.
    pub(super) const fn is_advertised(self) -> bool {
        match self {
            Self::Router { address, .. } | Self::Address { address, .. } => address.is_ipv6(),
            Self::Redirect { destination, .. } => destination.is_ipv6(),
            Self::OnLink { .. } => true,
            Self::Leased { .. } => false,
        }
    }

    /// The destination of its route.
    pub(super) fn to(self) -> RouteTo {
        let host = |ip| match ip {
            IpAddr::V4(ip) => RouteTo::V4(Prefix::host(ip)),
            IpAddr::V6(ip) => RouteTo::V6(Prefix::host(ip)),
        };
        match self {
            Self::Router { address: IpAddr::V4(_), .. } => RouteTo::V4(Prefix::all()),
            Self::Router { address: IpAddr::V6(_), .. } => RouteTo::V6(Prefix::all()),
            Self::Address { address: ip, .. } | Self::Redirect { destination: ip, .. } => host(ip),
            Self::OnLink { prefix, .. } => RouteTo::V6(prefix),
            Self::Leased { to, .. } => RouteTo::V4(to),
        }
    }

    /// Its route; the route of an address comes from the interface that has it.
    fn route(self) -> Option<Route> {
        match self {
            Self::Router { link, address } => Some(Route::Via { link, gateway: address }),
            Self::OnLink { link, .. } => Some(Route::Connected(link)),
            Self::Leased { link, gateway, .. } if gateway.is_unspecified() => {
                Some(Route::Connected(link))
            }
            Self::Leased { link, gateway, .. } => {
                Some(Route::Via { link, gateway: gateway.into() })
            }
            Self::Redirect { link, destination, gateway } if destination == gateway => {
                Some(Route::Connected(link))
            }
            Self::Redirect { link, gateway, .. } => Some(Route::Via { link, gateway }),
            Self::Address { .. } => None,
        }
    }
}
