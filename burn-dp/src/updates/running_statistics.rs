//! The values that a forward pass stores in a model.

use burn::module::Module;

use crate::PublicData;
pub use crate::model::private_copy;

/// Returns the model with running statistics from public data. A BatchNorm that was trained on
/// private batches needs them for inference.
///
/// Running statistics are moving averages. With Burn's momentum of 0.1, the previous values have a
/// weight of less than 1% after 50 calls of `forward`.
///
/// # Arguments
///
/// - `data`: batches of public items; see [`PublicData::batches`]
/// - `calls`: number of calls of `forward`; the batches take turns
/// - `forward`: is called with the model in training mode
///
/// # Privacy
///
/// The result depends on `data`, on the parameters of `model`, and on its previous statistics,
/// which keep a weight of 0.9 to the power of `calls`: 35% after ten calls. A private model stays
/// private if these do not come from private batches.
/// [`DpOptimizer::unit_updates`](crate::optim::DpOptimizer::unit_updates) computes on copies and
/// leaves them as they are; a program that calls `forward` on private data must do so on a
/// [`private_copy`]. Name the data in the statement with
/// [`DpOptimizer::name_public_data`](crate::optim::DpOptimizer::name_public_data).
///
/// # Example
///
/// ```
/// use burn::nn::BatchNormConfig;
/// use burn::tensor::{Device, Tensor};
/// use burn_dp::PublicSource;
/// use burn_dp::updates::public_statistics;
///
/// # fn main() -> Result<(), burn_dp::DpError> {
/// let device = Device::flex().autodiff();
/// let norm = BatchNormConfig::new(3).with_momentum(1.0).init(&device);
/// let fives = Tensor::<2>::ones([4, 3], &device) * 5.0;
/// let public = PublicSource::generated("fives").data(vec![fives])?;
/// let norm = public_statistics(norm, &public, 1, |norm, batch| {
///     norm.forward(batch.clone());
/// });
/// norm.running_mean.value().into_data().assert_eq(&[5.0f32, 5.0, 5.0].into(), false);
/// # Ok(())
/// # }
/// ```
pub fn public_statistics<M: Module, B>(
    model: M,
    data: &PublicData<B>,
    calls: usize,
    mut forward: impl FnMut(&M, &B),
) -> M {
    let copy = private_copy(&model);
    for batch in data.items().iter().cycle().take(calls) {
        forward(&copy, batch);
    }
    // A running state delays its last update; the copy of the copy has it.
    private_copy(&copy)
}
