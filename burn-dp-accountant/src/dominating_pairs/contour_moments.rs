//! Moments of the likelihood ratio along a vertical contour in the complex plane.

use super::nodes::{LARGEST_EXPONENT, Nodes};
use crate::math::complex::{self, Complex64};

/// Number of frequencies that are evaluated together.
pub(crate) const BLOCK: usize = 16;

/// Number of nodes that are rotated together.
const LANES: usize = 8;

/// The moments of one pair on one contour. Only the rotation `e^{ity}` changes along it:
/// `M(θ+it) - M(θ) = Σ w e^{(θ+1)y} (e^{ity} - 1) - it Σ w (e^y - 1)`, where the last sum is 0 and
/// is subtracted term by term, so that nothing cancels for tiny sampling probabilities.
#[derive(Debug, Clone)]
pub(crate) struct ContourMoments {
    /// Loss and `w e^{(θ+1)y}`, padded with zeros to whole groups of lanes.
    losses: Vec<f64>,
    tilted: Vec<f64>,
    /// `Σ w (e^y - 1)`, which is 0 except for rounding, with the outcomes without nodes.
    tangent: f64,
    /// Logarithm of a common factor, 0 unless the moments overflow.
    shift: f64,
    /// `M(θ) - 1`, or `M(θ)` over the common factor.
    excess: f64,
}

impl ContourMoments {
    /// Prepares `E_Q[L^{s+1}]` for all `s` with real part `theta`.
    pub(crate) fn new(nodes: &Nodes, theta: f64) -> Self {
        let order = theta + 1.0;
        let shift = nodes.peak(order).max(0.0);
        let shift = if shift < LARGEST_EXPONENT { 0.0 } else { shift };
        let (mut losses, mut tilted) = (Vec::new(), Vec::new());
        let mut tangent = nodes.omitted_excess() * (-shift).exp();
        let ln_scale = nodes.ln_moment(order);
        let excess = if shift == 0.0 { ln_scale.exp_m1() } else { (ln_scale - shift).exp() };
        // Nodes below this, all together, are below the rounding of the excess.
        let negligible = 1e-19 * excess / nodes.len() as f64;
        for (ln_weight, _, y) in nodes.nodes() {
            let weight = (ln_weight + order * y - shift).exp();
            if weight > negligible {
                losses.push(y);
                tilted.push(weight);
            }
            tangent += if y < LARGEST_EXPONENT {
                (ln_weight - shift).exp() * y.exp_m1()
            } else {
                (ln_weight + y - shift).exp()
            };
        }
        losses.resize(losses.len().next_multiple_of(LANES), 0.0);
        tilted.resize(losses.len(), 0.0);
        ContourMoments { losses, tilted, tangent, shift, excess }
    }

    /// Returns `ln E_Q[L^{s+1}]` at `s = θ + it`.
    #[cfg(test)]
    pub(crate) fn ln_moment(&self, t: f64) -> Complex64 {
        self.ln_moments(t, 0.0)[0]
    }

    /// Returns `ln E_Q[L^{s+1}]` at `s = θ + it` for `t = first + k·step`, `k < BLOCK`.
    ///
    /// The angles of a block follow from the first by rotation, so that only the rounding of
    /// `BLOCK` products accumulates.
    pub(crate) fn ln_moments(&self, first: f64, step: f64) -> [Complex64; BLOCK] {
        let mut re = [[0.0; LANES]; BLOCK];
        let mut im = [[0.0; LANES]; BLOCK];
        let (losses, _) = self.losses.as_chunks::<LANES>();
        let (tilted, _) = self.tilted.as_chunks::<LANES>();
        for (y, weight) in losses.iter().zip(tilted) {
            // Half of the angle: e^{ia} - 1 = 2i sin(a/2) e^{ia/2}.
            let (mut sin, mut cos) = y.map(|y| (0.5 * first * y).sin_cos()).unzip();
            let (turn_sin, turn_cos) = y.map(|y| (0.5 * step * y).sin_cos()).unzip();
            for k in 0..BLOCK {
                for lane in 0..LANES {
                    let part = 2.0 * weight[lane] * sin[lane];
                    re[k][lane] -= part * sin[lane];
                    im[k][lane] += part * cos[lane];
                    let next = sin[lane] * turn_cos[lane] + cos[lane] * turn_sin[lane];
                    cos[lane] = cos[lane] * turn_cos[lane] - sin[lane] * turn_sin[lane];
                    sin[lane] = next;
                }
            }
        }
        std::array::from_fn(|k| {
            let t = first + k as f64 * step;
            let (re, im): (f64, f64) = (re[k].iter().sum(), im[k].iter().sum());
            let difference = Complex64::new(self.excess + re, im - t * self.tangent);
            if self.shift == 0.0 {
                complex::ln_1p(difference)
            } else {
                difference.ln() + self.shift
            }
        })
    }

    /// Returns `ln E_Q[L^{θ+1}]`.
    pub(crate) fn ln_scale(&self) -> f64 {
        if self.shift == 0.0 { self.excess.ln_1p() } else { self.excess.ln() + self.shift }
    }

    /// Returns the number of nodes, with padding.
    pub(crate) fn len(&self) -> usize {
        self.losses.len()
    }
}

/// Separates sines and cosines.
trait Unzip {
    fn unzip(self) -> ([f64; LANES], [f64; LANES]);
}

impl Unzip for [(f64, f64); LANES] {
    fn unzip(self) -> ([f64; LANES], [f64; LANES]) {
        (self.map(|pair| pair.0), self.map(|pair| pair.1))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::dominating_pairs::{Direction, Pair, trapezoidal_nodes};

    #[test]
    fn block_of_frequencies_equals_single_frequencies() {
        let pair = Pair::Sampled { q: 0.01, mu: 1.2 };
        let nodes = trapezoidal_nodes(&pair, Direction::Remove, 3.0..=3.0, 50.0).unwrap();
        let moments = ContourMoments::new(&nodes, 2.0);
        let block = moments.ln_moments(12.0, 1.7);
        for (k, value) in block.iter().enumerate() {
            let single = moments.ln_moment(12.0 + 1.7 * k as f64);
            assert!((value - single).norm() < 1e-15, "{k}: {value} {single}");
        }
    }
}
