//! Accuracy against the batch size at a constant total amount of noise: small runs predict a large
//! one.
//!
//! # References
//!
//! T. Sander, P. Stock, A. Sablayrolles, "TAN Without a Burn: Scaling Laws of DP-SGD", 2023,
//! sections 3.3 and 4, figure 1.

use burn_dp::DpError;
use burn_dp_accountant::{
    Accountant, DpEvent, ExactAccountant, NeighboringRelation, RunPlan, ScalingLaw,
};
use burn_dp_examples::training::TrainError;

use super::figure::{Figure, FigurePoint, FigureSeries, Findings};
use super::measured::Measured;
use super::trial::{Network, SgdSettings, accuracies};
use super::verdict::{Above, Verdict};

pub(super) const NAME: &str = "tan-scaling";

/// The large run, and the factors of the small runs.
struct Setting {
    images: [usize; 2],
    large: RunPlan,
    factors: &'static [f64],
    sgd: SgdSettings,
}

const QUICK: Setting = Setting {
    images: [12_000, 2_000],
    large: RunPlan { expected_batch_size: 1024.0, noise_multiplier: 3.0, steps: 120 },
    factors: &[32.0, 16.0, 8.0, 4.0],
    sgd: SgdSettings::plain(Network::Cnn, 1.0),
};

/// The paper's recipe for CIFAR-10, with 16 random copies of each image and averaged weights.
const PAPER: Setting = Setting {
    images: [50_000, 10_000],
    large: RunPlan { expected_batch_size: 4096.0, noise_multiplier: 3.0, steps: 2_500 },
    factors: &[32.0, 16.0, 8.0, 4.0],
    sgd: SgdSettings {
        copies: 16,
        shift: 4,
        decay: Some(0.9999),
        ..SgdSettings::plain(Network::WRN_16_4, 4.0)
    },
};

/// The lines.
const SMALL: &str = "small runs";
const FITTED: &str = "fitted line";
const LARGE: &str = "large run";

/// The facts: the slope of the fitted line and its prediction interval for the large run, which
/// depend on the accuracy of every seed.
const GAIN: &str = "gain for a doubled batch";
const LOW: &str = "low end of the prediction interval";
const HIGH: &str = "high end of the prediction interval";

pub(super) fn run(measured: &mut Measured) -> Result<Findings, TrainError> {
    let setting = if measured.quick() { QUICK } else { PAPER };
    measured.expect((setting.factors.len() + 1) * measured.seeds.len());
    let (mut runs, mut small) = (Vec::new(), Vec::new());
    for &factor in setting.factors {
        let plan = setting.large.scaled_down(factor).map_err(DpError::from)?;
        let found = accuracies(measured, plan, setting.sgd, setting.images)?;
        let batch = plan.expected_batch_size;
        runs.extend(found.iter().map(|&accuracy| (batch, accuracy)));
        small.extend(FigurePoint::of(batch, &found));
    }
    let law = ScalingLaw::fit(&runs).map_err(DpError::from)?;
    // Predicted before it runs.
    let batch = setting.large.expected_batch_size;
    let (predicted, low, high) = law.predict(batch);
    let found = accuracies(measured, setting.large, setting.sgd, setting.images)?;
    let smallest = small.first().map_or(batch, |point| point.x);
    let fitted = [(smallest, law.predict(smallest).0), (batch, predicted)];
    let large = FigurePoint::of(batch, &found).into_iter().collect();
    Ok(Findings {
        figure: "TAN Without a Burn, figure 1".into(),
        setting: setting.sentence(measured)?,
        labels: ["Accuracy at a constant total amount of noise", "batch size", "test accuracy"]
            .map(String::from),
        series: vec![
            FigureSeries { name: SMALL.into(), points: small },
            FigureSeries::exact(FITTED, fitted),
            FigureSeries { name: LARGE.into(), points: large },
        ],
        facts: [(GAIN, law.slope * 2f64.ln()), (LOW, low), (HIGH, high)]
            .map(|(name, value)| (name.into(), value))
            .into(),
    })
}

