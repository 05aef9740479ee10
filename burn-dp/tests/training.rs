//! The private training step, from the draw to the updated model.
#![allow(clippy::unwrap_used)]

use std::fs;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, ModuleOptimizer, SgdConfig};
use burn::tensor::{Device, Tensor, TensorData};
use burn_dp::DpError;
use burn_dp::nn::{IntoPrivate, Private};
use burn_dp::noise::InsecureSeed;
use burn_dp::optim::{Checkpointer, DpOptimizer, PrivacyPlan, PrivacyPlanConfig, SamplingScheme};
use burn_dp::sampling::{LogicalBatches, Sampler};
use burn_dp_accountant::Budget;

const UNITS: usize = 200;

#[derive(Module, Debug)]
struct Net {
    first: Private<Linear>,
    second: Private<Linear>,
    /// Never reached by any example.
    unused: Private<Linear>,
}

impl Net {
    fn new(device: &Device) -> Self {
        let layer = |d_input: usize, d_output: usize, seed: f32| {
            let mut layer = LinearConfig::new(d_input, d_output).init(device);
            let values: Vec<f32> =
                (0..d_input * d_output).map(|i| (seed + i as f32 * 0.7).sin()).collect();
            let weight = TensorData::new(values, [d_input, d_output]);
            layer.weight = layer.weight.map(|_| Tensor::from_data(weight, device).require_grad());
            layer.bias = layer.bias.map(|b| b.map(|b| b.zeros_like().require_grad()));
            layer.private()
        };
        Self { first: layer(3, 8, 1.0), second: layer(8, 1, 2.0), unused: layer(20, 20, 3.0) }
    }

    fn losses(&self, x: Tensor<2>) -> Tensor<1> {
        let target = x.clone().sum_dim(1);
        let output = self.second.forward(self.first.forward(x).tanh());
        (output - target).powi_scalar(2).reshape([-1])
    }
}

#[derive(Clone)]
struct Rows;

impl Batcher<usize, Tensor<2>> for Rows {
    fn batch(&self, items: Vec<usize>, device: &Device) -> Tensor<2> {
        let values: Vec<f32> =
            items.iter().flat_map(|&i| (0..3).map(move |j| ((i * 3 + j) as f32).cos())).collect();
        Tensor::from_data(TensorData::new(values, [items.len(), 3]), device)
    }
}

#[derive(Default)]
struct Values(Vec<Vec<f32>>);

impl ModuleVisitor for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.push(param.val().into_data().try_into_vec().unwrap());
    }
}

fn values<M: Module>(model: &M) -> Vec<Vec<f32>> {
    let mut visitor = Values::default();
    model.visit(&mut visitor);
    visitor.0
}

fn device() -> Device {
    Device::flex().autodiff()
}

fn config() -> PrivacyPlanConfig {
    PrivacyPlanConfig::new(UNITS, 20.0)
        .with_steps(8)
        .with_noise_multiplier(1.0)
        .with_insecure_seed(InsecureSeed(5))
}

fn batches(plan: &PrivacyPlan) -> LogicalBatches<Tensor<2>> {
    let dataset = InMemDataset::new((0..UNITS).collect::<Vec<usize>>());
    plan.batches(dataset, Rows, &device()).unwrap()
}

fn train(
    optim: &mut DpOptimizer,
    mut model: Net,
    batches: impl Iterator<Item = Result<burn_dp::sampling::LogicalBatch<Tensor<2>>, DpError>>,
    physical: usize,
) -> Net {
    for batch in batches {
        let batch = batch.unwrap();
        for chunk in batch.chunks(physical).unwrap() {
            let (x, _) = chunk.unwrap().into_parts();
            optim.backward(model.losses(x), &model).unwrap();
        }
        model = optim.step(0.1, model, batch).unwrap();
    }
    model
}

