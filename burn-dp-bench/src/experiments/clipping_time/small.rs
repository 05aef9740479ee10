//! Small networks: five of them, batch sizes and depths (figures 5 to 7).

use burn_dp_examples::training::TrainError;

use super::times::{
    BOOK_KEEPING, EPOCH, NON_PRIVATE, NXBP, Panel, Place, REWEIGHT, Times, changes, geometric_mean,
    largest, ratios, smallest, training_examples,
};
use crate::bench::{InputName, Network, Sizes};
use crate::experiments::figure::{Figure, Findings};
use crate::experiments::measured::Measured;
use crate::experiments::verdict::Verdict;

pub(in crate::experiments) const MODELS: &str = "clipping-models";
pub(in crate::experiments) const BATCHES: &str = "clipping-batch-size";
pub(in crate::experiments) const DEPTHS: &str = "clipping-depth";

const BATCH_SIZES: [usize; 4] = [16, 32, 64, 128];
const HIDDEN_LAYERS: [usize; 4] = [2, 4, 6, 8];

/// Figure 5: five networks on inputs of the sizes of four data sets.
pub(in crate::experiments) fn models(measured: &mut Measured) -> Result<Findings, TrainError> {
    use Network::{Cnn, Lstm, Mlp, Rnn, Transformer, TransformerBlock};
    let of = |inputs| move |network| (network, inputs);
    let images = [Mlp, Cnn, Rnn, Lstm, Transformer];
    let networks = (images.map(of(InputName::Mnist)).into_iter())
        .chain(images.map(of(InputName::Cifar10)))
        .chain([Rnn, Lstm, TransformerBlock].map(of(InputName::Imdb)));
    let place = |(x, (network, inputs))| Place {
        x,
        network,
        sizes: Sizes { inputs: Some(inputs), ..Sizes::default() },
        batch: 32,
        epoch: training_examples(inputs),
    };
    let places = (1..).map(f64::from).zip(networks).map(place).collect();
    let times = Times {
        figure: "Fast per-example clipping, figure 5",
        setting: "MLP, CNN, RNN, LSTM and transformer on images of the size of MNIST and \
                  Fashion-MNIST (1 to 5 on the axis), on images of the size of CIFAR-10 (6 to 10), \
                  and RNN, LSTM and transformer on 64 embeddings of width 200, as of reviews in \
                  IMDB (11 to 13), batch 32, Adam. An epoch has 60,000, 50,000 and 25,000 \
                  examples, as these data sets have."
            .into(),
        title: EPOCH,
        x: "network and data",
        panels: vec![Panel { name: String::new(), places }],
    };
    times.measure(measured)
}

/// Compares the algorithms over all networks.
pub(in crate::experiments) fn judge_models(figure: &Figure) -> Vec<Verdict> {
    let ratio = |one, other| geometric_mean(&ratios(figure, one, other));
    let nxbp = ratio(NXBP, REWEIGHT);
    let keeping = ratio(BOOK_KEEPING, NON_PRIVATE);
    let reweight = ratio(REWEIGHT, NON_PRIVATE);
    vec![
        Verdict::new(
            "ReweightGP is much faster than one backward pass for each example.",
            nxbp > 3.0,
            [("nxBP over ReweightGP", nxbp)],
        ),
        Verdict::new(
            "Book-keeping, with a single backward pass, is faster than ReweightGP.",
            keeping < reweight,
            [("book-keeping over NonPrivate", keeping), ("ReweightGP over NonPrivate", reweight)],
        ),
    ]
}

/// Figure 6: batch sizes.
pub(in crate::experiments) fn batches(measured: &mut Measured) -> Result<Findings, TrainError> {
    let panel = |(name, network): (&str, Network)| {
        let place = |batch: usize| Place {
            x: batch as f64,
            network,
            sizes: Sizes::default(),
            batch,
            epoch: training_examples(InputName::Mnist),
        };
        Panel { name: name.into(), places: BATCH_SIZES.map(place).into() }
    };
    let times = Times {
        figure: "Fast per-example clipping, figure 6",
        setting: "MLP, CNN and RNN on images of 28 × 28 pixels, Adam. An epoch has the 60,000 \
                  examples of MNIST."
            .into(),
        title: EPOCH,
        x: "batch size",
        panels: [("MLP", Network::Mlp), ("CNN", Network::Cnn), ("RNN", Network::Rnn)]
            .map(panel)
            .into(),
    };
    times.measure(measured)
}

/// Compares the largest batch size with the smallest one, for every network.
pub(in crate::experiments) fn judge_batches(figure: &Figure) -> Vec<Verdict> {
    let slowest = |algorithm| largest(&changes(figure, algorithm));
    let (ordinary, reweight) = (slowest(NON_PRIVATE), slowest(REWEIGHT));
    let keeping = slowest(BOOK_KEEPING);
    let nxbp = smallest(&changes(figure, NXBP));
    vec![
        Verdict::new(
            "For every network, an epoch with book-keeping is faster at the largest batch size \
             than at the smallest; with one backward pass for each example it is hardly so.",
            keeping < 1.0 && nxbp > 0.8,
            [
                ("book-keeping, largest ratio of 128 to 16", keeping),
                ("nxBP, smallest ratio of 128 to 16", nxbp),
            ],
        ),
        Verdict::new(
            "For every network, an ordinary epoch and one with ReweightGP are faster at the \
             largest batch size than at the smallest.",
            ordinary < 1.0 && reweight < 1.0,
            [
                ("NonPrivate, largest ratio of 128 to 16", ordinary),
                ("ReweightGP, largest ratio of 128 to 16", reweight),
            ],
        ),
    ]
}

