//! The norms of the gradients of the layers while a network is trained without privacy.
//!
//! # References
//!
//! T. N. Nguyen et al.: Batch clipping and adaptive layerwise clipping for differential private
//! stochastic gradient descent, 2023, section 3.3 and figure 1.

use burn_dp_examples::training::TrainError;

use super::figure::{Figure, FigurePoint, FigureSeries, Findings};
use super::layerwise::Setting;
use super::layerwise_ordinary::ordinary;
use super::measured::Measured;
use super::verdict::Verdict;

pub(super) const NAME: &str = "layer-norms";

pub(super) fn run(measured: &mut Measured) -> Result<Findings, TrainError> {
    let setting = Setting::of(measured)?;
    measured.expect(measured.seeds.len());
    let runs = ordinary(measured, &setting)?;
    let layers = runs.first().map_or(&[][..], |run| &run.layers[..]);
    let line = |(layer, name): (usize, &String)| {
        let points = (0..=setting.epochs).filter_map(|epoch| {
            let norms: Vec<f64> = runs.iter().map(|run| run.norms[epoch][layer]).collect();
            FigurePoint::of(epoch as f64, &norms)
        });
        FigureSeries { name: name.clone(), points: points.collect() }
    };
    Ok(Findings {
        figure: "Batch clipping and adaptive layerwise clipping, figure 1".into(),
        setting: format!(
            "{}, without privacy, {} seeds. Norms of the gradients of public mini-sets.",
            setting.sentence(),
            runs.len()
        ),
        labels: ["Norms of the layers", "epoch", "norm of the gradient"].map(String::from),
        series: layers.iter().enumerate().map(line).collect(),
        facts: Vec::new(),
    })
}

/// Compares the layers at the end, and each layer with itself an epoch before.
pub(super) fn judge(figure: &Figure) -> Vec<Verdict> {
    let last = || figure.series.iter().filter_map(|layer| layer.points.last());
    let (largest, smallest) = (FigurePoint::largest(last()).y, FigurePoint::smallest(last()).y);
    // The change from one epoch to the next, after the first one.
    let mut changes: Vec<f64> = (figure.series.iter())
        .flat_map(|layer| layer.points.get(1..).unwrap_or_default().windows(2))
        .map(|pair| (pair[1].y / pair[0].y).ln().abs())
        .collect();
    changes.sort_by(f64::total_cmp);
    let change = changes.get(changes.len() / 2).map_or(f64::NAN, |change| change.exp());
    vec![
        Verdict::new(
            "The norms of the layers differ by an order of magnitude.",
            largest > 10.0 * smallest,
            [("largest", largest), ("smallest", smallest)],
        ),
        Verdict::new(
            "The median change of a layer's norm from one epoch to the next is less than a \
             quarter.",
            change < 1.25,
            [("median factor from one epoch to the next", change)],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::verdict::held;
    use super::*;

    fn holds(layers: [[f64; 4]; 2]) -> Vec<bool> {
        let line = |norms: [f64; 4]| {
            let points = (0..).map(f64::from).zip(norms);
            FigureSeries::exact("", points)
        };
        held(&judge(&Figure::of_lines(layers.map(line))))
    }

    #[test]
    fn layers_are_compared_at_the_end_and_their_changes_after_the_first_epoch() {
        assert_eq!(holds([[9.0, 2.0, 2.2, 2.1], [9.0, 0.1, 0.1, 0.1]]), [true, true]);
        assert_eq!(holds([[9.0, 2.0, 2.2, 2.1], [9.0, 0.1, 0.1, 0.3]]), [false, true]);
        assert_eq!(holds([[9.0, 2.0, 3.0, 2.0], [9.0, 0.1, 0.2, 0.1]]), [true, false]);
        assert!(judge(&Figure::of_lines([])).iter().all(|verdict| !verdict.holds));
    }
}
