//! Masses of the cells of a grid by Gauss-Legendre quadrature, with a proven error.
//!
//! A part of length `ℓ` is integrated with the extent `X = aℓ`, `a = 2 + |x| + 2μ`. The error of
//! the rule with `n` nodes is `f^(2n) ℓ^(2n+1) (n!)^4 / ((2n+1) ((2n)!)^3)`, and by Cauchy's
//! estimate on the disc of radius `R/a` around a point `f^(k)/k!` is at most `G_k a^k f`, where
//! `G_k R^k` bounds the growth of `f` on the disc:
//!
//! - over the position, `f` is a normal density, times the mixture `L` or not, which is entire: it
//!   grows by at most `exp(R (|x| + μ)/a + R²/(2a²)) <= exp(R + R²/8)`, because `a >= 2`. `R = 1`
//!   gives `G_k <= 3.1`, `R = 2.5` gives `G_10 <= 2.8e-3`;
//! - over the loss `y`, with `μ w dx = dy` and `w` the share of the shifted component:
//!   `|ζ| <= μw/a` moves `1 - e^-ζ` by at most half of `w`, hence the position by at most `1.39/a`
//!   and `dx/dy` by a factor 2: `G_k <= 10` for `R = 1`.
//!
//! The relative errors of a mass are: two nodes, `X <= 3e-3`: `10 X^4/180 <= 4.5e-12`; three
//! nodes, `X <= 0.033`: `10 X^6/2800 <= 4.7e-12`; five nodes, `X <= 0.45` over the position:
//! `2.8e-3 · 1.43e-6 X^10 e^X <= 2.2e-12`. Exponentials and logarithms add less than 1e-13.
//! [`MASS_ERROR`] is above the total of each rule.
//!
//! The split of a cell's mass between its two grid points is also integrated. The split varies by 1
//! over the cell, so that one power of `X` is lost. Over the loss it is linear to `e^-h`: the error
//! is at most `10 X^3/180 <= 1.6e-9` of the mass. Over the position it is `1 - e^(y_i)/L`, over
//! `1 - e^-h`, with Taylor coefficients below `2 w (2μ)^k / (μ w ℓ)`: the sum over both factors is
//! below `130 · 1.43e-6 X^9 <= 1.5e-7` for five nodes, and below the first bound for fewer nodes.
//! The lattices move a mass of this size to the safe side ([`GridMasses::uncertain`]).

use super::shape::Piece;
use crate::math::normal;
use crate::math::quadrature::GAUSS_5;
use crate::threads;

/// Relative error of each mass; the module documentation derives it.
pub(crate) const MASS_ERROR: f64 = 5e-12;

/// Maximum extents of two and three nodes, and of one part with five nodes.
const EXTENT_2: f64 = 3e-3;
const EXTENT_3: f64 = 0.033;
const EXTENT_5: f64 = 0.45;

/// Distance from the mean up to which a normal density is a number.
const FARTHEST: f64 = 35.0;

/// Share of a mass that may be at the wrong one of two grid points, for few nodes and for five.
const SPLIT_ERROR: f64 = 2e-9;
const SPLIT_ERROR_5: f64 = 1.5e-7;

/// Number of grid points from which a second thread is worth its cost.
const TWO_THREADS: usize = 1 << 17;

/// The masses of a grid, summed up piece by piece.
#[derive(Clone)]
pub(super) struct GridMasses {
    width: f64,
    offset: f64,
    first: i64,
    /// `1 - e^{-h}`.
    shrink: f64,
    /// `e^h`.
    growth: f64,
    /// Masses of the grid points.
    pub(super) mass: Vec<f64>,
    /// Mass of cell `i` that may be at the wrong one of its grid points.
    pub(super) uncertain: Vec<f64>,
    /// `∫ λ(1-λ) (α_i/α) dP` over cell `i`, `λ` the position of `α` between its grid points: an
    /// upper bound (in units of `e^h - 1`) of the distance of the chord above the divergence.
    pub(super) gap: Vec<f64>,
}

impl GridMasses {
    pub(super) fn new(width: f64, offset: f64, first: i64, size: usize) -> Self {
        Self {
            width,
            offset,
            first,
            shrink: -(-width).exp_m1(),
            growth: width.exp(),
            mass: vec![0.0; size],
            uncertain: vec![0.0; size],
            gap: vec![0.0; size],
        }
    }

