//! The resource tree in memory: a slab, an index by identifier, names below each parent, and
//! instances oldest first.
//!
//! A contentInstance is resident, or paged out: then its text is in the store only, and the tree
//! has its [`InstanceRecord`].

mod family;
mod paging;

use crate::address::node_of;
use crate::dense::DenseMap;
use crate::labels::LabelIndex;
use crate::name_hash::NameKey;
use crate::paged::InstanceRecord;
use crate::places::{Account, AnswerPlaces, LackingPlaces, Places, PlacesMax};
use crate::resource::Resource;
use crate::resource_type::ResourceType;
use crate::stored::Damage;
use crate::time::Timestamp;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Octets of most paths: room that need not grow.
const PATH_OCTETS: usize = 64;

/// A place in the slab.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Slot(usize);

/// Octets of a resident instance beside its text: itself, and its entries in the indices.
const RESIDENT_OCTETS: usize = 400;

/// An instance of a container.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Instance {
    Resident(Slot),
    /// Its text is in the store only.
    PagedOut(InstanceRecord),
}

/// A change to store: a row of a resource or an outbox message, by number.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RowChange {
    /// This row now says this.
    Put {
        /// The row.
        seq: u64,
        /// A JSON object whose first member's name is its kind.
        body: Arc<str>,
    },
    /// A deleted row.
    Delete {
        /// The row.
        seq: u64,
    },
}

/// The tree.
#[derive(Debug)]
pub(crate) struct Tree {
    slots: Vec<Option<Resource>>,
    free: Vec<Slot>,
    /// By identifier, all but instances: theirs tells their number, and they come and go fastest.
    by_id: HashMap<Arc<str>, Slot>,
    by_seq: DenseMap<u64, Slot>,
    by_label: LabelIndex,
    places: Places,
    /// Octets of the store, counted as places are.
    stored: Places,
    answers: AnswerPlaces,
    /// Resources other than the root by the time they expire, but for instances that do not expire
    /// before their parent: they go with it.
    expiry: DenseMap<(Timestamp, u64), ()>,
    /// remoteCSE resources by CSE-ID.
    by_cse: HashMap<Box<str>, Slot>,
    root: Option<Slot>,
    /// Instances that are paged out.
    paged: usize,
    /// The next of each container's paged out instances to expire, and its container.
    paged_expiry: BTreeSet<(Timestamp, u64, Slot)>,
    /// Octets of the resident contentInstances.
    resident_octets: usize,
    /// Key of the hashes of paged out instances' names.
    name_key: NameKey,
}

impl Tree {
    /// An empty tree.
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_id: HashMap::default(),
            by_seq: DenseMap::default(),
            by_label: LabelIndex::default(),
            places: Places::default(),
            stored: Places::default(),
            answers: AnswerPlaces::default(),
            expiry: DenseMap::default(),
            by_cse: HashMap::new(),
            root: None,
            paged: 0,
            paged_expiry: BTreeSet::new(),
            resident_octets: 0,
            name_key: NameKey::random(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_seq.len() + self.paged
    }

    /// Octets of the store taken up ([`Resource::stored_octets`]).
    pub(crate) const fn stored_octets(&self) -> usize {
        self.stored.all()
    }

    /// Instances that are paged out.
    pub(crate) const fn paged(&self) -> usize {
        self.paged
    }

    /// Resources that are not paged out.
    pub(crate) const fn resident(&self) -> usize {
        self.by_seq.len()
    }

    /// Octets of memory of the resident contentInstances.
    pub(crate) const fn resident_octets(&self) -> usize {
        self.resident_octets
    }

