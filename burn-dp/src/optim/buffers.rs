//! The check that nothing but the optimizer changes a model.

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::kind::Basic;
use burn::tensor::{Bool, Tensor};

use super::model_values::{PACKED, SavedValues, Stored, Values};
use crate::DpError;
use crate::device_read::read;
use crate::ops::{any, is_same_memory};
use crate::walk::{Value, for_each_value};

/// Compares the values that are not trained with their values at the start of the run: float,
/// integer and boolean tensors, after running states took over what their threads stored.
///
/// The values are compared on their device; a value that still lies in the memory that the check
/// keeps is not read. Packed (quantized) values are read by the host, so they are compared in the
/// first and the last planned step of a run and before a checkpoint only.
///
/// A saved run keeps a digest of each value, so that it continues only with the values it had.
///
/// # Privacy
///
/// A value that a forward pass changes or adds (running statistics, counters, caches) holds private
/// data without noise and would be published with the model. Nothing is released after such a
/// change.
#[derive(Clone, Debug, Default)]
pub(crate) struct BufferCheck {
    known: Option<Arc<Values>>,
    /// Whether a step was released since the start, so that packed values were compared.
    released: bool,
    /// The values of a saved run that its model has not had since.
    saved: Option<SavedValues>,
}

/// The values to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Everything, except packed values after the first step.
    Step,
    /// Everything.
    Whole,
}

impl BufferCheck {
    /// Starts with the current values of `model`, which no private data has reached yet, or which
    /// the saved run had.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::ChangedBuffer`] with the path of a value that the saved run did not have.
    pub(crate) async fn begin<M: Module>(&mut self, model: &M) -> Result<(), DpError> {
        if self.known.is_some() {
            return Ok(());
        }
        synchronize(model);
        let mut found = collect(model, true).await?;
        if let Some(saved) = &self.saved {
            saved.check(&found).await?;
            found.trained.extend(saved.trained.iter().cloned());
        }
        self.keep(found, false);
        Ok(())
    }

    /// Makes these values the ones that must not change.
    fn keep(&mut self, found: Values, released: bool) {
        let saved = self.saved.take().map(|saved| saved.without(&found));
        *self = Self { known: Some(Arc::new(found)), released, saved };
    }

    /// Returns what a saved run keeps of the values; `None` if the run has seen no model.
    pub(crate) async fn save(&self) -> Result<Option<SavedValues>, DpError> {
        let Some(known) = &self.known else { return Ok(self.saved.clone()) };
        let mut stored = self.saved.clone().map(|saved| saved.stored).unwrap_or_default();
        for (path, value) in &known.stored {
            stored.insert(path.clone(), value.digest().await?);
        }
        Ok(Some(SavedValues { stored, trained: known.trained.clone() }))
    }

    /// Continues a saved run, whose values were [saved](Self::save).
    pub(crate) fn continue_from(&mut self, saved: Option<SavedValues>) {
        *self = Self { saved, ..Self::default() };
    }

    /// Makes the current values of `model` the ones that must not change.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::ChangedBuffer`] for a packed value that changed: nothing that is computed
    /// on public data packs values, and a step may have left it uncompared.
    pub(crate) async fn accept<M: Module>(&mut self, model: &M) -> Result<(), DpError> {
        synchronize(model);
        let found = collect(model, true).await?;
        let before = self.known.iter().flat_map(|values| &values.stored);
        let mut packed = before.filter(|(_, value)| matches!(value, Stored::Packed(_)));
        let differs = |value: &Stored, now| matches!(value.differs(now), Differs::Known(true));
        let has_changed = |(path, value): &(&String, &Stored)| {
            found.stored.get(*path).is_some_and(|now| differs(value, now))
        };
        if let Some((path, _)) = packed.find(has_changed) {
            return Err(DpError::ChangedBuffer { path: path.clone() });
        }
        if let Some(saved) = &self.saved {
            saved.check_where(&found, |digest| digest.starts_with(PACKED)).await?;
        }
        *self = Self { known: Some(Arc::new(found)), ..Self::default() };
        Ok(())
    }

