use burn::module::Module;
use burn::tensor::Tensor;

use crate::device_read::blocking;
use crate::grads::PrivateBackward;
use crate::model::ParameterGroups;
use crate::nn::{UnitScope, Units};
use crate::random::LayerRandomness;
use crate::{DpError, PublicData, PublicSource};

/// Mean gradient norms of public units, one mean for each group of parameters.
///
/// # Privacy
///
/// None: the norms are used without noise, so they come from [`PublicData`]. The privacy statement
/// names its source and size.
///
/// # Example
///
/// ```
/// # use burn::{nn::LinearConfig, tensor::{Device, Tensor}};
/// # use burn_dp::{DpError, PublicSource, nn::IntoPrivate};
/// # use burn_dp::clipping::{LayerwiseClipping, PublicNorms};
/// # use burn_dp::model::ParameterGroups;
/// # fn main() -> Result<(), DpError> {
/// # let device = Device::flex().autodiff();
/// # let model = LinearConfig::new(1, 1).init(&device).private();
/// let public = PublicSource::generated("points on a line").data(vec![0.1f32, 0.2, 0.3])?;
/// let layers = ParameterGroups::per_layer(&model)?;
/// let norms = PublicNorms::measure(layers, &public.batches(2), &model, |model, batch| {
///     let x = Tensor::<1>::from_floats(batch.as_slice(), &device).unsqueeze_dim::<2>(1);
///     model.forward(x.clone()).sub(x).powi_scalar(2).reshape([-1])
/// })?;
/// let clipping = LayerwiseClipping::enhanced(1.0, &norms)?;
/// # let _ = clipping;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct PublicNorms {
    groups: ParameterGroups,
    /// The description of the public data.
    origin: String,
    sums: Vec<f64>,
    units: usize,
}

impl PublicNorms {
    /// Measures the gradients of single public examples. Examples whose norm is not finite are left
    /// out.
    ///
    /// # Arguments
    ///
    /// - `data`: batches of public examples; see [`PublicData::batches`]
    /// - `losses`: returns the losses of one batch, of shape `[batch_size]`, one per example
    ///
    /// # Errors
    ///
    /// Returns the errors of [`PrivateBackward::run`], [`DpError::UnsupportedModel`] if a parameter
    /// belongs to no group, and [`DpError::InvalidArgument`] if no example has a finite gradient.
    pub fn measure<M: Module, B>(
        groups: ParameterGroups,
        data: &PublicData<B>,
        model: &M,
        losses: impl FnMut(&M, &B) -> Tensor<1>,
    ) -> Result<Self, DpError> {
        let measured = Self::measure_async(groups, data, model, losses);
        blocking(measured, "PublicNorms::measure_async")
    }

    /// Runs [`measure`](Self::measure) without blocking the thread.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`measure`](Self::measure).
    pub async fn measure_async<M: Module, B>(
        groups: ParameterGroups,
        data: &PublicData<B>,
        model: &M,
        mut losses: impl FnMut(&M, &B) -> Tensor<1>,
    ) -> Result<Self, DpError> {
        let mut norms = Self::new(groups, data.origin().into());
        for (number, batch) in data.items().iter().enumerate() {
            let losses = {
                // Public examples need no protection: their random values may be known.
                let randomness = LayerRandomness::known();
                let _scope = UnitScope::enter(model, &randomness, Units::One(number));
                losses(model, batch)
            };
            let grads = PrivateBackward::new().run(losses, model)?;
            let squared_norms = grads.squared_norms(&norms.groups).await?;
            let examples = squared_norms.first().map_or(0, Vec::len);
            for example in 0..examples {
                norms.add_squares(squared_norms.iter().map(|group| group[example]).collect());
            }
        }
        norms.checked()
    }

    /// Measures public units, given the norms of each in its parameters, as pairs of path and norm.
    /// A unit whose norm is not finite is left out.
    ///
    /// For unit updates, see [`public_update_norms`](crate::updates::public_update_norms).
    ///
    /// # Errors
    ///
    /// Returns the errors of `norms_of`, [`DpError::UnsupportedModel`] if a parameter belongs to no
    /// group, and [`DpError::InvalidArgument`] if no unit has a finite norm.
    pub fn measure_units<U, P>(
        groups: ParameterGroups,
        data: &PublicData<U>,
        mut norms_of: impl FnMut(&U) -> Result<P, DpError>,
    ) -> Result<Self, DpError>
    where
        P: IntoIterator<Item = (String, f64)>,
    {
        let mut norms = Self::new(groups, data.origin().into());
        for unit in data.items() {
            let mut squares = vec![0.0; norms.groups.len()];
            for (path, norm) in norms_of(unit)? {
                squares[norms.groups.index_of(&path)?] += norm * norm;
            }
            norms.add_squares(squares);
        }
        norms.checked()
    }

