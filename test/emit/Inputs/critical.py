# SPDX-License-Identifier: MIT
"""critical.py < JSON: the critical path and the idle time by cause of the JSON form, against its instructions.

A path is right if it begins at 0, ends at the makespan, has no gap, and each of its steps starts as the one
above ends and had to wait for it, by its own waits and the order of queues or by those of the other side
of a transfer. Idle time is computed here per unit of time, from what the other rank and the transfer
did then. Prints how many steps, and idle time by cause summed over the ranks."""
import json
import os
import re
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "oracle"))
import clocks

form = json.load(sys.stdin)
bad = []
comm = lambda i: "peer" in i
where = {}  # op -> (rank, instruction)
stream = {}  # (rank, comm?) -> instructions
known = {}  # op -> (clocks of its rank, row)
for r in form["rank"]:
    own = clocks.of_rank(form, r["rank"])
    for at, i in enumerate(r["instr"]):
        known[i["op"]] = (own, at)
        where[i["op"]] = (r["rank"], i)
        stream.setdefault((r["rank"], comm(i)), []).append(i)


def partner(op):
    s, kind, way, mb = re.fullmatch(r"(\d+)(SEND|RECV)_(.)(\d+)", op).groups()
    step = 1 if (kind == "SEND") == (way == "F") else -1
    return f"{int(s) + step}{'RECV' if kind == 'SEND' else 'SEND'}_{way}{mb}"


def before(op):
    """The ops that had to end before this one could start."""
    own, at = known[op]
    return [i["op"] for k, i in enumerate(form["rank"][where[op][0]]["instr"][:at]) if own.knows(at, k)]


def awaited(i):
    """The last to end of the transfers that a compute op waits for."""
    own, instr = known[i["op"]][0], form["rank"][where[i["op"]][0]]["instr"]
    return max((instr[own.rows_of[q][n - 1]] for q, n in clocks.waits_of(i) if q[0] == "comm"), key=lambda x: x["end"])


def maker(op):
    """The compute op whose tensor a SEND carries."""
    s, way, mb = re.fullmatch(r"(\d+)SEND_(.)(\d+)", op).groups()
    return next(where[s + k + mb][1] for k in ("F" if way == "F" else "BI") if s + k + mb in where)


path = form["critical_path"]
if path[0]["start"] != 0 or path[-1]["end"] != form["makespan"]:
    bad.append("the path is not as long as the step")
if sum(n["end"] - n["start"] for n in path) != form["makespan"]:
    bad.append("the path does not add up to the makespan")
for n in path:
    r, i = where[n["op"]]
    if (r, i["start"], i["end"], i["at"]) != (n["rank"], n["start"], n["end"], n["at"]) or "RECV" in n["op"]:
        bad.append(f"{n['op']} is not as in the program")
for a, b in zip(path, path[1:]):
    needs = before(b["op"]) + (before(partner(b["op"])) if "SEND" in b["op"] else [])
    if a["end"] != b["start"] or not {a["op"], partner(a["op"]) if "SEND" in a["op"] else a["op"]} & set(needs):
        bad.append(f"{b['op']} does not wait for {a['op']}")

def starved(r, ops, k, t):
    """The next forward, before any update, has its input and a slot for its output at time t, but no slot for its stash."""
    later = ops[k:]
    kinds = [re.sub("[0-9.]", "", i["op"]) for i in later]
    if "F" not in kinds or kinds[0] == "F" or "U" in kinds[:kinds.index("F")]:
        return False
    f = later[kinds.index("F")]
    instr = r["instr"][:known[f["op"]][1]]
    filled = [i for i in instr if "RECV" in i["op"] and i["out"] == f.get("in")]
    freed = [i for i in instr if "SEND" in i["op"] and i["in"] == f.get("out")]
    if any(i["end"] > t for i in filled[-1:] + freed[-1:]):
        return False
    pool = next(p for p in r["pools"] if p["first"] <= f["act"] < p["first"] + p["count"])
    mine = lambda i: pool["first"] <= i["act"] < pool["first"] + pool["count"]
    taken = {(i["stage"], i["mb"]) for i in ops if re.fullmatch(r"\d+F\d+", i["op"]) and mine(i) and i["start"] <= t}
    given = {(i["stage"], i["mb"]) for i in ops if re.fullmatch(r"\d+[BW]\d+", i["op"]) and i["end"] <= t}
    return len(taken - given) == pool["count"]


causes = ("warmup", "peer", "transfer", "slot", "memory", "flush")
total = dict.fromkeys(causes, 0)
for r in form["rank"]:
    idle = dict.fromkeys(causes, 0)
    ops = stream[r["rank"], False]
    for k, i in enumerate(ops):
        a = ops[k - 1]["end"] if k else 0
        for t in range(a, i["start"]):
            if not k:
                cause = "warmup"
            else:
                x = awaited(i)
                if starved(r, ops, k, t):
                    cause = "memory"
                elif "SEND" in x["op"]:
                    cause = "slot"
                else:
                    cause = "peer" if maker(partner(x["op"]))["end"] > t else "transfer"
            idle[cause] += 1
    idle["flush"] = form["makespan"] - ops[-1]["end"]
    if idle != r["idle"]:
        bad.append(f"rank {r['rank']} is idle for {idle}, not {r['idle']}")
    if sum(idle.values()) + sum(i["end"] - i["start"] for i in ops) != form["makespan"]:
        bad.append(f"rank {r['rank']}: does not add up")
    for c in causes:
        total[c] += idle[c]
print(len(path), "steps,", " ".join(f"{c} {n}" for c, n in total.items()))
print("\n".join(bad[:10]))
sys.exit(1 if bad else 0)
