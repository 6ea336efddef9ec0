# SPDX-License-Identifier: MIT
"""What the random tests of this folder share: texts are drawn, judged side by side, and counted by what came of them.

usage of each: TEST.py PIPEC SCRATCH [SEED [PROGRAMS ...]]
"""
import collections
import concurrent.futures
import csv
import os
import random
import re
import subprocess
import sys

pipec, scratch = sys.argv[1:3]
seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1


def run(*args):
    return subprocess.run([pipec, *args], capture_output=True, text=True)


def values(path, lo, hi):
    """Of each M: why it does not compile, or ""; those that the schedule does not admit are left out."""
    rows = csv.DictReader(run("--compare", path, f"-DM={lo}..{hi}", "--emit=csv").stdout.splitlines())
    return {int(re.search(r"M=(\d+)", row["params"])[1]): row["refused"]
            for row in rows if row["params"] and row["refused"] != "requires"}


def compile_at(have):
    """The M of values() that compile; asynchronous ones do, and have no place in a comparison."""
    return [m for m, refused in have.items() if refused in ("", "async")]


def judge_all(name, text, judge, programs):
    """How many texts came to what. text(rng) draws one; judge(path, source, where) says what came of it: what is wrong
    begins with `where`. These are printed."""
    programs = int(sys.argv[4]) if len(sys.argv) > 4 else programs
    os.makedirs(scratch, exist_ok=True)
    rng = random.Random(seed)

    def one(case):
        number, source = case
        path = os.path.join(scratch, f"{name}{number}.pipe")
        with open(path, "w") as f:
            f.write(source)
        return judge(path, source, f"seed {seed}, {path}: ")

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = collections.Counter(pool.map(one, [(i, text(rng)) for i in range(programs)]))
    for wrong in filter(is_wrong, found):
        print(wrong)
    return found


def is_wrong(verdict):
    return verdict.startswith("seed")


def end(found):
    sys.exit(any(map(is_wrong, found)))
