//! Rotations by multiples of one angle, with exact angles.

use rustfft::num_complex::Complex64;

/// Number of frequencies in one block of rotations.
pub(super) const BLOCK: usize = 64;

/// `e^{2πi k steps/size}` for blocks of consecutive `k`, with exact angles.
pub(super) struct Rotation {
    steps: u64,
    size: usize,
    pub(super) table: [Complex64; BLOCK],
}

impl Rotation {
    pub(super) fn new(steps: u64, size: usize) -> Self {
        let mut this = Self { steps, size, table: [Complex64::default(); BLOCK] };
        for j in 0..BLOCK {
            this.table[j] = this.at(j);
        }
        this
    }

    fn at(&self, k: usize) -> Complex64 {
        let turns = (k as u64 * self.steps) % self.size as u64;
        Complex64::from_polar(1.0, std::f64::consts::TAU * turns as f64 / self.size as f64)
    }

    pub(super) fn base(&self, block: usize) -> Complex64 {
        self.at(block * BLOCK)
    }
}
