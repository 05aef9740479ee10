//! Accuracy of batch clipping after each epoch, for several seeds.

use burn::tensor::Device;
use burn_dp_examples::training::TrainError;
use burn_dp_examples::training::batch_clipping::{BatchData, BatchSettings};
use serde::{Deserialize, Serialize};

use super::figure::{FigurePoint, FigureSeries};
use super::layerwise::{Setting, train};
use super::measured::Measured;

/// One training run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Curve {
    /// Test accuracy after each epoch.
    accuracies: Vec<f64>,
    /// Share of the values of the model that sparsification fixed.
    pub(super) fixed_share: Option<f64>,
}

impl Curve {
    /// Returns the test accuracy at the end.
    pub(super) fn accuracy(&self) -> Option<f64> {
        self.accuracies.last().copied()
    }
}

/// Trains with `settings`, once for each seed.
pub(super) fn curves(
    measured: &mut Measured,
    setting: &Setting,
    name: &str,
    settings: impl Fn(&BatchData) -> Result<BatchSettings, TrainError>,
) -> Result<Vec<Curve>, TrainError> {
    let mut runs = Vec::new();
    for seed in measured.seeds.clone() {
        let data = setting.data(measured, seed)?;
        let settings = settings(&data)?;
        let label = format!("{name}, {settings:?}, {setting:?}, {seed}");
        let run = |device: &Device| -> Result<Curve, TrainError> {
            let figures = train(settings, &data, seed, device)?;
            Ok(Curve {
                accuracies: figures.epochs.iter().map(|epoch| epoch.test_accuracy).collect(),
                fixed_share: figures.fixed_share,
            })
        };
        runs.push(measured.measure(&label, run)?);
    }
    Ok(runs)
}

/// Returns the line of a figure.
pub(super) fn line(name: &str, runs: &[Curve]) -> FigureSeries {
    let epochs = runs.iter().map(|run| run.accuracies.len()).max().unwrap_or_default();
    let point = |epoch: usize| {
        let accuracies = runs.iter().filter_map(|run| run.accuracies.get(epoch).copied());
        FigurePoint::of((epoch + 1) as f64, &accuracies.collect::<Vec<_>>())
    };
    FigureSeries { name: name.into(), points: (0..epochs).filter_map(point).collect() }
}
