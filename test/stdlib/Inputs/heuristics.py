# SPDX-License-Identifier: MIT
# The library's automatic schedules beside the published heuristics, and beside lower bounds.
#
#   heuristics.py PIPEC STDLIB SCRATCH SEED [FORM]   orders of --emit=csv, played here, not by pipec
#   heuristics.py PIPEC STDLIB SCRATCH SEED bound [N]
#
# Each row of heuristics.csv is compiled with its costs, once for its makespan, once for its span (own); the
# order must have no more stashes than the heuristic could have. Of a form with half = 1 these are counted in
# halves of a stash. Prints for each form how many makespans and spans are longer and how the means compare, then on
# random costs (seed printed) whether ZB-1p is at its lower bound. FORM: only the rows of this one;
# HEURISTICS_SHARE=N: every N-th row. bound: N costs where the bound of linear placement is known to be reached, and once P = 64, M = 512.
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


# What each heuristic was given, or has as its closed form, in stashes of a stage or chunk.
GIVEN = {"zb_1p": lambda P: P, "zb_2p": lambda P: 2 * P, "v_zb": lambda P: 2 * P, "v_half": lambda P: (P + 2) // 2 * 2,
         "v_min_auto": lambda P: (P + 4) // 3 * 2, "1f1b_v_auto": lambda P: (2 * P + 3) // 3 * 2}
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
    rows = [row for row in rows if form in (None, row["form"])][::int(os.environ.get("HEURISTICS_SHARE", 1))]
    forms = {}
    for row in rows:
        P, M, send = int(row["P"]), int(row["M"]), int(row["send"])
        costs = [numbers(row[k]) for k in "FIW"] + [send]
        nstage = P if row["form"].startswith("zb_") else 2 * P
        name, *half = row["form"].split(" ", 1)
        limit = GIVEN[name](P) * (2 if half else 1)
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


def reached(pipec, lib, scratch, seed, n):
    """2c <= W <= F + 2c and B >= F: P stashes are enough for the bound of linear placement, by makespan and by span."""
    rng, at = random.Random(seed), 0
    for k in range(n + 1):
        P = rng.randint(8, 32) if k < n else 64
        M = rng.randint(2 * P, 4 * P) if k < n else 512
        F = rng.randint(500, 2000)
        c = rng.randint(0, F // 2)
        B, W = rng.randint(F, 3000), rng.randint(2 * c, F + 2 * c)
        work, chain = M * (F + B + W), B + 2 * c + F + 2 * c - W
        args = "own = 1" if k % 2 else ""
        got = play(orders(pipec, lib, scratch, "zb_1p", P, M, [F], [B], [W], c, args), P, M, [F], [B], [W], c)
        if k % 2:
            least = work + (P - 1) * chain
        else:
            least = work + (P - 1) * max(F + c, chain)
        if got[k % 2] < least:
            sys.exit("P=%d M=%d F=%d B=%d W=%d c=%d: %d is below the bound %d" % (P, M, F, B, W, c, got[k % 2], least))
        if got[k % 2] > least:
            print("P=%d M=%d F=%d B=%d W=%d c=%d: %d, not the bound %d" % (P, M, F, B, W, c, got[k % 2], least))
        at += got[k % 2] == least
    print("seed %d: %d of %d at the bound" % (seed, at, n + 1))


if __name__ == "__main__":
    if sys.argv[5:6] == ["bound"]:
        sys.exit(reached(*sys.argv[1:4], int(sys.argv[4]), int(sys.argv[6])))
    beside(*sys.argv[1:4], sys.argv[5] if len(sys.argv) > 5 else None)
    bounds(*sys.argv[1:4], int(sys.argv[4]))
