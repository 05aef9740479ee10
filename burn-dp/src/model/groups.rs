//! Groups of parameters that are clipped together.

use std::collections::BTreeMap;

use burn::module::{Module, ParamGroup, ParamId};

use super::clusters::clusters;
use crate::DpError;
use crate::error::positive;
use crate::walk::for_each_trained;

/// A partition of the trained parameters of a model into groups that are clipped separately.
///
/// Parameters are identified by their paths, so a resumed run has the partition of the saved run.
///
/// # Privacy
///
/// The partition is public: it is determined by the module tree, or from
/// [`PublicNorms`](crate::clipping::PublicNorms), whose data the privacy statement names.
///
/// # Example
///
/// ```
/// # use burn::{module::Module, nn::{Linear, LinearConfig}, tensor::Device};
/// # use burn_dp::DpError;
/// # use burn_dp::model::ParameterGroups;
/// # use burn_dp::nn::{IntoPrivate, Private};
/// # #[derive(Module, Debug)]
/// # struct Net { first: Private<Linear>, second: Private<Linear> }
/// # fn main() -> Result<(), DpError> {
/// # let device = Device::flex().autodiff();
/// # let model = Net {
/// #     first: LinearConfig::new(4, 3).init(&device).private(),
/// #     second: LinearConfig::new(3, 2).init(&device).private(),
/// # };
/// let layers = ParameterGroups::per_layer(&model)?;
/// assert_eq!(layers.names(), ["first", "second"]);
/// assert_eq!(layers.index_of("second.bias")?, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterGroups {
    pub(crate) names: Vec<String>,
    /// Group of each parameter by its path; `None` if all parameters are one group.
    pub(crate) of: Option<BTreeMap<String, usize>>,
    /// The public data that the partition was derived from, if any.
    pub(crate) origin: Option<String>,
}

impl ParameterGroups {
    /// Puts all parameters of any model into one group.
    pub fn whole() -> Self {
        Self { names: vec!["all".into()], of: None, origin: None }
    }

    /// Creates one group for each trained parameter.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::UnsupportedModel`] if the model has no trained parameter.
    pub fn per_parameter<M: Module>(model: &M) -> Result<Self, DpError> {
        Self::by_name(model, |_, path| Ok(path.to_string()))
    }

    /// Creates one group for each layer: the parameters with the same parent in the module tree.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::UnsupportedModel`] if the model has no trained parameter.
    pub fn per_layer<M: Module>(model: &M) -> Result<Self, DpError> {
        Self::by_name(model, |_, path| {
            Ok(path.rsplit_once('.').map_or(path, |(layer, _)| layer).to_string())
        })
    }

    /// Creates one group for each module of the list, given by its path. If one module contains
    /// another, a parameter belongs to the inner module.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::UnsupportedModel`] if the model has no trained parameter or one that is
    /// not in any module of the list, and [`DpError::InvalidArgument`] if a module has no trained
    /// parameter.
    pub fn by_module<M: Module>(
        model: &M,
        modules: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Self, DpError> {
        let modules: Vec<String> = modules.into_iter().map(Into::into).collect();
        let inside = |path: &str, module: &str| {
            path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let groups = Self::by_name(model, |_, path| {
            let owners = modules.iter().filter(|module| inside(path, module));
            owners.max_by_key(|module| module.len()).cloned().ok_or_else(|| ungrouped(path))
        })?;
        groups.check_all_used(&modules)?;
        Ok(groups)
    }

    /// Creates one group for each named parameter group of Burn. A parameter belongs to the first
    /// group that matches it.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::UnsupportedModel`] if the model has no trained parameter or one that no
    /// group matches, and [`DpError::InvalidArgument`] if a group gets no parameter.
    pub fn by_param_group<M: Module>(
        model: &M,
        groups: &[(&str, ParamGroup)],
    ) -> Result<Self, DpError> {
        let names = groups.iter().map(|(name, _)| (*name).to_string()).collect::<Vec<_>>();
        let found = Self::by_name(model, |id, path| {
            let mut matching = groups.iter().filter(|(_, group)| group.matches(id, Some(path)));
            matching.next().map(|(name, _)| (*name).to_string()).ok_or_else(|| ungrouped(path))
        })?;
        found.check_all_used(&names)?;
        Ok(found)
    }

    fn by_name<M: Module>(
        model: &M,
        name: impl Fn(&ParamId, &str) -> Result<String, DpError>,
    ) -> Result<Self, DpError> {
        let (mut names, mut of) = (Vec::<String>::new(), BTreeMap::new());
        for (id, path) in trained(model) {
            let name = name(&id, &path)?;
            let index = names.iter().position(|known| *known == name).unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            });
            of.insert(path, index);
        }
        if names.is_empty() {
            return Err(DpError::UnsupportedModel {
                path: String::new(),
                reason: "no parameter requires a gradient, so there is nothing to clip; put the \
                         model on an autodiff device (`device.autodiff()`) or unfreeze a layer"
                    .into(),
            });
        }
        Ok(Self { names, of: Some(of), origin: None })
    }

