//! The learner and the custom loop are one run.

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::tensor::FloatDType;
use burn::train::Learner;
use burn::train::{ExecutionStrategy, MultiDeviceOptim};
use burn_dp::clipping::{
    AutomaticClipping, Clipping, CountNoise, FlatClipping, GroupedClipping, LayerwiseClipping,
    MultipliedClipping, PublicNorms, QuantileClipping, QuantileTracker, ScheduledClipping,
};
use burn_dp::model::ParameterGroups;
use burn_dp::optim::{DpOptimizer, SamplingScheme};
use burn_dp::schedule::Schedule;
use burn_dp::train::{PrivateTraining, PrivateTrainingConfig};
use burn_dp::{DpError, PublicSource};
use burn_dp_accountant::correlated_noise::Strategy;

use crate::checkpoints::config;
use crate::fixture::*;

fn agrees(clipping: impl Clipping + Clone + 'static, scheme: SamplingScheme, physical: usize) {
    let plan =
        || plan_config().with_clipping(clipping.clone()).with_sampling(scheme).init().unwrap();
    let config = PrivateTrainingConfig::new(physical).with_steps_per_epoch(STEPS_PER_EPOCH);
    let private = config.init(plan()).unwrap();
    let result = launch(&private, |training| training);
    assert_same_run(&private, &result, &custom_loop(plan(), physical));
    assert_eq!(private.next_step(), STEPS);
}

#[test]
fn the_learner_trains_what_the_custom_loop_trains_bit_for_bit() {
    agrees(FlatClipping::new(1.0).unwrap(), SamplingScheme::Poisson, 64);
}

#[test]
fn all_clipping_policies_match_the_custom_loop() {
    let poisson = SamplingScheme::Poisson;
    agrees(AutomaticClipping::new(), poisson, 8);
    let groups = || ParameterGroups::per_layer(&Net::new()).unwrap();
    agrees(GroupedClipping::equal(groups(), 1.0).unwrap(), poisson, 8);
    // Thresholds change after each release, never between physical batches.
    agrees(QuantileClipping::new(0.5).unwrap(), poisson, 4);
    agrees(QuantileClipping::new(0.5).unwrap().with_groups(groups()), poisson, 4);
}

#[test]
fn passes_in_half_precision_match_the_custom_loop() {
    for precision in [FloatDType::BF16, FloatDType::F16] {
        if !device().supports_dtype(precision) {
            continue;
        }
        let config = training_config().with_precision(precision);
        let private = config.init(plan()).unwrap();
        let result = launch(&private, |training| training);
        let optim = plan().optimizer(optimizer()).with_precision(precision);
        assert_same_run(&private, &result, &custom_loop_of(optim, scheduler(), 4));
        assert_ne!(values(result.model.inner()), values(&custom_loop(plan(), 4).0));
    }
}

fn layers() -> ParameterGroups {
    ParameterGroups::per_layer(&Net::new()).unwrap()
}

/// Norms that differ from the norms of the model.
fn first_norms() -> PublicNorms {
    let source = PublicSource::published("letters");
    PublicNorms::from_means(source, 500, layers(), vec![3.0, 1.0]).unwrap()
}

fn layerwise() -> LayerwiseClipping {
    LayerwiseClipping::enhanced(0.5, &first_norms()).unwrap()
}

fn multiplied() -> MultipliedClipping {
    MultipliedClipping::from_public(0.7, &first_norms()).unwrap()
}

#[test]
fn layerwise_scheduled_and_tracked_clipping_match_the_custom_loop() {
    let poisson = SamplingScheme::Poisson;
    let decay = || Schedule::exponential(0.9, STEPS_PER_EPOCH).unwrap();
    agrees(layerwise().with_schedule(decay()), poisson, 4);
    agrees(multiplied(), poisson, 4);
    let share = CountNoise::Share(0.1);
    let quantile = || QuantileClipping::new(0.5).unwrap().with_count_noise(share);
    agrees(ScheduledClipping::new(quantile(), decay()), poisson, 4);
    let tracker = || QuantileTracker::new(layers(), [0.25, 0.75]).unwrap();
    agrees(tracker().with_clipping(FlatClipping::new(0.5).unwrap(), share), poisson, 4);
    agrees(tracker().with_means().with_clipping(quantile(), share), poisson, 4);
    // Only counts are released.
    agrees(tracker(), poisson, 4);
}

fn measured(model: &Net) -> Result<PublicNorms, DpError> {
    let rows = PublicSource::generated("waves").data((300..308).collect())?;
    PublicNorms::measure(layers(), &rows.batches(4), model, |model, rows: &Vec<usize>| {
        model.output(Rows.batch(rows.clone(), &device())).0
    })
}

