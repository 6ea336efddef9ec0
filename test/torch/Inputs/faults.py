# SPDX-License-Identifier: MIT
"""What all of four gloo processes say when something is wrong with one of them, run after run. faults.py DEADLINE prints it, in
order of the ranks; faults.py DEADLINE RANK STORE is one of them. Deadlines are seconds."""
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import torch
import torch.distributed as dist

import pipec
from pipec.engine import Run, RunError

DEADLINE = max(4.0, float(sys.argv[1]))
CASES = ("none", "replicas", "tied", "programs", "ranks", "raises", "late", "fine", "killed")


class Odd(torch.nn.Linear):
    """Does in its third step's third microbatch what the case says."""

    calls = 0
    case = ""

    def forward(self, x):
        Odd.calls += 1
        if Odd.calls == 12 and Odd.case == "raises":
            raise KeyError("no such head")
        if Odd.calls == 12 and Odd.case == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if Odd.calls == 12 and Odd.case == "late":
            time.sleep(2 * DEADLINE + 4)
        return super().forward(x)


def sgd(m):
    return torch.optim.SGD(m.parameters(), lr=0.1)


def rank_main(case, rank):
    torch.manual_seed(rank if case in ("replicas", "tied") else 0)
    stages = [torch.nn.Linear(4, 4), Odd(4, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)]
    Odd.case, Odd.calls = case, 0
    schedule = pipec.compile("dualpipe" if case == "replicas" else "1f1b", P=2 if case == "ranks" else 4, M=8)
    if case == "tied":
        stages[3].weight = stages[0].weight
        schedule = pipec.compile(text='import "1f1b.pipe"\nschedule tied(P = 4, M = 4) extends onef1b(P, M) { tie 0, 3 }')
    if case == "programs" and rank == 2:
        schedule = pipec.compile("gpipe", P=4, M=8)
    if case == "none" and rank == 2:
        stages[2] = None
    x = torch.ones(16, 4)
    with Run(schedule, stages[:2] if case == "ranks" else stages, torch.nn.functional.mse_loss, x[:2], sgd,
             engine="dist", deadline=DEADLINE if case == "late" else 0) as run:
        run.step(x, x)
        if case == "fine":
            return resumed(run, stages, x)
        return f"{run.step(x, x):.3f}"


def resumed(run, stages, x):
    """Goes on from a checkpoint in new processes' runs, and says what another process has."""
    checkpoint = os.path.join(os.path.dirname(sys.argv[3]), "checkpoint")
    run.save(checkpoint)
    loss = run.step(x, x)
    with Run(run.schedule, stages, torch.nn.functional.mse_loss, x[:2], sgd, engine="dist") as again:
        assert again.resume(checkpoint) == 1 and again.step(x, x) == loss
        try:
            again.state_dict(3)
        except ValueError as e:
            return str(e)
        return f"{len(again.optimizers)} optimizer"


def outcome(case, rank):
    try:
        return rank_main(case, rank)
    except (RunError, ValueError) as e:
        if isinstance(e.__cause__, KeyError):
            assert "in forward" in "".join(traceback.format_exception(e.__cause__))
        return f"{type(e).__name__}: {e}" + (f" from {e.__cause__!r}" if e.__cause__ else "")


if __name__ == "__main__" and len(sys.argv) > 2:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[3]}", rank=int(sys.argv[2]), world_size=4)
    for case in CASES:
        print(f"{case} {sys.argv[2]}: {outcome(case, int(sys.argv[2]))}", flush=True)
    dist.destroy_process_group()
elif __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        ranks = [subprocess.Popen([sys.executable, __file__, sys.argv[1], str(rank), folder + "/store"], stdout=subprocess.PIPE, text=True)
                 for rank in range(4)]
        said = [process.communicate()[0].splitlines() for process in ranks]
    for case in CASES:
        print("\n".join(line for lines in said for line in lines if line.startswith(case)))
    print([process.returncode for process in ranks])
