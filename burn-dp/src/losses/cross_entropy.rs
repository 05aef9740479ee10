//! The cross-entropy of each example.

use burn::config::Config;
use burn::module::Module;
use burn::tensor::activation::log_softmax;
use burn::tensor::{Bool, Int, Tensor, TensorData, assert_shape};

use super::ExampleReduction;
use super::reduction::no_losses;

/// Configuration of [`CrossEntropyLoss`].
#[derive(Config, Debug)]
pub struct CrossEntropyLossConfig {
    /// Targets to ignore (`ignore_index`), for example the index of a padding token, or -100. They
    /// need not be classes. If texts also contain the padding token, use a mask for the padding
    /// instead: [`forward_masked_sequence`](CrossEntropyLoss::forward_masked_sequence).
    pub pad_tokens: Option<Vec<i64>>,
    /// One positive factor for each class. The value at a position is multiplied by the factor of
    /// its target. Nothing is divided by a sum of factors.
    pub weights: Option<Vec<f32>>,
    /// Label smoothing α in [0, 1]: the target distribution is 1 - α on the target plus α / classes
    /// on every class.
    pub smoothing: Option<f32>,
    /// The reduction of the positions of one example to one value. The mean is over the positions
    /// that are not ignored.
    #[config(default = "ExampleReduction::Mean")]
    pub reduction: ExampleReduction,
}

/// The cross-entropy between class scores (logits) and class indices, one value for each example.
///
/// For logits z, target y, class factors w and smoothing α the value at a position is
///
/// ```text
/// -(1 - α) w_y log softmax(z)_y - (α / classes) Σ_c w_c log softmax(z)_c
/// ```
///
/// | Edge case | Value |
/// |---|---|
/// | all positions of an example ignored | 0, with zero gradient |
/// | logits up to ±1e30 | finite |
/// | logits further apart than the largest number of their type | infinite |
/// | a logit that is infinite or NaN | NaN, in that example only |
/// | a target that is neither a class nor ignored | NaN, in that example only |
///
/// Without class factors and ignored targets, the mean over the batch is Burn's `CrossEntropyLoss`.
/// With them, Burn divides by a sum over the batch, which cannot be private; see the
/// [module](super#privacy).
///
/// # References
///
/// Rethinking the Inception Architecture for Computer Vision, Szegedy et al. 2016, section 7 (label
/// smoothing).
#[derive(Module, Debug)]
pub struct CrossEntropyLoss {
    #[module(skip)]
    pad_tokens: Vec<i64>,
    #[module(skip)]
    weights: Option<Vec<f32>>,
    smoothing: f32,
    #[module(skip)]
    reduction: ExampleReduction,
}

impl CrossEntropyLossConfig {
    /// Initializes the loss, which has no tensors and works on every device.
    ///
    /// # Panics
    ///
    /// Panics if the smoothing is not in [0, 1] or a class factor is not positive and finite.
    pub fn init(&self) -> CrossEntropyLoss {
        let smoothing = checked_smoothing(self.smoothing, self.weights.as_deref());
        CrossEntropyLoss {
            pad_tokens: self.pad_tokens.clone().unwrap_or_default(),
            weights: self.weights.clone(),
            smoothing,
            reduction: self.reduction,
        }
    }
}

/// Returns the smoothing, 0 by default.
///
/// # Panics
///
/// Panics if it is not in [0, 1] or a weight is not positive and finite.
pub(super) fn checked_smoothing(smoothing: Option<f32>, weights: Option<&[f32]>) -> f32 {
    let smoothing = smoothing.unwrap_or(0.0);
    assert!((0.0..=1.0).contains(&smoothing), "smoothing must be in [0, 1], got {smoothing}");
    for weight in weights.into_iter().flatten() {
        let valid = *weight > 0.0 && weight.is_finite();
        assert!(valid, "weights must be positive and finite, got {weight}");
    }
    smoothing
}

