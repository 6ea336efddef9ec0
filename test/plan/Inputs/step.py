# SPDX-License-Identifier: MIT
# Every cut of random chains of layers into stages, with every number of replicas, as a schedule written here and priced
# by --compare, against the step of --plan, which must be among the shortest. Its own schedule has the step it says.
# A third of them have little memory; there each stage may run its forwards again, or those of any of its layers
# but the first of the model, or have its stashes in host memory.
#
#   step.py PIPEC SEED INSTANCES
import csv
import io
import itertools
import json
import os
import random
import re
import subprocess
import sys

pipec, seed, instances = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)
print("seed %d" % seed)


def run(*words):
    return subprocess.run([pipec, *words], text=True, capture_output=True, check=True).stdout


def plans(nlayer, nrank):
    for n in range(min(nlayer, nrank)):
        for at in itertools.combinations(range(1, nlayer), n):
            for share in itertools.product(range(1, nrank + 1), repeat=n + 1):
                if sum(share) <= nrank:
                    yield list(zip([0, *at], [*at, nlayer], share))


def schedule(layers, plan, stash, M, latency, bandwidth, host):
    first, text = [0], []
    for _, _, n in plan:
        first.append(first[-1] + n)
    pick = lambda values: "".join("s == %d ? %d : " % (k, v) for k, v in enumerate(values)) + "0"
    total = lambda key: pick([sum(y[key] for y in layers[a:b]) for a, b, _ in plan])
    again = [place if isinstance(place, tuple) else () for place in stash] # layers
    back = [sum(y["B"] for y in layers[a:b]) + sum(layers[i]["F"] for i in own) for (a, b, _), own in zip(plan, again)]
    acts = [sum(layers[i - 1]["boundary"] if i in own else layers[i]["act"] for i in range(a, b))
            for (a, b, _), own in zip(plan, again)]
    work = [max([layers[i]["act"] for i in own], default=0) for own in again]
    text += ["schedule p() {", "ranks %d" % first[-1], "fn n(s) = " + pick([n for _, _, n in plan]),
             "fn lo(s) = " + pick(first[:-1]),
             "pipe net stages %d mbs %d place s, m -> lo(s) + m %% n(s)" % (len(plan), M)]
    for s, (_, _, n) in enumerate(plan):
        ahead = (first[-1] - 1 - first[s]) // n
        for i in range(n):
            own = range(i, M, n)
            ops = ["F(%d)" % m for m in own[:ahead]]
            for k, m in enumerate(own):
                ops += ["F(%d)" % own[k + ahead]] if k + ahead < len(own) else []
                ops += ["B(%d)" % m]
            text.append("order r in %d..%d { %s U }" % (first[s] + i, first[s] + i + 1, " ".join(ops)))
    for clause in "recompute", "offload":
        if clause in stash:
            text.append("%s s, m when %s" % (clause, " || ".join("s == %d" % s for s, k in enumerate(stash) if k == clause)))
    if "offload" in stash:
        text.append("time s { OFF = 1ns * (%s) }" % pick([-(-act * 10**9 // host) for act in acts]))
    text += ["time s { F = 1ns * (%s)  B = 1ns * (%s)  latency = %dns  bandwidth = %dB }" % (
        total("F"), pick(back), latency, bandwidth)]
    text += ["bytes s { act = %s  work = %s  weight = %s  boundary = %s }" % (
        pick(acts), pick(work), total("weight"), pick([layers[b - 1]["boundary"] for _, b, _ in plan])), "}"]
    return "\n".join(text)


worst = layered = 0
for number in range(instances):
    tight, host = number % 3 == 2, rng.choice([0, 5, 20]) * 10**9
    layers = [{"name": "layer%d" % k, "F": rng.randrange(1, 40) * 10**6, "B": rng.randrange(1, 80) * 10**6,
               "act": (rng.randrange(200, 900) if tight else 1) * 10**6, "boundary": rng.randrange(1, 400) * 10**5,
               "weight": rng.randrange(0, 900) * 10**6} for k in range(rng.randrange(2, 5 if tight else 6))]
    nrank, M = rng.randrange(1, 4 if tight else 5), rng.choice([4, 7, 8, 12])
    latency, bandwidth = rng.choice([0, 10**5]), rng.choice([1, 4, 20]) * 10**9
    json.dump({"pipe_profile": 1, "layers": layers}, open("layers.json", "w"))
    json.dump({"pipe_cluster": 1, "levels": [{"count": nrank, "latency": latency, "bandwidth": bandwidth}],
               **({"host": host} if host else {})}, open("cluster.json", "w"))
    files = []
    for plan in plans(len(layers), nrank):
        places = [["kept"] + tight * ["recompute"] + (tight and host > 0) * ["offload"] +
                  [own for n in range(1, tight * (b - a) + 1) for own in itertools.combinations(range(max(a, 1), b), n)]
                  for a, b, _ in plan]
        for stash in itertools.product(*places):
            files.append("%d.pipe" % len(files))
            open(files[-1], "w").write(schedule(layers, plan, stash, M, latency, bandwidth, host))
    rows = list(csv.DictReader(io.StringIO(run("--compare", "--emit=csv", *files))))
    for file in files:
        os.remove(file)
    assert not any(row["refused"] for row in rows), rows
    most = rng.choice(sorted({int(row["bytes"]) for row in rows})) if tight else 0
    limit = ["--memory-limit=%d" % most] if tight else []
    out = run("--plan", "--profile=layers.json", "--cluster=cluster.json", "-DM=%d" % M, *limit)
    open("plan.pipe", "w").write(out)
    step = int(re.search(r"^# step +([0-9]+) ns", out, re.M)[1])
    assert json.loads(run("--emit=json", "plan.pipe"))["makespan"] == step, number
    least = min(float(row["makespan"]) for row in rows if not tight or int(row["bytes"]) <= most)
    layered += "layer" in out.split("\n")[1]
    worst = max(worst, step / least - 1)
    assert step <= 1.03 * least, (number, step, least)
print("%d plans, at most %.2f %% above the shortest of all cuts; %d recompute layers" % (
    instances, 100 * max(worst, 0), layered))
