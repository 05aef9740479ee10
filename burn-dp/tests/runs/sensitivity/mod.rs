//! Releases on neighboring data sets differ by no more than the declared sensitivity. This is
//! tested with every policy, physical batch size, and way to a clipped sum under three samplers,
//! with adversarial units at the front, in the middle, and at the end of the batch; and with every
//! policy, sampler, and way at one of these places. The draw and the noise are held fixed.
//!
//! The masks of a unit and the order of its examples follow from its index. They are held fixed
//! too: the neighbor lists the units in an order in which all of them keep their indices. This is
//! no loss of generality. The draws, masks and orders are secret, do not depend on the data, and
//! have the same distribution at every index, so the distribution of a release does not depend on
//! the order of the units. For a neighbor in any order, let each common unit have in both runs the
//! same draws, masks and orders, wherever it is listed. Given all of these, the sums differ by the
//! contribution of the added unit alone, at most the threshold, whatever its own masks are. The
//! divergence of two mixtures is at most the mean divergence of such pairs (joint convexity).
//!
//! A unit is added or removed where the draws of a unit do not depend on other units, and replaced
//! under every sampler. Under truncated Poisson sampling an added unit may displace another one in
//! the draw: the replay replaces one by the other, and the accountant counts two contributions.

mod ways;

use burn::optim::SgdConfig;
use burn_dp::clipping::{Clipping, CountKind};
use burn_dp::grads::{PrivateBackward, has_coarse_products};
use burn_dp::optim::{PrivacyPlanConfig, SamplingScheme};
use burn_dp::random::InsecureSeed;
use burn_dp::sampling::Sampler;
use burn_dp_accountant::NeighboringRelation;

use crate::fixtures::{Net, PATHS, device, distance, flat, on, other_devices, row, rows};
use crate::policies::policies;
use ways::{NOISE, Released, Unit, Way, first_draw, release};

const UNITS: usize = 24;

/// Differences of f32 parameters of size 3, times the batch size.
const ROUNDING: f64 = 1e-4;

/// Huge, beyond single precision when squared, NaN, zero, tiny, and long.
const ADVERSARIES: [[f32; 3]; 6] = [
    [1e12, -2e12, 5e11],
    [1e25, -1e25, 1e20],
    [f32::NAN, 0.0, 1.0],
    [0.0; 3],
    [1e-30; 3],
    [3.0, -5.0, 9.0],
];

fn unit(way: Way, index: usize) -> Unit {
    match way.has_groups() {
        true => (0..3).map(|example| row(3 * index + example)).collect(),
        false => vec![row(index)],
    }
}

/// Units that could move the sum further than one unit may.
fn adversaries(way: Way) -> Vec<Unit> {
    let single = ADVERSARIES.into_iter().map(|row| vec![row]);
    let users = matches!(way, Way::FederatedAveraging | Way::FederatedSgd);
    match way.has_groups() {
        // One example of the unit is adversarial, which is enough; or all are nothing. A user may
        // have none at all.
        true => single
            .map(|one| [unit(way, 7)[..2].to_vec(), one].concat())
            .chain([vec![[0.0; 3]; 3]])
            .chain(users.then(Unit::new))
            .collect(),
        false => single.collect(),
    }
}

/// Checks that two releases differ by no more than the thresholds and the accountant allow for a
/// unit that was drawn `times` times, and returns the difference as a fraction of that bound.
fn check(
    context: &str,
    policy: &dyn Clipping,
    relation: NeighboringRelation,
    [first, second]: [&Released; 2],
    batch: f64,
    times: usize,
) -> f64 {
    let thresholds = policy.thresholds(0).unwrap();
    let noise = thresholds.noise(NOISE, batch).unwrap();
    let times = times as f64;
    let factor = relation.sensitivity() * times;
    let groups = thresholds.groups();
    let mut squares = vec![0.0; groups.len()];
    for (path, (first, second)) in PATHS.iter().zip(first.parameters.iter().zip(&second.parameters))
    {
        assert!(first.iter().chain(second).all(|value| value.is_finite()), "{context}");
        squares[groups.index_of(path).unwrap()] += distance(first, second).powi(2);
    }
    if let (true, norms) = (thresholds.norms().len() > 1, thresholds.norms()) {
        for (square, norm) in squares.iter().zip(norms) {
            assert!(square.sqrt() <= factor * norm + ROUNDING, "{context}: {squares:?} {norms:?}");
        }
    }
    // Multipliers are at least 1, so the sum itself moves by no more than the multiplied one.
    let total = squares.iter().sum::<f64>().sqrt();
    let declared = thresholds.sensitivity(relation) * times;
    assert!(total <= declared + ROUNDING, "{context}: {total} of {declared}");
    // In units of the noise, the sum and the counts together move by no more than the accountant
    // assumes.
    let mut whole: f64 =
        squares.iter().zip(&noise.group_stds).map(|(s, std)| s / (std * std)).sum();
    let count_sums = first.count_sums.iter().zip(&second.count_sums);
    for (count, (first, second)) in thresholds.counts().iter().zip(count_sums) {
        let moved = (first - second).abs();
        // Slack has no center: an absent unit has none.
        let most = if count.kind == CountKind::Slack { 1.0 } else { 0.5 };
        assert!(moved <= most * factor + 1e-9, "{context}: a count moved by {moved}");
        whole += (moved / noise.count_std.unwrap()).powi(2);
    }
    let slack = noise.group_stds.iter().fold(1e-6, |slack, std| ROUNDING / std + slack);
    let part = whole.sqrt() * NOISE / factor;
    assert!(part <= 1.0 + 1e-5 + slack * NOISE, "{context}: {part}");
    part
}

