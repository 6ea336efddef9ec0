# SPDX-License-Identifier: MIT
"""Reads a timeline that svg_test drew and compares it with what the schedule must look like.

  svg_check.py out.svg KIND P M V MODE

MODE says how ops are drawn: rects (each with a tooltip), paths (one per row and kind) or dense
(columns of shares); live is rects of a real run, whose times nobody knows. Expectations come from
closed forms of the schedules, not from svg.c; F = 2, B = 4, I = W = 2 units, transfers take no
time, predicted panel last. Every violation is printed."""
import re
import sys
import xml.etree.ElementTree as ET

path, kind, P, M, V, mode = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]), sys.argv[6]
live = mode == "live"
mode = "rects" if live else mode
NS = "{http://www.w3.org/2000/svg}"
TIME = {"F": 2, "B": 4, "I": 2, "W": 2, "U": 0}
failures = []


def expect(ok, text):
    if not ok:
        failures.append(text)


def near(a, b, tolerance):
    return abs(a - b) <= tolerance


def boxes(d):
    """The rectangles of a path made of M x y h w v h h -w z."""
    number = r"(-?[\d.]+)"
    found = re.findall(rf"M{number} {number}h{number}v{number}h-[\d.]+z", d)
    expect("".join(d.split()).count("M") == len(found), f"path is not all rectangles: {d[:60]}")
    return [tuple(map(float, f)) for f in found]


def luminance(colour):
    c = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    c = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in c]
    return 116 * (0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2]) ** (1 / 3) - 16


root = ET.parse(path).getroot()
width, height = float(root.get("width")), float(root.get("height"))
tags = {e.tag.replace(NS, "") for e in root.iter()}
expect(root.tag == NS + "svg" and root.get("version") == "1.1", "not SVG 1.1")
expect(root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}", "viewBox")
expect(tags <= {"svg", "title", "defs", "pattern", "style", "rect", "path", "g", "text", "tspan"},
       f"elements {sorted(tags)}")
expect(not any("href" in name for e in root.iter() for name in e.attrib), "not self-contained")
for e in root.iter(NS + "text"):
    expect(0 <= float(e.get("x")) <= width and 0 <= float(e.get("y")) <= height,
           f"'{e.text}' is off the page")
for e in root.iter(NS + "text"):
    if (e.get("class") or "").startswith("rank"):
        room = 0.5 * float(e.get("font-size")) * len(e.text)
        expect(float(e.get("x")) - room >= 0, f"'{e.text}' begins left of the page")
for e in root.iter(NS + "path"):
    points = re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", e.get("d"))
    expect(all(0 <= float(x) <= width and 0 <= float(y) <= height for x, y in points),
           f"a path of class {e.get('class')} leaves the page")

# Colours: enough apart in lightness to be told from one another in greyscale.
css = root.find(f"{NS}defs/{NS}style").text
used = dict(re.findall(r"^\.([FBIWRU])\{fill:(#\w{6})\}$", css, re.M))
kinds = "FIWU" if kind == "zb" else "FBU"
expect(set(used) == set(kinds), f"colours of {sorted(used)}, ops are {kinds}")
light = sorted(luminance(c) for c in used.values()) + [100.0]
expect(all(b - a >= 11 for a, b in zip(light, light[1:])), f"lightness {light}")

# Panels: headings with makespan and bubble; the predicted one has closed forms.
heads = [e for e in root.iter(NS + "text") if e.get("class") == "panel"]
ntrack = len(heads)
expect(ntrack in (1, 2) and heads[-1].text == "Predicted", "panel titles")
expect(ntrack == 1 or heads[0].text == "Measured", "first panel is not the measured one")
fact = "".join(heads[-1].itertext())
if kind in ("1f1b", "gpipe"):
    bubble = (P - 1) / (M + P - 1)
elif kind == "interleaved":
    bubble = (P - 1) / (M * V + P - 1)
else:  # ZB-H1 with F = I = W and no transfers: (P-1)(F + I - W) idle a rank
    bubble = (P - 1) / (3 * M + P - 1)
span = 6 * M * V / (1 - bubble)
expect(f"bubble {100 * bubble:.1f} %" in fact, f"heading '{fact}', bubble is {100 * bubble:.1f} %")
seen = re.search(r"makespan ([\d.]+) (units|ms|s)", fact)
expect(seen and near(float(seen[1]) * (1000 if seen[2] == "s" else 1), span, span / 1000),
       f"heading '{fact}', makespan is {span:g}")

# Rows: y of each rank's row in each panel.
names = [e for e in root.iter(NS + "text") if (e.get("class") or "") == "rank"]
expect([e.text for e in names] == [f"rank {r}" for r in range(P)] * ntrack, "names of the ranks")
ops = []  # (panel, rank, kind, x, width, y, height, tooltip)
drawn = [e for e in root.iter() if e.get("class") in used]
legend = [e for e in root.iter(NS + "text") if e.get("class") == "key"]
expect({e.text[0] for e in legend if e.text[1] == " "} == set(kinds), "legend")
legend_y = min(float(e.get("y")) for e in legend) - 12
idle = [b for e in root.iter(NS + "path") if e.get("class") == "idle" for b in boxes(e.get("d"))]
for e in drawn:
    if e.tag == NS + "rect":
        box = [tuple(float(e.get(k)) for k in ("x", "y", "width", "height"))]
    else:
        box = boxes(e.get("d"))
    for x, y, w, h in box:
        if y < legend_y:
            tip = e.find(NS + "title")
            ops.append((y, e.get("class"), x, w, h, tip.text if tip is not None else None))
