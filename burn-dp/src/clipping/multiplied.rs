use super::{Clipping, PublicNorms, Thresholds};
use crate::DpError;
use crate::error::positive;
use crate::model::ParameterGroups;

/// Largest multiplier that public norms lead to.
const LARGEST: f64 = 1e3;

/// Clipping of the whole gradient after each layer was multiplied to a similar norm.
///
/// Layer h is multiplied by `m_h = M/e_h`, where `e_h` is the mean norm of its gradient on public data
/// and M the largest of them; the whole is clipped to C; the noisy sum is divided by the same
/// multipliers. So layers with small gradients get little noise, as with
/// [`LayerwiseClipping`](super::LayerwiseClipping), and L layers do not cost √L of the noise.
///
/// # Privacy
///
/// Multiplying and dividing by public numbers is reversible, so the release costs what flat clipping to
/// C costs. In the units of the gradient, the noise of layer h has standard deviation `z C / m_h`.
///
/// # References
///
/// Nguyen et al., Batch clipping and adaptive layerwise clipping for differential private stochastic
/// gradient descent, 2023, appendix B.2.
#[derive(Clone, Debug, PartialEq)]
pub struct MultipliedClipping {
    groups: ParameterGroups,
    max_grad_norm: f64,
    multipliers: Vec<f64>,
    /// Whether the multipliers follow from public norms, and so may change.
    adaptive: bool,
}

impl MultipliedClipping {
    /// Multipliers as given.
    ///
    /// # Errors
    ///
    /// Refuses numbers that are not positive and finite, and another number of multipliers than groups.
    pub fn new(
        groups: ParameterGroups,
        max_grad_norm: f64,
        multipliers: Vec<f64>,
    ) -> Result<Self, DpError> {
        let clipping = Self { groups, max_grad_norm, multipliers, adaptive: false };
        clipping.thresholds(0)?;
        Ok(clipping)
    }

    /// Multipliers `M/e_h` from public norms.
    ///
    /// # Errors
    ///
    /// Refuses a threshold that is not positive and finite, and norms of no example.
    pub fn from_public(max_grad_norm: f64, norms: &PublicNorms) -> Result<Self, DpError> {
        positive("max_grad_norm", max_grad_norm)?;
        let multipliers = Self::multipliers(norms)?;
        Ok(Self { groups: norms.groups().clone(), max_grad_norm, multipliers, adaptive: true })
    }

    fn multipliers(norms: &PublicNorms) -> Result<Vec<f64>, DpError> {
        Ok(norms.relative(1.0 / LARGEST)?.into_iter().map(|relative| 1.0 / relative).collect())
    }
}

impl Clipping for MultipliedClipping {
    fn thresholds(&self, _step: u64) -> Result<Thresholds, DpError> {
        Thresholds::multiplied(self.groups.clone(), self.max_grad_norm, self.multipliers.clone())
    }

    fn describe(&self) -> String {
        let multipliers = match self.adaptive {
            true => "by the largest norm on public data over that of each".to_string(),
            false => format!("by {:?}", self.multipliers),
        };
        format!(
            "layers ({}) multiplied {multipliers}, L2 norm of the whole of each unit at most {}",
            self.groups.names().join(", "),
            self.max_grad_norm
        )
    }

    fn learn_public(&mut self, norms: &PublicNorms) -> Result<(), DpError> {
        if !self.adaptive {
            return Err(DpError::invalid(
                "public norms",
                "have no use: the multipliers were given",
            ));
        }
        self.multipliers = Self::multipliers(norms.of_groups(&self.groups)?)?;
        Ok(())
    }

    fn adapted(&self) -> Vec<(String, f64)> {
        self.groups.names().iter().cloned().zip(self.multipliers.iter().copied()).collect()
    }

    fn save_state(&self) -> serde_json::Value {
        self.multipliers.iter().copied().collect()
    }

    fn load_state(&mut self, state: &serde_json::Value) -> Result<(), DpError> {
        self.multipliers = super::saved_norms(state, self.groups.len())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::groups::three_groups;

    #[test]
    fn multipliers_bring_the_mean_norms_of_all_layers_to_the_largest() {
        let norms = PublicNorms::from_means(three_groups(), vec![0.5, 4.0, 0.0]).unwrap();
        let clipping = MultipliedClipping::from_public(1.5, &norms).unwrap();
        let multipliers: Vec<f64> = clipping.adapted().into_iter().map(|(_, m)| m).collect();
        assert_eq!(multipliers, [8.0, 1.0, 1e3]);
        assert_eq!(clipping.thresholds(0).unwrap().total_norm(), 1.5);
    }

    #[test]
    fn given_multipliers_do_not_follow_public_data() {
        let norms = PublicNorms::from_means(three_groups(), vec![1.0; 3]).unwrap();
        let mut clipping =
            MultipliedClipping::new(three_groups(), 1.0, vec![1.0, 2.0, 3.0]).unwrap();
        assert!(clipping.learn_public(&norms).is_err());
        let mut adaptive = MultipliedClipping::from_public(1.0, &norms).unwrap();
        adaptive.load_state(&clipping.save_state()).unwrap();
        assert_eq!(adaptive.adapted(), clipping.adapted());
    }
}
