//! Numbers of reports, which agents count modulo 65536.

/// Numbers before a count begins again.
const TURN: u64 = 1 << 16;

/// Extends the numbers of one association's reports to numbers that grow.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReportNumbers {
    last: Option<u64>,
}

impl ReportNumbers {
    /// Goes on behind the number `last`.
    pub const fn after(last: u64) -> Self {
        Self { last: Some(last) }
    }

    /// Extends the number of the next report, `None` if it has none. Returns whether the device counts
    /// as it should, too.
    pub fn extend(&mut self, number: Option<u16>) -> (u64, bool) {
        let Some(last) = self.last else {
            let first = u64::from(number.unwrap_or_default());
            self.last = Some(first);
            return (first, true);
        };
        let (next, grows) = match number {
            Some(number) => {
                let same_turn = last - last % TURN + u64::from(number);
                if same_turn > last {
                    (same_turn, true)
                } else {
                    // From 65535 to 0 is growth; anything else back is a device that does not
                    // count. Both begin a new turn.
                    let wraps = last % TURN == TURN - 1 && number == 0;
                    (same_turn.saturating_add(TURN), wraps)
                }
            }
            None => (last.saturating_add(1), true),
        };
        self.last = Some(next);
        (next, grows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow_over_turns() {
        let mut numbers = ReportNumbers::default();
        let cases = [
            (Some(7), (7, true)),
            (Some(9), (9, true)),
            (Some(9), (TURN + 9, false)),
            (Some(65_535), (2 * TURN - 1, true)),
            (Some(0), (2 * TURN, true)),
            (None, (2 * TURN + 1, true)),
        ];
        for (number, expected) in cases {
            assert_eq!(numbers.extend(number), expected);
        }
        assert_eq!(ReportNumbers::after(TURN).extend(Some(0)), (2 * TURN, false));
        // Corrupted memory.
        assert_eq!(ReportNumbers::after(u64::MAX).extend(Some(0)), (u64::MAX, true));
    }
}
