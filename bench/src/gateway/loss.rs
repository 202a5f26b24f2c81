//! The highest rate at which almost nothing is lost.

use super::Problems;
use super::relays::Relay;
use super::systems::{PREFIXED, System, XDP};
use super::world::{PacedWindow, TestHosts, number};
use bench::Bench;
use gatewright_planes::Series;

/// Whose is searched, by the beginning of its figures' names.
const SYSTEMS: [(&str, System); 4] = [
    ("naive", System::Sockets(Relay::Blocking)),
    ("mmsg", System::Sockets(Relay::Many)),
    ("gateway", System::Gateway(Series::Plain, XDP)),
    ("merged", System::Gateway(PREFIXED, XDP)),
];

/// Octets of a datagram's payload.
const PAYLOAD: usize = 64;
/// Of so many windows at a rate, so many must be without loss.
const WINDOWS: usize = 7;
const WITHOUT_LOSS: usize = 5;
/// What still counts as none.
const LOSS_MAX: f64 = 0.001;
/// Rates between which is searched, in million datagrams a second, and how often the gap is halved.
const RATES: (f64, f64) = (0.02, 5.0);
const STEPS: usize = 7;
/// A window in which less than this share of what was asked was sent has stalled: the generator
/// lost its processor.
const STALLED: f64 = 0.8;

/// Searches it for each, once.
pub(super) fn search(bench: &mut Bench, world: &TestHosts, problems: &Problems) {
    let mut stalls = Vec::new();
    for (name, system) in SYSTEMS {
        match highest(world, system) {
            Ok(LossFreeRate { mpps, stalled, windows }) => {
                bench.sample(&format!("{name}_lossfree_mpps"), "Mpps", mpps);
                stalls.push(format!("{name} {stalled} of {windows}"));
            }
            Err(problem) => problems.borrow_mut().push(format!("loss {name}: {problem}")),
        }
    }
    bench.note(format!(
        "lossfree: the highest offered rate (as it was offered, not as asked) with at most 0.1 % \
         lost in {WITHOUT_LOSS} of {WINDOWS} windows, searched once; windows in which the generator \
         stalled: {}",
        stalls.join(", ")
    ));
}

struct LossFreeRate {
    /// As offered: the median of the windows.
    mpps: f64,
    stalled: usize,
    windows: usize,
}

fn highest(world: &TestHosts, system: System) -> Result<LossFreeRate, String> {
    let (mut low, mut high) = RATES;
    let mut found = LossFreeRate { mpps: 0.0, stalled: 0, windows: 0 };
    for _ in 0..STEPS {
        // In the middle of the logarithms: rates are compared by their ratio.
        let mpps = (low * high).sqrt();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "200 to 50,000 nanoseconds"
        )]
        let gap_ns = (1000.0 / mpps) as u64;
        let windows = system.paced(world, PAYLOAD, gap_ns, WINDOWS)?;
        found.windows += windows.len();
        found.stalled += windows.iter().filter(|window| offered(window) < STALLED * mpps).count();
        if windows.iter().filter(|window| loses_nothing(window)).count() >= WITHOUT_LOSS {
            low = mpps;
            let mut rates: Vec<f64> = windows.iter().map(offered).collect();
            rates.sort_by(f64::total_cmp);
            found.mpps = rates.get(WINDOWS / 2).copied().unwrap_or(0.0);
        } else {
            high = mpps;
        }
    }
    Ok(found)
}

/// Million frames a second that were sent.
fn offered(window: &PacedWindow) -> f64 {
    number(window.sent) / window.elapsed.as_secs_f64() / 1e6
}

fn loses_nothing(window: &PacedWindow) -> bool {
    window.sent > 0 && number(window.arrived) >= (1.0 - LOSS_MAX) * number(window.sent)
}
