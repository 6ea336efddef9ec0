# SPDX-License-Identifier: MIT
"""compare.py PIPEC OUT.csv OUT.svg FILE...: the rows of --compare --emit=csv against one compile each, the order
in which they are ranked, and the marks of the picture."""
import csv
import json
import subprocess
import sys
import xml.etree.ElementTree as xml

pipec, table, picture, *files = sys.argv[1:]
rows = list(csv.DictReader(open(table)))
points = {}
for row in rows:
    define = ["-D" + p for p in row["params"].split()]
    got = subprocess.run([pipec, row["file"], *define, "--emit=json"], capture_output=True, text=True)
    assert bool(row["refused"]) == (got.returncode != 0), row
    points.setdefault(tuple(p for p in row["params"].split() if p[0] in "PM"), []).append(row)
    if row["refused"]:
        assert f"[{row['refused']}]" in got.stderr, (row, got.stderr)
        continue
    j = json.loads(got.stdout)
    assert (int(row["makespan"]), int(row["span"])) == (j["makespan"], j["span"]), row
    assert abs(float(row["times"]) - j["makespan"] * j["ranks"] / j["busy"]) < 1e-6, row
    assert int(row["transfers"]) == len(j["transfers"]), row
    models = 1 + max(s["model"] for s in j["stages"])
    assert abs(float(row["inflight"]) - max(r["inflight"] for r in j["rank"]) * j["ranks"] / models) < 1e-3, row
    if j["sized"]:
        assert int(row["bytes"]) == max(r["bytes"]["total"] for r in j["rank"]), row
        sent = [t for t in j["transfers"] if "send" in t]
        assert int(row["volume"]) == 100 * len(sent), row  # boundary = 100
for at, some in points.items():
    assert len(some) == len(files), at
    good = [r for r in some if not r["refused"]]
    assert some[: len(good)] == good and sorted(good, key=lambda r: float(r["times"])) == good, at
    for r in good:
        memory = "bytes" if all(g["bytes"] for g in good) else "inflight"
        time = lambda g: (float(g["times"]), float(g[memory]))
        better = any(time(g) != time(r) and time(g)[0] <= time(r)[0] and time(g)[1] <= time(r)[1] for g in good)
        assert better != (r["front"] == "1") or better is False and any(time(g) == time(r) and g is not r for g in good), r
marks = len(xml.parse(picture).getroot().findall("{http://www.w3.org/2000/svg}g"))
assert marks == sum(not r["refused"] for r in rows), marks
print(len(rows), "rows", sum(bool(r["refused"]) for r in rows), "refused")
