# SPDX-License-Identifier: MIT
# Every schedule of the library at every value of `most` and `V`, compiled one by one, against pipec --best: no step is
# more than 1 % shorter, what it writes compiles to the step that it names, and none that fits is missed. One whose checks
# fail at the costs counts without them, unless it has a limit.
#
#   best.py PIPEC STDLIB SEED INSTANCES
import json
import os
import random
import re
import subprocess
import sys

pipec, stdlib, seed, instances = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rng = random.Random(seed)
print("seed %d" % seed)


def listed():
    """The synchronous schedules that train, by the table of the library."""
    names = re.findall(r"^\| `([a-z0-9_]+)\.pipe` \|", open(os.path.join(stdlib, "README.md")).read(), re.M)
    return [n for n in names[:names.index("async_1f1b")] if n != "inference"]


def compiled(file, words, text=""):
    """The makespan; None: refused."""
    run = subprocess.run([pipec, "--emit=json", file, *words], capture_output=True, text=True)
    found = re.search(r'"makespan":([0-9]+)', run.stdout) if run.returncode == 0 else None
    if "check failed" in run.stderr and not re.search("^  limit", text, re.M):
        name = re.findall("^schedule ([a-z0-9_]+)", text, re.M)[-1]
        args = ", ".join(word[2:] for word in words if word.startswith("-D"))
        open("unchecked.pipe", "w").write('import "%s"\nschedule unchecked() extends %s(%s) without checks { }\n' % (
            file, name, args))
        failed.add(name)
        return compiled("unchecked.pipe", [word for word in words if not word.startswith("-D")])
    return int(found.group(1)) if found else None


failed = set()
equal = none = 0
worst = 1.0
for number in range(instances):
    P, M = rng.choice([(2, 4), (2, 6), (3, 6), (4, 8)])
    layers = [{"name": "layer%d" % k, "F": rng.randrange(10, 20) * 10**5, "I": rng.randrange(8, 24) * 10**5,
               "W": rng.randrange(4, 16) * 10**5, "act": rng.randrange(4, 9) * 10**6, "boundary": 10**6,
               "weight": 10**7} for k in range(4 * P)]
    network = {**rng.choice([{}, {"latency": "20us", "bandwidth": "5GB"}]), **rng.choice([{}, {"host": "8GB"}])}
    json.dump({"pipe_profile": 1, "layers": layers, **network}, open("layers.json", "w"))
    limit = 0 if number == 0 else rng.choice([0, (8 * P * 10**7 + rng.randrange(2, 5 * P) * 4 * 10**6 * P) // P])
    common = ["--profile=layers.json", "-DP=%d" % P, "-DM=%d" % M, *(["--memory-limit=%d" % limit] if limit else [])]
    want = None
    for name in listed():
        text = open(os.path.join(stdlib, name + ".pipe")).read()
        head = re.findall(r"^schedule [a-z0-9_]+\((.*?)\)", text, re.M)[-1]
        values = [[]] + [["-DV=%d" % v] for v in range(2, 5) if "V =" in head]
        values += [["-Dmost=%d" % m] for m in range(1, 4 * P + 1) if "most =" in head]
        for value in values:
            step = compiled(os.path.join(stdlib, name + ".pipe"), [*common, *value], text)
            if step is not None and (want is None or step < want[0]):
                want = (step, name, value)
    run = subprocess.run([pipec, "--best", *common, "-o", "best.pipe"], capture_output=True, text=True)
    if want is None:
        assert run.returncode == 1 and "holds" in run.stderr, (number, run.stderr)
        none += 1
        continue
    assert run.returncode == 0, (number, want, run.stderr)
    step = int(re.search(r"^# step +([0-9]+) ns", open("best.pipe").read(), re.M).group(1))
    assert compiled("best.pipe", ["--profile=layers.json", *common[3:]]) == step, number
    assert want[0] <= step <= 1.01 * want[0], (number, step, want)
    equal += step == want[0]
    worst = max(worst, step / want[0])
print("%d of %d at the least of all values, at most %.4f; %d without a schedule; failing checks: %s" % (
    equal, instances - none, worst, none, " ".join(sorted(failed))))
