//! One step on given units, in every way from units to a clipped sum.

use std::sync::{Arc, Mutex};

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Linear};
use burn::optim::SgdConfig;
use burn::tensor::{Device, Tensor};
use burn_dp::DpError;
use burn_dp::clipping::{Clipping, CountKind, Thresholds};
use burn_dp::nn::{IntoPrivate, Private};
use burn_dp::optim::FederatedTraining;
use burn_dp::optim::{DpOptimizer, PrivacyPlanConfig, SamplingScheme};
use burn_dp::random::InsecureSeed;
use burn_dp::sampling::{Draw, LogicalBatch, PrivateDataLoaderBuilder, Sampler};
use burn_dp::updates::federated::{FedAvgConfig, FedSgdConfig, UserUpdate};
use burn_dp::updates::{LocalTraining, UnitUpdate};
use burn_dp_accountant::UnitOfPrivacy;

use crate::fixtures::{Net, device, row, tensor_on, values};

/// The examples of one unit.
pub(crate) type Unit = Vec<[f32; 3]>;

/// Small enough noise that a distance is visible; it is the same for neighbors, because its seed is
/// known.
pub(crate) const NOISE: f64 = 1e-4;

/// A way from units to a clipped sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Way {
    /// Units are rows of physical batches of this size.
    Rows(usize),
    /// Like `Rows`, with physical batches filled up with padding.
    Padded(usize),
    /// Like `Rows`, with each loss times a public function of its example, from e^-8 to e^8.
    Weighted(usize),
    /// Like `Rows`, with private dropout between the layers.
    Dropout(usize),
    /// Rows of physical batches of this size, which the library loads.
    Batch(usize),
    /// One backward pass for each unit.
    Each,
    /// The mean gradient of a mini-set.
    BatchClipping,
    /// The change by several steps of an optimizer on a mini-set.
    GeneralBatchClipping,
    /// The change by local epochs of a user.
    FederatedAveraging,
    /// One gradient of a user.
    FederatedSgd,
}

impl Way {
    /// Whether a unit has several examples, or none.
    pub(crate) fn has_groups(self) -> bool {
        matches!(
            self,
            Self::BatchClipping
                | Self::GeneralBatchClipping
                | Self::FederatedAveraging
                | Self::FederatedSgd
        )
    }

    /// Returns a unit whose update is the same at every index, if the update of other units depends
    /// on their index: one example has only one order, and masks do not change zeros.
    pub(crate) fn same_at_every_index(self) -> Option<Unit> {
        match self {
            Self::FederatedAveraging => Some(vec![row(1)]),
            Self::Dropout(_) => Some(vec![[0.0; 3]]),
            _ => None,
        }
    }

    fn user_update(self) -> Option<UserUpdate> {
        let sgd = || SgdConfig::new().init();
        match self {
            Self::FederatedAveraging => {
                Some(FedAvgConfig::new(0.1).with_epochs(2).with_batch_size(2).init(sgd()).unwrap())
            }
            Self::FederatedSgd => Some(FedSgdConfig::new(8).init().unwrap()),
            _ => None,
        }
    }
}

/// The release of one step.
pub(crate) struct Released {
    /// The noisy sum in each parameter.
    pub(crate) parameters: Vec<Vec<f64>>,
    /// The noisy `Σ (b - ½)` of each count.
    pub(crate) count_sums: Vec<f64>,
    pub(crate) draw: Draw,
}

/// A policy that records the counts that it received.
#[derive(Clone, Debug)]
struct Heard {
    policy: Box<dyn Clipping>,
    fractions: Arc<Mutex<Vec<f64>>>,
}

impl Clipping for Heard {
    fn thresholds(&self, step: u64) -> Result<Thresholds, DpError> {
        self.policy.thresholds(step)
    }

    fn describe(&self) -> String {
        self.policy.describe()
    }

    fn update(&mut self, _step: u64, fractions: &[f64]) {
        self.fractions.lock().unwrap().extend(fractions);
    }
}

struct Examples;

impl Batcher<Unit, Tensor<2>> for Examples {
    fn batch(&self, units: Vec<Unit>, device: &Device) -> Tensor<2> {
        tensor_on(&units.concat(), device)
    }
}

/// The draw of the first step.
pub(crate) fn first_draw(scheme: SamplingScheme, seed: u64, units: usize) -> Draw {
    let plan = PrivacyPlanConfig::new(units, units as f64 / 4.0)
        .with_steps(1)
        .with_noise_multiplier(NOISE)
        .with_sampling(scheme)
        .with_insecure_seed(InsecureSeed(seed));
    plan.init().unwrap().sampler().unwrap().draw(0).unwrap()
}

