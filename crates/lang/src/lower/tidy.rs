//! Removes empty blocks from a handler's graph, to make it shorter to run and to read.

use crate::ir::{Block, BlockId, Terminator};

/// Maximum number of consecutive empty blocks that are skipped.
const CHAIN_MAX: usize = 64;

/// Redirects edges past blocks that only jump, and removes unreachable blocks.
///
/// The target of a `NextResponse` is the block that ends with its `Gather`. It is never empty, and
/// so keeps its place among the others.
pub(super) fn tidy(mut blocks: Vec<Block>) -> Vec<Block> {
    let past: Vec<BlockId> =
        (0..blocks.len()).map(|index| target(&blocks, BlockId::new(index))).collect();
    let lead = |block: BlockId| past.get(block.index()).copied().unwrap_or(block);
    for block in &mut blocks {
        block.terminator.retarget(lead);
    }
    let order = reached(&blocks);
    let mut numbers = vec![BlockId::new(0); blocks.len()];
    for (number, block) in order.iter().enumerate() {
        if let Some(of) = numbers.get_mut(block.index()) {
            *of = BlockId::new(number);
        }
    }
    let number = |block: BlockId| numbers.get(block.index()).copied().unwrap_or(block);
    let mut tidied = Vec::new();
    for id in &order {
        if let Some(mut block) = blocks.get(id.index()).cloned() {
            block.terminator.retarget(number);
            tidied.push(block);
        }
    }
    tidied
}

/// The block that an edge to this block really leads to.
fn target(blocks: &[Block], start: BlockId) -> BlockId {
    let mut at = start;
    // An empty loop has no end, and a chain of this length is not written by a person.
    for _ in 0..CHAIN_MAX {
        match blocks.get(at.index()) {
            Some(Block { statements, terminator: Terminator::Jump(then), .. })
                if statements.is_empty() =>
            {
                at = *then;
            }
            _ => return at,
        }
    }
    at
}

/// The reachable blocks, the first one first.
fn reached(blocks: &[Block]) -> Vec<BlockId> {
    let mut reached = vec![BlockId::new(0)];
    let mut seen = vec![false; blocks.len()];
    let mut see = |block: BlockId| {
        seen.get_mut(block.index()).is_some_and(|seen| !std::mem::replace(seen, true))
    };
    see(BlockId::new(0));
    let mut next = 0;
    while let Some(id) = reached.get(next).copied() {
        next += 1;
        let targets = blocks.get(id.index()).map(|block| block.terminator.targets());
        for target in targets.unwrap_or_default() {
            if see(target) {
                reached.push(target);
            }
        }
    }
    reached
}
