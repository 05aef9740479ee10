use burn::module::Module;
use burn::nn::attention::{CrossAttention, CrossAttentionConfig};
use burn::nn::{Dropout, DropoutConfig, Initializer, Linear, LinearConfig};
use burn::tensor::{Bool, Device, Tensor, assert_shape};

use super::super::private::{IntoPrivate, Private};
use super::{CrossAttentionCache, join_heads, mask_scores, normalize, padding, split_heads};

/// The private counterpart of [`CrossAttention`], which `Private<M>` cannot wrap because its fields
/// are private.
///
/// It has the configuration and the record of Burn's layer.
///
/// # Example
///
/// ```
/// use burn::nn::attention::CrossAttentionConfig;
/// use burn::tensor::{Device, Tensor};
/// use burn_dp::nn::PrivateCrossAttention;
///
/// let device = Device::flex().autodiff();
/// let config = CrossAttentionConfig::new(8, 6, 4, 2, 3);
/// let pretrained = config.init(&device);
/// let layer = PrivateCrossAttention::from_layer(&config, pretrained, &device);
/// let query = Tensor::<3>::ones([2, 5, 8], &device);
/// let context = Tensor::<3>::ones([2, 7, 6], &device);
/// assert_eq!(layer.forward(query, context, None).dims(), [2, 5, 8]);
/// ```
#[derive(Module, Debug)]
pub struct PrivateCrossAttention {
    query: Private<Linear>,
    key: Private<Linear>,
    value: Private<Linear>,
    output: Private<Linear>,
    dropout: Private<Dropout>,

    n_heads: usize,
    n_heads_kv: usize,
    d_head: usize,
    scale: f64,
    min_float: f64,
    quiet_softmax: bool,
}

impl PrivateCrossAttention {
    /// Creates a layer with the initial parameters of Burn's layer.
    ///
    /// # Panics
    ///
    /// Panics if `n_heads` is not a multiple of `n_heads_kv`.
    pub fn new(config: &CrossAttentionConfig, device: &Device) -> Self {
        let CrossAttentionConfig { n_heads, n_heads_kv, d_head, .. } = *config;
        assert!(
            n_heads.is_multiple_of(n_heads_kv),
            "n_heads must be a multiple of n_heads_kv, got {n_heads} and {n_heads_kv}"
        );
        let linear = |d_input, d_output| {
            let gain = 1.0 / (d_head as f64).sqrt();
            LinearConfig::new(d_input, d_output)
                .with_initializer(Initializer::KaimingUniform { gain, fan_out_only: false })
                .init(device)
                .private()
        };
        Self {
            query: linear(config.d_model, n_heads * d_head),
            key: linear(config.d_context, n_heads_kv * d_head),
            value: linear(config.d_context, n_heads_kv * d_head),
            output: linear(n_heads * d_head, config.d_model),
            dropout: DropoutConfig::new(config.dropout).init().private(),
            n_heads,
            n_heads_kv,
            d_head,
            scale: (d_head as f64).sqrt().recip(),
            min_float: config.min_float,
            quiet_softmax: config.quiet_softmax,
        }
    }

    /// Creates the counterpart of a layer that was created from `config`.
    ///
    /// Heads, dropout, `min_float` and `quiet_softmax` come from `config`, because they are private
    /// fields of Burn's layer. A different `config` with weights of the same shapes results in a
    /// different layer.
    ///
    /// # Panics
    ///
    /// Panics if `n_heads` is not a multiple of `n_heads_kv`, or if the shapes of the weights do
    /// not match `config`.
    pub fn from_layer(
        config: &CrossAttentionConfig,
        layer: CrossAttention,
        device: &Device,
    ) -> Self {
        Self::new(config, device).load_record(layer.into_record())
    }

    /// Applies the layer.
    ///
    /// # Shapes
    ///
    /// - query: `[batch_size, positions_1, d_model]`
    /// - context: `[batch_size, positions_2, d_context]`
    /// - mask: `[batch_size, positions_2]`, `true` masks a position
    /// - output: `[batch_size, positions_1, d_model]`
    ///
    /// # Privacy
    ///
    /// The mask of an example must depend on that example alone. A masked position has no weight,
    /// so the length of the padding has no effect, unless `min_float` is above Burn's default of
    /// -1e4, or all positions are masked: both as in Burn. Mask the loss of an example without a
    /// context.
    ///
    /// # Panics
    ///
    /// Panics if the batch sizes differ, or if the last axes are not `d_model` and `d_context`.
    pub fn forward(
        &self,
        query: Tensor<3>,
        context: Tensor<3>,
        mask: Option<Tensor<2, Bool>>,
    ) -> Tensor<3> {
        self.check(&query, &context);
        let key = self.project(&self.key, context.clone());
        let value = self.project(&self.value, context);
        self.attend(query, key, value, mask)
    }

    /// Applies the layer with the keys and values of the first call.
    ///
    /// Shapes and panics: see [`forward`](Self::forward).
    pub fn forward_cache(
        &self,
        query: Tensor<3>,
        context: Tensor<3>,
        mask: Option<Tensor<2, Bool>>,
        cache: &mut CrossAttentionCache,
    ) -> Tensor<3> {
        self.check(&query, &context);
        let key = cache.key.once(context.clone(), |input| self.project(&self.key, input));
        let value = cache.value.once(context, |input| self.project(&self.value, input));
        self.attend(query, key, value, mask)
    }

    fn check(&self, query: &Tensor<3>, context: &Tensor<3>) {
        let [batch_size, ..] = query.dims();
        assert_shape!(context, [batch_size, _, _]);
    }

    /// Returns `[batch_size, n_heads_kv, positions, d_head]`.
    fn project(&self, layer: &Private<Linear>, context: Tensor<3>) -> Tensor<4> {
        split_heads(layer.forward(context), self.n_heads_kv)
    }

    fn attend(
        &self,
        query: Tensor<3>,
        key: Tensor<4>,
        value: Tensor<4>,
        mask: Option<Tensor<2, Bool>>,
    ) -> Tensor<3> {
        let query = split_heads(self.query.forward(query), self.n_heads);
        let (key, value) = (self.repeat(key), self.repeat(value));
        let scores = query.matmul(key.transpose()) * self.scale;
        let scores = match mask {
            Some(mask) => mask_scores(scores, padding(mask), self.min_float),
            None => scores,
        };
        let weights = self.dropout.forward(normalize(scores, self.quiet_softmax));
        self.output.forward(join_heads(weights.matmul(value)))
    }

    /// Repeats every head of key and value for the query heads that share it.
    fn repeat(&self, heads: Tensor<4>) -> Tensor<4> {
        let copies = self.n_heads / self.n_heads_kv;
        if copies == 1 {
            return heads;
        }
        let [batch_size, count, positions, size] = heads.dims();
        if batch_size * positions == 0 {
            // Burn does not expand to an empty axis.
            let shape = [batch_size, count * copies, positions, size];
            return Tensor::zeros(shape, (&heads.device(), heads.dtype()));
        }
        heads
            .reshape([batch_size, count, 1, positions, size])
            .expand([batch_size, count, copies, positions, size])
            .reshape([batch_size, count * copies, positions, size])
    }
}
