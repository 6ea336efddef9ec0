# SPDX-License-Identifier: MIT
# Trains the GPT under every schedule of the library that updates once a step, and in a plain loop, and
# compares every loss and the final weights bit by bit.
#
#   gpt_library.py PIPEC STDLIB TEXT SCRATCH COMMAND...   COMMAND links a file with the trainer; "-o PROGRAM FILE" is added
#
# Prints a line for each that is left out, or whose bits differ, and how many are equal; and that another seed
# gives other bits.
import glob
import json
import os
import subprocess
import sys

SIZE = "--layers 16 --d 16 --heads 2 --seq 8 --batch 1 --steps 3 --hash".split()


def out(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit("%s\n%s" % (" ".join(command), done.stderr))
    return done.stdout


def main(pipec, stdlib, text, scratch, *link):
    equal, total, plain = 0, 0, {}
    for path in sorted(glob.glob(os.path.join(stdlib, "*.pipe"))):
        name = os.path.basename(path)[:-5]
        given = ["-DP=4", "-DM=16"]
        program = json.loads(out(pipec, path, *given, "--emit=json"))
        updates = [o for r in program["rank"] for o in r["instr"] if o["op"].split("U")[0].isdigit() and "U" in o["op"]]
        if program["forward"]:
            print("%s: forward only" % name)
            continue
        if program["slices"] > 1:
            print("%s: slices" % name)
            continue
        if len(updates) != len(program["stages"]):
            print("%s: updates within the step" % name)
            continue
        total += 1
        here = os.path.join(scratch, name)
        out(pipec, path, *given, "-o", here + ".c")
        out(*link, "-o", here, here + ".c")
        run = [here, "--data", text] + SIZE
        piped, loop = out(*run), out(*run, "--sequential")
        if piped.count("loss") != 3 or piped != loop:
            print("%s: differs" % name)
            continue
        equal += 1
        if equal == 1 and out(*run, "--seed", "2") == piped:
            sys.exit("another seed gives the same bits")
    print("%d of %d are equal" % (equal, total))


main(*sys.argv[1:])
