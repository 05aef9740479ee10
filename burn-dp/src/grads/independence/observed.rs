//! The values of each unit that are compared.

use burn::module::Module;
use burn::tensor::{DType, Device, Tensor};

use crate::DpError;
use crate::device_read::read_f64;
use crate::grads::PrivateBackward;
use crate::grads::directions::Directions;
use crate::grads::per_example::SquaredNormBounds;
use crate::model::ParameterGroups;

/// The values that one pass computed for each unit.
pub(super) struct Observed {
    /// The losses of the rows of each unit, then the norms of its gradient for each parameter, then
    /// the products of its gradient with the [direction](Directions) of each parameter:
    /// `[quantities][units]`.
    pub(super) values: Vec<Vec<f64>>,
    /// The size that the rounding of each quantity is relative to: `[quantities][units]`.
    pub(super) scales: Vec<Vec<f64>>,
    /// The proven bound of the rounding of each quantity; 0 where none is known: `[quantities]
    /// [units]`.
    pub(super) rounding: Vec<Vec<f64>>,
    /// The type of the losses, and their device.
    pub(super) precision: (DType, Device),
}

impl Observed {
    /// Runs the backward pass of the losses of `units` units.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::NotPerExample`] if there is not one loss for each row, the errors of
    /// [`PrivateBackward::run`], and [`DpError::Device`] if a value cannot be read.
    pub(super) async fn new<M: Module>(
        losses: Tensor<1>,
        units: usize,
        model: &M,
        backward: &PrivateBackward,
        groups: &ParameterGroups,
        directions: &mut Directions,
    ) -> Result<Self, DpError> {
        let (rows, copies) = (losses.dims()[0], backward.group_size());
        if rows != units * copies {
            return Err(DpError::NotPerExample {
                reason: format!(
                    "expected {copies} losses for each of {units} units, got {rows}; return one \
                     loss for each row, not their mean"
                ),
            });
        }
        let precision = (losses.dtype(), losses.device());
        let host = read_f64(losses.clone().inner(), "losses").await?;
        let grads = backward.run_checked(losses, model, &mut ()).await?;
        let SquaredNormBounds { computed, upper } = grads.squared_norm_bounds(groups).await?;
        let products = grads.products(groups, directions).await?;

        let losses = (0..copies).map(|copy| host.iter().skip(copy).step_by(copies).copied());
        let mut values: Vec<Vec<f64>> = losses.map(Iterator::collect).collect();
        let mut scales = values.clone();
        scales.iter_mut().flatten().for_each(|loss| *loss = loss.abs());
        let mut rounding = vec![vec![0.0; units]; copies];
        let total = |unit: usize| computed.iter().map(|norms| norms[unit]).sum::<f64>().sqrt();
        let norms: Vec<f64> = (0..units).map(total).collect();
        for (computed, upper) in computed.iter().zip(&upper) {
            let bound = |(norm, upper): (&f64, &f64)| upper.sqrt() - norm.sqrt();
            rounding.push(computed.iter().zip(upper).map(bound).collect());
            values.push(computed.iter().map(|norm| norm.sqrt()).collect());
            scales.push(norms.clone());
        }
        // The entries of a direction have random signs and variance 1, so a product has the size of
        // the norm, and the rounding errors of the entries add up to the size of their norm.
        for products in products {
            values.push(products);
            scales.push(norms.clone());
            rounding.push(vec![0.0; units]);
        }
        Ok(Self { values, scales, rounding, precision })
    }
}
