# SPDX-License-Identifier: MIT
# Versions of the weights, by brute force: random orders with updates and random rules for what is read. This script
# carries out each rank's list itself, and says which op is the first that reads a version that is not there, or what
# every op reads and how many versions live at once; pipec has to say the same, and its slots have to hold it.
#
#   versions.py PIPEC [--seed N] [--times N] [--break]
#
# --break: this script lets no U write in place; pipec must then be found to differ. Prints the seed.
import argparse
import collections
import json
import os
import random
import re
import subprocess
import sys
import tempfile

Op = collections.namedtuple("Op", "kind mb")


SIZES = "weight", "grad", "opt", "act", "gout", "boundary"


def up(n):
    return -(-n // 64) * 64


class Case:
    def __init__(self, rng):
        self.P, self.M = rng.randint(1, 4), rng.randint(1, 9)
        self.N = rng.choice([1, 1, 2, 3])  # microbatches per update
        self.slope, self.extra = rng.randint(1, 3), rng.randint(0, 2)
        self.split, self.again = rng.random() < 0.3, rng.random() < 0.3
        self.lines = []  # (op, text, function of (s, m, newest, of F), when as text, as function)
        for op in ["F", "I" if self.split and rng.random() < 0.7 else "B"] + (["R"] if self.again and rng.random() < 0.5 else []):
            for _ in range(rng.choice([0, 1, 1, 2])):
                self.lines.append((op,) + self.source(rng, op) + self.condition(rng))
        self.lines = [l for i, l in enumerate(self.lines)  # nothing stands behind one that holds always
                      if not any(k[0] == l[0] and k[3] is None for k in self.lines[:i])]
        self.ring = rng.choice([None, None, rng.randint(1, 6)])
        self.sizes = rng.random() < 0.5 and {k: rng.choice([0, 1, 64, rng.randint(65, 9999)]) for k in SIZES}

    @staticmethod
    def source(rng, op):
        a, g, h = rng.randint(0, 6), rng.randint(1, 3), rng.randint(0, 2)
        choices = [("newest", lambda s, m, new, f: new),
                   (f"max(m - {a}, 0)", lambda s, m, new, f: max(m - a, 0)),
                   (f"max(m/{g} - {h}, 0)", lambda s, m, new, f: max(m // g - h, 0)),
                   (f"max((m - s)/{g} - {h}, 0)", lambda s, m, new, f: max((m - s) // g - h, 0)),
                   (f"m/{g} - {h}" if rng.random() < 0.2 else "0",
                    (lambda s, m, new, f: m // g - h))]
        if choices[-1][0] == "0":
            choices[-1] = ("0", lambda s, m, new, f: 0)
        if op != "F":
            choices += [("F", lambda s, m, new, f: f)] * 3
        return rng.choice(choices)

    @staticmethod
    def condition(rng):
        k = rng.randint(0, 5)
        return rng.choice([(None, None), (None, None), (f"m < {k}", lambda s, m: m < k),
                           (f"(m + s) % 2 == {k % 2}", lambda s, m: (m + s) % 2 == k % 2)])

    def text(self):
        lag = f"({self.slope}*(P-1-r) + {self.extra})"
        back = f"I(m - {lag})  W(m - {lag})" if self.split else f"B(m - {lag})"
        lines = "".join(f"    {op} reads {src}" + (f" when {when}" if when else "") + "\n"
                        for op, src, _, when, _ in self.lines)
        lines += f"    versions {self.ring}\n" if self.ring else ""
        again = "  recompute\n" if self.again else ""
        if self.sizes:
            again += "  bytes s { " + "".join(f"{k} = {n} + {n}*s  " for k, n in self.sizes.items()) + "}\n"
        return (f"schedule s(P = {self.P}, M = {self.M}) {{\n  ranks P\n  pipe net stages P mbs M place s -> s\n{again}"
                f"  order r {{\n    steady m {{ F(m)  {back}  if (m - {lag}) % {self.N} == {self.N - 1} "
                f"{{ U(m - {lag}) }} }}\n    if M % {self.N} != 0 {{ U }}\n  }}\n  weights s, m {{\n{lines}  }}\n}}\n")

    def order(self, r):
        lag, ops = self.slope * (self.P - 1 - r) + self.extra, []
        for k in range(self.M + lag):
            m = k - lag
            if k < self.M:
                ops.append(Op("F", k))
            if 0 <= m < self.M:
                if self.again:
                    ops.append(Op("R", m))
                ops += [Op("I", m), Op("W", m)] if self.split else [Op("B", m)]
                if m % self.N == self.N - 1:
                    ops.append(Op("U", m))
        if self.M % self.N:
            ops.append(Op("U", None))
        return ops

    def bytes(self, r, copies):
        """What a rank's copies of the weights and its stashes take, by class: as many as live at once."""
        size = {k: up(n + n * r) for k, n in self.sizes.items()}
        live, most = collections.Counter(), collections.Counter()
        take = {"F": ["act"] + ["keep"] * self.again, "R": ["act"], "I": ["gout"]}
        give = {"F": ["act"] * self.again, "R": ["keep"], "B": ["act"], "W": ["act", "gout"]}
        for op in self.order(r):
            for what in take.get(op.kind, []):
                live[what] += 1
                most[what] = max(most[what], live[what])
            live.subtract(give.get(op.kind, []))
        size["keep"] = up(self.sizes["boundary"] * r)  # the output of the stage before
        return {"weight": copies * size["weight"], "grad": size["grad"], "opt": size["opt"],
                **{k: most[k] * size[k] for k in ("act", "gout", "keep")}}

    def rule(self, kind, s, m):
        """The line that holds, or None. R without lines has those of the backward, I those of B."""
        own = [l for l in self.lines if l[0] == kind]
        if kind in "RI" and not own:
            own = [l for l in self.lines if l[0] in "BI"]
        return next((l for l in own if l[4] is None or l[4](s, m)), None)


def carry_out(case, r, breaks):
    """What every op of a rank reads, or the first two faults: (fault, op), and versions alive at most."""
    reads, newest, of_f, unborn, lost = [], 0, {}, None, None
    ops = case.order(r)
    for op in ops:
        if op.kind == "U":
            newest += 1
        if op.kind in "UW":
            reads.append(None)
            continue
        line = case.rule(op.kind, r, op.mb)
        v = line[2](r, op.mb, newest, of_f.get(op.mb)) if line else newest
        if op.kind == "F":
            of_f[op.mb] = v
        if not 0 <= v <= newest and unborn is None:
            unborn = (op, v)
        if case.ring and newest - v >= case.ring and lost is None:
            lost = (op, v)
        reads.append(v)
    if unborn or lost:
        return unborn, lost, reads, 0, 0, 0
    last = collections.defaultdict(lambda: -1)  # the last op that needs a version, U among them
    count = 0
    for i, op in enumerate(ops):
        if op.kind == "U":
            last[count] = max(last[count], i)
            count += 1
        elif reads[i] is not None:
            last[reads[i]] = i
    most, alive, count, stale, apart, first = 1, {0}, 0, 0, 0, {}
    for i, op in enumerate(ops):
        if op.kind == "U":  # in place, if nobody behind it reads the old one
            if last[count] <= i and not breaks:
                alive.discard(count)
            count += 1
            alive.add(count)
            most = max(most, len(alive))
        else:
            if op.kind == "F":
                first[op.mb] = reads[i]
            if op.kind in "BI":
                apart = max(apart, abs(reads[i] - first[op.mb]))
            if op.kind in "BW":
                stale = max(stale, count - first[op.mb])
            alive = {v for v in alive if last[v] > i or v == count}
    return None, None, reads, most, stale, apart


def hold(rank, ops, reads):
    """The slots of a rank's list hold what it says."""
    compute = [i for i in rank["instr"] if "SEND" not in i["op"] and "RECV" not in i["op"]]
    pool = next(p for p in rank["pools"] if p["class"] == "weight")
    slot, newest = {pool["first"]: 0}, 0
    assert len(compute) == len(ops)
    for i, op, v in zip(compute, ops, reads):
        assert re.fullmatch(rf"\d+{op.kind}\d*", i["op"])
        if op.kind == "W":
            assert "version" not in i
        elif op.kind == "U":
            assert slot[i["weight"]] == newest
            newest += 1
            assert i["version"] == newest
            slot[i["into"]] = newest
        else:
            assert i["version"] == v == slot[i["weight"]], (i, v)
    assert slot[pool["first"]] == newest
    return pool["count"]


def try_one(pipec, case, folder, breaks):
    path = os.path.join(folder, "one.pipe")
    with open(path, "w", encoding="utf-8") as f:
        f.write(case.text())
    done = subprocess.run([pipec, "--verify", "--emit=json", path], capture_output=True, text=True, check=False)
    ranks = [carry_out(case, r, breaks) for r in range(case.P)]
    for kind in (0, 1):  # a version that is not there, anywhere, before one that has gone
        for r, found in enumerate(ranks):
            if found[kind]:
                op, v = found[kind]
                want = f"error: rank {r} runs {r}{op.kind}{op.mb} with version {v} of the weights of stage {r}"
                want += ", which has been overwritten" if kind else ""
                return ("refused", want in done.stderr and done.returncode == 1, done.stderr + "\n" + want)
    if done.returncode != 0:
        return ("accepted", False, done.stderr)
    program = json.loads(done.stdout)
    for r, (_, _, reads, most, stale, apart) in enumerate(ranks):
        rank = program["rank"][r]
        count = hold(rank, case.order(r), reads)
        said = (count, rank["versions"], rank["staleness"], rank["discrepancy"])
        if said != (most, most, stale, apart):
            return ("accepted", False, f"rank {r}: {said}, not {(most, most, stale, apart)}")
        if case.sizes:
            said, want = dict(rank["bytes"]), case.bytes(r, most)
            total = said.pop("total")
            if {k: said[k] for k in want} != want or total != sum(said.values()):
                return ("accepted", False, f"rank {r}: {rank['bytes']}, not {want}")
    return ("accepted", True, "")


def main():
    args = argparse.ArgumentParser()
    args.add_argument("pipec")
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--times", type=int, default=400)
    args.add_argument("--break", dest="breaks", action="store_true")
    args = args.parse_args()
    print("seed", args.seed, flush=True)
    rng, count, wrong = random.Random(args.seed), collections.Counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.times):
            case = Case(rng)
            what, right, why = try_one(args.pipec, case, folder, args.breaks)
            count[what] += 1
            if not right:
                wrong += 1
                print(f"{what}, but not as it should be:\n{case.text()}{why}")
    print(f"{count['accepted']} accepted, {count['refused']} refused, {wrong} wrong")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
