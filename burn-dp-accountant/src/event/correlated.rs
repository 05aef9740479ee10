//! Steps with correlated noise, as events with independent noise.

use super::DpEvent;
use crate::correlated_noise::{Participation, Sensitivity, Strategy};
use crate::error::AccountantError;
use crate::relation::NeighboringRelation;

/// Room for the rounding of a sensitivity.
const ROUNDING: f64 = 1.0 + 1e-12;

/// Releases with independent noise that cost as much as a run with correlated noise.
pub(crate) struct Uncorrelated {
    pub(crate) event: DpEvent,
    pub(crate) count: u64,
    /// Whether real data sets attain the cost.
    pub(crate) is_attained: bool,
}

/// Returns whether many steps of Poisson sampling cost less than all participations without
/// sampling, by the central limits of both: the rule does not depend on the number of steps, so
/// that the cost of a run does not fall while it continues. Both are bounds.
fn sampling_helps(q: f64, noise_multiplier: f64, separation: u64) -> bool {
    let of_step = noise_multiplier.powi(-2);
    q * q * of_step.exp_m1() < of_step / separation as f64
}

impl DpEvent {
    /// Returns the first step of a run with correlated noise.
    pub fn correlated_gaussian(
        noise_multiplier: f64,
        strategy: &Strategy,
        participation: Participation,
    ) -> Self {
        let strategy = strategy.clone();
        Self::CorrelatedGaussian { noise_multiplier, strategy, participation, first_step: 0 }
    }

    /// Returns the event after `count` releases of this one: a later step of the same run with
    /// correlated noise. Every other event is unchanged.
    #[must_use]
    pub fn advanced(&self, count: u64) -> Self {
        let mut next = self.clone();
        if let Self::CorrelatedGaussian { first_step, .. } = &mut next {
            *first_step = first_step.saturating_add(count);
        }
        next
    }

    /// Returns an event with independent noise, and its number of releases, that together cost at
    /// least as much as the first `first_step + count` steps of the run with correlated noise.
    /// Every other event is returned as it is.
    ///
    /// # Privacy
    ///
    /// Multiplied by the strategy, the outputs of a run are one Gaussian release. Under
    /// [`Participation::AtMost`] and [`Participation::FixedOrder`] its sensitivity is the
    /// sensitivity of the strategy. Under [`Participation::CyclicPoisson`] the participations of a
    /// unit are in separate rows, and each is a Poisson-sampled Gaussian release of the norm of a
    /// column; the units of the first part have the most of them.
    ///
    /// A strategy of one band is diagonal, and each row is a separate release:
    ///
    /// - [`Participation::BallsInBins`]: the rows of one bin are a Gaussian release of the root of
    ///   the sum of their squared entries, which is at most the norm of a column times the root of
    ///   the number of epochs. The run is a random allocation to one of the bins.
    /// - [`Participation::RandomAllocation`]: each epoch is a separate random allocation.
    /// - [`Participation::MinSeparation`]: given the outputs of earlier steps and the choices of
    ///   all other units, a unit takes part in a step with a probability of at most p, because it
    ///   takes part with probability p if it may, and otherwise not at all. The hockey-stick
    ///   divergence of `(1 - r) N(0) + r N(g)` and `N(0)`, in both directions, does not fall with
    ///   `r` (it is convex in `r` and 0 at `r = 0`) nor with `|g|`, so that the pair of Poisson
    ///   sampling with p dominates each step, and its composition the run (Zhu, Dong, Wang 2022,
    ///   Theorem 10). Under replace-one, the two data sets have different probabilities, and
    ///   nothing is amplified.
    ///
    /// With at most half as many bands as bins, [`Participation::BallsInBins`] is also amplified,
    /// like a random allocation to `r = ⌊bins / bands⌋` bins. The bins `⌊k bins / r⌋ + j` for `k <
    /// r`, modulo the bins, share no row, because they are at least `bands` apart: given that the
    /// bin of the unit is one of them, the run is a random allocation to `r` of them, with the
    /// largest norm of a bin. Every bin is in `r` of the sets of all `j`. The likelihood ratio of
    /// the run is therefore the mean of the ratios of the sets, and a convex functional of a mean
    /// is at most the largest one.
    ///
    /// A run that ends within an epoch is a function of the run that completes the epoch. Epochs of
    /// both allocations are therefore counted as a whole from their first step, and neither the end
    /// of a run nor the steps that a resumed run repeats can change the count.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if a parameter is outside its domain, or the
    /// strategy has fewer steps.
    pub fn without_correlation(&self, count: u64) -> Result<(Self, u64), AccountantError> {
        // A bound under every relation.
        Ok(match self.uncorrelated(count, NeighboringRelation::ReplaceOne)? {
            Some(Uncorrelated { event, count, .. }) => (event, count),
            None => (self.clone(), count),
        })
    }

