//! A test of the independence of the examples inside of a backward pass that is made anyway.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Tensor};
use zeroize::Zeroizing;

use crate::DpError;
use crate::grads::row_scale::RowScale;
use crate::random::{NoiseSource, Purpose};

/// Powers of two by which the loss of an example is made larger or smaller: exact in floating point.
const LARGER: f64 = (1u64 << 40) as f64;
const SMALLER: f64 = 1.0 / LARGER;

/// A small unit that is so much larger than the median of the large ones, once the factors are taken
/// out, did not come from its own loss. Of the factor 2^80 between the two, 2^30 are left to find weak
/// dependences and 2^50 to let gradients of different examples differ.
const SUSPICIOUS: f64 = (1u64 << 50) as f64;

/// Tests, in the backward passes of a step, that the gradient of one loss does not reach the rows of other
/// examples.
///
/// The loss of each example is multiplied by 2^40 or by 2^-40, as a fair coin says. The backward pass is
/// linear in the gradient of the losses, so the rows of independent examples are scaled by the factor of
/// their own example, exactly, and are scaled back before anything is made of them: the result is that
/// of the plain pass, bit for bit, unless a gradient is so small (below 2^-86) that the smaller factor takes
/// bits from it. If a loss with the large factor reaches the row of an example with the
/// small one, that row is larger by up to 2^80 than it should be.
///
/// # Privacy
///
/// The coins are independent of the data, and each unit has its own. So whatever rounding the factors
/// could cause is a property of the unit alone and leaves the sensitivity as it is. A single unit, however
/// large its gradient, does not make a batch look mixed: a quarter of the small ones must, at least two.
#[derive(Debug)]
pub(crate) struct Probe {
    key: Zeroizing<[u8; 32]>,
    step: u64,
    number: u32,
    tossed: u64,
    conclusive: bool,
}

impl Probe {
    /// The `number`-th probe of a step, whose coins follow from both and from the secret of `source`.
    pub(crate) fn new(source: &NoiseSource, step: u64, number: u32) -> Self {
        let key = source.derive_key(Purpose::Statistic);
        Self { key, step, number, tossed: 0, conclusive: false }
    }

    /// This probe, with what another one found out.
    pub(crate) fn merged(self, other: Self) -> Self {
        Self { conclusive: self.conclusive || other.conclusive, ..self }
    }

    /// Whether some pass could tell.
    pub(crate) fn is_conclusive(&self) -> bool {
        self.conclusive
    }

    fn toss(&mut self, units: usize) -> Vec<bool> {
        let mut hash = blake3::Hasher::new_keyed(&self.key);
        hash.update(&self.step.to_le_bytes());
        hash.update(&self.number.to_le_bytes());
        hash.update(&self.tossed.to_le_bytes());
        let mut bytes = vec![0u8; units];
        hash.finalize_xof().fill(&mut bytes);
        self.tossed += 1;
        bytes.into_iter().map(|byte| byte & 1 == 1).collect()
    }

    /// The losses times their factors; `None` where this batch or the precision of the model cannot be
    /// tested.
    pub(crate) fn weigh<M: Module>(
        &mut self,
        losses: Tensor<1>,
        group_size: usize,
        model: &M,
    ) -> Option<(Tensor<1>, Probed<'_>)> {
        let rows = losses.dims()[0];
        let units = self.toss(rows / group_size);
        let mixed = units.contains(&true) && units.contains(&false);
        if !mixed || !has_range(losses.dtype()) || !all_have_range(model) {
            return None;
        }
        let factors =
            factors(&units, group_size, [LARGER, SMALLER], (&losses.device(), losses.dtype()));
        Some((losses * factors, Probed { probe: self, small: units, group_size }))
    }
}

/// The units that were scaled down; the others were scaled up.
pub(crate) struct Probed<'a> {
    probe: &'a mut Probe,
    small: Vec<bool>,
    group_size: usize,
}

impl Probed<'_> {
    /// What takes the factors out of the rows again.
    pub(crate) fn inverse_factors(&self, device: &Device) -> Tensor<1> {
        factors(&self.small, self.group_size, [SMALLER, LARGER], (device, DType::F32))
    }

    /// Refuses a batch whose rows, the factors taken out, show a dependence.
    pub(crate) fn judge(self, scale: RowScale) -> Result<(), DpError> {
        for rows in scale.into_magnitudes()? {
            let of = |small: bool| {
                (rows.chunks_exact(self.group_size).zip(&self.small))
                    .filter(move |(_, is_small)| **is_small == small)
                    .map(|(unit, _)| unit.iter().map(|&row| f64::from(row)).sum::<f64>())
                    .filter(|magnitude| magnitude.is_finite())
                    .collect::<Vec<f64>>()
            };
            let (small, mut large) = (of(true), of(false));
            large.retain(|&magnitude| magnitude > 0.0);
            if small.len() < 2 || large.is_empty() {
                continue;
            }
            self.probe.conclusive = true;
            large.sort_by(f64::total_cmp);
            let limit = large[large.len() / 2] * SUSPICIOUS;
            let suspicious = small.iter().filter(|&&magnitude| magnitude > limit).count();
            if suspicious >= small.len().div_ceil(4).max(2) {
                return Err(DpError::NotPerExample {
                    reason: "the loss of one example reaches another example of the batch; take out \
                             what mixes the examples (batch statistics, a normaliser over the batch, \
                             contrastive terms). If `check_independence` finds nothing on such \
                             batches, many gradients of their examples differ by more than 2^50: \
                             switch this test off with `DpOptimizer::with_independence_check(false)`"
                        .into(),
                });
            }
        }
        Ok(())
    }
}

/// One factor for each row: `[units · group_size]`.
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

/// Whether numbers of that type can be scaled by the factors.
fn has_range(dtype: DType) -> bool {
    matches!(dtype, DType::F64 | DType::F32 | DType::BF16)
}

fn all_have_range<M: Module>(model: &M) -> bool {
    struct Range(bool);
    impl ModuleVisitor for Range {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let dtype = param.base().dtype();
            self.0 &= has_range(dtype) || matches!(dtype, DType::QFloat(_));
        }
    }
    let mut range = Range(true);
    model.visit(&mut range);
    range.0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_coins_are_fair_and_new_in_every_batch() {
        let mut probe = Probe::new(&NoiseSource::from_os().unwrap(), 0, 0);
        let (first, second) = (probe.toss(4096), probe.toss(4096));
        assert_ne!(first, second);
        // Five standard deviations of 4096 coins are 160: probability below 6e-7.
        for coins in [first, second] {
            let heads = coins.iter().filter(|coin| **coin).count();
            assert!(heads.abs_diff(2048) < 160, "{heads}");
        }
    }
}
