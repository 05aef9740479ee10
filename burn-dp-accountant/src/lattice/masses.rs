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

/// Returns `ln Σ p e^{ty}` by a recurrence; not finite on overflow.
pub(crate) fn ln_moment(lattice: &Lattice, width: f64, t: f64) -> f64 {
    // The power is recomputed for every block, so that its rounding does not accumulate. Four
    // independent chains use the processor's pipelines.
    const BLOCK: usize = 64;
    let step = (t * width).exp();
    let (step2, step4) = (step * step, step * step * step * step);
    let mut sum = 0.0;
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
            sum += inner * (t * y).exp();
        }
    }
    sum.ln() + t * lattice.offset
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
        for (i, mass) in lattice.mass.iter().enumerate() {
            if *mass > 0.0 {
                let y = lattice.offset + (lattice.first + i as i64) as f64 * width;
                let tilted = mass * (theta * y).exp();
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
