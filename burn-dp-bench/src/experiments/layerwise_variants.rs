//! Variants of layerwise clipping with the same noise multiplier of the whole release, and so with
//! the same guarantee.
//!
//! # References
//!
//! T. N. Nguyen et al.: Batch clipping and adaptive layerwise clipping for differential private
//! stochastic gradient descent, 2023, sections 3.3, 3.4, 4.4, A.3 and B.2.

use burn_dp_examples::training::TrainError;
use burn_dp_examples::training::batch_clipping::{BatchPolicyName, BatchSettings};

use super::figure::{Figure, Findings};
use super::layerwise::Setting;
use super::layerwise_curves::{curves, line};
use super::measured::Measured;
use super::verdict::{Above, Verdict};

pub(super) const NAME: &str = "layerwise-variants";

/// Number of groups of layers with similar norms.
const GROUPS: usize = 4;
/// Number of steps after which sparsification fixes what has converged.
const WINDOW: u64 = 50;
/// Factor of the master threshold after each epoch.
const DECAY: f64 = 0.9;

/// The fact that is measured with the accuracies.
const FIXED: &str = "share of fixed values";

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

pub(super) fn run(measured: &mut Measured) -> Result<Findings, TrainError> {
    let setting = Setting::of(measured)?;
    measured.expect(VARIANTS.len() * measured.seeds.len());
    let (mut series, mut fixed) = (Vec::new(), Vec::new());
    for Variant { name, policy, change } in VARIANTS {
        let runs = curves(measured, &setting, name, |data| {
            let split = setting.split(data)?;
            let mut settings = setting.private(policy, split)?;
            change(&mut settings, split);
            Ok(settings)
        })?;
        fixed.extend(runs.iter().filter_map(|run| run.fixed_share));
        series.push(line(name, &runs));
    }
    let fixed = fixed.iter().sum::<f64>() / fixed.len() as f64;
    Ok(Findings {
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
        facts: vec![(FIXED.into(), fixed)],
    })
}

/// Compares the accuracies at the end.
pub(super) fn judge(figure: &Figure) -> Vec<Verdict> {
    let [flat, zhang, layerwise, decaying, grouped, sparsified, multiplied, wide] =
        VARIANTS.map(|variant| figure.end(variant.name));
    let constant = ("ALC", layerwise);
    let contenders = [("multipliers, C", multiplied), ("multipliers, √L C", wide)];
    let [one, other] = contenders;
    let best = if other.1.y > one.1.y { other } else { one };
    let multipliers = Verdict::comparing(
        "Multipliers raise the accuracy of clipping the whole gradient (section B.2).",
        &[Above::new(best, ("FGC", flat))],
    )
    .with(contenders.map(|(name, point)| (name, point.y)));
    let fixed = figure.fact(FIXED);
    let sparsified = Verdict::comparing(
        "Weights that have converged can be fixed (section 3.4): with more than one in a hundred \
         fixed, the accuracy is within a point of training without.",
        &[Above::new(("sparsified", sparsified), constant).by(-0.01)],
    )
    .and(fixed > 0.01)
    .with([(FIXED, fixed)]);
    vec![
        Verdict::comparing(
            "A master threshold is better than the layers' own norms as thresholds (section 4.4).",
            &[Above::new(constant, ("Zhang et al.", zhang))],
        ),
        Verdict::comparing(
            "A constant master threshold is at least as good as a decaying one (figure 16 is of a \
             network without BatchNorm).",
            // Less than one test image: equal accuracies are as good.
            &[Above::new(constant, ("C decays", decaying)).by(-1e-6)],
        ),
        Verdict::comparing(
            "It is advantageous to clip groups of layers with similar norms instead of single \
             layers (section B.2).",
            &[Above::new(("4 groups", grouped), constant)],
        ),
        multipliers,
        sparsified,
    ]
}

#[cfg(test)]
mod tests {
    use super::super::figure::FigureSeries;
    use super::super::verdict::held;
    use super::*;

    fn holds(ends: [f64; 8], fixed: f64) -> Vec<bool> {
        let line = |(variant, end): (&Variant, f64)| {
            FigureSeries::exact(variant.name, [(1.0, 0.1), (2.0, end)])
        };
        let mut figure = Figure::of_lines(VARIANTS.iter().zip(ends).map(line));
        figure.facts.insert(FIXED.into(), fixed);
        held(&judge(&figure))
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

    #[test]
    fn each_verdict_on_variants_has_all_its_numbers() {
        let line = |variant: &Variant| FigureSeries::exact(variant.name, [(1.0, 0.5)]);
        let verdicts = judge(&Figure::of_lines(VARIANTS.iter().map(line)));
        let numbers = |verdict: &Verdict| verdict.numbers.len();
        assert_eq!(verdicts.iter().map(numbers).collect::<Vec<_>>(), [2, 2, 2, 3, 3]);
    }
}
