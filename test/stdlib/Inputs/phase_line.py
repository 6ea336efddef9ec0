# SPDX-License-Identifier: MIT
# Compares the two lines of phases of a picture with its program: `phase_line.py SVG JSON`. On each rank the first line is
# at the start of the first backward, the second at the end of the last forward.
import json
import re
import sys


def xs_of(path):
    """x of the line on each rank: 'M x y', then 'V y H x' wherever the next rank has another."""
    return [float(x) for x in re.findall(r"[MH](-?[\d.]+)", path)]


svg, program = open(sys.argv[1]).read(), json.load(open(sys.argv[2]))
lines = [xs_of(d) for d in re.findall(r'<path class="phase" d="(M[^"]*V[^"]*H[^"]*)"', svg)]
first, last = [], []
for rank in program["rank"]:
    first.append(min(i["start"] for i in rank["instr"] if re.match(r"\d+[BI]\d", i["op"])))
    last.append(max(i["end"] for i in rank["instr"] if re.match(r"\d+F\d", i["op"])))
if [len(x) for x in lines] != [len(first)] * 2:
    sys.exit(f"lines over {[len(x) for x in lines]} ranks")
times, places = first + last, lines[0] + lines[1]
scale = (places[-1] - places[0]) / (times[-1] - times[0])
for time, x in zip(times, places):
    if abs(x - places[0] - scale * (time - times[0])) > 0.05:
        sys.exit(f"a line is at {x}, not at time {time}: {times}, {places}")
print(f"{len(first)} ranks")
