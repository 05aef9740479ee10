//! Complex logarithms for the contour integrals.

pub(crate) use rustfft::num_complex::Complex64;

/// Returns `ln(1 + z)`, also accurate for small `z`.
pub(crate) fn ln_1p(z: Complex64) -> Complex64 {
    let norm = z.re * (2.0 + z.re) + z.im * z.im;
    let magnitude = if norm > -0.5 { 0.5 * norm.ln_1p() } else { (1.0 + z).norm().ln() };
    Complex64::new(magnitude, z.im.atan2(1.0 + z.re))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithm_inverts_the_exponential() {
        for z in [Complex64::new(1e-9, 2e-9), Complex64::new(0.3, -0.4), Complex64::new(2.0, 3.0)] {
            let half = 0.5 * z.im;
            // e^z - 1 without cancellation.
            let minus_one = Complex64::new(
                z.re.exp_m1() * z.im.cos() - 2.0 * half.sin().powi(2),
                z.re.exp() * z.im.sin(),
            );
            assert!((ln_1p(minus_one) - z).norm() < 1e-15 * (1.0 + z.norm()), "{z}");
        }
    }
}
