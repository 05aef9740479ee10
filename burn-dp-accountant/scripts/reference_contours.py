"""Computes ε of many sampled Gaussian releases by the inversion of their moments.

`python reference_contours.py` prints the references of `tests/rare_losses.rs`. It needs NumPy.

The moments are sums over Gauss-Legendre nodes in panels of the outcome, without a grid of losses;
tilt, step and length of the contour are chosen by hand, and each ε is computed on two contours.
"""

import numpy as np

# q, sigma, releases, delta, first guess, [(tilt, step, points)], standard deviations.
CASES = [
    (7.369624316236221e-07, 0.8199717391523902, 3683592, 0.0003796495526977775, 1.8e-3,
     [(400, 40, 1500), (500, 20, 4000)], 8.2),
    (0.0001276565632181292, 436.80194873106643, 3260, 6.6474407032436355e-06, 1.9e-8,
     [(60000, 10000, 1000), (84000, 5000, 2000)], 9.5),
    (0.7541777555381236, 0.10126175592004737, 2, 1.101396241781566e-12, 193.0,
     [(0.5, 0.002, 3000), (0.45, 0.001, 6000)], 14.0),
    (0.09762660060649468, 0.10416894045892233, 25, 1.5935721743867181e-10, 703.0,
     [(0.05, 0.002, 2500), (0.08, 0.001, 5000)], 14.0),
]


def outcomes(q, sigma, reach, panels=1500):
    """Returns privacy losses in the direction "remove", and their probabilities."""
    node, weight = np.polynomial.legendre.leggauss(16)
    edges = np.linspace(-reach * sigma, 1 + reach * sigma, panels + 1)
    half, middle = (edges[1:] - edges[:-1]) / 2, (edges[1:] + edges[:-1]) / 2
    x = (middle[:, None] + half[:, None] * node).ravel()
    z = (2 * x - 1) / (2 * sigma**2)
    small = np.log1p(q * np.expm1(np.minimum(z, 30)))
    loss = np.where(z < 30, small, np.logaddexp(np.log1p(-q), np.log(q) + z))
    density = lambda mean: np.exp(-((x - mean) ** 2) / (2 * sigma**2))
    mass = ((1 - q) * density(0) + q * density(1)) / (sigma * np.sqrt(2 * np.pi))
    return loss, mass * (half[:, None] * weight).ravel()


def epsilon(q, sigma, releases, delta, guess, contour, reach):
    tilt, step, points = contour
    loss, mass = outcomes(q, sigma, reach)
    s = tilt + 1j * step * np.arange(points)
    blocks = [np.expm1(part[:, None] * loss) @ mass for part in np.split(s, range(50, points, 50))]
    d = np.concatenate(blocks)
    ln_moment = releases * (0.5 * np.log1p(2 * d.real + abs(d) ** 2) + 1j * np.angle(1 + d))
    share = np.ones(points)
    share[0] = 0.5
    low, high = 0.5 * guess, 2 * guess
    for _ in range(80):
        middle = (low + high) / 2
        base = ln_moment[0].real - tilt * middle
        terms = np.exp(ln_moment - s * middle - base) / (s * (s + 1))
        found = step / np.pi * np.sum(terms.real * share)
        # Far from the solution, rounding may leave a negative sum: there δ is tiny.
        above = found > 0 and base + np.log(found) > np.log(delta)
        low, high = (middle, high) if above else (low, middle)
    return low


for *case, contours, reach in CASES:
    found = [epsilon(*case, contour, reach) for contour in contours]
    print(f"({case[0]}, {case[1]}, {case[2]}, {case[3]}, {found[0]:.10e}),  # {found[1]:.10e}")
