//! Whole runs with every sampler that a plan accounts for.

use burn::data::dataset::InMemDataset;
use burn::optim::SgdConfig;
use burn::tensor::Tensor;
use burn_dp::checkpoint::Checkpointer;
use burn_dp::optim::{
    DpOptimizer, FederatedTraining, PrivacyPlan, PrivacyPlanConfig, SamplingScheme,
};
use burn_dp::random::InsecureSeed;
use burn_dp::sampling::{OwnedExamples, PrivateDataLoaderBuilder, UserDataset};
use burn_dp::schedule::Schedule;
use burn_dp::updates::UnitUpdate;
use burn_dp::updates::federated::FedSgdConfig;
use burn_dp_accountant::{Accountant, DpEvent, NeighboringRelation, PldAccountant, UnitOfPrivacy};

use crate::fixtures::*;

const SCHEMES: [SamplingScheme; 10] = [
    SamplingScheme::Poisson,
    SamplingScheme::TruncatedPoisson { max_batch_size: 21 },
    SamplingScheme::FixedSize,
    SamplingScheme::WithReplacement,
    SamplingScheme::Shuffled,
    SamplingScheme::ShuffledOnce,
    SamplingScheme::CyclicPoisson { parts: 4 },
    SamplingScheme::BallsInBins { bins: 10 },
    SamplingScheme::RandomAllocation { bins: 10 },
    SamplingScheme::MinSeparation { separation: 4 },
];

#[test]
fn a_run_with_any_sampler_resumes_bit_for_bit() {
    for scheme in SCHEMES {
        let config = || config().with_sampling(scheme);
        let (whole, _) = run(config(), SgdConfig::new().init(), 8);

        let folder = run_folder();
        let checkpointer = Checkpointer::new(folder.path());
        let mut optim = config().init().unwrap().optimizer(SgdConfig::new().init());
        let model = train_on(&mut optim, Net::new(), 3, 8);
        checkpointer.save(&model, &optim).unwrap();
        drop((optim, model));

        let checkpoint = checkpointer.latest().unwrap().unwrap();
        let (plan, inner) = (config().init().unwrap(), SgdConfig::new().init());
        let (mut optim, model) = checkpoint.restore(plan, inner, Net::new()).unwrap();
        let resumed = train_on(&mut optim, model, 5, 8);
        assert_eq!(flat(&resumed), flat(&whole), "{scheme:?}");
    }
}

#[test]
fn the_event_of_a_run_costs_at_least_what_its_plan_states() {
    let epsilon = |plan: &PrivacyPlan, event: &DpEvent| {
        let accountant = PldAccountant::new([(event, 1)], plan.relation()).unwrap();
        accountant.epsilon(1e-3).unwrap().upper
    };
    for scheme in SCHEMES {
        let plan = config().with_sampling(scheme).init().unwrap();
        let (stated, found) = (plan.epsilon_at_end(1e-3).unwrap(), plan.event_of_run().unwrap());
        let found = epsilon(&plan, &found);
        assert!(found >= stated * (1.0 - 1e-3), "{scheme:?}: {found} {stated}");
        // Only a minimum separation loses its amplification.
        let is_tight = !matches!(scheme, SamplingScheme::MinSeparation { .. });
        assert!(!is_tight || found <= stated * (1.0 + 1e-3), "{scheme:?}: {found} {stated}");
    }
    let schedule = Schedule::steps([(3, 2.0)]).unwrap();
    let plan = config().with_noise_schedule(schedule).init().unwrap();
    let (stated, found) = (plan.epsilon_at_end(1e-3).unwrap(), plan.event_of_run().unwrap());
    assert!((epsilon(&plan, &found) / stated - 1.0).abs() < 1e-3, "{found}");
    assert!(matches!(found, DpEvent::Composed { .. }), "{found}");
}