/// The position in the logical batch where the neighbors differ.
#[derive(Clone, Copy, Debug)]
enum Place {
    Front,
    Middle,
    End,
}

const PLACES: [Place; 3] = [Place::Front, Place::Middle, Place::End];

impl Place {
    /// The position among the drawn units.
    fn of(self, drawn: &[usize]) -> usize {
        match self {
            Self::Front => 0,
            Self::Middle => drawn.len() / 2,
            Self::End => drawn.len() - 1,
        }
    }
}

/// Neighbors by adding or removing a unit, and by replacing one, at every place.
fn neighbors(ways: &[Way]) {
    for (name, policy) in policies() {
        for place in PLACES {
            added(name, &*policy, SamplingScheme::Poisson, place, ways);
            for scheme in SCHEMES {
                replaced(name, &*policy, scheme, place, ways);
            }
        }
    }
    // One policy at each place, because a software driver is slow.
    for device in other_devices() {
        on(&device, || {
            for (place, (name, policy)) in PLACES.into_iter().zip(policies().into_iter().step_by(7))
            {
                added(name, &*policy, SamplingScheme::Poisson, place, ways);
                replaced(name, &*policy, SamplingScheme::FixedSize, place, ways);
            }
        });
    }
}

const SCHEMES: [SamplingScheme; 3] =
    [SamplingScheme::Poisson, SamplingScheme::FixedSize, SamplingScheme::Shuffled];

/// The other samplers, and whether the draws of a unit do not depend on the other units.
const OTHER_SCHEMES: [(SamplingScheme, bool); 7] = [
    (SamplingScheme::TruncatedPoisson { max_batch_size: 4 }, false),
    (SamplingScheme::WithReplacement, false),
    (SamplingScheme::ShuffledOnce, false),
    (SamplingScheme::CyclicPoisson { parts: 2 }, true),
    (SamplingScheme::BallsInBins { bins: 4 }, true),
    (SamplingScheme::RandomAllocation { bins: 4 }, true),
    (SamplingScheme::MinSeparation { separation: 2 }, true),
];

/// Compares the release with an adversary among the drawn units with the release without it.
///
/// A data set is a set, so its neighbor may be listed in another order: the drawn units without the
/// adversary keep their order and are at the indices that are drawn. The first draw with one fewer
/// unit has the same indices except the last one. The rows of a physical batch after the place
/// therefore move up.
///
/// If an update depends on the index of its unit, every other unit keeps its index instead, and the
/// last one, whose update is the same at every index, moves to the place of the adversary.
fn added(name: &str, policy: &dyn Clipping, scheme: SamplingScheme, place: Place, ways: &[Way]) {
    let relation = NeighboringRelation::AddOrRemoveOne;
    let mut most = 0.0f64;
    for (index, adversary) in adversaries(ways[0]).into_iter().enumerate() {
        let (seed, drawn) = (10 * index as u64..)
            .map(|seed| (seed, first_draw(scheme, seed, UNITS).private_indices().to_vec()))
            .find(|(_, drawn)| drawn.len() > 2 && drawn.last() == Some(&(UNITS - 1)))
            .unwrap();
        let mut units: Vec<Unit> = (0..UNITS).map(|index| unit(ways[0], index)).collect();
        let at = place.of(&drawn);
        let movable = ways[0].same_at_every_index();
        if let Some(unit) = movable.clone() {
            units[UNITS - 1] = unit;
        }
        units[drawn[at]] = adversary;
        let neighbor = match movable {
            Some(_) => {
                let mut rest = units.clone();
                rest.swap_remove(drawn[at]);
                rest
            }
            None => without(&units, drawn[at], &drawn),
        };

        let with = release(policy, ways[0], scheme, seed, &units);
        assert_eq!(with.draw.private_indices(), drawn);
        for &way in ways {
            let without = release(policy, way, scheme, seed, &neighbor);
            assert_eq!(without.draw.private_indices(), &drawn[..drawn.len() - 1]);
            let context = format!("{name}, {scheme:?}, {way:?}, {place:?}, {:?}", units[drawn[at]]);
            let batch = UNITS as f64 / 4.0;
            most = most.max(check(&context, policy, relation, [&with, &without], batch, 1));
        }
    }
    assert!(most > 0.3, "{name}, {scheme:?}, {ways:?}, {place:?}: none comes near, {most}");
}