    /// Returns the equivalent of `count` steps with correlated noise and all steps before them, or
    /// `None` for another event.
    pub(crate) fn uncorrelated(
        &self,
        count: u64,
        relation: NeighboringRelation,
    ) -> Result<Option<Uncorrelated>, AccountantError> {
        let Self::CorrelatedGaussian { noise_multiplier, strategy, participation, first_step } =
            self
        else {
            return Ok(None);
        };
        self.validate()?;
        let steps = first_step.saturating_add(count);
        strategy.check_steps(steps)?;
        let one_release = |sensitivity: Sensitivity| Uncorrelated {
            event: Self::gaussian(noise_multiplier / (sensitivity.value * ROUNDING)),
            count: 1,
            is_attained: sensitivity.is_exact,
        };
        let of_column = || noise_multiplier / (strategy.largest_column_norm() * ROUNDING);
        let is_diagonal = strategy.bands() == 1;
        let allocation = |bins: u64, epochs: u64| Self::RandomAllocation {
            steps: bins,
            participations: 1,
            epochs,
            event: Box::new(Self::gaussian(of_column())),
        };
        Ok(Some(match *participation {
            Participation::AtMost { times, separation } => {
                one_release(strategy.bounded_sensitivity(steps, times, separation)?)
            }
            Participation::FixedOrder { period } => {
                one_release(strategy.bounded_sensitivity_in_fixed_order(steps, period)?)
            }
            Participation::CyclicPoisson { parts, sampling_probability } => Uncorrelated {
                event: Self::dp_sgd_step(sampling_probability, of_column()),
                count: steps.div_ceil(parts),
                is_attained: strategy.has_equal_columns(steps, parts),
            },
            Participation::BallsInBins { bins } if is_diagonal => Uncorrelated {
                event: allocation(bins, steps.div_ceil(bins)),
                count: 1,
                is_attained: steps % bins == 0 && strategy.has_equal_columns(steps, 1),
            },
            Participation::BallsInBins { bins } if bins / strategy.bands() > 1 => {
                // A whole epoch, even where the run ends within it.
                let whole = steps.div_ceil(bins).saturating_mul(bins).min(strategy.steps());
                let bin = strategy.bounded_sensitivity_in_fixed_order(whole, bins)?;
                let event = Box::new(Self::gaussian(noise_multiplier / (bin.value * ROUNDING)));
                let steps = bins / strategy.bands();
                Uncorrelated {
                    event: Self::RandomAllocation { steps, participations: 1, epochs: 1, event },
                    count: 1,
                    is_attained: false,
                }
            }
            Participation::BallsInBins { bins } => Uncorrelated {
                is_attained: false,
                ..one_release(strategy.bounded_sensitivity_in_fixed_order(steps, bins)?)
            },
            Participation::RandomAllocation { bins } if is_diagonal => Uncorrelated {
                event: allocation(bins, 1),
                count: steps.div_ceil(bins),
                is_attained: steps % bins == 0 && strategy.has_equal_columns(steps, 1),
            },
            Participation::RandomAllocation { bins } => Uncorrelated {
                is_attained: false,
                ..one_release(strategy.bounded_sensitivity(steps, steps.div_ceil(bins), 1)?)
            },
            Participation::MinSeparation { separation, sampling_probability }
                if is_diagonal
                    && relation != NeighboringRelation::ReplaceOne
                    && sampling_helps(sampling_probability, of_column(), separation) =>
            {
                Uncorrelated {
                    event: Self::dp_sgd_step(sampling_probability, of_column()),
                    count: steps,
                    is_attained: separation == 1 && strategy.has_equal_columns(steps, 1),
                }
            }
            Participation::MinSeparation { separation, .. } => {
                let times = steps.div_ceil(separation);
                Uncorrelated {
                    is_attained: false,
                    ..one_release(strategy.bounded_sensitivity(steps, times, separation)?)
                }
            }
        }))
    }

