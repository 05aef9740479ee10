//! How fast and how closely adaptive clipping tracks a quantile of the norms.
//!
//! # References
//!
//! G. Andrew, O. Thakkar, H. B. McMahan, S. Ramaswamy, "Differentially Private Learning with
//! Adaptive Clipping", 2021, sections 2.1 and 3.1, figures 2 and 3.

use burn::data::dataloader::batcher::Batcher;
use burn::optim::SgdConfig;
use burn::tensor::Device;
use burn_dp::DpError;
use burn_dp::clipping::{CountNoise, QuantileClipping, QuantileRule};
use burn_dp::losses::CrossEntropyLossConfig;
use burn_dp::model::ParameterGroups;
use burn_dp::optim::PrivacyPlanConfig;
use burn_dp::updates::UnitUpdate;
use burn_dp_examples::data::{ImageBatcher, Splits};
use burn_dp_examples::models::{Classifier, Mlp, MlpConfig};
use burn_dp_examples::training::TrainError;

use super::figure::{Figure, FigurePoint, FigureSeries, Findings};
use super::measured::Measured;
use super::trial::images_of_seeds;
use super::verdict::Verdict;

pub(super) const NAME: &str = "quantile-tracking";

/// Expected examples in a step of the quick preset, and of the other.
const BATCHES: [usize; 2] = [128, 256];
/// Examples whose layers' norms are measured after each of the last steps.
const MEASURED: usize = 32;
/// The threshold starts this many times above or below the norms, which are of order one.
const FAR: f64 = 1e3;
const TARGETS: [f64; 5] = [0.1, 0.3, 0.5, 0.7, 0.9];
/// The geometric rule moves by a factor of exp(0.2 · 0.5) a step at the median.
const NEAR: f64 = 0.05;
/// Room for noisy counts.
const NOISY: f64 = 0.03;

/// What is compared.
#[derive(Clone, Copy)]
struct Tracking {
    rule: QuantileRule,
    target: f64,
    start: f64,
    /// Standard deviation of the counts over the batch size.
    noise: f64,
    /// Whether each layer has a threshold of its own.
    per_layer: bool,
}

pub(super) fn run(measured: &mut Measured) -> Result<Findings, TrainError> {
    // From below, the quantile 0.1 is ln(1000) / (0.2 · 0.1) = 345 steps away.
    let (steps, batch) = if measured.quick() { (600, BATCHES[0]) } else { (1_000, BATCHES[1]) };
    let mut cases = Vec::new();
    let mut rules = vec![
        (QuantileRule::Geometric, false, "geometric"),
        (QuantileRule::Linear, false, "linear"),
        (QuantileRule::Geometric, true, "per layer"),
    ];
    if !measured.quick() {
        rules.push((QuantileRule::Linear, true, "linear per layer"));
    }
    for (rule, per_layer, name) in rules {
        for start in [1.0 / FAR, FAR] {
            for noise in [1e-3, 0.05] {
                let case = |target| (Tracking { rule, target, start, noise, per_layer }, name);
                cases.extend(TARGETS.map(case));
            }
        }
    }
    let data = images_of_seeds(measured, [6_000, 1])?;
    measured.expect(cases.len() * data.len());
    let mut series: Vec<FigureSeries> = Vec::new();
    for (case, rule) in cases {
        let mut shares = Vec::new();
        for (seed, data) in &data {
            let Tracking { target, start, noise, .. } = case;
            let name =
                format!("{rule} {target} from {start}, noise {noise}, {steps} of {batch}, {seed}");
            shares.push(
                measured
                    .measure(&name, |device| track(case, (steps, batch), data, *seed, device))?,
            );
        }
        let side = if case.start < 1.0 { "below" } else { "above" };
        let counts = if case.noise < 0.01 { "almost exact counts" } else { "noisy counts" };
        let name = format!("{rule}, from {side}, {counts}");
        let point = FigurePoint::of(case.target, &shares);
        match series.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.extend(point),
            None => series.push(FigureSeries { name, points: point.into_iter().collect() }),
        }
    }
    Ok(Findings {
        figure: "Adaptive clipping, figures 2 and 3".into(),
        setting: format!(
            "An MLP on {}, {batch} examples a step, learning rate 0.2 of the threshold, which \
             starts at 1/{FAR} or {FAR} times norms of order one; the share of examples at or \
             below it over the last tenth of {steps} steps, {} seeds. Per layer, by the geometric \
             rule unless it says linear: of {MEASURED} examples after each of these steps, in the \
             layer whose share is furthest from the target.",
            measured.images_name(),
            data.len()
        ),
        labels: ["Tracking a quantile", "target quantile", "share of unclipped examples"]
            .map(String::from),
        series,
        facts: vec![(STEPS.into(), steps as f64)],
    })
}

/// Name of the fact.
const STEPS: &str = "steps";

/// Compares the shares of unclipped examples with the targets.
pub(super) fn judge(figure: &Figure) -> Vec<Verdict> {
    let (series, steps) = (&figure.series, figure.fact(STEPS));
    let worst = |rule: &str, counts: &str| {
        let start = format!("{rule}, ");
        let is_of =
            |line: &&FigureSeries| line.name.starts_with(&start) && line.name.ends_with(counts);
        let lines = series.iter().filter(is_of);
        let errors = lines.flat_map(|line| &line.points).map(|point| (point.y - point.x).abs());
        errors.fold(0.0, f64::max)
    };
    let exact = worst("geometric", "exact counts");
    let noisy = worst("geometric", "noisy counts");
    let linear = worst("linear", "exact counts");
    let layers = worst("per layer", "exact counts").max(worst("per layer", "noisy counts"));
    vec![
        Verdict::new(
            format!(
                "The geometric rule finds every quantile from a threshold three orders of \
                 magnitude off within {steps} steps."
            ),
            exact < NEAR,
            [("largest difference to the target", exact)],
        ),
        Verdict::new(
            "Noise of 1/20 of the batch size on the counts hardly disturbs it.",
            noisy < NEAR + NOISY,
            [("largest difference to the target", noisy)],
        ),
        Verdict::new(
            "The linear rule, which moves by a fixed amount, does not find every quantile from \
             both sides in the same steps.",
            linear > 2.0 * NEAR,
            [("largest difference to the target", linear)],
        ),
        Verdict::new(
            "With a threshold for each layer, each finds the quantile of its own norms.",
            layers < NEAR + NOISY,
            [("largest difference of a layer to the target", layers)],
        ),
    ]
}

