//! Exchange of records between plain and private models.
#![allow(clippy::unwrap_used)]

use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::conv::{
    Conv1dConfig, Conv2d, Conv2dConfig, Conv3dConfig, ConvTranspose1dConfig, ConvTranspose2dConfig,
    ConvTranspose3dConfig, DeformConv2dConfig,
};
use burn::nn::{
    BatchNormConfig, EmbeddingConfig, GroupNormConfig, InstanceNormConfig, LayerNormConfig, Linear,
    LinearConfig, LinearLayout, PReluConfig, RmsNormConfig,
};
use burn::tensor::{Device, Tensor};
use burn_dp::nn::{IntoPrivate, Private, PrivateLayer, StandardizedConv2d};

#[derive(Module, Debug)]
struct Plain {
    conv: Conv2d,
    fc: Linear,
}

#[derive(Module, Debug)]
struct PrivateNet {
    conv: Private<Conv2d>,
    fc: Private<Linear>,
}

fn plain(layout: LinearLayout, device: &Device) -> Plain {
    Plain {
        conv: Conv2dConfig::new([2, 3], [3, 3]).init(device),
        fc: LinearConfig::new(5, 4).with_layout(layout).init(device),
    }
}

fn private(layout: LinearLayout, device: &Device) -> PrivateNet {
    let plain = plain(layout, device);
    PrivateNet { conv: plain.conv.private(), fc: plain.fc.private() }
}

#[derive(Default)]
struct Values {
    path: Vec<String>,
    values: Vec<(String, Vec<f32>)>,
}

impl ModuleVisitor for Values {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_string());
    }
    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.values.push((self.path.join("."), param.val().into_data().try_into_vec().unwrap()));
    }
}

fn values<M: Module>(model: &M) -> Vec<(String, Vec<f32>)> {
    let mut visitor = Values::default();
    model.visit(&mut visitor);
    visitor.values
}

#[test]
fn plain_record_loads_into_the_private_model_and_back() {
    let device = Device::flex();
    for layout in [LinearLayout::Row, LinearLayout::Col] {
        let saved = plain(layout, &device);
        let private = private(layout, &device).load_record(saved.clone().into_record());
        assert_eq!(values(&private), values(&saved));
        assert_eq!(values(&private)[2].0, "fc.weight");

        let back = plain(layout, &device).load_record(private.clone().into_record());
        assert_eq!(values(&back), values(&private));
    }
}

/// Loads the record of a plain layer into a private layer, and its record into another plain layer.
/// Returns the paths of the parameters.
fn there_and_back<M: PrivateLayer>(saved: M, other: M) -> Vec<String> {
    let private: Private<M> = other.clone().private().load_record(saved.clone().into_record());
    assert_eq!(values(&private), values(&saved));
    let back = other.load_record(private.into_record());
    assert_eq!(values(&back), values(&saved));
    values(&saved).into_iter().map(|(path, _)| path).collect()
}

#[test]
fn every_layer_has_the_record_of_burn() {
    let device = Device::flex();
    macro_rules! layers {
        ($($config:expr => $paths:expr),* $(,)?) => {
            $(assert_eq!(there_and_back($config.init(&device), $config.init(&device)), $paths);)*
        };
    }
    layers!(
        EmbeddingConfig::new(5, 3) => ["weight"],
        Conv1dConfig::new(2, 3, 3) => ["weight", "bias"],
        Conv3dConfig::new([2, 3], [1, 2, 3]) => ["weight", "bias"],
        ConvTranspose1dConfig::new([2, 3], 3) => ["weight", "bias"],
        ConvTranspose2dConfig::new([2, 3], [1, 2]) => ["weight", "bias"],
        ConvTranspose3dConfig::new([2, 3], [1, 2, 3]) => ["weight", "bias"],
        DeformConv2dConfig::new([2, 3], [3, 3]).with_bias(false) => ["weight"],
        LayerNormConfig::new(3) => ["gamma", "beta"],
        RmsNormConfig::new(3) => ["gamma"],
        GroupNormConfig::new(2, 4) => ["gamma", "beta"],
        InstanceNormConfig::new(4) => ["gamma", "beta"],
        BatchNormConfig::new(4) => ["gamma", "beta", "running_mean", "running_var"],
        PReluConfig::new() => ["alpha"],
    );
    let standardized = || StandardizedConv2d::new(Conv2dConfig::new([2, 3], [3, 3]).init(&device));
    let paths = there_and_back(standardized(), standardized());
    assert_eq!(paths, ["weight", "gain", "bias"]);
}

#[test]
fn file_of_the_private_model_loads_into_the_plain_model() {
    let device = Device::flex();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.bpk");
    let private = private(LinearLayout::Row, &device);
    private.clone().save_file(&file).unwrap();
    let loaded = plain(LinearLayout::Row, &device).load_file(&file);
    assert_eq!(values(&loaded), values(&private));
}

#[test]
fn wrapper_forwards_the_methods_of_module() {
    let device = Device::flex();
    let model = private(LinearLayout::Row, &device);
    assert_eq!(model.num_params(), 2 * 3 * 9 + 3 + 5 * 4 + 4);
    assert_eq!(model.devices(), std::slice::from_ref(&device));
    let training = model.clone().train();
    assert!(training.fc.clone().into_inner().weight.val().is_autodiff());
    assert_eq!(values(&training.valid()), values(&model));
    assert!(format!("{model}").contains("fc: Private<Linear> {d_input: 5"), "{model}");
    let inner: Linear = model.fc.into_inner();
    assert_eq!(inner.weight.dims(), [5, 4]);
}

fn exchange_records<M: PrivateLayer>(init: impl Fn() -> M) {
    assert!(there_and_back(init(), init()).len() > 1);
}

#[test]
fn every_composite_layer_has_the_record_of_burn() {
    use burn::nn::activation::{ActivationConfig, PReluConfig, SwiGluConfig};
    use burn::nn::attention::MultiHeadAttentionConfig;
    use burn::nn::transformer::{
        PositionWiseFeedForwardConfig, TransformerDecoderConfig, TransformerEncoderConfig,
    };
    use burn::nn::{BiGruConfig, BiLstmConfig, BiRnnConfig, GruConfig, LstmConfig, RnnConfig};
    let device = Device::flex();
    let prelu: ActivationConfig = PReluConfig::new().into();
    exchange_records(|| {
        RnnConfig::new(3, 2, true).with_hidden_activation(prelu.clone()).init(&device)
    });
    exchange_records(|| BiRnnConfig::new(3, 2, true).init(&device));
    exchange_records(|| GruConfig::new(3, 2, false).init(&device));
    exchange_records(|| BiGruConfig::new(3, 2, true).init(&device));
    exchange_records(|| LstmConfig::new(3, 2, true).with_input_forget(true).init(&device));
    exchange_records(|| BiLstmConfig::new(3, 2, true).init(&device));
    exchange_records(|| SwiGluConfig::new(3, 2).init(&device));
    exchange_records(|| MultiHeadAttentionConfig::new(4, 2).init(&device));
    exchange_records(|| PositionWiseFeedForwardConfig::new(4, 2).init(&device));
    exchange_records(|| TransformerEncoderConfig::new(4, 6, 2, 2).init(&device));
    exchange_records(|| TransformerDecoderConfig::new(4, 6, 2, 2).init(&device));
}
