//! Changes of rows, written within a transaction.

use crate::blocks::{Blocks, CoveredChanges};
use crate::checksum::of_row;
use crate::sqlite::to_row_id;
use core::ops::RangeInclusive;
use gatewright_onem2m::{Batch, RowChange};
use rusqlite::{Transaction, params};

/// Writes the rows of batches, and what a start is to know of them.
pub(crate) fn write_rows(
    transaction: &Transaction<'_>,
    batches: &[Batch],
    blocks: &mut Blocks,
) -> rusqlite::Result<()> {
    let put = "INSERT OR REPLACE INTO row (seq, body, sum) VALUES (?1, ?2, ?3)";
    let mut put = transaction.prepare_cached(put)?;
    let mut going = Going::default();
    let mut covered = CoveredChanges::default();
    for record in batches.iter().flat_map(|batch| &batch.records) {
        match record {
            RowChange::Put { seq, body } => {
                if going.0.as_ref().is_some_and(|rows| rows.contains(seq)) {
                    going.delete(transaction, (blocks, &mut covered))?;
                }
                put.execute(params![to_row_id(*seq), &**body, of_row(*seq, body)])?;
                covered.put(blocks, transaction, *seq)?;
            }
            RowChange::Delete { seq } => going.add(transaction, *seq, (blocks, &mut covered))?,
        }
    }
    going.delete(transaction, (blocks, &mut covered))?;
    covered.write(transaction)
}

/// Consecutive rows to be deleted: the instances that a full container drops for new ones take one
/// statement per transaction.
#[derive(Default)]
struct Going(Option<RangeInclusive<u64>>);

impl Going {
    fn add(
        &mut self,
        transaction: &Transaction<'_>,
        seq: u64,
        covered: (&mut Blocks, &mut CoveredChanges),
    ) -> rusqlite::Result<()> {
        let first = match &self.0 {
            Some(rows) if rows.end().checked_add(1) == Some(seq) => *rows.start(),
            _ => {
                self.delete(transaction, covered)?;
                seq
            }
        };
        self.0 = Some(first..=seq);
        Ok(())
    }

    fn delete(
        &mut self,
        transaction: &Transaction<'_>,
        (blocks, covered): (&mut Blocks, &mut CoveredChanges),
    ) -> rusqlite::Result<()> {
        let Some(rows) = self.0.take() else { return Ok(()) };
        transaction
            .prepare_cached("DELETE FROM row WHERE seq BETWEEN ?1 AND ?2")?
            .execute([to_row_id(*rows.start()), to_row_id(*rows.end())])?;
        covered.delete(blocks, transaction, &rows)
    }
}
