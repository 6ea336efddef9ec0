# SPDX-License-Identifier: MIT
# What is known of the library's schedules besides their own checks.
#
#   assertions.py PIPEC STDLIB FILE SEED
#
# FILE has schedules that end in checks. Those with a parameter M of 8 are proved at several shapes, those with times
# x, y, z also with random ones; what a header does not allow is skipped, but each schedule is proved at least once.
# Then the lists of the library, and ZB-H1 on a slow network. Prints the seed, what fails, and two lines of counts;
# exit 1 if anything does.
import json
import random
import re
import subprocess
import sys

SHAPES = ((4, 8), (2, 4), (3, 6), (4, 12), (6, 12), (8, 16), (8, 32))
failed = equal = differ = 0


def run(*command):
    return subprocess.run(command, capture_output=True, text=True)


def forms(pipec, lib, path, rng):
    global failed
    with open(path) as f:
        heads = re.findall(r"^schedule (\w+)\((.*?)\)", f.read(), re.M)
    for name, head in heads:
        times = re.findall(r"\b([xyz]) =", head)
        shapes = SHAPES if times or name.endswith("_t") else SHAPES[1:] if name.endswith("_peak") else [None]
        proved = 0
        for shape in shapes:
            given = ["-DP=%d" % shape[0], "-DM=%d" % (shape[1] * (4 if name.endswith("_peak") else 1))] if shape else []
            x = rng.randint(1, 20)
            y = rng.randint(x, 2*x)
            draws = [{"x": 1, "y": 1, "z": 1}, {"x": x, "y": y, "z": rng.randint(y - x, x) or 1},
                     {k: rng.randint(1, 30) for k in "xyz"}]
            for draw in draws if times else draws[:1]:
                what = given + ["-D%s=%d" % (t, draw[t]) for t in times]
                done = run(pipec, "--check", "-I", lib, "--schedule=" + name, path, *what)
                if done.returncode == 0:
                    proved += 1
                elif not done.stderr.split("\n")[0].endswith("[requires]"):
                    failed += 1
                    print(name, *what, done.stderr)
        if proved == 0:
            failed += 1
            print("%s: nothing was proved" % name)
    print("%d schedules with their closed forms, %d failed" % (len(heads), failed))


def expect(what, got, want):
    global equal, differ
    if got == want:
        equal += 1
    else:
        differ += 1
        print("%s: %s, not %s" % (what, got, want))


class Lists:
    def __init__(self, pipec, lib, name, *more, **define):
        self.what = "%s %s" % (name, " ".join("%s=%d" % d for d in define.items()))
        done = run(pipec, "--emit=json", *more, name if name.endswith(".pipe") else "%s/%s.pipe" % (lib, name),
                   *("-D%s=%d" % d for d in define.items()))
        if done.returncode:
            sys.exit(done.stderr)
        self.json = json.loads(done.stdout)
        self.ranks = self.json["rank"]

    def ops(self, r, kinds):
        return [i for i in self.ranks[r]["instr"] if re.fullmatch(r"\d+[%s]\d+" % kinds, i["op"])]

    def peak_at(self, first):
        """The peak is reached at the first(r)-th forward of rank r."""
        for r in range(len(self.ranks)):
            alive, seen = 0, []
            for i in self.ops(r, "FB"):
                alive += 1 if re.search("F", i["op"]) else -1
                seen.append(alive)
            expect("%s: rank %d" % (self.what, r), seen.index(max(seen)) + 1, first(r))
            expect("%s: rank %d" % (self.what, r), max(seen), first(r))

    def no_gap(self):
        """From the first backward of a rank, when the pipe is full, to its last forward."""
        for r in range(len(self.ranks)):
            ops = self.ops(r, "FB")
            lo = next(k for k, i in enumerate(ops) if "B" in i["op"])
            hi = max(k for k, i in enumerate(ops) if "F" in i["op"])
            gaps = [(a["end"], b["start"]) for a, b in zip(ops[lo:hi], ops[lo + 1:hi + 1]) if a["end"] < b["start"]]
            expect("%s: rank %d is idle from %s" % (self.what, r, "%d to %d" % gaps[0] if gaps else "none"), gaps, [])

    def slots(self, P, M):
        """min(P-s, M) slots for stashes, microbatch m in slot m mod that many: buffers, of which DeepSpeed has two at least."""
        for s in range(P):
            first, count = next((p["first"], p["count"]) for p in self.ranks[s]["pools"] if p["class"] == "act")
            expect("%s: slots of rank %d" % (self.what, s), count, min(P - s, M))
            expect("%s: slots of rank %d" % (self.what, s), [i["act"] - first for i in self.ops(s, "FB")],
                   [i["mb"] % count for i in self.ops(s, "FB")])

    def copies(self, n):
        """n stages of the model, with the weights of each, are on each rank, and n replicas of it in all."""
        stages = self.json["stages"]
        for r in range(len(self.ranks)):
            expect("%s: rank %d" % (self.what, r), sum(s["rank"] == r for s in stages), n)
            expect("%s: model stage %d" % (self.what, r), sum(s["model"] == r for s in stages), n)


