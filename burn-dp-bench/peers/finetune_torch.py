#!/usr/bin/env python3
"""Makes steps of fine-tuning in PyTorch on command, ordinary or private with Opacus.

Started by `cargo xtask bench finetune --python PYTHON`. The network has the shape of GPT-2 with
random parameters. Its output layer is tied to the embedding where neither is trained or the step is
ordinary; Opacus does not support a trained tied layer, so there it has a weight of its own.
"""

import argparse
import warnings

warnings.filterwarnings("ignore")

import torch
from torch import nn
from torch.nn import functional as F

from turns import serve


class Lora(nn.Module):
    """A linear layer whose weight is frozen, and two factors that are trained."""

    def __init__(self, base, rank):
        super().__init__()
        self.base = base
        self.a = nn.Linear(base.in_features, rank, bias=False)
        self.b = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.b.weight)

    def forward(self, x):
        return self.base(x) + 2.0 * self.b(self.a(x))


class Block(nn.Module):
    def __init__(self, width, heads, linear):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.o = (linear(width, width) for _ in range(4))
        self.f1, self.f2 = linear(width, 4 * width), linear(4 * width, width)

    def forward(self, x):
        y = self.n1(x)
        parts = [layer(y).unflatten(-1, (self.heads, -1)) for layer in (self.q, self.k, self.v)]
        y = F.scaled_dot_product_attention(*(p.transpose(1, 2) for p in parts), is_causal=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        return x + self.f2(F.gelu(self.f1(self.n2(x))))


class Positions(nn.Module):
    """A table of positions as an embedding, which Opacus has a rule for."""

    def __init__(self, length, width):
        super().__init__()
        self.table = nn.Embedding(length, width)

    def forward(self, x):
        places = torch.arange(x.shape[1]).expand(x.shape[0], -1)
        return x + self.table(places.contiguous())


class Gpt(nn.Module):
    def __init__(self, a, tied):
        super().__init__()

        def linear(i, o):
            return Lora(nn.Linear(i, o), a.rank) if a.way == "lora" else nn.Linear(i, o)

        self.tokens = nn.Embedding(a.vocabulary, a.width)
        self.positions = Positions(a.sequence, a.width)
        self.blocks = nn.Sequential(*(Block(a.width, a.heads, linear) for _ in range(a.layers)))
        self.norm = nn.LayerNorm(a.width)
        self.output = None if tied else nn.Linear(a.width, a.vocabulary, bias=False)
        if a.way == "lora":
            self.requires_grad_(False)
            for module in self.modules():
                if isinstance(module, Lora):
                    module.a.requires_grad_(True)
                    module.b.requires_grad_(True)
        elif a.way == "bias":
            for name, parameter in self.named_parameters():
                parameter.requires_grad_(name.endswith("bias"))

    def forward(self, x):
        x = self.norm(self.blocks(self.positions(self.tokens(x))))
        return F.linear(x, self.tokens.weight) if self.output is None else self.output(x)


class MeanOverPositions(nn.Module):
    """The mean cross entropy of each sequence, or of the batch."""

    def __init__(self, reduction):
        super().__init__()
        self.reduction = reduction

    def forward(self, scores, targets):
        losses = F.cross_entropy(scores.transpose(1, 2), targets, reduction="none").mean(1)
        return losses if self.reduction == "none" else losses.mean()


def step_of(a):
    x = torch.randint(0, a.vocabulary, (a.batch, a.sequence + 1))
    x, y = x[:, :-1].contiguous(), x[:, 1:].contiguous()
    model = Gpt(a, tied=a.way != "full" or a.algorithm == "nonprivate")
    trained = [p for p in model.parameters() if p.requires_grad]
    noise = dict(noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=a.batch)
    opt, loss = torch.optim.Adam(trained, lr=1e-3), MeanOverPositions("mean")
    if a.algorithm == "materialize":
        from opacus.grad_sample import GradSampleModule
        from opacus.optimizers import DPOptimizer

        model = GradSampleModule(model)
        opt = DPOptimizer(opt, **noise)
    elif a.algorithm == "ghost":
        from opacus.grad_sample import grad_sample_module_fast_gradient_clipping as modules
        from opacus.optimizers import optimizer_fast_gradient_clipping as optimizers
        from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

        model = modules.GradSampleModuleFastGradientClipping(
            model, max_grad_norm=1.0, use_ghost_clipping=True, loss_reduction="mean"
        )
        opt = optimizers.DPOptimizerFastGradientClipping(opt, **noise)
        loss = DPLossFastGradientClipping(model, opt, loss, "mean")

    def step():
        opt.zero_grad()
        loss(model(x), y).backward()
        opt.step()

    return step


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--way", choices=["full", "lora", "bias"], required=True)
    ap.add_argument("--algorithm", choices=["nonprivate", "materialize", "ghost"], required=True)
    for name in ["layers", "width", "heads", "vocabulary", "sequence", "rank", "batch", "threads"]:
        ap.add_argument(f"--{name}", type=int, required=True)
    a = ap.parse_args()
    torch.set_num_threads(a.threads)
    serve(lambda: step_of(a))


if __name__ == "__main__":
    main()
