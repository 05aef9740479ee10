use burn::module::{Module, ModuleDisplay};
use burn::tensor::{Bool, Tensor};

use crate::data::Inputs;

/// How a network reads its inputs one vector after the other.
pub trait Sequence: Module + ModuleDisplay {
    /// What is read.
    type Inputs: Inputs;

    /// Length of the vectors.
    fn width(&self) -> usize;

    /// The vectors, and where there is only padding.
    ///
    /// # Shapes
    ///
    /// - output: `[batch_size, length, width]` and, for texts, `[batch_size, length]`
    fn vectors(&self, inputs: Self::Inputs) -> (Tensor<3>, Option<Tensor<2, Bool>>);

    /// One vector for each example, from the states of a recurrent network.
    ///
    /// # Shapes
    ///
    /// - states: `[batch_size, length, width]`
    /// - output: `[batch_size, width]`
    fn summary(&self, states: Tensor<3>, padding: Option<Tensor<2, Bool>>) -> Tensor<2>;
}

/// The rows of an image from top to bottom; the state after the last one is the summary.
#[derive(Module, Debug)]
pub struct Rows {
    /// Number of values of a row, all channels together.
    pub width: usize,
}

impl Sequence for Rows {
    type Inputs = Tensor<4>;

    fn width(&self) -> usize {
        self.width
    }

    fn vectors(&self, images: Tensor<4>) -> (Tensor<3>, Option<Tensor<2, Bool>>) {
        (images.swap_dims(1, 2).flatten(2, 3), None)
    }

    fn summary(&self, states: Tensor<3>, _padding: Option<Tensor<2, Bool>>) -> Tensor<2> {
        let [_, length, _] = states.dims();
        states.narrow(1, length - 1, 1).squeeze_dim(1)
    }
}

