//! The block function of ChaCha12.

use burn_cubecl::cubecl;
use cubecl::prelude::*;

use crate::random::DOUBLE_ROUNDS;

/// Number of words of a key.
pub(super) const KEY_WORDS: usize = 8;

#[cube]
fn quarter_round(
    x: &mut Array<u32>,
    #[comptime] a: usize,
    #[comptime] b: usize,
    #[comptime] c: usize,
    #[comptime] d: usize,
) {
    x[a] += x[b];
    let turned = x[d] ^ x[a];
    x[d] = (turned << 16) | (turned >> 16);
    x[c] += x[d];
    let turned = x[b] ^ x[c];
    x[b] = (turned << 12) | (turned >> 20);
    x[a] += x[b];
    let turned = x[d] ^ x[a];
    x[d] = (turned << 8) | (turned >> 24);
    x[c] += x[d];
    let turned = x[b] ^ x[c];
    x[b] = (turned << 7) | (turned >> 25);
}

/// Returns the 16 words of block `index` of a keystream.
///
/// - key: the place of the 8 words of the key in `words`
/// - number: the place of the 2 words of the stream number
#[cube]
pub(super) fn block(words: &[u32], key: usize, number: usize, index: u32) -> Array<u32> {
    let mut initial = Array::<u32>::new(16usize);
    initial[0] = 0x6170_7865;
    initial[1] = 0x3320_646e;
    initial[2] = 0x7962_2d32;
    initial[3] = 0x6b20_6574;
    #[unroll]
    for word in 0..8usize {
        initial[word + 4] = words[key + word];
    }
    // No tensor has 2^32 blocks.
    initial[12] = index;
    initial[13] = 0;
    initial[14] = words[number];
    initial[15] = words[number + 1];
    let mut x = Array::<u32>::new(16usize);
    #[unroll]
    for word in 0..16usize {
        x[word] = initial[word];
    }
    for _ in 0..DOUBLE_ROUNDS {
        quarter_round(&mut x, 0usize, 4usize, 8usize, 12usize);
        quarter_round(&mut x, 1usize, 5usize, 9usize, 13usize);
        quarter_round(&mut x, 2usize, 6usize, 10usize, 14usize);
        quarter_round(&mut x, 3usize, 7usize, 11usize, 15usize);
        quarter_round(&mut x, 0usize, 5usize, 10usize, 15usize);
        quarter_round(&mut x, 1usize, 6usize, 11usize, 12usize);
        quarter_round(&mut x, 2usize, 7usize, 8usize, 13usize);
        quarter_round(&mut x, 3usize, 4usize, 9usize, 14usize);
    }
    // Another array: the caller's places are not constants, unlike the places in the rounds.
    let mut found = Array::<u32>::new(16usize);
    #[unroll]
    for word in 0..16usize {
        found[word] = x[word] + initial[word];
    }
    found
}
