//! The layers that have a private twin.

use std::fmt;

/// How the norms of the per-example gradients of a layer's parameters are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NormRule {
    /// For every weight the cheaper of ghost norm and instantiation; biases, scales and shifts are
    /// instantiated, as they are no larger than what was recorded. So are the weights of a
    /// convolution that is used several times or whose units have several rows, within the memory
    /// bound or in chunks.
    Planned,
    /// From the recorded tensors alone; the gradients are never formed.
    Ghost,
    /// The gradients are formed, as they are no larger than what was recorded.
    Instantiated,
    /// That of the layer that is wrapped.
    Wrapped,
}

impl fmt::Display for NormRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Planned => "ghost or instantiated",
            Self::Ghost => "ghost",
            Self::Instantiated => "instantiated",
            Self::Wrapped => "that of the wrapped",
        })
    }
}

/// What is private of one layer of Burn.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LayerSupport {
    /// Name of Burn's type.
    pub layer: &'static str,
    /// Options that the layer has, all of them supported.
    pub options: &'static str,
    /// What the per-example gradients follow from.
    pub rule: &'static str,
    /// How their norms are reached.
    pub norms: NormRule,
    /// The test that compares the layer with the loop over single examples.
    pub test: &'static str,
    /// The backends on which it was run and passed, by the names of their features.
    pub backends: &'static [&'static str],
}

/// The backends of `cargo xtask test --backend wgpu`.
const TESTED: &[&str] = &["flex", "ndarray", "wgpu"];

const fn row(
    layer: &'static str,
    options: &'static str,
    rule: &'static str,
    norms: NormRule,
    test: &'static str,
) -> LayerSupport {
    LayerSupport { layer, options, rule, norms, test, backends: TESTED }
}

use NormRule::{Ghost, Instantiated, Planned, Wrapped};

/// The layers of Burn that have a private twin.
///
/// The rules are written once, on Burn's tensors, so every row is meant for every backend; the last
/// column says on which of them its test passed, without and with gradient checkpointing. `cargo
/// xtask test` runs it on Flex and NdArray each time, `cargo xtask test --backend wgpu` also on
/// WGPU, with fusion. All rows were run there on a software driver, without autotuning; continuous
/// integration runs those of the primitives.
#[rustfmt::skip]
pub const LAYERS: &[LayerSupport] = &[
    row("Linear",
        "bias, layout, any rank of input",
        "outer products of input and output gradient, summed over positions",
        Planned, "positions_are_summed_before_the_norm"),
    row("Conv1d",
        "bias, stride, padding (also asymmetric), dilation, groups",
        "as linear, on the patches that the kernel sees",
        Planned, "every_option_of_a_convolution_over_time_equals_the_loop_over_examples"),
    row("Conv2d",
        "bias, stride, padding (also asymmetric), dilation, groups",
        "as linear, on the patches that the kernel sees",
        Planned, "every_option_of_a_convolution_equals_the_loop_over_examples"),
    row("Conv3d",
        "bias, stride, padding, dilation, groups",
        "as linear, on the patches that the kernel sees",
        Planned, "every_option_of_a_convolution_over_volumes_equals_the_loop_over_examples"),
    row("ConvTranspose1d",
        "bias, stride, padding, output padding, dilation, groups",
        "as a convolution, with input and output gradient exchanged",
        Planned, "transposed_convolutions_over_time_equal_the_loop_over_examples"),
    row("ConvTranspose2d",
        "bias, stride, padding, output padding, dilation, groups",
        "as a convolution, with input and output gradient exchanged",
        Planned, "every_option_of_a_transposed_convolution_equals_the_loop_over_examples"),
    row("ConvTranspose3d",
        "bias, stride, padding, output padding, dilation, groups",
        "as a convolution, with input and output gradient exchanged",
        Planned, "transposed_convolutions_over_volumes_equal_the_loop_over_examples"),
    row("DeformConv2d",
        "bias, stride, padding, dilation, groups, offset groups, mask",
        "as linear, on the samples that the kernel sees",
        Planned, "deformable_convolutions_equal_the_loop_over_examples"),
    row("Embedding",
        "reuse, tied output layer (then as linear)",
        "output gradients of equal ids are added",
        Ghost, "embeddings_equal_the_loop_over_examples"),
    row("LayerNorm",
        "no beta, epsilon",
        "normalised input times output gradient",
        Instantiated, "layer_norms_equal_the_loop_over_examples"),
    row("RmsNorm",
        "epsilon",
        "normalised input times output gradient",
        Instantiated, "rms_norms_equal_the_loop_over_examples"),
    row("GroupNorm",
        "groups, epsilon, not affine",
        "normalised input times output gradient",
        Instantiated, "group_norms_equal_the_loop_over_examples"),
    row("InstanceNorm",
        "epsilon, not affine",
        "normalised input times output gradient",
        Instantiated, "instance_norms_equal_the_loop_over_examples"),
    row("BatchNorm",
        "stored statistics only",
        "normalised input times output gradient",
        Instantiated, "a_batch_norm_with_stored_statistics_equals_the_loop_over_examples"),
    row("PRelu",
        "one parameter or one a channel",
        "negative input times output gradient",
        Instantiated, "parametric_relus_equal_the_loop_over_examples"),
    row("Param<Tensor>",
        "any rank, any reuse",
        "output gradient of the copy of each example",
        Instantiated, "bare_parameters_equal_the_loop_over_examples"),
    row("GateController",
        "bias",
        "two linear layers",
        Planned, "one_gate_equals_the_loop_over_examples"),
    row("Rnn",
        "bias, batch_first, reverse, clip, every activation, state in and out",
        "as linear, the sequence as positions",
        Planned, "every_option_of_an_rnn_equals_the_loop_over_examples"),
    row("BiRnn",
        "as Rnn",
        "two RNNs",
        Planned, "every_option_of_a_bidirectional_layer_equals_the_loop_over_examples"),
    row("Gru",
        "bias, reset_after, clip, every activation, state in",
        "as linear, the sequence as positions",
        Planned, "every_option_of_a_gru_equals_the_loop_over_examples"),
    row("BiGru",
        "as Gru, batch_first, state out",
        "two GRUs",
        Planned, "every_option_of_a_bidirectional_layer_equals_the_loop_over_examples"),
    row("Lstm",
        "bias, batch_first, reverse, clip, input_forget, every activation, state in and out",
        "as linear, the sequence as positions",
        Planned, "every_option_of_an_lstm_equals_the_loop_over_examples"),
    row("BiLstm",
        "as Lstm",
        "two LSTMs",
        Planned, "every_option_of_a_bidirectional_layer_equals_the_loop_over_examples"),
    row("MultiHeadAttention",
        "self and cross, masks, biases, quiet softmax, min_float, dropout, cache",
        "four linear layers",
        Planned, "every_option_of_self_attention_equals_the_loop_over_examples"),
    row("CrossAttention",
        "grouped heads, mask, quiet softmax, min_float, dropout, cache (`PrivateCrossAttention`)",
        "four linear layers",
        Planned, "every_option_of_cross_attention_equals_the_loop_over_examples"),
    row("PositionWiseFeedForward",
        "every activation, dropout",
        "two linear layers",
        Planned, "a_feed_forward_layer_equals_the_loop_over_examples"),
    row("TransformerEncoder",
        "norm_first, masks, quiet softmax, activation, layer_norm_eps, dropout, cache",
        "attention, feed-forward and layer norms",
        Planned, "every_option_of_an_encoder_equals_the_loop_over_examples"),
    row("TransformerEncoderLayer",
        "as TransformerEncoder",
        "attention, feed-forward and layer norms",
        Planned, "every_option_of_an_encoder_equals_the_loop_over_examples"),
    row("TransformerDecoder",
        "as TransformerEncoder, masks of the memory",
        "attention, feed-forward and layer norms",
        Planned, "every_option_of_a_decoder_equals_the_loop_over_examples"),
    row("TransformerDecoderLayer",
        "as TransformerDecoder",
        "attention, feed-forward and layer norms",
        Planned, "every_option_of_a_decoder_equals_the_loop_over_examples"),
    row("SwiGlu",
        "bias, layout",
        "two linear layers",
        Planned, "a_gated_linear_unit_equals_the_loop_over_examples"),
    row("Activation",
        "every activation",
        "that of the wrapped",
        Wrapped, "every_activation_equals_the_loop_over_examples"),
    row("Normalization",
        "every norm",
        "that of the wrapped",
        Wrapped, "every_normalization_equals_the_loop_over_examples"),
];

