#!/usr/bin/env python3
"""Compares the searches for strategies of correlated noise with the searches of jax_privacy.

Install:  pip install jax-privacy==2.0.0 numpy
Run:      cargo build -p burn-dp-accountant --features cli
          python burn-dp-accountant/scripts/bench_strategies.py target/debug/burn-dp-accountant

Both search on the same machine, one after another. The seconds of the program contain its start;
the seconds of jax_privacy are of the second of two calls, after compilation. The losses of both
results are computed here, from the strategies alone. Prints a Markdown table.
"""

import argparse
import json
import subprocess
import sys
import time

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

from jax_privacy.matrix_factorization import buffered_toeplitz, dense, toeplitz  # noqa: E402


def inverse(c, n):
    """Returns the coefficients of the inverse of a Toeplitz matrix."""
    d = np.zeros(n)
    d[0] = 1 / c[0]
    for t in range(1, n):
        k = min(t, len(c) - 1)
        d[t] = -np.dot(c[1 : k + 1], d[t - k : t][::-1]) / c[0]
    return d


def blt_coefficients(theta, omega, n):
    t = np.arange(n - 1)
    powers = np.asarray(theta)[:, None] ** t
    return np.concatenate([[1.0], (np.asarray(omega)[:, None] * powers).sum(axis=0)])


def toeplitz_loss(c, n, error, times=1, separation=1):
    """Returns squared error times squared sensitivity of coefficients that decrease."""
    rows = np.cumsum(np.cumsum(inverse(c, n)) ** 2)
    full = np.zeros(n)
    full[: len(c)] = c
    column = np.zeros(n)
    for j in range(min(times, -(-n // separation))):
        column[j * separation :] += full[: n - j * separation]
    return (rows.mean() if error == "mean" else rows.max()) * (column**2).sum()


def dense_loss(c, epochs):
    """Returns the mean loss in a fixed order; the columns of one unit are orthogonal."""
    n = len(c)
    gram = c.T @ c
    period = n // epochs
    sensitivity = max(np.abs(gram[s::period, s::period]).sum() for s in range(period))
    rows = (np.tril(np.ones((n, n))) @ np.linalg.inv(c)) ** 2
    return rows.sum(axis=1).mean() * sensitivity


def banded(n, bands):
    def theirs():
        return np.asarray(toeplitz.optimize_banded_toeplitz(n, bands))

    def loss(c):
        return toeplitz_loss(c, n, "mean", 1, 1)

    arguments = ["--kind", "banded", "--bands", bands, "--steps", n]
    return f"banded, {bands} bands, {n} steps", arguments, lambda r: r["coefficients"], theirs, loss


def blt(n, buffers, error, times, separation):
    def theirs():
        found = buffered_toeplitz.optimize(
            n=n, min_sep=separation, max_participations=times, error=error,
            min_buffers=buffers, max_buffers=buffers,
        )
        return blt_coefficients(found.buf_decay, found.output_scale, n)

    def loss(c):
        return toeplitz_loss(c, n, error, times, separation)

    arguments = ["--kind", "blt", "--buffers", buffers, "--steps", n, "--objective", error]
    arguments += ["--participations", times, "--separation", separation]
    name = f"BLT, {buffers} buffers, {n} steps, {error}, {times} participations"
    return name, arguments, lambda r: blt_coefficients(r["theta"], r["omega"], n), theirs, loss


def dense_case(n, epochs):
    def theirs():
        return np.asarray(dense.optimize(n, epochs=epochs))

    def matrix(result):
        c = np.zeros((n, n))
        for i, row in enumerate(result["coefficients"]):
            c[i, : i + 1] = row
        return c

    arguments = ["--kind", "dense", "--steps", n, "--separation", n // epochs, "--fixed-order"]
    name = f"dense, {n} steps, {epochs} epochs"
    return name, arguments, matrix, theirs, lambda c: dense_loss(c, epochs)


CASES = [
    banded(1000, 32),
    banded(2048, 64),
    blt(1000, 3, "max", 1, 1),
    blt(10_000, 4, "max", 1, 1),
    blt(1000, 3, "mean", 4, 250),
    dense_case(16, 1),
    dense_case(64, 1),
    dense_case(16, 4),
    dense_case(64, 4),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="the command line of burn-dp-accountant")
    options = parser.parse_args()
    print("| search | burn-dp, s | jax_privacy, s | loss over the loss of jax_privacy |")
    print("|---|---|---|---|")
    for name, arguments, matrix, theirs, loss in CASES:
        command = [options.program, "strategy", "--json", *map(str, arguments)]
        start = time.perf_counter()
        result = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        own = time.perf_counter() - start
        theirs()
        start = time.perf_counter()
        peer = theirs()
        other = time.perf_counter() - start
        ratio = loss(np.asarray(matrix(result))) / loss(peer)
        print(f"| {name} | {own:.2f} | {other:.2f} | 1 {ratio - 1:+.1e} |")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
