//! Models with BatchNorm under batch clipping.

use burn::module::Module;
use burn::nn::{BatchNorm, BatchNormConfig, Linear};
use burn::optim::SgdConfig;
use burn::tensor::Tensor;
use burn_dp::checkpoint::Checkpointer;
use burn_dp::optim::{PrivacyPlanConfig, SamplingScheme};
use burn_dp::updates::{MiniSets, UnitUpdate};

use crate::fixtures::{device, inputs, layer};
use crate::mini_sets::{EXAMPLES, finish};

#[derive(Module, Debug)]
struct Normed {
    fc: Linear,
    norm: BatchNorm,
}

impl Normed {
    fn new() -> Self {
        Self { fc: layer(3, 4, 1.0), norm: BatchNormConfig::new(4).init(&device()) }
    }

    fn losses(&self, examples: &[usize]) -> Tensor<1> {
        let output = self.norm.forward(self.fc.forward(inputs(examples)));
        (output.powi_scalar(3) - 1.0).powi_scalar(2).mean_dim(1).flatten(0, 1)
    }

    fn running(&self) -> Vec<f32> {
        self.norm.running_mean.value_sync().into_data().try_into_vec().unwrap()
    }
}

// Sharp edge: the running statistics of a BatchNorm are private data.
#[test]
fn a_model_with_batch_norm_trains_without_running_statistics() {
    let sets = MiniSets::shuffled(EXAMPLES, 10, 0).unwrap();
    let config = finish(PrivacyPlanConfig::for_mini_sets(&sets, 2.0))
        .with_sampling(SamplingScheme::FixedSize)
        .with_noise_multiplier(0.01);
    let plan = config.clone().init().unwrap();
    let sampler = plan.sampler().unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let mut model = Normed::new();
    let all: Vec<usize> = (0..EXAMPLES).collect();
    let loss = |model: &Normed| model.clone().losses(&all).mean().into_scalar::<f64>();
    let copy = burn_dp::updates::private_copy(&model);
    let before = loss(&copy);
    for step in 0..5 {
        let draw = sampler.draw(step).unwrap();
        optim
            .unit_updates(&model, &draw, |model: Normed, set| {
                UnitUpdate::gradient(&model, model.losses(sets.members(set)))
            })
            .unwrap();
        model = optim.step(0.3, model, draw).unwrap();
    }
    assert_eq!(model.running(), [0.0; 4]);
    assert!(loss(&burn_dp::updates::private_copy(&model)) < 0.9 * before);
    let statement = optim.statement(&[1e-3]).unwrap();
    assert!(statement.facts["running_statistics"].starts_with("not learned"), "{statement}");

    // If it is started again, the finished run has the same result.
    let folder = crate::fixtures::run_folder();
    let checkpointer = Checkpointer::new(folder.path());
    checkpointer.save(&model, &optim).unwrap();
    let statement = optim.statement(&[1e-3]).unwrap();
    drop(optim);
    let checkpoint = checkpointer.latest().unwrap().unwrap();
    let inner = SgdConfig::new().init();
    let (optim, _) = checkpoint.restore(config.init().unwrap(), inner, Normed::new()).unwrap();
    let again = optim.statement(&[1e-3]).unwrap();
    assert_eq!(again.to_string(), statement.to_string());
    assert_eq!(again.facts["independence_of_examples"], "every unit is computed by itself");
}

#[test]
fn an_update_that_leaves_private_statistics_in_the_model_is_refused() {
    let plan = finish(PrivacyPlanConfig::new(EXAMPLES, 60.0)).init().unwrap();
    let draw = plan.sampler().unwrap().draw(0).unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let model = Normed::new();
    let outside = model.clone();
    let error = optim.unit_updates(&model, &draw, |_: Normed, i| {
        // Uses another model instead of its copy.
        UnitUpdate::gradient(&outside, outside.losses(&[i, i + 1]))
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("norm.running") && error.contains("published without noise"), "{error}");
}