impl CrossEntropyLoss {
    /// Computes the loss of each example that has one target.
    ///
    /// # Shapes
    ///
    /// - logits: `[batch_size, classes]`
    /// - targets: `[batch_size]`
    /// - output: `[batch_size]`
    ///
    /// # Panics
    ///
    /// Panics if the shapes do not match or there is not one class factor for each class.
    pub fn forward(&self, logits: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
        let [batch_size, classes] = logits.dims();
        assert_shape!(targets, [batch_size]);
        let targets = targets.reshape([batch_size, 1]);
        self.positions(logits.reshape([batch_size, 1, classes]), targets, None)
    }

    /// Computes the loss of each sequence with one target for each position.
    ///
    /// # Shapes
    ///
    /// - logits: `[batch_size, positions, classes]`
    /// - targets: `[batch_size, positions]`
    /// - output: `[batch_size]`
    ///
    /// # Panics
    ///
    /// Panics if the shapes do not match or there is not one class factor for each class.
    pub fn forward_sequence(&self, logits: Tensor<3>, targets: Tensor<2, Int>) -> Tensor<1> {
        let [batch_size, positions, _] = logits.dims();
        assert_shape!(targets, [batch_size, positions]);
        self.positions(logits, targets, None)
    }

    /// Computes the loss of each sequence without the positions that are masked.
    ///
    /// Positions whose target is ignored are left out as well. The mean is over the remaining
    /// positions, so the loss of a sequence does not depend on the padding of its batch.
    ///
    /// # Shapes
    ///
    /// - logits: `[batch_size, positions, classes]`
    /// - targets: `[batch_size, positions]`
    /// - mask_pad: `[batch_size, positions]`, `true` for padding, as in attention
    /// - output: `[batch_size]`
    ///
    /// # Panics
    ///
    /// Panics if the shapes do not match or there is not one class factor for each class.
    pub fn forward_masked_sequence(
        &self,
        logits: Tensor<3>,
        targets: Tensor<2, Int>,
        mask_pad: Tensor<2, Bool>,
    ) -> Tensor<1> {
        let [batch_size, positions, _] = logits.dims();
        assert_shape!(targets, [batch_size, positions]);
        assert_shape!(mask_pad, [batch_size, positions]);
        self.positions(logits, targets, Some(mask_pad))
    }

    /// Computes the loss of each example with the classes on axis 1, the layout of convolutions.
    ///
    /// # Shapes
    ///
    /// - logits: `[batch_size, classes, …]`
    /// - targets: `[batch_size, …]`, with one axis less
    /// - output: `[batch_size]`
    ///
    /// # Panics
    ///
    /// Panics if the shapes do not match or there is not one class factor for each class.
    pub fn forward_channels_first<const D: usize, const T: usize>(
        &self,
        logits: Tensor<D>,
        targets: Tensor<T, Int>,
    ) -> Tensor<1> {
        let (dims, target_dims) = (logits.dims(), targets.dims());
        assert!(
            D == T + 1 && dims[0] == target_dims[0] && dims[2..] == target_dims[1..],
            "targets must have the shape {dims:?} of the logits without axis 1, got \
             {target_dims:?}"
        );
        let (batch_size, classes) = (dims[0], dims[1]);
        let positions = dims[2..].iter().product();
        self.positions(
            logits.reshape([batch_size, classes, positions]).swap_dims(1, 2),
            targets.reshape([batch_size, positions]),
            None,
        )
    }

