//! Minimization of a function of a few hundred numbers.
//!
//! The searches need a line search that takes a shorter step from a point without a value (a
//! strategy that is not defined), and that accepts a function with kinks (the largest error of a
//! step). Bisection for the weak conditions of Wolfe does both. argmin has BFGS with a
//! backtracking, a Moré-Thuente and a Hager-Zhang line search: the first never lengthens a step, so
//! it does not ensure the curvature condition, and the others interpolate values, which must be
//! finite at every point that they try.

/// Maximum number of evaluations in a search.
const EVALUATIONS: usize = 10_000;
/// Improvement of the value (a logarithm) in [`PATIENCE`] steps below which a search ends.
const IMPROVEMENT: f64 = 1e-13;
const PATIENCE: usize = 10;
/// The conditions of Wolfe: share of the expected decrease, and of the remaining slope.
const DECREASE: f64 = 1e-4;
const CURVATURE: f64 = 0.9;
/// Maximum number of lengths that are tried along one direction.
const LENGTHS: usize = 60;

/// Returns the best point of a search from `start`, and its value. `function` returns the value and
/// the gradient, or `None` where it is not defined; such points are never entered.
///
/// The method is BFGS with a line search by bisection for the weak conditions of Wolfe, which also
/// works for functions that are not smooth ("Nonsmooth optimization via quasi-Newton methods",
/// Lewis, Overton 2013).
pub(super) fn minimize(
    start: &[f64],
    function: impl Fn(&[f64]) -> Option<(f64, Vec<f64>)>,
) -> (Vec<f64>, f64) {
    let evaluate = |x: Vec<f64>| {
        let (value, gradient) = function(&x)?;
        let is_finite = value.is_finite() && gradient.iter().all(|g| g.is_finite());
        is_finite.then_some(Point { x, value, gradient })
    };
    let Some(mut point) = evaluate(start.to_vec()) else {
        return (start.to_vec(), f64::INFINITY);
    };
    let mut curvature: Option<InverseCurvature> = None;
    let mut values = vec![point.value];
    let mut evaluations = 0;
    while evaluations < EVALUATIONS {
        let mut direction: Vec<f64> = match &curvature {
            Some(inverse) => inverse.times(&point.gradient),
            // The first step is short, because nothing is known about the curvature.
            None => {
                let norm = dot(&point.gradient, &point.gradient).sqrt();
                point.gradient.iter().map(|g| 0.1 * g / norm.max(0.1)).collect()
            }
        };
        direction.iter_mut().for_each(|d| *d = -*d);
        let Some(next) = line_search(&point, &direction, &evaluate, &mut evaluations) else {
            // Along the gradient there is nothing left; otherwise the curvature is reset.
            if curvature.take().is_none() {
                break;
            }
            continue;
        };
        let moved: Vec<f64> = next.x.iter().zip(&point.x).map(|(a, b)| a - b).collect();
        let change: Vec<f64> =
            next.gradient.iter().zip(&point.gradient).map(|(a, b)| a - b).collect();
        let product = dot(&moved, &change);
        if product > 0.0 {
            curvature
                .get_or_insert_with(|| {
                    InverseCurvature::new(moved.len(), product / dot(&change, &change))
                })
                .update(&moved, &change, product);
        }
        point = next;
        values.push(point.value);
        let earlier = values.len().checked_sub(PATIENCE + 1).map(|i| values[i]);
        if earlier.is_some_and(|earlier| earlier - point.value <= IMPROVEMENT) {
            break;
        }
    }
    (point.x, point.value)
}

struct Point {
    x: Vec<f64>,
    value: f64,
    gradient: Vec<f64>,
}

/// Returns a point along `direction` with a lower value and a flatter slope, or the lowest that was
/// found; `None` if the value does not fall.
fn line_search(
    point: &Point,
    direction: &[f64],
    evaluate: &impl Fn(Vec<f64>) -> Option<Point>,
    evaluations: &mut usize,
) -> Option<Point> {
    let slope = dot(&point.gradient, direction);
    if slope.is_nan() || slope >= 0.0 {
        return None;
    }
    let (mut low, mut high, mut length) = (0.0, f64::INFINITY, 1.0);
    let mut best: Option<Point> = None;
    for _ in 0..LENGTHS {
        *evaluations += 1;
        let next = evaluate(point.x.iter().zip(direction).map(|(x, d)| x + length * d).collect());
        match next {
            Some(next) if next.value <= point.value + DECREASE * length * slope => {
                let is_flat = dot(&next.gradient, direction) >= CURVATURE * slope;
                low = length;
                if next.value < point.value {
                    best = Some(next);
                }
                if is_flat {
                    break;
                }
            }
            _ => high = length,
        }
        length = if high.is_finite() { 0.5 * (low + high) } else { 2.0 * low };
    }
    best
}

/// The approximation of the inverse of the second derivatives, row by row.
struct InverseCurvature {
    entries: Vec<f64>,
    n: usize,
}

impl InverseCurvature {
    fn new(n: usize, scale: f64) -> Self {
        let mut entries = vec![0.0; n * n];
        (0..n).for_each(|i| entries[i * n + i] = scale);
        Self { entries, n }
    }

    fn times(&self, vector: &[f64]) -> Vec<f64> {
        self.entries.chunks(self.n).map(|row| dot(row, vector)).collect()
    }

    /// The formula of Broyden, Fletcher, Goldfarb and Shanno; `product` is `moved · change`.
    fn update(&mut self, moved: &[f64], change: &[f64], product: f64) {
        let image = self.times(change);
        let scale = (1.0 + dot(change, &image) / product) / product;
        for (i, row) in self.entries.chunks_mut(self.n).enumerate() {
            for (j, entry) in row.iter_mut().enumerate() {
                *entry += scale * moved[i] * moved[j]
                    - (image[i] * moved[j] + moved[i] * image[j]) / product;
            }
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimum_of_a_curved_valley_is_found() {
        let rosenbrock = |x: &[f64]| {
            let (a, b) = (1.0 - x[0], x[1] - x[0] * x[0]);
            let value = a * a + 100.0 * b * b;
            Some((value, vec![-2.0 * a - 400.0 * b * x[0], 200.0 * b]))
        };
        let (x, value) = minimize(&[-1.2, 1.0], rosenbrock);
        assert!(value < 1e-12 && (x[0] - 1.0).abs() < 1e-5, "{x:?} {value}");
    }

    #[test]
    fn minimum_at_a_kink_is_found() {
        let kink = |x: &[f64]| {
            let (a, b) = (x[0] - 0.5, x[1] + 2.0 * x[0]);
            let gradient = vec![a.signum() + 4.0 * b, 2.0 * b];
            Some((a.abs() + b * b, gradient))
        };
        let (x, value) = minimize(&[3.0, 2.0], kink);
        assert!(value < 1e-9, "{x:?} {value}");
    }

    #[test]
    fn undefined_points_are_not_entered() {
        let root = |x: &[f64]| (x[0] > 0.0).then(|| (x[0] - x[0].ln(), vec![1.0 - 1.0 / x[0]]));
        let (x, _) = minimize(&[1e-3], root);
        assert!((x[0] - 1.0).abs() < 1e-6, "{x:?}");
        let (x, value) = minimize(&[0.3], |_| None);
        assert!(x == [0.3] && value.is_infinite());
    }
}
