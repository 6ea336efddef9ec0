# SPDX-License-Identifier: MIT
"""CPU time of a token: a GPT by Schedule1F1B of PyTorch on gloo processes, by a loop over microbatches without a pipeline,
and by pipec.engine.Run on threads and on gloo processes; the same modules, batches and optimizer, one step of each in turn.
torch_run.py [STEPS]; needs PyTorch. Prints the median step, and its median ratio to the step of Schedule1F1B beside it."""
import os
import resource
import statistics
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn import functional

import pipec
from pipec.engine import Run

LAYERS, WIDTH, HEADS, SEQUENCE, BATCH, MICROBATCHES, VOCABULARY, WARM = 8, 128, 4, 64, 2, 8, 128, 2
KINDS = "Schedule1F1B", "loop", "threads", "dist"


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.ModuleList(torch.nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (t.view(BATCH, SEQUENCE, HEADS, -1).transpose(1, 2) for t in self.qkv(self.norm[0](x)).chunk(3, -1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(BATCH, SEQUENCE, WIDTH))
        return x + self.down(functional.gelu(self.up(self.norm[1](x)), approximate="tanh"))


class Embed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = torch.nn.Embedding(VOCABULARY, WIDTH), torch.nn.Embedding(SEQUENCE, WIDTH)

    def forward(self, x):
        return self.token(x) + self.place.weight


def stages(ranks):
    torch.manual_seed(0)
    parts = [[Block() for _ in range(LAYERS // ranks)] for _ in range(ranks)]
    parts[0].insert(0, Embed())
    parts[-1] += [torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, VOCABULARY)]
    return [torch.nn.Sequential(*part) for part in parts]


def loss_fn(y, target):
    return functional.cross_entropy(y.flatten(0, 1), target.flatten())


def adam(m):
    return torch.optim.AdamW(m.parameters(), lr=1e-3, fused=True)


def batches(steps):
    draw = torch.Generator().manual_seed(1)
    for _ in range(steps):
        yield torch.randint(VOCABULARY, (2, MICROBATCHES * BATCH, SEQUENCE), generator=draw)


def seconds():
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


def schedule_1f1b(rank, ranks):
    """A step of PyTorch's class, which returns the loss on the last rank, and 0 on others."""
    module = stages(ranks)[rank]
    optimizer = adam(module)
    pipe = Schedule1F1B(PipelineStage(module, rank, ranks, torch.device("cpu")), MICROBATCHES, loss_fn=loss_fn)

    def step(x, target):
        losses = []
        pipe.step(*([x] if rank == 0 else []), target=target, losses=losses)
        optimizer.step()
        optimizer.zero_grad()
        return float(torch.stack(losses).detach().mean()) if losses else 0

    return step


def loop(ranks):
    module = torch.nn.Sequential(*stages(ranks))
    optimizer = adam(module)

    def step(x, target):
        losses = []
        for part, aim in zip(x.chunk(MICROBATCHES), target.chunk(MICROBATCHES)):
            losses.append(loss_fn(module(part), aim))
            (losses[-1] / MICROBATCHES).backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(torch.stack(losses).detach().mean())

    return step


def run_of(ranks, engine):
    example = torch.zeros(BATCH, SEQUENCE, dtype=torch.int64)
    return Run(pipec.compile("1f1b", P=ranks, M=MICROBATCHES), stages(ranks), loss_fn, example, adam, engine=engine)


def peer(kind, rank, ranks, steps, meet, turn):
    """A process of a kind: carries out a step whenever it is its turn; sends CPU seconds and loss."""
    torch.set_num_threads(1)
    if kind in ("Schedule1F1B", "dist"):
        dist.init_process_group("gloo", init_method=f"file://{meet}/{kind}", rank=rank, world_size=ranks)
    step = {"Schedule1F1B": lambda: schedule_1f1b(rank, ranks), "loop": lambda: loop(ranks),
            "threads": lambda: run_of(ranks, "threads").step, "dist": lambda: run_of(ranks, "dist").step}[kind]()
    for x, target in batches(steps):
        turn.recv()
        start = seconds()
        loss = step(x, target)
        turn.send((seconds() - start, loss))
    turn.recv()


def measure(ranks, steps):
    """For each kind the CPU seconds of each step, of all its processes, and the last loss."""
    context = mp.get_context("spawn")
    taken, last, turns = {kind: [] for kind in KINDS}, {}, {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as meet:
        peers = []
        for kind in KINDS:
            for rank in range(ranks if kind in ("Schedule1F1B", "dist") else 1):
                mine, other = context.Pipe()
                peers.append(context.Process(target=peer, args=(kind, rank, ranks, steps, meet, other), daemon=True))
                peers[-1].start()
                turns[kind].append(mine)
        for number in range(steps):
            for kind in KINDS if number % 2 else KINDS[::-1]:
                for turn in turns[kind]:
                    turn.send(None)
                used, losses = zip(*(turn.recv() for turn in turns[kind]))
                taken[kind].append(sum(used))
                last[kind] = losses[-1]
        for turn in sum(turns.values(), []):
            turn.send(None)
        for one in peers:
            one.join()
    return {kind: times[WARM:] for kind, times in taken.items()}, last


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    tokens = MICROBATCHES * BATCH * SEQUENCE
    for ranks in 2, 4:
        taken, last = measure(ranks, WARM + (int(sys.argv[1]) if len(sys.argv) > 1 else 25))
        for kind in KINDS:
            ratio = statistics.median(our / their for our, their in zip(taken[kind], taken["Schedule1F1B"]))
            verdict = "" if kind != "threads" else " ok" if ratio <= 0.85 else " MISSED: 0.85 asked"
            print(f"{ranks} ranks, {kind}: {1e6 * statistics.median(taken[kind]) / tokens:.0f} us of CPU a token, "
                  f"loss {last[kind]:.5f}: {ratio:.2f}{verdict}", flush=True)
