# SPDX-License-Identifier: MIT
"""CPU time of a token: a GPT by Schedule1F1B of PyTorch on gloo processes, and by pipec.engine.Run on threads and on
gloo processes; the same modules, batches and optimizer, turn by turn. torch_run.py [ROUNDS]; needs PyTorch. Prints the least of all rounds."""
import os
import resource
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn import functional

import pipec
from pipec.engine import Run

LAYERS, WIDTH, HEADS, SEQUENCE, BATCH, MICROBATCHES, VOCABULARY, STEPS = 8, 128, 4, 64, 2, 8, 128, 8


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


def batches():
    draw = torch.Generator().manual_seed(1)
    for _ in range(STEPS + 2):
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


def run_of(ranks, engine):
    example = torch.zeros(BATCH, SEQUENCE, dtype=torch.int64)
    return Run(pipec.compile("1f1b", P=ranks, M=MICROBATCHES), stages(ranks), loss_fn, example, adam, engine=engine)


def peer(rank, ranks, meet, out, kind):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meet}/store", rank=rank, world_size=ranks)
    step = schedule_1f1b(rank, ranks) if kind == "Schedule1F1B" else run_of(ranks, "dist").step
    for number, (x, target) in enumerate(batches()):
        if number == 2:
            dist.barrier()
            start = seconds()
        loss = step(x, target)
    used = torch.tensor([seconds() - start, loss if rank == ranks - 1 else 0], dtype=torch.float64)
    dist.all_reduce(used)
    if rank == 0:
        torch.save(used, out)
    dist.destroy_process_group()


def processes(ranks, kind):
    with tempfile.TemporaryDirectory() as meet:
        mp.spawn(peer, (ranks, meet, meet + "/out", kind), nprocs=ranks)
        return torch.load(meet + "/out").tolist()


def threads(ranks):
    with run_of(ranks, "threads") as run:
        for step, (x, target) in enumerate(batches()):
            if step == 2:
                start = seconds()
            loss = run.step(x, target)
        return [seconds() - start, loss]


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    tokens = STEPS * MICROBATCHES * BATCH * SEQUENCE
    for ranks in 2, 4:
        count = int(sys.argv[1]) if len(sys.argv) > 1 else 3
        rounds = [(processes(ranks, "Schedule1F1B"), threads(ranks), processes(ranks, "dist")) for _ in range(count)]
        (their, their_loss), (our, our_loss), (apart, apart_loss) = (min(r) for r in zip(*rounds))
        verdict = "ok" if our <= 0.85 * their else "MISSED: 0.85 asked"
        print(f"{ranks} ranks: Schedule1F1B {1e6 * their / tokens:.0f} us of CPU a token, loss {their_loss:.5f}; "
              f"pipec {1e6 * our / tokens:.0f} us, loss {our_loss:.5f}: {our / their:.2f} {verdict}; "
              f"as processes {1e6 * apart / tokens:.0f} us, loss {apart_loss:.5f}: {apart / their:.2f}")