/// Returns the share of unclipped examples at the end; with thresholds for the layers, the one
/// that is furthest from the target.
fn track(
    case: Tracking,
    (steps, batch_size): (u64, usize),
    data: &Splits<ImageBatcher>,
    seed: u64,
    device: &Device,
) -> Result<f64, TrainError> {
    let trained = device.clone().autodiff();
    device.seed(seed);
    let mut model = MlpConfig::new().init(&trained);
    let groups = ParameterGroups::per_layer(&model)?;
    let policy = QuantileClipping::new(case.target)?
        .with_initial(case.start)?
        .with_rule(case.rule)
        .with_count_noise(CountNoise::BatchFraction(case.noise));
    let policy = if case.per_layer { policy.with_groups(groups.clone()) } else { policy };
    let items = data.train.items().len();
    let plan = PrivacyPlanConfig::new(items, batch_size as f64)
        .with_steps(steps)
        // The sum is released with little noise: only the counts are studied.
        .with_noise_multiplier(1e-3)
        .with_clipping(policy)
        .init()?;
    let batches = plan.batches(data.train.clone(), data.encoder, &trained)?;
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let loss = CrossEntropyLossConfig::new().init();
    let (mut examples, mut unclipped) = (0.0, 0.0);
    // The norms of a layer can differ by less than one step of its threshold.
    let mut layers = Vec::new();
    for (step, batch) in (0..).zip(batches) {
        let batch = batch?;
        optim.backward_batch(&model, &batch, batch_size, |model, images| {
            loss.forward(model.forward(images.inputs), images.targets)
        })?;
        let threshold = optim.thresholds()?.total_norm();
        let lr = 0.01 / threshold.max(1e-6);
        model = optim.step(lr, model, batch).map_err(DpError::from)?;
        if step >= steps - steps / 10 {
            let counted = optim.statistics().reveal();
            examples += counted.examples as f64;
            unclipped += (counted.examples - counted.clipped) as f64;
            if case.per_layer {
                let thresholds = optim.thresholds()?;
                let norms = thresholds.norms();
                layers.push(unclipped_in_layers(&model, &groups, norms, data, &trained)?);
            }
        }
    }
    if !case.per_layer {
        return Ok(unclipped / examples);
    }
    let share =
        |layer: usize| layers.iter().map(|shares| shares[layer]).sum::<f64>() / layers.len() as f64;
    let shares = (0..groups.len()).map(share);
    let distance = |share: &f64| (share - case.target).abs();
    let furthest = shares.max_by(|a, b| distance(a).total_cmp(&distance(b)));
    Ok(furthest.unwrap_or(f64::NAN))
}

/// Returns the share of examples whose gradient of each layer has at most the norm of its
/// threshold.
fn unclipped_in_layers(
    model: &Mlp,
    groups: &ParameterGroups,
    thresholds: &[f64],
    data: &Splits<ImageBatcher>,
    device: &Device,
) -> Result<Vec<f64>, TrainError> {
    let loss = CrossEntropyLossConfig::new().init();
    let examples = data.train.items().iter().take(MEASURED);
    let (mut unclipped, count) = (vec![0.0; thresholds.len()], examples.len() as f64);
    for item in examples {
        let image = data.encoder.batch(vec![item.clone()], device);
        let gradient =
            UnitUpdate::gradient(model, loss.forward(model.forward(image.inputs), image.targets))?;
        let mut squares = vec![0.0; thresholds.len()];
        for (path, norm) in gradient.norms(model)?.reveal() {
            squares[groups.index_of(&path)?] += norm * norm;
        }
        for ((unclipped, square), threshold) in unclipped.iter_mut().zip(squares).zip(thresholds) {
            *unclipped += f64::from(u8::from(square.sqrt() <= *threshold));
        }
    }
    Ok(unclipped.into_iter().map(|number| number / count).collect())
}

#[cfg(test)]
mod tests {
    use super::super::verdict::held;
    use super::*;

    #[test]
    fn each_claim_looks_at_its_own_lines() {
        let exact = [
            "geometric, from below, almost exact counts",
            "geometric, from above, noisy counts",
            "linear, from above, almost exact counts",
            "per layer, from below, noisy counts",
        ];
        let holds = |shares: [f64; 4]| {
            let line = |(name, share)| FigureSeries::exact(name, [(0.1, 0.1), (0.5, share)]);
            let lines = exact.into_iter().zip(shares).map(line);
            let verdicts = judge(&Figure::of_lines(lines));
            held(&verdicts)
        };
        assert_eq!(holds([0.51, 0.52, 0.9, 0.46]), [true; 4]);
        assert_eq!(holds([0.56, 0.52, 0.9, 0.46]), [false, true, true, true]);
        assert_eq!(holds([0.51, 0.59, 0.9, 0.46]), [true, false, true, true]);
        assert_eq!(holds([0.51, 0.52, 0.55, 0.46]), [true, true, false, true]);
        assert_eq!(holds([0.51, 0.52, 0.9, 0.4]), [true, true, true, false]);
    }
}