/// Returns the units without one of the drawn ones, the other drawn units in order at the indices
/// that are drawn.
fn without(units: &[Unit], removed: usize, drawn: &[usize]) -> Vec<Unit> {
    let rest = (0..units.len()).filter(|&index| index != removed);
    let (some, others): (Vec<usize>, Vec<usize>) = rest.partition(|index| drawn.contains(index));
    let (mut some, mut others) = (some.into_iter(), others.into_iter());
    let listed = (0..units.len() - 1).map(|index| match drawn.contains(&index) {
        true => some.next().unwrap(),
        false => others.next().unwrap(),
    });
    listed.map(|index| units[index].clone()).collect()
}

/// Compares the releases before and after a drawn unit is replaced by an adversary. Under Poisson
/// sampling, these are two steps of the relation. With replacement, the unit is drawn twice and
/// contributes twice.
fn replaced(name: &str, policy: &dyn Clipping, scheme: SamplingScheme, place: Place, ways: &[Way]) {
    let relation = NeighboringRelation::ReplaceOne;
    let units: Vec<Unit> = (0..UNITS).map(|index| unit(ways[0], index)).collect();
    let times = if scheme == SamplingScheme::WithReplacement { 2 } else { 1 };
    let fits = |seed: &u64| {
        let draw = first_draw(scheme, *seed, UNITS);
        let drawn = draw.private_indices();
        let unit = |&&unit: &&usize| unit == drawn[place.of(drawn)];
        drawn.len() > 2 && drawn.iter().filter(unit).count() == times
    };
    let seed = (7..).find(fits).unwrap();
    let before = release(policy, ways[0], scheme, seed, &units);
    let drawn = before.draw.private_indices();
    let replaced = drawn[place.of(drawn)];
    let mut most = 0.0f64;
    for (adversary, &way) in adversaries(ways[0]).into_iter().zip(ways.iter().cycle()) {
        let mut other = units.clone();
        other[replaced] = adversary;
        let after = release(policy, way, scheme, seed, &other);
        assert!(after.draw == before.draw);
        let context = format!("{name}, {scheme:?}, {way:?}, {place:?}, {:?}", other[replaced]);
        let batch = UNITS as f64 / 4.0;
        most = most.max(check(&context, policy, relation, [&before, &after], batch, times));
    }
    assert!(most > 0.1, "{name}, {scheme:?}, {ways:?}, {place:?}: none comes near, {most}");
}

// Sharp edges, for every policy.
#[test]
fn rows_keep_the_sensitivity() {
    neighbors(&[Way::Rows(1), Way::Rows(2), Way::Rows(3), Way::Rows(1000)]);
}

#[test]
fn padded_rows_keep_the_sensitivity() {
    neighbors(&[Way::Padded(1), Way::Padded(4), Way::Padded(64)]);
}

#[test]
fn rows_with_weighted_losses_keep_the_sensitivity() {
    neighbors(&[Way::Weighted(1), Way::Weighted(3), Way::Weighted(1000)]);
}

#[test]
fn rows_with_dropout_keep_the_sensitivity() {
    neighbors(&[Way::Dropout(1), Way::Dropout(4), Way::Dropout(1000)]);
}

#[test]
fn rows_that_the_library_loads_keep_the_sensitivity() {
    neighbors(&[Way::Batch(1), Way::Batch(3), Way::Batch(1000)]);
}

/// Neighbors under the samplers that [`neighbors`] leaves out.
fn other_samplers(ways: &[Way]) {
    for (index, (name, policy)) in policies().into_iter().enumerate() {
        let places = PLACES.into_iter().cycle().skip(index);
        for ((scheme, alone), place) in OTHER_SCHEMES.into_iter().zip(places) {
            replaced(name, &*policy, scheme, place, ways);
            if alone {
                added(name, &*policy, scheme, place, ways);
            }
        }
    }
}

#[test]
fn every_sampler_keeps_the_sensitivity() {
    other_samplers(&[Way::Rows(3), Way::Batch(2), Way::Batch(1000)]);
}

#[test]
fn padded_rows_keep_the_sensitivity_with_every_sampler() {
    other_samplers(&[Way::Padded(1), Way::Padded(4), Way::Padded(64)]);
}

#[test]
fn weighted_losses_keep_the_sensitivity_with_every_sampler() {
    other_samplers(&[Way::Weighted(1), Way::Weighted(3), Way::Weighted(1000)]);
}

