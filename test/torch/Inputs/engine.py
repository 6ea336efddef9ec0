# SPDX-License-Identifier: MIT
"""Trains every schedule of the library on the C engine, as nn.Modules: those that update once a step beside the plain module,
the others beside a replay that keeps all versions of the weights, evaluates the formulas and differentiates by hand. Of the
lists it takes which version and formula each op reads, and nothing else. engine.py NAME..."""
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


class Plain:
    """All at once, one update a step."""

    def __init__(self, count):
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


def meant(text, **names):
    """The value of a formula of the schedule."""
    text = re.sub(r"\((\w+ > \d+) \? (.*) : (.*)\)$", r"((\2) if \1 else (\3))", text)
    return eval(text, {"pow": pow, "min": min, "max": max, "sqrt": torch.sqrt}, names)


class Replay:
    """The lists, op by op, with the weights that each names and the formulas of the schedule; tanh(x w + b) differentiated by
    hand, SGD with momentum and Adam by their definitions."""

    def __init__(self, schedule, count, adam):
        self.adam, self.formulas, self.rules = adam, schedule.json.get("formulas"), schedule.json.get("rules")
        self.rows = schedule.json["stages"]  # a stage with replicas has several
        self.lists = [[op for op in rank["instr"] if re.fullmatch(r"\d+([FBIWU]\d*|REDUCE)", op["op"])] for rank in schedule.json["rank"]]
        begin = layers(count)
        self.version = [[[p.detach().double() for p in begin[row["model"]].parameters()]] for row in self.rows]
        self.v, self.v2, self.d = ([[torch.zeros_like(p) for p in v[0]] for v in self.version] for _ in range(3))
        self.k, self.guess = [0] * len(self.rows), {}
        self.microbatches = schedule.json["microbatches"]

    def evaluate(self, stage, formula, **arrays):
        """A formula for each parameter of a stage."""
        names = {"v": self.v[stage], "v2": self.v2[stage], "d": self.d[stage], **arrays}
        return [meant(self.formulas[formula], lr=RATE, k=self.k[stage], **dict(zip(names, of))) for of in zip(*names.values())]

    def read(self, op):
        """The weights that an op sees."""
        at = op["stage"], op.get("guess")
        weights = self.version[op["stage"]][op.get("version", -1)]
        if "formula" in op:
            self.guess[at] = self.evaluate(op["stage"], op["formula"], w=weights)
        return weights if at[1] is None else self.guess[at]

    def update(self, op, grads):
        stage = op["stage"]
        old, k = self.version[stage][-1], self.k[stage]
        rule = self.rules[op["formula"]] if "formula" in op else {"then": []}
        rate = RATE
        if "applies" in rule:
            grads = self.evaluate(stage, rule["applies"], g=grads)
        if "rate" in rule:
            rate *= meant(self.formulas[rule["rate"]], k=k)
        if self.adam:
            self.v[stage] = [0.9 * m + 0.1 * g for m, g in zip(self.v[stage], grads)]
            self.v2[stage] = [0.999 * m + 0.001 * g * g for m, g in zip(self.v2[stage], grads)]
            step = [m / (1 - 0.9 ** (k + 1)) / ((s / (1 - 0.999 ** (k + 1))).sqrt() + 1e-8) for m, s in zip(self.v[stage], self.v2[stage])]
        else:
            step = self.v[stage] = [MOMENTUM * m + g for m, g in zip(self.v[stage], grads)]
        new = [w - rate * s for w, s in zip(old, step)]
        self.version[stage].append(new)
        for then in rule["then"]:
            self.d[stage] = self.evaluate(stage, then["formula"], w=new, old=old)
        self.k[stage] += 1

    def step(self, x, target):
        xs, targets = x.double().chunk(self.microbatches), target.double().chunk(self.microbatches)
        last = max(row["model"] for row in self.rows)
        at, out, back, kept, losses = [0] * len(self.lists), {}, {}, {}, {}
        sums = collections.defaultdict(list)
        moved = True
        while moved:
            moved = False
            for rank, ops in enumerate(self.lists):
                while at[rank] < len(ops):
                    op = ops[at[rank]]
                    kind, row, mb = re.sub(r"\d", "", op["op"]), op["stage"], op.get("mb")
                    stage = self.rows[row]["model"]
                    if kind == "REDUCE":
                        if not self.reduced(stage, at, sums):
                            break
                        moved = True
                        continue
                    if kind == "F":
                        x = xs[mb] if stage == 0 else out.get((stage - 1, mb))
                        if x is None:
                            break
                        w, b = self.read(op)
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
                        back[stage, mb] = dz @ self.read(op)[0]
                        kept[stage, mb] = dz.T @ x, dz.sum(0)
                    if kind in "BW":
                        sums[row].append(kept[stage, mb])
                    if kind == "U":
                        self.update(op, [sum(g) / len(g) for g in zip(*sums[row])])
                        sums[row] = []
                    at[rank] += 1
                    moved = True
        assert at == list(map(len, self.lists))
        self.version = [v[-1:] for v in self.version]
        return sum(losses.values()) / len(losses)

    def reduced(self, stage, at, sums):
        """Whether all replicas of a stage have come to their sum; then they have all that is added up."""
        rows = [i for i, row in enumerate(self.rows) if row["model"] == stage]
        for i in rows:
            rank = self.rows[i]["rank"]
            if at[rank] == len(self.lists[rank]) or self.lists[rank][at[rank]]["op"] != f"{i}REDUCE":
                return False
        all = [g for i in rows for g in sums[i]]
        for i in rows:
            sums[i] = list(all)
            at[self.rows[i]["rank"]] += 1
        return True

    def weights(self, stage):
        return self.version[next(i for i, row in enumerate(self.rows) if row["model"] == stage)][0]


def trained(name):
    schedule = compiled(name)
    count = 1 + max(row["model"] for row in schedule.json["stages"])
    ops = [op for rank in schedule.json["rank"] for op in rank["instr"]]
    updates = collections.Counter(op["stage"] for op in ops if re.fullmatch(r"\d+U\d*", op["op"]))
    if schedule.json["forward"]:
        return "forward only"
    formulas = str(schedule.json.get("formulas"))
    adam, dtype, bound = "v2" in formulas, torch.float32 if formulas != "None" else torch.float64, 1e-12
    if dtype == torch.float32:
        bound = 1e-4
    make = (lambda m: torch.optim.Adam(m.parameters(), lr=RATE)) if adam else (
        lambda m: torch.optim.SGD(m.parameters(), lr=RATE, momentum=MOMENTUM))
    try:
        run = Run(schedule, layers(count, dtype), loss_fn, torch.zeros(ROWS, WIDTH, dtype=dtype), make)
    except (RunError, ValueError) as e:
        return str(e)
    with run:
        oracle = Replay(schedule, count, adam) if max(updates.values()) > 1 else Plain(count)
        worst = 0
        for x, target in batches(schedule.json["microbatches"]):
            worst = max(worst, abs(run.step(x.to(dtype), target.to(dtype)) - oracle.step(x.to(dtype), target.to(dtype))))
        for stage in range(count):
            worst = max(worst, *(float((a - b).abs().max()) for a, b in zip(run.state_dict(stage).values(), oracle.weights(stage))))
    return (type(oracle).__name__ + (" in float32" if dtype == torch.float32 else "") if worst < bound else f"wrong by {worst:.1e}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    by = collections.defaultdict(list)
    for name in sys.argv[1:]:
        by[trained(name)].append(name)
    for what in sorted(by):
        print(f"{what} {len(by[what])}: {' '.join(by[what])}")
