use burn::module::Module;
use burn::tensor::Tensor;

use crate::DpError;
use crate::grads::PrivateBackward;
use crate::model::ParameterGroups;

/// Mean gradient norms of public units, one mean for each group of parameters.
///
/// # Privacy
///
/// None: the norms are used without noise. The examples must be public. A held-out part of the
/// private data set is as private as the rest.
#[derive(Clone, Debug, PartialEq)]
pub struct PublicNorms {
    groups: ParameterGroups,
    sums: Vec<f64>,
    units: usize,
}

impl PublicNorms {
    /// Creates norms without any unit.
    pub fn new(groups: ParameterGroups) -> Self {
        Self { sums: vec![0.0; groups.len()], groups, units: 0 }
    }

    /// Creates norms from means that were measured elsewhere, for example with ordinary gradients
    /// of a model without private layers.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if there is not one mean for each group, or if a mean
    /// is negative or not finite.
    pub fn from_means(groups: ParameterGroups, means: Vec<f64>) -> Result<Self, DpError> {
        if means.len() != groups.len() {
            let reason =
                format!("must be one for each of {} groups, got {}", groups.len(), means.len());
            return Err(DpError::invalid("public norms", reason));
        }
        if let Some(mean) = means.iter().find(|mean| !(**mean >= 0.0 && mean.is_finite())) {
            let reason = format!("must be finite and not negative, got {mean}");
            return Err(DpError::invalid("public norms", reason));
        }
        Ok(Self { groups, sums: means, units: 1 })
    }

    /// Adds the gradients of public examples. Examples whose norm is not finite are left out.
    ///
    /// # Shapes
    ///
    /// - losses: `[batch_size]`, one per example
    ///
    /// # Errors
    ///
    /// Returns the errors of [`PrivateBackward::run`], and [`DpError::UnsupportedModel`] if a
    /// parameter belongs to no group.
    pub fn add<M: Module>(&mut self, losses: Tensor<1>, model: &M) -> Result<(), DpError> {
        let grads = PrivateBackward::new().run(losses, model)?;
        let squared_norms = grads.squared_norms(&self.groups)?;
        let examples = squared_norms.first().map_or(0, Vec::len);
        for example in 0..examples {
            self.add_squares(squared_norms.iter().map(|group| group[example]).collect());
        }
        Ok(())
    }

    /// Adds the norms of one public unit in its parameters, as pairs of path and norm. A unit whose
    /// norm is not finite is left out.
    ///
    /// For a unit update, see [`UnitUpdate::add_to_public_norms`].
    ///
    /// [`UnitUpdate::add_to_public_norms`]: crate::updates::UnitUpdate::add_to_public_norms
    ///
    /// # Errors
    ///
    /// Returns [`DpError::UnsupportedModel`] if a parameter belongs to no group.
    pub fn add_unit(
        &mut self,
        norms: impl IntoIterator<Item = (String, f64)>,
    ) -> Result<(), DpError> {
        let mut squares = vec![0.0; self.groups.len()];
        for (path, norm) in norms {
            squares[self.groups.index_of(&path)?] += norm * norm;
        }
        self.add_squares(squares);
        Ok(())
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

    /// Returns the mean norm of each group.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if no unit was added.
    pub fn means(&self) -> Result<Vec<f64>, DpError> {
        if self.units == 0 {
            return Err(DpError::invalid(
                "public norms",
                "must come from at least one example with a finite gradient, got none",
            ));
        }
        Ok(self.sums.iter().map(|sum| sum / self.units as f64).collect())
    }

    /// Returns the mean norms over the largest of them, at least `least`; 1 for all if all are
    /// zero.
    pub(super) fn relative_means(&self, least: f64) -> Result<Vec<f64>, DpError> {
        let means = self.means()?;
        let largest = means.iter().copied().fold(0.0, f64::max);
        let relative = |mean: f64| if largest > 0.0 { (mean / largest).max(least) } else { 1.0 };
        Ok(means.into_iter().map(relative).collect())
    }

    /// Returns [`DpError::InvalidArgument`] if the norms belong to other groups.
    pub(super) fn check_groups(&self, groups: &ParameterGroups) -> Result<(), DpError> {
        if self.groups == *groups {
            return Ok(());
        }
        Err(DpError::invalid(
            "public norms",
            format!(
                "must be of the groups that are clipped ({}), got {}",
                groups.names().join(", "),
                self.groups.names().join(", ")
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::nn::LinearConfig;
    use burn::tensor::Device;

    use super::*;
    use crate::nn::IntoPrivate;

    #[test]
    fn mean_norms_are_taken_over_single_examples() {
        let device = Device::flex().autodiff();
        let model = LinearConfig::new(2, 1).init(&device).private();
        let groups = ParameterGroups::per_parameter(&model).unwrap();
        let mut norms = PublicNorms::new(groups);
        assert!(norms.means().is_err());
        // The output has gradient 1, so the weight has the input as gradient, and the bias 1.
        let x = [[3.0f32, 4.0], [0.0, 1.0], [f32::NAN, 0.0]];
        for x in [vec![x[0]], vec![x[1], x[2]]] {
            let x = Tensor::<2>::from_data(
                burn::tensor::TensorData::new(x.concat(), [x.len(), 2]),
                &device,
            );
            norms.add(model.forward(x).reshape([-1]), &model).unwrap();
        }
        let means = norms.means().unwrap();
        assert!((means[0] - 3.0).abs() < 1e-6 && (means[1] - 1.0).abs() < 1e-6, "{means:?}");
        let relative = norms.relative_means(0.5).unwrap();
        assert!((relative[0] - 1.0).abs() < 1e-6 && (relative[1] - 0.5).abs() < 1e-6);
        assert!(norms.check_groups(&ParameterGroups::whole()).is_err());
    }

    #[test]
    fn invalid_means_are_refused() {
        for means in [vec![], vec![-1.0], vec![f64::NAN], vec![f64::INFINITY]] {
            assert!(PublicNorms::from_means(ParameterGroups::whole(), means).is_err());
        }
        let zero = PublicNorms::from_means(ParameterGroups::whole(), vec![0.0]).unwrap();
        assert_eq!(zero.relative_means(0.1).unwrap(), [1.0]);
    }

    #[test]
    fn norms_of_parameters_are_combined_within_their_group() {
        let mut norms = PublicNorms::new(ParameterGroups::whole());
        let unit = |values: [f64; 2]| [("a".into(), values[0]), ("b".into(), values[1])];
        norms.add_unit(unit([3.0, 4.0])).unwrap();
        norms.add_unit(unit([1.0, f64::NAN])).unwrap();
        norms.add_unit(unit([0.0, 1.0])).unwrap();
        assert_eq!(norms.means().unwrap(), [3.0]);
    }
}
