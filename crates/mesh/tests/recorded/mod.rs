//! Worlds as texts: links, and what happens to them and their nodes, step by step. One is made of a seed, is
//! made smaller while it fails in the same way, and is replayed from a file.

mod minimise;

pub(crate) use minimise::minimise;

use gatewright_mesh::simulate::{LinkCut, MeshWorld};
use gatewright_mesh::{MeshSettings, PathClass, Profile};
use gatewright_sim::{Chance, LinkDirection, Random, Topology, TopologyLink, distances};
use std::cell::RefCell;
use std::fmt;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A direction of a link: delay in microseconds, loss and duplication in parts per million.
pub(crate) type Direction = [u32; 3];

/// Something that happens; links and nodes by their numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    /// A ping of bulk traffic.
    Ping(usize, usize),
    /// A link is cut.
    Cut(usize, LinkCut),
    /// A link is healed.
    Heal(usize),
    /// A node is restarted.
    Reboot(usize),
    /// Time passes, in nanoseconds.
    Run(u64),
    /// One of ten pings in three seconds must be answered, if links join the two.
    Reach(usize, usize),
    /// The relays of the primary path must number so many.
    Path(usize, usize, usize),
}

/// How the nodes are set up.
pub(crate) type Variant = (&'static str, fn(&mut MeshSettings));

/// A world with what happens in it.
#[derive(Clone, Debug)]
pub(crate) struct RecordedWorld {
    pub(crate) profile: Profile,
    pub(crate) variant: Variant,
    pub(crate) seed: u64,
    pub(crate) nodes: usize,
    pub(crate) links: Vec<([usize; 2], [Direction; 2])>,
    pub(crate) steps: Vec<Step>,
}

/// How a world fails.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Failure {
    /// An invariant was broken.
    Broken(String),
    /// A node does not reach another one.
    Unreached(String),
    /// A path is another one.
    OtherPath(String),
    /// Tables are not empty after silence.
    NotSilent,
}

impl Failure {
    /// Whether both are failures of one kind.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        core::mem::discriminant(self) == core::mem::discriminant(other)
    }
}

fn pick(random: &mut Random, limit: usize) -> usize {
    usize::try_from(random.below(u64::try_from(limit).unwrap())).unwrap()
}

impl RecordedWorld {
    /// The random world of a seed: pings among random pairs while links fail, lose and heal and nodes
    /// restart. In the end all links are healed, and ten pairs must reach each other.
    pub(crate) fn of_seed(seed: u64, variant: Variant) -> Self {
        let mut random = Random::new(seed);
        let nodes = 5 + usize::try_from(random.below(20)).unwrap();
        let topology = match random.below(4) {
            0 => Topology::ring(nodes),
            1 => Topology::grid(3 + nodes / 6, 3),
            _ => {
                Topology::random_geometric(nodes, 4 + u32::try_from(random.below(6)).unwrap(), seed)
            }
        };
        let loss = random.below(50_000);
        let made = RefCell::new(Vec::new());
        let topology = topology.with(seed, |_, random| {
            let delay = u32::try_from(50 + random.below(5_000)).unwrap();
            let loss = u32::try_from(random.below(loss + 1)).unwrap();
            made.borrow_mut().push([delay, loss, 10_000]);
        });
        let profile = if random.below(4) == 0 { Profile::Classic } else { Profile::Default };
        let directions = made.into_inner();
        let links = topology.links.iter().zip(directions.chunks(2));
        let links: Vec<_> = links.map(|(link, both)| (link.ends, [both[0], both[1]])).collect();
        let mut this =
            Self { profile, variant, seed, nodes: topology.nodes, links, steps: Vec::new() };
        this.happen(&mut random);
        this
    }

    fn happen(&mut self, random: &mut Random) {
        let (nodes, links) = (self.nodes, self.links.len());
        let mut steps = Vec::new();
        for _ in 0..30 {
            let (from, to) = (pick(random, nodes), pick(random, nodes));
            if from != to {
                steps.push(Step::Ping(from, to));
            }
            steps.extend(match random.below(6) {
                0 => Some(Step::Cut(pick(random, links), LinkCut::Carrier)),
                1 => Some(Step::Cut(pick(random, links), LinkCut::Silent)),
                2 => Some(Step::Cut(pick(random, links), LinkCut::OneWay)),
                3 => Some(Step::Heal(pick(random, links))),
                4 => Some(Step::Reboot(pick(random, nodes))),
                _ => None,
            });
            let time = random.time_below(2 * SECOND);
            steps.push(Step::Run(u64::try_from(time.as_nanos()).unwrap()));
        }
        steps.extend((0..links).map(Step::Heal));
        // Reachable within a bound after the last change: silent neighbours are heard again within two
        // intervals, and a search takes at most two seconds.
        steps.push(Step::Run(10_000_000_000));
        for _ in 0..10 {
            let (from, to) = (pick(random, nodes), pick(random, nodes));
            if from != to {
                steps.push(Step::Reach(from, to));
            }
        }
        self.steps = steps;
    }

    fn topology(&self) -> Topology {
        let direction = |[delay, loss, duplicate]: Direction| LinkDirection {
            delay: Duration::from_micros(delay.into()),
            loss: Chance::per_million(loss),
            duplicate: Chance::per_million(duplicate),
        };
        let link = |&(ends, directions): &([usize; 2], [Direction; 2])| TopologyLink {
            ends,
            directions: directions.map(direction),
        };
        Topology {
            nodes: self.nodes,
            links: self.links.iter().map(link).collect(),
            places: Vec::new(),
        }
    }

