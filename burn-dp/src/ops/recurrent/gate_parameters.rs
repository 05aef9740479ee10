use burn::backend::{Backend, ExtensionType, tensor::FloatTensor};

/// Maximum number of gates in a recurrent layer.
pub(super) const GATES: usize = 4;

/// Weights, `[d, d_hidden]`, and biases, `[d_hidden]`, of the linear layers of the input or of the
/// hidden state: one per gate. Entries beyond the last gate are ignored.
///
/// They are not one tensor, because each belongs to a parameter of the model.
#[doc(hidden)]
#[derive(ExtensionType)]
#[allow(missing_docs)]
pub struct GateParameters<B: Backend> {
    pub weight_0: FloatTensor<B>,
    pub weight_1: FloatTensor<B>,
    pub weight_2: FloatTensor<B>,
    pub weight_3: FloatTensor<B>,
    pub bias_0: FloatTensor<B>,
    pub bias_1: FloatTensor<B>,
    pub bias_2: FloatTensor<B>,
    pub bias_3: FloatTensor<B>,
}

impl<B: Backend> GateParameters<B> {
    /// Takes at least one weight and one bias; the entries of missing gates repeat the first.
    pub(super) fn new(weights: Vec<FloatTensor<B>>, biases: Vec<FloatTensor<B>>) -> Self {
        let weight = |index: usize| weights.get(index).unwrap_or(&weights[0]).clone();
        let bias = |index: usize| biases.get(index).unwrap_or(&biases[0]).clone();
        Self {
            weight_0: weight(0),
            weight_1: weight(1),
            weight_2: weight(2),
            weight_3: weight(3),
            bias_0: bias(0),
            bias_1: bias(1),
            bias_2: bias(2),
            bias_3: bias(3),
        }
    }

    /// Returns weights and biases of all [`GATES`].
    pub(in crate::ops) fn into_parts(self) -> ([FloatTensor<B>; GATES], [FloatTensor<B>; GATES]) {
        (
            [self.weight_0, self.weight_1, self.weight_2, self.weight_3],
            [self.bias_0, self.bias_1, self.bias_2, self.bias_3],
        )
    }
}
