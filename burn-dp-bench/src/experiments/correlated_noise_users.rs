//! Accuracy for users at equal ε, with correlated and with independent noise.
//!
//! # References
//!
//! - P. Kairouz et al., "Practical and Private (Deep) Learning without Sampling or Shuffling", 2021
//!   (DP-FTRL, the tree).
//! - C. A. Choquette-Choo et al., "(Amplified) Banded Matrix Factorization", 2023.
//! - K. Dvijotham et al., "Efficient and Near-Optimal Noise Generation for Streaming Differential
//!   Privacy", 2024.

use burn_dp::DpError;
use burn_dp_accountant::correlated_noise::{Strategy, StrategySearch, Workload};
use burn_dp_examples::training::{SamplingName, TrainError};

use super::correlated_noise_verdicts::{BANDED, BUFFERED, POISSON, SHUFFLED};
use super::figure::{FigurePoint, FigureSeries, Findings};
use super::measured::Measured;
use super::user_training::UserSetting;

pub(super) const NAME: &str = "correlated-noise-users";

const EPSILONS: [f64; 3] = [2.0, 8.0, 32.0];
const QUICK: [f64; 2] = [2.0, 16.0];
const THRESHOLD: f64 = 0.3;

/// Bands of the strategy, and parts of the users, with cyclic Poisson sampling.
const BANDS: u64 = 4;

/// A name, how the users of a round are drawn, and the noise strategy.
type Training = (&'static str, SamplingName, Option<Strategy>);

/// Returns the compared training runs.
///
/// # Arguments
///
/// - `rounds`: number of rounds
/// - `separation`: number of rounds between two participations of a user, if the users are shuffled
///   once
/// - `momentum`: momentum of the server
fn trainings(rounds: u64, separation: u64, momentum: f64) -> Result<Vec<Training>, DpError> {
    let workload = Workload::prefix_sums().with_momentum(momentum)?;
    let search = || -> Result<StrategySearch, DpError> {
        Ok(StrategySearch::new(rounds)?.with_workload(workload.clone())?)
    };
    let participations = rounds.div_ceil(separation);
    let buffered = search()?.with_participation(participations, separation)?.buffered(3)?;
    let banded = search()?.banded_toeplitz(BANDS)?;
    Ok(vec![
        (POISSON, SamplingName::Poisson, None),
        (SHUFFLED, SamplingName::ShuffledOnce, Some(Strategy::identity(rounds)?)),
        (BANDED, SamplingName::CyclicPoisson, Some(banded)),
        (BUFFERED, SamplingName::ShuffledOnce, Some(buffered)),
    ])
}

pub(super) fn run(measured: &mut Measured) -> Result<Findings, TrainError> {
    let base = UserSetting::of(measured)?.with_threshold(Some(THRESHOLD));
    let epsilons = if measured.quick() { &QUICK[..] } else { &EPSILONS[..] };
    let users = base.users_of_seeds(measured)?;
    let training = &base.federated.training;
    let private = users[0].1.private();
    let separation = (private / training.users_per_round) as u64;
    let trainings = trainings(training.rounds as u64, separation, training.server_momentum)?;
    measured.expect(trainings.len() * epsilons.len() * users.len());
    let mut series = Vec::new();
    for (name, sampling, strategy) in &trainings {
        let mut points = Vec::new();
        for &epsilon in epsilons {
            let mut setting = base.clone().with_epsilon(epsilon);
            setting.federated.sampling.sampling = *sampling;
            setting.federated.sampling.parts =
                (*sampling == SamplingName::CyclicPoisson).then_some(BANDS as usize);
            setting.federated.correlated_noise = strategy.clone();
            let mut accuracies = Vec::new();
            for (seed, users) in &users {
                let label = format!("{name}, ε = {epsilon}, {}, {seed}", base.label());
                accuracies.push(
                    measured.measure(&label, |device| setting.accuracy(users, *seed, device))?,
                );
            }
            points.extend(FigurePoint::of(epsilon, &accuracies));
        }
        series.push(FigureSeries { name: (*name).into(), points });
    }
    Ok(Findings {
        figure: "Correlated noise: accuracy for users at equal ε".into(),
        setting: format!(
            "{}, updates clipped to {THRESHOLD}, {} seeds. \"Shuffled once\": a user takes part \
             every {separation} rounds, without amplification by sampling.",
            base.sentence(),
            users.len()
        ),
        labels: ["Correlated noise for users", "ε", "accuracy"].map(String::from),
        series,
        facts: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_strategy_fits_the_rounds() {
        let trainings = trainings(12, 5, 0.9).expect("strategies");
        let strategies = trainings.iter().filter_map(|(_, _, strategy)| strategy.as_ref());
        assert_eq!(strategies.map(Strategy::steps).collect::<Vec<_>>(), [12, 12, 12]);
    }
}
