//! The privacy loss of a pair as monotone functions on a line, ready for quadrature.

use std::sync::Arc;

use crate::dominating_pairs::{Direction, Pair, ln_line, ln_mixture};
use crate::math::logarithms::ln_add_exp;
use crate::math::normal;

/// One continuous piece of a privacy loss: the loss increases in `x`, and `x` has a density under
/// `P`.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    kind: PieceKind,
    /// Probability of the piece within the pair.
    pub(crate) weight: f64,
    /// Whether `P` and `Q` are swapped: the privacy loss is then the negative of `loss(x)`.
    pub(crate) reversed: bool,
    /// Lower end of the piece; losses outside it belong to atoms or other pieces.
    pub(crate) low: f64,
    /// Upper end of the piece.
    pub(crate) high: f64,
}

#[derive(Debug, Clone)]
enum PieceKind {
    Gaussian { mu: f64 },
    Sampled { q: f64, mu: f64 },
    Substituted { q: f64, mu: f64 },
    Laplace { q: f64, mu: f64 },
    Line { components: Arc<[(f64, f64)]> },
}

/// The parts of a pair: continuous pieces and atoms `(loss, mass under P)`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shape {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) atoms: Vec<(f64, f64)>,
    /// Atoms of a pair that is known by its bounds: worse and better than the pair.
    pub(crate) worse: Vec<(f64, f64)>,
    pub(crate) better: Vec<(f64, f64)>,
    /// Mass at an infinite loss that belongs to the worse atoms.
    pub(crate) infinite: f64,
}

impl Shape {
    /// Returns the privacy loss of `pair` in `direction` without its tails, of probability `tail`
    /// on each side of each piece. The caller accounts for `2 · tail` per piece.
    pub(crate) fn new(pair: &Pair, direction: Direction, tail: f64) -> Self {
        let reach = -normal::quantile(tail.max(1e-300));
        let reversed = direction == Direction::Add;
        let piece = |kind, low, high| Piece { kind, weight: 1.0, reversed, low, high };
        match *pair {
            Pair::Gaussian { mu } => Self {
                pieces: vec![Piece {
                    reversed: false,
                    ..piece(PieceKind::Gaussian { mu }, mu - reach, mu + reach)
                }],
                ..Self::default()
            },
            Pair::Sampled { q, mu } => {
                let high = if reversed { reach } else { mu + reach };
                Self {
                    pieces: vec![piece(PieceKind::Sampled { q, mu }, -reach, high)],
                    ..Self::default()
                }
            }
            Pair::Line { ref components } => {
                let largest = components.iter().map(|(_, mu)| *mu).fold(0.0, f64::max);
                let high = if reversed { reach } else { largest + reach };
                let kind = PieceKind::Line { components: components.clone() };
                Self { pieces: vec![piece(kind, -reach, high)], ..Self::default() }
            }
            Pair::Substituted { q, mu } => Self {
                pieces: vec![Piece {
                    reversed: false,
                    ..piece(PieceKind::Substituted { q, mu }, -reach, mu + reach)
                }],
                ..Self::default()
            },
            Pair::Symmetrized { q, ref components } => symmetrized(q, components, reach),
            Pair::Laplace { mu } => laplace(1.0, mu, false),
            Pair::SampledLaplace { q, mu } => laplace(q, mu, reversed),
            Pair::RandomizedResponse { epsilon } => {
                let high = 1.0 / (1.0 + (-epsilon).exp());
                let low = (-epsilon).exp() / (1.0 + (-epsilon).exp());
                Self { atoms: vec![(epsilon, high), (-epsilon, low)], ..Self::default() }
            }
            Pair::DiscreteGaussian { sigma, shift } => discrete_gaussian(sigma, shift, reach, tail),
            Pair::Allocated(ref allocation) => {
                let worse = allocation.upper(direction, tail);
                Self {
                    worse: worse.atoms,
                    better: allocation.lower(direction, tail),
                    infinite: worse.infinite,
                    ..Self::default()
                }
            }
            Pair::Bounded(ref table) => Self {
                worse: table.atoms().to_vec(),
                // Nothing is known from below: the distributions may be equal.
                better: vec![(0.0, 1.0)],
                infinite: table.infinite(),
                ..Self::default()
            },
            Pair::Mixture { ref components, .. } => {
                let mut shape = Self::default();
                for (weight, pair) in components {
                    shape.add(*weight, Self::new(pair, direction, tail));
                }
                shape
            }
        }
    }
}

