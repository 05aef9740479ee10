//! Contenders that take turns, each running several steps in a row.
//!
//! While one contender runs its block, no other contender runs. A block starts with a step that is
//! not counted: the previous contender left other data in the caches, and noise that idle threads
//! drew ahead during the turns of the other contenders would make the first step look cheap.

use burn_dp_examples::training::TrainError;

/// Returns the error of a step that could not be measured.
pub(super) fn failed_step(reason: String) -> TrainError {
    TrainError::Io { path: "a measured step".into(), source: std::io::Error::other(reason) }
}

/// Measured steps of one block.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Block {
    /// Milliseconds of each counted step.
    pub(super) ms: Vec<f64>,
    /// CPU time of a step on all threads, including the step that is not counted and the work of
    /// idle threads after the last step; `None` where the system does not report it.
    pub(super) cpu_ms: Option<f64>,
}

/// Something that runs steps on request.
pub(super) trait Player {
    /// Runs one step that is not counted and then `steps` steps, and waits until all of its threads
    /// are idle.
    ///
    /// # Errors
    ///
    /// Returns a sentence if a step fails; the contender cannot be used afterward.
    fn block(&mut self, steps: usize) -> Result<Block, String>;
}

/// How many steps a contender runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Amount {
    /// This many steps in total.
    Steps(usize),
    /// About this many milliseconds in total, with at least two steps in each block.
    Milliseconds(f64),
}

/// Maximum number of steps in a block.
const MOST_STEPS: usize = 10_000;

impl Amount {
    /// Returns the counted steps of a block. `measured` is the number of counted steps so far, `ms`
    /// the time of a step, `left` the number of remaining blocks, including this one.
    fn of_block(self, measured: usize, ms: f64, blocks: usize, left: usize) -> usize {
        match self {
            Self::Steps(steps) => steps.saturating_sub(measured).div_ceil(left.max(1)),
            Self::Milliseconds(total) => {
                ((total / blocks as f64 / ms).round() as usize).clamp(2, MOST_STEPS)
            }
        }
    }
}

/// Lets the contenders take turns, after one block of one step each that is not counted.
///
/// A contender that fails takes no further turns; the others continue. The results are in the order
/// of the contenders.
pub(super) fn take_turns<P: Player>(
    players: &mut [P],
    blocks: usize,
    amount: impl Fn(usize) -> Amount,
) -> Vec<Result<Block, String>> {
    let mut results = Vec::with_capacity(players.len());
    let mut single = Vec::with_capacity(players.len());
    for player in &mut *players {
        let warm_up = player.block(1);
        single.push(warm_up.iter().flat_map(|block| &block.ms).copied().fold(1e-3, f64::max));
        results.push(warm_up.map(|_| Vec::new()));
    }
    for round in 0..blocks {
        for (index, player) in players.iter_mut().enumerate() {
            let Ok(made) = &mut results[index] else { continue };
            let measured = made.iter().map(|block: &Block| block.ms.len()).sum();
            let steps = amount(index).of_block(measured, single[index], blocks, blocks - round);
            if steps == 0 {
                continue;
            }
            match player.block(steps) {
                Ok(block) => made.push(block),
                Err(reason) => results[index] = Err(reason),
            }
        }
    }
    results.into_iter().map(|result| result.map(joined)).collect()
}

/// Joins the blocks of a contender. Its CPU time is the median over the blocks.
fn joined(blocks: Vec<Block>) -> Block {
    let mut cpu: Vec<f64> = blocks.iter().filter_map(|block| block.cpu_ms).collect();
    cpu.sort_by(f64::total_cmp);
    let cpu_ms = cpu.get(cpu.len() / 2).copied();
    Block { ms: blocks.into_iter().flat_map(|block| block.ms).collect(), cpu_ms }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Records its turns; fails in the turn with this number.
    struct Noted<'a> {
        name: char,
        turns: &'a RefCell<String>,
        fails_at: usize,
        made: usize,
    }

    impl Player for Noted<'_> {
        fn block(&mut self, steps: usize) -> Result<Block, String> {
            self.turns.borrow_mut().push_str(&format!("{}{steps} ", self.name));
            self.made += 1;
            if self.made == self.fails_at {
                return Err(format!("{} is broken", self.name));
            }
            Ok(Block { ms: vec![10.0; steps], cpu_ms: Some(self.made as f64) })
        }
    }

    fn noted(name: char, fails_at: usize, turns: &RefCell<String>) -> Noted<'_> {
        Noted { name, turns, fails_at, made: 0 }
    }

    #[test]
    fn every_contender_makes_its_steps_in_blocks() {
        let turns = RefCell::default();
        let mut contenders = [noted('a', 0, &turns), noted('b', 0, &turns)];
        let amounts = [Amount::Steps(7), Amount::Steps(2)];
        let results = take_turns(&mut contenders, 3, |index| amounts[index]);
        // The first block of each is not counted.
        assert_eq!(*turns.borrow(), "a1 b1 a3 b1 a2 b1 a2 ");
        let counts: Vec<_> = results.iter().flatten().map(|block| block.ms.len()).collect();
        assert_eq!(counts, [7, 2]);
        assert_eq!(results[0].as_ref().map(|block| block.cpu_ms), Ok(Some(3.0)));
    }

    #[test]
    fn blocks_last_as_long_as_asked_and_have_two_steps_at_least() {
        let turns = RefCell::default();
        let mut contenders = [noted('a', 0, &turns)];
        take_turns(&mut contenders, 2, |_| Amount::Milliseconds(100.0));
        take_turns(&mut contenders, 1, |_| Amount::Milliseconds(1.0));
        assert_eq!(*turns.borrow(), "a1 a5 a5 a1 a2 ");
    }

    #[test]
    fn a_contender_that_fails_does_not_stop_the_others() {
        for fails_at in [1, 2] {
            let turns = RefCell::default();
            let mut contenders = [noted('a', fails_at, &turns), noted('b', 0, &turns)];
            let results = take_turns(&mut contenders, 2, |_| Amount::Steps(4));
            assert_eq!(results[0], Err("a is broken".into()));
            assert_eq!(results[1].as_ref().map(|block| block.ms.len()), Ok(4));
            assert_eq!(turns.borrow().matches('a').count(), fails_at);
        }
    }
}
