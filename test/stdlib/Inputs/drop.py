# SPDX-License-Identifier: MIT
# Drops an op of each kind from each schedule of the library, repeats one, swaps two of which one needs
# the other, and puts one on another rank: pipec has to refuse the result and to name the op.
#
#   drop.py PIPEC STDLIB [--seed N] [--times N]
#
# Each schedule is taken at its defaults and at a shape drawn at random, as the lists that
# --emit=json shows. They are written as a .pipe text with an op to a line, so that the place in a
# message says which op is meant, and, where PyTorch's format can say it (no replicas, no updates), as
# CSV. The lists themselves have to be accepted. Which op must be named follows from the lists alone.
# Prints the seed and how often what was done; exit 1 and each message that is wrong.
import argparse
import collections
import json
import os
import random
import re
import subprocess
import sys
import tempfile

Op = collections.namedtuple("Op", "stage kind mb")


def name(op):
    return f"{op.stage}{op.kind}" + ("" if op.mb is None else str(op.mb))


class Lists:
    """A schedule as it is emitted: stages, and the compute ops of each rank."""

    def __init__(self, program):
        self.stages = program["stages"]
        self.pipes = [(mb0, [s for s in self.stages if s["mb0"] == mb0])
                      for mb0 in sorted({s["mb0"] for s in self.stages})]
        self.ranks = []
        for rank in program["rank"]:
            found = (re.fullmatch(r"(\d+)([A-Z])(\d*)", i["op"]) for i in rank["instr"])
            self.ranks.append([Op(int(m[1]), m[2], int(m[3]) if m[3] else None) for m in found
                               if m and m[2] != "R"])  # without R it is a schedule that keeps its stashes

    def pipe(self, stage):
        """Number of the pipe that a stage is of, its first stage and its first microbatch."""
        mb0 = self.stages[stage]["mb0"]
        at = [p[0] for p in self.pipes].index(mb0)
        return at, self.pipes[at][1][0]["stage"], mb0

    def source(self, op):
        at, first, mb0 = self.pipe(op.stage)
        prefix = f"p{at}." if len(self.pipes) > 1 else ""
        index = "" if op.mb is None else f"({op.mb - mb0})"
        return f"{prefix}{op.kind}[stage {op.stage - first}]{index}"

    def text(self):
        out = ["schedule one() {", f"ranks {len(self.ranks)}"]
        for at, (_, stages) in enumerate(self.pipes):
            first = stages[0]["stage"]
            place = " : ".join([f"s == {s['stage'] - first} ? {s['rank']}" for s in stages] + ["0"])
            out.append(f"pipe p{at} stages {len(stages)} mbs {stages[0]['mbs']} place s -> {place}"
                       + (" replica of p0" if at else ""))
        self.line = []
        for r, ops in enumerate(self.ranks):
            out.append(f"order r in {r}..{r + 1} {{")
            self.line.append(len(out) + 1)  # of the rank's first op
            out += [self.source(op) for op in ops] + ["}"]
        return "\n".join(out + ["}"]) + "\n"

    def csv(self):
        return "".join(",".join(name(op) for op in ops if op.kind != "U") + "\n" for ops in self.ranks)


def needs(lists, later, earlier):
    """Whether `later` needs the result of `earlier`, both on one rank, directly or through others."""
    if earlier.kind == "U":
        return False
    if later.kind == "U" and later.mb is not None:
        return earlier.stage == later.stage and earlier.kind in "BW" and earlier.mb == later.mb
    if later.mb is None:  # only the last gradient: between others of the stage the update is too early
        return earlier.stage == later.stage and earlier.kind in "BW"
    if later.mb != earlier.mb or lists.pipe(later.stage) != lists.pipe(earlier.stage):
        return False
    first, then = earlier.kind, later.kind
    if first == "F":
        return then != "F" or earlier.stage < later.stage
    if first in "BI":
        return then != "F" and (earlier.stage > later.stage or (then == "W" and earlier.stage == later.stage))
    return False