    /// Returns whether the model has packed values.
    pub(crate) fn has_packed(&self) -> bool {
        let mut known = self.known.iter().flat_map(|values| values.stored.values());
        known.any(|value| matches!(value, Stored::Packed(_)))
    }

    /// Checks that `model` has the values that the run started with.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::ChangedBuffer`] with the path of a value that changed.
    pub(crate) async fn verify<M: Module>(&self, model: &M, extent: Extent) -> Result<(), DpError> {
        self.verified(model, extent).await.map(drop)
    }

    /// Checks `model` before a release. A value that is frozen from now on is compared from now on.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::ChangedBuffer`] with the path of a value that changed.
    pub(crate) async fn end_of_step<M: Module>(
        &mut self,
        model: &M,
        extent: Extent,
    ) -> Result<(), DpError> {
        self.begin(model).await?;
        let found = self.verified(model, extent).await?;
        self.keep(found, true);
        Ok(())
    }

    /// Checks `model` and returns its current values.
    async fn verified<M: Module>(&self, model: &M, extent: Extent) -> Result<Values, DpError> {
        synchronize(model);
        let mut found = collect(model, extent == Extent::Whole || !self.released).await?;
        let Some(before) = self.known.as_deref() else {
            if let Some(saved) = &self.saved {
                saved.check(&found).await?;
            }
            return Ok(found);
        };
        let is_absent = |path: &String| self.saved.as_ref().is_some_and(|saved| saved.has(path));
        found.check_known(|path| {
            before.stored.contains_key(path) || before.trained.contains(path) || is_absent(path)
        })?;
        if let Some(saved) = &self.saved {
            saved.check_where(&found, |_| true).await?;
        }
        // Values that were trained before have nothing to be compared with.
        let pairs = found.stored.iter();
        let pairs = pairs.filter_map(|(path, now)| Some((path, before.stored.get(path)?, now)));
        if let Some(path) = changed(pairs.collect()).await? {
            return Err(DpError::ChangedBuffer { path });
        }
        // A value that is absent, or was not read, is compared when it is there again.
        for (path, value) in &before.stored {
            if !found.trained.contains(path) {
                found.stored.entry(path.clone()).or_insert_with(|| value.clone());
            }
        }
        found.trained.extend(before.trained.iter().cloned());
        Ok(found)
    }
}

/// Lets the running states of `model` take over what every thread stored. Their copies share it.
fn synchronize<M: Module>(model: &M) {
    // The only call that synchronizes them in a model of any type; the copy is not used.
    drop(model.valid());
}

async fn collect<M: Module>(model: &M, packed: bool) -> Result<Values, DpError> {
    let (mut found, mut reads) = (Values::default(), Vec::new());
    for_each_value(model, |place, value| {
        let stored = match value {
            Value::Float(parameter) if parameter.is_trained => {
                found.trained.insert(place.path().to_string());
                return;
            }
            Value::Float(parameter) if parameter.value.is_packed() => {
                if packed {
                    reads.push((place.path().to_string(), parameter.value.read("a packed value")));
                }
                return;
            }
            Value::Float(parameter) => Stored::Float(parameter.value.flat()),
            Value::Int(values) => Stored::Int(values()),
            Value::Bool(values) => Stored::Bool(values()),
            Value::Flag(_) => return,
        };
        found.stored.insert(place.path().to_string(), stored);
    });
    for (path, read) in reads {
        found.stored.insert(path, Stored::Packed(blake3::hash(read.await?.as_bytes())));
    }
    Ok(found)
}

/// Returns the path of a value that differs, if there is one. There is one read for all values.
async fn changed(pairs: Vec<(&String, &Stored, &Stored)>) -> Result<Option<String>, DpError> {
    let mut compared = Vec::new();
    for (path, before, now) in pairs {
        match before.differs(now) {
            Differs::Known(false) => {}
            Differs::Known(true) => return Ok(Some(path.clone())),
            Differs::OnDevice(flag) => compared.push((path, before, now, *flag)),
        }
    }
    let Some(device) = compared.first().map(|(.., flag)| flag.device()) else { return Ok(None) };
    let flags = compared.iter().map(|(.., flag)| flag.clone().to_device(&device)).collect();
    let flags = read(Tensor::cat(flags, 0), "the comparison of values that are not trained");
    let flags = flags.await?;
    let found = compared.iter().zip(flags.iter::<bool>()).filter(|(_, differs)| *differs);
    // A value that is not a number differs from itself.
    for ((path, before, now, _), _) in found {
        if before.bytes().await? != now.bytes().await? {
            return Ok(Some(path.to_string()));
        }
    }
    Ok(None)
}

