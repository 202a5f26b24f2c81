//! A handler's graph without the blocks that do nothing: shorter to run and to read.

use crate::ir::{Block, BlockId, Terminator};

/// Leads edges past blocks that only jump, and drops what control never comes to.
///
/// The target of a `NextResponse` is the block that ends with its `Gather`; it is never empty, and
/// so keeps its place among the others.
pub(super) fn tidy(mut blocks: Vec<Block>) -> Vec<Block> {
    let past: Vec<BlockId> =
        (0..blocks.len()).map(|index| target(&blocks, BlockId::new(index))).collect();
    let lead = |block: BlockId| past.get(block.index()).copied().unwrap_or(block);
    for block in &mut blocks {
        block.terminator.retarget(lead);
    }
    let order = reached(&blocks);
    let number =
        |block: BlockId| BlockId::new(order.iter().position(|of| *of == block).unwrap_or_default());
    let mut tidied = Vec::new();
    for id in &order {
        if let Some(mut block) = blocks.get(id.index()).cloned() {
            block.terminator.retarget(number);
            tidied.push(block);
        }
    }
    tidied
}

/// Where control really goes from an edge to this block.
fn target(blocks: &[Block], start: BlockId) -> BlockId {
    let mut at = start;
    // An empty loop has no end; as many steps as there are blocks are enough for any other chain.
    for _ in 0..blocks.len() {
        match blocks.get(at.index()) {
            Some(Block { statements, terminator: Terminator::Jump(then), .. })
                if statements.is_empty() =>
            {
                at = *then;
            }
            _ => return at,
        }
    }
    start
}

/// The blocks that control comes to, the first one first.
fn reached(blocks: &[Block]) -> Vec<BlockId> {
    let mut reached = vec![BlockId::new(0)];
    let mut next = 0;
    while let Some(id) = reached.get(next).copied() {
        next += 1;
        let targets = blocks.get(id.index()).map(|block| block.terminator.targets());
        for target in targets.unwrap_or_default() {
            if !reached.contains(&target) {
                reached.push(target);
            }
        }
    }
    reached
}
