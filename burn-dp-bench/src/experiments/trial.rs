//! One private training run of a small image classifier, for experiments that compare such runs.

use std::path::Path;

use burn::optim::momentum::MomentumConfig;
use burn::optim::{ModuleOptimizer, SgdConfig};
use burn::tensor::{Device, Tensor};
use burn_dp::DpError;
use burn_dp::grads::PrivateBackward;
use burn_dp::losses::CrossEntropyLossConfig;
use burn_dp::nn::RandomCrop;
use burn_dp::optim::{PrivacyPlanConfig, WeightAverage};
use burn_dp::sampling::AugmentationBatcher;
use burn_dp_accountant::RunPlan;
use burn_dp_examples::data::{ImageBatcher, ImageItem, Splits, cifar10, digits, mnist};
use burn_dp_examples::models::{Augmented, Classifier, CnnConfig, WideResNetConfig};
use burn_dp_examples::training::{Evaluation, TrainError};

use super::measured::Measured;

/// Momentum of [`momentum_sgd`].
pub(super) const MOMENTUM: f64 = 0.9;

/// Number of examples in memory at once.
const PHYSICAL_BATCH: usize = 256;

/// A training run: everything but the data and the seed.
pub(crate) struct Trial<'a> {
    plan: PrivacyPlanConfig,
    optimizer: ModuleOptimizer,
    lr: &'a dyn Fn(u64, f64) -> f64,
    network: Network,
    copies: Option<(usize, RandomCrop)>,
    average: Option<WeightAverage>,
}

/// What is trained, and on which images.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Network {
    /// The CNN, on MNIST or the synthetic digits.
    #[default]
    Cnn,
    /// A wide residual network with 16 groups, on CIFAR-10, as in the papers on scaling.
    WideResNet {
        depth: usize,
        factor: usize,
        /// Whether the normalization before a convolution comes before ReLU.
        norm_first: bool,
    },
}

impl Network {
    /// The network that the papers on scaling train.
    pub(super) const WRN_16_4: Self = Self::WideResNet { depth: 16, factor: 4, norm_first: false };

    /// Returns the network with an article.
    pub(super) fn described(self) -> String {
        match self {
            Self::Cnn => "A CNN".into(),
            Self::WideResNet { depth, factor, .. } => format!("A WRN-{depth}-{factor}"),
        }
    }

    /// Returns the name of the images.
    pub(super) fn images_name(self, measured: &Measured) -> &'static str {
        match self {
            Self::Cnn => measured.images_name(),
            Self::WideResNet { .. } => "CIFAR-10",
        }
    }

    /// Says what else is done to an image that is shifted.
    pub(super) fn mirrored(self) -> &'static str {
        if self == Self::Cnn { "" } else { " and mirrored at random" }
    }

    /// Returns the random shift of an image by up to `pixels`; natural images are mirrored, too.
    pub(super) fn crop(self, pixels: usize) -> Result<RandomCrop, DpError> {
        let crop = RandomCrop::new(pixels)?;
        Ok(if self == Self::Cnn { crop } else { crop.with_mirror() })
    }

    /// Returns the images of each seed.
    pub(super) fn images_of_seeds(
        self,
        measured: &Measured,
        sizes: [usize; 2],
    ) -> Result<Vec<(u64, Splits<ImageBatcher>)>, TrainError> {
        if self == Self::Cnn {
            return images_of_seeds(measured, sizes);
        }
        let [train, test] = sizes;
        let images = cifar10_of(measured.data_dir.as_deref())?.truncated(train, test);
        Ok(measured.seeds.iter().map(|&seed| (seed, images.clone())).collect())
    }
}

/// The results of a training run.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Outcome {
    /// Share of the test images that are classified correctly.
    pub(crate) accuracy: f64,
    /// Test accuracy of the averaged weights, if averaging is on.
    pub(crate) averaged: Option<f64>,
}

/// Returns the images of CIFAR-10.
pub(super) fn cifar10_of(folder: Option<&Path>) -> Result<Splits<ImageBatcher>, TrainError> {
    let folder = folder.ok_or_else(|| {
        let reason = "must be given: the setting of the paper trains on CIFAR-10; name the folder \
                      of its binary version, or give --quick";
        TrainError::option("--data-dir", reason)
    })?;
    Ok(cifar10::read(folder)?)
}

/// Returns the images of an experiment.
pub(crate) fn images(
    measured: &Measured,
    seed: u64,
    [train, test]: [usize; 2],
) -> Result<Splits<ImageBatcher>, TrainError> {
    let splits = match &measured.data_dir {
        Some(folder) => mnist::from_folder(folder)?,
        None => digits::splits(seed, train, test),
    };
    Ok(splits.truncated(train, test))
}

