//! Which parameters are clipped together.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleVisitor, Param, ParamGroup, ParamId};
use burn::tensor::Tensor;

use crate::DpError;
use crate::model::FirstCopies;

/// A partition of the trained parameters of a model: the parts whose norms a policy looks at.
///
/// Parameters are known by their path, so that the partition of a saved run is that of the resumed one.
///
/// # Privacy
///
/// The partition is public. It must not be chosen by looking at private gradients.
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
    /// Group of each parameter by its path; `None` where all are one group.
    pub(crate) of: Option<BTreeMap<String, usize>>,
}

impl ParameterGroups {
    /// All parameters of any model in one group.
    pub fn whole() -> Self {
        Self { names: vec!["all".into()], of: None }
    }

    /// One group for each trained parameter.
    ///
    /// # Errors
    ///
    /// Refuses a model with nothing to train.
    pub fn per_parameter<M: Module>(model: &M) -> Result<Self, DpError> {
        Self::by_name(model, |_, path| Ok(path.to_string()))
    }

    /// One group for each layer: the parameters that have the same parent in the module tree.
    ///
    /// # Errors
    ///
    /// Refuses a model with nothing to train.
    pub fn per_layer<M: Module>(model: &M) -> Result<Self, DpError> {
        Self::by_name(model, |_, path| {
            Ok(path.rsplit_once('.').map_or(path, |(layer, _)| layer).to_string())
        })
    }

    /// One group for each module of the tree, by its path; where one module lies in another, the
    /// inner one has its parameters.
    ///
    /// # Errors
    ///
    /// Refuses a model with nothing to train, a trained parameter that is in no module of the list,
    /// and a module without trained parameters.
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
        groups.refuse_empty(modules.iter())?;
        Ok(groups)
    }

    /// One group for each parameter group of Burn, by name; a parameter goes to the first that matches.
    ///
    /// # Errors
    ///
    /// Refuses a model with nothing to train, a trained parameter that no group matches, and a group
    /// that gets no parameter.
    pub fn by_param_group<M: Module>(
        model: &M,
        groups: &[(&str, ParamGroup)],
    ) -> Result<Self, DpError> {
        let names = groups.iter().map(|(name, _)| (*name).to_string()).collect::<Vec<_>>();
        let found = Self::by_name(model, |id, path| {
            let mut matching = groups.iter().filter(|(_, group)| group.matches(id, Some(path)));
            matching.next().map(|(name, _)| (*name).to_string()).ok_or_else(|| ungrouped(path))
        })?;
        found.refuse_empty(names.iter())?;
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
        Ok(Self { names, of: Some(of) })
    }

    /// The group of each trained parameter, in the order in which the model visits them.
    pub(crate) fn of_model<M: Module>(&self, model: &M) -> Result<Vec<usize>, DpError> {
        trained(model).iter().map(|(_, path)| self.index_of(path)).collect()
    }

    fn refuse_empty<'a>(&self, asked: impl Iterator<Item = &'a String>) -> Result<(), DpError> {
        match asked.into_iter().find(|name| !self.names.contains(name)) {
            None => Ok(()),
            Some(name) => Err(DpError::invalid(
                "groups",
                format!(
                    "must each have a trained parameter, and `{name}` has none; check its path"
                ),
            )),
        }
    }

    /// Number of groups, at least 1.
    #[allow(clippy::len_without_is_empty)] // Never empty.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Names of the groups, in the order of their index.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The group of the parameter with that path.
    ///
    /// # Errors
    ///
    /// [`DpError::UnsupportedModel`] for a parameter that was not trained when the groups were made.
    pub fn index_of(&self, path: &str) -> Result<usize, DpError> {
        match &self.of {
            None => Ok(0),
            Some(of) => of.get(path).copied().ok_or_else(|| ungrouped(path)),
        }
    }
}

/// The parameters that require gradients, with their paths, each once.
fn trained<M: Module>(model: &M) -> Vec<(ParamId, String)> {
    #[derive(Default)]
    struct Trained {
        path: Vec<String>,
        first: FirstCopies,
        found: Vec<(ParamId, String)>,
    }

    impl ModuleVisitor for Trained {
        fn enter_module(&mut self, name: &str, _container_type: &str) {
            self.path.push(name.to_string());
        }

        fn exit_module(&mut self, _name: &str, _container_type: &str) {
            self.path.pop();
        }

        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if self.first.is_new(param) {
                self.found.push((param.id, self.path.join(".")));
            }
        }
    }

    let mut visitor = Trained::default();
    model.visit(&mut visitor);
    visitor.found
}

fn ungrouped(path: &str) -> DpError {
    DpError::UnsupportedModel {
        path: path.into(),
        reason:
            "it is trained and belongs to no clipping group; make the groups from the model as \
                 it is trained, or freeze the parameter"
                .into(),
    }
}

/// Groups `a`, `b` and `c`, each with the parameter of that name.
#[cfg(test)]
pub(crate) fn three_groups() -> ParameterGroups {
    let names: Vec<String> = ["a", "b", "c"].map(String::from).into();
    let of = names.iter().cloned().zip(0..).collect();
    ParameterGroups { names, of: Some(of) }
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
    fn layers_modules_and_parameters_are_partitions_in_the_order_of_the_model() {
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
    fn groups_of_burn_take_the_first_match_and_leave_nothing_out() {
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
    fn modules_that_leave_a_parameter_out_or_have_none_are_refused() {
        let net = net();
        let error = ParameterGroups::by_module(&net, ["encoder"]).unwrap_err().to_string();
        assert!(error.contains("head.weight"), "{error}");
        let error = ParameterGroups::by_module(&net, ["encoder", "head", "tail"]).unwrap_err();
        assert!(error.to_string().contains("`tail` has none"), "{error}");
        // A name is not a prefix of letters.
        assert!(ParameterGroups::by_module(&net, ["encoder", "hea"]).is_err());
    }
}
