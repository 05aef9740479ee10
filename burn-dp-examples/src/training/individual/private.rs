//! Training with differential privacy.

use burn::optim::ModuleOptimizer;
use burn::tensor::Device;
use burn_dp::check_independence;
use burn_dp::clipping::Clipping;
use burn_dp::losses::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn_dp::optim::{DpOptimizer, PrivacyPlan, SamplingScheme};
use burn_dp::sampling::PrivateDataLoaderBuilder;

use super::policy::policy;
use super::public_items::{PublicInputs, PublicItems};
use super::{IndividualSettings, PrivateSettings};
use crate::data::{Encoder, ItemDataset, Splits};
use crate::models::Classifier;
use crate::training::TrainError;
use crate::training::budget::within_budget;
use crate::training::checkpoints::{Checkpoints, Start};
use crate::training::options::Precision;

/// Number of examples that independence is tested on.
const PROBE_ITEMS: usize = 4;

/// A finished step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FinishedStep {
    /// Number of steps so far, including those before a resumption.
    pub(super) number: usize,
    /// Upper bound of ε so far, after each pass over the data; absent in ordinary training.
    pub(super) epsilon: Option<f64>,
}

/// A private training run that has been checked and can start or continue.
pub(super) struct PrivateRun<E: Encoder, M> {
    model: M,
    optim: DpOptimizer,
    checkpoints: Checkpoints,
    loss: CrossEntropyLoss,
    /// Public examples, if the policy measures norms on them during the training.
    public: Option<PublicItems<E>>,
}

impl<E: Encoder, M: Classifier<Inputs = E::Inputs>> PrivateRun<E, M> {
    /// Creates the plan, tests the model, and reads the checkpoint if the run is resumed. Writes
    /// nothing.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Privacy`] if the noise cannot be calibrated or the model mixes
    /// examples, and [`TrainError::Option`] if there is something to resume and `--resume` is
    /// missing, or vice versa.
    pub(super) fn prepare(
        model: M,
        inner: ModuleOptimizer,
        private: PrivateSettings,
        settings: &IndividualSettings,
        data: &Splits<E>,
        public: PublicInputs<E::Item>,
        device: &Device,
    ) -> Result<Self, TrainError> {
        let loss = CrossEntropyLossConfig::new().init();
        let train_items = data.train.items().len();
        let words = public.words;
        let public =
            PublicItems::new(data.encoder.clone(), public.items, loss.clone(), device.clone());
        let norm = private.max_grad_norm;
        let steps_per_epoch = settings.steps_per_epoch(train_items);
        let policy = policy(&private.clipping, &model, norm, steps_per_epoch, &public)?;
        let public = match private.clipping.adapts() {
            true => Some(public.with_groups_of(&*policy)?),
            false => None,
        };
        let plan = plan(private, policy, settings, train_items)?;
        probe(&model, &loss, &data.encoder, data.classes, device)?;
        let checkpoints = Checkpoints::new(&settings.output.folder, settings)?;
        let checkpoints = checkpoints.with_data(data.train.items()).with_start(settings.start);
        let (mut optim, model) = checkpoints.begin_or_resume(plan, inner, model)?;
        optim = optim
            .with_backward(settings.backward())
            .with_independence_check(private.privacy.independence_check);
        if settings.precision != Precision::F32 {
            optim = optim.with_precision(settings.precision.dtype());
        }
        if let Some(words) = &words {
            optim.name_public_data(words);
        }
        // A checkpoint holds the average of the interrupted run.
        let is_new = settings.start == Start::First;
        let optim = match settings.weight_average()?.filter(|_| is_new) {
            Some(average) => optim.with_weight_average(average)?,
            None => optim,
        };
        Ok(Self { model, optim, checkpoints, loss, public })
    }

    /// Returns the number of earlier steps.
    pub(super) fn first_step(&self) -> usize {
        self.optim.next_step() as usize
    }

    /// Returns the plan.
    pub(super) fn plan(&self) -> &PrivacyPlan {
        self.optim.plan()
    }

