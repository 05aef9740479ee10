use super::config::{ClippingConfig, Settings};
use super::policy::{Clipping, Seal};
use super::public_norms::PublicNorms;
use super::saved_values::saved_norms;
use crate::DpError;
use crate::clipping::thresholds::Thresholds;
use crate::error::positive;
use crate::model::ParameterGroups;

/// Maximum multiplier derived from public norms.
const LARGEST: f64 = 1e3;

/// Clips the whole gradient after scaling the layers to similar norms.
///
/// Layer h is multiplied by `m_h = M/e_h`, where `e_h` is the mean norm of its gradient on public
/// data and M the largest of these means. The whole gradient is clipped to C, and the noisy sum is
/// divided by the same multipliers. Layers with small gradients therefore get little noise, as with
/// [`LayerwiseClipping`](super::LayerwiseClipping), and L layers do not increase the noise by √L.
///
/// # Privacy
///
/// Multiplying and dividing by public numbers is reversible, so the release costs as much as flat
/// clipping to C. In the scale of the gradient, the noise of layer h has standard deviation
/// `z C / m_h`.
///
/// # References
///
/// Nguyen et al., Batch clipping and adaptive layerwise clipping for differential private
/// stochastic gradient descent, 2023, appendix B.2.
#[derive(Clone, Debug, PartialEq)]
pub struct MultipliedClipping {
    groups: ParameterGroups,
    max_grad_norm: f64,
    multipliers: Vec<f64>,
    /// The public data of the first norms, if the multipliers are derived from norms and may
    /// therefore change.
    origin: Option<String>,
}

impl MultipliedClipping {
    /// Creates the policy with the given multipliers.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if a number is not positive and finite, or if there is
    /// not one multiplier for each group.
    pub fn new(
        groups: ParameterGroups,
        max_grad_norm: f64,
        multipliers: Vec<f64>,
    ) -> Result<Self, DpError> {
        positive("max_grad_norm", max_grad_norm)?;
        let clipping = Self { groups, max_grad_norm, multipliers, origin: None };
        clipping.thresholds(0)?;
        Ok(clipping)
    }

    /// Creates the policy with the multipliers `M/e_h` from public norms.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the threshold is not positive and finite.
    pub fn from_public(max_grad_norm: f64, norms: &PublicNorms) -> Result<Self, DpError> {
        let policy = Self::new(norms.groups().clone(), max_grad_norm, multipliers(norms))?;
        Ok(policy.with_origin(Some(norms.public_data().into())))
    }

    pub(super) fn with_origin(self, origin: Option<String>) -> Self {
        Self { origin, ..self }
    }
}

fn multipliers(norms: &PublicNorms) -> Vec<f64> {
    norms.relative_means(1.0 / LARGEST).into_iter().map(|relative| 1.0 / relative).collect()
}

impl Clipping for MultipliedClipping {
    fn thresholds(&self, _step: u64) -> Result<Thresholds, DpError> {
        Thresholds::multiplied(self.groups.clone(), self.max_grad_norm, self.multipliers.clone())
    }

    fn describe(&self) -> String {
        let multipliers = match &self.origin {
            Some(origin) => {
                format!("by the largest norm on public data over the norm of each layer: {origin}")
            }
            None => format!("by {:?}", self.multipliers),
        };
        format!(
            "layers ({}) multiplied {multipliers}, L2 norm of the whole of each unit at most {}",
            self.groups.describe(),
            self.max_grad_norm
        )
    }

    fn set_public_norms(&mut self, norms: &PublicNorms) -> Result<(), DpError> {
        if self.origin.is_none() {
            return Err(DpError::invalid(
                "norms",
                "have no use: the multipliers were given; use `MultipliedClipping::from_public`",
            ));
        }
        norms.check_groups(&self.groups)?;
        self.multipliers = multipliers(norms);
        Ok(())
    }

    fn public_data(&self) -> Vec<String> {
        let groups = self.groups.public_data().map(String::from);
        self.origin.iter().cloned().chain(groups).collect()
    }

    fn adapted(&self) -> Vec<(String, f64)> {
        self.groups.names().iter().cloned().zip(self.multipliers.iter().copied()).collect()
    }

    fn to_config(&self, _: Seal) -> Option<ClippingConfig> {
        Some(ClippingConfig(Settings::Multiplied {
            groups: (&self.groups).into(),
            public_data: self.origin.clone(),
            max_grad_norm: self.max_grad_norm,
            multipliers: self.multipliers.clone(),
        }))
    }

    fn save_state(&self) -> serde_json::Value {
        self.multipliers.iter().copied().collect()
    }

    fn load_state(&mut self, state: &serde_json::Value) -> Result<(), DpError> {
        self.multipliers = saved_norms(state, self.groups.len())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::public_norms::of_drawings;
    use super::*;
    use crate::model::groups::three_groups;

    #[test]
    fn multipliers_equalize_the_mean_norms_of_layers() {
        let norms = of_drawings(three_groups(), vec![0.5, 4.0, 0.0]);
        let clipping = MultipliedClipping::from_public(1.5, &norms).unwrap();
        let multipliers: Vec<f64> = clipping.adapted().into_iter().map(|(_, m)| m).collect();
        assert_eq!(multipliers, [8.0, 1.0, 1e3]);
        assert_eq!(clipping.thresholds(0).unwrap().total_norm(), 1.5);
    }

    #[test]
    fn given_multipliers_ignore_public_norms() {
        let norms = of_drawings(three_groups(), vec![1.0; 3]);
        let mut clipping =
            MultipliedClipping::new(three_groups(), 1.0, vec![1.0, 2.0, 3.0]).unwrap();
        assert!(clipping.set_public_norms(&norms).is_err());
        let mut adaptive = MultipliedClipping::from_public(1.0, &norms).unwrap();
        adaptive.load_state(&clipping.save_state()).unwrap();
        assert_eq!(adaptive.adapted(), clipping.adapted());
    }

    #[test]
    fn the_public_data_is_named_and_numbers_out_of_range_are_refused() {
        let norms = of_drawings(three_groups(), vec![0.5, 4.0, 1.0]);
        let clipping = MultipliedClipping::from_public(1.5, &norms).unwrap();
        assert_eq!(clipping.public_data(), [norms.public_data()]);
        let described = clipping.describe();
        assert!(described.contains(norms.public_data()) && described.contains("at most 1.5"));
        assert!(MultipliedClipping::from_public(0.0, &norms).is_err());

        let given = |norm, multipliers| MultipliedClipping::new(three_groups(), norm, multipliers);
        assert!(given(1.0, vec![1.0, 2.0, 3.0]).unwrap().public_data().is_empty());
        assert!(given(1.0, vec![1.0, 2.0]).is_err());
        assert!(given(1.0, vec![1.0, -2.0, 3.0]).is_err());
        assert!(given(f64::NAN, vec![1.0; 3]).is_err());
    }
}