fn run(config: PrivacyPlanConfig, inner: ModuleOptimizer, physical: usize) -> (Net, DpOptimizer) {
    let plan = config.init().unwrap();
    let batches = batches(&plan);
    let mut optim = plan.optimizer(inner);
    let model = train(&mut optim, Net::new(&device()), batches, physical);
    (model, optim)
}

#[test]
fn every_step_is_one_release_in_the_ledger() {
    let (_, optim) = run(config(), SgdConfig::new().init(), 7);
    assert_eq!(optim.ledger().releases(), 8);
    assert_eq!(optim.ledger().entries().len(), 1);
    assert_eq!(optim.next_step(), 8);
    let statement = optim.statement(&[1e-5]).unwrap();
    let text = statement.to_string();
    assert!(text.contains("Poisson") && text.contains("flat"), "{text}");
}

#[test]
fn the_size_of_the_physical_batches_does_not_matter() {
    let (expected, _) = run(config(), SgdConfig::new().init(), 1000);
    for physical in [1, 7, 20] {
        let (found, _) = run(config(), SgdConfig::new().init(), physical);
        for (found, expected) in values(&found).into_iter().zip(values(&expected)) {
            for (found, expected) in found.into_iter().zip(expected) {
                assert!((found - expected).abs() < 1e-5, "{found} {expected}");
            }
        }
    }
}

#[test]
fn noise_reaches_every_parameter_also_one_that_no_example_reached() {
    let before = Net::new(&device());
    let (after, _) = run(config().with_steps(1), SgdConfig::new().init(), 7);
    for (after, before) in values(&after).into_iter().zip(values(&before)) {
        for (after, before) in after.into_iter().zip(before) {
            assert_ne!(after, before);
        }
    }
}

#[test]
fn noise_has_the_announced_deviation_over_the_expected_batch_size() {
    let sigma = 3.0;
    let clip = 0.5;
    let config = config().with_noise_multiplier(sigma).with_max_grad_norm(clip).with_steps(1);
    let before = Net::new(&device());
    let (after, _) = run(config, SgdConfig::new().init(), 7);
    // No example reaches the last layer: its 420 values moved by the learning rate times the noise.
    let (before, after) = (values(&before), values(&after));
    let moves: Vec<f64> = (4..6)
        .flat_map(|p| before[p].iter().zip(&after[p]).map(|(b, a)| f64::from(a - b)))
        .collect();
    assert_eq!(moves.len(), 420);
    let expected = 0.1 * sigma * clip / 20.0;
    let variance = moves.iter().map(|m| m * m).sum::<f64>() / 420.0;
    // The relative deviation of the variance is √(2/420) = 0.069; five of them are 0.35.
    assert!((variance / (expected * expected) - 1.0).abs() < 0.35, "{variance}");
}

#[test]
fn an_empty_draw_is_noise_and_is_recorded() {
    // Expected batch size 0.02: practically every draw is empty.
    let config = PrivacyPlanConfig::new(UNITS, 0.02)
        .with_steps(5)
        .with_noise_multiplier(1.0)
        .with_insecure_seed(InsecureSeed(1));
    let before = Net::new(&device());
    let (after, optim) = run(config, SgdConfig::new().init(), 7);
    assert_eq!(optim.ledger().releases(), 5);
    assert_eq!(optim.statistics().reveal().examples, 0);
    assert_ne!(values(&after), values(&before));
}

