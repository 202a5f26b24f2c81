//! Views: the typed slots of one message, and the guards over them.

use gatewright_lang::ir::{
    ColumnType, Fold, Guard, Message, Pattern, Program, Slot, SlotId, SlotType,
};
use std::ops::Range;

/// Value of a slot.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Value {
    /// A number.
    Int(i64),
    /// Octets. In a message to be written, they may also fill a stream.
    Octets(Vec<u8>),
    /// Rows of a list; each has one value per column, in the order of [`SlotType::List`].
    List(Vec<Vec<Self>>),
    /// A stream, whose octets are not stored here.
    Stream,
}

/// A borrowed value of a slot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Held<'v> {
    Int(i64),
    Octets(&'v [u8]),
    List(Rows<'v>),
    Stream,
}

impl Held<'_> {
    /// An owned copy.
    pub(crate) fn to_value(self) -> Value {
        match self {
            Self::Int(value) => Value::Int(value),
            Self::Octets(octets) => Value::Octets(octets.to_vec()),
            Self::List(rows) => Value::List(
                rows.iter().map(|row| row.iter().map(Held::to_value).collect()).collect(),
            ),
            Self::Stream => Value::Stream,
        }
    }
}

/// The rows of a list.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rows<'v> {
    octets: &'v [u8],
    cells: &'v [Cell],
    columns: usize,
}

impl<'v> Rows<'v> {
    pub(crate) fn len(self) -> usize {
        self.cells.len().checked_div(self.columns).unwrap_or(0)
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.cells.is_empty()
    }

    pub(crate) fn get(self, index: usize) -> Option<Row<'v>> {
        let from = index.checked_mul(self.columns)?;
        let cells = self.cells.get(from..from.checked_add(self.columns)?)?;
        // A list without a column has no row.
        (!cells.is_empty()).then_some(Row { octets: self.octets, cells })
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Row<'v>> {
        let Self { octets, cells, columns } = self;
        cells.chunks_exact(columns.max(1)).map(move |cells| Row { octets, cells })
    }
}

impl PartialEq for Rows<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self.iter().zip(other.iter()).all(|(one, other)| one.iter().eq(other.iter()))
    }
}

impl Eq for Rows<'_> {}

/// One row of a list.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Row<'v> {
    octets: &'v [u8],
    cells: &'v [Cell],
}

impl<'v> Row<'v> {
    pub(crate) fn get(self, column: usize) -> Option<Held<'v>> {
        self.cells.get(column)?.simple(self.octets)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Held<'v>> {
        self.cells.iter().filter_map(move |cell| cell.simple(self.octets))
    }
}

/// Value of a slot or column; all octets are stored together in the view.
#[derive(Clone, Copy, Debug, Default)]
enum Cell {
    #[default]
    Absent,
    Int(i64),
    Octets {
        from: u32,
        length: u32,
    },
    /// Index into [`View::lists`].
    List(u32),
    Stream,
}

impl Cell {
    fn of(range: &Range<usize>) -> Self {
        Self::Octets { from: bound(range.start), length: bound(range.len()) }
    }

    /// The range of the octets.
    fn range(self) -> Option<Range<usize>> {
        let Self::Octets { from, length } = self else { return None };
        Some(size(from)..size(from).saturating_add(size(length)))
    }

    /// Whether a column may hold the value.
    fn fits(self, ty: ColumnType) -> bool {
        match (ty, self) {
            (ColumnType::Int { low, high }, Self::Int(value)) => low <= value && value <= high,
            (ColumnType::Octets { max }, Self::Octets { length, .. }) => length <= max,
            _ => false,
        }
    }

    /// The value, unless it is a list.
    fn simple(self, octets: &[u8]) -> Option<Held<'_>> {
        Some(match self {
            Self::Int(value) => Held::Int(value),
            Self::Octets { from, length } => {
                let from = size(from);
                Held::Octets(
                    octets.get(from..from.saturating_add(size(length))).unwrap_or_default(),
                )
            }
            Self::Stream => Held::Stream,
            Self::Absent | Self::List(_) => return None,
        })
    }
}

#[derive(Clone, Debug, Default)]
struct List {
    cells: Vec<Cell>,
    columns: usize,
}

