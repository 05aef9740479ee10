#!/usr/bin/env python3
"""Measures a training step in PyTorch: ordinary, and private with Opacus.

Install:  pip install torch opacus
Run:      python bench_torch.py [--device cpu] [--threads 2] [--batch 128] [--models mlp,cnn]

Or:       python bench_torch.py --serve --models mlp --algorithms ghost
          makes steps of one algorithm on command, for `cargo xtask bench peers`

Prints one JSON line for each network and algorithm: the median and the minimum of the milliseconds
of a step, and the ratio of the median to the ordinary step. Networks have the sizes of the papers,
inputs are random, the optimizer is SGD, C = 1 and sigma = 1: time is compared, not accuracy.
"""

import argparse
import json
import statistics
import time
import warnings

warnings.filterwarnings("ignore")

import torch
from torch import nn

from turns import serve

LEARNING_RATE = 0.01


class Recurrent(nn.Module):
    """28 rows of 28 pixels as a sequence, 128 hidden units; the last state is classified."""

    def __init__(self, cell):
        super().__init__()
        self.rnn = cell(28, 128, batch_first=True)
        self.fc = nn.Linear(128, 10)

    def forward(self, x):
        y, _ = self.rnn(x)
        return self.fc(y[:, -1])


def attention(private, d, heads):
    """Returns a layer of self-attention; Opacus has its own with a layer for each projection."""
    if private:
        from opacus.layers import DPMultiheadAttention as Attention
    else:
        from torch.nn import MultiheadAttention as Attention
    return Attention(d, heads, batch_first=True)


class Encoder(nn.Module):
    """One encoder block on 64 given embeddings: width 200, 8 heads, 512 hidden units."""

    def __init__(self, private, d=200, heads=8, ff=512, classes=2):
        super().__init__()
        self.attn = attention(private, d, heads)
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.f1, self.f2 = nn.Linear(d, ff), nn.Linear(ff, d)
        self.out = nn.Linear(d, classes)

    def forward(self, x):
        y = self.attn(x, x, x, need_weights=False)[0]
        x = self.n1(x + y)
        x = self.n2(x + self.f2(torch.relu(self.f1(x))))
        return self.out(x.mean(1))


class CausalAttention(nn.Module):
    """Attention to earlier positions, a layer for each projection.

    Opacus' own attention refuses a mask when the batch comes first (version 1.6).
    """

    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.out = nn.Linear(d, d)

    def forward(self, q, k, v, **_):
        parts = [self.q(q), self.k(k), self.v(v)]
        parts = [y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in parts]
        y = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        return (self.out(y.transpose(1, 2).flatten(2)),)


class Gpt2(nn.Module):
    """One block of GPT-2 on 256 given embeddings: width 768, 12 heads, 3072 hidden units."""

    def __init__(self, private, d=768, heads=12, ff=3072, classes=2):
        super().__init__()
        self.attn = CausalAttention(d, heads) if private else attention(False, d, heads)
        self.n1, self.n2, self.n3 = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
        self.f1, self.f2 = nn.Linear(d, ff), nn.Linear(ff, d)
        self.out = nn.Linear(d, classes)

    def forward(self, x):
        length = x.shape[1]
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        y = self.n1(x)
        x = x + self.attn(y, y, y, need_weights=False, attn_mask=later)[0]
        x = x + self.f2(nn.functional.gelu(self.f1(self.n2(x))))
        return self.out(self.n3(x).mean(1))


class Block(nn.Module):
    """A residual block of two convolutions with group normalization."""

    def __init__(self, i, o, s):
        super().__init__()
        self.c1, self.g1 = nn.Conv2d(i, o, 3, s, 1, bias=False), nn.GroupNorm(16, o)
        self.c2, self.g2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.GroupNorm(16, o)
        self.down = nn.Conv2d(i, o, 1, s, bias=False) if s != 1 or i != o else None

    def forward(self, x):
        y = torch.relu(self.g1(self.c1(x)))
        y = self.g2(self.c2(y))
        return torch.relu(y + (self.down(x) if self.down is not None else x))


def resnet18():
    layers = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.GroupNorm(16, 64), nn.ReLU()]
    i = 64
    for o, s in [(64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)]:
        layers.append(Block(i, o, s))
        i = o
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def vgg11():
    layers, i = [], 3
    for stage in [[64], [128], [256, 256], [512, 512], [512, 512]]:
        for o in stage:
            layers += [nn.Conv2d(i, o, 3, 1, 1), nn.ReLU()]
            i = o
        layers.append(nn.MaxPool2d(2, 2))
    hidden = [nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    return nn.Sequential(*layers, nn.Flatten(), *hidden)


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2, 2),
        nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2, 2),
        nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10),
    )


def mlp():
    return nn.Sequential(
        nn.Linear(784, 128), nn.Sigmoid(),
        nn.Linear(128, 256), nn.Sigmoid(),
        nn.Linear(256, 10),
    )