#[test]
fn the_update_is_divided_by_the_expected_batch_size_and_not_by_the_drawn_one() {
    struct Same;
    impl Batcher<usize, Tensor<2>> for Same {
        fn batch(&self, items: Vec<usize>, device: &Device) -> Tensor<2> {
            Rows.batch(vec![7; items.len()], device)
        }
    }
    let mut sizes = Vec::new();
    for seed in 0..6 {
        let plan = config()
            .with_insecure_seed(InsecureSeed(seed))
            .with_noise_multiplier(1e-6)
            .with_max_grad_norm(1e-2)
            .init()
            .unwrap();
        let dataset = InMemDataset::new((0..UNITS).collect::<Vec<usize>>());
        let batch = plan.batches(dataset, Same, &device()).unwrap().next().unwrap().unwrap();
        let drawn = batch.draw().private_indices().len();
        let before = Net::new(&device());
        let mut optim = plan.optimizer(SgdConfig::new().init());
        let after = train(&mut optim, before.clone(), std::iter::once(Ok(batch)), 1000);
        let moved = (values(&before).concat().iter().zip(values(&after).concat()))
            .map(|(before, after)| f64::from(before - after).powi(2))
            .sum::<f64>()
            .sqrt();
        // Every drawn unit has the same gradient, clipped to 0.01.
        let expected = 0.1 * 0.01 * drawn as f64 / 20.0;
        assert!((moved / expected - 1.0).abs() < 1e-3, "{drawn} units: {moved} {expected}");
        sizes.push(drawn);
    }
    sizes.dedup();
    assert!(sizes.len() > 1, "the draws have different sizes");
}

#[test]
fn the_run_does_not_depend_on_the_seed_of_the_device() {
    Device::flex().seed(42);
    let (first, _) = run(config(), SgdConfig::new().init(), 7);
    Device::flex().seed(43);
    let (second, _) = run(config(), SgdConfig::new().init(), 7);
    assert_eq!(values(&first), values(&second));
}

#[test]
fn two_runs_with_keys_of_the_operating_system_differ() {
    let config = PrivacyPlanConfig::new(UNITS, 20.0).with_steps(2).with_noise_multiplier(1.0);
    Device::flex().seed(42);
    let (first, optim) = run(config.clone(), SgdConfig::new().init(), 7);
    Device::flex().seed(42);
    let (second, _) = run(config, SgdConfig::new().init(), 7);
    assert_ne!(values(&first), values(&second));
    assert!(optim.plan().is_secure());
    assert!(optim.privacy_spent(1e-5).unwrap().upper.is_finite());
}

#[test]
fn a_known_seed_makes_the_ledger_not_private() {
    let (_, optim) = run(config(), SgdConfig::new().init(), 7);
    assert!(optim.privacy_spent(1e-5).unwrap().upper.is_infinite());
    assert!(optim.statement(&[1e-5]).unwrap().to_string().contains("NOT PRIVATE"));
}

#[test]
fn training_stops_before_the_step_that_would_break_the_budget() {
    let budget = Budget::new(1.0, 1e-4).unwrap();
    let plan = config().with_steps(10_000).with_budget(budget).init().unwrap();
    let mut batches = batches(&plan);
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let mut model = Net::new(&device());
    let (refused, error) = loop {
        let batch = batches.next().unwrap().unwrap();
        for chunk in batch.chunks(64).unwrap() {
            let (x, _) = chunk.unwrap().into_parts();
            optim.backward(model.losses(x), &model).unwrap();
        }
        let before = values(&model);
        match optim.step(0.1, model, batch) {
            Ok(next) => model = next,
            Err(refused) => {
                let error = refused.error().to_string();
                let model = refused.into_model();
                assert_eq!(values(&model), before);
                break (model, error);
            }
        }
    };
    assert!(error.contains("more than the budget of 1"), "{error}");
    let spent = optim.ledger().nominal_epsilon(1e-4).unwrap().upper;
    assert!(spent <= 1.0, "{spent}");
    let steps = optim.next_step();
    assert_eq!(optim.ledger().releases(), steps);
    assert!(error.contains(&format!("{steps} steps")), "{error}");
    drop(refused);
}

#[test]
fn a_step_beyond_the_plan_is_refused() {
    let (model, mut optim) = run(config(), SgdConfig::new().init(), 7);
    let draw = optim.plan().sampler().unwrap().draw(8).unwrap();
    for unit in draw.private_indices() {
        let x = Rows.batch(vec![*unit], &device());
        optim.backward(model.losses(x), &model).unwrap();
    }
    let error = optim.step(0.1, model, draw).unwrap_err().error().to_string();
    assert!(error.contains("all 8 planned steps"), "{error}");
    assert_eq!(optim.ledger().releases(), 8);
}

