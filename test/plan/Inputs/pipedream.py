# SPDX-License-Identifier: MIT
# PipeDream's cost of every plan of random chains of layers, written out, against pipec --plan-cost: the same bottleneck.
#
#   pipedream.py PIPEC SEED INSTANCES
import itertools
import json
import math
import random
import re
import subprocess
import sys

pipec, seed, instances = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)
print("seed %d" % seed)


def cuts(i, j):
    """All ways to cut the layers i..j-1 into runs."""
    for n in range(j - i):
        for at in itertools.combinations(range(i + 1, j), n):
            ends = [i, *at, j]
            yield list(zip(ends, ends[1:]))


def shares(n, parts):
    if parts == 1:
        yield (n,)
    for first in range(1, n - parts + 2):
        for rest in shares(n - first, parts - 1) if parts > 1 else ():
            yield (first, *rest)


def best(layers, levels, i, j, memory, straight, transfers):
    """The least bottleneck of the layers i..j-1 on the last of the levels, with all its groups."""
    if not levels:
        return sum(y["F"] + y["B"] for y in layers[i:j]) / 1e9
    count, bandwidth = levels[-1]
    groups = levels[-2][0] if len(levels) > 1 else 1
    least = math.inf
    for runs in cuts(i, j):
        inner = [best(layers, levels[:-1], a, b, memory, straight, transfers) for a, b in runs]
        for share in shares(count, len(runs)) if len(runs) <= count else ():
            value, used = 0.0, 0
            for k, ((a, b), time, m) in enumerate(zip(runs, inner, share)):
                weight = sum(y["weight"] for y in layers[a:b])
                used += m
                if straight and m > 1:
                    value = math.inf
                if memory and math.ceil((count - used) / m) * (weight + sum(y["act"] for y in layers[a:b])) > memory:
                    value = math.inf
                sums = 4 * (m - 1) * weight / (bandwidth * m) / (groups if k == 0 else 1)
                value = max(value, (time + sums) / m)
                if transfers and k > 0:
                    value = max(value, 2 * layers[a - 1]["boundary"] / (bandwidth * m))
                    if b < len(layers):
                        value = max(value, 2 * layers[b - 1]["boundary"] / (bandwidth * m))
            least = min(least, value)
    return least


checked = refused = 0
for number in range(instances):
    layers = [{"name": "layer%d" % k, "F": rng.randrange(1, 40) * 10**6, "B": rng.randrange(1, 80) * 10**6,
               "act": rng.randrange(1, 90) * 10**6, "boundary": rng.randrange(1, 40) * 10**6,
               "weight": rng.choice([0, rng.randrange(1, 90)]) * 10**6} for k in range(rng.randrange(1, 6))]
    levels = [(rng.randrange(1, 5), rng.choice([1, 3, 10]) * 10**9) for _ in range(rng.randrange(1, 3))]
    memory = rng.choice([0, 0, rng.randrange(50, 400) * 10**6])
    with open("layers.json", "w") as f:
        given = layers if number % 2 else [  # the same backward in two parts
            {**{k: v for k, v in y.items() if k != "B"}, "I": y["B"] // 3, "W": y["B"] - y["B"] // 3} for y in layers]
        json.dump({"pipe_profile": 1, "layers": given}, f)
    with open("cluster.json", "w") as f:
        json.dump({"pipe_cluster": 1, "levels": [{"count": c, "bandwidth": b} for c, b in levels],
                   **({"memory": memory} if memory else {})}, f)
    for how in "stage", "stage-straight", "stage-compute":
        want = best(layers, levels, 0, len(layers), memory, how == "stage-straight", how != "stage-compute")
        run = subprocess.run([pipec, "--plan", "--profile=layers.json", "--cluster=cluster.json", "-DM=16",
                              "--plan-cost=" + how], text=True, capture_output=True)
        if math.isinf(want):
            assert run.returncode == 1 and "[plan]" in run.stderr, (number, how, run.stderr)
            refused += 1
        elif run.returncode == 0:
            got = float(re.search(r"slowest stage ([0-9.]+) s", run.stdout)[1])
            assert abs(got - want) < 2e-9, (number, how, got, want)
            checked += 1
        else:  # a plan by its own count of bytes may not fit by ours
            assert memory and "[plan]" in run.stderr, (number, how, run.stderr)
print("%d bottlenecks, %d without a plan" % (checked, refused))
