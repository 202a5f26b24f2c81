//! Opens a CSE with what a store has kept.

use super::aggregate::ForwardingTargets;
use super::auditing::Refusals;
use super::calls::Calls;
use super::consent::Consents;
use super::deferred::Deferred;
use super::group::Fans;
use super::lagging::Lagging;
use super::later::Later;
use super::ledger::Ledger;
use super::notify::Verifications;
use super::observe::Observers;
use super::outbox::Outbox;
use super::paging::Paging;
use super::polling::Channels;
use super::refused_registration::RefusedRegistrations;
use super::registrar::Registration;
use super::repeats::Repeats;
use super::search::Searches;
use super::statistics::Statistics;
use super::watch::Watches;
use super::{Cse, CseConfig};
use crate::answer_octets::AnswerOctets;
use crate::clock::{Clock, Moment, Now};
use crate::identity::CseIdentity;
use crate::limits::Counters;
use crate::record_block::{BlockRecords, ContainerRecords, RecordBlock, container_id};
use crate::resource_type::ResourceType;
use crate::stored::{Damage, InstanceHeader, NoBase, Unreadable};
use crate::tree::{Slot, Tree};
use std::collections::VecDeque;
use std::sync::Arc;

/// What a store has kept of an earlier run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StoredItem {
    /// A row: its number and its text.
    Row(u64, Arc<str>),
    /// Records of instances whose texts stay in the store.
    Records(Box<RecordBlock>),
}

impl From<(u64, Arc<str>)> for StoredItem {
    fn from((row, body): (u64, Arc<str>)) -> Self {
        Self::Row(row, body)
    }
}

impl StoredItem {
    /// Whether it is a row with this number.
    const fn is_row(&self, number: u64) -> bool {
        matches!(self, Self::Row(row, _) if *row == number)
    }
}

impl Cse {
    /// Opens a CSE with the tree of `rows` (number and body, in ascending order of number), as
    /// stored by batches of an earlier run; `next_seq` is the last batch's. Unreadable rows are
    /// left out and reported; they stay in the store.
    ///
    /// Its first output may be a batch that stores the CSEBase.
    ///
    /// # Errors
    ///
    /// If there are rows and none of them is a CSEBase: a new CSE beside them would hide the loss
    /// of everything. If the CSEBase is that of another CSE: its rights, subscriptions and the CSEs
    /// that know it are for the other names.
    pub fn open(
        config: CseConfig,
        now: impl Into<Now>,
        rows: impl IntoIterator<Item = (u64, Arc<str>)>,
        next_seq: u64,
    ) -> Result<(Self, Vec<Unreadable>), NoBase> {
        Self::open_stored(config, now, rows.into_iter().map(StoredItem::from), next_seq)
    }

