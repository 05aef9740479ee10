//! Reproducible random numbers for simulations. They must not be used for noise that protects
//! anybody.

/// The generator xoshiro256++ (Blackman, Vigna 2021).
#[derive(Debug, Clone)]
pub(crate) struct Generator {
    state: [u64; 4],
    spare: Option<f64>,
}

impl Generator {
    /// Creates a stream of a seed.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        // SplitMix64 spreads seed and stream over the state.
        let mut word = seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95).rotate_left(17);
        let state = std::array::from_fn(|_| {
            word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        Self { state, spare: None }
    }

    /// Returns a uniform word.
    pub(crate) fn word(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c2, d2) = (c ^ a, d ^ b);
        self.state = [a ^ d2, b ^ c2, c2 ^ (b << 17), d2.rotate_left(45)];
        result
    }

    /// Returns a uniform number in `(0, 1)`.
    pub(crate) fn uniform(&mut self) -> f64 {
        ((self.word() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Returns a uniform number below `count`.
    pub(crate) fn below(&mut self, count: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(count)) >> 64) as u64
    }

    /// Returns a standard normal number (Box and Muller 1958).
    pub(crate) fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        let (sin, cos) = (2.0 * std::f64::consts::PI * self.uniform()).sin_cos();
        self.spare = Some(radius * sin);
        radius * cos
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_numbers_have_normal_moments_and_streams_differ() {
        let mut generator = Generator::new(7, 0);
        let numbers: Vec<f64> = (0..200_000).map(|_| generator.normal()).collect();
        let moment = |k: i32| numbers.iter().map(|x| x.powi(k)).sum::<f64>() / 2e5;
        assert!(moment(1).abs() < 0.011 && (moment(2) - 1.0).abs() < 0.016, "{}", moment(2));
        assert!(moment(3).abs() < 0.045 && (moment(4) - 3.0).abs() < 0.11, "{}", moment(4));
        assert_ne!(Generator::new(7, 0).word(), Generator::new(7, 1).word());
        assert_ne!(Generator::new(7, 0).word(), Generator::new(8, 0).word());
        let counts = (0..60_000).fold([0u32; 6], |mut counts, _| {
            counts[generator.below(6) as usize] += 1;
            counts
        });
        assert!(counts.iter().all(|n| n.abs_diff(10_000) < 450), "{counts:?}");
    }
}
