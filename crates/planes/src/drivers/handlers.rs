//! Handlers as drivers have to know them: which packets these leave to the graph for them, and what
//! drivers do in their place.

use super::{IPV4, IPV6};
use gatewright_data::HandlerValue;
use gatewright_packet::LinkIndex;
use gatewright_stack::{
    At, Attachment, AttachmentId, Place, Side,
    builtin::{HostPart, Match},
};
use gatewright_wire::{EtherType, ethernet::Ethernet};
use gatewright_xdp::{LimitIndex, RULE_LIMITS_MAX, RULES_MAX, RuleAction, RuleMatch};
use std::collections::BTreeSet;

/// An attached handler.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Attached {
    pub(crate) id: AttachmentId,
    pub(crate) at: Attachment,
    pub(crate) part: DriverPart,
}

/// The part that drivers have in a handler, of packets that are only to be forwarded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum DriverPart {
    /// It sees them: they go to the graph.
    Sees,
    /// It does nothing with them.
    Ignores,
    /// Drivers count them in its place.
    Counts,
    /// Drivers drop those that match.
    Drops(Match),
    /// Drivers drop those for which this bucket has no token.
    Limits(LimitIndex),
}

impl DriverPart {
    pub(crate) const fn of(value: &HandlerValue) -> Self {
        match value {
            HandlerValue::Count => Self::Counts,
            HandlerValue::Drop { which } => Self::Drops(*which),
            HandlerValue::RateLimitWithDrivers { bucket, .. } => Self::Limits(LimitIndex(*bucket)),
            // The kernel beside a link gets copies of what is for this host.
            HandlerValue::Host { part: HostPart::Copy, .. } => Self::Ignores,
            _ => Self::Sees,
        }
    }

    /// Whether drivers do it.
    pub(super) const fn is_of_drivers(self) -> bool {
        matches!(self, Self::Counts | Self::Drops(_) | Self::Limits(_))
    }
}

/// A bucket of tokens for a new handler beside these; `None` if drivers have no part in it, or all
/// buckets are taken.
pub(crate) fn free_bucket<'a>(
    at: &Attachment,
    beside: impl Iterator<Item = &'a Attached>,
) -> Option<LimitIndex> {
    if !is_of_transit(at.at) || at.place != Place::Before || at.side != Side::Receive {
        return None;
    }
    let taken = beside.filter_map(|one| match one.part {
        DriverPart::Limits(bucket) => Some(bucket),
        _ => None,
    });
    let taken: BTreeSet<_> = taken.collect();
    (0..RULE_LIMITS_MAX).map(LimitIndex).find(|bucket| !taken.contains(bucket))
}

/// A handler as a rule of a driver.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct DriverRule {
    pub(super) id: AttachmentId,
    pub(super) action: RuleAction,
    /// Octets before the IP header that it counts.
    pub(super) header_len: u16,
}

/// What handlers make of packets that a link receives or sends, by family.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Handled {
    /// Whether packets that it receives go to the graph.
    pub(super) received: [bool; 2],
    /// Whether packets that it would send do.
    pub(super) sent: [bool; 2],
    /// The rules for packets that it receives and that do not go to the graph.
    pub(super) rules: [Vec<DriverRule>; 2],
}

impl Handled {
    /// By the handlers of a link.
    pub(super) fn by(all: &[Attached], link: LinkIndex) -> Self {
        let mut handled = Self::default();
        let own = |one: &&Attached| {
            one.at.link.is_none_or(|on| on == link) && one.part != DriverPart::Ignores
        };
        for family in [IPV4, IPV6] {
            let looks = |one: &&Attached| looks_at(one.at.at).get(family) == Some(&true);
            let (received, sent): (Vec<_>, _) =
                all.iter().filter(own).filter(looks).partition(|one| one.at.side == Side::Receive);
            let rules = rules(&received, family == IPV6);
            if let (Some(received), Some(is_sent), Some(place)) = (
                handled.received.get_mut(family),
                handled.sent.get_mut(family),
                handled.rules.get_mut(family),
            ) {
                (*received, *is_sent) = (rules.is_none(), !sent.is_empty());
                *place = rules.unwrap_or_default();
            }
        }
        handled
    }

