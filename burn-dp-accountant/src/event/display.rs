//! Events as text for people, with the digits that are meaningful.

use std::fmt;

use super::{DpEvent, PatternedGaussian, RandomParticipation, RunCount};
use crate::rounded::Rounded;

/// Formats a noise multiplier for people, rounded to the side of more privacy loss.
fn multiplier(value: f64) -> Rounded {
    Rounded::down(value).shortest()
}

/// Formats a probability for people with four significant digits, rounded to the side of more
/// privacy loss.
fn probability(value: f64) -> Rounded {
    Rounded::up(value).with_digits(4).shortest()
}

/// Formats a number that the privacy loss grows with, rounded up.
fn loss(value: f64) -> Rounded {
    Rounded::up(value).shortest()
}

impl fmt::Display for DpEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gaussian { noise_multiplier } => {
                write!(f, "Gaussian(noise_multiplier = {})", multiplier(*noise_multiplier))
            }
            Self::Laplace { noise_multiplier } => {
                write!(f, "Laplace(noise_multiplier = {})", multiplier(*noise_multiplier))
            }
            Self::JointGaussian { noise_multipliers } => {
                f.write_str("JointGaussian(noise_multipliers = [")?;
                for (i, &z) in noise_multipliers.iter().enumerate() {
                    write!(f, "{}{}", if i == 0 { "" } else { ", " }, multiplier(z))?;
                }
                f.write_str("])")
            }
            Self::CorrelatedGaussian { noise_multiplier, strategy, participation, .. } => write!(
                f,
                "CorrelatedGaussian(noise_multiplier = {}, {strategy}, {participation})",
                multiplier(*noise_multiplier)
            ),
            Self::PoissonSampled { sampling_probability, event } => {
                write!(f, "PoissonSampled({}, {event})", probability(*sampling_probability))
            }
            Self::TruncatedPoissonSampled {
                sampling_probability,
                dataset_size,
                max_batch_size,
                event,
            } => write!(
                f,
                "TruncatedPoissonSampled({} of {dataset_size}, at most {max_batch_size}, {event})",
                probability(*sampling_probability)
            ),
            Self::TruncatedPoissonExamples {
                sampling_probability,
                dataset_size,
                max_batch_size,
                examples,
                noise_multiplier,
            } => write!(
                f,
                "TruncatedPoissonExamples({} of {dataset_size}, at most {max_batch_size}, \
                 {examples} of a unit, noise_multiplier = {})",
                probability(*sampling_probability),
                multiplier(*noise_multiplier)
            ),
            Self::SampledWithoutReplacement { dataset_size, sample_size, event } => {
                write!(f, "SampledWithoutReplacement({sample_size} of {dataset_size}, {event})")
            }
            Self::SampledWithReplacement { dataset_size, sample_size, event } => {
                write!(f, "SampledWithReplacement({sample_size} of {dataset_size}, {event})")
            }
            Self::RandomAllocation { steps, participations, epochs, event } => write!(
                f,
                "RandomAllocation({participations} of {steps} steps, {epochs} epochs, {event})"
            ),
            Self::Composed { events } => {
                f.write_str("Composed(")?;
                for (i, event) in events.iter().enumerate() {
                    write!(f, "{}{event}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str(")")
            }
            Self::SelfComposed { event, count } => write!(f, "{count} x {event}"),
            Self::ZeroConcentrated { rho } => {
                write!(f, "ZeroConcentrated(rho = {})", loss(*rho))
            }
            Self::EpsilonDelta { epsilon, delta } => {
                write!(f, "EpsilonDelta({}, {})", loss(*epsilon), loss(*delta))
            }
            Self::RepeatAndSelect { event, runs } => match runs {
                RunCount::Poisson { mean } => {
                    write!(f, "RepeatAndSelect(Poisson({}) runs, {event})", loss(*mean))
                }
                RunCount::TruncatedNegativeBinomial { mean, shape } => write!(
                    f,
                    "RepeatAndSelect(negative binomial of mean {} and shape {}, {event})",
                    loss(*mean),
                    Rounded::nearest(*shape)
                ),
            },
            Self::DiscreteGaussian { sigma, sensitivity } => write!(
                f,
                "DiscreteGaussian(sigma = {}, sensitivity = {sensitivity})",
                multiplier(*sigma)
            ),
            Self::Exponential { epsilon } => write!(f, "Exponential({})", loss(*epsilon)),
            Self::GaussianMixture(mixture) => write!(
                f,
                "GaussianMixture({} means, noise_multiplier = {})",
                mixture.means.len(),
                multiplier(mixture.noise_multiplier)
            ),
            Self::Patterned(PatternedGaussian {
                participation,
                steps,
                column,
                noise_multiplier,
            }) => {
                write!(
                    f,
                    "Patterned({participation}, {steps} steps, {} bands, noise_multiplier = {})",
                    column.len(),
                    multiplier(*noise_multiplier)
                )
            }
            Self::NonPrivate => f.write_str("NonPrivate"),
            Self::Unsupported { reason } => write!(f, "Unsupported({reason})"),
        }
    }
}

impl fmt::Display for RandomParticipation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BallsInBins { cycle } => write!(f, "one of {cycle} bins"),
            Self::CyclicPoisson { cycle, sampling_probability } => {
                write!(f, "cyclic Poisson {} in {cycle} parts", probability(*sampling_probability))
            }
            Self::MinimumSeparation { separation, sampling_probability, .. } => {
                write!(
                    f,
                    "Poisson {} at least {separation} apart",
                    probability(*sampling_probability)
                )
            }
            Self::Subset { participations } => write!(f, "{participations} random steps"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_printed_with_meaningful_digits() {
        let step = DpEvent::dp_sgd_step(256.0 / 60_000.0, 1.1 + 1e-9);
        let text = "PoissonSampled(0.004267, Gaussian(noise_multiplier = 1.1))";
        assert_eq!(step.to_string(), text);
        let joint = DpEvent::JointGaussian { noise_multipliers: vec![1.0 / 3.0, 8.0] };
        assert_eq!(joint.to_string(), "JointGaussian(noise_multipliers = [0.333333, 8])");
        let third = 1.0 / 3.0;
        for (event, text) in [
            (DpEvent::ZeroConcentrated { rho: third }, "ZeroConcentrated(rho = 0.333334)"),
            (DpEvent::Exponential { epsilon: 0.1 + 0.2 }, "Exponential(0.300001)"),
            (
                DpEvent::EpsilonDelta { epsilon: 2.0 * third, delta: 1e-5 * third },
                "EpsilonDelta(0.666667, 3.33334e-6)",
            ),
            (
                DpEvent::RepeatAndSelect {
                    event: Box::new(DpEvent::Exponential { epsilon: 1.0 }),
                    runs: RunCount::TruncatedNegativeBinomial { mean: 10.0 * third, shape: third },
                },
                "RepeatAndSelect(negative binomial of mean 3.33334 and shape 0.333333, \
                 Exponential(1))",
            ),
        ] {
            assert_eq!(event.to_string(), text);
        }
    }
}
