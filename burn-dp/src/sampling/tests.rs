//! Properties of every sampler.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;
use crate::random::InsecureSeed;

/// Returns one sampler of each kind that can draw about `batch` of `size` units, with `number`
/// parts, bins or steps of separation.
fn samplers(size: usize, batch: usize, number: usize, seed: u64) -> Vec<Box<dyn Sampler>> {
    let (key, mean) = (InsecureSeed(seed), batch as f64);
    let number = number.min(size / batch);
    let bins = BallsInBinsSampler::new(size, number).unwrap().with_key(key);
    let shuffled = ShuffledSampler::new(size, batch).unwrap().with_key(key);
    vec![
        Box::new(PoissonSampler::with_expected_batch_size(size, mean).unwrap().with_key(key)),
        Box::new(TruncatedPoissonSampler::new(size, mean, batch).unwrap().with_key(key)),
        Box::new(FixedSizeSampler::new(size, batch).unwrap().with_key(key)),
        Box::new(WithReplacementSampler::new(size, batch).unwrap().with_key(key)),
        Box::new(CyclicPoissonSampler::new(size, mean, number).unwrap().with_key(key)),
        Box::new(MinSeparationSampler::new(size, mean, number).unwrap().with_key(key)),
        Box::new(bins.clone().with_fresh_bins()),
        Box::new(bins),
        Box::new(shuffled.clone().with_one_order()),
        Box::new(shuffled),
    ]
}

