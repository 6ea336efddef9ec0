# SPDX-License-Identifier: MIT
"""blocks.py PIPEC FILE.md...: every fenced ```pipe block against its canonical form."""
import difflib
import re
import subprocess
import sys

blocks = differ = 0
for path in sys.argv[2:]:
    with open(path, encoding="utf-8") as f:
        text = f.read()
    for m in re.finditer(r"^```pipe[^\n]*\n(.*?)^```$", text, re.S | re.M):
        p = subprocess.run([sys.argv[1], "--fmt", "-"], input=m[1], capture_output=True, text=True, check=False)
        blocks += 1
        if p.returncode != 0 or p.stdout != m[1]:
            differ += 1
            print(path, p.stderr, *difflib.unified_diff(m[1].splitlines(), p.stdout.splitlines(), lineterm=""), sep="\n")
print(f"{blocks} blocks, {differ} differ")
sys.exit(differ > 0)
