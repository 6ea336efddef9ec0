# SPDX-License-Identifier: MIT
# Transfers over links of several classes: the orders of --emit=csv are played here, each tensor arriving latency +
# boundary / bandwidth after its op has ended, and the makespan on an idle network has to be that of pipec.
#
#   links.py PIPEC STDLIB SCRATCH SEED
import json
import os
import random
import re
import subprocess
import sys

pipec, stdlib, scratch, seed = sys.argv[1:]
print("seed", seed)
rng = random.Random(int(seed))
os.makedirs(scratch, exist_ok=True)


def run(path, *options):
    done = subprocess.run([pipec, path, "--verify", *options], text=True, capture_output=True, check=False)
    if done.returncode:
        sys.exit(open(path).read() + done.stderr)
    return done.stdout


def played(rows, cost, hop, place):
    end, now, at = {}, [0] * len(rows), [0] * len(rows)
    moved = True
    while moved:
        moved = False
        for r, row in enumerate(rows):
            while at[r] < len(row):
                stage, kind, mb = row[at[r]]
                start, other = now[r], None
                if kind == "F" and stage > 0:
                    other = (stage - 1, "F", mb)
                if kind in "BI" and stage + 1 < len(place):
                    other = (stage + 1, "B", mb)
                if other:
                    if other not in end:
                        break
                    link = min(stage, other[0])
                    start = max(start, end[other] + (hop[link] if place[other[0]] != r else 0))
                now[r] = end[(stage, "B" if kind == "I" else kind, mb)] = start + cost[kind]
                at[r] += 1
                moved = True
    assert all(a == len(row) for a, row in zip(at, rows))
    return max(now)


count = 0
for name, P, S in (("1f1b", 4, 4), ("interleaved", 4, 8), ("zb_h1", 4, 4), ("zb_v", 4, 8), ("gpipe", 3, 3), ("v_half", 4, 8),
                   ("1f1b_v_auto", 4, 8)):
    for timed in (False, True):
        M = 8 if name != "gpipe" else 5
        unit, big = ("us", 1000) if timed else ("", 1)
        cost = {"F": rng.randint(1, 9), "I": rng.randint(1, 9), "W": rng.randint(1, 9)}
        cost["B"] = cost["I"] + cost["W"]
        lat, far, bw, far_bw, size = (rng.randint(0, 3), rng.randint(2, 7), rng.randint(3, 9), rng.randint(1, 3), rng.randint(1, 20))
        base = "schedule %s" % name
        j = json.loads(run("%s/%s.pipe" % (stdlib, name), "--emit=json", "-DP=%d" % P, "-DM=%d" % M))
        params = ", ".join("%s = %s" % tuple(p.split("=")) for p in j["params"].split())
        text = ('import "%s/%s.pipe"\nschedule x(%s) extends %s() {\n'
                "  time { F = %d%s  B = %d%s  I = %d%s  W = %d%s }\n"
                "  time s { latency = (s %% 2 == 0 ? %d%s : %d%s)  bandwidth = s %% 2 == 0 ? %d%s : %d%s }\n"
                "  bytes { boundary = %d }\n}\n"
                % (os.path.abspath(stdlib), name, params, j["schedule"], cost["F"], unit, cost["B"], unit, cost["I"], unit,
                   cost["W"], unit, lat, unit, far, unit, bw, "MB" if timed else "B", far_bw, "MB" if timed else "B", size))
        path = scratch + "/x.pipe"
        with open(path, "w") as f:
            f.write(text)
        j = json.loads(run(path, "--emit=json"))
        hop = []
        for s in range(S):
            a, b = (lat, bw) if s % 2 == 0 else (far, far_bw)
            hop.append(a * big + -(-size * 10**9 // (b * 10**6)) if timed else a + -(-size // b))
        for s, st in enumerate(j["stages"]):
            want = hop[s] if s + 1 < S else 0, hop[s - 1] if s > 0 else 0
            assert (st["send"], st.get("send_back", st["send"])) == want, (text, s, st, want)
        ops = [[re.fullmatch(r"(\d+)([FBIW])(\d+)", i["op"]) for i in rank["instr"] if "peer" not in i] for rank in j["rank"]]
        rows = [[(int(m[1]), m[2], int(m[3])) for m in row if m] for row in ops]
        place = {st["stage"]: st["rank"] for st in j["stages"]}
        want = played(rows, {k: v * big for k, v in cost.items()}, hop, place)
        assert j["ideal"] == want, (text, j["ideal"], want)
        assert j["bound"]["makespan"] <= want
        count += 1
print("%d steps over links of two classes" % count)
