//! The cross-entropy of each example.

use burn::config::Config;
use burn::module::Module;
use burn::tensor::activation::log_softmax;
use burn::tensor::{Bool, Int, Tensor, TensorData, assert_shape};

use super::ExampleReduction;
use super::reduction::no_losses;

/// Configuration to create a [`CrossEntropyLoss`] with [`init`](Self::init).
#[derive(Config, Debug)]
pub struct CrossEntropyLossConfig {
    /// Targets that are ignored, for example the index of a padding token, or -100. They need not
    /// be classes.
    pub pad_tokens: Option<Vec<i64>>,
    /// One positive factor for each class. The value at a position is multiplied by the factor of
    /// its target and divided by no sum of factors.
    pub weights: Option<Vec<f32>>,
    /// Label smoothing α in [0, 1]: the target distribution is 1 - α on the target plus α / classes
    /// on every class.
    pub smoothing: Option<f32>,
    /// How the positions of one example become one value. The mean is taken over those positions of
    /// the example that are not ignored.
    #[config(default = "ExampleReduction::Mean")]
    pub reduction: ExampleReduction,
}

/// The cross-entropy between class scores (logits) and class indices, one value for each example.
///
/// With logits z, target y, class factors w and smoothing α the value at a position is
///
/// ```text
/// -(1 - α) w_y log softmax(z)_y - (α / classes) Σ_c w_c log softmax(z)_c
/// ```
///
/// | Edge case | Value |
/// |---|---|
/// | all positions of an example ignored | 0, and no gradient |
/// | logits up to ±1e30 | finite |
/// | logits further apart than the largest number of their type | infinite |
/// | an infinite or undefined logit | not a number, in that example only |
///
/// Without class factors and ignored targets, the mean over the batch is Burn's `CrossEntropyLoss`.
/// With them Burn divides by a sum over the batch, which cannot be private; see the
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
    /// Initializes the loss. It has no tensors and works on every device.
    ///
    /// # Panics
    ///
    /// Unless the smoothing is in [0, 1] and all class factors are positive and finite.
    pub fn init(&self) -> CrossEntropyLoss {
        let smoothing = self.smoothing.unwrap_or(0.0);
        assert!((0.0..=1.0).contains(&smoothing), "smoothing must be in [0, 1], got {smoothing}");
        for weight in self.weights.iter().flatten() {
            assert!(
                *weight > 0.0 && weight.is_finite(),
                "weights must be positive and finite, got {weight}"
            );
        }
        CrossEntropyLoss {
            pad_tokens: self.pad_tokens.clone().unwrap_or_default(),
            weights: self.weights.clone(),
            smoothing,
            reduction: self.reduction,
        }
    }
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
    /// If the shapes do not belong together, or the number of class factors is not that of classes.
    pub fn forward(&self, logits: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
        let [batch_size, classes] = logits.dims();
        assert_shape!(targets, [batch_size]);
        self.positions(logits.reshape([batch_size, 1, classes]), targets.reshape([batch_size, 1]))
    }

    /// Computes the loss of each sequence, whose positions have one target each.
    ///
    /// # Shapes
    ///
    /// - logits: `[batch_size, positions, classes]`
    /// - targets: `[batch_size, positions]`
    /// - output: `[batch_size]`
    ///
    /// # Panics
    ///
    /// As for [`forward`](Self::forward).
    pub fn forward_sequence(&self, logits: Tensor<3>, targets: Tensor<2, Int>) -> Tensor<1> {
        let [batch_size, positions, _] = logits.dims();
        assert_shape!(targets, [batch_size, positions]);
        self.positions(logits, targets)
    }

    /// Computes the loss of each example with the classes on axis 1, as convolutions leave them.
    ///
    /// # Shapes
    ///
    /// - logits: `[batch_size, classes, …]`
    /// - targets: `[batch_size, …]`, with one axis less
    /// - output: `[batch_size]`
    ///
    /// # Panics
    ///
    /// As for [`forward`](Self::forward).
    pub fn forward_channels_first<const D: usize, const T: usize>(
        &self,
        logits: Tensor<D>,
        targets: Tensor<T, Int>,
    ) -> Tensor<1> {
        let (dims, target_dims) = (logits.dims(), targets.dims());
        assert!(
            D == T + 1 && dims[0] == target_dims[0] && dims[2..] == target_dims[1..],
            "targets must have the shape of the logits without axis 1, {dims:?}, got {target_dims:?}"
        );
        let (batch_size, classes) = (dims[0], dims[1]);
        let positions = dims[2..].iter().product();
        self.positions(
            logits.reshape([batch_size, classes, positions]).swap_dims(1, 2),
            targets.reshape([batch_size, positions]),
        )
    }

    /// `[batch_size, positions, classes]` and `[batch_size, positions]` to `[batch_size]`.
    fn positions(&self, logits: Tensor<3>, targets: Tensor<2, Int>) -> Tensor<1> {
        let [batch_size, positions, classes] = logits.dims();
        assert!(
            classes > 0 && positions > 0,
            "an example must have at least one class and one position, got {:?}",
            logits.dims()
        );
        if batch_size == 0 {
            return no_losses(&logits);
        }
        let ignored = self.ignored(&targets);
        let targets = match &ignored {
            Some(ignored) => targets.mask_fill(ignored.clone(), 0),
            None => targets,
        };
        // A class that does not exist must not read the scores of another example.
        let unknown = targets
            .clone()
            .lower_scalar(0)
            .bool_or(targets.clone().greater_equal_scalar(classes as i64));
        let targets = targets.mask_fill(unknown.clone(), 0);
        let mut values = self.at_each_position(log_softmax(logits, 2), targets);
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

    /// `[batch_size, positions, classes]` and `[batch_size, positions]` to `[batch_size,
    /// positions]`.
    fn at_each_position(&self, log_probabilities: Tensor<3>, targets: Tensor<2, Int>) -> Tensor<2> {
        let [batch_size, positions, classes] = log_probabilities.dims();
        let targets = targets.reshape([batch_size, positions, 1]);
        let weighted = match &self.weights {
            Some(weights) => {
                assert!(
                    weights.len() == classes,
                    "weights must be as many as classes, {classes}, got {}",
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

    /// Where the target is to be ignored; `None` if there is nothing to look for.
    fn ignored(&self, targets: &Tensor<2, Int>) -> Option<Tensor<2, Bool>> {
        let masks = self.pad_tokens.iter().map(|&token| targets.clone().equal_scalar(token));
        masks.reduce(|mask, other| mask.bool_or(other))
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

    /// Without and with each option, and with all.
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

    /// Classes, with one ignored target among them.
    fn sequence_targets(device: &Device) -> Tensor<2, Int> {
        Tensor::from_ints([[0, 3, -100], [2, 1, 1], [3, -100, -100]], device)
    }

    fn padded() -> CrossEntropyLossConfig {
        config().with_pad_tokens(Some(vec![-100]))
    }

    #[test]
    fn the_value_is_the_closed_form_with_every_option() {
        for device in cpu_devices() {
            let logits = values([3, CLASSES], &device);
            let targets = [2usize, 0, 3];
            let (alpha, z) = (0.3, to_vec(&logits));
            let expected: Vec<f64> = (0..3)
                .map(|i| {
                    let z = &z[i * CLASSES..(i + 1) * CLASSES];
                    let normaliser = z.iter().map(|z| z.exp()).sum::<f64>().ln();
                    let smoothed = |c: usize| {
                        alpha / CLASSES as f64 + if c == targets[i] { 1.0 - alpha } else { 0.0 }
                    };
                    let w = |c: usize| f64::from(WEIGHTS[c]);
                    (0..CLASSES).map(|c| smoothed(c) * w(c) * (normaliser - z[c])).sum()
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
    fn the_mean_over_the_batch_is_that_of_burn_where_burn_does_not_normalise_by_the_batch() {
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
    fn the_sum_over_the_batch_is_burns_mean_times_its_normaliser() {
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
                // The factors of the targets 0, 2, 3 and 3, that is without the ignored one.
                let expected: Vec<f64> =
                    to_vec(&burn).iter().map(|b| b * (1.0 + 2.0 + 3.5 + 3.5)).collect();
                assert_close(&to_vec(&ours), &expected, 1e-5);
            }
        }
    }

    #[test]
    fn a_sequence_is_the_mean_or_sum_of_its_positions_that_are_not_ignored() {
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
    fn classes_on_axis_1_give_the_same_as_on_the_last_axis() {
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
    fn gradients_are_those_of_finite_differences_and_of_the_own_example_alone() {
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
    fn the_targets_of_an_example_leave_the_losses_of_the_others_alone() {
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
    fn extreme_examples_leave_the_others_alone() {
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
    fn logits_of_1e30_give_finite_losses_and_gradients() {
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
    fn an_example_of_ignored_targets_has_no_loss_and_no_gradient() {
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
    fn batches_of_no_and_of_one_example_have_as_many_losses() {
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
    fn fewer_targets_than_examples_are_refused() {
        let device = &cpu_devices()[0];
        let targets = Tensor::from_ints([0, 1], device);
        let _ = config().init().forward(values([3, CLASSES], device), targets);
    }

    #[test]
    #[should_panic(expected = "weights must be as many as classes, 4, got 2")]
    fn a_wrong_number_of_class_weights_is_refused() {
        let device = &cpu_devices()[0];
        let loss = config().with_weights(Some(vec![1.0, 2.0])).init();
        let _ = loss.forward(values([1, CLASSES], device), Tensor::from_ints([0], device));
    }

    #[test]
    #[should_panic(expected = "smoothing must be in [0, 1], got 1.5")]
    fn a_smoothing_above_one_is_refused() {
        let _ = config().with_smoothing(Some(1.5)).init();
    }

    #[test]
    #[should_panic(expected = "weights must be positive and finite, got 0")]
    fn a_class_weight_of_zero_is_refused() {
        let _ = config().with_weights(Some(vec![1.0, 0.0])).init();
    }
}