#[test]
fn dropout_keeps_the_sensitivity_with_every_sampler() {
    other_samplers(&[Way::Dropout(1), Way::Dropout(4), Way::Dropout(1000)]);
}

#[test]
fn units_with_separate_passes_keep_the_sensitivity_with_every_sampler() {
    other_samplers(&[Way::Each]);
}

#[test]
fn mini_sets_keep_the_sensitivity_with_every_sampler() {
    other_samplers(&[Way::BatchClipping]);
    other_samplers(&[Way::GeneralBatchClipping]);
}

#[test]
fn users_keep_the_sensitivity_with_every_sampler() {
    other_samplers(&[Way::FederatedAveraging]);
    other_samplers(&[Way::FederatedSgd]);
}

// Quick enough for a software driver, which runs it in place of the tests of all policies.
#[test]
fn a_step_of_one_policy_keeps_the_sensitivity() {
    let policy = policies().into_iter().find(|(name, _)| *name == "quantile per layer");
    let (name, policy) = policy.unwrap();
    added(name, &*policy, SamplingScheme::Poisson, Place::Front, &[Way::Rows(3)]);
    replaced(name, &*policy, SamplingScheme::FixedSize, Place::Middle, &[Way::Batch(4)]);
}

#[test]
fn units_with_separate_passes_keep_the_sensitivity() {
    neighbors(&[Way::Each]);
}

#[test]
fn mini_sets_keep_the_sensitivity() {
    neighbors(&[Way::BatchClipping]);
}

#[test]
fn mini_sets_with_local_steps_keep_the_sensitivity() {
    neighbors(&[Way::GeneralBatchClipping]);
}

#[test]
fn federated_averaging_keeps_the_sensitivity() {
    neighbors(&[Way::FederatedAveraging]);
}

#[test]
fn federated_sgd_keeps_the_sensitivity() {
    neighbors(&[Way::FederatedSgd]);
}

// Sharp edge: the units are clipped, never the sum of a physical batch.
#[test]
fn policies_are_independent_of_the_physical_batch_size() {
    let units: Vec<Unit> = (0..UNITS).map(|index| unit(Way::Each, index)).collect();
    for (name, policy) in policies() {
        let release = |way| release(&*policy, way, SamplingScheme::Poisson, 3, &units);
        // Half of what a unit moves the sum: in TF32, rounding depends on the number of rows.
        let thresholds = policy.thresholds(0).unwrap();
        let least = thresholds.norms().iter().copied().fold(f64::INFINITY, f64::min);
        let tolerance = if has_coarse_products(&device()) { 0.5 * least } else { ROUNDING };
        let whole = release(Way::Rows(1000));
        for way in [Way::Rows(1), Way::Rows(2), Way::Rows(5), Way::Padded(4), Way::Each] {
            let parts = release(way);
            for (whole, parts) in whole.parameters.iter().zip(&parts.parameters) {
                let distance = distance(whole, parts);
                assert!(distance < tolerance, "{name}, {way:?}: {distance} {tolerance}");
            }
            assert!(distance(&whole.count_sums, &parts.count_sums) < 1e-5, "{name}, {way:?}");
        }
    }
}

// Sharp edge: the copies of a unit are averaged before its norm is taken.
#[test]
fn swapping_all_copies_of_a_unit_moves_the_sum_by_no_more_than_one_unit() {
    for (name, policy) in policies() {
        let step = |copies: &[[f32; 3]]| {
            let plan = PrivacyPlanConfig::new(2, 2.0)
                .with_steps(1)
                .with_noise_multiplier(1e-4)
                .with_sampling(SamplingScheme::FixedSize)
                .with_clipping(policy.clone())
                .with_insecure_seed(InsecureSeed(1))
                .init()
                .unwrap();
            let draw = plan.sampler().unwrap().draw(0).unwrap();
            let mut optim = plan
                .optimizer(SgdConfig::new().init())
                .with_backward(PrivateBackward::new().with_group_size(3));
            let model = Net::new();
            let rows = [copies, &rows(3)].concat();
            optim.backward(&model, &draw, |model, _| model.losses_of_rows(&rows)).unwrap();
            flat(&optim.step(1.0, model, draw).unwrap())
        };
        let first = step(&[[1.0, 2.0, 3.0], [1.1, 2.0, 3.0], [1.0, 2.1, 3.0]]);
        for adversary in ADVERSARIES {
            let second = step(&[adversary; 3]);
            let moved: f64 =
                first.iter().zip(&second).map(|(a, b)| f64::from(2.0 * (a - b)).powi(2)).sum();
            let allowed = policy.thresholds(0).unwrap();
            let allowed = allowed.sensitivity(NeighboringRelation::ReplaceOne);
            assert!(moved.sqrt() <= allowed + ROUNDING, "{name} {adversary:?} {}", moved.sqrt());
        }
    }
}
