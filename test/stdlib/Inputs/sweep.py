# SPDX-License-Identifier: MIT
# Every schedule of the library at many values of its parameters: what it requires is all that keeps it from being
# proved, with its closed forms.
#
#   sweep.py PIPEC STDLIB [FILE...]
#
# Prints what fails for another reason, and how many were proved and how many refused.
import glob
import os
import re
import subprocess
import sys

VALUES = {"V": (1, 3), "G": (3, 8), "W": (1, 3), "Q": (1, 3), "K": (0, 2), "N": (1, 3), "f": (1, 2), "L": (1, 2),
          "half": (0, 1), "own": (0, 1), "flow": (0, 1), "A": (1, 3), "B": (1, 2)}
# Said in a header, not in `requires`: what is proved of these values says more (test/stdlib/updates.test).
LEGAL = {"pipedream_2bw": lambda P, M, G: int(G) >= P}
POINTS = [(P, M) for P in (1, 2, 3, 5, 8) for M in (1, 3, 5, 8, 16)]


def main(pipec, stdlib, *files):
    proved = refused = failed = 0
    for path in sorted(glob.glob(os.path.join(stdlib, "*.pipe"))):
        name = os.path.basename(path)[:-5]
        with open(path) as f:
            head = re.findall(r"^schedule \w+\((.*?)\)(?: extends| requires|\s*\{|\n)", f.read(), re.M)[-1]
        sets = [[]]
        for p in re.findall(r"(\w+) =", head):
            sets = [s + ["-D%s=%d" % (p, v)] for s in sets for v in VALUES.get(p, ())] or sets if p in VALUES else sets
        if files and name not in files:
            continue
        was = proved
        for P, M in POINTS:
            for s in sets[:8]:
                if not LEGAL.get(name, lambda P, M, **_: True)(P, M, **dict(v[2:].split("=") for v in s)):
                    continue
                given = ["-DP=%d" % P, "-DM=%d" % M] + s
                done = subprocess.run([pipec, "--check", path, *given], capture_output=True, text=True)
                first = done.stderr.split("\n")[0]
                if done.returncode == 0:
                    proved += 1
                elif first.endswith("[requires]"):
                    refused += 1
                else:
                    failed += 1
                    print("%s %s: %s" % (name, " ".join(given), first))
        if proved == was:
            sys.exit("%s: nothing was proved" % name)
    print("%d proved, %d refused, %d failed" % (proved, refused, failed))


main(*sys.argv[1:])
