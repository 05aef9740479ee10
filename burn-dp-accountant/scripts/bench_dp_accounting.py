#!/usr/bin/env python3
"""Measures the accountants of dp_accounting and Opacus on the configurations of `bench_accountant`.

Install:  pip install dp-accounting==0.6.0 opacus   (without opacus the PRV rows are errors)
Run:      python bench_dp_accounting.py [--configs easy,hard] [--peers pld,renyi,prv] [--runs 3]

Prints one JSON line for each configuration and peer: the median time in seconds and ε, or an
error.
"""

import argparse
import json
import statistics
import time
import warnings

import dp_accounting as dp
from dp_accounting import rdp
from dp_accounting.pld import PLDAccountant

# Name: sampling probability, noise multiplier, steps, δ.
CONFIGURATIONS = {
    "easy": (0.01, 1.0, 10_000, 1e-5),
    "mnist": (256 / 60_000, 1.1, 14_100, 1e-5),
    "cifar": (4096 / 50_000, 3.0, 2_500, 1e-5),
    "imagenet": (16_384 / 1_281_167, 2.5, 72_000, 8e-7),
    "user-level": (0.001, 0.8, 4_000, 1e-6),
    "hard": (0.01, 0.3, 1_000_000, 1e-5),
}


def event(q, sigma, steps):
    step = dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(sigma))
    return dp.SelfComposedDpEvent(step, steps)


def pld(q, sigma, steps, delta):
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    return accountant.compose(event(q, sigma, steps)).get_epsilon(delta)


def renyi(q, sigma, steps, delta):
    return rdp.RdpAccountant().compose(event(q, sigma, steps)).get_epsilon(delta)


def prv(q, sigma, steps, delta):
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(sigma, q, steps)]
    return accountant.get_epsilon(delta)


def calibrate(q, sigma, steps, delta):
    return dp.calibrate_dp_mechanism(
        lambda: PLDAccountant(value_discretization_interval=1e-3),
        lambda s: event(q, s, steps),
        3.0,
        delta,
        tol=1e-3,
    )


PEERS = {"pld": pld, "renyi": renyi, "prv": prv, "calibrate": calibrate}


def measure(peer, configuration, runs):
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        epsilon = PEERS[peer](*configuration)
        times.append(time.perf_counter() - start)
    return {"epsilon": epsilon, "seconds": round(statistics.median(times), 5)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--configs", default=",".join(CONFIGURATIONS))
    parser.add_argument("--peers", default="pld,renyi,prv")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    for name in arguments.configs.split(","):
        for peer in arguments.peers.split(","):
            row = {"config": name, "peer": peer}
            try:
                row.update(measure(peer, CONFIGURATIONS[name], arguments.runs))
            except Exception as error:  # One peer that fails must not end the others.
                row["error"] = repr(error)[:160]
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
