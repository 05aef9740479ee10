#!/usr/bin/env python3
"""Writes normal_table.bin, the table of the integer normal quantile in integer_normal.rs.

    python3 burn-dp/src/noise/normal_table.py          # writes the table
    python3 burn-dp/src/noise/normal_table.py --check  # compares it with the file

Needs mpmath (the file was written with 1.3.0). Takes about a minute.

Octave e in 0..64 and position y in [0, 1) stand for the tail probability p = 2^-(e+1) (1 - y/2).
Each octave has 64 segments of y. In each, z = quantile(1 - p) is a polynomial of degree 4 in the
place t in [0, 1) within the segment, with integer coefficients in units of 2^-46:

    z = c0 + t (c1 + t (c2 + t (c3 + t c4)))

The polynomial interpolates at the Chebyshev nodes. All derivatives of the quantile in the direction
of growing z are positive, so the fifth is largest at the end of the segment, and the remainder of
the interpolation is at most that times 2^-9 / 5!. This bound, the rounding of the coefficients and
the truncations of the integer arithmetic are added up, for every segment; the largest sum is
printed, and integer_normal.rs states it.
"""

import struct
import sys
from pathlib import Path

from mpmath import mp, mpf

mp.dps = 50
OCTAVES, SEGMENTS, PLACES = 64, 64, 46
UNIT = mpf(2) ** PLACES
FILE = Path(__file__).with_name("normal_table.bin")
# Every truncation in `magnitude` is downward: by less than 1 unit for each of the three products
# of the inner terms, by less than 1 for each of the three of the last product, and by less than
# 1 because t is cut to 32 bits in the inner terms. Half of the range is added to c0.
TRUNCATION = 7
BIAS = mpf(TRUNCATION) / 2
# Rounding of five coefficients to integers.
ROUNDING = mpf(5) / 2


def density(z):
    return mp.exp(-z * z / 2) / mp.sqrt(2 * mp.pi)


def tail(z):
    return mp.erfc(z / mp.sqrt(2)) / 2


def quantile(p, start):
    """Solves tail(z) = p by Newton's method on the logarithm."""
    z = start
    for _ in range(100):
        q = tail(z)
        step = mp.log(q / p) * q / density(z)
        z += step
        if abs(step) < mpf(10) ** -45:
            return z
    raise ArithmeticError(p)


def probability(octave, y):
    return mpf(2) ** -(octave + 1) * (1 - y / 2)


def fifth_derivative(z, width):
    """The fifth derivative of the quantile in t, where p falls by width over the segment."""
    return (7 + 46 * z**2 + 24 * z**4) * (width / density(z)) ** 5


def monomials(nodes, values):
    """Newton's divided differences, expanded."""
    differences = list(values)
    for level in range(1, len(nodes)):
        for i in range(len(nodes) - 1, level - 1, -1):
            gap = nodes[i] - nodes[i - level]
            differences[i] = (differences[i] - differences[i - 1]) / gap
    result = [differences[-1]]
    for i in range(len(nodes) - 2, -1, -1):
        shifted = [mpf(0)] + result
        for k, coefficient in enumerate(result):
            shifted[k] -= coefficient * nodes[i]
        shifted[0] += differences[i]
        result = shifted
    return result


def table():
    nodes = [(1 - mp.cos((2 * i + 1) * mp.pi / 10)) / 2 for i in range(5)]
    words, largest, z = [], mpf(0), mpf(0)
    for octave in range(OCTAVES):
        for segment in range(SEGMENTS):
            values = []
            for t in nodes:
                z = quantile(probability(octave, (segment + t) / SEGMENTS), z)
                values.append(z)
            exact = [c * UNIT for c in monomials(nodes, values)]
            exact[0] += BIAS
            c = [int(mp.nint(x)) for x in exact]
            # The second derivative is zero at z = 0, and the interpolation may be a little below.
            clamped = sum(max(0, -x) for x in c)
            c = [max(0, x) for x in c]
            width = mpf(2) ** -(octave + 2) / SEGMENTS
            end = quantile(probability(octave, mpf(segment + 1) / SEGMENTS), z)
            fit = fifth_derivative(end, width) / 120 / 2**9 * UNIT
            largest = max(largest, fit + ROUNDING + BIAS + clamped)
            assert c[0] < 1 << 50 and c[1] < 1 << 40 and c[4] < 1 << 24
            # The partial sums of the inner terms have 32 bits, too.
            assert c[2] + c[3] + c[4] < 1 << 32 and c[1] + c[2] + c[3] + c[4] < 1 << 40
            words += [c[0], c[1] | c[4] << 40, c[2] | c[3] << 32]
    return struct.pack(f"<{len(words)}Q", *words), largest


def main():
    data, largest = table()
    # Of the result, which is rounded from 2^-46 to 2^-40.
    print(f"largest error: {float(largest):.3f} 2^-46, with the last rounding "
          f"{float(largest / 64 + mpf(1) / 2):.4f} 2^-40")
    if "--check" in sys.argv:
        if FILE.read_bytes() != data:
            sys.exit("normal_table.bin differs")
    else:
        FILE.write_bytes(data)


main()
