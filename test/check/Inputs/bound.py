# SPDX-License-Identifier: MIT
# The lower bounds of --emit=json against what they bound.
#
#   bound.py PIPEC STDLIB SCRATCH SEED
#
#   best      all orders of small steps, tried here, under uniform times and under times by microbatch, stage and rank:
#             none is below the bound; how many meet it
#   formula   linear placement and P stashes a rank, where it is known in closed form: Qi et al. 2023, and Little
#   library   every schedule of the library under random costs is at or above its bound
import itertools
import json
import os
import random
import subprocess
import sys

pipec, stdlib, scratch, seed = sys.argv[1:]
print("seed", seed)
rng = random.Random(int(seed))
os.makedirs(scratch, exist_ok=True)


def compiled(text, **params):
    path = scratch + "/s.pipe"
    with open(path, "w") as f:
        f.write(text)
    done = subprocess.run([pipec, path, "--emit=json", *["-D%s=%d" % p for p in params.items()]], text=True,
                          capture_output=True, check=False)
    if done.returncode:
        sys.exit(text + done.stderr)
    return json.loads(done.stdout)


def costs():
    return {"F": rng.randint(1, 9), "I": rng.randint(1, 9), "W": rng.randint(1, 9), "send": rng.choice((0, 0, 1, 2, 5))}


def entries(c):
    return "time { %s }" % "  ".join("%s = %d" % e for e in c.items())


def by_unit(c, on_rank):
    """The same with F, I and W that differ by microbatch and stage, or rank; as text, and as a function."""
    of = {k: [rng.randint(0, 9) for _ in range(4)] for k in "FIW"}
    text = "time s, m%s { %s }\n  time { send = %d }" % (
        " on r" if on_rank else "",
        "  ".join("%s = 1 + (%d + %d*%s + %d*m + %d*s*m) %% 9" % (k, v[0], v[1], "r" if on_rank else "s", v[2], v[3])
                  for k, v in of.items()), c["send"])
    return text, lambda k, s, m: 1 + (of[k][0] + of[k][1] * s + of[k][2] * m + of[k][3] * s * m) % 9


# ---- all orders of a small step ----

def orders(M, room):
    """Every order of F, I and W of M microbatches, forwards ascending, with at most `room` stashes."""
    def extend(row, f, live):
        if len(row) == 3 * M:
            yield tuple(row)
            return
        done = set(row)
        if f < M and live < room:
            yield from extend(row + [("F", f)], f + 1, live + 1)
        for m in range(f):
            if ("I", m) not in done:
                yield from extend(row + [("I", m)], f, live)
            elif ("W", m) not in done:
                yield from extend(row + [("W", m)], f, live - 1)
    return list(extend([], 0, 0))


def played(rows, P, send, cost):
    """Makespan and span of the orders on an idle network; None: they wait for each other."""
    end, now, first, at = {}, [0] * P, [None] * P, [0] * P
    moved = True
    while moved:
        moved = False
        for r in range(P):
            while at[r] < len(rows[r]):
                kind, m = rows[r][at[r]]
                before = {"F": (r - 1, "F", m), "I": (r + 1, "I", m)}.get(kind)
                start = now[r]
                if before and 0 <= before[0] < P:
                    if before not in end:
                        break
                    start = max(start, end[before] + send)
                first[r] = start if first[r] is None else first[r]
                end[(r, kind, m)] = now[r] = start + cost(kind, r, m)
                at[r] += 1
                moved = True
    if any(a < len(row) for a, row in zip(at, rows)):
        return None
    return max(now), max(n - f for n, f in zip(now, first))