/// Whether two values differ.
enum Differs {
    Known(bool),
    /// `[1]`
    OnDevice(Box<Tensor<1, Bool>>),
}

impl Stored {
    fn differs(&self, now: &Self) -> Differs {
        match (self, now) {
            (Self::Packed(before), Self::Packed(now)) => Differs::Known(before != now),
            (Self::Float(before), Self::Float(now)) if is_same_memory(before, now) => {
                Differs::Known(false)
            }
            (Self::Float(before), Self::Float(now)) => compare(before, now),
            (Self::Int(before), Self::Int(now)) => compare(before, now),
            (Self::Bool(before), Self::Bool(now)) => compare(before, now),
            _ => Differs::Known(true),
        }
    }
}

fn compare<K: Basic>(before: &Tensor<1, K>, now: &Tensor<1, K>) -> Differs {
    if before.dtype() != now.dtype() || before.dims() != now.dims() {
        return Differs::Known(true);
    }
    if now.dims() == [0] {
        return Differs::Known(false);
    }
    let before = before.clone().to_device(&now.device());
    Differs::OnDevice(Box::new(any(before.not_equal(now.clone()))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use burn::nn::{Linear, LinearConfig};
    use burn::tensor::{DType, Device};

    use super::*;
    use crate::device_read::wait;
    use crate::test_devices::devices;

    /// A layer that is not trained, whose values are in memory of their own.
    fn layer(values: [f32; 2]) -> Linear {
        let device = Device::flex().autodiff();
        let mut layer = LinearConfig::new(1, 2).with_bias(false).init(&device);
        layer.weight = layer.weight.map(|_| Tensor::from_data([values], &device));
        layer.no_grad()
    }

    #[test]
    fn a_digest_is_of_the_numbers_on_every_device() {
        let digest = |value: Stored| wait(value.digest()).unwrap();
        let of_device = |device: &Device| {
            let floats = Tensor::<1>::from_data([1.0f32, -2.5], (device, DType::F32));
            let flags = |flags: [bool; 2]| Stored::Bool(Tensor::from_data(flags, device));
            [
                Stored::Float(floats),
                Stored::Float(Tensor::from_data([1.0, -2.5, f32::NAN], device)),
                Stored::Int(Tensor::from_data([1, -3], device)),
                flags([true, false]),
                flags([false, true]),
            ]
            .map(digest)
        };
        let expected = of_device(&Device::flex());
        for device in devices() {
            assert_eq!(of_device(&device), expected, "{device:?}");
        }
        let different: BTreeSet<&String> = expected.iter().collect();
        assert_eq!(different.len(), expected.len());
        // Also in half precision, which not every backend has.
        let half = Tensor::<1>::from_data([1.0f32, -2.5], (&Device::flex(), DType::F16));
        assert_eq!(digest(Stored::Float(half)), expected[0]);
    }

    #[test]
    fn values_in_other_memory_are_compared_bit_by_bit() {
        let mut begun = BufferCheck::default();
        wait(begun.begin(&layer([1.0, f32::NAN]))).unwrap();
        for (values, is_equal) in
            [([1.0, f32::NAN], true), ([2.0, f32::NAN], false), ([1.0, 0.0], false)]
        {
            let (mut check, now) = (begun.clone(), layer(values));
            for found in [
                wait(check.verify(&now, Extent::Step)),
                wait(check.verify(&now, Extent::Whole)),
                wait(check.end_of_step(&now, Extent::Step)),
            ] {
                assert_eq!(found.is_ok(), is_equal, "{values:?}");
                if let Err(error) = found {
                    assert!(error.to_string().starts_with("`weight`"), "{error}");
                }
            }
            // New values that were accepted.
            wait(check.accept(&now)).unwrap();
            wait(check.verify(&layer(values), Extent::Step)).unwrap();
        }
    }
}
