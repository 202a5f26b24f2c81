//! The yardstick: two fixed loops that say how fast the machine is at this moment.
//!
//! The same code takes twice as long on one day's machine as on another's. A bound in nanoseconds
//! is therefore judged by the normalised figure: what was measured, times the loop's reference
//! value, divided by what the loop took in the same run.

use crate::{Numbers, nanoseconds_each, report::Spread};
use serde::Serialize;

/// Which of the two loops a figure is normalised by.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Yardstick {
    /// Multiplications and loads from the first-level cache, each waiting for the one before.
    Core,
    /// Loads from 64 MiB in random order, each waiting for the one before.
    Memory,
}

/// What a step of each loop takes, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Loops {
    pub(crate) core_ns: f64,
    pub(crate) memory_ns: f64,
}

/// The loops' values that figures are normalised to; SPECIFICATION.md names them.
pub(crate) const REFERENCE: Loops = Loops { core_ns: 10.8, memory_ns: 145.0 };

/// How often each loop is timed; the least is taken, as whatever disturbs a loop makes it longer.
const TIMES: usize = 5;

/// Octets of the first loop's table: half of the smallest first-level cache in use.
const TABLE_OCTETS: usize = 16 << 10;
/// Octets that the second loop loads from: above what a shared cache leaves to one core.
const MEMORY_OCTETS: usize = 64 << 20;
/// Octets of a cache line: each of the second loop's loads is from another one.
const LINE: usize = 64;
/// Steps of each loop, some milliseconds and some tens of them.
const CORE_STEPS: usize = 2_000_000;
const MEMORY_STEPS: usize = 500_000;

impl Loops {
    /// Times both loops in this thread's processor time.
    pub(crate) fn time() -> Self {
        let (table, lines) = (table(), lines());
        let least = |measure: &dyn Fn() -> f64| {
            let samples: Vec<f64> = (0..TIMES).map(|_| measure()).collect();
            Spread::of(&samples).map_or(f64::NAN, |spread| spread.min)
        };
        Self {
            core_ns: least(&|| nanoseconds_each(CORE_STEPS, || core(&table, CORE_STEPS))),
            memory_ns: least(&|| nanoseconds_each(MEMORY_STEPS, || memory(&lines, MEMORY_STEPS))),
        }
    }

    /// What a duration that was measured beside these loops would be where they take their
    /// reference values.
    pub(crate) fn normalise(self, yardstick: Yardstick, duration: f64) -> f64 {
        duration * REFERENCE.of(yardstick) / self.of(yardstick)
    }

    /// The same of a rate: what is done in a second.
    pub(crate) fn normalise_rate(self, yardstick: Yardstick, rate: f64) -> f64 {
        rate * self.of(yardstick) / REFERENCE.of(yardstick)
    }

    /// The loops before and after a run, as one: the mean of both.
    pub(crate) fn mean(self, other: Self) -> Self {
        Self {
            core_ns: f64::midpoint(self.core_ns, other.core_ns),
            memory_ns: f64::midpoint(self.memory_ns, other.memory_ns),
        }
    }

    pub(crate) const fn of(self, yardstick: Yardstick) -> f64 {
        match yardstick {
            Yardstick::Core => self.core_ns,
            Yardstick::Memory => self.memory_ns,
        }
    }
}

/// The numbers that the first loop looks up.
fn table() -> Vec<u64> {
    let mut numbers = Numbers(1);
    (0..TABLE_OCTETS / size_of::<u64>()).map(|_| numbers.bits()).collect()
}

/// One step is a load, an addition and two multiplications.
fn core(table: &[u64], steps: usize) -> u64 {
    let mut number = 1_u64;
    for _step in 0..steps {
        let at = usize::try_from(number >> 32).unwrap_or(0) % table.len().max(1);
        let mixed = number.wrapping_add(table.get(at).copied().unwrap_or(0));
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    }
    number
}

/// Lines of memory, the first word of each saying which one comes next: one cycle through all of
/// them (Sattolo's shuffle).
fn lines() -> Vec<u32> {
    const WORDS: usize = LINE / size_of::<u32>();
    let count = MEMORY_OCTETS / LINE;
    let mut next: Vec<u32> = (0..u32::try_from(count).unwrap_or(u32::MAX)).collect();
    let mut numbers = Numbers(2);
    for last in (1..count).rev() {
        next.swap(last, numbers.below(last));
    }
    let mut words = vec![0; count * WORDS];
    for (line, next) in words.chunks_exact_mut(WORDS).zip(next) {
        if let Some(first) = line.first_mut() {
            *first = next;
        }
    }
    words
}

/// One step is a load that no cache expects.
fn memory(lines: &[u32], steps: usize) -> u32 {
    const WORDS: usize = LINE / size_of::<u32>();
    let mut line = 0;
    for _step in 0..steps {
        let at = usize::try_from(line).unwrap_or(0) * WORDS;
        line = lines.get(at).copied().unwrap_or(0);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_loop_comes_by_every_line_before_it_meets_one_again() {
        let lines = lines();
        let count = MEMORY_OCTETS / LINE;
        assert_eq!(memory(&lines, count), 0, "after all lines it is where it began");
        let mut met = vec![false; count];
        let mut line = 0;
        for _step in 0..count {
            let met = &mut met[usize::try_from(line).unwrap()];
            assert!(!*met, "line {line} twice");
            *met = true;
            line = lines[usize::try_from(line).unwrap() * (LINE / size_of::<u32>())];
        }
    }

    #[test]
    fn a_machine_of_half_the_speed_gives_half_of_what_was_measured() {
        let slow = Loops { core_ns: 2.0 * REFERENCE.core_ns, memory_ns: REFERENCE.memory_ns };
        let is = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-9, "{value}");
        is(slow.normalise(Yardstick::Core, 50.0), 25.0);
        is(slow.normalise(Yardstick::Memory, 50.0), 50.0);
        is(slow.normalise_rate(Yardstick::Core, 50.0), 100.0);
    }
}
