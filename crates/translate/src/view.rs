//! Views: the typed slots of one message, and the guards over them.

use gatewright_lang::ir::{ColumnType, Guard, Message, Pattern, Program, SlotId, SlotType};

/// What a slot holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Value {
    /// A number.
    Int(i64),
    /// Octets. Where a message is written, they may fill a stream, too.
    Octets(Vec<u8>),
    /// Rows of a list; each has one value a column, in the order of [`SlotType::List`].
    List(Vec<Vec<Self>>),
    /// A stream: its octets pass by and are not here.
    Stream,
}

/// The slots of one message.
///
/// A slot is *settled* when it is known whether it is set: a handler that waits for it may go on.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct View {
    slots: Vec<Place>,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Place {
    value: Option<Value>,
    settled: bool,
}

impl View {
    /// A view of a message with no slot set.
    pub fn of(message: &Message) -> Self {
        Self::with_slots(message.slots.len())
    }

    /// A view of so many slots, none set.
    pub(crate) fn with_slots(slots: usize) -> Self {
        Self { slots: vec![Place::default(); slots] }
    }

    /// What a slot holds; `None` while it is not settled, and if it is absent.
    ///
    /// A list without an entry is absent as well.
    pub fn get(&self, slot: SlotId) -> Option<&Value> {
        self.slots.get(slot.index())?.value.as_ref()
    }

    /// Whether it is known what a slot holds, or that it is absent.
    pub fn is_settled(&self, slot: SlotId) -> bool {
        self.slots.get(slot.index()).is_some_and(|place| place.settled)
    }

    /// Fills a slot and settles it; an id of another message is without effect.
    pub fn set(&mut self, slot: SlotId, value: Value) {
        self.put(slot, value);
        self.settle(slot);
    }

    /// A number; `None` for anything else.
    pub fn int(&self, slot: SlotId) -> Option<i64> {
        match self.get(slot)? {
            Value::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// Octets; `None` for anything else.
    pub fn octets(&self, slot: SlotId) -> Option<&[u8]> {
        match self.get(slot)? {
            Value::Octets(octets) => Some(octets),
            _ => None,
        }
    }

    /// The rows of a list; none for anything else.
    pub fn rows(&self, slot: SlotId) -> &[Vec<Value>] {
        match self.get(slot) {
            Some(Value::List(rows)) => rows,
            _ => &[],
        }
    }

    /// Fills a slot without settling it: more may come.
    pub(crate) fn put(&mut self, slot: SlotId, value: Value) {
        if let Some(place) = self.slots.get_mut(slot.index()) {
            place.value = Some(value);
        }
    }

    /// Appends a row to a list and says how many there are.
    pub(crate) fn push(&mut self, slot: SlotId, row: Vec<Value>) -> usize {
        let Some(place) = self.slots.get_mut(slot.index()) else { return 0 };
        match &mut place.value {
            Some(Value::List(rows)) => {
                rows.push(row);
                rows.len()
            }
            value => {
                *value = Some(Value::List(vec![row]));
                1
            }
        }
    }

    pub(crate) fn clear(&mut self, slot: SlotId) {
        if let Some(place) = self.slots.get_mut(slot.index()) {
            *place = Place::default();
        }
    }

    pub(crate) fn settle(&mut self, slot: SlotId) {
        if let Some(place) = self.slots.get_mut(slot.index()) {
            place.settled = true;
        }
    }

    pub(crate) fn settle_all(&mut self) {
        self.slots.iter_mut().for_each(|place| place.settled = true);
    }

    /// Whether a guard holds. An absent slot is not any pattern.
    pub fn holds(&self, program: &Program, guard: &Guard) -> bool {
        match guard {
            Guard::Always => true,
            Guard::Present(slot) => self.get(*slot).is_some(),
            Guard::All(guards) => guards.iter().all(|guard| self.holds(program, guard)),
            Guard::Any(guards) => guards.iter().any(|guard| self.holds(program, guard)),
            Guard::Not(guard) => !self.holds(program, guard),
            Guard::Is { slot, patterns } => self.get(*slot).is_some_and(|value| {
                patterns.iter().any(|pattern| matches_pattern(program, value, *pattern))
            }),
        }
    }
}

fn matches_pattern(program: &Program, value: &Value, pattern: Pattern) -> bool {
    match (pattern, value) {
        (Pattern::Int { low, high }, Value::Int(value)) => (low..=high).contains(value),
        (Pattern::Octets(literal), Value::Octets(octets)) => program.literal(literal) == octets,
        (Pattern::Empty, Value::Octets(octets)) => octets.is_empty(),
        (Pattern::Empty, Value::List(rows)) => rows.is_empty(),
        _ => false,
    }
}

/// Whether a value is one that a slot of this type may hold.
pub(crate) fn within(ty: &SlotType, value: &Value) -> bool {
    match (ty, value) {
        (SlotType::Int { low, high }, Value::Int(value)) => (low..=high).contains(&value),
        (SlotType::Octets { max }, Value::Octets(octets)) => fits(octets.len(), *max),
        (SlotType::List { columns, max }, Value::List(rows)) => {
            fits(rows.len(), *max) && rows.iter().all(|row| row_within(columns, row))
        }
        (SlotType::Stream, Value::Stream | Value::Octets(_)) => true,
        _ => false,
    }
}

/// Whether a row is one that a list of these columns may hold.
pub(crate) fn row_within(columns: &[(String, ColumnType)], row: &[Value]) -> bool {
    row.len() == columns.len()
        && columns.iter().zip(row).all(|((_, ty), value)| match (ty, value) {
            (ColumnType::Int { low, high }, Value::Int(value)) => (low..=high).contains(&value),
            (ColumnType::Octets { max }, Value::Octets(octets)) => fits(octets.len(), *max),
            _ => false,
        })
}

/// Whether a length is within a bound of the program.
pub(crate) fn fits(length: usize, max: u32) -> bool {
    u32::try_from(length).is_ok_and(|length| length <= max)
}

/// Where a sequence of octets first occurs.
pub(crate) fn find(octets: &[u8], wanted: &[u8]) -> Option<usize> {
    let Some(first) = wanted.first() else { return Some(0) };
    let mut from = 0;
    loop {
        let behind = octets.get(from..)?;
        let at = from + memchr::memchr(*first, behind)?;
        if octets.get(at..)?.starts_with(wanted) {
            return Some(at);
        }
        from = at + 1;
    }
}
