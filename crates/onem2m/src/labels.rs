//! Index of resources by label, which answers a discovery without a walk over the tree.

use crate::resource::Resource;
use std::collections::{BTreeSet, HashMap};

/// Numbers of the resources with each label. An entry takes about 16 octets.
#[derive(Debug, Default)]
pub(crate) struct LabelIndex(HashMap<Box<str>, BTreeSet<u64>>);

impl LabelIndex {
    pub(crate) fn add(&mut self, resource: &Resource) {
        resource.each_label(|label| {
            if let Some(numbers) = self.0.get_mut(label) {
                numbers.insert(resource.seq);
            } else {
                self.0.insert(label.into(), BTreeSet::from([resource.seq]));
            }
        });
    }

    pub(crate) fn remove(&mut self, resource: &Resource) {
        resource.each_label(|label| {
            let Some(numbers) = self.0.get_mut(label) else { return };
            numbers.remove(&resource.seq);
            if numbers.is_empty() {
                self.0.remove(label);
            }
        });
    }

    /// Numbers of the resources with one of these labels, unless there are more than `most`.
    pub(crate) fn with_any(&self, labels: &[String], most: usize) -> Option<BTreeSet<u64>> {
        let sets = || labels.iter().filter_map(|label| self.0.get(label.as_str()));
        let count = sets().map(BTreeSet::len).fold(0, usize::saturating_add);
        (count <= most).then(|| sets().flatten().copied().collect())
    }
}
