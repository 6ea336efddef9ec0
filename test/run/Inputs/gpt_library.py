# SPDX-License-Identifier: MIT
# Trains the GPT under every schedule of the library that updates once a step, and in a plain loop, and
# compares every loss and the final weights bit by bit: at P = 4, M = 16, and at the edges of what is legal.
#
#   gpt_library.py PIPEC STDLIB TEXT SCRATCH SHARED HOST   shell commands: cc -shared ..., "-o LIBRARY FILE" is
#                                                          added; links the trainer with LIBRARY, "-o HOST LIBRARY" is
#
# Environment: LIBRARY_SHARE=n takes every n-th edge, of each schedule another one.
#
# The trainer is linked once; which program it runs is a matter of LD_LIBRARY_PATH. Prints a line for each that
# is left out, or whose bits differ, how many are equal, at how many schedules each edge was met; and that
# another seed gives other bits.
import glob
import json
import os
import re
import subprocess
import sys

SIZE = "--layers 48 --d 8 --heads 2 --seq 12 --batch 1 --steps 2 --hash".split()
# Of each line the first that the schedule's `requires` allows: all of the edge it is named after.
EDGES = [
    [(4, 1), (4, 2), (4, 3), (4, 4), (4, 5), (4, 8)],  # as few microbatches as may be
    [(1, 3), (1, 2), (2, 3), (2, 2), (2, 4)],  # as few ranks
    [(3, 7), (3, 8), (4, 10), (4, 12), (4, 8)],  # M not a multiple of P, where it need not be
    [(8, 5), (8, 8), (8, 16)],  # M < P on many ranks
]
# Further parameters, where the schedule has them.
MORE = [("V=3", 2, 5), ("V=3", 2, 4), ("W=3", 2, 5), ("Q=3", 3, 2), ("Q=2", 8, 3), ("K=1", 3, 4), ("N=2", 3, 4),
        ("f=2", 4, 8), ("L=2", 4, 6), ("half=1", 4, 9), ("own=1", 4, 9)]


def out(*command, **env):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env})
    if done.returncode:
        sys.exit("%s\n%s" % (" ".join(command), done.stderr))
    return done.stdout


def compiled(pipec, path, to, P, M, more=None):
    """False: the schedule is not made for these values."""
    given = ["-DP=%d" % P, "-DM=%d" % M] + (["-D" + more] if more else [])
    done = subprocess.run([pipec, path, *given, "-o", to], capture_output=True, text=True)
    if done.returncode and not re.search(r"\[requires\]$", done.stderr.split("\n")[0]):
        sys.exit("%s %s\n%s" % (path, given, done.stderr))
    return done.returncode == 0


def main(pipec, stdlib, text, scratch, shared, host):
    equal, total, seen, other = 0, 0, {}, False
    share = int(os.environ.get("LIBRARY_SHARE", 1))
    trainer, c = os.path.join(scratch, "trainer"), os.path.join(scratch, "program.c")
    run = [trainer, "--data", text] + SIZE

    def train(name, P, M, more=None):
        nonlocal equal, total, other
        total += 1
        lib = os.path.join(scratch, "libprogram.so")
        if os.path.exists(lib):
            os.remove(lib)
        out("sh", "-c", '%s -o "$1" "$2"' % shared, "sh", lib, c)
        if not os.path.exists(trainer):
            out("sh", "-c", '%s -o "$1" "$2"' % host, "sh", trainer, lib)
        piped, loop = (out(*run, *seq, LD_LIBRARY_PATH=scratch) for seq in ((), ("--sequential",)))
        if piped.count("loss") != 2 or piped != loop:
            print("%s P=%d M=%d %s: differs" % (name, P, M, more or ""))
            return
        if not other and out(*run, "--seed", "2", LD_LIBRARY_PATH=scratch) == piped:
            sys.exit("another seed gives the same bits")
        other = True
        equal += 1
        for edge, met in (("M = 1", M == 1), ("M < P", M < P), ("M % P > 0", M % P > 0), ("P = 1", P == 1),
                          ("P = 8", P == 8), (more, more)):
            if met:
                seen.setdefault(edge, set()).add(name)

    for number, path in enumerate(sorted(glob.glob(os.path.join(stdlib, "*.pipe")))):
        name = os.path.basename(path)[:-5]
        program = json.loads(out(pipec, path, "-DP=4", "-DM=16", "--emit=json"))
        updates = [o for r in program["rank"] for o in r["instr"] if o["op"].split("U")[0].isdigit() and "U" in o["op"]]
        if program["forward"]:
            print("%s: forward only" % name)
            continue
        if len(updates) != len(program["stages"]):
            print("%s: updates within the step" % name)
            continue
        assert compiled(pipec, path, c, 4, 16)
        train(name, 4, 16)
        for edge, values in enumerate(EDGES):
            if (number + edge) % share:
                continue
            for P, M in values:
                if compiled(pipec, path, c, P, M):
                    train(name, P, M)
                    break
            else:
                sys.exit("%s: not made for any of %s" % (name, values))
        for more, P, M in MORE:
            if more.split("=")[0] in dict(p.split("=") for p in program["params"].split()) and compiled(
                    pipec, path, c, P, M, more):
                train(name, P, M, more)
    print("%d of %d are equal; %s" % (equal, total, ", ".join("%s: %d" % (e, len(n)) for e, n in sorted(seen.items()))))


main(*sys.argv[1:])
