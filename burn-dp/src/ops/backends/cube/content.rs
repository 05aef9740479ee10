//! The keyed hash of sums.

use burn_cubecl::cubecl;
use cubecl::prelude::*;

use super::keystream::block;
use super::wide::{Wide, add, product};

/// Hashes floats, given as their bits. Unit u of n hashes the blocks u, u + n, …
///
/// - key: the ten words of the stream of the second level, and both halves of the first level
/// - results: nine words for each unit: four sums of 64 bits, and whether a value was not finite
#[cube(launch)]
pub fn content_hash(values: &[u32], key: &[u32], results: &mut [u32]) {
    let unit = ABSOLUTE_POS;
    let units = results.len() / 9;
    if unit < units {
        let mut sums = Array::<u32>::new(8usize);
        for word in 0..8usize {
            sums[word] = 0;
        }
        let mut not_finite = 0u32;
        let blocks = values.len().div_ceil(1024);
        let mut index = unit;
        while index < blocks {
            let mut lanes = Array::<u32>::new(8usize);
            for word in 0..8usize {
                lanes[word] = 0;
            }
            for place in 0..512usize {
                let position = index * 1024 + place;
                let mut first = 0u32;
                let mut second = 0u32;
                if position < values.len() {
                    first = values[position];
                }
                if position + 512 < values.len() {
                    second = values[position + 512];
                }
                if (first >> 23) & 255 == 255 || (second >> 23) & 255 == 255 {
                    not_finite = 1;
                }
                for lane in 0..4usize {
                    let a = first + key[10 + place + lane];
                    let b = second + key[525 + place + lane];
                    let sum = Wide { low: lanes[2 * lane], high: lanes[2 * lane + 1] };
                    let sum = add(sum, product(a, b));
                    lanes[2 * lane] = sum.low;
                    lanes[2 * lane + 1] = sum.high;
                }
            }
            let words = block(key, 0usize, u32::cast_from(index));
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
