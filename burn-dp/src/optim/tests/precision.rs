//! Passes in another precision than the parameters have.

use burn::module::Module;
use burn::nn::Linear;
use burn::optim::SgdConfig;
use burn::tensor::activation::tanh;
use burn::tensor::{DType, FloatDType, Tensor};

use super::{config, device, layer, values};
use crate::clipping::ClippedSum;
use crate::grads::PrivateBackward;
use crate::grads::oracle::numbers;
use crate::model::in_precision;
use crate::nn::Private;
use crate::optim::DpOptimizer;

#[derive(Module, Debug)]
struct Net {
    first: Private<Linear>,
    second: Private<Linear>,
}

impl Net {
    fn losses(&self, units: &[usize]) -> Tensor<1> {
        let precision = self.first.inner.weight.dtype();
        let rows = units.iter().map(|&unit| numbers::<2>([1, 3], unit as u64, &device()));
        let x = Tensor::cat(rows.collect(), 0).cast(precision);
        let output = self.second.forward(tanh(self.first.forward(x))).cast(DType::F32);
        output.powi_scalar(2).sum_dim(1).reshape([units.len()])
    }
}

fn net() -> Net {
    Net { first: layer(3, 4, 1), second: layer(4, 2, 2) }
}

fn optimizer() -> DpOptimizer {
    config().init().unwrap().optimizer(SgdConfig::new().init())
}

/// Runs two steps whose losses the library computes in this precision.
fn trained(precision: Option<FloatDType>) -> Net {
    let (mut net, mut optim) = (net(), optimizer());
    if let Some(precision) = precision {
        optim = optim.with_precision(precision);
    }
    let expected = precision.map_or(DType::F32, DType::from);
    for step in 0..2 {
        let draw = optim.plan().sampler().unwrap().draw(step).unwrap();
        for part in draw.parts(3).unwrap() {
            let losses = |net: &Net, units: Vec<usize>| {
                assert_eq!(net.first.inner.weight.dtype(), expected);
                net.losses(&units)
            };
            optim.backward(&net, part, losses).unwrap();
        }
        net = optim.step(0.1, net, draw).unwrap();
    }
    net
}

#[test]
fn a_step_in_half_precision_clips_the_gradients_of_a_copy_and_updates_the_parameters() {
    for precision in [FloatDType::BF16, FloatDType::F16] {
        let found = trained(Some(precision));
        assert_eq!(found.first.inner.weight.dtype(), DType::F32);
        // The same by hand.
        let (mut net, mut optim) = (net(), optimizer());
        for step in 0..2 {
            let draw = optim.plan().sampler().unwrap().draw(step).unwrap();
            for part in draw.parts(3).unwrap() {
                let copy = in_precision(&net, precision);
                let losses = copy.losses(part.private_indices());
                let grads = PrivateBackward::new().run(losses, &copy).unwrap();
                let sum = ClippedSum::from_gradients(grads, &optim.thresholds().unwrap());
                optim.accumulate(part, sum.unwrap()).unwrap();
            }
            net = optim.step(0.1, net, draw).unwrap();
        }
        assert_eq!(values(&found), values(&net), "{precision:?}");
        // Close to the step in single precision, but not equal to it.
        let single = values(&trained(None));
        assert_ne!(values(&found), single);
        for (found, expected) in values(&found).concat().iter().zip(single.concat()) {
            assert!((found - expected).abs() < 0.02, "{precision:?}: {found} {expected}");
        }
    }
}

#[test]
fn the_statement_names_the_precision_of_the_passes() {
    let fact = |optim: &DpOptimizer| {
        let statement = optim.statement(&[1e-3]).unwrap();
        let fact = statement.facts.get("precision_of_passes").cloned();
        // The statement also says what that means for the test of independence.
        let not_covered = statement.not_covered.join(" ");
        assert_eq!(not_covered.contains("passes in less than single precision"), fact.is_some());
        fact
    };
    assert_eq!(fact(&optimizer()), None);
    let optim = optimizer().with_precision(FloatDType::BF16);
    assert_eq!(fact(&optim).as_deref(), Some("bf16"));
}

