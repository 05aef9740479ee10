//! Times of a step within this process, for the experiments.

use burn::optim::AdamConfig;
use burn::tensor::Device;
use burn_dp_examples::data::Batch;
use burn_dp_examples::models::Classifier;
use burn_dp_examples::training::TrainError;

use super::Algorithm;
use super::contender::{Contender, LEARNING_RATE, NOISE_MULTIPLIER};
use super::networks::{Network, Sizes};
use super::report::median_and_minimum;
use super::subject::{Measure, Subject};
use super::turns::{Amount, Block, Player, failed_step, take_turns};

/// Blocks in which the algorithms take turns.
const BLOCKS: usize = 3;

/// Returns the median milliseconds of a step of each algorithm, which take turns on the same batch.
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
) -> Result<Vec<f64>, TrainError> {
    let device = Device::flex().autodiff();
    let subject = Subject { network, sizes, is_stock: false };
    subject.measure(batch, &device, Turns { algorithms, batch, ms })
}

struct Turns<'a> {
    algorithms: &'a [Algorithm],
    batch: usize,
    ms: f64,
}

struct InProcess<M: Classifier> {
    contender: Contender<M>,
    batch: Batch<M::Inputs>,
}

impl<M: Classifier> Player for InProcess<M> {
    fn block(&mut self, steps: usize) -> Result<Block, String> {
        // A step on the CPU ends when it returns.
        let ms = self.contender.timed_steps(&self.batch, steps, || Ok(()));
        Ok(Block { ms: ms.map_err(|error| error.to_string())?, cpu_ms: None })
    }
}

impl Measure for Turns<'_> {
    type Output = Result<Vec<f64>, TrainError>;

    fn measure<M: Classifier>(self, model: M, batch: Batch<M::Inputs>) -> Self::Output {
        let player = |&algorithm: &Algorithm| {
            let (model, inner) = (model.clone(), AdamConfig::new().init());
            let (lr, noise) = (LEARNING_RATE, NOISE_MULTIPLIER);
            let contender = Contender::new(algorithm, model, inner, lr, self.batch, noise, None)?;
            Ok(InProcess { contender, batch: batch.clone() })
        };
        let players: Result<Vec<_>, TrainError> = self.algorithms.iter().map(player).collect();
        let blocks = take_turns(&mut players?, BLOCKS, |_| Amount::Milliseconds(self.ms));
        let time = |block: Result<Block, String>| match block {
            Ok(block) => Ok(median_and_minimum(block.ms).0),
            Err(reason) => Err(failed_step(reason)),
        };
        blocks.into_iter().map(time).collect()
    }
}