    /// Creates norms from means that were measured elsewhere, for example with ordinary gradients
    /// of a model without private layers.
    ///
    /// # Arguments
    ///
    /// - `source`, `size`: the public data that was measured, and its number of items
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the source has no name or no item, if there is not
    /// one mean for each group, or if a mean is negative or not finite.
    pub fn from_means(
        source: PublicSource,
        size: usize,
        groups: ParameterGroups,
        means: Vec<f64>,
    ) -> Result<Self, DpError> {
        if means.len() != groups.len() {
            let reason =
                format!("must be one for each of {} groups, got {}", groups.len(), means.len());
            return Err(DpError::invalid("means", reason));
        }
        if let Some(mean) = means.iter().find(|mean| !(**mean >= 0.0 && mean.is_finite())) {
            let reason = format!("must be finite and not negative, got {mean}");
            return Err(DpError::invalid("means", reason));
        }
        Ok(Self { groups, origin: source.origin(size)?, sums: means, units: 1 })
    }

    fn new(groups: ParameterGroups, origin: String) -> Self {
        Self { sums: vec![0.0; groups.len()], groups, origin, units: 0 }
    }

    /// Returns [`DpError::InvalidArgument`] if no unit was added.
    fn checked(self) -> Result<Self, DpError> {
        if self.units == 0 {
            return Err(DpError::invalid(
                "data",
                format!(
                    "must have at least one example with a finite gradient, got none from {}",
                    self.origin
                ),
            ));
        }
        Ok(self)
    }

    /// Adds one unit, given its squared norm in each group.
    fn add_squares(&mut self, squares: Vec<f64>) {
        if squares.iter().all(|square| square.is_finite()) {
            self.units += 1;
            self.sums.iter_mut().zip(squares).for_each(|(sum, square)| *sum += square.sqrt());
        }
    }

    /// Returns the groups.
    pub fn groups(&self) -> &ParameterGroups {
        &self.groups
    }

    /// Returns the description of the public data: source, kind and size.
    pub fn public_data(&self) -> &str {
        &self.origin
    }

    /// Returns the mean norm of each group.
    pub fn means(&self) -> Vec<f64> {
        self.sums.iter().map(|sum| sum / self.units as f64).collect()
    }

    /// Returns the groups, merged into at most `count` groups of similar norms. Fewer groups need
    /// less noise in each. A group without any gradient counts as the group with the smallest norm.
    ///
    /// The groups are sorted by norm and split so that the sum of squared deviations of the
    /// logarithms is minimal. The optimum is exact.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `count` is 0, or if all norms are zero.
    ///
    /// # References
    ///
    /// Nguyen et al., Batch clipping and adaptive layerwise clipping for differential private
    /// stochastic gradient descent, 2023, appendix B.2 (62 layers to about 4 groups).
    pub fn merged_groups(&self, count: usize) -> Result<ParameterGroups, DpError> {
        let means = self.means();
        let least = means.iter().copied().filter(|&norm| norm > 0.0).fold(f64::INFINITY, f64::min);
        let means: Vec<f64> = means.into_iter().map(|norm| norm.max(least)).collect();
        self.groups.merged_by_norm(&means, count, &self.origin)
    }

    /// Returns the mean norms divided by the largest one, each at least `least`; 1 for all if all
    /// are zero.
    pub(super) fn relative_means(&self, least: f64) -> Vec<f64> {
        let means = self.means();
        let largest = means.iter().copied().fold(0.0, f64::max);
        let relative = |mean: f64| if largest > 0.0 { (mean / largest).max(least) } else { 1.0 };
        means.into_iter().map(relative).collect()
    }

    /// Returns [`DpError::InvalidArgument`] if the norms belong to other groups.
    pub(super) fn check_groups(&self, groups: &ParameterGroups) -> Result<(), DpError> {
        if self.groups == *groups {
            return Ok(());
        }
        Err(DpError::invalid(
            "norms",
            format!(
                "must be of the groups that are clipped ({}), got {}",
                groups.names().join(", "),
                self.groups.names().join(", ")
            ),
        ))
    }
}

