//! The binary cross-entropy of each example.

use burn::config::Config;
use burn::module::Module;
use burn::tensor::activation::log_sigmoid;
use burn::tensor::{Int, Tensor, TensorData};

use super::ExampleReduction;
use super::cross_entropy::checked_smoothing;
use super::reduction::assert_same_shape;

/// Configuration of [`BinaryCrossEntropyLoss`].
#[derive(Config, Debug)]
pub struct BinaryCrossEntropyLossConfig {
    /// One positive factor for each label of the last axis or, if each example has one label, two
    /// factors for the targets 0 and 1. Nothing is divided by a sum of factors.
    pub weights: Option<Vec<f32>>,
    /// Label smoothing α in [0, 1]. As in Burn, a target t becomes (1 - α) t + α / n, where n is
    /// the length of the last axis, or 2 if each example has one label.
    pub smoothing: Option<f32>,
    /// The reduction of the labels of one example to one value.
    #[config(default = "ExampleReduction::Mean")]
    pub reduction: ExampleReduction,
}

/// The cross-entropy between scores (logits) and targets 0 or 1, one value for each example.
///
/// For a logit x and a target t it is `(1 - t) x - log sigmoid(x)`, which is finite for every
/// finite logit. With the mean as the reduction, the mean over the batch is Burn's
/// `BinaryCrossEntropyLoss` with logits.
#[derive(Module, Debug)]
pub struct BinaryCrossEntropyLoss {
    #[module(skip)]
    weights: Option<Vec<f32>>,
    smoothing: f32,
    #[module(skip)]
    reduction: ExampleReduction,
}

impl BinaryCrossEntropyLossConfig {
    /// Initializes the loss, which has no tensors and works on every device.
    ///
    /// # Panics
    ///
    /// Panics if the smoothing is not in [0, 1] or a factor is not positive and finite.
    pub fn init(&self) -> BinaryCrossEntropyLoss {
        let smoothing = checked_smoothing(self.smoothing, self.weights.as_deref());
        BinaryCrossEntropyLoss {
            weights: self.weights.clone(),
            smoothing,
            reduction: self.reduction,
        }
    }
}

