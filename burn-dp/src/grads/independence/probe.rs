//! A test of the independence of the examples within a backward pass of training.

use burn::module::Module;
use burn::tensor::{DType, Device, Tensor};

use super::unscale::{Magnitudes, ScaledBatch, Unscale};
use crate::DpError;
use crate::grads::pass_check::PassCheck;
use crate::model::for_each_parameter;
use crate::ops::recording::Recorder;
use crate::random::{Domain, NoiseSource, Stream, Words};

/// Powers of two that scale the loss of an example up or down, exact in floating point.
const LARGER: f64 = (1u64 << 40) as f64;
const SMALLER: f64 = 1.0 / LARGER;

/// A unit that was scaled down is suspicious if, without its factor, it exceeds the median of the
/// units that were scaled up by this ratio: then its gradient does not come from its own loss. Of
/// the factor 2^80 between the two, 2^30 remains to detect weak dependences, and 2^50 allows
/// gradients of examples to differ.
const SUSPICIOUS: f64 = (1u64 << 50) as f64;

/// Tests, in the backward passes of a step, that the gradient of one loss does not reach the rows
/// of other examples.
///
/// The loss of each example is multiplied by 2^40 or by 2^-40, chosen by a fair coin. The backward
/// pass is linear in the gradient of the losses. The rows of independent examples are therefore
/// scaled exactly by the factor of their own example, and are scaled back before they are used. The
/// result equals the result of the plain pass bit for bit, unless a gradient is so small (below
/// 2^-86) that the smaller factor removes bits from it. If a loss with the large factor reaches the
/// row of an example with the small factor, that row is too large by up to 2^80.
///
/// # Privacy
///
/// The coins are independent of the data, and each unit has its own coin. Any rounding by the
/// factors therefore depends only on the unit and does not change the sensitivity. A single unit
/// cannot make a batch appear mixed, no matter how large its gradient is: at least two units, and
/// at least a quarter of the units that were scaled down, must be suspicious.
#[derive(Debug)]
pub(crate) struct Probe {
    coins: Words,
    conclusive: bool,
}

impl Probe {
    /// Creates the `number`-th probe of a step. Its coins are derived from both numbers and from
    /// the secret of `source`.
    pub(crate) fn new(source: &NoiseSource, step: u64, number: u32) -> Self {
        let coins = Stream::new(source.key(), Domain::Independence, step, number.into());
        Self { coins: coins.into_words(), conclusive: false }
    }

    /// Merges the findings of another probe into this one.
    pub(crate) fn merged(self, other: Self) -> Self {
        Self { conclusive: self.conclusive || other.conclusive, ..self }
    }

    /// Returns whether some pass was conclusive.
    pub(crate) fn is_conclusive(&self) -> bool {
        self.conclusive
    }

    /// Tosses one coin per unit; `true` scales the unit down.
    fn toss(&mut self, units: usize) -> Vec<bool> {
        self.coins.by_ref().take(units).map(|word| word & 1 == 1).collect()
    }

    /// Returns the scaled losses, and the inverse factors of the rows; `None` if all coins of this
    /// batch are equal, or if the range of the model's precision is too small.
    fn scale<M: Module>(
        &mut self,
        losses: &Tensor<1>,
        group_size: usize,
        model: &M,
    ) -> Option<(Tensor<1>, ScaledBatch)> {
        let rows = losses.dims()[0];
        let small = self.toss(rows / group_size);
        let mixed = small.contains(&true) && small.contains(&false);
        if !mixed || !has_range(losses.dtype()) || !all_have_range(model) {
            return None;
        }
        let device = (&losses.device(), losses.dtype());
        let scaled = losses.clone() * factors(&small, group_size, [LARGER, SMALLER], device);
        let witness = losses.clone().inner();
        let device = (&witness.device(), DType::F32);
        let inverse = factors(&small, group_size, [SMALLER, LARGER], device);
        Some((scaled, ScaledBatch::new(witness, inverse, small, group_size)))
    }

    /// Checks a batch based on the magnitudes of its rows after the factors were removed.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::NotPerExample`] if a loss reached the rows of other examples.
    async fn judge(&mut self, batch: ScaledBatch) -> Result<(), DpError> {
        for Magnitudes { small, mut large, overflowed } in batch.into_unit_magnitudes().await? {
            if large.is_empty() && overflowed >= 2 && small.len() >= 2 {
                return Err(DpError::NotPerExample {
                    reason:
                        "a loss that is multiplied by 2^40 has no finite gradient, so the test \
                             of independence has no result: a part of the forward pass has a type \
                             of small range (f16); use bf16 or `DpOptimizer::with_precision`, or \
                             switch this test off with \
                             `DpOptimizer::with_independence_check(false)`"
                            .into(),
                });
            }
            large.retain(|&magnitude| magnitude > 0.0);
            if small.len() < 2 || large.is_empty() {
                continue;
            }
            self.conclusive = true;
            large.sort_by(f64::total_cmp);
            let limit = large[large.len() / 2] * SUSPICIOUS;
            let suspicious = small.iter().filter(|&&magnitude| magnitude > limit).count();
            if suspicious >= small.len().div_ceil(4).max(2) {
                return Err(DpError::NotPerExample {
                    reason: "the loss of one example reaches another example of the batch; remove \
                             what mixes the examples (batch statistics, a normalizer over the \
                             batch, contrastive terms). If `check_independence` finds nothing on \
                             such batches, many gradients of their examples differ by more than \
                             2^50: switch this test off with \
                             `DpOptimizer::with_independence_check(false)`"
                        .into(),
                });
            }
        }
        Ok(())
    }
}

