//! The audited training run: a small model with a known gradient for every unit.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::tensor::{Device, Tensor, TensorData};
use burn_dp::DpError;
use burn_dp::nn::{IntoPrivate, Private};
use burn_dp::optim::{DpOptimizer, PrivacyPlan};
use burn_dp::sampling::Sampler;

/// A sum of linear layers with one output each. The loss of a unit is its output, so its gradient
/// in every layer is its input, regardless of the weights.
#[derive(Module, Debug)]
pub(super) struct Probe {
    layers: Vec<Private<Linear>>,
}

impl Probe {
    pub(super) fn new(width: usize, layers: usize, device: &Device) -> Self {
        let layer = || LinearConfig::new(width, 1).with_bias(false).init(device).private();
        Self { layers: (0..layers).map(|_| layer()).collect() }
    }

    fn losses(&self, x: &Tensor<2>) -> Tensor<1> {
        let outputs = self.layers.iter().map(|layer| layer.forward(x.clone()));
        let sum = outputs.reduce(|sum, output| sum + output);
        sum.unwrap_or_else(|| x.clone()).flatten(0, 1)
    }

    /// Returns the weights of each layer.
    fn weights(&self) -> Result<Vec<Vec<f32>>, DpError> {
        let mut weights = Vec::new();
        for layer in &self.layers {
            let data = layer.clone().into_inner().weight.val().into_data();
            weights.push(data.try_to_vec::<f32>().map_err(|error| DpError::InvalidState {
                reason: format!("the weights cannot be read: {error:?}"),
            })?);
        }
        Ok(weights)
    }
}

/// One private training run of the model with plain SGD, step by step. The released sums are
/// computed from the model before and after each step, as by an attacker who sees every model.
pub(super) struct ObservedRun {
    model: Option<Probe>,
    optim: DpOptimizer,
    sampler: Box<dyn Sampler>,
    width: usize,
    device: Device,
}

impl ObservedRun {
    pub(super) fn new(plan: PrivacyPlan, model: &Probe, width: usize) -> Result<Self, DpError> {
        let device = Device::flex().autodiff();
        let sampler = plan.sampler()?;
        let optim = plan.optimizer(SgdConfig::new().init()).with_independence_check(false);
        Ok(Self { model: Some(model.clone()), optim, sampler, width, device })
    }

    /// Runs one step. `input` returns the input of a unit: its nonzero places.
    ///
    /// Returns the noisy sum of each layer, before it is divided by the expected batch size, and
    /// the number of drawn units.
    pub(super) fn step(
        &mut self,
        input: impl Fn(usize) -> Vec<(usize, f64)>,
    ) -> Result<(Vec<Vec<f64>>, usize), DpError> {
        let state = || DpError::InvalidState { reason: "an earlier step failed".into() };
        let model = self.model.take().ok_or_else(state)?;
        let draw = self.sampler.draw(self.optim.next_step())?;
        let drawn = draw.private_indices().len();
        self.optim.backward(&model, &draw, |model: &Probe, units| {
            let mut rows = vec![0f32; units.len() * self.width];
            for (row, unit) in rows.chunks_mut(self.width).zip(units) {
                input(unit).into_iter().for_each(|(place, value)| row[place] = value as f32);
            }
            let rows = TensorData::new(rows, [drawn, self.width]);
            model.losses(&Tensor::from_data(rows, &self.device))
        })?;
        let before = model.weights()?;
        let model = self.optim.step(1.0, model, draw)?;
        let after = model.weights()?;
        let batch = self.optim.plan().expected_batch_size();
        let sums = before.iter().zip(&after).map(|(before, after)| {
            let changes = before.iter().zip(after);
            changes.map(|(b, a)| (f64::from(*b) - f64::from(*a)) * batch).collect()
        });
        let sums = sums.collect();
        self.model = Some(model);
        Ok((sums, drawn))
    }

    /// Returns the clipping threshold of the next step.
    pub(super) fn threshold(&mut self) -> Result<f64, DpError> {
        Ok(self.optim.thresholds()?.total_norm())
    }
}

/// Returns the sum of all layers at each place.
pub(super) fn over_layers(sums: &[Vec<f64>]) -> Vec<f64> {
    let width = sums.first().map_or(0, Vec::len);
    (0..width).map(|place| sums.iter().map(|layer| layer[place]).sum()).collect()
}
