# SPDX-License-Identifier: MIT
"""Trains every schedule of the library in PyTorch's runtime, on as many gloo processes as it is told, beside the plain
module: prints which train equal, which do so with a warning of what PyTorch leaves out, and which are refused. library.py RANKS NAME..."""
import collections
import sys
import tempfile
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.pipelining import PipelineStage

import pipec
from pipec.torch import PipeSchedule

WIDTH = 8
loss_fn = torch.nn.functional.mse_loss


def layers(count):
    torch.manual_seed(0)
    return [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()).double() for _ in range(count)]


def compiled(name, ranks):
    try:
        return pipec.compile(name, P=ranks, M=2 * ranks)
    except pipec.ScheduleError as e:
        if "'V'" not in e.message:
            raise
        return pipec.compile(name, P=ranks, M=2 * ranks, V=2)


def worst(piped, plain, mine):
    pairs = [(p.grad, q.grad) for s in mine for p, q in zip(piped[s].parameters(), plain[s].parameters())]
    return max(float((p - q).abs().max() / q.abs().max()) for p, q in pairs)


def trained(name, ranks, rank):
    """What becomes of it; the same on all ranks."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", pipec.ScheduleWarning)
        try:
            schedule = compiled(name, ranks)
        except pipec.ScheduleError as e:
            return e.code
        count, mine = sum(map(len, schedule.placement)), schedule.placement[rank]
        plain, piped = layers(count), layers(count)
        stages = [PipelineStage(piped[s], s, count, torch.device("cpu")) for s in mine]
        try:
            pipe = PipeSchedule(schedule, stages, 2 * ranks, loss_fn)
        except pipec.ScheduleError:
            return "refused"
    torch.manual_seed(1)
    x, target = torch.randn(2, 2 * ranks, WIDTH, dtype=torch.float64)
    want = loss_fn(torch.nn.Sequential(*plain)(x), target)
    want.backward()
    error = torch.zeros(())
    for compute_only in False, True:  # with the proved transfers, and with those that PyTorch adds
        if compute_only:
            with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
                file.write(schedule.csv)
                file.flush()
                pipe._load_csv(file.name)
        for layer in piped:
            layer.zero_grad()
        losses = []
        pipe.step(*([x] if 0 in mine else []), target=target, losses=losses)
        off = [worst(piped, plain, mine)] + ([(torch.stack(losses).mean() - want).detach().abs()] if losses else [])
        error = torch.maximum(error, torch.tensor(max(map(float, off))))
    dist.all_reduce(error, dist.ReduceOp.MAX)
    warned = any("PyTorch" in str(w.message) for w in said)
    return ("warned" if warned else "equal") if error < 1e-12 else f"wrong by {error:.1e}"


def rank_main(rank, ranks, names, meet):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meet}/store", rank=rank, world_size=ranks)
    by = collections.defaultdict(list)
    for name in names:
        by[trained(name, ranks, rank)].append(name)
    if rank == 0:
        for what in sorted(by):
            print(f"{what} {len(by[what])}: {' '.join(by[what])}")
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as meet:
        mp.spawn(rank_main, (int(sys.argv[1]), sys.argv[2:], meet), nprocs=int(sys.argv[1]))
