//! Capabilities of this process (capabilities(7)).

use super::{Needs, SystemCheck};
use std::fs;

/// A capability, its number, and what it is for.
const CAPABILITIES: [(&str, u32, &str); 6] = [
    ("CAP_NET_ADMIN", 12, "interfaces up, TAP and TUN, XDP programs, tables of exclusive links"),
    ("CAP_NET_RAW", 13, "packet sockets and AF_XDP"),
    ("CAP_BPF", 39, "programs and maps of AF_XDP, forwarding in the driver and the mesh"),
    ("CAP_PERFMON", 38, "pointers in these programs"),
    ("CAP_IPC_LOCK", 14, "memory that AF_XDP locks, beyond `ulimit -l`"),
    ("CAP_NET_BIND_SERVICE", 10, "listeners below port 1024"),
];

/// The state of each capability.
pub(super) fn checks(needs: Needs) -> Vec<SystemCheck> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = effective(&status);
    CAPABILITIES.iter().map(|capability| check(capability, effective, needs)).collect()
}

fn check(
    &(name, number, purpose): &(&str, u32, &str),
    effective: u64,
    needs: Needs,
) -> SystemCheck {
    let has = effective & 1 << number != 0;
    let found = format!("{}: {purpose}", if has { "has it" } else { "has it not" });
    let check = SystemCheck::good("rights", name, found);
    if has {
        return check;
    }
    let needed = match name {
        "CAP_NET_BIND_SERVICE" => needs.low_ports,
        // Without it a limit of the user's counts, which is looked at by itself.
        "CAP_IPC_LOCK" => false,
        "CAP_BPF" | "CAP_PERFMON" => needs.xdp || needs.mesh,
        _ => needs.links(),
    };
    let advice = format!(
        "run as root, or give it: `AmbientCapabilities={name}` in the service, or `setcap \
         {}+ep` on the program",
        name.to_lowercase()
    );
    check.lacking(needed, advice)
}

/// The mask of effective capabilities in `/proc/PID/status`.
fn effective(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::CheckState;

    /// proc(5): the mask is hexadecimal; capabilities(7): CAP_NET_ADMIN is 12, CAP_BPF 39.
    #[test]
    fn what_links_need_is_missing_only_for_links() {
        let status = "Name:\tgatewright\nCapInh:\t0000000000000000\nCapEff:\t0000000000001000\n";
        assert_eq!(effective(status), 1 << 12);
        let links = Needs { interfaces: true, ..Needs::default() };
        let state = |name: &str, needs: Needs| {
            let capability = CAPABILITIES.iter().find(|capability| capability.0 == name).unwrap();
            check(capability, effective(status), needs).state
        };
        assert_eq!(state("CAP_NET_ADMIN", links), CheckState::Good);
        assert_eq!(state("CAP_NET_RAW", links), CheckState::Missing);
        assert_eq!(state("CAP_NET_RAW", Needs::default()), CheckState::Limited);
        assert_eq!(state("CAP_BPF", links), CheckState::Limited);
        let xdp = Needs { xdp: true, ..links };
        assert_eq!(state("CAP_BPF", xdp), CheckState::Missing);
    }
}
