//! A test of the independence of the examples on some items.

use burn::module::Module;
use burn::tensor::Tensor;

use super::values::compare_values;
use super::whole_batch::check_reach;
use crate::DpError;
use crate::device_read::blocking;
use crate::grads::PrivateBackward;
use crate::model::private_copy;
use crate::nn::{UnitScope, Units};
use crate::random::LayerRandomness;

/// Tests on some items, by value and by gradient, that the loss of an example depends on this
/// example alone.
///
/// By value: the loss of each example, and its gradient for each parameter, must be the same in the
/// batch of all items, in the reverse order, in half of the batch, in a larger batch, and alone, up
/// to rounding. Gradients are compared by their norms, and by their products with one random vector
/// for each parameter. By gradient: the gradient of one loss must not reach the rows
/// of other examples in any private layer.
///
/// The test costs about seven forward and backward passes of the batch, and one for each of up to
/// 16 single items. Run it once before training. Training with
/// [`DpOptimizer::backward_batch`](crate::optim::DpOptimizer::backward_batch) or `PrivateTraining`
/// runs it automatically.
///
/// # Arguments
///
/// - `items`: at least two
/// - `losses`: creates the batch of some items, like the training, and returns one loss for each
///
/// # Privacy
///
/// A test detects operations that mix the examples of the batches that it computes. It cannot prove
/// that the examples are independent in other batches. It does not detect weak effects (in single
/// precision, about a thousandth of most losses, or a hundredth of a few) or effects on a single
/// example of the batch. The random layers of the model draw known values here.
///
/// # Errors
///
/// Returns [`DpError::NotPerExample`] if an example depends on another one, if `losses` does not
/// return one value for each of at least two items, or if there is no result, because the values of
/// fewer than two items are finite. Returns the errors of
/// [`PrivateBackward::run`](crate::grads::PrivateBackward::run) if it would reject the pass.
///
/// # Example
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::{Device, Tensor};
/// use burn_dp::{check_independence, nn::IntoPrivate};
///
/// let device = Device::flex().autodiff();
/// let model = LinearConfig::new(1, 1).init(&device).private();
/// let items = [0.5f32, -1.0, 2.0, 0.25];
///
/// let x = |items: Vec<f32>| {
///     Tensor::<1>::from_floats(items.as_slice(), &device).unsqueeze_dim::<2>(1)
/// };
/// let independent = check_independence(&model, &items, |model, items| {
///     model.forward(x(items)).powi_scalar(2).reshape([-1])
/// });
/// assert!(independent.is_ok());
///
/// let mixed = check_independence(&model, &items, |model, items| {
///     let losses = model.forward(x(items)).powi_scalar(2).reshape([-1]);
///     losses.clone() / losses.mean().detach()
/// });
/// assert!(mixed.is_err());
/// ```
pub fn check_independence<M: Module, I: Clone>(
    model: &M,
    items: &[I],
    losses: impl Fn(&M, Vec<I>) -> Tensor<1>,
) -> Result<(), DpError> {
    blocking(check_independence_async(model, items, losses), "check_independence_async")
}

/// Runs [`check_independence`] without blocking the thread, as browsers require.
///
/// # Errors
///
/// Returns the errors of [`check_independence`].
pub async fn check_independence_async<M: Module, I: Clone>(
    model: &M,
    items: &[I],
    losses: impl Fn(&M, Vec<I>) -> Tensor<1>,
) -> Result<(), DpError> {
    // A pass can store statistics of the items in the model.
    let model = &private_copy(model);
    let randomness = LayerRandomness::known();
    let losses_of = |model: &M, positions: &[usize]| {
        let units = Units::Rows { units: positions.to_vec(), copies: 1 };
        let _scope = UnitScope::enter(model, &randomness, units);
        losses(model, positions.iter().map(|&position| items[position].clone()).collect())
    };
    let all: Vec<usize> = (0..items.len()).collect();
    let batch = losses_of(model, &all);
    let [rows] = batch.dims();
    if rows < 2 || rows != items.len() {
        return Err(DpError::NotPerExample {
            reason: format!(
                "expected one value for each of at least two examples, got {rows} for {} items; do \
                 not take the mean",
                items.len()
            ),
        });
    }
    check_reach(batch, model).await?;
    let mut losses_of = |model: &M, positions: &[usize]| Ok(losses_of(model, positions));
    let backward = PrivateBackward::new();
    match compare_values(model, &backward, items.len(), &mut losses_of).await? {
        Some(_) => Ok(()),
        None => Err(DpError::NotPerExample {
            reason: "the comparison of the items in different batches had no result: fewer than \
                     two items have a finite loss, finite gradients and a finite effect of \
                     rounding; check for overflow, for example in half precision, and test other \
                     items"
                .into(),
        }),
    }
}
