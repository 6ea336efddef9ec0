# SPDX-License-Identifier: MIT
# order.py TRACE: whether what was measured, on hosts far from one another, has the order of the prediction in the same
# trace. Each stream of a rank has its instructions in the order predicted; what arrives on one rank was sent before on
# another, and an op comes after that which made its input: by the clock that the trace has for all ranks. Says how many
# pairs of ops on different ranks began in the predicted order, too, which is no must.
import collections
import itertools
import json
import re
import sys

events = json.load(open(sys.argv[1]))["traceEvents"]
tracks, when, bad, checked = collections.defaultdict(list), {}, [], 0
for e in events:
    if e["ph"] != "X":
        continue
    step = e["args"].get("step", 0)
    tracks[e["pid"], e["tid"], step].append((e["ts"], e["name"]))
    when[e["pid"], step, e["name"]] = e["ts"], e["ts"] + e["dur"], (e["tid"] - 1) // 2
steps = sorted({step for pid, step, _ in when if pid == 2})
for (pid, tid, step), measured in tracks.items():
    predicted = [name for _, name in tracks[1, tid, 0]]
    if pid == 2 and [name for _, name in sorted(measured, key=lambda m: m[0])] != predicted:
        bad.append("step %d: another order on track %d" % (step, tid))


def follows(a, b, step):
    global checked
    checked += 1
    sends = "SEND" in a  # it has begun when the other side ends; an op has ended when that which needs it begins
    if not when[2, step, a][0 if sends else 1] < when[2, step, b][1 if sends else 0]:
        bad.append("step %d: %s is not before %s" % (step, a, b))


for step, (_, tid, name) in itertools.product(steps, [(p, s, n) for p, s, n in when if p == 1]):
    stage, kind, mb = re.fullmatch(r"(\d+)([A-Z_]+?)(\d*)", name).groups()
    if kind in ("RECV_F", "RECV_B", "F", "B"):
        other = int(stage) + (-1 if kind.endswith("F") else 1)
        before = "%d%s%s" % (other, kind.replace("RECV", "SEND"), mb)
        if (2, step, before) in when:
            follows(before, name, step)
ops = [name for p, _, name in when if p == 1 and re.fullmatch(r"\d+[FB]\d+", name)]
pairs = [(a, b) for a, b in itertools.combinations(ops, 2) if when[1, 0, a][2] != when[1, 0, b][2] and when[1, 0, a][0] != when[1, 0, b][0]]
same = sum((when[1, 0, a][0] < when[1, 0, b][0]) == (when[2, s, a][0] < when[2, s, b][0]) for s in steps for a, b in pairs)
print("\n".join(bad[:10]) or "same order: %d steps, %d dependences; %d of 100 pairs of ops began as predicted"
      % (len(steps), checked, 100 * same // (len(pairs) * len(steps))))
sys.exit(bool(bad))
