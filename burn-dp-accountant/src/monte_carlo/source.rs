//! What draws a privacy loss.

use super::bins::Bins;
use super::sequences::Sequence;
use crate::dominating_pairs::Pair;
use crate::event::{GaussianMixture, PatternedGaussian};

/// What draws the privacy loss of one event.
#[derive(Debug, Clone)]
pub(super) enum Source {
    Pair(Pair),
    Patterned(PatternedGaussian),
    Mixture(GaussianMixture),
    Bins(Bins),
    Sequence(Sequence),
}