impl BinaryCrossEntropyLoss {
    /// Computes the loss of each example.
    ///
    /// # Shapes
    ///
    /// - logits: `[batch_size]` or `[batch_size, …, labels]`
    /// - targets: the shape of the logits
    /// - output: `[batch_size]`, NaN for an example with a target that is neither 0 nor 1
    ///
    /// # Panics
    ///
    /// Panics if the shapes differ or there is not one factor for each label (2 for
    /// `[batch_size]`).
    pub fn forward<const D: usize>(&self, logits: Tensor<D>, targets: Tensor<D, Int>) -> Tensor<1> {
        assert_same_shape(logits.dims(), targets.dims());
        let dims = logits.dims();
        let labels = if D == 1 { 2 } else { dims[D - 1] };
        if dims[0] == 0 {
            return self.reduction.reduce(logits);
        }
        // An invalid target must not index beyond the factors, and only affects its own example.
        let unknown = targets.clone().lower_scalar(0).bool_or(targets.clone().greater_scalar(1));
        let targets = targets.mask_fill(unknown.clone(), 0);
        let weights = self.weights.as_ref().map(|weights| {
            assert!(
                weights.len() == labels,
                "there must be one weight for each of {labels} labels, got {}",
                weights.len()
            );
            let data = TensorData::new(weights.clone(), [labels]);
            let weights = Tensor::<1>::from_data(data, (&logits.device(), logits.dtype()));
            if D == 1 {
                weights.select(0, targets.clone().reshape([dims[0]])).reshape(dims)
            } else {
                weights.expand(dims)
            }
        });
        let alpha = f64::from(self.smoothing);
        let targets = targets.float().cast(logits.dtype()) * (1.0 - alpha) + alpha / labels as f64;
        let values = (targets.neg() + 1.0) * logits.clone() - log_sigmoid(logits);
        let values = match weights {
            Some(weights) => values * weights,
            None => values,
        };
        self.reduction.reduce(values.mask_fill(unknown, f32::NAN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::losses::oracles::{
        assert_close, check_confinement, check_gradients, to_vec, values,
    };
    use crate::test_devices::cpu_devices;
    use burn::nn::loss::BinaryCrossEntropyLossConfig as BurnConfig;
    use burn::tensor::Device;

    fn config() -> BinaryCrossEntropyLossConfig {
        BinaryCrossEntropyLossConfig::new()
    }

    /// Returns configurations without options, with each option and with all options.
    fn configs(labels: usize) -> Vec<BinaryCrossEntropyLossConfig> {
        let weights: Vec<f32> = (0..labels).map(|i| 0.5 + i as f32).collect();
        vec![
            config(),
            config().with_smoothing(Some(0.1)),
            config().with_weights(Some(weights.clone())),
            config().with_smoothing(Some(0.3)).with_weights(Some(weights)),
        ]
    }

    fn targets(device: &Device) -> Tensor<2, Int> {
        Tensor::from_ints([[0, 1, 1], [1, 1, 0], [0, 0, 0]], device)
    }

    #[test]
    fn invalid_target_makes_only_its_own_example_nan() {
        for device in cpu_devices() {
            for weights in [None, Some(vec![0.5, 2.0])] {
                let losses = |targets: [i64; 3]| {
                    let logits = Tensor::<1>::from_floats([0.3, -1.2, 2.0], &device);
                    let targets = Tensor::<1, Int>::from_ints(targets, &device);
                    to_vec(&config().with_weights(weights.clone()).init().forward(logits, targets))
                };
                let good = losses([1, 0, 0]);
                for bad in [2, -1, 1 << 20] {
                    let found = losses([1, bad, 0]);
                    assert!(found[1].is_nan(), "{bad}: {found:?}");
                    assert_eq!((found[0], found[2]), (good[0], good[2]));
                }
            }
        }
    }

    #[test]
    fn loss_equals_the_closed_form() {
        for device in cpu_devices() {
            let logits = Tensor::<1>::from_floats([0.3, -1.2, 2.0], &device);
            let targets = Tensor::<1, Int>::from_ints([1, 1, 0], &device);
            let losses = config().init().forward(logits, targets);
            let minus_log = |x: f64| (1.0 + (-x).exp()).ln();
            assert_close(
                &to_vec(&losses),
                &[minus_log(0.3), minus_log(-1.2), minus_log(-2.0)],
                1e-6,
            );
        }
    }

    #[test]
    fn mean_over_the_batch_equals_burn() {
        for device in cpu_devices() {
            for ours in configs(3) {
                let burn = BurnConfig::new()
                    .with_logits(true)
                    .with_smoothing(ours.smoothing)
                    .with_weights(ours.weights.clone())
                    .init(&device);
                let logits = values([3, 3], &device).cast(burn::tensor::DType::F32);
                let burn = burn.forward(logits.clone(), targets(&device));
                let ours = ours.init().forward(logits, targets(&device)).mean();
                assert_close(&to_vec(&ours), &to_vec(&burn), 1e-5);
            }
            for ours in configs(2) {
                let burn = BurnConfig::new()
                    .with_logits(true)
                    .with_smoothing(ours.smoothing)
                    .with_weights(ours.weights.clone())
                    .init(&device);
                let logits = values([4], &device).cast(burn::tensor::DType::F32);
                let targets = Tensor::<1, Int>::from_ints([1, 0, 0, 1], &device);
                let burn = burn.forward(logits.clone(), targets.clone());
                let ours = ours.init().forward(logits, targets).mean();
                assert_close(&to_vec(&ours), &to_vec(&burn), 1e-5);
            }
        }
    }

    #[test]
    fn gradients_equal_finite_differences_of_their_own_example() {
        for device in cpu_devices() {
            for config in configs(3) {
                for reduction in [ExampleReduction::Mean, ExampleReduction::Sum] {
                    let loss = config.clone().with_reduction(reduction).init();
                    check_gradients(values([3, 3], &device), |logits| {
                        let targets = targets(&logits.device());
                        loss.forward(logits, targets)
                    });
                }
            }
        }
    }

    #[test]
    fn extreme_examples_do_not_change_other_examples() {
        for device in cpu_devices() {
            for extreme in [1e30, f64::MAX, f64::INFINITY, f64::NAN] {
                check_confinement(values([3, 3], &device), extreme, |logits| {
                    let targets = targets(&logits.device());
                    config().init().forward(logits, targets)
                });
            }
        }
    }

    #[test]
    fn logits_of_1e30_have_finite_losses_and_gradients() {
        for device in cpu_devices() {
            let device = device.autodiff();
            let logits =
                Tensor::<1>::from_floats([1e30, -1e30, 1e30, -1e30], &device).require_grad();
            let targets = Tensor::<1, Int>::from_ints([1, 1, 0, 0], &device);
            let losses = config().init().forward(logits.clone(), targets);
            assert_close(&to_vec(&losses), &[0.0, 1e30, 1e30, 0.0], 1e-6);
            let gradient = logits.grad(&losses.sum().backward()).map(|g| to_vec(&g));
            let gradient = gradient.expect("the loss depends on the logits");
            assert_close(&gradient, &[0.0, -1.0, 1.0, 0.0], 1e-6);
        }
    }

    #[test]
    fn empty_and_single_batches_have_one_loss_for_each_example() {
        for device in cpu_devices() {
            for batch_size in [0, 1] {
                for config in configs(3) {
                    let logits = Tensor::<2>::zeros([batch_size, 3], &device);
                    let targets = Tensor::<2, Int>::zeros([batch_size, 3], &device);
                    assert_eq!(config.init().forward(logits, targets).dims(), [batch_size]);
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "[3, 3], got [1, 3]")]
    fn targets_that_broadcast_over_the_batch_are_refused() {
        let device = &cpu_devices()[0];
        let targets = Tensor::<2, Int>::zeros([1, 3], device);
        let _ = config().init().forward(values([3, 3], device), targets);
    }

    #[test]
    #[should_panic(expected = "there must be one weight for each of 3 labels, got 2")]
    fn wrong_number_of_weights_is_refused() {
        let device = &cpu_devices()[0];
        let loss = config().with_weights(Some(vec![1.0, 2.0])).init();
        let _ = loss.forward(values([3, 3], device), targets(device));
    }
}
