//! Default settings of a data set and a network.

use super::ScheduleName;
use crate::models::ModelName;
use crate::training::options::{DatasetName, OptimizerName};

/// Settings of a data set and a model, tuned together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Recipe {
    pub(super) batch_size: usize,
    pub(super) epochs: usize,
    pub(super) optimizer: OptimizerName,
    pub(super) lr: f64,
    pub(super) schedule: ScheduleName,
    pub(super) momentum: f64,
    pub(super) max_grad_norm: f64,
}

/// Default of `--epsilon`.
pub(super) const EPSILON: f64 = 3.0;

/// Default of `--delta`.
pub(super) const DELTA: f64 = 1e-5;

/// Default of `--physical-batch-size`.
pub(super) const PHYSICAL_BATCH_SIZE: usize = 256;

/// Returns the default network of a data set, or of its scattering features.
pub(super) fn model(dataset: DatasetName, scattering: bool) -> ModelName {
    match dataset {
        _ if scattering => ModelName::Linear,
        DatasetName::Imdb => ModelName::Transformer,
        _ => ModelName::Cnn,
    }
}

impl Recipe {
    /// Returns the recipe of a data set and a model, with or without differential privacy.
    pub(super) fn of(dataset: DatasetName, model: ModelName, private: bool) -> Self {
        use DatasetName::{Digits, Imdb, Mnist};
        use ModelName::{Cnn, Linear, Lstm, Mlp, Rnn, Transformer};
        match (private, dataset, model) {
            (true, Digits, Cnn) => Self { max_grad_norm: 0.5, ..Self::sgd(512, 10, 1.0) },
            (true, Digits, Linear) => Self { max_grad_norm: 0.1, ..Self::sgd(1024, 20, 4.0) },
            (true, Digits, _) => Self::sgd(512, 20, 0.5),
            (true, Mnist, Cnn) => Self { max_grad_norm: 0.5, ..Self::sgd(1024, 10, 1.0) },
            (true, Imdb, _) => Self::adam(1024, 6, 0.002).linear(),
            (true, _, Linear) => Self { max_grad_norm: 0.1, ..Self::sgd(4096, 40, 8.0) },
            (true, _, Mlp) => Self::sgd(1024, 15, 0.5),
            (true, _, Rnn | Lstm | Transformer) => Self::adam(512, 4, 0.005).linear(),
            (true, _, _) => Self::sgd(1024, 15, 0.5),
            (false, _, Mlp) => Self::adam(64, 5, 0.003),
            (false, _, _) => Self::adam(64, 5, 0.001),
        }
    }

    fn linear(self) -> Self {
        Self { schedule: ScheduleName::Linear, ..self }
    }

    fn sgd(batch_size: usize, epochs: usize, lr: f64) -> Self {
        let (optimizer, schedule) = (OptimizerName::Sgd, ScheduleName::Linear);
        Self { batch_size, epochs, optimizer, lr, schedule, momentum: 0.9, max_grad_norm: 1.0 }
    }

    fn adam(batch_size: usize, epochs: usize, lr: f64) -> Self {
        let (optimizer, schedule) = (OptimizerName::Adam, ScheduleName::Constant);
        Self { batch_size, epochs, optimizer, lr, schedule, momentum: 0.0, max_grad_norm: 1.0 }
    }
}
