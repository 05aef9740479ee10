//! δ of a composed lattice at single values of ε: a sum over the frequencies of its transform.
//!
//! Tilted by `e^{θy}`, the composition has the spectrum `Z(ω) = Π z(ω)^n`, and
//! `δ(ε) e^{θε} = Σ_y p(y) e^{-θ(y-ε)} (1 - e^{-(y-ε)})^+` is a product of two spectra: the second
//! is a geometric series. On a circle of period `L` the sum also contains the aliases
//! `δ(ε + mL) e^{θmL}` for every integer `m`, which are not negative and bounded by Chernoff's
//! inequality. No inverse transform is needed, and the period is shorter than a window over the
//! whole distribution.
//!
//! `z - 1` is transformed instead of `z`, without the largest mass: nearly all of the mass of a
//! rarely sampled mechanism is one atom, and the rounding is then relative to the rest.
//!
//! # References
//!
//! Inversion and its aliases: "The Fourier-series method for inverting transforms of probability
//! distributions", Abate and Whitt 1992. Rounding of the transform: see
//! [`FFT_ERROR`](super::fourier::FFT_ERROR).

use super::bounds::with_errors;
use super::few_frequencies::{self, LONGEST};
use super::fourier::{GridError, fast_size};
use super::heavy_masses::with_less_rounding;
use super::powers::{Powers, Transform};
use super::rotation::{BLOCK, Rotation};
use super::weights::{Frequency, weigh};
use crate::lattice::{LOSS_ERROR, Lattice, largest_losses, ln_moment, mass_errors, spread};
use crate::math::side::Side;
use crate::math::sum::CompensatedSum;
use crate::saddle::{Contour, Target, ln_largest_weight};

/// The spectrum of a composed lattice.
pub(super) struct Spectrum {
    width: f64,
    contour: Contour,
    size: usize,
    /// `ln` of the factor between tilted and true masses (without `e^{-θs}`).
    ln_scale: f64,
    /// Loss of grid index 0, and the grid index at index 0 of the transform.
    offset: f64,
    origin: i64,
    frequencies: Vec<Frequency>,
    /// Bound of the absolute error of the scaled δ by rounding.
    error: f64,
    /// Bound of the relative error: of the masses, over all repetitions.
    relative: f64,
    /// Logarithms of the bounds of the aliases from below and from above, at ε = 0.
    ln_below: f64,
    ln_above: f64,
}

impl Spectrum {
    /// Composes the parts, each repeated.
    pub(super) fn new(
        parts: &[(&Lattice, u64)],
        width: f64,
        target: Target,
        max_points: usize,
    ) -> Result<Self, GridError> {
        let theta = target.theta;
        let moments = |t: f64| -> f64 {
            parts.iter().map(|(lattice, n)| *n as f64 * ln_moment(lattice, width, t)).sum()
        };
        let (_, deviation) = spread(parts, width, theta);
        let contour = Contour::new(target, deviation, moments).ok_or(GridError::Overflow)?;
        let needed = (contour.period / width).ceil() + 1.0;
        if needed > LONGEST {
            return Err(GridError::TooLarge(needed));
        }
        let size = fast_size(needed as usize);
        let mut few = match *parts {
            [(lattice, n)] => few_frequencies::powers(lattice, width, theta, size, n)?,
            _ => None,
        };
        if few.is_none() && needed > max_points as f64 {
            return Err(GridError::TooLarge(needed));
        }
        let period = size as f64 * width;
        let (down, up) = (moments(theta - contour.fall), moments(theta + contour.rise));
        let mut product: Option<Powers> = None;
        let (mut ln_scale, mut offset, mut origin) = (0.0, 0.0, 0i64);
        for (lattice, count) in parts {
            let n = *count as f64;
            let (one, powers) = match few.take() {
                Some(few) => few,
                None => {
                    let one = Transform::new(lattice, width, theta, size)?;
                    let mut powers = one.powers(*count, product.as_ref());
                    // Another transform is worth its cost only if the rounding could matter. (Its
                    // bound is far above its effect on δ, and the aliases are far below the
                    // requested width.)
                    if n * one.point_error > 100.0 * contour.allowed {
                        powers = with_less_rounding(&one, powers, *count);
                    }
                    (one, powers)
                }
            };
            ln_scale += n * one.normalizer;
            offset += n * lattice.offset;
            let shift = i128::from(one.origin) * i128::from(*count);
            origin = i64::try_from(shift)
                .ok()
                .and_then(|s| origin.checked_add(s))
                .ok_or(GridError::Overflow)?;
            product = Some(match product {
                Some(before) => before.times(&powers),
                None => powers,
            });
        }
        let ends = [ln_scale, down, up];
        let Some(product) = product.filter(|_| ends.iter().all(|v| v.is_finite())) else {
            return Err(GridError::Overflow);
        };
        // The geometric series over the periods.
        let series = |tilt: f64| -tilt * period - (-(-tilt * period).exp_m1()).ln();
        let (frequencies, error) = weigh(&product, width, theta, size);
        Ok(Self {
            width,
            contour,
            size,
            ln_scale,
            offset,
            origin,
            frequencies,
            error,
            relative: mass_errors(parts)
                + LOSS_ERROR * (theta + 1.0) * largest_losses(parts, width)
                + 8.0 * f64::EPSILON * (1e3 + ln_scale.abs()),
            ln_below: down - ln_scale + series(contour.fall),
            ln_above: up - ln_scale + series(contour.rise) + ln_largest_weight(theta),
        })
    }