    pub(crate) fn root(&self) -> Option<Slot> {
        self.root
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<&Resource> {
        self.slots.get(slot.0).and_then(Option::as_ref)
    }

    /// A resource for changes, except of its identifiers, its expiry, its labels or its family.
    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut Resource> {
        self.slots.get_mut(slot.0).and_then(Option::as_mut)
    }

    /// Changes a resource, perhaps its labels, but not its identifiers, its expiry or its family.
    pub(crate) fn change(&mut self, slot: Slot, how: impl FnOnce(&mut Resource)) {
        let Some(resource) = self.slots.get_mut(slot.0).and_then(Option::as_mut) else {
            return;
        };
        self.by_label.remove(resource);
        let before = resident_octets(resource);
        how(resource);
        let after = resident_octets(resource);
        self.resident_octets = (self.resident_octets + after).saturating_sub(before);
        self.by_label.add(resource);
        let taken = (resource.places(), resource.stored_octets());
        let asker = asker_of(resource);
        let account = self.account_of(slot);
        self.set_places(slot, &account, taken, asker);
    }

    /// Sets the places and the octets of the store of the resource in a slot: of none with 0; `asker` is that of a request resource.
    fn set_places(
        &mut self,
        slot: Slot,
        account: &Account,
        (places, stored): (usize, usize),
        asker: Option<Arc<str>>,
    ) {
        self.stored.set(slot.0, account, stored);
        let before = self.places.set(slot.0, account, places);
        if let Some(asker) = asker {
            self.answers.exchange(node_of(&asker), before, places);
        }
    }

    pub(crate) fn by_id(&self, id: &str) -> Option<Slot> {
        if let Some(&slot) = self.by_id.get(id) {
            return Some(slot);
        }
        let number = id.strip_prefix(ResourceType::ContentInstance.prefix())?;
        let slot = self.by_seq(u64::from_str_radix(number, 16).ok()?)?;
        self.get(slot).filter(|found| *found.id == *id).map(|_| slot)
    }

    /// The remoteCSE of this CSE-ID.
    pub(crate) fn by_cse(&self, cse: &str) -> Option<Slot> {
        self.by_cse.get(cse).copied()
    }

    pub(crate) fn by_seq(&self, seq: u64) -> Option<Slot> {
        self.by_seq.get(seq)
    }

    /// Numbers of the resources with one of these labels, unless there are more than `most`.
    pub(crate) fn labelled(&self, labels: &[String], most: usize) -> Option<BTreeSet<u64>> {
        self.by_label.with_any(labels, most)
    }

    /// Every resident resource, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, &Resource)> {
        self.by_seq.values().filter_map(|slot| self.get(slot).map(|found| (slot, found)))
    }

    /// The resident child of this name.
    pub(crate) fn child(&self, parent: Slot, name: &str) -> Option<Slot> {
        self.get(parent)?.family.as_ref()?.names.get(name).copied()
    }

    /// The children that are not instances, then the resident instances, each oldest first.
    pub(crate) fn children(&self, parent: Slot) -> impl DoubleEndedIterator<Item = Slot> {
        self.get(parent)
            .and_then(|resource| resource.family.as_ref())
            .into_iter()
            .flat_map(|family| family.children.values().copied().chain(family.instances.values()))
    }

    /// All children with their places, behind one of these: whether it is an instance, and its
    /// number; of the instances those from `first` to before `end`.
    pub(crate) fn children_after(
        &self,
        parent: Slot,
        place: Option<(bool, u64)>,
        (first, end): (u64, u64),
    ) -> impl Iterator<Item = ((bool, u64), Instance)> {
        use core::ops::Bound::{Excluded, Unbounded};
        let family = self.get(parent).and_then(|resource| resource.family.as_deref());
        let (others, first) = match place {
            None => (Some(Unbounded), first),
            Some((false, seq)) => (Some(Excluded(seq)), first),
            Some((true, seq)) => (None, first.max(seq.saturating_add(1))),
        };
        let others = family.zip(others).into_iter().flat_map(|(family, after)| {
            let range = family.children.range((after, Unbounded));
            range.map(|(&seq, &slot)| ((false, seq), Instance::Resident(slot)))
        });
        let instances = family.into_iter().flat_map(move |family| {
            let range = family.instances_since(first).take_while(move |(seq, _)| *seq < end);
            range.map(|(seq, instance)| ((true, seq), instance))
        });
        others.chain(instances)
    }

    /// Children from the number `first` on, oldest first, up to a maximum.
    pub(crate) fn created_since(
        &self,
        parent: Slot,
        first: u64,
        most: usize,
    ) -> Vec<(u64, Instance)> {
        let family = self.get(parent).and_then(|resource| resource.family.as_deref());
        let Some(family) = family else { return Vec::new() };
        let others = family.children.range(first..);
        let others = others.map(|(&seq, &slot)| (seq, Instance::Resident(slot)));
        let instances = family.instances_since(first);
        let mut found: Vec<_> = others.take(most).chain(instances.take(most)).collect();
        found.sort_unstable_by_key(|(seq, _)| *seq);
        found.truncate(most);
        found
    }

