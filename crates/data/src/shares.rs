//! Links from which several workers receive: their number, and which workers.
//!
//! A link has at most as many shares as there are workers, and as queues in its device. Shares go
//! to consecutive workers: the first link's begin with the first worker, the second link's with the
//! second, and so on around. A worker without a share hands its outgoing packets to one that has a
//! share.

use crate::setup::{DeviceSetup, WorkerLink};
use gatewright_link::{Backend, OpenError, Share, receive_queues};
use gatewright_packet::LinkIndex;

/// The number of `workers` that receive from a link.
///
/// # Errors
///
/// If its device does not exist or cannot be queried.
pub(crate) fn shares(link: &WorkerLink, workers: usize) -> Result<usize, OpenError> {
    let wanted = link.queues.unwrap_or(workers).clamp(1, workers.max(1));
    match &link.device {
        DeviceSetup::Interface(_) if wanted == 1 => Ok(1),
        // Packet sockets have as many as are asked for, whatever the device has.
        DeviceSetup::Interface(device)
            if device.backend == Backend::PacketSocket && link.queues.is_some() =>
        {
            Ok(wanted)
        }
        DeviceSetup::Interface(device) => Ok(wanted.min(receive_queues(&device.interface)?.max(1))),
        DeviceSetup::Tap(_)
        | DeviceSetup::Capture(_)
        | DeviceSetup::Dpdk(_)
        | DeviceSetup::Segment(_)
        | DeviceSetup::Virtual(_)
        | DeviceSetup::Spare(_) => Ok(1),
    }
}

/// The place of `worker` in the order in which a link's shares are dealt.
fn place(link: LinkIndex, worker: usize, workers: usize) -> usize {
    let workers = workers.max(1);
    (worker + workers - link.index() % workers) % workers
}

/// The share of a link that `worker` has; `None` if it has none.
pub(crate) fn share_of(
    link: LinkIndex,
    worker: usize,
    workers: usize,
    shares: usize,
) -> Option<Share> {
    let number = place(link, worker, workers);
    (number < shares).then_some(Share { number, of: shares })
}

/// The worker that has a link for `worker`: itself, if it has a share of it.
pub(crate) fn holder(link: LinkIndex, worker: usize, workers: usize, shares: usize) -> usize {
    let number = place(link, worker, workers) % shares.max(1);
    (link.index() + number) % workers.max(1)
}

// The region has a bit for each worker.
const _: () = assert!(crate::setup::WORKERS_MAX <= u32::BITS as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Each share is one worker's, and who has none finds one who has.
        #[test]
        fn shares_are_dealt_once(link in 0..40_u16, workers in 1..17_usize, wanted in 1..17_usize) {
            let (link, shares) = (LinkIndex(link), wanted.min(workers));
            let of = |worker| share_of(link, worker, workers, shares);
            let mut numbers: Vec<_> =
                (0..workers).filter_map(of).map(|share| share.number).collect();
            numbers.sort_unstable();
            prop_assert_eq!(numbers, (0..shares).collect::<Vec<_>>());
            for worker in 0..workers {
                let holder = holder(link, worker, workers, shares);
                prop_assert!(of(holder).is_some());
                prop_assert!(of(worker).is_none() || holder == worker);
            }
        }
    }
}
