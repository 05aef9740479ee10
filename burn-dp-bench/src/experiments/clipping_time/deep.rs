//! Residual and VGG networks, and the size of their images (figures 8 and 9).

use burn_dp_examples::training::{TrainError, typed};

use super::times::{
    BOOK_KEEPING, LSUN_IMAGES, MULTI_LOSS, NON_PRIVATE, NXBP, Panel, Place, REWEIGHT, Times,
    geometric_mean, largest, panel_line, ratios,
};
use crate::bench::{Network, Sizes};
use crate::experiments::figure::{Figure, Findings, Preset};
use crate::experiments::measured::Measured;
use crate::experiments::verdict::Verdict;

pub(in crate::experiments) const ARCHITECTURES: &str = "clipping-architectures";
pub(in crate::experiments) const PIXELS: &str = "clipping-pixels";

/// Title of the figures, whose data set has no epoch here.
const TITLE: &str = "Seconds for 60,000 images";

/// The networks of figure 8, the pixels per side of their images, and the batch size.
struct Architectures {
    networks: &'static [Network],
    pixels: &'static [usize],
    batch: usize,
}

const QUICK: Architectures = Architectures {
    networks: &[Network::ResNet18, Network::ResNet34, Network::Vgg11],
    pixels: &[32, 64],
    batch: 8,
};

const PAPER: Architectures = Architectures {
    networks: &[
        Network::ResNet18,
        Network::ResNet34,
        Network::ResNet50,
        Network::ResNet101,
        Network::Vgg11,
        Network::Vgg16,
        Network::Vgg19,
    ],
    pixels: &[32, 64, 256],
    batch: 20,
};

impl Architectures {
    fn of(preset: Preset) -> Self {
        if preset == Preset::Quick { QUICK } else { PAPER }
    }
}

/// Returns the sizes of a deep network with the frozen batch normalization of the paper.
pub(in crate::experiments) fn frozen(pixels: usize) -> Sizes {
    Sizes { image_size: Some(pixels), frozen_batch_norm: true, ..Sizes::default() }
}

/// Returns the name of the panel of a size of the images.
fn panel_name(pixels: usize) -> String {
    format!("{pixels} pixels")
}

/// Figure 8: residual and VGG networks.
pub(in crate::experiments) fn architectures(
    measured: &mut Measured,
) -> Result<Findings, TrainError> {
    let Architectures { networks, pixels, batch } = Architectures::of(measured.preset);
    let panel = |&pixels: &usize| {
        let place =
            |(x, &network)| Place { x, network, sizes: frozen(pixels), batch, epoch: LSUN_IMAGES };
        let places = (1..).map(f64::from).zip(networks).map(place).collect();
        Panel { name: panel_name(pixels), places }
    };
    let sides: Vec<String> = pixels.iter().map(usize::to_string).collect();
    let names: Vec<String> = networks.iter().map(|&network| typed(network)).collect();
    let times = Times {
        figure: "Fast per-example clipping, figure 8",
        setting: format!(
            "{} (1 to {} on the axis), images with {} pixels per side, frozen BatchNorm, batch \
             {batch}, Adam. The time is for 60,000 images: the paper does not say how many of the \
             59 million images of LSUN are an epoch.",
            names.join(", "),
            networks.len(),
            sides.join(", ")
        ),
        title: TITLE,
        x: "network",
        panels: pixels.iter().map(panel).collect(),
    };
    times.measure(measured)
}

