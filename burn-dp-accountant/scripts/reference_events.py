#!/usr/bin/env python3
"""Computes the reference values of `tests/reference_events.rs` with mpmath, in 30 digits.

Install:  pip install mpmath==1.4.1
Run:      python reference_events.py

Nothing is discretized: the profile of one release has a closed form, the profile of two releases
is one integral over the loss of the first.
"""

import mpmath as mp

mp.mp.dps = 30


def gaussian(mu, epsilon):
    """δ(ε) of N(μ, 1) against N(0, 1)."""
    first = mp.ncdf(-epsilon / mu + mu / 2)
    return first - mp.exp(epsilon) * mp.ncdf(-epsilon / mu - mu / 2)


def sampled(q, mu, epsilon):
    """δ(ε) of (1-q) N(0, 1) + q N(μ, 1) against N(0, 1)."""
    ratio = (mp.exp(epsilon) - 1 + q) / q
    return q * gaussian(mu, mp.log(ratio)) if ratio > 0 else 1 - mp.exp(epsilon)


def reverse(profile, epsilon):
    """δ(ε) with P and Q exchanged: H_α(Q||P) = 1 - α + α H_{1/α}(P||Q)."""
    return 1 - mp.exp(epsilon) + mp.exp(epsilon) * profile(-epsilon)


def root(profile, delta):
    """The ε at which a profile is δ, by bisection."""
    low, high = mp.mpf(0), mp.mpf(10)
    while high - low > mp.mpf(10) ** -20:
        middle = (low + high) / 2
        low, high = (middle, high) if profile(middle) > delta else (low, middle)
    return high


def with_replacement(size, draws, sigma):
    """One release on draws with replacement, replace-one (Balle, Barthe, Gaboardi 2018, Theorem
    10): j draws of the replaced unit move the sum by 2j thresholds."""
    size = mp.mpf(size)
    weights = [
        mp.binomial(draws, j) * size**-j * (1 - 1 / size) ** (draws - j)
        for j in range(1, draws + 1)
    ]

    def profile(epsilon):
        # (1-q) N(0) + q mixture against N(0), with the number of draws as part of the outcome.
        q = sum(weights)
        before = mp.log((mp.exp(epsilon) - 1 + q) / q)
        return sum(w * gaussian(2 * j / sigma, before) for j, w in enumerate(weights, 1))

    return profile


def twice(profile, edge):
    """The profile of two releases with a symmetric loss, from the profile of one for ε >= 0: for
    ε < 0 it is `reverse`, above 0 the loss has the density δ'' - δ', below 0 the same times e^y,
    and the rest of the mass is at 0."""

    def value(epsilon):
        return profile(epsilon) if epsilon >= 0 else reverse(profile, epsilon)

    def density(y):
        return mp.diff(profile, y, 2) - mp.diff(profile, y, 1)

    def composed(epsilon):
        points = [mp.mpf(10) ** -12, 0.01, 0.05, 0.2, epsilon / 2, epsilon, 2 * epsilon, edge]
        points = sorted(set(mp.mpf(p) for p in points))
        above = mp.quad(lambda y: density(y) * value(epsilon - y), points)
        below = mp.quad(lambda y: density(y) * mp.exp(-y) * value(epsilon + y), points)
        mass = mp.quad(lambda y: density(y) * (1 + mp.exp(-y)), points)
        return above + below + (1 - mass) * value(epsilon)

    return composed


def sampled_twice(q, sigma, delta):
    """ε of two Poisson-subsampled Gaussian releases, "remove": one integral over the first
    outcome."""
    q, mu = mp.mpf(q), 1 / mp.mpf(sigma)

    def composed(epsilon):
        def term(x):
            ratio = 1 - q + q * mp.exp(mu * x - mu * mu / 2)
            return mp.npdf(x) * ratio * sampled(q, mu, epsilon - mp.log(ratio))

        # The outcome whose loss is ε, where the integrand changes quickly.
        edge = (mp.log((mp.exp(epsilon) - 1 + q) / q) + mu * mu / 2) / mu
        near = [edge + k for k in (-1, -0.3, -0.1, -0.03, 0, 0.03, 0.1, 0.3, 1)]
        grid = [mp.mpf(k) for k in (-16, *range(-10, 11, 2), 24)]
        return mp.quad(term, sorted(set(grid + near)))

    low, high = mp.mpf(10) ** -9, mp.mpf(2)
    for _ in range(45):
        middle = mp.sqrt(low * high)
        low, high = (middle, high) if composed(middle) > delta else (low, middle)
    return high


def truncation(size, q, limit):
    """P[Binomial(size, q) > limit]."""
    def term(k):
        return mp.binomial(size, k) * q**k * (1 - q) ** (size - k)

    return sum(term(k) for k in range(limit + 1, size + 1))


def truncated(size, q, limit, sigma, delta):
    """One release on a truncated Poisson sample: the ends of δ ± (1 + e^ε) η."""
    eta = truncation(size, mp.mpf(q), limit)
    profile = lambda e: sampled(mp.mpf(q), 1 / mp.mpf(sigma), e)
    upper = root(lambda e: profile(e) + (1 + mp.exp(e)) * eta, delta)
    lower = root(lambda e: profile(e) - (1 + mp.exp(e)) * eta, delta)
    return eta, lower, upper


