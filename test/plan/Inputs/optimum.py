# SPDX-License-Identifier: MIT
# The shortest steps of random small pipelines, by CP-SAT, beside the bounds of pipec and the steps of --best.
#
#   optimum.py PIPEC STDLIB SEED INSTANCES
#
# The model has an interval for each F, I and W: the ops of a rank do not overlap, a tensor takes `send` to another rank,
# and a stash lives from the start of its F to the end of its W (spec.md 4, 6, 7). Microbatches are alike, so some shortest
# step has them in ascending order on each stage. All starts follow the first one. The solver proves each optimum. A
# replay of its orders takes as long; its span may be longer, since there no op starts later than it can. As a schedule
# of pipec these orders take no less time, and the bounds of their stashes are not above the optima.
# --best, among the files with this placement, writes no step below the optimum. Transfers in each other's way are a part
# of that step: the line `as played` leaves them out. An instance that takes the solver too long is left out.
import json
import os
import random
import re
import subprocess
import sys

from ortools.sat.python import cp_model

pipec, stdlib, seed, instances = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
PATIENCE = 1  # of the solver for one optimum, in its own deterministic seconds
PLACES = {  # stages of P ranks, the rank of a stage, files of the library that have this placement
    "chain": (lambda P: P, lambda s, P: s, "gpipe gpipe_lifo 1f1b dapple_pb varuna zb_h1 zb_h2 zb_1p zb_2p".split()),
    "vee": (lambda P: 2 * P, lambda s, P: s if s < P else 2 * P - 1 - s,
            "zb_v v_zb v_half v_half_block v_min v_min_auto 1f1b_v 1f1b_v_auto".split()),
    "loop": (lambda P: 2 * P, lambda s, P: s % P, "looped_bfs interleaved interleaved_g interleaved_zb interleaved_zb_auto".split()),
}