    /// The latest instances up to a maximum, the last first.
    pub(crate) fn latest_instances(&self, parent: Slot, most: usize) -> Vec<(u64, Instance)> {
        let family = self.get(parent).and_then(|resource| resource.family.as_deref());
        let Some(family) = family else { return Vec::new() };
        let resident = family.instances.iter().rev().take(most);
        let resident = resident.map(|(seq, slot)| (seq, Instance::Resident(slot)));
        let paged = family.paged.iter().flat_map(|it| it.latest()).take(most);
        let paged = paged.map(|record| (record.seq, Instance::PagedOut(record)));
        let mut found: Vec<_> = resident.chain(paged).collect();
        found.sort_unstable_by_key(|(seq, _)| core::cmp::Reverse(*seq));
        found.truncate(most);
        found
    }

    /// Marks whether a subscription lags behind, so that it is not notified now.
    pub(crate) fn set_lagging(&mut self, slot: Slot, lags: bool) {
        let parent = self.get(slot).and_then(|subscription| subscription.parent);
        let parent = parent.and_then(|parent| self.get_mut(parent));
        let Some(family) = parent.and_then(|parent| parent.family.as_mut()) else { return };
        family.subscriptions.retain(|&subscription| subscription != slot);
        family.lagging.retain(|&subscription| subscription != slot);
        if lags {
            family.lagging.push(slot);
        } else {
            family.subscriptions.push(slot);
        }
    }

    /// Number of the first instance that was created at `time` or later; the one behind the last
    /// if there is none. `None` if the instances are not in the order of their creation times.
    pub(crate) fn first_instance_since(&self, parent: Slot, time: Timestamp) -> Option<u64> {
        let family = self.get(parent)?.family.as_ref().filter(|it| !it.is_disordered)?;
        let (mut first, _) = family.instances_since(0).next()?;
        let mut end = family.last_instance()?.0.saturating_add(1);
        while first < end {
            let middle = first + (end - first) / 2;
            let (seq, instance) = family.instances_since(middle).next()?;
            let created = match instance {
                Instance::Resident(slot) => self.get(slot)?.created,
                Instance::PagedOut(record) => record.created,
            };
            if created < time {
                first = seq.saturating_add(1);
            } else {
                end = middle;
            }
        }
        Some(end)
    }

    /// Place of a resource among all below `top`, in the order in which a walk by levels finds
    /// them; `None` if it is not below it.
    pub(crate) fn place_below(&self, top: Slot, slot: Slot) -> Option<(usize, Vec<(bool, u64)>)> {
        let mut places = Vec::new();
        let mut at = slot;
        while at != top {
            let resource = self.get(at)?;
            places.push((resource.resource_type.is_instance(), resource.seq));
            at = resource.parent?;
        }
        places.reverse();
        Some((places.len(), places))
    }

    /// The instance that was created last.
    pub(crate) fn latest(&self, parent: Slot) -> Option<Instance> {
        self.latest_numbered(parent).map(|(_, instance)| instance)
    }

    /// The same with its number.
    pub(crate) fn latest_numbered(&self, parent: Slot) -> Option<(u64, Instance)> {
        self.get(parent)?.family.as_ref()?.last_instance()
    }

    /// The instance that was created first.
    pub(crate) fn oldest(&self, parent: Slot) -> Option<Instance> {
        self.get(parent)?.family.as_ref()?.instances_since(0).next().map(|(_, instance)| instance)
    }

    /// How many levels below the root a resource lies.
    pub(crate) fn depth(&self, slot: Slot) -> usize {
        let mut depth = 0;
        let mut at = self.get(slot).and_then(|resource| resource.parent);
        while let Some(parent) = at {
            depth += 1;
            at = self.get(parent).and_then(|resource| resource.parent);
        }
        depth
    }

    /// The structured identifier relative to the CSE: `cse-in/ae/cnt`.
    pub(crate) fn path(&self, slot: Slot) -> String {
        let mut path = String::with_capacity(PATH_OCTETS);
        self.push_path(slot, &mut path);
        path
    }

    /// Appends it. It goes as deep as the tree, which is bounded.
    pub(crate) fn push_path(&self, slot: Slot, path: &mut String) {
        let Some(resource) = self.get(slot) else {
            return;
        };
        if let Some(parent) = resource.parent {
            self.push_path(parent, path);
            path.push('/');
        }
        path.push_str(&resource.name);
    }

