//! Checked settings of the clipping policy.

use burn_dp::clipping::CountNoise;

use crate::training::options::{ClippingName, PUBLIC_OPTIONS, typed};
use crate::training::quantile::RuleName;
use crate::training::{TrainError, TrainOptions, checks};

/// Checked options of the policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClippingSettings {
    /// The policy.
    pub name: ClippingName,
    /// Quantile: the fraction, the learning rate and the rule.
    pub quantile: (f64, f64, RuleName),
    /// Quantile: the noise of the counts.
    pub count_noise: CountNoise,
    /// Factor of the thresholds after each pass over the data.
    pub decay: f64,
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

impl ClippingSettings {
    /// Checks the options.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] for an option of another policy, or an impossible value.
    pub(super) fn new(options: &TrainOptions) -> Result<Self, TrainError> {
        let TrainOptions { individual, layers, quantile, given, .. } = options;
        let name = options.clipping.and_then(|name| name.first).unwrap_or(ClippingName::Flat);
        let refuse = |options: &[&'static str], needed: &str| {
            let choice = format!("with --clipping {}", typed(name));
            given.refuse(options, &choice, &format!("--clipping {needed}"))
        };
        if !name.is_adaptive() {
            refuse(&OF_QUANTILE, "quantile")?;
        }
        name.check_given(given, "--max-grad-norm")?;
        let between = |value: f64| (0.0..=1.0).contains(&value);
        let target = [("--target-quantile", quantile.target_quantile)];
        checks::in_range(target, between, "between 0 and 1")?;
        let not_negative = |value: f64| value >= 0.0 && value.is_finite();
        checks::in_range([("--quantile-lr", quantile.quantile_lr)], not_negative, "at least 0")?;
        let share = quantile.count_share.map(|share| ("--count-share", share));
        let inside = |value: f64| value > 0.0 && value < 1.0;
        checks::in_range(share, inside, "between 0 and 1, both excluded")?;
        let noise = individual.count_noise.map(|noise| ("--count-noise", noise));
        checks::positive(noise)?;
        layers.check()?;
        let settings = Self {
            name: match name {
                ClippingName::Quantile if individual.quantile_per_layer => {
                    ClippingName::LayerQuantile
                }
                name => name,
            },
            quantile: (quantile.target_quantile, quantile.quantile_lr, quantile.quantile_rule),
            count_noise: match (quantile.count_share, individual.count_noise) {
                (Some(share), _) => CountNoise::Share(share),
                (None, Some(std)) => CountNoise::Std(std),
                (None, None) => CountNoise::default(),
            },
            decay: layers.threshold_decay,
            groups: layers.layer_groups,
        };
        if !settings.needs_public() {
            refuse(&PUBLIC_OPTIONS, "layerwise")?;
        }
        Ok(settings)
    }

    /// Returns whether the policy needs public images.
    pub(super) fn needs_public(&self) -> bool {
        self.name.follows_public() || self.groups.is_some()
    }

    /// Returns whether the public norms are measured again after each pass over the data.
    pub(super) fn adapts(&self) -> bool {
        self.name.follows_public()
    }

    /// Returns the threshold where none is given. The recipe's threshold is for fixed thresholds.
    pub(super) fn default_norm(&self, recipe: f64) -> f64 {
        if self.name.is_adaptive() { 0.1 } else { recipe }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::training::TrainOptions;
    use crate::training::individual::IndividualSettings;

    fn error(line: &str) -> String {
        let words = ["train"].into_iter().chain(line.split(' '));
        let options = TrainOptions::read(words).unwrap();
        IndividualSettings::new(options, None).unwrap_err().to_string()
    }

    #[test]
    fn options_of_another_policy_are_refused_by_name() {
        for line in
            ["--target-quantile 0.5", "--count-share 0.5", "--layer-groups 2", "--public-size 2"]
        {
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
