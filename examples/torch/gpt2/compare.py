# SPDX-License-Identifier: MIT
"""Trains a GPT-2 as a plain module and as stages on the C engine, from the same weights on the same
batches, and compares losses, gradients and tokens per second (README.md)."""

import argparse
import math
import statistics
import sys
import time

import torch
from torch.nn import functional

import pipec
from pipec.engine import Run

SHAPES = {  # layers, width, heads, words of a row, vocabulary
    "124M": (12, 768, 12, 1024, 50304),
    "355M": (24, 1024, 16, 1024, 50304),
    "tiny": (4, 32, 2, 16, 64),
}
LOSSES, GRADIENTS = 1e-2, 2e-2  # most that a loss may differ, and a gradient by its norm
SHARE, MFU = 0.9, 0.4  # the aim: this share of the plain module's speed, or of the peak


class Block(torch.nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, torch.nn.LayerNorm(d), torch.nn.LayerNorm(d)
        self.qkv, self.proj = torch.nn.Linear(d, 3 * d), torch.nn.Linear(d, d)
        self.up, self.down = torch.nn.Linear(d, 4 * d), torch.nn.Linear(4 * d, d)

    def forward(self, x):
        rows, length, d = x.shape
        parts = self.qkv(self.norm1(x)).split(d, 2)
        q, k, v = (t.view(rows, length, self.heads, -1).transpose(1, 2) for t in parts)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(rows, length, d))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Stage(torch.nn.Module):
    """Some blocks; with the embeddings if it is the first, with the head if it is the last."""

    def __init__(self, blocks, embeddings=None, head=None):
        super().__init__()
        self.embeddings, self.blocks, self.head = embeddings, torch.nn.ModuleList(blocks), head

    def forward(self, x):
        if self.embeddings is not None:
            words, places = self.embeddings
            x = words(x) + places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else self.head(x)


def parts_of(o):
    """The blocks, the embeddings and the head of a GPT-2, always with the same weights."""
    layers, d, heads, length, vocabulary = o.shape
    torch.manual_seed(0)
    with o.device:
        blocks = [Block(d, heads) for _ in range(layers)]
        embeddings = torch.nn.ModuleList(
            [torch.nn.Embedding(vocabulary, d), torch.nn.Embedding(length, d)]
        )
        head = torch.nn.Sequential(
            torch.nn.LayerNorm(d), torch.nn.Linear(d, vocabulary, bias=False)
        )
    head[1].weight = embeddings[0].weight
    for module in (*blocks, embeddings):
        for name, p in module.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.zeros_(p)
            elif p.dim() > 1:
                last = name.startswith(("proj", "down"))  # of a residual branch
                torch.nn.init.normal_(p, std=0.02 / (2 * layers if last else 1) ** 0.5)
    return blocks, embeddings, head


def cut(parts, count):
    """The model in so many stages."""
    blocks, embeddings, head = parts
    each = len(blocks) // count
    return [
        Stage(
            blocks[i * each : (i + 1) * each],
            embeddings if i == 0 else None,
            head if i + 1 == count else None,
        )
        for i in range(count)
    ]


def loss_fn(logits, words):
    return functional.cross_entropy(logits.flatten(0, 1).float(), words.flatten())


def batches(o, count):
    """Words drawn by Zipf's law: a model learns how frequent they are, and no batch repeats."""
    length, vocabulary = o.shape[3:]
    rows, draw = o.rows * o.microbatches, torch.Generator().manual_seed(1)
    weights = 1 / torch.arange(1, vocabulary + 1, dtype=torch.float64)
    for _ in range(count):
        words = torch.multinomial(weights, rows * (length + 1), True, generator=draw)
        words = words.view(rows, length + 1).to(o.device)
        yield words[:, :-1].contiguous(), words[:, 1:].contiguous()


class Plain:
    """The whole model, one microbatch after the other."""

    def __init__(self, o, make):
        self.o, self.model = o, cut(parts_of(o), 1)[0]
        self.optimizer = make(self.model)
        self.loss = o.compiled(lambda x, target: loss_fn(self.model(x), target))

    def step(self, x, target):
        losses, count = [], self.o.microbatches
        for part, aim in zip(x.chunk(count), target.chunk(count)):
            with self.o.autocast():
                loss = self.loss(part, aim)
            (loss / count).backward()
            losses.append(loss.detach())
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)
        return float(torch.stack(losses).double().mean())

    def weights(self):
        return {name: p.detach().clone() for name, p in self.model.named_parameters()}

    def close(self):
        pass


class Staged:
    """Stages on the engine, all ranks in this process."""

    def __init__(self, o, make, ranks):
        name = {"1f1b": "onef1b"}.get(o.schedule, o.schedule)
        tie = f"tie 0, {ranks - 1}" if ranks > 1 else ""
        text = f'import "{o.schedule}.pipe"\n'
        text += f"schedule gpt2(P = 1, M = 1) extends {name}(P, M) {{ {tie} }}"
        schedule = pipec.compile(text=text, P=ranks, M=o.microbatches)
        parts, (x, _) = parts_of(o), next(batches(o, 1))
        self.o, self.stages = o, cut(parts, ranks)
        self.name = {p: name for name, p in cut(parts, 1)[0].named_parameters()}
        with o.autocast():
            compiled, loss = [o.compiled(stage) for stage in self.stages], o.compiled(loss_fn)
            self.run = Run(schedule, compiled, loss, x[: o.rows], make, engine=o.engine)

    def step(self, x, target):
        with self.o.autocast():
            return self.run.step(x, target)

    def weights(self):
        found = {}
        for i, stage in enumerate(self.stages):
            now = {k.removeprefix("_orig_mod."): t for k, t in self.run.state_dict(i).items()}
            found |= {self.name[p]: now[k] for k, p in stage.named_parameters()}
        return found

    def close(self):
        self.run.close()


