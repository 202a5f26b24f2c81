//! Entries that are found by an id, which is never reused.

/// Index of an entry and its generation at that index.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct SlabKey {
    index: u32,
    turn: u32,
}

impl SlabKey {
    pub(crate) fn slot(self) -> usize {
        usize::try_from(self.index).unwrap_or(usize::MAX)
    }
}

/// An id of one kind of entry.
pub(crate) trait Id: Copy {
    fn of(key: SlabKey) -> Self;
    fn key(self) -> SlabKey;
}

macro_rules! ids {
    ($($(#[$doc:meta])* $seen:vis $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        $seen struct $name(SlabKey);

        impl Id for $name {
            fn of(key: SlabKey) -> Self {
                Self(key)
            }

            fn key(self) -> SlabKey {
                self.0
            }
        }
    )*};
}

ids! {
    /// A TCP connection, of either side. No id is ever used for another connection.
    pub ConnId;
    /// A pending name resolution.
    pub QueryId;
    /// A running handler.
    pub(crate) TaskId;
    /// A message that is being read, or was.
    pub(crate) IncomingId;
    /// A session.
    pub(crate) SessionId;
    /// A request that waits for its response.
    pub(crate) ExchangeId;
}

impl ConnId {
    /// A small number that no other open connection has: an index for the caller's own table.
    pub fn slot(self) -> usize {
        self.0.slot()
    }
}

#[derive(Debug)]
pub(crate) struct Slab<I, T> {
    entries: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
    kind: core::marker::PhantomData<I>,
}

impl<I, T> Default for Slab<I, T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), kind: core::marker::PhantomData }
    }
}

impl<I: Id, T> Slab<I, T> {
    pub(crate) fn insert(&mut self, value: T) -> I {
        if let Some(index) = self.free.pop()
            && let Some((turn, entry)) = self.entries.get_mut(size(index))
        {
            *entry = Some(value);
            return I::of(SlabKey { index, turn: *turn });
        }
        let index = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        self.entries.push((0, Some(value)));
        I::of(SlabKey { index, turn: 0 })
    }

    pub(crate) fn get(&self, id: I) -> Option<&T> {
        let SlabKey { index, turn } = id.key();
        self.entries.get(size(index)).filter(|entry| entry.0 == turn)?.1.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        let SlabKey { index, turn } = id.key();
        self.entries.get_mut(size(index)).filter(|entry| entry.0 == turn)?.1.as_mut()
    }

    pub(crate) fn remove(&mut self, id: I) -> Option<T> {
        let SlabKey { index, turn } = id.key();
        let entry = self.entries.get_mut(size(index)).filter(|entry| entry.0 == turn)?;
        let value = entry.1.take()?;
        entry.0 = entry.0.wrapping_add(1);
        self.free.push(index);
        Some(value)
    }

    /// Takes an entry out for a while; its id stays valid, and a lookup finds nothing meanwhile.
    pub(crate) fn take(&mut self, id: I) -> Option<T> {
        let SlabKey { index, turn } = id.key();
        self.entries.get_mut(size(index)).filter(|entry| entry.0 == turn)?.1.take()
    }

    /// Puts back an entry that was taken.
    pub(crate) fn restore(&mut self, id: I, value: T) {
        let SlabKey { index, turn } = id.key();
        if let Some(entry) = self.entries.get_mut(size(index)).filter(|entry| entry.0 == turn) {
            entry.1 = Some(value);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn size(index: u32) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}
