# SPDX-License-Identifier: MIT
# Trains a small model with PyTorch's pipelining in the order of a .pipe schedule; README.md beside it.
import re
import sys

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

file, microbatches = sys.argv[1], int(sys.argv[2])
placed = [sorted({int(s) for s in re.findall(r"(\d+)F\d", row)}) for row in open(file)]
dist.init_process_group("gloo")
torch.manual_seed(0)
layers = [torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()) for _ in range(sum(map(len, placed)))]
stages = [PipelineStage(layers[s], s, len(layers), torch.device("cpu")) for s in placed[dist.get_rank()]]
schedule = _PipelineScheduleRuntime(stages, microbatches, loss_fn=torch.nn.functional.mse_loss)
schedule._load_csv(file)
optimizer = torch.optim.Adam([p for stage in stages for p in stage.submod.parameters()], lr=0.01)
for step in range(10):
    x, losses = torch.randn(64 * microbatches, 64), []
    inputs = (x,) if any(stage.is_first for stage in stages) else ()
    schedule.step(*inputs, target=x.mean(1, keepdim=True).expand(-1, 64), losses=losses)
    optimizer.step(), optimizer.zero_grad()
    if losses:
        print("step %d: loss %.4f" % (step, torch.stack(losses).mean()))
dist.destroy_process_group()
