# SPDX-License-Identifier: MIT
# Limits beside the peaks of the emitted program, which other passes count.
#
#   limit.py PIPEC STDLIB SCRATCH
#
# For each schedule of the library that is not tuned, as a limit has a say there, and those of limit.pipe: on each rank `inflight`, `held` and `kept` within their
# peaks hold, and not within one less; so do sums with weights, whose peak is counted here from the CSV form of
# schedules without copies.
import json
import os
import re
import subprocess
import sys

CELL = re.compile(r"(\d+)(F|B|I|W|R)(\d+)")
HERE = os.path.dirname(os.path.abspath(__file__))


def run(pipec, lib, path, *options):
    return subprocess.run([pipec, "-I", lib, "-I", HERE, path, *options], capture_output=True, text=True)


def weighted(ops, live, held):
    """Most of live * stashes + held * microbatches between I and W, while an op runs and after it."""
    now = most = 0
    for kind in ops:
        now += {"F": live, "I": held}.get(kind, 0)
        most = max(most, now)
        now -= {"B": live, "W": live + held}.get(kind, 0)
        most = max(most, now)
    return most


def main(pipec, lib, scratch):
    names = [(f, re.findall(r"^schedule (\w+)", open(os.path.join(lib, f)).read(), re.M)[-1])
             for f in sorted(os.listdir(lib)) if f.endswith(".pipe")]
    names += [("limit.pipe", n) for n in re.findall(r"^schedule (\w+)", open(os.path.join(HERE, "limit.pipe")).read(), re.M)]
    names = [(f, n) for f, n in names if f == "limit.pipe" or "  tune " not in open(os.path.join(lib, f)).read()]
    path, holds, sums = os.path.join(scratch, "t.pipe"), 0, 0
    for file, name in names:
        def written(clauses):
            with open(path, "w") as f:
                f.write('import "%s"\nschedule t() extends %s() {\n%s}\n' % (file, name, clauses))
            return path
        done = run(pipec, lib, written(""), "--emit=json")
        if done.returncode:
            sys.exit(name + ": " + done.stderr)
        program = json.loads(done.stdout)
        tight = []
        for rank in program["rank"]:
            for count in ("inflight", "held", "kept"):
                if rank.get(count):
                    tight.append("limit %s(%d) <= %d" % (count, rank["rank"], rank[count]))
        done = run(pipec, lib, written(""), "--emit=csv")
        kinds = {k for _, k, _ in CELL.findall(done.stdout)}
        plain = program["slices"] == 1 and not program["forward"] and "OVERLAP" not in done.stdout and \
            not any(rank["host"] or rank["guests"] or rank["kept"] for rank in program["rank"])
        if done.returncode == 0 and kinds <= set("FBIW") and plain:
            for r, line in enumerate(done.stdout.splitlines()):
                ops = [k for _, k, _ in CELL.findall(line)]
                for live, held in ((2, -1), (3, 5), (1, -2)):
                    most = weighted(ops, live, held)
                    tight.append("limit %d*inflight(%d) + %d*held(%d) <= %d" % (live, r, held, r, most))
        done = run(pipec, lib, written("".join("  %s\n" % t for t in tight)), "--check")
        if done.returncode:
            sys.exit(name + ": " + done.stderr)
        for t in tight:
            if "(0)" not in t and "(%d)" % (program["ranks"] - 1) not in t:
                continue
            done = run(pipec, lib, written("  %s\n" % t.replace("<=", "<")), "--check")
            if "limit not kept" not in done.stderr or "[over-limit]" not in done.stderr:
                sys.exit("%s: '%s' holds with < too" % (name, t))
        holds += len(tight)
        sums += any("+" in t for t in tight)
    print("%d schedules, %d limits hold, none with less; sums in %d" % (len(names), holds, sums))


main(*sys.argv[1:])
