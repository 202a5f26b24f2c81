//! Random worlds, and recorded ones: whatever happens, no invariant is broken.
//!
//! A seed that fails is printed with the smallest world that fails alike. Put that into a file of
//! `tests/recorded/worlds`, and it is replayed from then on.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod recorded;

use gatewright_mesh::simulate::LinkCut;
use gatewright_mesh::{
    MeshKeys, MeshMembers, MeshNodeKey, MeshRouting, MeshSettings, MeshTrust, Profile,
};
use recorded::{Failure, RecordedWorld, Step, Variant, minimise};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn hasty(settings: &mut MeshSettings) {
    settings.path_idle = Duration::from_secs(5);
}

fn hasty_with_a_key(settings: &mut MeshSettings) {
    hasty(settings);
    settings.trust = MeshTrust::Psk(MeshKeys::parse(&"5a".repeat(32)).unwrap());
}

/// A member that an authority has admitted, with a key that follows from its number in the world.
fn hasty_with_own_keys(settings: &mut MeshSettings) {
    hasty(settings);
    let key = |octets: [u8; 8]| MeshNodeKey::of_seed(octets.repeat(4).try_into().unwrap()).unwrap();
    let (own, authority) = (key(settings.id.0.to_be_bytes()), key([0; 8]));
    let certificate = authority.admit(&own.public()).unwrap();
    let members = MeshMembers { authorities: vec![authority.public()], ..MeshMembers::default() };
    settings.trust = MeshTrust::Pki(Box::new((own.with_certificate(certificate), members)));
}

fn hasty_by_olsr(settings: &mut MeshSettings) {
    hasty(settings);
    settings.routing = MeshRouting::Olsr;
}

/// Paths end after 5 s without use, in all of them.
const VARIANTS: [Variant; 4] = [
    ("open", hasty),
    ("psk", hasty_with_a_key),
    ("pki", hasty_with_own_keys),
    ("olsr", hasty_by_olsr),
];

/// Every tenth mesh is authenticated by a key of all, and every tenth finds its routes by OLSR. Every
/// fiftieth is one of members, whose signatures take seconds of a processor.
fn variant_of(seed: u64) -> Variant {
    let [open, psk, pki, olsr] = VARIANTS;
    match seed % 50 {
        7 => pki,
        number if number % 10 == 5 => olsr,
        number if number % 10 == 2 => psk,
        _ => open,
    }
}

/// Runs the world of a seed; if it fails, how, with the smallest world that fails alike.
fn random_world(seed: u64) -> Result<(), String> {
    let world = RecordedWorld::of_seed(seed, variant_of(seed));
    let Err(failure) = world.run() else { return Ok(()) };
    let fails = |world: &RecordedWorld| world.run().is_err_and(|other| other.is_like(&failure));
    let least = minimise(&world, fails);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("seed-{seed}.world"));
    let text = format!("# Seed {seed}: {failure:?}\n{least}");
    fs::write(&path, &text).unwrap();
    Err(format!("{failure:?}; the smallest that fails alike is in {}:\n{text}", path.display()))
}

/// 200 random topologies; `MESH_SEEDS=100000` for more, `MESH_SEED=N` for one.
#[test]
fn invariants_hold_in_random_worlds() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("MESH_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("MESH_SEEDS").unwrap_or(200),
    };
    let next = AtomicU64::new(seeds.start);
    let failed = Mutex::new(Vec::new());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            if let Err(what) = random_world(seed) {
                println!("MESH_SEED={seed}: {what}");
                failed.lock().unwrap().push(seed);
            }
            if seed % 1_000 == 999 {
                println!("{} random worlds", seed + 1);
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} failed, each again with MESH_SEED=N: {failed:?}", failed.len());
}

/// Every file of `recorded/worlds`, and it reads as it was written.
#[test]
fn recorded_worlds_pass() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/worlds");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let world = RecordedWorld::parse(&text, &VARIANTS).unwrap();
        let again = RecordedWorld::parse(&world.to_string(), &VARIANTS).unwrap();
        assert_eq!(again.to_string(), world.to_string(), "{}", path.display());
        assert_eq!(world.run(), Ok(()), "{}", path.display());
        count += 1;
    }
    assert!(count > 0, "no recorded world");
}

/// A world of a seed is the same after it was written and read, and so is what happens in it.
#[test]
fn a_world_of_a_seed_is_replayed_from_its_text() {
    for seed in [0, 2, 5, 13] {
        let world = RecordedWorld::of_seed(seed, variant_of(seed));
        let read = RecordedWorld::parse(&world.to_string(), &VARIANTS).unwrap();
        assert_eq!(read.to_string(), world.to_string());
        assert_eq!(read.run(), world.run());
    }
}

/// What fails by two steps at one link and a node is left with just these.
#[test]
fn a_failing_world_is_made_as_small_as_it_can_be() {
    let world = RecordedWorld::of_seed(13, VARIANTS[0]);
    let is_cut = |step: &Step| matches!(step, Step::Cut(..));
    let cut = world.steps.iter().position(is_cut).unwrap();
    let fails = |world: &RecordedWorld| {
        let cut = world.steps.iter().position(is_cut);
        cut.is_some_and(|cut| {
            world.steps.iter().skip(cut).any(|step| matches!(step, Step::Reach(..)))
        })
    };
    assert!(fails(&world) && world.steps.len() > cut + 10, "seed 13 has nothing to leave out");
    let least = minimise(&world, fails);
    assert!(matches!(least.steps[..], [Step::Cut(0, _), Step::Reach(_, _)]), "{least}");
    assert_eq!((least.links.len(), least.nodes <= 4), (1, true), "{least}");
}

/// A wrong expectation fails, and as its own kind.
#[test]
fn what_a_world_expects_is_checked() {
    let text = "nodes 2 open\nlink 0 1 100 0 0 100 0 0\nrun 1000000000\nping 0 1\nrun 1000000000\n";
    let world = |more: &str| RecordedWorld::parse(&format!("{text}{more}"), &VARIANTS).unwrap();
    assert_eq!(world("path 0 1 0\nreach 1 0\n").run(), Ok(()));
    assert!(matches!(world("path 0 1 3\n").run(), Err(Failure::OtherPath(_))));
    let mut cut = world("reach 0 1\n");
    cut.profile = Profile::Default;
    cut.steps.insert(0, Step::Cut(0, LinkCut::Silent));
    // Links do not join them: nothing is expected.
    assert_eq!(cut.run(), Ok(()));
    assert!(RecordedWorld::parse("nodes 2 secret\n", &VARIANTS).is_err());
    assert!(RecordedWorld::parse("cut 0 loudly\n", &VARIANTS).is_err());
}
