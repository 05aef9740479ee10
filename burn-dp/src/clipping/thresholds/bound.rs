use crate::DpError;
use crate::error::positive;
use crate::model::ParameterGroups;

/// The norm, or norms, that clipping bounds.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Bound {
    /// The norm of the whole gradient, after group h is multiplied by `multipliers[h]`.
    Whole { norm: f64, multipliers: Vec<f64> },
    /// The norm of each group. The `shares` of the privacy cost add up to 1.
    PerGroup { norms: Vec<f64>, shares: Vec<f64> },
}

impl Bound {
    /// Returns the thresholds: one for the whole gradient, or one for each group.
    pub(super) fn norms(&self) -> &[f64] {
        match self {
            Self::Whole { norm, .. } => std::slice::from_ref(norm),
            Self::PerGroup { norms, .. } => norms,
        }
    }

    /// Multiplies all thresholds by `factor`.
    pub(super) fn scale(&mut self, factor: f64) {
        match self {
            Self::Whole { norm, .. } => *norm *= factor,
            Self::PerGroup { norms, .. } => norms.iter_mut().for_each(|norm| *norm *= factor),
        }
    }

    /// Returns the squared norm of the whole gradient, multipliers included.
    ///
    /// # Arguments
    ///
    /// - `total`: the sum of the squared norms of the groups, without multipliers
    /// - `of_group`: the squared norm of a group
    pub(super) fn whole_squared_norm(&self, total: f64, of_group: impl Fn(usize) -> f64) -> f64 {
        match self {
            Self::Whole { multipliers, .. } if multipliers.iter().any(|&factor| factor != 1.0) => {
                multipliers.iter().enumerate().map(|(group, m)| m * m * of_group(group)).sum()
            }
            _ => total,
        }
    }
}

/// Returns an error unless there is one positive, finite value for each group.
pub(super) fn check_one_each(
    name: &'static str,
    groups: &ParameterGroups,
    values: &[f64],
) -> Result<(), DpError> {
    if values.len() != groups.len() {
        let reason =
            format!("must be one for each of {} groups, got {}", groups.len(), values.len());
        return Err(DpError::invalid(name, reason));
    }
    values.iter().try_for_each(|&value| positive(name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_threshold_is_scaled() {
        let mut whole = Bound::Whole { norm: 2.0, multipliers: vec![1.0, 3.0] };
        whole.scale(0.5);
        assert_eq!(whole, Bound::Whole { norm: 1.0, multipliers: vec![1.0, 3.0] });
        let mut groups = Bound::PerGroup { norms: vec![2.0, 4.0], shares: vec![0.5; 2] };
        groups.scale(0.5);
        assert_eq!(groups.norms(), [1.0, 2.0]);
    }

    #[test]
    fn multipliers_enter_the_norm_whichever_differ_from_one() {
        let squares = [1.0, 10.0];
        for (multipliers, expected) in
            [([1.0, 1.0], 11.0), ([2.0, 1.0], 14.0), ([1.0, 2.0], 41.0), ([2.0, 3.0], 94.0)]
        {
            let bound = Bound::Whole { norm: 1.0, multipliers: multipliers.into() };
            assert_eq!(bound.whole_squared_norm(11.0, |group| squares[group]), expected);
        }
    }
}
