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

use super::figure::{Figure, FigurePoint, FigureSeries, Findings, Verdict};
use super::measured::{FigureOptions, Measured};
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
        ("independent, Poisson", SamplingName::Poisson, None),
        (
            "independent, shuffled once",
            SamplingName::ShuffledOnce,
            Some(Strategy::identity(rounds)?),
        ),
        ("banded, cyclic Poisson", SamplingName::CyclicPoisson, Some(banded)),
        ("buffered, shuffled once", SamplingName::ShuffledOnce, Some(buffered)),
    ])
}

pub(super) fn run(options: &FigureOptions) -> Result<Figure, TrainError> {
    let mut measured = Measured::open(NAME, options)?;
    let base = UserSetting::of(&measured)?.with_threshold(Some(THRESHOLD));
    let epsilons = if measured.quick() { &QUICK[..] } else { &EPSILONS[..] };
    let users = base.users_of_seeds(&measured)?;
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
    let verdicts = verdicts(&series, epsilons[0], epsilons[epsilons.len() - 1]);
    measured.finish(Findings {
        figure: "Correlated noise: accuracy for users at equal ε".into(),
        setting: format!(
            "{}, updates clipped to {THRESHOLD}, {} seeds. \"Shuffled once\": a user takes part \
             every {separation} rounds, without amplification by sampling.",
            base.sentence(),
            users.len()
        ),
        labels: ["Correlated noise for users", "ε", "accuracy"].map(String::from),
        series,
        verdicts,
    })
}

fn verdicts(series: &[FigureSeries], small: f64, large: f64) -> Vec<Verdict> {
    let at = |name: &str, epsilon: f64| {
        let line = series.iter().find(|line| line.name.starts_with(name));
        line.and_then(|line| line.at(epsilon)).unwrap_or(f64::NAN)
    };
    let names = ["independent, Poisson", "independent, shuffled", "buffered", "banded"];
    let [poisson, shuffled, buffered, banded] =
        names.map(|name| [at(name, small), at(name, large)]);
    let [at_small, at_large] = [small, large].map(|epsilon| format!("at ε = {epsilon}"));
    let (shuffled_small, shuffled_large) =
        (format!("independent {at_small}"), format!("independent {at_large}"));
    let (buffered_small, buffered_large) =
        (format!("buffered {at_small}"), format!("buffered {at_large}"));
    vec![
        Verdict::new(
            "Without amplification by sampling, correlated noise beats independent noise for users \
             at a small ε, and is at most half a point behind it at a large one.",
            buffered[0] > shuffled[0] && buffered[1] >= shuffled[1] - 0.005,
            [
                (buffered_small.as_str(), buffered[0]),
                (shuffled_small.as_str(), shuffled[0]),
                (buffered_large.as_str(), buffered[1]),
                (shuffled_large.as_str(), shuffled[1]),
            ],
        ),
        Verdict::new(
            format!(
                "At ε = {large}, bands with cyclic Poisson sampling are ahead of independent noise \
                 with Poisson sampling, or at most half a point behind."
            ),
            banded[1] >= poisson[1] - 0.005,
            [("banded", banded[1]), ("Poisson", poisson[1])],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdicts_compare_the_ends_of_the_lines() {
        let lines = |buffered: [f64; 2], banded: f64| {
            let line =
                |name: &str, [a, b]: [f64; 2]| FigureSeries::exact(name, [(2.0, a), (9.0, b)]);
            [
                line("independent, Poisson", [0.3, 0.4]),
                line("independent, shuffled once", [0.2, 0.3]),
                line("buffered, shuffled once", buffered),
                line("banded, cyclic Poisson", [0.3, banded]),
            ]
        };
        let holds = |buffered, banded| {
            let verdicts = verdicts(&lines(buffered, banded), 2.0, 9.0);
            verdicts.iter().map(|verdict| verdict.holds).collect::<Vec<_>>()
        };
        assert_eq!(holds([0.25, 0.3], 0.4), [true, true]);
        assert_eq!(holds([0.25, 0.2], 0.3), [false, false]);
        assert_eq!(holds([0.2, 0.4], 0.5), [false, true]);
    }

    #[test]
    fn every_strategy_fits_the_rounds() {
        let trainings = trainings(12, 5, 0.9).expect("strategies");
        let strategies = trainings.iter().filter_map(|(_, _, strategy)| strategy.as_ref());
        assert_eq!(strategies.map(Strategy::steps).collect::<Vec<_>>(), [12, 12, 12]);
    }
}
