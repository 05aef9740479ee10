//! The time of an epoch under the algorithms of per-example clipping.
//!
//! Length: five figures that share their measurement.
//!
//! # References
//!
//! J. Lee, D. Kifer, "Scaling up Differentially Private Deep Learning with Fast Per-Example
//! Gradient Clipping", 2021, section 6, figures 5 to 9.

use burn_dp_examples::training::{TrainError, typed};

use super::figure::{Figure, FigurePoint, FigureSeries, Findings, Verdict};
use super::measured::{FigureOptions, Measured};
use crate::bench::{Algorithm, InputName, Network, Sizes, step_times};

pub(super) const MODELS: &str = "clipping-models";
pub(super) const BATCHES: &str = "clipping-batch-size";
pub(super) const DEPTHS: &str = "clipping-depth";
pub(super) const ARCHITECTURES: &str = "clipping-architectures";
pub(super) const PIXELS: &str = "clipping-pixels";

/// Examples of an epoch.
const EPOCH: f64 = 60_000.0;

/// The algorithms with their names in the paper.
const ALGORITHMS: [(Algorithm, &str); 5] = [
    (Algorithm::NonPrivate, "NonPrivate"),
    (Algorithm::Nxbp, "nxBP"),
    (Algorithm::Materialize, "multiLoss"),
    (Algorithm::Reweight, "ReweightGP"),
    (Algorithm::BookKeeping, "book-keeping"),
];
/// Without the loop over single examples, which takes minutes for a step of a large network.
pub(super) const FAST: [(Algorithm, &str); 4] = [
    (Algorithm::NonPrivate, "NonPrivate"),
    (Algorithm::Materialize, "multiLoss"),
    (Algorithm::Reweight, "ReweightGP"),
    (Algorithm::BookKeeping, "book-keeping"),
];

/// A point of a figure: its position, and what is measured there.
struct Place {
    x: f64,
    network: Network,
    sizes: Sizes,
    batch: usize,
}

/// A figure of times.
struct Times {
    name: &'static str,
    figure: &'static str,
    setting: String,
    x: &'static str,
    algorithms: &'static [(Algorithm, &'static str)],
    places: Vec<Place>,
    /// Milliseconds that each algorithm runs at each place.
    ms: f64,
}

impl Times {
    /// Measures seconds for an epoch, and adds the verdicts on them.
    fn measure(
        self,
        options: &FigureOptions,
        verdicts: impl Fn(&[FigureSeries]) -> Vec<Verdict>,
    ) -> Result<Figure, TrainError> {
        let mut measured = Measured::open(self.name, options)?;
        measured.expect(self.places.len());
        let algorithms: Vec<Algorithm> = self.algorithms.iter().map(|(one, _)| *one).collect();
        let mut series: Vec<FigureSeries> =
            self.algorithms.iter().map(|(_, name)| FigureSeries::exact(*name, [])).collect();
        for Place { x, network, sizes, batch } in self.places {
            let size = sizes.image_size.map_or(String::new(), |size| format!(", {size} pixels"));
            let depth = sizes.depth.map_or(String::new(), |depth| format!(", depth {depth}"));
            let inputs = sizes.inputs.map_or(String::new(), |name| format!(" on {}", typed(name)));
            let name = format!("{}{inputs}{size}{depth}, batch {batch}", typed(network));
            let times = measured.measure(&name, |device| {
                step_times(network, sizes, batch, &algorithms, self.ms, device)
            })?;
            for (line, quartiles) in series.iter_mut().zip(times) {
                let [low, y, high] = quartiles.map(|ms: f64| ms / 1e3 * EPOCH / batch as f64);
                line.points.push(FigurePoint { x, y, low, high });
            }
        }
        let verdicts = verdicts(&series);
        measured.finish(Findings {
            figure: self.figure.into(),
            setting: format!("{} Median of the steps, with their quartiles.", self.setting),
            labels: ["Seconds for an epoch of 60,000 examples", self.x, "seconds"]
                .map(String::from),
            series,
            verdicts,
        })
    }
}

/// Returns the values of the line of an algorithm.
fn line<'a>(series: &'a [FigureSeries], name: &str) -> impl Iterator<Item = f64> + 'a {
    let found = series.iter().find(|line| line.name == name);
    found.into_iter().flat_map(|line| line.points.iter().map(|point| point.y))
}

