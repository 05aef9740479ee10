//! The random numbers of synthetic data, which need no protection.

use chacha20::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// The random choices of one item, from a public seed.
pub(super) struct Dice(ChaCha8Rng);

impl Dice {
    /// Creates the choices number `stream` of a seed.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mut generator = ChaCha8Rng::seed_from_u64(seed);
        generator.set_stream(stream);
        Self(generator)
    }

    /// Uniform in [0, 1), a multiple of 2⁻²⁴.
    pub(super) fn uniform(&mut self) -> f32 {
        (self.0.next_u32() >> 8) as f32 / (1 << 24) as f32
    }

    /// Uniform in `[low, high)`.
    pub(super) fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.uniform()
    }

    /// Uniform below a small number.
    pub(super) fn below(&mut self, end: usize) -> usize {
        ((u64::from(self.0.next_u32()) * end as u64) >> 32) as usize
    }

    /// Nearly normal, with variance 1: the sum of four uniform bytes is enough for grain.
    pub(super) fn normal(&mut self) -> f32 {
        let sum: u32 = self.0.next_u32().to_le_bytes().into_iter().map(u32::from).sum();
        (sum as f32 - 510.0) / 147.8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grain_has_mean_zero_and_variance_one() {
        let mut dice = Dice::new(0, 0);
        let draws: Vec<_> = (0..100_000).map(|_| f64::from(dice.normal())).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|draw| draw * draw).sum::<f64>() / draws.len() as f64;
        // Five standard errors: 1/sqrt(n) and about sqrt(2/n).
        assert!(mean.abs() < 0.016, "mean {mean}");
        assert!((variance - 1.0).abs() < 0.023, "variance {variance}");
    }
}
