//! Limits of a service entity, as a description sets them.

use super::MIB;
use gatewright_config::{Config, Cse, PeerBounds};
use gatewright_onem2m::Limits;

/// Memory for whole instances of a store, if not given.
const MEMORY_MIB: u32 = 64;

/// The limits of the machine that a description sets.
pub(super) fn set_limits(limits: &mut Limits, config: &Config, described: &Cse) {
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let octets = |mib: u32| usize::try_from(u64::from(mib) * MIB).unwrap_or(usize::MAX);
    if let Some(most) = described.resources_max {
        limits.resources = count(most);
        limits.branch_resources = count(most / 4);
    }
    limits.branch_resources = described.branch_max.map_or(limits.branch_resources, count);
    if let Some(mib) = described.store_mib {
        // The rest is for remembered requests, for blocks and for what is unused in pages.
        limits.stored_octets = octets(mib) / 4 * 3;
        let (part, all) = (limits.branch_resources, limits.resources);
        limits.branch_stored_octets = part_of(octets(mib), (part, all));
    }
    share_room(limits, config.devices.is_some());
    limits.instances = described.instances_max.map_or(limits.instances, u64::from);
    let memory = octets(described.memory_mib.unwrap_or(MEMORY_MIB));
    limits.resident_octets = described.store.is_some().then_some(memory);
    let PeerBounds { answers_mib, answers_mib_of_all, .. } = described.peer;
    limits.unread_octets_per_peer = answers_mib.map_or(limits.unread_octets_per_peer, octets);
    limits.unread_octets = answers_mib_of_all.map_or(limits.unread_octets, octets);
    let (readings, notifications) = config.waiting_octets();
    limits.messages_octets = usize::try_from(readings).unwrap_or(usize::MAX);
    limits.notifications_octets = usize::try_from(notifications).unwrap_or(usize::MAX);
    if let Some(devices) = &config.devices {
        limits.messages_waiting = count(devices.waiting_max);
        limits.messages_waiting_total = count(devices.waiting_total);
    }
}

/// One peer uses half of the room, or as much as one branch may if that is more; and peers leave a
/// quarter to this gateway's devices, unless one branch may use that, too.
fn share_room(limits: &mut Limits, has_devices: bool) {
    let reserved = |all: usize, branch: usize| {
        if has_devices { (all / 4).min(all.saturating_sub(branch)) } else { 0 }
    };
    limits.peer_resources = limits.branch_resources.max(limits.resources / 2);
    limits.reserved_resources = reserved(limits.resources, limits.branch_resources);
    let (all, branch) = (limits.stored_octets, limits.branch_stored_octets);
    limits.peer_stored_octets = branch.max(all / 2);
    limits.reserved_stored_octets = reserved(all, branch);
}

/// As much of `whole` as `part` is of `all`.
fn part_of(whole: usize, (part, all): (usize, usize)) -> usize {
    let wide = |number: usize| u128::try_from(number).unwrap_or(u128::MAX);
    let share = wide(whole).saturating_mul(wide(part)) / wide(all.max(1));
    usize::try_from(share).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_diagnostic::SourceId;

    fn limits(more: &str) -> Limits {
        let text = format!("[cse]\nbase = \"gw\"\nid = \"/gw\"\nhttp = \"127.0.0.1:1\"\n{more}");
        let parsed = gatewright_config::parse(SourceId::default(), &text);
        let config = parsed.config.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics));
        let mut limits = Limits::default();
        set_limits(&mut limits, &config, config.cse.as_ref().unwrap());
        limits
    }

    /// Where there are devices, a quarter is theirs, of resources and of the store; one peer has half.
    #[test]
    fn a_quarter_is_for_devices() {
        let devices = "[devices]\nlisten = \"127.0.0.1:2\"\n";
        let alone = limits("resources_max = 1000\n");
        assert_eq!((alone.peer_resources, alone.reserved_resources), (500, 0));
        let store = "resources_max = 1000\nstore = \"a.db\"\nstore_mib = 16\n";
        let shared = limits(&format!("{store}{devices}"));
        assert_eq!((shared.peer_resources, shared.reserved_resources), (500, 250));
        let mib = 1024 * 1024;
        assert_eq!((shared.stored_octets, shared.branch_stored_octets), (12 * mib, 4 * mib));
        assert_eq!((shared.peer_stored_octets, shared.reserved_stored_octets), (6 * mib, 3 * mib));
        // Who lets one branch use all has none to reserve.
        let whole = limits(&format!("branch_max = 1000\n{store}{devices}"));
        assert_eq!((whole.peer_resources, whole.reserved_resources), (1000, 0));
    }

    /// The octets of what waits are bounded, too, and by a small store more closely.
    #[test]
    fn octets_of_messages_have_a_bound() {
        let mib = 1024 * 1024;
        let octets = |more: &str| {
            let limits = limits(more);
            (limits.messages_octets, limits.notifications_octets)
        };
        assert_eq!(octets(""), (128 * mib, 128 * mib));
        assert_eq!(octets("store = \"a.db\"\nstore_mib = 64\n"), (4 * mib, 4 * mib));
        let devices = "[devices]\nlisten = \"127.0.0.1:2\"\nwaiting_mib = 9\n";
        assert_eq!(
            octets(&format!("store = \"a.db\"\nstore_mib = 64\n{devices}")),
            (9 * mib, 4 * mib)
        );
    }
}
