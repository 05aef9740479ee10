//! Steps whose units are not rows of a batch.

use std::sync::Once;

use burn::module::{Flag, Module, ModuleVisitor, Param};
use burn::tensor::Tensor;

use super::DpOptimizer;
use crate::DpError;
use crate::updates::{UnitUpdate, clip_updates, private_copy};

impl DpOptimizer {
    /// Adds the clipped updates of units of the draw: what [`backward`](Self::backward) does for the
    /// rows of a batch. Every drawn unit must be given exactly once, in one call or in several, also
    /// when its update is zero. An empty draw has no units: `update` is not called, and the step is noise
    /// alone.
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
    /// # use burn_dp::DpError;
    /// # use burn_dp::optim::PrivacyPlanConfig;
    /// # use burn_dp::updates::UnitUpdate;
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
            self.engine.note(
                "running_statistics",
                "not learned: private batches changed copies of the model only; the model has those \
                 it began with, or others computed on public data",
            );
        }
        self.engine.independence.units_by_themselves();
        self.accumulate(sum)
    }

    /// The fallback for layers that have no per-example rule: one ordinary backward pass for each unit.
    /// Exact for every model, and as slow as it says; [`validate`](crate::model::validate) tells which
    /// layers ask for it.
    ///
    /// # Arguments
    ///
    /// - `units`: what `loss` needs of each unit, for example its index; every drawn unit exactly once
    /// - `loss`: the loss of one unit, computed with the copy of the model that it is given. Several values
    ///   (the augmented copies of a unit, the tokens of a text) are averaged
    ///
    /// # Privacy
    ///
    /// As [`clip_updates`]: the gradient of a unit is clipped as a whole, whatever layers it went through.
    ///
    /// # Errors
    ///
    /// As [`unit_updates`](Self::unit_updates), and [`DpError::NotPerExample`] for a loss that does not
    /// depend on a trained parameter.
    ///
    /// # Example
    ///
    /// ```
    /// # use burn::{module::{Module, Param}, optim::SgdConfig, tensor::{Device, Tensor}};
    /// # use burn_dp::{DpError, optim::PrivacyPlanConfig};
    /// /// A layer without a rule: its weight is normalised before it is used.
    /// #[derive(Module, Debug)]
    /// struct Direction {
    ///     weight: Param<Tensor<1>>,
    /// }
    ///
    /// # fn main() -> Result<(), DpError> {
    /// let device = Device::flex().autodiff();
    /// let model = Direction { weight: Param::from_tensor(Tensor::ones([3], &device)) };
    /// let plan = PrivacyPlanConfig::new(100, 10.0).with_steps(1).with_noise_multiplier(1.0).init()?;
    /// let draw = plan.sampler()?.draw(0)?;
    /// let mut optim = plan.optimizer(SgdConfig::new().init());
    /// optim.backward_each(&model, draw.private_indices(), |model: &Direction, &unit| {
    ///     let x = Tensor::<1>::full([3], unit as f32, &device);
    ///     let weight = model.weight.val();
    ///     let norm = weight.clone().square().sum().sqrt();
    ///     ((weight / norm * x).sum() - 1.0).powi_scalar(2)
    /// })?;
    /// let model = optim.step(0.1, model, draw)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn backward_each<M: Module, U>(
        &mut self,
        model: &M,
        units: impl IntoIterator<Item = U>,
        mut loss: impl FnMut(&M, U) -> Tensor<1>,
    ) -> Result<(), DpError> {
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            log::warn!(
                "one backward pass is made for each unit (`backward_each`): exact, and slower than a \
                 batch by about the size of the batch"
            );
        });
        self.unit_updates(model, units, |model, unit| {
            UnitUpdate::gradient(&model, loss(&model, unit))
        })
    }

    /// Compares the stored values of `model` before and after the first updates.
    fn look<M: Module>(&mut self, model: &M) -> Result<(), DpError> {
        if self.engine.buffers.is_done() {
            return Ok(());
        }
        // The copy has what the running states of the original hold back.
        self.engine.buffers.look(&private_copy(model))
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