/// Checks a pass with a probe, if there is one.
impl PassCheck for Option<Probe> {
    type Recorder<R: Recorder + 'static> = Unscale<R>;

    fn begin<M: Module, R: Recorder + 'static>(
        &mut self,
        losses: Tensor<1>,
        group_size: usize,
        model: &M,
        recorder: R,
    ) -> (Tensor<1>, Unscale<R>) {
        let scaled = self.as_mut().and_then(|probe| probe.scale(&losses, group_size, model));
        match scaled {
            Some((losses, batch)) => (losses, Unscale { recorder, batch: Some(batch) }),
            None => (losses, Unscale { recorder, batch: None }),
        }
    }

    async fn end<R: Recorder + 'static>(&mut self, recorder: Unscale<R>) -> Result<R, DpError> {
        let Unscale { recorder, batch } = recorder;
        if let (Some(probe), Some(batch)) = (self, batch) {
            probe.judge(batch).await?;
        }
        Ok(recorder)
    }
}

/// Returns one factor per row: `[units · group_size]`.
fn factors(
    small: &[bool],
    group_size: usize,
    [of_large, of_small]: [f64; 2],
    (device, dtype): (&Device, DType),
) -> Tensor<1> {
    let factors: Vec<f32> = small
        .iter()
        .map(|&small| if small { of_small } else { of_large } as f32)
        .flat_map(|factor| std::iter::repeat_n(factor, group_size))
        .collect();
    Tensor::from_data(factors.as_slice(), (device, dtype))
}

/// Whether the range of numbers of this type includes the factors.
fn has_range(dtype: DType) -> bool {
    matches!(dtype, DType::F64 | DType::F32 | DType::BF16)
}

/// Whether the range of all parameters includes the factors.
fn all_have_range<M: Module>(model: &M) -> bool {
    let mut all = true;
    for_each_parameter(model, |_, parameter| {
        let dtype = parameter.value.dtype();
        all &= has_range(dtype) || matches!(dtype, DType::QFloat(_));
    });
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::nn::LinearConfig;

    use super::*;
    use crate::device_read::blocking;
    use crate::grads::PrivateBackward;
    use crate::grads::oracle::numbers;
    use crate::nn::IntoPrivate;
    use crate::random::InsecureSeed;
    use crate::test_devices::training_devices;

    /// Returns a probe that scales down `small` of the first `units` units.
    fn probe(units: usize, small: usize) -> Probe {
        let source = NoiseSource::insecure(InsecureSeed(0));
        let number = (0..).find(|&number| {
            let coins = Probe::new(&source, 0, number).toss(units);
            coins.into_iter().filter(|&coin| coin).count() == small
        });
        Probe::new(&source, 0, number.unwrap())
    }

    #[test]
    fn coins_are_fair_and_differ_between_batches() {
        let mut probe = Probe::new(&NoiseSource::from_os().unwrap(), 0, 0);
        let (first, second) = (probe.toss(4096), probe.toss(4096));
        assert_ne!(first, second);
        // Five standard deviations of 4096 coins are 160: probability below 6e-7.
        for coins in [first, second] {
            let heads = coins.iter().filter(|coin| **coin).count();
            assert!(heads.abs_diff(2048) < 160, "{heads}");
        }
    }

    #[test]
    fn a_mixture_of_two_small_units_and_others_is_found_at_any_scale() {
        for device in training_devices() {
            let model = LinearConfig::new(2, 1).with_bias(false).init(&device).private();
            let outputs = || -> Tensor<1> {
                let x = numbers::<2>([4, 2], 1, &device);
                model.forward(x).reshape([4])
            };
            for (small, share, scale, refused, conclusive) in [
                (0, 1.0, 1.0, false, false),
                (1, 1.0, 1.0, false, false),
                (2, 0.0, 1.0, false, true),
                (2, 1.0, 1.0, true, true),
                (2, 1.0, SMALLER, true, true),
                (3, 0.0, 1.0, false, true),
                (3, 1.0, SMALLER, true, true),
                (4, 1.0, 1.0, false, false),
            ] {
                let losses = (outputs() + outputs().mean() * share) * scale;
                let scaled = probe(4, small).scale(&losses, 1, &model);
                assert_eq!(scaled.is_some(), (1..4).contains(&small), "{small}");
                let mut check = Some(probe(4, small));
                let backward = PrivateBackward::new();
                let pass = blocking(backward.run_checked(losses, &model, &mut check), "");
                let found = (pass.is_err(), check.unwrap().is_conclusive());
                assert_eq!(found, (refused, conclusive), "{small} {share} {scale}");
            }
        }
    }

    #[test]
    fn merged_probes_are_conclusive_if_one_is() {
        let probe = |conclusive| Probe { conclusive, ..probe(4, 2) };
        for (first, second) in [(false, false), (false, true), (true, false), (true, true)] {
            let merged = probe(first).merged(probe(second));
            assert_eq!(merged.is_conclusive(), first || second);
        }
    }
}