tried = met = spans = 0
for P, M, rounds in (2, 2, 60), (3, 2, 8), (2, 3, 6):
    for k in range(rounds):
        c = costs()
        times, cost = (entries(c), lambda kind, r, m: c[kind]) if k % 2 else by_unit(c, rng.random() < 0.5)
        lag = rng.choice((0, 1))
        text = ("schedule s() {\n  ranks %d\n  pipe net stages %d mbs %d place s -> s\n  %s\n"
                "  order r { steady m { F(m)  I(m - min(%d, %d-1-r+%d))  W(m - %d) }  U }\n}\n"
                % (P, P, M, times, M, P, lag, M))
        j = compiled(text)
        room = [r["inflight"] for r in j["rank"]]
        best = [played(rows, P, c["send"], cost) for rows in itertools.product(*(orders(M, n) for n in room))]
        best = [b for b in best if b]
        makespan, span = min(b[0] for b in best), min(b[1] for b in best)
        assert j["bound"]["makespan"] <= makespan <= j["makespan"], (text, j["bound"], makespan, j["makespan"])
        assert j["bound"]["span"] <= span <= j["span"], (text, j["bound"], span, j["span"])
        tried, met, spans = tried + 1, met + (j["bound"]["makespan"] == makespan), spans + (j["bound"]["span"] == span)
print("best: %d steps, makespan met %d, span met %d" % (tried, met, spans))
assert met > 0.4 * tried and spans > 0.4 * tried

# ---- the closed form ----

for _ in range(60):
    c, P = costs(), rng.choice((2, 3, 4, 6, 8))
    M = P * rng.choice((2, 3))
    text = ("schedule s() {\n  ranks %d\n  pipe net stages %d mbs %d place s -> s\n  %s\n"
            "  order r { steady m { F(m)  I(m - min(%d, %d-1))  W(m - %d + 1) }  U }\n"
            "  check inflight(r) == %d for r in 0..%d\n}\n" % (P, P, M, entries(c), M, P, P, P, P))
    j, F, B, W, hop = compiled(text), c["F"], c["I"], c["W"], c["send"]
    want = M * (F + B + W) + (P - 1) * max(F + hop, B + 2 * hop + max(0, F + 2 * hop - W))
    life = P * (F + B) + W + 2 * (P - 1) * hop  # of a stash of rank 0; P of them at a time
    want = max(want, -(-M * life // P))
    assert j["bound"]["makespan"] == want, (text, j["bound"], want)
print("formula: 60 met")

# ---- the library ----

names = sorted(n[:-5] for n in os.listdir(stdlib) if n.endswith(".pipe"))
count = exact = 0
for name in names:
    out = subprocess.run([pipec, "%s/%s.pipe" % (stdlib, name), "--emit=json"], text=True, capture_output=True, check=True)
    j = json.loads(out.stdout)
    assert 0 < j["bound"]["makespan"] <= j["makespan"] and 0 < j["bound"]["span"] <= j["span"], name
    params = ", ".join("%s = %s" % tuple(p.split("=")) for p in j["params"].split())
    for _ in range(4):
        c = costs()
        c["U"] = rng.choice((0, 3))
        if rng.random() < 0.4:
            c["B"] = rng.randint(1, 18)
        if rng.random() < 0.3:
            c["FB"] = rng.randint(1, 20)
        text = ('import "%s/%s.pipe"\nschedule x(%s) extends %s() { %s }\n'
                % (os.path.abspath(stdlib), name, params, j["schedule"],
                   entries(c) if rng.random() < 0.5 or j["slices"] > 1 else by_unit(c, rng.random() < 0.5)[0]))
        path = scratch + "/l.pipe"
        with open(path, "w") as f:
            f.write(text)
        done = subprocess.run([pipec, path, "--emit=json"], text=True, capture_output=True, check=False)
        if done.returncode:
            assert "[check]" in done.stderr or "[memory]" in done.stderr, text + done.stderr
            continue
        k = json.loads(done.stdout)
        assert k["bound"]["makespan"] <= k["makespan"] and k["bound"]["span"] <= k["span"], (text, k["bound"], k["makespan"])
        count, exact = count + 1, exact + (k["bound"]["makespan"] == k["makespan"])
print("library: %d steps at or above the bound, %d at it" % (count, exact))
assert count > 2 * len(names)
