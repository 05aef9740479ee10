//! One step of correlated noise, for each parameter, on the host and on devices.

use burn::tensor::{DType, Tensor};
use pulp::Simd;
use zeroize::{Zeroize, Zeroizing};

use super::grid::{from_double, to_double};
use super::kept_values::KeptValues;
use super::recurrence::{Recurrence, Write};
use super::standard_normal::NormalGroup;
use crate::DpError;
use crate::ops::{CorrelatedKeyedNoise, Earlier, KeyedNoise, native_correlated_release};
use crate::random::{GROUP_BLOCKS, GROUP_WORDS, Key, Keystream};

/// One step of correlated noise.
pub(crate) struct CorrelatedStep<'a> {
    slots: usize,
    recurrence: Recurrence,
    /// The slots of each parameter; empty if they are drawn again.
    values: &'a mut [KeptValues],
    /// The keys of the slots before the step; empty if values are kept.
    earlier: Vec<Option<Key>>,
}

impl<'a> CorrelatedStep<'a> {
    pub(super) fn new(
        slots: usize,
        recurrence: Recurrence,
        values: &'a mut [KeptValues],
        earlier: Vec<Option<Key>>,
    ) -> Self {
        Self { slots, recurrence, values, earlier }
    }

    /// Splits the step among its parameters.
    pub(crate) fn parameters(&mut self) -> impl Iterator<Item = CorrelatedParameter<'_>> {
        let mut values = self.values.iter_mut();
        let (slots, recurrence, earlier) = (self.slots, &self.recurrence, &self.earlier);
        (0u64..).map(move |position| CorrelatedParameter {
            slots,
            recurrence,
            kept: values.next(),
            earlier: recurrence
                .read
                .iter()
                .map(|&(slot, _)| {
                    let key = earlier.get(slot)?.as_ref()?;
                    Some(Keystream::new(key.bytes(), position))
                })
                .collect(),
        })
    }
}

/// One parameter in one step.
pub(crate) struct CorrelatedParameter<'a> {
    slots: usize,
    recurrence: &'a Recurrence,
    /// `None` if the slots are drawn again.
    kept: Option<&'a mut KeptValues>,
    /// The independent values of the earlier steps that are read, in this order, if they are drawn
    /// again.
    earlier: Vec<Option<Keystream>>,
}

impl CorrelatedParameter<'_> {
    /// Returns an error if the memory is on a device.
    pub(super) fn check_host(&mut self) -> Result<(), DpError> {
        let on_host = self.kept.as_mut().is_none_or(|kept| kept.on_host().is_some());
        if on_host { Ok(()) } else { Err(misplaced()) }
    }

    /// Splits the parameter, whose memory is on the host, into parts of `groups` groups.
    pub(super) fn parts(&mut self, groups: usize) -> impl Iterator<Item = Correlation<'_>> {
        let size = groups * GROUP_WORDS * self.slots;
        let kept = self.kept.as_mut().and_then(|kept| kept.on_host());
        let mut memory: &mut [f64] = kept.unwrap_or_default();
        let (slots, recurrence, earlier) = (self.slots, self.recurrence, &self.earlier);
        (0..).step_by(groups).map(move |first| {
            let whole = std::mem::take(&mut memory);
            let (part, rest) = whole.split_at_mut(size.min(whole.len()));
            memory = rest;
            Correlation { slots, recurrence, memory: part, earlier, first }
        })
    }
}

impl CorrelatedParameter<'_> {
    /// Returns sums of a device with noise, scaled.
    ///
    /// # Arguments
    ///
    /// - `noise`: the independent noise of the step
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] if the memory is not on the device.
    pub(super) fn release_on_device(
        &mut self,
        noise: &KeyedNoise,
        sums: Tensor<1>,
    ) -> Result<Tensor<1>, DpError> {
        let whole = CorrelatedKeyedNoise {
            noise: noise.clone(),
            first_block: 0,
            slots: self.slots as u32,
            earlier: self.earlier(),
        };
        // No tensor has 2^32 blocks.
        let of_part = |first_group: usize| CorrelatedKeyedNoise {
            first_block: (first_group * GROUP_BLOCKS) as u32,
            ..whole.clone()
        };
        let kept = match &mut self.kept {
            Some(kept) if kept.len() > 0 => kept,
            _ => {
                let unused = Tensor::zeros([1], (&sums.device(), DType::I32));
                return Ok(native_correlated_release(sums, unused, of_part(0)).0);
            }
        };
        let (groups, values) = (kept.groups_of_part(), sums.dims()[0]);
        let kept = kept.on_device().ok_or_else(misplaced)?;
        let mut released = kept.replace(|part, memory| {
            let (first, size) = (part * groups, groups * GROUP_WORDS);
            let sums = match values > size {
                true => sums.clone().narrow(0, part * size, size.min(values - part * size)),
                false => sums.clone(),
            };
            native_correlated_release(sums, memory, of_part(first))
        });
        Ok(match released.len() {
            1 => released.remove(0),
            _ => Tensor::cat(released, 0),
        })
    }

    fn earlier(&self) -> Earlier {
        let (read, write) = (&self.recurrence.read, &self.recurrence.write);
        if self.kept.is_none() {
            let keys = read.iter().zip(&self.earlier).filter_map(|(&(_, factor), keystream)| {
                let words = Zeroizing::new(keystream.as_ref()?.words());
                Some((factor, std::array::from_fn(|word| words[word])))
            });
            return Earlier::Drawn(keys.collect());
        }
        let read = read.iter().map(|&(slot, factor)| (factor, slot as u32)).collect();
        let written =
            |write: &Write| (write.slot as u32, [write.keep, write.correlated, write.fresh]);
        Earlier::Kept(read, write.iter().map(written).collect())
    }
}