def lists(pipec, lib, path, rng):
    for P, M in ((4, 8), (4, 2), (4, 1), (8, 32), (5, 7)):
        Lists(pipec, lib, "1f1b", P=P, M=M).peak_at(lambda r, P=P, M=M: min(P - r, M))
        Lists(pipec, lib, "dapple_pb", P=P, M=M).peak_at(lambda r, P=P, M=M: min(2 * (P - r) - 1, M))
        Lists(pipec, lib, "1f1b", P=P, M=M).slots(P, M)
    for P, M in ((4, 16), (3, 20), (8, 40)):
        for name in ("pipedream", "pipedream_naive", "pipedream_2bw", "pipemare"):
            Lists(pipec, lib, name, P=P, M=M, **({"flow": 0} if name == "pipemare" else {})).no_gap()
    for P, f in ((4, 1), (8, 1), (8, 2), (8, 4)):
        Lists(pipec, lib, "chimera", P=P, M=P, f=f).copies(2 * f)
    for name in ("gems", "dualpipe"):
        Lists(pipec, lib, name, P=4, M=8).copies(2)
    kinds = [re.sub(r"\d+", "", i["op"]) for r in Lists(pipec, lib, "1f1b", P=4, M=8).ranks for i in r["instr"]]
    expect("instructions of 1F1B", [kinds.count("F"), kinds.count("B"), sum("SEND" in k for k in kinds),
                                    sum("RECV" in k for k in kinds)], [32, 32, 48, 48])
    slow = path + ".slow.pipe"
    for _ in range(40):  # ZB-H1 with transfers of c, 2c <= W and M > P; with M = P it may be faster
        P, F, I, c = rng.randint(1, 8), rng.randint(1, 30), rng.randint(1, 30), rng.randint(0, 10)
        M, W = rng.randint(P + 1, 3 * P), rng.randint(max(2 * c, 1), 30)
        with open(slow, "w") as f:
            f.write('import "zb_h1.pipe"\nschedule t() extends zb_h1(%d, %d) {\n  time { F = %d  I = %d  W = %d  B = %d  send = %d }\n}\n'
                    % (P, M, F, I, W, I + W, c))
        expect("zb_h1 P=%d M=%d F=%d I=%d W=%d send=%d" % (P, M, F, I, W, c),
               Lists(pipec, lib, slow, "-I", lib).json["ideal"],
               M * (F + I + W) + (P - 1) * max(F + 3 * c, I + 2 * c + max(0, F + 2 * c - W)))
    print("lists: %d equal, %d differ" % (equal, differ))


def main(pipec, lib, path, seed):
    print("seed %s" % seed)
    rng = random.Random(int(seed))
    forms(pipec, lib, path, rng)
    lists(pipec, lib, path, rng)
    sys.exit(failed + differ > 0)


main(*sys.argv[1:])
