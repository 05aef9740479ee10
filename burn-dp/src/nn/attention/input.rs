use burn::tensor::{Bool, Tensor};

/// Input of a private [`MultiHeadAttention`](burn::nn::attention::MultiHeadAttention), built like
/// Burn's input, whose fields are private.
#[derive(Clone, Debug)]
pub struct MhaInput {
    pub(super) query: Tensor<3>,
    pub(super) key: Tensor<3>,
    pub(super) value: Tensor<3>,
    pub(super) mask_pad: Option<Tensor<2, Bool>>,
    pub(super) mask_attn: Option<Tensor<3, Bool>>,
}

impl MhaInput {
    /// Creates the input of self-attention: query, key and value are the same tensor.
    ///
    /// # Shapes
    ///
    /// - tensor: `[batch_size, positions, d_model]`
    pub fn self_attn(tensor: Tensor<3>) -> Self {
        Self::new(tensor.clone(), tensor.clone(), tensor)
    }

    /// Creates an input without masks.
    ///
    /// # Shapes
    ///
    /// - query: `[batch_size, positions_1, d_model]`
    /// - key, value: `[batch_size, positions_2, d_model]`
    pub fn new(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>) -> Self {
        Self { query, key, value, mask_pad: None, mask_attn: None }
    }

    /// Masks the positions of the key that are `true`: `[batch_size, positions_2]`.
    pub fn mask_pad(mut self, mask: Tensor<2, Bool>) -> Self {
        self.mask_pad = Some(mask);
        self
    }

    /// Masks the pairs of positions that are `true`: `[batch_size, positions_1, positions_2]`.
    pub fn mask_attn(mut self, mask: Tensor<3, Bool>) -> Self {
        self.mask_attn = Some(mask);
        self
    }

    /// Replaces both masks.
    pub(in crate::nn) fn with_masks(
        mut self,
        pad: Option<Tensor<2, Bool>>,
        attn: Option<Tensor<3, Bool>>,
    ) -> Self {
        self.mask_pad = pad;
        self.mask_attn = attn;
        self
    }
}
