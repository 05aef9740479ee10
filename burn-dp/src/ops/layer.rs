use burn::module::ParamId;
use burn::tensor::ops::ConvOptions;

/// Which parameters a primitive was called with.
#[derive(Clone, Copy, Debug)]
pub struct LayerIds {
    pub(crate) weight: ParamId,
    pub(crate) bias: Option<ParamId>,
}

/// How the gradients of a layer's parameters follow from its input and the gradient of its output.
#[derive(Clone, Debug)]
pub(crate) enum LayerRule {
    /// `output = input @ weight + bias`, `weight: [d_input, d_output]`.
    Linear,
    /// `weight: [channels_out, channels_in / groups, kernel_height, kernel_width]`.
    Conv2d {
        /// Shape of the weight.
        weight: [usize; 4],
        /// Options of the forward pass.
        options: ConvOptions<2>,
    },
}
