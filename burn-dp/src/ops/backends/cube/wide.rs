//! 64-bit integers built from 32-bit ones: WGSL has only these, and every device runs the same
//! code.

use burn_cubecl::cubecl;
use cubecl::prelude::*;

/// A 64-bit integer, in two's complement where it is signed.
#[derive(CubeType, Clone, Copy)]
pub struct Wide {
    pub(super) low: u32,
    pub(super) high: u32,
}

/// Returns a copy, because the generated code moves its values.
#[cube]
pub(super) fn copy(a: &Wide) -> Wide {
    Wide { low: a.low, high: a.high }
}

#[cube]
pub(super) fn add(a: Wide, b: Wide) -> Wide {
    let low = a.low + b.low;
    let carry = select(low < a.low, 1u32, 0u32);
    Wide { low, high: a.high + b.high + carry }
}

/// Returns an integer of 32 bits as one of 64.
#[cube]
pub(super) fn widened(a: u32) -> Wide {
    Wide { low: a, high: 0u32.runtime() }
}

/// Returns the product of two integers of 32 bits.
#[cube]
pub(super) fn product(a: u32, b: u32) -> Wide {
    Wide { low: a * b, high: a.mul_hi(b) }
}

/// Returns -a if all bits of `sign` are set, and a if none is.
#[cube]
pub(super) fn negate_if(a: Wide, sign: u32) -> Wide {
    add(Wide { low: a.low ^ sign, high: a.high ^ sign }, widened(sign & 1))
}

/// Shifts by less than 64 places.
#[cube]
pub(super) fn shift_left(a: Wide, places: u32) -> Wide {
    let part = places & 31;
    // In two shifts, because a shift by 32 places does nothing on some devices.
    let high = (a.high << part) | ((a.low >> 1) >> (31 - part));
    let low = a.low << part;
    let far = places >= 32;
    Wide { low: select(far, 0u32, low), high: select(far, low, high) }
}

/// Shifts by less than 64 places, and fills with the bits of `fill`, which are all equal.
#[cube]
pub(super) fn shift_right(a: Wide, places: u32, fill: u32) -> Wide {
    let part = places & 31;
    let low = (a.low >> part) | ((a.high << 1) << (31 - part));
    let high = (a.high >> part) | ((fill << 1) << (31 - part));
    let far = places >= 32;
    Wide { low: select(far, high, low), high: select(far, fill, high) }
}

/// Shifts to the right by less than 64 places. The lowest bit is also set if a bit is lost.
#[cube]
pub(super) fn shift_right_jam(a: Wide, places: u32) -> Wide {
    let shifted = shift_right(copy(&a), places, 0);
    let back = shift_left(copy(&shifted), places);
    let lost = select(back.low == a.low && back.high == a.high, 0u32, 1u32);
    Wide { low: shifted.low | lost, high: shifted.high }
}

/// Returns the number of leading zeros; at most 63, even for zero.
#[cube]
pub(super) fn leading_zeros(a: Wide) -> u32 {
    let far = 32 + (a.low | 1).leading_zeros();
    select(a.high == 0, far, a.high.leading_zeros())
}