/// One step on the units that are drawn; the expected batch is a quarter of them.
pub(crate) fn release(
    policy: &dyn Clipping,
    way: Way,
    scheme: SamplingScheme,
    seed: u64,
    units: &[Unit],
) -> Released {
    let batch = units.len() as f64 / 4.0;
    let fractions = Arc::new(Mutex::new(Vec::new()));
    let user_update = way.user_update();
    let unit = if user_update.is_some() { UnitOfPrivacy::User } else { UnitOfPrivacy::Example };
    let plan = PrivacyPlanConfig::new(units.len(), batch)
        .with_steps(1)
        .with_noise_multiplier(NOISE)
        .with_sampling(scheme)
        .with_unit(unit)
        .with_clipping(Heard { policy: policy.clone_clipping(), fractions: fractions.clone() })
        .with_insecure_seed(InsecureSeed(seed))
        .init()
        .unwrap();
    let draw = plan.sampler().unwrap().draw(0).unwrap();
    // The test of independence rejects some batches with gradients of very different sizes. A
    // rejected step releases nothing.
    let optim = plan.optimizer(SgdConfig::new().init()).with_independence_check(false);
    let model = Net::new();
    let before = values(&model);
    let after = match user_update {
        Some(update) => {
            let mut training = FederatedTraining::new(optim, update).unwrap();
            let users = InMemDataset::new(units.to_vec());
            let losses = |model: &Net, rows: Unit| Ok(model.losses_of_rows(&rows));
            training.round(1.0, model, &users, losses).unwrap()
        }
        None => step(optim, model, way, units, draw.clone()),
    };
    let moved = before.iter().zip(values(&after)).map(|(before, after)| {
        let moved = before.iter().zip(after);
        moved.map(|(before, after)| f64::from(before - after) * batch).collect::<Vec<f64>>()
    });
    let parameters = moved.collect();
    let fractions = fractions.lock().unwrap();
    let thresholds = policy.thresholds(0).unwrap();
    // An absent unit has no slack, so that slack has no center.
    let centers = thresholds.counts().iter().map(|count| match count.kind {
        CountKind::Slack => 0.0,
        _ => 0.5,
    });
    let centered = fractions.iter().zip(centers);
    let count_sums = centered.map(|(fraction, center)| (fraction - center) * batch).collect();
    Released { parameters, count_sums, draw }
}

/// The network with masks between its layers; its parameters have the same paths.
#[derive(Module, Debug)]
struct WithDropout {
    first: Private<Linear>,
    dropout: Private<Dropout>,
    second: Private<Linear>,
}

impl WithDropout {
    fn losses(&self, x: Tensor<2>) -> Tensor<1> {
        let target = x.clone().sum_dim(1);
        let hidden = self.dropout.forward(self.first.forward(x).tanh());
        (self.second.forward(hidden) - target).powi_scalar(2).reshape([-1])
    }
}

/// The units of the first step, loaded.
fn loaded(optim: &DpOptimizer, units: &[Unit], padded: bool) -> LogicalBatch<Tensor<2>> {
    let loader = PrivateDataLoaderBuilder::new(Examples).with_device(device());
    let loader = if padded { loader.with_padding() } else { loader };
    let sampler = optim.plan().sampler().unwrap();
    let dataset = InMemDataset::new(units.to_vec());
    loader.build(dataset, sampler, 1).unwrap().next().unwrap().unwrap()
}

fn step(mut optim: DpOptimizer, model: Net, way: Way, units: &[Unit], draw: Draw) -> Net {
    let gradient =
        |copy: Net, unit: usize| UnitUpdate::gradient(&copy, copy.losses_of_rows(&units[unit]));
    match way {
        Way::Rows(physical) | Way::Padded(physical) | Way::Weighted(physical) => {
            let batch = loaded(&optim, units, way == Way::Padded(physical));
            for physical_batch in batch.physical_batches(physical).unwrap() {
                let losses = |model: &Net, x: Tensor<2>| {
                    let losses = model.losses(x.clone());
                    match way {
                        Way::Weighted(_) => losses * (x.sum_dim(1).sin() * 8.0).exp().reshape([-1]),
                        _ => losses,
                    }
                };
                optim.backward(&model, physical_batch.unwrap(), losses).unwrap();
            }
        }
        Way::Dropout(physical) => {
            let dropout = DropoutConfig::new(0.5).init().private();
            let model = WithDropout { first: model.first, dropout, second: model.second };
            for physical_batch in loaded(&optim, units, false).physical_batches(physical).unwrap() {
                optim.backward(&model, physical_batch.unwrap(), WithDropout::losses).unwrap();
            }
            let WithDropout { first, second, .. } = optim.step(1.0, model, draw).unwrap();
            return Net { first, second };
        }
        Way::Batch(physical) => {
            let batch = loaded(&optim, units, false);
            optim.backward_batch(&model, &batch, physical, Net::losses).unwrap();
        }
        Way::GeneralBatchClipping => {
            let training = LocalTraining::new(SgdConfig::new().init(), 0.1).unwrap();
            let change =
                |copy: Net, unit: usize| {
                    training.run(copy, units[unit].chunks(1), |copy, rows| {
                        Ok(copy.losses_of_rows(rows))
                    })
                };
            optim.unit_updates(&model, &draw, change).unwrap();
        }
        Way::Each => {
            let loss = |copy: &Net, unit: usize| copy.losses_of_rows(&units[unit]);
            optim.backward_each(&model, &draw, loss).unwrap();
        }
        _ => optim.unit_updates(&model, &draw, gradient).unwrap(),
    }
    optim.step(1.0, model, draw).unwrap()
}