#[cfg(test)]
pub(super) fn of_drawings(groups: ParameterGroups, means: Vec<f64>) -> PublicNorms {
    #[allow(clippy::unwrap_used)]
    PublicNorms::from_means(PublicSource::generated("drawings"), 9, groups, means).unwrap()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
    use burn::tensor::Device;

    use super::*;
    use crate::model::groups::three_groups;
    use crate::nn::{IntoPrivate, Private};

    fn drawings<T>(items: Vec<T>) -> PublicData<T> {
        PublicSource::generated("drawings").data(items).unwrap()
    }

    #[test]
    fn mean_norms_are_taken_over_single_examples() {
        let device = Device::flex().autodiff();
        let model = LinearConfig::new(2, 1).init(&device).private();
        let groups = ParameterGroups::per_parameter(&model).unwrap();
        // The output has gradient 1, so the weight has the input as gradient, and the bias 1.
        let x = vec![[3.0f32, 4.0], [0.0, 1.0], [f32::NAN, 0.0]];
        let measure = |rows: Vec<[f32; 2]>, size| {
            PublicNorms::measure(groups.clone(), &drawings(rows).batches(size), &model, |m, x| {
                let x = burn::tensor::TensorData::new(x.concat(), [x.len(), 2]);
                m.forward(Tensor::<2>::from_data(x, &device)).reshape([-1])
            })
        };
        for size in [1, 2, 3] {
            let norms = measure(x.clone(), size).unwrap();
            let means = norms.means();
            // Squared norms are rounded up by at most 1.2e-6, and norms by at most half of it, with
            // the last digit.
            let is_close = |found: f64, norm: f64| found >= norm && found <= norm * (1.0 + 1.5e-6);
            assert!(is_close(means[0], 3.0) && is_close(means[1], 1.0), "{means:?}");
            let relative = norms.relative_means(0.5);
            assert!((relative[0] - 1.0).abs() < 2e-6 && (relative[1] - 0.5).abs() < 2e-6);
            assert!(norms.check_groups(&ParameterGroups::whole()).is_err());
            assert_eq!(norms.public_data(), "drawings (generated, 3 items)");
        }
        let error = measure(vec![x[2]], 1).unwrap_err().to_string();
        assert!(error.contains("at least one example with a finite gradient"), "{error}");
    }

    #[test]
    fn a_model_with_random_layers_is_measured_with_known_values() {
        #[derive(Module, Debug)]
        struct Net {
            dropout: Private<Dropout>,
            fc: Private<Linear>,
        }
        let device = Device::flex().autodiff();
        let model = Net {
            dropout: DropoutConfig::new(0.5).init().private(),
            fc: LinearConfig::new(40, 1).init(&device).private(),
        };
        let groups = ParameterGroups::per_parameter(&model).unwrap();
        let measure = || {
            let batches = drawings(vec![1.0f32, 2.0]).batches(2);
            let norms = PublicNorms::measure(groups.clone(), &batches, &model, |model, _| {
                let hidden = model.dropout.forward(Tensor::<2>::ones([2, 40], &device));
                model.fc.forward(hidden).reshape([-1])
            });
            norms.unwrap().means()
        };
        let means = measure();
        // Inputs of 0 and 2 in place of 1: the norm of the weight differs from √40.
        assert!((means[0] - 40f64.sqrt()).abs() > 0.1, "{means:?}");
        assert_eq!(measure(), means);
    }

    #[test]
    fn invalid_means_are_refused() {
        let source = || PublicSource::published("letters");
        for means in [vec![], vec![-1.0], vec![f64::NAN], vec![f64::INFINITY]] {
            let whole = ParameterGroups::whole();
            assert!(PublicNorms::from_means(source(), 1, whole, means).is_err());
        }
        let whole = ParameterGroups::whole();
        assert!(PublicNorms::from_means(source(), 0, whole.clone(), vec![1.0]).is_err());
        assert_eq!(of_drawings(whole, vec![0.0]).relative_means(0.1), [1.0]);
    }

    #[test]
    fn norms_of_parameters_are_combined_within_their_group() {
        let units = drawings(vec![[3.0, 4.0], [1.0, f64::NAN], [0.0, 1.0]]);
        let norms = PublicNorms::measure_units(ParameterGroups::whole(), &units, |unit| {
            Ok([("a".to_string(), unit[0]), ("b".to_string(), unit[1])])
        });
        assert_eq!(norms.unwrap().means(), [3.0]);
    }

    #[test]
    fn merged_groups_name_the_public_data() {
        let merged = of_drawings(three_groups(), vec![9.0, 0.0, 10.0]).merged_groups(2).unwrap();
        assert_eq!(merged.names(), ["a+b", "c"]);
        assert_eq!(merged.public_data(), Some("drawings (generated, 9 items)"));
        let zero = of_drawings(three_groups(), vec![0.0; 3]);
        assert!(zero.merged_groups(2).is_err() && zero.merged_groups(0).is_err());
    }
}
