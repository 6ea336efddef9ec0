# SPDX-License-Identifier: MIT
# Compares the phases of every program of the library with their meaning:
# `phases.py PIPEC STDLIB`. Of the compute ops of a rank those before its first backward (B or I) are warmup, those after
# its last forward flush, the others steady; an action (`group`: how many ops follow in it) has one phase. R belongs to the
# backward after it. warmup_depth, which the report shows, counts the forwards of the warmup.
import json
import os
import re
import subprocess
import sys

SIZES = [(4, 8), (2, 4), (3, 6), (8, 16)]
COMPUTE = re.compile(r"\d+([FBIWU])[\d.]*$")


def ops_of(rank):
    found = []
    for row in rank["instr"]:
        kind = COMPUTE.match(row["op"])
        if kind:
            found.append((kind[1], row["phase"], row.get("group", 0)))
    return found


def wanted(ops):
    """The phases of the ops of a rank, from their kinds and actions alone."""
    kinds = [kind for kind, _, _ in ops]
    first = next((i for i, kind in enumerate(kinds) if kind in "BI"), len(kinds))
    last = len(kinds) - 1 - kinds[::-1].index("F")
    each = ["warmup" if i < first else "steady" if i <= last else "flush" for i in range(len(kinds))]
    at = 0
    while at < len(ops):
        end = at + 1 + ops[at][2]
        if len(set(each[at:end])) > 1:
            each[at:end] = ["steady"] * (end - at)
        at = end
    return each


def main(pipec, stdlib):
    tried = wrong = 0
    for name in sorted(os.listdir(stdlib)):
        for P, M in SIZES if name.endswith(".pipe") else []:
            run = subprocess.run([pipec, "--emit=json", os.path.join(stdlib, name), f"-DP={P}", f"-DM={M}"],
                                 capture_output=True, text=True)
            if run.returncode != 0:
                continue
            for rank in json.loads(run.stdout)["rank"]:
                ops = ops_of(rank)
                want = wanted(ops)
                depth = sum(kind == "F" and phase == "warmup" for (kind, _, _), phase in zip(ops, want))
                tried += 1
                if [phase for _, phase, _ in ops] != want or rank["warmup_depth"] != depth:
                    print(f"{name} P={P} M={M} rank {rank['rank']}: depth {rank['warmup_depth']}, should be {depth}")
                    wrong += 1
    print(f"{tried} ranks, {wrong} wrong")


if __name__ == "__main__":
    main(*sys.argv[1:])
