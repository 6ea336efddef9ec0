# SPDX-License-Identifier: MIT
"""Trains every schedule of the library on the C engine, as nn.Modules: those that update once a step beside the plain module,
the others beside a replay that keeps all versions of the weights and differentiates by hand. Of the lists it takes which
version each op reads, and nothing else. engine.py NAME..."""
import collections
import re
import sys

import torch

import pipec
from pipec.engine import Run, RunError

RANKS, MICROBATCHES, ROWS, WIDTH, STEPS = 4, 8, 2, 8, 4
RATE, MOMENTUM = 0.1, 0.9
loss_fn = torch.nn.functional.mse_loss


def layers(count, dtype=torch.float64):
    torch.manual_seed(0)
    return [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()).to(dtype) for _ in range(count)]


def compiled(name):
    try:
        return pipec.compile(name, P=RANKS, M=MICROBATCHES)
    except pipec.ScheduleError as e:
        if "'V'" not in e.message:
            raise
        return pipec.compile(name, P=RANKS, M=MICROBATCHES, V=2)


def batches(microbatches):
    draw = torch.Generator().manual_seed(3)
    for _ in range(STEPS):
        yield torch.randn(2, ROWS * microbatches, WIDTH, dtype=torch.float64, generator=draw)


class Recorded(torch.optim.SGD):
    """Keeps the learning rates of its steps, which a schedule may scale."""

    def __init__(self, parameters):
        super().__init__(parameters, lr=RATE, momentum=MOMENTUM)
        self.rates = []

    def step(self):
        self.rates.append(self.param_groups[0]["lr"])
        super().step()


class Plain:
    """All at once, one update a step."""

    def __init__(self, schedule, count, optimizers):
        self.net = torch.nn.Sequential(*layers(count))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=RATE, momentum=MOMENTUM)

    def step(self, x, target):
        loss = loss_fn(self.net(x), target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def weights(self, stage):
        return [p.detach() for p in self.net[stage].parameters()]


class Replay:
    """The lists, op by op, with the weights that each names; tanh(x w + b) differentiated by hand."""

    def __init__(self, schedule, count, optimizers):
        self.rates = [o.rates for o in optimizers]
        self.lists = [[op for op in rank["instr"] if re.fullmatch(r"\d+[FBIWU]\d*", op["op"])] for rank in schedule.json["rank"]]
        self.version = [[[p.detach() for p in layer.parameters()]] for layer in layers(count)]
        self.speed = [[torch.zeros_like(p) for p in v[0]] for v in self.version]
        self.microbatches = schedule.json["microbatches"]

    def step(self, x, target):
        xs, targets = x.chunk(self.microbatches), target.chunk(self.microbatches)
        last = len(self.version) - 1
        at, out, back, kept, losses = [0] * len(self.lists), {}, {}, {}, {}
        sums = collections.defaultdict(list)
        moved = True
        while moved:
            moved = False
            for rank, ops in enumerate(self.lists):
                while at[rank] < len(ops):
                    op = ops[at[rank]]
                    kind = re.sub(r"\d", "", op["op"])
                    stage, mb = op["stage"], op.get("mb")
                    version = self.version[stage]
                    if kind == "F":
                        x = xs[mb] if stage == 0 else out.get((stage - 1, mb))
                        if x is None:
                            break
                        w, b = version[op.get("version", -1)]
                        y = out[stage, mb] = torch.tanh(x @ w.T + b)
                        kept[stage, mb] = x, y
                        if stage == last:
                            losses[mb] = float(((y - targets[mb]) ** 2).mean())
                            back[stage + 1, mb] = 2 * (y - targets[mb]) / y.numel()
                    elif kind in "BI":
                        if (stage + 1, mb) not in back:
                            break
                        x, y = kept[stage, mb]
                        dz = back[stage + 1, mb] * (1 - y ** 2)
                        back[stage, mb] = dz @ version[op.get("version", -1)][0]
                        kept[stage, mb] = dz.T @ x, dz.sum(0)
                    if kind in "BW":
                        sums[stage].append(kept[stage, mb])
                    if kind == "U":
                        grads, sums[stage] = [sum(g) / len(g) for g in zip(*sums[stage])], []
                        self.speed[stage] = [MOMENTUM * v + g for v, g in zip(self.speed[stage], grads)]
                        assert op.get("version", len(version)) == len(version)
                        rate = self.rates[stage].pop(0)
                        version.append([w - rate * v for w, v in zip(version[-1], self.speed[stage])])
                    at[rank] += 1
                    moved = True
        assert at == list(map(len, self.lists))
        self.version = [v[-1:] for v in self.version]
        return sum(losses.values()) / len(losses)

    def weights(self, stage):
        return self.version[stage][0]


def formulas(schedule, count):
    """Of the formulas of a schedule, which test/async holds against formulas by hand: the engine has what they need."""
    if any("v2" in str(f) for f in schedule.json["formulas"]):
        adam = lambda m: torch.optim.Adam(m.parameters(), lr=0.01)
    else:
        adam = lambda m: torch.optim.SGD(m.parameters(), lr=RATE, momentum=MOMENTUM)
    with Run(schedule, layers(count, torch.float32), loss_fn, torch.zeros(ROWS, WIDTH), adam) as run:
        x, target = (t.float() for t in next(batches(schedule.json["microbatches"])))
        losses = [run.step(x, target) for _ in range(8)]
    return "formulas, learns" if losses[-1] < 0.9 * losses[0] else f"formulas, does not learn: {losses}"


def trained(name):
    schedule = compiled(name)
    count = 1 + max(row["model"] for row in schedule.json["stages"])
    ops = [op for rank in schedule.json["rank"] for op in rank["instr"]]
    versions = any("version" in op for op in ops)
    updates = collections.Counter(op["stage"] for op in ops if re.fullmatch(r"\d+U\d*", op["op"]))
    if schedule.json["forward"]:
        return "forward only"
    if schedule.json.get("formulas") and "scale" not in name and name != "pipemare_t1":
        return formulas(schedule, count)
    try:
        run = Run(schedule, layers(count), loss_fn, torch.zeros(ROWS, WIDTH, dtype=torch.float64),
                  lambda m: Recorded(m.parameters()))
    except RunError as e:
        return str(e)
    if versions and any("REDUCE" in op["op"] for op in ops):
        return "versions of replicas: not replayed"
    with run:
        oracle = (Replay if max(updates.values()) > 1 else Plain)(schedule, count, run.optimizers)
        worst = 0
        for x, target in batches(schedule.json["microbatches"]):
            worst = max(worst, abs(run.step(x, target) - oracle.step(x, target)))
        for stage in range(count):
            worst = max(worst, *(float((a - b).abs().max()) for a, b in zip(run.state_dict(stage).values(), oracle.weights(stage))))
    return (type(oracle).__name__ if worst < 1e-12 else f"wrong by {worst:.1e}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    by = collections.defaultdict(list)
    for name in sys.argv[1:]:
        by[trained(name)].append(name)
    for what in sorted(by):
        print(f"{what} {len(by[what])}: {' '.join(by[what])}")