    fn loss(&self, index: i64) -> f64 {
        self.offset + index as f64 * self.width
    }

    /// Returns the grid index at or below a loss, if it is representable.
    fn index(&self, loss: f64) -> Option<i64> {
        let index = ((loss - self.offset) / self.width).floor();
        (index.abs() < 1e15).then_some(index as i64)
    }

    /// Returns `Σ_{j>k} p_j e^{-θ(s_j-s_k)}` and the same sum with `θ + 1`, at grid index `k`.
    fn sums(&self, index: i64) -> (f64, f64) {
        let size = self.size as i128;
        let steps = (i128::from(index) - i128::from(self.origin)).rem_euclid(size) as u64;
        let rotation = Rotation::new(steps, self.size);
        let (mut above, mut above_shifted) = (CompensatedSum::default(), CompensatedSum::default());
        for frequencies in self.frequencies.chunk_by(|a, b| a.index / BLOCK == b.index / BLOCK) {
            let base = rotation.base(frequencies[0].index / BLOCK);
            let (mut part, mut part_shifted) = (0.0, 0.0);
            for f in frequencies {
                let turn = base * rotation.table[f.index % BLOCK];
                part += f.above.re * turn.re - f.above.im * turn.im;
                part_shifted += f.above_shifted.re * turn.re - f.above_shifted.im * turn.im;
            }
            above.add(part);
            above_shifted.add(part_shifted);
        }
        (above.value(), above_shifted.value())
    }

    /// Returns `ln` of the factor between scaled and true δ in the cell that begins at an index.
    fn ln_factor(&self, index: i64) -> f64 {
        self.ln_scale - self.contour.theta * self.loss(index)
    }

    /// Returns the error of the scaled δ in a cell; for a lower bound it includes the aliases.
    fn cell_error(&self, index: i64, side: Side) -> f64 {
        let start = self.loss(index);
        let end = start + self.width;
        let aliases = if side == Side::Upper {
            0.0
        } else {
            (self.ln_below + self.contour.fall * end).exp()
                + (self.ln_above - self.contour.rise * start).exp()
        };
        self.error + aliases * (self.contour.theta * self.width).exp()
    }

    /// Returns an upper or lower bound of δ at `epsilon`.
    pub(super) fn delta(&self, epsilon: f64, side: Side) -> f64 {
        let Some(index) = self.index(epsilon) else {
            return if side == Side::Upper { 1.0 } else { 0.0 };
        };
        let (above, above_shifted) = self.sums(index);
        let x = (epsilon - self.loss(index)).clamp(0.0, self.width);
        let value = above - x.exp() * above_shifted;
        let error = self.cell_error(index, side);
        if !value.is_finite() || !error.is_finite() {
            return if side == Side::Upper { 1.0 } else { 0.0 };
        }
        let scaled = with_errors(value, self.relative, error, side);
        let delta = scaled.max(0.0) * self.ln_factor(index).exp();
        if delta.is_nan() {
            if side == Side::Upper { 1.0 } else { 0.0 }
        } else {
            delta.clamp(0.0, 1.0)
        }
    }

