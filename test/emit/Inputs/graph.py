# SPDX-License-Identifier: MIT
# Prints the JSON form of a program (standard input) as graph.c prints its C form.
import json
import re
import sys

p = json.load(sys.stdin)


def slots(instr, one):
    many = instr.get(one + "s", [instr[one]] if one in instr else [])
    return f" {one}" + "".join(f" {s}" for s in many)


for e in p["edges"]:
    print(f"edge {e['from']} -> {e['to']}{' skip' if e['skip'] else ''}")
for m, row in enumerate(p["rows"]):
    print(f"row {m}: " + " ".join(map(str, row)))
for i, s in enumerate(p["stages"]):
    print(f"stage {i} model {s['model']} edge {s['edge']} tied {int('tied_with' in s)} {s['tied']}")
for k in p["rank"]:
    for q in k["pools"]:
        print(f"pool {q['first']} {q['count']} {q['bytes']}{' skip' if q['skip'] else ''}")
    for c in k["instr"]:
        text = re.match(r"\d+[A-Z_]+\d*", c["op"])[0]
        print(text + slots(c, "in") + slots(c, "out"))
