//! Sources of random privacy losses.

use super::bins::Bins;
use super::sequences::Sequence;
use crate::dominating_pairs::Pair;
use crate::event::{GaussianMixture, PatternedGaussian};

/// The source of the privacy loss of one event.
#[derive(Debug, Clone)]
pub(super) enum LossSource {
    Pair(Pair),
    Patterned(PatternedGaussian),
    Mixture(GaussianMixture),
    Bins(Bins),
    Sequence(Sequence),
    /// The unit is replaced by another one.
    ReplacedBins(Bins),
    /// The unit is replaced by another one.
    ReplacedSequence(Sequence),
}
