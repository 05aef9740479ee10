use std::fmt;

use burn::module::Module;
use burn::optim::ModuleOptimizer;
use burn::tensor::Tensor;

use crate::DpError;
use crate::error::at_least_one;
use crate::random::{Domain, InsecureSeed, Stream, permutation};
use crate::updates::{LocalTraining, UnitUpdate, private_copy};

/// Configuration of federated averaging: a user trains for some epochs on batches of their
/// examples, and contributes the total change of the model.
///
/// # References
///
/// McMahan, Ramage, Talwar, Zhang, Learning differentially private recurrent language models, 2018,
/// algorithm 1 (`UserUpdateFedAvg`).
#[derive(Clone, Debug)]
pub struct FedAvgConfig {
    lr: f64,
    epochs: usize,
    batch_size: usize,
    max_examples: usize,
}

impl FedAvgConfig {
    /// Creates a configuration with the local learning rate `lr`: one epoch, batches of 16, and at
    /// most 256 examples of a user per round.
    pub fn new(lr: f64) -> Self {
        Self { lr, epochs: 1, batch_size: 16, max_examples: 256 }
    }

    /// Sets the number of passes over the examples of a user in a round. Default: 1.
    pub fn with_epochs(mut self, epochs: usize) -> Self {
        self.epochs = epochs;
        self
    }

    /// Sets the size of a local batch. The last batch of an epoch may be smaller. Default: 16.
    pub fn with_batch_size(mut self, batch_size: usize) -> Self {
        self.batch_size = batch_size;
        self
    }

    /// Sets the maximum number of examples of a user in a round, drawn again in each round.
    /// Default: 256.
    ///
    /// It bounds the time of a round. Clipping bounds the sensitivity.
    pub fn with_max_examples(mut self, max_examples: usize) -> Self {
        self.max_examples = max_examples;
        self
    }

    /// Initializes the update.
    ///
    /// # Arguments
    ///
    /// - `optimizer`: the local optimizer; every user starts with a fresh one
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the learning rate is not positive and finite, or if
    /// another number is zero.
    pub fn init(self, optimizer: ModuleOptimizer) -> Result<UserUpdate, DpError> {
        let training = LocalTraining::new(optimizer, self.lr)?;
        at_least_one("epochs", self.epochs)?;
        at_least_one("batch_size", self.batch_size)?;
        at_least_one("max_examples", self.max_examples)?;
        let Self { epochs, batch_size, max_examples, .. } = self;
        Ok(UserUpdate {
            algorithm: Algorithm::FedAvg { training, epochs, batch_size },
            max_examples,
        })
    }
}

/// Configuration of federated SGD: a user contributes one gradient over some of their examples.
///
/// # References
///
/// McMahan, Ramage, Talwar, Zhang, Learning differentially private recurrent language models, 2018,
/// algorithm 1 (`UserUpdateFedSGD`).
#[derive(Clone, Debug)]
pub struct FedSgdConfig {
    max_examples: usize,
}

impl FedSgdConfig {
    /// Creates a configuration: the gradient of the mean loss over at most `max_examples` examples,
    /// drawn again in each round.
    pub fn new(max_examples: usize) -> Self {
        Self { max_examples }
    }

    /// Initializes the update.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `max_examples` is zero.
    pub fn init(self) -> Result<UserUpdate, DpError> {
        at_least_one("max_examples", self.max_examples)?;
        Ok(UserUpdate { algorithm: Algorithm::FedSgd, max_examples: self.max_examples })
    }
}

/// The computation of a user in a round; created by [`FedAvgConfig`] and [`FedSgdConfig`].
#[derive(Clone, Debug)]
pub struct UserUpdate {
    algorithm: Algorithm,
    max_examples: usize,
}

#[derive(Clone, Debug)]
enum Algorithm {
    FedAvg { training: LocalTraining, epochs: usize, batch_size: usize },
    FedSgd,
}

impl UserUpdate {
    /// Returns the update of a public user, computed as in a round but not released; see
    /// [`public_update_norms`](crate::updates::public_update_norms).
    ///
    /// # Privacy
    ///
    /// `examples` must be public.
    ///
    /// # Errors
    ///
    /// Returns the errors of `losses`, and [`DpError::NotPerExample`] if the losses do not depend
    /// on a trained parameter.
    pub fn of_public_user<M: Module, I: Clone>(
        &self,
        model: &M,
        examples: Vec<I>,
        losses: impl FnMut(&M, Vec<I>) -> Result<Tensor<1>, DpError>,
    ) -> Result<UnitUpdate, DpError> {
        let order = Stream::new(&InsecureSeed(0).into(), Domain::Shuffling, 0, 0);
        self.compute(private_copy(model), examples, order, losses)
    }

