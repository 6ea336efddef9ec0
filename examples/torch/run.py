# SPDX-License-Identifier: MIT
# Trains a small model in PyTorch in the order of a schedule (README.md).
import sys

import pipec
import torch
from pipec.torch import PipeSchedule
from torch.distributed.pipelining import PipelineStage

torch.distributed.init_process_group("gloo")
rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
microbatches = int(sys.argv[2])
order = pipec.compile(sys.argv[1], P=ranks, M=microbatches)
count = sum(map(len, order.placement))
mine, cpu = order.placement[rank], torch.device("cpu")
stages = [PipelineStage(torch.nn.Linear(64, 64), s, count, cpu) for s in mine]
schedule = PipeSchedule(order, stages, microbatches, torch.nn.MSELoss())
optimizer = torch.optim.Adam([p for s in stages for p in s.submod.parameters()], lr=0.01)
torch.manual_seed(0)  # every rank draws the same x
for step, x in enumerate(torch.randn(10, 64 * microbatches, 64)):
    losses, target = [], x.mean(1, keepdim=True).expand(-1, 64)
    schedule.step(*([x] if 0 in mine else []), target=target, losses=losses)
    optimizer.step()
    optimizer.zero_grad()
    if losses:
        print(f"step {step}: loss {torch.stack(losses).mean():.4f}")
torch.distributed.destroy_process_group()
