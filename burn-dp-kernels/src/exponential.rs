//! The exponential function without branches, so that loops over it become vector instructions.

/// Returns `(2ⁿ, eʳ − 1)` with `eˣ = 2ⁿ eʳ` and `|r| ≤ ln 2 / 2`, so that neither `eˣ` nor `eˣ − 1`
/// cancels. `x` is moved into the range in which 2ⁿ is a normal number; NaN stays NaN.
///
/// The polynomial is the Taylor series of `eʳ − 1` up to `r⁷`. The first omitted term is
/// `r⁷ / 8! < 1.5e-8` of the first.
#[inline(always)]
pub fn exponential(x: f32) -> (f32, f32) {
    const HIGH: f32 = 88.0;
    // Adding it rounds to an integer, which the lowest bits of the sum hold.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts; products of the first with integers of 8 bits are exact.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;

    let x = if x < LOWEST { LOWEST } else { x };
    let x = if x > HIGH { HIGH } else { x };
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = x - n * LN_2_HIGH - n * LN_2_LOW;
    let power = f32::from_bits((rounded.to_bits() << 23).wrapping_add(1.0f32.to_bits()));
    let mut series = 1.0 / 5040.0;
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0] {
        series = series * r + coefficient;
    }
    (power, series * r)
}

/// The argument that lower ones are moved to.
pub(crate) const LOWEST: f32 = -87.0;
