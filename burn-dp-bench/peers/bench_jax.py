#!/usr/bin/env python3
"""Measures a training step in JAX: ordinary, and private with JAX-Privacy; both are compiled.

Install:  pip install jax jax-privacy
Run:      python bench_jax.py [--batch 128] [--models mlp,cnn,lstm]

Or:       python bench_jax.py --serve --models mlp --algorithms jax-privacy
          makes steps of one algorithm on command, for `cargo xtask bench peers`

Prints the JSON lines of bench_torch.py.
"""

import argparse
import json
import statistics
import time

import jax
import jax.numpy as jnp
from jax_privacy import clipping

from turns import serve

LEARNING_RATE = 0.01


def dense(key, i, o):
    return {"w": jax.random.normal(key, (i, o)) * (1.0 / i) ** 0.5, "b": jnp.zeros(o)}


def conv(key, i, o):
    return {"w": jax.random.normal(key, (o, i, 5, 5)) * 0.1, "b": jnp.zeros(o)}


def init(name, key):
    """Returns the parameters of a network."""
    k = jax.random.split(key, 4)
    if name == "mlp":
        return [dense(k[0], 784, 128), dense(k[1], 128, 256), dense(k[2], 256, 10)]
    if name == "cnn":
        return [conv(k[0], 1, 20), conv(k[1], 20, 50), dense(k[2], 800, 128), dense(k[3], 128, 10)]
    return [dense(k[0], 28, 512), dense(k[1], 128, 512), dense(k[2], 128, 10)]


def linear(p, x):
    return x @ p["w"] + p["b"]


def convolve(p, x):
    x = jax.lax.conv(x, p["w"], (1, 1), "VALID") + p["b"][None, :, None, None]
    window = (1, 1, 2, 2)
    return jax.lax.reduce_window(jax.nn.relu(x), -jnp.inf, jax.lax.max, window, window, "VALID")


def lstm(p, x):
    def cell(state, xt):
        h, c = state
        i, f, g, o = jnp.split(linear(p[0], xt) + linear(p[1], h), 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), None

    zeros = jnp.zeros((x.shape[0], 128))
    (h, _), _ = jax.lax.scan(cell, (zeros, zeros), x.swapaxes(0, 1))
    return linear(p[2], h)


def scores(name, p, x):
    """Returns the output of a network."""
    if name == "mlp":
        hidden = jax.nn.sigmoid(linear(p[1], jax.nn.sigmoid(linear(p[0], x))))
        return linear(p[2], hidden)
    if name == "cnn":
        features = convolve(p[1], convolve(p[0], x)).reshape(x.shape[0], -1)
        return linear(p[3], jax.nn.relu(linear(p[2], features)))
    return lstm(p, x)


SHAPES = {"mlp": (784,), "cnn": (1, 28, 28), "lstm": (28, 28)}


def steps(name, x, y):
    """Returns both compiled steps by name."""
    batch = len(y)

    def loss(p, x, y):
        log_probabilities = jax.nn.log_softmax(scores(name, p, x))
        return -jnp.take_along_axis(log_probabilities, y[:, None], 1).mean()

    @jax.jit
    def ordinary(p, _):
        return jax.tree.map(lambda w, g: w - LEARNING_RATE * g, p, jax.grad(loss)(p, x, y))

    clipped = clipping.clipped_grad(loss, l2_clip_norm=1.0, batch_argnums=(1, 2))

    @jax.jit
    def private(p, key):
        leaves, tree = jax.tree.flatten(clipped(p, x, y))
        keys = jax.random.split(key, len(leaves))
        noisy = [v + jax.random.normal(k, v.shape) for v, k in zip(leaves, keys)]
        g = jax.tree.unflatten(tree, noisy)
        return jax.tree.map(lambda w, v: w - LEARNING_RATE * v / batch, p, g)

    return [("nonprivate", ordinary), ("jax-privacy", private)]


def inputs(name, batch):
    """Returns the parameters of a network, a key, random inputs and their classes."""
    if name not in SHAPES:
        raise SystemExit(f"{name} is not written for JAX; known are {', '.join(SHAPES)}")
    key = jax.random.PRNGKey(0)
    x = jax.random.uniform(key, (batch, *SHAPES[name]))
    return init(name, key), key, x, jnp.arange(batch) % 10


def prepared(name, batch, algorithm):
    """Returns a function that makes one step of the algorithm, each with a new key."""
    params, key, x, y = inputs(name, batch)
    step = dict(steps(name, x, y))[algorithm]
    state = {"params": params, "key": key}

    def one():
        state["key"], own = jax.random.split(state["key"])
        state["params"] = jax.block_until_ready(step(state["params"], own))

    return one


def milliseconds(step, params, key, runs):
    """Returns the median and the minimum of the times, after steps that compile and warm up."""
    for _ in range(3):
        jax.block_until_ready(step(params, key))
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        jax.block_until_ready(step(params, key))
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times), min(times)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--runs", type=int, default=20)
    ap.add_argument("--models", default="mlp,cnn,lstm")
    ap.add_argument("--algorithms", default="nonprivate,jax-privacy")
    ap.add_argument("--serve", action="store_true", help="make steps on command")
    a = ap.parse_args()
    algorithms = a.algorithms.split(",")
    if a.serve:
        serve(lambda: prepared(a.models, a.batch, a.algorithms))
        return
    for name in a.models.split(","):
        params, key, x, y = inputs(name, a.batch)
        base = None
        for algorithm, step in steps(name, x, y):
            if algorithm not in algorithms:
                continue
            row = {"framework": "jax", "model": name, "batch": a.batch, "algorithm": algorithm}
            try:
                median, minimum = milliseconds(step, params, key, a.runs)
                base = base or median
                row |= {"ms": round(median, 3), "ms_min": round(minimum, 3)}
                row["ratio"] = round(median / base, 3)
            except Exception as e:  # A network that cannot be trained is a result too.
                row["error"] = repr(e)[:160]
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
