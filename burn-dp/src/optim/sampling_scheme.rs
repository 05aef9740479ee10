use serde::{Deserialize, Serialize};

use crate::DpError;
use crate::random::Key;
use crate::sampling::{FixedSizeSampler, PoissonSampler, Sampler, ShuffledSampler};

/// How the units of a step are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SamplingScheme {
    /// Every unit independently with probability q. Neighbors differ by one unit added or removed.
    #[default]
    Poisson,
    /// A uniform subset of exactly the expected batch size. Neighbors differ by one unit replaced.
    FixedSize,
    /// Consecutive parts of a permutation. Gives no amplification: ε is computed as if every step
    /// used every unit. Neighbors differ by one unit replaced.
    Shuffled,
}

impl SamplingScheme {
    /// Returns the sampler of the scheme, with a key derived from the key of the run.
    pub(crate) fn sampler(
        self,
        dataset_size: usize,
        expected_batch_size: f64,
        key: &Key,
    ) -> Result<Box<dyn Sampler>, DpError> {
        let (batch, key) = (expected_batch_size, key.clone());
        Ok(match self {
            Self::Poisson => Box::new(
                PoissonSampler::with_expected_batch_size(dataset_size, batch)?.with_key(key),
            ),
            Self::FixedSize => {
                Box::new(FixedSizeSampler::new(dataset_size, batch as usize)?.with_key(key))
            }
            Self::Shuffled => {
                Box::new(ShuffledSampler::new(dataset_size, batch as usize)?.with_key(key))
            }
        })
    }
}
