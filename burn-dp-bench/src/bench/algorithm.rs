//! The algorithms that compute a clipped sum.

use clap::ValueEnum;

/// An algorithm that runs a training step.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// The ordinary step of private layers, without clipping and noise.
    NonPrivate,
    /// The ordinary step of stock Burn layers, for the networks that exist with them.
    Burn,
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

    /// Returns whether the algorithm clips and adds noise.
    pub fn is_private(self) -> bool {
        Self::PRIVATE.contains(&self)
    }
}

/// The optimizer under every algorithm.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum InnerOptimizer {
    /// Adam, as in the fast-clipping paper.
    Adam,
    /// Plain SGD, as in the scripts of other frameworks.
    Sgd,
}
