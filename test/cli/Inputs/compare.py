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
    for what in ("makespan", "span"):
        least, gap = int(row[what + "_bound"]), float(row[what + "_gap_percent"])
        assert least == j["bound"][what] <= int(row[what]), row
        assert abs(gap - 100 * (int(row[what]) / least - 1)) < 1e-3 and abs(gap / 100 - j["gap"][what]) < 2e-6, row
    assert abs(j["utilisation"] - j["busy"] / (j["makespan"] * j["ranks"])) < 1e-6, row
    for r in j["rank"]:
        assert abs(r["utilisation"] - r["busy"] / j["makespan"]) < 1e-6, row
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
svg = "{http://www.w3.org/2000/svg}"
page = xml.parse(picture).getroot()
marks, good = page.findall(svg + "g"), [r for r in rows if not r["refused"]]
assert len(marks) == len(good), len(marks)
# A mark says its row; those of the front are named with what is swept, and no name lies on another or on a mark.
values = {}
for p in (p for r in rows for p in r["params"].split()):
    values.setdefault(p.split("=")[0], set()).add(p)
swept = {k for k, v in values.items() if len(v) > 1}
names, at = {}, []
for mark in marks:
    title = mark.find(svg + "title").text
    row = [r for r in good if title.startswith(f"{r['schedule']} {r['params']}: ")]
    assert len(row) == 1 and f"(+{float(row[0]['makespan_gap_percent']):.2f} %)" in title, title
    assert f"(+{float(row[0]['span_gap_percent']):.2f} %)" in title, title
    shape = mark[1]
    x, y = {"circle": lambda: (float(shape.get("cx")), float(shape.get("cy"))),
            "rect": lambda: (float(shape.get("x")) + 4, float(shape.get("y")) + 4),
            "path": lambda: tuple(a + b for a, b in zip(map(float, shape.get("d")[1:].split("l")[0].split()), (0, 5)))}[shape.tag[len(svg):]]()
    at.append((x, y))
    if row[0]["front"] == "1":
        names.setdefault(" ".join([row[0]["schedule"]] + [p for p in row[0]["params"].split() if p.split("=")[0] in swept]), (x, y))
boxes = []
for text in page.findall(svg + "text[@class='label']"):
    wide, x, y = 6.2 * len(text.text), float(text.get("x")), float(text.get("y"))
    x -= wide * {"start": 0, "end": 1}[text.get("text-anchor")]
    assert text.text in names, (text.text, sorted(names))
    assert abs(y - names[text.text][1]) < 70 and min(abs(x - names[text.text][0]), abs(x + wide - names[text.text][0])) < 110, text.text
    boxes.append((x, y - 9, x + wide, y + 2, text.text))
apart = lambda a, b: a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
for k, a in enumerate(boxes):
    assert all(apart(a, b) for b in boxes[:k]), a
    assert all(apart(a, (x - 4, y - 4, x + 4, y + 4)) for x, y in at), a
    assert 0 <= a[0] and a[2] <= float(page.get("width")) and a[1] >= 0, a
assert 3 * len(boxes) >= len(names) and len(boxes) == len({b[4] for b in boxes}), boxes
print(f"{len(boxes)} of {len(names)} named", file=sys.stderr)
print(len(rows), "rows", sum(bool(r["refused"]) for r in rows), "refused")
