#!/usr/bin/env python3
"""Trains privately with PyTorch and Opacus on the files that `cargo xtask train` reads.

Install:  pip install torch opacus kymatio
Run:      python accuracy_torch.py cifar10 DIR [--epsilon 3] [--seeds 0,1,2]
          python accuracy_torch.py imdb DIR --epsilon 8

cifar10   a linear classifier of normalized scattering features. Without options, the settings that
          Tramèr and Boneh (Differentially private learning needs better features, 2021) give for
          epsilon = 3; DIR has cifar-10-batches-bin or its files
imdb      one block of a transformer encoder with the sizes of `--model transformer`, trained with
          the settings of our recipe; DIR has aclImdb or its archive, aclImdb.tar.gz

Poisson sampling, noise from Opacus' PRV accountant. Prints a JSON line for each seed:
{"data","system","seed","epsilon","delta","noise_multiplier","test_accuracy","seconds"}.
"""

import argparse
import json
import math
import pathlib
import re
import tarfile
import time
import warnings
import zlib

import numpy as np
import torch
import torch.nn.functional as F
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DELTA = 1e-5


def cifar10(folder):
    """Returns the scattering features, normalized in 27 groups of channels, and the labels."""
    # Not from kymatio.torch, whose three-dimensional part does not load with current SciPy.
    from kymatio.scattering2d.frontend.torch_frontend import ScatteringTorch2D

    def read(name):
        (path,) = folder.rglob(name)
        rows = np.fromfile(path, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
        return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].astype(np.int64)

    scattering = ScatteringTorch2D(J=2, shape=(32, 32))

    def features(images):
        parts = []
        for part in np.array_split(images, max(1, len(images) // 500)):
            x = scattering(torch.from_numpy(part).float() / 255).flatten(1, 2)
            parts.append(F.group_norm(x, 27).half())
        return torch.cat(parts)

    files = [read(f"data_batch_{number}.bin") for number in range(1, 6)]
    train = (features(np.concatenate([x for x, _ in files])), np.concatenate([y for _, y in files]))
    x, y = read("test_batch.bin")
    return [TensorDataset(x, torch.from_numpy(y)) for x, y in (train, (features(x), y))]


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.output = nn.Linear(243 * 8 * 8, 10)

    def forward(self, x):
        return self.output(x.flatten(1).float())


def imdb(folder, length=128, vocabulary=10_000):
    """Returns the words of the reviews, hashed to numbers, and the labels."""

    def numbers(text):
        words = re.findall(r"[a-z0-9']+", text.replace("<br />", " ").lower())[:length]
        ids = [1 + zlib.crc32(word.encode()) % (vocabulary - 1) for word in words]
        return ids + [0] * (length - len(ids))

    found = {"train": ([], []), "test": ([], [])}

    def add(name, text):
        if match := re.search(r"(train|test)/(pos|neg)/[^/]*\.txt$", name):
            found[match[1]][0].append(numbers(text))
            found[match[1]][1].append(int(match[2] == "pos"))

    archives = list(folder.rglob("aclImdb*.tar.gz"))
    if archives:
        with tarfile.open(archives[0]) as tar:
            for member in tar:
                if member.name.endswith(".txt") and member.isfile():
                    add(member.name, tar.extractfile(member).read().decode())
    else:
        for path in folder.rglob("*.txt"):
            add(path.as_posix(), path.read_text())
    return [TensorDataset(torch.tensor(x), torch.tensor(y)) for x, y in found.values()]


class Transformer(nn.Module):
    def __init__(self, vocabulary=10_000, width=64, inner=128, heads=4, length=128):
        super().__init__()
        self.heads = heads
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.attention = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.inner, self.outer = nn.Linear(width, inner), nn.Linear(inner, width)
        self.output = nn.Linear(width, 2)
        for name, parameter in self.named_parameters():
            if name.startswith(("attention", "inner", "outer")) and parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
        nn.init.normal_(self.embedding.weight, std=0.0025)
        places = torch.arange(length)[:, None]
        rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width))
        table = torch.stack([(places * rates).sin(), (places * rates).cos()], 2)
        self.positions = table.flatten(1)

    def forward(self, tokens):
        vectors = self.embedding(tokens) * self.embedding.weight.shape[1] ** 0.5
        x = vectors + self.positions
        is_padding = tokens == 0
        h = self.norms[0](x)
        heads = (len(tokens), tokens.shape[1], self.heads, -1)
        q, k, v = (layer(h).view(heads).transpose(1, 2) for layer in self.attention[:3])
        scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(is_padding[:, None, None], -1e4).softmax(-1)
        x = x + self.attention[3]((scores @ v).transpose(1, 2).flatten(2))
        x = x + self.outer(F.gelu(self.inner(self.norms[1](x))))
        kept = (~is_padding)[:, :, None].float()
        mean = ((x - self.positions) * kept).sum(1) / kept.sum(1).clamp(min=1)
        return self.output(self.norms[2](mean))


# Data, model, batch size, epochs, learning rate, clipping threshold, optimizer, linear decay.
TASKS = {
    "cifar10": (cifar10, Linear, 8192, 60, 4.0, 0.1, "sgd", False),
    "imdb": (imdb, Transformer, 1024, 6, 0.002, 1.0, "adam", True),
}


def train(name, data, a, seed):
    _, build, batch, epochs, lr, clip, optimizer, decays = TASKS[name]
    batch, epochs, lr = a.batch or batch, a.epochs or epochs, a.lr or lr
    torch.manual_seed(seed)
    model, start = build(), time.time()
    opt = (
        torch.optim.Adam(model.parameters(), lr=lr)
        if optimizer == "adam"
        else torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    )
    engine = PrivacyEngine(accountant="prv")
    # Norms without per-example gradients, the faster mode: the same sums of clipped gradients.
    model, opt, criterion, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=opt,
        criterion=nn.CrossEntropyLoss(),
        data_loader=DataLoader(data[0], batch_size=batch),
        grad_sample_mode="ghost",
        target_epsilon=a.epsilon,
        target_delta=DELTA,
        epochs=epochs,
        max_grad_norm=clip,
        poisson_sampling=True,
    )
    steps = epochs * len(loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda step: 1 - step / steps if decays else 1.0
    )
    for _ in range(epochs):
        with BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=a.physical, optimizer=opt
        ) as parts:
            for x, y in parts:
                opt.zero_grad()
                criterion(model(x), y).backward()
                opt.step()
                if not opt._is_last_step_skipped:
                    schedule.step()
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in DataLoader(data[1], batch_size=500):
            right += int((model(x).argmax(1) == y).sum())
    print(
        json.dumps(
            {
                "data": name,
                "system": "Opacus",
                "seed": seed,
                "epsilon": engine.get_epsilon(DELTA),
                "delta": DELTA,
                "noise_multiplier": opt.noise_multiplier,
                "test_accuracy": right / len(data[1]),
                "seconds": time.time() - start,
            }
        ),
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", choices=TASKS)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--lr", type=float)
    parser.add_argument("--physical", type=int, default=256)
    a = parser.parse_args()
    warnings.filterwarnings("ignore")
    data = TASKS[a.data][0](a.folder)
    for seed in a.seeds.split(","):
        train(a.data, data, a, int(seed))


if __name__ == "__main__":
    main()
