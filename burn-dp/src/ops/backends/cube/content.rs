//! The keyed hash of sums.

use burn_cubecl::cubecl;
use cubecl::prelude::*;

use super::keystream::{KEY_WORDS, block};
use super::wide::{Wide, add, product};

/// Hashes floats, given as their bits. Unit u of n hashes the blocks u, u + n, …
///
/// - key: from `place` on, the ten words of the stream of the second level, and both halves of the
///   first level, each three words longer than half a block
/// - count: the number of values; memory may have more
/// - half: half the length of a block, not as a constant, because LLVM would take half a minute to
///   unroll the loop over it
/// - units: the number of units
/// - results: nine words for each unit: four sums of 64 bits, and whether a value was not finite
#[cube(launch)]
pub fn content_hash(
    values: &[u32],
    key: &[u32],
    results: &mut [u32],
    count: usize,
    half: usize,
    units: usize,
    place: usize,
) {
    let unit = ABSOLUTE_POS;
    if unit < units {
        let mut sums = Array::<u32>::new(8usize);
        for word in 0..8usize {
            sums[word] = 0;
        }
        let mut not_finite = 0u32;
        let blocks = count.div_ceil(2 * half);
        let mut index = unit;
        while index < blocks {
            let mut lanes = Array::<u32>::new(8usize);
            for word in 0..8usize {
                lanes[word] = 0;
            }
            for term in 0..half {
                let position = index * 2 * half + term;
                let mut first = 0u32;
                let mut second = 0u32;
                if position < count {
                    first = values[position];
                }
                if position + half < count {
                    second = values[position + half];
                }
                if (first >> 23) & 255 == 255 || (second >> 23) & 255 == 255 {
                    not_finite = 1;
                }
                for lane in 0..4usize {
                    let a = first + key[place + 10 + term + lane];
                    let b = second + key[place + 13 + half + term + lane];
                    let sum = Wide { low: lanes[2 * lane], high: lanes[2 * lane + 1] };
                    let sum = add(sum, product(a, b));
                    lanes[2 * lane] = sum.low;
                    lanes[2 * lane + 1] = sum.high;
                }
            }
            let words = block(key, place, place + KEY_WORDS, u32::cast_from(index));
            for lane in 0..4usize {
                let a = lanes[2 * lane] + words[2 * lane];
                let b = lanes[2 * lane + 1] + words[2 * lane + 1];
                let sum = Wide { low: sums[2 * lane], high: sums[2 * lane + 1] };
                let sum = add(sum, product(a, b));
                sums[2 * lane] = sum.low;
                sums[2 * lane + 1] = sum.high;
            }
            index += units;
        }
        for word in 0..8usize {
            results[unit * 9 + word] = sums[word];
        }
        results[unit * 9 + 8] = not_finite;
    }
}
