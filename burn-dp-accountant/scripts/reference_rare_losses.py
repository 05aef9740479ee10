"""Computes ε of two sampled Gaussian releases by direct integration.

`python reference_rare_losses.py` prints the references of `tests/rare_losses.rs`.

The divergence of one release has a closed form, and that of two is its mean over the privacy loss
of the other: no transform, grid of losses or tilt takes part. Only the standard library is needed.
"""

import math


def normal_cdf(x):
    return 0.5 * math.erfc(-x / math.sqrt(2))


def divergence(q, mu, epsilon):
    """Returns the hockey-stick divergence of one release ("remove") at any real epsilon."""
    excess = math.expm1(epsilon) / q + 1
    if excess <= 0:
        return -math.expm1(epsilon)
    end = (math.log(excess) + mu * mu / 2) / mu
    return q * normal_cdf(mu - end) - (q + math.expm1(epsilon)) * normal_cdf(-end)


def two(q, mu, epsilon):
    """Returns the divergence of two releases, by Simpson's rule on panels that narrow to the
    outcome whose loss is epsilon."""
    edge = (math.log1p(math.expm1(epsilon) / q) + mu * mu / 2) / mu
    low, high = -12.0, max(edge, mu) + 14.0
    points = [low, high, edge]
    for sign in (-1, 1):
        points += [edge + sign * 8.0 * 0.7**k for k in range(70)]
    points += [low + k * (high - low) / 60 for k in range(61)]
    points = sorted(p for p in points if low <= p <= high)

    def integrand(x):
        loss = math.log1p(q * math.expm1(mu * x - mu * mu / 2))
        density = math.exp(-x * x / 2 + loss) / math.sqrt(2 * math.pi)
        return density * divergence(q, mu, epsilon - loss)

    total = []
    for a, b in zip(points, points[1:]):
        n = 16
        h = (b - a) / n
        if h <= 0:
            continue
        values = [integrand(a + k * h) for k in range(n + 1)]
        total.append(
            h / 3 * (values[0] + values[-1] + 4 * sum(values[1:-1:2]) + 2 * sum(values[2:-1:2]))
        )
    return math.fsum(total)


def main():
    for q, sigma, delta, low, high in [
        (1.159e-7, 0.4469, 3.235e-14, 0.01, 0.5),
        (1.757e-5, 0.7989, 4.248e-10, 1e-3, 2e-2),
        (1e-6, 0.5, 1e-11, 1e-3, 2.0),
        (1e-3, 0.5, 1e-8, 0.5, 8.0),
    ]:
        for _ in range(45):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if two(q, 1 / sigma, middle) > delta else (low, middle)
        print(f"({q}, {sigma}, {delta}, {low:.9e}),", flush=True)


if __name__ == "__main__":
    main()
