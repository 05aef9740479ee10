use burn::tensor::{Bool, Tensor};

/// What a private [`MultiHeadAttention`](burn::nn::attention::MultiHeadAttention) sees; built like Burn's
/// own input, whose fields are private.
#[derive(Clone, Debug)]
pub struct MhaInput {
    pub(super) query: Tensor<3>,
    pub(super) key: Tensor<3>,
    pub(super) value: Tensor<3>,
    pub(super) mask_pad: Option<Tensor<2, Bool>>,
    pub(super) mask_attn: Option<Tensor<3, Bool>>,
}

impl MhaInput {
    /// Query, key and value are the same.
    ///
    /// # Shapes
    ///
    /// - tensor: `[batch_size, positions, d_model]`
    pub fn self_attn(tensor: Tensor<3>) -> Self {
        Self::new(tensor.clone(), tensor.clone(), tensor)
    }

    /// # Shapes
    ///
    /// - query: `[batch_size, positions_1, d_model]`
    /// - key, value: `[batch_size, positions_2, d_model]`
    pub fn new(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>) -> Self {
        Self { query, key, value, mask_pad: None, mask_attn: None }
    }

    /// Hides the positions of the key that are `true`: `[batch_size, positions_2]`.
    pub fn mask_pad(mut self, mask: Tensor<2, Bool>) -> Self {
        self.mask_pad = Some(mask);
        self
    }

    /// Hides the pairs of positions that are `true`: `[batch_size, positions_1, positions_2]`.
    pub fn mask_attn(mut self, mask: Tensor<3, Bool>) -> Self {
        self.mask_attn = Some(mask);
        self
    }

    /// The input with the masks that there are.
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
