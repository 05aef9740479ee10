//! The release of a step.

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::nn::Linear;
use burn::optim::SgdConfig;
use burn::tensor::{Device, Tensor};
use burn_dp::grads::has_coarse_products;
use burn_dp::nn::{IntoPrivate, Private};
use burn_dp::optim::PrivacyPlanConfig;
use burn_dp::random::InsecureSeed;
use burn_dp::sampling::Sampler;
use burn_dp_accountant::Budget;

use crate::fixtures::{
    Net, Rows, UNITS, batches, config, device, layer, run, train, train_with, values,
};

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
fn the_result_is_independent_of_the_physical_batch_size() {
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

/// A network with a layer that no example reaches.
#[derive(Module, Debug)]
struct Wide {
    net: Net,
    unused: Private<Linear>,
}

/// Before and after one step.
fn one_wide_step(config: PrivacyPlanConfig) -> [Vec<Vec<f32>>; 2] {
    let plan = config.with_steps(1).init().unwrap();
    let batches = batches(&plan);
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let model = Wide { net: Net::new(), unused: layer(20, 20, 3.0).private() };
    let before = values(&model);
    let losses = |model: &Wide, x| model.net.losses(x);
    [before, values(&train_with(&mut optim, model, batches, 7, losses))]
}

#[test]
fn noise_reaches_every_parameter_also_one_that_no_example_reached() {
    let [before, after] = one_wide_step(config());
    for (after, before) in after.into_iter().zip(before) {
        for (after, before) in after.into_iter().zip(before) {
            assert_ne!(after, before);
        }
    }
}

#[test]
fn noise_has_the_announced_deviation_over_the_expected_batch_size() {
    let sigma = 3.0;
    let clip = 0.5;
    let config = config().with_noise_multiplier(sigma).with_max_grad_norm(clip);
    let [before, after] = one_wide_step(config);
    // No example reaches the last layer: its 420 values moved by the learning rate times the noise.
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
    let before = Net::new();
    let (after, optim) = run(config, SgdConfig::new().init(), 7);
    assert_eq!(optim.ledger().releases(), 5);
    assert_eq!(optim.statistics().reveal().examples, 0);
    assert_ne!(values(&after), values(&before));
}

#[test]
fn the_update_is_divided_by_the_expected_batch_size() {
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
        let before = Net::new();
        let mut optim = plan.optimizer(SgdConfig::new().init());
        let after = train(&mut optim, before.clone(), std::iter::once(Ok(batch)), 1000);
        let moved = (values(&before).concat().iter().zip(values(&after).concat()))
            .map(|(before, after)| f64::from(before - after).powi(2))
            .sum::<f64>()
            .sqrt();
        // Every drawn unit has the same gradient, clipped to 0.01.
        let expected = 0.1 * 0.01 * drawn as f64 / 20.0;
        // Less than a unit that is lost or counted twice, also on devices that multiply in TF32.
        let tolerance = if has_coarse_products(&device()) { 5e-3 } else { 1e-3 };
        assert!((moved / expected - 1.0).abs() < tolerance, "{drawn} units: {moved} {expected}");
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
fn training_stops_before_the_budget_is_exceeded() {
    let budget = Budget::new(1.0, 1e-4).unwrap();
    let plan = config().with_steps(10_000).with_budget(budget).init().unwrap();
    let mut batches = batches(&plan);
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let mut model = Net::new();
    let (refused, error) = loop {
        let batch = batches.next().unwrap().unwrap();
        for physical_batch in batch.physical_batches(64).unwrap() {
            optim.backward(&model, physical_batch.unwrap(), Net::losses).unwrap();
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
fn a_parameter_thawed_before_the_step_gets_noise_alone() {
    let plan = config().init().unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let model = Net::new();
    let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
    let frozen = Net { first: model.first.clone().no_grad(), ..model.clone() };
    optim.backward(&frozen, &draw, |model, units| model.losses_of(&units)).unwrap();
    let after = optim.step(0.1, model.clone(), draw).unwrap();
    // Noise over the expected batch size times the learning rate: far below the clipped gradients.
    for (before, after) in values(&model)[0].iter().zip(&values(&after)[0]) {
        assert!((before - after).abs() < 0.1 * 6.0 / 20.0);
        assert_ne!(before, after, "a parameter without gradients is released as noise");
    }
    assert_eq!(optim.ledger().releases(), 1);
}

#[test]
fn a_forward_pass_without_a_backward_pass_changes_nothing() {
    let first = run(config(), SgdConfig::new().init(), 7).0;
    let stale = Net::new();
    let _kept = stale.losses(Rows.batch(vec![1, 2, 3], &device()));
    let second = run(config(), SgdConfig::new().init(), 7).0;
    assert_eq!(values(&first), values(&second));
}
