//! The paper's Figs. 4, 5 and 6, for each system: throughput and loss by size of message, and what comes
//! through among control messages.

use super::devices::{ControlMessages, report};
use super::systems::System;
use super::text;
use crate::gateway::live::Payload;
use crate::gateway::world::{LOCAL, Load, PacedWindow, REMOTE, SENDER_CPU, TestHosts, To, number};
use bench::Bench;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Octets of a message, as UDP payload: the paper's sizes.
pub(super) const SIZES: [u32; 5] = [64, 128, 256, 512, 1024];
/// Octets around a message on Ethernet: preamble and gap 20, headers of Ethernet, IPv4 and UDP 42,
/// frame check sequence 4.
const AROUND: u32 = 66;
/// Bits a second: as the paper counts a gigabit, and as a cable does.
const PAPER_GIGABIT: f64 = 1_073_741_824.0;
const TRUE_GIGABIT: f64 = 1e9;
/// Messages a second of the paper's Fig. 6, control messages included, and their size.
const STORM_TOTAL: u32 = 262_144;
pub(super) const STORM_OCTETS: u32 = 512;
/// Control messages among them.
pub(super) const STORMS: [u32; 9] =
    [0, 1_000, 5_000, 10_000, 15_000, 20_000, 25_000, 30_000, 40_000];
/// Work for a control message beyond its own, with its name: the paper does not tell what one costs.
pub(super) const CONTROL_WORK: [(&str, Duration); 3] = [
    ("own", Duration::ZERO),
    ("50us", Duration::from_micros(50)),
    ("200us", Duration::from_micros(200)),
];
/// Windows of each loss: their median is what counts, as this machine's processors are sometimes others'.
const WINDOWS: usize = 5;
/// The systems of Fig. 6; the worker's way differs from the dual plane's by where reports are converted.
const STORMED: [System; 4] = [System::RecvFrom, System::RecvMmsg, System::OwnStack, System::Dual];

pub(super) fn message(octets: u32) -> Result<Vec<u8>, String> {
    report(usize::try_from(octets).map_err(text)?)
}

pub(super) const fn load(payload: &[u8]) -> Load<'_> {
    Load { to: To::Devices, payload, read: Payload::Whole }
}

/// Messages a second at a gigabit: the paper's, and on a cable.
fn rates(octets: u32) -> [(&'static str, f64); 2] {
    [
        ("paper", PAPER_GIGABIT / f64::from(8 * octets)),
        ("gigabit", TRUE_GIGABIT / f64::from(8 * (octets + AROUND))),
    ]
}

/// Nanoseconds from one message to the next.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "hundreds to thousands of nanoseconds"
)]
fn gap_ns(per_second: f64) -> u64 {
    (1e9 / per_second) as u64
}

/// What came through while everything that could be was sent.
pub(super) fn throughput(bench: &mut Bench, world: &TestHosts) -> Result<(), String> {
    for octets in SIZES {
        let message = message(octets)?;
        let mut sample = |system: System, name: &str, processors: &[usize]| {
            let key = format!("{name}_{octets}_kmsg_s");
            bench.attempt(&key, |bench| {
                let _open = system.open(world)?;
                let work = |stop: &AtomicBool| system.work(&message, Duration::ZERO, stop);
                let (rate, ()) = world.flood_from(processors, load(&message), work)?;
                bench.sample(&key, "k/s", rate.packets * 1e3);
                Ok(())
            });
        };
        for system in System::ALL {
            sample(system, system.name(), system.sent_from());
        }
        sample(System::Dual, "dual_one_sender", &[SENDER_CPU]);
    }
    floors(bench, world)
}

/// The floor: the same ways in and out, and nothing done between.
fn floors(bench: &mut Bench, world: &TestHosts) -> Result<(), String> {
    let message = message(64)?;
    for system in System::ALL {
        let Some(relay) = system.relay() else { continue };
        let key = format!("floor_{}_64_kmsg_s", system.name());
        bench.attempt(&key, |bench| {
            let _open = system.open(world)?;
            let relay = |stop: &AtomicBool| relay.run(LOCAL, REMOTE, stop).map_err(text);
            let (rate, _) = world.flood(load(&message), relay)?;
            bench.sample(&key, "k/s", rate.packets * 1e3);
            Ok(())
        });
    }
    Ok(())
}

