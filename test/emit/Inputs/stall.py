# SPDX-License-Identifier: MIT
# stall.py PICTURE < MESSAGE: the counter-example as SVG is well-formed and self-contained, has the circle of the
# message word for word, each op of it as a dashed box in the row of its rank, and an arrow for each wait.
import re
import sys
import xml.etree.ElementTree as tree

SVG = "{http://www.w3.org/2000/svg}"
text = open(sys.argv[1], encoding="utf-8").read()
root = tree.fromstring(text)
assert not re.search(r"https?://(?!www\.w3\.org)|<script|<image", text)
notes = re.findall(r"note: (rank \d+ is at .*)", sys.stdin.read())
assert notes
shown = [e.text for e in root.iter(SVG + "text")]
for note in notes:
    assert note in shown, (note, shown)
rows = {e.text: float(e.get("y")) for e in root.iter(SVG + "text") if re.fullmatch(r"rank \d+", e.text)}
boxes = [e for e in root.iter(SVG + "rect") if e.get("x")]
dashed = {(float(b.get("y")), b.get("stroke")) for b in boxes if b.get("stroke-dasharray")}
width = float(root.get("width"))
for b in boxes:
    assert 0 <= float(b.get("x")) and float(b.get("x")) + float(b.get("width")) <= width
labels = {(e.text, float(e.get("y"))) for e in root.iter(SVG + "text")}
arrows = [e for e in root.iter(SVG + "path") if e.get("marker-end")]
waits = 0
for note in notes:
    rank, at, on = re.match(r"rank (\d+) is at (\S+), which (?:needs|comes after|has no room in the buffer before) (\S+?)(?:,|$)",
                            note).groups()
    assert (at, rows["rank " + rank]) in labels, (at, labels)
    other = re.search(r"(?:where|which) rank (\d+)", note[note.index(", which") + 7:])
    if other:
        waits += other[1] != rank
        assert (on, rows["rank " + other[1]]) in labels, (on, labels)
assert sum(e.get("stroke-width") == "2" for e in arrows) == waits, (len(arrows), waits)
assert any(stroke == "firebrick" for _, stroke in dashed)
print("%d rows, %d boxes, %d waits" % (len(rows), len(boxes), waits))
