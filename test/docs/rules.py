# SPDX-License-Identifier: MIT
# rules.py ROOT: in runtime/transport/cuda/README.md every rule from R1 to R15 has a row, and every `file: name` is there: a
# function that is defined in that file, a note or a constant.
import re
import sys
from pathlib import Path

root = Path(sys.argv[1])
text = (root / "runtime/transport/cuda/README.md").read_text(encoding="utf-8")
bad = 0
rows = re.findall(r"^\| (R\d+) \|", text, re.M)
if rows != [f"R{i}" for i in range(1, 16)]:
    bad += 1
    print("rows:", *rows)
places = re.findall(r"`([\w./]+\.(?:c|h|cu)): ([^`]+)`", text)
for path, name in places:
    file = root / path
    source = file.read_text(encoding="utf-8") if file.exists() else ""
    word = re.escape(name)
    found = (
        f"{name}:" in source
        if name.startswith("note [")
        else re.search(rf"^#define {word}\b", source, re.M)
        or re.search(rf"^[A-Za-z_][^\n;=]*\b{word}\((?:[^;{{]|\n)*\{{", source, re.M)
    )
    if not found:
        bad += 1
        print(f"{path}: {name} is not there")
print(f"{len(places)} places, {bad} wrong")
sys.exit(bad != 0)
