use burn::tensor::Tensor;

use super::{Cost, Restriction, Rule};

/// A bare parameter of which every example has a copy: the gradient of example i is that of its copy.
#[derive(Clone, Debug)]
pub(crate) struct Repeated {
    /// `[batch_size, values]`.
    pub(crate) output_grad: Tensor<2>,
}

impl Rule for Repeated {
    fn batch_size(&self) -> usize {
        self.output_grad.dims()[0]
    }

    fn cost(&self) -> Cost {
        Cost { values: self.output_grad.dims()[1], ..Cost::default() }
    }

    fn instantiate(&self) -> Tensor<2> {
        self.output_grad.clone()
    }

    fn restrict(&self, examples: &Restriction) -> Box<dyn Rule> {
        Box::new(Self { output_grad: examples.apply(&self.output_grad) })
    }
}
