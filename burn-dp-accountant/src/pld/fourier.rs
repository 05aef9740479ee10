//! Plans and rounding of the fast Fourier transform.

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

/// The plans, one for each length.
static PLANNER: LazyLock<Mutex<RealFftPlanner<f64>>> =
    LazyLock::new(|| Mutex::new(RealFftPlanner::new()));

/// The reason why a composition does not fit a grid.
#[derive(Debug)]
pub(super) enum GridError {
    /// The grid would need this many points.
    TooLarge(f64),
    /// The tilt overflows.
    Overflow,
}

fn plan<T>(size: usize, make: impl FnOnce(&mut RealFftPlanner<f64>) -> T) -> T {
    let mut planner = PLANNER.lock().unwrap_or_else(PoisonError::into_inner);
    let plan = make(&mut planner);
    if size > LARGEST_KEPT_PLAN {
        *planner = RealFftPlanner::new();
    }
    plan
}

/// Returns the plan of the forward transform of this length.
pub(super) fn plan_forward(size: usize) -> Arc<dyn RealToComplex<f64>> {
    plan(size, |planner| planner.plan_fft_forward(size))
}

/// Returns the plan of the backward transform of this length.
pub(super) fn plan_backward(size: usize) -> Arc<dyn ComplexToReal<f64>> {
    plan(size, |planner| planner.plan_fft_inverse(size))
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
