//! The uses of randomness.

/// The quantity that noise is added to. Different purposes never share a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Purpose {
    /// The clipped sums.
    Gradient,
    /// The counts that adapt a clipping threshold.
    Count,
    /// Any other released statistic.
    Statistic,
}

impl Purpose {
    pub(super) const NUMBER: usize = 3;

    pub(super) fn index(self) -> usize {
        self as usize
    }

    /// The number that enters the key derivation. It must never change or be assigned to another
    /// use, because stored keys would repeat words.
    pub(super) fn tag(self) -> u64 {
        match self {
            Self::Gradient => 1,
            Self::Count => 2,
            Self::Statistic => 3,
        }
    }
}

/// A use of randomness that adds no noise. Its draws are functions of the key and the step, and may
/// be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Domain {
    /// The units of a step.
    Sampling,
    /// The assignment of a sampler to each unit for the whole run: its part, its bin, its place.
    Assignment,
    /// The units that remain in a truncated draw.
    Cut,
    /// The examples of a unit that a step uses.
    Examples,
    /// The order of the examples of a unit.
    Shuffling,
    /// The members of the mini-sets.
    MiniSets,
    /// The coins that test whether examples are independent.
    Independence,
    /// A mark of the key itself.
    Fingerprint,
    /// The masks of random layers.
    Layers,
    /// The coins and labels of the canaries of an audit.
    Canaries,
    /// The encryption of the memory of correlated noise.
    NoiseMemory,
    /// A mark of the records of the run.
    Records,
}

impl Domain {
    /// The number that enters the key derivation, distinct from all tags of [`Purpose`].
    pub(super) fn tag(self) -> u64 {
        match self {
            Self::Sampling => 4,
            Self::Shuffling => 5,
            Self::MiniSets => 6,
            Self::Independence => 7,
            Self::Fingerprint => 8,
            Self::Layers => 9,
            Self::Canaries => 10,
            Self::NoiseMemory => 11,
            Self::Assignment => 16,
            Self::Cut => 17,
            Self::Examples => 18,
            Self::Records => 19,
        }
    }
}