/// Returns the geometric mean of the ratios of the times of one algorithm to the times of another.
fn ratio(series: &[FigureSeries], one: &str, other: &str) -> f64 {
    let logarithms: Vec<f64> =
        line(series, one).zip(line(series, other)).map(|(one, other)| (one / other).ln()).collect();
    (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp()
}

/// Returns the largest of these ratios.
fn largest_ratio(series: &[FigureSeries], one: &str, other: &str) -> f64 {
    line(series, one).zip(line(series, other)).map(|(one, other)| one / other).fold(0.0, f64::max)
}

/// Returns the sizes of a deep network with the frozen batch normalization of the paper.
pub(super) fn frozen(pixels: usize) -> Sizes {
    Sizes { image_size: Some(pixels), frozen_batch_norm: true, ..Sizes::default() }
}

fn ms(options: &FigureOptions) -> f64 {
    if options.quick { 1_000.0 } else { 10_000.0 }
}

/// Figure 5: five networks on inputs of the sizes of three data sets.
pub(super) fn models(options: &FigureOptions) -> Result<Figure, TrainError> {
    use Network::{Cnn, Lstm, Mlp, Rnn, Transformer, TransformerBlock};
    let of = |inputs| move |network| (network, Sizes { inputs: Some(inputs), ..Sizes::default() });
    let images = [Mlp, Cnn, Rnn, Lstm, Transformer];
    let networks = (images.map(of(InputName::Mnist)).into_iter())
        .chain(images.map(of(InputName::Cifar10)))
        .chain([Rnn, Lstm, TransformerBlock].map(of(InputName::Imdb)));
    let place = |(x, (network, sizes))| Place { x, network, sizes, batch: 32 };
    let times = Times {
        name: MODELS,
        figure: "Fast per-example clipping, figure 5",
        setting: "MLP, CNN, RNN, LSTM and transformer on images of the size of MNIST and \
                  Fashion-MNIST (1 to 5 on the axis), on images of the size of CIFAR-10 (6 to 10), \
                  and RNN, LSTM and transformer on 64 embeddings of width 200, as of reviews in \
                  IMDB (11 to 13), batch 32, Adam."
            .into(),
        x: "network and data",
        algorithms: &ALGORITHMS,
        places: (1..).map(f64::from).zip(networks).map(place).collect(),
        ms: ms(options),
    };
    times.measure(options, |series| {
        let nxbp = ratio(series, "nxBP", "ReweightGP");
        let keeping = ratio(series, "book-keeping", "NonPrivate");
        let reweight = ratio(series, "ReweightGP", "NonPrivate");
        vec![
            Verdict::new(
                "ReweightGP is much faster than one backward pass for each example.",
                nxbp > 3.0,
                [("nxBP over ReweightGP", nxbp)],
            ),
            Verdict::new(
                "Book-keeping, with a single backward pass, is faster than ReweightGP.",
                keeping < reweight,
                [
                    ("book-keeping over NonPrivate", keeping),
                    ("ReweightGP over NonPrivate", reweight),
                ],
            ),
        ]
    })
}

/// Figure 6: batch sizes.
pub(super) fn batches(options: &FigureOptions) -> Result<Figure, TrainError> {
    let place = |batch: usize| Place {
        x: batch as f64,
        network: Network::Cnn,
        sizes: Sizes::default(),
        batch,
    };
    let times = Times {
        name: BATCHES,
        figure: "Fast per-example clipping, figure 6",
        setting: "The CNN on images of 28 × 28 pixels, Adam.".into(),
        x: "batch size",
        algorithms: &ALGORITHMS,
        places: [16, 32, 64, 128].map(place).into(),
        ms: ms(options),
    };
    times.measure(options, |series| {
        let change = |name: &str| {
            let times: Vec<f64> = line(series, name).collect();
            times[times.len() - 1] / times[0]
        };
        let (keeping, nxbp) = (change("book-keeping"), change("nxBP"));
        vec![Verdict::new(
            "With book-keeping, an epoch is faster at the largest batch size than at the \
             smallest; with one backward pass for each example it is hardly so.",
            keeping < 1.0 && nxbp > 0.8,
            [("book-keeping, 128 over 16", keeping), ("nxBP, 128 over 16", nxbp)],
        )]
    })
}

/// Figure 7: depths.
pub(super) fn depths(options: &FigureOptions) -> Result<Figure, TrainError> {
    let place = |depth: usize| Place {
        x: depth as f64,
        network: Network::Mlp,
        sizes: Sizes { depth: Some(depth), width: Some(128), ..Sizes::default() },
        batch: 128,
    };
    let times = Times {
        name: DEPTHS,
        figure: "Fast per-example clipping, figure 7",
        setting: "An MLP with hidden layers of 128 units, batch 128, Adam.".into(),
        x: "hidden layers",
        algorithms: &ALGORITHMS,
        places: [2, 4, 6, 8].map(place).into(),
        ms: ms(options),
    };
    times.measure(options, |series| {
        let worst = largest_ratio(series, "book-keeping", "NonPrivate");
        let nxbp = ratio(series, "nxBP", "book-keeping");
        vec![Verdict::new(
            "At every depth, book-keeping costs less than twice an ordinary step; one backward \
             pass for each example costs more than five times as much as book-keeping.",
            worst < 2.0 && nxbp > 5.0,
            [("largest book-keeping over NonPrivate", worst), ("nxBP over book-keeping", nxbp)],
        )]
    })
}

/// Figure 8: residual and VGG networks.
pub(super) fn architectures(options: &FigureOptions) -> Result<Figure, TrainError> {
    let networks: &[Network] = match options.quick {
        true => &[Network::ResNet18, Network::ResNet34, Network::Vgg11],
        false => &[
            Network::ResNet18,
            Network::ResNet34,
            Network::ResNet50,
            Network::ResNet101,
            Network::Vgg11,
            Network::Vgg16,
            Network::Vgg19,
        ],
    };
    let (pixels, batch) = if options.quick { (32, 8) } else { (64, 32) };
    let place = |(x, &network)| Place { x, network, sizes: frozen(pixels), batch };
    let times = Times {
        name: ARCHITECTURES,
        figure: "Fast per-example clipping, figure 8",
        setting: format!(
            "{} (1 to {} on the axis), {pixels} × {pixels} pixels, frozen BatchNorm, \
             batch {batch}, Adam.",
            networks.iter().map(|&network| typed(network)).collect::<Vec<_>>().join(", "),
            networks.len()
        ),
        x: "network",
        algorithms: &FAST,
        places: (1..).map(f64::from).zip(networks).map(place).collect(),
        ms: ms(options),
    };
    times.measure(options, |series| {
        let worst = largest_ratio(series, "book-keeping", "NonPrivate");
        vec![Verdict::new(
            "By book-keeping, a private step of a deep convolutional network costs less than twice \
             an ordinary one.",
            worst < 2.0,
            [("largest book-keeping over NonPrivate", worst)],
        )]
    })
}

/// Figure 9: image sizes, up to where the paper's method loses its advantage.
pub(super) fn pixels(options: &FigureOptions) -> Result<Figure, TrainError> {
    let batch = if options.quick { 16 } else { 32 };
    let place = |size: usize| Place {
        x: size as f64,
        network: Network::ResNet18,
        sizes: frozen(size),
        batch,
    };
    let times = Times {
        name: PIXELS,
        figure: "Fast per-example clipping, figure 9",
        setting: format!("ResNet-18, frozen BatchNorm, batch {batch}, Adam."),
        x: "pixels per side",
        algorithms: &ALGORITHMS,
        places: [32, 64, 128, 256].map(place).into(),
        ms: ms(options),
    };
    times.measure(options, |series| {
        let last = |name: &str| line(series, name).last().unwrap_or(f64::NAN);
        let keeping = last("book-keeping") / last("NonPrivate");
        let nxbp = last("nxBP") / last("NonPrivate");
        let numbers =
            || [("book-keeping over NonPrivate", keeping), ("nxBP over NonPrivate", nxbp)];
        vec![
            Verdict::new(
                "At 256 × 256 pixels, where the advantage of the paper's method has decreased, \
                 book-keeping is faster than one backward pass for each example.",
                keeping < 0.95 * nxbp,
                numbers(),
            ),
            Verdict::new(
                "There, a private step costs less than 1.5 ordinary ones.",
                keeping < 1.5,
                numbers(),
            ),
        ]
    })
}
