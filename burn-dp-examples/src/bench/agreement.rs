//! The private algorithms must make the same step before they are compared.

use burn::module::{ModuleVisitor, Param};
use burn::optim::SgdConfig;
use burn::tensor::Tensor;
use burn_dp::random::InsecureSeed;

use super::Algorithm;
use super::contender::Contender;
use crate::data::Batch;
use crate::models::Classifier;
use crate::training::TrainError;

/// Relative difference that rounding in single precision explains.
const TOLERANCE: f64 = 1e-4;

/// Noise that does not hide the clipped sum.
const NOISE_MULTIPLIER: f64 = 1e-3;

/// Lets each private algorithm make one step of plain SGD from the same model, with the same noise,
/// and compares the updates: they are the clipped sums, up to the same noise and the same factor.
///
/// # Errors
///
/// When an update differs from that of book-keeping, naming the algorithm and the difference.
pub(super) fn check<M: Classifier>(
    model: &M,
    batch: &Batch<M::Inputs>,
    what: &str,
) -> Result<(), TrainError> {
    let [reference, others @ ..] = Algorithm::PRIVATE;
    let expected = update(reference, model, batch)?;
    let norm = norm(expected.iter().copied());
    for algorithm in others {
        let found = update(algorithm, model, batch)?;
        let difference = self::norm(found.iter().zip(&expected).map(|(a, b)| a - b)) / norm;
        // Written so that NaN fails as well.
        let same = found.len() == expected.len() && difference <= TOLERANCE;
        if !same {
            let reason = format!(
                "{algorithm:?} and {reference:?} disagree on the clipped sum of {what}: relative \
                 difference {difference:e}, allowed are {TOLERANCE:e}"
            );
            return Err(TrainError::option("--algorithms", reason));
        }
    }
    Ok(())
}

/// What one step adds to the parameters.
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

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}

/// All parameters, one after the other.
#[derive(Default)]
struct Values(Vec<f64>);

impl ModuleVisitor for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.extend(param.val().into_data().convert::<f64>().iter::<f64>());
    }
}

/// Checks that all private algorithms, the loop over single examples among them, make the same step
/// of a model on a few made-up items.
#[cfg(test)]
pub(crate) fn assert_agreement<M, E>(model: &M, encoder: &E, classes: usize)
where
    M: Classifier<Inputs = E::Inputs>,
    E: crate::data::Encoder,
{
    let device = burn::tensor::Device::flex().autodiff();
    for items in [1, 3] {
        let batch = encoder.batch(encoder.made_up(items, classes), &device);
        if let Err(error) = check(model, &batch, "the network") {
            panic!("{error}");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::data::dataloader::batcher::Batcher;
    use burn::tensor::Device;

    use super::*;
    use crate::data::{Encoder, ImageBatcher};
    use crate::models::{CnnConfig, MlpConfig};

    fn batch(size: usize, device: &Device) -> Batch<Tensor<4>> {
        ImageBatcher::MNIST.batch(ImageBatcher::MNIST.made_up(size, 10), device)
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

    /// Takes the mean of the batch off each image: one at a time, nothing is left of them.
    #[derive(burn::module::Module, Debug)]
    struct Mixing {
        mlp: crate::models::Mlp,
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
