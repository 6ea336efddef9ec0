# SPDX-License-Identifier: MIT
# PipeDream's cost of every plan of random chains of layers, written out, against pipec --plan-cost: the same bottleneck.
# Of chains of 30 layers on 16 ranks, one rank a stage, by the recurrence over (layers, stages).
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


def straight(layers, count):
    """The least bottleneck of `count` stages at 1 GB/s, in ns."""
    work = [0, *itertools.accumulate(y["F"] + y["B"] for y in layers)]
    least = [0] + [math.inf] * len(layers)
    for _ in range(count):
        least = [math.inf] + [min(max(least[k], work[j] - work[k], 2 * layers[k - 1]["boundary"] if k else 0)
                                  for k in range(j)) for j in range(1, len(work))]
    return least[-1]


def random_layers(n):
    return [{"name": "layer%d" % k, "F": rng.randrange(1, 40) * 10**6, "B": rng.randrange(1, 80) * 10**6,
             "act": rng.randrange(1, 90) * 10**6, "boundary": rng.randrange(1, 40) * 10**6,
             "weight": rng.choice([0, rng.randrange(1, 90)]) * 10**6} for k in range(n)]


def plan(layers, levels, memory, how):
    json.dump({"pipe_profile": 1, "layers": layers}, open("layers.json", "w"))
    json.dump({"pipe_cluster": 1, "levels": [{"count": c, "bandwidth": b} for c, b in levels],
               **({"memory": memory} if memory else {})}, open("cluster.json", "w"))
    done = subprocess.run([pipec, "--plan", "--profile=layers.json", "--cluster=cluster.json", "-DM=16",
                           "--plan-cost=" + how], text=True, capture_output=True)
    found = re.search(r"slowest stage ([0-9.]+) s", done.stdout)
    return done, float(found[1]) if found else None


checked = refused = 0
for number in range(instances):
    layers = random_layers(rng.randrange(1, 6))
    levels = [(rng.randrange(1, 5), rng.choice([1, 3, 10]) * 10**9) for _ in range(rng.randrange(1, 3))]
    memory = rng.choice([0, 0, rng.randrange(50, 400) * 10**6])
    given = layers if number % 2 else [  # the same backward in two parts
        {**{k: v for k, v in y.items() if k != "B"}, "I": y["B"] // 3, "W": y["B"] - y["B"] // 3} for y in layers]
    for how in "stage", "stage-straight", "stage-compute":
        want = best(layers, levels, 0, len(layers), memory, how == "stage-straight", how != "stage-compute")
        done, got = plan(given, levels, memory, how)
        if math.isinf(want):
            assert done.returncode == 1 and "[plan]" in done.stderr, (number, how, done.stderr)
            refused += 1
        elif done.returncode == 0:
            assert abs(got - want) < 2e-9, (number, how, got, want)
            checked += 1
        else:  # a plan by its own count of bytes may not fit by ours
            assert memory and "[plan]" in done.stderr, (number, how, done.stderr)
    long = random_layers(30)
    done, got = plan(long, [(16, 10**9)], 0, "stage-straight")
    assert abs(got - straight(long, 16) / 1e9) < 2e-9, (number, got, done.stderr)
print("%d bottlenecks, %d without a plan" % (checked, refused))
