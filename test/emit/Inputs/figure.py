# SPDX-License-Identifier: MIT
"""figure.py PICTURE.svg PX ["VALUES"]: so wide, no text outside of it or below 4.5 pt, none of title, heading, caption
and columns; the values at the lines."""
import re
import sys
import xml.etree.ElementTree as xml

NS = "{http://www.w3.org/2000/svg}"
root = xml.parse(sys.argv[1]).getroot()
assert abs(float(root.get("width")) - float(sys.argv[2])) < 0.1, root.get("width")
wide, high = (float(v) for v in root.get("viewBox").split()[2:])
scale = float(root.get("width")) / wide
style = root.find(f"{NS}defs/{NS}style").text
for text in root.iter(NS + "text"):
    name = (text.get("class") or "").split()
    assert not set(name) & {"title", "panel", "cap", "col"}, text.text
    size = text.get("font-size") or re.search(r"text\.%s\{font-size:([0-9.]+)px" % (name or ["?"])[0], style)
    size = float(size if isinstance(size, str) else size[1]) if size else 10
    assert size * scale * 0.75 >= 4.5, (text.text, size)
    x, y = float(text.get("x")), float(text.get("y"))
    room = 0.6 * size * len("".join(text.itertext())) if set(name) & {"bound", "key"} else 0
    assert 0 <= x <= x + room <= wide + 1 and 0 <= y <= high, (text.text, x, room, wide)
bounds = [t.text for t in root.iter(NS + "text") if t.get("class") == "bound"]
assert len(sys.argv) < 4 or bounds == sys.argv[3].split(), bounds
