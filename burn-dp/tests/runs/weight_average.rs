//! Averaged weights of a training run.

use burn::module::Module;
use burn::optim::{AdamConfig, SgdConfig};
use burn_dp::checkpoint::Checkpointer;
use burn_dp::optim::{DpOptimizer, WeightAverage};

use crate::fixtures::{Net, assert_close, config, flat, train_on, values};

const DECAY: f64 = 0.8;

fn optimizer() -> DpOptimizer {
    let optim = config().init().unwrap().optimizer(SgdConfig::new().init());
    let average = WeightAverage::new(DECAY).unwrap().with_bias_correction();
    optim.with_weight_average(average).unwrap()
}

#[test]
fn the_average_covers_every_step_and_does_not_change_the_training() {
    let mut optim = optimizer();
    let mut without = config().init().unwrap().optimizer(SgdConfig::new().init());
    let (mut model, mut other) = (Net::new(), Net::new());
    let mut steps = Vec::new();
    for _ in 0..8 {
        model = train_on(&mut optim, model, 1, 7);
        other = train_on(&mut without, other, 1, 7);
        steps.push(flat(&model));
    }
    assert_eq!(values(&model), values(&other));
    assert_eq!(optim.ledger().entries(), without.ledger().entries());

    let weight = |i: usize| DECAY.powi(7 - i as i32);
    let total: f64 = (0..8).map(weight).sum();
    let expected: Vec<f32> = (0..steps[0].len())
        .map(|v| (0..8).map(|i| weight(i) * f64::from(steps[i][v])).sum::<f64>() / total)
        .map(|value| value as f32)
        .collect();
    let average = optim.weight_average().unwrap();
    assert_eq!(average.steps(), 8);
    let averaged = average.averaged(model.clone()).unwrap();
    assert_close(&flat(&averaged), &expected, 1e-5);
    assert_eq!(flat(&averaged.valid()), flat(&averaged));
    let statement = optim.statement(&[1e-5]).unwrap();
    assert!(statement.facts["weight_average"].contains("decay 0.8"));
}

#[test]
fn a_resumed_run_has_the_average_of_the_run_bit_for_bit() {
    let begin = || {
        let optim = config().init().unwrap().optimizer(AdamConfig::new().init());
        optim.with_weight_average(WeightAverage::new(0.99).unwrap()).unwrap()
    };
    let mut whole = begin();
    train_on(&mut whole, Net::new(), 8, 7);
    let folder = crate::fixtures::run_folder();
    let checkpointer = Checkpointer::new(folder.path());
    let mut first = begin();
    let model = train_on(&mut first, Net::new(), 3, 7);
    checkpointer.save(&model, &first).unwrap();
    drop((first, model));
    let checkpoint = checkpointer.latest().unwrap().unwrap();
    let plan = config().init().unwrap();
    let (mut second, model) =
        checkpoint.restore(plan, AdamConfig::new().init(), Net::new()).unwrap();
    train_on(&mut second, model, 5, 7);
    let bytes = |optim: &DpOptimizer| optim.weight_average().unwrap().to_bytes().unwrap();
    assert_eq!(bytes(&second), bytes(&whole));

    let path = checkpoint.folder().join("average.bpk");
    let mut damaged = std::fs::read(&path).unwrap();
    damaged[40] ^= 1;
    std::fs::write(path, damaged).unwrap();
    drop(second);
    let plan = config().init().unwrap();
    let error = checkpoint.restore(plan, AdamConfig::new().init(), Net::new()).unwrap_err();
    assert!(error.to_string().contains("average.bpk is damaged"), "{error}");
}
