# SPDX-License-Identifier: MIT
# Bubble and stashes of the library's schedules on the published costs of one model (per chunk of half a stage: F 14407,
# I 14380, W 9676, transfers 1610 us), 16 ranks, 64 microbatches.
#
#   front.py PIPEC STDLIB SCRATCH [FACTOR]   FACTOR multiplies the time of transfers
#
# A bubble is the idle share of all ranks until the last one has ended, on an idle network; a stash counts as the
# part of a stage that its chunk is.
import json
import os
import subprocess
import sys

FORMS = (("v_min", 2, ""), ("v_half", 2, ""), ("gis_h", 4, "V = 4"), ("onef1b_v_auto", 2, ""), ("gis_h", 2, "V = 2"),
         ("zb_h1", 1, ""), ("zb_1p", 1, ""), ("interleaved_zb", 4, "V = 4"), ("zb_v", 2, ""), ("v_zb", 2, ""),
         ("onef1b", 1, ""), ("zb_2p", 1, ""))


def main(pipec, lib, scratch, factor=1):
    path = os.path.join(scratch, "t.pipe")
    for name, chunks, args in FORMS:
        F, I, W = (4 * cost // chunks for cost in (14407, 14380, 9676))  # twice that of a stage, so that a quarter is whole
        with open(path, "w") as f:
            f.write('import "%s.pipe"\nschedule t(P, M) extends %s(%s) {\n  send eager\n'
                    "  time { F = %d  I = %d  W = %d  B = %d  send = %d }\n}\n"
                    % (name.replace("onef1b", "1f1b"), name, args, F, I, W, I + W, 2 * 1610 * factor))
        done = subprocess.run([pipec, "-I", lib, "--emit=json", "-DP=16", "-DM=64", path], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        program = json.loads(done.stdout)
        print("%s%s: %.2f %% at %g" % (name, " V=%d" % chunks if args else "",
                                       100 * (1 - 64 * chunks * (F + I + W) / program["ideal"]),
                                       max(r["inflight"] for r in program["rank"]) / chunks))


main(*sys.argv[1:4], *map(int, sys.argv[4:]))