#[test]
fn the_statement_names_types_of_half_precision_that_nobody_set() {
    let fact = |net: Net, losses: fn(&Net, Vec<usize>) -> Tensor<1>| {
        let mut optim = optimizer();
        let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
        optim.backward(&net, &draw, losses).unwrap();
        let statement = optim.statement(&[1e-3]).unwrap();
        let fact = statement.facts.get("precision_of_passes").cloned();
        let not_covered = statement.not_covered.join(" ");
        assert_eq!(not_covered.contains("passes in less than single precision"), fact.is_some());
        fact
    };
    let plain = |net: &Net, units: Vec<usize>| net.losses(&units);
    assert_eq!(fact(net(), plain), None);
    // The model.
    for (precision, name) in [(FloatDType::BF16, "bf16"), (FloatDType::F16, "f16")] {
        assert_eq!(fact(in_precision(&net(), precision), plain).as_deref(), Some(name));
    }
    // A part that is not trained.
    let frozen = Net { first: in_precision(&net(), FloatDType::BF16).first.no_grad(), ..net() };
    let mixed = |net: &Net, units: Vec<usize>| {
        let rows = units.iter().map(|&unit| numbers::<2>([1, 3], unit as u64, &device()));
        let x = Tensor::cat(rows.collect(), 0).cast(DType::BF16);
        let hidden = net.first.forward(x).cast(DType::F32);
        net.second.forward(hidden).powi_scalar(2).sum_dim(1).reshape([units.len()])
    };
    assert_eq!(fact(frozen, mixed).as_deref(), Some("bf16"));
    // The losses.
    let half = |net: &Net, units: Vec<usize>| net.losses(&units).cast(DType::F16);
    assert_eq!(fact(net(), half).as_deref(), Some("f16"));
}

#[test]
fn a_run_that_is_resumed_in_another_precision_has_both_in_its_statement() {
    let folder = tempfile::tempdir().unwrap();
    let step = |mut optim: DpOptimizer| {
        let draw = optim.plan().sampler().unwrap().draw(optim.next_step()).unwrap();
        let net = net();
        let losses = |net: &Net, units: Vec<usize>| net.losses(&units);
        optim.backward(&net, &draw, losses).unwrap();
        optim.step(0.1, net, draw).unwrap();
        optim
    };
    let begun = optimizer().with_precision(FloatDType::BF16);
    let begun = step(begun.with_release_log(folder.path().join("releases.log")).unwrap());
    let record = begun.to_record().unwrap();
    drop(begun);
    for (other, expected) in [(None, "bf16"), (Some(FloatDType::F16), "bf16; f16")] {
        let mut optim = optimizer();
        if let Some(other) = other {
            optim = optim.with_precision(other);
        }
        let resumed = optim.load_record(record.clone()).unwrap();
        let statement = resumed.statement(&[1e-3]).unwrap();
        assert_eq!(statement.facts["precision_of_passes"], expected);
        let sentence = "passes in less than single precision";
        assert!(statement.not_covered.iter().any(|line| line.contains(sentence)));
    }
}

#[test]
fn a_resumed_run_keeps_the_precision_of_its_passes() {
    let folder = tempfile::tempdir().unwrap();
    let optimizer = || optimizer().with_precision(FloatDType::BF16);
    let begun = optimizer().with_release_log(folder.path().join("releases.log")).unwrap();
    let record = begun.to_record().unwrap();
    drop(begun);
    let resumed = optimizer().load_record(record).unwrap();
    assert_eq!(resumed.engine.precision, Some(FloatDType::BF16));
}

#[test]
fn a_precision_that_the_device_lacks_is_refused_by_name() {
    assert!(!device().supports_dtype(DType::Flex32));
    let mut optim = optimizer().with_precision(FloatDType::Flex32);
    let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
    let losses = |net: &Net, units: Vec<usize>| net.losses(&units);
    let error = optim.backward(&net(), &draw, losses).unwrap_err().to_string();
    assert!(error.contains("precision") && error.contains("flex32"), "{error}");
}
