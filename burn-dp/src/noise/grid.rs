//! The grid that sums and noise are rounded to.

/// The grid is this many binary places below the standard deviation.
const PLACES: i32 = 40;

/// Adds noise to sums in integers: multiples of a power of two that is 2^40 to 2^41 times smaller
/// than the standard deviation of the noise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Grid {
    spacing: f64,
    /// 1 / spacing; exact, because the spacing is a power of two.
    per_spacing: f64,
    /// Standard deviation of the noise, as a multiple of the spacing.
    noise_std: f64,
    /// What one integer is worth in the result: the spacing times the scale.
    factor: f64,
}

impl Grid {
    /// Largest spacing of a grid, as a multiple of the standard deviation of the noise.
    pub(super) const FINENESS: f64 = 1.0 / (1u64 << PLACES) as f64;

    pub(super) fn new(noise_std: f64, scale: f64) -> Self {
        let spacing = power_of_two_below(noise_std) * 2f64.powi(-PLACES);
        Self {
            spacing,
            per_spacing: 1.0 / spacing,
            noise_std: noise_std / spacing,
            factor: spacing * scale,
        }
    }

    pub(super) fn spacing(&self) -> f64 {
        self.spacing
    }

    /// Replaces sums by their noisy, scaled values, given at least as many standard normal values.
    /// Returns whether all sums were finite.
    #[inline(always)]
    pub(super) fn release(&self, sums: &mut [f32], normal: &[f64]) -> bool {
        let grid = *self;
        let mut finite = true;
        for (sum, normal) in sums.iter_mut().zip(normal) {
            finite &= sum.is_finite();
            *sum = grid.release_one(*sum, *normal);
        }
        finite
    }

    #[inline(always)]
    fn release_one(&self, sum: f32, normal: f64) -> f32 {
        let sum = snap(f64::from(sum) * self.per_spacing);
        let released = (sum + snap(normal * self.noise_std)) * self.factor;
        released.clamp(-f64::from(f32::MAX), f64::from(f32::MAX)) as f32
    }

    /// Returns one sum with noise, in double precision.
    pub(super) fn release_scalar(&self, sum: f64, normal: f64) -> f64 {
        // A limit of the snapped sum increases no distance, and therefore no sensitivity.
        let sum = snap(sum * self.per_spacing).clamp(-1e200, 1e200);
        (sum + snap(normal * self.noise_std)) * self.factor
    }
}

/// Returns the nearest integer, without the sign of zero: minus zero would reveal that a tiny
/// negative sum met a tiny negative noise.
#[inline(always)]
fn snap(value: f64) -> f64 {
    value.round_ties_even() + 0.0
}

/// Returns the greatest power of two that is at most `value`, which is positive and normal.
fn power_of_two_below(value: f64) -> f64 {
    f64::from_bits(value.to_bits() & 0x7ff0_0000_0000_0000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A grid with integers as multiples and standard normal values as noise.
    const INTEGERS: Grid = Grid { spacing: 1.0, per_spacing: 1.0, noise_std: 1.0, factor: 1.0 };

    #[test]
    fn a_result_that_resolves_the_grid_depends_on_the_integers_alone() {
        // Where sum and noise nearly cancel, f32 resolves far less than a grid unit.
        let grid = Grid { factor: 0.25, ..INTEGERS };
        for integer in -20i32..=20 {
            for noise in -20i32..=20 {
                for (a, b) in [(-0.49f32, 0.3), (0.499, -0.499), (0.25, 1e-30), (0.0, 0.125)] {
                    let sum = integer as f32 + a;
                    let noise = f64::from(noise) + b;
                    let expected = (f64::from(integer) + noise.round()) as f32 * 0.25;
                    assert_eq!(grid.release_one(sum, noise), expected, "{sum} {noise}");
                }
            }
        }
    }

    #[test]
    fn zero_has_one_sign() {
        for (sum, noise) in [(-0.0, -0.0), (-0.0, 0.0), (0.0, -0.0), (-1e-40, -1e-20)] {
            assert_eq!(INTEGERS.release_one(sum, noise).to_bits(), 0, "{sum} {noise}");
        }
        assert_eq!(INTEGERS.release_one(-3.0, 3.0).to_bits(), 0);
    }

    #[test]
    fn the_spacing_is_a_power_of_two_2_to_the_40_below_the_deviation() {
        for noise_std in [1e-60, 1e-6, 0.1, 1.0, 1.999, 2.0, 1e6, 1e60] {
            let spacing = Grid::new(noise_std, 1.0).spacing();
            assert_eq!(spacing.to_bits() & ((1 << 52) - 1), 0);
            let ratio = noise_std / spacing;
            assert!((2f64.powi(40)..2f64.powi(41)).contains(&ratio), "{noise_std}: {ratio}");
        }
    }

    #[test]
    fn snapping_separates_two_values_by_at_most_one_spacing_more() {
        // Worst case: one value is rounded up and the other down.
        let grid = Grid::new(1.3, 1.0);
        let snapped = |x: f64| snap(x * grid.per_spacing) * grid.spacing;
        let (a, b) = (0.500_001 * grid.spacing, 0.499_999 * grid.spacing);
        let growth = snapped(a) - snapped(b) - (a - b);
        assert!(growth <= grid.spacing && growth > 0.999 * grid.spacing);
    }
}
