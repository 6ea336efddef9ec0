# SPDX-License-Identifier: MIT
# The planner of PipeDream-2BW by its formula: all widths, depths and microbatches, written out, against pipec
# --plan-cost=2bw on random chains and clusters: the same time of a sample, to the last digit, by the same plan. The
# schedule that is written keeps two versions, and its gradients are late by one.
#
#   twobw.py PIPEC SEED INSTANCES
import json
import math
import random
import re
import subprocess
import sys

pipec, seed, instances = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)
print("seed %d" % seed)


def equal_stages(layers, d):
    """The ends of d stages; None: two cuts coincide. A cut is behind the state with the nearest work."""
    work = [0]
    for y in layers:
        work.append(work[-1] + y["F"] + y["B"])
    ends = [0]
    for s in range(1, d):
        want = float(work[-1]) * s / d
        below = max([k for k in range(1, len(layers) + 1) if work[k] <= want], default=1)
        above = below + 1
        ends.append(above if above <= len(layers) and work[above] - want < abs(want - work[below]) else below)
    ends.append(len(layers))
    return ends if all(a < b for a, b in zip(ends, ends[1:])) else None


def sample_time(v, levels, memory, batch, w, d, again):
    """Time of a sample in ns and the stages; None: it does not fit."""
    layers, M = v["layers"], batch // v["microbatch"]
    ends = equal_stages(layers, d)
    if M % w or M // w < d or not ends:
        return None
    node = levels[0]["count"]
    between = lambda a, b: levels[0 if a // node == b // node else 1]["bandwidth"]
    times = []
    for a, b in zip(ends, ends[1:]):
        total = lambda key: sum(y[key] for y in layers[a:b])
        inputs = layers[a - 1]["boundary"] if a else 0
        if memory and 2 * total("weight") + d * inputs + total("act") * (1 if again else d) > memory:
            return None
        compute = (4 / 3 if again else 1) * (total("F") + total("B"))
        transfer = 2.0 * inputs * 1e9 / between(0, w) if d > 1 else 0
        ring = 2 * (w - 1) / w * total("weight") * 1e9 / between(0, w - 1) * w / M
        times.append(compute + ring if d == 1 else max(compute + transfer, ring))
    return max(times) / w / v["microbatch"], ends


found = none = heavy = 0
for number in range(instances):
    levels = [{"count": rng.randrange(1, 5), "bandwidth": rng.choice([50, 100]) * 10**9},
              {"count": rng.randrange(1, 4), "bandwidth": rng.choice([1, 10]) * 10**9}]
    nrank, batch, memory = levels[0]["count"] * levels[1]["count"], rng.choice([8, 12, 24, 36]), rng.randrange(200, 3000) * 10**6
    variants, one = [], [{"F": rng.randrange(1, 40) * 10**6, "act": rng.randrange(1, 30) * 10**6,
                          "boundary": rng.randrange(1, 30) * 10**6, "weight": rng.randrange(0, 90) * 10**6}
                         for _ in range(rng.randrange(1, 9))]
    for b in sorted(rng.sample([1, 2, 3, 4, 5], 3)):
        F = rng.uniform(0.7, 1) * b
        variants.append({"microbatch": b, "layers": [
            {"name": "layer%d" % k, "F": int(y["F"] * F), "B": int(2.1 * y["F"] * F), "act": b * y["act"],
             "boundary": b * y["boundary"], "weight": y["weight"]} for k, y in enumerate(one)]})
    best = (math.inf,)
    for w in range(1, nrank + 1):
        for d in range(1, nrank // w + 1):
            for again in False, True:
                fits = [(v["microbatch"], sample_time(v, levels, memory, batch, w, d, again))
                        for v in variants if batch % v["microbatch"] == 0]
                fits = [(b, *y) for b, y in fits if y]
                if fits:
                    b, time, ends = max(fits)
                    best = min(best, (time, b, w, d, again, ends))
    json.dump({"pipe_profile": 1, "variants": variants}, open("layers.json", "w"))
    json.dump({"pipe_cluster": 1, "levels": levels, "memory": memory}, open("cluster.json", "w"))
    run = subprocess.run([pipec, "--plan", "--profile=layers.json", "--cluster=cluster.json", "-Dbatch=%d" % batch,
                          "--plan-cost=2bw"], text=True, capture_output=True)
    if math.isinf(best[0]):
        assert run.returncode == 1 and "no equal stages" in run.stderr, (number, run.stderr)
        none += 1
    elif run.returncode:  # the formula counts neither gradients nor slots of transfers
        assert "none of 1 plans holds" in run.stderr and "[plan]" in run.stderr, (number, run.stderr)
        heavy += 1
    else:
        time, b, w, d, again, ends = best
        got = re.search(r"planner: ([0-9.]+) s a sample", run.stdout)[1]
        assert got == "%.12f" % (time / 1e9), (number, got, best)
        text = run.stdout.splitlines()[1]
        assert re.match(r"# 2BW, %d stages? on .*microbatch %d\.$" % (d, b), text), (number, text, best)
        assert ("recomputing %d stage" % d in text) == again, (number, text, best)
        rows = re.findall(r"^# +[0-9]+  ([0-9-]+) +layer([0-9]+) ", run.stdout, re.M)
        assert [int(last) + 1 for _, last in rows] == ends[1:], (number, rows, best)
        assert rows[0][0] == ("0-%d" % (w - 1) if w > 1 else "0"), (number, rows, best)
        open("plan.pipe", "w").write(run.stdout.replace(
            "\n}", "\n  check versions(r) == 2 && staleness(r) == 1 && discrepancy(r) == 0 for r in 0..%d\n}" % (w * d)))
        subprocess.run([pipec, "--check", "plan.pipe"], check=True, stdout=subprocess.DEVNULL)
        found += 1
print("%d plans, %d that memory refuses, %d without a plan" % (found, heavy, none))
