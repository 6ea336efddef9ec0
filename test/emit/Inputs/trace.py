# SPDX-License-Identifier: MIT
"""trace.py TRACE RANKS STEPS... [--json FILE]: what any trace must be, read without knowing how it was made.

STEPS: of each group of tracks, in order. Every slice is complete and has a track with a name; slices of a
track follow one another; every arrow goes from a SEND to the RECV of the same tensor on its peer; both
streams of every rank, and its copy stream if it is used, are there, and every step of a group has the same ops,
with their rows in the lists of the ranks. With --json, the form of
pipec for the same program, the one group has its instructions and their times, to the ns (a unit is
1 us), and the sum of the compute slices is `busy`."""
import collections
import json
import re
import sys
from decimal import Decimal

args = sys.argv[1:]
form = json.load(open(args[args.index("--json") + 1])) if "--json" in args else None
args = args[: args.index("--json")] if form else args
trace = json.load(open(args[0]), parse_float=Decimal)
ranks, steps = int(args[1]), [int(a) for a in args[2:]]
bad = []


def expect(ok, text):
    if not ok:
        bad.append(text)


events = trace["traceEvents"]
text = open(args[0]).read()
expect(all(re.fullmatch(r"\d+\.\d{3}", t) for t in re.findall(r'"(?:ts|dur)":([^,}]*)', text)), "ts has three decimals")
process, track = {}, {}
for e in events:
    if e["ph"] == "M" and e["name"] == "process_name":
        process[e["pid"]] = e["args"]["name"]
    if e["ph"] == "M" and e["name"] == "thread_name":
        track[e["pid"], e["tid"]] = e["args"]["name"]
expect(len(process) == len(steps), f"groups {process}")
for pid in process:
    names = [n for (p, _), n in sorted(track.items()) if p == pid]
    expect(names[: 2 * ranks] == [f"rank {r} {s}" for r in range(ranks) for s in ("compute", "comm")], f"tracks {names}")
    copying = {e["tid"] for e in events if e["pid"] == pid and e["ph"] == "X" and e["cat"] == "copy"}
    expect(names[2 * ranks :] == [f"rank {t - 2 * ranks - 1} copy" for t in sorted(copying)], f"tracks {names}")
expect({e["ph"] for e in events} <= {"M", "X", "s", "f"}, "kinds of event")

slices = [e for e in events if e["ph"] == "X"]
row = collections.Counter()
for e in slices:
    at = e["pid"], e["args"]["step"], e["args"]["rank"]
    expect(e["args"]["row"] == row[at], f"{e['name']} is row {e['args']['row']}, after {row[at]} rows")
    row[at] += 1
    expect(track[e["pid"], e["tid"]].startswith(f"rank {e['args']['rank']} "), f"{e['name']} is of another rank")
tracks = collections.defaultdict(list)
for e in slices:
    expect((e["pid"], e["tid"]) in track, f"{e['name']} is on no track")
    expect(e["cat"] == track[e["pid"], e["tid"]].split()[-1], f"{e['name']} is on the wrong stream")
    tracks[e["pid"], e["tid"]].append(e)
for key, list_ in tracks.items():
    for a, b in zip(list_, list_[1:]):
        expect(a["ts"] + a["dur"] <= b["ts"], f"{track[key]}: {a['name']} and {b['name']} overlap")
ops = collections.Counter((e["pid"], e["args"].get("step", 0), e["tid"], e["name"]) for e in slices)
expect(max(ops.values()) == 1, "an op is there twice")
for pid, n in zip(sorted(process), steps):
    have = [sorted((t, o) for p, s, t, o in ops if p == pid and s == k) for k in range(n)]
    expect(have.count(have[0]) == n and sum(map(len, have)) == sum(p == pid for p, *_ in ops), "steps differ")

arrows = collections.defaultdict(dict)
for e in events:
    if e["ph"] in "sf":
        expect(e["ph"] not in arrows[e["id"]], f"arrow {e['id']} has two of one end")
        expect(e["ph"] == "s" or e.get("bp") == "e", "an arrow's end is bound to what encloses it")
        arrows[e["id"]][e["ph"]] = e
starts = collections.defaultdict(list)
for e in slices:
    starts[e["pid"], e["tid"], e["ts"]].append(e)
used = collections.Counter()
for key, ends in arrows.items():
    if set(ends) != {"s", "f"}:
        expect(False, f"arrow {key} has one end")
        continue
    fits = []
    for a in starts[tuple(ends["s"][k] for k in ("pid", "tid", "ts"))]:
        for b in starts[tuple(ends["f"][k] for k in ("pid", "tid", "ts"))]:
            x, y = re.fullmatch(r"(\d+)SEND_(.)(\d+)", a["name"]), re.fullmatch(r"(\d+)RECV_(.)(\d+)", b["name"])
            if x and y and x[2] == y[2] and x[3] == y[3] and int(y[1]) == int(x[1]) + (1 if x[2] == "F" else -1) \
                    and a["args"]["peer"] == (b["tid"] - 1) // 2 and a["args"].get("step") == b["args"].get("step"):
                fits.append((a["pid"], a["args"].get("step"), a["name"]))
    expect(fits, f"arrow {key} does not join a SEND and its RECV")
    used.update(fits[:1])
sends = sum("SEND" in e["name"] for e in slices)
expect(len(arrows) == sends and sends == sum("RECV" in e["name"] for e in slices), "a transfer without an arrow")

if form:
    per = 1 if form["timed"] else 1000
    copy = re.compile(r"\d+(OFF|LOAD)\d+")
    want = collections.Counter((2 * ranks + r["rank"] + 1 if copy.match(i["op"]) else 2 * r["rank"] + 1 + ("peer" in i), i["op"], i["start"] * per, i["end"] * per,
                                i.get("mb"), i["phase"], f"{form['files'][i['at'][0]]}:{i['at'][1]}:{i['at'][2]}")
                               for r in form["rank"] for i in r["instr"])
    have = collections.Counter((e["tid"], e["name"], int(e["ts"] * 1000), int((e["ts"] + e["dur"]) * 1000),
                                e["args"].get("mb"), e["args"]["phase"], e["args"]["at"]) for e in slices)
    expect(want == have, f"not the program: {list((want - have).items())[:2]} {list((have - want).items())[:2]}")
    busy = sum(e["dur"] * 1000 for e in slices if e["cat"] == "compute")
    expect(busy == form["busy"] * per, f"busy {busy}")
    expect(max(e["ts"] + e["dur"] for e in slices) * 1000 == form["makespan"] * per, "makespan")

print(f"{len(process)} group{'s' * (len(process) > 1)}, {len(slices)} slices, {len(arrows)} arrows")
print("\n".join(bad[:20]))
sys.exit(1 if bad else 0)