class Trial:
    def __init__(self, pipec, rng, times):
        self.pipec, self.rng, self.times = pipec, rng, times
        self.count = collections.Counter()
        self.wrong = []

    def run(self, text, suffix):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "one" + suffix), "w", encoding="utf-8") as f:
                f.write(text)
            done = subprocess.run([self.pipec, "--check", "one" + suffix], cwd=folder, text=True,
                                  capture_output=True, check=False)
        return done.stdout + done.stderr, done.returncode

    def refused(self, what, lists, op, patterns, csv):
        """Patterns: what must stand in the message on the .pipe text, and in that on the CSV."""
        text = lists.text()
        for form, suffix, pattern in ((text, ".pipe", patterns[0]), (lists.csv(), ".csv", patterns[1])):
            if suffix == ".csv" and (not csv or op.kind == "U" or pattern is None):
                continue
            said, status = self.run(form, suffix)
            self.count[f"{what} {op.kind}"] += 1
            if status != 1 or not re.search(pattern, said, re.M):
                self.wrong.append(f"{self.where}{suffix}: {what} {name(op)}: exit status {status}, no "
                                  f"'{pattern}' in\n{said}")

    def mutants(self, lists, kind, csv):
        rng, ranks = self.rng, lists.ranks
        places = [(r, i) for r, ops in enumerate(ranks) for i, op in enumerate(ops) if op.kind == kind]

        def changed(r, ops):
            new = Lists.__new__(Lists)
            new.__dict__.update(lists.__dict__)
            new.ranks = ranks[:r] + [ops] + ranks[r + 1:]
            new.text()
            return new

        for r, i in rng.sample(places, min(self.times, len(places))):
            op, ops = ranks[r][i], ranks[r]
            n = name(op)
            never = (rf"^one\.\w+:\d+:\d+: error: rank {r} never "
                     + (rf"updates stage {op.stage}:" if kind == "U" else rf"runs {n} \[missing-op\]$"))
            self.refused("drop", changed(r, ops[:i] + ops[i + 1:]), op, (never, never), csv)

        r, i = rng.choice(places)
        op, ops = ranks[r][i], ranks[r]
        j = rng.randint(i + 1, len(ops))
        new = changed(r, ops[:j] + [op] + ops[j:])
        twice = rf":\d+: error: rank {r} runs {name(op)} twice \[duplicate-op\]$"
        self.refused("repeat", new, op, (rf"^one\.pipe:{new.line[r] + j}" + twice, twice), csv)

        pairs = [(r, i, j) for r, i in places for j in range(i + 1, len(ranks[r]))
                 if needs(lists, ranks[r][j], ranks[r][i])]
        if kind in "BW":  # an update needs the last gradient of its stage
            last = {ranks[r][i].stage: i for r, i in places}
            pairs = [(r, i, j) for r, i, j in pairs
                     if ranks[r][j].kind != "U" or last[ranks[r][i].stage] == i]
        for r, i, j in rng.sample(pairs, min(self.times, len(pairs))):
            ops = list(ranks[r])
            ops[i], ops[j] = ops[j], ops[i]
            new = changed(r, ops)
            a, b = sorted((name(ops[i]), name(ops[j])))
            lines = f"{new.line[r] + i}|{new.line[r] + j}"
            named = rf"^(?:one\.\w+:(?:{{}}):.*|note:.*)\b(?:{a}|{b}|stage {ops[i].stage} before {name(ops[j])})\b"
            self.refused("swap", new, ops[j], (named.format(lines), named.format(r"\d+")),
                         csv and ops[i].kind != "U")

        if len(ranks) > 1:
            r, i = rng.choice(places)
            op, to = ranks[r][i], rng.choice([t for t in range(len(ranks)) if t != r])
            new = Lists.__new__(Lists)
            new.__dict__.update(lists.__dict__)
            new.ranks = [ops[:i] + ops[i + 1:] if t == r else ops + [op] * (t == to)
                         for t, ops in enumerate(ranks)]
            new.text()
            foreign = (rf"^one\.pipe:{new.line[to] + len(new.ranks[to]) - 1}:\d+: error: rank {to} cannot run "
                       + re.escape(f"'{lists.source(op)}'") + r":.* \[foreign-op\]$")
            self.refused("move", new, op, (foreign, None), False)


def emitted(pipec, path, shape):
    done = subprocess.run([pipec, "--emit=json", path] + [f"-D{k}={v}" for k, v in shape.items()],
                          capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def main():
    args = argparse.ArgumentParser()
    args.add_argument("pipec")
    args.add_argument("stdlib")
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--times", type=int, default=3)
    args = args.parse_args()
    print("seed", args.seed, flush=True)
    trial = Trial(args.pipec, random.Random(args.seed), args.times)
    rng, schedules = trial.rng, 0
    for file in sorted(f for f in os.listdir(args.stdlib) if f.endswith(".pipe")):
        path = os.path.join(args.stdlib, file)
        schedules += 1
        with open(path, encoding="utf-8") as f:
            chunks = re.search(r"^schedule .*\bV = ", f.read(), re.M)
        programs = [({}, emitted(args.pipec, path, {}))]
        while len(programs) < 2:
            shape = {"P": rng.randint(2, 5), "M": rng.randint(2, 12)}
            if chunks:
                shape["V"] = rng.randint(2, 3)
            program = emitted(args.pipec, path, shape)
            programs += [(shape, program)] if program else []
        for shape, program in programs:
            if program["slices"] > 1 or program["forward"] or "rows" in program:
                continue  # other texts, and no CSV
            trial.where = " ".join([file] + [f"-D{k}={v}" for k, v in shape.items()])
            lists = Lists(program)
            said, status = trial.run(lists.text(), ".pipe")
            if status != 0:
                trial.wrong.append(f"{trial.where}: its lists are refused:\n{said}")
                continue
            csv = len(lists.pipes) == 1 and trial.run(lists.csv(), ".csv")[1] == 0
            trial.count["as csv"] += csv
            updates = [op.stage for ops in lists.ranks for op in ops if op.kind == "U"]
            kinds = {op.kind for ops in lists.ranks for op in ops} & set("FBIWU")
            if len(updates) > len(set(updates)):
                kinds -= {"U"}  # another one of the stage may do what this one did
            for kind in sorted(kinds):
                trial.mutants(lists, kind, csv)
    for w in trial.wrong:
        print(w)
    for what, n in sorted(trial.count.items()):
        print(f"{what}: {n}")
    print(f"{schedules} schedules, {len(trial.wrong)} messages without the op")
    return 1 if trial.wrong or not schedules else 0


if __name__ == "__main__":
    sys.exit(main())
