# SPDX-License-Identifier: MIT
"""tried.py PIPEC AS_WRITTEN TEXT SCHEDULE...: over a grid, a tuned order is no longer than the one as written, and on every rank it has no more
stashes at any time, nor more bytes of stashes, held gradients and kept inputs; prints what it has gained. The sums
are made here, op by op, from the lists alone."""
import itertools
import json
import subprocess
import sys


def up64(n):
    return (n + 63) // 64 * 64


def peaks(p):
    size = {}
    for i, r in enumerate(p["rank"]):
        for q in r["pools"]:
            for k in range(q["first"], q["first"] + q["count"]):
                size[i, k] = up64(q["bytes"])
    out = []
    for i, r in enumerate(p["rank"]):
        live, most, most_bytes = {}, 0, 0
        kept = {(c["stage"], c["mb"], c.get("slice", 0)) for c in r["instr"] if "keep" in c}
        last = p["slices"] - 1
        for c in r["instr"]:
            if "act" not in c:
                continue
            kind = c["op"].lstrip("0123456789")[0]
            unit = (c["stage"], c["mb"], c.get("slice", 0))
            if kind in "FR":
                live["act", unit] = c["act"]
            if kind == "F" and "keep" in c:
                live["keep", unit] = c["keep"]
            if kind == "I":
                live["gout", unit] = c["gout"]
            most = max(most, sum(k[0] == "act" for k in live))
            most_bytes = max(most_bytes, sum(size[i, slot] for slot in live.values()))
            if kind == "F" and unit[2] == last:
                for q in range(last + 1):
                    if (unit[0], unit[1], q) in kept:
                        del live["act", (unit[0], unit[1], q)]
            if kind == "R":
                del live["keep", unit]
            if kind in "BW":
                del live["act", unit]
                live.pop(("gout", unit), None)
        assert not live, live
        assert most == r["inflight"], (i, most, r["inflight"])
        out.append((most, most_bytes))
    return out


def program(pipec, path, schedule, define):
    run = subprocess.run([pipec, "--verify", "--emit=json", "--schedule=" + schedule, path] + define,
                         capture_output=True)
    assert run.returncode == 0, run.stderr.decode()
    return json.loads(run.stdout)


def compare(without, tried):
    assert tried["ideal"] <= without["ideal"], (without["ideal"], tried["ideal"])
    for r, (a, b) in enumerate(zip(peaks(without), peaks(tried))):
        assert b[0] <= a[0] and b[1] <= a[1], (r, a, b)
    assert sorted(i["op"] for r in without["rank"] for i in r["instr"]) == \
        sorted(i["op"] for r in tried["rank"] for i in r["instr"])
    return tried["ideal"] < without["ideal"]


pipec, as_written, text = sys.argv[1:4]
for schedule in sys.argv[4:]:
    less = 0
    for P, M, K in itertools.product((2, 4), (2, 5), (0, 1)):
        define = [f"-DP={P}", f"-DM={M}", f"-DK={K}"]
        try:
            less += compare(*(program(pipec, path, schedule, define) for path in (as_written, text)))
        except AssertionError as e:
            print(schedule, *define, e)
    print(f"{schedule}: {less} of 8 are shorter")