class Instance:
    def __init__(self, rng):
        self.place = rng.choice(list(PLACES))
        nstage, rank, self.files = PLACES[self.place]
        self.P, self.M, self.send = rng.randint(2, 4), rng.randint(2, 6), rng.choice((0, 0, 1, 3, 6))
        self.S = nstage(self.P)
        self.rank = [rank(s, self.P) for s in range(self.S)]
        by_stage = rng.random() < 0.5
        self.cost = {k: [rng.randint(1, 20) for _ in range(self.S)] for k in "FIW"}
        if not by_stage:
            self.cost = {k: [c[0]] * self.S for k, c in self.cost.items()}
        self.room = rng.randint(self.S // self.P, 2 * self.S // self.P * self.P)

    def __str__(self):
        return "%s P=%d M=%d room %d, %s, send %d" % (self.place, self.P, self.M, self.room, self.cost, self.send)

    def needs(self, k, s, m):
        """The ops before one, each with the time from its end to the start of this one."""
        near = {"F": [("F", s - 1)], "I": [("F", s), ("I", s + 1)], "W": [("I", s)]}[k]
        return [((j, t, m), self.send * (self.rank[t] != self.rank[s])) for j, t in near if 0 <= t < self.S]

    def ops(self):
        return [(k, s, m) for s in range(self.S) for m in range(self.M) for k in "FIW"]


def optimum(x, what):
    """The least makespan, or span, and orders of the ranks that have it; None: not proved in time."""
    model = cp_model.CpModel()
    horizon = sum(x.cost[k][s] for k, s, _ in x.ops()) + 2 * x.S * x.M * x.send
    start = {op: model.NewIntVar(0, horizon, "%s%d.%d" % op) for op in x.ops()}
    end = {op: start[op] + x.cost[op[0]][op[1]] for op in x.ops()}
    longest = model.NewIntVar(0, horizon, "longest")
    model.Add(start["F", 0, 0] == 0)  # nothing starts before it
    for op in x.ops():
        for before, hop in x.needs(*op):
            model.Add(start[op] >= end[before] + hop)
        if op[2] > 0:
            model.Add(start[op] >= end[op[0], op[1], op[2] - 1])
    for r in range(x.P):
        own = [op for op in x.ops() if x.rank[op[1]] == r]
        model.AddNoOverlap([model.NewFixedSizeIntervalVar(start[op], x.cost[op[0]][op[1]], "") for op in own])
        lives = []
        for _, s, m in [op for op in own if op[0] == "F"]:
            life = model.NewIntVar(0, horizon, "")
            lives.append(model.NewIntervalVar(start["F", s, m], life, end["W", s, m], ""))
        model.AddCumulative(lives, [1] * len(lives), x.room)
        first = model.NewIntVar(0, horizon if what == "span" else 0, "")
        for s in [s for s in range(x.S) if x.rank[s] == r]:
            model.Add(start["F", s, 0] >= first)
            model.Add(longest >= end["W", s, x.M - 1] - first)
    model.Minimize(longest)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = PATIENCE
    if solver.Solve(model) != cp_model.OPTIMAL:
        return None
    rows = [sorted((op for op in x.ops() if x.rank[op[1]] == r), key=lambda op: solver.Value(start[op])) for r in range(x.P)]
    return int(solver.ObjectiveValue()), rows


def play(x, rows):
    """Makespan, span, and the most stashes of each rank."""
    end, at, now, first = {}, [0] * x.P, [0] * x.P, [None] * x.P
    moved = True
    while moved:
        moved = False
        for r, ops in enumerate(rows):
            while at[r] < len(ops) and all(b in end for b, _ in x.needs(*ops[at[r]])):
                op = ops[at[r]]
                start = max([now[r]] + [end[b] + hop for b, hop in x.needs(*op)])
                first[r] = start if first[r] is None else first[r]
                now[r] = end[op] = start + x.cost[op[0]][op[1]]
                at[r], moved = at[r] + 1, True
    assert len(end) == len(x.ops()), "the orders block"
    most = [max(sum({"F": 1, "I": 0, "W": -1}[k] for k, _, _ in ops[:n]) for n in range(len(ops) + 1)) for ops in rows]
    return max(now), max(n - f for n, f in zip(now, first)), most


def run(*words):
    return subprocess.run([pipec, *words], text=True, capture_output=True, check=False)


def compiled(path, *words):
    done = run("--emit=json", path, *words)
    assert done.returncode == 0, open(path).read() + done.stderr
    return json.loads(done.stdout)


def as_schedule(x, rows):
    """The program of these orders."""
    pick = lambda of: "".join("s == %d ? %d : " % sv for sv in enumerate(of)) + "0"
    text = ["schedule x() {", "ranks %d" % x.P, "pipe net stages %d mbs %d place s -> %s" % (x.S, x.M, pick(x.rank)),
            "time s { %s  send = %d }" % ("  ".join("%s = %s" % (k, pick(c)) for k, c in x.cost.items()), x.send)]
    for r, ops in enumerate(rows):
        text.append("order r in %d..%d { %s U }" % (r, r + 1, " ".join("%s[stage %d](%d)" % op for op in ops)))
    open("optimum.pipe", "w").write("\n".join(text + ["}"]))
    return compiled("optimum.pipe")


def played_ops(program):
    """The orders of a program; B as I and W."""
    for rank in program["rank"]:
        found = [re.fullmatch(r"(\d+)([FBIW])(\d+)", i["op"]) for i in rank["instr"]]
        yield [(k, int(f[1]), int(f[3])) for f in found if f for k in f[2].replace("B", "IW")]


def best(x):
    """The program that --best writes; None: no file of the library fits."""
    stages = [{**{k: c[s] for k, c in x.cost.items()}, "send": x.send, "act": 10**6} for s in range(x.S)]
    json.dump({"pipe_profile": 1, "stages": stages}, open("stages.json", "w"))
    files = ["%s/%s.pipe" % (stdlib, name) for name in x.files]
    limit = "--memory-limit=%d" % (x.room * (10**6 + 63) // 64 * 64)
    done = run("--best", *files, "--profile=stages.json", "-DP=%d" % x.P, "-DM=%d" % x.M, limit, "-o", "best.pipe")
    if done.returncode:
        assert "none of" in done.stderr, done.stderr
        return None
    return compiled("best.pipe", "--profile=stages.json", limit)


class Gaps:
    def __init__(self):
        self.n = self.met = self.sum = 0
        self.worst = 1, "none"

    def add(self, ratio, x):
        self.n, self.met, self.sum = self.n + 1, self.met + (ratio == 1), self.sum + ratio - 1
        self.worst = max(self.worst, (ratio, str(x)), key=lambda w: w[0])

    def __str__(self):
        return "%d of %d met, mean gap %.2f %%, worst %.2f %%: %s" % (
            self.met, self.n, 100 * self.sum / max(1, self.n), 100 * (self.worst[0] - 1), self.worst[1])


def main():
    rng = random.Random(seed)
    print("seed %d" % seed)
    gaps = {name: Gaps() for name in ("bound of makespan", "bound of span", "--best", "--best as played")}
    late = none = 0
    for _ in range(instances):
        x = Instance(rng)
        made = best(x)
        none += made is None
        assert made is None or all(r["inflight"] <= x.room for r in made["rank"]), x
        for k, what in enumerate(("makespan", "span")):
            found = optimum(x, what)
            if found is None:
                late += 1
                continue
            least, rows = found
            played = play(x, rows)
            assert (played[0] == least if what == "makespan" else played[1] >= least), (str(x), what, least, played)
            assert max(played[2]) <= x.room, (str(x), played)
            program = as_schedule(x, rows)
            assert [r["inflight"] for r in program["rank"]] == played[2], x
            assert program["bound"][what] <= least <= program[what], (str(x), what, least, program["bound"], program[what])
            gaps["bound of " + what].add(least / program["bound"][what], x)
            assert made is None or made[what] >= least, (str(x), what, least, made[what])
            if made and what == "makespan":
                gaps["--best"].add(made[what] / least, x)
                gaps["--best as played"].add(play(x, list(played_ops(made)))[0] / least, x)
    for name, g in gaps.items():
        print("%s: %s" % (name, g))
    print("%d of %d optima not found in time; no file fits %d" % (late, 2 * instances, none))
    assert late <= instances and all(g.met >= 0.25 * g.n and g.sum <= 0.1 * g.n for g in gaps.values())


main()