    /// Returns the group of each trained parameter, in the order in which Burn visits them.
    pub(crate) fn of_model<M: Module>(&self, model: &M) -> Result<Vec<usize>, DpError> {
        trained(model).iter().map(|(_, path)| self.index_of(path)).collect()
    }

    /// Merges groups with similar norms into at most `count` groups: sorted by norm, they are split
    /// so that the sum of squared deviations of the logarithms is minimal.
    ///
    /// # Arguments
    ///
    /// - `norms`: the norm of each group
    /// - `origin`: the public data that the norms were measured on
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if there is not one norm for each group, if a norm is
    /// not positive and finite, or if `count` is 0.
    pub(crate) fn merged_by_norm(
        &self,
        norms: &[f64],
        count: usize,
        origin: &str,
    ) -> Result<Self, DpError> {
        if norms.len() != self.len() {
            let reason =
                format!("must be one for each of {} groups, got {}", self.len(), norms.len());
            return Err(DpError::invalid("norms", reason));
        }
        norms.iter().try_for_each(|&norm| positive("norms", norm))?;
        if count == 0 {
            return Err(DpError::invalid("count", "must be at least 1, got 0"));
        }
        // Merged groups are in the order of their first members.
        let mut names: Vec<String> = Vec::new();
        let mut new_of: Vec<usize> = Vec::with_capacity(norms.len());
        let mut seen: BTreeMap<usize, usize> = BTreeMap::new();
        for (name, part) in self.names.iter().zip(clusters(norms, count)) {
            let index = *seen.entry(part).or_insert_with(|| {
                names.push(String::new());
                names.len() - 1
            });
            new_of.push(index);
            if !names[index].is_empty() {
                names[index].push('+');
            }
            names[index].push_str(name);
        }
        let of = self
            .of
            .as_ref()
            .map(|of| of.iter().map(|(path, &group)| (path.clone(), new_of[group])).collect());
        let origin = match &self.origin {
            Some(before) if before != origin => format!("{before} and {origin}"),
            _ => origin.to_string(),
        };
        Ok(Self { names, of, origin: Some(origin) })
    }

    fn check_all_used(&self, names: &[String]) -> Result<(), DpError> {
        match names.iter().find(|name| !self.names.contains(name)) {
            None => Ok(()),
            Some(name) => Err(DpError::invalid(
                "groups",
                format!(
                    "must each have a trained parameter, and `{name}` has none; check its path"
                ),
            )),
        }
    }

    /// Returns the number of groups, at least 1.
    #[allow(clippy::len_without_is_empty)] // Never empty.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns the names of the groups, in the order of their index.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the description of the public data that the partition was derived from, if any.
    pub fn public_data(&self) -> Option<&str> {
        self.origin.as_deref()
    }

    /// Returns the names, and the data that the partition was derived from, for descriptions.
    pub(crate) fn describe(&self) -> String {
        let names = self.names.join(", ");
        match &self.origin {
            None => names,
            Some(origin) => format!("{names}; merged by norms on {origin}"),
        }
    }

    /// Returns the group of the parameter at `path`.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::UnsupportedModel`] if the parameter was not trained when the groups were
    /// created.
    pub fn index_of(&self, path: &str) -> Result<usize, DpError> {
        match &self.of {
            None => Ok(0),
            Some(of) => of.get(path).copied().ok_or_else(|| ungrouped(path)),
        }
    }
}