    /// Returns an upper or lower bound of the ε at which δ is `delta`: Newton's method on `ln δ`
    /// over the grid from `start`, then the cell in closed form. Every returned number is a bound,
    /// because δ was compared there. `None` if the search fails.
    pub(super) fn epsilon(&self, delta: f64, side: Side, start: f64) -> Option<f64> {
        let target = delta.ln();
        let mut index = self.index(start)?;
        let begin = index;
        // The largest index known to exceed the target, the smallest known not to.
        let (mut low, mut high) = (i64::MIN, i64::MAX);
        let mut stride = 1 + (1.0 / (self.contour.theta * self.width)) as i64;
        for iteration in 0..80 {
            let (above, above_shifted) = self.sums(index);
            let error = self.cell_error(index, side);
            let wanted = (target - self.ln_factor(index)).exp();
            let wanted = if side == Side::Upper {
                (wanted - error) * (-self.relative).exp()
            } else {
                (wanted + error) / (1.0 - self.relative)
            };
            // The scaled δ of the cell is above - e^x above_shifted.
            let x = if above <= wanted {
                f64::NEG_INFINITY
            } else if above_shifted > 0.0 {
                ((above - wanted) / above_shifted).ln()
            } else {
                f64::INFINITY
            };
            // Far from the ε of the tilt, a lower bound is below the error everywhere.
            if x.is_nan() || (side == Side::Lower && index.abs_diff(begin) > 4 * self.size as u64) {
                return None;
            }
            if (0.0..=self.width).contains(&x) {
                return Some(self.loss(index) + x);
            }
            if x > 0.0 {
                low = low.max(index)
            } else {
                high = high.min(index)
            }
            if high.saturating_sub(low) <= 1 {
                // Between the end of one cell and the start of the next.
                return Some(self.loss(high));
            }
            let value = above - above_shifted;
            let newton = if value > 0.0 && wanted > 0.0 && above_shifted > 0.0 {
                (value / wanted).ln() * value / (above_shifted * self.width)
            } else {
                f64::NAN
            };
            let next = index.saturating_add(newton.clamp(-1e12, 1e12).floor() as i64);
            let useful = newton.is_finite() && iteration < 20 && next > low && next < high;
            index = if useful {
                next
            } else if low > i64::MIN && high < i64::MAX {
                low + (high - low) / 2
            } else {
                // Newton's method fails below rounding.
                stride = stride.saturating_mul(2);
                if x > 0.0 { low.saturating_add(stride) } else { high.saturating_sub(stride) }
            };
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::lattice::MASS_ERROR;

    /// δ of `n` draws of losses 0, 1 with probabilities 1-p, p, each times `width`.
    fn binomial(n: u64, p: f64, width: f64, epsilon: f64) -> f64 {
        let n = n as f64;
        let terms = (0..=n as u64).filter(|&k| k as f64 * width > epsilon).map(|k| {
            let k = k as f64;
            let ln_mass =
                crate::math::logarithms::ln_binomial(n, k) + k * p.ln() + (n - k) * (-p).ln_1p();
            ln_mass.exp() * -(epsilon - k * width).exp_m1()
        });
        terms.sum()
    }

    fn target(theta: f64, epsilon: f64, delta: f64) -> Target {
        Target { theta, epsilon, delta, ln_relative: (1e-9f64).ln() }
    }

    #[test]
    fn a_circle_beyond_all_grids_needs_no_transform_of_its_length() {
        // A million losses of 90 cells each: a deviation of 90,000 cells.
        let mut mass: Vec<f64> =
            (0..1001).map(|i| (-0.5 * ((f64::from(i) - 500.0) / 90.0).powi(2)).exp()).collect();
        let total: f64 = mass.iter().sum();
        mass.iter_mut().for_each(|m| *m /= total);
        let lattice = Lattice { offset: 0.0, first: -500, mass, error: MASS_ERROR };
        let (n, width) = (1_000_000u64, 1e-5);
        let (theta, epsilon) = (2.0, 2.5);
        let aim = target(theta, epsilon, 1e-3);
        let few = Spectrum::new(&[(&lattice, n)], width, aim, 1 << 12).unwrap();
        assert!(few.size > 1 << 19, "{}", few.size);
        // Two parts are always transformed.
        let halves = [(&lattice, n / 2), (&lattice, n / 2)];
        let long = Spectrum::new(&halves, width, aim, 1 << 24).unwrap();
        for side in [Side::Lower, Side::Upper] {
            let (a, b) = (few.delta(epsilon, side), long.delta(epsilon, side));
            assert!((a / b - 1.0).abs() < 1e-4, "{side:?}: {a} {b}");
        }
        assert!(few.delta(epsilon, Side::Lower) <= long.delta(epsilon, Side::Upper));
        assert!(long.delta(epsilon, Side::Lower) <= few.delta(epsilon, Side::Upper));
    }

    #[test]
    fn composition_of_coins_is_binomial() {
        let lattice = Lattice { offset: 0.0, first: 0, mass: vec![0.75, 0.25], error: MASS_ERROR };
        for (epsilon, theta) in [(2.5, 0.6), (4.0, 1.5), (6.2, 3.0)] {
            let truth = binomial(10, 0.25, 1.0, epsilon);
            let aim = target(theta, epsilon, truth);
            let spectrum = Spectrum::new(&[(&lattice, 10)], 1.0, aim, 1 << 16).unwrap();
            let (low, high) =
                (spectrum.delta(epsilon, Side::Lower), spectrum.delta(epsilon, Side::Upper));
            assert!(low <= truth && truth <= high, "{epsilon}: {low} {truth} {high}");
            assert!(high / low - 1.0 < 1e-8, "{low} {high}");
        }
    }

    #[test]
    fn bounds_include_the_aliases_of_a_short_period() {
        let lattice = Lattice { offset: 0.0, first: 0, mass: vec![0.9, 0.1], error: MASS_ERROR };
        let (n, width, epsilon) = (400, 0.1, 5.5);
        let truth = binomial(n, 0.1, width, epsilon);
        for ln_relative in [-12.0, -6.0, -3.0, 0.0] {
            let aim = Target { theta: 3.0, epsilon, delta: truth, ln_relative };
            let spectrum = Spectrum::new(&[(&lattice, n)], width, aim, 1 << 16).unwrap();
            let (low, high) =
                (spectrum.delta(epsilon, Side::Lower), spectrum.delta(epsilon, Side::Upper));
            assert!(low <= truth && truth <= high, "{ln_relative}: {low} {truth} {high}");
        }
    }

    #[test]
    fn tiny_delta_keeps_its_relative_accuracy() {
        // All of 60 coins show 1: probability 4^-60 = 7.5e-37.
        let lattice = Lattice { offset: 0.0, first: 0, mass: vec![0.75, 0.25], error: MASS_ERROR };
        let truth = 0.25f64.powi(60) * -(-0.5f64).exp_m1();
        let aim = target(6.0, 59.5, truth);
        let spectrum = Spectrum::new(&[(&lattice, 60)], 1.0, aim, 1 << 16).unwrap();
        let (low, high) = (spectrum.delta(59.5, Side::Lower), spectrum.delta(59.5, Side::Upper));
        assert!(low <= truth && truth <= high && high / low - 1.0 < 1e-7, "{low} {truth} {high}");
    }

    #[test]
    fn atom_of_nearly_all_mass_costs_no_accuracy() {
        // A loss of 1 in one of 1e9 draws, a million times: δ is the probability of two of them.
        let lattice =
            Lattice { offset: 0.0, first: 0, mass: vec![1.0 - 1e-9, 1e-9], error: MASS_ERROR };
        let n = 1_000_000u64;
        let truth = binomial(n, 1e-9, 1.0, 1.5);
        let rate = 1e-3f64;
        let poisson = (-rate).exp() * rate * rate * 0.5 * -(-0.5f64).exp_m1();
        assert!((truth / poisson - 1.0).abs() < 1e-2);
        let aim = target(7.0, 1.5, truth);
        let spectrum = Spectrum::new(&[(&lattice, n)], 1.0, aim, 1 << 16).unwrap();
        let (low, high) = (spectrum.delta(1.5, Side::Lower), spectrum.delta(1.5, Side::Upper));
        assert!(
            low <= truth * (1.0 + 1e-8) && truth <= high * (1.0 + 1e-8),
            "{low} {truth} {high}"
        );
        // The bound of the masses is 5e-12 for each of a million draws, on either side.
        assert!(high / low - 1.0 < 2e-5, "{low} {high}");
    }

    #[test]
    fn epsilon_inverts_delta_from_any_start() {
        let lattice =
            Lattice { offset: 0.0, first: -1, mass: vec![0.5, 0.3, 0.2], error: MASS_ERROR };
        let aim = target(3.0, 0.9, 1e-6);
        let parts = [(&lattice, 40), (&lattice, 3)];
        let spectrum = Spectrum::new(&parts, 0.1, aim, 1 << 16).unwrap();
        for (side, starts) in
            [(Side::Upper, [0.0, 0.7, 2.0, 4.0]), (Side::Lower, [0.6, 0.8, 1.0, 1.2])]
        {
            for start in starts {
                let epsilon = spectrum.epsilon(1e-6, side, start).unwrap();
                let delta = spectrum.delta(epsilon, side);
                let valid =
                    if side == Side::Upper { delta <= 1.000_001e-6 } else { delta >= 0.999_999e-6 };
                assert!(
                    valid && (delta / 1e-6 - 1.0).abs() < 1e-2,
                    "{side:?} {start}: {epsilon} {delta}"
                );
            }
        }
    }
}