    /// `[batch_size, positions, classes]` and `[batch_size, positions]` to `[batch_size]`.
    fn positions(
        &self,
        logits: Tensor<3>,
        targets: Tensor<2, Int>,
        mask_pad: Option<Tensor<2, Bool>>,
    ) -> Tensor<1> {
        let [batch_size, positions, classes] = logits.dims();
        assert!(
            classes > 0 && positions > 0,
            "an example must have at least one class and one position, got {:?}",
            logits.dims()
        );
        if batch_size == 0 {
            return no_losses(&logits);
        }
        let ignored = self.ignored(&targets, mask_pad);
        let targets = match &ignored {
            Some(ignored) => targets.mask_fill(ignored.clone(), 0),
            None => targets,
        };
        // An invalid class must not index the scores of another example.
        let known = targets.clone().clamp(0, classes as i64 - 1);
        let unknown = targets.not_equal(known.clone());
        let mut values = self.at_each_position(log_softmax(logits, 2), known);
        values = values.mask_fill(unknown, f32::NAN);
        if let Some(ignored) = &ignored {
            values = values.mask_fill(ignored.clone(), 0.0);
        }
        match (self.reduction, ignored) {
            (ExampleReduction::Mean, Some(ignored)) => {
                let count = ignored.bool_not().float().cast(values.dtype()).sum_dim(1);
                (values.sum_dim(1) / count.clamp_min(1.0)).reshape([batch_size])
            }
            (reduction, _) => reduction.reduce(values),
        }
    }

    /// `[batch_size, positions, classes]` and `[batch_size, positions]` to
    /// `[batch_size, positions]`.
    fn at_each_position(&self, log_probabilities: Tensor<3>, targets: Tensor<2, Int>) -> Tensor<2> {
        let [batch_size, positions, classes] = log_probabilities.dims();
        let targets = targets.reshape([batch_size, positions, 1]);
        let weighted = match &self.weights {
            Some(weights) => {
                assert!(
                    weights.len() == classes,
                    "there must be one weight for each of {classes} classes, got {}",
                    weights.len()
                );
                let weights = TensorData::new(weights.clone(), [1, 1, classes]);
                let options = (&log_probabilities.device(), log_probabilities.dtype());
                log_probabilities * Tensor::from_data(weights, options)
            }
            None => log_probabilities,
        };
        let alpha = self.smoothing;
        let mut values = weighted.clone().gather(2, targets);
        if alpha > 0.0 {
            values = values * (1.0 - alpha) + weighted.mean_dim(2) * alpha;
        }
        values.neg().reshape([batch_size, positions])
    }