def trained(o, kind, *ranks):
    """The gradients of a step, the losses of all steps, the tokens per second of the later half."""
    scale = 1024.0  # a power of two: differences of weights are gradients with few bits lost
    x, target = next(batches(o, 1))
    one = kind(o, lambda m: torch.optim.SGD(m.parameters(), lr=scale), *ranks)
    before = one.weights()
    one.step(x, target)
    gradients = {name: (before[name] - t) / scale for name, t in one.weights().items()}
    one.close()
    del one, before

    adam = lambda m: torch.optim.AdamW(m.parameters(), lr=3e-4, fused=not o.cpu)
    one = kind(o, adam, *ranks)
    losses, seconds = [], []
    for x, target in batches(o, o.steps):
        start = time.perf_counter()
        losses.append(one.step(x, target))  # which waits for the device
        seconds.append(time.perf_counter() - start)
    one.close()
    torch.compiler.reset()
    torch.cuda.empty_cache()
    return gradients, losses, x.numel() / statistics.median(seconds[o.steps // 2 :])


def flop_per_token(shape):
    """Of a forward and a backward; causal attention counts whole."""
    layers, d, _, length, vocabulary = shape
    return 3 * (layers * (24 * d * d + 4 * length * d) + 2 * d * vocabulary)


def both(one, other):
    assert one.keys() == other.keys()
    return ((key, one[key], other[key]) for key in one)


def most(of):
    """The largest value, or a NaN, with its key."""
    key = max(of, key=lambda key: math.inf if math.isnan(of[key]) else of[key])
    return of[key], key


def main():
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--cpu", action="store_true", help="a tiny model by engine='threads'")
    ask.add_argument("--shape", choices=SHAPES, default="124M")
    ask.add_argument("--ranks", default="1,2,4")
    ask.add_argument("--schedule", default="1f1b")
    ask.add_argument("--steps", type=int, default=200)
    ask.add_argument("--microbatches", type=int, default=8)
    ask.add_argument("--rows", type=int, default=16, help="of a microbatch")
    ask.add_argument("--float32", action="store_true", help="no bf16 autocast")
    ask.add_argument("--eager", action="store_true", help="no torch.compile")
    ask.add_argument("--peak", type=float, default=989, help="TFLOP/s; 989: H100, H200")
    o = ask.parse_args()
    if not o.cpu and not torch.cuda.is_available():
        sys.exit("compare.py: no CUDA device; --cpu trains a tiny model without one")
    o.device, o.engine = torch.device("cuda", 0), "cuda"
    if o.cpu:
        o.device, o.engine = torch.device("cpu"), "threads"
    name = "tiny" if o.cpu else o.shape
    o.shape = SHAPES[name]
    o.autocast = lambda: torch.autocast(o.device.type, torch.bfloat16, enabled=not o.float32)
    o.compiled = (lambda what: what) if o.cpu or o.eager else torch.compile
    torch.set_float32_matmul_precision("high")
    where = "CPU" if o.cpu else torch.cuda.get_device_name(o.device)
    size = f"{o.microbatches} microbatches of {o.rows} x {o.shape[3]} words, {o.schedule}"
    kind = "float32" if o.float32 else "bf16 autocast"
    print(f"GPT-2 {name}: {size}, {kind}, {where}, PyTorch {torch.__version__}", flush=True)
    bad, missed = False, []
    for ranks in (0, *map(int, o.ranks.split(","))):
        gradients, losses, speed = trained(o, *((Staged, ranks) if ranks else (Plain,)))
        mfu = speed * flop_per_token(o.shape) / (o.peak * 1e12)
        kind = f"{ranks} rank{'s' * (ranks > 1)}" if ranks else "plain"
        line = f"{kind:8} {speed:9.0f} tokens/s"
        line += "" if o.cpu else f"  MFU {100 * mfu:4.1f} %"
        if not ranks:
            plain = gradients, losses, speed
            print(f"{line}  loss {losses[0]:.4f} to {losses[-1]:.4f}", flush=True)
            continue
        loss, _ = most({i: abs(a - b) for i, (a, b) in enumerate(zip(losses, plain[1]))})
        share = {k: float((t - g).norm() / g.norm()) for k, t, g in both(gradients, plain[0])}
        worst, of = most(share)
        wrong = not (loss <= LOSSES and worst <= GRADIENTS)  # a NaN is wrong, too
        bad |= wrong
        line += f"  {speed / plain[2]:.2f} of plain  losses differ by {loss:.1e}"
        line += f", gradients by {worst:.1e} ({of}): {'FAILED' if wrong else 'passed'}"
        print(line, flush=True)
        if speed < SHARE * plain[2] and mfu < MFU:
            missed.append(ranks)
    if not o.cpu:
        how = f"MISSED with {', '.join(map(str, missed))} ranks" if missed else "met"
        print(f"aim: {SHARE} of plain, or MFU {100 * MFU:.0f} %: {how}")
    sys.exit(bad)


if __name__ == "__main__":
    main()
