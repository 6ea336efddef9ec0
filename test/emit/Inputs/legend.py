# SPDX-License-Identifier: MIT
# legend.py < SVG: no two entries of the legend touch, and none goes past the page, with letters as wide as in the
# fonts named. Prints the lines.
import re
import sys
import xml.etree.ElementTree as tree

SVG = "{http://www.w3.org/2000/svg}"
root = tree.fromstring(sys.stdin.read())
width = lambda t: sum(7.6 if c.isupper() else 5.1 for c in t)
rows = {}
for e in root.iter(SVG + "text"):
    if e.get("class") == "key":
        rows.setdefault(float(e.get("y")), []).append((float(e.get("x")), "".join(e.itertext())))
for y, keys in rows.items():
    keys.sort()
    ends = [x + width(t) for x, t in keys]
    for (x, t), end in zip(keys[1:], ends):
        assert end <= x - 5, (y, t, end, x)
    assert ends[-1] <= float(root.get("width")), keys[-1]
print(len(rows), "lines")
