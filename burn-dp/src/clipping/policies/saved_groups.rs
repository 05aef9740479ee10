use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::DpError;
use crate::model::ParameterGroups;
use crate::public_data::checked_origin;

/// The groups of a policy, as data.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedGroups {
    names: Vec<String>,
    /// Group of each parameter by its path; `None` if all parameters are one group.
    parameters: Option<BTreeMap<String, usize>>,
    public_data: Option<String>,
}

impl From<&ParameterGroups> for SavedGroups {
    fn from(groups: &ParameterGroups) -> Self {
        let ParameterGroups { names, of, origin } = groups.clone();
        Self { names, parameters: of, public_data: origin }
    }
}

/// Checks groups that were read: each has a parameter, and each parameter a group.
impl TryFrom<SavedGroups> for ParameterGroups {
    type Error = DpError;

    fn try_from(saved: SavedGroups) -> Result<Self, DpError> {
        let SavedGroups { names, parameters, public_data } = saved;
        let used: BTreeSet<usize> = match &parameters {
            Some(parameters) => parameters.values().copied().collect(),
            None => [0].into(),
        };
        if names.is_empty() || !used.iter().copied().eq(0..names.len()) {
            let reason = format!(
                "must each have a parameter, and the parameters of groups {used:?} were read for \
                 {} names",
                names.len()
            );
            return Err(DpError::invalid("groups", reason));
        }
        let origin = public_data.map(checked_origin).transpose()?;
        Ok(Self { names, of: parameters, origin })
    }
}