    /// Leaves to the graph what the handlers of now or the next ones see, and what rules decide that
    /// differ.
    pub(super) fn meet(&mut self, next: &Self) {
        let rules = self.rules.iter().zip(&next.rules).map(|(now, next)| now != next);
        let received = self.received.iter_mut().zip(next.received).zip(rules);
        received.for_each(|((now, next), differ)| *now |= next || differ);
        self.sent.iter_mut().zip(next.sent).for_each(|(now, next)| *now |= next);
    }
}

/// Handlers at packets that a link receives as the rules of its driver, in the order in which packets
/// meet them; none if one of them is for the graph, or they are too many.
fn rules(handlers: &[&Attached], is_ipv6: bool) -> Option<Vec<DriverRule>> {
    let mut rules = Vec::new();
    for Attached { id, at, part } in handlers.iter().copied() {
        let action = match (part, at.place) {
            (DriverPart::Counts, Place::Before | Place::Tap) => RuleAction::Count,
            (DriverPart::Drops(which), Place::Before) => RuleAction::Drop(matched(which)),
            (DriverPart::Limits(bucket), Place::Before) => RuleAction::Limit(*bucket),
            _ => return None,
        };
        let is_frame = at.at == At::Frame;
        let header_len = if is_frame { u16::try_from(Ethernet::LEN).ok()? } else { 0 };
        let rule = DriverRule { id: *id, action, header_len };
        // Of another family, it matches none.
        if !matches!(action, RuleAction::Drop(which) if !which.is_of(is_ipv6)) {
            rules.push(((!is_frame, at.place == Place::Tap), rule));
        }
    }
    rules.sort_by_key(|(order, _)| *order);
    (rules.len() <= RULES_MAX).then(|| rules.into_iter().map(|(_, rule)| rule).collect())
}

fn matched(which: &Match) -> RuleMatch {
    let Match { source, destination, protocol, port } = *which;
    RuleMatch { source, destination, protocol: protocol.map(|protocol| protocol.0), port }
}

/// Whether a handler at a position sees transit packets of IPv4 and IPv6.
const fn looks_at(at: At) -> [bool; 2] {
    let mut looks = [false; 2];
    match at {
        At::Frame => looks = [true; 2],
        At::EtherType(EtherType::IPV4) => looks[IPV4] = true,
        At::EtherType(EtherType::IPV6) => looks[IPV6] = true,
        // Packets of other kinds, to this host or from it, or that went up already.
        _ => {}
    }
    looks
}

