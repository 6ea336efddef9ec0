# SPDX-License-Identifier: MIT
# Plans of random chains that were measured with several microbatches and widths. A profile of one variant gives the
# plan of its plain layers, byte for byte; with a width that of the cluster whose ranks were joined here. The plan of all
# variants has the step that it says, and is about as good as the best of those that are of one variant each, although
# they share what is tried.
#
#   variants.py PIPEC SEED INSTANCES
import json
import random
import re
import subprocess
import sys

pipec, seed, instances = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)
print("seed %d" % seed)


def plan(profile, cluster, given, *words):
    json.dump({"pipe_profile": 1, **profile}, open("layers.json", "w"))
    json.dump({"pipe_cluster": 1, **cluster}, open("cluster.json", "w"))
    return subprocess.run([pipec, "--plan", "--profile=layers.json", "--cluster=cluster.json", "-D" + given, *words],
                          text=True, capture_output=True)


def joined(cluster, width):
    """The cluster of ranks that are `width` ranks each: the slowest counts, a shared link has all their messages."""
    levels = [dict(y) for y in cluster["levels"]]
    levels[0]["count"] //= width
    for y in levels[1:]:
        if y["shared"]:
            y["bandwidth"] //= width
    speed = cluster["speed"]
    return {"levels": levels, "memory": cluster["memory"],
            "speed": [min(speed[i:i + width]) for i in range(0, len(speed), width)]}


def schedule(text):
    return text[text.index("schedule plan"):]


def step(text):
    return int(re.search(r"^# step +([0-9]+) ns", text, re.M)[1])


def worth(text):
    """What plans are ranked by: each forward more in flight has to save half a percent."""
    early = re.search(r"^# 1F1B with ([0-9]+) more in flight", text, re.M)
    return step(text) * (1 + 0.005 * int(early[1] if early else 0))


refused, ratios = 0, []
for number in range(instances):
    nlayer, batch, split = rng.randrange(2, 7), rng.choice([8, 12, 16]), rng.random() < 0.3
    one = [{"F": rng.randrange(1, 40) * 10**6, "act": rng.randrange(1, 40) * 10**6, "boundary": rng.randrange(1, 90) * 10**5,
            "weight": rng.randrange(0, 90) * 10**6} for _ in range(nlayer)]
    node, nodes = rng.choice([1, 2, 4]), rng.choice([1, 2])
    cluster = {"levels": [{"count": node, "bandwidth": 10**11, "latency": 1000, "shared": rng.random() < 0.5},
                          {"count": nodes, "bandwidth": rng.choice([1, 10]) * 10**9, "shared": rng.random() < 0.5}],
               "memory": rng.randrange(200, 1200) * 10**6,
               "speed": [rng.choice([1, 1, 0.5]) for _ in range(node * nodes)]}
    variants = []
    for microbatch in sorted(rng.sample([1, 2, 3, 4, 5], rng.randrange(1, 4))):
        for width in [w for w in (1, 2, 4) if node % w == 0 and rng.random() < 0.7] or [1]:
            layers, faster = [], microbatch * rng.uniform(0.7, 1) / width * rng.uniform(1, 1.3)
            for k, y in enumerate(one):
                F = int(y["F"] * faster)
                layers.append({"name": "layer%d" % k, "F": F, **({"I": F, "W": F} if split else {"B": 2 * F}),
                               "act": y["act"] * microbatch // width, "boundary": y["boundary"] * microbatch,
                               "weight": y["weight"] // width})
            variants.append({"microbatch": microbatch, "width": width, "layers": layers})
    least = None
    for v in variants:
        if batch % v["microbatch"]:
            continue
        M = "M=%d" % (batch // v["microbatch"])
        alone = plan({"variants": [v]}, cluster, "batch=%d" % batch)
        by_hand = plan({"layers": v["layers"]}, joined(cluster, v["width"]), M)
        assert alone.returncode == by_hand.returncode, (number, alone.stderr, by_hand.stderr)
        if alone.returncode != 0:
            assert "[plan]" in alone.stderr
            continue
        assert schedule(alone.stdout) == schedule(by_hand.stdout), number
        if v["width"] == 1:
            assert plan({"variants": [v]}, cluster, M).stdout == by_hand.stdout, number
        least = worth(alone.stdout) if least is None else min(least, worth(alone.stdout))
    all_of_them = plan({"variants": variants}, cluster, "batch=%d" % batch)
    if least is None:
        assert all_of_them.returncode == 1 and "[plan]" in all_of_them.stderr, number
        refused += 1
        continue
    got = worth(all_of_them.stdout)
    open("plan.pipe", "w").write(all_of_them.stdout)
    out = subprocess.run([pipec, "--emit=json", "plan.pipe"], text=True, capture_output=True, check=True).stdout
    assert json.loads(out)["makespan"] == step(all_of_them.stdout), number
    assert got <= least if len(variants) == 1 else got <= 1.25 * least, (number, got, least)
    ratios += [got / least] if len(variants) > 1 else []
print("%d plans of several variants, %d of them worse than of one, on average %.2f %%; %d batches without a plan" % (
    len(ratios), sum(r > 1 for r in ratios), 100 * (sum(ratios) / max(len(ratios), 1) - 1), refused))