    /// Returns the nodes of a rule in a cell, by the distance from its lower end in the direction
    /// of the unreversed loss.
    fn cell_nodes<const N: usize>(&self, rule: &[(f64, f64); N], reversed: bool) -> [Node; N] {
        rule.map(|(node, weight)| {
            let share = 0.5 * (1.0 + node);
            let distance = if reversed { 1.0 - share } else { share } * self.width;
            let fall = (-distance).exp_m1();
            let up = (-fall / self.shrink).clamp(0.0, 1.0);
            Node {
                growth_minus_one: (share * self.width).exp_m1(),
                weight: 0.5 * weight * self.width,
                up,
                gap: (1.0 - up) * up / (self.growth * (1.0 + fall)),
            }
        })
    }

    /// Adds a whole cell of a sampled Gaussian by quadrature over the loss instead of the position:
    /// position and density have closed forms, and the nodes have equal places in all cells.
    /// Returns `false` if the loss varies too quickly with the position, near its infimum
    /// `ln(1-q)`.
    fn add_smooth_cell(&mut self, piece: &Piece, nodes: &CellNodes, edge: i64, y: f64) -> bool {
        let Some((q, mu)) = piece.sampled() else { return false };
        let minus_one = y.exp_m1();
        // e^y - (1-q): the part of the mixture that is shifted.
        let shifted = minus_one + q;
        if shifted < 0.05 * q {
            return false;
        }
        let ratio = minus_one + 1.0;
        // From `e^y - 1`: the logarithm of a number near 1 would lose the digits that a small shift
        // magnifies.
        let position = |minus_one: f64| ((minus_one / q).ln_1p() + 0.5 * mu * mu) / mu;
        let length = self.width * ratio / (mu * shifted);
        let reach = position(minus_one).abs() + length;
        // The density alone would underflow; the general rule has its product with the ratio.
        if reach > FARTHEST {
            return false;
        }
        let extent = length * (2.0 + reach + 2.0 * mu);
        let nodes: &[Node] = if extent < EXTENT_2 {
            &nodes.two
        } else if extent < EXTENT_3 {
            &nodes.three
        } else {
            return false;
        };
        let cell = if piece.reversed { -edge - 1 } else { edge };
        let i = (cell - self.first) as usize;
        for node in nodes {
            let grown = ratio * node.growth_minus_one;
            let (here, shifted) = (ratio + grown, shifted + grown);
            let x = position(minus_one + grown);
            let density = (normal::LN_DENSITY_AT_ZERO - 0.5 * x * x).exp();
            let density = if piece.reversed { density } else { density * here };
            let mass = node.weight * piece.weight * density * here / (mu * shifted);
            self.mass[i] += mass * (1.0 - node.up);
            self.mass[i + 1] += mass * node.up;
            self.gap[i] += mass * node.gap;
            self.uncertain[i] += SPLIT_ERROR * mass;
        }
        true
    }

    /// Adds a mass at a loss in a cell, and returns its index: the cell of the loss, if rounding
    /// put the loss beyond the given one.
    pub(super) fn add(&mut self, mut cell: i64, loss: f64, mass: f64) -> usize {
        let cells = (loss - self.offset) / self.width;
        if !(-1e-6..=1.0 + 1e-6).contains(&(cells - cell as f64)) {
            let last = self.first + self.mass.len() as i64 - 2;
            cell = (cells.floor() as i64).clamp(self.first, last);
        }
        let i = (cell - self.first) as usize;
        let fall = (-(loss - self.offset - cell as f64 * self.width)).exp_m1();
        let up = (-fall / self.shrink).clamp(0.0, 1.0);
        self.mass[i] += mass * (1.0 - up);
        self.mass[i + 1] += mass * up;
        self.gap[i] += mass * (1.0 - up) * up / (self.growth * (1.0 + fall));
        i
    }