/// The slots of one message.
///
/// A slot is *settled* when it is known whether it is set: a handler that waits for it may then
/// resume.
#[derive(Clone, Debug, Default)]
pub struct View {
    places: Vec<Cell>,
    settled: SlotSet,
    /// The octets of all slots.
    octets: Vec<u8>,
    /// The lists; the first `lists_used` belong to slots.
    lists: Vec<List>,
    lists_used: usize,
    /// Number of `octets` that no slot uses.
    unused: usize,
    /// Whether `octets` are a whole message of which slots are ranges. Two of them may overlap, so
    /// none is freed before the others.
    ranges: bool,
}

/// A set of slots of one message, one bit each.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct SlotSet {
    /// The first 64 slots: few layouts have more.
    low: u64,
    /// The other slots, 64 per word.
    more: Vec<u64>,
}

impl SlotSet {
    fn at(slot: SlotId) -> (usize, u64) {
        (slot.index() / 64, 1 << (slot.index() % 64))
    }

    #[inline]
    pub(crate) fn insert(&mut self, slot: SlotId) {
        let (word, bit) = Self::at(slot);
        match word.checked_sub(1) {
            None => self.low |= bit,
            Some(word) => self.insert_more(word, bit),
        }
    }

    fn insert_more(&mut self, word: usize, bit: u64) {
        if word >= self.more.len() {
            self.more.resize(word.saturating_add(1), 0);
        }
        self.more.get_mut(word).into_iter().for_each(|word| *word |= bit);
    }

    #[inline]
    fn remove(&mut self, slot: SlotId) {
        let (word, bit) = Self::at(slot);
        let word = match word.checked_sub(1) {
            Some(word) => self.more.get_mut(word),
            None => Some(&mut self.low),
        };
        if let Some(word) = word {
            *word &= !bit;
        }
    }

    fn contains(&self, slot: SlotId) -> bool {
        let (word, bit) = Self::at(slot);
        let word = word.checked_sub(1).map_or(Some(&self.low), |word| self.more.get(word));
        word.is_some_and(|word| word & bit != 0)
    }

    #[inline]
    pub(crate) fn add(&mut self, other: &Self) {
        self.low |= other.low;
        if !other.more.is_empty() {
            self.add_more(other);
        }
    }

    fn add_more(&mut self, other: &Self) {
        if self.more.len() < other.more.len() {
            self.more.resize(other.more.len(), 0);
        }
        self.more.iter_mut().zip(&other.more).for_each(|(word, other)| *word |= other);
    }

    /// Whether any slot is in both sets.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.low & other.low != 0 || self.more.iter().zip(&other.more).any(|(a, b)| a & b != 0)
    }

    pub(crate) fn holds_all(&self, other: &Self) -> bool {
        let more = self.more.iter().chain(core::iter::repeat(&0));
        self.low & other.low == other.low && other.more.iter().zip(more).all(|(b, a)| a & b == *b)
    }
}

impl FromIterator<SlotId> for SlotSet {
    fn from_iter<I: IntoIterator<Item = SlotId>>(slots: I) -> Self {
        let mut set = Self::default();
        slots.into_iter().for_each(|slot| set.insert(slot));
        set
    }
}

/// Unused octets are freed when they exceed both this number and the used octets.
const UNUSED_MAX: usize = 512;

impl PartialEq for View {
    fn eq(&self, other: &Self) -> bool {
        let slots = 0..self.places.len();
        self.places.len() == other.places.len()
            && slots.map(SlotId::new).all(|slot| {
                self.held(slot) == other.held(slot)
                    && self.is_settled(slot) == other.is_settled(slot)
            })
    }
}

impl Eq for View {}

impl View {
    /// A view of a message with no slot set.
    pub fn of(message: &Message) -> Self {
        Self::with_slots(message.slots.len())
    }

    /// A view with this number of slots, none set.
    pub(crate) fn with_slots(slots: usize) -> Self {
        Self { places: vec![Cell::Absent; slots], ..Self::default() }
    }

    /// Clears all slots; none is set or settled.
    pub(crate) fn reset(&mut self) {
        self.places.fill(Cell::Absent);
        self.settled.low = 0;
        // Filling nothing is not free: of a dangling address, AVX-512's masked store takes a fault
        // that it then suppresses, for as long as a whole message takes.
        if !self.settled.more.is_empty() {
            self.settled.more.fill(0);
        }
        self.octets.clear();
        self.lists_used = 0;
        self.unused = 0;
        self.ranges = false;
    }

