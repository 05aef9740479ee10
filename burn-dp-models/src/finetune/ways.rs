//! The choice of the trained parameters of a model.

use burn::module::{Module, ParamGroup};
use burn_dp_examples::training::progress::counted;
use burn_dp_examples::training::{TrainError, checks, typed};

use super::options::{TrainingOptions, Way};
use super::packing::scheme;
use crate::LoraTargets;
use crate::weights::{is_in, parameters};

/// The parts of a model that the ways of training use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts {
    /// Path of the head of a classifier.
    pub(super) head: Option<&'static str>,
    /// Path of another part that the checkpoint lacks. Adapters are trained with all of it.
    pub(super) new: Option<&'static str>,
    /// Layers with adapters by default.
    pub(super) adapted: &'static [&'static str],
}

impl Parts {
    /// Returns the paths of the parts that are fully trained and saved with adapters.
    pub(super) fn with_adapters(self) -> impl Iterator<Item = &'static str> + Clone {
        self.head.into_iter().chain(self.new)
    }
}

/// Returns the way of training.
///
/// # Errors
///
/// Returns [`TrainError::Option`] if options contradict each other, or a classifier is needed.
pub(super) fn way(options: &TrainingOptions, parts: Parts) -> Result<Way, TrainError> {
    let default = if options.lora.is_some() { Way::Lora } else { Way::Full };
    let way = options.train.unwrap_or(default);
    let refuse = |name, reason: &str| Err(TrainError::option(name, reason));
    if way == Way::Lora && options.lora.is_none() {
        return refuse("--lora", "must be given with --train lora: the rank of the adapters");
    }
    checks::at_least_one([("--lora", options.lora.unwrap_or(1))])?;
    if way != Way::Lora {
        let reason = format!("is for adapters, not for --train {}; leave it out", typed(way));
        let given = [
            ("--lora", options.lora.is_some()),
            ("--lora-layers", !options.lora_layers.is_empty()),
            ("--lora-alpha", options.lora_alpha.is_some()),
            ("--packed-base", options.packed_base.is_some()),
            ("--merge", options.merge),
        ];
        if let Some((name, _)) = given.into_iter().find(|(_, given)| *given) {
            return refuse(name, &reason);
        }
    }
    if options.blocks.is_some() && way != Way::Head {
        return refuse("--blocks", "is for --train head; leave it out");
    }
    if way == Way::Probe && parts.head.is_none() {
        let reason = "probe is for classifiers; generate has no head of its own";
        return refuse("--train", reason);
    }
    if options.lora_alpha.is_some_and(|alpha| !(alpha > 0.0 && alpha.is_finite())) {
        return refuse("--lora-alpha", "must be a number greater than 0");
    }
    Ok(way)
}

/// Returns the model in which only the parameters to train require a gradient, and the
/// adapters.
///
/// # Errors
///
/// Returns the errors of [`way`], and [`TrainError::Option`] for a layer that the
/// model lacks.
pub(super) fn choose<M: Module>(
    options: &TrainingOptions,
    model: M,
    parts: Parts,
) -> Result<(M, Option<LoraTargets>), TrainError> {
    let head = |path: &str| parts.head.is_some_and(|head| is_in(head, path));
    match way(options, parts)? {
        Way::Full => Ok((model, None)),
        Way::Bias => {
            let group = group(&model, |stored, path| stored.ends_with(".bias") || head(path));
            Ok((model.freeze().unfreeze_group(group), None))
        }
        Way::Head | Way::Probe => {
            let few = if parts.head.is_some() { 0 } else { 1 };
            if options.blocks.is_some() && blocks(&model) == 0 {
                let reason =
                    "is for models with numbered blocks, and a ResNet has none; leave it out";
                return Err(TrainError::option("--blocks", reason));
            }
            if options.blocks.is_some_and(|count| count > blocks(&model)) {
                let reason = format!(
                    "must be at most the {} of this model, got {}",
                    counted(blocks(&model), "block"),
                    options.blocks.unwrap_or(0)
                );
                return Err(TrainError::option("--blocks", reason));
            }
            let first = blocks(&model).saturating_sub(options.blocks.unwrap_or(few));
            let last = |stored: &str| block(stored).is_some_and(|block| block >= first);
            let is_trained = |stored: &str, path: &str| {
                head(path) || last(stored) || parts.head.is_none() && stored.contains(".ln_f.")
            };
            let group = group(&model, is_trained);
            Ok((model.freeze().unfreeze_group(group), None))
        }
        Way::Lora => {
            let rank = options.lora.unwrap_or(1);
            let alpha = options.lora_alpha.unwrap_or(rank as f64);
            let layers = layers(options, rank, parts.adapted)?;
            let targets = LoraTargets::new(&model, &layers, alpha, parts.with_adapters());
            let is_default = options.lora_layers.is_empty();
            let option = if is_default { "--lora" } else { "--lora-layers" };
            let targets = targets.map_err(|reason| TrainError::option(option, reason))?;
            let targets = match options.packed_base {
                Some(packing) => {
                    let scheme = scheme(packing, &model, &targets)?;
                    targets.with_packed_base(scheme)
                }
                None => targets,
            };
            let is_trained = |path: &str| parts.with_adapters().any(|part| is_in(part, path));
            let heads = group(&model, |_, path| is_trained(path));
            let model = targets.attach(model)?;
            let model = if parts.head.is_some() { model.unfreeze_group(heads) } else { model };
            Ok((model, Some(targets)))
        }
    }
}

/// Returns the layers with adapters, and their ranks.
fn layers(
    options: &TrainingOptions,
    rank: usize,
    default: &[&str],
) -> Result<Vec<(String, usize)>, TrainError> {
    if options.lora_layers.is_empty() && default.is_empty() {
        let reason = "is required: this model has no default adapter layers";
        return Err(TrainError::option("--lora-layers", reason));
    }
    if options.lora_layers.is_empty() {
        return Ok(default.iter().map(|name| (name.to_string(), rank)).collect());
    }
    let refuse = |reason: String| Err(TrainError::option("--lora-layers", reason));
    let layer = |layer: &String| {
        let (name, own) = match layer.split_once('=') {
            None => (layer.trim(), Ok(rank)),
            Some((name, rank)) => (name.trim(), rank.trim().parse()),
        };
        match own {
            _ if name.is_empty() => refuse(format!(
                "must have a name before each comma and equals sign, got `{}`",
                options.lora_layers.join(",")
            )),
            Ok(rank) => Ok((name.to_string(), rank)),
            Err(_) => {
                refuse(format!("must have a whole number after the equals sign, got `{layer}`"))
            }
        }
    };
    options.lora_layers.iter().map(layer).collect()
}

/// Returns the parameters whose stored name and path satisfy a condition.
fn group<M: Module>(model: &M, wanted: impl Fn(&str, &str) -> bool) -> ParamGroup {
    let mut paths = Vec::new();
    parameters(model, |name, _| {
        if wanted(&name.stored, &name.path) {
            paths.push(name.path);
        }
    });
    ParamGroup::from_paths(paths)
}

/// Returns the index of the block that a parameter belongs to.
fn block(stored: &str) -> Option<usize> {
    let mut names = stored.split('.');
    names.find(|name| ["h", "layer"].contains(name))?;
    names.next()?.parse().ok()
}

/// Returns the number of blocks.
fn blocks<M: Module>(model: &M) -> usize {
    let mut count = 0;
    parameters(model, |name, _| {
        count = count.max(block(&name.stored).map_or(0, |block| block + 1));
    });
    count
}
