#![allow(clippy::unwrap_used)]
use burn::module::{Lora, Module, Param, ParamGroup};
use burn::nn::activation::{RRelu, RReluConfig};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{
    BatchNorm, BatchNormConfig, Dropout, DropoutConfig, GaussianNoise, GaussianNoiseConfig, Linear,
    LinearConfig,
};
use burn::tensor::{Device, Tensor};

use crate::DpError;
use crate::grads::PrivateBackward;
use crate::model::TrainableParameters;
use crate::model::{FaultKind, validate};
use crate::nn::{IntoPrivate, Private};

#[derive(Module, Debug)]
struct Block {
    norm: BatchNorm,
    head: Linear,
    scale: Param<Tensor<1>>,
}

#[derive(Module, Debug)]
struct Net {
    blocks: Vec<Block>,
    conv: Private<Conv2d>,
    fc: Private<Linear>,
    plain: Option<Conv2d>,
}

#[derive(Module, Debug)]
struct Pair {
    first: Private<Linear>,
    second: Private<Linear>,
}

fn device() -> Device {
    Device::flex().autodiff()
}

fn linear() -> Linear {
    LinearConfig::new(3, 3).init(&device())
}

fn net() -> Net {
    let device = device();
    let block = || Block {
        norm: BatchNormConfig::new(3).init(&device),
        head: linear(),
        scale: Param::from_tensor(Tensor::ones([3], &device)),
    };
    Net {
        blocks: vec![block(), block()],
        conv: Conv2dConfig::new([1, 2], [3, 3]).init(&device).private(),
        fc: linear().private(),
        plain: Some(Conv2dConfig::new([1, 2], [3, 3]).init(&device)),
    }
}

fn kinds<M: Module>(model: &M) -> Vec<(String, FaultKind)> {
    match validate(model) {
        Ok(()) => Vec::new(),
        Err(faults) => faults.iter().map(|fault| (fault.path.clone(), fault.kind)).collect(),
    }
}

#[test]
fn validation_reports_all_faults_with_path_and_class() {
    let expected = [
        ("blocks.0.head", FaultKind::Replace),
        ("blocks.0.norm", FaultKind::Never),
        ("blocks.0.norm", FaultKind::Replace),
        ("blocks.0.scale", FaultKind::NotYet),
        ("blocks.1.head", FaultKind::Replace),
        ("blocks.1.norm", FaultKind::Never),
        ("blocks.1.norm", FaultKind::Replace),
        ("blocks.1.scale", FaultKind::NotYet),
        ("plain", FaultKind::Replace),
    ];
    let found = kinds(&net());
    let found: Vec<_> = found.iter().map(|(path, kind)| (path.as_str(), *kind)).collect();
    assert_eq!(found, expected);
}

#[test]
fn report_has_one_line_with_a_remedy_for_each_fault() {
    let faults = validate(&net()).unwrap_err();
    let text = faults.to_string();
    assert_eq!(text.lines().count(), faults.len());
    assert!(text.contains("blocks.0.norm (never): a BatchNorm in training mode"), "{text}");
    assert!(text.contains("plain (replace): a Conv2d of Burn"), "{text}");
    assert!(text.contains("`Private<Conv2d>`"), "{text}");
    let error = DpError::from(faults).to_string();
    assert!(error.starts_with("the model cannot be trained privately:\n"), "{error}");
}

#[test]
fn model_with_frozen_faulty_parts_is_valid() {
    let net = net();
    let group = ParamGroup::from_any_predicates(vec!["blocks", "plain"]);
    assert!(validate(&net.freeze_group(group)).is_ok());
}

#[test]
fn batch_norm_without_gradients_still_trains_its_statistics() {
    let net = net();
    let group = ParamGroup::from_any_predicates(vec!["blocks", "plain"]);
    let found = kinds(&net.set_require_grad_group(group, false));
    let expected = ["blocks.0.norm", "blocks.1.norm"].map(|path| (path.into(), FaultKind::Never));
    assert_eq!(found, expected);
}

#[test]
fn model_without_trained_parameters_is_a_fault() {
    let model = linear().private().no_grad();
    assert_eq!(kinds(&model), [(String::new(), FaultKind::Misconfigured)]);
    let text = validate(&model).unwrap_err().to_string();
    assert!(text.starts_with("the model (misconfigured): no parameter requires"), "{text}");
}

