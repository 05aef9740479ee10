//! Which clipping policy a run has.

use burn_dp::clipping::CountNoise;
use clap::{Args, ValueEnum};

use super::options::typed;
use super::{TrainError, checks};
use crate::data::ItemDataset;

/// The part of the training images that is public where a policy needs public images.
const PUBLIC_PART: usize = 10;

/// A clipping policy. `--clipping batch` is a training of its own.
#[derive(ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClippingName {
    /// The whole gradient to one threshold.
    #[default]
    Flat,
    /// Each layer to the same threshold.
    PerLayer,
    /// Every gradient to the same norm.
    Automatic,
    /// To a quantile of the norms, which is followed privately.
    Quantile,
    /// Each layer to a threshold in proportion to its norm on public images.
    Layerwise,
}

/// How a threshold follows its quantile.
#[derive(ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RuleName {
    /// By factors.
    #[default]
    Geometric,
    /// By differences.
    Linear,
}

/// The options of the policies, as they are typed.
#[derive(Args, Debug, Clone, Default)]
pub struct ClippingOptions {
    /// How gradients are clipped; --max-grad-norm is the threshold, or the first or master one.
    /// Also `batch`, with options of its own: `--clipping batch --help`.
    #[arg(long, value_enum, default_value_t = ClippingName::Flat)]
    pub clipping: ClippingName,
    /// Quantile: fraction of the examples that are not to be clipped [default: 0.5].
    #[arg(long, value_name = "Q", allow_hyphen_values = true)]
    pub target_quantile: Option<f64>,
    /// Quantile: learning rate of the threshold [default: 0.2].
    #[arg(long, value_name = "ETA", allow_hyphen_values = true)]
    pub quantile_lr: Option<f64>,
    /// Quantile: how the threshold moves [default: geometric].
    #[arg(long, value_enum)]
    pub quantile_rule: Option<RuleName>,
    /// Quantile: a threshold for each layer.
    #[arg(long)]
    pub quantile_per_layer: bool,
    /// Quantile: share of the cost of a step that the counts may use.
    #[arg(long, value_name = "S", conflicts_with = "count_noise", allow_hyphen_values = true)]
    pub count_share: Option<f64>,
    /// Quantile: standard deviation of the noise on each count [default: 1/20 of the batch size].
    #[arg(long, value_name = "SIGMA", allow_hyphen_values = true)]
    pub count_noise: Option<f64>,
    /// What the thresholds are multiplied by after each pass over the data [default: 1].
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub threshold_decay: Option<f64>,
    /// Layerwise: clip the whole gradient, after each layer was multiplied to the largest norm on
    /// public images.
    #[arg(long)]
    pub layer_multipliers: bool,
    /// Per-layer and layerwise: merge layers of similar norms on public images into this many groups.
    #[arg(long, value_name = "N")]
    pub layer_groups: Option<usize>,
    /// Training images that are taken as public, and not trained on, where a policy needs public
    /// images [default: a tenth].
    #[arg(long, value_name = "N")]
    pub public_size: Option<usize>,
}

/// A checked choice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClippingSettings {
    /// The policy.
    pub name: ClippingName,
    /// Quantile: the fraction, the learning rate and the rule.
    pub quantile: (f64, f64, RuleName),
    /// Quantile: whether each layer has a threshold.
    pub per_layer: bool,
    /// Quantile: the noise of the counts.
    pub count_noise: CountNoise,
    /// Factor of the thresholds after each pass over the data.
    pub decay: f64,
    /// Layerwise: whether the whole gradient is clipped.
    pub multipliers: bool,
    /// Number of groups that layers are merged into.
    pub groups: Option<usize>,
    /// Number of public images, if it was given.
    pub public_size: Option<usize>,
}

