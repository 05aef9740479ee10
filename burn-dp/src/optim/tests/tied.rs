use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, ModuleOptimizer, SgdConfig};
use burn::tensor::Tensor;

use super::{config, device, values};
use crate::grads::oracle::numbers;
use crate::nn::{IntoPrivate, Private};
use crate::sampling::Sampler;
use crate::updates::UnitUpdate;

#[derive(Module, Debug)]
struct Pair {
    first: Private<Linear>,
    second: Private<Linear>,
}

/// One layer applied twice.
#[derive(Module, Debug)]
struct Twice {
    layer: Private<Linear>,
}

fn shared() -> Linear {
    let mut layer = LinearConfig::new(3, 3).init(&device());
    layer.weight = layer.weight.map(|w| numbers([3, 3], 1, &w.device()).require_grad());
    layer.bias = layer.bias.map(|b| b.map(|b| b.zeros_like().require_grad()));
    layer
}

fn pair(layer: Linear) -> Pair {
    Pair { first: layer.clone().private(), second: layer.private() }
}

fn losses(output: Tensor<2>) -> Tensor<1> {
    output.powi_scalar(2).sum_dim(1).reshape([-1])
}

fn train<M: Module>(
    mut model: M,
    inner: ModuleOptimizer,
    forward: impl Fn(&M, Tensor<2>) -> Tensor<2>,
) -> M {
    let mut optim = config().init().unwrap().optimizer(inner);
    for step in 0..4 {
        let draw = optim.plan().sampler().unwrap().draw(step).unwrap();
        let units = draw.private_indices().len();
        let x = || numbers([units, 3], 10 + step, &device());
        optim.backward(&model, &draw, |model, _| losses(forward(model, x()))).unwrap();
        model = optim.step(0.1, model, draw).unwrap();
    }
    model
}

#[test]
fn tied_copies_train_like_one_layer_used_twice() {
    let inners: [fn() -> ModuleOptimizer; 2] =
        [|| SgdConfig::new().init(), || AdamConfig::new().init()];
    for inner in inners {
        let layer = shared();
        let before = layer.weight.val().into_data().try_into_vec::<f32>().unwrap();
        let tied = train(pair(layer.clone()), inner(), |model, x| {
            model.second.forward(model.first.forward(x).tanh())
        });
        let once = train(Twice { layer: layer.private() }, inner(), |model, x| {
            model.layer.forward(model.layer.forward(x).tanh())
        });
        let (tied, once) = (values(&tied), values(&once));
        assert_eq!(tied.len(), 4);
        // One parameter has one draw of noise, which all copies get.
        assert_eq!(tied[..2], once[..]);
        assert_eq!(tied[2..], once[..]);
        assert_ne!(once[0], before);
    }
}

#[test]
fn copies_stay_equal_also_when_nothing_was_drawn() {
    let config = super::PrivacyPlanConfig::new(1000, 0.001)
        .with_steps(1)
        .with_noise_multiplier(1.0)
        .with_insecure_seed(crate::random::InsecureSeed(1));
    let mut optim = config.init().unwrap().optimizer(SgdConfig::new().init());
    let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
    assert!(draw.private_indices().is_empty());
    let model = pair(shared());
    let before = values(&model);
    let after = values(&optim.step(0.1, model, draw).unwrap());
    assert_ne!(after[..2], before[..2]);
    assert_eq!(after[..2], after[2..]);
}

#[test]
fn updates_of_units_treat_copies_as_one_parameter() {
    let model = pair(shared());
    let mut optim = config().init().unwrap().optimizer(SgdConfig::new().init());
    let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
    let units = draw.private_indices().len();
    let x = numbers([units, 3], 10, &device());
    let forward =
        |model: &Pair, x: Tensor<2>| losses(model.second.forward(model.first.forward(x).tanh()));
    let mut rows = 0..units;
    optim
        .unit_updates(&model, &draw, |model: Pair, _| {
            let x = x.clone().narrow(0, rows.next().unwrap(), 1);
            UnitUpdate::gradient(&model, forward(&model, x))
        })
        .unwrap();
    let each = values(&optim.step(0.1, model.clone(), draw).unwrap());

    let mut optim = config().init().unwrap().optimizer(SgdConfig::new().init());
    let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
    optim.backward(&model, &draw, |model, _| forward(model, x.clone())).unwrap();
    let batch = values(&optim.step(0.1, model, draw).unwrap());
    for (each, batch) in each.concat().iter().zip(batch.concat()) {
        assert!((each - batch).abs() < 1e-6, "{each} {batch}");
    }
}
