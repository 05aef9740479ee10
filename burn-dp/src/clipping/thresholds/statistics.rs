/// Numbers of examples that a clipping policy processed, scaled down, and left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClippingStatistics {
    /// Examples, padding excluded.
    pub examples: usize,
    /// Examples whose norm exceeded the threshold.
    pub clipped: usize,
    /// Examples whose norm was not finite. They contribute nothing.
    pub non_finite: usize,
}

impl ClippingStatistics {
    /// Returns the fraction of the examples that were clipped, or zero if there were none.
    pub fn clipped_share(&self) -> f64 {
        if self.examples == 0 { 0.0 } else { self.clipped as f64 / self.examples as f64 }
    }
}

impl std::ops::AddAssign for ClippingStatistics {
    fn add_assign(&mut self, other: Self) {
        self.examples += other.examples;
        self.clipped += other.clipped;
        self.non_finite += other.non_finite;
    }
}
