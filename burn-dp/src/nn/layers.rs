//! The table of the supported layers.

use std::fmt;

/// How the norms of the per-example gradients of a layer are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NormRule {
    /// The planner chooses the cheaper of ghost norm and instantiation for every weight. Biases,
    /// scales and shifts are instantiated, because they are no larger than the recorded tensors.
    /// The weights of a convolution that is used several times, or whose units have several rows,
    /// are also instantiated, in parts if the memory bound requires it.
    Planned,
    /// Ghost norms: computed from the recorded tensors, without the gradients.
    Ghost,
    /// The gradients are instantiated, because they are no larger than the recorded tensors. The
    /// gradients of a standardized weight are instantiated in parts if the memory bound requires
    /// it.
    Instantiated,
    /// The rule of the wrapped layer.
    Wrapped,
    /// The layer has no parameters.
    NoParameters,
}

impl fmt::Display for NormRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Planned => "ghost or instantiated",
            Self::Ghost => "ghost",
            Self::Instantiated => "instantiated",
            Self::Wrapped => "as the wrapped layer",
            Self::NoParameters => "no parameters",
        })
    }
}

/// The support for one layer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LayerSupport {
    /// Name of Burn's type.
    pub layer: &'static str,
    /// Options of the layer. All are supported.
    pub options: &'static str,
    /// How the per-example gradients are computed.
    pub rule: &'static str,
    /// How the norms of the gradients are computed.
    pub norms: NormRule,
    /// The test that compares the layer with a loop over single examples.
    pub test: &'static str,
    /// The backends on which the test passed, by the names of their features.
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

use NormRule::{Ghost, Instantiated, NoParameters, Planned, Wrapped};

/// The layers of Burn that have a private counterpart, and one layer of this crate.
///
/// The rules use Burn's tensors and no particular backend. [`backends`](LayerSupport::backends)
/// lists where the test of a row passed, without and with gradient checkpointing. `cargo xtask
/// test` runs it on Flex and NdArray, and `cargo xtask test --backend wgpu` also on WGPU, with
/// fusion. On WGPU, rows ran with a software driver and without autotuning; continuous integration
/// runs the rows of the primitives.
#[rustfmt::skip]
pub const LAYERS: &[LayerSupport] = &[
    row("Linear",
        "bias, layout, any rank of input",
        "outer products of input and output gradient, summed over positions",
        Planned, "positions_are_summed_before_the_norm"),
    row("Conv1d",
        "bias, stride, padding (also asymmetric), dilation, groups",
        "linear rule on the patches of the kernel",
        Planned, "every_option_of_conv1d_equals_the_loop_over_examples"),
    row("Conv2d",
        "bias, stride, padding (also asymmetric), dilation, groups",
        "linear rule on the patches of the kernel",
        Planned, "every_option_of_conv2d_equals_the_loop_over_examples"),
    row("Conv3d",
        "bias, stride, padding, dilation, groups",
        "linear rule on the patches of the kernel",
        Planned, "every_option_of_conv3d_equals_the_loop_over_examples"),
    row("ConvTranspose1d",
        "bias, stride, padding, output padding, dilation, groups",
        "convolution rule with input and output gradient exchanged",
        Planned, "every_option_of_conv_transpose1d_equals_the_loop_over_examples"),
    row("ConvTranspose2d",
        "bias, stride, padding, output padding, dilation, groups",
        "convolution rule with input and output gradient exchanged",
        Planned, "every_option_of_conv_transpose2d_equals_the_loop_over_examples"),
    row("ConvTranspose3d",
        "bias, stride, padding, output padding, dilation, groups",
        "convolution rule with input and output gradient exchanged",
        Planned, "every_option_of_conv_transpose3d_equals_the_loop_over_examples"),
    row("DeformConv2d",
        "bias, stride, padding, dilation, groups, offset groups, mask",
        "linear rule on the samples of the kernel",
        Planned, "deformable_convolutions_equal_the_loop_over_examples"),
    LayerSupport {
        backends: &["flex", "ndarray"],
        ..row("StandardizedConv2d",
            "gain, bias, stride, padding (also asymmetric), dilation, groups, epsilon",
            "convolution rule, mapped by the Jacobian of the standardization",
            Instantiated,
            "every_option_of_a_standardized_convolution_equals_the_loop_over_examples")
    },
    row("Embedding",
        "reuse, tied output layer (linear rule)",
        "sum of the output gradients of equal ids",
        Ghost, "embeddings_equal_the_loop_over_examples"),
    row("LayerNorm",
        "no beta, epsilon",
        "normalized input times output gradient",
        Instantiated, "layer_norms_equal_the_loop_over_examples"),
    row("RmsNorm",
        "epsilon",
        "normalized input times output gradient",
        Instantiated, "rms_norms_equal_the_loop_over_examples"),
    row("GroupNorm",
        "groups, epsilon, not affine",
        "normalized input times output gradient",
        Instantiated, "group_norms_equal_the_loop_over_examples"),
    row("InstanceNorm",
        "epsilon, not affine",
        "normalized input times output gradient",
        Instantiated, "instance_norms_equal_the_loop_over_examples"),
    row("BatchNorm",
        "stored statistics only",
        "normalized input times output gradient",
        Instantiated, "a_batch_norm_with_stored_statistics_equals_the_loop_over_examples"),
    row("PRelu",
        "one parameter, or one for each channel",
        "negative input times output gradient",
        Instantiated, "parametric_relus_equal_the_loop_over_examples"),
    row("Param<Tensor>",
        "any rank, any reuse",
        "output gradient of the example's copy",
        Instantiated, "bare_parameters_equal_the_loop_over_examples"),
    row("GateController",
        "bias",
        "two linear layers",
        Planned, "one_gate_equals_the_loop_over_examples"),
    row("Rnn",
        "bias, batch_first, reverse, clip, every activation, state in and out",
        "linear rule with the sequence as positions",
        Planned, "every_option_of_an_rnn_equals_the_loop_over_examples"),
    row("BiRnn",
        "options of Rnn",
        "two RNNs",
        Planned, "every_option_of_a_bidirectional_layer_equals_the_loop_over_examples"),
    row("Gru",
        "bias, reset_after, clip, every activation, state in",
        "linear rule with the sequence as positions",
        Planned, "every_option_of_a_gru_equals_the_loop_over_examples"),
    row("BiGru",
        "options of Gru, batch_first, state out",
        "two GRUs",
        Planned, "every_option_of_a_bidirectional_layer_equals_the_loop_over_examples"),
    row("Lstm",
        "bias, batch_first, reverse, clip, input_forget, every activation, state in and out",
        "linear rule with the sequence as positions",
        Planned, "every_option_of_an_lstm_equals_the_loop_over_examples"),
    row("BiLstm",
        "options of Lstm",
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
        "options of TransformerEncoder",
        "attention, feed-forward and layer norms",
        Planned, "every_option_of_an_encoder_equals_the_loop_over_examples"),
    row("TransformerDecoder",
        "options of TransformerEncoder, masks of the memory",
        "attention, feed-forward and layer norms",
        Planned, "every_option_of_a_decoder_equals_the_loop_over_examples"),
    row("TransformerDecoderLayer",
        "options of TransformerDecoder",
        "attention, feed-forward and layer norms",
        Planned, "every_option_of_a_decoder_equals_the_loop_over_examples"),
    row("SwiGlu",
        "bias, layout",
        "two linear layers",
        Planned, "a_gated_linear_unit_equals_the_loop_over_examples"),
    row("Activation",
        "every activation",
        "rule of the wrapped layer",
        Wrapped, "every_activation_equals_the_loop_over_examples"),
    row("Normalization",
        "every norm",
        "rule of the wrapped layer",
        Wrapped, "every_normalization_equals_the_loop_over_examples"),
    row("Dropout",
        "any probability, any rank of input",
        "mask keyed by run, step, unit and layer",
        NoParameters, "masks_of_a_unit_are_the_same_in_every_batch"),
    LayerSupport {
        backends: &["flex", "ndarray"],
        ..row("MaxPool2d",
            "stride, padding (also asymmetric), dilation, ceil_mode",
            "a native kernel on Flex",
            NoParameters, "max_pooling_equals_the_loop_over_examples")
    },
];

