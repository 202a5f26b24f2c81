//! `bench mesh-failover`: outages of the mesh and of routing daemons that are not ours, on the Lilith paper's
//! Figure 6, in turn.

use bench::{Bench, Options, Relation};
use gatewright_lab::failover::{CableCut, FailoverBed, FailoverError, PeerRouting};
use gatewright_testbed::Needs;
use std::time::Duration;

/// Cuts of each kind in a round.
const CUTS: usize = 3;
/// A datagram each millisecond, as long as ping's own.
const PING: (u16, usize, Duration) = (7_000, 56, Duration::from_millis(1));

/// Who routes: its name in keys, and the daemons of a peer.
const SYSTEMS: [(&str, Option<PeerRouting>); 3] =
    [("mesh", None), ("frr", Some(PeerRouting::OspfBfd)), ("babel", Some(PeerRouting::Babel))];

const fn kind(cut: CableCut) -> &'static str {
    match cut {
        CableCut::NearDown => "near_down",
        CableCut::FarDown => "far_down",
        CableCut::NearSilent => "near_silent",
        CableCut::FarSilent => "far_silent",
    }
}

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("mesh-failover", options);
    let mut present = Vec::new();
    for (name, peer) in SYSTEMS {
        let missing = match peer {
            None => Needs::new().namespaces().linux(6, 6).missing(),
            Some(peer) => peer.missing(),
        };
        match missing {
            None => present.push((name, peer)),
            Some(missing) => bench.note(format!("{name}: skipped: needs {missing}")),
        }
    }
    for _ in 0..options.pick(options.rounds(), 1) {
        for &(name, peer) in &present {
            match round(&mut bench, (name, peer)) {
                Ok(()) => {}
                Err(error) if peer.is_none() => return Err(error.to_string()),
                // A peer that does not come up or heal is one that was not measured.
                Err(error) => bench.note(format!("{name}: a round was not finished: {error}")),
            }
        }
    }
    for cut in CableCut::ALL {
        let kind = kind(cut);
        let (ours, frr) = (format!("mesh_{kind}_ms"), format!("frr_{kind}_ms"));
        let key = format!("{kind}_vs_frr");
        bench.ratio(&key, &ours, &frr);
        bench.promise(&key, Relation::AtMost, 1.0);
    }
    bench.note(
        "Figure 6 in namespaces, a datagram each ms from S to T and back, of bounded delay; from the first \
         without an answer to the first with one. frr: OSPF with BFD of 50 ms times 3, nothing throttled; babel: \
         babeld, hellos each 0.1 s, updates each second; their path by 1 and 2 costs half, but babeld \
         may keep to another. The paper: after three \
         I'M ALIVE of 2 s",
    );
    Ok(bench)
}

fn round(
    bench: &mut Bench,
    (name, peer): (&str, Option<PeerRouting>),
) -> Result<(), FailoverError> {
    let bed = match peer {
        None => FailoverBed::new()?,
        Some(peer) => FailoverBed::of_peers(peer)?,
    };
    let flow = bed.flow(PING.0, PING.1, PING.2)?;
    for _ in 0..bench.options().pick(CUTS, 1) {
        for cut in CableCut::ALL {
            let outcome = bed.cut(cut, &flow)?;
            if outcome.before == outcome.after {
                let (cable, path) = (outcome.cable, outcome.before);
                return Err(format!("{cable} was cut, and packets still take {path}").into());
            }
            bench.sample(&format!("{name}_{}_ms", kind(cut)), "ms", outcome.outage_ms);
        }
    }
    Ok(())
}
