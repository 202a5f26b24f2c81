//! Upgrades to programs that do not begin.

use crate::{SOUTH, World, running::Said};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

/// Longer than a refusal takes on a busy machine, and less than nobody's answer is awaited.
const SOON: Duration = Duration::from_secs(20);

/// Upgrades to a script, which is `program` but for its `run`; returns what is said, which is soon.
fn upgrade(world: &World, run: &str) -> Said {
    let script = world.folder.join("script");
    let program = env!("CARGO_BIN_EXE_gatewright");
    let text = format!("#!/bin/sh\nif [ \"$1\" = run ]; then {run}; fi\nexec {program} \"$@\"\n");
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let began = Instant::now();
    let said = Said::from(world.upgrade(script.to_str().unwrap()).output().unwrap());
    let took = began.elapsed();
    println!("{run}: {took:?}: {}", said.out);
    assert!(took < SOON, "{run}: {took:?}: {}", said.out);
    said
}

/// A program whose `run` ends at once is refused with its status and what it said, and the old one goes on.
pub(crate) fn programs_that_end_at_once() {
    let world = World::new("ends-at-once");
    world.describe("");
    let process = world.start();
    world.await_passes(SOUTH);
    let before = world.planes();
    let cases = [
        ("exit 0", "its `run` ends at once (exit status: 0)"),
        (
            "echo one >&2; echo no room >&2; exit 3",
            "its `run` ends at once (exit status: 3): one; no room",
        ),
    ];
    for (run, why) in cases {
        let refused = upgrade(&world, run);
        assert_eq!(refused.code, Some(78), "{}{}", refused.out, refused.err);
        assert!(
            refused.out.contains(&format!("{why}; the gateway goes on as it is")),
            "{}",
            refused.out
        );
        assert_eq!(world.planes(), before);
        assert!(world.passes(SOUTH), "{run}");
    }
    world.end(&process);
}

/// One that ends when it has begun in the place of the old one is told at once, and the data plane goes on.
pub(crate) fn programs_that_end_in_its_place() {
    let world = World::new("ends-in-its-place");
    world.describe("");
    let _ended = world.start();
    world.await_passes(SOUTH);
    let data = world.planes()["data"].clone();
    let run = format!(
        "[ -n \"$GATEWRIGHT_TRIAL\" ] && exec {} \"$@\"; exit 3",
        env!("CARGO_BIN_EXE_gatewright")
    );
    let said = upgrade(&world, &run);
    assert_eq!(said.code, Some(69), "{}{}", said.out, said.err);
    assert!(said.out.contains("the new control plane has ended"), "{}", said.out);
    assert!(world.passes(SOUTH), "the data plane goes on");
    assert_eq!(world.ask(&["status"]).code, Some(69), "nobody is taken for busy");
    let next = world.start();
    assert_eq!((&world.planes()["adopted"], &world.planes()["data"]), (&true.into(), &data));
    world.end(&next);
}