    /// From now on, slots of this view, of which none is set yet, are ranges of a message. Its
    /// octets follow with [`hold_message`](Self::hold_message).
    pub(crate) const fn begin_ranges(&mut self) {
        self.ranges = true;
    }

    /// Copies the message of which slots are ranges.
    pub(crate) fn hold_message(&mut self, message: &[u8]) {
        self.octets.clear();
        self.octets.extend_from_slice(message);
    }

    /// Sets a slot to a number; octets that it had are not freed.
    #[inline]
    pub(crate) fn assign_int(&mut self, slot: SlotId, value: i64) {
        if let Some(place) = self.places.get_mut(slot.index()) {
            *place = Cell::Int(value);
        }
    }

    /// Sets a slot to a range of the message.
    #[inline]
    pub(crate) fn assign_range(&mut self, slot: SlotId, range: &Range<usize>) {
        if let Some(place) = self.places.get_mut(slot.index()) {
            *place = Cell::of(range);
        }
    }

    /// Appends a row with one column, a range of the message, to a list.
    pub(crate) fn push_range(&mut self, slot: SlotId, range: &Range<usize>) {
        let list = self.list(slot, 1).and_then(|list| self.lists.get_mut(list));
        if let Some(list) = list {
            list.cells.push(Cell::of(range));
        }
    }

    /// The range of the message that a slot is; `None` for anything else.
    pub(crate) fn range(&self, slot: SlotId) -> Option<Range<usize>> {
        self.places.get(slot.index())?.range()
    }

    /// Appends a row to a list of these columns: values of slots, while those are ranges; `None` if
    /// they do not fit.
    pub(crate) fn push_row_of_ranges(
        &mut self,
        list: SlotId,
        columns: &[(String, ColumnType)],
        row: &[SlotId],
    ) -> Option<()> {
        let fits_column = |((_, ty), slot): (&(String, ColumnType), &SlotId)| {
            self.places.get(slot.index()).is_some_and(|cell| cell.fits(*ty))
        };
        if row.len() != columns.len() || !columns.iter().zip(row).all(fits_column) {
            return None;
        }
        let at = self.list(list, columns.len())?;
        let Self { lists, places, .. } = self;
        let cells = row.iter().filter_map(|slot| places.get(slot.index()).copied());
        lists.get_mut(at)?.cells.extend(cells);
        Some(())
    }

    /// A copy of a slot's value; `None` while it is not settled, or if it is absent.
    ///
    /// A list without an element is absent as well.
    pub fn get(&self, slot: SlotId) -> Option<Value> {
        self.held(slot).map(Held::to_value)
    }

