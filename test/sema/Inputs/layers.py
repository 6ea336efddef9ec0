# SPDX-License-Identifier: MIT
# Profiles of layers against pipec's stages: the slowest stage is as fast as a cut of the same order into so many
# runs can be (tried by a recurrence), and the stages have the sums of their layers, and what crosses each cut.
#
#   layers.py PIPEC SCHEDULE PROFILE...
import json
import re
import subprocess
import sys

pipec, schedule, *profiles = sys.argv[1:]


def read(path):
    layers, edges = {}, []
    for line in open(path):
        parts = line.strip().split(" -- ")
        if len(parts) == 2:
            edges.append(tuple(int(p[4:]) for p in parts))
        elif parts != [""]:
            v = {k: sum(float(x) for x in re.findall(r"[0-9.]+", t))
                 for k, t in re.findall(r"(\w+)=(\[[^]]*\]|[0-9.]+)", parts[2])}
            layers[int(parts[0][4:])] = (parts[1], v)
    return layers, edges


def in_order(layers, edges):
    order, left = [], {n: sum(b == n for _, b in edges) for n in layers}
    while left:
        n = min(m for m in left if left[m] == 0)
        del left[n]
        for a, b in edges:
            if a == n:
                left[b] -= 1
        order.append(n)
    used = {a for a, _ in edges}
    return [n for n in order if not layers[n][0].startswith("Input")
            and (n in used or not layers[n][0].startswith("__getitem__"))]


def least(times, stages):
    """The time of the slowest run in the best cut into exactly so many."""
    n, total = len(times), [0]
    for t in times:
        total.append(total[-1] + t)
    best = total[:]
    for k in range(2, stages + 1):
        best = [min((max(best[i], total[j] - total[i]) for i in range(k - 1, j)), default=float("inf"))
                for j in range(n + 1)]
    return best[n]


checked = 0
for path in profiles:
    layers, edges = read(path)
    order = in_order(layers, edges)
    ns = lambda n, key: round(layers[n][1][key] * 1e6)
    times = [ns(n, "forward_compute_time") + ns(n, "backward_compute_time") for n in order]
    for P in (1, 2, 4, 8):
        if len(order) > 200 and P > 4:
            continue
        out = subprocess.run([pipec, schedule, "-DP=%d" % P, "-DM=%d" % P, "--profile=" + path, "--emit=json"],
                             text=True, capture_output=True, check=True).stdout
        stages = json.loads(out)["stages"]
        report = subprocess.run([pipec, schedule, "-DP=%d" % P, "-DM=%d" % P, "--profile=" + path, "--check"],
                                text=True, capture_output=True, check=True).stdout
        cuts = [int(n) for n in re.findall(r"node(\d+)", re.search(r"^layers .*$", report, re.M)[0])]
        runs, at = [[]], 0
        for n in order:
            runs[-1].append(n)
            if at < len(cuts) and n == cuts[at]:
                runs.append([])
                at += 1
        assert len(runs) == P and all(runs), (path, P, cuts)
        where = {n: k for k, run in enumerate(runs) for n in run}
        for k, (run, st) in enumerate(zip(runs, stages)):
            total = lambda key: sum(round(layers[n][1][key]) for n in run)
            assert st["F"] == sum(ns(n, "forward_compute_time") for n in run), (path, P, k)
            assert st["B"] == sum(ns(n, "backward_compute_time") for n in run), (path, P, k)
            assert st["act"] == total("activation_size") and st["weight"] == total("parameter_size") == st["grad"]
            cross = sum(round(layers[a][1]["activation_size"]) for a in order if where[a] <= k
                        and any(where.get(b, -1) > k for x, b in edges if x == a))
            assert st["boundary"] == cross, (path, P, k, st["boundary"], cross)
        assert max(st["F"] + st["B"] for st in stages) == least(times, P), (path, P)
        checked += 1
print("%d cuts of %d profiles" % (checked, len(profiles)))
