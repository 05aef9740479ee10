//! Times of a step within this process, for the experiments.

use burn::optim::AdamConfig;
use burn::tensor::Device;
use burn_dp_examples::data::Batch;
use burn_dp_examples::models::Classifier;
use burn_dp_examples::training::TrainError;

use super::Algorithm;
use super::contender::{Contender, LEARNING_RATE, NOISE_MULTIPLIER};
use super::networks::{Network, Sizes};
use super::report::{median_and_minimum, quantile};
use super::subject::Subject;
use super::turns::{Amount, Block, Player, failed_step, take_turns};
use super::worker::synchronize;

/// Number of blocks in which the algorithms take turns.
const BLOCKS: usize = 3;

/// Returns the milliseconds of a step of each algorithm, which take turns on the same batch: lower
/// quartile, median and upper quartile of the steps.
///
/// # Arguments
///
/// - `ms`: about how many milliseconds each algorithm runs
///
/// # Errors
///
/// Returns the error of a step that fails.
pub(crate) fn step_times(
    network: Network,
    sizes: Sizes,
    batch: usize,
    algorithms: &[Algorithm],
    ms: f64,
    device: &Device,
) -> Result<Vec<[f64; 3]>, TrainError> {
    let device = device.clone().autodiff();
    let subject = Subject { network, sizes, is_stock: false };
    let (model, items) = subject.init(batch, &device);
    let player = |&algorithm: &Algorithm| {
        let (model, inner) = (model.clone(), AdamConfig::new().init());
        let (lr, noise) = (LEARNING_RATE, NOISE_MULTIPLIER);
        let contender = Contender::new(algorithm, model, inner, lr, batch, noise, None)?;
        Ok(InProcess { contender, batch: items.clone(), device: &device })
    };
    let players: Result<Vec<_>, TrainError> = algorithms.iter().map(player).collect();
    let made = take_turns(&mut players?, BLOCKS, |_| Amount::Milliseconds(ms));
    made.into_iter().map(|block| Ok(quartiles(block.map_err(failed_step)?.ms))).collect()
}

/// Returns lower quartile, median and upper quartile; NaN without values.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [0.25, 0.5, 0.75].map(|share| quantile(&values, share))
}

/// Lets the contenders take turns in this number of blocks. Returns median and minimum of the
/// milliseconds of a step of each.
///
/// # Errors
///
/// Returns the error of a step that fails.
pub(super) fn medians_and_minima<P: Player>(
    players: &mut [P],
    blocks: usize,
    ms: f64,
) -> Result<Vec<(f64, f64)>, TrainError> {
    let made = take_turns(players, blocks, |_| Amount::Milliseconds(ms));
    let times = |block: Result<Block, String>| match block {
        Ok(block) => Ok(median_and_minimum(block.ms)),
        Err(reason) => Err(failed_step(reason)),
    };
    made.into_iter().map(times).collect()
}

/// A contender in this process.
pub(super) struct InProcess<'a, M: Classifier> {
    pub(super) contender: Contender<M>,
    pub(super) batch: Batch<M::Inputs>,
    pub(super) device: &'a Device,
}

impl<M: Classifier> Player for InProcess<'_, M> {
    fn block(&mut self, steps: usize) -> Result<Block, String> {
        let synchronize = || synchronize(self.device);
        let ms = self.contender.timed_steps(&self.batch, steps, synchronize);
        Ok(Block { ms: ms.map_err(|error| error.to_string())?, cpu_ms: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_values_are_between_the_quartiles() {
        assert_eq!(quartiles((0..9).rev().map(f64::from).collect()), [2.0, 4.0, 6.0]);
        assert_eq!(quartiles(vec![5.0, 1.0]), [2.0, 3.0, 4.0]);
        assert_eq!(quartiles(vec![5.0]), [5.0; 3]);
        assert!(quartiles(vec![])[1].is_nan());
    }
}
