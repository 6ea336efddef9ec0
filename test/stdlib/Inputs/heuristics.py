# SPDX-License-Identifier: MIT
# The library's automatic schedules beside the published heuristics, and beside lower bounds.
#
#   heuristics.py PIPEC STDLIB SCRATCH SEED [FORM]   orders of --emit=csv, played here, not by pipec
#
# Each row of heuristics.csv is compiled with its costs, once for its makespan, once for its span (own); the
# order must have no more stashes than the heuristic's (or its limit). Of a form with half = 1 these are counted in
# halves of a stash; the limit is in the table. Prints for each form how many makespans
# and spans are longer and how the means compare, then on random costs (seed printed) whether ZB-1p is at its
# lower bound. FORM: only the rows of this one.
import csv
import os
import random
import re
import subprocess
import sys

CELL = re.compile(r"(\d+)([FIW])(\d+)")


def pick(values):
    """"a : b : c" as an expression in s."""
    if len(values) == 1:
        return str(values[0])
    return " : ".join("s == %d ? %d" % sv for sv in enumerate(values[:-1])) + " : %d" % values[-1]


def orders(pipec, lib, scratch, form, P, M, F, I, W, send, args=""):
    with open(os.path.join(lib, form + ".pipe")) as f:
        name = re.findall(r"^schedule (\w+)", f.read(), re.M)[-1]
    path = os.path.join(scratch, "t.pipe")
    with open(path, "w") as f:
        f.write('import "%s.pipe"\nschedule t(P, M) extends %s(%s) {\n  time s { F = %s  I = %s  W = %s  send = %d }\n}\n'
                % (form, name, args, pick(F), pick(I), pick(W), send))
    done = subprocess.run([pipec, "-I", lib, "--emit=csv", "-DP=%d" % P, "-DM=%d" % M, path],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return [[(k, int(s), int(m)) for s, k, m in CELL.findall(line)] for line in done.stdout.splitlines()]


HALF = {"F": 2, "I": -1, "W": -1}  # a stash whose I is done counts half: halves


def peak(ops, change):
    live = most = 0
    for k, _, _ in ops:
        live += change[k]
        most = max(most, live)
    return most


def play(ranks, nstage, M, F, I, W, send):
    """Makespan, span, most stashes on a rank."""
    rank = {s: r for r, ops in enumerate(ranks) for _, s, _ in ops}
    cost = lambda k, s: {"F": F, "I": I, "W": W}[k][s if len(F) > 1 else 0]
    end, at, now, first, most = {}, [0] * len(ranks), [0] * len(ranks), [None] * len(ranks), 0
    moved = True
    while moved:
        moved = False
        for r, ops in enumerate(ranks):
            while at[r] < len(ops):
                k, s, m = ops[at[r]]
                need = []
                if k == "F" and s > 0:
                    need.append(("F", s - 1, m))
                if k == "I":
                    need.append(("F", s, m))
                    if s + 1 < nstage:
                        need.append(("I", s + 1, m))
                if k == "W":
                    need.append(("I", s, m))
                if any(n not in end for n in need):
                    break
                start = max([now[r]] + [end[n] + (send if rank[n[1]] != r else 0) for n in need])
                first[r] = start if first[r] is None else first[r]
                now[r] = end[k, s, m] = start + cost(k, s)
                at[r] += 1
                moved = True
    if len(end) != 3 * nstage * M or any(a < len(ops) for a, ops in zip(at, ranks)):
        sys.exit("the order is not complete")
    for ops in ranks:
        most = max(most, peak(ops, {"F": 1, "I": 0, "W": -1}))
    return max(now), max(n - f for n, f in zip(now, first)), most


def numbers(text):
    return [int(x) for x in text.split()]


def beside(pipec, lib, scratch, form):
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "heuristics.csv")) as f:
        rows = list(csv.DictReader(line for line in f if not line.startswith("#")))
    rows = [row for row in rows if form in (None, row["form"])]
    forms = {}
    for row in rows:
        P, M, send = int(row["P"]), int(row["M"]), int(row["send"])
        costs = [numbers(row[k]) for k in "FIW"] + [send]
        nstage = P if row["form"].startswith("zb_") else 2 * P
        name, *half = row["form"].split(" ", 1)
        limit = int(row["stashes"])
        if nstage == P and not half: # what the heuristic was given, even if it took less
            limit = max(limit, min(M, int(name[3]) * P))
        times = []
        for args in half, half + ["own = 1"]:
            ranks = orders(pipec, lib, scratch, name, P, M, *costs, ", ".join(args))
            makespan, span, most = play(ranks, nstage, M, *costs)
            most = max(peak(ops, HALF) for ops in ranks) if half else most
            if most > limit:
                sys.exit("%s: %d stashes, not %d" % (row, most, limit))
            times.append((makespan, span))
        forms.setdefault(row["form"], []).append((times[0][0] / int(row["makespan"]), times[1][1] / int(row["span"])))
    for form, r in forms.items():
        print("%s: %d of %d makespans longer, at most %.4f, mean %.4f; %d spans, at most %.4f, mean %.4f"
              % (form, sum(a > 1 for a, _ in r), len(r), max(a for a, _ in r), sum(a for a, _ in r) / len(r),
                 sum(b > 1 for _, b in r), max(b for _, b in r), sum(b for _, b in r) / len(r)))


def bounds(pipec, lib, scratch, seed):
    """Linear placement, P stashes, one cost for all stages: rank 0 cannot idle less, and nobody can
    start before its first forward is there."""
    rng = random.Random(seed)
    n = at = worse = 0
    while n < 60:
        P = rng.choice((8, 9, 12, 16))
        M = P * rng.choice((2, 3))
        F, B, W = rng.randint(500, 2000), rng.randint(500, 2000), rng.randint(500, 2000)
        c = rng.randint(0, W // 2)
        after = B + 2 * c + max(0, F + 2 * c - W)
        least = M * (F + B + W) + (P - 1) * max(F + c, after)
        listed = M * (F + B + W) + (P - 1) * max(F + 3 * c, after)
        if not (W <= F + 2 * c and F + 3 * c <= after) and n % 3:
            continue
        n += 1
        got = play(orders(pipec, lib, scratch, "zb_1p", P, M, [F], [B], [W], c), P, M, [F], [B], [W], c)
        if got[0] < least:
            sys.exit("P=%d M=%d F=%d B=%d W=%d c=%d: %d is below the bound %d" % (P, M, F, B, W, c, got[0], least))
        if F + 3 * c <= after and got[0] != least:
            sys.exit("P=%d M=%d F=%d B=%d W=%d c=%d: %d, not the bound %d" % (P, M, F, B, W, c, got[0], least))
        at += got[0] == least
        worse += got[0] > listed
    print("seed %d: ZB-1p is at the bound in %d of %d, longer than its list in %d" % (seed, at, n, worse))


if __name__ == "__main__":
    beside(*sys.argv[1:4], sys.argv[5] if len(sys.argv) > 5 else None)
    bounds(*sys.argv[1:4], int(sys.argv[4]))
