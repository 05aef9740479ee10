use serde::{Deserialize, Serialize};

use crate::DpError;
use crate::random::{NoiseSource, Purpose, SamplingKey};
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
        source: &NoiseSource,
    ) -> Result<Box<dyn Sampler>, DpError> {
        let key = SamplingKey::from_secret(*source.derive_key(Purpose::Sampling));
        let key = if source.is_secure() { key } else { key.into_insecure() };
        let batch = expected_batch_size;
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
