//! Frames that the kernel's interfaces of links have received, whoever takes them.

use crate::setup::DataSetup;
use std::fs;

/// Frames that the interfaces of `setup` have received since they were made, as the kernel counts
/// them.
pub(super) fn arrived(setup: &DataSetup) -> u64 {
    // Without the table nothing is known of them, and nothing is claimed.
    let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let interfaces: Vec<&str> =
        setup.links.iter().filter_map(|link| link.device.interface()).collect();
    received(&table, &interfaces)
}

/// The sum of received packets of `interfaces`: the second number behind each name (proc_net(5)).
fn received(table: &str, interfaces: &[&str]) -> u64 {
    let counts = table.lines().filter_map(|line| {
        let (name, numbers) = line.split_once(':')?;
        let packets = numbers.split_whitespace().nth(1)?;
        interfaces.contains(&name.trim()).then(|| packets.parse::<u64>().ok())?
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::received;

    /// `/proc/net/dev` of Linux 6.18.
    const TABLE: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:  125000    1250    0    0    0     0          0         0   125000    1250    0    0    0     0       0          0
    g0: 4200000   70000    0   12    0     0          0         0  3000000   50000    0    0    0     0       0          0
    g1: 3000000   50000    0    0    0     0          0         0  4200000   70000    0    0    0     0       0          0
";

    #[test]
    fn only_frames_of_the_links_are_summed() {
        assert_eq!(received(TABLE, &["g0", "g1"]), 120_000);
        assert_eq!(received(TABLE, &["g1", "g10"]), 50_000);
        assert_eq!(received(TABLE, &[]), 0);
        assert_eq!(received("", &["g0"]), 0);
    }
}
