//! One fixed random vector for each parameter.

use std::collections::BTreeMap;

use burn::tensor::{DType, Device, Tensor};

use crate::random::{Domain, InsecureSeed, Stream};

/// One fixed random vector for each group of parameters, with independent values that are uniform
/// with variance 1. Drawn at the first use.
#[derive(Debug, Default)]
pub(in crate::grads) struct Directions {
    drawn: BTreeMap<usize, Tensor<1>>,
}

impl Directions {
    /// Returns the vector of a group: `[values]`.
    pub(super) fn of(&mut self, group: usize, values: usize, device: &Device) -> Tensor<1> {
        let draw = || {
            let key = InsecureSeed(0).into();
            let words = Stream::new(&key, Domain::Independence, 1, group as u64).into_words();
            let half = (1u64 << 23) as f32;
            let uniform = |word: u64| ((word >> 40) as f32 / half - 1.0) * 3f32.sqrt();
            let direction: Vec<f32> = words.take(values).map(uniform).collect();
            Tensor::from_data(direction.as_slice(), (device, DType::F32))
        };
        self.drawn.entry(group).or_insert_with(draw).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grads::oracle::host;

    #[test]
    fn values_have_mean_zero_and_variance_one() {
        let (mut directions, device) = (Directions::default(), Device::default());
        for group in [0, 1] {
            let values = host(directions.of(group, 10_000, &device));
            let mean = |value: fn(f64) -> f64| {
                values.iter().map(|&x| value(x)).sum::<f64>() / values.len() as f64
            };
            // Five standard deviations: 0.05 and 0.045.
            assert!(mean(|x| x).abs() < 0.05, "{group}: {}", mean(|x| x));
            assert!((mean(|x| x * x) - 1.0).abs() < 0.05, "{group}: {}", mean(|x| x * x));
            assert!(values.iter().all(|x| x.abs() <= 3f64.sqrt() * (1.0 + 1e-6)));
        }
    }
}
