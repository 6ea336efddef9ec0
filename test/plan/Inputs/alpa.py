# SPDX-License-Identifier: MIT
# The measure of Alpa's search for every cut of random chains and all sizes of stages, written out, against pipec
# --plan-cost=alpa: the same optimum, also where memory bounds the stages.
#
#   alpa.py PIPEC SEED INSTANCES
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


def message(level, size):
    return level["latency"] + math.ceil(size * 1e9 / level["bandwidth"])


def best(layers, levels, M, memory):
    node, nrank = levels[0]["count"], math.prod(y["count"] for y in levels)
    sizes = [n for n in range(1, nrank + 1) if n % node == 0 or (n < node and n & (n - 1) == 0)]
    least = math.inf
    for n in range(1, len(layers) + 1):
        for at in itertools.combinations(range(1, len(layers)), n - 1):
            for share in itertools.product(sizes, repeat=n):
                times = []
                for k, (a, b, m) in enumerate(zip([0, *at], [*at, len(layers)], share)):
                    total = lambda key: sum(y[key] for y in layers[a:b])
                    level = levels[0] if m <= node else levels[-1]
                    times.append((total("F") + total("B")) / m)
                    if m > 1:
                        times[-1] += 2 * (m - 1) * message(level, total("weight") // m) / M
                    if memory and 2 * total("weight") + (n - k) * total("act") > memory:
                        times[-1] = math.inf
                if sum(share) == nrank:
                    least = min(least, sum(times) + (M - 1) * max(times))
    return least


found = none = 0
for number in range(instances):
    layers = [{"name": "layer%d" % k, "F": rng.randrange(1, 40) * 10**6, "B": rng.randrange(1, 80) * 10**6,
               "act": rng.randrange(1, 9) * 10**6, "boundary": 10**6, "weight": rng.randrange(0, 90) * 10**6}
              for k in range(rng.randrange(1, 6))]
    levels = [{"count": rng.randrange(1, 5), "bandwidth": 50 * 10**9, "latency": 0},
              {"count": rng.randrange(1, 3), "bandwidth": rng.choice([1, 10]) * 10**9, "latency": 10**5}]
    M, memory = rng.choice([8, 9, 32]), rng.choice([0, rng.randrange(100, 500) * 10**6])
    json.dump({"pipe_profile": 1, "layers": layers}, open("layers.json", "w"))
    json.dump({"pipe_cluster": 1, "levels": levels}, open("cluster.json", "w"))
    want = best(layers, levels, M, memory)
    run = subprocess.run([pipec, "--plan", "--profile=layers.json", "--cluster=cluster.json", "-DM=%d" % M,
                          "--plan-cost=alpa", *(["--memory-limit=%d" % memory] if memory else [])],
                         text=True, capture_output=True)
    if math.isinf(want):
        assert run.returncode == 1 and "no cut" in run.stderr, (number, run.stderr)
        none += 1
    elif run.returncode == 0:
        got = float(re.search(r"M-1 slowest ([0-9.]+) s", run.stdout)[1])
        assert abs(got - want / 1e9) < 2e-9, (number, got, want / 1e9)
        found += 1
    else:  # a plan by that count of bytes may not fit by ours
        assert memory and "none of 1 plans holds" in run.stderr, (number, run.stderr)
print("%d optima, %d without a plan" % (found, none))
