# SPDX-License-Identifier: MIT
"""compare.py PIPEC OUT.csv OUT.svg FILE...: the rows of --compare --emit=csv against one compile each, the order
in which they are ranked, and the marks of the picture."""
import csv
import json
import re
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
    scale, ops = float(row["scale"]), [i for r in j["rank"] for i in r["instr"]]
    work = sum(i["end"] - i["start"] for i in ops if re.fullmatch(r"\d+[FBIW][\d.]+", i["op"]))
    row["per"] = work * scale / j["microbatches"]  # of the model
    for what in ("makespan", "span"):
        least, gap = float(row[what + "_bound"]) / scale, float(row[what + "_gap_percent"])
        assert abs(float(row[what]) / scale - j[what]) < 1e-6 and abs(least - j["bound"][what]) < 1e-6, row
        assert abs(gap - 100 * (j[what] / least - 1)) < 1e-3 and abs(gap / 100 - j["gap"][what]) < 2e-6, row
    assert abs(j["utilisation"] - j["busy"] / (j["makespan"] * j["ranks"])) < 1e-6, row
    for r in j["rank"]:
        assert abs(r["utilisation"] - r["busy"] / j["makespan"]) < 1e-6, row
    assert abs(float(row["work"]) - j["makespan"] * j["ranks"] / work) < 1e-6, row
    assert int(row["transfers"]) == len(j["transfers"]), row
    models = 1 + max(s["model"] for s in j["stages"])
    assert abs(float(row["inflight"]) - max(r["inflight"] for r in j["rank"]) * j["ranks"] / models) < 1e-3, row
    if j["sized"]:
        assert int(row["bytes"]) == max(r["bytes"]["total"] for r in j["rank"]), row
        sent = [t for t in j["transfers"] if "send" in t]
        assert int(row["volume"]) == 100 * len(sent), row  # boundary = 100
# At every point, of every sweep, a microbatch takes as much of each.
assert max(r["per"] for r in rows if "per" in r) < (1 + 1e-9) * min(r["per"] for r in rows if "per" in r), rows
for at, some in points.items():
    assert len(some) == len(files), at
    good = [r for r in some if not r["refused"]]
    assert some[: len(good)] == good and sorted(good, key=lambda r: float(r["work"])) == good, at
    for r in good:
        memory = "bytes" if all(g["bytes"] for g in good) else "inflight"
        time = lambda g: (float(g["work"]), float(g[memory]))
        better = any(time(g) != time(r) and time(g)[0] <= time(r)[0] and time(g)[1] <= time(r)[1] for g in good)
        assert better == (r["front"] == "0"), r
svg = "{http://www.w3.org/2000/svg}"
page = xml.parse(picture).getroot()
places, good = page.findall(svg + "g[@class='place']"), [r for r in rows if not r["refused"]]
# Points in one place are one mark for each schedule and one title, in which each is once; those of the front are
# painted last. The first and the last of a schedule's front are named with what is swept, and no name lies on another
# or on a mark; a line leads from a mark to a name that does not touch it.
values = {}
for p in (p for r in rows for p in r["params"].split()):
    values.setdefault(p.split("=")[0], set()).add(p)
swept = {k for k, v in values.items() if len(v) > 1} & {"P", "V", "M"}  # by -D; others follow from them
called = {f: next((r["schedule"] for r in rows if r["file"] == f and not r["refused"]), f) for f in {r["file"]: 0 for r in rows}}
twice = {n for n in called.values() if list(called.values()).count(n) > 1}
shown = {f: f"{n} ({f.rsplit('/', 1)[-1]})" if n in twice else n for f, n in called.items()}
names, wanted, at, place_of, fronts = {}, {}, [], {}, []
for place in places:
    title, marks = place.find(svg + "title").text, place.findall(svg + "g")
    x, y = (float(v) for v in re.match(r"translate\(([0-9.]+) ([0-9.]+)\)", marks[0].get("transform")).groups())
    assert all(m.get("transform").startswith(marks[0].get("transform").split(" scale")[0]) for m in marks), title
    sizes = [float(m.get("transform").split("scale(")[1][:-1]) for m in marks]
    assert sizes[0] == 1 and all(a > b for a, b in zip(sizes, sizes[1:])), sizes
    here = [r for r in good if re.search(f"^{re.escape(shown[r['file']] + ' ' + r['params'])}: ", title, re.M)]
    said = re.findall(r"^.* times the model's work per rank", title, re.M)
    assert len(said) == len({(r["file"], r["params"]) for r in here}), (title, here)
    for r in here:
        text = re.search(f"^{re.escape(shown[r['file']] + ' ' + r['params'])}: .*\n.*\n.*", title, re.M).group()
        for gap, what in zip(re.findall(r"\(\+([0-9.]+) %\)", text), ("makespan", "span"), strict=True):
            assert abs(float(gap) - float(r[what + "_gap_percent"])) < 0.0052, text  # two decimals of it, and four
        assert place_of.setdefault((r["file"], r["params"]), (x, y)) == (x, y), r
    filled = [m.get("fill") != "white" for m in marks]
    assert filled == sorted(filled) and len(marks) == len({r["file"] for r in here}) == len({m.get("stroke") for m in marks}), title
    assert sum(filled) == len({r["file"] for r in here if r["front"] == "1"}), title
    fronts.append(any(filled))
    at.append((x, y))
assert fronts == sorted(fronts), fronts
assert set(place_of) == {(r["file"], r["params"]) for r in good}
same = {}
for r in good:
    memory = "bytes" if all(g["bytes"] for g in good) else "inflight"
    where = place_of[r["file"], r["params"]]
    assert same.setdefault((r["work"], r[memory]), where) == where, r
    if r["front"] == "1":
        name = " ".join([shown[r["file"]]] + [p for p in r["params"].split() if p.split("=")[0] in swept])
        names[name] = where
        wanted.setdefault(r["file"], []).append(name)
boxes = []
for text in page.findall(svg + "text[@class='label']"):
    wide, x, y = 6.2 * len(text.text), float(text.get("x")), float(text.get("y"))
    x -= wide * {"start": 0, "middle": 0.5, "end": 1}[text.get("text-anchor")]
    assert text.text in names, (text.text, sorted(names))
    mx, my = names[text.text]
    near = lambda px, py: abs(px - min(max(px, x), x + wide)) < 12 and abs(py - y) < 18
    lines = [[float(v) for v in re.findall("[0-9.]+", p.get("d"))] for p in page.findall(svg + "path[@stroke='gray']")]
    assert near(mx, my) or any(abs(a - mx) < 9 and abs(b - my) < 9 and near(c, d) for a, b, c, d in lines), text.text
    boxes.append((x, y - 9, x + wide, y + 2, text.text))
apart = lambda a, b: a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
for k, a in enumerate(boxes):
    assert all(apart(a, b) for b in boxes[:k]), a
    assert all(apart(a, (x - 4, y - 4, x + 4, y + 4)) for x, y in at), a
    assert 0 <= a[0] and a[2] <= float(page.get("width")) and a[1] >= 0, a
assert len(boxes) == len({b[4] for b in boxes}), boxes
for some in wanted.values():
    assert {some[0], some[-1]} <= {b[4] for b in boxes}, some
print(f"{len(boxes)} of {len(names)} named", file=sys.stderr)
print(len(rows), "rows", sum(bool(r["refused"]) for r in rows), "refused")
