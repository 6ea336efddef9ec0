# SPDX-License-Identifier: MIT
"""defer_pp_recv=True gives wrong gradients. PyTorch alone, two processes, no GPU (README.md).
repro.py --cured runs with cure.py."""
import sys, tempfile
import torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.distributed.pipelining import PipelineStage, schedules

WIDTH, MICROBATCHES, STAGES = 8, 4, 4  # stages 0 and 2 on rank 0, 1 and 3 on rank 1
loss_fn = torch.nn.functional.mse_loss


def layers():
    torch.manual_seed(0)
    layer = lambda: torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()).double()
    return [layer() for _ in range(STAGES)]


def train(rank, defer, meet):
    if "--cured" in sys.argv:
        import cure
        schedules._defer_recv_ops = cure.defer_recv_ops
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meet}/store", rank=rank, world_size=2)
    torch.manual_seed(1)
    x, target = torch.randn(2, MICROBATCHES, WIDTH, dtype=torch.float64)
    plain, piped, mine = layers(), layers(), (rank, rank + 2)
    loss_fn(torch.nn.Sequential(*plain)(x), target).backward()

    like = torch.empty(1, WIDTH, dtype=torch.float64, requires_grad=True)
    stages = [PipelineStage(piped[s], s, STAGES, torch.device("cpu"), input_args=like, output_args=like) for s in mine]
    schedule = schedules.ScheduleInterleavedZeroBubble(stages, MICROBATCHES, loss_fn=loss_fn, defer_pp_recv=defer)
    schedule.step(*([x] if rank == 0 else []), target=target)

    pairs = [(piped[s][0].weight.grad, plain[s][0].weight.grad) for s in mine]
    worst = torch.stack([(have - want).abs().max() / want.abs().max() for have, want in pairs]).max()
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    if rank == 0:
        print(f"defer_pp_recv={defer}: worst relative error of a gradient {worst:.1e}")
    dist.destroy_process_group()


if __name__ == "__main__":
    print("PyTorch", torch.__version__)
    for defer in (False, True):
        with tempfile.TemporaryDirectory() as meet:
            mp.spawn(train, (defer, meet), nprocs=2)