    /// Puts a resource below its parent (or at the root, if it is a CSEBase without one).
    pub(crate) fn insert(&mut self, resource: Resource) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Slot(self.slots.len() - 1)
        });
        let (seq, parent) = (resource.seq, resource.parent);
        if resource.resource_type != ResourceType::ContentInstance {
            self.by_id.insert(Arc::clone(&resource.id), slot);
        }
        self.by_seq.insert(seq, slot);
        if let (ResourceType::RemoteCse, Some(cse)) = (resource.resource_type, resource.text("csi"))
        {
            self.by_cse.insert(cse.into(), slot);
        }
        if resource.resource_type.expires() && self.expires_by_itself(&resource) {
            self.expiry.insert((resource.expires, seq), ());
        }
        self.by_label.add(&resource);
        self.resident_octets += resident_octets(&resource);
        let account = self.account(&resource);
        let taken = (resource.places(), resource.stored_octets());
        self.set_places(slot, &account, taken, asker_of(&resource));
        match parent.and_then(|parent| self.get_mut(parent)) {
            Some(parent) => parent.adopt(&resource, slot),
            None if resource.resource_type == ResourceType::CseBase => self.root = Some(slot),
            None => {}
        }
        if let Some(place) = self.slots.get_mut(slot.0) {
            *place = Some(resource);
        }
        slot
    }

    /// Takes one resource out. Its children must be gone before.
    pub(crate) fn remove(&mut self, slot: Slot) -> Option<Resource> {
        let resource = self.slots.get_mut(slot.0)?.take()?;
        if resource.resource_type != ResourceType::ContentInstance {
            self.by_id.remove(&resource.id);
        }
        self.by_seq.remove(resource.seq);
        self.by_label.remove(&resource);
        self.resident_octets = self.resident_octets.saturating_sub(resident_octets(&resource));
        let account = self.account(&resource);
        self.set_places(slot, &account, (0, 0), asker_of(&resource));
        if self.expires_by_itself(&resource) {
            self.expiry.remove((resource.expires, resource.seq));
        }
        if let (ResourceType::RemoteCse, Some(cse)) = (resource.resource_type, resource.text("csi"))
        {
            self.by_cse.remove(cse);
        }
        if let Some(parent) = resource.parent.and_then(|parent| self.get_mut(parent)) {
            parent.release(&resource, slot);
        }
        self.free.push(slot);
        Some(resource)
    }

    /// Moves the time a resource expires.
    pub(crate) fn set_expiry(&mut self, slot: Slot, expires: Timestamp) {
        let Some(resource) = self.get(slot) else { return };
        let (before, seq) = (resource.expires, resource.seq);
        if before == expires {
            return;
        }
        if self.expires_by_itself(resource) {
            self.expiry.remove((before, seq));
        }
        let Some(resource) = self.get_mut(slot) else { return };
        resource.expires = expires;
        let moved = self.get(slot).is_some_and(|resource| self.expires_by_itself(resource));
        if moved {
            self.expiry.insert((expires, seq), ());
        }
        self.exchange_expiries_below(slot, before, expires);
    }

    /// Whether a resource can expire before its parent does. An instance that cannot needs no entry
    /// among the expiries: what readings get is the expiry of their container, and entries at so
    /// many places of the index take longer than all else of an insertion.
    fn expires_by_itself(&self, resource: &Resource) -> bool {
        let parent = resource.parent.filter(|_| resource.resource_type.is_instance());
        let parent = parent.and_then(|parent| self.get(parent));
        parent.is_none_or(|parent| resource.expires < parent.expires)
    }

    /// Exchanges the entries of a resource's instances among the expiries, as its own has moved.
    fn exchange_expiries_below(&mut self, parent: Slot, before: Timestamp, now: Timestamp) {
        let family = self.get(parent).and_then(|parent| parent.family.as_ref());
        let instances = family.into_iter().flat_map(|family| family.instances.values());
        let keys = instances.filter_map(|slot| self.get(slot)).map(|it| (it.expires, it.seq));
        let keys: Vec<_> = keys.filter(|(at, _)| (*at < before) != (*at < now)).collect();
        for key in keys {
            if key.0 < now {
                self.expiry.insert(key, ());
            } else {
                self.expiry.remove(key);
            }
        }
    }

    /// What lacks for so many further places, and octets of the store, of an account.
    pub(crate) fn lacking_places(
        &self,
        account: &Account,
        further: usize,
        most: &PlacesMax,
    ) -> Option<LackingPlaces> {
        self.places.lacking(account, further, most)
    }

    /// The same for octets of the store.
    pub(crate) fn lacking_octets(
        &self,
        account: &Account,
        further: usize,
        most: &PlacesMax,
    ) -> Option<LackingPlaces> {
        self.stored.lacking(account, further, most)
    }

    /// What the places of the resource in a slot count toward.
    pub(crate) fn account_of(&self, slot: Slot) -> Account {
        self.get(slot).map_or_else(Account::default, |resource| self.account(resource))
    }

    /// What those of a resource below `parent` count toward, that a peer makes or this process.
    pub(crate) fn account_below(&self, parent: Slot, peer: Option<&Arc<str>>) -> Account {
        let above = self.account_of(parent);
        Account { peer: above.peer.or_else(|| peer.cloned()), ..above }
    }

    /// Places of request resources with their answers: of all, and of those of one node.
    pub(crate) fn answer_places(&self, node: &str) -> (usize, usize) {
        (self.answers.all(), self.answers.of(node))
    }

    /// What the places of a resource count toward: its branch, and the nearest peer on the way there.
    fn account(&self, resource: &Resource) -> Account {
        let mut account = Account::default();
        let mut at = resource;
        while let Some(above) = at.parent.and_then(|parent| self.get(parent)) {
            account.branch = Some(at.seq);
            account.peer = account.peer.or_else(|| at.made_by.clone());
            at = above;
        }
        account
    }

    /// The next resource to expire and when; of an instance that is paged out, its container too.
    pub(crate) fn next_expiry(&self) -> Option<(Timestamp, Expiring)> {
        let resident = self.expiry.first().map(|(key, ())| key);
        match self.paged_expiry.first() {
            Some(&(time, seq, container)) if resident.is_none_or(|it| (time, seq) < it) => {
                Some((time, Expiring::PagedOut { container, seq }))
            }
            _ => {
                let (time, seq) = resident?;
                Some((time, Expiring::Resident(self.by_seq(seq)?)))
            }
        }
    }

    /// A resource and everything below it that is resident, parents before children.
    pub(crate) fn subtree(&self, slot: Slot) -> Vec<Slot> {
        let mut found = vec![slot];
        let mut at = 0;
        while let Some(&parent) = found.get(at) {
            found.extend(self.children(parent));
            at += 1;
        }
        found
    }

    /// Takes over a stored row: at start, or to take back what could not be stored.
    ///
    /// # Errors
    ///
    /// If the row is no resource, or its parent is not known.
    pub(crate) fn restore(&mut self, seq: u64, body: &Arc<str>) -> Result<(), Damage> {
        let mut resource = Resource::from_record(seq, body)?;
        if let Some(slot) = self.by_seq(seq) {
            self.set_expiry(slot, resource.expires);
            self.change(slot, |present| {
                present.attributes = resource.attributes;
                present.representation = resource.representation;
                present.modified = resource.modified;
                present.state = resource.state;
                present.owner = resource.owner;
                present.sponsor = resource.sponsor;
            });
            return Ok(());
        }
        resource.parent = self.by_id(&resource.parent_id);
        if resource.parent.is_none() && resource.resource_type != ResourceType::CseBase {
            return Err(Damage::Parent(resource.parent_id));
        }
        // One text for all children.
        if let Some(parent) = resource.parent.and_then(|parent| self.get(parent)) {
            resource.parent_id = Arc::clone(&parent.id);
        }
        self.insert(resource);
        Ok(())
    }
}

/// The next resource to expire.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Expiring {
    Resident(Slot),
    PagedOut { container: Slot, seq: u64 },
}

/// Who has asked what a request resource keeps the answer to; `None` of other types.
fn asker_of(resource: &Resource) -> Option<Arc<str>> {
    (resource.resource_type == ResourceType::Request).then(|| Arc::clone(&resource.owner))
}

/// Octets of memory of a contentInstance; none of other types.
fn resident_octets(resource: &Resource) -> usize {
    if resource.resource_type != ResourceType::ContentInstance {
        return 0;
    }
    resource.representation.as_ref().map_or(0, |text| text.len() + RESIDENT_OCTETS)
}