/// Per cent that did not arrive of what was due, whether the generator came to send it or not: in some
/// systems it shares its processor with the conversion.
fn lost(window: &PacedWindow, per_second: f64) -> f64 {
    let due = (window.elapsed.as_secs_f64() * per_second).max(1.0);
    (100.0 * (1.0 - number(window.arrived) / due)).max(0.0)
}

/// Loss at both gigabits.
pub(super) fn losses(bench: &mut Bench, world: &TestHosts) -> Result<(), String> {
    for octets in SIZES {
        let message = message(octets)?;
        for (gigabit, per_second) in rates(octets) {
            for system in System::ALL {
                let key = format!("{}_{octets}_loss_{gigabit}_pct", system.name());
                bench.attempt(&key, |bench| {
                    let _open = system.open(world)?;
                    let work = |stop: &AtomicBool| system.work(&message, Duration::ZERO, stop);
                    let (from, load, gap) =
                        (system.sent_from(), load(&message), gap_ns(per_second));
                    for window in world.paced_from(from, load, gap, WINDOWS, work)? {
                        bench.sample(&key, "%", lost(&window, per_second));
                        let offered = number(window.sent) / window.elapsed.as_secs_f64() / 1e3;
                        let key = format!("{}_{octets}_sent_{gigabit}_kmsg_s", system.name());
                        bench.sample(&key, "k/s", offered);
                    }
                    Ok(())
                });
            }
        }
    }
    Ok(())
}

/// The key of what came through of data among `storm` control messages a second.
pub(super) fn storm_key(system: System, work: &str, storm: u32) -> String {
    format!("{}_storm_{work}_{storm}_kmsg_s", system.name())
}

/// What came through of a quarter of a million messages a second, some of which are control's.
pub(super) fn storms(
    bench: &mut Bench,
    world: &TestHosts,
    control: &ControlMessages,
) -> Result<(), String> {
    let message = message(STORM_OCTETS)?;
    for (name, control_work) in CONTROL_WORK {
        for storm in STORMS {
            for system in STORMED {
                let key = storm_key(system, name, storm);
                bench.attempt(&key, |bench| {
                    let _open = system.open(world)?;
                    let work = |stop: &AtomicBool| system.work(&message, control_work, stop);
                    for window in among_control(world, (control, storm), &message, work)? {
                        let rate = number(window.arrived) / window.elapsed.as_secs_f64() / 1e3;
                        bench.sample(&key, "k/s", rate);
                        let key = format!("{}_storm_{name}_{storm}_loss_pct", system.name());
                        bench.sample(&key, "%", lost(&window, f64::from(STORM_TOTAL - storm)));
                    }
                    Ok(())
                });
            }
        }
    }
    Ok(())
}

/// Windows of data at the pace that control messages leave, while those are sent.
fn among_control(
    world: &TestHosts,
    (control, storm): (&ControlMessages, u32),
    message: &[u8],
    work: impl FnOnce(&AtomicBool) -> Result<(), String> + Send,
) -> Result<Vec<PacedWindow>, String> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sends = scope.spawn(|| {
            let control = control.clone();
            world.in_sender(|| if storm == 0 { Ok(0) } else { control.send(storm, LOCAL, &stop) })
        });
        let gap = gap_ns(f64::from(STORM_TOTAL - storm));
        let windows = world.paced(load(message), gap, WINDOWS, work);
        stop.store(true, Ordering::Relaxed);
        let sent = sends.join().map_err(|_| "the control messages' thread panicked")??;
        sent.map_err(text)?;
        windows
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's figures: 262,144 messages of 512 octets a second; an Ethernet of 1 Gbit/s
    /// carries 1,488,095 frames of 64 octets, which hold 18 octets of UDP payload.
    #[test]
    fn rates_of_a_gigabit() {
        let [(_, paper), _] = rates(512);
        assert!((paper - 262_144.0).abs() < 1.0);
        let [_, (_, gigabit)] = rates(18);
        assert!((gigabit - 1_488_095.0).abs() < 1.0);
    }
}