    /// Adds a continuous piece, with a second thread for the larger losses of a large grid.
    pub(super) fn add_piece(&mut self, piece: &Piece) {
        let size = self.mass.len();
        if size < TWO_THREADS || piece.reversed {
            return self.add_part(piece);
        }
        let middle = piece.position(0.5 * (piece.loss(piece.low) + piece.loss(piece.high)));
        if !(piece.low < middle && middle < piece.high) {
            return self.add_part(piece);
        }
        let (width, offset) = (self.width, self.offset);
        let cell = ((piece.loss(middle) - offset) / width).floor() as i64;
        let first = (cell - 2).max(self.first);
        let skipped = (first - self.first) as usize;
        let lower = piece.between(piece.low, middle);
        let upper = || {
            let mut upper = Self::new(width, offset, first, size - skipped);
            upper.add_part(&piece.between(middle, piece.high));
            upper
        };
        let ((), other) = threads::both(|| self.add_part(&lower), upper);
        let other = other.unwrap_or_else(upper);
        for (own, others) in [
            (&mut self.mass, &other.mass),
            (&mut self.uncertain, &other.uncertain),
            (&mut self.gap, &other.gap),
        ] {
            own[skipped..].iter_mut().zip(others).for_each(|(own, other)| *own += other);
        }
    }

    /// Adds a continuous piece, by quadrature between the positions of the grid points.
    fn add_part(&mut self, piece: &Piece) {
        if piece.high <= piece.low {
            return;
        }
        let sign = if piece.reversed { -1.0 } else { 1.0 };
        // Along increasing x a reversed piece passes the grid from above.
        let offset = sign * self.offset;
        let start = ((piece.loss(piece.low) - offset) / self.width).floor() as i64;
        let end = ((piece.loss(piece.high) - offset) / self.width).ceil() as i64;
        let nodes = CellNodes {
            two: self.cell_nodes(&GAUSS_2, piece.reversed),
            three: self.cell_nodes(&GAUSS_3, piece.reversed),
        };
        let mut left = piece.low;
        let mut skipped = false;
        for edge in start..end {
            let lower = offset + edge as f64 * self.width;
            if edge > start && edge + 1 < end && self.add_smooth_cell(piece, &nodes, edge, lower) {
                skipped = true;
                continue;
            }
            if std::mem::take(&mut skipped) {
                left = piece.position(lower).clamp(piece.low, piece.high);
            }
            let right = if edge + 1 == end {
                piece.high
            } else {
                let y = offset + (edge + 1) as f64 * self.width;
                piece.position(y).clamp(left, piece.high)
            };
            if right <= left {
                continue;
            }
            let cell = if piece.reversed { -edge - 1 } else { edge };
            let roughness = piece.roughness(left).max(piece.roughness(right));
            let extent = (right - left) * roughness;
            let (rule, parts, split_error): (&[(f64, f64)], usize, f64) = if extent < EXTENT_2 {
                (&GAUSS_2, 1, SPLIT_ERROR)
            } else if extent < EXTENT_3 {
                (&GAUSS_3, 1, SPLIT_ERROR)
            } else {
                (&GAUSS_5, (extent / EXTENT_5).ceil() as usize, SPLIT_ERROR_5)
            };
            let half = 0.5 * (right - left) / parts as f64;
            for part in 0..parts {
                let middle = left + half * (2 * part + 1) as f64;
                for &(node, weight) in rule {
                    let x = middle + half * node;
                    let loss = piece.loss(x);
                    let mass = half * weight * piece.density(x, loss);
                    let i = self.add(cell, sign * loss, mass);
                    self.uncertain[i] += split_error * mass;
                }
            }
            left = right;
        }
    }
}

/// One node of the quadrature over the loss in a cell.
struct Node {
    /// `e^t - 1` at distance `t` above the lower end.
    growth_minus_one: f64,
    weight: f64,
    /// Share of the upper grid point, and share of the gap.
    up: f64,
    gap: f64,
}

struct CellNodes {
    two: [Node; 2],
    three: [Node; 3],
}

/// Nodes and weights on `[-1, 1]`.
const GAUSS_2: [(f64, f64); 2] = [(-0.577_350_269_189_625_8, 1.0), (0.577_350_269_189_625_8, 1.0)];

const GAUSS_3: [(f64, f64); 3] = [
    (-0.774_596_669_241_483_4, 0.555_555_555_555_555_6),
    (0.0, 0.888_888_888_888_888_8),
    (0.774_596_669_241_483_4, 0.555_555_555_555_555_6),
];