left = min(b[2] for b in ops)
# A row is found by its foot: columns of shares stand on it or on one another.
feet = sorted({round(float(e.get("y")), 2) for e in names})
rank_of = lambda y, h: min(range(len(feet)), key=lambda i: abs(feet[i] - (y + h / 2)))
rows = [[] for _ in feet]
for op in ops:
    rows[rank_of(op[0], op[4])].append(op)

full = max(x + w for y, c, x, w, h, t in rows[-P] if c != "U") - left
scale = full / span  # px per unit in the predicted panel, whose rank 0 ends last
for i, row in enumerate(rows):
    r, predicted = i % P, i // P == ntrack - 1
    if mode == "dense":
        area = {k: sum(w * h for y, c, x, w, h, t in row if c == k) for k in kinds}
        ratio = area["F"] / area["B"]
        expect(near(ratio, 0.5, 0.03), f"row {i}: shares F/B {ratio:.3f}")
        continue
    row.sort(key=lambda op: op[2])
    for a, b in zip(row, row[1:]):
        expect(a[2] + a[3] <= b[2] + 0.02 or b[1] == "U", f"row {i}: ops overlap at {b[2]}")
    for k in kinds:
        n = sum(1 for op in row if op[1] == k)
        expect(n == V * (1 if k == "U" else M), f"row {i}: {n} {k}")
        if predicted and k != "U":
            want = TIME[k] * scale
            expect(all(0 <= want - op[3] <= 0.8 for op in row if op[1] == k),
                   f"row {i}: width of {k}")
    if mode == "rects":
        want = [f"{c * P + r}U" for c in range(V)]
        want += [f"{c * P + r}{k}{m}" for c in range(V) for m in range(M) for k in kinds[:-1]]
        got = [op[5].split(":")[0] for op in row]
        expect(sorted(got) == sorted(want), f"row {i}: tooltips {sorted(set(want) ^ set(got))}")
        tip = re.compile(r"\w+: [\d.]+ \S+, starts at [\d.]+ \S+\n.+:7:\d+")
        expect(all(tip.fullmatch(op[5]) for op in row), f"row {i}: tooltip '{row[0][5]}'")
    if predicted:
        hatched = sum(w for x, y, w, h in idle if rank_of(y, h) == i)
        expect(near(hatched, bubble * full, 0.02 * full), f"row {i}: {hatched:.1f} px hatched of "
               f"{full:.1f}, bubble is {bubble:.3f}")

# Labels: as many as there are ops of the kinds that have room, each inside an op with its number.
labels = [e for g in root.iter(NS + "g") if g.get("class") == "mb" for e in g]
if mode == "dense":
    expect(not labels, "labels on a dense row")
else:
    expect(M * V > 32 or live or len(labels) >= 2 * P * M * V * ntrack, f"{len(labels)} labels")
    for e in labels:
        x, y = float(e.get("x")), float(e.get("y"))
        hit = [op for op in rows[rank_of(y, 0)] if op[2] <= x <= op[2] + op[3] and op[1] != "U"]
        expect(len(hit) == 1, f"label {e.text} at {x} is in {len(hit)} ops")
        if hit and hit[0][5]:
            expect(re.match(rf"\d+[FBIW]{e.text}:", hit[0][5]), f"label {e.text} on {hit[0][5]}")

# Strips of chunks 1 and up, as many heights as such chunks; phases; transfers.
if V > 1 and mode != "dense":
    strips = [b for e in root.iter(NS + "path") if e.get("class") == "chunk"
              if e.get("d").count("M") > 1 for b in boxes(e.get("d"))]
    expect(len(strips) == 2 * P * (V - 1) * M * ntrack, f"{len(strips)} strips of chunks")
    expect(len({b[3] for b in strips}) == V - 1, "heights of the strips")
if kind != "gpipe" and P > 1 and mode != "dense" and not live:
    got = [e.text for e in root.iter(NS + "text") if e.get("class") == "name"]
    expect(got == ["warmup", "steady", "flush"] * ntrack, f"phases {got}")
heads = [e for e in root.iter(NS + "path") if e.get("class") == "head" and "L" in e.get("d")]
if P > 1 and heads:
    n = sum(e.get("d").count("z") for e in heads)
    expect(n == 2 * M * (P * V - 1) * ntrack, f"{n} transfers")

for text in failures[:20]:
    print(f"svg_check: {path}: {text}")
print(f"{'bad' if failures else 'good'} {kind} P={P} M={M} V={V} panels={ntrack} ops={len(ops)} "
      f"labels={len(labels)} arrows={'yes' if heads else 'no'}")
sys.exit(1 if failures else 0)
