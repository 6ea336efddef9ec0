# SPDX-License-Identifier: MIT
# rank_costs.py REPORT < JSON: the last table of --critical-path against the JSON form: what each rank sends, counted
# from its instructions, and its memory by class.
import json
import re
import sys

form = json.load(sys.stdin)
lines = open(sys.argv[1], encoding="utf-8").read().split("\ntensors sent in a step")[1].splitlines()[1:]
unit = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
sizes = lambda row: [(float(v) * unit[u], unit[u]) for v, u in re.findall(r"([0-9.]+) (\w+)", row)]
columns = lines[0].split()[2:]
assert columns[0] == "bytes" and columns[-1] == "total"
ranks, total = form["rank"], dict.fromkeys(columns, 0)
for r, row in zip(ranks, lines[1:]):
    sends = [i for i in r["instr"] if "SEND" in i["op"]]
    assert row.split()[:2] == [str(r["rank"]), str(len(sends))] and r["messages"] == len(sends), row
    known = dict(r["bytes"], bytes=r["volume"])
    for name, (shown, step) in zip(columns, sizes(row)):
        total[name] += known[name]
        assert abs(shown - known[name]) <= 0.05 * step, (name, shown, known[name])
    left = {k: v for k, v in r["bytes"].items() if k not in columns and v}
    assert not left, left
all_ = lines[1 + len(ranks)]
assert all_.split()[:2] == ["all", str(form["messages"])] and form["messages"] == sum(r["messages"] for r in ranks)
assert form["volume"] == total["bytes"] > 0
for name, (shown, step) in zip(columns, sizes(all_)):
    assert abs(shown - total[name]) <= 0.05 * step, (name, shown, total[name])