/// The error for a memory that is not where its sum is.
fn misplaced() -> DpError {
    DpError::state("the memory of the correlated noise is not on the device of its sum")
}

/// Some consecutive groups of values of one parameter in one step.
pub(super) struct Correlation<'a> {
    slots: usize,
    recurrence: &'a Recurrence,
    memory: &'a mut [f64],
    earlier: &'a [Option<Keystream>],
    first: u64,
}

/// Noise of one group, erased on drop.
pub(super) struct Values<T: Zeroize>(pub(super) [T; GROUP_WORDS]);

impl<T: Zeroize> Drop for Values<T> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Correlation<'_> {
    /// Replaces the independent values of group `index` of this part, in units of 2^-40, with
    /// correlated ones, and keeps what later steps need.
    ///
    /// # Privacy
    ///
    /// The part of earlier steps is rounded by itself: a function of earlier values alone, it moves
    /// the distribution of the integer without changing its shape. Rounding the sum would not: if
    /// that part is a half, all results are even.
    #[inline(always)]
    pub(super) fn group<S: Simd>(&mut self, simd: S, index: usize, normal: &mut Values<i64>) {
        let mut earlier = Values([0.0; GROUP_WORDS]);
        if self.memory.is_empty() {
            // Drawn again, in the order of the kept values.
            let mut group = NormalGroup::new();
            for (keystream, &(_, factor)) in self.earlier.iter().zip(&self.recurrence.read) {
                let Some(keystream) = keystream else { continue };
                let drawn = group.draw(simd, keystream, self.first + index as u64);
                for (value, z) in earlier.0.iter_mut().zip(drawn) {
                    *value += factor * to_double(*z);
                }
            }
        } else {
            let size = self.slots * GROUP_WORDS;
            let memory = &mut self.memory[index * size..(index + 1) * size];
            for &(slot, factor) in &self.recurrence.read {
                let kept = &memory[slot * GROUP_WORDS..(slot + 1) * GROUP_WORDS];
                for (value, kept) in earlier.0.iter_mut().zip(kept) {
                    *value += factor * kept;
                }
            }
            for write in &self.recurrence.write {
                let kept = &mut memory[write.slot * GROUP_WORDS..(write.slot + 1) * GROUP_WORDS];
                for ((kept, value), z) in kept.iter_mut().zip(&earlier.0).zip(&normal.0) {
                    let z = to_double(*z);
                    *kept = write.keep * *kept + write.correlated * (z + value) + write.fresh * z;
                }
            }
        }
        for (normal, value) in normal.0.iter_mut().zip(&earlier.0) {
            *normal += from_double(*value);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::cell::Cell;

    use super::*;
    use crate::noise::correlated::tests::strategies;
    use crate::noise::recurrence::Recurrences;
    use crate::noise::standard_normal::standard_normal;
    use crate::random::{InsecureSeed, NoiseSource, Purpose};

    #[test]
    fn the_noise_of_a_group_is_erased_on_drop() {
        struct Counted<'a>(&'a Cell<usize>);
        impl Zeroize for Counted<'_> {
            fn zeroize(&mut self) {
                self.0.set(self.0.get() + 1);
            }
        }
        let erased = Cell::new(0);
        drop(Values(std::array::from_fn(|_| Counted(&erased))));
        assert_eq!(erased.get(), GROUP_WORDS);
    }

    #[test]
    fn the_part_of_earlier_steps_only_moves_the_distribution_of_the_integers() {
        // Otherwise some integers, for example all odd ones, would be impossible for a data set.
        const STEPS: u64 = 16;
        let mut source = NoiseSource::insecure(InsecureSeed(12));
        for strategy in strategies(STEPS) {
            let recurrences = Recurrences::new(&strategy);
            let slots = recurrences.slots();
            let mut memory = vec![0.0; slots * GROUP_WORDS];
            for step in 0..STEPS {
                let recurrence = recurrences.step(step);
                let group = |memory: &mut [f64], z: &[i64; GROUP_WORDS]| {
                    let (recurrence, earlier) = (&recurrence, &[][..]);
                    let mut values = Values(*z);
                    Correlation { slots, recurrence, memory, earlier, first: 0 }.group(
                        pulp::Scalar,
                        0,
                        &mut values,
                    );
                    std::array::from_fn::<_, GROUP_WORDS, _>(|i| values.0[i] - z[i])
                };
                let moved = group(&mut memory.clone(), &[0; GROUP_WORDS]);
                for z in [[1; GROUP_WORDS], [-3 << 39; GROUP_WORDS], [(1 << 43) - 1; GROUP_WORDS]] {
                    assert_eq!(group(&mut memory.clone(), &z), moved, "{strategy} {step}");
                }
                let mut z = [0; GROUP_WORDS];
                let mut noise = source.begin_step(Purpose::Gradient, step).unwrap();
                let stream = noise.stream(0).unwrap().into_keystream();
                standard_normal(&stream, 0, &mut z);
                group(&mut memory, &z);
            }
            source = NoiseSource::insecure(InsecureSeed(12));
        }
    }
}
