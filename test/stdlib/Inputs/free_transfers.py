# SPDX-License-Identifier: MIT
# Compares the makespans of both lowerings over the library, where transfers take no time: `free_transfers.py PIPEC STDLIB`.
# The order of transfers in the one queue of a rank then costs nothing that queues of their own do not.
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor


def makespan(pipec, path, lowering, options):
    run = subprocess.run([pipec, "--emit=json", path, f"--lowering={lowering}", *options], capture_output=True, text=True)
    return json.loads(run.stdout)["makespan"] if run.returncode == 0 else None


def main(pipec, stdlib):
    tries = []
    for name in sorted(os.listdir(stdlib)):
        if name.endswith(".pipe"):
            tries += [(name, [f"-DP={P}", f"-DM={M}"]) for P, M in [(4, 8), (4, 16), (8, 16), (8, 32)]]
    tries += [(f"{name}.pipe", ["-DP=8", "-DV=4", "-DM=32"]) for name in ("interleaved", "interleaved_g", "looped_bfs")]

    def both(one):
        return [makespan(pipec, os.path.join(stdlib, one[0]), lowering, one[1]) for lowering in ("global", "channels")]

    tried = slower = 0
    with ThreadPoolExecutor(2) as pool:
        for (name, options), (one, own) in zip(tries, pool.map(both, tries)):
            tried += one is not None
            if one != own:
                print(f"{name} {' '.join(options)}: global {one}, channels {own}")
                slower += 1
    print(f"{tried} programs, {slower} differ")


if __name__ == "__main__":
    main(*sys.argv[1:])