    /// Returns the update of a user with these examples, which is zero if there are none.
    ///
    /// # Arguments
    ///
    /// - `order`: chooses and orders the examples; as secret as the examples
    pub(crate) fn compute<M: Module, I: Clone>(
        &self,
        model: M,
        mut examples: Vec<I>,
        order: Stream,
        mut losses: impl FnMut(&M, Vec<I>) -> Result<Tensor<1>, DpError>,
    ) -> Result<UnitUpdate, DpError> {
        let mut words = order.into_words();
        // A uniform subset first, so that all examples of a user are used in the long run.
        let chosen = permutation(&mut words, examples.len());
        examples = chosen.iter().take(self.max_examples).map(|&i| examples[i].clone()).collect();
        if examples.is_empty() {
            return Ok(UnitUpdate::zero());
        }
        match &self.algorithm {
            Algorithm::FedSgd => {
                let losses = losses(&model, examples)?;
                UnitUpdate::gradient(&model, losses)
            }
            Algorithm::FedAvg { training, epochs, batch_size } => {
                let orders: Vec<Vec<usize>> =
                    (0..*epochs).map(|_| permutation(&mut words, examples.len())).collect();
                let batches = orders
                    .iter()
                    .flat_map(|order| order.chunks(*batch_size))
                    .map(|batch| batch.iter().map(|&i| examples[i].clone()).collect::<Vec<_>>());
                training.run(model, batches, losses)
            }
        }
    }
}

impl fmt::Display for UserUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let examples = self.max_examples;
        match &self.algorithm {
            Algorithm::FedAvg { training, epochs, batch_size } => write!(
                f,
                "federated averaging: {epochs} local epochs with batches of {batch_size} and \
                 learning rate {}, at most {examples} examples of a user in a round",
                training.lr()
            ),
            Algorithm::FedSgd => write!(
                f,
                "federated SGD: one gradient over at most {examples} examples of a user in a round"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use burn::nn::{Linear, LinearConfig};
    use burn::optim::SgdConfig;
    use burn::tensor::Device;

    /// Returns the batches that a user with these examples trains on.
    fn batches(update: &UserUpdate, examples: usize, user: usize) -> Vec<Vec<usize>> {
        let device = Device::flex().autodiff();
        let model: Linear = LinearConfig::new(1, 1).init(&device);
        let mut seen = Vec::new();
        let order = Stream::new(&InsecureSeed(1).into(), Domain::Shuffling, 0, user as u64);
        let update = update.compute(model, (0..examples).collect(), order, |model, batch| {
            let x = Tensor::<2>::ones([batch.len(), 1], &device);
            seen.push(batch);
            Ok(model.forward(x).flatten(0, 1))
        });
        drop(update.unwrap());
        seen
    }

    fn fed_avg(epochs: usize, batch_size: usize, max_examples: usize) -> UserUpdate {
        FedAvgConfig::new(0.1)
            .with_epochs(epochs)
            .with_batch_size(batch_size)
            .with_max_examples(max_examples)
            .init(SgdConfig::new().init())
            .unwrap()
    }

    #[test]
    fn every_epoch_shuffles_the_chosen_examples() {
        let seen = batches(&fed_avg(3, 4, 100), 30, 7);
        assert_eq!(
            seen.iter().map(Vec::len).collect::<Vec<_>>(),
            [[4; 7].as_slice(), &[2]].concat().repeat(3)
        );
        let epochs: Vec<Vec<usize>> = seen.chunks(8).map(<[_]>::concat).collect();
        for epoch in &epochs {
            let mut sorted = epoch.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..30).collect::<Vec<_>>());
        }
        assert_ne!(epochs[0], epochs[1]);
    }

    #[test]
    fn max_examples_selects_one_subset_for_each_user() {
        let seen = batches(&fed_avg(2, 5, 5), 1000, 7);
        let sorted = |batch: &Vec<usize>| {
            let mut batch = batch.clone();
            batch.sort_unstable();
            batch
        };
        assert_eq!(seen.len(), 2);
        assert_eq!(sorted(&seen[0]), sorted(&seen[1]));
        assert_ne!(sorted(&seen[0]), sorted(&batches(&fed_avg(2, 5, 5), 1000, 8)[0]));
        let sgd = FedSgdConfig::new(5).init().unwrap();
        assert_eq!(sorted(&batches(&sgd, 1000, 7)[0]), sorted(&seen[0]));
    }

    #[test]
    fn user_without_examples_computes_nothing() {
        assert!(batches(&fed_avg(2, 5, 5), 0, 7).is_empty());
        assert!(batches(&FedSgdConfig::new(5).init().unwrap(), 0, 7).is_empty());
    }

    #[test]
    fn invalid_numbers_are_refused_by_name() {
        let sgd = || SgdConfig::new().init();
        for (config, name) in [
            (FedAvgConfig::new(0.0), "lr must be positive"),
            (FedAvgConfig::new(0.1).with_epochs(0), "epochs"),
            (FedAvgConfig::new(0.1).with_batch_size(0), "batch_size"),
            (FedAvgConfig::new(0.1).with_max_examples(0), "max_examples"),
        ] {
            let error = config.init(sgd()).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        assert!(FedSgdConfig::new(0).init().is_err());
    }
}