#[test]
fn draws_that_the_plan_does_not_account_for_are_refused() {
    let plan = config().init().unwrap();
    let other = config().with_sampling(SamplingScheme::FixedSize).init().unwrap();
    let foreign = other.sampler().unwrap().draw(0).unwrap();
    let later = plan.sampler().unwrap().draw(3).unwrap();
    let mine = plan.sampler().unwrap().draw(0).unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let model = Net::new(&device());

    let mut refuse = |draw, words: &str| {
        let error = optim.step(0.1, model.clone(), draw).unwrap_err().error().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(optim.ledger().releases(), 0);
    };
    refuse(foreign, "not what the plan accounts for");
    refuse(later, "in order");
    let seeded = burn_dp::sampling::PoissonSampler::with_expected_batch_size(UNITS, 20.0)
        .unwrap()
        .with_key(burn_dp::sampling::InsecureSamplingSeed(42));
    refuse(seeded.draw(0).unwrap(), "another key");
    // Nothing was given to `backward`, though units were drawn.
    refuse(mine.clone(), "exactly once");

    // One physical batch given twice.
    let x = Rows.batch(mine.private_indices().to_vec(), &device());
    optim.backward(model.losses(x.clone()), &model).unwrap();
    optim.backward(model.losses(x.clone()), &model).unwrap();
    let error = optim.step(0.1, model.clone(), mine.clone()).unwrap_err().error().to_string();
    assert!(error.contains("exactly once"), "{error}");
    optim.discard();
    optim.backward(model.losses(x), &model).unwrap();
    assert!(optim.step(0.1, model, mine).is_ok());
}

#[test]
fn a_failing_backward_releases_nothing() {
    #[derive(Module, Debug)]
    struct Mixed {
        first: Private<Linear>,
        second: Linear,
    }
    let device = device();
    let model = Mixed {
        first: LinearConfig::new(3, 2).init(&device).private(),
        second: LinearConfig::new(2, 1).init(&device),
    };
    let plan = config().init().unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let x = Rows.batch(vec![1, 2], &device);
    let losses = model.second.forward(model.first.forward(x)).reshape([-1]);
    assert!(matches!(
        optim.backward(losses, &model),
        Err(DpError::UnsupportedModel { path, .. }) if path == "second.weight"
    ));
    assert_eq!(optim.ledger().releases(), 0);
}

fn resumed(inner: fn() -> ModuleOptimizer) {
    let folder = tempfile::tempdir().unwrap();
    let checkpointer = Checkpointer::new(folder.path().join("run"));
    assert!(checkpointer.latest().unwrap().is_none());

    let (expected, whole) = run(config(), inner(), 7);

    let plan = config().init().unwrap();
    let half = batches(&plan).take(4);
    let mut optim = plan.optimizer(inner());
    let model = train(&mut optim, Net::new(&device()), half, 7);
    checkpointer.save(&model, &optim).unwrap();
    drop((model, optim));

    // Another seed: the key of the run is the saved one.
    let plan = config().init().unwrap();
    let checkpoint = checkpointer.latest().unwrap().unwrap();
    let (mut optim, model) = checkpoint.restore(plan, inner(), Net::new(&device())).unwrap();
    assert_eq!(optim.next_step(), 4);
    let rest = batches(optim.plan()).skip_to(optim.next_step()).unwrap();
    let found = train(&mut optim, model, rest, 7);

    assert_eq!(values(&found), values(&expected));
    assert_eq!(optim.ledger().to_json().unwrap(), whole.ledger().to_json().unwrap());
}

#[test]
fn a_resumed_run_is_the_run_bit_for_bit() {
    resumed(|| SgdConfig::new().init());
    resumed(|| AdamConfig::new().init());
}