/// Figure 7: depths.
pub(in crate::experiments) fn depths(measured: &mut Measured) -> Result<Findings, TrainError> {
    let panel = |(name, inputs): (&str, InputName)| {
        let place = |depth: usize| Place {
            x: depth as f64,
            network: Network::Mlp,
            sizes: Sizes {
                inputs: Some(inputs),
                depth: Some(depth),
                width: Some(128),
                ..Sizes::default()
            },
            batch: 128,
            epoch: training_examples(inputs),
        };
        Panel { name: name.into(), places: HIDDEN_LAYERS.map(place).into() }
    };
    let times = Times {
        figure: "Fast per-example clipping, figure 7",
        setting: "An MLP with hidden layers of 128 units on images of the size of MNIST and \
                  Fashion-MNIST, and of CIFAR-10, batch 128, Adam. An epoch has 60,000 and 50,000 \
                  examples, as these data sets have."
            .into(),
        title: EPOCH,
        x: "hidden layers",
        panels: [("MNIST", InputName::Mnist), ("CIFAR-10", InputName::Cifar10)].map(panel).into(),
    };
    times.measure(measured)
}

/// Compares the algorithms at every depth and size of the images.
pub(in crate::experiments) fn judge_depths(figure: &Figure) -> Vec<Verdict> {
    let worst = largest(&ratios(figure, BOOK_KEEPING, NON_PRIVATE));
    let keeping = smallest(&ratios(figure, NXBP, BOOK_KEEPING));
    let reweight = smallest(&ratios(figure, NXBP, REWEIGHT));
    vec![
        Verdict::new(
            "At every depth, book-keeping costs less than twice an ordinary step; one backward \
             pass for each example costs more than five times as much as book-keeping.",
            worst < 2.0 && keeping > 5.0,
            [
                ("largest book-keeping over NonPrivate", worst),
                ("smallest nxBP over book-keeping", keeping),
            ],
        ),
        Verdict::new(
            "At every depth, one backward pass for each example costs more than five times as much \
             as ReweightGP.",
            reweight > 5.0,
            [("smallest nxBP over ReweightGP", reweight)],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::times::figure_of;
    use super::*;
    use crate::experiments::verdict::held;

    #[test]
    fn the_networks_count_by_the_mean_of_their_ratios() {
        let found = |nxbp: &[f64], keeping: &[f64]| {
            let times: [&[f64]; 5] = [&[1.0, 1.0], nxbp, &[2.0, 2.0], &[2.0, 2.0], keeping];
            held(&judge_models(&figure_of(&[("", times)])))
        };
        // 3 and 16 of ReweightGP have the mean 6.9; 1 and 12 have 3.5, 1 and 7 have 2.6.
        assert_eq!(found(&[6.0, 32.0], &[1.0, 3.0]), [true, true]);
        assert_eq!(found(&[2.0, 24.0], &[1.5, 1.5]), [true, true]);
        assert_eq!(found(&[2.0, 14.0], &[1.5, 3.0]), [false, false]);
    }

    #[test]
    fn every_network_has_to_gain_from_a_larger_batch() {
        let found = |of_rnn| held(&judge_batches(&figure_of(&[("CNN", GAINS), ("RNN", of_rnn)])));
        const GAINS: [&[f64]; 5] =
            [&[2.0, 1.0], &[9.0, 8.5], &[3.0, 3.0], &[3.0, 2.0], &[3.0, 2.0]];
        assert_eq!(found(GAINS), [true, true]);
        // The backward passes of single examples gain, book-keeping loses, ReweightGP loses.
        let [ordinary, nxbp, multi_loss, reweight, keeping] = GAINS;
        let loss: &[f64] = &[2.0, 2.1];
        assert_eq!(found([ordinary, &[9.0, 7.0], multi_loss, reweight, keeping]), [false, true]);
        assert_eq!(found([ordinary, nxbp, multi_loss, reweight, loss]), [false, true]);
        assert_eq!(found([ordinary, nxbp, multi_loss, loss, keeping]), [true, false]);
        assert_eq!(found([loss, nxbp, multi_loss, reweight, keeping]), [true, false]);
    }

    #[test]
    fn every_depth_and_size_counts() {
        let found = |nxbp: &[f64], keeping: &[f64]| {
            let good: [&[f64]; 5] = [&[1.0], &[20.0], &[9.0], &[2.0], &[1.5]];
            let other: [&[f64]; 5] = [&[1.0, 1.0], nxbp, &[9.0, 9.0], &[2.0, 2.0], keeping];
            held(&judge_depths(&figure_of(&[("MNIST", good), ("CIFAR-10", other)])))
        };
        assert_eq!(found(&[11.0, 30.0], &[1.5, 1.9]), [true, true]);
        assert_eq!(found(&[11.0, 30.0], &[1.5, 2.1]), [false, true]);
        assert_eq!(found(&[9.0, 30.0], &[1.5, 1.9]), [true, false]);
        assert_eq!(found(&[5.0, 30.0], &[1.5, 1.9]), [false, false]);
    }
}