    /// Returns whether only a simulation captures the amplification of the run.
    pub(crate) fn has_random_bands(&self) -> bool {
        use Participation::{BallsInBins, MinSeparation, RandomAllocation};
        let Self::CorrelatedGaussian { strategy, participation, .. } = self else { return false };
        let is_random = matches!(
            participation,
            BallsInBins { .. } | RandomAllocation { .. } | MinSeparation { .. }
        );
        is_random && strategy.bands() > 1
    }

    /// Returns whether this is the step with correlated noise that follows `count` releases of
    /// `earlier` in the same run.
    pub(crate) fn continues_run(&self, earlier: &Self, count: u64) -> bool {
        matches!(self, Self::CorrelatedGaussian { .. }) && *self == earlier.advanced(count)
    }

    /// Returns an error for a step with correlated noise that is not the first of its run.
    pub(crate) fn check_begins_run(&self) -> Result<(), AccountantError> {
        match self {
            Self::CorrelatedGaussian { first_step, .. } if *first_step != 0 => {
                Err(AccountantError::invalid(
                    "first_step",
                    format!(
                        "must be 0, or the number of steps of the same run that were recorded just \
                         before, got {first_step}; record the steps of a run with correlated noise \
                         in order and without other releases between them"
                    ),
                ))
            }
            _ => Ok(()),
        }
    }