/// [`LAYERS`] as a table in Markdown.
pub fn layer_table() -> String {
    let mut table =
        String::from("| layer | options | rule | norms | test | on |\n|---|---|---|---|---|---|\n");
    for LayerSupport { layer, options, rule, norms, test, backends } in LAYERS {
        let backends = backends.join(", ");
        table += &format!("| `{layer}` | {options} | {rule} | {norms} | `{test}` | {backends} |\n");
    }
    table
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use crate::nn::private::WRAPPED;

    #[test]
    fn the_table_lists_what_can_be_wrapped() {
        let wrapped: BTreeSet<&str> = WRAPPED
            .iter()
            .map(|path| path.rsplit("::").next().unwrap().trim())
            // Reached without `Private<M>`.
            .chain(["Param<Tensor>", "CrossAttention"])
            .collect();
        let listed: BTreeSet<&str> = LAYERS.iter().map(|row| row.layer).collect();
        assert_eq!(listed, wrapped);
        assert_eq!(listed.len(), LAYERS.len(), "a layer is listed twice");
    }

    #[test]
    fn the_tests_of_the_table_exist() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/grads/oracle");
        let source: String = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
            .collect();
        for LayerSupport { layer, test, .. } in LAYERS {
            let head = format!("#[test]\nfn {test}(");
            let (_, rest) = source.split_once(&head).unwrap_or_else(|| panic!("{layer}: {test}"));
            let (body, _) = rest.split_once("\n}\n").unwrap();
            assert!(body.contains("for device in training_devices() {"), "{layer}: {test}");
        }
    }

    #[test]
    fn the_backends_of_the_table_are_among_the_test_devices() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/test_devices.rs");
        let source = std::fs::read_to_string(path).unwrap();
        let (_, rest) = source.split_once("pub(crate) fn devices()").unwrap();
        let (body, _) = rest.split_once("\n}\n").unwrap();
        let missing = TESTED.iter().find(|name| !body.contains(&format!("feature = \"{name}\"")));
        assert_eq!(missing, None);
    }

    /// Compares the table with the README, or writes it there if `UPDATE_README` is set.
    #[test]
    fn the_readme_has_the_table_of_the_code() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
        let (begin, end) = ("<!-- layers: from `nn::LAYERS` -->\n", "<!-- end of layers -->");
        let readme = std::fs::read_to_string(&path).unwrap();
        let (before, rest) = readme.split_once(begin).unwrap();
        let (found, after) = rest.split_once(end).unwrap();
        let expected = layer_table();
        if std::env::var_os("UPDATE_README").is_some() {
            std::fs::write(&path, [before, begin, &expected, end, after].concat()).unwrap();
            return;
        }
        assert_eq!(found, expected, "run this test with `UPDATE_README=1`");
    }
}
