//! Batch clipping, general batch clipping, and the protection of a mini-set.

use burn::optim::SgdConfig;
use burn_dp::DpError;
use burn_dp::checkpoint::Checkpointer;
use burn_dp::optim::{DpOptimizer, PrivacyPlanConfig, SamplingScheme};
use burn_dp::random::InsecureSeed;
use burn_dp::updates::{LocalTraining, MiniSets, UnitUpdate};
use burn_dp_accountant::{NeighboringRelation, UnitOfPrivacy};

use crate::fixtures::{Net, assert_same_units, distance, flat};

pub(crate) const EXAMPLES: usize = 120;

pub(crate) fn finish(config: PrivacyPlanConfig) -> PrivacyPlanConfig {
    config.with_steps(5).with_noise_multiplier(0.5).with_insecure_seed(InsecureSeed(3))
}

/// Ordinary DP-SGD: rows of a batch.
pub(crate) fn by_rows(config: PrivacyPlanConfig) -> Vec<f32> {
    let plan = config.init().unwrap();
    let sampler = plan.sampler().unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let mut model = Net::new();
    for step in 0..5 {
        let draw = sampler.draw(step).unwrap();
        optim.backward(&model, &draw, |model, units| model.losses_of(&units)).unwrap();
        model = optim.step(0.1, model, draw).unwrap();
    }
    flat(&model)
}

type Update = dyn Fn(Net, &[usize]) -> Result<UnitUpdate, DpError>;

/// The same draws, with mini-sets as units.
fn by_units(
    sets: &MiniSets,
    config: PrivacyPlanConfig,
    update: &Update,
) -> (Vec<f32>, DpOptimizer) {
    let plan = config.init().unwrap();
    let sampler = plan.sampler().unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let mut model = Net::new();
    for step in 0..5 {
        let draw = sampler.draw(step).unwrap();
        optim.unit_updates(&model, &draw, |model, set| update(model, sets.members(set))).unwrap();
        model = optim.step(0.1, model, draw).unwrap();
    }
    (flat(&model), optim)
}

fn mean_gradient(model: Net, members: &[usize]) -> Result<UnitUpdate, DpError> {
    UnitUpdate::gradient(&model, model.losses_of(members))
}

#[test]
fn batch_clipping_of_single_examples_is_individual_clipping() {
    for scheme in [SamplingScheme::Poisson, SamplingScheme::FixedSize] {
        let sets = MiniSets::consecutive(EXAMPLES, 1).unwrap();
        let config = finish(PrivacyPlanConfig::for_mini_sets(&sets, 12.0)).with_sampling(scheme);
        let (units, _) = by_units(&sets, config, &mean_gradient);
        let rows = by_rows(finish(PrivacyPlanConfig::new(EXAMPLES, 12.0)).with_sampling(scheme));
        // Sums in another order.
        assert_same_units(&units, &rows, 1e-5, 0.1 / 12.0);
    }
}

#[test]
fn general_batch_clipping_with_one_step_of_sgd_is_batch_clipping() {
    let sets = MiniSets::shuffled(EXAMPLES, 8, 1).unwrap();
    let config = || {
        finish(PrivacyPlanConfig::for_mini_sets(&sets, 2.0))
            .with_sampling(SamplingScheme::FixedSize)
    };
    let (mean, _) = by_units(&sets, config(), &mean_gradient);
    let training = LocalTraining::new(SgdConfig::new().init(), 1.0).unwrap();
    let step = move |model: Net, members: &[usize]| {
        training.run(model, [members.to_vec()], |model, batch| Ok(model.losses_of(&batch)))
    };
    let (general, _) = by_units(&sets, config(), &step);
    // `w - (w - g)` is g rounded to the places of w.
    assert_same_units(&general, &mean, 1e-5, 0.1 / 2.0);
}

#[test]
fn a_mini_set_moves_the_model_by_its_clipped_mean_gradient() {
    let sets = MiniSets::consecutive(EXAMPLES, EXAMPLES).unwrap();
    let config = PrivacyPlanConfig::for_mini_sets(&sets, 1.0)
        .with_sampling(SamplingScheme::FixedSize)
        .with_steps(1)
        .with_noise_multiplier(1e-6)
        .with_max_grad_norm(0.01)
        .with_insecure_seed(InsecureSeed(1));
    let plan = config.init().unwrap();
    let draw = plan.sampler().unwrap().draw(0).unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let before = Net::new();
    optim.unit_updates(&before, &draw, |m: Net, set| mean_gradient(m, sets.members(set))).unwrap();
    assert_eq!(optim.statistics().reveal().examples, 0);
    let after = optim.step(1.0, before.clone(), draw).unwrap();
    assert_eq!(optim.statistics().reveal().examples, 1);
    let moved: f64 = flat(&before)
        .iter()
        .zip(flat(&after))
        .map(|(before, after)| f64::from(before - after).powi(2))
        .sum();
    assert!((moved.sqrt() - 0.01).abs() < 1e-5, "{}", moved.sqrt());
}

