use burn::module::Module;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::Tensor;

use super::unit_update::{UnitUpdate, mean_gradients};
use crate::DpError;
use crate::error::positive;
use crate::model::tie;

/// Several steps of any optimizer of Burn on the data of one unit. Their total change is the
/// update.
///
/// # Privacy
///
/// All steps are within one unit. They cost nothing beyond the one release of the clipped change.
/// Every unit starts with a fresh optimizer; no state passes from one unit to the next.
///
/// # References
///
/// - McMahan, Moore, Ramage, Hampson, Agüera y Arcas, Communication-efficient learning of deep
///   networks from decentralized data, 2017, algorithm 1 (FederatedAveraging, `ClientUpdate`).
/// - Nguyen et al., Batch clipping and adaptive layerwise clipping, 2023, section 3.1 (general
///   batch clipping).
#[derive(Clone)]
pub struct LocalTraining {
    optimizer: ModuleOptimizer,
    lr: f64,
}

opaque_debug!(LocalTraining, |this| lr: this.lr);

impl LocalTraining {
    /// Creates local training with `optimizer` and the learning rate `lr`.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the learning rate is not positive and finite.
    pub fn new(optimizer: ModuleOptimizer, lr: f64) -> Result<Self, DpError> {
        positive("lr", lr)?;
        Ok(Self { optimizer, lr })
    }

    /// Returns the learning rate of the local steps.
    pub fn lr(&self) -> f64 {
        self.lr
    }

    /// Takes one step on the mean loss of each of `batches` and returns the total change. Without
    /// any batch, the update is zero.
    ///
    /// # Arguments
    ///
    /// - `model`: the copy that was given to the unit
    /// - `losses`: returns the losses of one batch, `[examples]`, or their mean, `[1]`
    ///
    /// # Errors
    ///
    /// Returns the errors of `losses`, and [`DpError::NotPerExample`] if the losses do not depend
    /// on a trained parameter.
    pub fn run<M: Module, B>(
        &self,
        model: M,
        batches: impl IntoIterator<Item = B>,
        mut losses: impl FnMut(&M, B) -> Result<Tensor<1>, DpError>,
    ) -> Result<UnitUpdate, DpError> {
        let before = model.clone();
        let mut optimizer = self.optimizer.clone();
        let mut model = model;
        for batch in batches {
            let Some(grads) = mean_gradients(losses(&model, batch)?)? else { continue };
            let grads = GradientsParams::from_grads(grads, &model);
            model = tie(optimizer.step(self.lr, model, grads));
        }
        UnitUpdate::change(&before, &model)
    }
}
