//! The algorithms that compute a clipped sum.

use clap::ValueEnum;

/// An algorithm that makes a training step.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// The ordinary step, without clipping and noise.
    NonPrivate,
    /// One backward pass, norms without gradients where that is cheaper, one weighted sum.
    BookKeeping,
    /// One backward pass that keeps the gradient of every example.
    Materialize,
    /// One backward pass for the norms, a second one over the weighted losses.
    Reweight,
    /// One backward pass for each example.
    Nxbp,
}

impl Algorithm {
    /// The algorithms that clip and add noise.
    pub const PRIVATE: [Self; 4] =
        [Self::BookKeeping, Self::Materialize, Self::Reweight, Self::Nxbp];

    /// Returns the number of measured steps when the other algorithms make `repetitions`.
    pub(super) fn repetitions(self, repetitions: usize) -> usize {
        match self {
            Self::Nxbp => repetitions.div_ceil(5),
            _ => repetitions,
        }
    }
}