def discrete_gaussian(sigma, shift, count, delta):
    """Several discrete Gaussian releases: the convolution of their atoms."""
    sigma = mp.mpf(sigma)
    reach = int(14 * sigma) + shift + 2
    one = [mp.exp(-((k / sigma) ** 2) / 2) for k in range(-reach, reach + 1)]
    total = sum(one)
    masses = [mp.mpf(1)]
    for _ in range(count):
        sums = [mp.mpf(0)] * (len(masses) + len(one) - 1)
        for i, a in enumerate(masses):
            for j, b in enumerate(one):
                sums[i + j] += a * b / total
        masses = sums
    # Centered under P.
    middle = mp.mpf(count * shift) / 2 - reach * count
    losses = [shift / sigma**2 * (k + middle) for k in range(len(masses))]

    def profile(epsilon):
        above = ((p, y) for p, y in zip(masses, losses) if y > epsilon)
        return sum(p * (1 - mp.exp(epsilon - y)) for p, y in above)

    low, high = mp.mpf(0), mp.mpf(60)
    while high - low > mp.mpf(10) ** -18:
        middle_epsilon = (low + high) / 2
        above = profile(middle_epsilon) > delta
        low, high = (middle_epsilon, high) if above else (low, middle_epsilon)
    return high


def selection(runs, mean, sigma, delta):
    """Repeat-and-select of one Gaussian release, orders optimized continuously (Papernot and
    Steinke 2022, Theorem 2 with shape 0 and 1, Theorem 6), conversion of Canonne et al. 2020."""
    rdp = lambda order: order / (2 * mp.mpf(sigma) ** 2)
    mean = mp.mpf(mean)

    def smallest(value, low, high):
        # Golden section on the logarithm.
        ratio = (mp.sqrt(5) - 1) / 2
        a, b = mp.log(low), mp.log(high)
        for _ in range(150):
            c, d = b - ratio * (b - a), a + ratio * (b - a)
            if value(mp.exp(c)) < value(mp.exp(d)):
                b = d
            else:
                a = c
        return value(mp.exp(a))

    if runs == "poisson":
        def bound(order):
            hat = mp.log(1 + 1 / (order - 1))
            return rdp(order) + mean * gaussian(1 / mp.mpf(sigma), hat) + mp.log(mean) / (order - 1)
    else:
        shape = {"logarithmic": 0, "geometric": 1}[runs]
        if shape == 1:
            gamma = 1 / mean
        else:
            low, high = mp.mpf(10) ** -9, 1 - mp.mpf(10) ** -9
            for _ in range(100):
                middle = (low + high) / 2
                above = (1 / middle - 1) / -mp.log(middle) > mean
                low, high = (middle, high) if above else (low, middle)
            gamma = low
        least = smallest(lambda h: (1 - 1 / h) * rdp(h) - mp.log(gamma) / h, 1.001, 1e6)
        extra = (1 + shape) * least
        bound = lambda order: rdp(order) + extra + mp.log(mean) / (order - 1)

    def epsilon(minus_one):
        order = 1 + minus_one
        return bound(order) + mp.log(1 - 1 / order) - mp.log(delta * order) / (order - 1)

    return smallest(epsilon, 1e-2, 1e4)


if __name__ == "__main__":
    print("mpmath", mp.__version__)
    for size, draws, sigma, delta in [(100, 5, 2.0, 1e-5), (1000, 30, 4.0, 1e-6)]:
        profile = with_replacement(size, draws, mp.mpf(sigma))
        print("with replacement", size, draws, sigma, delta, mp.nstr(root(profile, delta), 17))
    profile = with_replacement(100, 5, mp.mpf(2))
    mp.mp.dps = 18
    for epsilon in [0.5, 1.0, 2.0]:
        print("twice", epsilon, mp.nstr(twice(profile, mp.mpf(14))(mp.mpf(epsilon)), 12))
    mp.mp.dps = 30
    for case in [(1000, 0.01, 40, 1.0, 1e-5), (500, 0.02, 40, 2.0, 1e-6)]:
        print("truncated", case, *[mp.nstr(x, 17) for x in truncated(*case)])
    mp.mp.dps = 22
    for case in [(1.2e-7, 0.45, 3e-14), (1.8e-5, 0.8, 4e-10)]:
        print("twice sampled", case, mp.nstr(sampled_twice(*case), 12))
    mp.mp.dps = 30
    for case in [(1.0, 1, 1, 1e-5), (3.0, 2, 4, 1e-6), (0.7, 1, 3, 1e-4)]:
        print("discrete", case, mp.nstr(discrete_gaussian(*case), 17))
    for case in [
        ("geometric", 10, 1.0, 1e-6),
        ("logarithmic", 10, 5.0, 1e-6),
        ("poisson", 10, 5.0, 1e-6),
    ]:
        print("selection", case, mp.nstr(selection(*case), 17))