#[test]
fn a_checkpoint_does_not_resume_with_another_sampler() {
    let folder = run_folder();
    let checkpointer = Checkpointer::new(folder.path());
    let shuffled = config().with_sampling(SamplingScheme::Shuffled).init().unwrap();
    let mut optim = shuffled.optimizer(SgdConfig::new().init());
    let model = train_on(&mut optim, Net::new(), 1, 8);
    checkpointer.save(&model, &optim).unwrap();
    drop(optim);
    for other in [SamplingScheme::ShuffledOnce, SamplingScheme::WithReplacement] {
        let checkpoint = checkpointer.latest().unwrap().unwrap();
        let plan = config().with_sampling(other).init().unwrap();
        let restored = checkpoint.restore(plan, SgdConfig::new().init(), Net::new());
        let error = restored.err().unwrap().to_string();
        assert!(error.contains("sampling was"), "{error}");
    }
}

/// Trains on physical batches of 8 rows, and returns their number in each step.
fn padded(config: PrivacyPlanConfig) -> (Net, DpOptimizer, Vec<usize>) {
    let plan = config.init().unwrap();
    let builder = PrivateDataLoaderBuilder::new(Rows).with_device(device()).with_padding();
    let dataset = InMemDataset::new((0..UNITS).collect::<Vec<usize>>());
    let batches = builder.build(dataset, plan.sampler().unwrap(), plan.steps()).unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let (mut model, mut numbers) = (Net::new(), Vec::new());
    for batch in batches {
        let batch = batch.unwrap();
        let mut number = 0;
        for physical in batch.physical_batches(8).unwrap() {
            let losses = |model: &Net, x: Tensor<2>| {
                assert_eq!(x.dims(), [8, 3]);
                model.losses(x)
            };
            optim.backward(&model, physical.unwrap(), losses).unwrap();
            number += 1;
        }
        model = optim.step(0.1, model, batch).unwrap();
        numbers.push(number);
    }
    (model, optim, numbers)
}

#[test]
fn truncated_runs_have_fixed_shapes_and_train_what_unpadded_runs_train() {
    // With a mean of 0.5, most steps consist only of padding.
    for (mean, max_batch_size) in [(20.0, 20), (0.5, 20)] {
        let scheme = SamplingScheme::TruncatedPoisson { max_batch_size };
        let config = || {
            PrivacyPlanConfig::new(UNITS, mean)
                .with_steps(8)
                .with_noise_multiplier(1.0)
                .with_sampling(scheme)
                .with_insecure_seed(InsecureSeed(5))
        };
        let (expected, plain) = run(config(), SgdConfig::new().init(), 8);
        let (found, optim, numbers) = padded(config());
        assert_eq!(numbers, [3; 8]);
        assert_same_units(&flat(&found), &flat(&expected), 1e-4, 0.1 / mean);
        assert_eq!(optim.ledger().releases(), 8);
        let ledger = optim.ledger();
        assert_eq!(ledger.entries(), plain.ledger().entries());
        let event = &ledger.entries()[0].event;
        assert!(
            matches!(event, DpEvent::TruncatedPoissonSampled { max_batch_size: 20, .. }),
            "{event}"
        );
        assert_eq!(optim.plan().relation(), NeighboringRelation::AddOrRemoveOne);
        assert!(optim.statement(&[1e-5]).unwrap().to_string().contains("cut to at most 20 units"));
    }
}

/// Returns the change of the model in a step with replacement, times the batch size, if `unit` has
/// a gradient far above the threshold, or none.
fn moved(seed: u64, unit: usize, has_gradient: bool) -> (Vec<f64>, usize) {
    let config = PrivacyPlanConfig::new(6, 4.0)
        .with_steps(1)
        .with_noise_multiplier(1e-6)
        .with_sampling(SamplingScheme::WithReplacement)
        .with_insecure_seed(InsecureSeed(seed));
    let plan = config.init().unwrap();
    let draw = plan.sampler().unwrap().draw(0).unwrap();
    let times = draw.private_indices().iter().filter(|&&drawn| drawn == unit).count();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let update = |copy: Net, index: usize| {
        let loss = copy.losses_of(&[index]);
        let factor = if index == unit { f32::from(has_gradient) * 1e4 } else { 1.0 };
        UnitUpdate::gradient(&copy, loss * factor)
    };
    let model = Net::new();
    optim.unit_updates(&model, &draw, update).unwrap();
    let model = optim.step(4.0, model, draw).unwrap();
    let moved = flat(&Net::new()).into_iter().zip(flat(&model));
    (moved.map(|(before, after)| f64::from(before) - f64::from(after)).collect(), times)
}

