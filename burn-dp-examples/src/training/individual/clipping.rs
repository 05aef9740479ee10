//! Options of the clipping policy.

use burn_dp::clipping::CountNoise;
use clap::{Args, ValueEnum};

use crate::training::options::{Given, PUBLIC_OPTIONS, typed};
use crate::training::{TrainError, checks};

/// A clipping policy. `--clipping batch` selects another training mode.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClippingName {
    /// The whole gradient to one threshold.
    Flat,
    /// Each layer to the same threshold.
    PerLayer,
    /// Every gradient to the same norm.
    Automatic,
    /// To a quantile of the norms, which is estimated privately.
    Quantile,
    /// Each layer to a threshold proportional to its norm on public images.
    Layerwise,
}

/// How a threshold moves to its quantile.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleName {
    /// By factors.
    Geometric,
    /// By differences.
    Linear,
}

/// The clipping policy and its options.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Clipping")]
pub struct ClippingOptions {
    /// Clipping threshold of each example's gradient [default: from the recipe; 0.1 for quantile].
    #[arg(long, value_name = "C", allow_hyphen_values = true)]
    pub max_grad_norm: Option<f64>,
    /// How gradients are clipped; --max-grad-norm is the threshold, or the initial or master
    /// threshold. `batch` selects another training mode: `--clipping batch --help`.
    #[arg(long, value_enum, default_value_t = ClippingName::Flat)]
    pub clipping: ClippingName,
    /// Quantile: fraction of the examples that should not be clipped.
    #[arg(long, value_name = "Q", default_value_t = 0.5, allow_hyphen_values = true)]
    pub target_quantile: f64,
    /// Quantile: learning rate of the threshold.
    #[arg(long, value_name = "ETA", default_value_t = 0.2, allow_hyphen_values = true)]
    pub quantile_lr: f64,
    /// Quantile: how the threshold moves.
    #[arg(long, value_enum, default_value_t = RuleName::Geometric)]
    pub quantile_rule: RuleName,
    /// Quantile: a threshold for each layer.
    #[arg(long)]
    pub quantile_per_layer: bool,
    /// Quantile: share of the cost of a step that the counts may use.
    #[arg(long, value_name = "S", conflicts_with = "count_noise", allow_hyphen_values = true)]
    pub count_share: Option<f64>,
    /// Quantile: standard deviation of the noise on each count [default: 1/20 of the batch size].
    #[arg(long, value_name = "SIGMA", allow_hyphen_values = true)]
    pub count_noise: Option<f64>,
    /// Factor of the thresholds after each pass over the data.
    #[arg(long, value_name = "D", default_value_t = 1.0, allow_hyphen_values = true)]
    pub threshold_decay: f64,
    /// Layerwise: scale each layer to the largest norm on public images, then clip the whole
    /// gradient.
    #[arg(long)]
    pub layer_multipliers: bool,
    /// Per-layer and layerwise: merge layers of similar norms on public images into this many
    /// groups.
    #[arg(long, value_name = "N")]
    pub layer_groups: Option<usize>,
}

/// Checked options of the policy.
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
}

/// The options of quantile clipping.
const OF_QUANTILE: [&str; 6] = [
    "--target-quantile",
    "--quantile-lr",
    "--quantile-rule",
    "--quantile-per-layer",
    "--count-share",
    "--count-noise",
];

impl ClippingOptions {
    /// Checks the options.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] for an option of another policy, or an impossible value.
    pub(super) fn check(&self, given: &Given) -> Result<ClippingSettings, TrainError> {
        let name = self.clipping;
        let refuse = |options: &[&'static str], needed: &str| {
            let choice = format!("with --clipping {}", typed(name));
            given.refuse(options, &choice, &format!("--clipping {needed}"))
        };
        if name != ClippingName::Quantile {
            refuse(&OF_QUANTILE, "quantile")?;
        }
        if name != ClippingName::Layerwise {
            refuse(&["--layer-multipliers"], "layerwise")?;
        }
        if !matches!(name, ClippingName::Layerwise | ClippingName::PerLayer) {
            refuse(&["--layer-groups"], "layerwise")?;
        }
        let between = |value: f64| (0.0..=1.0).contains(&value);
        let target = [("--target-quantile", self.target_quantile)];
        checks::in_range(target, between, "between 0 and 1")?;
        let not_negative = |value: f64| value >= 0.0 && value.is_finite();
        checks::in_range([("--quantile-lr", self.quantile_lr)], not_negative, "at least 0")?;
        let share = self.count_share.map(|share| ("--count-share", share));
        let inside = |value: f64| value > 0.0 && value < 1.0;
        checks::in_range(share, inside, "between 0 and 1, both excluded")?;
        let noise = self.count_noise.map(|noise| ("--count-noise", noise));
        checks::positive(noise.into_iter().chain([("--threshold-decay", self.threshold_decay)]))?;
        checks::at_least_one(self.layer_groups.map(|groups| ("--layer-groups", groups)))?;
        let settings = ClippingSettings {
            name,
            quantile: (self.target_quantile, self.quantile_lr, self.quantile_rule),
            per_layer: self.quantile_per_layer,
            count_noise: match (self.count_share, self.count_noise) {
                (Some(share), _) => CountNoise::Share(share),
                (None, Some(std)) => CountNoise::Std(std),
                (None, None) => CountNoise::default(),
            },
            decay: self.threshold_decay,
            multipliers: self.layer_multipliers,
            groups: self.layer_groups,
        };
        if !settings.needs_public() {
            refuse(&PUBLIC_OPTIONS, "layerwise")?;
        }
        Ok(settings)
    }
}

impl ClippingSettings {
    /// Returns whether the policy needs public images.
    pub(super) fn needs_public(&self) -> bool {
        self.name == ClippingName::Layerwise || self.groups.is_some()
    }

    /// Returns whether the public norms are measured again after each pass over the data.
    pub(super) fn adapts(&self) -> bool {
        self.name == ClippingName::Layerwise
    }

    /// Returns the threshold where none is given. The recipe's threshold is for fixed thresholds.
    pub(super) fn default_norm(&self, recipe: f64) -> f64 {
        match self.name {
            ClippingName::Quantile => 0.1,
            _ => recipe,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::training::individual::{IndividualOptions, Settings};
    use crate::training::options::TrainingOptions;

    fn error(line: &str) -> String {
        let words = ["train"].into_iter().chain(line.split(' '));
        let options = IndividualOptions::read(words).unwrap();
        Settings::new(options, None).unwrap_err().to_string()
    }

    #[test]
    fn options_of_another_policy_are_refused_by_name() {
        for line in [
            "--target-quantile 0.5",
            "--count-share 0.5",
            "--layer-multipliers",
            "--layer-groups 2",
            "--public-size 2",
        ] {
            let name = line.split(' ').next().unwrap();
            let text = error(line);
            assert!(text.starts_with(name) && text.contains("--clipping flat"), "{text}");
            // Even if the value is the default.
            let text = error(&format!("{line} --non-private"));
            assert!(text.starts_with(name) && text.contains("with --non-private"), "{text}");
        }
    }

    #[test]
    fn impossible_values_are_refused_by_name() {
        for line in [
            "--target-quantile 1.5",
            "--quantile-lr -1",
            "--count-share 1",
            "--count-noise 0",
            "--threshold-decay NaN",
        ] {
            let name = line.split(' ').next().unwrap();
            let text = error(&format!("--clipping quantile {line}"));
            assert!(text.starts_with(name), "{text}");
        }
    }
}