/// The layers of Burn that draw random values during training, by the names of their types. Only
/// `Dropout` has a private counterpart.
pub(crate) const RANDOM_LAYERS: [&str; 3] = ["Dropout", "RRelu", "GaussianNoise"];

/// The layers whose random values are keyed by the unit, by the names of their types.
pub(crate) const KEYED_LAYERS: [&str; 2] = ["Dropout", "RandomCrop"];

/// Returns [`LAYERS`] as a Markdown table.
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
    fn table_lists_every_wrapped_type() {
        let wrapped: BTreeSet<&str> = WRAPPED
            .iter()
            .map(|path| path.rsplit("::").next().unwrap().trim())
            // These are not wrapped in `Private<M>` with a plain name.
            .chain(["Param<Tensor>", "CrossAttention"])
            .collect();
        let listed: BTreeSet<&str> = LAYERS.iter().map(|row| row.layer).collect();
        assert_eq!(listed, wrapped);
        assert_eq!(listed.len(), LAYERS.len(), "a layer is listed twice");
    }

    #[test]
    fn tests_of_the_table_exist() {
        fn sources(folder: &Path) -> String {
            let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            let read = |path: std::path::PathBuf| match path.is_dir() {
                true => sources(&path),
                false => std::fs::read_to_string(path).unwrap(),
            };
            entries.map(read).collect()
        }
        let source = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/grads"));
        for LayerSupport { layer, test, .. } in LAYERS {
            let head = format!("fn {test}(");
            let (before, rest) =
                source.split_once(&head).unwrap_or_else(|| panic!("{layer}: {test}"));
            let (_, indent) = before.rsplit_once('\n').unwrap();
            assert!(before.trim_end().ends_with("#[test]"), "{layer}: {test}");
            let (body, _) = rest.split_once(&format!("\n{indent}}}\n")).unwrap();
            assert!(body.contains("for device in training_devices() {"), "{layer}: {test}");
        }
    }

    #[test]
    fn backends_of_the_table_are_test_devices() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/test_devices.rs");
        let source = std::fs::read_to_string(path).unwrap();
        let (_, rest) = source.split_once("pub(crate) fn devices()").unwrap();
        let (body, _) = rest.split_once("\n}\n").unwrap();
        let missing = TESTED.iter().find(|name| !body.contains(&format!("feature = \"{name}\"")));
        assert_eq!(missing, None);
    }

    /// Compares the table with the README, or updates the README if `UPDATE_README` is set.
    #[test]
    fn readme_has_the_table_of_the_code() {
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