/// Returns the images of each seed.
pub(super) fn images_of_seeds(
    measured: &Measured,
    sizes: [usize; 2],
) -> Result<Vec<(u64, Splits<ImageBatcher>)>, TrainError> {
    measured.seeds.iter().map(|&seed| Ok((seed, images(measured, seed, sizes)?))).collect()
}

/// Returns SGD with momentum 0.9.
pub(super) fn momentum_sgd() -> ModuleOptimizer {
    sgd(MOMENTUM)
}

fn sgd(momentum: f64) -> ModuleOptimizer {
    let config = MomentumConfig::new().with_momentum(momentum).with_dampening(0.0);
    SgdConfig::new().with_momentum((momentum > 0.0).then_some(config)).init()
}

/// Network and SGD of a training run of given batch size, noise and length.
#[derive(Clone, Copy, Debug)]
pub(super) struct SgdSettings {
    pub(super) network: Network,
    pub(super) lr: f64,
    pub(super) momentum: f64,
    /// Number of random copies of each image, whose mean gradient is clipped; 0 for the image
    /// itself.
    pub(super) copies: usize,
    /// Largest random shift of a copy, in pixels.
    pub(super) shift: usize,
    /// Decay of the averaged weights, if weights are averaged.
    pub(super) decay: Option<f64>,
}

impl SgdSettings {
    /// Chooses SGD without momentum on the images as they are, and no averaged weights.
    pub(super) const fn plain(network: Network, lr: f64) -> Self {
        Self { network, lr, momentum: 0.0, copies: 0, shift: 0, decay: None }
    }

    /// Trains and tests the network with this seed.
    fn outcome(
        self,
        plan: RunPlan,
        data: &Splits<ImageBatcher>,
        seed: u64,
        device: &Device,
    ) -> Result<Outcome, TrainError> {
        let config = PrivacyPlanConfig::new(data.train.items().len(), plan.expected_batch_size)
            .with_steps(plan.steps)
            .with_noise_multiplier(plan.noise_multiplier);
        let lr = |_, _| self.lr;
        let copies = match self.copies {
            0 => None,
            copies => Some((copies, self.network.crop(self.shift)?)),
        };
        let average = self.decay.map(WeightAverage::new).transpose()?;
        let trial = Trial::new(config, sgd(self.momentum), &lr);
        Trial { network: self.network, copies, average, ..trial }.run(data, seed, device)
    }
}

/// Measures the results of the network, trained by SGD with the batch size, the noise and the
/// length of `plan`, one for each seed.
pub(super) fn outcomes(
    measured: &mut Measured,
    plan: RunPlan,
    settings: SgdSettings,
    sizes: [usize; 2],
) -> Result<Vec<Outcome>, TrainError> {
    let mut found = Vec::new();
    for (seed, data) in settings.network.images_of_seeds(measured, sizes)? {
        let name = format!("{plan:?}, {settings:?}, {sizes:?} images, seed {seed}");
        let run = |device: &Device| settings.outcome(plan, &data, seed, device);
        found.push(measured.measure(&name, run)?);
    }
    Ok(found)
}

/// Returns the test accuracies of [`outcomes`]: of the averaged weights, or of the last ones if
/// weights are not averaged.
pub(super) fn accuracies(
    measured: &mut Measured,
    plan: RunPlan,
    settings: SgdSettings,
    sizes: [usize; 2],
) -> Result<Vec<f64>, TrainError> {
    let found = outcomes(measured, plan, settings, sizes)?;
    Ok(found.iter().map(|outcome| outcome.averaged.unwrap_or(outcome.accuracy)).collect())
}

impl<'a> Trial<'a> {
    /// Creates a training run.
    ///
    /// # Arguments
    ///
    /// - `lr`: returns the learning rate of a step and its clipping threshold
    pub(crate) fn new(
        plan: PrivacyPlanConfig,
        optimizer: ModuleOptimizer,
        lr: &'a dyn Fn(u64, f64) -> f64,
    ) -> Self {
        Self { plan, optimizer, lr, network: Network::Cnn, copies: None, average: None }
    }

    /// Trains the network and tests it.
    pub(crate) fn run(
        self,
        data: &Splits<ImageBatcher>,
        seed: u64,
        device: &Device,
    ) -> Result<Outcome, TrainError> {
        let device = device.clone().autodiff();
        device.seed(seed);
        match self.network {
            Network::Cnn => self.train_copies(CnnConfig::new().init(&device), data, &device),
            Network::WideResNet { depth, factor, norm_first } => {
                let config = WideResNetConfig::new(depth, factor, data.classes);
                let model = config.with_norm_first(norm_first).init(&device);
                self.train_copies(model, data, &device)
            }
        }
    }

