# SPDX-License-Identifier: MIT
"""show.py PIPEC FILE...: --show at many widths, in letters, against the times of --emit=json."""
import json
import os
import re
import subprocess
import sys

pipec, bad, grids = sys.argv[1], [], 0


def call(*args, **env):
    return subprocess.run([pipec, *args], capture_output=True, text=True, check=True,
                          env={**os.environ, **env}).stdout


for path in sys.argv[2:]:
    form = json.loads(call("--emit=json", path))
    rows = [[(i["start"], i["end"], re.sub(r"\d", "", i["op"]), i.get("mb")) for i in r["instr"] if "peer" not in i]
            for r in form["rank"]]
    for width in [*range(20, 140, 7), 80, 300, 1000, 5000]:
        out = call("--show", path, COLUMNS=str(width)).splitlines()
        grid = [re.match(r"rank +(\d+) (\S+)", line) for line in out]
        grid = [m[2] for m in grid if m]
        where = f"{os.path.basename(path)} at {width}"
        if len(grid) != len(rows) or len({len(g) for g in grid}) != 1:
            bad.append(f"{where}: rows {list(map(len, grid))}")
            continue
        grids += 1
        if width >= 60 and any(len(line) > width for line in out[1:]):
            bad.append(f"{where}: a line is longer")
        if any(len("rank 00 " + g) > max(width, 20) for g in grid):
            bad.append(f"{where}: a row is longer")
        cols, total = len(grid[0]), form["makespan"]
        ops = [o for row in rows for o in row if o[1] > o[0]]
        mean = sum(b - a for a, b, *_ in ops) / len(ops)
        if "        one cell = " in "\n".join(out):  # what the time around each column is spent on
            assert mean < total / cols, where
            for r, g in enumerate(grid):
                for c, text in enumerate(g):
                    half = max(total / cols, 12 * mean) / 2
                    a, b = max(0, (c + 0.5) * total / cols - half), min(total, (c + 0.5) * total / cols + half)
                    share = {".": b - a}
                    for x, y, kind, _ in rows[r]:
                        part = max(0, min(y, b) - max(x, a))
                        share[kind], share["."] = share.get(kind, 0) + part, share["."] - part
                    most = max(share.values())
                    if text == "#" and most < 0.61 * (b - a):
                        continue
                    if share.get(text, 0) < max(most - 0.1 * len(share) * (b - a), 0.59 * (b - a)):
                        bad.append(f"{where}, rank {r}, column {c}: '{text}', of {share}")
            continue
        for r, g in enumerate(grid):
            ran = []  # per column: the op at its middle
            for c in range(cols):
                t = (2 * c + 1) * total / (2 * cols)
                near = [o for o in rows[r] if o[0] - 1e-6 * total <= t <= o[1] + 1e-6 * total and o[1] > o[0]]
                ran.append([o for o in near if o[0] <= t < o[1]] or near or [None])
            for c, text in enumerate(g):
                kinds = {o[2] if o else "." for o in ran[c]}
                if not text.isdigit() and text not in kinds:
                    bad.append(f"{where}, rank {r}, column {c}: '{text}', not {ran[c]}")
            for m in re.finditer(r"\d+", g):
                if not all(any(o and o[3] == int(m[0]) for o in ran[c]) for c in range(m.start(), m.end() + 1)):
                    bad.append(f"{where}, rank {r}, column {m.start()}: {m[0]}, not {ran[m.start()]}")
        if cols % total == 0:  # it fits: every op is exactly as wide as it is long
            k = cols // total
            for r, g in enumerate(grid):
                idle = sum(1 for c in range(cols) if g[c] == ".")
                if idle != k * (total - sum(b - a for a, b, *_ in rows[r])):
                    bad.append(f"{where}, rank {r}: {idle} idle columns")
print(f"{grids} grids")
print("\n".join(bad[:10]))
sys.exit(1 if bad or grids < 20 * len(sys.argv[2:]) else 0)
