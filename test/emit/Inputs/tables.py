# SPDX-License-Identifier: MIT
# Prints the JSON form of a program (standard input) as tables.c prints its C form.
import json
import re
import sys

p = json.load(sys.stdin)


def optional(row, keys):
    return "".join(f" {k}={row[k]}" for k in keys if k in row)


print(f"program {p['schedule']}, {p['params']}, {p['hash']}")
print(f"{p['ranks']} ranks {p['microbatches']} mbs sized {p['sized']} timed {p['timed']} "
      f"slots {p['channel_slots']} times {p['makespan']} {p['ideal']} {p['busy']}")
for name in p["files"]:
    print(f"file {name}")
for i, s in enumerate(p["stages"]):
    row = dict(s)
    assert s["stage"] == i
    if i > 0:
        row["prev"] = i - 1
    if i + 1 < len(p["stages"]):
        row["next"] = i + 1
    for k in ("act", "gout", "boundary", "weight", "grad", "opt", "work"):
        row.setdefault(k, 0)
    print(f"stage {i}:" + optional(row, ("rank", "chunk", "prev", "next", "F", "B", "I", "W", "U", "OFF", "LOAD", "send"))
          + f" {row['send']}" + optional(row, ("FB", "act", "gout", "boundary", "weight", "grad", "opt", "work")))
for r, k in enumerate(p["rank"]):
    assert k["rank"] == r
    slots = sum(q["count"] for q in k["pools"])
    print(f"rank {r}: inflight={k['inflight']} bytes={k.get('bytes', {}).get('total', 0)} host={k.get('host_bytes', 0)} slots={slots}")
    for q in k["pools"]:
        print(f"pool {q['class']}" + optional(q, ("stage", "first", "count", "bytes")))
    for i in k["instr"]:
        stage, op, mb = re.fullmatch(r"(\d+)([A-Z_]+)(\d*)", i["op"]).groups()
        assert int(stage) == i["stage"] and mb == str(i.get("mb", ""))
        print(f"{op} {i['phase']}" + optional(i, ("stage", "mb", "peer", "group", "act", "gout", "keep", "in", "out"))
              + f" waits={len(i.get('waits', []))}" + optional(i, ("version", "weight", "into", "guess", "formula", "behind", "ahead"))
              + f" at {':'.join(map(str, i['at']))}")
    for wait in [w for i in k["instr"] + [k] for w in i.get("waits", [])]:
        queue = 3 + wait["channel"] if "channel" in wait else ("compute", "comm", "copy").index(wait["stream"])
        print(f"wait for {wait['count']} of queue {queue}")
