//! The layers that were replaced to make a model private.

use std::collections::BTreeMap;
use std::fmt;

use burn::module::Module;
use burn::tensor::{DType, Tensor};

use crate::device_read::{blocking, read};
use crate::nn::scope::PrivateScope;
use crate::ops::any;
use crate::walk::{AnyRank, Value, for_each_value};

/// A layer that differs between two models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replacement {
    /// Path of the layer.
    pub path: String,
    /// Type of the layer before, for example `BatchNorm`; `None` if there was none.
    pub before: Option<String>,
    /// Type of the layer after, for example `Private<GroupNorm>`; `None` if there is none.
    pub after: Option<String>,
    /// Names of the parameters and stored values with the same values.
    pub kept: Vec<String>,
    /// Names of the parameters and stored values with different values or another shape.
    pub changed: Vec<String>,
    /// Names of the parameters and stored values that were removed.
    pub dropped: Vec<String>,
    /// Names of the parameters and stored values that are new.
    pub added: Vec<String>,
}

/// The layers that differ between a model and the model that takes its place, sorted by path.
///
/// Use it after replacing layers by hand, to check that every pre-trained weight is in its place.
///
/// # Example
///
/// ```
/// use burn::module::Module;
/// use burn::nn::{BatchNorm, BatchNormConfig, GroupNorm, Linear, LinearConfig};
/// use burn::tensor::Device;
/// use burn_dp::model::Replacements;
/// use burn_dp::prelude::*;
///
/// #[derive(Module, Debug)]
/// struct Pretrained {
///     fc: Linear,
///     norm: BatchNorm,
/// }
///
/// #[derive(Module, Debug)]
/// struct Net {
///     fc: Private<Linear>,
///     norm: Private<GroupNorm>,
/// }
///
/// let device = Device::flex().autodiff();
/// let pretrained = Pretrained {
///     fc: LinearConfig::new(4, 8).init(&device),
///     norm: BatchNormConfig::new(8).init(&device),
/// };
/// let net = Net {
///     fc: pretrained.fc.clone().private(),
///     norm: Private::<GroupNorm>::in_place_of(pretrained.norm.clone()),
/// };
/// let replaced = Replacements::between(&pretrained, &net).to_string();
/// assert_eq!(
///     replaced,
///     "fc: Linear -> Private<Linear>; kept bias, weight\n\
///      norm: BatchNorm -> Private<GroupNorm>; kept beta, gamma; dropped running_mean, running_var"
/// );
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replacements {
    replacements: Vec<Replacement>,
}

impl Replacements {
    /// Compares two models, parameter by parameter and path by path.
    pub fn between<A: Module, B: Module>(before: &A, after: &B) -> Self {
        let (mut before, mut after) = (layers(before), layers(after));
        let mut paths: Vec<String> = before.keys().chain(after.keys()).cloned().collect();
        paths.sort();
        paths.dedup();
        let replacements = paths.into_iter().filter_map(|path| {
            let before = before.remove(&path).unwrap_or_default();
            let after = after.remove(&path).unwrap_or_default();
            let replacement = Replacement::of(path, before, after);
            let unchanged = replacement.before == replacement.after
                && [&replacement.changed, &replacement.dropped, &replacement.added]
                    .iter()
                    .all(|names| names.is_empty());
            (!unchanged).then_some(replacement)
        });
        Self { replacements: replacements.collect() }
    }

    /// Returns the layers that differ.
    pub fn iter(&self) -> impl Iterator<Item = &Replacement> {
        self.replacements.iter()
    }

    /// Returns whether no layer differs.
    pub fn is_empty(&self) -> bool {
        self.replacements.is_empty()
    }
}

impl Replacement {
    fn of(path: String, before: Layer, mut after: Layer) -> Self {
        let mut replacement =
            Self { path, before: before.name, after: after.name, ..Self::default() };
        for (name, value) in before.values {
            let names = match after.values.remove(&name) {
                None => &mut replacement.dropped,
                Some(other) if value.equals(&other) => &mut replacement.kept,
                Some(_) => &mut replacement.changed,
            };
            names.push(name);
        }
        replacement.added = after.values.into_keys().collect();
        replacement
    }
}