    /// Trains to the end of the plan or of the budget, saves a checkpoint after each pass over the
    /// data, and calls `after_step` after each step.
    ///
    /// The checkpoints are kept until [`Checkpoints::remove`].
    ///
    /// # Errors
    ///
    /// Returns the errors of `after_step`, and [`TrainError::Privacy`] if a step is rejected or a
    /// checkpoint cannot be written.
    pub(super) fn train(
        self,
        encoder: &E,
        train: &ItemDataset<E::Item>,
        settings: &IndividualSettings,
        device: &Device,
        mut after_step: impl FnMut(&M, FinishedStep) -> Result<(), TrainError>,
    ) -> Result<(M, DpOptimizer, Checkpoints), TrainError> {
        let Self { mut model, mut optim, checkpoints, loss, public } = self;
        let items = train.items().len();
        let (steps, steps_per_epoch) = (settings.steps(items), settings.steps_per_epoch(items));
        checkpoints.begin(&model, &optim)?;
        let precision = settings.precision.dtype();
        let plan = optim.plan();
        let batcher = settings.augmented(encoder)?;
        let builder = PrivateDataLoaderBuilder::new(batcher).with_device(device.clone());
        // A truncated draw has a fixed shape. On a GPU, the library pads automatically.
        let is_truncated = matches!(plan.sampling(), SamplingScheme::TruncatedPoisson { .. });
        let builder = if is_truncated { builder.with_padding() } else { builder };
        let batches = builder.build(train.clone(), plan.sampler()?, plan.steps())?;
        for batch in batches.skip_to(optim.next_step())? {
            let batch = batch?;
            let losses = |model: &M, examples| model.losses_in(precision, &loss, examples);
            optim.backward_batch(&model, &batch, settings.physical_batch_size, losses)?;
            let lr = settings.lr_of_step(optim.next_step() as usize, steps);
            let stopped;
            (model, stopped) = within_budget(optim.step(lr, model, batch))?;
            if stopped.is_some() {
                optim.discard();
                break;
            }
            let number = optim.next_step() as usize;
            let ends_epoch = number.is_multiple_of(steps_per_epoch);
            if ends_epoch && let Some(public) = &public {
                optim.learn_from_public(&public.measured(&model)?)?;
            }
            if ends_epoch && number < steps {
                checkpoints.save(&model, &optim)?;
            }
            let epsilon = match settings.private {
                Some(private) if ends_epoch || number == steps => {
                    Some(optim.privacy_spent(private.privacy.delta)?.upper)
                }
                _ => None,
            };
            after_step(&model, FinishedStep { number, epsilon })?;
        }
        // The key is erased before the statement is created: from then on no step can be repeated.
        checkpoints.save(&model, &optim)?;
        Ok((model, optim, checkpoints))
    }
}

/// Returns the plan of the settings.
fn plan(
    private: PrivateSettings,
    policy: impl Clipping + 'static,
    settings: &IndividualSettings,
    train_items: usize,
) -> Result<PrivacyPlan, TrainError> {
    let strategy = settings.correlated_noise.as_ref();
    let config = private.sampling.plan(train_items, settings.batch_size, strategy)?;
    let config = settings.earlier.before(config.with_clipping(policy));
    private.privacy.plan(config, settings.steps(train_items) as u64)
}

