//! The keyed hash of sums.

use burn_cubecl::cubecl;
use cubecl::prelude::*;

use super::keystream::{KEY_WORDS, block};
use super::release::place_of_part;
use super::wide::{Wide, add, product};
use crate::ops::release_ops::PART_WORDS;

/// Hashes the parts of floats, given as their bits. Unit u of the n units of a part hashes its
/// blocks u, u + n, …
///
/// - words: the words of the parts begin at `place`, `stride` words for each: the first unit, the
///   first value, the number of values and of units, the ten words of the stream of the second
///   level, and both halves of the first level, each three words longer than half a block
/// - half: half the length of a block, not as a constant, because LLVM would take half a minute to
///   unroll the loop over it
/// - units: the number of units of all parts
/// - results: nine words for each unit: four sums of 64 bits, and whether a value was not finite
#[cube(launch)]
pub fn content_hash(
    values: &[u32],
    words: &[u32],
    results: &mut [u32],
    half: usize,
    units: usize,
    parts: usize,
    place: usize,
    stride: usize,
) {
    let unit = ABSOLUTE_POS;
    if unit < units {
        let part = place_of_part(words, place, parts, stride, unit);
        let from = usize::cast_from(words[part + 1]);
        let count = usize::cast_from(words[part + 2]);
        let units_of_part = usize::cast_from(words[part + 3]);
        let key = part + PART_WORDS;
        let mut sums = Array::<u32>::new(8usize);
        for word in 0..8usize {
            sums[word] = 0;
        }
        let mut not_finite = 0u32;
        let blocks = count.div_ceil(2 * half);
        let mut index = unit - usize::cast_from(words[part]);
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
                    first = values[from + position];
                }
                if position + half < count {
                    second = values[from + position + half];
                }
                if (first >> 23) & 255 == 255 || (second >> 23) & 255 == 255 {
                    not_finite = 1;
                }
                for lane in 0..4usize {
                    let a = first + words[key + 10 + term + lane];
                    let b = second + words[key + 13 + half + term + lane];
                    let sum = Wide { low: lanes[2 * lane], high: lanes[2 * lane + 1] };
                    let sum = add(sum, product(a, b));
                    lanes[2 * lane] = sum.low;
                    lanes[2 * lane + 1] = sum.high;
                }
            }
            let drawn = block(words, key, key + KEY_WORDS, u32::cast_from(index));
            for lane in 0..4usize {
                let a = lanes[2 * lane] + drawn[2 * lane];
                let b = lanes[2 * lane + 1] + drawn[2 * lane + 1];
                let sum = Wide { low: sums[2 * lane], high: sums[2 * lane + 1] };
                let sum = add(sum, product(a, b));
                sums[2 * lane] = sum.low;
                sums[2 * lane + 1] = sum.high;
            }
            index += units_of_part;
        }
        for word in 0..8usize {
            results[unit * 9 + word] = sums[word];
        }
        results[unit * 9 + 8] = not_finite;
    }
}
