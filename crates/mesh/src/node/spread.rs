//! Which classes share the load of two paths, and which path background traffic takes.

use super::MeshNode;
use super::ends::{metric, shared};
use crate::edge::PathClass;
use crate::identity::PathId;

impl MeshNode {
    /// Whether flows of a class are spread over two paths: those of bulk traffic, over paths that cost the
    /// same and share neither a relay nor the first neighbour.
    ///
    /// The other classes keep to one path: what is sent in them can be told apart by its path.
    pub(super) fn are_equal(&self, class: PathClass, (one, other): (PathId, PathId)) -> bool {
        if !self.settings.spreads || class != PathClass::BULK {
            return false;
        }
        let (Some(a), Some(b)) = (self.segments.get(&one), self.segments.get(&other)) else {
            return false;
        };
        let same_hop = a.sides().any(|side| b.sides().any(|it| it.adjacency == side.adjacency));
        metric(a, class) == metric(b, class) && shared(a, b) == 0 && !same_hop
    }

    /// A path for background traffic that shares no relay with those of bulk traffic; if there is none,
    /// with the first of them.
    pub(super) fn apart(&self, taken: &[PathId], usable: &[(u32, PathId)]) -> Option<PathId> {
        let apart = |path: PathId, from: PathId| {
            let both = self.segments.get(&path).zip(self.segments.get(&from));
            path != from && both.is_some_and(|(a, b)| shared(a, b) == 0)
        };
        let of_all = usable.iter().map(|&(_, path)| path);
        let mut of_all = of_all.filter(|&path| taken.iter().all(|&from| apart(path, from)));
        let &first = taken.first()?;
        let of_first = || self.backup(first, usable).filter(|&path| apart(path, first));
        of_all.next().or_else(of_first)
    }
}