/// Writes one line for each layer.
impl fmt::Display for Replacements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.replacements.iter().map(Replacement::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl fmt::Display for Replacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "the model" } else { &self.path };
        let [before, after] =
            [&self.before, &self.after].map(|name| name.as_deref().unwrap_or("nothing"));
        write!(f, "{path}: {before} -> {after}")?;
        for (what, names) in [
            ("kept", &self.kept),
            ("changed", &self.changed),
            ("dropped", &self.dropped),
            ("added", &self.added),
        ] {
            if !names.is_empty() {
                write!(f, "; {what} {}", names.join(", "))?;
            }
        }
        Ok(())
    }
}

/// A layer and its values by name.
#[derive(Default)]
struct Layer {
    name: Option<String>,
    values: BTreeMap<String, Stored>,
}

/// A parameter or a stored value.
struct Stored {
    shape: Vec<usize>,
    dtype: DType,
    /// `None` for a packed value.
    flat: Option<Tensor<1>>,
}

impl Stored {
    fn of(value: &dyn AnyRank) -> Self {
        let flat = (!value.is_packed()).then(|| value.flat());
        Self { shape: value.shape().to_vec(), dtype: value.dtype(), flat }
    }

    /// Returns whether shape, type and every value are equal. Packed values are not compared.
    fn equals(&self, other: &Self) -> bool {
        if self.shape != other.shape || self.dtype != other.dtype {
            return false;
        }
        match (&self.flat, &other.flat) {
            (Some(a), Some(b)) => {
                let b = b.clone().to_device(&a.device());
                let differs = read(any(a.clone().not_equal(b)), "a comparison");
                // A value that cannot be read counts as changed.
                blocking(differs, "a device of the host")
                    .is_ok_and(|differs| !differs.iter::<bool>().any(|differs| differs))
            }
            _ => false,
        }
    }
}

/// Returns the layers of a model by path.
fn layers<M: Module>(model: &M) -> BTreeMap<String, Layer> {
    let mut layers = BTreeMap::<String, Layer>::new();
    for_each_value(model, |place, value| {
        let Value::Float(parameter) = value else { return };
        let name = place.names().last().cloned().unwrap_or_default();
        let holder = &place.names()[..place.names().len().saturating_sub(1)];
        let layer = layers.entry(holder.join(".")).or_default();
        layer.name = place.containers().last().map(|container| {
            let name = container.rsplit(':').next().unwrap_or(container);
            if PrivateScope::is_open() { format!("Private<{name}>") } else { name.to_string() }
        });
        layer.values.insert(name, Stored::of(parameter.value));
    });
    layers
}

#[cfg(test)]
mod tests {
    use burn::nn::{BatchNorm, BatchNormConfig, GroupNorm, Linear, LinearConfig};
    use burn::tensor::Device;

    use super::*;
    use crate::nn::{IntoPrivate, Private};

    #[derive(Module, Debug)]
    struct Before {
        body: Linear,
        norm: BatchNorm,
        head: Linear,
        gone: Linear,
    }

    #[derive(Module, Debug)]
    struct After {
        body: Private<Linear>,
        norm: Private<GroupNorm>,
        head: Linear,
        new: Linear,
    }

    #[test]
    fn every_layer_that_differs_is_reported_with_its_values() {
        let device = Device::flex().autodiff();
        let linear = |size| LinearConfig::new(4, size).init(&device);
        let before = Before {
            body: linear(8),
            norm: BatchNormConfig::new(8).init(&device),
            head: linear(2),
            gone: linear(2),
        };
        assert!(Replacements::between(&before, &before).is_empty());
        let after = After {
            body: before.body.clone().private(),
            norm: Private::<GroupNorm>::in_place_of(before.norm.clone()),
            head: Linear { weight: linear(2).weight, ..before.head.clone() },
            new: linear(2),
        };
        let expected = "body: Linear -> Private<Linear>; kept bias, weight\n\
                        gone: Linear -> nothing; dropped bias, weight\n\
                        head: Linear -> Linear; kept bias; changed weight\n\
                        new: nothing -> Linear; added bias, weight\n\
                        norm: BatchNorm -> Private<GroupNorm>; kept beta, gamma; dropped \
                        running_mean, running_var";
        assert_eq!(Replacements::between(&before, &after).to_string(), expected);
    }
}
