//! Checks that the private algorithms compute the same step before their times are compared.

use burn::module::{ModuleVisitor, Param};
use burn::optim::SgdConfig;
use burn::tensor::{Device, Tensor};
use burn_dp::grads::has_coarse_products;
use burn_dp::random::InsecureSeed;

use super::Algorithm;
use super::contender::Contender;
use burn_dp_examples::data::Batch;
use burn_dp_examples::models::Classifier;
use burn_dp_examples::training::TrainError;

/// Returns the relative difference that the rounding of a device explains: single precision, or
/// products in TF32, for which gradients are also clipped more.
fn tolerance(device: &Device) -> f64 {
    if has_coarse_products(device) { 2e-2 } else { 1e-4 }
}

/// Maximum part by which book-keeping scales a clipped sum down: its norms are rounded up by a
/// proven bound, which grows with the number of positions.
const ROUNDED_UP: f64 = 1e-3;

/// Noise that does not hide the clipped sum.
const NOISE_MULTIPLIER: f64 = 1e-3;

/// Compares the updates that each private algorithm makes in one step of plain SGD.
///
/// All start from the same model with the same noise, so the updates are the clipped sums up to one
/// common factor.
///
/// # Errors
///
/// Returns [`TrainError::Option`] with the algorithm and the difference if an update differs from
/// the update of book-keeping.
pub(super) fn check<M: Classifier>(
    model: &M,
    batch: &Batch<M::Inputs>,
    what: &str,
) -> Result<(), TrainError> {
    let tolerance = tolerance(&batch.targets.device());
    let [reference, others @ ..] = Algorithm::PRIVATE;
    let expected = update(reference, model, batch)?;
    for algorithm in others {
        let found = update(algorithm, model, batch)?;
        let difference = difference(&found, &expected);
        // Written so that NaN fails too.
        let same = found.len() == expected.len() && difference <= tolerance;
        if !same {
            let reason = format!(
                "{algorithm:?} and {reference:?} disagree on the clipped sum of {what}: relative \
                 difference {difference:e}, tolerance {tolerance:e}"
            );
            return Err(TrainError::option("--algorithms", reason));
        }
    }
    Ok(())
}

/// Returns what one step adds to the parameters.
fn update<M: Classifier>(
    algorithm: Algorithm,
    model: &M,
    batch: &Batch<M::Inputs>,
) -> Result<Vec<f64>, TrainError> {
    let [batch_size] = batch.targets.dims();
    let seed = Some(InsecureSeed(0));
    let inner = SgdConfig::new().init();
    // The mean is multiplied by the batch size, so that its values are far above rounding.
    let lr = batch_size as f64;
    let mut contender =
        Contender::new(algorithm, model.clone(), inner, lr, batch_size, NOISE_MULTIPLIER, seed)?;
    contender.step(batch)?;
    let (mut before, mut after) = (Values::default(), Values::default());
    model.visit(&mut before);
    if let Some(model) = contender.into_model() {
        model.visit(&mut after);
    }
    Ok(after.0.iter().zip(&before.0).map(|(after, before)| after - before).collect())
}

/// Returns the relative difference of two updates, apart from a factor that [`ROUNDED_UP`]
/// explains.
fn difference(found: &[f64], expected: &[f64]) -> f64 {
    let pairs = || found.iter().zip(expected);
    let square = expected.iter().map(|value| value * value).sum::<f64>();
    let product = pairs().map(|(found, expected)| found * expected).sum::<f64>();
    let factor = (product / square).clamp(1.0, 1.0 + ROUNDED_UP);
    norm(pairs().map(|(found, expected)| found - factor * expected)) / square.sqrt()
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}

/// The trained parameters in the order of the visitor.
#[derive(Default)]
struct Values(Vec<f64>);

impl ModuleVisitor for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if param.is_require_grad() {
            self.0.extend(param.base().into_data().convert::<f64>().iter::<f64>());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::data::dataloader::batcher::Batcher;

    use super::*;
    use burn_dp_examples::data::{Encoder, ImageBatcher, ImageShape, TextBatcher};
    use burn_dp_examples::models::{
        CnnConfig, MlpConfig, NormName, RecurrentConfig, ResNetConfig, ResNetDepth, Rows,
        TransformerConfig, VggConfig, VggDepth, Words,
    };

    fn batch(size: usize, device: &Device) -> Batch<Tensor<4>> {
        ImageBatcher::MNIST.batch(ImageBatcher::MNIST.made_up(size, 10), device)
    }