impl ClippingOptions {
    /// The first option that was given, if there is one.
    pub(super) fn given(&self) -> Option<&'static str> {
        let flat = self.clipping == ClippingName::Flat;
        let others = [
            ("--threshold-decay", self.threshold_decay.is_some()),
            ("--layer-multipliers", self.layer_multipliers),
            ("--layer-groups", self.layer_groups.is_some()),
            ("--public-size", self.public_size.is_some()),
        ];
        let policy = [("--clipping", !flat)].into_iter();
        let mut options = policy.chain(self.of_quantile()).chain(others);
        options.find_map(|(name, given)| given.then_some(name))
    }

    /// The options of quantile clipping, and whether they were given.
    fn of_quantile(&self) -> [(&'static str, bool); 6] {
        [
            ("--target-quantile", self.target_quantile.is_some()),
            ("--quantile-lr", self.quantile_lr.is_some()),
            ("--quantile-rule", self.quantile_rule.is_some()),
            ("--quantile-per-layer", self.quantile_per_layer),
            ("--count-share", self.count_share.is_some()),
            ("--count-noise", self.count_noise.is_some()),
        ]
    }

    /// Checks the options.
    ///
    /// # Errors
    ///
    /// For an option that does not belong to the policy, or whose value is impossible.
    pub(super) fn check(&self) -> Result<ClippingSettings, TrainError> {
        let name = self.clipping;
        let refuse_foreign = |options: &[(&'static str, bool)], needed: &str| {
            let choice = format!("with --clipping {}", typed(name));
            checks::refuse_foreign(options, &choice, &format!("--clipping {needed}"))
        };
        if name != ClippingName::Quantile {
            refuse_foreign(&self.of_quantile(), "quantile")?;
        }
        if name != ClippingName::Layerwise {
            refuse_foreign(&[("--layer-multipliers", self.layer_multipliers)], "layerwise")?;
        }
        if !matches!(name, ClippingName::Layerwise | ClippingName::PerLayer) {
            refuse_foreign(&[("--layer-groups", self.layer_groups.is_some())], "layerwise")?;
        }
        let target = self.target_quantile.unwrap_or(0.5);
        if !(0.0..=1.0).contains(&target) {
            let reason = format!("must be between 0 and 1, got {target}; try 0.5");
            return Err(TrainError::option("--target-quantile", reason));
        }
        let quantile_lr = self.quantile_lr.unwrap_or(0.2);
        if !(quantile_lr >= 0.0 && quantile_lr.is_finite()) {
            let reason = format!("must be at least 0, got {quantile_lr}; try 0.2");
            return Err(TrainError::option("--quantile-lr", reason));
        }
        if let Some(share) = self.count_share
            && !(share > 0.0 && share < 1.0)
        {
            let reason = format!("must be between 0 and 1, both excluded, got {share}; try 0.01");
            return Err(TrainError::option("--count-share", reason));
        }
        for (option, value) in
            [("--count-noise", self.count_noise), ("--threshold-decay", self.threshold_decay)]
        {
            if let Some(value) = value
                && !(value > 0.0 && value.is_finite())
            {
                let reason = format!("must be greater than 0, got {value}; leave it out");
                return Err(TrainError::option(option, reason));
            }
        }
        for (option, value) in
            [("--layer-groups", self.layer_groups), ("--public-size", self.public_size)]
        {
            if value == Some(0) {
                return Err(TrainError::option(option, "must be at least 1, got 0; leave it out"));
            }
        }
        let settings = ClippingSettings {
            name,
            quantile: (target, quantile_lr, self.quantile_rule.unwrap_or_default()),
            per_layer: self.quantile_per_layer,
            count_noise: match (self.count_share, self.count_noise) {
                (Some(share), _) => CountNoise::Share(share),
                (None, Some(std)) => CountNoise::Std(std),
                (None, None) => CountNoise::default(),
            },
            decay: self.threshold_decay.unwrap_or(1.0),
            multipliers: self.layer_multipliers,
            groups: self.layer_groups,
            public_size: self.public_size,
        };
        if !settings.needs_public() {
            refuse_foreign(&[("--public-size", self.public_size.is_some())], "layerwise")?;
        }
        Ok(settings)
    }
}

impl ClippingSettings {
    /// Flat clipping, as in a run without options.
    pub fn flat() -> Self {
        Self {
            name: ClippingName::Flat,
            quantile: (0.5, 0.2, RuleName::Geometric),
            per_layer: false,
            count_noise: CountNoise::default(),
            decay: 1.0,
            multipliers: false,
            groups: None,
            public_size: None,
        }
    }

    /// Whether the policy looks at public images.
    pub(super) fn needs_public(&self) -> bool {
        self.name == ClippingName::Layerwise || self.groups.is_some()
    }

    /// Whether the public norms are measured anew after each pass over the data.
    pub(super) fn adapts(&self) -> bool {
        self.name == ClippingName::Layerwise
    }

    /// Threshold to start with, if none is given and the recipe would choose another policy's.
    pub(super) fn default_norm(&self, recipe: f64) -> f64 {
        match self.name {
            ClippingName::Quantile => 0.1,
            _ => recipe,
        }
    }

    /// Divides the training examples into private and public ones.
    ///
    /// # Errors
    ///
    /// When no example would be left to train on.
    pub(super) fn split<T: Clone>(
        &self,
        train: ItemDataset<T>,
    ) -> Result<(ItemDataset<T>, ItemDataset<T>), TrainError> {
        if !self.needs_public() {
            return Ok((train, ItemDataset::new(Vec::new())));
        }
        let mut items = train.items().to_vec();
        let size = self.public_size.unwrap_or((items.len() / PUBLIC_PART).max(1));
        if size >= items.len() {
            let reason = format!(
                "must be less than the {} training examples, got {size}; give a smaller one",
                items.len()
            );
            return Err(TrainError::option("--public-size", reason));
        }
        let public = items.split_off(items.len() - size);
        Ok((ItemDataset::new(items), ItemDataset::new(public)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn options(clipping: ClippingName) -> ClippingOptions {
        ClippingOptions { clipping, ..ClippingOptions::default() }
    }

    #[test]
    fn options_of_another_policy_are_refused_by_name() {
        let flat = options(ClippingName::Flat);
        for (options, name) in [
            (ClippingOptions { target_quantile: Some(0.5), ..flat.clone() }, "--target-quantile"),
            (ClippingOptions { count_share: Some(0.5), ..flat.clone() }, "--count-share"),
            (ClippingOptions { layer_multipliers: true, ..flat.clone() }, "--layer-multipliers"),
            (ClippingOptions { layer_groups: Some(2), ..flat.clone() }, "--layer-groups"),
            (ClippingOptions { public_size: Some(2), ..flat.clone() }, "--public-size"),
        ] {
            let error = options.check().unwrap_err().to_string();
            assert!(error.starts_with(name) && error.contains("--clipping flat"), "{error}");
            assert_eq!(options.given(), Some(name));
        }
        assert_eq!(flat.check().unwrap(), ClippingSettings::flat());
        assert_eq!(flat.given(), None);
    }

    #[test]
    fn impossible_values_are_refused_by_name() {
        let quantile = options(ClippingName::Quantile);
        for (options, name) in [
            (ClippingOptions { target_quantile: Some(1.5), ..quantile.clone() }, "--target"),
            (ClippingOptions { quantile_lr: Some(-1.0), ..quantile.clone() }, "--quantile-lr"),
            (ClippingOptions { count_share: Some(1.0), ..quantile.clone() }, "--count-share"),
            (ClippingOptions { count_noise: Some(0.0), ..quantile.clone() }, "--count-noise"),
            (ClippingOptions { threshold_decay: Some(f64::NAN), ..quantile }, "--threshold-decay"),
        ] {
            let error = options.check().unwrap_err().to_string();
            assert!(error.starts_with(name), "{error}");
        }
    }
}
