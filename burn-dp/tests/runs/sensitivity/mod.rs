//! What neighboring data sets release differs by no more than the declared sensitivity: with every
//! policy, sampler, size of the physical batches and way to a clipped sum, for adversarial units,
//! the noise held fixed.

mod ways;

use burn::optim::SgdConfig;
use burn_dp::clipping::Clipping;
use burn_dp::grads::PrivateBackward;
use burn_dp::optim::{PrivacyPlanConfig, SamplingScheme};
use burn_dp::random::InsecureSeed;
use burn_dp::sampling::Sampler;
use burn_dp_accountant::NeighboringRelation;

use crate::fixtures::{Net, PATHS, distance, flat, row, rows};
use crate::policies::policies;
use ways::{NOISE, Released, Unit, Way, release};

const UNITS: usize = 24;

/// Differences of f32 parameters of size 3, times the batch size.
const ROUNDING: f64 = 1e-4;

/// Huge, beyond single precision when squared, not a number, zero, tiny, and long.
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

/// Units that try to move the sum further than one unit may.
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

/// Checks that two releases differ by no more than the thresholds and the accountant allow, and
/// returns the part of that by which they do.
fn check(
    context: &str,
    policy: &dyn Clipping,
    relation: NeighboringRelation,
    [first, second]: [&Released; 2],
    batch: f64,
) -> f64 {
    let thresholds = policy.thresholds(0).unwrap();
    let noise = thresholds.noise(NOISE, batch).unwrap();
    let factor = relation.sensitivity();
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
    let declared = thresholds.sensitivity(relation);
    assert!(total <= declared + ROUNDING, "{context}: {total} of {declared}");
    // In units of the noise, sum and counts together move by no more than the accountant is told.
    let mut whole: f64 =
        squares.iter().zip(&noise.group_stds).map(|(s, std)| s / (std * std)).sum();
    for (first, second) in first.balances.iter().zip(&second.balances) {
        let moved = (first - second).abs();
        assert!(moved <= 0.5 * factor + 1e-9, "{context}: a count moved by {moved}");
        whole += (moved / noise.count_std.unwrap()).powi(2);
    }
    let slack = noise.group_stds.iter().fold(1e-6, |slack, std| ROUNDING / std + slack);
    let part = whole.sqrt() * NOISE / factor;
    assert!(part <= 1.0 + 1e-5 + slack * NOISE, "{context}: {part}");
    part
}

/// Neighbors by adding or removing a unit, and by replacing one.
fn neighbors(ways: &[Way]) {
    for (name, policy) in policies() {
        added(name, &*policy, ways);
        for scheme in [SamplingScheme::FixedSize, SamplingScheme::Shuffled] {
            replaced(name, &*policy, scheme, ways);
        }
    }
}

fn added(name: &str, policy: &dyn Clipping, ways: &[Way]) {
    let relation = NeighboringRelation::AddOrRemoveOne;
    let scheme = SamplingScheme::Poisson;
    let mut most = 0.0f64;
    for (index, adversary) in adversaries(ways[0]).into_iter().enumerate() {
        let mut units: Vec<Unit> = (0..UNITS - 1).map(|index| unit(ways[0], index)).collect();
        units.push(adversary);
        // A seed whose first draw has the last unit.
        let (seed, with) = (10 * index as u64..)
            .map(|seed| (seed, release(policy, ways[0], scheme, seed, &units)))
            .find(|(_, with)| with.draw.private_indices().contains(&(UNITS - 1)))
            .unwrap();
        for &way in ways {
            let without = release(policy, way, scheme, seed, &units[..UNITS - 1]);
            let others = with.draw.private_indices().split_last().unwrap().1;
            assert_eq!(without.draw.private_indices(), others, "the others are drawn as before");
            let context = format!("{name}, {way:?}, {:?}", units.last());
            let batch = UNITS as f64 / 4.0;
            most = most.max(check(&context, policy, relation, [&with, &without], batch));
        }
    }
    assert!(most > 0.3, "{name}, {ways:?}: no adversary comes near, {most}");
}

fn replaced(name: &str, policy: &dyn Clipping, scheme: SamplingScheme, ways: &[Way]) {
    let relation = NeighboringRelation::ReplaceOne;
    let units: Vec<Unit> = (0..UNITS).map(|index| unit(ways[0], index)).collect();
    let before = release(policy, ways[0], scheme, 7, &units);
    let drawn = before.draw.private_indices()[2];
    let mut most = 0.0f64;
    for (adversary, &way) in adversaries(ways[0]).into_iter().zip(ways.iter().cycle()) {
        let mut other = units.clone();
        other[drawn] = adversary;
        let after = release(policy, way, scheme, 7, &other);
        assert!(after.draw == before.draw);
        let context = format!("{name}, {scheme:?}, {way:?}, {:?}", other[drawn]);
        let batch = UNITS as f64 / 4.0;
        most = most.max(check(&context, policy, relation, [&before, &after], batch));
    }
    assert!(most > 0.1, "{name}, {scheme:?}, {ways:?}: no adversary comes near, {most}");
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
        let whole = release(Way::Rows(1000));
        for way in [Way::Rows(1), Way::Rows(2), Way::Rows(5), Way::Padded(4), Way::Each] {
            let parts = release(way);
            for (whole, parts) in whole.parameters.iter().zip(&parts.parameters) {
                assert!(distance(whole, parts) < ROUNDING, "{name}, {way:?}");
            }
            assert!(distance(&whole.balances, &parts.balances) < 1e-5, "{name}, {way:?}");
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
            optim.backward(model.losses_of_rows(&rows), &model).unwrap();
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