#[test]
fn parameter_trained_in_one_place_and_frozen_in_another_is_refused() {
    // Clones share a parameter, frozen or not, until it is initialized.
    let shared = linear();
    let _ = shared.forward(Tensor::<2>::ones([1, 3], &device()));
    for (first, second) in
        [(shared.clone().no_grad(), shared.clone()), (shared.clone(), shared.clone().no_grad())]
    {
        let model = Pair { first: first.private(), second: second.private() };
        let found = kinds(&model);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|(_, kind)| *kind == FaultKind::Misconfigured));
        let error = TrainableParameters::of(&model).unwrap_err().to_string();
        assert!(error.contains("freeze both or none"), "{error}");
    }
    let model = Pair { first: shared.clone().private(), second: shared.private() };
    assert!(validate(&model).is_ok());
    assert_eq!(TrainableParameters::of(&model).unwrap().iter().count(), 2);
}

#[test]
fn adapter_is_valid_only_in_a_private_linear_layer() {
    let model = linear().private().apply_lora(Lora::new(2, 4.0));
    assert!(validate(&model).is_ok());

    // A plain layer is reported once, as a layer to replace.
    let model = Pair { first: linear().private(), second: linear().private() };
    #[derive(Module, Debug)]
    struct Mixed {
        pair: Pair,
        plain: Linear,
    }
    let mixed = Mixed { pair: model, plain: linear() }.apply_lora(Lora::new(2, 4.0));
    assert_eq!(kinds(&mixed), [("plain".to_string(), FaultKind::Replace)]);
}

#[test]
fn adapter_without_a_rule_is_refused_before_the_backward_pass() {
    use burn::module::{Reparameterization, Reparameterizer};

    #[derive(Module, Debug)]
    struct Gain {
        gain: Param<Tensor<1>>,
    }
    impl Reparameterization for Gain {
        const NAME: &'static str = "gain";
        fn apply<const D: usize>(&self, base: Tensor<D>) -> Tensor<D> {
            base * self.gain.val().reshape([1; D])
        }
    }
    struct Gains;
    impl Reparameterizer for Gains {
        type Reparam = Gain;
        fn reparameterize<const D: usize>(
            &mut self,
            _path: &str,
            param: Param<Tensor<D>>,
        ) -> (Param<Tensor<D>>, Option<Gain>) {
            let gain = Param::from_tensor(Tensor::ones([1], &param.base().device()));
            (param, Some(Gain { gain }))
        }
    }

    let model = Pair { first: linear().private(), second: linear().private() }
        .apply_reparameterization(Gains);
    let paths: Vec<String> = kinds(&model).into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["first.bias", "first.weight", "second.bias", "second.weight"]);

    let x = Tensor::<2>::ones([2, 3], &device());
    let losses = model.second.forward(model.first.forward(x)).sum_dim(1).reshape([-1]);
    let error = PrivateBackward::new().run(losses, &model).unwrap_err().to_string();
    assert!(error.contains("`gain`") && error.contains("materialize"), "{error}");
}

#[test]
fn training_and_validation_give_the_same_reasons() {
    let net = net();
    let faults = validate(&net).unwrap_err();
    let never = faults.iter().find(|fault| fault.kind == FaultKind::Never).unwrap();
    let Err(DpError::UnsupportedModel { path, reason }) = TrainableParameters::of(&net) else {
        panic!("a BatchNorm in training mode was accepted");
    };
    assert_eq!((&path, &reason), (&never.path, &never.reason));

    #[derive(Module, Debug)]
    struct Mixed {
        first: Private<Linear>,
        second: Linear,
    }
    let mixed = Mixed { first: linear().private(), second: linear() };
    let faults = validate(&mixed).unwrap_err();
    let x = Tensor::<2>::ones([2, 3], &device());
    let losses = mixed.second.forward(mixed.first.forward(x)).sum_dim(1).reshape([-1]);
    let Err(DpError::UnsupportedModel { path, reason }) =
        PrivateBackward::new().run(losses, &mixed)
    else {
        panic!("a plain layer was accepted");
    };
    assert_eq!(path, "second.weight");
    assert_eq!(Some(&reason), faults.iter().next().map(|fault| &fault.reason));
}