/// Tests once that the loss of one example does not depend on the others.
///
/// The examples are made up and public, so the test releases nothing, regardless of its result.
fn probe<E: Encoder, M: Classifier<Inputs = E::Inputs>>(
    model: &M,
    loss: &CrossEntropyLoss,
    encoder: &E,
    classes: usize,
    device: &Device,
) -> Result<(), TrainError> {
    let items = encoder.made_up(PROBE_ITEMS, classes);
    Ok(check_independence(model, &items, |model, items| {
        model.losses(loss, encoder.batch(items, device))
    })?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::module::Module;
    use burn::nn::LinearConfig;
    use burn::tensor::Tensor;
    use burn_dp::clipping::FlatClipping;
    use burn_dp::nn::{IntoPrivate, Private};
    use burn_dp_accountant::DpEvent;
    use burn_dp_accountant::correlated_noise::Strategy;

    use super::*;
    use crate::data::{CLASSES, ImageBatcher, PIXELS};
    use crate::training::TrainOptions;

    fn settings(line: &str) -> IndividualSettings {
        let words = ["train"].into_iter().chain(line.split_whitespace());
        IndividualSettings::new(TrainOptions::read(words).unwrap(), None).unwrap()
    }

    fn planned(line: &str) -> Result<PrivacyPlan, TrainError> {
        let settings = settings(line);
        let private = settings.private.unwrap();
        plan(private, FlatClipping::new(private.max_grad_norm)?, &settings, 1_000)
    }

    #[test]
    fn a_budget_fixes_the_noise_and_is_kept() {
        let plan = planned("--epsilon 2 --delta 1e-4 --batch-size 50 --steps 100").unwrap();
        let spent = plan.epsilon_at_end(1e-4).unwrap();
        assert!(spent <= 2.0 && spent > 1.99, "{spent}");
        assert_eq!((plan.steps(), plan.sampling_probability()), (100, 0.05));
        assert!(plan.is_secure());
    }

    #[test]
    fn a_given_noise_multiplier_is_used_also_with_a_budget() {
        let common = "--noise-multiplier 1.5 --batch-size 50 --steps 100000";
        let alone = planned(common).unwrap();
        assert_eq!((alone.noise_multiplier(), alone.budget()), (1.5, None));
        let both = planned(&format!("{common} --epsilon 2 --delta 1e-4")).unwrap();
        assert_eq!(both.noise_multiplier(), 1.5);
        assert_eq!(both.budget().unwrap().epsilon(), 2.0);
    }

    #[test]
    fn the_sampler_is_the_one_that_was_asked_for() {
        let common = "--noise-multiplier 2 --batch-size 100 --steps 10";
        let scheme = |options: &str| planned(&format!("{common} {options}")).unwrap().sampling();
        assert_eq!(scheme(""), SamplingScheme::Poisson);
        for (options, max_batch_size) in [("", 180), ("--max-batch-size 120", 120)] {
            let found = scheme(&format!("--sampling truncated-poisson {options}"));
            assert_eq!(found, SamplingScheme::TruncatedPoisson { max_batch_size });
        }
        for (name, expected) in [
            ("fixed-size", SamplingScheme::FixedSize),
            ("with-replacement", SamplingScheme::WithReplacement),
            ("shuffled", SamplingScheme::Shuffled),
            ("shuffled-once", SamplingScheme::ShuffledOnce),
            ("cyclic-poisson", SamplingScheme::CyclicPoisson { parts: 8 }),
            ("cyclic-poisson --parts 3", SamplingScheme::CyclicPoisson { parts: 3 }),
            ("balls-in-bins", SamplingScheme::BallsInBins { bins: 10 }),
            ("random-allocation", SamplingScheme::RandomAllocation { bins: 10 }),
            ("min-separation", SamplingScheme::MinSeparation { separation: 8 }),
            ("min-separation --separation 4", SamplingScheme::MinSeparation { separation: 4 }),
        ] {
            assert_eq!(scheme(&format!("--sampling {name}")), expected);
        }
        let error = settings("--sampling truncated-poisson --max-batch-size 2000").fit(1_000);
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("--max-batch-size must be at most the 1000"), "{error}");
    }

    #[test]
    fn bins_give_the_batch_size_and_the_length_of_an_epoch() {
        // Neither divides the 1000 examples.
        for line in ["--bins 7", "--batch-size 150"] {
            let line = format!("--noise-multiplier 2 --epochs 3 --sampling balls-in-bins {line}");
            let plan = planned(&line).unwrap();
            assert_eq!(plan.sampling(), SamplingScheme::BallsInBins { bins: 7 });
            assert_eq!((plan.steps(), plan.expected_batch_size()), (21, 1000.0 / 7.0));
            let settings = settings(&line);
            assert_eq!((settings.steps_per_epoch(1000), settings.mean_batch(1000)), (7, 143));
        }
    }

    #[test]
    fn options_of_other_samplers_are_refused_by_name() {
        let error = |line: &str| {
            let words = ["train"].into_iter().chain(line.split(' '));
            let settings = IndividualSettings::new(TrainOptions::read(words).unwrap(), None);
            settings.and_then(|settings| settings.fit(1_000)).unwrap_err().to_string()
        };
        for (line, expected) in [
            ("--max-batch-size 10", "--max-batch-size has no meaning with --sampling poisson"),
            ("--max-batch-size 10", "give --sampling truncated-poisson"),
            ("--parts 3", "give --sampling cyclic-poisson"),
            ("--bins 3", "give --sampling balls-in-bins or random-allocation"),
            ("--separation 3 --sampling shuffled", "give --sampling min-separation"),
            ("--sampling cyclic-poisson --simulation-seed 1", "--simulation-seed has no meaning"),
            ("--sampling balls-in-bins --bins 3 --batch-size 9", "--batch-size has no meaning"),
            ("--sampling balls-in-bins --bins 0", "--bins must be at least 1"),
            ("--sampling balls-in-bins --bins 2000", "--bins must be at most the 1000"),
            ("--sampling min-separation --separation 0", "--separation must be at least 1"),
            (
                "--sampling min-separation --separation 11 --batch-size 100",
                "--separation must be at most 10, the 1000 training examples over the batch size",
            ),
            (
                "--sampling balls-in-bins --simulation-seed 1 --simulation-samples 5",
                "samples must be between 1000",
            ),
            ("--non-private --sampling balls-in-bins", "--sampling balls-in-bins has no meaning"),
            ("--non-private --bins 3", "--bins 3 has no meaning"),
        ] {
            let error = error(line);
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn a_simulation_needs_less_noise_for_bins_with_several_bands() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("strategy.json");
        Strategy::banded_toeplitz(40, &[1.0, 0.6, 0.3]).unwrap().save(&path).unwrap();
        let line = format!(
            "--epsilon 2 --delta 1e-4 --steps 40 --sampling balls-in-bins --bins 10 \
             --correlated-noise {}",
            path.display()
        );
        let noise = |line: &str| planned(line).unwrap().noise_multiplier();
        let simulated = format!("{line} --simulation-seed 7 --simulation-samples 100000");
        assert!(noise(&simulated) < 0.9 * noise(&line));
    }

    #[test]
    fn a_strategy_from_a_file_correlates_the_noise() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("strategy.json");
        Strategy::tree(10).unwrap().save(&path).unwrap();
        let common = "--noise-multiplier 2 --batch-size 100 --steps 10 --correlated-noise";
        let options = |sampling| format!("{common} {} --sampling {sampling}", path.display());
        let event = planned(&options("shuffled-once")).unwrap().event();
        assert!(matches!(event, DpEvent::CorrelatedGaussian { .. }), "{event}");
        let error = planned(&options("poisson")).unwrap_err().to_string();
        assert!(error.contains("cyclic Poisson"), "{error}");
        let words = ["train", "--correlated-noise", "none.json"];
        let error = IndividualSettings::new(TrainOptions::read(words).unwrap(), None).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("none.json") && error.contains("xtask strategy"), "{error}");
    }

    #[test]
    fn a_budget_that_the_first_step_would_exceed_is_refused() {
        let error = planned("--noise-multiplier 0.2 --epsilon 0.1").unwrap_err().to_string();
        assert!(error.starts_with("--noise-multiplier 0.2 spends epsilon = "), "{error}");
        assert!(error.contains("more than --epsilon 0.1"), "{error}");
    }

    /// Subtracts the mean of the batch, so every loss depends on every image.
    #[derive(Module, Debug)]
    struct Mixing {
        first: Private<burn::nn::Linear>,
        second: Private<burn::nn::Linear>,
    }

    impl Classifier for Mixing {
        type Inputs = Tensor<4>;

        fn forward(&self, images: Tensor<4>) -> Tensor<2> {
            let hidden = self.first.forward(images.flatten::<2>(1, 3)).tanh();
            let mean = hidden.clone().mean_dim(0);
            self.second.forward(hidden - mean)
        }
    }

    #[test]
    fn a_model_that_mixes_the_images_of_a_batch_is_refused() {
        let device = Device::flex().autodiff();
        let layer = |d_input, d_output| LinearConfig::new(d_input, d_output).init(&device);
        let model =
            Mixing { first: layer(PIXELS, 8).private(), second: layer(8, CLASSES).private() };
        let loss = CrossEntropyLossConfig::new().init();
        let digits = ImageBatcher::MNIST;
        let error = probe(&model, &loss, &digits, 10, &device).unwrap_err().to_string();
        assert!(error.contains("depends on example"), "{error}");
        let model = crate::models::MlpConfig::new().init(&device);
        assert!(probe(&model, &loss, &digits, 10, &device).is_ok());
    }
}
