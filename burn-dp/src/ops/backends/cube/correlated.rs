//! The release of sums with correlated noise: the recurrence of the host in double precision.

use burn_cubecl::cubecl;
use cubecl::prelude::*;

use super::double::{from_double, multiply, sum, to_double};
use super::keystream::block;
use super::normal::normal;
use super::release::{grid, noisy};
use super::wide::{Wide, add, copy};

/// Places of words after the words of a mechanism.
/// Place of the number of the stream.
const STREAM_NUMBER: usize = 8;
const BLOCKS: usize = 13;
const FIRST_BLOCK: usize = 14;
const SLOTS: usize = 15;
const READS: usize = 16;
const WRITES: usize = 17;
const FACTORS: usize = 18;
/// Words of a slot that is read: its factor and its number.
const READ_WORDS: usize = 3;
/// Words of a slot that is drawn again: its factor and the key.
const KEY_WORDS: usize = 10;
/// Words of a slot that changes: its number and three factors.
const WRITE_WORDS: usize = 7;

/// Returns two words as one of 64 bits.
#[cube]
fn wide(words: &[u32], place: usize) -> Wide {
    Wide { low: words[place], high: words[place + 1] }
}

#[cube]
fn taken(values: &Array<u32>, index: usize) -> Wide {
    Wide { low: values[2 * index], high: values[2 * index + 1] }
}

#[cube]
fn put(values: &mut Array<u32>, index: usize, value: Wide) {
    values[2 * index] = value.low;
    values[2 * index + 1] = value.high;
}

/// Returns the independent value of 64-bit word `index` of a block, in units of 2^-40.
#[cube]
fn independent(block: &Array<u32>, index: usize, table: &[u32]) -> Wide {
    normal(taken(block, index), taken(block, index ^ 1), table)
}

/// Replaces sums, given as the bits of floats, with values with correlated noise, and the memory of
/// earlier steps with the memory after this step. One unit computes the eight values of a block.
///
/// - count: the number of sums; memory may have more
/// - words: see `CorrelatedKeyedNoise`
/// - memory: for each group of 128 values, the slots one after another, in double precision with
///   the lower half first
/// - drawn_again: the earlier values are drawn from their keys; the memory is not used
#[cube(launch)]
pub fn release_correlated(
    sums: &[u32],
    words: &[u32],
    table: &[u32],
    memory: &mut [u32],
    released: &mut [f32],
    count: usize,
    #[comptime] drawn_again: bool,
) {
    let unit = ABSOLUTE_POS;
    if unit < usize::cast_from(words[BLOCKS]) {
        let index = words[FIRST_BLOCK] + u32::cast_from(unit);
        let slots = usize::cast_from(words[SLOTS]);
        let reads = usize::cast_from(words[READS]);
        let grid = grid(words, 0usize);
        // The first value of the unit in its slot, in words.
        let group = (unit / 16) * slots * 256 + 2 * (unit % 16);

        let mut fresh = Array::<u32>::new(16usize);
        // The part of earlier steps.
        let mut noise = Array::<u32>::new(16usize);
        let drawn = block(words, 0usize, STREAM_NUMBER, index);
        for value in 0..8usize {
            put(&mut fresh, value, independent(&drawn, value, table));
            put(&mut noise, value, Wide { low: 0u32.runtime(), high: 0u32.runtime() });
        }
        for read in 0..reads {
            if comptime![drawn_again] {
                let place = FACTORS + KEY_WORDS * read;
                let drawn = block(words, place + 2, STREAM_NUMBER, index);
                for value in 0..8usize {
                    let earlier = to_double(independent(&drawn, value, table));
                    let part = multiply(wide(words, place), earlier);
                    let total = sum(taken(&noise, value), part);
                    put(&mut noise, value, total);
                }
            } else {
                let place = FACTORS + READ_WORDS * read;
                let slot = group + 256 * usize::cast_from(words[place + 2]);
                for value in 0..8usize {
                    let earlier = Wide {
                        low: memory[slot + 32 * value],
                        high: memory[slot + 32 * value + 1],
                    };
                    let part = multiply(wide(words, place), earlier);
                    let total = sum(taken(&noise, value), part);
                    put(&mut noise, value, total);
                }
            }
        }
        if comptime![!drawn_again] {
            for write in 0..usize::cast_from(words[WRITES]) {
                let place = FACTORS + READ_WORDS * reads + WRITE_WORDS * write;
                let slot = group + 256 * usize::cast_from(words[place]);
                for value in 0..8usize {
                    let at = slot + 32 * value;
                    let kept = Wide { low: memory[at], high: memory[at + 1] };
                    let kept = multiply(wide(words, place + 1), kept);
                    let z = to_double(taken(&fresh, value));
                    let whole = sum(copy(&z), taken(&noise, value));
                    let kept = sum(kept, multiply(wide(words, place + 3), whole));
                    let kept = sum(kept, multiply(wide(words, place + 5), z));
                    memory[at] = kept.low;
                    memory[at + 1] = kept.high;
                }
            }
        }
        for value in 0..8usize {
            let position = (unit / 16) * 128 + unit % 16 + 16 * value;
            if position < count {
                let earlier = from_double(taken(&noise, value));
                let noise = add(taken(&fresh, value), earlier);
                released[position] = noisy(sums[position], noise, &grid);
            }
        }
    }
}

/// Overwrites memory with zeros.
#[cube(launch)]
pub fn erase(memory: &mut [u32]) {
    if ABSOLUTE_POS < memory.len() {
        memory[ABSOLUTE_POS] = 0;
    }
}
