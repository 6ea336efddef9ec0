# SPDX-License-Identifier: MIT
# The conditions of the library: each has a reason, and a schedule that a reason names takes what the condition refuses.
#
#   reasons.py PIPEC STDLIB [NAME...]
#
# Values that a condition refuses are given to pipec, which has to print the reason. A reason that names a schedule of the
# library, such as "chimera takes any M" or "interleaved_g with G = M", is followed: that schedule has to compile with the
# values of the parameters that both have, and with those after `with`. Exit 1 if a condition has no reason, if no value
# tried violates it, or if a named schedule refuses.
import glob
import itertools
import os
import re
import subprocess
import sys

HEAD = re.compile(r"^schedule \w+\((.*?)\)(?:\s+extends \w+\(.*?\)(?: without checks)?)?(?:\s+requires (.*?))? \{$", re.M | re.S)
CONDITION = re.compile(r'\s*([^"]+?) : "([^"]+)"(?:,|$)')
SINGLE, THOUSANDTHS = (-1, 0, 1), (1000,)
GRID = ((1, 3, 4, 6), (1, 2, 3, 6, 9))


def run(pipec, name, values):
    words = [f"-D{key}={value}" for key, value in values.items()]
    return subprocess.run([pipec, "--check", name, *words], capture_output=True, text=True)


def points(parameters, named):
    """Values of parameters; of ranks and microbatches together where a reason names another schedule."""
    for name, default in parameters.items():
        for value in SINGLE + (THOUSANDTHS if re.fullmatch(r"\d{3}", default) else ()):
            yield {name: value}
    if named:
        for P, M in itertools.product(*GRID):
            yield {"P": P, "M": M}
        yield {"P": 8, "M": 8, "f": 3}
    if "most" not in parameters:  # else it is tuned, for long
        yield {"P": 40, "M": 48}


def main(pipec, stdlib, *names):
    library = {}
    for path in sorted(glob.glob(os.path.join(stdlib, "*.pipe"))):
        with open(path) as f:
            head = HEAD.findall(f.read())[-1]
        library[os.path.basename(path)[:-5]] = dict(re.findall(r"(\w+) = (\w+)", head[0])), head[1]
    wrong = conditions = followed = 0
    for name, (parameters, text) in library.items():
        if names and name not in names:
            continue
        found = CONDITION.findall(text)
        bare = [c for c, _ in found if "," in re.sub(r"\([^()]*\)", "", c)] + CONDITION.sub("", text).split()
        if bare:
            wrong += 1
            print(f"{name}: a condition has no reason: {bare[0]}")
            continue
        conditions += len(found)
        untold = dict(found)
        named = any(word in library for _, reason in found for word in re.findall(r"\w+", reason))
        for values in points(parameters, named):
            if not set(values) <= set(parameters):
                continue
            said = re.search(r"requires (.*?)(?:, but .*?)?: ([^:\n]*|0: .*) \[requires\]$", run(pipec, name, values).stderr, re.M)
            if not said:
                continue
            for condition in [c for c in untold if said[0].startswith("requires " + c)]:
                del untold[condition]
            for other, key, value in re.findall(r"(\w+)(?: with (\w) = (\w))?", said[2]):
                if other not in library or other == name:
                    continue
                given = {k: v for k, v in values.items() if k in library[other][0]}
                if key:
                    given[key] = values.get(value)
                done = run(pipec, other, given)
                followed += 1
                if done.returncode:
                    wrong += 1
                    print(f"{name} {values} is refused and names {other}, which says: {done.stderr.splitlines()[0]}")
        for condition in untold:
            wrong += 1
            print(f"{name}: no value tried violates {condition}")
    print(f"{conditions} conditions with a reason, {followed} named schedules compile, {wrong} wrong")
    return wrong > 0


sys.exit(main(*sys.argv[1:]))
