# SPDX-License-Identifier: MIT
"""Profiles layers, lets pipec cut them into stages for one, three and four ranks, and trains the stages beside the layers in a
row. Prints how many stages there are."""
import collections
import copy
import json
import re
import types

import torch

import pipec
from pipec.engine import Run, cut, profile

MICROBATCHES = 12
loss_fn = torch.nn.functional.mse_loss


class Two(torch.nn.Linear):
    """Takes one tensor or two; returns two, of which it saves one as the next layer does."""

    def forward(self, x, skip=None):
        y = super().forward(x).relu()
        return y, x if skip is None else skip + y


class Last(torch.nn.Linear):
    def forward(self, x, skip):
        return super().forward(x) + skip


def make():
    torch.manual_seed(0)
    return [*(Two(16, 16) for _ in range(7)), Last(16, 16)]


def sgd(m):
    return torch.optim.SGD(m.parameters(), lr=0.1)


def plain(x, target, steps):
    """The losses of the layers in a row."""
    layers = make()
    optimizer = sgd(torch.nn.ModuleList(layers))
    for _ in range(steps):
        y = x,
        for layer in layers:
            y = layer(*y)
        loss = loss_fn(y, target)
        yield float(loss.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def trained(schedule, x, target, wanted):
    stages = cut(schedule, make())
    with Run(schedule, stages, loss_fn, x[:2], sgd) as run:
        assert run.bytes == schedule.memory
        losses = [run.step(x, target) for _ in wanted]
    assert all(abs(one - other) < 1e-5 for one, other in zip(losses, wanted)), (losses, wanted)
    return f"{len(stages)} stage" + ("s" if len(stages) > 1 else "")


torch.set_num_threads(1)
x, target = torch.randn(2, 2 * MICROBATCHES, 16)
wanted = list(plain(x, target, 3))
measured = profile(make(), loss_fn, x[:2], target[:2], sgd, layers=True)
for layer in measured["layers"]:  # equal times, so that the cuts are equal on every machine
    layer.update(F=1000000, B=2000000, I=1000000, W=1000000, R=1000000, U=0)
with open("layers.json", "w") as f:
    json.dump(measured, f)
for ranks in 1, 3, 4:
    with open("cluster.json", "w") as f:
        json.dump({"pipe_cluster": 1, "levels": [{"count": ranks, "bandwidth": "1MB"}]}, f)
    schedules = {
        "plan": pipec.plan("layers.json", "cluster.json", MICROBATCHES),
        "best": pipec.best("layers.json", P=ranks, M=MICROBATCHES),
        "zb_h1": pipec.compile("zb_h1", P=ranks, M=MICROBATCHES, profile="layers.json"),
    }
    print("; ".join(f"{name}: {trained(schedule, x, target, wanted)}" for name, schedule in schedules.items()))

# Where memory is short, a plan has layers recompute: they run twice as often, and the losses stay.
torch.manual_seed(0)
blocks = [torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 16)) for _ in range(6)]
x, target = torch.randn(2, 64 * MICROBATCHES, 16)
measured = profile(blocks, loss_fn, x[:64], target[:64], sgd, layers=True)
for layer in measured["layers"]:
    layer.update(F=1000000, B=2000000, R=1000000, U=0)
    del layer["I"], layer["W"]
with open("layers.json", "w") as f:
    json.dump(measured, f)
with open("cluster.json", "w") as f:
    json.dump({"pipe_cluster": 1, "levels": [{"count": 2, "bandwidth": "1GB"}]}, f)


def steps(schedule):
    """The losses of three steps, and the forwards of layers in them."""
    ran = collections.Counter()
    stages = cut(schedule, copy.deepcopy(blocks))
    with Run(schedule, stages, loss_fn, x[:64], sgd) as run:
        torch.nn.modules.module.register_module_forward_hook(lambda m, *_: ran.update([type(m)]))
        losses = [run.step(x, target) for _ in range(3)]
        torch.nn.modules.module._global_forward_hooks.clear()
    return losses, ran[torch.nn.Tanh]


free = pipec.plan("layers.json", "cluster.json", MICROBATCHES)
tight = pipec.plan("layers.json", "cluster.json", MICROBATCHES, memory_limit=max(free.memory) * 8 // 10)
again = int(re.search("recomputing ([0-9]+) layers?", tight.text)[1])
(wanted, once), (losses, ran) = steps(free), steps(tight)
assert losses == wanted and ran == once + 3 * MICROBATCHES * again, (losses, wanted, ran, once, again)
for schedule, layers in (pipec.compile("1f1b"), make()), (schedules["plan"], make()[:3]):
    try:
        cut(schedule, layers)
    except ValueError as e:
        print(e)


class Late(pipec._devices.Host):
    """A device that takes 20 ns for each forward of a layer, behind the call. Nothing else takes time."""

    clock = left = 0

    def finish(self):
        Late.clock += 20 * Late.left
        Late.left = 0


def enqueue(*_):
    Late.left += 1


pipec.engine.Host = Late
pipec.engine.time = types.SimpleNamespace(perf_counter_ns=lambda: Late.clock)
torch.nn.modules.module.register_module_forward_hook(enqueue)
took = profile([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)], loss_fn, x[:2, :4], target[:2, :4], sgd)
print([{op: stage[op] for op in "FBIWRU"} for stage in took["stages"]])