    /// Returns where the target is ignored, or `None` if the loss ignores no target.
    fn ignored(
        &self,
        targets: &Tensor<2, Int>,
        mask_pad: Option<Tensor<2, Bool>>,
    ) -> Option<Tensor<2, Bool>> {
        let masks = self.pad_tokens.iter().map(|&token| targets.clone().equal_scalar(token));
        masks.chain(mask_pad).reduce(|mask, other| mask.bool_or(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::losses::oracles::{
        assert_close, check_confinement, check_gradients, to_vec, values,
    };
    use crate::test_devices::cpu_devices;
    use burn::nn::loss::CrossEntropyLossConfig as BurnConfig;
    use burn::tensor::Device;

    const CLASSES: usize = 4;
    const WEIGHTS: [f32; CLASSES] = [1.0, 0.5, 2.0, 3.5];

    fn config() -> CrossEntropyLossConfig {
        CrossEntropyLossConfig::new()
    }

    /// Returns configurations without options, with each option and with several options.
    fn configs() -> Vec<CrossEntropyLossConfig> {
        let weights = Some(WEIGHTS.to_vec());
        vec![
            config(),
            config().with_reduction(ExampleReduction::Sum),
            config().with_smoothing(Some(0.1)),
            config().with_weights(weights.clone()),
            config().with_pad_tokens(Some(vec![-100, 1])),
            config()
                .with_smoothing(Some(0.3))
                .with_weights(weights)
                .with_pad_tokens(Some(vec![-100])),
        ]
    }

    /// Returns classes and ignored targets.
    fn sequence_targets(device: &Device) -> Tensor<2, Int> {
        Tensor::from_ints([[0, 3, -100], [2, 1, 1], [3, -100, -100]], device)
    }

    fn padded() -> CrossEntropyLossConfig {
        config().with_pad_tokens(Some(vec![-100]))
    }

    #[test]
    fn loss_equals_the_closed_form_with_every_option() {
        for device in cpu_devices() {
            let logits = values([3, CLASSES], &device);
            let targets = [2usize, 0, 3];
            let (alpha, z) = (0.3, to_vec(&logits));
            let expected: Vec<f64> = (0..3)
                .map(|i| {
                    let z = &z[i * CLASSES..(i + 1) * CLASSES];
                    let normalizer = z.iter().map(|z| z.exp()).sum::<f64>().ln();
                    let smoothed = |c: usize| {
                        alpha / CLASSES as f64 + if c == targets[i] { 1.0 - alpha } else { 0.0 }
                    };
                    let w = |c: usize| f64::from(WEIGHTS[c]);
                    (0..CLASSES).map(|c| smoothed(c) * w(c) * (normalizer - z[c])).sum()
                })
                .collect();
            let loss =
                config().with_smoothing(Some(0.3)).with_weights(Some(WEIGHTS.to_vec())).init();
            let targets = Tensor::from_ints([2, 0, 3], &device);
            // α is an f32.
            assert_close(&to_vec(&loss.forward(logits, targets)), &expected, 1e-7);
        }
    }

    #[test]
    fn mean_over_the_batch_equals_burn_without_weights_and_ignored_targets() {
        for device in cpu_devices() {
            for smoothing in [None, Some(0.1), Some(1.0)] {
                // Burn's own smoothing works in f32 only.
                let logits = values([5, CLASSES], &device).cast(burn::tensor::DType::F32);
                let targets = Tensor::<1, Int>::from_ints([0, 1, 2, 3, 3], &device);
                let ours = config().with_smoothing(smoothing).init();
                let burn = BurnConfig::new().with_smoothing(smoothing).init(&device);
                let ours = ours.forward(logits.clone(), targets.clone()).mean();
                assert_close(&to_vec(&ours), &to_vec(&burn.forward(logits, targets)), 1e-6);
            }
        }
    }

    #[test]
    fn sum_over_the_batch_is_the_mean_of_burn_times_its_divisor() {
        for device in cpu_devices() {
            for smoothing in [None, Some(0.2)] {
                let logits = values([5, CLASSES], &device).cast(burn::tensor::DType::F32);
                let targets = Tensor::<1, Int>::from_ints([0, 1, 2, 3, 3], &device);
                let weights = Some(WEIGHTS.to_vec());
                let ours = config()
                    .with_smoothing(smoothing)
                    .with_weights(weights.clone())
                    .with_pad_tokens(Some(vec![1]));
                let burn = BurnConfig::new()
                    .with_smoothing(smoothing)
                    .with_weights(weights)
                    .with_pad_tokens(Some(vec![1]));
                let ours = ours.init().forward(logits.clone(), targets.clone()).sum();
                let burn = burn.init(&device).forward(logits, targets);
                // The factors of the targets 0, 2, 3 and 3, without the ignored one.
                let expected: Vec<f64> =
                    to_vec(&burn).iter().map(|b| b * (1.0 + 2.0 + 3.5 + 3.5)).collect();
                assert_close(&to_vec(&ours), &expected, 1e-5);
            }
        }
    }

    #[test]
    fn sequence_loss_reduces_the_positions_that_are_not_ignored() {
        for device in cpu_devices() {
            let (logits, targets) = (values([3, 3, CLASSES], &device), sequence_targets(&device));
            let single = to_vec(
                &padded()
                    .init()
                    .forward(logits.clone().reshape([9, CLASSES]), targets.clone().reshape([9])),
            );
            let sum = |i: usize| single[3 * i..3 * i + 3].iter().sum::<f64>();
            let mean = padded().init().forward_sequence(logits.clone(), targets.clone());
            assert_close(&to_vec(&mean), &[sum(0) / 2.0, sum(1) / 3.0, sum(2)], 1e-12);
            let total = padded().with_reduction(ExampleReduction::Sum).init();
            let total = total.forward_sequence(logits, targets);
            assert_close(&to_vec(&total), &[sum(0), sum(1), sum(2)], 1e-12);
        }
    }

    #[test]
    fn classes_on_axis_1_and_on_the_last_axis_give_equal_losses() {
        for device in cpu_devices() {
            let logits = values([3, 2, 3, CLASSES], &device);
            let targets = Tensor::<3, Int>::from_ints(
                [[[0, 1, 2], [3, 0, 1]], [[2, -100, 3], [1, 1, 0]], [[3, 2, 1], [0, 3, 2]]],
                &device,
            );
            for config in configs() {
                let loss = config.with_pad_tokens(Some(vec![-100])).init();
                let last = loss.forward_sequence(
                    logits.clone().reshape([3, 6, CLASSES]),
                    targets.clone().reshape([3, 6]),
                );
                let first = loss
                    .forward_channels_first(logits.clone().permute([0, 3, 1, 2]), targets.clone());
                assert_close(&to_vec(&first), &to_vec(&last), 1e-12);
            }
            let flat = Tensor::<1, Int>::from_ints([1, 2, 3], &device);
            let logits = values([3, CLASSES], &device);
            let first = config().init().forward_channels_first(logits.clone(), flat.clone());
            assert_eq!(to_vec(&first), to_vec(&config().init().forward(logits, flat)));
        }
    }

    #[test]
    fn gradients_equal_finite_differences_of_their_own_example() {
        for device in cpu_devices() {
            for config in configs() {
                let loss = config.init();
                check_gradients(values([3, CLASSES], &device), |logits| {
                    let targets = Tensor::from_ints([2, 1, 3], &logits.device());
                    loss.forward(logits, targets)
                });
            }
            check_gradients(values([3, 3, CLASSES], &device), |logits| {
                let targets = sequence_targets(&logits.device());
                padded().with_smoothing(Some(0.1)).init().forward_sequence(logits, targets)
            });
        }
    }

    #[test]
    fn targets_do_not_change_the_losses_of_other_examples() {
        for device in cpu_devices() {
            let logits = values([3, 3, CLASSES], &device);
            let others = Tensor::from_ints([[0, 3, -100], [-100, -100, -100], [0, 1, 2]], &device);
            for config in configs() {
                let loss = config.with_pad_tokens(Some(vec![-100])).init();
                let one = loss.forward_sequence(logits.clone(), sequence_targets(&device));
                let other = loss.forward_sequence(logits.clone(), others.clone());
                assert_eq!(to_vec(&one)[0], to_vec(&other)[0]);
                assert_ne!(to_vec(&one)[1..], to_vec(&other)[1..]);
            }
        }
    }

    #[test]
    fn extreme_examples_do_not_change_other_examples() {
        for device in cpu_devices() {
            for extreme in [1e30, f64::MAX, f64::INFINITY, f64::NAN] {
                for config in configs() {
                    check_confinement(values([3, CLASSES], &device), extreme, |logits| {
                        let targets = Tensor::from_ints([2, 0, 3], &logits.device());
                        config.init().forward(logits, targets)
                    });
                }
            }
        }
    }

    #[test]
    fn logits_of_1e30_have_finite_losses_and_gradients() {
        for device in cpu_devices() {
            let device = device.autodiff();
            let logits = Tensor::<2>::from_floats(
                [[1e30, -1e30, 0.0, 0.0], [1e30, -1e30, 0.0, 0.0], [1e30, 1e30, 0.0, 0.0]],
                &device,
            )
            .require_grad();
            let targets = Tensor::from_ints([0, 1, 0], &device);
            let losses = config().init().forward(logits.clone(), targets);
            assert_close(&to_vec(&losses), &[0.0, 2e30, 2f64.ln()], 1e-6);
            let gradient = logits.grad(&losses.sum().backward()).map(|g| to_vec(&g));
            let expected = [0.0, 0.0, 0.0, 0.0, 1.0, -1.0, 0.0, 0.0, -0.5, 0.5, 0.0, 0.0];
            assert_close(&gradient.expect("the loss depends on the logits"), &expected, 1e-6);
        }
    }

    #[test]
    fn example_with_ignored_targets_only_has_zero_loss_and_gradient() {
        for device in cpu_devices() {
            let device = device.autodiff();
            let logits = values([2, CLASSES], &device).require_grad();
            let targets = Tensor::from_ints([-100, 1], &device);
            let losses = padded().init().forward(logits.clone(), targets);
            let gradient = logits.grad(&losses.clone().sum().backward()).map(|g| to_vec(&g));
            let gradient = gradient.expect("the loss depends on the logits");
            assert_eq!((to_vec(&losses)[0], &gradient[..CLASSES]), (0.0, &[0.0; CLASSES][..]));
            assert!(to_vec(&losses)[1] > 0.0 && gradient[CLASSES] != 0.0);
        }
    }

    #[test]
    fn masked_positions_are_ignored_whatever_their_targets() {
        for device in cpu_devices() {
            for config in configs() {
                let (loss, logits) = (config.init(), values([3, 3, CLASSES], &device));
                let mask = Tensor::<2, Bool>::from_data(
                    [[false, false, true], [false; 3], [true; 3]],
                    &device,
                );
                let targets =
                    Tensor::<2, Int>::from_ints([[0, 3, 2], [2, 1, 0], [3, 3, 9]], &device);
                let found = loss.forward_masked_sequence(logits.clone(), targets, mask.clone());
                let shorter = logits.clone().narrow(1, 0, 2).narrow(0, 0, 1);
                let alone = Tensor::<2, Int>::from_ints([[0, 3]], &device);
                let alone = to_vec(&loss.forward_sequence(shorter, alone));
                let whole = Tensor::<2, Int>::from_ints([[2, 1, 0]], &device);
                let whole = to_vec(&loss.forward_sequence(logits.narrow(0, 1, 1), whole));
                assert_close(&to_vec(&found), &[alone[0], whole[0], 0.0], 1e-12);
            }
        }
    }

    #[test]
    fn empty_and_single_batches_have_one_loss_for_each_example() {
        for device in cpu_devices() {
            for batch_size in [0, 1] {
                for config in configs() {
                    let logits = Tensor::<2>::zeros([batch_size, CLASSES], &device);
                    let targets = Tensor::<1, Int>::zeros([batch_size], &device);
                    assert_eq!(config.init().forward(logits, targets).dims(), [batch_size]);
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "targets")]
    fn missing_targets_are_refused() {
        let device = &cpu_devices()[0];
        let targets = Tensor::from_ints([0, 1], device);
        let _ = config().init().forward(values([3, CLASSES], device), targets);
    }

    #[test]
    #[should_panic(expected = "there must be one weight for each of 4 classes, got 2")]
    fn wrong_number_of_class_weights_is_refused() {
        let device = &cpu_devices()[0];
        let loss = config().with_weights(Some(vec![1.0, 2.0])).init();
        let _ = loss.forward(values([1, CLASSES], device), Tensor::from_ints([0], device));
    }

    #[test]
    #[should_panic(expected = "smoothing must be in [0, 1], got 1.5")]
    fn smoothing_above_one_is_refused() {
        let _ = config().with_smoothing(Some(1.5)).init();
    }

    #[test]
    #[should_panic(expected = "weights must be positive and finite, got 0")]
    fn class_weight_of_zero_is_refused() {
        let _ = config().with_weights(Some(vec![1.0, 0.0])).init();
    }
}
