# SPDX-License-Identifier: MIT
# names_report.py PIPEC: reports with what would steer a terminal or begin a line of its own.
import json
import subprocess
import sys

evil = "\u009b\u202e"
with open("layers.json", "w") as f:
    json.dump({"pipe_profile": 1, "layers": [{"name": name, "F": 3, "B": 4} for name in ("a\nproved    \x1b" + evil, "b")]}, f)
with open("s.pipe", "w", encoding="utf-8") as f:
    f.write(f"""schedule s(P = 2, M = 4) requires M > 2 : "{evil}" {{
  ranks P
  pipe net stages P mbs M place s -> s
  order r {{ do M {{ F }} do M {{ B }} U }}
}}
""")
for options in ["--check", "--profile=layers.json"], ["--check", "-DM=1..4"]:
    said = subprocess.run([sys.argv[1], "s.pipe", *options], capture_output=True)
    print(said.stdout.decode(), said.stderr.decode(), end="")