    /// Opens a CSE as [`Self::open`], with records in the place of rows: each block behind every
    /// other row below its end, and before all rows from there on.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn open_stored(
        config: CseConfig,
        now: impl Into<Now>,
        items: impl IntoIterator<Item = StoredItem>,
        next_seq: u64,
    ) -> Result<(Self, Vec<Unreadable>), NoBase> {
        let mut items = items.into_iter().peekable();
        let now = now.into();
        let mut remembered = Vec::new();
        let mut clock = None;
        while let Some(StoredItem::Row(_, body)) = items.next_if(|it| it.is_row(Clock::ROW)) {
            // The clocks come first.
            if clock.is_none() {
                clock = Some(Clock::restored(now, &body).unwrap_or_else(|| Clock::new(now)));
            } else {
                remembered.push(body);
            }
        }
        let mut cse = Self::empty(config, clock.unwrap_or_else(|| Clock::new(now)), next_seq);
        let mut unreadable = Vec::new();
        let mut count = 0;
        for item in items {
            match item {
                StoredItem::Row(row, body) => {
                    cse.open_row(row, &body, &mut unreadable);
                    count += 1;
                }
                StoredItem::Records(block) => count += cse.open_block(*block, &mut unreadable),
            }
        }
        if count > 0 && cse.tree.root().is_none() {
            let first = unreadable.into_iter().next();
            return Err(first.map_or(NoBase::Missing(count), NoBase::Damaged));
        }
        let configured = cse.config.identity();
        if let Some(stored) = cse.stored_identity().filter(|stored| *stored != configured) {
            let (stored, configured) = (Box::new(stored), Box::new(configured));
            return Err(NoBase::Other { stored, configured });
        }
        for line in remembered {
            cse.recall(&line);
        }
        if cse.clock.owes() {
            cse.believe_clock();
        }
        cse.resume();
        Ok((cse, unreadable))
    }

    /// The identity in the restored CSEBase.
    fn stored_identity(&self) -> Option<CseIdentity> {
        let base = self.tree.get(self.tree.root()?)?;
        let cse_id = base.attribute("csi")?.as_str()?.to_owned();
        Some(CseIdentity { cse_id, name: base.name.to_string() })
    }

    fn open_row(&mut self, row: u64, body: &Arc<str>, unreadable: &mut Vec<Unreadable>) {
        match self.restore(row, body) {
            Ok(()) if InstanceHeader::is_in(body) => self.postpone_restored(row),
            Ok(()) => {}
            Err(damage) => unreadable.push(Unreadable { row, damage }),
        }
        self.ledger.keep_above(row);
        self.page_out(true);
    }

    /// Takes the records of a block; returns how many there are. Those without their container are
    /// unreadable, as their rows would be.
    fn open_block(&mut self, block: RecordBlock, unreadable: &mut Vec<Unreadable>) -> usize {
        if self.tree.paged() == 0
            && let Some(key) = block.key()
        {
            self.tree.set_name_key(key);
        }
        let mut count = 0;
        let is_shifted = !self.clock.shifts().is_empty();
        for ContainerRecords { container, records } in block.into_containers() {
            let slot = self.container_of_records(container);
            let mut records = match (slot, records) {
                (Some(slot), BlockRecords::Run(run, summary)) if !is_shifted => {
                    count += run.count();
                    self.ledger.keep_above(run.last().seq);
                    self.tree.restore_run(slot, run, &summary);
                    continue;
                }
                (_, records) => records.decoded(),
            };
            count += records.len();
            let Some(last) = records.last() else { continue };
            self.ledger.keep_above(last.seq);
            if let Some(slot) = slot {
                for record in &mut records {
                    record.expires = self.postponed(record.seq, record.created, record.expires);
                }
                self.tree.restore_records(slot, &records);
                continue;
            }
            let parent: Arc<str> = container_id(container).into();
            unreadable.extend(records.iter().map(|record| Unreadable {
                row: record.seq,
                damage: Damage::Parent(Arc::clone(&parent)),
            }));
        }
        count
    }

    fn container_of_records(&self, container: u64) -> Option<Slot> {
        let slot = self.tree.by_seq(container)?;
        let is_it = self.tree.get(slot)?.resource_type == ResourceType::Container;
        is_it.then_some(slot)
    }

    /// A CSE without resources.
    fn empty(config: CseConfig, clock: Clock, next_seq: u64) -> Self {
        let (now, moment) = (clock.wall(), clock.moment());
        Self {
            ledger: Ledger::new(next_seq.max(1)),
            repeats: Repeats::new(clock.salt()),
            tree: Tree::new(),
            calls: Calls::default(),
            answers: AnswerOctets::default(),
            outbox: Outbox::default(),
            verifications: Verifications::new(),
            consents: Consents::default(),
            deferred: Deferred::default(),
            lagging: Lagging::default(),
            later: Later::default(),
            fans: Fans::new(),
            spreading: VecDeque::new(),
            forwarding: ForwardingTargets::default(),
            channels: Channels::default(),
            observers: Observers::default(),
            refusals: Refusals::default(),
            watches: Watches::default(),
            searches: Searches::default(),
            paging: Paging::default(),
            statistics: Statistics::default(),
            unstored: (Moment::default(), 0),
            rights_stored_by: 0,
            stores_deletions_only: false,
            refused_registrations: RefusedRegistrations::default(),
            registration: Registration::new(moment),
            counters: Counters::default(),
            config,
            clock,
            now,
            moment,
            started: now,
            requests_made: 0,
            scratch: String::new(),
        }
    }

    /// Continues what was under way when the rows were written.
    fn resume(&mut self) {
        self.forget_shifts();
        self.found_base();
        self.fail_abandoned();
        self.watch_all();
        self.pursue_registration();
        self.pursue_backlogs();
        self.pursue_lagging();
        self.run_outbox();
        self.settle();
        self.ask_for_rows();
    }
}
