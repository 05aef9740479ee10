//! The vision transformer.

use burn::module::{Module, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{LayerNorm, Linear};
use burn::tensor::{Device, Tensor};
use burn_dp::nn::{IntoPrivate, Private};

use crate::attention::attend;
use crate::init::{linear, norm};
use crate::{ActivationFunction, ImageClassifier, VitConfig};

/// A vision transformer that classifies images by its class token.
///
/// # References
///
/// Dosovitskiy et al., An image is worth 16x16 words, 2021, section 3.1.
#[derive(Module, Debug)]
pub struct VitClassifier {
    vit: VitEncoder,
    classifier: Private<Linear>,
}

#[derive(Module, Debug)]
struct VitEncoder {
    embeddings: VitEmbeddings,
    encoder: VitLayers,
    layernorm: Private<LayerNorm>,
}

#[derive(Module, Debug)]
struct VitEmbeddings {
    cls_token: Private<Param<Tensor<3>>>,
    position_embeddings: Private<Param<Tensor<3>>>,
    patch_embeddings: Patches,
}

#[derive(Module, Debug)]
struct Patches {
    projection: Private<Conv2d>,
}

#[derive(Module, Debug)]
struct VitLayers {
    layer: Vec<VitLayer>,
}

#[derive(Module, Debug)]
struct VitLayer {
    layernorm_before: Private<LayerNorm>,
    attention: VitAttention,
    layernorm_after: Private<LayerNorm>,
    intermediate: VitDense,
    output: VitDense,
    heads: usize,
    #[module(skip)]
    activation: ActivationFunction,
}

#[derive(Module, Debug)]
struct VitAttention {
    attention: Projections,
    output: VitDense,
}

#[derive(Module, Debug)]
struct Projections {
    query: Private<Linear>,
    key: Private<Linear>,
    value: Private<Linear>,
}

#[derive(Module, Debug)]
struct VitDense {
    dense: Private<Linear>,
}

impl VitClassifier {
    /// Creates a model with random weights.
    pub fn new(config: &VitConfig, classes: usize, device: &Device) -> Self {
        let (width, epsilon) = (config.hidden_size, config.layer_norm_eps);
        let dense = |d_input, d_output| VitDense { dense: linear(d_input, d_output, device) };
        let project = || linear(width, width, device);
        let layer = |_| VitLayer {
            layernorm_before: norm(width, epsilon, device),
            attention: VitAttention {
                attention: Projections { query: project(), key: project(), value: project() },
                output: dense(width, width),
            },
            layernorm_after: norm(width, epsilon, device),
            intermediate: dense(width, config.intermediate_size),
            output: dense(config.intermediate_size, width),
            heads: config.num_attention_heads,
            activation: config.hidden_act,
        };
        let zeros = |rows| Param::from_tensor(Tensor::zeros([1, rows, width], device)).private();
        let patch = [config.patch_size; 2];
        let projection = Conv2dConfig::new([config.num_channels, width], patch).with_stride(patch);
        Self {
            vit: VitEncoder {
                embeddings: VitEmbeddings {
                    cls_token: zeros(1),
                    position_embeddings: zeros(config.patches() + 1),
                    patch_embeddings: Patches { projection: projection.init(device).private() },
                },
                encoder: VitLayers { layer: (0..config.num_hidden_layers).map(layer).collect() },
                layernorm: norm(width, epsilon, device),
            },
            classifier: linear(width, classes, device),
        }
    }
}

/// Images have the side of the configuration.
impl ImageClassifier for VitClassifier {
    fn features(&self, images: Tensor<4>) -> Tensor<2> {
        let rows = images.dims()[0];
        let VitEmbeddings { cls_token, position_embeddings, patch_embeddings } =
            &self.vit.embeddings;
        let patches = patch_embeddings.projection.forward(images);
        let patches = patches.flatten::<3>(2, 3).swap_dims(1, 2);
        let [_, _, width] = patches.dims();
        let class = cls_token.forward::<4>(rows).reshape([rows, 1, width]);
        let embedded = Tensor::cat(vec![class, patches], 1);
        let [_, length, _] = embedded.dims();
        let positions = position_embeddings.forward::<4>(rows).reshape([rows, length, width]);
        let layers = self.vit.encoder.layer.iter();
        let hidden = layers.fold(embedded + positions, |hidden, layer| layer.forward(hidden));
        let class = self.vit.layernorm.forward(hidden).narrow(1, 0, 1);
        class.reshape([rows, width])
    }

    fn head(&self) -> &Private<Linear> {
        &self.classifier
    }

    fn with_head(self, head: Private<Linear>) -> Self {
        Self { classifier: head, ..self }
    }
}

impl VitLayer {
    fn forward(&self, input: Tensor<3>) -> Tensor<3> {
        let Projections { query, key, value } = &self.attention.attention;
        let normalized = self.layernorm_before.forward(input.clone());
        let projected = [query, key, value].map(|layer| layer.forward(normalized.clone()));
        let context = attend(projected, self.heads, None);
        let hidden = input + self.attention.output.dense.forward(context);
        let inner = self.layernorm_after.forward(hidden.clone());
        let inner = self.activation.forward(self.intermediate.dense.forward(inner));
        hidden + self.output.dense.forward(inner)
    }
}
