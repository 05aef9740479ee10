use burn::module::Module;
use burn::tensor::Tensor;

use crate::DpError;
use crate::grads::PrivateBackward;
use crate::model::ParameterGroups;
use crate::updates::UnitUpdate;

/// Mean norms of the gradients of single examples on a public data set, one for each group of
/// parameters.
///
/// # Privacy
///
/// None: the norms are used without noise. The examples must be public, not a part of the private data
/// set: a held-out part of it is as private as the rest.
#[derive(Clone, Debug, PartialEq)]
pub struct PublicNorms {
    groups: ParameterGroups,
    sums: Vec<f64>,
    examples: usize,
}

impl PublicNorms {
    /// No example yet.
    pub fn new(groups: ParameterGroups) -> Self {
        Self { sums: vec![0.0; groups.len()], groups, examples: 0 }
    }

    /// Norms that were measured elsewhere, for example with ordinary gradients of a model without
    /// private layers.
    ///
    /// # Errors
    ///
    /// Refuses another number of norms than groups, and norms that are negative or not finite.
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
        Ok(Self { groups, sums: means, examples: 1 })
    }

    /// Adds the gradients of public examples. Those whose norm is not finite are left out.
    ///
    /// # Shapes
    ///
    /// - losses: `[batch_size]`, one per example
    ///
    /// # Errors
    ///
    /// As [`PrivateBackward::run`], and for a parameter that belongs to no group.
    pub fn add<M: Module>(&mut self, losses: Tensor<1>, model: &M) -> Result<(), DpError> {
        let grads = PrivateBackward::new().run(losses, model)?;
        let squared_norms = grads.squared_norms(&self.groups)?;
        let examples = squared_norms.first().map_or(0, Vec::len);
        for example in 0..examples {
            let of_groups: Vec<f64> = squared_norms.iter().map(|group| group[example]).collect();
            if !of_groups.iter().all(|squared_norm| squared_norm.is_finite()) {
                continue;
            }
            self.examples += 1;
            for (sum, squared_norm) in self.sums.iter_mut().zip(of_groups) {
                *sum += squared_norm.sqrt();
            }
        }
        Ok(())
    }

    /// Adds the update of a public unit, computed as those of private units are: the gradient of a
    /// mini-set, the change of a user's model. One whose norm is not finite is left out.
    ///
    /// # Errors
    ///
    /// For a parameter of `model` that belongs to no group, and if a value cannot be read from the
    /// device.
    pub fn add_update<M: Module>(&mut self, update: &UnitUpdate, model: &M) -> Result<(), DpError> {
        let mut squares = vec![0.0; self.groups.len()];
        for (path, norm) in update.norms(model)?.reveal() {
            squares[self.groups.index_of(&path)?] += norm * norm;
        }
        if squares.iter().all(|square| square.is_finite()) {
            self.examples += 1;
            self.sums.iter_mut().zip(squares).for_each(|(sum, square)| *sum += square.sqrt());
        }
        Ok(())
    }

    /// The groups.
    pub fn groups(&self) -> &ParameterGroups {
        &self.groups
    }

    /// The mean norm of each group.
    ///
    /// # Errors
    ///
    /// Refuses when no example was added.
    pub fn means(&self) -> Result<Vec<f64>, DpError> {
        if self.examples == 0 {
            return Err(DpError::invalid(
                "public norms",
                "must come from at least one example with a finite gradient, got none",
            ));
        }
        Ok(self.sums.iter().map(|sum| sum / self.examples as f64).collect())
    }

    /// The mean norms over the largest of them, none below `least`: 1 for all if all are zero.
    pub(super) fn relative(&self, least: f64) -> Result<Vec<f64>, DpError> {
        let means = self.means()?;
        let largest = means.iter().copied().fold(0.0, f64::max);
        let relative = |mean: f64| if largest > 0.0 { (mean / largest).max(least) } else { 1.0 };
        Ok(means.into_iter().map(relative).collect())
    }

    /// Refuses norms of other groups.
    pub(super) fn of_groups(&self, groups: &ParameterGroups) -> Result<&Self, DpError> {
        if self.groups == *groups {
            return Ok(self);
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
    fn the_mean_norm_of_each_group_is_that_of_the_single_examples() {
        let device = Device::flex().autodiff();
        let model = LinearConfig::new(2, 1).init(&device).private();
        let groups = ParameterGroups::per_parameter(&model).unwrap();
        let mut norms = PublicNorms::new(groups);
        assert!(norms.means().is_err());
        // The gradient of the output is 1: that of the weight is the input, that of the bias 1.
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
        let relative = norms.relative(0.5).unwrap();
        assert!((relative[0] - 1.0).abs() < 1e-6 && (relative[1] - 0.5).abs() < 1e-6);
        assert!(norms.of_groups(&ParameterGroups::whole()).is_err());
    }

    #[test]
    fn norms_that_are_none_are_refused() {
        for means in [vec![], vec![-1.0], vec![f64::NAN], vec![f64::INFINITY]] {
            assert!(PublicNorms::from_means(ParameterGroups::whole(), means).is_err());
        }
        let zero = PublicNorms::from_means(ParameterGroups::whole(), vec![0.0]).unwrap();
        assert_eq!(zero.relative(0.1).unwrap(), [1.0]);
    }
}