/// Returns identity and path of each trained parameter.
fn trained<M: Module>(model: &M) -> Vec<(ParamId, String)> {
    let mut trained = Vec::new();
    for_each_trained(model, |path, parameter| trained.push((parameter.id, path.to_string())));
    trained
}

fn ungrouped(path: &str) -> DpError {
    DpError::UnsupportedModel {
        path: path.into(),
        reason: "it is trained and belongs to no clipping group; create the groups from the model \
                 that is trained, or freeze the parameter"
            .into(),
    }
}

/// Returns groups `a`, `b` and `c`, each with the parameter of that name.
#[cfg(test)]
pub(crate) fn three_groups() -> ParameterGroups {
    let names: Vec<String> = ["a", "b", "c"].map(String::from).into();
    let of = names.iter().cloned().zip(0..).collect();
    ParameterGroups { names, of: Some(of), origin: None }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::nn::{Linear, LinearConfig};
    use burn::tensor::Device;

    use super::*;
    use crate::nn::{IntoPrivate, Private};

    #[derive(Module, Debug)]
    struct Net {
        encoder: Vec<Private<Linear>>,
        head: Private<Linear>,
    }

    fn net() -> Net {
        let device = Device::flex().autodiff();
        let layer = || LinearConfig::new(2, 2).init(&device).private();
        Net { encoder: vec![layer(), layer()], head: layer() }
    }

    #[test]
    fn layers_modules_and_parameters_are_groups_in_model_order() {
        let net = net();
        let layers = ParameterGroups::per_layer(&net).unwrap();
        assert_eq!(layers.names(), ["encoder.0", "encoder.1", "head"]);
        assert_eq!(ParameterGroups::per_parameter(&net).unwrap().len(), 6);
        let modules = ParameterGroups::by_module(&net, ["head", "encoder", "encoder.1"]).unwrap();
        assert_eq!(modules.names(), ["encoder", "encoder.1", "head"]);
        assert_eq!(modules.index_of("encoder.1.bias").unwrap(), 1);
        assert_eq!(ParameterGroups::whole().index_of("anything").unwrap(), 0);
    }

    #[test]
    fn param_groups_take_the_first_match_and_cover_every_parameter() {
        let net = net();
        let bias = || ParamGroup::from_predicate("bias");
        let groups =
            ParameterGroups::by_param_group(&net, &[("bias", bias()), ("rest", ParamGroup::all())])
                .unwrap();
        assert_eq!(
            groups.index_of("head.bias").unwrap(),
            groups.index_of("encoder.0.bias").unwrap()
        );
        assert_ne!(groups.index_of("head.bias").unwrap(), groups.index_of("head.weight").unwrap());
        let error = ParameterGroups::by_param_group(&net, &[("bias", bias())]).unwrap_err();
        assert!(error.to_string().contains("no clipping group"), "{error}");
    }

    #[test]
    fn modules_must_cover_every_parameter_and_have_one() {
        let net = net();
        let error = ParameterGroups::by_module(&net, ["encoder"]).unwrap_err().to_string();
        assert!(error.contains("head.weight"), "{error}");
        let error = ParameterGroups::by_module(&net, ["encoder", "head", "tail"]).unwrap_err();
        assert!(error.to_string().contains("`tail` has none"), "{error}");
        // A path matches whole names, not prefixes of names.
        assert!(ParameterGroups::by_module(&net, ["encoder", "hea"]).is_err());
    }

    #[test]
    fn groups_are_cut_at_the_gaps_between_norms() {
        let layers = three_groups();
        let merge = |norms: &[f64], count| layers.merged_by_norm(norms, count, "drawings");
        let merged = merge(&[10.0, 0.1, 9.0], 2).unwrap();
        assert_eq!(merged.public_data(), Some("drawings"));
        assert_eq!(merged.names(), ["a+c", "b"]);
        assert_eq!(merged.index_of("c").unwrap(), 0);
        assert_eq!(merge(&[1.0, 1.0, 1.0], 9).unwrap().len(), 3);
        assert_eq!(merge(&[1.0, 2.0, 3.0], 1).unwrap().len(), 1);
        assert!(merge(&[1.0, 0.0, 3.0], 2).is_err());
        assert!(merge(&[1.0], 2).is_err());
    }
}
