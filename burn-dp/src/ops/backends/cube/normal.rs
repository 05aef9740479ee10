//! The integer normal quantile: the arithmetic of the host on 32-bit integers.

use burn_cubecl::cubecl;
use cubecl::prelude::*;

use super::wide::{Wide, add, copy, leading_zeros, negate_if, product, shift_left, shift_right};

/// Returns the normal value of `word`, in units of 2^-40.
///
/// - other: the word whose bits extend `word`
/// - table: six words for each polynomial
#[cube]
pub(super) fn normal(word: Wide, other: Wide, table: &[u32]) -> Wide {
    let magnitude = Wide { low: word.low << 1, high: (word.high << 1) | (word.low >> 31) };
    let octave = leading_zeros(copy(&magnitude));
    // octave + 1 bits, the lowest 22 first: rotated left by 42.
    let turned = Wide {
        low: (other.high << 10) | (other.low >> 22),
        high: (other.low << 10) | (other.high >> 22),
    };
    let extension = shift_right(turned, 63 - octave, 0);
    let shifted = shift_left(magnitude, octave);
    let low = shifted.low | extension.low;
    let high = shifted.high | extension.high;
    // Everything after the leading one.
    let place = Wide { low: low << 1, high: (high << 1) | (low >> 31) };
    let row = usize::cast_from(octave * 64 + (place.high >> 26)) * 6;
    let t_low = place.low << 6;
    let t_high = (place.high << 6) | (place.low >> 26);
    // c3 + c4 t, and so on.
    let sum = table[row + 5] + (table[row + 3] >> 8).mul_hi(t_high);
    let sum = table[row + 4] + sum.mul_hi(t_high);
    let slope = add(
        Wide { low: table[row + 2], high: table[row + 3] & 255 },
        Wide { low: sum.mul_hi(t_high), high: 0u32.runtime() },
    );
    let rest = Wide { low: slope.high.mul_hi(t_low), high: 0u32.runtime() };
    let last = Wide { low: slope.low.mul_hi(t_high), high: 0u32.runtime() };
    let value = add(Wide { low: table[row], high: table[row + 1] }, product(slope.high, t_high));
    let value =
        add(add(value, rest), add(last, Wide { low: 32u32.runtime(), high: 0u32.runtime() }));
    negate_if(shift_right(value, 6, 0), 0 - (word.high >> 31))
}

/// Computes the normal values of pairs of words, `[low, high, low, high]` each, into `[low, high]`
/// of the first.
#[cfg(test)]
#[cube(launch)]
pub fn normal_values(words: &[u32], table: &[u32], values: &mut [u32]) {
    let pair = ABSOLUTE_POS;
    if pair < words.len() / 4 {
        let word = Wide { low: words[4 * pair], high: words[4 * pair + 1] };
        let other = Wide { low: words[4 * pair + 2], high: words[4 * pair + 3] };
        let value = normal(word, other, table);
        values[2 * pair] = value.low;
        values[2 * pair + 1] = value.high;
    }
}
