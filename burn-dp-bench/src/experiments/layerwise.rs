//! Batch clipping with adaptive layerwise clipping: what is trained, and on which images.
//!
//! # References
//!
//! T. N. Nguyen et al.: Batch clipping and adaptive layerwise clipping for differential private
//! stochastic gradient descent, 2023.

use std::path::Path;

use burn::tensor::Device;
use burn_dp::PublicSource;
use burn_dp_examples::data::{DataError, ItemDataset, cifar10, digits, mnist};
use burn_dp_examples::training::batch_clipping::{
    BatchData, BatchFigures, BatchModelName, BatchPolicyName, BatchSettings, figures,
};
use burn_dp_examples::training::{Augmentation, TrainError, typed};

use super::figure::Figure;
use super::measured::Measured;
use super::trial::images;

/// Images to train and to test on: of the quick preset, and the maximum of the other.
const QUICK: [usize; 2] = [4_000, 2_000];
const PAPER: [usize; 2] = [60_000, 10_000];

/// Number of images in a step.
pub(super) const BATCH: usize = 64;

/// Factor of the learning rate after each epoch.
pub(super) const LR_DECAY: f64 = 0.9;

/// What is trained, with the settings of the paper or with settings for few images.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) model: BatchModelName,
    /// Name of the data set.
    pub(super) data: &'static str,
    pub(super) max_grad_norm: f64,
    /// The σ of the paper: the noise on each layer is 2 C_h σ.
    pub(super) sigma: f64,
    pub(super) lr: f64,
    pub(super) epochs: usize,
    pub(super) images: [usize; 2],
    /// How the images of a step are moved.
    pub(super) augmentation: Option<Augmentation>,
}

impl Setting {
    /// Returns the setting for the images that `measured` trains on: on CIFAR-10 ResNet-18, or the
    /// convolutional network with BatchNorm of the quick preset, and BN-LeNet-5 otherwise.
    pub(super) fn of(measured: &Measured) -> Result<Self, TrainError> {
        let data = match &measured.data_dir {
            None => digits::NAME,
            Some(folder) if is_cifar10(folder)? => cifar10::NAME,
            Some(_) => mnist::NAME,
        };
        Ok(if measured.quick() { Self::quick(data) } else { Self::of_paper(data) })
    }

    /// Returns the settings of the figures that compare networks or σ: in the full preset also the
    /// network of the paper, or the σ, that stands more noise.
    pub(super) fn all(measured: &Measured) -> Result<Vec<Self>, TrainError> {
        let first = Self::of(measured)?;
        if measured.quick() {
            return Ok(vec![first]);
        }
        let other = match first.data {
            cifar10::NAME => Self {
                model: BatchModelName::BnConvnet,
                max_grad_norm: 0.14,
                sigma: 0.5,
                ..first.clone()
            },
            _ => Self { sigma: 2.5, ..first.clone() },
        };
        Ok(vec![first, other])
    }

    fn quick(data: &'static str) -> Self {
        let model = match data {
            cifar10::NAME => BatchModelName::BnConvnet,
            _ => BatchModelName::BnLenet5,
        };
        let (lr, epochs, images) = (0.2, 6, QUICK);
        let augmentation = None;
        Self { model, data, max_grad_norm: 0.5, sigma: 0.02, lr, epochs, images, augmentation }
    }

    fn of_paper(data: &'static str) -> Self {
        let (model, max_grad_norm, sigma) = match data {
            cifar10::NAME => (BatchModelName::BnResnet18, 0.095, 0.01875),
            _ => (BatchModelName::BnLenet5, 0.2, 0.5),
        };
        // The paper crops 32 x 32 pixels from images with a border of four more on each side, also
        // on MNIST, whose 28 x 28 pixels therefore move by half of the border.
        let moved = |crop| Some(Augmentation { copies: 1, crop, mirror: true });
        let augmentation = match data {
            cifar10::NAME => moved(4),
            mnist::NAME => moved(2),
            _ => None,
        };
        let (lr, epochs, images) = (0.025, 50, PAPER);
        Self { model, data, max_grad_norm, sigma, lr, epochs, images, augmentation }
    }

