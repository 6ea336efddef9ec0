# SPDX-License-Identifier: MIT
# Trains, writes a checkpoint and resumes under pipemare_t1 with M = 32. Its rate is lr * delay^-(1 - k/K), which gives k.
import math
import tempfile

import pipec
import torch
from pipec.engine import Run

P, K, LR = 4, 1000, 0.1
rates = {}  # by optimizer
steps = {}  # of Adam


class Watched(torch.optim.Adam):
    def step(self, *args):
        rates.setdefault(id(self), []).append(self.param_groups[0]["lr"])
        state = self.state[self.param_groups[0]["params"][0]]
        steps.setdefault(id(self), []).append(int(state.get("step", 0)))
        return super().step(*args)


def stages():
    torch.manual_seed(0)
    return [torch.nn.Linear(8, 8) for _ in range(P)]


def run(schedule):
    return Run(schedule, stages(), torch.nn.functional.mse_loss, example=torch.zeros(8, 8),
               optimizer=lambda module: Watched(module.parameters(), lr=LR))


def first_k():
    """Of the stage whose delay is 2: the rate of one without delay is LR, that of a longer delay less."""
    reduced = [rate[0] for rate in rates.values() if rate[0] < LR * 0.999]
    return round(K * (1 + math.log2(max(reduced) / LR)))


torch.set_num_threads(1)
after = pipec.compile("pipemare_t1", P=P, M=32, N=4, K=K)
for name, parameters, n in [("1f1b", {"M": 4}, 10), ("pipemare_t1", {"M": 16, "N": 4, "K": K}, 3),
                            ("pipemare_t1", {"M": 32, "N": 4, "K": K}, 2)]:
    folder = tempfile.mkdtemp()
    x = torch.randn(8 * parameters["M"], 8)
    with run(pipec.compile(name, P=P, **parameters)) as before:
        for _ in range(n):
            before.step(x, x)
        before.save(folder)
    x = torch.randn(8 * 32, 8)
    with run(after) as then:
        then.resume(folder)
        rates.clear()  # the engine has tried the optimizers
        steps.clear()
        then.step(x, x)
    k = first_k()
    made = n * (1 if name == "1f1b" else parameters["M"] // 4)
    assert all(step[0] == made for step in steps.values()), (steps, made)
    print(f"{name} M={parameters['M']}, {n} steps: k {k}")