#[test]
fn outermost_layer_with_a_private_counterpart_is_reported() {
    use burn::nn::Lstm;
    use burn::nn::LstmConfig;
    use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig};

    #[derive(Module, Debug)]
    struct Text {
        encoder: TransformerEncoder,
        lstm: Lstm,
        private: Private<Lstm>,
    }
    let device = device();
    let lstm = || LstmConfig::new(4, 3, true).init(&device);
    let model = Text {
        encoder: TransformerEncoderConfig::new(4, 8, 2, 1).init(&device),
        lstm: lstm(),
        private: lstm().private(),
    };
    let expected = ["encoder", "lstm"].map(|path| (path.to_string(), FaultKind::Replace));
    assert_eq!(kinds(&model), expected);

    // A recurrent layer applies its gates together, so an adapter on a gate has no rule.
    let adapted = lstm().private().apply_lora(Lora::new(2, 4.0));
    let faults = validate(&adapted).unwrap_err();
    assert_eq!(faults.len(), 8, "{faults}");
    assert!(faults.iter().all(|fault| fault.kind == FaultKind::NotYet));
}

#[test]
fn bare_parameter_trains_through_nn_parameter_and_is_reported() {
    use crate::nn::parameter;

    #[derive(Module, Debug)]
    struct Bare {
        table: Param<Tensor<1>>,
    }
    #[derive(Module, Debug)]
    struct Wrapped {
        table: Private<Param<Tensor<1>>>,
    }
    let table = Param::from_tensor(Tensor::ones([3], &device()));
    let (bare, wrapped) = (Bare { table: table.clone() }, Wrapped { table: table.private() });
    let faults = validate(&bare).unwrap_err();
    let fault = faults.iter().next().unwrap();
    assert_eq!((fault.path.as_str(), fault.kind), ("table", FaultKind::NotYet));
    assert!(fault.reason.contains("`param.private()`"), "{fault}");
    assert!(fault.reason.contains("`nn::parameter`"), "{fault}");
    assert!(validate(&wrapped).is_ok());

    let losses = |copies: Tensor<2>| copies.square().sum_dim(1).reshape([-1]);
    assert!(PrivateBackward::new().run(losses(parameter(&bare.table, 4)), &bare).is_ok());
    assert!(PrivateBackward::new().run(losses(wrapped.table.forward(4)), &wrapped).is_ok());
    let wrapped = wrapped.load_record(bare.into_record());
    assert_eq!(
        wrapped.table.forward::<2>(2).into_data(),
        Tensor::<2>::ones([2, 3], &device()).into_data()
    );
}

#[derive(Module, Debug)]
struct Random {
    fc: Private<Linear>,
    dropout: Vec<Dropout>,
    noise: Option<GaussianNoise>,
    slopes: Option<RRelu>,
    private: Private<Dropout>,
}

#[test]
fn random_layers_of_burn_are_refused_with_their_paths() {
    let dropout = || DropoutConfig::new(0.5).init();
    let model = Random {
        fc: linear().private(),
        dropout: vec![dropout(), dropout().freeze(), dropout()],
        noise: Some(GaussianNoiseConfig::new(0.1).init()),
        slopes: Some(RReluConfig::new().init()),
        private: dropout().private(),
    };
    let found = kinds(&model);
    let found: Vec<_> = found.iter().map(|(path, kind)| (path.as_str(), *kind)).collect();
    let kind = FaultKind::Random;
    let expected = ["dropout.0", "dropout.2", "noise", "slopes"].map(|path| (path, kind));
    assert_eq!(found, expected);
    // Also for units that are computed one by one, because their order determines the masks.
    for refused in [TrainableParameters::of(&model), TrainableParameters::of_units(&model)] {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("`dropout.0`") && error.contains("`Private<Dropout>`"), "{error}");
    }
    let model = Random { dropout: vec![dropout().freeze()], noise: None, slopes: None, ..model };
    assert!(validate(&model).is_ok());
    TrainableParameters::of(&model).unwrap();
}

#[test]
fn random_layers_inside_of_a_plain_layer_are_refused_for_units() {
    use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig};

    #[derive(Module, Debug)]
    struct Text {
        encoder: TransformerEncoder,
    }
    let encoder = TransformerEncoderConfig::new(4, 8, 2, 1).init(&device());
    let error = TrainableParameters::of_units(&Text { encoder: encoder.clone() }).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("dropout") && error.contains("`Private<TransformerEncoder>`"),
        "{error}"
    );
    TrainableParameters::of_units(&encoder.private()).unwrap();
}
