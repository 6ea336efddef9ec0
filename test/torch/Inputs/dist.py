# SPDX-License-Identifier: MIT
"""Trains schedules of the library on gloo processes and, in each of them, on the threads engine: which have the same losses
and weights, bit for bit. dist.py RANKS NAME..."""
import collections
import sys
import tempfile

import engine
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import pipec
from pipec.engine import Run, RunError

STEPS = 2


def trained(schedule, kind, group):
    """The losses of the steps and the weights of the stages here, or why there are none."""
    count = 1 + max(row["model"] for row in schedule.json["stages"])
    formulas = str(schedule.json.get("formulas"))
    dtype = torch.float32 if formulas != "None" else torch.float64
    make = (lambda m: torch.optim.Adam(m.parameters(), lr=engine.RATE)) if "v2" in formulas else (
        lambda m: torch.optim.SGD(m.parameters(), lr=engine.RATE, momentum=engine.MOMENTUM))
    rank = dist.get_rank(group)
    placed = [{row["model"] for row in schedule.json["stages"] if row["rank"] == r} for r in range(dist.get_world_size(group))]
    stages = engine.layers(count, dtype)
    if kind == "dist":  # what is elsewhere need not be here
        stages = [stage if i in placed[rank] else None for i, stage in enumerate(stages)]
    example = torch.zeros(engine.ROWS, engine.WIDTH, dtype=dtype) if 0 in placed[rank] or kind == "threads" else None
    try:
        run = Run(schedule, stages, engine.loss_fn, example, make, engine=kind, group=group)
    except (RunError, ValueError) as e:
        return str(e).removeprefix("rank 0: ")
    with run:
        losses = []
        for x, target in list(engine.batches(schedule.json["microbatches"]))[:STEPS]:
            x = x.to(dtype) if kind == "threads" or 0 in placed[rank] else None
            target = target.to(dtype) if kind == "threads" or count - 1 in placed[rank] else None
            losses.append(run.step(x, target))
        return losses, [run.state_dict(i) for i in sorted(placed[rank])]


def same(schedule, group=None):
    if schedule.json["forward"]:
        return "forward only"
    one, other = trained(schedule, "dist", group), trained(schedule, "threads", group)
    if isinstance(one, str):
        return one
    losses = one[0] == other[0]
    weights = all(torch.equal(a[key], b[key]) for a, b in zip(one[1], other[1]) for key in a)
    return "same bits" if losses and weights else f"wrong: losses {losses}, weights {weights}"


def rank_main(rank, ranks, names, meet):
    torch.set_num_threads(1)
    engine.RANKS = ranks
    dist.init_process_group("gloo", init_method=f"file://{meet}/store", rank=rank, world_size=ranks)
    by = collections.defaultdict(list)
    for name in names:
        try:
            what = [same(engine.compiled(name))]
        except pipec.ScheduleError as e:
            what = [e.code]
        found = [None] * ranks
        dist.all_gather_object(found, what[0])
        by[found[0] if len(set(found)) == 1 else str(found)].append(name)
    if rank == 0:
        for what in sorted(by):
            print(f"{what} {len(by[what])}: {' '.join(by[what])}")
    pairs = [dist.new_group(pair) for pair in ([0, 2], [1, 3]) if ranks == 4]
    if pairs:  # two runs beside each other
        engine.RANKS, found = 2, [None] * ranks
        dist.all_gather_object(found, same(engine.compiled(["zb_v", "chimera"][rank % 2]), pairs[rank % 2]))
        if rank == 0:
            print("groups of two:", *sorted(set(found)))
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as meet:
        mp.spawn(rank_main, (int(sys.argv[1]), sys.argv[2:], meet), nprocs=int(sys.argv[1]))