/// Returns the steps of each unit; a unit that was drawn several times has the step that many
/// times.
fn steps_of_units(sampler: &dyn Sampler, steps: u64) -> Vec<Vec<u64>> {
    let mut found = vec![Vec::new(); sampler.dataset_size()];
    for step in 0..steps {
        for &unit in sampler.draw(step).unwrap().private_indices() {
            found[unit].push(step);
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn no_unit_takes_part_more_often_or_closer_than_the_pattern_says(
        size in 1_usize..60,
        batch in 1_usize..60,
        number in 1_usize..9,
        steps in 1_u64..40,
        seed in 0_u64..1000,
    ) {
        for sampler in samplers(size, batch.min(size), number, seed) {
            let pattern = sampler.participation();
            for steps_of_unit in steps_of_units(&*sampler, steps) {
                let times = steps_of_unit.len() as u64;
                prop_assert!(pattern.times(steps).is_none_or(|most| times <= most), "{sampler:?}");
                let apart = steps_of_unit.windows(2).map(|pair| pair[1] - pair[0]).min();
                let separation = pattern.separation();
                prop_assert!(apart.is_none_or(|apart| apart >= separation), "{sampler:?}");
                if let ParticipationPattern::OncePerEpoch { steps } = pattern {
                    let mut epochs: Vec<u64> = steps_of_unit.iter().map(|s| s / steps).collect();
                    epochs.dedup();
                    prop_assert_eq!(epochs.len(), steps_of_unit.len());
                }
            }
        }
    }
}

#[test]
fn patterns_are_tight() {
    // A pattern that promises less than the sampler guarantees would add noise without need.
    for sampler in samplers(40, 4, 5, 1) {
        let pattern = sampler.participation();
        let found = steps_of_units(&*sampler, 400);
        let apart = found.iter().flat_map(|s| s.windows(2).map(|pair| pair[1] - pair[0])).min();
        assert_eq!(apart, Some(pattern.separation()), "{sampler:?}");
    }
}

#[test]
fn a_pattern_limits_the_number_of_steps_of_a_unit() {
    use ParticipationPattern as P;
    for (pattern, times, separation) in [
        (P::Repeated, None, 0),
        (P::AnyStep, Some(10), 1),
        (P::OncePerEpoch { steps: 4 }, Some(3), 1),
        (P::Separated { separation: 4 }, Some(3), 4),
        (P::Separated { separation: 10 }, Some(1), 10),
        (P::Periodic { period: 4 }, Some(3), 4),
    ] {
        assert_eq!((pattern.times(10), pattern.separation()), (times, separation), "{pattern}");
        assert_eq!(pattern.times(0), times.map(|_| 0));
    }
}

#[test]
fn every_sampler_resumes_in_the_middle_bit_for_bit() {
    let whole = samplers(50, 5, 4, 3);
    for (number, sampler) in whole.iter().enumerate() {
        let draws: Vec<Draw> = (0..30).map(|step| sampler.draw(step).unwrap()).collect();
        for first in [0, 1, 13, 29] {
            let resumed = &samplers(50, 5, 4, 3)[number];
            for step in first..30 {
                assert!(resumed.draw(step).unwrap() == draws[step as usize], "{resumed:?}");
            }
        }
        let other = &samplers(50, 5, 4, 4)[number];
        // Draws with different origins are never equal.
        assert_ne!(other.origin(), sampler.origin());
        let units = |step: u64| other.draw(step).unwrap().private_indices().to_vec();
        assert!((0..30).any(|step| units(step) != draws[step as usize].private_indices()));
    }
}

#[test]
fn every_sampler_draws_from_one_unit_and_refuses_none() {
    for sampler in samplers(1, 1, 1, 5) {
        for step in 0..20 {
            assert!(sampler.draw(step).unwrap().private_indices().len() <= 1, "{sampler:?}");
        }
    }
    let empty: Vec<Result<(), crate::DpError>> = vec![
        PoissonSampler::with_expected_batch_size(0, 1.0).map(drop),
        TruncatedPoissonSampler::new(0, 1.0, 1).map(drop),
        FixedSizeSampler::new(0, 1).map(drop),
        WithReplacementSampler::new(0, 1).map(drop),
        CyclicPoissonSampler::new(0, 1.0, 1).map(drop),
        MinSeparationSampler::new(0, 1.0, 1).map(drop),
        BallsInBinsSampler::new(0, 1).map(drop),
        ShuffledSampler::new(0, 1).map(drop),
    ];
    for error in empty {
        let error = error.unwrap_err().to_string();
        assert!(error.contains("dataset_size"), "{error}");
    }
}

#[test]
fn a_draw_of_every_random_size_can_be_empty() {
    let key = InsecureSeed(6);
    let samplers: [Box<dyn Sampler>; 5] = [
        Box::new(PoissonSampler::with_expected_batch_size(9, 0.1).unwrap().with_key(key)),
        Box::new(TruncatedPoissonSampler::new(9, 0.1, 3).unwrap().with_key(key)),
        Box::new(CyclicPoissonSampler::new(9, 0.1, 3).unwrap().with_key(key)),
        Box::new(MinSeparationSampler::new(9, 0.1, 3).unwrap().with_key(key)),
        Box::new(BallsInBinsSampler::new(9, 9).unwrap().with_key(key)),
    ];
    for sampler in samplers {
        let empty = |step| sampler.draw(step).unwrap().private_indices().is_empty();
        assert!((0..30).any(empty) && !(0..300).all(empty), "{sampler:?}");
    }
}

#[test]
fn the_mean_size_of_every_sampler_is_its_divisor_unless_it_is_cut() {
    for sampler in samplers(400, 20, 10, 7) {
        let share = sampler.expected_batch_size() / sampler.dataset_size() as f64;
        assert!((sampler.sampling_probability() / share - 1.0).abs() < 1e-12, "{sampler:?}");
        if matches!(sampler.mechanism(), SamplingMechanism::TruncatedPoisson { .. }) {
            continue;
        }
        let steps = 200;
        let sizes = (0..steps).map(|step| sampler.draw(step).unwrap().private_indices().len());
        let mean = sizes.sum::<usize>() as f64 / steps as f64;
        // More than 5 standard deviations of Poisson sampling; parts of unequal size vary more, and
        // average out over whole cycles.
        let relative = mean / sampler.expected_batch_size() - 1.0;
        assert!(relative.abs() < 0.1, "{sampler:?}: {relative}");
    }
}