#[test]
fn a_unit_that_is_drawn_j_times_contributes_j_times_the_threshold() {
    let mut seen = [false; 4];
    for seed in 0..100 {
        for unit in 0..6 {
            let ((with, times), (without, _)) = (moved(seed, unit, true), moved(seed, unit, false));
            let distance = distance(&with, &without);
            assert!((distance - times as f64).abs() < 1e-3, "{distance} {times}");
            seen[times.min(3)] = true;
        }
    }
    assert_eq!(seen, [true; 4], "choose other seeds");
}

/// User u owns u % 5 + 1 examples, which are mixed with the examples of other users.
fn records() -> Vec<(usize, usize)> {
    let mut records: Vec<(usize, usize)> =
        (0..40).flat_map(|user| (0..=user % 5).map(move |i| (user, 5 * user + i))).collect();
    records.sort_by_key(|&(_, example)| (example * 37) % 211);
    records
}

fn rounds(
    users: &impl burn_dp::sampling::DistinctRecords<Vec<(usize, usize)>>,
    max_examples: usize,
) -> Vec<f32> {
    let config = PrivacyPlanConfig::new(40, 10.0)
        .with_unit(UnitOfPrivacy::User)
        .with_steps(4)
        .with_noise_multiplier(1.0)
        .with_insecure_seed(InsecureSeed(9));
    let optim = config.init().unwrap().optimizer(SgdConfig::new().init());
    let update = FedSgdConfig::new(max_examples).init().unwrap();
    let mut training = FederatedTraining::new(optim, update).unwrap();
    let mut model = Net::new();
    for _ in 0..4 {
        let losses = |model: &Net, batch: Vec<(usize, usize)>| {
            assert!(batch.len() <= 2 || max_examples > 2);
            Ok(model.losses_of(&batch.iter().map(|record| record.1).collect::<Vec<_>>()))
        };
        model = training.round(0.5, model, users, losses).unwrap();
    }
    let statement = training.optimizer().statement(&[1e-3]).unwrap();
    assert_eq!(statement.unit, UnitOfPrivacy::User);
    flat(&model)
}

#[test]
fn users_of_a_flat_data_set_train_as_users_who_were_grouped_before() {
    let key = |record: &(usize, usize)| record.0;
    let users = || UserDataset::by_key(InMemDataset::new(records()), key).unwrap();
    // By their first record, as the data set numbers them.
    let mut grouped: Vec<Vec<(usize, usize)>> = Vec::new();
    for record in records() {
        match grouped.iter_mut().find(|owned| owned[0].0 == record.0) {
            Some(owned) => owned.push(record),
            None => grouped.push(vec![record]),
        }
    }
    let grouped = InMemDataset::new(grouped);
    assert_eq!(rounds(&users(), 100), rounds(&grouped, 100));
    // The limit of the data set and the limit of the update are the same examples.
    let limited = users().with_max_examples(2).unwrap();
    assert_eq!(rounds(&limited, 100), rounds(&limited, 2));
    assert_ne!(rounds(&limited, 2), rounds(&users(), 100));
}

#[test]
fn a_selection_of_owned_examples_trains_with_a_guarantee_for_the_user() {
    // Example i belongs to user i / 2 and to user i / 3.
    let owners = (0..UNITS).map(|i| vec![i / 2, i / 3]);
    let selection = OwnedExamples::in_order(owners, 1).unwrap();
    let config = PrivacyPlanConfig::for_owned_examples(&selection, 5.0)
        .with_steps(3)
        .with_noise_multiplier(1.0)
        .with_insecure_seed(InsecureSeed(5));
    let plan = config.init().unwrap();
    let examples = InMemDataset::new((0..UNITS).collect::<Vec<usize>>());
    let owners = |example: &usize| vec![example / 2, example / 3];
    let dataset = selection.dataset(examples, owners).unwrap();
    let batches = plan.batches(dataset, Rows, &device()).unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    train(&mut optim, Net::new(), batches, 8);
    let statement = optim.statement(&[1e-3]).unwrap().to_string();
    for part in ["one user, with the content of all examples", "The ownership graph", "replace one"]
    {
        assert!(statement.contains(part), "{part} is missing in {statement}");
    }
}
