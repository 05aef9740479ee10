//! What the contour integrals need of complex numbers beyond arithmetic.

pub(crate) use rustfft::num_complex::Complex64;

/// `e^z - 1 - z`, accurate also where it is tiny.
pub(crate) fn exp_minus_tangent(z: Complex64) -> Complex64 {
    if z.norm_sqr() < 0.25 {
        let mut sum = Complex64::new(1.0, 0.0);
        for k in (3..=18).rev() {
            sum = sum * z / f64::from(k) + 1.0;
        }
        0.5 * z * z * sum
    } else {
        let (sin, cos) = z.im.sin_cos();
        let half = (0.5 * z.im).sin();
        let growth = z.re.exp();
        Complex64::new(z.re.exp_m1() * cos - 2.0 * half * half - z.re, growth * sin - z.im)
    }
}

/// `ln(1 + z)`, accurate also where `z` is tiny.
pub(crate) fn ln_1p(z: Complex64) -> Complex64 {
    let norm = z.re * (2.0 + z.re) + z.im * z.im;
    let magnitude = if norm > -0.5 { 0.5 * norm.ln_1p() } else { (1.0 + z).norm().ln() };
    Complex64::new(magnitude, z.im.atan2(1.0 + z.re))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_undoes_the_exponential() {
        for z in [Complex64::new(1e-9, 2e-9), Complex64::new(0.3, -0.4), Complex64::new(2.0, 3.0)] {
            let exponential = exp_minus_tangent(z) + z;
            assert!((ln_1p(exponential) - z).norm() < 1e-15 * (1.0 + z.norm()), "{z}");
        }
    }

    #[test]
    fn the_exponential_minus_its_tangent_is_continuous_at_the_seam() {
        let inside = exp_minus_tangent(Complex64::new(0.3, 0.399_999_999_999));
        let outside = exp_minus_tangent(Complex64::new(0.3, 0.400_000_000_001));
        assert!((inside - outside).norm() < 1e-11);
    }
}
