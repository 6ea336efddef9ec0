# SPDX-License-Identifier: MIT
"""one-rank.py PIPEC FILE...: what --check says where the instructions of one rank at a time are there, and where those
of all ranks are (--verify reads them): the same, message for message.
one-rank.py --memory PIPEC 1F1B: and what memory it takes."""
import os
import subprocess
import sys


def mebibytes(args):
    run = subprocess.Popen(args, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(run.pid, 0)
    if status:
        sys.exit(f"{' '.join(args)}: status {status}")
    return used.ru_maxrss / 1024


if sys.argv[1] == "--memory":
    P, less, more = 64, 32, 3200
    least, most = (mebibytes([sys.argv[2], "--check", "-D", f"P={P}", "-D", f"M={m}", sys.argv[3]]) for m in (less, more))
    instructions = (more - less) * (2 * P + 4 * (P - 1))
    each = (most - least) * 2**20 / instructions
    if each > 48:  # an instruction alone has 48
        sys.exit(f"{each:.0f} bytes for each instruction")
    print("less than the instructions alone")
    sys.exit()

pipec, files = sys.argv[1], sys.argv[2:]  # of .csv and .json, which have their sizes, once each
SIZES = [[], ["-D", "P=4", "-D", "M=8"], ["-D", "P=2", "-D", "M=5"]]
CASES = [[], ["--memory-limit=1KiB"]]


def said(args):
    run = subprocess.run([pipec, "--check", *args], capture_output=True, text=True,
                         env={**os.environ, "PIPE_NO_VERIFY": "1"})  # which debug builds do by themselves
    return run.returncode, run.stdout, run.stderr


proved = refused = 0
for name in files:
    for size in SIZES if name.endswith(".pipe") else SIZES[:1]:
        for case in CASES:
            args = [*size, *case, name]
            one, all_of_them = said(args), said(["--verify", *args])
            if one != all_of_them:
                sys.exit(f"{' '.join(args)}:\n{one}\n{all_of_them}")
            proved += one[0] == 0
            refused += one[0] == 1
print(f"proved {proved > 0}, refused {refused > 0}, the same of both")