    /// Returns the images. As in the paper, the last tenth of the training images is public and is
    /// not trained on: all data sets of the experiments are synthetic or published.
    pub(super) fn data(&self, measured: &Measured, seed: u64) -> Result<BatchData, TrainError> {
        let [train, test] = self.images;
        let mut splits = match &measured.data_dir {
            Some(folder) if self.data == cifar10::NAME => {
                cifar10::read(folder)?.truncated(train, test)
            }
            _ => images(measured, seed, self.images)?,
        };
        let mut items = splits.train.items().to_vec();
        let public = items.split_off(items.len() - items.len() / 10);
        let name = format!("{}, a tenth of the training images, not trained on", self.data);
        let source = match self.data {
            digits::NAME => PublicSource::generated(name),
            _ => PublicSource::published(name),
        };
        splits.train = ItemDataset::new(items);
        Ok(BatchData::new(splits, Some(source.data(public)?)))
    }

    /// Describes the training in a sentence.
    pub(super) fn sentence(&self) -> String {
        let layers = match self.model {
            BatchModelName::BnResnet18 => {
                " with 41 layers (62 in the paper, which counts each parameter)"
            }
            _ => "",
        };
        let moved = match (&self.augmentation, self.data) {
            (Some(Augmentation { crop, .. }), _) => format!(
                ", random crops (shifts of up to {crop} pixels) and mirror images as in the paper"
            ),
            (None, digits::NAME) => String::new(),
            (None, _) => ", without the paper's random crops and mirror images".into(),
        };
        format!(
            "{}{layers} on {}{moved}, mini-sets of {BATCH}, {} epochs, learning rate {} times \
             {LR_DECAY} after each epoch",
            typed(self.model),
            self.data,
            self.epochs,
            self.lr
        )
    }

    /// Describes the private training of several settings, which differ in network, C and σ.
    pub(super) fn sentence_of_all(settings: &[Self]) -> String {
        let noise =
            |setting: &Self| format!("C = {}, σ = {}", setting.max_grad_norm, setting.sigma);
        let [first, others @ ..] = settings else { return String::new() };
        let also = |other: &Self| format!(" (also {}, {})", typed(other.model), noise(other));
        let also: String = others.iter().map(also).collect();
        format!("{}, {}{also}", first.sentence(), noise(first))
    }

    /// Returns what the names of the lines of this setting begin with: nothing if there is no other
    /// setting.
    pub(super) fn prefix(&self, settings: &[Self]) -> String {
        match settings {
            [] | [_] => String::new(),
            _ => format!("{}, σ = {}: ", typed(self.model), self.sigma),
        }
    }

    /// Returns the settings of private training by batch clipping.
    ///
    /// # Arguments
    ///
    /// - `noise`: the noise of the whole release divided by the σ of the paper
    pub(super) fn private(
        &self,
        policy: BatchPolicyName,
        noise: f64,
    ) -> Result<BatchSettings, TrainError> {
        let mut settings = BatchSettings::of_paper()?;
        (settings.model, settings.max_grad_norm) = (self.model, self.max_grad_norm);
        (settings.epochs, settings.lr) = (self.epochs, self.lr);
        settings.augmentation = self.augmentation;
        let mini_sets = &mut settings.mini_sets;
        (mini_sets.policy, mini_sets.lr_decay) = (policy, LR_DECAY);
        (mini_sets.mini_set_size, mini_sets.mini_sets) = (BATCH, 1);
        // The sensitivity is 2 C.
        settings.privacy.noise_multiplier = Some(2.0 * self.sigma * noise);
        Ok(settings)
    }

    /// Returns the noise of the whole release over the σ of the paper, if the noise on each of L
    /// layers is 2 C_h σ: 1/√L.
    pub(super) fn split(&self, data: &BatchData) -> Result<f64, TrainError> {
        let layers = self.model.layers(data.encoder.shape.channels, data.classes)?;
        Ok(1.0 / (layers as f64).sqrt())
    }