def recurrent(name, private):
    if private:
        from opacus import layers

        return Recurrent({"rnn": layers.DPRNN, "gru": layers.DPGRU, "lstm": layers.DPLSTM}[name])
    return Recurrent({"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[name])


def build(name, private):
    """Returns the network; recurrent layers and attention have private twins in Opacus."""
    if name == "mlp":
        return mlp()
    if name == "cnn":
        return cnn()
    if name in ("rnn", "gru", "lstm"):
        return recurrent(name, private)
    if name in ("transformer", "transformer-block"):
        return Encoder(private)
    if name == "gpt2-block":
        return Gpt2(private)
    if name == "vgg11":
        return vgg11()
    if name in ("resnet18", "resnet18-cifar"):
        return resnet18()
    raise ValueError(f"unknown model {name}; known are {', '.join(SHAPES)}")


SHAPES = {
    "mlp": (784,),
    "cnn": (1, 28, 28),
    "rnn": (28, 28),
    "gru": (28, 28),
    "lstm": (28, 28),
    "transformer": (64, 200),
    "transformer-block": (64, 200),
    "gpt2-block": (256, 768),
    "resnet18": (3, 32, 32),
    "resnet18-cifar": (3, 32, 32),
    "vgg11": (3, 32, 32),
}


def inputs(name, batch, device):
    """Returns random inputs and their classes."""
    if name not in SHAPES:
        raise ValueError(f"unknown model {name}; known are {', '.join(SHAPES)}")
    classes = 2 if name.startswith("transformer") or name == "gpt2-block" else 10
    x = torch.rand(batch, *SHAPES[name], device=device)
    return x, torch.arange(batch, device=device) % classes


def step_of(algorithm, model, x, y):
    """Returns a function that makes one step of the algorithm."""
    batch = len(y)
    ce = nn.CrossEntropyLoss()
    noise = dict(noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=batch)

    def sgd(module):
        return torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)

    if algorithm == "nonprivate":
        m, opt, loss = model, sgd(model), ce
    elif algorithm == "materialize":
        from opacus.grad_sample import GradSampleModule
        from opacus.optimizers import DPOptimizer

        m = GradSampleModule(model)
        opt, loss = DPOptimizer(sgd(m), **noise), ce
    elif algorithm == "ghost":
        from opacus.grad_sample import grad_sample_module_fast_gradient_clipping as modules
        from opacus.optimizers import optimizer_fast_gradient_clipping as optimizers
        from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

        m = modules.GradSampleModuleFastGradientClipping(
            model, max_grad_norm=1.0, use_ghost_clipping=True, loss_reduction="mean"
        )
        opt = optimizers.DPOptimizerFastGradientClipping(sgd(m), **noise)
        loss = DPLossFastGradientClipping(m, opt, ce, "mean")
    elif algorithm == "fastdp":
        from fastDP import PrivacyEngine

        m, opt, loss = model, sgd(model), nn.CrossEntropyLoss(reduction="sum")
        engine = PrivacyEngine(
            m, batch_size=batch, sample_size=batch, epochs=1, noise_multiplier=1.0,
            max_grad_norm=1.0, clipping_fn="Abadi", clipping_mode="MixOpt",
        )
        engine.attach(opt)
    elif algorithm == "nxbp":
        return lambda: one_backward_pass_per_example(model, ce, x, y)
    else:
        raise ValueError(f"unknown algorithm {algorithm}")

    def step():
        opt.zero_grad()
        loss(m(x), y).backward()
        opt.step()

    return step


def one_backward_pass_per_example(model, ce, x, y):
    params = [p for p in model.parameters() if p.requires_grad]
    total = [torch.zeros_like(p) for p in params]
    for i in range(len(y)):
        grads = torch.autograd.grad(ce(model(x[i : i + 1]), y[i : i + 1]), params)
        scale = 1.0 / torch.sqrt(sum((g * g).sum() for g in grads)).clamp(min=1.0)
        for t, g in zip(total, grads):
            t.add_(g * scale)
    with torch.no_grad():
        for p, t in zip(params, total):
            p.sub_((t + torch.randn_like(t)) * (LEARNING_RATE / len(y)))


def milliseconds(step, sync, runs):
    """Returns the median and the minimum of the times, after some steps that warm up."""
    for _ in range(max(2, runs // 5)):
        step()
    times = []
    for _ in range(runs):
        sync()
        start = time.perf_counter()
        step()
        sync()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times), min(times)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--runs", type=int, default=20)
    ap.add_argument("--models", default="mlp,cnn,rnn,lstm,transformer,resnet18")
    ap.add_argument("--algorithms", default="nonprivate,materialize,ghost,nxbp")
    ap.add_argument("--serve", action="store_true", help="make steps on command")
    a = ap.parse_args()
    torch.set_num_threads(a.threads)
    on_gpu = a.device == "cuda"
    sync = torch.cuda.synchronize if on_gpu else (lambda: None)

    def device_mib():
        return torch.cuda.memory_reserved() / 2**20 if on_gpu else None

    if a.serve:

        def make_step():
            x, y = inputs(a.models, a.batch, a.device)
            model = build(a.models, a.algorithms != "nonprivate").to(a.device)
            return step_of(a.algorithms, model, x, y)

        serve(make_step, sync, device_mib)
        return
    for name in a.models.split(","):
        x, y = inputs(name, a.batch, a.device)
        base = None
        for algorithm in a.algorithms.split(","):
            row = {"framework": "torch", "model": name, "batch": a.batch, "device": a.device}
            row["algorithm"] = algorithm
            try:
                model = build(name, algorithm != "nonprivate").to(a.device)
                runs = max(3, a.runs // 5) if algorithm == "nxbp" else a.runs
                median, minimum = milliseconds(step_of(algorithm, model, x, y), sync, runs)
                base = median if algorithm == "nonprivate" else base
                row |= {"ms": round(median, 3), "ms_min": round(minimum, 3)}
                row["ratio"] = round(median / base, 3) if base else None
            except Exception as e:  # A network that an algorithm cannot train is a result too.
                row["error"] = repr(e)[:160]
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