impl Shape {
    /// Adds another shape with a weight.
    fn add(&mut self, weight: f64, other: Self) {
        let weighted = |piece: Piece| Piece { weight: weight * piece.weight, ..piece };
        self.pieces.extend(other.pieces.into_iter().map(weighted));
        let weighted = |(loss, mass): (f64, f64)| (loss, weight * mass);
        self.atoms.extend(other.atoms.into_iter().map(weighted));
        self.worse.extend(other.worse.into_iter().map(weighted));
        self.better.extend(other.better.into_iter().map(weighted));
        self.infinite += weight * other.infinite;
    }
}

/// Returns the shape of `max(H(P||Q), H(Q||P))`: above 0 the losses of "remove", below 0 the losses
/// of "add", and the remaining mass at 0.
fn symmetrized(q: f64, components: &[(f64, f64)], reach: f64) -> Shape {
    let mut shape = Shape::default();
    let mut at_zero = 0.0;
    for &(weight, mu) in components {
        let kind = PieceKind::Sampled { q, mu };
        let middle = 0.5 * mu;
        shape.pieces.push(Piece {
            kind: kind.clone(),
            weight,
            reversed: false,
            low: middle,
            high: mu + reach,
        });
        shape.pieces.push(Piece {
            kind,
            weight,
            reversed: true,
            low: middle,
            high: reach.max(middle),
        });
        // P_remove(Y > 0) + P_add(Y < 0).
        let outside = (2.0 - q) * normal::cdf(-middle) + q * normal::cdf(middle);
        at_zero += weight * (1.0 - outside).max(0.0);
    }
    shape.atoms.push((0.0, at_zero));
    shape
}

/// Returns the atoms of discrete Gaussian noise within `reach` standard deviations. Its tails are
/// at most the tails of the continuous Gaussian one unit nearer (Canonne, Kamath, Steinke 2020,
/// Proposition 25).
fn discrete_gaussian(sigma: f64, shift: f64, reach: f64, tail: f64) -> Shape {
    let last = (reach * sigma).ceil() as i64 + 1;
    let mass = |k: i64| (-0.5 * (k as f64 / sigma).powi(2)).exp();
    // Terms beyond 39 standard deviations underflow.
    let far = last.max((39.0 * sigma).ceil() as i64);
    let total = 1.0 + 2.0 * (1..=far).rev().map(mass).sum::<f64>();
    let loss = |k: i64| shift / (sigma * sigma) * (k as f64 + 0.5 * shift);
    let atoms = (-last..=last).map(|k| (loss(k), mass(k) / total * (1.0 + 1e-14)));
    Shape { atoms: atoms.collect(), infinite: 2.0 * tail, ..Shape::default() }
}

/// Returns the shape of `Laplace(μ, 1)` against `Laplace(0, 1)`, mixed with probability `q`.
fn laplace(q: f64, mu: f64, reversed: bool) -> Shape {
    let mix = |loss: f64| (q * loss.exp_m1()).ln_1p();
    let (top, bottom) = (mix(mu), mix(-mu));
    // Masses under Q (Laplace(0)): beyond μ, below 0.
    let (q_top, q_bottom) = (0.5 * (-mu).exp(), 0.5);
    let atoms = if reversed {
        vec![(-top, q_top), (-bottom, q_bottom)]
    } else {
        vec![(top, q_top * top.exp()), (bottom, q_bottom * bottom.exp())]
    };
    let kind = PieceKind::Laplace { q, mu };
    let piece = Piece { kind, weight: 1.0, reversed, low: 0.0, high: mu };
    Shape { pieces: vec![piece], atoms, ..Shape::default() }
}

impl Piece {
    /// Returns `q` and `μ` of a sampled Gaussian.
    pub(crate) fn sampled(&self) -> Option<(f64, f64)> {
        match self.kind {
            PieceKind::Sampled { q, mu } => Some((q, mu)),
            _ => None,
        }
    }

    /// Returns the unreversed loss at `x`.
    pub(crate) fn loss(&self, x: f64) -> f64 {
        match self.kind {
            PieceKind::Gaussian { mu } => mu * x - 0.5 * mu * mu,
            PieceKind::Sampled { q, mu } => ln_mixture(q, mu, x),
            PieceKind::Substituted { q, mu } => ln_mixture(q, mu, x) - ln_mixture(q, mu, -x),
            PieceKind::Laplace { q, mu } => (q * (2.0 * x - mu).exp_m1()).ln_1p(),
            PieceKind::Line { ref components } => ln_line(components, x),
        }
    }

    /// Returns the part of the piece between two of its positions.
    pub(crate) fn between(&self, low: f64, high: f64) -> Self {
        Self { low, high, ..self.clone() }
    }