    /// Returns the settings of layerwise clipping, where the noise on each layer is 2 C_h σ.
    pub(super) fn layerwise(&self, data: &BatchData) -> Result<BatchSettings, TrainError> {
        self.private(BatchPolicyName::Layerwise, self.split(data)?)
    }
}

/// Returns what the names of the lines of each setting of a figure begin with.
///
/// # Arguments
///
/// - `line`: the end of the name of a line that each setting has
pub(super) fn prefixes<'a>(figure: &'a Figure, line: &str) -> Vec<&'a str> {
    let of = |name: &'a String| name.strip_suffix(line);
    let prefixes = figure.series.iter().filter_map(|series| of(&series.name));
    prefixes.filter(|prefix| prefix.is_empty() || prefix.ends_with(": ")).collect()
}

/// Trains privately.
pub(super) fn train(
    mut settings: BatchSettings,
    data: &BatchData,
    seed: u64,
    device: &Device,
) -> Result<BatchFigures, TrainError> {
    settings.seed = seed;
    figures(&settings, data, device)
}

/// Returns whether the folder has CIFAR-10.
fn is_cifar10(folder: &Path) -> Result<bool, TrainError> {
    match cifar10::read(folder) {
        Ok(_) => Ok(true),
        Err(DataError::Missing { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::figure::FigureSeries;
    use super::*;

    const DATA: [&str; 3] = [digits::NAME, mnist::NAME, cifar10::NAME];

    #[test]
    fn images_are_moved_in_the_setting_of_the_paper_only() {
        for data in DATA {
            let quick = Setting::quick(data);
            assert_eq!(quick.augmentation, None);
            let is_real = data != digits::NAME;
            assert_eq!(quick.sentence().contains("without the paper's random crops"), is_real);
            let paper = Setting::of_paper(data);
            assert_eq!(paper.augmentation.is_some(), is_real, "{data}");
            assert_eq!(paper.sentence().contains("mirror images as in the paper"), is_real);
            let settings = paper.private(BatchPolicyName::Layerwise, 1.0).unwrap();
            assert_eq!(settings.augmentation, paper.augmentation);
        }
        let sentence = Setting::of_paper(cifar10::NAME).sentence();
        assert!(sentence.contains("shifts of up to 4 pixels"), "{sentence}");
        let sentence = Setting::of_paper(mnist::NAME).sentence();
        assert!(sentence.contains("shifts of up to 2 pixels"), "{sentence}");
    }

    #[test]
    fn the_layers_of_the_sentence_are_those_that_are_clipped() {
        let setting = Setting::of_paper(cifar10::NAME);
        let layers = setting.model.layers(3, 10).unwrap();
        assert!(setting.sentence().contains(&format!("with {layers} layers (62 ")));
    }

    #[test]
    fn lines_of_several_settings_are_named_by_network_and_noise() {
        let first = Setting::of_paper(mnist::NAME);
        let settings = [first.clone(), Setting { sigma: 2.5, ..first.clone() }];
        assert_eq!(first.prefix(&settings[..1]), "");
        let names = settings.each_ref().map(|setting| setting.prefix(&settings));
        assert_eq!(names, ["bn-lenet5, σ = 0.5: ", "bn-lenet5, σ = 2.5: "]);
        let sentence = Setting::sentence_of_all(&settings);
        assert!(sentence.ends_with("C = 0.2, σ = 0.5 (also bn-lenet5, C = 0.2, σ = 2.5)"));

        let line = |name: String| FigureSeries::exact(name, [(1.0, 0.5)]);
        let lines = names.each_ref().map(|of| ["BC", "GBC"].map(|end| line(format!("{of}{end}"))));
        let figure = Figure::of_lines(lines.into_iter().flatten());
        assert_eq!(prefixes(&figure, "BC"), names);
        assert_eq!(prefixes(&Figure::of_lines([line("BC".into())]), "BC"), [""]);
        assert!(prefixes(&figure, "ordinary").is_empty());
    }
}
