use burn::module::Module;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::Tensor;

use crate::DpError;
use crate::model::tie;
use crate::updates::UnitUpdate;

/// Several steps of any optimizer of Burn on the data of one unit, whose total change is the update.
///
/// # Privacy
///
/// All steps are inside of one unit: they cost nothing beyond the one release of the clipped change.
/// Every unit begins with a fresh optimizer; no state passes from one to the next.
///
/// # References
///
/// McMahan, Moore, Ramage, Hampson, Agüera y Arcas, Communication-efficient learning of deep networks
/// from decentralized data, 2017, algorithm 1 (FederatedAveraging, `ClientUpdate`); Nguyen et al., Batch
/// clipping and adaptive layerwise clipping, 2023, section 3.1 (general batch clipping).
#[derive(Clone)]
pub struct LocalTraining {
    optimizer: ModuleOptimizer,
    lr: f64,
}

impl std::fmt::Debug for LocalTraining {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalTraining").field("lr", &self.lr).finish_non_exhaustive()
    }
}

impl LocalTraining {
    /// Steps of `optimizer` with the learning rate `lr`.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidArgument`] for a learning rate that is not positive and finite.
    pub fn new(optimizer: ModuleOptimizer, lr: f64) -> Result<Self, DpError> {
        if !(lr > 0.0 && lr.is_finite()) {
            return Err(DpError::invalid(
                "lr",
                format!("must be positive and finite, got {lr}; try 0.1"),
            ));
        }
        Ok(Self { optimizer, lr })
    }

    /// The learning rate of the local steps.
    pub fn lr(&self) -> f64 {
        self.lr
    }

    /// One step for each of `batches`, down the mean of the losses. No batch gives the zero update.
    ///
    /// # Arguments
    ///
    /// - `model`: the copy that the unit was given
    /// - `losses`: `[examples]` of one batch, or `[1]`
    ///
    /// # Errors
    ///
    /// Those of `losses`, and [`DpError::NotPerExample`] if they do not depend on a trained parameter.
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
            let losses = losses(&model, batch)?;
            if losses.dims() == [0] {
                continue;
            }
            if !losses.is_tracked() {
                return Err(DpError::NotPerExample {
                    reason: "they do not depend on any trained parameter; compute them with the \
                             model that the closure was given, on its autodiff device"
                        .into(),
                });
            }
            let grads = GradientsParams::from_grads(losses.mean().backward(), &model);
            model = tie(optimizer.step(self.lr, model, grads));
        }
        UnitUpdate::change(&before, &model)
    }
}