#[test]
fn each_step_is_one_release_and_the_statement_names_the_unit() {
    let sets = MiniSets::shuffled(EXAMPLES, 8, 1).unwrap();
    let config = finish(PrivacyPlanConfig::for_mini_sets(&sets, 2.0));
    let (_, optim) = by_units(&sets, config.clone(), &mean_gradient);
    assert_eq!(optim.ledger().releases(), 5);
    assert_eq!(optim.plan().unit(), &UnitOfPrivacy::MiniSet);
    let statement = optim.statement(&[1e-3]).unwrap();
    assert_eq!(statement.facts["mini_set_size"], "8");
    assert!(statement.to_string().contains("one mini-set removed and another added"));

    let fixed = config.with_sampling(SamplingScheme::FixedSize);
    let (_, optim) = by_units(&sets, fixed, &mean_gradient);
    assert_eq!(optim.plan().unit(), &UnitOfPrivacy::Example);
    assert_eq!(optim.plan().relation(), NeighboringRelation::ReplaceOne);
    assert!(!optim.statement(&[1e-3]).unwrap().to_string().contains("another added"));
}

#[test]
fn a_unit_that_is_left_out_or_given_twice_is_refused() {
    let plan = || finish(PrivacyPlanConfig::new(EXAMPLES, 12.0)).init().unwrap();
    let plan = plan();
    let draw = plan.sampler().unwrap().draw(0).unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let refused = optim.step(0.1, Net::new(), draw.clone()).unwrap_err();
    let unit = draw.private_indices()[0];
    let error = refused.error().to_string();
    assert!(error.contains(&format!("unit {unit} of step 0 was drawn, but never")), "{error}");
    let model = refused.into_model();
    let mut update = || optim.unit_updates(&model, &draw, |m: Net, i| mean_gradient(m, &[i]));
    update().unwrap();
    let error = update().unwrap_err().to_string();
    assert!(error.contains(&format!("unit {unit} of step 0 was given twice")), "{error}");
}

#[test]
fn other_mini_sets_are_refused_on_resumption() {
    let config = |seed| {
        let sets = MiniSets::shuffled(EXAMPLES, 8, seed).unwrap();
        finish(PrivacyPlanConfig::for_mini_sets(&sets, 2.0)).init().unwrap()
    };
    let folder = crate::fixtures::run_folder();
    let checkpointer = Checkpointer::new(folder.path());
    let optim = config(1).optimizer(SgdConfig::new().init());
    checkpointer.save(&Net::new(), &optim).unwrap();
    drop(optim);
    let checkpoint = checkpointer.latest().unwrap().unwrap();
    let restore = |seed| checkpoint.restore(config(seed), SgdConfig::new().init(), Net::new());
    assert!(restore(1).is_ok());
    let error = restore(2).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("mini_sets was 120 examples in sets of 8"), "{error}");
}

/// The sum of clipped mini-sets of these examples, noise far below the tolerance.
fn released_sets(examples: &[usize], size: usize, sets: usize, clip: f64) -> Vec<f64> {
    let partition = MiniSets::consecutive(examples.len(), size).unwrap();
    assert_eq!(partition.len(), sets);
    let plan = PrivacyPlanConfig::for_mini_sets(&partition, sets as f64)
        .with_sampling(SamplingScheme::FixedSize)
        .with_steps(1)
        .with_noise_multiplier(1e-7)
        .with_max_grad_norm(clip)
        .with_insecure_seed(InsecureSeed(2))
        .init()
        .unwrap();
    let draw = plan.sampler().unwrap().draw(0).unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let before = Net::new();
    optim
        .unit_updates(&before, &draw, |model: Net, set| {
            let members: Vec<usize> = partition.members(set).iter().map(|&i| examples[i]).collect();
            let losses = model.losses_of(&members);
            let losses = match members.iter().max() {
                Some(1000) => losses * 1e15,
                Some(1001) => losses * f32::NAN,
                _ => losses,
            };
            UnitUpdate::gradient(&model, losses)
        })
        .unwrap();
    let after = optim.step(sets as f64, before.clone(), draw).unwrap();
    let moved = flat(&before).into_iter().zip(flat(&after));
    moved.map(|(before, after)| f64::from(before) - f64::from(after)).collect()
}

// Sharp edge: the table of `MiniSets`.
#[test]
fn one_example_moves_the_sum_of_mini_sets_as_the_table_states() {
    let clip = 0.2;
    let tolerance = clip * 1e-3 + 1e-5;
    let examples: Vec<usize> = (0..40).collect();
    let whole = released_sets(&examples, 10, 4, clip);
    let moved = |other: &[f64]| distance(&whole, other);
    // One example replaced, also by an adversarial one, changes one mini-set: 2 C.
    for other in [77, 1000, 1001] {
        let mut replaced = examples.clone();
        replaced[13] = other;
        assert!(moved(&released_sets(&replaced, 10, 4, clip)) <= 2.0 * clip + tolerance);
    }
    // The members follow from the number of examples. Without the last one, one mini-set changes;
    // without the first one, all do.
    assert!(moved(&released_sets(&examples[..39], 10, 4, clip)) <= 2.0 * clip + tolerance);
    let before = MiniSets::consecutive(40, 10).unwrap();
    let after = MiniSets::consecutive(39, 10).unwrap();
    assert!((0..4).all(|set| {
        let moved: Vec<usize> = after.members(set).iter().map(|member| member + 1).collect();
        before.members(set) != moved
    }));
    // One fewer mini-set: C.
    let without = moved(&released_sets(&examples[..30], 10, 3, clip));
    assert!(without <= clip + tolerance && without > 0.5 * clip, "{without}");
}
