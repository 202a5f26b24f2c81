//! How long pings of two nodes are not answered.

use gatewright_mesh::PathClass;
use gatewright_mesh::simulate::MeshWorld;
use std::time::Duration;

/// Pings each millisecond for a time; the longest hole between the sending times of answered ones,
/// from the beginning on.
pub(crate) fn outage(
    world: &mut MeshWorld,
    (from, to): (usize, usize),
    time: Duration,
) -> Duration {
    let first = world.pings().len();
    let start = world.now();
    let end = start + time;
    while world.now() < end {
        world.ping(from, to, PathClass::BULK);
        world.run_for(Duration::from_millis(1));
    }
    world.run_for(Duration::from_secs(1));
    let answered = world.pings()[first..].iter().filter(|ping| ping.rtt.is_some());
    let mut times = vec![start];
    times.extend(answered.map(|ping| ping.sent_at));
    times.push(end);
    times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap_or(time)
}
