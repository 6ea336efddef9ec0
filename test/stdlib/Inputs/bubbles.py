# SPDX-License-Identifier: MIT
# The bubbles of the published tables of the zero-bubble paper against those of the library's
# schedules on the same costs.
#
#   bubbles.py PIPEC STDLIB FOLDER SCRATCH [FACTOR]   table5.csv and table8.csv in FOLDER
#
# A bubble is 1 - work / span, the longest window of a rank from its first op to its last; of ZB-2p and V-ZB, as
# the heuristics', on a network that makes no transfer wait, of ZB-2p with no more than 2P stashes on a rank, those
# whose I is done counted half. Prints a
# line for each model and one with what is equal to 4 decimals. FACTOR multiplies the transfer time;
# other than 1 must change what is equal.
import csv
import json
import os
import subprocess
import sys

from heuristics import HALF, orders, peak, play

SOURCE = """import "%s.pipe"
schedule t(P, M) extends %s(%s) {
  time { F = %d  I = %d  W = %d  B = %d  send = %d }
}
"""


def bubble(pipec, scratch, name, P, M, F, I, W, send, chunks=1, args=""):
    path = os.path.join(scratch, "t.pipe")
    with open(path, "w") as f:
        f.write(SOURCE % (name, {"1f1b": "onef1b"}.get(name, name), args, F, I, W, I + W, send))
    done = subprocess.run([pipec, "--emit=json", "-DP=%d" % P, "-DM=%d" % M, path], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    j = json.loads(done.stdout)
    work = chunks * M * (F + I + W)
    return 1 - work / j["span"], 1 - work / j["makespan"]


def rows(folder, name):
    with open(os.path.join(folder, name)) as f:
        return list(csv.DictReader(f))


def main(pipec, lib, folder, scratch, factor=1):
    equal = total = 0
    above = 0
    worst_v = -1.0
    for row in rows(folder, "table5.csv"):
        cost = [round(float(row[k]) * 1000) for k in ("TF_ms", "TB_ms", "TW_ms", "Tcomm_ms")]
        cost[3] *= factor
        P, M = int(row["p"]), int(row["m"])
        for key, name in (("1F1B", "1f1b"), ("ZB-H1", "zb_h1"), ("ZB-H2", "zb_h2"), ("ZB-1p", "zb_1p")):
            span, _ = bubble(pipec, scratch, name, P, M, *cost)
            total += 1
            equal += abs(span - float(row["bubble_" + key])) < 0.00015
        if factor != 1:  # nothing else is compared
            continue
        F, I, W = ([c] for c in cost[:3])
        order = orders(pipec, lib, scratch, "zb_2p", P, M, F, I, W, cost[3], "half = 1, own = 1")
        most = max(peak(ops, HALF) for ops in order)
        if most > 4 * P:
            sys.exit("P=%d M=%d: %d halves of a stash, not %d" % (P, M, most, 4 * P))
        span = 1 - M * sum(cost[:3]) / play(order, P, M, F, I, W, cost[3])[1]
        _, makespan = bubble(pipec, scratch, "zb_2p", P, M, *cost, args="half = 1")
        published = float(row["bubble_ZB-2p"])
        above += round(span, 4) > published + 1e-9
        least = (P - 1) * (cost[0] + cost[3])  # of any order on this placement, by makespan
        bound = least / (least + M * sum(cost[:3]))
        print("%s P=%d M=%d: zb_2p %.4f, published %.4f; by makespan %.4f, at least %.4f"
              % (row["model"], P, M, span, published, makespan, bound))
    for row in rows(folder, "table8.csv"):
        cost = [int(row[k]) for k in ("f_us_per_chunk", "b_us_per_chunk", "w_us_per_chunk", "comm_us")]
        P, M = int(row["p"]), int(row["m"])
        stage = [2 * c for c in cost[:3]] + [cost[3] * factor]
        for key, name in (("1F1B", "1f1b"), ("ZB-H1", "zb_h1"), ("ZB-H2", "zb_h2")):
            span, _ = bubble(pipec, scratch, name, P, M, *stage)
            total += 1
            equal += abs(span - float(row["bubble_" + key])) < 0.00015
        if factor != 1:
            continue
        hand, _ = bubble(pipec, scratch, "zb_v", P, M, *cost, chunks=2)
        _, makespan = bubble(pipec, scratch, "v_zb", P, M, *cost, chunks=2)
        F, I, W = ([c] for c in cost[:3])
        order = orders(pipec, lib, scratch, "v_zb", P, M, F, I, W, cost[3], "own = 1")
        span = 1 - 2 * M * sum(cost[:3]) / play(order, 2 * P, M, F, I, W, cost[3])[1]
        worst_v = max(worst_v, span - float(row["bubble_ZB-V"]))
        print("%s P=%d M=%d: zb_v by hand %.4f, v_zb %.4f, published heuristic %s; by makespan %.4f"
              % (row["model"], P, M, hand, span, row["bubble_ZB-V"], makespan))
    if factor == 1:
        print("zb_2p is above the published bubble in %d rows; v_zb is at most %.4f above it" % (above, worst_v))
    print("%d of %d published bubbles are equal" % (equal, total))


main(*sys.argv[1:5], *map(int, sys.argv[5:]))
