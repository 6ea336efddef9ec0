# SPDX-License-Identifier: MIT
# Trains a small model on CPU ranks (gloo) in the orders of pipec, loaded by PyTorch's
# _PipelineScheduleRuntime from both of its file formats, and compares losses and gradients with the plain
# module.
#
#   train.py PIPEC STDLIB SCRATCH      needs torch; starts 2 and 4 processes
import os
import re
import subprocess
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.pipelining import PipelineStage, schedules
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

WIDTH, ROWS = 12, 3  # of a tensor of one microbatch
WAITS = ["--torch-waits"] if hasattr(schedules, "WAIT_SEND_F") else []
SCHEDULES = {2: [("gpipe", 3, {}), ("1f1b", 5, {}), ("interleaved", 4, {"V": 2}), ("zb_v", 4, {}), ("dualpipev", 4, {})],
             4: [("gpipe", 4, {}), ("1f1b", 8, {}), ("interleaved", 8, {"V": 2}), ("looped_bfs", 4, {"V": 2}),
                 ("zb_h1", 8, {}), ("interleaved_zb", 8, {"V": 2}), ("zb_v", 8, {}), ("dualpipev", 10, {}),
                 ("v_half", 8, {}), ("hanayo", 4, {"W": 1})]}


def model(nstage):
    torch.manual_seed(nstage)
    return [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()).double() for _ in range(nstage)]


def data(nmb):
    torch.manual_seed(7)
    return [torch.randn(nmb * ROWS, WIDTH, dtype=torch.float64) for _ in range(2)]


def plain(nstage, nmb):
    layers, (x, y) = model(nstage), data(nmb)
    losses = []
    for a, b in zip(x.chunk(nmb), y.chunk(nmb)):
        for layer in layers:
            a = layer(a)
        losses.append(torch.nn.functional.mse_loss(a, b))
    (sum(losses) / nmb).backward()
    return [loss.detach() for loss in losses], [[p.grad for p in layer.parameters()] for layer in layers]


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


def rank_main(rank, P, files, folder):
    dist.init_process_group("gloo", init_method="file://%s/meet%d" % (folder, P), rank=rank, world_size=P)
    for path, form, nmb in files:
        placed = [sorted({int(s) for s in re.findall(r"(\d+)F\d", row)}) for row in open(path)]
        nstage = sum(map(len, placed))
        want_losses, want_grads = plain(nstage, nmb)
        layers, (x, y) = model(nstage), data(nmb)
        tensor = torch.empty(ROWS, WIDTH, dtype=torch.float64, requires_grad=True)
        stages = [PipelineStage(layers[s], s, nstage, torch.device("cpu"), input_args=(tensor,), output_args=(tensor,))
                  for s in placed[rank]]
        schedule = _PipelineScheduleRuntime(stages, nmb, loss_fn=torch.nn.functional.mse_loss)
        schedule._load_csv(path, format=form)
        for _ in range(2):  # the second step finds nothing that the first one left
            losses = []
            inputs = (x,) if 0 in placed[rank] else ()
            schedule.step(*inputs, target=y, losses=losses)
            assert len(losses) == (nmb if nstage - 1 in placed[rank] else 0)
            for got, want in zip(losses, want_losses):
                close(got.detach(), want)
            for s in placed[rank]:
                for p, want in zip(layers[s].parameters(), want_grads[s]):
                    close(p.grad, want)
                    p.grad = None
        dist.barrier()
    dist.destroy_process_group()


def export(pipec, stdlib, folder, P):
    files = []
    for name, nmb, params in SCHEDULES[P]:
        defines = ["-D%s=%d" % p for p in dict(params, P=P, M=nmb).items()]
        for form, options in (("compute_only", ["--emit=csv"]), ("compute_comms", ["--emit=comms-csv", *WAITS]),
                              ("compute_comms", ["--emit=comms-csv", "--torch-unshard=2", *WAITS])):
            path = "%s/%s-%d-%d.csv" % (folder, name, P, len(files))
            subprocess.run([pipec, "%s/%s.pipe" % (stdlib, name), *defines, *options, "-o", path], check=True)
            files.append((path, form, nmb))
    return files


if __name__ == "__main__":
    pipec, stdlib, scratch = sys.argv[1:]
    os.makedirs(scratch, exist_ok=True)
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    count = 0
    for ranks in SCHEDULES:
        if os.path.exists("%s/meet%d" % (scratch, ranks)):
            os.remove("%s/meet%d" % (scratch, ranks))
        exported = export(pipec, stdlib, scratch, ranks)
        mp.spawn(rank_main, (ranks, exported, scratch), nprocs=ranks)
        count += len(exported)
    print("PyTorch %s: %d files trained as the plain module" % (torch.__version__, count))
