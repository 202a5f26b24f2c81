//! Differences between two descriptions in `[devices]` and `[cse]`, by key.

use gatewright_config::{Config, differences};
use gatewright_part::Change;

/// Differences in `[cse]`.
pub(super) fn cse(old: &Config, new: &Config) -> Vec<Change> {
    by_key(old, new, "cse", old.cse == new.cse)
}

/// Differences in `[devices]`.
pub(super) fn devices(old: &Config, new: &Config) -> Vec<Change> {
    by_key(old, new, "devices", old.devices == new.devices)
}

/// The differences by key; none where the text gives the `same` in other words.
fn by_key(old: &Config, new: &Config, table: &str, same: bool) -> Vec<Change> {
    if same {
        return Vec::new();
    }
    let mut changes: Vec<_> = differences(old, new, table).into_iter().map(Change::from).collect();
    if changes.is_empty() {
        // Descriptions that an embedder has made without a text.
        changes.push(Change::restart(format!("[{table}]"), "changed"));
    }
    changes
}