    /// A slot's value, with the rules of [`get`](Self::get).
    pub(crate) fn held(&self, slot: SlotId) -> Option<Held<'_>> {
        match *self.places.get(slot.index())? {
            Cell::List(list) => {
                Some(self.rows_of(list)).filter(|rows| !rows.is_empty()).map(Held::List)
            }
            cell => cell.simple(&self.octets),
        }
    }

    /// The value of each slot, in order.
    pub(crate) fn set_slots(&self) -> impl Iterator<Item = Option<Held<'_>>> {
        self.places.iter().map(|place| match place {
            Cell::Absent => None,
            Cell::List(list) => {
                Some(self.rows_of(*list)).filter(|rows| !rows.is_empty()).map(Held::List)
            }
            cell => cell.simple(&self.octets),
        })
    }

    fn rows_of(&self, list: u32) -> Rows<'_> {
        self.lists.get(size(list)).map_or_else(Rows::default, |list| Rows {
            octets: &self.octets,
            cells: &list.cells,
            columns: list.columns,
        })
    }

    /// Whether it is known that a slot has a value or is absent.
    pub fn is_settled(&self, slot: SlotId) -> bool {
        self.settled.contains(slot)
    }

    /// The slots that are settled.
    pub(crate) const fn settled(&self) -> &SlotSet {
        &self.settled
    }

    /// Whether a slot has a value.
    pub(crate) fn is_set(&self, slot: SlotId) -> bool {
        self.held(slot).is_some()
    }

    /// Sets and settles a slot; an id of another message has no effect.
    pub fn set(&mut self, slot: SlotId, value: Value) {
        match value {
            Value::Int(value) => self.put_int(slot, value),
            Value::Octets(octets) => self.put_octets(slot, &octets, Fold::Keep),
            Value::Stream => self.put_stream(slot),
            Value::List(rows) => {
                self.clear(slot);
                for row in &rows {
                    self.push(slot, row);
                }
            }
        }
        self.settle(slot);
    }

    /// Clears all slots and sets their number, as [`with_slots`](Self::with_slots) does, in the
    /// existing memory.
    pub(crate) fn begin(&mut self, slots: usize) {
        self.places.clear();
        self.places.resize(slots, Cell::Absent);
        self.reset();
    }

    /// Sets a slot as [`set`](Self::set) does, from a borrowed value.
    pub(crate) fn set_held(&mut self, slot: SlotId, value: Held<'_>) {
        match value {
            Held::Int(value) => self.put_int(slot, value),
            Held::Octets(octets) => self.put_octets(slot, octets, Fold::Keep),
            Held::Stream => self.put_stream(slot),
            Held::List(_) => return self.set(slot, value.to_value()),
        }
        self.settle(slot);
    }

    /// A number; `None` for anything else.
    pub fn int(&self, slot: SlotId) -> Option<i64> {
        match *self.places.get(slot.index())? {
            Cell::Int(value) => Some(value),
            _ => None,
        }
    }

    /// Octets; `None` for anything else.
    pub fn octets(&self, slot: SlotId) -> Option<&[u8]> {
        match self.held(slot)? {
            Held::Octets(octets) => Some(octets),
            _ => None,
        }
    }

    /// The rows of a list; none for anything else.
    pub(crate) fn rows(&self, slot: SlotId) -> Rows<'_> {
        match self.held(slot) {
            Some(Held::List(rows)) => rows,
            _ => Rows::default(),
        }
    }

    /// Sets a slot without settling it: more may follow.
    pub(crate) fn put_int(&mut self, slot: SlotId, value: i64) {
        self.put(slot, Cell::Int(value));
    }

    pub(crate) fn put_stream(&mut self, slot: SlotId) {
        self.put(slot, Cell::Stream);
    }

    pub(crate) fn put_octets(&mut self, slot: SlotId, octets: &[u8], fold: Fold) {
        let cell = self.keep(octets, fold);
        self.put(slot, cell);
    }

    #[inline]
    fn put(&mut self, slot: SlotId, cell: Cell) {
        let Some(place) = self.places.get_mut(slot.index()) else { return };
        // Only its kind is read of a cell that was just written: the whole is not forwarded from
        // the processor's store buffer.
        let before =
            if let Cell::Octets { from, length } = place { Some((*from, *length)) } else { None };
        *place = cell;
        if let Some((from, length)) = before {
            self.let_go(from, length);
        }
    }

    fn keep(&mut self, octets: &[u8], fold: Fold) -> Cell {
        let from = self.octets.len();
        self.octets.extend_from_slice(octets);
        self.fold(from, fold);
        Cell::Octets { from: bound(from), length: bound(octets.len()) }
    }

    /// Changes the case of the last octets.
    fn fold(&mut self, from: usize, fold: Fold) {
        match (fold, self.octets.get_mut(from..)) {
            (Fold::Upper, Some(kept)) => kept.make_ascii_uppercase(),
            (Fold::Lower, Some(kept)) => kept.make_ascii_lowercase(),
            _ => {}
        }
    }

    /// A copy of a cell whose octets are in this view.
    fn again(&mut self, cell: Cell) -> Cell {
        let Cell::Octets { from, length } = cell else { return cell };
        let (begin, now) = (size(from), bound(self.octets.len()));
        let end = begin.saturating_add(size(length));
        if end <= self.octets.len() {
            self.octets.extend_from_within(begin..end);
        }
        Cell::Octets { from: now, length }
    }

    /// Records octets of a slot as unused.
    fn let_go(&mut self, from: u32, length: u32) {
        if self.ranges {
            return;
        }
        let from = size(from);
        if from.saturating_add(size(length)) == self.octets.len() {
            self.octets.truncate(from);
            return;
        }
        self.unused = self.unused.saturating_add(size(length));
        if self.unused > UNUSED_MAX && self.unused > self.octets.len() / 2 {
            self.tidy();
        }
    }

    /// Compacts the octets in use.
    fn tidy(&mut self) {
        let mut kept = Vec::with_capacity(self.octets.len().saturating_sub(self.unused));
        let cells = self.places.iter_mut();
        let lists = self.lists.iter_mut().take(self.lists_used);
        for cell in cells.chain(lists.flat_map(|list| &mut list.cells)) {
            if let Cell::Octets { from, length } = cell {
                let begin = size(*from);
                *from = bound(kept.len());
                let end = begin.saturating_add(size(*length));
                kept.extend_from_slice(self.octets.get(begin..end).unwrap_or_default());
            }
        }
        self.octets = kept;
        self.unused = 0;
    }

    /// Octets of memory reserved for values of slots.
    pub(crate) fn room(&self) -> usize {
        let cells = self.lists.iter().map(|list| list.cells.capacity() * size_of::<Cell>());
        self.octets.capacity().saturating_add(cells.sum())
    }

    /// Reserves memory for a piece of a message.
    pub(crate) fn expect(&mut self, octets: usize) {
        if self.octets.capacity() == 0 {
            self.octets.reserve(octets);
        }
    }

    /// Copies another slot's value.
    pub(crate) fn copy(&mut self, from: SlotId, into: SlotId) {
        if let Some(place) = self.places.get(from.index()).copied() {
            let cell = self.again(place);
            self.put(into, cell);
        }
    }

    /// Appends a row to a list.
    pub(crate) fn push(&mut self, slot: SlotId, row: &[Value]) {
        let Some(list) = self.list(slot, row.len()) else { return };
        for value in row {
            let cell = match value {
                Value::Int(value) => Cell::Int(*value),
                Value::Octets(octets) => self.keep(octets, Fold::Keep),
                Value::List(_) | Value::Stream => Cell::Absent,
            };
            self.lists.get_mut(list).into_iter().for_each(|list| list.cells.push(cell));
        }
    }

    /// Copies a part of another slot's octets; into a list, as its next row.
    pub(crate) fn put_part(
        &mut self,
        into: SlotId,
        of: SlotId,
        part: Range<usize>,
        fold: Fold,
        list: bool,
    ) {
        let whole = self.places.get(of.index()).copied();
        let Some(Cell::Octets { from, .. }) = whole else { return };
        let cell = Cell::Octets {
            from: from.saturating_add(bound(part.start)),
            length: bound(part.len()),
        };
        let (before, cell) = (self.octets.len(), self.again(cell));
        self.fold(before, fold);
        if !list {
            return self.put(into, cell);
        }
        let list = self.list(into, 1).and_then(|list| self.lists.get_mut(list));
        if let Some(list) = list {
            list.cells.push(cell);
        }
    }

    /// Appends a row with one column of octets to a list.
    pub(crate) fn push_octets(&mut self, slot: SlotId, octets: &[u8], fold: Fold) {
        let Some(list) = self.list(slot, 1) else { return };
        let cell = self.keep(octets, fold);
        if let Some(list) = self.lists.get_mut(list) {
            list.cells.push(cell);
        }
    }

    /// Appends a row with one column, a number, to a list.
    pub(crate) fn push_int(&mut self, slot: SlotId, value: i64) {
        let list = self.list(slot, 1).and_then(|list| self.lists.get_mut(list));
        if let Some(list) = list {
            list.cells.push(Cell::Int(value));
        }
    }

    /// Appends a row of copied slot values to a list.
    pub(crate) fn push_copies(&mut self, slot: SlotId, columns: &[SlotId]) {
        let Some(list) = self.list(slot, columns.len()) else { return };
        for column in columns {
            let cell = self.places.get(column.index()).copied();
            let cell = cell.map_or(Cell::Absent, |cell| self.again(cell));
            self.lists.get_mut(list).into_iter().for_each(|list| list.cells.push(cell));
        }
    }

    /// The list of a slot, created here if there is none.
    fn list(&mut self, slot: SlotId, columns: usize) -> Option<usize> {
        let place = self.places.get_mut(slot.index())?;
        if let Cell::List(list) = *place {
            return Some(size(list));
        }
        let list = self.lists_used;
        *place = Cell::List(bound(list));
        self.lists_used = list.saturating_add(1);
        match self.lists.get_mut(list) {
            Some(again) => {
                again.cells.clear();
                again.columns = columns;
            }
            None => self.lists.push(List { cells: Vec::new(), columns }),
        }
        Some(list)
    }

    /// Makes a slot absent and unsettled.
    #[inline]
    pub(crate) fn clear(&mut self, slot: SlotId) {
        self.settled.remove(slot);
        if !matches!(self.places.get(slot.index()), None | Some(Cell::Absent)) {
            self.clear_held(slot);
        }
    }

    fn clear_held(&mut self, slot: SlotId) {
        match self.places.get(slot.index()).copied() {
            Some(Cell::List(list)) => {
                let list = self.lists.get_mut(size(list));
                for cell in list.map(|list| core::mem::take(&mut list.cells)).unwrap_or_default() {
                    if let Cell::Octets { from, length } = cell {
                        self.let_go(from, length);
                    }
                }
            }
            _ => self.put(slot, Cell::Absent),
        }
    }

    pub(crate) fn settle(&mut self, slot: SlotId) {
        if slot.index() < self.places.len() {
            self.settled.insert(slot);
        }
    }

    pub(crate) fn settle_set(&mut self, slots: &SlotSet) {
        self.settled.add(slots);
    }

    /// Whether a guard holds. An absent slot matches no pattern.
    pub fn holds(&self, program: &Program, guard: &Guard) -> bool {
        match guard {
            Guard::Always => true,
            Guard::Present(slot) => self.held(*slot).is_some(),
            Guard::All(guards) => guards.iter().all(|guard| self.holds(program, guard)),
            Guard::Any(guards) => guards.iter().any(|guard| self.holds(program, guard)),
            Guard::Not(guard) => !self.holds(program, guard),
            Guard::Is { slot, patterns } => match self.int(*slot) {
                Some(value) => patterns.iter().any(|pattern| {
                    matches!(pattern, Pattern::Int { low, high } if *low <= value && value <= *high)
                }),
                None => self.is(program, *slot, patterns),
            },
        }
    }

    fn is(&self, program: &Program, slot: SlotId, patterns: &[Pattern]) -> bool {
        let matches = |value, pattern: &Pattern| matches_pattern(program, value, *pattern);
        self.held(slot).is_some_and(|value| patterns.iter().any(|of| matches(value, of)))
    }
}

