# SPDX-License-Identifier: MIT
"""curve.py SVG JSON [LIMIT_BYTES]: the memory curves of a picture against the program's JSON form.

The level of every rank is computed from the ops, their slots and pools; where it holds for more than a
dot the curve has that height, and a peak of any length is there. The line is the limit, or what is
proved, and the curve is never above what is proved. All ranks have one scale."""
import json
import re
import sys
import xml.etree.ElementTree as ET

NS = "{http://www.w3.org/2000/svg}"
form = json.load(open(sys.argv[2]))
limit = int(sys.argv[3]) if len(sys.argv) > 3 else 0
sized, bad = form["sized"], []


def paths(name):
    return [e.get("d") for e in root.iter(NS + "path") if e.get("class") == name and not e.get("d").endswith("h15")]


root = ET.parse(sys.argv[1]).getroot()
live, fixed, foot, line = (paths(c) for c in ("live", "fixed", "foot", "limit"))
ranks = form["rank"]
if not len(live) == len(foot) == len(line) == len(ranks) == (len(fixed) if sized else len(live)):
    sys.exit(f"{len(live)} curves, {len(fixed)} feet, {len(line)} lines of {len(ranks)} ranks")
first = min(i["start"] for r in ranks for i in r["instr"] if "peer" not in i)
last = max(i["end"] for r in ranks for i in r["instr"] if "peer" not in i)
scales = set()
for r, k in enumerate(ranks):
    left, y0, right = map(float, re.fullmatch(r"M([\d.]+) ([\d.]+)H([\d.]+)", foot[r]).groups())
    y1 = float(re.fullmatch(r"M[\d.]+ ([\d.]+)H[\d.]+", line[r]).group(1))
    bound = limit or (k["bytes"]["total"] if sized else k["inflight"])
    px = (y0 - y1) / bound
    scales.add(px)
    room = {c: sum(p["count"] * -(-p["bytes"] // 64) * 64 for p in k["pools"] if p["class"] == c)
            for c in ("act", "gout", "keep")}
    size = {}  # slot -> bytes
    for p in k["pools"]:
        for slot in range(p["first"], p["first"] + p["count"]):
            size[slot] = -(-p["bytes"] // 64) * 64
    base = k["bytes"]["total"] - room["act"] - room["gout"] - room["keep"] if sized else 0
    change = []
    again = {(i["stage"], i["mb"]) for i in k["instr"] if re.fullmatch(r"\d+R\d+", i["op"])}
    only, final = form["forward"], form["slices"] - 1  # forward-only: the last slice gives back all of its microbatch
    for i in k["instr"]:
        kind = re.sub(r"[\d.]", "", i["op"])
        there = (i["stage"], i.get("mb")) in again  # F gives its stash back at once
        away = ("F",) if there or only and i.get("slice", 0) == final else ()
        for name, take, give in (("act", ("F", "LOAD", "R"), ("B", "W", "OFF") + away), ("gout", ("I",), ("W",)),
                                 ("keep", ("F",), ("R",))):
            if name in i and (sized or name == "act"):
                n = size[i[name]] if sized else 1
                if kind in take:
                    change.append((i["start"], 1, n))
                if kind in give:
                    change.append((i["end"], 0, -n * (final + 1 if only else 1)))
    change.sort()
    level, steps = base, [(first, base)]  # from t on
    for t, _, n in change:
        level += n
        steps.append((t, level))
    steps.append((last, level))
    peak = max(v for _, v in steps)
    if level != base or peak > (k["bytes"]["total"] if sized else k["inflight"]):
        bad.append(f"rank {r}: the ops do not add up")
    d = live[r]
    points, x = [], None  # (x, y) from x on
    for m in re.finditer(r"H([\d.]+)V([\d.]+)", d):
        points.append((float(m[1]), float(m[2])))
    if sized and abs(float(fixed[r].split("v")[1].split("h")[0]) - base * px) > 0.02:
        bad.append(f"rank {r}: what is always there is not {base}")
    per = (right - left) / (last - first)
    for (t, v), (u, _) in zip(steps, steps[1:]):
        a, b = left + (t - first) * per, left + (u - first) * per
        if b - a < 1.2:
            continue
        for at in (a + 0.6, (a + b) / 2, b - 0.02):
            y = [p[1] for p in points if p[0] <= at + 0.005][-1]
            if abs(y0 - y - v * px) > 0.02:
                bad.append(f"rank {r} at {t}: the curve is {(y0 - y) / px:.6g}, not {v}")
    drawn = max((y0 - y) / px for _, y in points[:-1])
    if abs(drawn - peak) * px > 0.02:
        bad.append(f"rank {r}: the peak is drawn as {drawn:.6g}, not {peak}")
if max(scales) > min(scales) * 1.01:
    bad.append(f"scales {scales}")
print(f"{len(ranks)} curves")
print("\n".join(bad[:20]))
sys.exit(1 if bad else 0)