/// A custom loop that measures the norms after every epoch except the last one.
fn measuring_loop(clipping: Box<dyn Clipping>) -> (Net, DpOptimizer) {
    let plan = plan_config().with_clipping(clipping).init().unwrap();
    let batches = plan.batches(dataset(), Rows, &device()).unwrap();
    let mut optim = plan.optimizer(optimizer());
    let (mut scheduler, mut model) = (scheduler(), Net::new());
    for batch in batches {
        let batch = batch.unwrap();
        for physical_batch in batch.physical_batches(4).unwrap() {
            let losses = |model: &Net, rows| model.output(rows).0;
            optim.backward(&model, physical_batch.unwrap(), losses).unwrap();
        }
        model = optim.step(scheduler.step(), model, batch).unwrap();
        if optim.next_step().is_multiple_of(STEPS_PER_EPOCH) && optim.next_step() < STEPS {
            optim.learn_from_public(&measured(&model).unwrap()).unwrap();
        }
    }
    (model, optim)
}

fn measuring(
    private: &PrivateTraining,
    epochs: usize,
) -> burn::train::LearningResult<burn_dp::train::PrivateModel<Net>> {
    let folder = run_folder();
    let model = private.model(Net::new()).unwrap().with_public_norms(measured);
    let learner = Learner::new(model, optimizer(), scheduler());
    supervised(private, folder.path()).num_epochs(epochs).launch(learner)
}

#[test]
fn public_norms_are_measured_after_every_epoch() {
    let policies: [Box<dyn Clipping>; 2] = [Box::new(layerwise()), Box::new(multiplied())];
    for policy in policies {
        let expected = measuring_loop(policy.clone());
        let adapted = expected.1.plan().clipping().adapted();
        assert_ne!(adapted, policy.adapted());
        let plan = || plan_config().with_clipping(policy.clone()).init().unwrap();
        let private = training_config().init(plan()).unwrap();
        let result = measuring(&private, 3);
        assert_same_run(&private, &result, &expected);
        assert_eq!(private.clipping().adapted(), adapted);

        // The checkpoint contains the measured norms.
        let folder = run_folder();
        let private = config(folder.path()).init(plan()).unwrap();
        measuring(&private, 2);
        drop(private);
        let private = config(folder.path()).init_or_resume(plan()).unwrap();
        assert_eq!(private.clipping().adapted(), adapted);
        assert_same_run(&private, &measuring(&private, 3), &expected);
    }
}

#[test]
fn public_norms_are_refused_within_a_step_and_by_other_policies() {
    let plan = plan_config().with_clipping(layerwise()).init().unwrap();
    let private = training_config().init(plan).unwrap();
    let norms = measured(&Net::new()).unwrap();
    let before = private.clipping().adapted();
    private.learn_from_public(&norms).unwrap();
    let learned = private.clipping().adapted();
    assert_ne!(learned, before);
    let train = loader(&private);
    let mut batches = train.iter();
    let batch = batches.next().unwrap().unwrap();
    let error = private.learn_from_public(&first_norms()).unwrap_err().to_string();
    assert!(error.contains("step 0 is in progress") && error.contains("between two"), "{error}");
    assert_eq!(private.clipping().adapted(), learned);
    drop(batch);

    let private = training_config().init(plan_config().init().unwrap()).unwrap();
    let result = measuring(&private, 3);
    let error = private.finish(&result).unwrap_err().to_string();
    assert!(error.contains("have no use in the clipping policy"), "{error}");
    assert_eq!(private.ledger().releases(), STEPS_PER_EPOCH);
}

#[test]
fn physical_batches_are_one_step_and_one_release() {
    agrees(FlatClipping::new(0.5).unwrap(), SamplingScheme::Poisson, 4);
    agrees(FlatClipping::new(0.5).unwrap(), SamplingScheme::Poisson, 1);
}

#[test]
fn all_samplers_of_the_plan_are_loaded() {
    agrees(FlatClipping::new(1.0).unwrap(), SamplingScheme::FixedSize, 4);
    agrees(FlatClipping::new(1.0).unwrap(), SamplingScheme::Shuffled, 4);
    agrees(FlatClipping::new(1.0).unwrap(), SamplingScheme::ShuffledOnce, 4);
    agrees(FlatClipping::new(1.0).unwrap(), SamplingScheme::WithReplacement, 4);
    for scheme in [
        SamplingScheme::TruncatedPoisson { max_batch_size: 10 },
        SamplingScheme::CyclicPoisson { parts: 3 },
        SamplingScheme::BallsInBins { bins: 8 },
        SamplingScheme::RandomAllocation { bins: 8 },
        SamplingScheme::MinSeparation { separation: 3 },
    ] {
        agrees(FlatClipping::new(1.0).unwrap(), scheme, 4);
    }
}

