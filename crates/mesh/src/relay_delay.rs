//! The delay model that a relay tells of itself.

use gatewright_delay::DelayReading;

/// Octets of the packet of bounded delay for which relays tell their delays.
const BOUNDED_OCTETS: u32 = 512;

/// The delay model of a relay: how long a packet spends in it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RelayDelay {
    /// Microseconds for each packet when it is idle.
    pub base_us: u16,
    /// Nanoseconds for each octet when it is idle.
    pub octet_ns: u16,
    /// Microseconds that 99 of 100 packets did not exceed lately; 0 if nothing was measured.
    pub p99_us: u16,
    /// Share of what it can do, in thousandths.
    pub load_permille: u16,
}

impl RelayDelay {
    /// A relay of which nothing is measured.
    pub const fn unmeasured(base_us: u16) -> Self {
        Self { base_us, octet_ns: 0, p99_us: 0, load_permille: 0 }
    }

    /// The model of a reading.
    pub fn of_reading(reading: &DelayReading) -> Self {
        Self {
            base_us: whole(reading.a_us),
            octet_ns: whole(reading.c_ns.unwrap_or(0.0)),
            p99_us: whole(reading.measured_p99_us).max(1),
            load_permille: whole(reading.load * 1e3),
        }
    }

    /// Microseconds that a packet of bounded delay is taken to spend in the relay: what 99 of 100 did
    /// not exceed, and at least its service, stretched by the load.
    pub fn bounded_us(self) -> u16 {
        let service = u32::from(self.base_us)
            + u32::from(self.octet_ns).saturating_mul(BOUNDED_OCTETS) / 1_000;
        let rest = 1_000_u32.saturating_sub(self.load_permille.into());
        let stretched = service.saturating_mul(1_000).checked_div(rest).unwrap_or(u32::MAX);
        u16::try_from(stretched).unwrap_or(u16::MAX).max(self.p99_us)
    }
}

/// The number as far as it fits; none is negative.
fn whole(number: f64) -> u16 {
    let number = number.round().clamp(0.0, u16::MAX.into());
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped")]
    {
        number as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 20 µs and 100 ns for each of 512 octets are 71 µs, at half the load 142 µs.
    #[test]
    fn the_bounded_delay_grows_with_load_and_is_never_below_what_was_measured() {
        let idle = RelayDelay { base_us: 20, octet_ns: 100, p99_us: 0, load_permille: 0 };
        assert_eq!(idle.bounded_us(), 71);
        assert_eq!(RelayDelay { load_permille: 500, ..idle }.bounded_us(), 142);
        assert_eq!(RelayDelay { p99_us: 900, ..idle }.bounded_us(), 900);
        for load_permille in [1_000, 1_001, u16::MAX] {
            assert_eq!(RelayDelay { load_permille, ..idle }.bounded_us(), u16::MAX);
        }
        let most = RelayDelay { base_us: u16::MAX, octet_ns: u16::MAX, ..idle };
        assert_eq!(most.bounded_us(), u16::MAX);
    }
}