impl Setting {
    /// Returns what is run, as sentences.
    fn sentence(&self, measured: &Measured) -> Result<String, TrainError> {
        let RunPlan { expected_batch_size: batch, noise_multiplier: sigma, steps } = self.large;
        let SgdSettings { network, lr, copies, shift, decay, .. } = self.sgd;
        let event = DpEvent::dp_sgd_step(batch / self.images[0] as f64, sigma);
        let relation = NeighboringRelation::AddOrRemoveOne;
        let exact = ExactAccountant::new([(&event, steps)], relation).map_err(DpError::from)?;
        let spent = exact.epsilon(1e-5).map_err(DpError::from)?.estimate;
        let copied = match copies {
            0 => String::new(),
            _ => format!(
                " {copies} copies of each image are shifted by up to {shift} pixels{}.",
                network.mirrored()
            ),
        };
        let averaged = decay.map_or(String::new(), |decay| {
            format!(" The accuracies are of weights that are averaged with decay {decay}.")
        });
        Ok(format!(
            "{}, {} images of {}, {steps} steps of SGD with learning rate {lr}, σ/B constant, {} \
             seeds. The large run (B = {batch}, σ = {sigma}) has ε = {spent:.2} at δ = 1e-5.\
             {copied}{averaged}",
            network.described(),
            self.images[0],
            network.images_name(measured),
            measured.seeds.len()
        ))
    }
}

/// Compares the large run with the small ones, and with what they predict.
pub(super) fn judge(figure: &Figure) -> Vec<Verdict> {
    vec![grows(figure), is_predicted(figure)]
}

/// Compares the accuracies of all runs, the large one included.
fn grows(figure: &Figure) -> Verdict {
    let best = FigurePoint::largest(figure.line(SMALL));
    let ahead = Above::new(("large run", figure.end(LARGE)), ("best small run", best));
    let gain = figure.fact(GAIN);
    Verdict::comparing(
        "At constant σ/B and number of steps, accuracy grows with the batch size: the fitted line \
         rises, and the large run is better than each of the small ones.",
        &[ahead],
    )
    .and(gain > 0.0)
    .with([(GAIN, gain)])
}

/// Compares the large run with the prediction interval.
fn is_predicted(figure: &Figure) -> Verdict {
    let (mean, predicted) = (figure.end(LARGE).y, figure.end(FITTED).y);
    let (low, high) = (figure.fact(LOW), figure.fact(HIGH));
    Verdict::new(
        "The line that is fitted to small runs predicts the large run: its mean accuracy is \
         within the 95 % prediction interval.",
        (low..=high).contains(&mean),
        [
            ("predicted", predicted),
            ("low", low),
            ("high", high),
            ("width", high - low),
            ("measured", mean),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(gain: f64, large: f64) -> Figure {
        let facts = [(GAIN, gain), (LOW, 0.78), (HIGH, 0.82)];
        Figure {
            facts: facts.map(|(name, value)| (name.into(), value)).into(),
            ..Figure::of_lines([
                FigureSeries::exact(SMALL, [(64.0, 0.75), (128.0, 0.79)]),
                FigureSeries::exact(FITTED, [(64.0, 0.75), (256.0, 0.80)]),
                FigureSeries::exact(LARGE, [(256.0, large)]),
            ])
        }
    }

    #[test]
    fn accuracy_grows_if_the_large_run_is_the_best() {
        let holds = |gain, large| judge(&figure(gain, large))[0].holds;
        assert!(holds(0.02, 0.8));
        assert!(!holds(0.02, 0.785) && !holds(-0.02, 0.9));
    }

    #[test]
    fn the_large_run_has_to_be_within_the_interval() {
        let holds = |large| judge(&figure(0.02, large))[1].holds;
        assert!(holds(0.8) && !holds(0.83) && !holds(0.77));
        assert!(!judge(&Figure::of_lines([]))[1].holds);
    }
}
