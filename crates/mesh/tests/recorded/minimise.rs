//! Makes a failing world smaller: fewer steps, links and nodes.

use super::{RecordedWorld, Step};

/// Runs at the most: a world of a minute takes some milliseconds.
const RUNS_MAX: usize = 2_000;

/// The smallest world found that still `fails`, in which no single step, link or node is superfluous unless
/// too many runs were needed.
pub(crate) fn minimise(
    world: &RecordedWorld,
    mut fails: impl FnMut(&RecordedWorld) -> bool,
) -> RecordedWorld {
    let (mut best, mut runs) = (world.clone(), 0);
    let mut keeps = |candidate: RecordedWorld, best: &mut RecordedWorld| {
        runs += 1;
        let smaller = runs <= RUNS_MAX && fails(&candidate);
        if smaller {
            *best = candidate;
        }
        smaller
    };
    loop {
        let before = size(&best);
        // Halves of the steps first, then ever smaller pieces.
        let mut piece = best.steps.len().div_ceil(2);
        while piece > 0 {
            let mut at = 0;
            while at < best.steps.len() {
                let mut candidate = best.clone();
                candidate.steps.drain(at..(at + piece).min(best.steps.len()));
                if !keeps(candidate, &mut best) {
                    at += piece;
                }
            }
            piece /= 2;
        }
        for node in (0..best.nodes).rev() {
            keeps(without_node(&best, node), &mut best);
        }
        for link in (0..best.links.len()).rev() {
            keeps(without_link(&best, link), &mut best);
        }
        if size(&best) == before {
            return best;
        }
    }
}

fn size(world: &RecordedWorld) -> (usize, usize, usize) {
    (world.steps.len(), world.links.len(), world.nodes)
}

/// The world without a link and what happens to it.
fn without_link(world: &RecordedWorld, gone: usize) -> RecordedWorld {
    let mut less = world.clone();
    if gone < less.links.len() {
        less.links.remove(gone);
    }
    let left = |link: usize| (link != gone).then(|| if link > gone { link - 1 } else { link });
    less.steps = world.steps.iter().filter_map(|&step| of_links(step, left)).collect();
    less
}

/// The world without a node, its links and what it does.
fn without_node(world: &RecordedWorld, gone: usize) -> RecordedWorld {
    let mut less = world.clone();
    for link in (0..world.links.len()).rev() {
        if world.links[link].0.contains(&gone) {
            less = without_link(&less, link);
        }
    }
    let left = |node: usize| (node != gone).then(|| if node > gone { node - 1 } else { node });
    for (ends, _) in &mut less.links {
        *ends = ends.map(|end| left(end).unwrap_or(end));
    }
    less.steps = less.steps.iter().filter_map(|&step| of_nodes(step, left)).collect();
    less.nodes -= 1;
    less
}

fn of_links(step: Step, left: impl Fn(usize) -> Option<usize>) -> Option<Step> {
    Some(match step {
        Step::Cut(link, cut) => Step::Cut(left(link)?, cut),
        Step::Heal(link) => Step::Heal(left(link)?),
        other => other,
    })
}

fn of_nodes(step: Step, left: impl Fn(usize) -> Option<usize>) -> Option<Step> {
    Some(match step {
        Step::Ping(from, to) => Step::Ping(left(from)?, left(to)?),
        Step::Reach(from, to) => Step::Reach(left(from)?, left(to)?),
        Step::Path(from, to, relays) => Step::Path(left(from)?, left(to)?, relays),
        Step::Reboot(node) => Step::Reboot(left(node)?),
        other => other,
    })
}