#[test]
fn a_resumed_run_takes_the_key_of_the_run_and_not_a_new_one() {
    let config = || PrivacyPlanConfig::new(UNITS, 20.0).with_steps(4).with_noise_multiplier(1.0);
    let folder = tempfile::tempdir().unwrap();
    let checkpointer = Checkpointer::new(folder.path());
    let plan = config().init().unwrap();
    let draw = plan.sampler().unwrap().draw(2).unwrap();
    let optim = plan.optimizer(SgdConfig::new().init());
    checkpointer.save(&Net::new(&device()), &optim).unwrap();
    drop(optim);
    let checkpoint = checkpointer.latest().unwrap().unwrap();
    let (restored, _) = checkpoint
        .restore(config().init().unwrap(), SgdConfig::new().init(), Net::new(&device()))
        .unwrap();
    assert!(restored.plan().sampler().unwrap().draw(2).unwrap() == draw);
}

#[test]
fn a_checkpoint_does_not_resume_with_other_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let checkpointer = Checkpointer::new(folder.path());
    let optim = config().init().unwrap().optimizer(SgdConfig::new().init());
    checkpointer.save(&Net::new(&device()), &optim).unwrap();
    let checkpoint = checkpointer.latest().unwrap().unwrap();
    for (config, name) in [
        (config().with_noise_multiplier(0.1), "noise_multiplier was 1 and is now 0.1"),
        (config().with_max_grad_norm(2.0), "clipping"),
        (config().with_steps(9), "steps was 8 and is now 9"),
        (config().with_budget(Budget::new(1e9, 1e-4).unwrap()), "budget was none"),
        (config().with_sampling(SamplingScheme::FixedSize), "sampling"),
    ] {
        let plan = config.init().unwrap();
        let error = checkpoint
            .restore(plan, SgdConfig::new().init(), Net::new(&device()))
            .unwrap_err()
            .to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn damaged_checkpoints_are_refused_with_the_file() {
    let restore = |damage: fn(&std::path::Path)| {
        let folder = tempfile::tempdir().unwrap();
        let checkpointer = Checkpointer::new(folder.path());
        let optim = config().init().unwrap().optimizer(SgdConfig::new().init());
        checkpointer.save(&Net::new(&device()), &optim).unwrap();
        drop(optim);
        let checkpoint = checkpointer.latest().unwrap().unwrap();
        damage(checkpoint.folder());
        let plan = config().init().unwrap();
        checkpoint
            .restore(plan, SgdConfig::new().init(), Net::new(&device()))
            .unwrap_err()
            .to_string()
    };
    let error = restore(|folder| {
        let path = folder.join("model.bpk");
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(path, bytes).unwrap();
    });
    assert!(error.contains("model.bpk is damaged"), "{error}");
    let error = restore(|folder| {
        let path = folder.join("optimizer.bpk");
        let bytes = fs::read(&path).unwrap();
        fs::write(path, &bytes[..bytes.len() - 3]).unwrap();
    });
    assert!(error.contains("optimizer.bpk is damaged"), "{error}");
    let error = restore(|folder| fs::remove_file(folder.join("model.bpk")).unwrap());
    assert!(error.contains("model.bpk"), "{error}");
    let error = restore(|folder| fs::write(folder.join("privacy.json"), "{").unwrap());
    assert!(error.contains("privacy.json is damaged"), "{error}");
    let error = restore(|folder| {
        let path = folder.join("privacy.json");
        let text = fs::read_to_string(&path).unwrap().replace("\"format\": 3", "\"format\": 7");
        fs::write(path, text).unwrap();
    });
    assert!(error.contains("format Some(7)"), "{error}");
    let error = restore(|folder| {
        let path = folder.join("privacy.json");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, text.replace("\"next_step\": 0", "\"next_step\": 1")).unwrap();
    });
    assert!(error.contains("contradict"), "{error}");
}