    #[test]
    fn updates_may_differ_by_what_rounded_up_norms_explain() {
        let expected = [3.0, 4.0];
        let scaled = |factor: f64| difference(&expected.map(|value| value * factor), &expected);
        assert!(scaled(1.0) == 0.0 && scaled(1.0009) < 1e-15);
        // Smaller, or larger by more than the bound.
        assert!((scaled(0.999) - 1e-3).abs() < 1e-12 && (scaled(1.003) - 2e-3).abs() < 1e-12);
        assert!((difference(&[3.0, 4.5], &expected) - 0.1).abs() < 0.01);
        assert!(difference(&[f64::NAN, 4.0], &expected).is_nan());
    }

    #[test]
    fn the_private_algorithms_make_the_same_step() {
        let device = Device::flex().autodiff();
        for batch_size in [1, 7] {
            let batch = batch(batch_size, &device);
            check(&MlpConfig::new().init(&device), &batch, "mlp").unwrap();
            check(&CnnConfig::new().init(&device), &batch, "cnn").unwrap();
        }
    }

    /// Checks a network on a few made-up items. The loop over single examples is one of the
    /// algorithms.
    fn assert_agreement<M, E>(model: &M, encoder: &E, classes: usize)
    where
        M: Classifier<Inputs = E::Inputs>,
        E: Encoder,
    {
        let device = Device::flex().autodiff();
        for items in [1, 3] {
            let batch = encoder.batch(encoder.made_up(items, classes), &device);
            if let Err(error) = check(model, &batch, "the network") {
                panic!("{error}");
            }
        }
    }

    #[test]
    fn residual_networks_agree_with_the_loop_for_both_blocks_and_norms() {
        let device = Device::flex().autodiff();
        let shape = ImageShape::square(3, 16);
        let small = ImageBatcher { shape, ..ImageBatcher::CIFAR10 };
        for (depth, norm) in [
            (ResNetDepth::D18, NormName::Group),
            (ResNetDepth::D18, NormName::FrozenBatch),
            (ResNetDepth::D50, NormName::Group),
        ] {
            let config = ResNetConfig::new(depth, 3).with_width(2).with_norm(norm);
            assert_agreement(&config.init(&device), &small, 3);
        }
    }

    #[test]
    fn vgg_agrees_with_the_loop_over_single_examples() {
        let device = Device::flex().autodiff();
        let config = VggConfig::new(VggDepth::D11, [3, 32, 32], 3).with_width(2);
        let model = config.with_hidden(Some(6)).init(&device);
        assert_agreement(&model, &ImageBatcher::CIFAR10, 3);
    }

    #[test]
    fn recurrent_networks_agree_with_the_loop_on_rows_and_on_words() {
        let device = Device::flex().autodiff();
        let config = RecurrentConfig::new(3).with_hidden(4);
        let images = ImageBatcher::MNIST;
        let rows = Rows { width: 28 };
        assert_agreement(&config.rnn(rows.clone(), &device), &images, 3);
        assert_agreement(&config.lstm(rows, &device), &images, 3);
        let texts = TextBatcher { length: 7, vocabulary: 9 };
        let words = Words::trained(9, 5, &device);
        assert_agreement(&config.rnn(words.clone(), &device), &texts, 3);
        assert_agreement(&config.lstm(words, &device), &texts, 3);
    }

    #[test]
    fn the_transformer_agrees_with_the_loop_on_rows_and_on_words() {
        let device = Device::flex().autodiff();
        let config = TransformerConfig::new(3, 28).with_width(4).with_feed_forward(6);
        let config = config.with_heads(2);
        let rows = config.init(Rows { width: 28 }, &device);
        assert_agreement(&rows, &ImageBatcher::MNIST, 3);
        let texts = TextBatcher { length: 7, vocabulary: 9 };
        for width in [4, 5] {
            let words = config.init(Words::trained(9, width, &device), &device);
            assert_agreement(&words, &texts, 3);
        }
    }

    /// Subtracts the mean of the batch from each image: a single image becomes zero.
    #[derive(burn::module::Module, Debug)]
    struct Mixing {
        mlp: burn_dp_examples::models::Mlp,
    }

    impl Classifier for Mixing {
        type Inputs = Tensor<4>;

        fn forward(&self, images: Tensor<4>) -> Tensor<2> {
            let mean = images.clone().mean_dim(0);
            self.mlp.forward(images - mean)
        }
    }

    #[test]
    fn a_model_on_which_the_algorithms_differ_is_reported() {
        let device = Device::flex().autodiff();
        let model = Mixing { mlp: MlpConfig::new().init(&device) };
        let error = check(&model, &batch(4, &device), "mixing").unwrap_err().to_string();
        assert!(error.contains("Nxbp") && error.contains("disagree"), "{error}");
    }
}
