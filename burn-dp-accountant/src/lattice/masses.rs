//! Masses on a grid, and their moments.

/// Masses at `offset + (first + i) · width`.
#[derive(Debug, Clone)]
pub(crate) struct Lattice {
    pub(crate) offset: f64,
    pub(crate) first: i64,
    pub(crate) mass: Vec<f64>,
    /// Bound on the relative error of each mass.
    pub(crate) error: f64,
}

impl Lattice {
    /// Returns the lattice without the error of its masses: each is lowered by its error, and
    /// `rest`, the missing part, has the loss at index `end`.
    pub(crate) fn without_error(&self, rest: f64, end: usize) -> Self {
        let mut mass: Vec<f64> = self.mass.iter().map(|m| m * (1.0 - self.error)).collect();
        mass[end] += rest;
        Self { mass, error: 2.0 * f64::EPSILON, ..*self }
    }
}

/// Relative error of a tilted mass due to the rounding of its loss, over the tilt and the largest
/// loss.
pub(crate) const LOSS_ERROR: f64 = 16.0 * f64::EPSILON;

/// Returns `ln Σ p e^{ty}` by a recurrence; not finite if a block of 64 cells overflows.
pub(crate) fn ln_moment(lattice: &Lattice, width: f64, t: f64) -> f64 {
    // The power is recomputed for every block, so that its rounding does not accumulate. Four
    // independent chains use the processor's pipelines.
    const BLOCK: usize = 64;
    let step = (t * width).exp();
    let (step2, step4) = (step * step, step * step * step * step);
    // The sum over its largest block so far, which alone could overflow.
    let (mut peak, mut sum) = (f64::NEG_INFINITY, 0.0);
    for (block, masses) in lattice.mass.chunks(BLOCK).enumerate() {
        let y = (lattice.first + (block * BLOCK) as i64) as f64 * width;
        let mut quarter = [0.0f64; 4];
        let (groups, rest) = masses.as_chunks::<4>();
        for (j, &mass) in rest.iter().enumerate() {
            quarter[j] = mass;
        }
        for group in groups.iter().rev() {
            for (chain, mass) in quarter.iter_mut().zip(group) {
                *chain = *chain * step4 + mass;
            }
        }
        let inner = quarter[0] + quarter[1] * step + (quarter[2] + quarter[3] * step) * step2;
        if inner > 0.0 {
            let term = inner.ln() + t * y;
            if term <= peak {
                sum += (term - peak).exp();
            } else {
                sum = sum * (peak - term).exp() + 1.0;
                peak = term;
            }
        }
    }
    sum.ln() + peak + t * lattice.offset
}

/// Returns `Σ n max |loss|` over the parts.
pub(crate) fn largest_losses(parts: &[(&Lattice, u64)], width: f64) -> f64 {
    let largest = |lattice: &Lattice| {
        let end = lattice.first + lattice.mass.len() as i64;
        let loss = |i: i64| (lattice.offset + i as f64 * width).abs();
        loss(lattice.first).max(loss(end))
    };
    parts.iter().map(|(lattice, n)| *n as f64 * largest(lattice)).sum()
}

/// Returns the relative error of the composition due to the errors of all masses.
pub(crate) fn mass_errors(parts: &[(&Lattice, u64)]) -> f64 {
    parts.iter().map(|(lattice, n)| *n as f64 * lattice.error).sum()
}

/// Returns mean and standard deviation of the tilted composition.
pub(crate) fn spread(parts: &[(&Lattice, u64)], width: f64, theta: f64) -> (f64, f64) {
    let (mut mean, mut variance) = (0.0, 0.0);
    for (lattice, count) in parts {
        let (mut zeroth, mut first, mut second) = (0.0, 0.0, 0.0);
        let normalizer = ln_moment(lattice, width, theta);
        for (i, mass) in lattice.mass.iter().enumerate() {
            if *mass > 0.0 {
                let y = lattice.offset + (lattice.first + i as i64) as f64 * width;
                let tilted = mass * (theta * y - normalizer).exp();
                zeroth += tilted;
                first += tilted * y;
                second += tilted * y * y;
            }
        }
        let m = first / zeroth;
        mean += *count as f64 * m;
        variance += *count as f64 * (second / zeroth - m * m).max(0.0);
    }
    (mean, variance.sqrt().max(width))
}

#[cfg(test)]
mod tests {
    use super::super::quadrature::MASS_ERROR;
    use super::*;

    #[test]
    fn moments_beyond_the_range_of_numbers_keep_their_logarithm() {
        // e^4000 is not a number.
        let (width, t): (f64, f64) = (0.1, 40.0);
        let mut mass = vec![0.0; 1_001];
        (mass[0], mass[999], mass[1_000]) = (0.5, 0.25, 0.25);
        let lattice = Lattice { offset: 0.0, first: 0, mass, error: MASS_ERROR };
        let truth = t * 100.0 + (0.25 * (1.0 + (-t * width).exp())).ln();
        assert!((ln_moment(&lattice, width, t) - truth).abs() < 1e-11);
        let (mean, deviation) = spread(&[(&lattice, 3)], width, t);
        let share = 1.0 / (1.0 + (t * width).exp());
        assert!((mean - 3.0 * (100.0 - share * width)).abs() < 1e-10, "{mean}");
        let variance = 3.0 * share * (1.0 - share) * width * width;
        assert!((deviation - width.max(variance.sqrt())).abs() < 1e-9, "{deviation}");
    }
}
