//! Plans and rounding of the fast Fourier transform.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

/// Rounding of the fast Fourier transform.
///
/// The error of a transform of length `n = 2^a 3^b 5^c`, relative in the 2-norm, is below
/// `FFT_ERROR (log2(n) + 3)`, for every factorization into stages of radix 2, 3, 4 and 5 in any
/// order (larger radices are built from them).
///
/// A stage multiplies by twiddle factors, then adds `r` terms with coefficients of modulus at most
/// one. The angle of a twiddle factor is a product of three rounded numbers of at most one turn, so
/// that the error of the factor is at most `2.5 · 2π + 1 < 17` units of roundoff `u`. The complex
/// product rounds by `sqrt(5) u`. For the radices `r = 2, 3, 4, 5` a path through the butterfly has
/// at most `m = 1, 4, 2, 6` roundings: the error of each output is at most `m u Σ|x_i|`, hence
/// `m u sqrt(r)` of the 2-norm, while the stage grows the norm by exactly `sqrt(r)`. Over the `r`
/// outputs the relative error is at most `(m sqrt(r) + 19.3) u`. For each level of `log2(r)` this
/// is `20.8 u`, `16.6 u`, `11.7 u` and `14.1 u`. (Higham 2002, Theorem 24.2, is the case of radix 2
/// with exact twiddle factors.) The real transform of even length adds one level of radix 2; two
/// more are reserved for terms of second order.
pub(super) const FFT_ERROR: f64 = 10.5 * f64::EPSILON;

/// Length above which plans are not cached.
const LARGEST_KEPT_PLAN: usize = 1 << 18;

/// Plans by their length.
type Plans<T> = LazyLock<Mutex<BTreeMap<usize, Arc<T>>>>;

static FORWARD: Plans<dyn RealToComplex<f64>> = LazyLock::new(Mutex::default);
static BACKWARD: Plans<dyn ComplexToReal<f64>> = LazyLock::new(Mutex::default);

/// The reason why a composition does not fit a grid.
#[derive(Debug)]
pub(super) enum GridError {
    /// The grid would need this many points.
    TooLarge(f64),
    /// The tilt overflows.
    Overflow,
}

/// Returns a plan of this length.
///
/// Each plan has a planner of its own: one planner makes other plans of a length, with other
/// rounding, after other lengths, so that an ε would depend on what was computed before it.
fn plan<T: ?Sized>(
    plans: &Plans<T>,
    size: usize,
    make: impl FnOnce(&mut RealFftPlanner<f64>) -> Arc<T>,
) -> Arc<T> {
    let mut plans = plans.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = plans.get(&size) {
        return known.clone();
    }
    let plan = make(&mut RealFftPlanner::new());
    if size <= LARGEST_KEPT_PLAN {
        plans.insert(size, plan.clone());
    }
    plan
}

/// Returns the plan of the forward transform of this length.
pub(super) fn plan_forward(size: usize) -> Arc<dyn RealToComplex<f64>> {
    plan(&FORWARD, size, |planner| planner.plan_fft_forward(size))
}

/// Returns the plan of the backward transform of this length.
pub(super) fn plan_backward(size: usize) -> Arc<dyn ComplexToReal<f64>> {
    plan(&BACKWARD, size, |planner| planner.plan_fft_inverse(size))
}

/// Returns a length of at least `n` for fast transforms: even, with prime factors 2, 3 and 5,
/// mostly 2.
pub(super) fn fast_size(n: usize) -> usize {
    let n = n.max(16);
    let mut best = n.next_power_of_two();
    for odd in [3, 5, 9, 15, 27] {
        let mut size = odd * 4;
        while size < n {
            size *= 2;
        }
        best = best.min(size);
    }
    best
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_plan_does_not_depend_on_earlier_plans() {
        let mut sizes: Vec<usize> = (6..18).flat_map(|k| [1 << k, fast_size(5 << k)]).collect();
        sizes.extend((6..16).flat_map(|k| [3, 9, 15, 27].map(|odd| odd << k)));
        let transform = |plan: Arc<dyn RealToComplex<f64>>| {
            let mut input = plan.make_input_vec();
            input.iter_mut().enumerate().for_each(|(i, x)| *x = 1.0 / (i as f64 + 1.5));
            let mut output = plan.make_output_vec();
            plan.process(&mut input, &mut output).unwrap();
            output
        };
        let orders = [sizes.clone(), sizes.iter().rev().copied().collect()];
        for size in orders.into_iter().flatten() {
            let alone = transform(RealFftPlanner::new().plan_fft_forward(size));
            plan_backward(size);
            assert!(transform(plan_forward(size)) == alone, "{size}");
        }
    }
}