#[cfg(unix)]
#[test]
fn the_key_of_a_checkpoint_is_readable_by_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let checkpointer = Checkpointer::new(folder.path());
    let optim = config().init().unwrap().optimizer(SgdConfig::new().init());
    checkpointer.save(&Net::new(&device()), &optim).unwrap();
    let file = checkpointer.latest().unwrap().unwrap().folder().join("privacy.json");
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_checkpoint_of_another_run_is_not_overwritten_and_not_kept_in_silence() {
    let folder = tempfile::tempdir().unwrap();
    let checkpointer = Checkpointer::new(folder.path());
    let save = |seed| {
        let plan = config().with_insecure_seed(InsecureSeed(seed)).init().unwrap();
        checkpointer.save(&Net::new(&device()), &plan.optimizer(SgdConfig::new().init()))
    };
    save(1).unwrap();
    save(1).unwrap();
    let error = save(2).unwrap_err().to_string();
    assert!(error.contains("another run"), "{error}");
}

#[test]
fn a_buffer_that_a_forward_pass_changes_is_refused_with_its_path() {
    use burn::module::RunningState;
    #[derive(Module, Debug)]
    struct Tracking {
        fc: Private<Linear>,
        seen: RunningState<Tensor<1>>,
    }
    let device = device();
    let model = Tracking {
        fc: LinearConfig::new(3, 1).init(&device).private(),
        seen: RunningState::new(Tensor::zeros([1], &device)),
    };
    let mut optim = config().init().unwrap().optimizer(SgdConfig::new().init());
    let mut pass = |store: bool| {
        let x = Rows.batch(vec![1, 2], &device);
        if store {
            let mean = x.clone().mean().reshape([1]).detach();
            model.seen.update(model.seen.value_sync() + mean);
            let _ = model.seen.value_sync();
        }
        optim.backward(model.fc.forward(x).powi_scalar(2).reshape([-1]), &model)
    };
    pass(true).unwrap();
    let error = pass(true).unwrap_err().to_string();
    assert!(error.contains("`seen`") && error.contains("not trained"), "{error}");
}

#[test]
fn a_parameter_that_is_thawed_between_backward_and_step_gets_noise_alone() {
    let plan = config().init().unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let model = Net::new(&device());
    let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
    let frozen = Net { first: model.first.clone().no_grad(), ..model.clone() };
    let x = Rows.batch(draw.private_indices().to_vec(), &device());
    optim.backward(frozen.losses(x), &frozen).unwrap();
    let after = optim.step(0.1, model.clone(), draw).unwrap();
    // Noise over the expected batch size times the learning rate: far below the clipped gradients.
    for (before, after) in values(&model)[0].iter().zip(&values(&after)[0]) {
        assert!((before - after).abs() < 0.1 * 6.0 / 20.0);
    }
    assert_eq!(optim.ledger().releases(), 1);
}

#[test]
fn a_forward_pass_that_is_not_followed_by_a_backward_pass_leaves_nothing_behind() {
    let first = run(config(), SgdConfig::new().init(), 7).0;
    let stale = Net::new(&device());
    let _kept = stale.losses(Rows.batch(vec![1, 2, 3], &device()));
    let second = run(config(), SgdConfig::new().init(), 7).0;
    assert_eq!(values(&first), values(&second));
}

#[test]
fn a_delta_that_allows_to_publish_a_unit_is_not_stated() {
    let (_, optim) = run(config(), SgdConfig::new().init(), 7);
    for error in [optim.privacy_spent(0.1).err(), optim.statement(&[1e-5, 0.1]).err()] {
        assert!(error.unwrap().to_string().contains("1 / dataset_size"));
    }
}