fn matches_pattern(program: &Program, value: Held<'_>, pattern: Pattern) -> bool {
    match (pattern, value) {
        (Pattern::Int { low, high }, Held::Int(value)) => (low..=high).contains(&value),
        (Pattern::Octets(literal), Held::Octets(octets)) => program.literal(literal) == octets,
        (Pattern::Empty, Held::Octets(octets)) => octets.is_empty(),
        (Pattern::Empty, Held::List(rows)) => rows.is_empty(),
        _ => false,
    }
}

/// Whether a slot may hold a value.
pub(crate) fn within(slot: &Slot, value: Held<'_>) -> bool {
    match (&slot.ty, value) {
        (SlotType::Int { low, high }, Held::Int(value)) => *low <= value && value <= *high,
        (SlotType::Octets { max }, Held::Octets(octets)) => fits(octets.len(), *max),
        (SlotType::List { columns, max }, Held::List(rows)) => {
            fits(rows.len(), *max) && rows.iter().all(|row| row_within(columns, row))
        }
        (SlotType::Stream, Held::Stream | Held::Octets(_)) => true,
        _ => false,
    }
}

/// Whether a list of these columns may hold a row.
fn row_within(columns: &[(String, ColumnType)], row: Row<'_>) -> bool {
    let held = columns.iter().enumerate().map(|(at, (_, ty))| (ty, row.get(at)));
    row.cells.len() == columns.len()
        && held.into_iter().all(|(ty, value)| value.is_some_and(|value| column_within(*ty, value)))
}

/// Whether a column may hold a value.
pub(crate) fn column_within(ty: ColumnType, value: Held<'_>) -> bool {
    match (ty, value) {
        (ColumnType::Int { low, high }, Held::Int(value)) => low <= value && value <= high,
        (ColumnType::Octets { max }, Held::Octets(octets)) => fits(octets.len(), max),
        _ => false,
    }
}

/// Whether a length is within a bound of the program.
pub(crate) fn fits(length: usize, max: u32) -> bool {
    u32::try_from(length).is_ok_and(|length| length <= max)
}

/// A bound of the program as a length of octets in memory.
pub(crate) fn size(bound: u32) -> usize {
    usize::try_from(bound).unwrap_or(usize::MAX)
}

/// A length as 32 bits. A view's content is far below 4 GiB, as every slot has its bound.
fn bound(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// Position at which a sequence of octets first occurs.
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
