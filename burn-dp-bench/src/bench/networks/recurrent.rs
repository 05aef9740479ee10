use burn::module::{Module, ModuleDisplay};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use burn_dp_examples::models::Classifier;

use super::layer::{Forward, Layer};

/// A recurrent layer that reads the rows of an image, all colors of a row at once; its last state
/// is classified.
#[derive(Module, Debug)]
pub(super) struct Recurrent<R: Module, L: Module> {
    cell: R,
    output: L,
}

impl<R: Module, L: Layer<Linear>> Recurrent<R, L> {
    /// Creates the network around a recurrent layer with this number of units.
    pub(super) fn new(cell: R, units: usize, classes: usize, device: &Device) -> Self {
        Self { cell, output: L::of(LinearConfig::new(units, classes).init(device)) }
    }
}

impl<R, L> Classifier for Recurrent<R, L>
where
    R: Module + ModuleDisplay + Forward<3>,
    L: Layer<Linear> + Forward<2>,
{
    type Inputs = Tensor<4>;

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let [batch_size, channels, length, width] = images.dims();
        let rows = match channels {
            1 => images.squeeze_dim(1),
            _ => images.swap_dims(1, 2).reshape([batch_size, length, channels * width]),
        };
        let states = self.cell.apply(rows);
        self.output.apply(states.narrow(1, length - 1, 1).squeeze_dim(1))
    }
}
