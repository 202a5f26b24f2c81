//! What the system allows this process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Descriptors that are none of a connection: listeners, the loops' own, files.
const DESCRIPTORS_BESIDE: u64 = 128;

/// Raises the soft limit of descriptors as far as `connections` need and the hard one allows.
///
/// The answer is a sentence for the operator if that is not enough. The number of mappings
/// (`vm.max_map_count`) does not matter here: pending octets lie on the heap, none is mapped.
pub(crate) fn descriptors(connections: u64) -> Option<String> {
    let needed = connections.saturating_add(DESCRIPTORS_BESIDE);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    if soft >= needed {
        return None;
    }
    let wanted = needed.min(hard);
    let reached = match setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) {
        Ok(()) => wanted,
        Err(_) => soft,
    };
    (reached < needed).then(|| {
        format!(
            "the program's limits allow {connections} connections, which need {needed} \
             descriptors; this process may have {reached} (`ulimit -n`): connections above that \
             wait at the door"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_told_with_numbers() {
        assert_eq!(descriptors(1), None);
        let told = descriptors(u64::MAX - 500).unwrap();
        assert!(told.contains("18446744073709551243 descriptors"), "{told}");
    }
}