    /// Returns the number of releases after which a run with correlated noise is over; `u64::MAX`
    /// for another event.
    pub(crate) fn remaining_steps(&self) -> u64 {
        match self {
            Self::CorrelatedGaussian { strategy, first_step, .. } => {
                strategy.steps().saturating_sub(*first_step)
            }
            _ => u64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::accountant::Accountant;
    use crate::{
        Budget, Calibration, ExactAccountant, GdpAccountant, LedgerHeader, PldAccountant,
        PrivacyLedger, RdpAccountant, UnitOfPrivacy, calibrate_noise_multiplier,
    };

    const RELATIONS: [NeighboringRelation; 3] = [
        NeighboringRelation::AddOrRemoveOne,
        NeighboringRelation::ReplaceOne,
        NeighboringRelation::ReplaceSpecial,
    ];

    fn strategy() -> Strategy {
        Strategy::banded_toeplitz(20, &[1.0, 0.5, 0.25]).unwrap()
    }

    fn cyclic(parts: u64) -> Participation {
        Participation::CyclicPoisson { parts, sampling_probability: 0.3 }
    }

    #[test]
    fn whole_run_costs_one_gaussian_of_the_sensitivity() {
        let participation = Participation::AtMost { times: 3, separation: 2 };
        let step = DpEvent::correlated_gaussian(2.0, &strategy(), participation);
        let sensitivity = strategy().sensitivity(3, 2).unwrap();
        for relation in RELATIONS {
            let whole = GdpAccountant::new([(&step, 20)], relation).unwrap();
            let mu = relation.sensitivity() * sensitivity / 2.0;
            assert!((whole.mu() / mu - 1.0).abs() < 1e-11, "{relation}: {}", whole.mu());
            let epsilon = whole.epsilon(1e-5).unwrap();
            let pld = PldAccountant::new([(&step, 20)], relation).unwrap().epsilon(1e-5).unwrap();
            let rdp = RdpAccountant::new([(&step, 20)], relation).unwrap().epsilon(1e-5).unwrap();
            let exact = ExactAccountant::new([(&step, 20)], relation).unwrap();
            let exact = exact.epsilon(1e-5).unwrap().estimate;
            assert!((exact / epsilon.estimate - 1.0).abs() < 1e-8, "{exact} {epsilon:?}");
            assert!(pld.lower <= exact && exact <= pld.upper * (1.0 + 1e-8), "{pld:?}");
            assert!(rdp.upper >= epsilon.upper, "{rdp:?}");
        }
        // A later step on its own counts with all steps before it.
        let later = GdpAccountant::new([(&step.advanced(15), 5)], RELATIONS[0]).unwrap();
        assert!((later.mu() / (sensitivity / 2.0) - 1.0).abs() < 1e-11);
    }

    #[test]
    fn cyclic_sampling_costs_one_sampled_release_a_round() {
        let step = DpEvent::correlated_gaussian(2.0, &strategy(), cyclic(3));
        let (event, count) = step.without_correlation(20).unwrap();
        assert_eq!(count, 7);
        let DpEvent::PoissonSampled { sampling_probability: 0.3, event } = event else {
            panic!("{event}")
        };
        let DpEvent::Gaussian { noise_multiplier } = *event else { panic!("{event}") };
        let norm = (1.0f64 + 0.25 + 0.0625).sqrt();
        assert!((noise_multiplier * norm / 2.0 - 1.0).abs() < 1e-11, "{noise_multiplier}");
        assert!(noise_multiplier * norm < 2.0);
        for (steps, rounds) in [(1, 1), (3, 1), (4, 2), (18, 6)] {
            assert_eq!(step.without_correlation(steps).unwrap().1, rounds);
        }
    }

    #[test]
    fn one_band_in_one_part_is_dp_sgd() {
        let identity = Strategy::identity(50).unwrap();
        let step = DpEvent::correlated_gaussian(1.1, &identity, cyclic(1));
        let independent = DpEvent::dp_sgd_step(0.3, 1.1);
        for relation in RELATIONS {
            let epsilon = |event: &DpEvent| {
                let accountant = ExactAccountant::new([(event, 50)], relation).unwrap();
                accountant.epsilon(1e-5).unwrap().estimate
            };
            assert!((epsilon(&step) / epsilon(&independent) - 1.0).abs() < 1e-9);
        }
    }

    fn upper(event: &DpEvent, count: u64, relation: NeighboringRelation) -> f64 {
        PldAccountant::new([(event, count)], relation).unwrap().epsilon(1e-5).unwrap().upper
    }

    #[test]
    fn whole_epochs_of_bins_are_counted_from_their_first_step() {
        let identity = Strategy::identity(60).unwrap();
        let allocated = |epochs: u64| DpEvent::RandomAllocation {
            steps: 20,
            participations: 1,
            epochs,
            event: Box::new(DpEvent::gaussian(2.0)),
        };
        let added = RELATIONS[0];
        let bins = Participation::BallsInBins { bins: 20 };
        let fresh = Participation::RandomAllocation { bins: 20 };
        let run = |participation| DpEvent::correlated_gaussian(2.0, &identity, participation);
        for (steps, epochs) in [(1, 1), (20, 1), (21, 2), (59, 3), (60, 3)] {
            let expected = upper(&allocated(epochs), 1, added);
            let found = upper(&run(bins), steps, added);
            assert!((found / expected - 1.0).abs() < 1e-6, "{steps}: {found} {expected}");
            let expected = upper(&allocated(1), epochs, added);
            let found = upper(&run(fresh), steps, added);
            assert!((found / expected - 1.0).abs() < 1e-6, "{steps}: {found} {expected}");
        }
        // Far below three releases without amplification.
        let all =
            DpEvent::correlated_gaussian(2.0, &identity, Participation::FixedOrder { period: 20 });
        assert!(upper(&run(bins), 60, added) < 0.7 * upper(&all, 60, added));
        assert!(upper(&run(fresh), 60, added) < upper(&run(bins), 60, added));
        // Replace-one has no proof of an amplification.
        let replaced = RELATIONS[1];
        let twice = DpEvent::gaussian(1.0);
        assert!(upper(&run(bins), 60, replaced) >= upper(&twice, 3, added) * (1.0 - 1e-6));
    }

    #[test]
    fn bands_across_bins_are_not_amplified() {
        let added = RELATIONS[0];
        let run = |participation| DpEvent::correlated_gaussian(2.0, &strategy(), participation);
        let sensitivity = strategy().sensitivity_in_fixed_order(5).unwrap();
        let whole = upper(&DpEvent::gaussian(2.0 / sensitivity), 1, added);
        let found = upper(&run(Participation::BallsInBins { bins: 5 }), 20, added);
        assert!((found / whole - 1.0).abs() < 1e-6, "{found} {whole}");
        let sensitivity = strategy().sensitivity(4, 1).unwrap();
        let whole = upper(&DpEvent::gaussian(2.0 / sensitivity), 1, added);
        let found = upper(&run(Participation::RandomAllocation { bins: 5 }), 20, added);
        assert!((found / whole - 1.0).abs() < 1e-6, "{found} {whole}");
        let separated = Participation::MinSeparation { separation: 5, sampling_probability: 0.01 };
        let at_most = Participation::AtMost { times: 4, separation: 5 };
        assert_eq!(upper(&run(separated), 20, added), upper(&run(at_most), 20, added));
    }

    // The strategy has 3 bands, and 20 steps are no multiple of 7 or of 3: a started part counts.
    #[test]
    fn bands_over_steps_that_are_no_multiple_of_the_bins_have_known_sensitivities() {
        let columns = [1.0f64, 0.5, 0.25];
        let of_rows = |times: u64, gap: usize, steps: usize| {
            let mut rows = vec![0.0f64; steps];
            for column in (0..times as usize).map(|time| time * gap) {
                for (row, value) in rows[column..].iter_mut().zip(columns) {
                    *row += value;
                }
            }
            rows.iter().map(|row| row * row).sum::<f64>().sqrt()
        };
        let found = |participation| {
            let run = DpEvent::correlated_gaussian(2.0, &strategy(), participation);
            run.without_correlation(20).unwrap()
        };
        let multiplier = |event: &DpEvent| match event {
            DpEvent::Gaussian { noise_multiplier } => *noise_multiplier,
            other => panic!("{other}"),
        };
        let same = |found: f64, sensitivity: f64| {
            assert!((found * sensitivity / 2.0 - 1.0).abs() < 1e-9, "{found} {sensitivity}");
        };
        // Three participations, 7 apart; and in every bin of 5 steps one, at most 4.
        let separated = Participation::MinSeparation { separation: 7, sampling_probability: 0.01 };
        let (event, count) = found(separated);
        same(multiplier(&event), of_rows(3, 7, 20));
        assert_eq!(count, 1);
        let (event, _) = found(Participation::BallsInBins { bins: 5 });
        same(multiplier(&event), of_rows(4, 5, 20));
        // Three of them may be adjacent.
        let (event, _) = found(Participation::RandomAllocation { bins: 7 });
        same(multiplier(&event), of_rows(3, 1, 20));
        // Bins of which two share no row: a random allocation to them, for the started epoch too.
        let (event, count) = found(Participation::BallsInBins { bins: 7 });
        let DpEvent::RandomAllocation { steps: 2, participations: 1, epochs: 1, event } = event
        else {
            panic!("{event}")
        };
        same(multiplier(&event), of_rows(3, 7, 20));
        assert_eq!(count, 1);
        // With one band, the epochs are counted.
        let identity = Strategy::identity(20).unwrap();
        let run = |participation| DpEvent::correlated_gaussian(2.0, &identity, participation);
        let bins = run(Participation::BallsInBins { bins: 7 }).without_correlation(20).unwrap();
        assert!(matches!(bins, (DpEvent::RandomAllocation { steps: 7, epochs: 3, .. }, 1)));
        let fresh = run(Participation::RandomAllocation { bins: 7 });
        let fresh = fresh.without_correlation(20).unwrap();
        assert!(matches!(fresh, (DpEvent::RandomAllocation { steps: 7, epochs: 1, .. }, 3)));
    }

    #[test]
    fn sensitivities_are_rounded_up() {
        let (identity, banded) = (Strategy::identity(20).unwrap(), strategy());
        for (strategy, participation) in [
            (&identity, Participation::once()),
            (&identity, Participation::FixedOrder { period: 20 }),
            (&banded, Participation::BallsInBins { bins: 20 }),
        ] {
            let run = DpEvent::correlated_gaussian(2.0, strategy, participation);
            let event = match run.without_correlation(20).unwrap().0 {
                DpEvent::RandomAllocation { event, .. } => *event,
                event => event,
            };
            let DpEvent::Gaussian { noise_multiplier } = event else { panic!("{event}") };
            let found = noise_multiplier * strategy.largest_column_norm();
            assert!(found < 2.0, "{participation}: {found}");
        }
    }

    #[test]
    fn a_run_of_invalid_steps_is_not_recorded_and_not_read() {
        let mut ledger = ledger();
        for (multiplier, participation) in [
            (-1.0, Participation::once()),
            (f64::NAN, Participation::once()),
            (0.0, Participation::once()),
            (1.0, Participation::AtMost { times: 0, separation: 1 }),
            (1.0, cyclic(2)),
        ] {
            let step = DpEvent::correlated_gaussian(multiplier, &strategy(), participation);
            assert!(ledger.record(&step).is_err(), "{step}");
            assert!(ledger.record_many(&step, 20).is_err(), "{step}");
        }
        assert_eq!(ledger.releases(), 0);
        let step = DpEvent::correlated_gaussian(1.5, &strategy(), Participation::once());
        ledger.record_many(&step, 20).unwrap();
        let text = ledger.to_json().unwrap();
        assert!(text.contains("1.5"), "{text}");
        let error = PrivacyLedger::from_json(&text.replace("1.5", "-1.5")).unwrap_err().to_string();
        assert!(error.contains("noise_multiplier"), "{error}");
    }

    #[test]
    fn separated_steps_cost_at_most_poisson_sampling() {
        let added = RELATIONS[0];
        let identity = Strategy::identity(60).unwrap();
        let run = |separation: u64, q: f64| {
            let participation =
                Participation::MinSeparation { separation, sampling_probability: q };
            DpEvent::correlated_gaussian(1.0, &identity, participation)
        };
        let poisson = upper(&DpEvent::dp_sgd_step(0.02, 1.0), 60, added);
        assert!((upper(&run(5, 0.02), 60, added) / poisson - 1.0).abs() < 1e-6);
        // With a large probability, the number of participations is the better bound.
        let all = upper(&DpEvent::gaussian(1.0), 12, added);
        assert!((upper(&run(5, 0.9), 60, added) / all - 1.0).abs() < 1e-6);
        // Replace-one has no proof of an amplification.
        let twice = upper(&DpEvent::gaussian(0.5), 12, added);
        assert!((upper(&run(5, 0.02), 60, RELATIONS[1]) / twice - 1.0).abs() < 1e-6);
        // The bound is above the simulation of the process, which starts in its stationary state.
        let process = DpEvent::Patterned(crate::PatternedGaussian {
            participation: crate::RandomParticipation::MinimumSeparation {
                separation: 5,
                sampling_probability: 0.02,
                warm_start: true,
            },
            steps: 60,
            column: vec![1.0],
            noise_multiplier: 1.0,
        });
        let simulated = crate::MonteCarloAccountant::new([(&process, 1)], added).unwrap();
        let simulated = simulated.with_samples(200_000).epsilon(1e-3).unwrap().estimate;
        let bound = PldAccountant::new([(&run(5, 0.02), 60)], added).unwrap();
        let bound = bound.epsilon(1e-3).unwrap().upper;
        assert!(simulated <= bound * 1.02 && simulated > 0.7 * bound, "{simulated} {bound}");
    }

    #[test]
    fn more_bands_than_parts_are_refused() {
        let error = DpEvent::correlated_gaussian(1.0, &strategy(), cyclic(2)).validate();
        let error = error.unwrap_err().to_string();
        assert!(error.contains("bands of the strategy, 3") && error.contains("got 2"), "{error}");
        let full = Strategy::optimal_toeplitz(10).unwrap();
        assert!(DpEvent::correlated_gaussian(1.0, &full, cyclic(9)).validate().is_err());
        assert!(DpEvent::correlated_gaussian(1.0, &full, cyclic(10)).validate().is_ok());
    }

    #[test]
    fn steps_beyond_the_strategy_are_refused_everywhere() {
        let step = DpEvent::correlated_gaussian(1.0, &strategy(), Participation::once());
        let mut ledger = ledger();
        assert!(ledger.record_many(&step, 21).is_err());
        ledger.record_many(&step, 20).unwrap();
        let error = ledger.record(&step.advanced(20)).unwrap_err().to_string();
        assert!(error.contains("of the strategy, 20, got 21"), "{error}");
        assert!(RdpAccountant::new([(&step, 21)], RELATIONS[0]).is_err());
        assert!(ledger.epsilon_after(&step.advanced(20), 1, 1e-5).is_err());
        assert!(step.without_correlation(21).is_err());
        assert_eq!(ledger.releases(), 20);
    }

    #[test]
    fn correlated_steps_inside_of_other_events_are_refused() {
        let step = DpEvent::correlated_gaussian(1.0, &strategy(), Participation::once());
        for event in [
            DpEvent::self_composed(step.clone(), 5),
            DpEvent::poisson_sampled(1.0, step.clone()),
            DpEvent::Composed { events: vec![DpEvent::gaussian(1.0), step.clone()] },
            DpEvent::Composed { events: vec![DpEvent::self_composed(step, 1)] },
        ] {
            let error = event.validate().unwrap_err().to_string();
            assert!(error.contains("without_correlation"), "{event}: {error}");
            assert!(RdpAccountant::new([(&event, 1)], RELATIONS[0]).is_err());
        }
    }

    fn ledger() -> PrivacyLedger {
        PrivacyLedger::new(LedgerHeader::new(UnitOfPrivacy::Example, RELATIONS[0]))
    }

    #[test]
    fn steps_of_one_run_share_one_entry() {
        let first = DpEvent::correlated_gaussian(1.0, &strategy(), Participation::once());
        let mut ledger = ledger();
        for step in 0..20 {
            ledger.record(&first.advanced(step)).unwrap();
        }
        assert_eq!(ledger.entries().len(), 1);
        assert_eq!((ledger.entries()[0].count, &ledger.entries()[0].event), (20, &first));
        let text = ledger.to_json().unwrap();
        assert_eq!(PrivacyLedger::from_json(&text).unwrap(), ledger);
        let mut earlier = self::ledger();
        earlier.record_many(&first, 7).unwrap();
        assert!(ledger.continues(&earlier) && !earlier.continues(&ledger));
    }

    #[test]
    fn two_runs_are_never_one_run() {
        let first = DpEvent::correlated_gaussian(3.0, &strategy(), Participation::once());
        let mut one = ledger();
        one.record_many(&first, 10).unwrap();
        let mut two = one.clone();
        two.merge(&one).unwrap();
        assert_eq!(two.entries().len(), 2);
        // Two runs of 10 steps cost √2 of one, and not what one run of 20 steps costs.
        let single = GdpAccountant::new([(&first, 10)], RELATIONS[0]).unwrap();
        let mu = std::f64::consts::SQRT_2 * single.mu();
        let expected = crate::GaussianDp::new(mu).unwrap().epsilon(1e-5).unwrap();
        let epsilon = two.epsilon(1e-5).unwrap();
        assert!((epsilon.upper / expected - 1.0).abs() < 1e-9, "{epsilon:?} {expected}");
        let mut whole = ledger();
        whole.record_many(&first, 20).unwrap();
        assert!(whole.epsilon(1e-5).unwrap().upper < 0.9 * expected);
        // A file with two runs is read as two runs.
        assert_eq!(PrivacyLedger::from_json(&two.to_json().unwrap()).unwrap(), two);
        // Neither a gap nor a repeated step nor a step after another release is recorded.
        for step in [9, 11, 15] {
            let error = one.record(&first.advanced(step)).unwrap_err().to_string();
            assert!(error.contains("first_step") && error.contains(&step.to_string()), "{error}");
        }
        let other = DpEvent::correlated_gaussian(3.1, &strategy(), Participation::once());
        assert!(one.record(&other.advanced(10)).is_err());
        one.record(&DpEvent::gaussian(9.0)).unwrap();
        assert!(one.record(&first.advanced(10)).is_err());
        assert!(one.epsilon_after(&first.advanced(10), 1, 1e-5).is_err());
        assert_eq!(one.releases(), 11);
    }

    #[test]
    fn budget_of_a_run_is_that_of_its_next_steps() {
        let participation = Participation::AtMost { times: 5, separation: 4 };
        let first = DpEvent::correlated_gaussian(2.0, &strategy(), participation);
        let whole = GdpAccountant::new([(&first, 20)], RELATIONS[0]).unwrap();
        let whole = whole.epsilon(1e-5).unwrap().upper;
        let half = GdpAccountant::new([(&first, 10)], RELATIONS[0]).unwrap();
        let half = half.epsilon(1e-5).unwrap().upper;
        let mut ledger = ledger();
        ledger.record_many(&first, 4).unwrap();
        let next = first.advanced(4);
        let after = ledger.epsilon_after(&next, 16, 1e-5).unwrap().upper;
        assert!((after / whole - 1.0).abs() < 1e-9, "{after} {whole}");
        let budget = Budget::new(half, 1e-5).unwrap();
        let left = ledger.max_steps_within(&next, budget).unwrap();
        assert!((6..16).contains(&left), "{left}");
        assert!(ledger.within_budget(&next, left, budget).unwrap());
        assert!(!ledger.within_budget(&next, left + 1, budget).unwrap());
        for step in 0..left {
            let event = first.advanced(4 + step);
            assert!(ledger.within_budget(&event, 1, budget).unwrap());
            ledger.record(&event).unwrap();
        }
        assert!(!ledger.within_budget(&first.advanced(4 + left), 1, budget).unwrap());
        // The budget of the whole run ends with the run.
        let generous = Budget::new(2.0 * whole, 1e-5).unwrap();
        let event = first.advanced(4 + left);
        assert_eq!(ledger.max_steps_within(&event, generous).unwrap(), 16 - left);
        let calibration = Calibration::new(generous);
        assert_eq!(calibration.steps(&first).unwrap(), 20);
        // Another run is a new search.
        assert!(!ledger.within_budget(&first, 1, budget).unwrap());
    }

    #[test]
    fn noise_of_a_whole_run_is_calibrated() {
        let budget = Budget::new(2.0, 1e-5).unwrap();
        let event = |sigma| DpEvent::correlated_gaussian(sigma, &strategy(), Participation::once());
        let sigma = calibrate_noise_multiplier(budget, 20, event).unwrap();
        let one = calibrate_noise_multiplier(budget, 1, DpEvent::gaussian).unwrap();
        let sensitivity = strategy().sensitivity(1, 1).unwrap();
        assert!((sigma / (one * sensitivity) - 1.0).abs() < 3e-6, "{sigma} {one}");
        assert!(calibrate_noise_multiplier(budget, 21, event).is_err());
    }

    #[test]
    fn event_is_printed_with_its_strategy_and_pattern() {
        let participation = Participation::AtMost { times: 4, separation: 5 };
        let text = DpEvent::correlated_gaussian(1.5, &strategy(), participation).to_string();
        assert_eq!(
            text,
            "CorrelatedGaussian(noise_multiplier = 1.5, banded Toeplitz of 3 bands, 20 steps, at \
             most 4 participations, 5 steps apart)"
        );
    }
}