/// Whether a handler at a position sees packets that are only forwarded, and none but those that a
/// link receives or sends.
pub(super) fn is_of_transit(at: At) -> bool {
    looks_at(at).contains(&true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAN: LinkIndex = LinkIndex(0);

    fn handler(id: u32, (at, place): (At, Place), part: DriverPart) -> Attached {
        let at = Attachment { link: Some(LAN), ..Attachment::new(at, place) };
        Attached { id: AttachmentId(id), at, part }
    }

    fn ids(rules: &[DriverRule]) -> Vec<u32> {
        rules.iter().map(|rule| rule.id.0).collect()
    }

    #[test]
    fn rules_stand_in_the_order_in_which_packets_meet_their_handlers() {
        let [v4, v6] = [EtherType::IPV4, EtherType::IPV6].map(At::EtherType);
        let of4 = Match { source: Some(("192.0.2.0".parse().unwrap(), 24)), ..Match::default() };
        let all = [
            handler(1, (v4, Place::Before), DriverPart::Drops(Match::default())),
            handler(2, (At::Frame, Place::Tap), DriverPart::Counts),
            handler(3, (At::Frame, Place::Before), DriverPart::Drops(of4)),
            handler(4, (v6, Place::Before), DriverPart::Counts),
            handler(5, (At::Frame, Place::Tap), DriverPart::Ignores),
        ];
        let Handled { received, sent, rules } = Handled::by(&all, LAN);
        assert_eq!((received, sent), ([false; 2], [false; 2]));
        assert_eq!(rules.each_ref().map(|rules| ids(rules)), [vec![3, 2, 1], vec![2, 4]]);
        assert_eq!(rules[IPV4].iter().map(|rule| rule.header_len).collect::<Vec<_>>(), [14, 14, 0]);
        // On another link there are none.
        assert_eq!(Handled::by(&all, LinkIndex(1)), Handled::default());
    }

    #[test]
    fn a_limit_is_a_rule_of_both_families_with_a_bucket_of_its_own() {
        let v4 = (At::EtherType(EtherType::IPV4), Place::Before);
        let limits = |bucket| DriverPart::Limits(LimitIndex(bucket));
        let all = [
            handler(1, (At::Frame, Place::Before), limits(0)),
            handler(2, v4, limits(2)),
            handler(3, v4, DriverPart::Counts),
        ];
        let Handled { received, rules, .. } = Handled::by(&all, LAN);
        assert_eq!(
            (received, ids(&rules[IPV4]), ids(&rules[IPV6])),
            ([false; 2], vec![1, 2, 3], vec![1])
        );
        assert_eq!(rules[IPV4][1].action, RuleAction::Limit(LimitIndex(2)));
        let free = |at: &Attachment| free_bucket(at, all.iter());
        assert_eq!(free(&all[1].at), Some(LimitIndex(1)));
        // Where drivers have no part, none is used up.
        for at in [
            Attachment { side: Side::Transmit, ..all[1].at },
            Attachment { place: Place::After, ..all[1].at },
            Attachment { at: At::EtherType(EtherType::ARP), ..all[1].at },
        ] {
            assert_eq!(free(&at), None);
        }
        let full: Vec<_> = (0..RULE_LIMITS_MAX).map(|at| handler(9, v4, limits(at))).collect();
        assert_eq!(free_bucket(&all[1].at, full.iter()), None);
    }

    #[test]
    fn packets_go_to_the_graph_for_what_drivers_do_not_do() {
        let v4 = At::EtherType(EtherType::IPV4);
        let count = handler(1, (v4, Place::Before), DriverPart::Counts);
        let up = |all: &[Attached]| Handled::by(all, LAN).received;
        assert_eq!(up(&[count]), [false; 2]);
        assert_eq!(up(&[count, handler(2, (v4, Place::Tap), DriverPart::Sees)]), [true, false]);
        for place in [Place::Instead, Place::After] {
            assert_eq!(up(&[handler(2, (v4, place), DriverPart::Counts)]), [true, false]);
        }
        assert_eq!(up(&[count; RULES_MAX]), [false; 2]);
        assert_eq!(up(&[count; RULES_MAX + 1]), [true, false]);
        let sends = Attached { at: Attachment { side: Side::Transmit, ..count.at }, ..count };
        assert_eq!(Handled::by(&[sends], LAN).sent, [true, false]);
    }

    #[test]
    fn while_handlers_are_exchanged_what_differs_goes_to_the_graph() {
        let v4 = At::EtherType(EtherType::IPV4);
        let [one, other] = [1, 2].map(|id| handler(id, (v4, Place::Before), DriverPart::Counts));
        let between = |now: &[Attached], next: &[Attached]| {
            let mut handled = Handled::by(now, LAN);
            handled.meet(&Handled::by(next, LAN));
            handled.received
        };
        assert_eq!(between(&[one], &[one]), [false; 2]);
        assert_eq!(between(&[one], &[one, other]), [true, false]);
        assert_eq!(between(&[one], &[]), [true, false]);
        let sees = handler(3, (At::Frame, Place::Tap), DriverPart::Sees);
        assert_eq!(between(&[one, sees], &[one]), [true; 2]);
        assert_eq!(between(&[one], &[one, sees]), [true; 2]);
    }
}
