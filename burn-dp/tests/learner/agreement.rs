//! The learner and the custom loop are one run.

use burn::data::dataset::InMemDataset;
use burn::train::ExecutionStrategy;
use burn_dp::clipping::{
    AutomaticClipping, Clipping, FlatClipping, GroupedClipping, ParameterGroups, QuantileClipping,
};
use burn_dp::optim::SamplingScheme;
use burn_dp::train::PrivateTrainingConfig;

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
fn all_kinds_of_clipping_are_those_of_the_optimizer() {
    let poisson = SamplingScheme::Poisson;
    agrees(AutomaticClipping::new(), poisson, 8);
    let groups = || ParameterGroups::per_layer(&Net::new()).unwrap();
    agrees(GroupedClipping::equal(groups(), 1.0).unwrap(), poisson, 8);
    // Thresholds change after each release, never between virtual batches.
    agrees(QuantileClipping::new(0.5).unwrap(), poisson, 4);
    agrees(QuantileClipping::new(0.5).unwrap().with_groups(groups()), poisson, 4);
}

#[test]
fn virtual_batches_are_one_step_of_the_scheduler_and_one_release() {
    agrees(FlatClipping::new(0.5).unwrap(), SamplingScheme::Poisson, 4);
    agrees(FlatClipping::new(0.5).unwrap(), SamplingScheme::Poisson, 1);
}

#[test]
fn all_samplers_of_the_plan_are_loaded() {
    agrees(FlatClipping::new(1.0).unwrap(), SamplingScheme::FixedSize, 4);
    agrees(FlatClipping::new(1.0).unwrap(), SamplingScheme::Shuffled, 4);
}

#[test]
fn empty_batches_are_steps_of_noise() {
    // Empty with a probability of about 0.37: four of twelve steps.
    let plan = || {
        use burn_dp::noise::InsecureSeed;
        use burn_dp::optim::PrivacyPlanConfig;
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
    let folder = tempfile::tempdir().unwrap();
    let training = plain(private.supervised(folder.path(), loader, valid()))
        .with_training_strategy(ExecutionStrategy::single(device()).into());
    let result = training.launch(learner(&private));
    assert_same_run(&private, &result, &expected);

    let private = training_config().init(plan()).unwrap();
    let loader = private.loader(builder().with_padding(), dataset()).unwrap();
    let training = plain(private.supervised(folder.path(), loader, valid()));
    let result = training.launch(learner(&private));
    assert!(private.error().is_none() && result.error.is_none());
    // Padded sums are added up by other kernels.
    let close = |a: &f32, b: &f32| (a - b).abs() < 1e-4;
    for (found, expected) in values(result.model.inner()).iter().zip(values(&expected.0)) {
        assert!(found.iter().zip(&expected).all(|(a, b)| close(a, b)));
    }
}

#[test]
fn a_data_set_of_another_length_is_refused() {
    let private = training_config().init(plan()).unwrap();
    let error = private.loader(builder(), InMemDataset::new(vec![1, 2, 3])).err().unwrap();
    assert!(error.to_string().contains("data set has 3"), "{error}");
}
