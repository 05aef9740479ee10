//! Variants of layerwise clipping with the same noise multiplier of the whole release, and so with
//! the same guarantee.
//!
//! # References
//!
//! T. N. Nguyen et al.: Batch clipping and adaptive layerwise clipping for differential private
//! stochastic gradient descent, 2023, sections 3.3, 3.4, 4.4, A.3 and B.2.

use burn_dp_examples::training::TrainError;
use burn_dp_examples::training::batch_clipping::{BatchPolicyName, BatchSettings};

use super::figure::{Figure, Findings, Verdict};
use super::layerwise::Setting;
use super::layerwise_curves::{curves, line};
use super::measured::{FigureOptions, Measured};

pub(super) const NAME: &str = "layerwise-variants";

/// Number of groups of layers with similar norms.
const GROUPS: usize = 4;
/// Number of steps after which sparsification fixes what has converged.
const WINDOW: u64 = 50;
/// Factor of the master threshold after each epoch.
const DECAY: f64 = 0.9;

/// A policy, and what is different from its usual settings.
struct Variant {
    name: &'static str,
    policy: BatchPolicyName,
    /// Its second argument is 1/√L for L layers.
    change: fn(&mut BatchSettings, f64),
}

impl Variant {
    const fn usual(name: &'static str, policy: BatchPolicyName) -> Self {
        Self { name, policy, change: |_, _| () }
    }

    const fn layerwise(name: &'static str, change: fn(&mut BatchSettings, f64)) -> Self {
        Self { name, policy: BatchPolicyName::Layerwise, change }
    }
}

const VARIANTS: [Variant; 8] = [
    Variant::usual("FGC", BatchPolicyName::Flat),
    Variant::usual("ALC of Zhang et al.", BatchPolicyName::Zhang),
    Variant::usual("ALC", BatchPolicyName::Layerwise),
    Variant::layerwise("ALC, C decays", |settings, _| settings.threshold_decay = DECAY),
    Variant::layerwise("ALC, 4 groups", |settings, _| settings.layer_groups = Some(GROUPS)),
    Variant::layerwise("ALC, sparsified", |settings, _| {
        settings.mini_sets.sparsify = Some(WINDOW);
    }),
    Variant::usual("multipliers, C", BatchPolicyName::Multipliers),
    Variant {
        name: "multipliers, √L C",
        policy: BatchPolicyName::Multipliers,
        change: |settings, split| settings.max_grad_norm /= split,
    },
];

pub(super) fn run(options: &FigureOptions) -> Result<Figure, TrainError> {
    let mut measured = Measured::open(NAME, options)?;
    let setting = Setting::of(&measured)?;
    measured.expect(VARIANTS.len() * measured.seeds.len());
    let (mut series, mut fixed) = (Vec::new(), Vec::new());
    let mut ends = [f64::NAN; VARIANTS.len()];
    for (end, Variant { name, policy, change }) in ends.iter_mut().zip(VARIANTS) {
        let runs = curves(&mut measured, &setting, name, |data| {
            let split = setting.split(data)?;
            let mut settings = setting.private(policy, split)?;
            change(&mut settings, split);
            Ok(settings)
        })?;
        fixed.extend(runs.iter().filter_map(|run| run.fixed_share));
        let (line, accuracy) = line(name, &runs);
        series.push(line);
        *end = accuracy;
    }
    let fixed = fixed.iter().sum::<f64>() / fixed.len() as f64;
    measured.finish(Findings {
        figure: "Batch clipping and adaptive layerwise clipping, sections 3.3, 3.4, 4.4, B.2"
            .into(),
        setting: format!(
            "{}, C = {}, batch clipping, {} seeds. All variants have the noise multiplier 2σ/√L \
             with σ = {} and L layers, and so the same guarantee. ALC follows public norms; \
             multipliers scale the layers to the same public norm before the whole gradient is \
             clipped; sparsified: what converged within {WINDOW} steps is fixed.",
            setting.sentence(),
            setting.max_grad_norm,
            measured.seeds.len(),
            setting.sigma
        ),
        labels: ["Variants of layerwise clipping", "epoch", "test accuracy"].map(String::from),
        series,
        verdicts: verdicts(ends, fixed).into(),
    })
}

/// Compares the accuracies of [`VARIANTS`] at the end.
///
/// # Arguments
///
/// - `fixed`: share of the values that sparsification fixed
fn verdicts(
    [flat, zhang, layerwise, decaying, grouped, sparsified, multiplied, wide]: [f64; 8],
    fixed: f64,
) -> [Verdict; 5] {
    let constant = ("ALC", layerwise);
    [
        Verdict::new(
            "A master threshold is better than the layers' own norms as thresholds (section 4.4).",
            layerwise > zhang,
            [constant, ("Zhang et al.", zhang)],
        ),
        Verdict::new(
            "A constant master threshold is at least as good as a decaying one (figure 16 is of a \
             network without BatchNorm).",
            layerwise >= decaying,
            [constant, ("C decays", decaying)],
        ),
        Verdict::new(
            "It is advantageous to clip groups of layers with similar norms instead of single \
             layers (section B.2).",
            grouped > layerwise,
            [constant, ("4 groups", grouped)],
        ),
        Verdict::new(
            "Multipliers raise the accuracy of clipping the whole gradient (section B.2).",
            multiplied.max(wide) > flat,
            [("FGC", flat), ("multipliers, C", multiplied), ("multipliers, √L C", wide)],
        ),
        Verdict::new(
            "Weights that have converged can be fixed (section 3.4): with more than one in a \
             hundred fixed, the accuracy is within a point of training without.",
            fixed > 0.01 && sparsified > layerwise - 0.01,
            [constant, ("sparsified", sparsified), ("share of fixed values", fixed)],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(ends: [f64; 8], fixed: f64) -> [bool; 5] {
        verdicts(ends, fixed).map(|verdict| verdict.holds)
    }

    #[test]
    fn each_variant_is_compared_with_the_usual_one() {
        let all = holds([0.7, 0.7, 0.8, 0.8, 0.85, 0.795, 0.6, 0.75], 0.2);
        assert_eq!(all, [true; 5]);
        let none = holds([0.7, 0.8, 0.8, 0.85, 0.8, 0.75, 0.7, 0.6], 0.2);
        assert_eq!(none, [false; 5]);
    }

    #[test]
    fn sparsification_that_fixes_nothing_is_no_success() {
        let equal = [0.8; 8];
        assert!(holds(equal, 0.02)[4]);
        assert!(!holds(equal, 0.0)[4] && !holds(equal, f64::NAN)[4]);
    }
}