    /// Returns the `x` at which the unreversed loss is `y`. Rounding only moves the edge of a
    /// quadrature interval, which is harmless: each node uses its own loss and cell.
    pub(crate) fn position(&self, y: f64) -> f64 {
        let x = match self.kind {
            PieceKind::Gaussian { mu } => y / mu + 0.5 * mu,
            PieceKind::Sampled { q, mu } => (inverse_mixture(q, y) + 0.5 * mu * mu) / mu,
            PieceKind::Substituted { q, mu } => {
                // t = (b + √(b² + 4c² e^|y|))/(2c), b = (1-q)(e^|y| - 1), c = q e^{-μ²/2}, in
                // logarithms: large shifts and losses are beyond the range of numbers.
                let absolute = y.abs();
                let ln_2 = std::f64::consts::LN_2;
                let ln_c = q.ln() - 0.5 * mu * mu;
                let ln_b = (-q).ln_1p() + ln_exp_minus_one(absolute);
                let ln_root = 0.5 * ln_add_exp(2.0 * ln_b, 2.0 * (ln_c + ln_2) + absolute);
                (ln_add_exp(ln_b, ln_root) - ln_2 - ln_c).copysign(y) / mu
            }
            PieceKind::Laplace { q, mu } => 0.5 * (inverse_mixture(q, y) + mu),
            PieceKind::Line { .. } => {
                let (mut low, mut high) = (self.low, self.high);
                for _ in 0..60 {
                    let middle = 0.5 * (low + high);
                    if self.loss(middle) < y { low = middle } else { high = middle }
                }
                high
            }
        };
        if x.is_nan() { self.low } else { x }
    }

    /// Returns the density of `x` under `P`, given the unreversed loss there.
    pub(crate) fn density(&self, x: f64, loss: f64) -> f64 {
        let ln_density = match self.kind {
            PieceKind::Gaussian { mu } => normal::LN_DENSITY_AT_ZERO - 0.5 * (x - mu) * (x - mu),
            PieceKind::Sampled { .. } | PieceKind::Line { .. } => {
                normal::LN_DENSITY_AT_ZERO - 0.5 * x * x + if self.reversed { 0.0 } else { loss }
            }
            PieceKind::Substituted { q, mu } => {
                normal::LN_DENSITY_AT_ZERO - 0.5 * x * x + ln_mixture(q, mu, x)
            }
            PieceKind::Laplace { .. } => {
                -x - std::f64::consts::LN_2 + if self.reversed { 0.0 } else { loss }
            }
        };
        self.weight * ln_density.exp()
    }

    /// Returns the rate at which density and loss vary at `x`: the inverse of a length.
    pub(crate) fn roughness(&self, x: f64) -> f64 {
        match self.kind {
            PieceKind::Gaussian { mu } => 2.0 + (x - mu).abs(),
            PieceKind::Sampled { mu, .. } | PieceKind::Substituted { mu, .. } => {
                2.0 + x.abs() + 2.0 * mu
            }
            PieceKind::Laplace { .. } => 6.0,
            PieceKind::Line { ref components } => {
                2.0 + x.abs() + 2.0 * components.iter().map(|(_, mu)| *mu).fold(0.0, f64::max)
            }
        }
    }
}

/// Returns `ln(e^y - 1)` for `y >= 0`.
fn ln_exp_minus_one(y: f64) -> f64 {
    if y > 30.0 { y + (-(-y).exp()).ln_1p() } else { y.exp_m1().ln() }
}

/// Returns `ln((e^y - 1 + q)/q)`: the loss before sampling.
fn inverse_mixture(q: f64, y: f64) -> f64 {
    if y > 30.0 { y - q.ln() } else { (y.exp_m1() / q).ln_1p() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_inverts_the_loss() {
        let pairs = [
            Pair::Gaussian { mu: 0.7 },
            Pair::Sampled { q: 0.01, mu: 1.3 },
            Pair::Substituted { q: 0.2, mu: 0.9 },
            Pair::Substituted { q: 0.01, mu: 33.0 },
            Pair::Substituted { q: 0.001, mu: 60.0 },
            Pair::SampledLaplace { q: 0.1, mu: 2.0 },
            Pair::Line { components: [(0.7, 0.0), (0.2, 0.5), (0.1, 1.0)].into() },
        ];
        for pair in pairs {
            let shape = Shape::new(&pair, Direction::Remove, 1e-10);
            let piece = &shape.pieces[0];
            for share in [0.3, 0.5, 0.9] {
                let x = piece.low + share * (piece.high - piece.low);
                // With a large shift the loss is flat between the components.
                let loss = piece.loss(x);
                if loss.abs() > 1e-9 {
                    assert!((piece.position(loss) - x).abs() < 1e-6, "{pair:?} {x}");
                }
                assert!((piece.loss(piece.position(loss)) - loss).abs() < 1e-6, "{pair:?} {x}");
            }
        }
    }
}