#[test]
fn releases_after_a_checkpoint_stay_in_the_ledger_and_are_made_again_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let checkpointer = Checkpointer::new(folder.path());
    let begin = || {
        let plan = config().init().unwrap();
        let all = batches(&plan);
        (plan.optimizer(SgdConfig::new().init()), all)
    };
    let (mut optim, mut all) = begin();
    let model = train(&mut optim, Net::new(&device()), all.by_ref().take(2), 7);
    checkpointer.save(&model, &optim).unwrap();
    let lost = train(&mut optim, model, all.take(3), 7);
    drop(optim);

    let resume = |checkpoint: burn_dp::optim::Checkpoint| {
        let plan = config().init().unwrap();
        checkpoint.restore(plan, SgdConfig::new().init(), Net::new(&device())).unwrap()
    };
    let checkpoint = checkpointer.latest().unwrap().unwrap();
    let (mut optim, model) = resume(checkpoint.clone());
    assert_eq!((optim.next_step(), optim.ledger().releases()), (2, 5));
    let rest = batches(optim.plan()).skip_to(2).unwrap();
    let again = train(&mut optim, model, rest.take(3), 7);
    assert_eq!(values(&again), values(&lost));
    assert_eq!((optim.next_step(), optim.ledger().releases()), (5, 5));
    drop(optim);

    // Another model is another release from the same draw.
    let (mut optim, _) = resume(checkpoint.clone());
    let mut rest = batches(optim.plan()).skip_to(2).unwrap();
    let batch = rest.next().unwrap().unwrap();
    let model = Net::new(&device());
    for chunk in batch.chunks(7).unwrap() {
        optim.backward(model.losses(chunk.unwrap().into_parts().0), &model).unwrap();
    }
    let error = optim.step(0.1, model, batch).unwrap_err().error().to_string();
    assert!(error.contains("step 2 was released before"), "{error}");
    drop(optim);

    let (optim, _) = resume(checkpoint.skip_lost_steps());
    assert_eq!((optim.next_step(), optim.ledger().releases()), (5, 5));
}

#[test]
fn sums_of_single_examples_are_not_printed() {
    use burn_dp::clipping::{Clipping, FlatClipping};
    let model = Net::new(&device());
    let x = Rows.batch(vec![1, 2], &device());
    let grads = burn_dp::grads::PrivateBackward::new().run(model.losses(x), &model).unwrap();
    assert_eq!(format!("{grads:?}"), "PerExampleGradients { .. }");
    let sum = FlatClipping::new(0.5).unwrap().clip(grads).unwrap();
    assert_eq!(format!("{sum:?}"), "ClippedSum { clipping_norm: 0.5, .. }");
}

#[test]
fn a_sum_that_was_clipped_to_another_threshold_is_refused() {
    use burn_dp::clipping::{Clipping, FlatClipping};
    let plan = config().init().unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let model = Net::new(&device());
    let x = Rows.batch(vec![1, 2], &device());
    let grads = burn_dp::grads::PrivateBackward::new().run(model.losses(x), &model).unwrap();
    let sum = FlatClipping::new(2.0).unwrap().clip(grads).unwrap();
    let error = optim.accumulate(sum).unwrap_err().to_string();
    assert!(error.contains("that of the logical step, [1.0], got [2.0]"), "{error}");
}

#[test]
fn a_new_checkpoint_replaces_the_old_one_and_a_partial_one_is_not_seen() {
    let folder = tempfile::tempdir().unwrap();
    let checkpointer = Checkpointer::new(folder.path());
    let plan = config().init().unwrap();
    let mut all = batches(&plan);
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let mut model = Net::new(&device());
    for _ in 0..2 {
        checkpointer.save(&model, &optim).unwrap();
        let one = all.by_ref().take(1);
        model = train(&mut optim, model, one, 7);
    }
    checkpointer.save(&model, &optim).unwrap();
    fs::create_dir(folder.path().join("partial-x")).unwrap();
    let latest = checkpointer.latest().unwrap().unwrap();
    assert!(latest.folder().ends_with("checkpoint-00000000000000000002"));
    let complete = fs::read_dir(folder.path())
        .unwrap()
        .filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().starts_with("checkpoint"))
        .count();
    assert_eq!(complete, 1);
}
