//! Traffic of bounded delay chooses its paths by the relays' delay models, in virtual time.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use gatewright_mesh::simulate::MeshWorld;
use gatewright_mesh::{MeshSettings, PathClass, Profile};
use gatewright_sim::Topology;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn same(_: &mut MeshSettings) {}

/// The paper's third experiment, with paths of one, two and two relays, and what is sent from one end to
/// the other in two classes.
struct Figure {
    world: MeshWorld,
}

const FROM: usize = 0;
const TO: usize = 6;

impl Figure {
    /// Sends for a time, a packet of each class every 4 ms.
    fn send(&mut self, time: Duration) {
        let end = self.world.now() + time;
        while self.world.now() < end {
            for class in [PathClass::BOUNDED_DELAY, PathClass::BULK] {
                self.world.ping(FROM, TO, class);
            }
            self.world.run_for(4 * MS);
        }
    }

    fn relays(&self, class: PathClass) -> Vec<usize> {
        self.world.installed_for(FROM, TO, class)[0].clone().unwrap()
    }
}

/// A relay becomes slow while both classes use it: the bounded one leaves it, the other one stays.
#[test]
fn a_slow_relay_is_left_by_bounded_traffic_and_used_by_the_rest() {
    for seed in 0..10 {
        let mut figure =
            Figure { world: MeshWorld::new(Topology::three_paths(), Profile::Default, seed, same) };
        figure.world.run_for(SECOND);
        figure.send(2 * SECOND);
        let before = figure.relays(PathClass::BOUNDED_DELAY);
        assert_eq!(before, figure.relays(PathClass::BULK), "seed {seed}: both are alike at first");
        assert_eq!(before, [1], "seed {seed}: the cheapest one");
        // The other paths take 0.45 ms by their links and relays.
        figure.world.slow_down(1, MS / 2, Duration::from_nanos(100));
        figure.send(60 * SECOND);
        let after = figure.relays(PathClass::BOUNDED_DELAY);
        assert!(
            !after.contains(&before[0]),
            "seed {seed}: {after:?} has the slow relay {before:?}"
        );
        assert_eq!(
            figure.relays(PathClass::BULK),
            before,
            "seed {seed}: bulk has no reason to move"
        );
        assert!(figure.world.violations().is_empty(), "{:?}", figure.world.violations());
    }
}