#[test]
fn empty_batches_are_steps_of_noise() {
    // Empty with a probability of about 0.37: four of twelve steps.
    let plan = || {
        use burn_dp::optim::PrivacyPlanConfig;
        use burn_dp::random::InsecureSeed;
        PrivacyPlanConfig::new(UNITS, 1.0)
            .with_steps(STEPS)
            .with_noise_multiplier(1.0)
            .with_insecure_seed(InsecureSeed(11))
            .init()
            .unwrap()
    };
    let sampler = plan().sampler().unwrap();
    let empty = (0..STEPS).filter(|&s| sampler.draw(s).unwrap().private_indices().is_empty());
    assert!(empty.count() >= 1, "choose another seed");
    let private = training_config().init(plan()).unwrap();
    let result = launch(&private, |training| training);
    assert_same_run(&private, &result, &custom_loop(plan(), 4));
    assert_eq!(private.ledger().releases(), STEPS);
}

#[test]
fn prefetching_and_padding_change_nothing() {
    let expected = custom_loop(plan(), 4);
    let private = training_config().init(plan()).unwrap();
    let loader = private.loader(builder().with_prefetch(2), dataset()).unwrap();
    let folder = run_folder();
    let training = plain(private.supervised(folder.path(), loader, valid()))
        .with_training_strategy(ExecutionStrategy::single(device()).into());
    let result = training.launch(learner(&private));
    assert_same_run(&private, &result, &expected);

    let private = training_config().init(plan()).unwrap();
    let loader = private.loader(builder().with_padding(), dataset()).unwrap();
    let training = plain(private.supervised(folder.path(), loader, valid()));
    let result = training.launch(learner(&private));
    assert!(private.error().is_none() && result.error.is_none());
    // Other kernels add up padded sums.
    let close = |a: &f32, b: &f32| (a - b).abs() < 1e-4;
    for (found, expected) in values(result.model.inner()).iter().zip(values(&expected.0)) {
        assert!(found.iter().zip(&expected).all(|(a, b)| close(a, b)));
    }
}

#[test]
fn truncated_draws_with_padding_train_what_unpadded_draws_train() {
    // Some draws are truncated, and the last physical batch of most draws has no unit.
    let scheme = SamplingScheme::TruncatedPoisson { max_batch_size: 12 };
    let plan = || plan_config().with_sampling(scheme).init().unwrap();
    let expected = custom_loop(plan(), 4);
    let devices = [1, 2].map(|number| vec![device(); number]);
    for devices in devices {
        let private = training_config().init(plan()).unwrap();
        let loader = private.loader(builder().with_padding(), dataset()).unwrap();
        let folder = run_folder();
        let strategy = match devices.len() {
            1 => ExecutionStrategy::single(device()),
            _ => ExecutionStrategy::multi(devices, MultiDeviceOptim::OptimMainDevice),
        };
        let training = plain(private.supervised(folder.path(), loader, valid()))
            .with_training_strategy(strategy.into());
        let result = training.launch(learner(&private));
        assert!(private.error().is_none() && result.error.is_none());
        assert_eq!(private.ledger().releases(), STEPS);
        let close = |a: &f32, b: &f32| (a - b).abs() < 1e-4;
        for (found, expected) in values(result.model.inner()).iter().zip(values(&expected.0)) {
            assert!(found.iter().zip(&expected).all(|(a, b)| close(a, b)));
        }
    }
}

#[test]
fn a_data_set_of_another_length_is_refused() {
    let private = training_config().init(plan()).unwrap();
    let error = private.loader(builder(), InMemDataset::new(vec![1, 2, 3])).err().unwrap();
    assert!(error.to_string().contains("data set has 3"), "{error}");
}

#[test]
fn correlated_noise_matches_the_custom_loop_also_after_a_checkpoint() {
    let plan = || {
        let config = plan_config().with_sampling(SamplingScheme::ShuffledOnce);
        config.with_correlated_noise(Strategy::tree(STEPS).unwrap()).init().unwrap()
    };
    let expected = custom_loop(plan(), 4);
    let private = training_config().init(plan()).unwrap();
    assert_same_run(&private, &launch(&private, |training| training), &expected);

    let folder = run_folder();
    let train = |private: &PrivateTraining, epochs| {
        let model = private.model(Net::new()).unwrap();
        let learner = Learner::new(model, optimizer(), scheduler());
        supervised(private, run_folder().path()).num_epochs(epochs).launch(learner)
    };
    let private = config(folder.path()).init(plan()).unwrap();
    train(&private, 2);
    drop(private);
    let private = config(folder.path()).init_or_resume(plan()).unwrap();
    assert_same_run(&private, &train(&private, 3), &expected);
}