    /// Lets it happen; then a minute without traffic must empty all tables.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let topology = self.topology();
        let mut world = MeshWorld::new(topology, self.profile, self.seed, self.variant.1);
        for &step in &self.steps {
            Self::take(&mut world, step)?;
        }
        world.run_for(60 * SECOND);
        if let Some(broken) = world.violations().first() {
            return Err(Failure::Broken(broken.clone()));
        }
        if world.is_silent() { Ok(()) } else { Err(Failure::NotSilent) }
    }

    fn take(world: &mut MeshWorld, step: Step) -> Result<(), Failure> {
        match step {
            Step::Ping(from, to) => drop(world.ping(from, to, PathClass::BULK)),
            Step::Cut(link, cut) => world.cut(link, cut),
            Step::Heal(link) => world.heal(link),
            Step::Reboot(node) => world.reboot(node),
            Step::Run(time) => world.run_for(Duration::from_nanos(time)),
            Step::Path(from, to, relays) => {
                let [primary, _] = world.installed(from, to);
                let found = primary.as_ref().map(Vec::len);
                if found != Some(relays) {
                    let what = format!("{from} to {to} by {primary:?}, not {relays} relays");
                    return Err(Failure::OtherPath(what));
                }
            }
            Step::Reach(from, to) => {
                let near = world.topology().neighbours(|link| world.works(link));
                let joined = distances(&near, from).get(to).is_some_and(Option::is_some);
                let mut pings = Vec::new();
                for _ in 0..10 {
                    pings.push(world.ping(from, to, PathClass::BULK));
                    world.run_for(300 * MS);
                }
                world.run_for(SECOND);
                let arrived = pings.iter().any(|&number| world.pings()[number].rtt.is_some());
                if joined && !arrived {
                    return Err(Failure::Unreached(format!("{from} does not reach {to}")));
                }
            }
        }
        Ok(())
    }

    /// Reads a file's text; `variants` are the setups that it can name.
    pub(crate) fn parse(text: &str, variants: &[Variant]) -> Result<Self, String> {
        let mut this = Self {
            profile: Profile::Default,
            variant: *variants.first().ok_or("no variant")?,
            seed: 1,
            nodes: 0,
            links: Vec::new(),
            steps: Vec::new(),
        };
        let lines = text.lines().map(str::trim);
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            this.line(line, variants).ok_or_else(|| format!("not a line of a world: {line}"))?;
        }
        Ok(this)
    }

    fn line(&mut self, line: &str, variants: &[Variant]) -> Option<()> {
        let mut words = line.split_whitespace();
        let (first, rest): (_, Vec<&str>) = (words.next()?, words.collect());
        let number = |at: usize| rest.get(at).and_then(|word| word.parse::<usize>().ok());
        self.steps.push(match (first, rest.len()) {
            ("profile", 1) => {
                let profiles = [("classic", Profile::Classic), ("default", Profile::Default)];
                self.profile = profiles.into_iter().find(|(name, _)| *name == rest[0])?.1;
                return Some(());
            }
            ("nodes", 2) => {
                self.nodes = number(0)?;
                self.variant = *variants.iter().find(|(name, _)| *name == rest[1])?;
                return Some(());
            }
            ("seed", 1) => {
                self.seed = rest[0].parse().ok()?;
                return Some(());
            }
            ("link", 8) => {
                let value = |at: usize| rest.get(at).and_then(|word| word.parse::<u32>().ok());
                let way = |at| Some([value(at)?, value(at + 1)?, value(at + 2)?]);
                self.links.push(([number(0)?, number(1)?], [way(2)?, way(5)?]));
                return Some(());
            }
            ("ping", 2) => Step::Ping(number(0)?, number(1)?),
            ("cut", 2) => Step::Cut(number(0)?, CUTS.iter().find(|(name, _)| *name == rest[1])?.1),
            ("heal", 1) => Step::Heal(number(0)?),
            ("reboot", 1) => Step::Reboot(number(0)?),
            ("run", 1) => Step::Run(rest[0].parse().ok()?),
            ("reach", 2) => Step::Reach(number(0)?, number(1)?),
            ("path", 3) => Step::Path(number(0)?, number(1)?, number(2)?),
            _ => return None,
        });
        Some(())
    }
}

const CUTS: [(&str, LinkCut); 4] = [
    ("carrier", LinkCut::Carrier),
    ("silent", LinkCut::Silent),
    ("one-way", LinkCut::OneWay),
    ("one-end", LinkCut::OneEnd),
];

impl fmt::Display for RecordedWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let profile = if self.profile == Profile::Classic { "classic" } else { "default" };
        writeln!(
            f,
            "profile {profile}\nnodes {} {}\nseed {}",
            self.nodes, self.variant.0, self.seed
        )?;
        for ([a, b], [[d, l, u], [e, m, v]]) in &self.links {
            writeln!(f, "link {a} {b}  {d} {l} {u}  {e} {m} {v}")?;
        }
        for step in &self.steps {
            match step {
                Step::Ping(from, to) => writeln!(f, "ping {from} {to}"),
                Step::Cut(link, cut) => {
                    let name = CUTS.iter().find(|(_, known)| known == cut).map_or("?", |it| it.0);
                    writeln!(f, "cut {link} {name}")
                }
                Step::Heal(link) => writeln!(f, "heal {link}"),
                Step::Reboot(node) => writeln!(f, "reboot {node}"),
                Step::Run(time) => writeln!(f, "run {time}"),
                Step::Reach(from, to) => writeln!(f, "reach {from} {to}"),
                Step::Path(from, to, relays) => writeln!(f, "path {from} {to} {relays}"),
            }?;
        }
        Ok(())
    }
}