    fn train_copies<M: Classifier<Inputs = Tensor<4>>>(
        self,
        network: M,
        data: &Splits<ImageBatcher>,
        device: &Device,
    ) -> Result<Outcome, TrainError> {
        match self.copies.clone() {
            None => self.train(network, 1, data, device),
            Some((copies, crop)) => self.train(Augmented { network, crop }, copies, data, device),
        }
    }

    fn train<M: Classifier<Inputs = Tensor<4>>>(
        self,
        mut model: M,
        copies: usize,
        data: &Splits<ImageBatcher>,
        device: &Device,
    ) -> Result<Outcome, TrainError> {
        let plan = self.plan.init()?;
        let copy = |item: &ImageItem, _| item.clone();
        let batcher = AugmentationBatcher::new(data.encoder, copies, copy)?;
        let batches = plan.batches(data.train.clone(), batcher, device)?;
        let mut optim = plan
            .optimizer(self.optimizer)
            .with_backward(PrivateBackward::new().with_group_size(copies));
        if let Some(average) = self.average {
            optim = optim.with_weight_average(average)?;
        }
        let loss = CrossEntropyLossConfig::new().init();
        for (step, batch) in (0..).zip(batches) {
            let batch = batch?;
            optim.backward_batch(
                &model,
                &batch,
                (PHYSICAL_BATCH / copies).max(1),
                |model, images| loss.forward(model.forward(images.inputs), images.targets),
            )?;
            let lr = (self.lr)(step, optim.thresholds()?.total_norm());
            model = optim.step(lr, model, batch).map_err(DpError::from)?;
        }
        let accuracy = |model: &M| {
            Evaluation::of(model, &data.encoder, &data.test, &device.clone().inner()).accuracy
        };
        let averaged = match optim.weight_average() {
            Some(average) => Some(accuracy(&average.averaged(model.clone())?)),
            None => None,
        };
        Ok(Outcome { accuracy: accuracy(&model), averaged })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::PathBuf;

    use burn_dp_examples::training::BackendName;

    use super::super::measured::FigureOptions;
    use super::*;

    fn measured(output: &Path, data_dir: Option<PathBuf>) -> Measured {
        let options = FigureOptions {
            quick: false,
            data_dir,
            seeds: vec![0],
            backend: BackendName::Flex,
            output: Some(output.into()),
            json: None,
        };
        Measured::open("name", &options).unwrap()
    }

    const WIDE: Network = Network::WideResNet { depth: 10, factor: 1, norm_first: true };

    #[test]
    fn the_wide_network_trains_on_the_files_of_cifar10() {
        let folder = tempfile::tempdir().unwrap();
        for (name, images) in [("data_batch_1.bin", 12u8), ("test_batch.bin", 5)] {
            let image = |label: u8| [vec![label % 10], vec![20 * label; 3 * 32 * 32]].concat();
            let bytes: Vec<u8> = (0..images).flat_map(image).collect();
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        let output = folder.path().join("out");
        let mut measured = measured(&output, Some(folder.path().into()));
        let plan = RunPlan { expected_batch_size: 3.0, noise_multiplier: 1.0, steps: 2 };
        let plain = SgdSettings::plain(WIDE, 0.1);
        let augmented = SgdSettings { copies: 2, shift: 2, decay: Some(0.5), ..plain };
        for settings in [plain, augmented] {
            let found = accuracies(&mut measured, plan, settings, [10, 4]).unwrap();
            // Of four test images.
            assert!((found[0] * 4.0).fract() == 0.0 && found[0] <= 1.0, "{found:?}");
            // The measurement is not repeated.
            let outcomes = outcomes(&mut measured, plan, settings, [10, 4]).unwrap();
            assert_eq!(outcomes[0].averaged.is_some(), settings.decay.is_some());
            assert_eq!(outcomes[0].averaged.unwrap_or(outcomes[0].accuracy), found[0]);
        }
    }

    #[test]
    fn without_cifar10_the_setting_of_the_paper_names_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let error = |data_dir| {
            let measured = measured(&folder.path().join("out"), data_dir);
            WIDE.images_of_seeds(&measured, [1, 1]).unwrap_err().to_string()
        };
        let text = error(None);
        assert!(text.starts_with("--data-dir must be given") && text.contains("--quick"), "{text}");
        let text = error(Some(folder.path().into()));
        assert!(text.contains("cifar-10-binary.tar.gz"), "{text}");
    }
}
