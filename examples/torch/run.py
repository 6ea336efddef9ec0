# SPDX-License-Identifier: MIT
# Trains a small model with PyTorch's pipelining in the order of a .pipe schedule (README.md).
import re, sys

import torch
from torch.distributed.pipelining import PipelineStage, schedules

file, microbatches = sys.argv[1], int(sys.argv[2])
placed = [sorted({int(s) for s in re.findall(r"(\d+)F\d", row)}) for row in open(file)]
torch.distributed.init_process_group("gloo")
mine, count = placed[torch.distributed.get_rank()], sum(map(len, placed))
stages = [PipelineStage(torch.nn.Linear(64, 64), s, count, torch.device("cpu")) for s in mine]
schedule = schedules._PipelineScheduleRuntime(stages, microbatches, loss_fn=torch.nn.MSELoss())
schedule._load_csv(file)
optimizer = torch.optim.Adam([p for s in stages for p in s.submod.parameters()], lr=0.01)
torch.manual_seed(0)  # every rank draws the same x
for step, x in enumerate(torch.randn(10, 64 * microbatches, 64)):
    losses = []
    schedule.step(x, target=x.mean(1, keepdim=True).expand(-1, 64), losses=losses)
    optimizer.step()
    optimizer.zero_grad()
    if losses:
        print(f"step {step}: loss {torch.stack(losses).mean():.4f}")
torch.distributed.destroy_process_group()