/// Compares the algorithms for every network, and the sizes of the images.
pub(in crate::experiments) fn judge_architectures(figure: &Figure) -> Vec<Verdict> {
    let worst = |one, other| largest(&ratios(figure, one, other));
    let keeping = worst(BOOK_KEEPING, NON_PRIVATE);
    let (nxbp, multi_loss) = (worst(REWEIGHT, NXBP), worst(REWEIGHT, MULTI_LOSS));
    let Architectures { pixels, .. } = Architectures::of(figure.preset);
    let advantage = |pixels: &usize| {
        let line = |name| panel_line(&panel_name(*pixels), name);
        geometric_mean(&ratios(figure, &line(NXBP), &line(REWEIGHT)))
    };
    let [small, large] =
        [pixels.first(), pixels.last()].map(|pixels| pixels.map_or(f64::NAN, advantage));
    vec![
        Verdict::new(
            "By book-keeping, a private step of a deep convolutional network costs less than twice \
             an ordinary one.",
            keeping < 2.0,
            [("largest book-keeping over NonPrivate", keeping)],
        ),
        Verdict::new(
            "For every network and size of the images, ReweightGP is faster than one backward pass \
             for each example and than materialized gradients.",
            nxbp < 1.0 && multi_loss < 1.0,
            [
                ("largest ReweightGP over nxBP", nxbp),
                ("largest ReweightGP over multiLoss", multi_loss),
            ],
        ),
        Verdict::new(
            "The advantage of ReweightGP over one backward pass for each example is smaller for \
             the largest images than for the smallest ones.",
            large < small,
            [
                ("nxBP over ReweightGP, smallest images", small),
                ("nxBP over ReweightGP, largest images", large),
            ],
        ),
    ]
}

/// Figure 9: image sizes, up to where the paper's method loses its advantage.
pub(in crate::experiments) fn pixels(measured: &mut Measured) -> Result<Findings, TrainError> {
    let batch = if measured.quick() { 16 } else { 32 };
    let place = |size: usize| Place {
        x: size as f64,
        network: Network::ResNet18,
        sizes: frozen(size),
        batch,
        epoch: LSUN_IMAGES,
    };
    let times = Times {
        figure: "Fast per-example clipping, figure 9",
        setting: format!(
            "ResNet-18, frozen BatchNorm, batch {batch}, Adam. The time is for 60,000 images."
        ),
        title: TITLE,
        x: "pixels per side",
        panels: vec![Panel { name: String::new(), places: [32, 64, 128, 256].map(place).into() }],
    };
    times.measure(measured)
}

/// Compares the algorithms for the largest images.
pub(in crate::experiments) fn judge_pixels(figure: &Figure) -> Vec<Verdict> {
    let last = |name| figure.end(name).y;
    let keeping = last(BOOK_KEEPING) / last(NON_PRIVATE);
    let nxbp = last(NXBP) / last(NON_PRIVATE);
    let numbers = || [("book-keeping over NonPrivate", keeping), ("nxBP over NonPrivate", nxbp)];
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
}

#[cfg(test)]
mod tests {
    use super::super::times::figure_of;
    use super::*;
    use crate::experiments::verdict::held;

    #[test]
    fn every_network_and_size_of_the_images_counts() {
        let found = |nxbp: f64, multi_loss: f64, keeping: f64| {
            let small: [&[f64]; 5] = [&[1.0], &[6.0], &[3.0], &[2.0], &[1.5]];
            let large = [&[1.0][..], &[nxbp], &[multi_loss], &[2.0], &[keeping]];
            let panels = [(&*panel_name(32), small), (&*panel_name(64), large)];
            held(&judge_architectures(&figure_of(&panels)))
        };
        assert_eq!(found(5.0, 2.5, 1.9), [true, true, true]);
        assert_eq!(found(5.0, 2.5, 2.1), [false, true, true]);
        assert_eq!(found(5.0, 1.9, 1.5), [true, false, true]);
        assert_eq!(found(1.9, 2.5, 1.5), [true, false, true]);
        assert_eq!(found(7.0, 2.5, 1.5), [true, true, false]);
        assert_eq!(held(&judge_architectures(&Figure::of_lines([]))), [false; 3]);
    }

    #[test]
    fn the_largest_images_decide() {
        let found = |nxbp: f64, keeping: f64| {
            let times = [&[1.0, 1.0][..], &[9.0, nxbp], &[9.0, 9.0], &[9.0, 9.0], &[9.0, keeping]];
            held(&judge_pixels(&figure_of(&[("", times)])))
        };
        assert_eq!(found(2.0, 1.2), [true, true]);
        assert_eq!(found(2.0, 1.6), [true, false]);
        assert_eq!(found(1.2, 1.2), [false, true]);
        assert_eq!(found(1.6, 1.6), [false, false]);
    }
}
