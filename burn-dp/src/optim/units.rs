//! Steps whose units are not rows of a batch.

use burn::module::{Flag, Module, ModuleVisitor, Param};

use super::DpOptimizer;
use crate::DpError;
use crate::units::{UnitUpdate, clip_updates, private_copy};

impl DpOptimizer {
    /// Adds the clipped updates of units of the draw: what [`backward`](Self::backward) does for the
    /// rows of a batch. Every drawn unit must be given exactly once, in one call or in several, also
    /// when its update is zero.
    ///
    /// # Arguments
    ///
    /// - `units`: what `update` needs of each unit, for example its index
    /// - `update`: gets a copy of `model` of its own and one unit
    ///
    /// # Privacy
    ///
    /// As [`clip_updates`].
    ///
    /// # Errors
    ///
    /// Those of [`clip_updates`], and [`DpError::UnsupportedModel`] if `update` changed a stored value of
    /// `model` itself. Nothing was added then; [`discard`](Self::discard) the logical batch before
    /// working it off again.
    ///
    /// # Example
    ///
    /// One backward pass for each example, without private layers:
    ///
    /// ```
    /// # use burn::{module::Module, nn::{Linear, LinearConfig}, optim::SgdConfig, tensor::{Device, Tensor}};
    /// # use burn_dp::{DpError, optim::PrivacyPlanConfig, units::UnitUpdate};
    /// # fn main() -> Result<(), DpError> {
    /// let device = Device::flex().autodiff();
    /// let model: Linear = LinearConfig::new(1, 1).init(&device);
    /// let plan = PrivacyPlanConfig::new(100, 10.0).with_steps(1).with_noise_multiplier(1.0).init()?;
    /// let draw = plan.sampler()?.draw(0)?;
    /// let mut optim = plan.optimizer(SgdConfig::new().init());
    /// optim.unit_updates(&model, draw.private_indices(), |model: Linear, &example| {
    ///     let x = Tensor::<2>::full([1, 1], example as f32, &device);
    ///     let loss = (model.forward(x.clone()) - x).powi_scalar(2).reshape([1]);
    ///     UnitUpdate::gradient(&model, loss)
    /// })?;
    /// let model = optim.step(0.1, model, draw)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn unit_updates<M: Module, U>(
        &mut self,
        model: &M,
        units: impl IntoIterator<Item = U>,
        update: impl FnMut(M, U) -> Result<UnitUpdate, DpError>,
    ) -> Result<(), DpError> {
        self.look(model)?;
        let thresholds = self.thresholds()?;
        let sum = clip_updates(&thresholds, model, units, update)?;
        self.look(model)?;
        let mut find = TrainingBatchNorm::default();
        model.visit(&mut find);
        if find.found {
            self.note(
                "running_statistics",
                "not learned: private batches changed copies of the model only; the model has those \
                 it began with, or others computed on public data",
            );
        }
        self.accumulate(sum)
    }

    /// Compares the stored values of `model` before and after the first updates.
    fn look<M: Module>(&mut self, model: &M) -> Result<(), DpError> {
        if self.buffers.is_done() {
            return Ok(());
        }
        // The copy has what the running states of the original hold back.
        self.buffers.look(&private_copy(model))
    }
}

/// Looks for a BatchNorm in training mode.
#[derive(Default)]
struct TrainingBatchNorm {
    containers: Vec<String>,
    found: bool,
}

impl ModuleVisitor for TrainingBatchNorm {
    fn enter_module(&mut self, _name: &str, container_type: &str) {
        self.containers.push(container_type.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.containers.pop();
    }

    fn visit_flag(&mut self, flag: &Param<Flag>) {
        let inside = self.containers.iter().any(|name| name == "Struct:BatchNorm");
        self.found |= inside && flag.val().is_enabled();
    }
}
